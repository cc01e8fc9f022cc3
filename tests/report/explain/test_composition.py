"""Rules of composition against closed forms written out, against each other, and against planted faults."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import gaussian_epsilon
from sfumato.core.errors import RecipeError
from sfumato.report.explain import composition as module
from sfumato.report.explain.composition import compare_compositions, compose_optimal
from sfumato.report.explain.guarantee import Guarantee


def compare(epsilon, times, *, delta=1e-6, own=0):
    guarantee = Guarantee(kind="epsilon", amount=epsilon, delta=own, times=times)
    return {line.rule: line.epsilon for line in compare_compositions(guarantee, delta=delta)}


def excess(epsilon, times, bound, *, own=0.0):
    """The exact delta of `times` queries at `bound`: Theorem 1.5 of Murtagh and Vadhan, all 2^k outcomes."""
    total = 0.0
    for signs in product((1, -1), repeat=times):
        loss = sum(signs) * epsilon
        total += max(
            0.0, math.exp((loss + times * epsilon) / 2) - math.exp(bound + (times * epsilon - loss) / 2)
        )
    total /= (1 + math.exp(epsilon)) ** times
    return 1 - (1 - own) ** times * (1 - total)


@pytest.mark.parametrize(("epsilon", "times"), [(0.05, 12), (0.5, 9), (1, 6), (0.3, 1), (2.5, 4)])
@pytest.mark.parametrize(("delta", "own"), [(1e-6, 0), (0.01, 0), (0.02, 1e-4), (0.3, 0.01)])
def test_optimal_composition_is_exact(epsilon, times, delta, own):
    guarantee = Guarantee(kind="epsilon", amount=epsilon, delta=own, times=times)
    found = compose_optimal(guarantee, delta=Fraction(str(delta)))
    assert excess(epsilon, times, found, own=own) <= delta * (1 + 1e-9)
    if found > 0:
        assert excess(epsilon, times, found * (1 - 1e-6), own=own) > delta


def test_two_responses_by_hand():
    """Of two responses the best test at the largest loss: A = p^2, B = (1 - p)^2."""
    p = math.e / (1 + math.e)
    found = compare(1, 2, delta=0.1)["optimal"]
    assert found == pytest.approx(math.log((p**2 - 0.1) / (1 - p) ** 2), rel=1e-12)


@given(
    st.floats(0.001, 3), st.integers(1, 60), st.sampled_from([1e-9, 1e-6, 1e-3]), st.sampled_from([0, 1e-12])
)
def test_no_sound_rule_is_below_the_optimal_one(epsilon, times, delta, own):
    found = compare(epsilon, times, delta=delta, own=own)
    for rule in ("basic", "advanced", "zero-concentrated", "Gaussian", "ledger"):
        assert found["optimal"] <= found[rule] * (1 + 1e-9), rule
    assert found["numerical"] <= found["optimal"] * (1 + 1e-3) + 1e-6, "Laplace noise is one such query"


def test_of_many_small_queries_every_later_rule_is_better():
    found = compare("0.01", 1000)
    assert (
        found["optimal"] < found["ledger"] < found["zero-concentrated"] < found["advanced"] < found["basic"]
    )


def test_in_the_limit_the_optimal_rule_is_gaussian():
    """Many responses of a small epsilon are Gaussian noise of mu = epsilon sqrt(k) (Dong, Roth and Su)."""
    found = compare("0.001", 100_000)["optimal"]
    assert found == pytest.approx(gaussian_epsilon(delta=1e-6, sigma=1 / math.sqrt(0.1)), rel=2e-3)


def test_without_delta_only_sums_hold():
    found = compare("0.5", 10, delta=0)
    assert found["basic"] == found["optimal"] == found["ledger"] == found["numerical"] == 5
    assert found["advanced"] is found["zero-concentrated"] is found["Gaussian"] is None


def test_a_failure_likelier_than_delta_has_no_bound():
    assert set(compare("0.5", 10, delta=1e-6, own=1e-3).values()) == {None}


@pytest.mark.parametrize(("epsilon", "times"), [("1e-9", 5), ("0.1", 7), ("2", 3), ("0.2", 90)])
def test_the_numerical_law_is_one_and_dominates(epsilon, times):
    steps = 64
    law = module._laplace_losses(float(epsilon), steps)
    grid = np.arange(-steps, steps + 1) * float(epsilon) / steps
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert (law * np.exp(-grid)).sum() == pytest.approx(1, abs=1e-12), "of the other hypothesis too"
    for bound in np.linspace(-float(epsilon), float(epsilon), 41):
        exact = -math.expm1((bound - float(epsilon)) / 2)
        above = grid > bound
        assert (law[above] * -np.expm1(bound - grid[above])).sum() >= exact - 1e-15
    assert module._compose(law, times).sum() == pytest.approx(1, abs=1e-9)


def excess_of_laplace(bound, *, epsilon=0.3, times=20):
    """The delta at `bound` of sums of losses drawn at random: 200,000, known up to a few percent."""
    noise = np.random.default_rng(5).laplace(0, 1 / epsilon, (200_000, times))
    losses = epsilon * (np.abs(noise - 1) - np.abs(noise)).sum(axis=1)
    return np.maximum(0, -np.expm1(bound - losses)).mean()


def test_laplace_noise_drawn_at_random_is_within_the_numerical_bound():
    assert excess_of_laplace(compare("0.3", 20, delta=0.01)["numerical"]) == pytest.approx(0.01, rel=0.05)


def test_a_loss_rounded_down_is_noticed(monkeypatch):
    """The fault that a numerical accountant must not have: mass moved to smaller losses."""
    honest = compare("0.3", 20, delta=0.01)["numerical"]
    plain = module._laplace_losses

    def optimistic(epsilon, steps):
        law = plain(epsilon, steps)
        return np.concatenate(([law[0] + law[1]], law[2:], [0.0]))

    monkeypatch.setattr(module, "_laplace_losses", optimistic)
    faulty = module.compose_laplace(Guarantee(kind="epsilon", amount="0.3", times=20), delta=Fraction(1, 100))
    assert faulty < honest
    assert excess_of_laplace(faulty) > 0.0105


def test_what_is_refused():
    with pytest.raises(RecipeError, match="with an epsilon"):
        compare_compositions(Guarantee(kind="rho", amount=1), delta=1e-6)
    with pytest.raises(RecipeError, match="below 1"):
        compare_compositions(Guarantee(kind="epsilon", amount=1), delta=1)
