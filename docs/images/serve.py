"""The pictures of docs/serve.md: `sfumato serve` in the demo's folder, seen by a browser.

Run it with the Python of .venv; it needs `sfumato[serve]` and an installed Chromium. It writes PNG files
beside itself. Answers are noisy, so that pictures differ a little every time.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from helpers.browser import Browser  # noqa: E402
from sfumato.cli.city import write_demo  # noqa: E402

ASKED = """DP-SELECT 0.1 month, COUNT(*) AS records
FROM incidents
WHERE incident = 'noise complaint'
GROUP BY month"""
OTHERS = (
    ("bela", "DP-SELECT 0.2 incident, COUNT(*) AS records FROM incidents GROUP BY incident"),
    ("ana", "DP-SELECT 0.05 COUNT(DISTINCT resident) AS residents FROM incidents"),
    ("bela", "DP-SELECT 0.1 month, COUNT(*) AS records FROM incidents GROUP BY month"),
)
TOGETHER = (
    "neighbourhood, COUNT(*) AS n FROM incidents GROUP BY neighbourhood",
    "COUNT(*) AS n FROM incidents WHERE neighbourhood = 'Harbour'",
    "COUNT(*) AS n FROM incidents",
)


class Visitor:
    """A browser at one server, whose visible part can be kept as a picture."""

    def __init__(self, browser: Browser, page: str) -> None:
        self._browser = browser
        self._page = page

    def go(self, path: str, *, width: int = 1200, dark: bool = False) -> None:
        """Opens a page."""
        self._browser.visit(self._page + path, width=width, dark=dark)

    def fill(self, form: str, **fields: str) -> None:
        """Writes into the fields of these names, in the form within `form`."""
        for name, text in fields.items():
            field = f"document.querySelector('{form} [name={name}]')"
            self._browser.evaluate(f"{field}.value = {json.dumps(text)}")

    def check(self, column: str) -> None:
        """Chooses a column to count by."""
        self._browser.evaluate(f"document.querySelector('[name=by][value={column}]').checked = true")

    def press(self, selector: str) -> None:
        """Presses a button, and waits for the next page."""
        self._browser.follow(f"document.querySelector({json.dumps(selector)}).click()")

    def login(self, name: str) -> None:
        """Signs in as somebody else."""
        self._browser.call("Network.clearBrowserCookies")
        self.go("/login")
        self.fill("main", name=name, password=f"{name} password")
        self.press("button.primary")

    def keep(self, name: str, *, height: int) -> None:
        """Writes the upper part of the page."""
        width = self._browser.evaluate("innerWidth")
        (HERE / name).write_bytes(self._browser.screenshot(clip=(0, 0, width, height)))


def take_pictures(visitor: Visitor, link: str) -> None:
    """Walks through the pages of each role."""
    visitor.go(link)
    for name, role, share in (
        ("ada", "steward", ""),
        ("ana", "analyst", "1"),
        ("bela", "analyst", "0.5"),
        ("vic", "viewer", ""),
    ):
        visitor.go("/people")
        visitor.fill("#add", name=name, password=f"{name} password", role=role, share=share)
        visitor.press("[value=add]")
    for name, statement in OTHERS:
        visitor.login(name)
        visitor.go(f"/ask?sql={quote(statement)}")
        visitor.press("[value=buy]")
    visitor.login("ana")
    visitor.go(f"/ask?sql={quote(ASKED)}")
    visitor.keep("serve-price.png", height=620)
    visitor.press("[value=buy]")
    visitor.keep("serve-answer.png", height=1040)
    visitor.fill(
        ".tools details", title="Noise complaints by month", note="For the noise team.", name="Noise"
    )
    visitor.press(".tools details button.primary")
    visitor.go(f"/ask?sql={quote(OTHERS[0][1])}")
    visitor.press("[value=buy]")
    visitor.fill(".tools details", title="Incidents of the year", note="All of them, by what was reported.")
    visitor.press(".tools details button.primary")
    visitor.keep("serve-dashboard.png", height=700)
    visitor.go("/ask/choose?by=month&from+month=1&to+month=6&rung=1")
    visitor.keep("serve-choose.png", height=960)
    for asked in TOGETHER:
        visitor.go(f"/ask?sql={quote(f'DP-SELECT 0.15 {asked}')}")
        visitor.press("[value=basket]")
    visitor.keep("serve-basket.png", height=620)
    visitor.login("ada")
    visitor.go("/")
    visitor.keep("serve-overview.png", height=700)
    visitor.go("/wizard")
    visitor.press("[name=table]")
    visitor.check("month")
    visitor.press("[value=preview]")
    visitor.keep("serve-wizard.png", height=760)
    visitor.login("ana")
    visitor.go(f"/ask?sql={quote(ASKED)}", width=390, dark=True)
    visitor.keep("serve-phone.png", height=780)


def main() -> None:
    """Serves the demo, takes the pictures, and stops the server."""
    with tempfile.TemporaryDirectory() as place, Browser() as browser:
        folder = Path(place) / "demo"
        write_demo(folder)
        command = [sys.executable, "-m", "sfumato", "serve", "--json", "--link", "steward"]
        command += ["--http-port", "0", "--pg-port", "0"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                text = ""
                while not text.rstrip().endswith("}"):
                    line = server.stdout.readline()
                    assert line, "the server has gone"
                    text += line
                addresses = json.loads(text)
                link = addresses["steward"].removeprefix(addresses["page"])
                take_pictures(Visitor(browser, addresses["page"]), link)
            finally:
                server.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
