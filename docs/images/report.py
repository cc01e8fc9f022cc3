"""The pictures of docs/report.md and of the lecture: the demo's report seen by a browser, and curves.

Run it with the Python of .venv; it needs an installed Chromium. It writes PNG and SVG files beside itself.
The noise is real, so that pictures differ a little every time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from helpers.browser import Browser  # noqa: E402

SLIDER = ".slider"
SERIES = ".series"


def run(*words: object, folder: Path) -> None:
    """Runs a command of sfumato in `folder`."""
    command = [sys.executable, "-m", "sfumato", *map(str, words)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def keep(browser: Browser, name: str, selector: str, *, height: float) -> None:
    """Writes the upper part of an element."""
    corner = browser.evaluate(
        f"(box => [box.left - 12, box.top + scrollY - 12, box.width + 24])"
        f"(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    (HERE / name).write_bytes(browser.screenshot(clip=(*corner, height)))


def main() -> None:
    """Makes the demo, looks at its report, and draws the curves."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run("demo", "--out", "demo", folder=folder)
        demo = folder / "demo"
        curve = ("check", "monthly.toml", "--epsilon", "0.5")
        run(*curve, "--picture", HERE / "check-curve.svg", "--force", folder=demo)
        belief = ("explain", "epsilon", "1.098612", "--prior", "0.1", "--times", "4")
        run(*belief, "--picture", HERE / "lecture-belief.svg", "--force", folder=demo)
        with Browser() as browser:
            browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
            browser.open(demo / "report.html", width=1280)
            browser.evaluate("document.getElementById('at-t6').click()")
            browser.evaluate("void document.querySelector('.at-t6 .area:nth-child(43)').focus()")
            keep(browser, "report-map.png", SLIDER, height=1250)
            keep(browser, "report-series.png", SERIES, height=330)


if __name__ == "__main__":
    main()
