"""Answers end to end: at an epsilon so large that the noise is gone, they are those of plain SQL."""

import datetime
import math
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.pairs import read_pairs
from helpers.projects import open_rows
from sfumato.core.errors import UnsupportedQuery

MUCH = 100_000
ANSWERS = Path(__file__).with_name("fixtures") / "answers.sql"

PROJECT = """
[budget]
epsilon = 1000000000
delta = 1e-6

[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 8
[tables.visits.columns.region]
values = ["a", "b", "c", "empty"]
[tables.visits.columns.other_region]
from = "region"
values = ["a", "b"]
outside = "other"
[tables.visits.columns.month]
from = "day"
period = "month"
[tables.visits.columns.amount]
bounds = [0, 60]
[tables.visits.columns.points]
bounds = [-5, 20]
[tables.visits.columns.broken]
bounds = [0, 10]

[tables.people]
source = "people.parquet"
unit = "person"
max_records = 8
[tables.people.columns.age]
range = [0, 99]

[tables.rows]
source = "visits.parquet"
unit = "row"
[tables.rows.columns.region]
values = ["a", "b", "c"]

[tables.text]
source = "visits.csv"
unit = "person"
max_records = 8
[tables.text.columns.region]
values = ["a", "b", "c"]
[tables.text.columns.amount]
bounds = [0, 60]
[tables.text.columns.month]
from = "day"
period = "month"

[tables.tight]
source = "visits.parquet"
unit = "person"
max_records = 3
max_groups = 1
[tables.tight.columns.region]
values = ["a", "b", "c"]

[tables.zones]
public = true
source = "zones.csv"
"""


def make_visits():
    rows = []
    for person in range(120):
        for visit in range(1 + person % 6):
            number = 7 * person + 3 * visit
            rows.append(
                {
                    "person": person,
                    "region": "abc"[(person + visit) % 3],
                    "day": datetime.date(2024, 1 + number % 12, 1 + number % 28),
                    "amount": (number * 11 % 240) / 4,
                    "points": number % 26 - 5,
                    "note": None if number % 5 == 0 else f"n{number % 4}",
                    "broken": [math.nan, None, 2.5, 10.0][number % 4],
                    "word": str(number % 30) if number % 3 else "none",
                    "flag": number % 2 == 0,
                }
            )
    return pa.Table.from_pylist(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    visits = make_visits()
    pq.write_table(visits, folder / "visits.parquet")
    people = [{"person": person, "age": person * 13 % 100} for person in range(0, 120, 2)]
    pq.write_table(pa.Table.from_pylist(people), folder / "people.parquet")
    columns = ["person", "region", "day", "amount", "note"]
    duckdb.from_arrow(visits.select(columns)).write_csv(str(folder / "visits.csv"))
    (folder / "zones.csv").write_text("zone,side,weight\na,north,1\nb,south,2\nc,north,3\nz,nowhere,4\n")
    (folder / "sfumato.toml").write_text(PROJECT)
    return folder


@pytest.fixture(scope="module")
def curator(folder):
    return sf.open(folder / "sfumato.toml")


@pytest.fixture(scope="module")
def exact(folder):
    connection = duckdb.connect()
    for name in ("visits", "people"):
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder / name}.parquet'")
    connection.execute(f"CREATE VIEW zones AS SELECT * FROM '{folder / 'zones.csv'}'")
    return lambda text: connection.sql(text).fetchall()


def values(answer):
    """The rows of an answer without its intervals."""
    names = [name for name in answer.table.column_names if not name.endswith(("_low", "_high"))]
    return list(zip(*(answer.table[name].to_pylist() for name in names), strict=True))


def same(found, wanted, *, within=1e-3):
    assert len(found) == len(wanted)
    for row, other in zip(found, wanted, strict=True):
        for cell, truth in zip(row, other, strict=True):
            if isinstance(truth, (str, bool)):
                assert cell == truth
            else:
                assert cell == pytest.approx(float(truth), rel=within, abs=within)


