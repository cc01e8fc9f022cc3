"""Least squares on a tree against dense matrices, its variances, and whole counts that add up."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.inference.models.hierarchy import Level, divide, fit_levels


def make_tree(random, sizes):
    """The parents of every level: each node has at least one child, in no order."""
    parents = [None]
    for above, size in pairwise(sizes):
        found = np.concatenate((np.arange(above), random.integers(0, above, size - above)))
        parents.append(random.permutation(found))
    return parents


def aggregate(parents, leaves):
    """The counts of every level, from those of the leaves."""
    counts = [leaves]
    for above in parents[:0:-1]:
        counts.append(np.bincount(above, counts[-1]))
    return counts[::-1]


def matrices(parents, size):
    """For every level the matrix that makes its counts of those of the leaves."""
    columns = [aggregate(parents, row) for row in np.eye(size)]
    return [np.stack(each, axis=1) for each in zip(*columns, strict=True)]


@pytest.mark.parametrize("seed", range(4))
def test_two_passes_solve_weighted_least_squares(seed):
    random = np.random.default_rng(seed)
    sizes = (1 + seed % 2, 4, 9, 23)
    parents = make_tree(random, sizes)
    variances = random.uniform(0.5, 4, len(sizes))
    levels = [
        Level(values=random.normal(50, 9, size), variance=variance, parents=above)
        for size, variance, above in zip(sizes, variances, parents, strict=True)
    ]
    sums = matrices(parents, sizes[-1])
    precision = sum(each.T @ each / v for each, v in zip(sums, variances, strict=True))
    right = sum(each.T @ level.values / level.variance for each, level in zip(sums, levels, strict=True))
    covariance = np.linalg.inv(precision)
    for each, found in zip(sums, fit_levels(levels), strict=True):
        np.testing.assert_allclose(found.estimates, each @ covariance @ right, atol=1e-9)
        np.testing.assert_allclose(found.variances, np.diag(each @ covariance @ each.T), atol=1e-9)
    for level, found in zip(levels, fit_levels(levels), strict=True):
        assert (found.variances < level.variance).all(), "no level is worse than measured alone"


@given(st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.booleans())
def test_counts_are_whole_not_negative_and_add_up(seed, growth, known):
    random = np.random.default_rng(seed)
    sizes = np.cumsum([1, *growth]).tolist()
    parents = make_tree(random, sizes)
    truth = aggregate(parents, random.poisson(random.choice([0.1, 2, 50]), sizes[-1]).astype(float))
    given_level = int(random.integers(0, len(sizes))) if known else -1
    levels = [
        Level(
            values=exact if place == given_level else exact + random.normal(0, 6, exact.size),
            variance=0.0 if place == given_level else 36.0,
            parents=above,
        )
        for place, (exact, above) in enumerate(zip(truth, parents, strict=True))
    ]
    fitted = fit_levels(levels)
    for place, found in enumerate(fitted):
        assert found.counts.dtype == np.int64
        assert found.counts.min() >= 0
        if place:
            sums = np.bincount(parents[place], found.counts, sizes[place - 1])
            assert (sums == fitted[place - 1].counts).all()
    if known:
        assert (fitted[given_level].counts == truth[given_level]).all()
        assert not fitted[given_level].variances.any()


def test_division_is_the_nearest_point_that_adds_up():
    """Compared with a search over all whole numbers for small cases."""
    random = np.random.default_rng(3)
    for _ in range(200):
        values, total = random.normal(1, 3, 3), int(random.integers(0, 7))
        found = divide(values, np.ones(3), np.zeros(3, np.int64), np.array([total]))
        every = [(a, b, total - a - b) for a in range(total + 1) for b in range(total + 1 - a)]
        best = min(sum((np.array(each) - values) ** 2) for each in every)
        # Rounding the nearest point may be another than the nearest whole point, but never far from it.
        assert sum((found - values) ** 2) <= best + 1.0


@pytest.mark.statistical
def test_every_level_errs_no_more_than_measured_alone_and_intervals_cover():
    random = np.random.default_rng(5)
    sizes = (1, 5, 40, 800)
    parents = make_tree(random, sizes)
    leaves = np.where(random.random(800) < 0.5, 0, random.geometric(0.05, 800)).astype(float)
    truth = aggregate(parents, leaves)
    fitted, alone, covered = np.zeros(4), np.zeros(4), np.zeros(4)
    runs = 60
    for _ in range(runs):
        levels = [
            Level(values=exact + random.normal(0, 10, exact.size), variance=100.0, parents=above)
            for exact, above in zip(truth, parents, strict=True)
        ]
        for place, found in enumerate(fit_levels(levels)):
            error = found.counts - truth[place]
            fitted[place] += (error**2).mean() / runs
            alone[place] += ((levels[place].values - truth[place]) ** 2).mean() / runs
            half = 1.96 * np.sqrt(found.variances)
            covered[place] += (np.abs(found.estimates - truth[place]) <= half).mean() / runs
    assert (fitted <= alone * 1.1).all(), (fitted, alone)
    assert fitted[-1] < alone[-1] / 1.5, "counts below zero are noise"
    assert (covered > 0.9).all()
