import errno
import os
import signal
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.core import files as write
from sfumato.core.engine.statements import StatementEngine

RECIPE = sf.recipes.CellCounts(table="t", by=("region", "month"))


def spent(project):
    return sf.open(project).budget().spent


def test_a_release_has_every_cell_and_is_charged(project):
    curator = sf.open(project)
    assert not (project.parent / "ledger.db").exists(), "opening spends nothing and writes nothing"
    release = curator.release(RECIPE, epsilon=1.0, out=project.parent / "out")
    assert release.table.num_rows == 36
    assert release.table.column_names == ["region", "month", "count"]
    assert min(release.table["count"].to_pylist()) >= 0
    assert curator.budget().spent == 1
    assert curator.budget().left == 19
    assert str(curator.budget().left) == "19"
    assert sorted(path.name for path in (project.parent / "out").iterdir()) == [
        "certificate.json",
        "measurements.parquet",
        "table.csv",
        "table.parquet",
        "writeup.md",
    ]
    assert release.to_pandas().shape == (36, 3)


def test_several_epsilons_are_charged_each(project):
    curator = sf.open(project)
    release = curator.release(RECIPE, epsilon=[1, 2, 10])
    assert release.table.num_rows == 3 * 36
    assert release.table.column_names[0] == "epsilon"
    assert curator.budget().left == 7


def test_the_same_plan_is_answered_from_the_ledger(project):
    curator = sf.open(project)
    first = curator.release(RECIPE, epsilon=1, out=project.parent / "one")
    second = sf.open(project).release(RECIPE, epsilon="1.0", out=project.parent / "two")
    assert second.repeated
    assert not first.repeated
    assert second.files == first.files
    assert curator.budget().spent == 1


def test_a_changed_table_or_plan_is_a_new_charge(project, people):
    curator = sf.open(project)
    curator.release(RECIPE, epsilon=1)
    curator.release(sf.recipes.CellCounts(table="t", by=("region",)), epsilon=1)
    assert curator.budget().spent == 2
    pq.write_table(people.slice(1), project.parent / "t.parquet")
    assert not curator.release(RECIPE, epsilon=1).repeated
    assert curator.budget().spent == 3


def test_over_budget_spends_and_writes_nothing(project):
    curator = sf.open(project)
    curator.release(RECIPE, epsilon=19)
    with pytest.raises(sf.BudgetExceeded, match="left") as caught:
        curator.release(RECIPE, epsilon=1.5, out=project.parent / "out")
    assert caught.value.left >= 1
    assert curator.budget().spent == 19
    assert not (project.parent / "out").exists()


def test_released_names_do_not_clash(project):
    clashing = project.read_text().replace(
        "[tables.t.columns.month]", '[tables.t.columns.count]\nfrom = "month"'
    )
    project.write_text(clashing)
    recipe = sf.recipes.CellCounts(table="t", by=("region", "count"))
    with pytest.raises(sf.RecipeError, match="'count'"):
        sf.open(project).check(recipe, epsilon=1)


@pytest.mark.parametrize(
    "epsilon",
    [0, -1, float("nan"), float("inf"), "text", None, [], [1, 1], True, "\u0663", "1_0", "9" * 5000, "1e999"],
)
def test_a_bad_epsilon_is_refused(project, epsilon):
    with pytest.raises(sf.RecipeError, match="epsilon"):
        sf.open(project).release(RECIPE, epsilon=epsilon)
    assert spent(project) == 0


@pytest.mark.parametrize("delta", [-0.1, 1, 2, "x", float("nan")])
def test_a_bad_delta_is_refused(project, delta):
    with pytest.raises(sf.RecipeError, match="delta"):
        sf.open(project).release(RECIPE, epsilon=1, delta=delta)
    assert spent(project) == 0


def test_delta_needs_a_budget_with_delta(project):
    project.write_text(project.read_text().replace("delta = 1e-9", ""))
    with pytest.raises(sf.RecipeError, match=r"\[budget\] delta"):
        sf.open(project).release(RECIPE, epsilon=1, delta=1e-9)


