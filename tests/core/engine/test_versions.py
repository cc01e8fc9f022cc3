"""Versions of files: their content under a key, wherever and however old they are, read no more than once."""

import gzip
import hashlib
import os
import shutil
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.engine import source as sources
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SourceError
from sfumato.core.facts.table import parse_table

ROWS = "person,zone\nana,1\nben,2\n"
SOURCES = ("t.csv", "t.csv.gz", "t.parquet", "part*.csv", "duckdb:t.db?table=t")
STATEMENT = "DP-SELECT 1 zone, COUNT(*) FROM t GROUP BY zone"


def write_all(folder):
    for name in ("t.csv", "part1.csv", "part2.csv"):
        (folder / name).write_text(ROWS)
    (folder / "t.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    pq.write_table(pa.table({"person": ["ana", "ben"], "zone": [1, 2]}), folder / "t.parquet")
    with duckdb.connect(str(folder / "t.db")) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES ('ana', 1), ('ben', 2)) AS v(person, zone)"
        )


def describe(source):
    columns = {"zone": {"values": [1, 2]}}
    return parse_table("t", {"source": source, "unit": "person", "max_records": 1, "columns": columns})


def sign(folder, source="t.csv", *, engine=None):
    return (engine or StatementEngine(folder)).version(describe(source), secret=b"k")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "first"
    folder.mkdir()
    write_all(folder)
    return folder


@pytest.fixture
def later(monkeypatch):
    """Within, files have been as they are for a minute."""
    monkeypatch.setattr(sources.time, "time_ns", lambda now=time.time_ns: now() + 60 * 10**9)


@pytest.fixture
def read(monkeypatch):
    """The names of the files that were read for their version."""
    names, digest = [], hashlib.file_digest

    def count(file, how):
        names.append(Path(file.name).name)
        return digest(file, how)

    monkeypatch.setattr(sources.hashlib, "file_digest", count)
    return names


@pytest.mark.parametrize("source", SOURCES)
def test_touched_copied_and_restored_files_are_the_same_version(folder, tmp_path, source):
    engine = StatementEngine(folder)
    version = sign(folder, source, engine=engine)
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    assert sign(folder, source, engine=engine) == version
    copy = shutil.copytree(folder, tmp_path / "a second server", copy_function=shutil.copyfile)
    assert sign(copy, source) == version
    for path in copy.iterdir():
        path.unlink()
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    assert sign(copy, source) == version


@pytest.mark.parametrize("source", SOURCES[:-1])
def test_other_content_of_the_same_size_and_times_is_another_version(folder, source):
    engine, seen = StatementEngine(folder), set()  # all of it within a moment
    for flip in range(3):
        seen.add(sign(folder, source, engine=engine))
        for path in folder.glob(source):
            status, content = path.stat(), path.read_bytes()
            path.write_bytes(content[:4] + bytes([content[4] ^ (flip + 1)]) + content[5:])
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(seen) == 3


def test_a_file_more_or_twice_the_same_is_another_version(folder):
    before = sign(folder, "part*.csv")
    shutil.copy(folder / "part1.csv", folder / "part3.csv")
    assert len({before, sign(folder, "part*.csv"), sign(folder, "part1.csv")}) == 3


def test_what_changed_just_now_is_read_again(folder, read, monkeypatch):
    changed = (folder / "t.csv").stat().st_ctime_ns
    engine = StatementEngine(folder)
    for passed, files in ((0, 1), (10**7, 2), (10**10, 3), (10**10, 3)):
        monkeypatch.setattr(sources.time, "time_ns", lambda now=changed + passed: now)
        sign(folder, engine=engine)
        assert len(read) == files