@pytest.mark.parametrize(("aggregate", "_"), read_pairs(ANSWERS, section="aggregates"))
def test_every_aggregate_with_and_without_groups(curator, exact, aggregate, _):
    text = f"{aggregate} AS v FROM visits"
    same(values(curator.sql(f"DP-SELECT {MUCH} {text}")), exact(f"SELECT {text}"))
    by = f"region, {text} WHERE region < 'd' GROUP BY region"
    found = values(curator.sql(f"DP-SELECT {MUCH} {by}"))[:3]
    same(found, exact(f"SELECT {by} ORDER BY region"))


@pytest.mark.parametrize(("aggregate", "truth"), read_pairs(ANSWERS, section="quantiles"))
def test_quantiles_are_right_to_a_few_steps(curator, exact, aggregate, truth):
    ((found,),) = values(curator.sql(f"DP-SELECT {MUCH} {aggregate} AS v FROM visits"))
    ((wanted,),) = exact(f"SELECT {truth} FROM visits")
    assert found == pytest.approx(wanted, abs=1.01)


@pytest.mark.parametrize(("condition", "_"), read_pairs(ANSWERS, section="conditions"))
def test_conditions_are_those_of_plain_sql(curator, exact, condition, _):
    ((wanted,),) = exact(f"SELECT COUNT(*) FROM visits WHERE {condition}")
    assert wanted > 0
    assert values(curator.sql(f"DP-SELECT {MUCH} COUNT(*) FROM visits WHERE {condition}")) == [(wanted,)]


@pytest.mark.parametrize(("condition", "_"), read_pairs(ANSWERS, section="conditions that fail for some"))
def test_what_fails_for_a_record_is_null_there(curator, exact, condition, _):
    ((wanted,),) = exact(f"SELECT COUNT(*) FROM visits WHERE TRY({condition})")
    assert values(curator.sql(f"DP-SELECT {MUCH} COUNT(*) FROM visits WHERE {condition}")) == [(wanted,)]


def test_nan_and_null_count_for_nothing(curator, exact):
    text = "COUNT(broken) AS n, SUM(broken) AS s, AVG(broken) AS m FROM visits"
    found = values(curator.sql(f"DP-SELECT {MUCH} {text}"))
    same(found, exact(f"SELECT {text} WHERE NOT isnan(broken)"))


def test_values_beyond_the_bounds_count_as_the_bounds(curator, exact):
    found = values(
        curator.sql(f"DP-SELECT {MUCH} SUM(n) AS s FROM (SELECT 100 * points AS n FROM visits) AS v")
    )
    same(found, exact("SELECT SUM(100 * points) FROM visits"))
    found = values(curator.sql(f"DP-SELECT {MUCH} SUM(age) AS s FROM people"))
    same(found, exact("SELECT SUM(age) FROM people"))


def test_groups_without_records_are_answered(curator):
    answer = curator.sql(f"DP-SELECT {MUCH} region, COUNT(*), AVG(amount) FROM visits GROUP BY region")
    assert answer.table["region"].to_pylist() == ["a", "b", "c", "empty"]
    assert answer.table["COUNT(*)"].to_pylist()[-1] == 0
    # Of an average over nothing only the bounds are known.
    assert answer.table["AVG(amount)"].to_pylist()[-1] == 30
    assert answer.table["AVG(amount)_low"].to_pylist()[-1] == 0
    assert answer.table["AVG(amount)_high"].to_pylist()[-1] == 60


@pytest.mark.parametrize(
    ("key", "labels"),
    [
        ("month", list(range(1, 13))),
        ("other_region", ["a", "b", "other"]),
        ("flag", ["false", "true"]),
        ("amount > 10", ["false", "true"]),
        ("extract(quarter FROM day)", [1, 2, 3, 4]),
        ("CASE WHEN amount < 10 THEN 'low' WHEN amount < 40 THEN 'middle' ELSE 'high' END", None),
    ],
)
def test_keys_have_public_labels(curator, exact, key, labels):
    answer = curator.sql(f"DP-SELECT {MUCH} {key} AS k, COUNT(*) AS n FROM visits GROUP BY k")
    assert answer.table["k"].to_pylist() == (labels or ["low", "middle", "high"])
    plain = {"month": "month(day)", "other_region": "CASE region WHEN 'c' THEN 'other' ELSE region END"}
    found = {
        str(label).lower(): count
        for label, count in exact(f"SELECT {plain.get(key, key)} AS k, COUNT(*) FROM visits GROUP BY k")
    }
    for label, count in values(answer):
        assert found.get(str(label), 0) == count