@pytest.mark.parametrize(
    ("find", "put", "words"),
    [
        ('source = "t.parquet"', 'source = "gone.parquet"', "does not exist"),
        ('unit = "person"', 'unit = "passport"', "unit column 'passport'"),
        ("[tables.t.columns.month]", '[tables.t.columns.month]\nfrom = "moon"', "'moon'"),
        ("range = [1, 12]", "", "no public domain"),
        ("range = [1, 12]", "range = [1, 200000000]", "cells"),
        ("max_records = 3", "max_records = 900000000\nbounding = 'weight'", r"2\^50"),
    ],
)
def test_faults_of_public_facts_cost_nothing(project, find, put, words):
    project.write_text(project.read_text().replace(find, put))
    with pytest.raises(sf.SfumatoError, match=words):
        sf.open(project).release(RECIPE, epsilon="0.1", out=project.parent / "out")
    assert spent(project) == 0
    assert not (project.parent / "out").exists()
    assert not (project.parent / "ledger.db").exists()


def test_an_existing_folder_is_refused_before_the_charge(project):
    (project.parent / "out").mkdir()
    (project.parent / "out" / "mine.txt").write_text("keep me")
    for force in (False, True):
        with pytest.raises(sf.ReleaseError, match="out"):
            sf.open(project).release(RECIPE, epsilon=1, out=project.parent / "out", force=force)
    assert spent(project) == 0
    assert (project.parent / "out" / "mine.txt").exists()


def test_force_replaces_a_release(project):
    curator = sf.open(project)
    curator.release(RECIPE, epsilon=1, out=project.parent / "out")
    curator.release(RECIPE, epsilon=2, out=project.parent / "out", force=True)
    assert sf.verify(project.parent / "out").total["epsilon"] == "2"
    assert not list(project.parent.glob(".out*"))


def test_force_never_removes_a_ledger_a_project_or_records(project):
    text = project.read_text().replace("delta = 1e-9", 'delta = 1e-9\nledger = "out/ledger.db"')
    (project.parent / "out").mkdir()
    project.write_text(text)
    with pytest.raises(sf.ReleaseError, match="ledger"):
        sf.open(project).release(RECIPE, epsilon=1, out=project.parent / "out", force=True)
    release = sf.open(project).release(RECIPE, epsilon=1)
    (project.parent / "certificate.json").write_bytes(release.files["certificate.json"])
    with pytest.raises(sf.ReleaseError, match="not part of a release"):
        sf.open(project).release(RECIPE, epsilon=1, out=project.parent, force=True)
    assert project.exists()


class Breaking(StatementEngine):
    """An engine that fails while it reads records."""

    def count(self, table, questions, *, progress):
        raise sf.SourceError("disk gone")


def test_a_failure_after_the_charge_keeps_it(project, monkeypatch):
    monkeypatch.setattr("sfumato.servers.project.open_engine", Breaking)
    with pytest.raises(sf.SourceError, match="The charge is kept"):
        sf.open(project).release(RECIPE, epsilon=1, out=project.parent / "out")
    assert spent(project) == 1
    assert not (project.parent / "out").exists()


def test_the_charge_is_durable_before_records_are_read(project, monkeypatch):
    seen = []

    class Watching(StatementEngine):
        def count(self, table, questions, *, progress):
            seen.append(spent(project))
            return super().count(table, questions, progress=progress)

    monkeypatch.setattr("sfumato.servers.project.open_engine", Watching)
    sf.open(project).release(RECIPE, epsilon=1)
    assert seen == [1]


def test_a_source_that_changes_while_it_is_read_is_not_released(project, monkeypatch, people):
    class Racing(StatementEngine):
        def count(self, table, questions, *, progress):
            pq.write_table(people.slice(2), project.parent / "t.parquet")
            return super().count(table, questions, progress=progress)

    monkeypatch.setattr("sfumato.servers.project.open_engine", Racing)
    with pytest.raises(sf.SourceError, match="changed while it was read"):
        sf.open(project).release(RECIPE, epsilon=1)
    assert spent(project) == 1


