"""A bound on the records of an individual that is chosen for each statement: found, stated, and paid for."""

from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from helpers.projects import open_rows
from sfumato.core.algebra.measures import CAPS, tally_individuals
from sfumato.core.facts.table import parse_table, table_spec
from sfumato.sql.magnitudes import choose_cap

MUCH = 10_000_000
COLUMNS = {
    "clinic": {"values": ["a", "b", "empty"]},
    "fee": {"bounds": [0, 50]},
}
RECIPE = 'recipe = "cell-counts"\ntable = "t"\nby = ["clinic"]\nepsilon = 1.0\n'


@pytest.fixture
def curator(tmp_path):
    """A thousand people with three records each, and one with two thousand."""
    number = np.arange(5000)
    rows = {
        "person": np.where(number < 3000, number // 3, 9999),
        "clinic": np.where(number % 4 == 0, "b", "a"),
        "fee": number % 51 * 1.0,
        "ward": np.char.add("w", (number % 3).astype(str)),
        "free": number % 90 * 1.0,
    }
    return open_rows(tmp_path, COLUMNS, rows, max_records="private")


def test_without_noise_all_that_may_count_counts(curator):
    answer = curator.sql(f"DP-SELECT {MUCH} COUNT(*) AS n, COUNT(DISTINCT person) AS p FROM t")
    assert answer.table["n"][0].as_py() == 5000
    assert answer.table["p"][0].as_py() == 1001
    assert answer.notes == ("at most 2048 records of an individual counted, chosen privately",)


def test_a_bound_is_what_most_people_need_where_noise_is_dear(curator, monkeypatch):
    monkeypatch.setattr("sfumato.core.noise.add_noise", lambda values, *, kind, scale: values)
    answer = curator.sql("DP-SELECT 1 clinic, COUNT(*) AS n FROM t GROUP BY clinic")
    (note,) = answer.notes
    # It holds everybody but one, who is below the threshold.
    assert note.startswith(("at most 4 records of an individual", "at most 5 records of an individual"))
    assert "chosen privately; intervals expect ever fewer" in note
    assert answer.spent == 1
    again = curator.sql("DP-SELECT 1 clinic, COUNT(*) AS n FROM t GROUP BY clinic")
    assert again.spent == 0
    assert again.table.equals(answer.table)
    assert again.notes == answer.notes


def test_only_what_the_statement_keeps_is_looked_at(curator):
    few = curator.sql(f"DP-SELECT {MUCH} COUNT(*) AS n FROM t WHERE person <> 9999 AND person % 2 = 0")
    assert few.notes == ("at most 4 records of an individual counted, chosen privately",)
    assert few.table["n"][0].as_py() == 1500


@pytest.mark.parametrize(
    "rest",
    [
        "clinic, SUM(fee) AS s, AVG(fee) AS a, MEDIAN(fee) AS m FROM t GROUP BY clinic",
        "clinic, AVG(free BOUNDED PRIVATELY) AS a FROM t GROUP BY ROLLUP(clinic)",
        "DELTA 1e-7 ward, COUNT(*) AS n FROM t GROUP BY ward",
        "DELTA 1e-7 ward, COUNT(*) AS n FROM t WHERE fee > 1000 GROUP BY ward",
        "HISTOGRAM(fee, 3) AS h FROM t",
        "APPROX_QUANTILES(fee, 2) AS q FROM t",
    ],
)
def test_other_statements_choose_too(curator, rest):
    answer, again = (curator.sql(f"DP-SELECT 3 {rest}") for _ in range(2))
    assert (answer.spent, again.spent) == (3, 0)
    assert again.table.equals(answer.table)
    assert again.notes == answer.notes
    assert "of an individual counted, chosen privately" in answer.notes[0]
    described = curator.describe(f"DP-SELECT 3 {rest}").columns
    assert described == tuple((field.name, field.type) for field in answer.table.schema)


def test_explain_tells_the_choice_and_reads_nothing(curator):
    explained = curator.sql("EXPLAIN DP-SELECT 1 COUNT(*) AS n FROM t")
    assert "no record is cut: what an individual adds to each measure" in explained.explanation
    assert "held to an L1 norm" in explained.explanation
    assert "epsilon 0.2 for each measure" in explained.explanation
    assert explained.price.errors == {"n": None}
    explained = curator.sql("EXPLAIN DP-SELECT 1 MEDIAN(fee) AS n FROM t")
    assert "at most 1, 2, 4, ... or 1024 rows of an individual" in explained.explanation
    assert "epsilon 0.5" in explained.explanation
    assert explained.price.errors == {"n": None}
    assert curator.budget().spent == 0


def test_recipes_choose_a_bound_or_refuse(curator):
    folder = Path(curator.ledger_path).parent
    (folder / "recipe.toml").write_text(RECIPE)
    with pytest.raises(sf.SfumatoError, match="recipes capped-counts and map do, and so does SQL"):
        curator.release(folder / "recipe.toml", out=folder / "out")
    assert curator.budget().spent == 0
    (folder / "recipe.toml").write_text(RECIPE.replace("cell-counts", "capped-counts"))
    curator.release(folder / "recipe.toml", out=folder / "out")
    assert sf.verify(folder / "out", ledger=curator.ledger_path).verdict


def test_the_project_file_reads_back():
    spec = {"source": "t.csv", "unit": "person", "max_records": "private", "columns": {}}
    table = parse_table("t", spec)
    assert table.unit.private_records
    assert table_spec(table, ())["max_records"] == "private"
    with pytest.raises(sf.SchemaError, match="private"):
        parse_table("t", {**spec, "max_records": "many"})
    with pytest.raises(sf.SchemaError):
        parse_table("t", {**spec, "unit": "row"})


def test_individuals_are_tallied_once_each():
    sizes = np.array([0, 1, 2, 3, 4, 5, 1024, 1025, 10**9])
    counts = tally_individuals(sizes)
    assert counts.sum() == 8
    assert counts[:4].tolist() == [1, 1, 2, 1]
    assert counts[-1] == 3


def test_the_bound_weighs_cut_records_against_noise():
    counts = np.zeros(len(CAPS), np.int64)
    counts[[0, 3]] = 900, 100  # of one record, and of up to eight
    assert choose_cap(counts, 20, noise=1) == 8
    assert choose_cap(counts, 20, noise=150) == 1
    assert choose_cap(counts, 2000, noise=1) == 1