def test_open_groups_need_delta_and_come_as_text(curator, exact):
    text = "points, COUNT(*) AS n FROM visits GROUP BY points"
    with pytest.raises(UnsupportedQuery, match="needs delta"):
        curator.sql(f"DP-SELECT {MUCH} {text}")
    answer = curator.sql(f"DP-SELECT {MUCH} DELTA 1e-7 {text}")
    found = dict(values(answer))
    everyone = {
        str(key): n
        for key, n, people in exact("SELECT points, COUNT(*), COUNT(DISTINCT person) FROM visits GROUP BY 1")
        if people > 2
    }
    assert found.items() >= everyone.items()
    # Without Gaussian noise, what may fail is the selection alone, and that is what is charged.
    assert 0 < answer.delta == curator.budget().sums.delta < Fraction(1, 10**7)
    assert curator.sql(f"DP-SELECT {MUCH} DELTA 1e-7 COUNT(*) AS n FROM visits").delta == 0


@pytest.mark.parametrize(
    "text", ["COUNT(*) FROM visits WHERE person = 5", "COUNT_IF(person IN (5, 6)) FROM visits"]
)
def test_conditions_that_name_individuals_are_warned_of(curator, text):
    assert "names individuals by person" in curator.sql(f"EXPLAIN DP-SELECT 1 {text}").notes[0]
    assert "names individuals by person" in curator.sql(f"DP-SELECT 1 {text}").notes[0]
    others = "COUNT(*) FROM visits WHERE person > 5"
    assert "names" not in str(curator.sql(f"EXPLAIN DP-SELECT 1 {others}").notes)


def test_open_and_public_keys_together(curator, exact):
    text = "region, note, COUNT(*) AS n FROM visits {} GROUP BY region, note ORDER BY region, note"
    found = values(curator.sql(f"DP-SELECT {MUCH} DELTA 1e-7 {text.format('')}"))
    assert found == exact(f"SELECT {text.format('WHERE note IS NOT NULL')}")


@pytest.mark.parametrize(("text", "_"), read_pairs(ANSWERS, section="statements"))
def test_statements_are_those_of_plain_sql(curator, exact, text, _):
    found = values(curator.sql(text.format(dp=f"DP-SELECT {MUCH}")))
    assert found
    same(found, exact(text.format(dp="SELECT")))


def test_a_table_of_rows_and_a_text_file_are_read_alike(curator, exact):
    wanted = exact("SELECT region, COUNT(*) FROM visits GROUP BY 1 ORDER BY 1")
    for table in ("rows", "text"):
        text = f"DP-SELECT {MUCH} region, COUNT(*) FROM {table} GROUP BY region"
        assert values(curator.sql(text)) == wanted
    found = values(curator.sql(f"DP-SELECT {MUCH} month, SUM(amount) AS s FROM text GROUP BY month"))
    same(found, exact("SELECT month(day), SUM(amount) FROM visits GROUP BY 1 ORDER BY 1"))


def test_a_joined_row_still_counts_once(curator):
    text = f"DP-SELECT {MUCH} COUNT(*) FROM rows AS r JOIN zones AS z ON r.region = z.zone"
    assert values(curator.sql(text)) == [(make_visits().num_rows,)]


