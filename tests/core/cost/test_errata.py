"""The figures of docs/errata.md, computed."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from helpers.rho import max_rho
from sfumato.accounting import (
    Cost,
    discrete_laplace_rho,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    pure_to_rho,
    rho_to_epsilon,
)

ERRATA = Path(__file__).parents[3] / "docs" / "errata.md"
DELTA = 2.5e-5
FINE = {"delta": DELTA, "sensitivity": 150, "count": 66}
WIDE = {"delta": DELTA, "sensitivity": 200, "count": 66}


def normal(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def printed(figure):
    assert figure in ERRATA.read_text(encoding="utf-8"), f"{figure} is not in docs/errata.md"
    return float(figure)


def old_sigma(*, epsilon, delta, sensitivity, count):
    """The sigma by epsilon = rho + 2 sqrt(rho ln(1/delta)) (Bun and Steinke 2016): valid and wasteful."""
    log = -math.log(delta)
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    return math.sqrt(count) * sensitivity / (math.sqrt(2) * root)


def test_published_scales_come_from_the_old_conversion():
    assert old_sigma(epsilon=1, **FINE) == pytest.approx(printed("5739.36"), abs=5e-3)
    assert old_sigma(epsilon=10, **WIDE) == pytest.approx(printed("895.42"), abs=5e-3)


def test_exact_scales():
    assert gaussian_sigma(epsilon=1, **FINE) == pytest.approx(printed("4290.24"), abs=5e-3)
    assert gaussian_sigma(epsilon=10, **WIDE) == pytest.approx(printed("784.12"), abs=5e-3)


def test_scales_by_the_newer_conversion_of_zcdp():
    fine = 150 * math.sqrt(66 / 2 / float(max_rho(1, DELTA)))
    wide = 200 * math.sqrt(66 / 2 / float(max_rho(10, DELTA)))
    assert fine == pytest.approx(printed("4677.41"), abs=5e-3)
    assert wide == pytest.approx(printed("833.01"), abs=5e-3)


def test_true_epsilon_at_the_published_scales():
    assert gaussian_epsilon(sigma=5739.36, **FINE) == pytest.approx(printed("0.7247"), abs=5e-5)
    assert gaussian_epsilon(sigma=895, **WIDE) == pytest.approx(printed("8.488"), abs=5e-4)


def test_true_delta_at_the_published_scales():
    fine = gaussian_delta(epsilon=1, sigma=5739.36, sensitivity=150, count=66)
    wide = gaussian_delta(epsilon=10, sigma=895, sensitivity=200, count=66)
    assert fine == pytest.approx(printed("8.48e-8"), rel=2e-3)
    assert wide == pytest.approx(printed("5.67e-7"), rel=2e-3)


def test_the_printed_formula_has_the_sign_of_its_first_argument_turned():
    mu = math.sqrt(66) * 150 / 4290.24
    wrong = normal(1 / mu - mu / 2) - math.e * normal(-1 / mu - mu / 2)
    right = normal(mu / 2 - 1 / mu) - math.e * normal(-1 / mu - mu / 2)
    assert wrong > 0.99
    assert right == pytest.approx(DELTA, rel=1e-4)


def test_the_exact_plan_reads_higher_through_zcdp():
    cost = Cost(kind="gaussian", scale="4290.24", sensitivity=150, count=66)
    assert rho_to_epsilon(cost.rho, DELTA) == pytest.approx(printed("1.0996"), abs=5e-5)


def test_twenty_cells_with_noise_for_one_cost_twenty_epsilon():
    assert Cost(kind="laplace", scale=1, sensitivity=20).epsilon == 20
    assert 20 * math.exp(-1) == pytest.approx(printed("7.36"), abs=5e-3)


def test_delta_at_the_nominal_epsilon_of_twenty_cells():
    # The loss of one cell: an atom at +1, one at -1, and 1 - 2x with density exp(-x) / 2 between.
    steps = 400
    x = (np.arange(steps) + 0.5) / steps
    single = np.zeros(2 * steps + 1)
    single[-1] += 0.5
    single[0] += math.exp(-1) / 2
    at = (2 - 2 * x) * steps
    low = np.floor(at).astype(int)
    weight = np.exp(-x) / 2 / steps
    np.add.at(single, low, weight * (1 - (at - low)))
    np.add.at(single, low + 1, weight * (at - low))
    total = np.array([1.0])
    for _ in range(20):
        total = np.convolve(total, single)
    loss = np.arange(len(total)) / steps - 20
    delta = float(np.sum(total * np.maximum(0.0, 1 - np.exp(1 - loss))))
    assert delta == pytest.approx(printed("0.918"), abs=1e-3)


def test_the_exponential_mechanism_without_the_two_reaches_two_epsilon():
    # One candidate scores 1 against m zeros; next door it scores 0 against m ones.
    m, epsilon = 10**4, 1.0
    here = math.exp(epsilon) / (math.exp(epsilon) + m)
    there = 1 / (1 + m * math.exp(epsilon))
    assert math.log(here / there) == pytest.approx(printed("1.9998"), abs=1e-4)


def test_noise_for_a_mean_scaled_by_a_private_count_has_unbounded_loss():
    # Add or remove one record: n = 5 or 6, all values zero, noise B / (n epsilon).
    def log_density(x, n):
        return math.log(n / 2) - n * abs(x)

    losses = [log_density(x, 5) - log_density(x, 6) for x in (1, 10, 100)]
    assert losses[2] > 99 > losses[1] > 9 > losses[0]


def test_three_runs_on_one_table_add_up():
    runs = [Cost(kind="laplace", scale=39 / Fraction(e), sensitivity=39) for e in ("8", "1", "0.3")]
    assert sum(run.epsilon for run in runs) == Fraction(printed("9.3")).limit_denominator(10)


def test_whole_number_laplace_noise_needs_its_own_constant():
    continuous = 1 - 1 + math.exp(-1)  # epsilon - 1 + exp(-epsilon)
    assert continuous == pytest.approx(printed("0.3679"), abs=5e-5)
    discrete = discrete_laplace_rho(Fraction(1), Fraction(1))
    assert float(discrete) == pytest.approx(printed("0.4621"), abs=5e-5)
    assert discrete == pure_to_rho(Fraction(1))


def test_noise_and_steps_of_the_deep_learning_toolbox():
    sigma, clip = 5, 0.01
    asked = sigma * 2 * clip
    assert (sigma * clip) ** 2 == pytest.approx(printed("0.0025"))
    assert sigma * clip**2 == pytest.approx(printed("0.0005"))
    assert asked / (sigma * clip) ** 2 == pytest.approx(40)
    assert asked / (sigma * clip**2) == pytest.approx(200)
    assert asked / (sigma * clip / 600) == pytest.approx(printed("1200"))
    assert int(60000 / 1800 * 2400 + 1) == printed("80001")
