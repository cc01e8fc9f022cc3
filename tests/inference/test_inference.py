"""Estimation and marginals against brute force: the explicit joint of small domains."""

import math
from itertools import combinations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError
from sfumato.inference import (
    Domain,
    Growth,
    Measurement,
    Sparse,
    build_tree,
    estimate,
    estimate_total,
    merge_measurements,
    tree_cells,
)

MOST_CELLS = 500


@st.composite
def domains(draw, least=1):
    sizes, cells = {}, 1
    for name in draw(st.permutations("abcde"))[: draw(st.integers(least, 5))]:
        sizes[name] = draw(st.integers(1, max(1, min(5, MOST_CELLS // cells))))
        cells *= sizes[name]
    return Domain(sizes)


@st.composite
def problems(draw, least=1, most=4):
    """A domain, some of its marginals in any order of columns, and a seed."""
    domain = draw(domains(least))
    names = st.lists(st.sampled_from(list(domain)), min_size=1, max_size=min(3, len(domain)), unique=True)
    marginals = draw(st.lists(names.map(tuple), min_size=1, max_size=most, unique_by=frozenset))
    return domain, marginals, draw(st.integers(0, 2**32 - 1))


def make_joint(domain, seed, total=1000.0, sparse=0.0):
    """Counts of every combination, far from uniform, some of them exactly 0."""
    random = np.random.default_rng(seed)
    joint = random.gamma(0.7, size=domain.shape(tuple(domain))) + 1e-3
    joint[random.random(joint.shape) < sparse] = 0.0
    joint.flat[0] += 1e-3
    return joint * (total / joint.sum())


def project(domain, joint, columns):
    """The marginal of an explicit joint, in the order of `columns`."""
    names = tuple(domain)
    out = tuple(axis for axis, name in enumerate(names) if name not in columns)
    kept = [name for name in names if name in columns]
    return joint.sum(axis=out).transpose([kept.index(name) for name in columns])


def measure(domain, joint, marginals, sigma, random=None):
    measured = []
    for columns in marginals:
        values = project(domain, joint, columns).reshape(-1)
        if random is not None:
            values = values + random.normal(0, sigma, values.size)
        measured.append(Measurement(columns=columns, values=values, sigma=sigma))
    return measured


def spread_over(domain, columns, table):
    """A table over `columns`, which are in the order of the domain, shaped to multiply the joint."""
    return table.reshape([domain[name] if name in columns else 1 for name in domain])


def explicit_joint(model):
    """The product of the cliques over the product of the separators."""
    domain, tree = model.domain, model.tree
    joint = np.full(domain.shape(tuple(domain)), model.total)
    for place, (clique, separator) in enumerate(zip(tree.cliques, tree.separators, strict=True)):
        table = model.table(place).reshape(domain.shape(clique))
        out = tuple(axis for axis, name in enumerate(clique) if name not in separator)
        shared = table.sum(axis=out, keepdims=True)
        share = np.divide(table, shared, out=np.zeros_like(table), where=shared > 0)
        joint = joint * spread_over(domain, clique, share)
    return joint


def test_the_explicit_joint_of_one_clique_is_its_table():
    domain = Domain({"a": 3, "b": 2})
    joint = make_joint(domain, 0)
    model = estimate(domain, measure(domain, joint, [("a", "b")], 1e-3))
    assert np.allclose(explicit_joint(model), model.table(0).reshape(3, 2))


@given(problems())
def test_every_marginal_is_a_sum_over_the_joint(problem):
    domain, marginals, seed = problem
    random = np.random.default_rng(seed)
    noisy = measure(domain, make_joint(domain, seed), marginals, 30.0, random)
    model = estimate(domain, noisy, total=1000, iterations=15)
    joint = explicit_joint(model)
    assert math.isclose(joint.sum(), 1000, rel_tol=1e-9)
    assert model.marginal(()) == pytest.approx(1000)
    for size in range(1, len(domain) + 1):
        for ordered in combinations(domain, size):
            columns = tuple(random.permutation(ordered).tolist())
            found = model.marginal(columns)
            assert found.shape == domain.shape(columns)
            assert np.allclose(found, project(domain, joint, columns), rtol=1e-7, atol=1e-7)


@given(problems())
def test_consistent_marginals_without_noise_are_reproduced(problem):
    domain, marginals, seed = problem
    joint = make_joint(domain, seed)
    model = estimate(domain, measure(domain, joint, marginals, 0.05))
    assert model.total == pytest.approx(1000, rel=1e-9)
    for columns in marginals:
        away = np.abs(model.marginal(columns) - project(domain, joint, columns)).max()
        assert away < 0.5, "of a thousand records"


@given(problems())
def test_a_tree_holds_every_marginal_and_every_column_runs_through_it_unbroken(problem):
    domain, marginals, _ = problem
    tree = build_tree(domain, marginals)
    assert {name for clique in tree.cliques for name in clique} == set(domain)
    assert all(tree.home(columns) is not None for columns in marginals)
    assert tree.cells == sum(domain.cells(clique) for clique in tree.cliques)
    assert tree.cells == tree_cells(domain, marginals)
    assert tree.parents[0] == -1
    for place in range(1, len(tree.cliques)):
        earlier = {name for clique in tree.cliques[:place] for name in clique}
        parent = set(tree.cliques[tree.parents[place]])
        # Running intersection: what a clique has in common with all before it is in its parent.
        assert set(tree.cliques[place]) & earlier == set(tree.separators[place])
        assert set(tree.separators[place]) <= parent


def least_loss(domain, measured, total):
    """Bounds of the least weighted squared loss over all joints of `total` records."""
    cells = domain.cells(tuple(domain))
    rows, goals = [], []
    identity = np.eye(cells).reshape(cells, *domain.shape(tuple(domain)))
    for each in measured:
        table = np.stack([project(domain, cell, each.columns).reshape(-1) for cell in identity], axis=1)
        rows.append(table / each.sigma)
        goals.append(each.values / each.sigma)
    matrix, goal = np.concatenate(rows), np.concatenate(goals)
    heavy = 1e3 * np.abs(matrix).max()
    solution, norm = scipy.optimize.nnls(
        np.concatenate([matrix, np.full((1, cells), heavy)]),
        np.concatenate([goal, [heavy * total]]),
        maxiter=100 * cells,
    )
    # Without holding the total exactly the loss is no larger than the least one, rescaled no smaller.
    residual = matrix @ (solution * total / solution.sum()) - goal
    return 0.5 * norm**2, 0.5 * float(residual @ residual)


def make_overlapping(seed, sigma, *, triangle):
    """A domain of three columns, and measurements of two or three pairs; about a third of cells is empty."""
    random = np.random.default_rng(seed)
    domain = Domain(dict(zip("abc", random.integers(2, 5, 3).tolist(), strict=True)))
    marginals = [("a", "b"), ("c", "b"), ("a", "c")][: 2 + triangle]
    return domain, measure(domain, make_joint(domain, seed, sparse=0.3), marginals, sigma, random)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3.0, 30.0, 300.0]), st.booleans())
def test_the_fit_reaches_the_least_loss(seed, sigma, triangle):
    domain, measured = make_overlapping(seed, sigma, triangle=triangle)
    model = estimate(domain, measured, total=1000, iterations=500)
    lower, upper = least_loss(domain, measured, 1000)
    assert upper - lower <= 1e-3 * upper + 1e-6, "the yardstick itself is sharp"
    assert model.loss >= lower * (1 - 1e-9) - 1e-9
    assert model.loss <= 1.01 * upper + 0.05
    direct = sum(
        0.5 * ((model.marginal(each.columns).reshape(-1) - each.values) ** 2).sum() / each.sigma**2
        for each in measured
    )
    assert model.loss == pytest.approx(direct, rel=1e-6, abs=1e-6)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 3.0, 30.0, 300.0]), st.booleans())