def test_max_records_and_max_groups_bound_everybody(curator, exact):
    ((wanted,),) = exact("SELECT SUM(least(n, 3)) FROM (SELECT COUNT(*) AS n FROM visits GROUP BY person)")
    assert values(curator.sql(f"DP-SELECT {MUCH} COUNT(*) FROM tight")) == [(wanted,)]
    text = f"DP-SELECT {MUCH} region, COUNT(DISTINCT person) AS n, COUNT(*) AS r FROM tight GROUP BY region"
    found = values(curator.sql(text))
    assert sum(n for _, n, _ in found) == 120
    assert 120 <= sum(r for _, _, r in found) <= wanted
    option = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100000, max_groups = 2) "
    found = values(curator.sql(f"{option} region, COUNT(DISTINCT person) AS n FROM tight GROUP BY region"))
    ((two,),) = exact(
        "SELECT SUM(least(g, 2)) FROM (SELECT COUNT(DISTINCT region) AS g FROM visits GROUP BY person)"
    )
    assert 120 < sum(n for _, n in found) <= two


def test_columns_are_named_as_they_are_written(curator):
    answer = curator.sql(
        f"DP-SELECT {MUCH} v.Region, count( * ), Sum(amount) AS Total FROM visits v GROUP BY 1"
    )
    names = [
        "v.Region",
        "count( * )",
        "count( * )_low",
        "count( * )_high",
        "Total",
        "Total_low",
        "Total_high",
    ]
    assert answer.table.column_names == names
    assert set(answer.scales) == {"count( * )", "Total"}


def test_intervals_enclose_their_values(curator):
    text = "DP-SELECT 2 region, COUNT(*) AS n, AVG(amount) AS m, STDDEV(amount) AS d, MEDIAN(amount) AS q, "
    answer = curator.sql(text + "SUM(amount) / COUNT(*) AS r FROM visits GROUP BY region")
    for name in "nmdqr":
        middle, low, high = (answer.table[name + end].to_pylist() for end in ("", "_low", "_high"))
        for each in zip(low, middle, high, strict=True):
            assert math.isnan(each[1]) or each[0] <= each[1] <= each[2]


def test_a_repeated_statement_is_free_and_the_same(curator):
    text = "DP-SELECT 0.5 region, COUNT(*) AS n FROM visits WHERE flag GROUP BY region"
    first = curator.sql(text)
    before = curator.budget().left
    again = curator.sql(text.replace(" ", "  ").replace("COUNT", "count").replace("flag", "flag -- so\n"))
    assert (first.spent, first.repeated) == (Fraction(1, 2), False)
    assert (again.spent, again.repeated) == (0, True)
    assert again.table.to_pydict() == first.table.to_pydict()
    assert curator.budget().left == before
    assert curator.sql(text.replace("0.5", "0.25")).repeated  # less would be paid for a worse answer
    assert not curator.sql(text.replace("0.5", "0.75")).repeated


def test_repeats_of_open_groups_quantiles_and_averages_are_stored_too(curator):
    for text in (
        "DP-SELECT 50 DELTA 1e-7 note, COUNT(*), AVG(amount) FROM visits GROUP BY note",
        "DP-SELECT 1 region, MEDIAN(amount), STDDEV(points) FROM visits GROUP BY region",
    ):
        first, again = curator.sql(text), curator.sql(text)
        assert again.repeated
        assert str(again.table.to_pydict()) == str(first.table.to_pydict())


def test_a_changed_table_is_a_new_charge(folder, tmp_path):
    (tmp_path / "sfumato.toml").write_text((folder / "sfumato.toml").read_text())
    visits = make_visits()
    pq.write_table(visits, tmp_path / "visits.parquet")
    curator = sf.open(tmp_path / "sfumato.toml")
    text = f"DP-SELECT {MUCH} COUNT(*) FROM visits"
    assert values(curator.sql(text)) == [(visits.num_rows,)]
    pq.write_table(visits.slice(10), tmp_path / "visits.parquet")
    answer = curator.sql(text)
    assert not answer.repeated
    assert values(answer) == [(visits.num_rows - 10,)]


def test_explain_reads_and_spends_nothing(folder, tmp_path):
    (tmp_path / "sfumato.toml").write_text((folder / "sfumato.toml").read_text())
    pq.write_table(make_visits(), tmp_path / "visits.parquet")
    curator = sf.open(tmp_path / "sfumato.toml")
    for text in ("1 COUNT(*)", "WITHIN 50 COUNT(*)", "WITHIN 5% COUNT(*)", "1 region, amount"):
        answer = curator.sql(f"EXPLAIN DP-SELECT {text} FROM visits")
        assert answer.spent == 0
        assert "nothing was spent" in answer.explanation
        assert str(answer) == answer.explanation
    assert not curator.ledger_path.exists()


