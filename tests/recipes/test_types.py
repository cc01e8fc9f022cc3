"""Synthetic rows have the columns of the table: booleans, dates and moments, missing values, names."""

import json
from datetime import date, datetime, timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.accounting import Ledger
from sfumato.core.errors import RecipeError
from sfumato.core.facts.column import column_spec
from sfumato.core.facts.table import parse_table
from sfumato.metrics.encode import encode_pair
from sfumato.metrics.released import code_released
from sfumato.recipes import Adaptive, AdaptiveGrid, FieldGroups, Related, Tree
from sfumato.recipes.shared.rows import build_rows, find_types
from sfumato.report.fields import encode_column, read_fields

PERIODS = {
    "year": {"from": "visited", "period": "year", "range": [2023, 2024]},
    "month": {"from": "visited", "period": "month"},
    "weekday": {"from": "visited", "period": "day_of_week"},
    "hour": {"from": "visited", "period": "hour"},
}
ROWS = ["adaptive", "adaptive-grid", "field-groups", "tree"]


def describe(**columns):
    return parse_table("t", {"source": "t.csv", "unit": "row", "columns": columns})


def build(table, codes, types):
    codes = {name: np.array(each, np.int64) for name, each in codes.items()}
    return build_rows(table, tuple(table.columns), codes, seed=3, types=types)


def every_period(*names):
    """A table of these periods and, many times, the codes of each of their combinations."""
    table = describe(**{name: PERIODS[name] for name in names})
    grid = np.indices([table.column(name).size for name in names]).reshape(len(names), -1)
    return table, {
        name: np.tile(each, 200 if grid[0].size < 200 else 1) for name, each in zip(names, grid, strict=True)
    }


def test_true_and_false_are_booleans_and_texts_stay_texts():
    table = describe(
        insured={"values": [False, True]},
        spoken={"values": [True, False], "nullable": True},
        text={"values": ["false", "true"]},
        one={"values": [True]},
        coded={"values": [0, 1], "names": ["no", "yes"], "nullable": True},
        rest={"values": [False, True], "outside": "other"},
        unknown={"values": [False, True], "missing_label": "unknown"},
    )
    types = Tree(table="t").with_types((table, tuple(table.columns))).types
    assert types == {"insured": "boolean", "spoken": "boolean", "one": "boolean"}
    codes = {name: [0, 1, 1] for name in table.columns} | {"spoken": [0, 1, 2], "one": [0, 0, 0]}
    rows = build(table, codes | {"coded": [0, 2, 1], "rest": [0, 2, 1], "unknown": [2, 0, 1]}, types)
    assert rows.to_pydict() == {
        "insured": [False, True, True],
        "spoken": [True, False, None],
        "text": ["false", "true", "true"],
        "one": [True, True, True],
        "coded": [0, None, 1],
        "rest": ["false", "other", "true"],
        "unknown": ["unknown", "false", "true"],
    }
    assert {rows.schema.field(name).type for name in types} == {pa.bool_()}
    assert build(table, codes, {})["insured"].to_pylist() == ["false", "true", "true"]


def test_a_description_of_booleans_is_what_it_was():
    (column,) = describe(insured={"values": [False, True]}).columns.values()
    assert column_spec(column)["values"] == ["false", "true"]
    assert column == describe(insured=column_spec(column)).column("insured")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64])
def test_booleans_of_any_number_are_whole(count):
    table = describe(a={"values": [False, True], "nullable": True})
    codes = np.arange(count) % 3
    rows = build(table, {"a": codes}, {"a": "boolean"})
    assert rows["a"].to_pylist() == [[False, True, None][code] for code in codes]


def test_dates_have_the_periods_of_their_row_and_every_day_comes():
    table, codes = every_period("year", "month")
    rows = build(table, codes, {"visited": "date"})
    assert rows.column_names == ["year", "month", "visited"]
    days = rows["visited"].to_pylist()
    assert [(day.year, day.month) for day in days] == list(
        zip(rows["year"].to_pylist(), rows["month"].to_pylist(), strict=True)
    )
    first, last = date(2023, 1, 1), date(2024, 12, 31)
    assert set(days) == {
        first + timedelta(days=n) for n in range((last - first).days + 1)
    }  # a leap year, too
    march = [day.day for day in days if (day.year, day.month) == (2024, 3)]
    assert abs(np.mean(march) - 16) < 4 * np.sqrt((31**2 - 1) / 12 / len(march))


