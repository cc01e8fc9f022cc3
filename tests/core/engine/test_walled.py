"""Statements on public tables alone run where no statement can reach a file but those of these tables."""

import duckdb
import pytest

from sfumato.core.engine.encode import connect_walled
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SourceError
from sfumato.core.facts.table import PublicTable

READING = {
    "read_csv": "SELECT * FROM read_csv('{}')",
    "name": "SELECT * FROM '{}'",
    "lateral": "SELECT * FROM p, LATERAL (SELECT * FROM read_csv('{}'))",
    "summarize": "FROM (SUMMARIZE '{}')",
    "text": "SELECT * FROM read_text('{}')",
    "glob": "SELECT * FROM glob('{}*')",
    "attach": "ATTACH '{}'",
    "copy": "COPY p TO '{}'",
    "load": "LOAD httpfs",
    "pragma": "PRAGMA enable_external_access=true",
    "set": "SET enable_external_access = true",
    "allow": "SET allowed_paths = ['{}']",
}


@pytest.fixture
def public(tmp_path):
    (tmp_path / "p[1].csv").write_text("x\n1\n2\n", encoding="utf-8")
    (tmp_path / "records.csv").write_text("name\nana\n", encoding="utf-8")
    return PublicTable(name="p", source="p[1].csv")


REFUSALS = duckdb.PermissionException, duckdb.InvalidInputException, duckdb.CatalogException


@pytest.mark.parametrize("name", READING)
def test_no_statement_reads_or_writes_another_file(public, tmp_path, name):
    files, other = [f"{tmp_path}/{each}" for each in ("p[[]1].csv", "p[1].csv")], tmp_path / "records.csv"
    with connect_walled({"p": f"SELECT * FROM read_csv('{files[0]}', header=true)"}, files) as connection:
        assert connection.sql("SELECT SUM(x) FROM p").fetchall() == [(3,)]
        with pytest.raises(
            (duckdb.PermissionException, duckdb.InvalidInputException, duckdb.CatalogException)
        ):
            connection.sql(READING[name].format(other)).fetchall()
    assert other.read_text(encoding="utf-8") == "name\nana\n"


def test_a_statement_that_got_through_the_check_still_reads_nothing(public, tmp_path, monkeypatch):
    monkeypatch.setattr("sfumato.core.algebra.expressions.check_public", lambda text, names: None)
    engine = StatementEngine(tmp_path)
    tree = Text("SELECT * FROM p, LATERAL read_csv('" + str(tmp_path / "records.csv") + "')")
    with pytest.raises(SourceError, match="disabled"):
        engine.select(tree, {"p": public})
    assert engine.select(Text("SELECT x FROM p ORDER BY x"), {"p": public})["x"].to_pylist() == [1, 2]


class Text(str):
    def sql(self, **_):
        return str(self)
