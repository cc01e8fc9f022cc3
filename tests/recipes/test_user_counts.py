"""User counts: what is asked, with which noise, and what becomes of the answers."""

import gzip
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.accounting import discrete_gaussian_sigma
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import Measurement
from sfumato.recipes import parse_recipe, read_recipe
from sfumato.recipes.user_counts import list_questions, read_asked

REGIONS = ["a", "b", "c"]
COLUMNS = {"region": {"values": REGIONS}, "month": {"range": [1, 12]}}
BY = ("region", "month")
TINY = Fraction(1, 10**6)


def describe(**facts):
    return parse_table(
        "t", {"source": "t.parquet", "unit": "person", "max_records": 3, "columns": COLUMNS, **facts}
    )


def make(**keys):
    return sf.recipes.UserCounts(**{"table": "t", "by": BY, **keys})


def make_plan(recipe, *, epsilons=(Fraction(1),), delta=Fraction(0), table=None):
    return recipe.plan(table or describe(), epsilons=epsilons, delta=delta)


def asked_pairs(plan):
    heads = plan.requests[0].counted
    return list(zip(heads.cells.tolist(), heads.times.tolist(), strict=True))


def finish(plan, *values):
    """The counts that the recipe makes of noisy values of its own."""
    run = plan.recipe.run(plan, progress=lambda _: None)
    answers = tuple(
        Measurement(request=request, noisy_values=np.asarray(each, np.int64))
        for request, each in zip(next(run), values, strict=True)
    )
    with pytest.raises(StopIteration) as done:
        run.send(answers)
    return done.value.value.table


