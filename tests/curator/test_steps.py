"""`within`: a model for the least epsilon, charged step by step before the records are read."""

import json
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.core.door import Records
from sfumato.core.errors import ChargeKept, SourceError
from sfumato.core.questions.measurement import request_sensitivity
from sfumato.curator import conversation
from sfumato.recipes import Linear, Logistic
from sfumato.recipes import linear as linear_recipe

# How many steps it takes depends on the noise.
pytestmark = pytest.mark.usefixtures("seeded_noise")

COLUMNS = {"x": {"range": [0, 100]}, "g": {"values": ["a", "b"]}, "y": {"range": [0, 100]}}
RECIPE = Linear(table="t", target="y", within="R2 0.05")


def make_rows(count=6000):
    random = np.random.default_rng(3)
    x, g = random.integers(0, 101, count), random.integers(0, 2, count)
    y = np.clip(np.rint(20 + 0.5 * x + 8 * g + random.normal(0, 8, count)), 0, 100).astype(np.int64)
    return pa.table({"x": x, "g": np.array(["a", "b"])[g], "y": y})


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path, COLUMNS, rows=make_rows(), unit="row", epsilon=3, delta=1e-5)


def charges(curator):
    return [each for each in curator.budget().entries if each.kind == "charge"]


def test_less_than_the_most_is_spent_and_every_step_is_charged(project, tmp_path):
    curator = sf.open(project)
    release = curator.release(RECIPE, epsilon=2, delta=1e-6, out=tmp_path / "out")
    model = json.loads(release.files["model.json"])
    entries = charges(curator)
    assert len(entries) == len(release.answers) > 3
    spent = sum(cost.mu_squared for entry in entries for cost in entry.costs)
    assert float(release.certificate["total"]["mu_squared"]) == pytest.approx(float(spent), rel=1e-12)
    assert float(model["epsilon"]) < 1
    assert model["within"]["reached"]
    assert model["within"]["loss_95"] <= 0.05
    assert float(release.certificate["total"]["epsilon_at_delta"]["1e-6"]) <= float(model["epsilon"]) + 1e-6
    verdict = sf.verify(tmp_path / "out", ledger=curator.ledger_path).verdict
    assert "verified against the ledger" in verdict


def test_every_level_costs_a_quarter_more_than_the_one_before(project):
    curator = sf.open(project)
    curator.release(RECIPE, epsilon=2, delta=1e-6)
    *steps, squares = [float(sum(cost.mu_squared for cost in each.costs)) for each in charges(curator)]
    levels = np.cumsum(steps)
    assert levels[1:] / levels[:-1] == pytest.approx(1.25, rel=1e-6)
    assert squares == pytest.approx(levels[-1] / 9, rel=1e-6)


def test_asked_again_it_is_free_and_more_accuracy_costs_the_difference(project):
    curator = sf.open(project)
    first = curator.release(RECIPE, epsilon=1, delta=1e-6)
    before = curator.budget().spent
    again = curator.release(RECIPE, epsilon=1, delta=1e-6)
    assert again.repeated
    assert again.files["model.json"] == first.files["model.json"]
    assert again.files["measurements.parquet"] == first.files["measurements.parquet"]
    assert curator.budget().spent == before
    steps = len(charges(curator))
    better = curator.release(Linear(table="t", target="y", within="R2 0.02"), epsilon=1, delta=1e-6)
    assert not better.repeated
    # All steps but the squared residuals of the first are part of the second.
    assert len(charges(curator)) == 1 + len(better.answers)
    assert len(better.answers) > steps


def test_the_most_must_be_left_before_the_first_charge(project):
    curator = sf.open(project)
    with pytest.raises(sf.BudgetExceeded, match="up to"):
        curator.release(RECIPE, epsilon=4, delta=1e-6)
    assert curator.budget().spent == 0
    with pytest.raises(sf.BudgetExceeded, match="at most"):
        curator.release(RECIPE, epsilon=2, delta=1e-6, at_most=1)
    curator.set_share("ana", "0.5")
    with pytest.raises(sf.BudgetExceeded, match="up to"):
        curator.release(RECIPE, epsilon=2, delta=1e-6, asked_by="ana")
    assert curator.budget().spent == 0


