"""The factorisation of running totals against dense matrices, and how far its noise reaches."""

import math

import numpy as np
import pytest

from sfumato.inference.models.series import estimate_sums, invert, root_weights

GRID = 2**20


def norm(weights):
    return math.sqrt(sum(each * each for each in weights)) / GRID


def worst_total(periods):
    """The largest standard deviation of a running total, for noise of 1 on one arrival."""
    weights = root_weights(periods, grid=GRID)
    answer = np.ones(periods)
    found = estimate_sums(np.zeros((periods, 1)), np.array(weights) / GRID, norm(weights), answer=answer)
    return float(found.deviations.max())


def test_weights_are_the_square_root_of_running_totals():
    weights = np.array(root_weights(60, grid=GRID)) / GRID
    toeplitz = np.array([[weights[i - j] if i >= j else 0 for j in range(60)] for i in range(60)])
    np.testing.assert_allclose(toeplitz @ toeplitz, np.tril(np.ones((60, 60))), atol=1e-4)
    np.testing.assert_allclose(np.convolve(weights, invert(weights))[:60], np.eye(60)[0], atol=1e-12)


def test_the_noise_of_a_year_of_daily_totals_stays_below_three():
    """Independent noise on counts reaches 19.1, a binary tree 8.5, and Honaker's estimates from it 6.6."""
    assert worst_total(365) < 2.945
    assert worst_total(12) < 1.86
    assert worst_total(1) == 1


@pytest.mark.parametrize("answer", ["counts", "totals", "window", "change"])
def test_estimates_are_exact_without_noise_and_their_noise_is_that_of_the_matrices(answer):
    random = np.random.default_rng(1)
    periods = 17
    lags = {
        "counts": np.eye(periods)[0],
        "totals": np.ones(periods),
        "window": (np.arange(periods) < 4) * 1.0,
        "change": np.eye(periods)[0] - np.eye(periods)[1],
    }[answer]
    weights = np.array(root_weights(30, grid=GRID)) / GRID
    measured, wanted = (
        np.array([[each[i - j] if i >= j else 0 for j in range(periods)] for i in range(periods)])
        for each in (weights, lags)
    )
    arrivals = random.poisson(5, (periods, 3)).astype(float)
    found = estimate_sums(measured @ arrivals, weights, 2.0, answer=lags)
    np.testing.assert_allclose(found.values, wanted @ arrivals, atol=1e-8)
    rows = wanted @ np.linalg.inv(measured)
    np.testing.assert_allclose(found.deviations, 2.0 * np.linalg.norm(rows, axis=1), atol=1e-8)


def test_later_sums_do_not_change_earlier_estimates():
    random = np.random.default_rng(2)
    sums = random.normal(size=(20, 2))
    weights = np.array(root_weights(40, grid=GRID)) / GRID
    whole = estimate_sums(sums, weights, 1.0, answer=np.ones(20))
    part = estimate_sums(sums[:7], weights, 1.0, answer=np.ones(7))
    assert (whole.values[:7] == part.values).all()
