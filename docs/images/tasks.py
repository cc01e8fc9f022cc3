"""Pictures of task pages, drawn by sfumato itself: answers, distributions, pages for people who look.

Run it with the Python of .venv; it needs an installed Chromium. It writes SVG and PNG files beside itself.
The noise is real, so that pictures differ a little every time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

import sfumato as sf  # noqa: E402
from helpers.browser import Browser  # noqa: E402
from helpers.walks import open_visits  # noqa: E402

STATEMENTS = {
    "sql-answer.svg": "DP-SELECT 0.5 clinic, COUNT(*) AS visits FROM visits GROUP BY clinic",
    "sql-months.svg": "DP-SELECT 0.5 DATE_TRUNC('month', visited) AS month, COUNT(*) AS visits"
    " FROM visits GROUP BY 1 ORDER BY 1",
    "sql-histogram.svg": "DP-SELECT 0.5 HISTOGRAM(fee, 10) AS fee FROM visits",
}


def keep(name: str, plot: object) -> None:
    """Writes a picture as the notebook shows it."""
    (HERE / name).write_text(plot._repr_svg_() + "\n", encoding="utf-8")  # type: ignore[attr-defined]


def draw_answers() -> None:
    """Draws what statements answer, and the distribution of a column by groups."""
    curator = open_visits()
    for name, statement in STATEMENTS.items():
        keep(name, curator.sql(statement).plot())
    draw = np.random.default_rng(2)
    age = np.minimum(99, draw.gamma(9, 5, 1_500)).astype(int)
    frame = pa.table({"age": age, "clinic": np.array(["North", "South"])[draw.integers(0, 2, age.size)]})
    columns = {"age": {"range": [0, 99]}, "clinic": ["North", "South"]}
    frame_curator = sf.from_frame(
        frame, name="visits", unit="row", columns=columns, epsilon=4, delta=1e-6, ledger="frame.db"
    )
    ages = sf.recipes.Quantiles(table="visits", column="age", by="clinic")
    keep("distribution.svg", frame_curator.release(ages, epsilon=0.5).plot())


def draw_pages(folder: Path) -> None:
    """Looks at the page of a k-anonymous table and at that of an attack."""
    draw = np.random.default_rng(1)
    size = 4_000
    rows = {
        "age": draw.integers(18, 90, size),
        "sex": np.array(["f", "m"])[draw.integers(0, 2, size)],
        "place": np.char.add("district ", draw.integers(1, 9, size).astype(str)),
        "illness": np.array(["none", "flu", "asthma", "diabetes"])[draw.integers(0, 4, size)],
    }
    pc.write_csv(pa.table(rows), folder / "patients.csv")
    words = ["anonymize", "patients.csv", "--out", "anonymous.csv", "--quasi", "age,sex,place", "--k", "5"]
    more = ["--sensitive", "illness", "--rows-are-people", "--report", "anonymous.html"]
    subprocess.run([sys.executable, "-m", "sfumato", *words, *more], cwd=folder, check=True)
    with Browser() as browser:
        browser.open(folder / "anonymous.html", width=1000)
        (HERE / "anonymity-page.png").write_bytes(browser.screenshot(clip=(0, 0, 1000, 900)))


def main() -> None:
    """Draws all of them in a folder of its own."""
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        draw_answers()
        draw_pages(Path(place))


if __name__ == "__main__":
    main()
