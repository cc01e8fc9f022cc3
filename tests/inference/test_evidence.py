"""Evidence of noisy marginals is the least squares estimate from all of them, with its true variance."""

import itertools

import numpy as np
import pytest

from sfumato.inference.evidence import Cells, Evidence, NoisyCounts

SIZES = {"a": 3, "b": 4, "c": 2}
MEASURED = {("b", "a"): 2.0, ("b", "c"): 1.0, ("b",): 0.5}


def marginal(table, columns):
    """The sums of a table over all other columns."""
    names = list(SIZES)
    summed = table.sum(axis=tuple(at for at, name in enumerate(names) if name not in columns))
    left = [name for name in names if name in columns]
    return np.asarray(summed).transpose([left.index(name) for name in columns])


def make_counts(random):
    table = random.integers(0, 50, tuple(SIZES.values())).astype(float)
    return [
        NoisyCounts(
            columns=columns,
            values=marginal(table, columns) + random.normal(0, sigma, marginal(table, columns).shape),
            variance=sigma**2,
        )
        for columns, sigma in MEASURED.items()
    ]


def equations(counts):
    """One row of weights over the whole table for each noisy number, the numbers, and their variances."""
    rows, values, variances = [], [], []
    for each in counts:
        for cell in itertools.product(*(range(SIZES[name]) for name in each.columns)):
            weights = np.zeros(tuple(SIZES.values()))
            codes = dict(zip(each.columns, cell, strict=True))
            weights[tuple(codes.get(name, slice(None)) for name in SIZES)] = 1
            rows.append(weights.reshape(-1))
            values.append(each.values[cell])
            variances.append(each.variance)
    return np.array(rows), np.array(values), np.array(variances)


def least_squares(counts, weights):
    """The estimate of a weighted sum of the cells of the whole table, and its variance."""
    rows, values, variances = equations(counts)
    root = np.sqrt(variances)
    along = weights.reshape(-1) @ np.linalg.pinv(rows / root[:, None], rcond=1e-9)
    return along @ (values / root), along @ along


def list_cells(columns, groups=None):
    shape = [SIZES[name] for name in columns]
    cells = int(np.prod(shape))
    places = np.unravel_index(np.arange(cells), shape) if columns else ()
    codes = dict(zip(columns, places, strict=True))
    groups = np.zeros(cells, np.int64) if groups is None else groups
    return Cells(columns=columns, codes=codes, groups=groups, rows=int(groups.max()) + 1)


def spread(columns, weights):
    """Weights over `columns` as weights over the whole table."""
    names = list(SIZES)
    order = sorted(range(len(columns)), key=lambda at: names.index(columns[at]))
    shaped = weights.reshape([SIZES[name] for name in columns]).transpose(order)
    around = [SIZES[name] if name in columns else 1 for name in names]
    return np.broadcast_to(shaped.reshape(around), tuple(SIZES.values()))


@pytest.mark.parametrize("columns", [(), ("a",), ("b",), ("c",), ("a", "b"), ("c", "b")])
def test_estimates_are_those_of_the_normal_equations(columns):
    random = np.random.default_rng(1)
    counts = make_counts(random)
    evidence = Evidence(SIZES, counts)
    weights = random.normal(size=int(np.prod([SIZES[name] for name in columns])))
    value, variance = least_squares(counts, spread(columns, weights))
    assert evidence.knows(columns)
    assert evidence.expect(columns) @ weights == pytest.approx(value)
    assert evidence.covariance(list_cells(columns), weights, weights) == pytest.approx(variance)
    shaped = weights.reshape(*(SIZES[name] for name in columns), 1)
    values, covariance, missing = evidence.estimate({columns: shaped})
    assert (values[0], covariance[0, 0], missing) == (pytest.approx(value), pytest.approx(variance), [])


def test_groups_have_variances_of_their_own():
    random = np.random.default_rng(2)
    counts = make_counts(random)
    groups = random.integers(0, 3, 12)
    weights, others = random.normal(size=(2, 12))
    evidence = Evidence(SIZES, counts)
    found = evidence.covariance(list_cells(("a", "b"), groups), weights, others)
    both = [
        [
            least_squares(counts, spread(("a", "b"), np.where(groups == group, each, 0)))[1]
            for group in range(3)
        ]
        for each in (weights + others, weights - others)
    ]
    assert found == pytest.approx((np.array(both[0]) - both[1]) / 4)


def test_sums_that_are_too_many_to_list_are_the_same(monkeypatch):
    random = np.random.default_rng(3)
    evidence, groups = Evidence(SIZES, make_counts(random)), random.integers(0, 3, 12)
    weights, cells = random.normal(size=12), list_cells(("a", "b"), groups)
    listed = evidence.covariance(cells, weights, weights)
    monkeypatch.setattr("sfumato.inference.evidence._DENSE", 0)
    assert evidence.covariance(cells, weights, weights) == pytest.approx(listed)