def test_within_spends_the_least_and_keeps_its_word(curator, exact):
    ((truth,),) = exact("SELECT COUNT(*) FROM visits")
    answer = curator.sql("DP-SELECT WITHIN 30 COUNT(*) AS n FROM visits")
    ((count, low, high),) = list(zip(*answer.table.to_pydict().values(), strict=True))
    assert high - low <= 60
    assert abs(count - truth) < 200
    share = curator.sql("DP-SELECT WITHIN 10% COUNT(*) AS n FROM visits")
    ((count, low, high),) = list(zip(*share.table.to_pydict().values(), strict=True))
    assert high - low <= 0.2 * count + 2
    assert share.spent > 0


def test_an_answer_says_if_it_is_not_within_its_share(curator):
    asked = "DP-SELECT WITHIN 10% COUNT(*) AS n FROM visits"
    told = "not every interval is within 10 % of its value: no more was to be spent on this statement"
    first = curator.sql(f"{asked} WHERE amount > 1", at_most=Fraction(1, 10_000))
    assert first.spent == Fraction(1, 10_000)
    assert told in first.notes
    empty = curator.sql(f"{asked} WHERE amount > 0 AND amount < 0")
    assert Fraction(24, 10) < empty.spent <= Fraction(25, 10)
    assert told in empty.notes


def test_what_does_not_fit_spends_nothing(curator):
    before = curator.budget().left
    for text in ("COUNT(*) FROM visits", "region, month FROM visits"):
        with pytest.raises(sf.BudgetExceeded):
            curator.sql(f"DP-SELECT 999999999 {text}")
    assert curator.budget().left == before


def test_delta_needs_a_budget_with_delta(folder, tmp_path):
    text = (folder / "sfumato.toml").read_text().replace("delta = 1e-6\n", "")
    (tmp_path / "sfumato.toml").write_text(text)
    pq.write_table(make_visits(), tmp_path / "visits.parquet")
    with pytest.raises(sf.RecipeError, match="delta"):
        sf.open(tmp_path / "sfumato.toml").sql("DP-SELECT 1 DELTA 1e-9 COUNT(*) FROM visits")


def test_a_plain_select_answers_about_public_tables_only(curator, exact):
    before = curator.budget().left
    text = "SELECT side, COUNT(*) AS n, MAX(weight) FROM zones WHERE weight < 4 GROUP BY side ORDER BY n DESC"
    answer = curator.sql(text)
    assert answer.public
    assert answer.table.column_names == ["side", "n", "MAX(weight)"]
    assert values(answer) == exact(text)
    assert values(curator.sql("SELECT * FROM zones ORDER BY zone LIMIT 1")) == [("a", "north", 1)]
    assert curator.budget().left == before
    for text in (
        "SELECT * FROM visits",
        "SELECT COUNT(*) FROM zones JOIN visits ON zone = region",
        "SELECT * FROM 'visits.parquet'",
        "SELECT * FROM read_parquet('visits.parquet')",
        "SELECT (SELECT COUNT(*) FROM visits) FROM zones",
        "SELECT zone FROM zones WHERE zone IN (SELECT region FROM visits)",
        "SELECT zone FROM zones ORDER BY (SELECT COUNT(*) FROM visits)",
    ):
        with pytest.raises(UnsupportedQuery):
            curator.sql(text)


def test_frames(curator):
    pytest.importorskip("pandas")
    answer = curator.sql(f"DP-SELECT {MUCH} region, COUNT(*) AS n FROM visits GROUP BY region")
    frame = answer.to_pandas()
    assert list(frame.columns) == ["region", "n", "n_low", "n_high"]
    assert answer.to_arrow() is answer.table
    assert repr(answer) == "Answer(4 rows: region, n, n_low, n_high)"


