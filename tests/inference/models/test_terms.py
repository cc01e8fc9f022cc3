"""Terms of additive models: bases with rows as long as they may be, fits that noise does not fool."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.inference.models.terms import Evidence, build_basis, join_codes, mix_evidence, shrink

GRID = 2**10


def make_basis(counts, ordered=0):
    counts = np.asarray(counts, float)
    return build_basis(counts, np.arange(counts.size), ordered=ordered, grid=GRID)


def observe(basis, effects, *, variance, generator=None, weight=1.0):
    """The sums that records with these effects by group give, with noise."""
    slopes, sampling, constant = basis.slopes(np.full(basis.counts.size, weight))
    sums = basis.asked.T @ (basis.counts * weight * effects)
    if generator is not None:
        sums = sums + generator.normal(0, math.sqrt(variance), sums.size)
    centred = sampling - np.outer(constant, constant) / (basis.counts.sum() * weight)
    return Evidence(sums=sums, slopes=slopes, sampling=centred, constant=constant, variance=variance)


@given(
    st.lists(st.floats(-50, 5000), min_size=2, max_size=40),
    st.integers(0, 40),
    st.floats(1, 300),
)
def test_no_row_is_longer_than_one_and_hardly_any_is_shorter(counts, ordered, least):
    counts = np.array(counts)
    ordered = min(ordered, counts.size)
    groups = join_codes(counts, ordered=ordered, least=least)
    assert sorted(set(groups.tolist())) == list(range(groups.max() + 1))
    basis = build_basis(counts, groups, ordered=ordered, grid=GRID)
    squares = (basis.weights.astype(object) ** 2).sum(axis=1)
    assert max(squares) <= GRID**2
    if basis.counts.size > 1:
        lengths = np.linalg.norm(basis.directions, axis=1)
        clear = lengths > 1e-3
        # Cutting towards zero takes less than one unit from every weight.
        assert all(math.sqrt(each) > GRID - math.sqrt(basis.rank) - 1 for each in squares[clear])
        assert np.allclose(basis.counts @ basis.directions, 0, atol=1e-6 * basis.counts.sum())


def test_two_labels_are_asked_for_their_difference():
    basis = make_basis([900, 100])
    assert basis.rank == 1
    assert np.allclose(basis.asked[:, 0] * np.sign(basis.asked[1, 0]), [-1, 1], atol=2e-3)


@pytest.mark.parametrize("ordered", [0, 6])
def test_without_noise_the_effects_are_found(ordered):
    basis = make_basis([500, 300, 100, 50, 40, 10], ordered)
    effects = np.array([0.3, -0.2, 0.1, 0.4, -0.5, 0.8])
    effects -= (effects * basis.counts).sum() / basis.counts.sum()
    fitted = shrink(observe(basis, effects, variance=1e-6), spread=1e-9)
    assert np.allclose(basis.directions @ fitted.coefficients, effects, atol=0.02)
    assert fitted.log_odds > 10


def test_noise_alone_is_taken_for_nothing():
    generator = np.random.default_rng(5)
    basis = make_basis([500, 300, 100, 50])
    fits = [
        shrink(observe(basis, np.zeros(4), variance=900.0, generator=generator), spread=1.0)
        for _ in range(200)
    ]
    assert np.mean([fit.log_odds > 1.5 for fit in fits]) < 0.1
    assert np.sqrt(np.mean([(basis.directions @ fit.coefficients) ** 2 for fit in fits])) < 0.2


def test_an_intercept_that_is_off_is_not_taken_for_an_effect():
    basis = make_basis([900, 100])
    evidence = observe(basis, np.full(2, 0.2), variance=1.0)
    sure = shrink(evidence, spread=1e-6)
    doubtful = shrink(evidence, spread=1e-6, doubt=0.1)
    size = [np.abs(basis.directions @ each.coefficients).max() for each in (sure, doubtful)]
    assert size[1] < 0.5 * size[0]


def test_the_band_holds_the_effect_as_often_as_it_says():
    """Effects from the prior: the standardised error has a variance of about one."""
    generator = np.random.default_rng(7)
    basis = make_basis([400, 300, 200, 100])
    errors = []
    for _ in range(400):
        coefficients = generator.normal(0, math.sqrt(0.25), basis.rank)
        effects = basis.directions @ coefficients
        fitted = shrink(observe(basis, effects, variance=400.0, generator=generator), spread=1e-9)
        errors.append((fitted.coefficients[0] - coefficients[0]) / math.sqrt(fitted.covariance[0, 0]))
    assert 0.7 < np.var(errors) < 1.4


def test_sums_that_are_mixed_have_the_noise_of_their_mean():
    basis = make_basis([10, 20])
    one = observe(basis, np.array([0.1, 0.2]), variance=4.0)
    mixed = mix_evidence(one, one, weight=0.5)
    assert mixed.variance == 2.0
    assert np.allclose(mixed.sums, one.sums)
    assert mix_evidence(None, one, weight=0.5) is one
