"""Shrinkage of noisy counts: towards predictions under much noise, towards what was measured under little."""

import numpy as np
import pytest

from sfumato.inference.shrinkage import fit_shrinkage


def laplace(random, shape, scale):
    return np.rint(random.laplace(scale=scale, size=shape))


@pytest.mark.parametrize("scale", [0.05, 0.3])
def test_with_little_noise_counts_are_what_was_measured(scale):
    noisy = np.array([0.0, 1.0, 2.0, 7.0, 40.0, 350.0, 20_000.0])
    means = fit_shrinkage(noisy, np.full(7, 3.0), scale=scale).expect(np.full(7, 3.0))
    assert np.abs(means - noisy).max() < 0.2


def test_noise_alone_is_shrunk_to_the_prediction():
    random = np.random.default_rng(1)
    predicted = np.repeat([0.5, 20.0], 2000)
    truth = random.poisson(predicted)
    noisy = truth + laplace(random, 4000, 30.0)
    means = fit_shrinkage(noisy, predicted, scale=30.0).expect(predicted)
    assert np.abs(means - truth).mean() < 0.2 * np.abs(noisy - truth).mean()
    assert np.abs(means / predicted - 1).mean() < 0.2


@pytest.mark.parametrize(("shape", "scale"), [(0.3, 1.0), (4.0, 2.0), (50.0, 4.0)])
def test_shrinkage_is_nearer_than_noisy_counts_and_than_predictions(shape, scale):
    random = np.random.default_rng(7)
    predicted = np.full(6000, 6.0)
    truth = random.poisson(predicted * random.gamma(shape, 1 / shape, 6000))
    noisy = truth + laplace(random, 6000, scale)
    means = fit_shrinkage(noisy, predicted, scale=scale).expect(predicted)
    error = ((means - truth) ** 2).mean()
    assert error < ((noisy - truth) ** 2).mean()
    assert error < ((predicted - truth) ** 2).mean()
    assert abs(means.mean() - truth.mean()) < 0.1 * truth.mean()


def test_draws_have_the_law_of_the_counts_behind_the_noise():
    random = np.random.default_rng(3)
    predicted = np.full(20_000, 2.0)
    truth = random.poisson(predicted * random.gamma(1.0, 1.0, 20_000))
    noisy = truth + laplace(random, 20_000, 1.5)
    fitted = fit_shrinkage(noisy, predicted, scale=1.5)
    counts, means = fitted.draw(predicted, np.random.default_rng(0))
    for number in (0, 1, 3):
        assert abs((counts == number).mean() - (truth == number).mean()) < 0.02
    assert abs(counts.mean() - truth.mean()) < 0.1
    assert abs(means.mean() - truth.mean()) < 0.1
    assert np.corrcoef(counts, truth)[0, 1] > 0.5
    again, _ = fitted.draw(predicted, np.random.default_rng(0))
    assert np.array_equal(counts, again)


def test_a_better_prediction_is_likelier():
    random = np.random.default_rng(5)
    better = random.gamma(1.0, 5.0, 3000)
    noisy = random.poisson(better) + laplace(random, 3000, 2.0)
    flat = np.full(3000, better.mean())
    assert (
        fit_shrinkage(noisy, better, scale=2.0).likelihood > fit_shrinkage(noisy, flat, scale=2.0).likelihood
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4, 1e12])
@pytest.mark.parametrize("level", [1e-9, 1.0, 1e6])
def test_no_noise_and_no_prediction_is_too_much(scale, level):
    noisy = np.array([-1e14, -1.0, 0.0, 3.0, 1e5, 1e14])
    fitted = fit_shrinkage(noisy, np.full(6, level), scale=scale)
    means = fitted.expect(np.full(6, level))
    counts, behind = fitted.draw(np.full(6, level), np.random.default_rng(0))
    for values in (means, counts, behind):
        assert np.isfinite(values).all()
        assert (values >= 0).all()


def test_a_count_that_no_law_explains_is_what_was_measured():
    noisy, predicted = np.array([90.0, 0.0, 0.0, 0.0]), np.full(4, 1e-6)
    fitted = fit_shrinkage(noisy, predicted, scale=0.1)
    assert fitted.expect(predicted) == pytest.approx(noisy, abs=0.5)
    counts, _ = fitted.draw(predicted, np.random.default_rng(0))
    assert counts == pytest.approx(noisy, abs=1)
