"""Thresholdout in whole numbers: noise, comparisons, budget, and an exact audit of its privacy."""

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from sfumato.holdout import HoldoutPlan, HoldoutSpent, ReusableHoldout
from sfumato.holdout import guard as guard_module
from sfumato.holdout.guard import Thresholdout
from sfumato.holdout.questions import GRID, Sealed


def make_plan(noise, *, rows=100, budget=3, questions=10, threshold="0.1", sigma="0.02"):
    return HoldoutPlan(
        rows=rows, questions=questions, budget=budget, threshold=threshold, sigma=sigma, noise=noise
    )


def ask(state, public, private):
    """Whether the answer came from the holdout, and the answer; both means as fractions."""
    state.begin()
    steps = int(Fraction(private) * state.plan.rows * GRID)
    value, overfit = state.answer(Fraction(public), Sealed(steps), Fraction(1))
    return overfit, value


def test_the_gaussian_guard_draws_sigma_for_a_comparison_and_for_an_answer(noise):
    state = Thresholdout(make_plan("gaussian"))
    assert noise.drawn == []
    ask(state, "0.5", "0.5")
    sigma = math.ceil(Fraction("0.02") * 100 * GRID)
    assert noise.drawn == [("gaussian", sigma)] * 2


def test_the_laplace_guard_draws_a_threshold_and_then_four_one_and_two_scales(noise):
    state = Thresholdout(make_plan("laplace"))
    scale = math.ceil(Fraction("0.02") * 100 * GRID)
    assert noise.drawn == [("laplace", 2 * scale)]
    noise.drawn.clear()
    ask(state, "0.5", "0.5")
    ask(state, "0.5", "0.9")
    assert noise.drawn == [("laplace", times * scale) for times in (4, 1, 2)] * 2


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_comparisons_are_exact(noise, kind):
    state = Thresholdout(make_plan(kind, budget=5))
    step = Fraction(1, 100 * GRID)
    edge = state.plan.threshold
    assert ask(state, "0.5", Fraction(1, 2) + edge) == (False, 0.5)
    assert ask(state, "0.5", Fraction(1, 2) - edge) == (False, 0.5)
    overfit, value = ask(state, "0.5", Fraction(1, 2) + edge + step)
    assert overfit
    assert value == float(Fraction(1, 2) + edge + step)
    assert ask(state, "0.5", Fraction(1, 2) - edge - step)[0]


def test_noise_moves_the_threshold_and_the_answer(noise):
    state = Thresholdout(make_plan("gaussian", budget=5))
    noise.value = int(0.05 * 100 * GRID)
    assert ask(state, "0.5", "0.64") == (False, 0.5)
    overfit, value = ask(state, "0.5", "0.66")
    assert overfit
    assert value == pytest.approx(0.71)


def test_the_threshold_is_renewed_after_an_answer_from_the_holdout_only(noise):
    noise.value = 7
    state = Thresholdout(make_plan("laplace", budget=5))
    noise.value = 0
    first = state._offset
    assert first.open() == 7
    ask(state, "0.5", "0.5")
    assert state._offset is first
    noise.value = -9
    ask(state, "0.5", "0.9")
    assert state._offset.open() == -9


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_budget_is_of_answers_from_the_holdout(noise, kind):
    state = Thresholdout(make_plan(kind, budget=2))
    for public, private, overfit in (("0.5", "0.5", 0), ("0.5", "0.9", 1), ("0.5", "0.5", 1), ("0", "1", 2)):
        ask(state, public, private)
        assert state.overfit == overfit
    with pytest.raises(HoldoutSpent, match="all 2 answers that may come from it"):
        ask(state, "0.5", "0.5")
    assert state.asked == 4


def test_an_answer_is_refused_even_if_the_budget_went_while_a_question_ran(noise):
    state = Thresholdout(make_plan("gaussian", budget=1))
    state.begin()
    state.begin()
    assert state.answer(Fraction(0), Sealed(100 * GRID), Fraction(1))[1]
    with pytest.raises(HoldoutSpent):
        state.answer(Fraction(0), Sealed(100 * GRID), Fraction(1))