def test_a_full_disk_leaves_no_half_release_and_the_rerun_is_free(project, monkeypatch):
    original = write.write_bytes

    def full(path, content):
        if path.name == "table.csv":
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(path, content)

    out = project.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr("sfumato.release.folder.write_bytes", full)
        with pytest.raises(sf.ReleaseError, match="No space left"):
            sf.open(project).release(RECIPE, epsilon=1, out=out)
    assert not out.exists()
    assert not list(project.parent.glob(".out*"))
    assert sf.open(project).release(RECIPE, epsilon=1, out=out).repeated
    assert spent(project) == 1


def test_two_processes_at_once_never_overspend(project):
    project.write_text(project.read_text().replace("epsilon = 20.0\ndelta = 1e-9", "epsilon = 2.0"))
    code = (
        "import sys, sfumato as sf\n"
        "recipe = sf.recipes.CellCounts(table='t', by=('region',))\n"
        "done = 0\n"
        "for k in range(4):\n"
        "    try:\n"
        "        sf.open(sys.argv[1]).release(recipe, epsilon=f'0.5{sys.argv[2]}{k}')\n"
        "        done += 1\n"
        "    except sf.BudgetExceeded:\n"
        "        pass\n"
        "print(done)\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code, str(project), str(n)], stdout=subprocess.PIPE)
        for n in range(3)
    ]
    assert sum(int(run.communicate()[0]) for run in runs) == 3
    assert spent(project) <= 2