def test_the_fit_that_stops_by_itself_stops_near_the_least_loss(seed, sigma, triangle):
    domain, measured = make_overlapping(seed, sigma, triangle=triangle)
    _, upper = least_loss(domain, measured, 1000)
    model = estimate(domain, measured, total=1000)
    answers = sum(each.values.size for each in measured)
    assert model.loss <= upper + 0.15 * answers, "what noise explains is half the number of answers"


def test_more_evaluations_than_the_fit_would_choose_are_no_worse():
    domain, measured = make_overlapping(37, 3.0, triangle=True)
    free = estimate(domain, measured, total=1000)
    told = estimate(domain, measured, total=1000, iterations=5 * free.evaluations)
    assert told.loss <= free.loss


def test_a_target_ends_the_fit_and_no_iterations_end_it_by_the_noise():
    domain = Domain({"a": 5, "b": 6, "c": 4})
    random = np.random.default_rng(3)
    pairs = [("a", "b"), ("b", "c")]
    measured = measure(domain, make_joint(domain, 3), pairs, 5.0, random)
    long = estimate(domain, measured, iterations=400)
    assert long.evaluations <= 400
    short = estimate(domain, measured, target=2 * long.loss + 1)
    assert short.loss <= 2 * long.loss + 1
    assert short.evaluations < long.evaluations
    free = estimate(domain, measured)
    assert free.loss < 54, "half the number of answers explains as much, 54 is all of it"