def test_a_file_is_read_once_and_by_one_process_if_it_is_long(folder, read, later, monkeypatch):
    first = sign(folder, "part*.csv")
    assert not (folder / ".sfumato").exists()  # quickly read, so nothing is kept
    monkeypatch.setattr(sources, "_LONG", 1)
    engine = StatementEngine(folder)
    read.clear()
    assert sign(folder, "part*.csv", engine=engine) == sign(folder, "part*.csv", engine=engine) == first
    assert sign(folder, "part*.csv") == first  # as another process would
    assert read == ["part1.csv", "part2.csv"]
    (folder / "part2.csv").write_text(ROWS + "cy,1\n")
    assert sign(folder, "part*.csv") != first
    assert read == ["part1.csv", "part2.csv", "part2.csv"]
    engine.version(describe("part*.csv"), secret=b"of another ledger")
    assert read[3:] == ["part1.csv", "part2.csv"]


def test_what_is_kept_tells_nothing_without_the_key(folder, later, monkeypatch):
    monkeypatch.setattr(sources, "_LONG", 1)
    sign(folder)
    (kept,) = (folder / ".sfumato").glob("*.json")
    assert kept.parent.stat().st_mode & 0o077 == 0
    content = hashlib.sha256((folder / "t.csv").read_bytes()).hexdigest()
    assert content not in kept.read_text()
    assert "t.csv" not in kept.read_text()
    kept.write_text("no record of files")
    assert sign(folder) == sign(folder)


def test_a_file_that_changes_while_it_is_digested_has_no_version(folder, monkeypatch):
    digest = hashlib.file_digest

    def change(file, how):
        (folder / "t.csv").write_text(ROWS + "cy,1\n")
        return digest(file, how)

    monkeypatch.setattr(sources.hashlib, "file_digest", change)
    with pytest.raises(SourceError, match=r"'t.csv' changed while it was read"):
        sign(folder)


def test_a_copy_that_is_written_while_records_are_read_is_no_answer(folder, monkeypatch):
    project = make_project(folder, ledger="ledger.db")
    rewritten = StatementEngine._open

    def read_half(engine, table, names):
        fetched = rewritten(engine, table, names)
        if names:  # for the first time that records are asked for
            (folder / "t.csv").write_text(ROWS[:20])
            batches = list(fetched.read())
            (folder / "t.csv").write_text(ROWS)
            os.utime(folder / "t.csv", (2, 2))
            return type(fetched)(fetched.columns, fetched.schema, lambda: iter(batches))
        return fetched

    curator = sf.open(project)
    curator.budget()
    monkeypatch.setattr(StatementEngine, "_open", read_half)
    with pytest.raises(sf.SourceError, match="changed while it was read"):
        curator.sql(STATEMENT)


def make_project(folder, *, ledger):
    (folder / "sfumato.toml").write_text(
        f'[budget]\nepsilon = 3\nledger = "{ledger}"\n[tables.t]\nsource = "t.csv"\nunit = "person"\n'
        "max_records = 1\n[tables.t.columns.zone]\nvalues = [1, 2]\n"
    )
    return folder / "sfumato.toml"


def test_two_servers_with_the_same_file_and_one_ledger_pay_once(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "t.csv").write_text(ROWS)
    os.utime(other / "t.csv", (1, 1))
    one, two = (sf.open(make_project(each, ledger="../ledger.db")) for each in (folder, other))
    first = one.sql(STATEMENT)
    again = two.sql(STATEMENT)
    assert (first.repeated, again.repeated, two.budget().spent) == (False, True, 1)
    assert again.to_arrow().equals(first.to_arrow())
    recipe = sf.recipes.CellCounts(table="t", by=("zone",))
    assert not two.release(recipe, epsilon=1).repeated
    (folder / "t.csv").touch()
    assert one.check(recipe, epsilon=1).answered
    assert one.release(recipe, epsilon=1).repeated
    (folder / "t.csv").write_text(ROWS + "cy,1\n")
    assert not one.check(recipe, epsilon=1).answered


def test_no_file_is_read_to_tell_the_price_of_what_nobody_asked(folder, read):
    curator = sf.open(make_project(folder, ledger="ledger.db"))
    curator.sql("DP-SELECT 1 COUNT(*) FROM t")
    read.clear()
    assert not curator.check(sf.recipes.CellCounts(table="t", by=("zone",)), epsilon=1).answered
    assert curator.budget().spent == 1
    assert read == []
