"""Choices of a quantile: what one record moves, and that the cost says no less."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from sfumato.core.algebra.asks import (
    Rank,
    Ranked,
    cost_measure,
    count_moved,
    list_windows,
    score_range,
    score_steps,
)
from sfumato.core.algebra.measures import Measure
from sfumato.core.errors import UnsupportedQuery
from sfumato.core.facts.table import PrivacyUnit

STEPS = 12
WINDOW = Rank(rate=Fraction(1), nearest=5)


def make(share):
    facts = {"low": Fraction(0), "high": Fraction(12), "steps": STEPS, "quantile": Fraction(share)}
    return Measure(statistic="quantile", tree=exp.column("x"), **facts)


def score(histogram, measure, rank, answer=None):
    answers = None if answer is None else np.array([answer])
    return score_steps(np.array([histogram], np.int64), measure, rank, answers)[0]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("share", ["1/2", "1/10", "99/100"])
@given(
    histogram=st.lists(st.integers(0, 4), min_size=STEPS + 1, max_size=STEPS + 1),
    places=st.tuples(st.integers(0, STEPS), st.integers(0, STEPS)),
    answer=st.integers(0, STEPS + 2),
)
def test_one_record_moves_no_score_by_more_than_is_charged(neighbours, share, histogram, places, answer):
    measure, unit = make(share), PrivacyUnit(column="p", max_records=1, neighbours=neighbours)
    one, two = list(histogram), list(histogram)
    one[places[0]] += 1
    two[places[1]] += neighbours == "replace"
    for rank, at in ((Rank(rate=Fraction(1), shift=3), None), (WINDOW, answer)):
        moved = np.abs(score(one, measure, rank, at) - score(two, measure, rank, at)).max()
        assert 2 * moved <= score_range(measure, unit, near=at is not None)


@pytest.mark.parametrize("share", ["1/2", "1/10", "99/100"])
def test_a_record_moves_a_score_by_all_that_is_charged(share):
    measure, unit = make(share), PrivacyUnit(column="p", max_records=1)
    histogram = [9] * (STEPS + 1)
    found = {None: 0, 6: 0}
    for at in found:
        rank = Rank(rate=Fraction(1)) if at is None else WINDOW
        for place in range(STEPS + 1):
            more = [count + (place == each) for each, count in enumerate(histogram)]
            moved = score(more, measure, rank, at) - score(histogram, measure, rank, at)
            found[at] = max(found[at], np.abs(moved).max())
        assert 2 * found[at] == score_range(measure, unit, near=at is not None)


def test_a_window_is_the_smallest_that_holds_so_many_records():
    # Around step 6: one record in it, two at a distance of one, ten at two.
    histogram = [0, 0, 0, 6, 1, 1, 1, 4, 0, 0, 0, 0, 0]
    scores = score(histogram, make("1/2"), WINDOW, 6)
    reach = list_windows(STEPS)
    assert reach.tolist()[:4] == [0, 1, 2, 3]
    assert scores.argmax() == 2
    assert scores.tolist()[:4] == [1 - 5, 3 - 5, min(5 - 3, 13 - 5), 5 - 13]
    assert reach[-1] > STEPS + 1, "the largest window holds everything"
    assert (score([0] * 13, make("1/2"), WINDOW, 6)).argmax() == reach.size - 1


@pytest.mark.parametrize(("neighbours", "times"), [("add-remove", 1), ("replace", 2)])
def test_every_draw_of_a_quantile_has_its_cost(neighbours, times):
    unit = PrivacyUnit(column="p", max_records=3, neighbours=neighbours)
    drawn = Ranked((Rank(rate=Fraction(1, 100)), Rank(rate=Fraction(1, 200), nearest=5)), Fraction(60))
    answer, window, count = cost_measure(make("1/10"), drawn, unit, 4)
    assert (answer.kind, answer.scale) == ("permute-and-flip", Fraction(2 * 9 * 3, 100) * times)
    assert (window.kind, window.scale) == ("permute-and-flip", Fraction(2 * 3, 200) * times)
    assert (
        (count.kind, count.scale, count.sensitivity)
        == ("laplace", 60, count_moved(unit))
        == (
            "laplace",
            60,
            3 * times,
        )
    )


def test_no_window_comes_before_its_answer():
    with pytest.raises(UnsupportedQuery, match="around no answer"):
        cost_measure(make("1/2"), Ranked((WINDOW,)), PrivacyUnit(column="p", max_records=1), 1)