def test_synthetic_rows_have_the_columns_and_plausible_marginals(curator, exact):
    answer = curator.sql(f"DP-SELECT {MUCH} region, month, amount FROM visits WHERE amount > 5")
    ((rows,),) = exact("SELECT COUNT(*) FROM visits WHERE amount > 5")
    assert answer.synthetic
    assert answer.table.column_names == ["region", "month", "amount"]
    assert answer.table.num_rows == rows
    truth = dict(exact("SELECT region, COUNT(*) FROM visits WHERE amount > 5 GROUP BY 1"))
    regions = answer.table["region"].to_pylist()
    for region, count in truth.items():
        assert regions.count(region) == pytest.approx(count, abs=6 * math.sqrt(count))
    amounts = answer.table["amount"].to_pylist()
    assert 0 <= min(amounts) <= max(amounts) <= 60
    ((mean,),) = exact("SELECT AVG(amount) FROM visits WHERE amount > 5")
    assert sum(amounts) / rows == pytest.approx(mean, abs=4)
    again = curator.sql(f"DP-SELECT {MUCH} region, month, amount FROM visits WHERE amount > 5")
    assert again.repeated
    assert again.table.equals(answer.table)


def test_a_star_selects_what_may_be_known_and_a_limit_cuts(curator):
    answer = curator.sql(f"DP-SELECT {MUCH} * FROM visits LIMIT 7")
    assert answer.table.num_rows == 7
    assert "person" not in answer.table.column_names
    assert {"region", "month", "amount", "points"} <= set(answer.table.column_names)
    assert "note" not in answer.table.column_names


def open_table(folder, columns, spec, *, name="t", more=""):
    """A curator over one table of rows."""
    pq.write_table(pa.table(columns), folder / "t.parquet")
    text = "[budget]\nepsilon = 1000000000\ndelta = 1e-6\n"
    (folder / "sfumato.toml").write_text(f'{text}[tables.{name}]\nsource = "t.parquet"\n{spec}\n{more}')
    return sf.open(folder / "sfumato.toml")


SLOTS = '[tables.slots]\npublic = true\nsource = "slots.{}"\n'


@pytest.mark.parametrize("case", ["time", "date"])
def test_no_record_can_make_a_join_fail(tmp_path, case):
    if case == "time":
        (tmp_path / "slots.csv").write_text("slot,part\n12:00:00,noon\n13:00:00,late\n")
        column, more = pa.array(["12:00:00", "never"]), SLOTS.format("csv")
    else:
        moment = pa.array([86_400_000_000], pa.timestamp("us"))
        pq.write_table(pa.table({"slot": moment, "part": ["noon"]}), tmp_path / "slots.parquet")
        column, more = pa.array([1, 2**30], pa.int32()).cast(pa.date32()), SLOTS.format("parquet")
    curator = open_table(tmp_path, {"slot": column}, 'unit = "row"', more=more)
    text = f"DP-SELECT {MUCH} part, COUNT(*) AS n FROM t JOIN slots ON t.slot = slots.slot GROUP BY part"
    assert ("noon", 1) in values(curator.sql(text))


@pytest.mark.parametrize("name", ["unit of sfumato", "code of x", "Code of X"])
def test_columns_named_like_inner_ones_are_refused(tmp_path, name):
    columns = {"person": [1] * 50, name: list(range(50)), "x": ["a"] * 50}
    curator = open_table(tmp_path, columns, 'unit = "person"\nmax_records = 5')
    with pytest.raises(UnsupportedQuery, match="rename"):
        curator.sql(f"DP-SELECT {MUCH} COUNT(*) FROM (SELECT x FROM t) AS v")


def test_bounds_of_a_drafted_domain_are_refused(tmp_path):
    spec = 'unit = "row"\n[tables.t.columns.x]\nrange = [1, 3]\ndrafted_from_data = true'
    with pytest.raises(sf.SfumatoError, match="drafted"):
        open_table(tmp_path, {"x": [1, 2, 3]}, spec).sql(f"DP-SELECT {MUCH} SUM(x) FROM t")