# The keys.


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"by": "region"}, "by must be a list"),
        ({"by": []}, "at least one column"),
        ({"by": ["region", "region"]}, "none twice"),
        ({"max_cells": 0}, "max_cells must be a whole number"),
        ({"max_cells": True}, "max_cells must be a whole number"),
        ({"max_cells": 2.0}, "max_cells must be a whole number"),
        ({"noise": "uniform"}, "noise must be auto"),
        ({"times": 2}, "times must be a list"),
        ({"times": []}, "at least one number"),
        ({"times": [1, 1]}, "none twice"),
        ({"times": [0]}, "times must be a whole number"),
        ({"times": ["1"]}, "times must be a whole number"),
        ({"times": [2**20]}, "times must be a whole number"),
        ({"public": 3}, "must name a Parquet"),
        ({"asked": ""}, "must name a Parquet"),
        ({"asked": {"file": "x"}}, "must name a Parquet"),
        ({"public": "a.csv", "asked": "b.csv"}, "not by both"),
        ({"reach": 3}, "reach needs period"),
        ({"reach": 0}, "reach needs period"),
        ({"period": "month"}, "period widens"),
        ({"period": "day", "asked": "b.csv"}, "period must be a column of by"),
        ({"period": "month", "asked": "b.csv", "reach": -1}, "reach must be a whole number"),
        ({"rounding": "never"}, "rounding must be after or before"),
        ({"threshold": -1}, "threshold counts"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(keys, message):
    with pytest.raises(sf.RecipeError, match=message):
        make(**keys)


def test_reach_is_three_where_there_is_a_period():
    assert make(asked="x.csv").reach is None
    assert make(asked="x.csv", period="month").reach == 3
    assert make(asked="x.csv", period="month", reach=0).reach == 0


# The noise.


def test_laplace_noise_has_the_scale_of_all_cells_together():
    (cost,) = make_plan(make(max_cells=2), epsilons=(Fraction(1, 2),)).costs
    assert (cost.kind, cost.scale, cost.sensitivity, cost.epsilon) == ("laplace", 4, 2, Fraction(1, 2))
    replaced = make_plan(make(max_cells=2), table=describe(neighbours="replace"))
    assert (replaced.costs[0].scale, replaced.costs[0].epsilon) == (4, 1)


def test_max_cells_is_max_records_unless_it_is_given():
    assert make_plan(make()).requests[0].counted.max_cells == 3
    assert make_plan(make(max_cells=7)).requests[0].counted.max_cells == 7


def test_nobody_is_in_more_cells_than_are_asked_about():
    assert make_plan(make(by=["region"], max_cells=20)).costs[0].sensitivity == 3
    rows = describe(unit="row", max_records=1)
    assert make_plan(make(max_cells=20), table=rows).costs[0].sensitivity == 1


@pytest.mark.parametrize(("max_cells", "better"), [(1, "laplace"), (36, "gaussian")])
def test_auto_takes_the_smaller_noise(max_cells, better):
    auto, laplace, gaussian = (
        make_plan(make(max_cells=max_cells, noise=noise), delta=TINY).requests[0]
        for noise in ("auto", "laplace", "gaussian")
    )
    assert (laplace.noise, gaussian.noise, auto.noise) == ("laplace", "gaussian", better)
    assert auto.standard_deviation == min(laplace.standard_deviation, gaussian.standard_deviation)
    sigma = discrete_gaussian_sigma(epsilon=1, delta=TINY, sensitivity=math.sqrt(max_cells))
    assert float(gaussian.scale) == pytest.approx(float(sigma), rel=1e-5)


# What is asked about.


def test_every_cell_is_asked_about_without_a_file():
    pairs = asked_pairs(make_plan(make(times=[3, 1])))
    assert pairs == [(cell, times) for cell in range(36) for times in (1, 3)]


def test_a_list_of_cells_in_any_spelling(tmp_path):
    rows = pa.table({"month": [2, 12, 2], "region": ["a", "c", "a"], "note": ["", "", ""]})
    pq.write_table(rows, tmp_path / "cells.parquet")
    pyarrow.csv.write_csv(rows, tmp_path / "cells.csv")
    (tmp_path / "cells.csv.gz").write_bytes(gzip.compress((tmp_path / "cells.csv").read_bytes()))
    for name in ("cells.parquet", "cells.csv", "cells.csv.gz"):
        plan = make_plan(make(asked=str(tmp_path / name), times=[2]))
        assert asked_pairs(plan) == [(1, 2), (35, 2)]
        assert plan.recipe.asked["file"] == name


def test_a_list_names_columns_as_a_release_does_or_as_the_table_does(tmp_path):
    table = describe(
        columns={
            "where": {"from": "region", "values": REGIONS, "outside": "other"},
            "fee": {"bins": [0, 10, 20]},
            "when": {"from": ["year", "month"], "values": [[2019, 11], [2019, 12], [2020, 1]]},
            "visited": {"period": "month"},
        }
    )
    by = ("where", "fee", "when", "visited")
    released = {"where": ["other", "b"], "fee": ["[0, 10)", "[10, 20]"], "visited": [3, 12]}
    stored = {
        "region": ["zebra", "b"],
        "fee": [9.5, 20.0],
        "visited": pa.array(["2020-03-05", "2021-12-31"]),
    }
    when = {"year": [2019, 2020], "month": [12, 1]}
    expected = [((1 * 2 + 1) * 3 + 2) * 12 + 11, ((3 * 2 + 0) * 3 + 1) * 12 + 2]
    for index, rows in enumerate((released, stored)):
        file = tmp_path / f"list{index}.parquet"
        pq.write_table(pa.table({**rows, **when}), file)
        plan = make_plan(make(by=by, asked=str(file), times=[1]), table=table)
        assert plan.requests[0].counted.cells.tolist() == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"region": ["a", "q"], "month": [1, 1]}, "row 2 has no value of column 'region'"),
        ({"region": ["a", None], "month": [1, 1]}, "row 2 has no value of column 'region'"),
        ({"region": ["a"]}, "no column 'month'"),
        ({"region": pa.array([], pa.string()), "month": pa.array([], pa.int64())}, "lists no cell"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(tmp_path, rows, message):
    pq.write_table(pa.table(rows), tmp_path / "cells.parquet")
    with pytest.raises(sf.RecipeError, match=message):
        make_plan(make(asked=str(tmp_path / "cells.parquet")))


@pytest.mark.parametrize("key", ["public", "asked"])
def test_a_missing_file_is_named(tmp_path, key):
    with pytest.raises(sf.RecipeError, match=r"'nowhere\.csv' cannot be read"):
        make_plan(make(**{key: str(tmp_path / "nowhere.csv")}))


PUBLIC = {
    "person": [1, 1, 1, 2, 2, 3, None, 4],
    "region": ["a", "a", "b", "a", "b", "q", "c", "c"],
    "month": [1, 1, 1, 1, 1, 1, 1, 12],
}


def test_a_public_table_asks_for_what_occurs_in_it(tmp_path):
    pq.write_table(pa.table(PUBLIC), tmp_path / "public.parquet")
    plan = make_plan(make(public=str(tmp_path / "public.parquet"), times=[]))
    assert asked_pairs(plan) == [(0, 1), (0, 2), (12, 1), (35, 1)]
    plan = make_plan(make(public=str(tmp_path / "public.parquet"), times=[1, 3]))
    assert asked_pairs(plan) == [(0, 1), (0, 2), (0, 3), (12, 1), (12, 3), (35, 1), (35, 3)]


def test_a_public_table_without_the_unit_has_everybody_once(tmp_path):
    rows = pa.table({name: PUBLIC[name] for name in BY})
    pq.write_table(rows, tmp_path / "public.parquet")
    for table in (describe(), describe(unit="row", max_records=1)):
        plan = make_plan(make(public=str(tmp_path / "public.parquet"), times=[]), table=table)
        assert asked_pairs(plan) == [(0, 1), (12, 1), (24, 1), (35, 1)]


def test_a_public_table_that_is_elsewhere_is_refused(tmp_path):
    pq.write_table(pa.table({"person": [1], "region": ["q"], "month": [1]}), tmp_path / "public.parquet")
    with pytest.raises(sf.RecipeError, match="no row in the domains of region x month"):
        make_plan(make(public=str(tmp_path / "public.parquet")))


@given(
    listed=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 11), st.integers(0, 3)), min_size=1),
    reach=st.integers(0, 14),
    order=st.permutations(["region", "month", "other"]),
)
def test_neighbouring_periods_are_asked_about_too(tmp_path_factory, listed, reach, order):
    """Cells up to `reach` months away, none beyond an end of the year, none in place of `other`."""
    by = tuple(order)
    table = describe(
        columns={
            "region": {"values": REGIONS},
            "month": {"range": [1, 12], "outside": "other"},
            "other": {"range": [0, 3]},
        }
    )
    sizes = {"region": 3, "month": 13, "other": 4}

    def cell(**codes):
        number = 0
        for name in by:
            number = number * sizes[name] + codes[name]
        return number

    file = tmp_path_factory.mktemp("lists") / "cells.parquet"
    regions, months, others = zip(*sorted(listed), strict=True)
    # The largest month stands for `other`, which has no neighbours.
    labels = [str(month + 1) if month < 11 else "other" for month in months]
    pq.write_table(
        pa.table({"region": [REGIONS[code] for code in regions], "month": labels, "other": others}), file
    )
    record = read_asked(str(file), table, by)
    cells, times = list_questions(table, by, times=(2,), record=record, period="month", reach=reach)
    expected = set()
    for region, month, other in listed:
        near = range(max(0, month - reach), min(11, month + reach) + 1) if month < 11 else [12]
        expected |= {cell(region=region, month=code, other=other) for code in near}
    assert cells.tolist() == sorted(expected)
    assert set(times.tolist()) == {2}


