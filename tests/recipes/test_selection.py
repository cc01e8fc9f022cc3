"""What `adaptive` and `tree` share: the charge, the release, the rows, and what is refused."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.accounting import Spent, add_costs, mu_to_epsilon
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.choices import Choice, Chosen
from sfumato.core.questions.measurement import Measurement, Request, ask_cost, request_grid, request_size
from sfumato.inference import Model, unpack_models
from sfumato.recipes import Adaptive, Tree
from sfumato.recipes.base import follow_recipe

BOTH = pytest.mark.parametrize("recipe", [Adaptive, Tree], ids=["adaptive", "tree"])
UNITS = {
    "rows": {"unit": "row"},
    "people": {"unit": "p", "max_records": 5},
    "weighted": {"unit": "p", "max_records": 5, "bounding": "weight"},
    "replaced": {"unit": "p", "max_records": 5, "neighbours": "replace"},
    "weighted and replaced": {"unit": "p", "max_records": 5, "bounding": "weight", "neighbours": "replace"},
}


def write_unit(name):
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in UNITS[name].items())


def describe(unit, columns=None):
    return parse_table(
        "t",
        {
            "source": "t.parquet",
            **UNITS[unit],
            "columns": columns
            or {
                "a": {"range": [0, 15]},
                "b": {"values": ["x", "y", "z"]},
                "c": {"bins": [0, 10, 50, 100]},
                "one": {"values": ["only"]},
            },
        },
    )


def answer_with(table, random, size):
    """Answers from nowhere: counts of any size and sign, choices at random."""

    def answer(asks):
        given = []
        for ask in asks:
            if isinstance(ask, Choice):
                for gap in ask.candidates:
                    expected = table.cells(gap.columns) if gap.queries is None else gap.queries.rows
                    estimate = gap.estimate()
                    assert estimate.dtype == np.int64
                    assert estimate.shape == (expected,)
                given.append(Chosen(choice=ask, index=int(random.integers(len(ask.candidates)))))
                continue
            assert isinstance(ask, Request)
            grid = request_grid(table, ask)
            noise = random.normal(0, ask.standard_deviation, request_size(table, ask))
            values = np.rint(random.gamma(0.3, size, noise.size) * grid + noise).astype(np.int64)
            given.append(Measurement(request=ask, noisy_values=values, grid=grid))
        return tuple(given)

    return answer


@BOTH
@settings(max_examples=20)
@given(
    unit=st.sampled_from(sorted(UNITS)),
    epsilon=st.sampled_from([Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(25)]),
    delta=st.sampled_from([Fraction(1, 10**9), Fraction(1, 1000)]),
    size=st.sampled_from([0.0, 3.0, 3000.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_recipe_asks_for_more_than_its_plan(recipe, unit, epsilon, delta, size, seed):
    table = describe(unit)
    plan = recipe(table="t", rows=50).plan(table, epsilons=(epsilon, 2 * epsilon), delta=delta)
    answers, product = follow_recipe(
        plan, answer=answer_with(table, np.random.default_rng(seed), size), progress=lambda _: None
    )
    asked = add_costs(Spent(), (ask_cost(table, answer.ask) for answer in answers))
    allowed = add_costs(Spent(), plan.costs)
    assert asked.mu_squared <= allowed.mu_squared
    for cost, each in zip(plan.costs, plan.epsilons, strict=True):
        assert mu_to_epsilon(float(cost.mu_squared) ** 0.5, float(delta)) <= each
    assert product.table.column_names == ["epsilon", "a", "b", "c", "one"]
    assert product.table.num_rows == 100
    models = unpack_models(product.files["model.parquet"])
    assert len(models) == 2
    for model in models.values():
        assert np.isfinite(model.values).all()


@BOTH
def test_heavy_individuals_are_held_to_their_bound(lay_out, recipe):
    """One individual with all records of a value counts no more than max_records of them."""
    heavy = pa.table({"p": np.zeros(5000, np.int64), "a": np.full(5000, 3), "b": np.full(5000, 4)})
    columns = "[tables.t.columns.a]\nrange = [0, 15]\n[tables.t.columns.b]\nrange = [0, 15]\n"
    project = lay_out(heavy, columns=columns, unit=write_unit("people"))
    release = sf.open(project).release(recipe(table="t"), epsilon=5, delta=1e-6)
    first = release.measurements[0]
    sigma = first.request.standard_deviation
    assert abs(first.noisy_values[3] - 5) < 7 * sigma
    assert first.noisy_values.max() < 2500


@BOTH
def test_dependence_is_kept(lay_out, recipe, seeded_noise):
    project = lay_out()
    rows = sf.open(project).release(recipe(table="t"), epsilon=5, delta=1e-6).table
    assert abs(rows.num_rows - 3000) < 200
    same = rows["a"].to_numpy() == rows["b"].to_numpy()
    assert same.mean() > 0.9


@BOTH
def test_rows_hold_values_of_their_domains(lay_out, recipe):
    project = lay_out()
    rows = sf.open(project).release(recipe(table="t", rows=777, seed=3), epsilon=1, delta=1e-6).table
    assert rows.num_rows == 777
    assert rows.column_names == ["a", "b", "c", "d", "one"]
    assert set(rows["a"].to_pylist()) <= set(range(16))
    assert set(rows["c"].to_pylist()) <= {"x", "y", "z"}
    assert set(rows["one"].to_pylist()) == {"only"}
    numbers = rows["d"].to_numpy()
    assert ((numbers >= 0) & (numbers <= 100)).all()


@BOTH
def test_numbers_fill_their_bins_as_the_table_does(lay_out, recipe):
    project = lay_out()
    numbers = sf.open(project).release(recipe(table="t"), epsilon=20, delta=1e-6).table["d"].to_numpy()
    shares = np.histogram(numbers, [0, 10, 50, 100])[0] / numbers.size
    # The first bin is narrow and the last two are catch-alls only where wider than their neighbours.
    assert np.abs(shares - [0.1, 0.4, 0.5]).max() < 0.06


@BOTH
def test_columns_may_be_few_or_one(lay_out, recipe):
    project = lay_out()
    curator = sf.open(project)
    release = curator.release(recipe(table="t", columns=["c", "a"]), epsilon=1, delta=1e-6)
    assert release.table.column_names == ["c", "a"]
    out = project.parent / "out"
    release = curator.release(recipe(table="t", columns=["c"]), epsilon=1, delta=1e-6, out=out)
    assert release.table.column_names == ["c"]
    release = curator.release(recipe(table="t", columns=["one"]), epsilon=1, delta=1e-6)
    assert set(release.table["one"].to_pylist()) == {"only"}
    sf.verify(out, ledger=project.parent / "ledger.db")


@BOTH
@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_or_one_may_be_asked_for(lay_out, recipe, rows):
    out = lay_out().parent / "out"
    release = sf.open(out.parent / "sfumato.toml").release(
        recipe(table="t", rows=rows), epsilon=1, delta=1e-6, out=out
    )
    assert release.table.num_rows == rows
    assert release.table.column_names == ["a", "b", "c", "d", "one"]
    sf.verify(out)


@BOTH
@pytest.mark.parametrize("epsilon", ["0.0001", "0.01"])
def test_a_release_of_nothing_but_noise_is_still_a_release(lay_out, recipe, epsilon):
    project = lay_out()
    out = project.parent / "out"
    release = sf.open(project).release(recipe(table="t", rows=100), epsilon=epsilon, delta="1e-6", out=out)
    assert release.table.num_rows == 100
    assert release.table.column_names == ["a", "b", "c", "d", "one"]
    sf.verify(out, ledger=project.parent / "ledger.db")


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"columns": []},
        {"columns": ["a", "a"]},
        {"columns": "a"},
        {"columns": [1]},
        {"seed": -1},
        {"seed": 1.5},
        {"seed": True},
        {"seed": None},
        {"rows": -1},
        {"rows": 2.5},
        {"public": 7},
    ],
)
def test_options_that_make_no_sense_are_refused(recipe, options):
    with pytest.raises(sf.RecipeError):
        recipe(table="t", **options)


@BOTH
def test_noise_does_not_ask_for_rows_beyond_memory(monkeypatch, recipe):
    asked = []
    original = Model.sample

    def sample(self, rows=None, *, seed=None):
        asked.append(round(self.total) if rows is None else rows)
        return original(self, 10, seed=seed)

    monkeypatch.setattr(Model, "sample", sample)
    table = describe("people")
    plan = recipe(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**9))
    generator = np.random.default_rng(0)
    follow_recipe(plan, answer=answer_with(table, generator, 10.0**9), progress=lambda _: None)
    assert max(asked) <= 10**8


@BOTH
@pytest.mark.parametrize("name", ["choice 1", "again: a", "a x b", "guide: a x b"])
def test_a_column_called_like_a_question_is_refused_before_the_charge(recipe, name):
    columns = {each: {"values": ["y", "z"]} for each in ("a", "b", name)}
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})
    with pytest.raises(sf.RecipeError, match="called like a question"):
        recipe(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**6))


@BOTH
@pytest.mark.parametrize("unit", [{"unit": "row"}, {"unit": "p", "max_records": 100}])
@pytest.mark.parametrize("epsilon", ["0.00001", "0.0001"])
def test_what_rounding_adds_to_small_costs_is_paid_for(recipe, unit, epsilon):
    columns = {f"c{place}": {"range": [0, place + 1]} for place in range(6)}
    table = parse_table("t", {"source": "t.parquet", **unit, "columns": columns})
    plan = recipe(table="t").plan(table, epsilons=(Fraction(epsilon),), delta=Fraction(1, 10**6))

    def answer(asks):
        return tuple(
            Chosen(choice=ask, index=0)
            if isinstance(ask, Choice)
            else Measurement(request=ask, noisy_values=np.full(request_size(table, ask), 10**4), grid=1)
            for ask in asks
        )

    answers, _ = follow_recipe(plan, answer=answer, progress=lambda _: None)
    spent = sum(ask_cost(table, each.ask).mu_squared for each in answers)
    assert plan.costs[0].mu_squared * Fraction(99, 100) < spent <= plan.costs[0].mu_squared


def test_a_forest_that_no_model_holds_beside_rules_is_cut(monkeypatch):
    columns = {f"c{place}": {"range": [0, 3]} for place in range(12)}
    rules = [f"c{place} = 0 and c{place + 1} = 3" for place in range(11)]
    spec = {"source": "t.parquet", "unit": "row", "columns": columns, "impossible": rules}
    table = parse_table("t", spec)
    plan = Tree(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**6))
    for module in ("tree", "shared.selection"):
        monkeypatch.setattr(f"sfumato.recipes.{module}.LARGEST_TREE", 400)

    def answer(asks):
        # The last pair leads away from what the rules join.
        return tuple(
            Chosen(choice=ask, index=len(ask.candidates) - 1)
            if isinstance(ask, Choice)
            else Measurement(request=ask, noisy_values=np.full(request_size(table, ask), 10**4), grid=1)
            for ask in asks
        )

    answers, product = follow_recipe(plan, answer=answer, progress=lambda _: None)
    measured = [each for each in answers if isinstance(each, Measurement) and len(each.request.columns) == 2]
    assert 0 < len(measured) < 11
    assert product.table.num_rows > 0
