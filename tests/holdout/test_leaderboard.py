"""The Ladder: when a score is shown, and how; that guessing does not climb it; its bound."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from helpers.cases import read_cases
from sfumato.holdout import HoldoutSpent, Leaderboard, QuestionRefused, Standing, ladder_error

LABELS = np.arange(1000) % 2


def right(count, labels=LABELS):
    """Predictions of which exactly the first `count` are right."""
    return np.where(np.arange(labels.size) < count, labels, 1 - labels)


def test_a_score_is_shown_in_steps_and_only_if_it_beats_the_last_by_one():
    board = Leaderboard(LABELS, step="0.01")
    assert board.score is None
    assert [board.submit(right(count)) for count in (604, 609, 610, 611, 580, 1000)] == [
        0.6,
        0.6,
        0.6,
        0.61,
        0.61,
        1.0,
    ]
    assert [standing.improved for standing in board.log] == [True, False, False, True, False, True]
    assert board.log[0] == Standing(number=1, name="submission 1", score=0.6, improved=True)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(1, 60))
def test_what_is_shown_is_within_a_step_of_the_best(counts, steps):
    board = Leaderboard(LABELS, step=Fraction(1, steps))
    last = -1.0
    for place, count in enumerate(counts):
        shown = board.submit(right(count))
        assert shown >= last
        last = shown
        best = max(counts[: place + 1]) / 1000
        assert -1 / (2 * steps) - 1e-12 <= best - shown <= 1 / steps + 1e-12
        assert shown * steps == pytest.approx(round(shown * steps))


def test_the_step_is_one_over_a_whole_number_and_by_default_about_one_over_the_root():
    assert Leaderboard(LABELS).step == Fraction(1, 31)
    assert Leaderboard(LABELS, step=0.3).step == Fraction(1, 3)
    assert Leaderboard([1]).step == 1


def test_fractional_scores():
    def closeness(labels, guesses):
        return 1 - np.abs(labels - guesses)

    board = Leaderboard(np.linspace(0, 1, 400), score=closeness)
    assert board.submit(np.full(400, 0.5)) == pytest.approx(0.75, abs=0.03)
    assert board.submit(np.linspace(0, 1, 400)) == 1


def test_guessing_does_not_climb():
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 2, 500)

    def climb(score):
        """The score after combining every guess that looked better than half: the boosting attack."""
        votes = np.zeros(500)
        for _ in range(500):
            guess = generator.integers(0, 2, 500)
            if score(guess):
                votes += 2 * guess - 1
        return (votes > 0).astype(int)

    plain = climb(lambda guess: np.mean(guess == labels) > 0.5)
    assert np.mean(plain == labels) > 0.7
    board = Leaderboard(labels)
    final = climb(lambda guess: board.submit(guess) > 0.5 and board.log[-1].improved)
    assert np.mean(final == labels) < 0.62
    assert board.submit(final) < 0.62


def test_the_bound_of_the_ladder():
    facts = {"rows": 10_000, "step": "1/10", "submissions": 100}
    error = ladder_error(**facts)
    paths = math.comb(100 + 11, 11)
    assert error == pytest.approx(0.1 + math.sqrt(math.log(2 * 100 * paths / 0.05) / 20_000))
    assert ladder_error(**facts | {"rows": 10**6}) < error < ladder_error(**facts | {"submissions": 10**4})
    assert ladder_error(**facts, failure=1e-6) > error


@pytest.mark.parametrize(("options", "told"), read_cases(__file__, "test_leaderboards_that_cannot_be_made"))
def test_leaderboards_that_cannot_be_made(options, told):
    with pytest.raises(sf.RecipeError, match=told):
        Leaderboard(LABELS, **options)


@pytest.mark.parametrize("predictions", [LABELS[:-1], [], (LABELS, LABELS), 3, None])
def test_submissions_of_another_size_are_refused(predictions):
    board = Leaderboard(LABELS)
    with pytest.raises(sf.SfumatoError):
        board.submit(predictions)
    assert board.log == ()


def test_a_submission_that_cannot_be_scored_is_refused_without_a_value():
    board = Leaderboard(LABELS, score=lambda labels, guesses: labels / guesses)
    with np.errstate(all="ignore"), pytest.raises(QuestionRefused, match="could not be scored") as caught:
        board.submit(np.zeros(1000))
    assert caught.value.__context__ is None
    with pytest.raises(QuestionRefused):
        Leaderboard(LABELS).submit(np.zeros((1000, 2)))


def test_a_leaderboard_closes():
    board = Leaderboard(LABELS, submissions=2)
    board.submit(right(500), name="a")
    board.submit(right(900), name="b")
    with pytest.raises(HoldoutSpent, match="closed: all 2 submissions"):
        board.submit(right(1000))
    assert [standing.name for standing in board.log] == ["a", "b"]
    assert repr(board).startswith("Leaderboard(1000 labels withheld, 2 submissions")
