"""A person's month as the unit: bounded by pairs, named in every output, refused by others."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import Marginal
from sfumato.recipes import CellCounts, Running

PROJECT = """
[budget]
epsilon = 1e8
delta = 1e-6
[tables.t]
source = "t.parquet"
unit = {unit}
max_records = 2
[tables.t.columns.month]
range = [1, 12]
[tables.t.columns.ward]
values = ["a", "b"]
"""
PAIR = '["p", "month"]'
EVE = [("eve", month, "ab"[place % 2]) for month in range(1, 13) for place in range(5)]
CROWD = [(f"c{place}", place % 12 + 1, "ab"[place % 2]) for place in range(60)]


def lay_out(folder, rows, *, unit=PAIR):
    kinds = (pa.string(), pa.int64(), pa.string())
    arrays = [pa.array(each, kind) for each, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(arrays, ["p", "month", "ward"]), folder / "t.parquet")
    (folder / "sfumato.toml").write_text(PROJECT.format(unit=unit))
    return sf.open(folder / "sfumato.toml")


@pytest.mark.parametrize(
    "recipe",
    [
        CellCounts(table="t", by=("month", "ward")),
        Running(table="t", period="month", by=("ward",), through=12),
        Running(table="t", period="month", by=("ward",), through=12, late="carry"),
    ],
)
def test_every_month_of_a_person_is_bounded_by_itself(tmp_path, recipe):
    curator = lay_out(tmp_path, [*EVE, ("ann|1", 1, "a"), ("ann", 11, "a"), (None, 3, "a")])
    release = curator.release(recipe, epsilon=10**7, delta=1e-6, out=tmp_path / "out")
    months = {}
    for row in release.table.to_pylist():
        months[row["month"]] = months.get(row["month"], 0) + row["count"]
    assert months == {month: 2 + (month in (1, 11)) for month in range(1, 13)}
    assert not sf.verify(tmp_path / "out", ledger=curator.ledger_path).unchecked
    told = (tmp_path / "out" / "writeup.md").read_text()
    assert "What is protected: **what one `p` did in one `month`, and not all that it did**" in told
    assert release.certificate["unit"]["column"] == "p x month"
    assert {each["unit"] for each in release.certificate["measurements"]} == {"p x month"}


@pytest.mark.parametrize("months", [["2025-01", "2025-02"], [(2025, "jan"), (2025, "feb")], [3, 7]])
def test_a_period_may_have_any_domain(tmp_path, months):
    pairs = isinstance(months[0], tuple)
    kinds = [pa.array([month[place] for month in months] * 3) for place in range(2)] if pairs else []
    names = ["year", "part"] if pairs else ["month"]
    stored = dict(zip(names, kinds or [pa.array(months * 3)], strict=True))
    pq.write_table(pa.table({"p": ["eve"] * 6, "ward": ["a", "b"] * 3, **stored}), tmp_path / "t.parquet")
    month = {"values": [list(each) for each in months] if pairs else months}
    month |= {"from": names} if pairs else {}
    spec = {"source": "t.parquet", "unit": ["p", "month"], "max_records": 2}
    table = parse_table("t", {**spec, "columns": {"month": month, "ward": {"values": ["a", "b"]}}})
    (found,) = StatementEngine(tmp_path).count(table, (Marginal(("ward",)),), progress=lambda _: None)
    assert found.true_values.tolist() == [2, 2]


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_one_pair_moves_the_counts_by_its_bound_and_a_person_by_as_many_as_it_has(tmp_path, bounding):
    columns = {"month": {"range": [1, 12]}, "ward": {"values": ["a", "b"]}}
    spec = {"source": "t.parquet", "unit": ["p", "month"], "max_records": 2, "bounding": bounding}
    table = parse_table("t", {**spec, "columns": columns})

    def count(rows):
        lay_out(tmp_path, rows)
        (found,) = StatementEngine(tmp_path).count(
            table, (Marginal(("ward", "month")),), progress=lambda _: None
        )
        return found.true_values

    base = count(CROWD)
    for month in (1, 7):
        pair = count(CROWD + [row for row in EVE if row[1] == month])
        assert 0 < np.abs(pair - base).sum() <= table.contribution
    person = np.abs(count(CROWD + EVE) - base).sum()
    assert 11 * table.contribution < person <= 12 * table.contribution


def test_where_it_is_not_understood_it_is_refused(tmp_path):
    curator = lay_out(tmp_path, CROWD)
    with pytest.raises(sf.UnsupportedQuery, match="protects p x month"):
        curator.sql("DP-SELECT 1 COUNT(*) FROM t")
    assert curator.budget().spent == 0
    curator.release(CellCounts(table="t", by=("ward",)), epsilon=1)
    person = lay_out(tmp_path, CROWD, unit='"p"')
    with pytest.raises(sf.RecipeError, match="with unit 'p x month'"):
        person.release(CellCounts(table="t", by=("ward",)), epsilon=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": ["p", "day"]}, "must be a column with a domain"),
        ({"unit": ["p"]}, "two columns, who and when"),
        ({"unit": ["row", "month"]}, "two columns, who and when"),
        ({"max_records": "private"}, "needs a stated max_records"),
    ],
)
def test_what_is_no_unit_is_refused(change, message):
    spec = {"source": "t.parquet", "unit": ["p", "month"], "max_records": 2}
    with pytest.raises(sf.SchemaError, match=message):
        parse_table("t", {**spec, "columns": {"month": {"range": [1, 12]}}, **change})
