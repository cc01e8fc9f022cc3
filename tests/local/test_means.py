"""Means of numbers: ranges, missing values, exact lines, and means that come back."""

from fractions import Fraction

import numpy as np
import pytest

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.local import DuchiMean, LaplaceMean, PiecewiseMean, make_mechanism, read_mechanism
from sfumato.local.draws import WORDS
from sfumato.local.means import STEPS, check_numbers

KINDS = [LaplaceMean, DuchiMean, PiecewiseMean]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", ["1e-6", "0.5", "4", "50"])
@pytest.mark.parametrize("ends", [(0, 1), (-300, 500), ("-1e200", "1e200"), ("1000000", "1000000.5")])
def test_means_come_back(kind, epsilon, ends):
    mechanism = kind(epsilon=epsilon, low=ends[0], high=ends[1])
    low, high = float(ends[0]), float(ends[1])
    values = np.linspace(low / 2 + high / 2, high, 4001)
    estimate = mechanism.estimate(mechanism.respond(values))
    width = high - low
    # Ten standard errors and a slack for rare events: false alarms are rarer than one in 10^15.
    assert abs(estimate.mean - (low + 0.75 * width)) <= 10 * estimate.standard_error + 0.01 * width
    assert estimate.standard_error > 0
    below, above = estimate.interval()
    assert below < estimate.mean < above
    assert read_mechanism(mechanism.to_record()) == mechanism
    assert estimate.to_record()["people"] == 4001


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_held_to_the_range(kind, seeded):
    mechanism = kind(epsilon=3, low=0, high=1)
    inside = mechanism._draw(
        check_numbers([0.0, 1.0], low=Fraction(0), high=Fraction(1), default=None), seeded(1)
    )
    outside = mechanism._draw(
        check_numbers([-np.inf, np.inf], low=Fraction(0), high=Fraction(1), default=None), seeded(1)
    )
    assert np.array_equal(inside, outside)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_values_are_refused_or_taken_for_the_default(kind):
    mechanism = kind(epsilon=1, low=0, high=1)
    with pytest.raises(SchemaError, match="missing"):
        mechanism.respond([0.5, np.nan])
    with pytest.raises(SchemaError, match="missing"):
        mechanism.respond([0.5, np.nan], default=float("nan"))
    assert len(mechanism.respond([0.5, np.nan], default=0.5)) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [["a"], [None], [[1.0]], 3.0, [1 + 2j], [[1], [2, 3]]])
def test_what_is_no_number_is_refused(kind, values):
    with pytest.raises(SchemaError):
        kind(epsilon=1, low=0, high=1).respond(values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", [(1, 0), (1, 1), ("nan", 1), (0, "inf"), (0, "1e301"), (10**20, 10**20 + 1)])
def test_impossible_ranges_are_refused(kind, ends):
    with pytest.raises(RecipeError):
        kind(epsilon=1, low=ends[0], high=ends[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("responses", [[0.5], ["1"], [[1, 0]], [2**61], [-(2**61)], [None], []])
def test_foreign_answers_are_refused(kind, responses):
    with pytest.raises(SchemaError):
        kind(epsilon=1, low=0, high=1).estimate(responses)


def test_bits_that_no_truth_explains_are_refused():
    with pytest.raises(SchemaError, match="not given by this mechanism"):
        DuchiMean(epsilon=1, low=0, high=1).estimate(np.ones(10_000, np.uint8))


def test_laplace_noise_needs_some_epsilon():
    with pytest.raises(RecipeError, match="too small"):
        LaplaceMean(epsilon="1e-9", low=0, high=1)


@pytest.mark.parametrize("epsilon", ["0.001", "1", "5", "30"])
@pytest.mark.parametrize("place", [0, 1, STEPS // 3, STEPS])
def test_the_line_of_the_piecewise_law_is_exact(epsilon, place):
    mechanism = PiecewiseMean(epsilon=epsilon, low=0, high=1)
    window, share = mechanism.window, Fraction(mechanism.inside, WORDS)
    cells = STEPS + window
    inside_sum = window * place + window * (window - 1) // 2
    outside_sum = cells * (cells - 1) // 2 - inside_sum
    expected = share * Fraction(inside_sum, window) + (1 - share) * Fraction(outside_sum, STEPS)
    intercept, slope = mechanism.line
    assert intercept + slope * place == expected


@pytest.mark.parametrize("epsilon", [0.3, 1, 4])
@pytest.mark.parametrize("place", [0.0, 0.25, 0.5, 1.0])
def test_variances_are_those_of_the_literature(epsilon, place):
    t, half, e = 2 * place - 1, np.exp(epsilon / 2), np.exp(epsilon)
    piecewise = t * t / (half - 1) + (half + 3) / (3 * (half - 1) ** 2)
    duchi = ((e + 1) / (e - 1)) ** 2 - t * t
    for name, expected in (
        ("piecewise", piecewise),
        ("duchi", duchi),
        ("laplace", 8 / epsilon**2),
    ):
        made = make_mechanism(name, epsilon=epsilon, low=0, high=1)
        assert made.variance(place) == pytest.approx(expected / 4, rel=1e-5)


@pytest.mark.parametrize("kind", [LaplaceMean, PiecewiseMean])
def test_answers_in_the_unit_of_the_values(kind):
    mechanism = kind(epsilon=50, low=10, high=20)
    numbers = mechanism.to_numbers(mechanism.respond([12.0] * 1000))
    assert numbers.mean() == pytest.approx(12, abs=0.2)


def test_the_grid_covers_the_range_evenly():
    places = check_numbers([2, 3, 4], low=Fraction(2), high=Fraction(4), default=None)
    assert places.tolist() == [0, STEPS // 2, STEPS]
    assert (
        check_numbers(np.array([3], np.uint8), low=Fraction(2), high=Fraction(4), default=None).dtype
        == np.int64
    )