def test_what_nobody_measured_has_no_variance_unless_it_is_not_needed():
    random = np.random.default_rng(4)
    counts = make_counts(random)
    evidence = Evidence(SIZES, counts)
    assert not evidence.knows(("a", "c"))
    everything = list_cells(("a", "c"))
    crossed = random.normal(size=6)
    assert np.isnan(evidence.covariance(everything, crossed, crossed)).all()
    assert np.isnan(evidence.deviation(("a", "c")))
    # A sum of what each column says by itself needs no pair.
    added = np.add.outer(random.normal(size=3), random.normal(size=2)).reshape(-1)
    value, variance = least_squares(counts, spread(("a", "c"), added))
    assert evidence.covariance(everything, added, added) == pytest.approx(variance)
    values, _, missing = evidence.estimate({("a", "c"): added.reshape(3, 2, 1)})
    assert (values[0], missing) == (pytest.approx(value), [])
    assert evidence.estimate({("c", "a"): crossed.reshape(2, 3, 1)})[2] == [("a", "c")]


def test_sums_over_several_marginals_are_one_estimate():
    random = np.random.default_rng(5)
    counts = make_counts(random)
    parts = {
        columns: random.normal(size=[SIZES[name] for name in columns])
        for columns in [("a", "b"), ("c", "b"), ("b",), ()]
    }
    whole = sum(spread(columns, np.asarray(each)) for columns, each in parts.items())
    value, variance = least_squares(counts, whole)
    values, covariance, _ = Evidence(SIZES, counts).estimate(
        {columns: np.asarray(each)[..., None] for columns, each in parts.items()}
    )
    assert (values[0], covariance[0, 0]) == (pytest.approx(value), pytest.approx(variance))


def test_counts_that_were_added_up_have_the_noise_of_all_of_them():
    """Unbiased, with the stated variance: 4,000 draws, each bound 5 standard errors away."""
    random = np.random.default_rng(6)
    added = np.array([1.0, 1.0, 7.0])
    weights = np.array([1.0, -2.0, 4.0])
    exact, pair = np.array([40.0, 20.0, 30.0]), np.array([[25.0, 15.0], [10.0, 10.0], [5.0, 25.0]])
    found, variance = [], 0.0
    for _ in range(4000):
        single = NoisyCounts(
            columns=("a",), values=exact + random.normal(0, 0.5 * np.sqrt(added)), variance=0.25, added=added
        )
        both = NoisyCounts(columns=("a", "c"), values=pair + random.normal(0, 2, (3, 2)), variance=4.0)
        evidence = Evidence(SIZES, [single, both])
        found.append(evidence.expect(("a",)) @ weights)
        if not variance:
            variance = float(evidence.covariance(list_cells(("a",)), weights, weights)[0])
            _, covariance, _ = evidence.estimate({("a",): weights[:, None]})
    assert covariance[0, 0] == pytest.approx(variance)
    assert np.mean(found) == pytest.approx(exact @ weights, abs=5 * (variance / 4000) ** 0.5)
    assert np.var(found) == pytest.approx(variance, rel=5 * (2 / 4000) ** 0.5)
    alone = Evidence(SIZES, [single])
    centred = weights - weights.mean()
    assert alone.covariance(list_cells(("a",)), centred, centred) == pytest.approx(
        0.25 * (added * centred**2).sum()
    )
    assert np.isnan(alone.covariance(list_cells(("a",)), weights, weights)).all()


def test_counts_less_their_means_tell_of_what_holds_their_columns():
    random = np.random.default_rng(4)
    counts = make_counts(random)
    values = random.normal(0, 1, (3, 2))
    whole = NoisyCounts(columns=("a", "c"), values=values, variance=2.0)
    centred = NoisyCounts(
        columns=("a", "c"),
        values=values - values.mean(axis=1, keepdims=True),
        variance=2.0,
        along=("c",),
    )
    told, less = Evidence(SIZES, [*counts, whole]), Evidence(SIZES, [*counts, centred])
    without = Evidence(SIZES, counts)
    for columns in (("a", "c"), ("c",)):
        assert less._residual(columns).values == pytest.approx(told._residual(columns).values)
        assert less._residual(columns).variance == pytest.approx(told._residual(columns).variance)
    for columns in ((), ("a",)):
        assert less._residual(columns).values == pytest.approx(without._residual(columns).values)
        assert less._residual(columns).variance == pytest.approx(without._residual(columns).variance)
    assert not without.knows(("a", "c"))
    assert less.has_contrasts
    assert not told.has_contrasts
