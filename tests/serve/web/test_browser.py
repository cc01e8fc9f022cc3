"""A real browser walks the path of each role: no complaint, no request elsewhere, nothing too wide."""

import contextlib
import time

import pytest

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

    def key(self, key, code=None, modifiers=0):
        for kind in ("rawKeyDown", "keyUp"):
            self.browser.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code or key, modifiers=modifiers
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
        asked, faults = self.browser.heard()
        assert all(url.startswith(self.site.url) for url in asked), asked
        assert faults == []
        assert self.ask("document.documentElement.scrollWidth") <= self.width
        assert self.ask(WIDE) == []
        assert self.ask(UNLABELLED) == []
        assert self.ask(PALE) == []
        assert self.ask("document.querySelectorAll('h1').length") == 1

    def login(self, name):
        self.browser.call("Network.clearBrowserCookies")
        self.go("/")
        self.type("[name=name]", name)
        self.type("[name=password]", f"{name} password")
        self.press("button.primary")


@pytest.fixture(params=[(1280, False), (390, True)], ids=["laptop", "phone in the dark"])
def walk(browser, site, request):
    width, dark = request.param
    return Walk(browser, site, width=width, dark=dark)


@pytest.mark.slow
def test_an_analyst_asks(walk):
    walk.login("ana")
    price = 0.11 if walk.dark else 0.12
    walk.type("#sql", f"DP-SELECT {price} clinic, COUNT(*) AS n FROM visits GROUP BY clinic")
    walk.wait("document.querySelector('#price [name=price]')?.value")
    assert walk.ask("document.querySelector('#price').ariaLive") == "polite"
    assert walk.ask("document.querySelector('#price svg.budget + *') !== null")
    assert walk.ask("document.querySelector('.paint .k').textContent") == "DP-SELECT"
    assert walk.ask(
        "document.querySelector('.paint').textContent.trim() === document.querySelector('#sql').value"
    )
    walk.look()
    walk.press("[value=buy]")
    assert walk.ask("document.activeElement.id") == "answer"
    assert walk.ask("document.querySelectorAll('.answer svg .whisker').length") >= 9
    assert walk.ask("document.querySelectorAll('.answer tbody tr').length") == 3
    walk.go("/history")
    assert walk.ask("document.querySelector('tbody').textContent.includes('clinic, COUNT(*)')")
    walk.press("tbody a")
    assert "already paid for" in walk.ask("document.querySelector('#price').textContent")
    walk.go("/connect")
    walk.go("/tables")
    assert walk.ask("document.querySelectorAll('section').length") == 2


@pytest.mark.slow
def test_words_are_completed_by_keyboard(walk):
    walk.login("ana")
    walk.type("#sql", "DP-SELECT 0.1 cli")
    assert walk.ask("document.querySelector('#offers').hidden") is False
    assert walk.ask("document.querySelector('#sql').getAttribute('aria-activedescendant')") == "offer-0"
    assert "clinic" in walk.ask("document.querySelector('#offers').textContent")
    walk.look()
    walk.key("Tab")
    assert walk.ask("document.querySelector('#sql').value").startswith("DP-SELECT 0.1 clinic")
    assert walk.ask("document.activeElement.id") == "sql"
    walk.type("#sql", "")
    walk.key(" ", "Space", modifiers=2)
    first = walk.ask("document.querySelector('[aria-selected=true]').dataset.word")
    walk.key("ArrowDown")
    assert walk.ask("document.querySelector('[aria-selected=true]').dataset.word") != first
    walk.key("Escape")
    assert walk.ask("document.querySelector('#offers').hidden")
    walk.key("Tab")
    assert walk.ask("document.activeElement.id") != "sql"


@pytest.mark.slow
def test_a_steward_describes_releases_and_adds_people(walk):
    name = f"walked-{walk.width}"
    walk.browser.visit(
        f"{walk.site.url}/enter?link={walk.site.service.make_steward_link()}",
        width=walk.width,
        dark=walk.dark,
    )
    walk.look()
    assert walk.ask("document.querySelector('h1').textContent") == "Overview"
    walk.go("/wizard")
    walk.type("[name=source]", "visits.parquet")
    walk.press("button.primary")
    walk.type("[name=codebook]", "clinic: North, South, Harbour\nmonth: 1..12")
    walk.ask("document.querySelector('[name=unit]').value = 'person'")
    walk.type("[name=max_records]", "2")
    walk.press("[value=codebook]")
    walk.ask("document.querySelector('[name=by][value=month]').checked = true")
    walk.press("[value=preview]")
    assert walk.ask("document.querySelectorAll('.split svg rect').length") == 12
    assert "range = [1, 12]" in walk.ask("document.querySelector('pre').textContent")
    walk.go("/wizard")
    walk.press("[name=table]")
    walk.ask("document.querySelector('[name=by][value=month]').checked = true")
    walk.press("[value=preview]")
    walk.type("[name=release]", name)
    walk.browser.follow("document.querySelector('[value=release]').click()")  # it loads itself again
    walk.wait("document.querySelector('.lead')?.textContent.includes('Finished')")
    walk.press("a.primary")
    assert walk.ask("document.querySelector('h1').textContent") == name
    walk.go("/people")
    walk.type("[name=name]:not([type=hidden])", f"new-{walk.width}")
    walk.ask("document.querySelector('[name=role]').value = 'viewer'")
    walk.press("[value=add]")
    assert walk.ask("document.querySelector('[role=status] pre').textContent").startswith("sf_")
    walk.go("/ledger")
    assert walk.ask("document.querySelectorAll('.timeline .charge').length") >= 2


@pytest.mark.slow
def test_a_viewer_reads(walk, tmp_path):
    recipe = 'recipe = "cell-counts"\ntable = "visits"\nby = ["clinic"]\nepsilon = 0.2\n'
    name = f"read-{walk.width}"
    begun = walk.site.call("POST", "/api/release", by="ada", send={"recipe": recipe, "name": name}).json
    walk.site.call("GET", f"/api/jobs/{begun['number']}/events", by="ada")
    walk.login("vic")
    assert walk.ask("location.pathname") == "/releases"
    assert walk.ask("document.querySelectorAll('.top nav a').length") == 2
    walk.press(f"a[href='/releases/{name}']")
    assert walk.ask(
        "[...document.querySelectorAll('.files a')].some(each => each.href.endsWith('certificate.json'))"
    )
    walk.browser.scripted = False  # a report is in a sandbox
    walk.browser.follow("document.querySelector('a.primary').click()")
    asked, faults = walk.browser.heard()
    assert faults == []
    assert len(asked) == 1
    assert walk.ask("document.querySelectorAll('section').length") >= 8
    assert walk.ask("getComputedStyle(document.body).margin") == "0px"


def test_without_scripts_everything_works(browser, site):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.scripted = False
    walk = Walk(browser, site, width=800)
    got = site.call("POST", "/login", form={"name": "ana", "password": "ana password", "next": "/"})
    name, _, value = got.cookie.partition("=")
    browser.call("Network.setCookie", name=name, value=value, url=site.url)
    walk.go("/ask")
    walk.type("#sql", "DP-SELECT 0.13 COUNT(*) AS n FROM visits")
    walk.press("[value=price]")
    walk.press("[value=buy]")
    assert walk.ask("document.querySelectorAll('.answer tbody tr').length") == 1