def test_an_interrupt_keeps_the_charge_and_writes_nothing(project):
    code = (
        "import os, signal, sys\n"
        "from sfumato.servers import project as engines\n"
        "from sfumato.cli import main\n"
        "from sfumato.core.engine.statements import StatementEngine\n"
        "class Slow(StatementEngine):\n"
        "    def count(self, *args, **options):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "engines.open_engine = Slow\n"
        "sys.argv = ['sfumato', 'release', 'recipe.toml', '--out', 'out']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert "charge" in done.stderr
    assert spent(project) == 1
    assert not (project.parent / "out").exists()


def test_replace_neighbours_double_the_noise(project):
    project.write_text(
        project.read_text().replace("max_records = 3", 'max_records = 3\nneighbours = "replace"')
    )
    (request,) = sf.open(project).check(RECIPE, epsilon=1).plan.requests
    assert request.scale == 6


def test_gaussian_noise_is_chosen_where_it_is_smaller(project):
    project.write_text(project.read_text().replace("delta = 1e-9", "delta = 0.01"))
    check = sf.open(project).check(RECIPE, epsilon="0.1", delta=0.01)
    assert check.plan.requests[0].noise == "gaussian"
    check = sf.open(project).check(RECIPE, epsilon=10, delta=1e-9)
    assert check.plan.requests[0].noise == "laplace"
    release = sf.open(project).release(RECIPE, epsilon="0.1", delta=0.01, out=project.parent / "out")
    assert release.certificate["total"]["epsilon"] is None
    assert Fraction(release.certificate["total"]["epsilon_at_delta"]["1e-2"]) <= Fraction("0.1000010")
    sf.verify(project.parent / "out", ledger=project.parent / "ledger.db")


def test_the_first_release_may_be_calibrated_to_the_whole_budget(project):
    text = project.read_text().replace("epsilon = 20.0\ndelta = 1e-9", "epsilon = 1.0\ndelta = 2.5e-5")
    recipe = sf.recipes.CellCounts(table="t", by=("region",), noise="gaussian")
    project.write_text(text)
    assert sf.open(project).check(recipe, epsilon=1, delta=2.5e-5).admitted
    sf.open(project).release(recipe, epsilon=1, delta=2.5e-5)
    assert sf.open(project).check(recipe, epsilon=1, delta=2.5e-5).answered


def test_the_part_of_delta_for_selection_comes_from_the_project_file(project):
    assert sf.open(project).budget().budget.selection == Fraction(1, 2 * 10**10)
    project.write_text(project.read_text().replace("delta = 1e-9", "delta = 1e-9\nselection_delta = 2e-10"))
    assert sf.open(project).budget().budget.selection == Fraction(2, 10**10)


def test_weights_release_whole_records(project):
    project.write_text(project.read_text().replace("max_records = 3", 'max_records = 3\nbounding = "weight"'))
    release = sf.open(project).release(RECIPE, epsilon=20, out=project.parent / "out")
    (measurement,) = release.measurements
    assert measurement.grid == 2**20
    estimate = np.maximum((measurement.noisy_values + 2**19) // 2**20, 0)
    assert release.table["count"].to_pylist() == estimate.tolist()
    sf.verify(project.parent / "out")


def test_an_empty_table_releases_noise_only(project, people):
    pq.write_table(people.slice(0, 0), project.parent / "t.parquet")
    release = sf.open(project).release(RECIPE, epsilon=1)
    assert release.table.num_rows == 36


def test_a_budget_change_must_be_accepted(project):
    sf.open(project).release(RECIPE, epsilon=1)
    project.write_text(project.read_text().replace("epsilon = 20.0", "epsilon = 30.0"))
    with pytest.raises(sf.LedgerError, match="--accept"):
        sf.open(project).release(RECIPE, epsilon=2)
    assert sf.open(project).accept_budget().left == 29
    sf.open(project).release(RECIPE, epsilon=2)


def test_a_damaged_ledger_stops_everything(project):
    (project.parent / "ledger.db").write_bytes(b"not a ledger" * 100)
    with pytest.raises(sf.LedgerError, match=r"ledger\.db"):
        sf.open(project).release(RECIPE, epsilon=1)


def test_drafted_domains_are_named_in_the_writeup(project):
    text = project.read_text().replace(
        "[tables.t.columns.month]", "drafted_from_data = true\n[tables.t.columns.month]"
    )
    project.write_text(text)
    with pytest.raises(sf.SchemaError, match="accept_drafted"):
        sf.open(project).release(RECIPE, epsilon=1)
    project.write_text(
        text.replace("drafted_from_data = true", "drafted_from_data = true\naccept_drafted = true")
    )
    release = sf.open(project).release(RECIPE, epsilon=1)
    assert b"not covered" in release.files["writeup.md"]
    assert release.certificate["public"]["region"]["drafted_from_data"] is True


def test_no_argument_of_a_release_is_a_seed():
    import inspect

    for function in (sf.Curator.release, sf.Curator.check, sf.open):
        assert not any("seed" in name for name in inspect.signature(function).parameters)


def test_killed_between_steps_keeps_the_ledger_whole(project):
    code = (
        "import os, signal, sys\n"
        "from sfumato.servers import project as engines\n"
        "import sfumato as sf\n"
        "from sfumato.core.engine.statements import StatementEngine\n"
        "class Dying(StatementEngine):\n"
        "    def count(self, *args, **options):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "engines.open_engine = Dying\n"
        "sf.open('sfumato.toml').release('recipe.toml', epsilon=sys.argv[1], out='out')\n"
    )
    for attempt in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", code, str(attempt)], cwd=project.parent, capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL
    assert spent(project) == 3
    assert not (project.parent / "out").exists()
    assert sf.open(project).release(RECIPE, epsilon=1).resumed
    assert spent(project) == 3, "the answer that nobody saw is given under the charge that was made for it"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_costs_nothing(project):
    closed = project.parent / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(sf.ReleaseError, match="cannot write"):
        sf.open(project).release(RECIPE, epsilon=1, out=closed / "out")
    assert spent(project) == 0


def test_large_values_do_not_overflow(tmp_path):
    table = pa.table({"c": pa.array([10**18, -(10**18)], pa.int64())})
    file = write_project(tmp_path, {"c": {"range": [0, 3], "outside": "clamp"}}, rows=table)
    release = sf.open(file).release(sf.recipes.CellCounts(table="t", by=("c",)), epsilon=1)
    assert release.table.num_rows == 4