def test_dates_fall_on_their_day_of_the_week():
    table, codes = every_period("year", "month", "weekday")
    rows = build(table, codes, {"visited": "date"})
    assert [(day.year, day.month, day.weekday()) for day in rows["visited"].to_pylist()] == list(
        zip(*(rows[name].to_pylist() for name in table.columns), strict=True)
    )
    assert len(set(rows["visited"].to_pylist())) == 365 + 366


def test_moments_lie_in_their_hour():
    table, codes = every_period("hour", "month", "weekday", "year")
    rows = build(table, codes, {"visited": "timestamp"})
    for row in rows.slice(0, 3000).to_pylist():
        at = row["visited"]
        assert isinstance(at, datetime)
        assert (at.year, at.month, at.weekday(), at.hour) == tuple(row[name] for name in PERIODS)
    assert {at.minute for at in rows["visited"].to_pylist()} == set(range(60))
    only = build(table, codes, {"visited": "date"})
    assert only.schema.field("visited").type == pa.date32()


def test_a_date_is_missing_where_a_part_of_it_is():
    nullable = {name: {**PERIODS[name], "nullable": True} for name in ("year", "month")}
    other = {"weekday": {**PERIODS["weekday"], "outside": "other"}}
    rows = build(
        describe(**nullable, **other),
        {"year": [0, 2, 1, 1, 1], "month": [1, 1, 12, 1, 11], "weekday": [0, 0, 0, 7, 6]},
        {"visited": "date"},
    )
    assert [day is None for day in rows["visited"].to_pylist()] == [False, True, True, True, False]


def test_a_date_needs_year_and_month_and_a_name_of_its_own():
    year, month, hour = (PERIODS[name] for name in ("year", "month", "hour"))
    assert find_types(describe(year=year), ("year",)) == {}
    assert find_types(describe(month=month, hour=hour), ("month", "hour")) == {}
    assert find_types(describe(year=year, month=month), ("year", "month")) == {"visited": ("date",)}
    apart = {"year": year, "month": {**month, "from": "left"}}
    assert find_types(describe(**apart), tuple(apart)) == {}
    named = {"Visited": month, "year": year}
    assert find_types(describe(**named), tuple(named)) == {}
    wide = {"year": {**year, "range": [0, 2024]}, "month": month}
    assert find_types(describe(**wide), tuple(wide)) == {}


def test_a_date_never_takes_the_name_of_a_key():
    table = describe(year=PERIODS["year"], month=PERIODS["month"])
    described = (table, ("year", "month"))
    assert Tree(table="t").with_types(described, taken=["VISITED"]).types == {}
    with pytest.raises(RecipeError, match="two released columns would be named 'visited'"):
        Tree(table="t", types={"visited": "date"}).with_types(described, taken=["visited"])


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"visited": "timestamp"}, "'visited' cannot be released as timestamp: its year, month and hour"),
        ({"year": "boolean"}, "'year' cannot be released as boolean"),
        ({"left": "date"}, "'left' cannot be released as date"),
        ({"visited": "day"}, "types must name columns"),
        ({"visited": ["date"]}, "types must name columns"),
        (["visited"], "types must name columns"),
    ],
)
def test_types_that_cannot_be_are_refused(types, message):
    table = describe(year=PERIODS["year"], month=PERIODS["month"])
    with pytest.raises(RecipeError, match=message):
        Tree(table="t", types=types).with_types((table, ("year", "month")))


def test_related_leaves_out_the_date_that_orders():
    table = parse_table(
        "t",
        {
            "source": "t.csv", "unit": "who", "max_records": 3,
            "columns": {"year": PERIODS["year"], "month": PERIODS["month"]},
        },
    )  # fmt: skip
    how = {"epsilons": (Fraction(1),), "delta": Fraction(1, 10**6)}
    assert Related(table="t", order="visited").plan(table, **how).recipe.types == {}
    assert Related(table="t").plan(table, **how).recipe.types == {"visited": "date"}
    with pytest.raises(RecipeError, match="could contradict the order of siblings"):
        Related(table="t", order="visited", types={"visited": "date"}).plan(table, **how)


def make_recipe(kind, **options):
    match kind:
        case "adaptive":
            return Adaptive(table="t", **options)
        case "tree":
            return Tree(table="t", **options)
        case "field-groups":
            return FieldGroups(table="t", groups=[["year", "month"]], **options)
        case "adaptive-grid":
            return AdaptiveGrid(table="t", outer=[["year", "month"], ["insured"]], **options)
    return Related(table="t", **options)