def test_numbers_of_records_move_along_with_their_cells(tmp_path):
    pq.write_table(pa.table(PUBLIC), tmp_path / "public.parquet")
    keys = {"public": str(tmp_path / "public.parquet"), "period": "month", "reach": 1, "times": []}
    plan = make_plan(make(**keys))
    assert asked_pairs(plan) == [(0, 1), (0, 2), (1, 1), (1, 2), (12, 1), (13, 1), (34, 1), (35, 1)]


def test_a_plan_holds_what_was_read_and_needs_the_file_no_more(tmp_path):
    file = tmp_path / "public.parquet"
    pq.write_table(pa.table(PUBLIC), file)
    plan = make_plan(make(public=str(file), period="month"))
    file.unlink()
    again = make_plan(parse_recipe(plan.recipe.to_record()).recipe)
    assert again.digest == plan.digest
    assert asked_pairs(again) == asked_pairs(plan)
    assert plan.recipe.public["file"] == "public.parquet"
    assert len(plan.recipe.public["sha256"]) == 64


@pytest.mark.parametrize("packed", ["", "eJw=", "!", 3, None, "eJwDAAAAAAE="])
def test_a_record_that_cannot_be_read_is_refused(packed):
    record = {"file": "x.csv", "sha256": "0" * 64, "pairs": packed}
    with pytest.raises(sf.RecipeError, match="cannot be read"):
        make_plan(make(asked=record))


def test_a_record_of_another_domain_is_refused(tmp_path):
    pq.write_table(pa.table({"region": ["c"], "month": [12]}), tmp_path / "cells.parquet")
    record = read_asked(str(tmp_path / "cells.parquet"), describe(), BY)
    small = describe(columns={"region": {"values": ["a"]}, "month": {"range": [1, 12]}})
    with pytest.raises(sf.RecipeError, match="cannot be read"):
        make_plan(make(asked=record), table=small)


