"""Spark on a cluster of real processes: the same counts, workers that are lost, workers that never come."""

import subprocess
import sys
import threading
from dataclasses import replace

import pytest

import sfumato
from helpers.asking import cells
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SourceError
from sfumato.core.facts.project import read_project
from sfumato.recipes import CellCounts
from sfumato.servers.project import open_engine

pytestmark = pytest.mark.slow
MARGINALS = (("clinic", "month"), ("month", "age"), ("clinic", "age"))
RECIPE = CellCounts(table="visits", by=("clinic", "month"))


def quiet(_):
    """Progress is not looked at."""


def count_files(table, folder, marginals=MARGINALS):
    here = replace(table, source="visits*.parquet")
    return [
        each.true_values.tolist()
        for each in StatementEngine(folder).count(here, cells(marginals), progress=quiet)
    ]


def kill_when_busy(helper, room, worker, killed):
    """Kills a worker as soon as tasks of a large stage run on both."""
    status = room.session.sparkContext.statusTracker()

    def busy():
        stages = [status.getStageInfo(stage) for stage in status.getActiveStageIds()]
        return any(stage and stage.numTasks >= 12 and stage.numActiveTasks == 2 for stage in stages)

    helper.wait_for(busy, "tasks on both workers", seconds=120)
    helper.kill(worker)
    killed.append(True)


def test_a_lost_worker_changes_nothing_and_is_charged_once(helper, make_project, tmp_path, monkeypatch):
    from sfumato.servers.spark.engine import SparkEngine
    from sfumato.servers.spark.session import open_room

    project = make_project()
    table = read_project(project).table("visits")
    recipe = replace(RECIPE, by=MARGINALS[0])
    seen = []
    count = SparkEngine.count

    def watch(engine, *arguments, **options):
        seen.extend(count(engine, *arguments, **options))
        return tuple(seen)

    with helper.start_cluster() as cluster:
        monkeypatch.setenv("SPARK_MASTER", cluster.url)
        engine = open_engine(tmp_path)
        engine.check(table, MARGINALS)
        found = engine.count(table, cells(MARGINALS), progress=quiet)
        assert [each.true_values.tolist() for each in found] == count_files(table, tmp_path)

        room = open_room()
        room.session.conf.set("spark.sql.files.minPartitionNum", "24")
        helper.wait_for(lambda: room._count_workers() == 2, "the executors of both workers")
        killed = []
        killer = threading.Thread(
            target=kill_when_busy, args=(helper, room, cluster.workers[0], killed), daemon=True
        )
        monkeypatch.setattr(SparkEngine, "count", watch)
        curator = sfumato.open(project)
        killer.start()
        curator.release(recipe, epsilon="0.5", out=tmp_path / "out")
        killer.join(60)
        assert killed
        # Which records of an individual are kept follows from the columns that are asked for.
        assert [each.true_values.tolist() for each in seen] == count_files(table, tmp_path, MARGINALS[:1])
        assert sfumato.verify(tmp_path / "out", ledger=curator.ledger_path).unchecked == ()
        assert [entry.kind for entry in curator.budget().entries] == ["open", "charge", "answer"]

        # Without any worker a job is given up, and does not hang.
        monkeypatch.setenv("SFUMATO_SPARK_TIMEOUT", "2")
        helper.kill(cluster.workers[1])
        with pytest.raises(SourceError, match="the cluster gave no worker for 2 seconds"):
            engine.count(table, cells(MARGINALS), progress=quiet)


def test_a_cluster_without_workers_says_so_and_costs_nothing(helper, make_project, monkeypatch):
    monkeypatch.setenv("SFUMATO_SPARK_TIMEOUT", "2")
    with helper.start_cluster(workers=0) as cluster:
        monkeypatch.setenv("SPARK_MASTER", cluster.url)
        curator = sfumato.open(make_project())
        with pytest.raises(SourceError, match="the cluster gave no worker for 2 seconds"):
            curator.release(RECIPE, epsilon="0.5")
        assert curator.budget().spent == 0


@pytest.mark.parametrize(("variable", "scheme"), [("SPARK_MASTER", "spark"), ("SPARK_REMOTE", "sc")])
def test_an_address_where_nobody_is_says_so_at_once(helper, make_project, monkeypatch, variable, scheme):
    monkeypatch.setenv(variable, f"{scheme}://127.0.0.1:{helper.free_port()}")
    curator = sfumato.open(make_project())
    with pytest.raises(SourceError, match=f"cannot be reached at the address in {variable}"):
        curator.release(RECIPE, epsilon="0.5")
    assert curator.budget().spent == 0


CONNECTED = """
import json, sys
from pathlib import Path
import sfumato
from sfumato.servers.project import open_engine
from sfumato.recipes import CellCounts
from sfumato.core.questions.counts import Marginal
from sfumato.core.facts.project import read_project
project = Path(sys.argv[1])
table = read_project(project).table("visits")
engine = open_engine(project.parent)
marginals = (("clinic", "month"), ("month", "age"), ("clinic", "age"))
engine.check(table, marginals)
found = engine.count(table, tuple(Marginal(each) for each in marginals), progress=lambda _: None)
curator = sfumato.open(project)
curator.release(CellCounts(table="visits", by=("clinic", "month")), epsilon="0.5")
curator.sql("DP-SELECT 0.5 clinic, COUNT(*) FROM visits GROUP BY clinic")
print(json.dumps([[each.true_values.tolist() for each in found], float(curator.budget().spent)]))
"""


def test_spark_connect_gives_the_same(helper, make_project, tmp_path, monkeypatch):
    import json

    if missing := helper.why_missing(connect=True):
        pytest.skip(missing)
    project = make_project()
    with helper.start_connect() as address:
        monkeypatch.setenv("SPARK_REMOTE", address)
        # A process of its own: Spark has both ways in one process only for its own tests.
        done = subprocess.run(
            [sys.executable, "-c", CONNECTED, str(project)], capture_output=True, text=True, timeout=150
        )
    assert done.returncode == 0, done.stderr[-2000:]
    counts, spent = json.loads(done.stdout)
    assert counts == count_files(read_project(project).table("visits"), tmp_path)
    assert spent == 1