def test_a_goal_out_of_reach_ends_at_the_most(project):
    curator = sf.open(project)
    release = curator.release(Linear(table="t", target="y", within="R2 0.000001"), epsilon="0.2", delta=1e-6)
    model = json.loads(release.files["model.json"])
    assert not model["within"]["reached"]
    assert 0.19 < float(release.certificate["total"]["epsilon_at_delta"]["1e-6"]) <= 0.2
    assert release.certificate["postprocessing"]["within"]["reached"] is False


def test_logistic_models_spend_the_least_too(tmp_path):
    random = np.random.default_rng(6)
    x, g = random.integers(0, 101, 20_000), random.integers(0, 2, 20_000)
    chance = 1 / (1 + np.exp(-(0.06 * (x - 50) + 0.8 * g)))
    y = np.where(random.random(x.size) < chance, "yes", "no")
    columns = {"x": {"range": [0, 100]}, "g": {"values": ["a", "b"]}, "y": {"values": ["no", "yes"]}}
    rows = pa.table({"x": x, "g": np.array(["a", "b"])[g], "y": y})
    project = write_project(tmp_path, columns, rows=rows, unit="row", epsilon=3, delta=1e-5)
    curator = sf.open(project)
    recipe = Logistic(table="t", target="y", within="AUROC 0.01")
    release = curator.release(recipe, epsilon=2, delta=1e-6, out=tmp_path / "out")
    model = json.loads(release.files["model.json"])
    assert model["within"]["reached"]
    assert float(model["epsilon"]) < 1
    assert model["records"] == pytest.approx(20_000, rel=0.3)
    assert len(charges(curator)) == model["within"]["steps"] + 1
    assert "verified against" in sf.verify(tmp_path / "out", ledger=curator.ledger_path).verdict
    assert curator.release(recipe, epsilon=2, delta=1e-6).repeated


def charged_by_hand(table, measurements):
    """The mu^2 of Gaussian noise, from sensitivities and scales alone."""
    return sum(
        float(request_sensitivity(table, each.request)) ** 2 / (float(each.request.scale) ** 2 - 4)
        for each in measurements
    )


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_what_is_charged_is_what_the_noise_costs(tmp_path, monkeypatch, neighbours):
    project = write_project(
        tmp_path, COLUMNS, rows=make_rows(), unit="row", epsilon=3, delta=1e-5, neighbours=neighbours
    )
    recipe = Linear(table="t", target="y", within="R2 0.2")
    table = recipe.plan(
        sf.open(project).project.table("t"), epsilons=(Fraction(1),), delta=Fraction(1, 10**6)
    ).table
    curator = sf.open(project)
    release = curator.release(recipe, epsilon=1, delta=1e-6)
    charged = float(sum(cost.mu_squared for each in charges(curator) for cost in each.costs))
    assert charged == pytest.approx(charged_by_hand(table, release.measurements), rel=1e-9)
    for ledger in tmp_path.glob("ledger.db*"):
        ledger.unlink()
    plain = conversation.ask_cost
    monkeypatch.setattr(
        conversation, "ask_cost", lambda *asked: replace(plain(*asked), scale=plain(*asked).scale * 2)
    )
    with pytest.raises(ChargeKept, match="more is asked than was charged"):
        sf.open(project).release(recipe, epsilon=1, delta=1e-6)


def test_a_recipe_that_goes_beyond_the_most_is_stopped(project, monkeypatch):
    plain = linear_recipe.list_levels
    monkeypatch.setattr(linear_recipe, "list_levels", lambda recipe, most: plain(recipe, most * 2))
    curator = sf.open(project)
    with pytest.raises(sf.SfumatoError, match="more than its plan charges"):
        curator.release(Linear(table="t", target="y", within="R2 0.000001"), epsilon="0.1", delta=1e-6)


@pytest.mark.parametrize("within", ["R2", "R2 0", "R2 1", "AUROC 0.1", "R2 two", 0.02, "R2 0.1 0.2"])
def test_a_goal_that_is_none_is_refused(within):
    with pytest.raises(sf.SfumatoError, match="within"):
        Linear(table="t", target="y", within=within)


def test_held_out_people_and_a_search_exclude_each_other():
    with pytest.raises(sf.SfumatoError, match="within or holdout"):
        Linear(table="t", target="y", within="R2 0.02", holdout="0.2")