QUERIES = np.array([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, -1, 0, 0], [0, 0.5, 0.25, 0, 0, 0]])
ANSWERS = np.array([30.0, 70.0, -10.0, 6.0])
PAIR = Domain({"a": 2, "b": 3, "c": 2})


def ask(queries, values=ANSWERS, columns=("a", "b")):
    return Measurement(columns=columns, values=values, sigma=2.0, queries=queries)


def test_queries_may_be_dense_or_sparse_in_any_layout():
    models = [
        estimate(PAIR, [ask(queries)])
        for queries in (
            QUERIES,
            QUERIES.tolist(),
            scipy.sparse.csr_matrix(QUERIES),
            scipy.sparse.coo_array(QUERIES),
            scipy.sparse.csc_matrix(QUERIES),
        )
    ]
    for model in models[1:]:
        assert model.values.tobytes() == models[0].values.tobytes()
    assert np.allclose(QUERIES @ models[0].flat_marginal(("a", "b")), ANSWERS, atol=1.5)


def test_queries_over_columns_in_another_order_mean_the_same():
    turned = QUERIES.reshape(4, 2, 3).transpose(0, 2, 1).reshape(4, 6)
    one = estimate(PAIR, [ask(QUERIES)])
    two = estimate(PAIR, [ask(turned, columns=("b", "a"))])
    assert np.allclose(one.values, two.values, rtol=1e-9)


def test_identity_queries_are_counts():
    values = np.array([10.0, 20, 5, 30, 15, 20])
    one = estimate(PAIR, [ask(np.eye(6), values)], iterations=200)
    two = estimate(PAIR, [ask(None, values)], iterations=200)
    assert np.allclose(one.values, two.values, atol=1e-2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ask(QUERIES[:, :5]),
        lambda: ask(scipy.sparse.csr_matrix(QUERIES[:, :5])),
        lambda: ask(scipy.sparse.csr_matrix(QUERIES[:3])),
        lambda: ask(QUERIES[:3]),
        lambda: ask(QUERIES[0]),
        lambda: ask(QUERIES.reshape(2, 2, 6)),
        lambda: ask(None),
        lambda: ask(None, np.zeros(5)),
        lambda: ask(None, np.zeros(6), columns=("a", "z")),
        lambda: ask(None, np.zeros(4), columns=("a", "a")),
        lambda: ask(None, np.zeros(1), columns=()),
        lambda: ask(None, np.array([1, 2, 3, 4, 5, math.nan])),
        lambda: ask(None, np.array([1, 2, 3, 4, 5, math.inf])),
        lambda: ask(Sparse(starts=np.array([0, 1]), members=np.array([6]), weights=np.ones(1)), np.ones(1)),
        lambda: ask(Sparse(starts=np.array([0, 1]), members=np.array([-1]), weights=np.ones(1)), np.ones(1)),
        lambda: Measurement(columns=("a",), values=np.zeros(2), sigma=0.0),
        lambda: Measurement(columns=("a",), values=np.zeros(2), sigma=math.nan),
    ],
)
def test_measurements_that_do_not_fit_are_refused(make):
    with pytest.raises(RecipeError):
        estimate(PAIR, [make()], total=100)


def test_nothing_measured_is_refused():
    with pytest.raises(RecipeError, match="at least one measurement"):
        estimate(PAIR, [])


@given(problems(most=2), st.floats(0.5, 50))
def test_two_measurements_are_their_average_at_less_noise(problem, sigma):
    domain, marginals, seed = problem
    random = np.random.default_rng(seed)
    joint = make_joint(domain, seed)
    twice = measure(domain, joint, marginals, sigma, random) + measure(
        domain, joint, marginals, sigma, random
    )
    half = len(marginals)
    once = [
        Measurement(columns=one.columns, values=(one.values + two.values) / 2, sigma=sigma / math.sqrt(2))
        for one, two in zip(twice[:half], twice[half:], strict=True)
    ]
    for left, right in zip(merge_measurements(domain, twice), merge_measurements(domain, once), strict=True):
        assert left.columns == right.columns
        assert left.variance == pytest.approx(right.variance)
        assert np.allclose(left.values, right.values)
    first = estimate(domain, twice, total=1000, iterations=20)
    second = estimate(domain, once, total=1000, iterations=20)
    assert np.allclose(first.values, second.values, rtol=1e-4, atol=1e-3)


