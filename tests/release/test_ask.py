"""A released model asked in SQL: the answers are sums of its marginals, the intervals are those of noise."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import run_main
from helpers.fitted_recipe import Fitted
from helpers.projects import open_rows, project_text
from helpers.regression import solve
from helpers.sources import seed_noise
from sfumato.inference.files import unpack_models
from sfumato.recipes.files import RECIPES
from sfumato.release.ask import open_model
from sfumato.release.ask.regression import invert_curvature

PROJECT = project_text(
    {
        "region": {"values": ["a", "b", "c"]},
        "month": {"range": [1, 12]},
        "age": {"bins": [0, 18, 65, 100]},
        "code": {"values": [7, 8], "outside": "other"},
        "season": {"from": ["year", "half"], "values": [[2024, "h1"], [2024, "h2"], [2025, "h1"]]},
    },
    epsilon=100000,
    delta=1e-09,
)
COLUMNS = ("region", "month", "age", "code", "season")
MARGINALS = (("region", "month"), ("month", "age"), ("age", "code"), ("season",))
CHAIN = {"table": "t", "columns": COLUMNS, "marginals": MARGINALS}


def records():
    random = np.random.default_rng(5)
    region = random.integers(0, 3, 3000)
    month = 1 + (region * 3 + random.integers(0, 5, 3000)) % 12
    season = random.integers(0, 3, 3000)
    return pa.table(
        {
            "region": [("a", "b", "c")[code] for code in region],
            "month": month,
            "age": np.minimum(99.5, month * 6.0 + random.random(3000) * 20),
            "code": random.integers(7, 10, 3000),
            "year": np.where(season == 2, 2025, 2024),
            "half": np.where(season == 1, "h2", "h1").tolist(),
        }
    )


@pytest.fixture(scope="module")
def fitted():
    """The class of a recipe that releases a model, known to recipe files while these tests run."""
    RECIPES["fitted"] = Fitted
    yield Fitted
    del RECIPES["fitted"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, fitted):
    """A project whose folder `out` holds a release with a model, and `two` one with several."""
    path = tmp_path_factory.mktemp("model")
    pq.write_table(records(), path / "t.parquet")
    (path / "sfumato.toml").write_text(PROJECT)
    curator = sf.open(path / "sfumato.toml")
    # Fixed, or the total would leave the interval of its best measurement in one case of two thousand.
    with seed_noise():
        curator.release(fitted(**CHAIN), epsilon=1, out=path / "out")
        curator.release(fitted(**CHAIN, copies=2), epsilon=["1/2", 2], out=path / "two")
    curator.release(sf.recipes.CellCounts(table="t", by=("region",)), epsilon=1, out=path / "plain")
    return path


@pytest.fixture(scope="module")
def model(folder):
    return open_model(folder / "out")


def rows(answer):
    return [list(row.values()) for row in answer.table.to_pylist()]


def value(answer, name=None):
    (row,) = answer.table.to_pylist()
    return row[name or answer.table.column_names[0]]


MONTHS = np.arange(1, 13)
CONDITIONS = {
    "region = 'b'": lambda r, m, a: r == 1,
    "'b' = REGION": lambda r, m, a: r == 1,
    "t.region <> 'b'": lambda r, m, a: r != 1,
    "region IN ('a', 'c', 'elsewhere')": lambda r, m, a: r != 1,
    "region NOT IN ('a', 'c')": lambda r, m, a: r == 1,
    "region < 'c' AND region >= 'b'": lambda r, m, a: r == 1,
    "month BETWEEN 3 AND 7.5": lambda r, m, a: (m >= 3) & (m <= 7),
    "month NOT BETWEEN 3 AND 7": lambda r, m, a: (m < 3) | (m > 7),
    "3 < month": lambda r, m, a: m > 3,
    "month > -1 AND month <= 1e1": lambda r, m, a: m <= 10,
    "month = 4.5": lambda r, m, a: m < 0,
    "age >= 18": lambda r, m, a: a >= 1,
    "age < 65": lambda r, m, a: a <= 1,
    "age <= 100 AND age >= -5": lambda r, m, a: a >= 0,
    "age = '[18, 65)'": lambda r, m, a: a == 1,
    "age > 100": lambda r, m, a: a < 0,
    "NOT (region = 'a' OR age < 18) AND month IN (1, 2, 3)": lambda r, m, a: (r != 0) & (a >= 1) & (m <= 3),
    "TRUE": lambda r, m, a: a >= 0,
    "region = 'a' AND FALSE": lambda r, m, a: a < 0,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_counts_are_sums_of_the_model_s_marginals(model, condition):
    joint = model.model.marginal(("region", "month", "age"))
    kept = CONDITIONS[condition](*np.ogrid[0:3, 1:13, 0:3])
    answer = model.sql(f"SELECT COUNT(*) AS n FROM t WHERE {condition}")
    expected = float((joint * kept).sum())
    assert value(answer, "n") == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_no_condition_is_the_total_and_costs_nothing(model):
    answer = model.sql("select count( * ) from T")
    assert value(answer, "count( * )") == pytest.approx(model.model.total)
    assert (answer.spent, answer.repeated, answer.synthetic, answer.public) == (0, False, False, True)
    assert value(answer, "count( * )_low") < model.model.total < value(answer, "count( * )_high")


def test_groups_come_in_the_order_of_their_domains(model):
    answer = model.sql("SELECT month AS m, region, COUNT(*) AS n FROM t AS x GROUP BY m, x.region")
    pairs = model.model.marginal(("month", "region"))
    assert [row[:2] for row in rows(answer)] == [[m, r] for m in range(1, 13) for r in "abc"]
    assert np.allclose(answer.table["n"].to_numpy(), pairs.reshape(-1))
    swapped = model.sql("SELECT region, month, COUNT(*) AS n FROM t GROUP BY 1, 2")
    assert np.allclose(swapped.table["n"].to_numpy(), pairs.T.reshape(-1))


def test_groups_without_a_cell_are_left_out(model):
    answer = model.sql("SELECT region, COUNT(*) FROM t WHERE region <> 'b' GROUP BY region")
    assert answer.table["region"].to_pylist() == ["a", "c"]
    assert model.sql("SELECT region, COUNT(*) FROM t WHERE FALSE GROUP BY region").table.num_rows == 0
    assert value(model.sql("SELECT COUNT(*) AS n FROM t WHERE FALSE"), "n") == 0


def test_sums_and_averages_are_of_numbers_and_of_the_middles_of_bins(model):
    pair = model.model.marginal(("region", "month"))
    answer = model.sql("SELECT region, SUM(month) AS s, AVG(month) AS a FROM t GROUP BY region")
    assert np.allclose(answer.table["s"].to_numpy(), pair @ MONTHS)
    assert np.allclose(answer.table["a"].to_numpy(), pair @ MONTHS / pair.sum(1))
    ages = model.model.marginal(("age",))
    answer = model.sql("SELECT AVG(age) AS a, SUM(age) AS s FROM t WHERE age >= 18")
    middles = np.array([41.5, 82.5])
    assert value(answer, "s") == pytest.approx(ages[1:] @ middles)
    assert value(answer, "a") == pytest.approx(ages[1:] @ middles / ages[1:].sum())
    assert model.sql("SELECT AVG(age) AS a FROM t WHERE FALSE").table["a"].to_pylist() == [None]


def test_order_limit_and_offset(model):
    counts = model.model.marginal(("month",))
    text = "SELECT month, COUNT(*) AS n FROM t GROUP BY month ORDER BY {} LIMIT 4 OFFSET 1"
    for order in ("n DESC", "2 DESC", "COUNT(*) DESC", "n DESC, month"):
        months = model.sql(text.format(order)).table["month"].to_pylist()
        assert months == (1 + np.argsort(-counts, kind="stable"))[1:5].tolist()
    assert model.sql(text.format("month DESC")).table["month"].to_pylist() == [11, 10, 9, 8]
    by_unseen = model.sql("SELECT region FROM t GROUP BY region ORDER BY AVG(month), region DESC")
    pair = model.model.marginal(("region", "month"))
    means = pair @ MONTHS / pair.sum(1)
    assert by_unseen.table["region"].to_pylist() == ["abc"[place] for place in np.argsort(means)]
    assert model.sql("SELECT region FROM t GROUP BY region LIMIT 0").table.num_rows == 0


def test_combined_columns_are_asked_by_their_parts(model):
    seasons = model.model.marginal(("season",))
    answer = model.sql("SELECT half, COUNT(*) AS n FROM t WHERE year <= 2024 OR half = 'h1' GROUP BY half")
    assert answer.table["half"].to_pylist() == ["h1", "h2"]
    assert np.allclose(answer.table["n"].to_numpy(), [seasons[0] + seasons[2], seasons[1]])
    assert model.sql("SELECT half, year, COUNT(*) FROM t GROUP BY half, year").table.num_rows == 3


def test_other_is_a_label_and_has_no_order(model):
    codes = model.model.marginal(("code",))
    for text, place in (("code = 7", 0), ("code IN ('8')", 1), ("code = 'other'", 2)):
        assert value(model.sql(f"SELECT COUNT(*) AS n FROM t WHERE {text}")) == pytest.approx(codes[place])
    with pytest.raises(sf.UnsupportedQuery, match="'other'"):
        model.sql("SELECT COUNT(*) FROM t WHERE code > 7")
    with pytest.raises(sf.UnsupportedQuery, match="holds no numbers"):
        model.sql("SELECT SUM(code) FROM t")


REFUSED = {
    "": "empty statement",
    "DP-SELECT 1 COUNT(*) FROM t": "plain SELECT",
    "EXPLAIN SELECT COUNT(*) FROM t": "plain SELECT",
    "SELECT COUNT(*)": "FROM t",
    "SELECT COUNT(*) FROM u": "no table 'u'",
    "SELECT COUNT(*) FROM t, t AS u": "JOINS",
    "SELECT COUNT(*) FROM t JOIN u USING (region)": "JOINS",
    "SELECT COUNT(*) FROM (SELECT * FROM t) AS t": "FROM t",
    "SELECT COUNT(*) FROM 't.parquet'": "no table|FROM t",
    "SELECT COUNT(*) FROM read_csv('t.csv')": "FROM t",
    "SELECT COUNT(*) FROM main.t": "FROM t",
    "SELECT COUNT(*) FROM t TABLESAMPLE 10%": "FROM t",
    "WITH t AS (SELECT 1) SELECT COUNT(*) FROM t": "WITH",
    "SELECT * FROM t": "select list",
    "SELECT region FROM t": "GROUP BY",
    "SELECT region, COUNT(*) FROM t": "GROUP BY",
    "SELECT DISTINCT region FROM t GROUP BY region": "DISTINCT",
    "SELECT region, COUNT(*) FROM t GROUP BY region HAVING COUNT(*) > 3": "HAVING",
    "SELECT region, COUNT(*) FROM t GROUP BY ROLLUP (region)": "ROLLUP",
    "SELECT COUNT(*) FROM t GROUP BY month + 1": "grouped by its columns",
    "SELECT region FROM t GROUP BY region, region": "twice",
    "SELECT COUNT(DISTINCT region) FROM t": "select list",
    "SELECT COUNT(*) * 2 FROM t": "select list",
    "SELECT COUNT(*) FILTER (WHERE month = 1) FROM t": "select list",
    "SELECT SUM(month + 1) FROM t": "select list",
    "SELECT SUM(region) FROM t": "holds no numbers",
    "SELECT MEDIAN(month) FROM t": "select list",
    "SELECT COUNT(*) OVER () FROM t": "select list",
    "SELECT COUNT(*) AS n, COUNT(*) AS n FROM t": "same name",
    "SELECT COUNT(*) AS n, SUM(month) AS n_low FROM t": "same name",
    "SELECT COUNT(*) FROM t LIMIT 1 + 1": "whole number",
    "SELECT COUNT(*) FROM t WHERE person = 1": "no column",
    "SELECT COUNT(*) FROM t WHERE u.region = 'a'": "no column",
    "SELECT COUNT(*) FROM t WHERE age > 18": "divides the bin",
    "SELECT COUNT(*) FROM t WHERE age = 20": "divides the bin",
    "SELECT COUNT(*) FROM t WHERE age < 100": "divides the bin",
    "SELECT COUNT(*) FROM t WHERE age BETWEEN 18 AND 65": "divides the bin",
    "SELECT COUNT(*) FROM t WHERE age > '[0, 18)'": "by text",
    "SELECT COUNT(*) FROM t WHERE month = '4x'": "write a number",
    "SELECT COUNT(*) FROM t WHERE region = 1": "quote it",
    "SELECT COUNT(*) FROM t WHERE region = month": "write a number or text",
    "SELECT COUNT(*) FROM t WHERE region LIKE 'a%'": "comparisons",
    "SELECT COUNT(*) FROM t WHERE region IS NULL": "comparisons",
    "SELECT COUNT(*) FROM t WHERE month + 1 = 2": "comparisons",
    "SELECT COUNT(*) FROM t WHERE region IN (SELECT 'a')": "comparisons",
    "SELECT COUNT(*) FROM t WHERE 1 = 1": "comparisons",
    "SELECT COUNT(*) FROM t WHERE region": "comparisons",
    "DROP TABLE t": "only SELECT",
    "SELECT COUNT(*) FROM t; SELECT 1": "one by one",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_model_cannot_answer_is_refused_with_a_reason(model, text):
    with pytest.raises(sf.UnsupportedQuery, match=REFUSED[text]):
        model.sql(text)


def test_deep_and_far_conditions_end_in_an_answer_or_a_refusal(model):
    long = " OR ".join(["month = 1"] * 4000)
    try:
        answer = model.sql(f"SELECT COUNT(*) AS n FROM t WHERE {long}")
        assert value(answer) == pytest.approx(model.model.marginal(("month",))[0])
    except sf.UnsupportedQuery:
        pass
    answer = model.sql("SELECT COUNT(*) AS n FROM t WHERE month < 1e999999999 AND month > -1e999999999")
    assert value(answer) == pytest.approx(model.model.total)


def noisy(folder, columns, *, release="out"):
    """The noisy counts of a marginal as they are in the release, averaged over its copies."""
    table = pq.read_table(folder / release / "measurements.parquet")
    names = np.array(table["measurement"].to_pylist())
    wanted = [name for name in dict.fromkeys(names) if name.startswith(" x ".join(columns) + ",")]
    values = table["noisy_value"].to_numpy()
    return [values[names == name] for name in wanted]


def least_squares(folder, columns, weights, *, release="out"):
    """What all measurements together say of a weighted sum of cells, and its standard deviation.

    By solving the equations of the cells of all columns: nothing is shared with the code under test.
    """
    sizes = {"region": 3, "month": 12, "age": 3, "code": 3}
    rows, values, variances = [], [], []
    for marginal in MARGINALS[:3]:
        for place, counts in enumerate(noisy(folder, marginal, release=release)):
            scale = 4 if release == "out" else (8, 8, 2, 2)[place]
            for cell, count in enumerate(counts):
                codes = dict(zip(marginal, np.unravel_index(cell, [sizes[n] for n in marginal]), strict=True))
                rows.append(indicator(sizes, codes))
                values.append(count)
                variances.append(scale**2)
    for place, counts in enumerate(noisy(folder, ("season",), release=release)):
        scale = 4 if release == "out" else (8, 8, 2, 2)[place]
        rows.append(np.ones(rows[0].size))  # of another column they tell the total
        values.append(counts.sum())
        variances.append(3 * scale**2)
    matrix, root = np.array(rows), np.sqrt(variances)
    inverse = np.linalg.pinv(matrix / root[:, None], rcond=1e-9)
    wanted = np.zeros(tuple(sizes.values()))
    around = [sizes[name] if name in columns else 1 for name in sizes]
    wanted += np.asarray(weights, float).reshape(around)
    along = wanted.reshape(-1) @ inverse
    return along @ (np.array(values) / root), float(np.linalg.norm(along))


def indicator(sizes, codes):
    cells = np.zeros(tuple(sizes.values()))
    cells[tuple(codes.get(name, slice(None)) for name in sizes)] = 1
    return cells.reshape(-1)


def test_an_interval_is_that_of_all_measurements_together_and_holds_the_answer(model, folder):
    answer = model.sql("SELECT SUM(month) AS s FROM t WHERE region <> 'b'")
    weights = np.outer([1, 0, 1], MONTHS)
    centre, deviation = least_squares(folder, ("region", "month"), weights)
    reach = 1.959964 * deviation + 12 / 2  # half of what a step of the noise moves the sum by
    row = answer.table.to_pylist()[0]
    assert row["s_low"] == pytest.approx(min(row["s"], centre - reach), abs=1e-3)
    assert row["s_high"] == pytest.approx(max(row["s"], centre + reach), abs=1e-3)
    assert "region x month" in answer.scales["s"]


def test_a_count_is_not_below_zero_and_far_from_it_has_the_usual_interval(model, folder):
    answer = model.sql("SELECT region, month, COUNT(*) AS n FROM t GROUP BY region, month")
    for row in answer.table.to_pylist():
        weights = np.outer([row["region"] == each for each in "abc"], row["month"] == MONTHS)
        centre, deviation = least_squares(folder, ("region", "month"), weights)
        assert row["n_low"] >= 0
        if centre > 4 * deviation:
            assert row["n_high"] == pytest.approx(max(row["n"], centre + 1.959964 * deviation + 0.5))
            assert row["n_low"] == pytest.approx(min(row["n"], centre - 1.959964 * deviation - 0.5))


def test_every_measurement_says_something_of_the_total(model, folder):
    answer = model.sql("SELECT COUNT(*) AS n FROM t")
    assert "season" in answer.scales["n"]
    centre, deviation = least_squares(folder, (), 1.0)
    assert deviation < 4 * 3**0.5  # less than that of season alone
    assert value(answer, "n_high") == pytest.approx(max(value(answer), centre + 1.959964 * deviation + 0.5))


def test_copies_are_averaged_by_their_precision(folder):
    chosen = open_model(folder / "two", epsilon="0.5")
    answer = chosen.sql("SELECT COUNT(*) AS n FROM t WHERE region = 'b' AND month = 5")
    weights = np.outer([0, 1, 0], MONTHS == 5)
    centre, deviation = least_squares(folder, ("region", "month"), weights, release="two")
    assert centre > 4 * deviation
    assert value(answer, "n_high") == pytest.approx(
        max(value(answer), centre + 1.959964 * deviation + 0.5), abs=1e-3
    )


def test_a_share_is_the_average_of_a_condition(model):
    pairs = model.model.marginal(("region", "month"))
    answer = model.sql(
        "SELECT region, AVG(CASE WHEN month > 6 THEN 1 ELSE 0 END) AS late, "
        "SUM(CASE WHEN month > 6 THEN 1 ELSE 0 END) AS n FROM t GROUP BY region"
    )
    assert np.allclose(answer.table["n"].to_numpy(), pairs[:, 6:].sum(1))
    assert np.allclose(answer.table["late"].to_numpy(), pairs[:, 6:].sum(1) / pairs.sum(1))
    for row in answer.table.to_pylist():
        assert 0 <= row["late_low"] <= row["late"] <= row["late_high"] <= 1
        assert 0 < row["late_high"] - row["late_low"] < 0.2
    for text in ("CASE WHEN month > 6 THEN 2 ELSE 0 END", "CASE WHEN month > 6 THEN 1 END"):
        with pytest.raises(sf.UnsupportedQuery, match="THEN 1 ELSE 0"):
            model.sql(f"SELECT AVG({text}) FROM t")


def test_an_interval_needs_only_what_its_own_sum_needs(model):
    answer = model.sql("SELECT region, AVG(age) AS a, SUM(month) AS s FROM t GROUP BY region")
    assert answer.table["a_low"].to_pylist() == [None] * 3
    assert None not in answer.table["s_low"].to_pylist()
    assert "some of a" in answer.notes[0]


def test_a_population_is_less_certain_than_its_records(model):
    text = "SELECT region, COUNT(*) AS n, AVG(month) AS a FROM t GROUP BY region"
    records, population = model.sql(text).table, model.sql(text, population=True).table
    for name in ("n", "a"):
        narrow, wide = (
            each[f"{name}_high"].to_numpy() - each[f"{name}_low"].to_numpy() for each in (records, population)
        )
        assert (wide > 1.2 * narrow).all()
    # Noise and sampling together, for a mean: the variance of the months of a region over their number.
    counts = model.model.marginal(("region", "month"))
    means = counts @ MONTHS / counts.sum(1)
    variance = (counts * (MONTHS - means[:, None]) ** 2).sum(1) / counts.sum(1) ** 2
    assert (population["a_high"].to_numpy() - population["a_low"].to_numpy() > 3.9 * variance**0.5).all()


def test_columns_that_no_measurement_holds_have_no_interval_and_say_so(model):
    answer = model.sql("SELECT region, COUNT(*) AS n FROM t WHERE age < 18 GROUP BY region")
    assert answer.table["n_low"].to_pylist() == answer.table["n_high"].to_pylist() == [None] * 3
    assert answer.table.schema.field("n_low").type == pa.float64()
    (note,) = answer.notes
    assert "region x age" in note
    assert "independent" in note
    assert model.sql("SELECT COUNT(*) FROM t").notes == ()


def test_measurements_held_to_a_norm_have_a_grid_of_their_own(fitted, tmp_path):
    marginals = (("region", "month"),)
    people = records().append_column("person", pa.array(np.arange(3000) // 3))
    pq.write_table(people, tmp_path / "t.parquet")
    file = tmp_path / "sfumato.toml"
    file.write_text(PROJECT.replace('unit = "row"', 'unit = "person"\nmax_records = 3'))
    curator = sf.open(file)
    recipe = fitted(table="t", columns=("region", "month"), marginals=marginals, norm=1)
    curator.release(recipe, epsilon=1, out=tmp_path / "norm")
    answer = open_model(tmp_path / "norm").sql("SELECT COUNT(*) AS n FROM t WHERE month = 4 AND region = 'a'")
    width = value(answer, "n_high") - value(answer, "n_low")
    assert 2 * 1.959 * 4 <= width < 2 * 1.96 * 4 + 10


def test_intervals_hold_the_exact_values(folder, fitted, tmp_path, seeded_noise):
    """95 % of them and more: 2 x 10 releases of 36 counts, 3 sums and 3 averages each."""
    table = records()
    region, month = (np.array(table[name].to_pylist()) for name in ("region", "month"))
    age = table["age"].to_numpy()
    curator = sf.open(folder / "sfumato.toml")
    inside = {"n": [], "s": [], "a": [], "l": []}
    for trial in range(10):
        for noise in ("gaussian", "laplace"):
            recipe = fitted(
                table="t",
                columns=("region", "month", "age"),
                marginals=(("region", "month"), ("age", "region")),
                noise=noise,
            )
            out = tmp_path / f"{noise}{trial}"
            curator.release(recipe, epsilon=f"{8 + trial}/10", out=out)
            model = open_model(out)
            pairs = model.sql("SELECT region, month, COUNT(*) AS n FROM t GROUP BY region, month").table
            for row in pairs.to_pylist():
                exact = ((region == row["region"]) & (month == row["month"])).sum()
                inside["n" if noise == "gaussian" else "l"].append(row["n_low"] <= exact <= row["n_high"])
            sums = model.sql("SELECT region, SUM(age) AS s FROM t GROUP BY region").table.to_pylist()
            means = model.sql("SELECT region, AVG(month) AS a FROM t GROUP BY region").table.to_pylist()
            for row, mean in zip(sums, means, strict=True):
                here = region == row["region"]
                inside["s"].append(row["s_low"] <= age[here].sum() <= row["s_high"])
                inside["a"].append(mean["a_low"] <= month[here].mean() <= mean["a_high"])
                assert mean["a_high"] - mean["a_low"] < 1
    for name, held in inside.items():
        # A share of 95 % falls below these bounds in one of five thousand seeds.
        least = 0.95 - 4.3 * (0.95 * 0.05 / len(held)) ** 0.5
        assert np.mean(held) >= least, (name, np.mean(held), least)


def design(table):
    region, month = (np.array(table[name].to_pylist()) for name in ("region", "month"))
    age = np.array([9, 41.5, 82.5])[np.searchsorted([18, 65], table["age"].to_numpy(), side="right")]
    return np.column_stack([np.ones(month.size), region == "b", region == "c", age]), month, age


@pytest.fixture(scope="module")
def triple(folder, fitted):
    """A release that measured region, month and age together, with little noise."""
    curator = sf.open(folder / "sfumato.toml")
    recipe = fitted(
        table="t",
        columns=("region", "month", "age"),
        marginals=(("region", "month", "age"), ("region", "age")),
    )
    with seed_noise():
        curator.release(recipe, epsilon=40, out=folder / "triple")
    return sf.open_release(folder / "triple")


def test_regressions_are_those_on_the_records_where_there_is_little_noise(triple):
    inputs, month, _ = design(records())
    answer = triple.regress("month", ["region", "age"])
    assert answer.table["term"].to_pylist() == ["(constant)", "region = b", "region = c", "age"]
    found = np.array([answer.table[f"coefficient{end}"].to_pylist() for end in ("", "_low", "_high")])
    exact = solve(inputs, month)
    assert np.allclose(found[0], exact, atol=0.01)
    assert ((found[1] <= exact) & (exact <= found[2]) & (found[2] - found[1] < 0.05)).all()
    answer = triple.regress("month IN (2, 5, 6, 11)", ["region", "AGE"], family="logistic")
    found = np.array([answer.table[f"coefficient{end}"].to_pylist() for end in ("", "_low", "_high")])
    exact = solve(inputs, np.isin(month, (2, 5, 6, 11)), logistic=True)
    assert np.allclose(found[0], exact, atol=0.05)
    assert ((found[1] <= exact) & (exact <= found[2]) & (found[2] - found[1] < 0.2)).all()
    assert (answer.spent, answer.public) == (0, True)
    assert answer.notes == ("numbers of age are taken for the middle of their bins",)


def test_a_regression_leaves_out_records_whose_target_is_missing(tmp_path, seeded_noise, fitted):
    random = np.random.default_rng(11)
    region = np.array(["a", "b", "c"])[random.integers(0, 3, 6000)]
    age = random.integers(20, 30, 6000)
    month = np.clip(age // 4 + 2 * (region == "b") + random.integers(-1, 2, 6000), 1, 12)
    present = (random.random(6000) > 0.3) & (age != 25)
    columns = {
        "region": {"values": ["a", "b", "c"]},
        "age": {"range": [20, 29], "nullable": True},
        "month": {"range": [1, 12], "nullable": True},
    }
    rows = {
        "region": region,
        "age": pa.array(age, mask=age == 21),
        "month": pa.array(month, mask=~present),
    }
    curator = open_rows(tmp_path, columns, rows, unit="row", epsilon=1000, delta=1e-6)
    names = ("region", "age", "month")
    curator.release(fitted(table="t", columns=names, marginals=(names,)), epsilon=40, out=tmp_path / "out")
    model = sf.open_release(tmp_path / "out")
    known = age != 21
    inputs = np.column_stack([np.ones(6000), region == "b", region == "c", np.where(known, age, 0), ~known])
    for target, wanted, logistic in (
        ("month", month, False),
        ("month IN ('7', '8', '9')", (month > 6) & (month < 10), True),
    ):
        counted = present if target == "month" else np.ones(6000, bool)
        answer = model.regress(target, ["region", "age"], family="logistic" if logistic else "linear")
        terms = ["(constant)", "region = b", "region = c", "age", "age = NULL"]
        assert answer.table["term"].to_pylist() == terms
        exact = solve(inputs[counted], (wanted & present if logistic else wanted)[counted], logistic=logistic)
        found, low, high = (
            np.array(answer.table[f"coefficient{end}"].to_pylist()) for end in ("", "_low", "_high")
        )
        assert np.allclose(found, exact, atol=0.1)
        assert ((low <= exact) & (exact <= high)).all()
        assert ("records without a number in month are left out" in answer.notes) == (not logistic)


def test_a_regression_on_a_population_is_as_uncertain_as_least_squares_are(triple):
    inputs, month, _ = design(records())
    answer = triple.regress("month", ["region", "age"], population=True).table
    residuals = month - inputs @ solve(inputs, month)
    variance = residuals @ residuals / (month.size - 4) * np.diag(np.linalg.inv(inputs.T @ inputs))
    widths = answer["coefficient_high"].to_numpy() - answer["coefficient_low"].to_numpy()
    assert np.allclose(widths, 2 * 1.96 * variance**0.5, rtol=0.05)


def test_a_regression_needs_every_pair_and_says_which_is_missing(model):
    known = model.regress("month", ["region"])
    assert None not in known.table["coefficient_low"].to_pylist()
    assert known.notes == ()
    answer = model.regress("month", ["region", "age"])
    assert answer.table["coefficient_low"].to_pylist() == [None] * 4
    assert None not in answer.table["coefficient"].to_pylist()
    assert "region x age" in answer.notes[-1]
    assert "no measurement" in answer.scales["coefficient"]


REGRESSIONS = {
    ("region", ("month",)): "holds no numbers",
    ("month", ("month",)): "leave it out",
    ("month", ()): "must list columns",
    ("month", "region"): "must list columns",
    ("month", ("region", "region")): "none twice",
    ("month", ("nothing",)): "no column 'nothing'",
    ("month < 3 AND age < 18", ("region",)): "on one column",
    ("age > 20", ("region",)): "divides the bin",
    ("nonsense", ("region",)): "no column|comparisons",
    ("month; DROP TABLE t", ("region",)): "one by one|comparisons|no column",
    ("half = 'h1'", ("year",)): "leave it out",
}


@pytest.mark.parametrize(("target", "inputs"), REGRESSIONS)
def test_regressions_that_mean_nothing_are_refused_with_a_reason(model, target, inputs):
    with pytest.raises(sf.SfumatoError, match=REGRESSIONS[target, inputs]):
        model.regress(target, inputs)


def test_other_families_and_inputs_that_follow_from_others_are_refused(model):
    with pytest.raises(sf.RecipeError, match="linear or logistic"):
        model.regress("month", ["region"], family="poisson")
    with pytest.raises(sf.RecipeError, match="0 or 1"):
        model.regress("month", ["region"], family="logistic")
    with pytest.raises(sf.RecipeError, match="follow from others"):
        invert_curvature(np.ones((2, 2)))


def test_the_command_line_regresses(folder, triple):
    arguments = ["regress", str(folder / "triple"), "--target", "month", "--inputs", "region,age"]
    done = run_main(*arguments, "--json")
    document = json.loads(done.stdout)
    assert [each["term"] for each in document["coefficients"]][:2] == ["(constant)", "region = b"]
    assert document["family"] == "linear"
    shown = run_main(*arguments, "--population")
    assert "region = c" in shown.stdout
    assert "nothing spent" in shown.stderr
    partial = run_main(
        "regress", folder / "out", "--target", "month", "--inputs", "region", "--inputs", "age"
    )
    assert "no interval" in partial.stderr
    run_main("regress", folder / "out", "--target", "month", "--inputs", "nothing", code=2)
    text = "SELECT AVG(month) AS a FROM t"
    documents = [
        json.loads(run_main("sql", "--model", folder / "out", text, "--json", *more).stdout)
        for more in ((), ("--population",))
    ]
    assert documents[0] != documents[1]
    run_main("sql", text, "--population", code=2)


def test_an_average_of_nobody_may_be_anything(model):
    answer = model.sql("SELECT AVG(month) AS a FROM t WHERE region = 'a' AND month = 12").table.to_pylist()[0]
    assert (answer["a"], answer["a_low"]) == (pytest.approx(12), 12)
    wide = model.sql("SELECT AVG(month) AS a FROM t WHERE FALSE").table.to_pylist()[0]
    assert (wide["a"], wide["a_low"], wide["a_high"]) == (None, 1, 12)


def test_several_models_are_chosen_by_epsilon(folder):
    models = unpack_models((folder / "two" / "model.parquet").read_bytes())
    assert list(models) == ["0.5", "2"]
    for text, key in (("1/2", "0.5"), ("0.50", "0.5"), (2, "2")):
        chosen = open_model(folder / "two", epsilon=text)
        assert chosen.epsilon == key
        assert np.array_equal(chosen.model.values, models[key].values)
    with pytest.raises(sf.RecipeError, match=r"0\.5, 2"):
        open_model(folder / "two")
    with pytest.raises(sf.RecipeError, match="no model at that epsilon"):
        open_model(folder / "two", epsilon=1)


def test_folders_without_a_model_are_refused(folder, tmp_path):
    with pytest.raises(sf.ReleaseError, match="makes no model"):
        open_model(folder / "plain")
    with pytest.raises(sf.ReleaseError, match="not a release"):
        open_model(tmp_path / "gone")


def tampered(folder, tmp_path, change):
    copy = tmp_path / "copy"
    shutil.copytree(folder / "out", copy)
    change(copy)
    return copy


def edit(change):
    def rewrite(copy):
        file = copy / "certificate.json"
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))

    return rewrite


@pytest.mark.parametrize("name", ["model.parquet", "measurements.parquet"])
def test_changed_files_are_noticed(folder, tmp_path, name):
    def change(copy):
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[:-100] + b"x" + content[-99:])

    with pytest.raises(sf.VerificationFailed, match=name):
        open_model(tampered(folder, tmp_path, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: (copy / "certificate.json").write_text("{"),
        lambda copy: (copy / "certificate.json").write_text("[" * 100_000),
        edit(lambda document: document.update(format="other")),
        edit(lambda document: document.pop("plan")),
        edit(lambda document: document["plan"].update(table=[])),
        edit(lambda document: document["plan"]["table"]["t"].update(columns={})),
        edit(lambda document: document["plan"]["table"]["t"]["columns"]["month"].update(range="all")),
        edit(lambda document: document.update(measurements={"a": 1})),
        edit(lambda document: document["measurements"][0].update(scale="-1")),
        edit(lambda document: document["measurements"][0].update(columns=["nowhere"])),
        edit(lambda document: document["measurements"][0].update(kind="none")),
    ],
)
def test_a_broken_certificate_is_refused(folder, tmp_path, change):
    with pytest.raises(sf.VerificationFailed):
        open_model(tampered(folder, tmp_path, change))


def test_a_column_whose_size_is_another_cannot_be_asked(folder, tmp_path):
    change = edit(
        lambda document: (
            document["plan"]["table"]["t"]["columns"]["month"].update(range=[1, 13]),
            document.update(measurements=[]),
        )
    )
    with pytest.raises(sf.VerificationFailed, match="plan"):
        open_model(tampered(folder, tmp_path, change))


def test_measurements_that_lack_what_the_certificate_names(folder, tmp_path):
    change = edit(lambda document: document["measurements"][0].update(name="another"))
    model = open_model(tampered(folder, tmp_path, change))
    with pytest.raises(sf.VerificationFailed, match="does not hold 'another'"):
        model.sql("SELECT COUNT(*) FROM t WHERE month = 1 AND region = 'a'")


def test_weighted_sums_of_cells_give_no_interval(folder, tmp_path):
    change = edit(lambda document: document["measurements"][0].update(queries={"rows": 36}))
    model = open_model(tampered(folder, tmp_path, change))
    answer = model.sql("SELECT COUNT(*) AS n FROM t WHERE month = 1 AND region = 'a'")
    assert (value(answer, "n_low"), value(answer, "n_high")) == (None, None)
    assert "cell by cell" in answer.scales["n"]


def test_too_many_combinations_are_refused(model, monkeypatch):
    monkeypatch.setattr("sfumato.release.ask.answer._MOST_CELLS", 35)
    with pytest.raises(sf.UnsupportedQuery, match="36 combinations"):
        model.sql("SELECT region, month, COUNT(*) FROM t GROUP BY region, month")


def sfumato(*arguments, **options):
    return run_main("sql", *arguments, **options)


def test_the_command_needs_no_project_and_leaves_the_ledger_alone(folder, tmp_path, model):
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}
    content = (folder / "ledger.db").read_bytes()
    text = "SELECT region, COUNT(*) AS n FROM t GROUP BY region"
    done = sfumato("--model", "out/", text, "--json", cwd=folder)
    record = json.loads(done.stdout)
    assert record["columns"] == ["region", "n", "n_low", "n_high"]
    assert record["rows"] == rows(model.sql(text))
    assert record["spent"] == 0
    assert (folder / "ledger.db").read_bytes() == content
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}
    assert after == before
    shutil.copytree(folder / "out", tmp_path / "elsewhere")
    done = sfumato("--model", "elsewhere", "-c", text, "--format", "csv", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "region,n,n_low,n_high"
    assert "nothing spent" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {
        path.name for path in (folder / "out").iterdir()
    }


def test_the_command_says_what_has_no_interval(folder):
    text = "SELECT COUNT(*) AS n FROM t WHERE region = 'a' AND age < 18"
    done = sfumato("--model", "out", text, cwd=folder)
    assert "independent" in done.stderr
    assert "None" not in done.stdout
    record = json.loads(sfumato("--model", "out", text, "--json", cwd=folder).stdout)
    assert record["rows"][0][1:] == [None, None]
    assert "independent" in record["notes"][0]


def test_the_command_takes_statements_from_a_pipe_and_a_file(folder, tmp_path):
    text = "SELECT COUNT(*) FROM t;\n.tables\nSELECT region FROM t;\n"
    done = sfumato("--model", "out", cwd=folder, text=text, code=2)
    assert "line 3: not answered" in done.stderr
    file = tmp_path / "s.sql"
    file.write_text("SELECT COUNT(*) FROM t; SELECT COUNT(*) AS n FROM t")
    out = tmp_path / "n.json"
    sfumato("--model", "two", "--epsilon", "2", "-f", str(file), "-o", str(out), cwd=folder)
    assert json.loads(out.read_text())["columns"] == ["n", "n_low", "n_high"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--model", "two", "SELECT COUNT(*) FROM t"), 2, "choose one with --epsilon"),
        (("--epsilon", "1", "SELECT COUNT(*) FROM t"), 2, "--epsilon"),
        (("--model", "out", "SELECT 1", "-c", "SELECT 1"), 2, "one statement"),
        (("--model", "out", "SELECT * FROM t"), 2, "not answered"),
        (("--model", "plain", "SELECT COUNT(*) FROM t"), 1, "makes no model"),
        (("--model", "gone", "SELECT COUNT(*) FROM t"), 1, "not a release"),
    ],
)
def test_exit_codes(folder, arguments, code, words):
    assert words in sfumato(*arguments, cwd=folder, code=code).stderr


def test_the_release_verifies(folder):
    assert "model.parquet follows from the measurements, byte for byte" in sf.verify(folder / "out").checked


def test_what_has_no_upper_end_has_no_interval(model):
    # Ages below 18 add at least 0, whatever their number is, which nothing measured tells by code and region.
    rows = model.sql("SELECT age, region, SUM(age) AS s FROM t GROUP BY age, region").to_arrow().to_pylist()
    assert {(row["s_low"], row["s_high"]) for row in rows} == {(None, None)}
