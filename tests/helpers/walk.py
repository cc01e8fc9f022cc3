"""Somebody at a browser, who looks at every page of a served project as it is reached."""

import contextlib
import os
import time
from pathlib import Path

import pytest

# What checks every page for people who read with their ears or move with keys; `make clients` installs it.
AXE = Path(
    os.environ.get("SFUMATO_CLIENTS", Path(__file__).parents[2] / ".venv-clients"),
    "node/node_modules/axe-core/axe.min.js",
)
VIOLATIONS = """axe.run(document, {resultTypes: ['violations'], iframes: false}).then(
    found => found.violations.map(each => [
        each.id, each.help, each.nodes.map(node => node.html.slice(0, 200)).slice(0, 5)]))"""

WIDE = """[...document.querySelectorAll('body *')].filter(each =>
    !each.closest('.scroll, pre, svg, .unseen, .skip') && each.getBoundingClientRect().right > innerWidth + 1
).map(each => each.tagName + '.' + each.className)"""
UNLABELLED = """[
    ...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a')
].filter(each => !(each.labels && each.labels.length) && !each.textContent.trim() && !each.ariaLabel
).map(each => each.outerHTML)"""
# WCAG 2: the contrast of every text with what is behind it, 4.5 or 3 for large letters.
PALE = """(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const bend = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * bend(r / 255) + .7152 * bend(g / 255) + .0722 * bend(b / 255);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const found = parse(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())) continue;
    if (node.closest('.painted textarea, .unseen, .skip, [hidden], option')) continue;
    if (!node.getClientRects().length) continue;
    const style = getComputedStyle(node), picture = node.closest('svg');
    const ink = light(parse(picture ? style.fill : style.color)), paper = light(behind(picture || node));
    const ratio = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
    const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 600;
    if (ratio < (large ? 3 : 4.5) - .01) found.push([node.tagName, node.textContent.slice(0, 30), ratio]);
  }
  return found;
})()"""


class Walk:
    """One person at a browser of a given width; every page is looked at as it is reached."""

    def __init__(self, browser, site, *, width, dark=False):
        if not AXE.exists():
            pytest.skip("`make clients` installs axe-core, which looks at every page")
        self.browser, self.site, self.width, self.dark = browser, site, width, dark

    def go(self, path):
        self.browser.visit(self.site.url + path, width=self.width, dark=self.dark)
        self.look()

    def press(self, selector):
        self.browser.follow(f"document.querySelector({selector!r}).click()")
        self.look()

    def type(self, selector, text):
        """Puts a text into a field as if it had been typed."""
        self.browser.evaluate(
            f"""(() => {{
                const field = document.querySelector({selector!r});
                field.focus();
                field.value = {text!r};
                field.selectionStart = field.value.length;
                field.dispatchEvent(new Event('input', {{bubbles: true}}));
            }})()"""
        )

    def key(self, key, code=None, *, modifiers=0):
        """Presses one key; 2 among the modifiers is Ctrl."""
        number = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowDown": 40}[key]
        for kind in ("rawKeyDown", "char", "keyUp"):
            if kind != "char" or (key == "Enter" and not modifiers):
                self.browser.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    code=code or key,
                    modifiers=modifiers,
                    windowsVirtualKeyCode=number,
                    **({"text": "\r"} if kind == "char" else {}),
                )

    def ask(self, expression):
        return self.browser.evaluate(expression)

    def wait(self, expression):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(RuntimeError):  # another page has come meanwhile
                if self.ask(expression):
                    return
            time.sleep(0.05)
        raise TimeoutError(expression)

    def look(self):
        # A page that has just loaded itself again may be heard of before the one that was asked for.
        self.wait("document.readyState === 'complete' && document.querySelector('h1') !== null")
        asked, faults = self.browser.heard()
        assert all(url.startswith(self.site.url) for url in asked), asked
        assert faults == []
        assert self.ask("document.documentElement.scrollWidth") <= self.width
        assert self.ask(WIDE) == []
        assert self.ask(UNLABELLED) == []
        assert self.ask(PALE) == []
        assert self.ask("document.querySelectorAll('h1').length") == 1
        if self.browser.scripted:
            self.ask("void 0;" + AXE.read_text(encoding="utf-8") + ";void 0")
            found = self.ask(VIOLATIONS)
            assert found == [], found

    def login(self, name):
        self.browser.call("Network.clearBrowserCookies")
        self.go("/")
        self.type("[name=name]", name)
        self.type("[name=password]", f"{name} password")
        self.press("button.primary")