def test_the_better_of_two_measurements_counts_for_more():
    domain = Domain({"a": 2})
    good = Measurement(columns=("a",), values=np.array([10.0, 90.0]), sigma=1.0)
    poor = Measurement(columns=("a",), values=np.array([50.0, 50.0]), sigma=3.0)
    (part,) = merge_measurements(domain, [good, poor])
    assert part.values.tolist() == pytest.approx([14, 86])
    assert part.variance == pytest.approx(0.9)


@given(problems(least=2), st.data())
def test_impossible_cells_are_empty_in_marginals_and_rows(problem, data):
    domain, marginals, seed = problem
    random = np.random.default_rng(seed)
    columns = data.draw(
        st.permutations(list(domain)).map(lambda names: tuple(names[:2])), label="columns of the zeros"
    )
    mask = random.random(domain.shape(columns)) < 0.6
    mask.flat[random.integers(mask.size)] = False
    noisy = measure(domain, make_joint(domain, seed), marginals, 5.0, random)
    model = estimate(domain, noisy, total=300, zeros=[(columns, mask)])
    assert (model.marginal(columns)[mask] == 0).all()
    assert model.marginal(columns).sum() == pytest.approx(300)
    rows = model.sample(400, seed=seed)
    assert not mask[rows[columns[0]], rows[columns[1]]].any()


def test_zeros_that_leave_nothing_are_refused():
    values = np.array([40.0, 60.0])
    noisy = [Measurement(columns=("a",), values=values, sigma=1.0)]
    with pytest.raises(RecipeError, match="structural zeros"):
        estimate(PAIR, noisy, zeros=[(("a",), np.array([True, True]))])
    # Each leaves something, together they do not.
    apart = [(("a", "b"), np.array([[0, 0, 0], [1, 1, 1]])), (("a", "c"), np.array([[1, 1], [0, 0]]))]
    with pytest.raises(RecipeError, match="structural zeros"):
        estimate(PAIR, noisy, zeros=apart)


def test_zeros_of_another_shape_are_refused():
    noisy = [Measurement(columns=("a",), values=np.array([40.0, 60.0]), sigma=1.0)]
    with pytest.raises(RecipeError):
        estimate(PAIR, noisy, zeros=[(("a", "b"), np.zeros(5, np.bool_))])


def test_queries_over_a_column_the_domain_has_not_are_refused():
    with pytest.raises(RecipeError):
        estimate(PAIR, [ask(np.eye(2), np.ones(2), columns=("a", "z"))], total=10)


def test_the_total_is_estimated_or_kept():
    domain = Domain({"a": 20, "b": 10})
    random = np.random.default_rng(11)
    joint = make_joint(domain, 11, total=5000)
    noisy = measure(domain, joint, [("a",), ("b",), ("a", "b")], 10.0, random)
    # By precision 10 values say it with sigma 31.6, 20 with 44.7, 200 with 141: together 25.5.
    assert abs(estimate(domain, noisy).total - 5000) < 5 * 25.5
    assert estimate(domain, noisy, total=1234.5).total == 1234.5
    assert estimate(domain, noisy, total=1234.5).marginal(("b",)).sum() == pytest.approx(1234.5)
    for total in (0, -5, math.nan, math.inf):
        with pytest.raises(RecipeError, match="total"):
            estimate(domain, noisy, total=total)


def test_sums_of_queries_tell_the_total_and_others_do_not():
    halves = ask(QUERIES[:2], np.array([30.0, 72.0]))
    assert estimate_total(PAIR, merge_measurements(PAIR, [halves])) == pytest.approx(102)
    with pytest.raises(RecipeError, match="give the total"):
        estimate(PAIR, [ask(QUERIES[2:], ANSWERS[2:])])
    assert estimate(PAIR, [ask(QUERIES[2:], ANSWERS[2:])], total=100).total == 100


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(6),
        np.full(6, -50.0),
        np.array([-1e6, 1e6, -1e6, 1e6, -5, 5.0]),
        np.full(6, 1e15),
        np.array([1e15, -1e15, 0, 0, 0, 0]),
        np.array([1e-9, 0, 0, 0, 0, 0]),
    ],
    ids=["zero", "negative", "contradictory", "huge", "huge and opposite", "tiny"],
)
@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e6])
def test_any_noisy_values_give_a_model(values, sigma):
    noisy = [
        Measurement(columns=("a", "b"), values=values, sigma=sigma),
        Measurement(columns=("b", "c"), values=values[::-1].copy(), sigma=sigma),
        Measurement(columns=("c", "a"), values=np.array([3.0, -4.0, 5.0, 6.0]), sigma=sigma),
    ]
    model = estimate(PAIR, noisy)
    assert model.total >= 1
    assert np.isfinite(model.values).all()
    assert (model.values >= 0).all()
    for columns in combinations(PAIR, 2):
        assert model.marginal(columns).sum() == pytest.approx(model.total, rel=1e-6)
    assert all(codes.size == 10 for codes in model.sample(10).values())