def test_without_delta_there_is_no_refinement(tmp_path):
    curator = sf.open(write_project(tmp_path, COLUMNS, rows=make_rows(50), unit="row", epsilon=3))
    with pytest.raises(sf.SfumatoError, match="delta"):
        curator.release(RECIPE, epsilon=1)


KILL = """
import os, sys
import sfumato as sf
from sfumato.accounting import Ledger
from sfumato.recipes import Linear
where, which = sys.argv[2], int(sys.argv[3])
seen = []
plain = getattr(Ledger, where)
def dying(self, *args, **options):
    seen.append(1)
    if len(seen) == which and where == "store_answer":
        os.kill(os.getpid(), 9)
    found = plain(self, *args, **options)
    if len(seen) == which:
        os.kill(os.getpid(), 9)
    return found
setattr(Ledger, where, dying)
sf.open(sys.argv[1]).release(Linear(table="t", target="y", within="R2 0.05"), epsilon=2, delta=1e-6)
"""


@pytest.mark.parametrize(("where", "which"), [("charge", 1), ("charge", 4), ("store_answer", 3)])
def test_a_kill_at_any_point_is_resumed_under_the_charges_made(project, tmp_path, where, which):
    script = tmp_path / "kill.py"
    script.write_text(textwrap.dedent(KILL))
    source = Path(sf.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, str(script), str(project), where, str(which)],
        check=False,
        env={"PYTHONPATH": str(source), "PATH": ""},
    )
    assert done.returncode == -9
    curator = sf.open(project)
    assert len(charges(curator)) == which
    release = curator.release(RECIPE, epsilon=2, delta=1e-6, out=tmp_path / "out")
    # No step was charged twice.
    assert len(charges(curator)) == len(release.answers)
    assert "verified against" in sf.verify(tmp_path / "out", ledger=curator.ledger_path).verdict


def test_nothing_is_read_before_its_charge(project, monkeypatch):
    curator = sf.open(project)
    seen = []
    plain = Records.draw

    def draw(self, asks, true_counts, noise):
        entry = charges(curator)[-1]
        seen.append(entry.description["requests"][0]["name"] == asks[0].name)
        return plain(self, asks, true_counts, noise)

    monkeypatch.setattr(Records, "draw", draw)
    release = curator.release(RECIPE, epsilon=2, delta=1e-6)
    assert seen == [True] * len(release.answers)


def test_a_source_that_changes_between_steps_ends_the_release(project, tmp_path, monkeypatch):
    curator = sf.open(project)
    plain, seen = Records.draw, []

    def draw(self, asks, true_counts, noise):
        seen.append(1)
        if len(seen) == 2:
            pq.write_table(make_rows(100), tmp_path / "t.parquet")
        return plain(self, asks, true_counts, noise)

    monkeypatch.setattr(Records, "draw", draw)
    with pytest.raises(SourceError, match="between two steps"):
        curator.release(RECIPE, epsilon=2, delta=1e-6)
    assert len(charges(curator)) == 2


@pytest.fixture
def written(project, tmp_path):
    curator = sf.open(project)
    curator.release(RECIPE, epsilon=2, delta=1e-6, out=tmp_path / "out")
    return curator, tmp_path / "out"


def forge(folder, change):
    """The certificate changed, with all else as it is."""
    file = folder / "certificate.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("fault", ["a charge left out", "one charge twice", "a cheaper total"])
def test_forged_certificates_are_noticed(written, fault):
    curator, folder = written

    def change(document):
        earlier = document["ledger"]["earlier"]
        if fault == "a charge left out":
            earlier.pop()
        elif fault == "one charge twice":
            earlier[1] = earlier[0]
        else:
            document["total"]["mu_squared"] = "0.000001"

    forge(folder, change)
    with pytest.raises(sf.VerificationFailed):
        sf.verify(folder, ledger=curator.ledger_path)


def test_measurements_of_another_ledger_are_noticed(written, tmp_path):
    _, folder = written
    other = tmp_path / "other"
    shutil.copytree(folder.parent, other, ignore=shutil.ignore_patterns("ledger*", "out", "other"))
    stranger = sf.open(other / "sfumato.toml")
    stranger.release(RECIPE, epsilon=2, delta=1e-6)
    with pytest.raises(sf.VerificationFailed, match="no charge"):
        sf.verify(folder, ledger=stranger.ledger_path)
