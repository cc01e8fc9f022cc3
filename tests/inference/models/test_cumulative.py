"""Least squares on a tree of intervals against the same by dense matrices, its spread, and what it gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.inference.models.cumulative import (
    choose_widths,
    estimate_cumulative,
    find_cell,
    find_spread,
    fuse_levels,
    list_widths,
    rise,
)


def dense(size, widths, variances):
    """All intervals as rows of a matrix, and the covariance of the least squares solution."""
    rows = [
        (np.arange(size) // width == place) / variance**0.5
        for width, variance in zip(widths, variances, strict=True)
        for place in range(-(-size // width))
    ]
    matrix = np.array(rows)
    return matrix, np.linalg.inv(matrix.T @ matrix)


@pytest.mark.parametrize(("size", "branching"), [(1, 2), (2, 2), (23, 3), (64, 4), (37, 2), (30, 30)])
def test_the_tree_solves_weighted_least_squares(size, branching):
    random = np.random.default_rng(size)
    widths = list_widths(size, branching)
    variances = random.uniform(0.5, 4, len(widths)).tolist()
    matrix, covariance = dense(size, widths, variances)
    values = [random.normal(size=(2, -(-size // width))) * 9 for width in widths]
    for group in range(2):
        scaled = np.concatenate([each[group] / v**0.5 for each, v in zip(values, variances, strict=True)])
        expected = covariance @ matrix.T @ scaled
        np.testing.assert_allclose(fuse_levels(values, widths, variances)[group], expected, atol=1e-9)
    spread = find_spread(size, widths, variances)
    upto = np.tril(np.ones((size, size)))
    for share in (0.0, 0.3, 1.0):
        exact = np.diag((upto - share) @ covariance @ (upto - share).T)
        np.testing.assert_allclose(spread.variance(share), exact, atol=1e-9)


def test_the_branching_is_that_of_the_least_measured_error():
    """Noise drawn at random over trees of every branching: the one that is chosen has the least error."""
    size, random = 200, np.random.default_rng(1)
    truth = np.full((1, size), 50.0)

    def measure(widths):
        scale = float(len(widths))
        errors = []
        for _ in range(300):
            values = [
                np.add.reduceat(truth, np.arange(0, size, width), axis=1)
                + random.laplace(0, scale, (1, -(-size // width)))
                for width in widths
            ]
            counts = np.cumsum(fuse_levels(values, widths, [2 * scale**2] * len(widths)), axis=1)
            even = (np.arange(size) + 1) / size
            errors.append(((counts - even * counts[:, -1:]) ** 2).mean())
        return np.mean(errors) ** 0.5

    chosen, promised = choose_widths(size, deviation=lambda levels: 2**0.5 * levels)
    assert measure(chosen) == pytest.approx(promised, rel=0.1)
    for branching in (2, 3, size):
        assert measure(list_widths(size, branching)) > 1.05 * promised


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_rising_is_the_nearest_that_never_falls(heights):
    given_heights = np.array(heights)
    found = rise(given_heights)
    assert (np.diff(found) >= 0).all()
    assert found[0] >= 0
    # A projection onto a convex cone: the rest is orthogonal to it, at no acute angle with its members.
    rest = given_heights - found
    assert abs(rest @ found) <= 1e-6 * (1 + given_heights @ given_heights)
    for start in range(found.size):
        assert rest[start:].sum() <= 1e-6 * (1 + np.abs(given_heights).sum())


def test_rising_brings_cumulative_counts_no_further_from_the_truth():
    random = np.random.default_rng(3)
    truth = np.cumsum(random.poisson(5, 100)).astype(float)
    for _ in range(50):
        noisy = truth + random.normal(size=100) * 30
        assert np.linalg.norm(rise(noisy) - truth) <= np.linalg.norm(noisy - truth)


def test_bands_hold_the_truth_as_often_as_they_say():
    """Of 600 draws of Gaussian noise: 95 % pointwise, so between 93 and 97 % of all places."""
    size, random = 128, np.random.default_rng(4)
    cells = random.multinomial(20_000, random.dirichlet(np.full(size, 0.7)))[None, :].astype(float)
    truth = np.cumsum(cells, axis=1)[0] / cells.sum()
    widths = list_widths(size, 4)
    inside, held = np.zeros(size), 0
    for _ in range(600):
        values = [
            np.add.reduceat(cells, np.arange(0, size, width), axis=1)
            + 25 * random.normal(size=(1, -(-size // width)))
            for width in widths
        ]
        found = estimate_cumulative(values, widths, [625.0] * len(widths), reach=1.96)
        inside += (found.low[0] <= truth) & (truth <= found.high[0])
        first, last = find_cell(found.shares[0], found.low[0], found.high[0], 0.5)[1:]
        held += first <= np.searchsorted(truth, 0.5) <= last
    assert 0.93 < inside[:-1].mean() / 600 < 0.99
    assert held / 600 > 0.93


def test_a_group_within_its_noise_has_no_shares():
    found = estimate_cumulative([np.array([[1.0, 1.0], [400.0, 600.0]])], (1,), [100.0], reach=1.96)
    assert np.isnan(found.shares[0]).all()
    assert np.isnan(found.high[0]).all()
    np.testing.assert_allclose(found.shares[1], [0.4, 1.0])
