"""The recipe `adaptive`: its workload, its rounds, and how large its model may grow."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import sfumato as sf
from sfumato.core.facts.project import read_project
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.choices import Candidate, Choice, Chosen
from sfumato.core.questions.measurement import Measurement, ask_cost, request_size
from sfumato.inference import Domain, unpack_models
from sfumato.recipes import Adaptive, Tree
from sfumato.recipes.adaptive import all_subsets, close_downwards
from sfumato.recipes.shared.budget import RemainingBudget

PAIRS = [{"columns": ["b", "a"], "weight": 5}, {"columns": ["a", "c"]}]


def offered(release):
    return {
        gap.columns for each in release.answers if isinstance(each, Chosen) for gap in each.choice.candidates
    }


def measured(release):
    return {each.request.columns for each in release.measurements}


def test_a_workload_with_weights_is_all_that_is_offered(lay_out):
    project = lay_out()
    out = project.parent / "out"
    release = sf.open(project).release(Adaptive(table="t", workload=PAIRS), epsilon=5, delta=1e-6, out=out)
    assert offered(release) <= {("a",), ("b",), ("c",), ("a", "b"), ("a", "c")}
    assert ("a", "b") in measured(release), "what is far from the model and weighs most is measured"
    singles = {(name,) for name in ("a", "b", "c", "d", "one")}
    assert singles <= measured(release) <= singles | {("a", "b"), ("a", "c")}
    assert release.table.column_names == ["a", "b", "c", "d", "one"], "columns outside of it are released too"
    sf.verify(out, ledger=project.parent / "ledger.db")


def test_weights_are_those_of_shared_columns():
    domain = Domain({"a": 2, "b": 3, "c": 4})
    closed = close_downwards(domain, {("a", "b"): 5, ("a", "c"): 1})
    assert closed == {("a",): 6, ("b",): 5, ("c",): 1, ("a", "b"): 11, ("a", "c"): 7}
    assert list(all_subsets(tuple(domain), 2)) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert list(all_subsets(tuple(domain), 4)) == [("a", "b", "c")]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_workload_of_all_combinations_has_their_parts_and_no_more(lay_out, size):
    project = lay_out()
    recipe = Adaptive(table="t", workload=size, columns=["a", "c", "d", "one"])
    plan = recipe.plan(read_project(project).table("t"), epsilons=(Fraction(1),), delta=Fraction(1, 10**6))
    assert max(map(len, plan.marginals)) == size
    assert len(set(plan.marginals)) == len(plan.marginals)
    release = sf.open(project).release(recipe, epsilon=1, delta=1e-6)
    assert max(map(len, offered(release)), default=0) <= size
    assert max(len(each.request.columns) for each in release.measurements if hasattr(each, "request")) <= size


@pytest.mark.parametrize(
    "workload",
    [
        0,
        5,
        2.0,
        True,
        "2",
        [],
        {},
        [["a", "b"]],
        [{"weight": 2}],
        [{"columns": []}],
        [{"columns": "ab"}],
        [{"columns": ["a", "a"]}],
        [{"columns": ["a"], "weight": 0}],
        [{"columns": ["a"], "weight": 1.5}],
        [{"columns": ["a"], "weight": True}],
        [{"columns": ["a"], "weight": 10**7}],
        [{"columns": ["a"], "extra": 1}],
    ],
)
def test_a_workload_that_is_none_is_refused(workload):
    with pytest.raises(sf.RecipeError, match="workload"):
        Adaptive(table="t", workload=workload)


@pytest.mark.parametrize("cells", [0, -1, 2.5, True, "10"])
def test_a_model_needs_a_whole_number_of_cells(cells):
    with pytest.raises(sf.RecipeError, match="model_cells"):
        Adaptive(table="t", model_cells=cells)


@pytest.mark.parametrize("columns", [["a", "zebra"], ["zebra"]])
def test_a_workload_of_unknown_columns_is_refused_before_a_charge(lay_out, columns):
    project = lay_out()
    recipe = Adaptive(table="t", workload=[{"columns": columns}])
    with pytest.raises(sf.RecipeError, match="workload names a column"):
        sf.open(project).release(recipe, epsilon=1, delta=1e-6)
    left_out = Adaptive(table="t", columns=["a", "b"], workload=[{"columns": ["a", "c"]}])
    with pytest.raises(sf.RecipeError, match="workload names a column"):
        sf.open(project).release(left_out, epsilon=1, delta=1e-6)
    assert sf.open(project).budget().spent == 0


def test_a_workload_of_too_many_cells_is_refused_before_a_charge(lay_out):
    columns = "".join(f"[tables.t.columns.c{place}]\nrange = [1, 500]\n" for place in range(40))
    project = lay_out(columns=columns)
    with pytest.raises(sf.RecipeError, match=r"cells together.*smaller workload"):
        sf.open(project).release(Adaptive(table="t", workload=2), epsilon=1, delta=1e-6)
    assert sf.open(project).budget().spent == 0


def test_a_large_domain_has_pairs_for_its_default_workload():
    columns = {f"c{place}": {"range": [1, 60]} for place in range(30)}
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})
    plan = Adaptive(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**6))
    assert max(map(len, plan.marginals)) == 2


@pytest.mark.parametrize("cells", [1, 100, 400, 2000])
def test_a_model_stays_within_its_cells(lay_out, cells):
    project = lay_out()
    release = sf.open(project).release(Adaptive(table="t", model_cells=cells), epsilon=20, delta=1e-6)
    (model,) = unpack_models(release.files["model.parquet"]).values()
    singles = 16 + 16 + 3 + 3 + 1
    assert model.tree.cells <= max(cells, singles)


def test_rounds_choose_then_measure_what_was_chosen(lay_out):
    project = lay_out()
    answers = sf.open(project).release(Adaptive(table="t"), epsilon=2, delta=1e-6).answers
    singles = next(place for place, each in enumerate(answers) if isinstance(each, Chosen))
    assert 5 < singles <= 10, "single columns are measured, and most of them again"
    assert all(isinstance(each, Measurement) for each in answers[:singles])
    assert not any(each.request.name == "again: one" for each in answers[:singles]), "one value tells nothing"
    last = [each for each in answers[singles:] if each.ask.name.startswith("at last: ")]
    assert answers[len(answers) - len(last) :] == tuple(last), "single columns get what rounds left"
    rounds = answers[singles : len(answers) - len(last)]
    assert len(rounds) % 2 == 0
    for choice, measurement in zip(rounds[::2], rounds[1::2], strict=True):
        assert isinstance(choice.choice, Choice)
        assert measurement.request.columns == choice.choice.candidates[choice.index].columns
    scales = [each.request.scale for each in rounds[1::2]]
    assert scales[0] >= max(scales[1:]), "the noise shrinks"


@pytest.mark.parametrize("unit", ["row", "p"])
@pytest.mark.parametrize("squared", [Fraction(1, 10**9), Fraction(1, 7), Fraction(3), Fraction(100)])
def test_what_a_budget_buys_costs_no_more_than_its_price(unit, squared):
    spec = {"source": "t.parquet", "unit": unit, "columns": {"a": {"range": [0, 9]}}}
    if unit == "p":
        spec |= {"max_records": 7, "bounding": "weight", "neighbours": "replace"}
    table = parse_table("t", spec)
    budget = RemainingBudget(table, mu_squared=squared)
    request = budget.count("r", ("a",), squared)
    cost = ask_cost(table, request).mu_squared
    assert cost <= squared
    # Where whole numbers do not force more noise than the budget does, nothing is wasted.
    if squared < 1:
        assert cost >= squared * Fraction(99, 100) or float(request.scale) < 30
    epsilon = budget.calibrate_choice(squared)
    if epsilon:
        gap = Candidate(columns=("a",), estimate=lambda: np.zeros(10, np.int64))
        choice = Choice(name="c", candidates=(gap,), epsilon=epsilon)
        cost = ask_cost(table, choice).mu_squared
        assert squared * Fraction(99, 100) <= cost <= squared


def test_a_spent_budget_pays_nothing():
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": {"a": {"range": [0, 9]}}})
    budget = RemainingBudget(table, mu_squared=Fraction(1))
    ask = budget.count("r", ("a",), Fraction(1))
    with pytest.raises(sf.RecipeError, match="more than is left"):
        budget.spend(ask)


def test_a_full_budget_buys_a_choice():
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": {"a": {"range": [0, 9]}}})
    assert RemainingBudget(table, mu_squared=Fraction(500)).calibrate_choice(Fraction(500)) > 0


def ask_singles(records, *, sizes, epsilon=1):
    """What `adaptive` asks before its first choice, told that records are spread evenly.

    The names, and the part of the budget that single columns get.
    """
    columns = {f"c{place}": {"range": [1, size]} for place, size in enumerate(sizes)}
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})
    plan = Adaptive(table="t").plan(table, epsilons=(Fraction(epsilon),), delta=Fraction(1, 10**9))
    run, spent, names = plan.recipe.run(plan, progress=lambda _: None), Fraction(0), []
    batch = next(run)
    try:
        while not isinstance(batch[0], Choice):
            answers = []
            for ask in batch:
                counts = np.full(table.cells(ask.columns), records // table.cells(ask.columns))
                answers.append(Measurement(request=ask, noisy_values=counts, grid=1))
                names.append(ask.name)
                spent += ask_cost(table, ask).mu_squared if len(ask.columns) == 1 else 0
            batch = run.send(tuple(answers))
    except StopIteration:
        pass
    return names, float(spent / plan.costs[0].mu_squared)


def test_small_tables_spend_on_single_columns_and_dense_ones_on_rounds():
    small, medium, dense = (
        ask_singles(records, sizes=[8, 8, 8, 8])[1] for records in (400, 2_000, 10_000_000)
    )
    assert small > 0.99, "where no round would pay, single columns get all of it"
    assert 0.99 > medium > dense
    assert dense < 0.2, "beside a first look they need little where records are many"


def test_columns_are_measured_by_their_sizes():
    names, _ = ask_singles(20_000, sizes=[2, 30, 30, 1])
    assert names[:4] == ["c0", "c1", "c2", "c3"]
    assert set(names[4:]) >= {"again: c1", "again: c2"}
    assert "again: c3" not in names, "a column of one value has nothing more to tell"


def test_a_target_is_in_all_that_the_rows_are_for(lay_out):
    project = lay_out()
    recipe = Adaptive(table="t", workload={"target": "c"})
    out = project.parent / "out"
    release = sf.open(project).release(recipe, epsilon=5, delta=1e-6, out=out)
    assert {columns for columns in offered(release) if len(columns) == 3} != set()
    assert all("c" in columns for columns in offered(release) if len(columns) == 3)
    sf.verify(out, ledger=project.parent / "ledger.db")
    with pytest.raises(sf.RecipeError, match="target"):
        sf.open(project).release(Adaptive(table="t", workload={"target": "zebra"}), epsilon=5, delta=1e-6)


def answer_by_chance(recipe, codes, *, sizes, epsilon, seed):
    """The model of `recipe` and what it asked, on made-up columns of codes, with noise from a public seed."""
    columns = {name: {"range": [0, size - 1]} for name, size in sizes.items()}
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})
    plan = recipe.plan(table, epsilons=(Fraction(epsilon),), delta=Fraction(1, 10**9))
    random, asked = np.random.default_rng(seed), []
    run = plan.recipe.run(plan, progress=lambda _: None)
    answers = None
    while True:
        try:
            batch = run.send(answers)
        except StopIteration as end:
            (model,) = unpack_models(end.value.files["model.parquet"]).values()
            return model, asked, plan
        asked += batch
        answers = ()
        for ask in batch:
            if isinstance(ask, Choice):
                scores = [
                    each.score(sum_counts(codes, each.columns, sizes, each.queries))
                    for each in ask.candidates
                ]
                noisy = float(ask.rate(table)) * np.array(scores) + random.gumbel(size=len(scores))
                answers += (Chosen(choice=ask, index=int(noisy.argmax())),)
            else:
                counts = sum_counts(codes, ask.columns, sizes, ask.queries)
                noisy = np.rint(counts + random.normal(0, float(ask.scale), counts.size)).astype(np.int64)
                answers += (Measurement(request=ask, noisy_values=noisy, grid=1),)


def sum_counts(codes, columns, sizes, queries=None):
    shape = [sizes[name] for name in columns]
    cells = np.ravel_multi_index([codes[name] for name in columns], shape)
    counts = np.bincount(cells, minlength=int(np.prod(shape)))
    return counts if queries is None else queries.apply(counts)


@pytest.mark.slow
def test_a_small_table_of_many_columns_is_hardly_worse_than_independent_columns():
    """Pairs that noise drowns must not take the budget of single columns; finding that out costs a little."""
    random = np.random.default_rng(3)
    sizes = {f"c{place:02}": 2 + place % 9 for place in range(14)}
    hidden = random.random(1000)
    codes = {
        name: np.minimum((0.25 * hidden + 0.75 * random.random(1000)) ** 2 * size, size - 1).astype(np.int64)
        for name, size in sizes.items()
    }
    triples = list(all_subsets(tuple(sizes), 3))
    errors = {"adaptive": [], "independent": []}
    for seed in range(3):
        model, asked, plan = answer_by_chance(Adaptive(table="t"), codes, sizes=sizes, epsilon=1, seed=seed)
        spent = sum(ask_cost(plan.table, ask).mu_squared for ask in asked)
        assert 0.99 * plan.costs[0].mu_squared < spent <= plan.costs[0].mu_squared
        assert asked[-1].name.startswith("at last: "), "single columns get the rest"
        budget = RemainingBudget(plan.table, mu_squared=plan.costs[0].mu_squared)
        sigma = budget.noise_deviation(budget.total / len(sizes))
        noise = np.random.default_rng(seed)
        singles = {}
        for name, size in sizes.items():
            noisy = sum_counts(codes, (name,), sizes) + noise.normal(0, sigma, size)
            singles[name] = np.maximum(noisy, 0) / np.maximum(noisy, 0).sum()
        for columns in triples:
            truth = sum_counts(codes, columns, sizes) / 1000
            product = np.einsum("i,j,k->ijk", *(singles[name] for name in columns)).reshape(-1)
            made = np.asarray(model.marginal(columns)).reshape(-1)
            errors["adaptive"].append(np.abs(made / made.sum() - truth).sum())
            errors["independent"].append(np.abs(product - truth).sum())
    assert np.mean(errors["adaptive"]) <= 1.1 * np.mean(errors["independent"])


def list_choices(plan, *, records=20_000):
    """The choices of a run that is told of even counts, the first candidate always being chosen."""
    table, run, choices = plan.table, plan.recipe.run(plan, progress=lambda _: None), []
    batch = next(run)
    try:
        while True:
            answers = []
            for ask in batch:
                if isinstance(ask, Choice):
                    choices.append(ask)
                    answers.append(Chosen(choice=ask, index=0))
                    continue
                cells = request_size(table, ask)
                answers.append(
                    Measurement(request=ask, noisy_values=np.full(cells, records // cells), grid=1)
                )
            batch = run.send(tuple(answers))
    except StopIteration:
        return choices


def plan_binary(recipe, count):
    columns = {f"c{place}": {"values": ["a", "b"]} for place in range(count)}
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})
    return recipe(table="t").plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**9))


def test_a_tree_grows_out_of_its_smallest_part():
    parts = [{f"c{place}"} for place in range(9)]
    for choice in list_choices(plan_binary(Tree, 9)):
        pairs = [set(each.columns) for each in choice.candidates]
        left = [part for part in parts if all(len(part & pair) == 1 for pair in pairs)]
        smallest = min(left, key=len)
        assert len(smallest) == min(map(len, parts))
        assert len(pairs) == len(smallest) * (9 - len(smallest)), "every pair that leads out of it competes"
        (other,) = (part for part in parts if part is not smallest and part & pairs[0])
        parts = [part for part in parts if part not in (smallest, other)] + [smallest | other]
    assert parts == [{f"c{place}" for place in range(9)}]


def test_of_very_many_candidates_a_part_competes_and_single_columns_always(monkeypatch):
    monkeypatch.setattr("sfumato.recipes.adaptive._DENSE_CELLS", 1)
    whole = list_choices(plan_binary(Adaptive, 6), records=10**6)[0].candidates
    monkeypatch.setattr("sfumato.recipes.adaptive._COMPETING", 4)
    choices = list_choices(plan_binary(Adaptive, 6), records=10**6)
    offers = [{each.columns for each in choice.candidates} for choice in choices]
    singles = {(f"c{place}",) for place in range(6)}
    assert all(singles <= offer for offer in offers)
    assert all(len(offer) < len(whole) / 2 for offer in offers)
    assert {each.columns for each in whole} <= set().union(*offers), "all have their turn"


def test_in_wide_tables_rounds_share_a_fit_and_none_is_measured_twice_before_it(monkeypatch):
    monkeypatch.setattr("sfumato.recipes.adaptive._FITTED", 2)
    together = list_choices(plan_binary(Adaptive, 6))
    fits = {id(choice.candidates[-1]) for choice in together}
    assert len(together) / 3 <= len(fits) < len(together) / 2
    for before, after in pairwise(together):
        if after.candidates[-1] is before.candidates[-1]:
            assert after.candidates == before.candidates[1:], (
                "the chosen one is out, the others are as before"
            )