def test_columns_of_one_value_are_carried_along():
    domain = Domain({"a": 1, "b": 3, "c": 1, "d": 2})
    noisy = [
        Measurement(columns=("a", "b"), values=np.array([10.0, 20.0, 30.0]), sigma=0.1),
        Measurement(columns=("c",), values=np.array([60.0]), sigma=0.1),
        Measurement(columns=("d", "a", "c"), values=np.array([15.0, 45.0]), sigma=0.1),
    ]
    model = estimate(domain, noisy)
    assert model.marginal(("a", "c")) == pytest.approx(60, abs=0.2)
    assert model.marginal(("b", "d"))[2] == pytest.approx([7.5, 22.5], abs=0.2)
    assert (
        estimate(Domain({"a": 1}), [Measurement(columns=("a",), values=np.array([7.0]), sigma=1)]).total == 7
    )


def test_a_tree_beyond_the_limit_names_its_clique_and_what_to_leave_out():
    domain = Domain({"a": 10, "b": 10, "c": 10, "d": 50})
    pairs = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")]
    noisy = [Measurement(columns=each, values=np.ones(domain.cells(each)), sigma=1.0) for each in pairs]
    assert estimate(domain, noisy, limit=1500, iterations=2).tree.cells == 1500
    with pytest.raises(
        RecipeError, match=r"1,500 cells.*a x b x c with 1,000; leave out (a x b|b x c|a x c)"
    ):
        estimate(domain, noisy, limit=1499)
    with pytest.raises(RecipeError, match="use coarser domains"):
        build_tree(domain, [], limit=79)


def test_a_wide_table_is_refused_before_anything_is_allocated():
    domain = Domain({f"c{place}": 100 for place in range(30)})
    pairs = list(combinations(domain, 2))
    with pytest.raises(RecipeError, match="its largest clique is c0 x c1"):
        build_tree(domain, pairs, limit=2**25)


def make_chain(zeros=()):
    values = np.array([10.0, 20.0, 30.0, 40.0])
    domain = Domain({"a": 2, "b": 2, "c": 2})
    noisy = [Measurement(columns=each, values=values, sigma=1.0) for each in (("a", "b"), ("b", "c"))]
    return estimate(domain, noisy, zeros=zeros)


def test_what_a_model_does_not_have_is_refused():
    model = make_chain()
    with pytest.raises(RecipeError, match="'z'"):
        model.marginal(("a", "z"))
    with pytest.raises(RecipeError, match="twice"):
        model.marginal(("a", "a"))


@settings(max_examples=15)
@given(problems())
def test_the_same_measurements_give_the_same_bytes(problem):
    domain, marginals, seed = problem
    noisy = measure(domain, make_joint(domain, seed), marginals, 5.0, np.random.default_rng(seed))
    one, two = (estimate(domain, noisy, seed=7) for _ in range(2))
    assert one.values.tobytes() == two.values.tobytes()
    assert (one.total, one.loss, one.evaluations) == (two.total, two.loss, two.evaluations)
    first, second, third = one.sample(200), two.sample(200), one.sample(200, seed=7)
    for name in domain:
        assert np.array_equal(first[name], second[name])
        assert np.array_equal(first[name], third[name])


def test_another_seed_gives_other_rows_of_the_same_model():
    model = make_chain()
    one, two = model.sample(200, seed=1), model.sample(200, seed=2)
    assert any(not np.array_equal(one[name], two[name]) for name in one)


def test_a_tree_grows_by_no_less_than_it_would_be_built_with():
    random = np.random.default_rng(3)
    for _ in range(60):
        domain = Domain({name: int(random.integers(1, 6)) for name in "abcdefgh"})
        held = [domain.order(random.choice(list(domain), 2, replace=False)) for _ in range(7)]
        tree = build_tree(domain, held)
        growth = Growth(tree)
        for size in (2, 3):
            for columns in combinations(domain, size):
                grown = growth.cells(columns)
                if tree.home(columns) is not None:
                    assert grown == tree.cells
                assert grown >= tree_cells(domain, [*tree.cliques, columns])
