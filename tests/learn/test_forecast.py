"""How many coefficients of a regression stand out of the noise: forecast, and told when paid."""

import re

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.cli import run_main
from helpers.projects import write_project

COLUMNS = {
    "age": {"range": [20, 60]},
    "sex": {"values": ["f", "m"]},
    "job": {"values": ["a", "b", "c", "d"]},
    "ill": {"values": ["no", "yes"]},
    "visits": {"range": [0, 10]},
}
TOLD = (
    r"first of 6 coefficients stands out of the noise from about ([\d,]+) records on, all from about ([\d,]+)"
)


def write(folder, count):
    random = np.random.default_rng(3)
    rows = {
        "age": random.integers(20, 61, count),
        "sex": random.choice(["f", "m"], count),
        "job": random.choice(["a", "b", "c", "d"], count),
        "ill": random.choice(["no", "yes"], count),
        "visits": random.integers(0, 11, count),
    }
    folder.mkdir(exist_ok=True)
    return write_project(folder, rows=pa.table(rows), columns=COLUMNS, unit="row", epsilon=100, delta=1e-5)


@pytest.mark.parametrize(("kind", "target"), [("Linear", "visits"), ("Logistic", "ill")])
def test_the_forecast_is_what_comes_out(tmp_path, seeded_noise, kind, target):
    recipe = getattr(sf.learn, kind)(table="t", target=target, inputs=["age", "sex", "job"])
    check = sf.open(write(tmp_path / "empty", 1)).check(recipe, epsilon=1, delta=1e-6)
    first, last = (int(n.replace(",", "")) for n in re.search(TOLD, check.notes[-1]).groups())
    assert 100 < first < last < 20_000
    for name, count, seen in (("few", first // 4, 0), ("many", 2 * last, 6)):
        release = sf.open(write(tmp_path / name, count)).release(recipe, epsilon=1, delta=1e-6)
        assert release.notes[-1] == check.notes[-1]
        facts = release.certificate["postprocessing"]
        assert facts["coefficients"] - facts["not_identified"] == seen


def test_the_command_tells_before_and_after(tmp_path):
    write(tmp_path, 40)
    (tmp_path / "r.toml").write_text(
        'recipe = "logistic"\ntable = "t"\ntarget = "ill"\ninputs = ["age", "sex", "job"]\n'
        "epsilon = 0.1\ndelta = 1e-6\n"
    )
    assert re.search(TOLD, run_main("check", "r.toml", cwd=tmp_path).stderr)
    done = run_main("release", "r.toml", "--out", "out", cwd=tmp_path)
    assert "0 of 6 coefficients stand out of the noise." in done.stdout