def test_releases_that_cannot_be_kept_are_refused_before_they_are_laid_out(tmp_path):
    wide = describe(columns={"a": {"range": [0, 10**6]}, "b": {"range": [0, 10**6]}})
    with pytest.raises(sf.RecipeError, match="more than"):
        make_plan(make(by=("a", "b")), table=wide)
    pq.write_table(pa.table({"a": [1], "b": [1]}), tmp_path / "cells.parquet")
    with pytest.raises(sf.RecipeError, match="more than"):
        make_plan(make(by=("a", "b"), asked=str(tmp_path / "cells.parquet")), table=wide)
    many = describe(columns={"a": {"range": [1, 2**26]}})
    with pytest.raises(sf.RecipeError, match="more than"):
        make_plan(make(by=("a",), times=[1, 2, 3]), table=many)


def test_noise_that_cannot_be_added_up_is_refused():
    with pytest.raises(sf.RecipeError, match=r"beyond 2\^62"):
        make_plan(make(times=[10**6]), epsilons=(Fraction(1, 10**12),))


# The counts.


def test_individuals_times_their_records_are_added_up():
    table = describe(columns={"region": {"values": REGIONS}})
    plan = make_plan(make(by=["region"], times=[1, 3]), table=table)
    assert finish(plan, [5, 2, -4, 1, 1, -1])["count"].to_pylist() == [11, 0, 0]
    before = make_plan(make(by=["region"], times=[1, 3], rounding="before"), table=table)
    assert finish(before, [5, 2, -4, 1, 1, -1])["count"].to_pylist() == [11, 3, 1]


def test_cells_that_are_not_asked_about_are_zero(tmp_path):
    pq.write_table(pa.table({"region": ["b"], "month": [3]}), tmp_path / "cells.parquet")
    plan = make_plan(make(asked=str(tmp_path / "cells.parquet"), times=[1, 2]))
    counts = finish(plan, [3, 4])["count"].to_pylist()
    assert counts == [11 if cell == 14 else 0 for cell in range(36)]


@pytest.mark.parametrize("rounding", ["after", "before"])
def test_the_threshold_is_that_of_the_noise_of_a_cell(tmp_path, rounding):
    rows = pa.table({"person": [1, 1, 1, 2], "region": ["a"] * 4, "month": [1, 1, 1, 2]})
    pq.write_table(rows, tmp_path / "public.parquet")
    keys = {"public": str(tmp_path / "public.parquet"), "times": [1], "threshold": 2, "rounding": rounding}
    plan = make_plan(make(**keys))
    assert asked_pairs(plan) == [(0, 1), (0, 3), (1, 1)]
    deviation = plan.requests[0].standard_deviation
    for value in range(40):
        counts = finish(plan, [value, 0, value])["count"].to_pylist()
        assert counts[0] == (value if value >= 2 * math.sqrt(10) * deviation else 0)
        assert counts[1] == (value if value >= 2 * deviation else 0)


def test_the_table_has_the_layout_of_cell_counts():
    epsilons = (Fraction(1), Fraction(2))
    plan = make_plan(make(), epsilons=epsilons)
    table = finish(plan, np.arange(72), np.arange(72))
    dense = sf.recipes.CellCounts(table="t", by=BY).plan(describe(), epsilons=epsilons, delta=Fraction(0))
    other = finish(dense, np.arange(36), np.arange(36))
    assert table.schema == other.schema
    assert table.drop_columns("count").equals(other.drop_columns("count"))


# Whole releases.


def test_a_list_is_looked_for_beside_its_recipe(project, tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    pyarrow.csv.write_csv(pa.table({"region": ["b"], "month": [3]}), folder / "cells.csv")
    (folder / "recipe.toml").write_text(
        'recipe = "user-counts"\ntable = "t"\nby = ["region", "month"]\nasked = "cells.csv"\nepsilon = 1\n'
    )
    assert read_recipe(folder / "recipe.toml").recipe.asked == str(folder / "cells.csv")
    release = sf.open(project).release(folder / "recipe.toml", out=tmp_path / "out")
    counts = release.table["count"].to_pylist()
    assert sum(counts) == counts[14]
    assert sf.verify(tmp_path / "out").total["epsilon"] == "1"


def test_much_epsilon_gives_the_counts_of_kept_records(project, people, seeded_noise):
    # Everybody has up to five records; in three cells at most, for one or two records each.
    counts = sf.open(project).release(make(max_cells=3, times=[1, 2]), epsilon=20).table["count"].to_numpy()
    exact = np.zeros(36, np.int64)
    for row in people.to_pylist():
        exact["abc".index(row["region"]) * 12 + row["month"] - 1] += 1
    assert 0 < counts.sum() <= exact.sum() + 36
    assert np.corrcoef(counts, exact)[0, 1] > 0.5
