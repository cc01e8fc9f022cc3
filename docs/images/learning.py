"""The pictures of docs/learning.md: the report on a private model of made-up patients, seen by a browser.

Run it with the Python of .venv; it needs an installed Chromium. It writes PNG files beside itself. Noise is
drawn anew, so that pictures differ a little every time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sfumato as sf
from sfumato.report.model import build_model_report

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from helpers.browser import Browser  # noqa: E402

PATIENTS = 30_000
PROJECT = """
[budget]
epsilon = 1
delta = 1e-6

[tables.patients]
source = "patients.parquet"
unit = "row"
[tables.patients.columns.age]
range = [18, 95]
[tables.patients.columns.sex]
values = ["female", "male"]
[tables.patients.columns.smoker]
values = ["never", "former", "current"]
[tables.patients.columns.pressure]
bounds = [80, 220]
[tables.patients.columns.region]
values = ["north", "east", "south", "west", "islands"]
[tables.patients.columns.stroke]
values = ["no", "yes"]
"""


def simulate() -> pa.Table:
    """People whose risk rises with age and beyond a pressure of 140, and with smoking."""
    draw = np.random.default_rng(1)
    age = np.clip(draw.gamma(9, 6, PATIENTS) + 5, 18, 95).astype(np.int64)
    sex = draw.choice(["female", "male"], PATIENTS)
    smoker = draw.choice(["never", "former", "current"], PATIENTS, p=[0.5, 0.3, 0.2])
    pressure = np.clip(draw.normal(105 + 0.5 * age, 16), 80, 220)
    region = draw.choice(
        ["north", "east", "south", "west", "islands"], PATIENTS, p=[0.3, 0.25, 0.2, 0.2, 0.05]
    )
    risk = -6.2 + 0.055 * age + np.maximum(pressure - 140, 0) * 0.035 + 0.9 * (smoker == "current")
    stroke = np.where(draw.random(PATIENTS) < 1 / (1 + np.exp(-risk)), "yes", "no")
    return pa.table(
        {"age": age, "sex": sex, "smoker": smoker, "pressure": pressure, "region": region, "stroke": stroke}
    )


def main() -> None:
    """Fits the model and keeps two parts of its report."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(simulate(), folder / "patients.parquet")
        (folder / "sfumato.toml").write_text(PROJECT)
        recipe = sf.learn.Additive(table="patients", target="stroke", holdout="0.2", groups="sex")
        sf.open(folder / "sfumato.toml").release(recipe, epsilon=1, delta="1e-6", out=folder / "model")
        (folder / "report.html").write_bytes(build_model_report(folder / "model"))
        with Browser() as browser:
            browser.visit((folder / "report.html").as_uri(), width=1000)
            for name, heading in (("learning-judged", 1), ("learning-shapes", 2)):
                top, bottom = browser.evaluate(
                    f"""(() => {{ const all = [...document.querySelectorAll('main section, section')];
                    const at = all[{heading - 1}].getBoundingClientRect();
                    return [at.top + scrollY, at.bottom + scrollY] }})()"""
                )
                clip = (0, top, 1000, min(bottom - top, 1000))
                (HERE / f"{name}.png").write_bytes(browser.screenshot(clip=clip))


if __name__ == "__main__":
    main()
