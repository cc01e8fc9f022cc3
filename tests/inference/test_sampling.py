"""Rows of a model: its marginals to within rounding, and no dependence that the model has not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError
from sfumato.inference import Domain, Measurement, Model, build_tree, estimate

SEEDS = range(5)


def tabulate(domain, rows, columns):
    """The counts of every combination of `columns` among rows, flat."""
    codes = np.zeros(next(iter(rows.values())).size, np.int64)
    for name in columns:
        codes = codes * domain[name] + rows[name]
    return np.bincount(codes, minlength=domain.cells(columns))


def fit(domain, marginals, seed, *, total=2000.0):
    random = np.random.default_rng(seed)
    noisy = []
    for columns in marginals:
        values = random.gamma(0.5, size=domain.cells(columns))
        noisy.append(Measurement(columns=columns, values=values * total / values.sum(), sigma=total / 50))
    return estimate(domain, noisy, total=total)


CHAIN = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
STAR = [("a", "b"), ("a", "c"), ("a", "d"), ("a", "e")]
LOOP = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("e",)]
WIDE = [("a", "b", "c"), ("b", "c", "d"), ("d", "e")]


@given(
    st.lists(st.integers(1, 7), min_size=5, max_size=5),
    st.sampled_from([CHAIN, STAR, LOOP, WIDE]),
    st.integers(0, 3000),
    st.integers(0, 2**32 - 1),
)
def test_clique_marginals_agree_within_rounding(sizes, marginals, rows, seed):
    domain = Domain(dict(zip("abcde", sizes, strict=True)))
    model = fit(domain, marginals, seed)
    drawn = model.sample(rows, seed=seed)
    assert list(drawn) == list(domain)
    allowed = {-1: 0.0}
    for place, clique in enumerate(model.tree.cliques):
        found = tabulate(domain, drawn, clique)
        away = np.abs(found - model.table(place) * (rows / model.total)).max()
        if place == 0:
            assert away < 1 + 1e-6
        # A clique rounds within the groups of its separator, whose sizes its parents have rounded.
        separator = model.tree.separators[place]
        given = 0.0
        if separator:
            expected = model.marginal(separator).reshape(-1) * (rows / model.total)
            given = np.abs(tabulate(domain, drawn, separator) - expected).max()
        assert away <= 1 + given + 1e-6
        allowed[place] = away
    assert max(allowed.values()) < 8


@pytest.mark.parametrize("marginals", [CHAIN, STAR, LOOP, WIDE], ids=["chain", "star", "loop", "wide"])
def test_rounding_is_far_below_the_noise_of_independent_draws(marginals):
    domain = Domain({"a": 6, "b": 5, "c": 7, "d": 4, "e": 8})
    model, rows = fit(domain, marginals, 5), 20_000
    random = np.random.default_rng(0)
    drawn = model.sample(rows, seed=1)
    for place, clique in enumerate(model.tree.cliques):
        shares = model.table(place) / model.table(place).sum()
        away = np.abs(tabulate(domain, drawn, clique) - shares * rows).sum()
        independent = np.abs(random.multinomial(rows, shares) - shares * rows).sum()
        assert away < independent / 10


def make_model(domain, pairs, joints):
    """A model of pairs with the given tables, which agree on what they share."""
    tree = build_tree(domain, pairs)
    tables = [np.asarray(joints[clique], np.float64).reshape(-1) for clique in tree.cliques]
    return Model(tree, np.concatenate(tables), total=float(tables[0].sum()))


def correlate(x, y):
    return float(np.corrcoef(x, y)[0, 1])


def make_fork(rows):
    """b grows and c falls with a, both with a wide spread around it."""
    values = np.arange(10)
    up = np.exp(-((values - np.array([3.5, 5.5])[:, None]) ** 2) / 12)
    down = up[::-1]
    joint = {
        ("a", "b"): up / up.sum(axis=1, keepdims=True) * rows / 2,
        ("a", "c"): down / down.sum(axis=1, keepdims=True) * rows / 2,
    }
    return make_model(Domain({"a": 2, "b": 10, "c": 10}), [("a", "b"), ("a", "c")], joint)


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_that_share_a_parent_stay_independent_given_it(seed):
    rows = 20_000
    model = make_fork(rows)
    joint = model.marginal(("b", "c")) / rows
    mean = [(joint.sum(axis=axis) * np.arange(10)).sum() for axis in (1, 0)]
    away = np.arange(10)[:, None] - mean[0], np.arange(10)[None, :] - mean[1]
    wanted = (joint * away[0] * away[1]).sum() / np.sqrt(
        (joint * away[0] ** 2).sum() * (joint * away[1] ** 2).sum()
    )
    assert -0.3 < wanted < -0.1
    drawn = model.sample(seed=seed)
    for value in range(2):
        own = drawn["a"] == value
        # Four standard errors of ten thousand rows; a sampler that sorts gives above 0.7.
        assert abs(correlate(drawn["b"][own], drawn["c"][own])) < 0.04
    assert correlate(drawn["b"], drawn["c"]) == pytest.approx(wanted, abs=0.03)


@pytest.mark.parametrize("rows", [50, 300, 2000])
def test_few_rows_of_a_fork_are_independent_too_on_average(rows):
    model = make_fork(2000)
    found = []
    for seed in range(200):
        drawn = model.sample(rows, seed=seed)
        own = drawn["a"] == 0
        found.append(correlate(drawn["b"][own], drawn["c"][own]))
    # The mean of 200 correlations of rows / 2 independent rows, five standard errors wide.
    assert abs(np.mean(found)) < 5 / np.sqrt(200 * rows / 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_many_values_that_share_nothing_stay_independent(seed):
    domain, rows = Domain({"a": 100, "b": 100}), 20_000
    shares = {name: np.random.default_rng(turn).dirichlet(np.ones(100)) for turn, name in enumerate("ab")}
    model = make_model(domain, [("a",), ("b",)], {(name,): values * rows for name, values in shares.items()})
    drawn = model.sample(seed=seed)
    expected = np.outer(shares["a"], shares["b"]).reshape(-1)
    random = np.random.default_rng(1000 + seed)
    independent = [np.abs(random.multinomial(rows, expected) / rows - expected).sum() for _ in range(20)]
    found = np.abs(tabulate(domain, drawn, ("a", "b")) / rows - expected).sum()
    assert found < np.mean(independent) + 6 * np.std(independent)
    assert abs(correlate(drawn["a"], drawn["b"])) < 4 / np.sqrt(rows)


def test_a_chain_is_independent_across_its_middle():
    domain, rows = Domain({"a": 5, "b": 3, "c": 5}), 30_000
    random = np.random.default_rng(2)
    middle = np.array([0.5, 0.3, 0.2]) * rows
    left = random.dirichlet(np.ones(5), 3).T * middle
    right = random.dirichlet(np.ones(5), 3) * middle[:, None]
    model = make_model(domain, [("a", "b"), ("b", "c")], {("a", "b"): left, ("b", "c"): right})
    drawn = model.sample(seed=4)
    table = tabulate(domain, drawn, ("a", "b", "c"))
    expected = model.marginal(("a", "b", "c")).reshape(-1)
    some = expected > 5
    square = ((table - expected)[some] ** 2 / expected[some]).sum()
    # 48 degrees of freedom given the pairs; an even scatter may have less, never much more.
    assert square < 48 + 6 * np.sqrt(2 * 48)


@pytest.mark.parametrize("rows", [0, 1, 2, 17])
@pytest.mark.parametrize("marginals", [CHAIN, LOOP], ids=["chain", "loop"])
def test_a_few_rows_can_be_drawn(rows, marginals):
    domain = Domain({"a": 3, "b": 1, "c": 4, "d": 5, "e": 40})
    drawn = fit(domain, marginals, 0).sample(rows)
    for name, size in domain.items():
        assert drawn[name].shape == (rows,)
        assert drawn[name].dtype == np.int64
        assert ((drawn[name] >= 0) & (drawn[name] < size)).all()


def test_single_rows_follow_the_model_over_seeds():
    model = make_model(Domain({"a": 4}), [("a",)], {("a",): np.array([10.0, 0.0, 30.0, 60.0])})
    found = np.bincount([model.sample(1, seed=seed)["a"][0] for seed in range(2000)], minlength=4)
    assert found[1] == 0
    assert np.abs(found / 2000 - [0.1, 0, 0.3, 0.6]).max() < 5 * np.sqrt(0.25 / 2000)


def test_as_many_rows_as_records_by_default():
    model = fit(Domain({"a": 3, "b": 3}), [("a", "b")], 0, total=123.4)
    assert model.sample()["a"].size == 123


@pytest.mark.parametrize("rows", [-1, 1.5, True, "3"])
def test_a_number_of_rows_that_is_none_is_refused(rows):
    with pytest.raises(RecipeError, match="whole number"):
        fit(Domain({"a": 3}), [("a",)], 0).sample(rows)


def test_a_million_rows_of_many_values_are_drawn_in_bounded_time():
    import time

    domain = Domain({"a": 80, "b": 80, "c": 40, "d": 60})
    model = fit(domain, [("a", "b"), ("b", "c"), ("c", "d")], 1, total=10**6)
    start = time.process_time()  # a busy machine lends its processors, and does not change the work
    drawn = model.sample(10**6, seed=0)
    assert time.process_time() - start < 30, "about two seconds on a quiet machine"
    for place, clique in enumerate(model.tree.cliques):
        assert np.abs(tabulate(domain, drawn, clique) - model.table(place)).max() < 8