@pytest.fixture
def project(tmp_path):
    """A project over a table of who, whether insured, and when visited."""
    days = [date(2023, 1, 1) + timedelta(days=5 * n % 731) for n in range(600)]
    insured = [None if n % 7 == 0 else n % 3 == 0 for n in range(600)]
    stored = pa.table({"who": np.arange(600) // 2, "insured": insured, "visited": days, "note": ["x"] * 600})
    pq.write_table(stored, tmp_path / "t.parquet")
    (tmp_path / "sfumato.toml").write_text("""
[budget]
epsilon = 1000
delta = 1e-5
[tables.t]
source = "t.parquet"
unit = "who"
max_records = 2
[tables.t.columns]
insured = {values = [false, true], nullable = true}
year = {from = "visited", period = "year", range = [2023, 2024]}
month = {from = "visited", period = "month"}
""")
    return tmp_path


@pytest.mark.parametrize("kind", [*ROWS, "related"])
def test_releases_have_the_types_of_the_table_and_verify(project, kind):
    curator, out = sf.open(project / "sfumato.toml"), project / "out"
    release = curator.release(make_recipe(kind), epsilon=2, delta="1e-6", out=out)
    stored = pq.read_schema(project / "t.parquet")
    written = pq.read_table(out / "table.parquet")
    for name in ("insured", "visited"):
        assert written.schema.field(name).type == stored.field(name).type
    assert {"year", "month"} < set(written.column_names)
    assert "note" not in written.column_names
    parts = [(day.year, day.month) for day in written["visited"].to_pylist()]
    assert parts == list(zip(written["year"].to_pylist(), written["month"].to_pylist(), strict=True))
    assert written["insured"].null_count > 0
    assert pa.csv.read_csv(out / "table.csv").schema.field("visited").type == pa.date32()
    assert json.loads((out / "certificate.json").read_text())["plan"]["recipe"]["types"] == {
        "insured": "boolean", "visited": "date"
    }  # fmt: skip
    assert "Dates are drawn with equal chance" in (out / "writeup.md").read_text()
    assert not sf.verify(out, ledger=project / "ledger.db").unchecked
    # Other types are other rows of the same answers, and cost nothing.
    head = Ledger.read_only(project / "ledger.db").verify()
    plain = curator.release(make_recipe(kind, types={}), epsilon=2, delta="1e-6", out=project / "plain")
    assert plain.repeated
    assert Ledger.read_only(project / "ledger.db").verify() == head
    assert plain.table.column_names == [name for name in release.table.column_names if name != "visited"]
    assert set(plain.table["insured"].unique().to_pylist()) == {"false", "true", None}
    assert not sf.verify(project / "plain", ledger=project / "ledger.db").unchecked
    for name in ("year", "month"):
        assert plain.table[name].to_pylist() == release.table[name].to_pylist()


MISSING = describe(
    insured={"values": [True, False], "nullable": True},
    rooms={"range": [1, 2], "nullable": True},
    fare={"bins": [0, 5, 9], "nullable": True},
    place={"values": ["a", "b"], "nullable": True},
    month={**PERIODS["month"], "nullable": True},
)


@pytest.mark.parametrize("name", list(MISSING.columns))
def test_reports_and_scores_know_booleans_and_missing_values(name):
    size = MISSING.column(name).size
    codes = np.array([0, 1, size - 1, 0])
    rows = build(
        MISSING,
        {each: np.minimum(codes, 1) for each in MISSING.columns} | {name: codes},
        {"insured": "boolean"},
    )
    (field,) = read_fields({name: column_spec(MISSING.column(name))})
    assert rows[name].null_count == 1
    assert encode_column(field, rows).tolist() == codes.tolist()
    found = code_released(rows, MISSING.column(name))
    assert found is not None
    assert found.tolist() == codes.tolist()


def test_scores_take_no_hour_from_a_date_without_one():
    table, codes = every_period("year", "month", "hour")
    truth = build(table, codes, {"visited": "timestamp"}).select(["visited"])
    rows = build(table, codes, {"visited": "date"}).drop_columns(["hour"])
    pair = encode_pair(truth, rows, table=table)
    assert pair.columns == ("year", "month")
    assert all((pair.truth.codes[name] == pair.release.codes[name]).all() for name in pair.columns)
    whole = encode_pair(truth, truth, table=table)
    assert whole.columns == ("year", "month", "hour")
