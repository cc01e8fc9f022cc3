"""Who is over the bound in Spark: places that are counted first, and the same individuals whoever reads."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import corpus
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.project import parse_project
from sfumato.servers.project import open_engine
from sfumato.servers.spark import engine as beyond
from sfumato.servers.spark import workers

QUIET = {"progress": lambda stage: None}
ROWS, FIRST = 4000, 1500
NAMES = {"whole": pa.int64(), "small": pa.int16(), "text": pa.string(), "long": pa.large_string()}
GROUPS = "DP-SELECT 1 k, COUNT(*), SUM(x) FROM t GROUP BY k"
CONDITION = "DP-SELECT 1 k, COUNT(*), SUM(x) FROM t WHERE x > 40 GROUP BY k"
COUNT = "DP-SELECT 1 COUNT(*) FROM t WHERE x > 20"


def make_rows(kind):
    """People of whom a few have very many records, some exactly the bound, and records of nobody."""
    rng = np.random.default_rng(3)
    numbers = np.where(rng.random(ROWS) < 0.4, rng.integers(0, 5, ROWS), rng.integers(5, 700, ROWS))
    numbers = np.concatenate((numbers, np.repeat([900, 901], [8, 9])))
    if kind in ("text", "long"):
        names = [f"{'é' * (each % 3)}person of some length {each} {'x' * 60}{each % 2}" for each in numbers]
    else:
        names = [int(each) - 300 for each in numbers]
    mask = rng.random(numbers.size) < 0.02
    return pa.table(
        {
            "person": pa.array(names, NAMES[kind], mask=mask),
            "k": numbers % 7,
            "x": rng.random(numbers.size) * 100,
        }
    )


def make_project(source, folder):
    columns = {"k": {"range": [0, 6]}, "x": {"bounds": [0, 100]}}
    table = {"source": source, "unit": "person", "max_records": 8, "columns": columns}
    return parse_project({"budget": {"epsilon": 9}, "tables": {"t": table}}, folder=folder)


def aggregate(project, text, engine):
    plan = corpus.plan_statement(text, project, engine)
    return engine.aggregate(plan.query, project.tables, **QUIET)


@pytest.fixture
def differs(tmp_path):
    """Whether Spark and DuckDB aggregate a statement otherwise, about people of names of a kind."""

    def differs(kind, text):
        rows, folder = make_rows(kind), tmp_path / "rows"
        folder.mkdir(exist_ok=True)
        pq.write_table(rows.slice(0, FIRST), folder / "0.parquet", row_group_size=400)
        # The same names are stored in another way here.
        others = rows.slice(FIRST).set_column(0, "person", rows["person"].slice(FIRST).dictionary_encode())
        pq.write_table(others, folder / "1.parquet", row_group_size=400)
        pq.write_table(rows, tmp_path / "all.parquet")
        here = make_project("all.parquet", tmp_path)
        there = make_project(f"spark:{tmp_path}/rows/*.parquet", tmp_path)
        expected = aggregate(here, text, StatementEngine(tmp_path))
        return corpus.differ(expected, aggregate(there, text, open_engine(tmp_path)))

    return differs


@pytest.fixture
def watched(monkeypatch):
    """Who read the names: `files` if workers did so themselves, and whether that came to an end."""
    found = []
    plain = beyond._list_suspects

    def watch(source, pushed, unit, paths, what):
        listed = plain(source, pushed, unit, paths, what)
        found.append(("files" if paths else "spark", listed is not None))
        return listed

    monkeypatch.setattr(beyond, "_list_suspects", watch)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "text"), [("small", GROUPS), ("text", COUNT), ("long", CONDITION)], ids=["small", "text", "long"]
)
def test_the_aggregates_are_those_of_files(differs, watched, kind, text):
    assert not differs(kind, text)
    assert watched == [("files", True)]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["spark", "grouped", "unseen"])
def test_whoever_reads_finds_the_same_individuals(differs, watched, monkeypatch, way):
    if way == "spark":
        monkeypatch.setattr(beyond, "find_local_files", lambda facts, unit: ())
        expected = [("spark", True)]
    elif way == "grouped":
        monkeypatch.setattr(beyond, "choose_bits", lambda rows, most, tasks: None)
        expected = [("files", False), ("spark", False)]
    else:
        share = beyond._share_files
        monkeypatch.setattr(
            beyond, "_share_files", lambda session, paths, tasks: share(session, ("/nowhere",), tasks)
        )
        expected = [("files", False), ("spark", True)]
    assert not differs("text", CONDITION)
    assert watched == expected


@pytest.mark.slow
def test_a_place_forgotten_is_caught(differs, monkeypatch):
    monkeypatch.setattr(beyond, "_list_suspects", lambda *given: pa.table({"u": pa.array([], pa.int64())}))
    assert differs("whole", GROUPS)


@pytest.mark.slow
def test_a_name_that_stands_in_a_folder_is_read_by_spark(tmp_path):
    for person in range(4):
        rows = pa.table({"k": np.arange(20) % 7, "x": np.ones(20)})
        folder = tmp_path / "rows" / f"person={person}"
        folder.mkdir(parents=True)
        pq.write_table(rows, folder / "part.parquet")
    project, server = make_project(f"spark:{tmp_path}/rows", tmp_path), open_engine(tmp_path)
    (records,) = aggregate(project, "DP-SELECT 1 k, COUNT(*) FROM t GROUP BY k", server).true_values
    assert records.sum() == 4 * 8


@pytest.mark.parametrize("kind", NAMES)
def test_equal_names_have_equal_places_wherever_they_stand(kind):
    column = make_rows(kind)["person"].combine_chunks().drop_null()
    places = workers.find_places(column, 12)
    assert places.min() >= 0
    assert places.max() < 2**12
    alone = [int(workers.find_places(column[at : at + 1], 12)[0]) for at in range(0, len(column), 37)]
    assert alone == places[::37].tolist()
    named = dict(zip(column.to_pylist(), places.tolist(), strict=True))
    assert [named[each] for each in column.to_pylist()] == places.tolist()
    # They are spread: few share a place with another.
    assert len(set(named.values())) > 0.8 * len(named)


def test_every_record_of_a_crowded_place_is_listed():
    column = make_rows("whole")["person"].combine_chunks().drop_null()
    batches = [
        pa.RecordBatch.from_arrays([column[at : at + 500]], ["u"]) for at in range(0, len(column), 500)
    ]
    (counted,) = workers.count_places(workers.read_batches, 3)(iter(batches))
    counts = np.frombuffer(counted["counts"][0].as_py(), f"u{counted['width'][0].as_py()}")
    assert counts.tolist() == np.bincount(workers.find_places(column, 3), minlength=8).tolist()
    crowded = np.arange(8) == counts.argmax()
    listed = pa.Table.from_batches(
        workers.list_units(workers.read_batches, np.packbits(crowded).tobytes(), 3)(iter(batches))
    )
    assert listed.num_rows == counts.max()
    assert set(workers.find_places(listed["u"].combine_chunks(), 3)) == {counts.argmax()}
