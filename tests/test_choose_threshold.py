"""The stream of answers: what it compares, when it stops, what it refuses."""

import copy
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
import sfumato.choose as threshold
from sfumato.accounting import Budget, Ledger
from sfumato.choose import Terms, above_threshold, noise_scales, split_epsilon


@pytest.fixture
def script(monkeypatch):
    """Noise from a list, and the scales it was asked for."""

    def start(*noise):
        left, scales = list(noise), []

        def draw(scale):
            scales.append(scale)
            return left.pop(0) if left else 0

        monkeypatch.setattr(threshold, "_draw", draw)
        return scales

    return start


def test_a_stream_stops_after_its_answers():
    stream = above_threshold([0, 10**6, 0, 10**6, 10**6, 0], 10**5, 1, 1, count=2)
    assert list(stream) == [False, True, False, True]
    assert (stream.asked, stream.given, stream.is_done) == (4, 2, True)
    assert list(stream) == []


def test_any_iterable_of_numbers_will_do():
    values = np.array([0, 0, 10**6])
    assert list(above_threshold(values, 10**5, epsilon=1, sensitivity=1)) == [False, False, True]
    assert list(above_threshold(iter([0.5, "1/3"]), 10**5, 1, 1)) == [False, False]
    assert list(above_threshold(None, 10**5, 1, 1)) == []


def test_answers_no_are_free_however_many():
    stream = above_threshold([0] * 2000, 10**6, 1, 1)
    assert list(stream) == [False] * 2000
    assert not stream.is_done
    assert stream.ask(10**7)


def test_a_finished_stream_refuses_and_does_not_evaluate():
    stream = above_threshold(None, 0, 1, 1)
    assert stream.ask(lambda: 10**6)
    called = []
    with pytest.raises(sf.BudgetExceeded, match="no more are paid for"):
        stream.ask(lambda: called.append(1))
    assert not called


def test_the_comparison_and_the_fresh_noise_of_the_threshold(script):
    # A yes draws the threshold anew, but for the last one.
    scales = script(3, 2, 3, 100, -200, 200)
    stream = above_threshold([10, 10, 10, 5], 10, 13, 1, count=2)
    assert list(stream) == [False, True, False, True]
    e1, e2 = Fraction(5, 2), Fraction(4)
    assert scales == [1 / e1, 2 / e2, 2 / e2, 1 / e1, 2 / e2, 2 / e2]


def test_noise_equal_to_the_threshold_is_above(script):
    script(0, 0, 0)
    assert above_threshold([10], 10, 1, 1).ask(10)
    script(0, -1)
    assert not above_threshold([10], 10, 1, 1).ask(10)


def test_scales_follow_lyu_su_and_li():
    terms = Terms(epsilon=Fraction(2), sensitivity=Fraction(3))
    first, second = split_epsilon(Fraction(1), monotone=False)
    assert (first, second) == (Fraction(5, 13), Fraction(8, 13))
    assert noise_scales(terms, count=2, grid=1) == (3 / first, 6 / second)
    monotone = Terms(epsilon=Fraction(2), sensitivity=Fraction(3), monotone=True)
    assert noise_scales(monotone, count=2, grid=1) == (6, 6)


def test_the_split_is_near_the_best():
    def variance(share, factor):
        return 1 / share**2 + factor**2 / (1 - share) ** 2

    for monotone, factor in ((False, 2), (True, 1)):
        share = float(split_epsilon(Fraction(1), monotone=monotone)[0])
        best = min(variance(each / 1000, factor) for each in range(1, 1000))
        assert variance(share, factor) < best * 1.0001


def test_values_and_threshold_are_read_on_the_grid_of_the_sensitivity(script):
    scales = script()
    # Hundredths: 1.239 is 123 of them, and the threshold 1.231 needs 124.
    assert not above_threshold(None, "1.231", 1, "0.07").ask("1.239")
    assert above_threshold(None, "1.231", 1, "0.07").ask(1.24)
    first, second = split_epsilon(Fraction(1), monotone=False)
    assert scales[:2] == [7 / first, 14 / second]


def test_a_coarser_grid_rounds_the_sensitivity_up(script):
    scales = script()
    above_threshold(None, 1, 1, "0.07", grid=10).ask(1)
    first, second = split_epsilon(Fraction(1), monotone=False)
    assert scales == [1 / first, 2 / second]


def test_the_charge_comes_first_and_covers_all_answers(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", Budget(1))
    seen = []

    def queries():
        for _ in range(3):
            seen.append(ledger.report().spent)
            yield lambda: 10**6

    stream = above_threshold(queries(), 0, "0.6", 1, count=3, ledger=ledger, name="alarms")
    assert list(stream) == [True, True, True]
    assert seen == [Fraction(6, 10)] * 3
    assert stream.cost.epsilon == Fraction(6, 10)
    assert (stream.cost.kind, stream.cost.count) == ("pure", 3)
    assert stream.entry.costs == (stream.cost,)
    assert ledger.report().spent == Fraction(6, 10)


def test_a_query_without_a_number_tells_nothing_and_answers_nothing():
    stream = above_threshold(None, 0, 1, 1)
    with pytest.raises(sf.RecipeError, match="finite number") as caught:
        stream.ask(lambda: "private words")
    assert "private words" not in str(caught.value)
    assert caught.value.__context__ is None
    assert stream.asked == 0


def test_a_stream_is_not_copied():
    stream = above_threshold(None, 0, 1, 1)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            attempt(stream)
    assert repr(stream) == "AboveThreshold(0 of 1 given, 0 asked)"


def test_a_stream_belongs_to_one_process(monkeypatch):
    stream = above_threshold(None, 0, 1, 1)
    monkeypatch.setattr(threshold.os, "getpid", lambda: -1)
    with pytest.raises(sf.RecipeError, match="another process"):
        stream.ask(1)


def test_threads_do_not_get_more_answers_than_are_paid_for():
    stream = above_threshold(None, 0, 1, 1, count=5)
    answers = []

    def ask():
        try:
            answers.append(stream.ask(10**6))
        except sf.BudgetExceeded:
            answers.append(None)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(True) == 5
    assert answers.count(None) == 15
