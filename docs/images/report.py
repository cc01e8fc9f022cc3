"""The pictures of docs/report.md, a tutorial and the lecture: reports seen by a browser, and curves.

Run it with the Python of .venv; it needs an installed Chromium. It writes PNG and SVG files beside itself.
The noise is real, so that pictures differ a little every time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from helpers.browser import Browser  # noqa: E402
from helpers.walks import Walk  # noqa: E402

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
        run("demo", "--out", "first", folder=folder)
        demo = folder / "first"
        curve = ("check", "monthly.toml", "--epsilon", "0.5")
        run(*curve, "--picture", HERE / "check-curve.svg", "--force", folder=demo)
        belief = ("explain", "epsilon", "1.098612", "--prior", "0.1", "--times", "4")
        run(*belief, "--picture", HERE / "lecture-belief.svg", "--force", folder=demo)
        with Browser() as browser:
            browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
            browser.open(demo / "report.html", width=1280)
            keep(browser, "report-top.png", "header", height=1080)
            browser.evaluate("document.getElementById('at-t6').click()")
            browser.evaluate("void document.querySelector('.at-t6 .area:nth-child(43)').focus()")
            keep(browser, "report-map.png", SLIDER, height=1250)
            keep(browser, "report-series.png", SERIES, height=330)
            explore(browser, folder)
            os.chdir(folder)
            Walk(HERE.parent / "tutorial-map.md").run()
            browser.open(folder / "city" / "january-report.html", width=1280)
            keep(browser, "tutorial-map.png", ".frame.shown", height=760)


def explore(browser: Browser, folder: Path) -> None:
    """Draws the page of a small model: some bars, with their intervals."""
    import numpy as np
    import pandas as pd

    import sfumato as sf
    from sfumato.report.explorer import build_explorer

    draw = np.random.default_rng(1)
    place = draw.integers(0, 3, 9000)
    frame = pd.DataFrame(
        {
            "region": np.array(["North", "Harbour", "South"])[place],
            "month": 1 + (place * 3 + draw.binomial(11, 0.5, 9000)) % 12,
            "age": np.minimum(99, draw.gamma(9, 5, 9000) + 3 * place),
        }
    )
    columns = {
        "region": ["North", "Harbour", "South"],
        "month": {"range": [1, 12]},
        "age": {"bins": [0, 18, 40, 65, 100]},
    }
    curator = sf.from_frame(
        frame, name="visits", unit="row", columns=columns, epsilon=2, delta=1e-6, ledger=folder / "visits.db"
    )
    curator.release(sf.recipes.Tree(table="visits"), epsilon=1, delta=1e-6, out=folder / "rows")
    (folder / "explore.html").write_bytes(build_explorer(folder / "rows"))
    counts = sf.recipes.CellCounts(table="visits", by=("region", "month"))
    curator.release(counts, epsilon="0.2").plot().write(HERE / "notebook-plot.svg")
    browser.open(folder / "explore.html", width=1280)
    browser.evaluate(
        "opened.then(() => { find('first').value = 1; find('second').value = 0; find('second').onchange(); })"
    )
    keep(browser, "explore.png", "main", height=720)


if __name__ == "__main__":
    main()