def test_the_number_of_questions_is_bounded(noise):
    state = Thresholdout(make_plan("gaussian", questions=3))
    for _ in range(3):
        ask(state, "0.5", "0.5")
    with pytest.raises(HoldoutSpent, match="all 3 questions"):
        ask(state, "0.5", "0.5")


def test_a_weight_stretches_threshold_and_noise(noise):
    state = Thresholdout(make_plan("gaussian", budget=5))
    half = Fraction(1, 2)
    state.begin()
    noise.value = int(0.01 * 100 * GRID)
    value, overfit = state.answer(Fraction(1, 2), Sealed(int(0.68 * 50 * GRID)), half)
    assert (value, overfit) == (0.5, False)  # 0.18 apart, and 0.22 is the threshold with its noise
    value, overfit = state.answer(Fraction(1, 2), Sealed(int(0.73 * 50 * GRID)), half)
    assert overfit
    assert value == pytest.approx(0.75)


def laplace_weights(scale, reach):
    places = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(places) / scale)
    return places, weights / weights.sum()


def find_edges(plan, private):
    """For each sum of threshold noise and comparison noise from -160 to 160, whether the holdout answers."""
    public, sealed = Fraction(1, 2), Sealed(private)

    def above(offset, compared):
        noise = Sealed((compared, 0, 0))
        return guard_module._decide(plan, public, sealed, Fraction(1), noise, Sealed(offset))[1]

    assert all(above(place, 3) == above(3, place) == above(0, place + 3) for place in range(-9, 9))
    return np.array([above(0, place) for place in range(-160, 161)])


def pattern_chances(steps, scales):
    """The probability of: all public; all public but the last; the first from the holdout."""
    plan = SimpleNamespace(rows=4, threshold_steps=1)
    offsets, weights = laplace_weights(scales[0], 60)
    places, chances = laplace_weights(scales[1], 100)
    edges = {private: find_edges(plan, private) for private in set(steps)}
    total = np.zeros(3)
    for offset, weight in zip(offsets, weights, strict=True):
        above = {
            private: float(chances[edge[places + offset + 160]].sum()) for private, edge in edges.items()
        }
        below = math.prod(1 - above[private] for private in steps[:-1])
        last = above[steps[-1]]
        total += weight * np.array([below * (1 - last), below * last, above[steps[0]]])
    return total


@pytest.mark.parametrize(("scales", "private"), [((2, 4), True), ((2, 1), False), ((0.05, 4), False)])
@pytest.mark.parametrize("questions", [2, 40])
def test_no_pattern_of_sources_tells_more_than_the_sparse_vector_may(monkeypatch, scales, private, questions):
    # In steps of one row: questions of sensitivity 1 that a row moves apart, and scale b = 1, so that the
    # comparisons of one epoch may cost 1 / (2b) + 2 / (4b) = 1. The controls draw too little noise for
    # comparisons, or none for the threshold; they are found out with many questions.
    monkeypatch.setattr(guard_module, "GRID", 1)
    worst = 0.0
    for first, last in ((2, 2), (3, 3), (3, 4), (2, 4)):
        for moved, end in ((1, -1), (-1, 1), (1, 1), (-1, -1)):
            here = pattern_chances([first] * (questions - 1) + [last], scales)
            there = pattern_chances([first + moved] * (questions - 1) + [last + end], scales)
            worst = max(worst, float(np.abs(np.log(here / there)).max()))
    if private:
        assert worst <= 1 + 1e-6
    elif questions > 2:
        assert worst > 1.2


def test_real_noise_is_drawn_when_nothing_is_patched():
    guard = ReusableHoldout(np.zeros(100), np.ones(400), budget=200)
    answers = {guard.query(lambda rows: rows / 2) for _ in range(20)}
    assert len(answers) == 20
    assert all(abs(answer - 0.5) < 0.5 for answer in answers)
