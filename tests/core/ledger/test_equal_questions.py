"""Equal statements, releases and scores at the same moment are charged once, on both kinds of ledger."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sfumato as sf

SOURCE = str(Path(sf.__file__).parents[1])
SELECT = "DP-SELECT 0.5 region, COUNT(*) AS n FROM t GROUP BY region"
ASK = """
import sys
import sfumato as sf
curator = sf.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(curator.sql(sys.argv[2]).table.to_pylist(), flush=True)
"""


@pytest.fixture
def file(project, path):
    """A project whose ledger is a file or a schema."""
    place = str(path).replace("\\", "/")
    project.write_text(project.read_text().replace("delta = 1e-9", f'delta = 1e-9\nledger = "{place}"'))
    return project


def charges(file):
    return sum(entry.kind == "charge" for entry in sf.open(file).budget().entries)


def together(number, work):
    gate = threading.Barrier(number)

    def run(turn):
        gate.wait()
        return work(turn)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def test_eight_threads_with_one_statement_pay_once_for_one_answer(file):
    shared = sf.open(file)
    answers = together(8, lambda turn: (shared if turn % 2 else sf.open(file)).sql(SELECT))
    assert len({str(answer.table.to_pylist()) for answer in answers}) == 1
    assert sum(answer.spent > 0 for answer in answers) == 1
    assert charges(file) == 1


@pytest.mark.slow
def test_four_processes_with_one_statement_pay_once_for_one_answer(file):
    sf.open(file).sql("DP-SELECT 0.1 COUNT(*) FROM t")  # the ledger is there
    askers = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, str(file), SELECT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SOURCE},
            text=True,
        )
        for _ in range(4)
    ]
    for asker in askers:
        assert asker.stdout.readline() == "ready\n"
    for asker in askers:
        asker.stdin.write("go\n")
        asker.stdin.flush()
    answers = {asker.communicate(timeout=120)[0] for asker in askers}
    assert len(answers) == 1
    assert charges(file) == 2


def test_releases_and_scores_are_charged_once_too(file):
    curator = sf.open(file)
    recipe = sf.recipes.CellCounts(table="t", by=("region", "month"))
    releases = together(4, lambda turn: curator.release(recipe, epsilon=1, out=file.parent / f"out{turn}"))
    assert sum(not release.repeated for release in releases) == 1
    assert all(release.table.equals(releases[0].table) for release in releases)
    scores = together(3, lambda turn: curator.publish_score(file.parent / f"out{turn}", epsilon=1))
    assert sum(not score.repeated for score in scores) == 1
    assert len({str(score.scores) for score in scores}) == 1
    assert charges(file) == 2


def test_a_changed_unit_is_refused_for_statements_and_releases(file):
    sf.open(file).sql(SELECT)
    spent = sf.open(file).budget().spent
    text = file.read_text()
    file.write_text(text.replace('unit = "person"\nmax_records = 3', 'unit = "row"'))
    for ask in (
        lambda curator: curator.sql(SELECT),
        lambda curator: curator.release(sf.recipes.CellCounts(table="t", by=("region",)), epsilon=1),
    ):
        with pytest.raises(sf.RecipeError, match=r"'t' was charged .*'person', and now its unit is 'row'"):
            ask(sf.open(file))
    assert sf.open(file).budget().spent == spent
    file.write_text(text)
    assert sf.open(file).sql(SELECT).repeated