def test_another_domain_gives_another_answer(tmp_path):
    spec = 'unit = "row"\n[tables.t.columns.x]\nvalues = {}'
    text = f"DP-SELECT {MUCH} x, COUNT(*) FROM t GROUP BY x"
    columns = {"x": ["a", "a", "b"]}
    assert values(open_table(tmp_path, columns, spec.format('["a", "b"]')).sql(text)) == [("a", 2), ("b", 1)]
    (tmp_path / "sfumato.toml").write_text(
        (tmp_path / "sfumato.toml").read_text().replace('["a", "b"]', '["b", "a"]')
    )
    assert values(sf.open(tmp_path / "sfumato.toml").sql(text)) == [("b", 1), ("a", 2)]


@pytest.mark.parametrize("name", ["encoded", "bounded"])
def test_a_table_may_have_any_name(tmp_path, name):
    spec = f'unit = "person"\nmax_records = 5\nmax_groups = 1\n[tables.{name}.columns.x]\nvalues = ["a"]'
    curator = open_table(tmp_path, {"person": [1, 2], "x": ["a", "a"]}, spec, name=name)
    assert values(curator.sql(f"DP-SELECT {MUCH} x, COUNT(*) FROM {name} GROUP BY x")) == [("a", 2)]


@pytest.mark.parametrize("name", ["key", "aggregate"])
def test_a_table_may_be_called_key(curator, name):
    text = f"DP-SELECT {MUCH} {name}.region, COUNT(*) FROM visits AS {name} GROUP BY {name}.region"
    assert len(values(curator.sql(text))) == 4


def test_places_of_round_may_be_negative(curator):
    ((found,),) = values(curator.sql(f"DP-SELECT {MUCH} ROUND(COUNT(*), -1) AS n FROM visits"))
    assert found % 10 == 0


def test_a_share_of_nothing_is_not_approached_for_ever(curator):
    answer = curator.sql("DP-SELECT WITHIN 5% region, COUNT(*) FROM visits GROUP BY region")
    assert answer.spent < 10


def test_intervals_of_rows_that_noise_picked_hold(tmp_path):
    labels = [f"g{number}" for number in range(400)]
    rows = {"person": np.arange(400), "g": np.array(labels)}
    curator = open_rows(tmp_path, {"g": {"values": labels}}, rows, max_records=1)
    plain = "g, COUNT(*) AS n FROM t GROUP BY g"
    for before, rest in (
        ("", f"{plain} ORDER BY n DESC LIMIT 1"),
        ("", f"{plain} HAVING COUNT(*) > 5 ORDER BY n DESC LIMIT 1"),
        (f"WITH q AS (SELECT {plain})", "g, n FROM q WHERE n = (SELECT MAX(n) FROM q)"),
    ):
        held = 0
        for draw in range(12):
            answer = curator.sql(f"{before} DP-SELECT FRESH {1 + draw / 1000} {rest}")
            held += all(row["n_low"] <= 1 <= row["n_high"] for row in answer.table.to_pylist())
        # Each holds with 95 %: 7 of 12 are false once in two million times. Of all rows hardly one is true.
        assert held >= 6, rest
    (row,) = curator.sql(
        "DP-SELECT 1 g, COUNT(*) AS n FROM t GROUP BY g ORDER BY g LIMIT 1"
    ).table.to_pylist()
    assert row["n_high"] - row["n_low"] <= 8


def test_days_between_dates_have_the_bounds_of_their_ranges(tmp_path):
    first = np.datetime64("2024-01-01") + np.arange(20)
    rows = {"person": np.arange(20), "sent": first, "came": first + 5}
    january = {"range": ["2024-01-01", "2024-01-31"]}
    curator = open_rows(tmp_path, {"sent": january, "came": january}, rows, max_records=1)
    assert "[-30, 30]" in curator.sql("EXPLAIN DP-SELECT 1 AVG(came - sent) AS d FROM t").explanation
    answer = curator.sql(f"DP-SELECT {MUCH} AVG(came - sent) AS d, SUM(came - sent) AS s FROM t")
    assert answer.table["d"][0].as_py() == pytest.approx(5, abs=0.01)
    assert answer.table["s"][0].as_py() == pytest.approx(100, abs=0.1)
