"""Choices end to end: what is charged when, what is read exactly, what is refused before it is paid for."""

from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
import sfumato.choose as mechanisms
from sfumato.accounting import Budget, Ledger
from sfumato.choose import (
    Pick,
    above_threshold,
    choose,
    exponential,
    noisy_max,
    permute_and_flip,
    quantile,
    top,
)

MECHANISMS = ["permute-and-flip", "exponential", "noisy-max"]
FUNCTIONS = [exponential, permute_and_flip, noisy_max]
TERMS = {"epsilon": 1, "sensitivity": 1}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.db", Budget(2))


@pytest.mark.parametrize("function", [*FUNCTIONS, choose])
def test_a_choice_says_what_it_chose_and_what_it_costs(function):
    pick = function(["a", "b", "c"], [0, 10**6, 5], epsilon="1/2", sensitivity=3)
    assert isinstance(pick, Pick)
    assert (pick.candidate, pick.index, pick.entry) == ("b", 1, None)
    assert pick.cost.epsilon == Fraction(1, 2)
    assert (pick.cost.unit, pick.cost.neighbours) == ("row", "add-remove")


def test_the_kind_of_cost_is_that_of_the_mechanism():
    kinds = [choose("ab", [0, 1], **TERMS, mechanism=each).cost.kind for each in MECHANISMS]
    assert kinds == ["permute-and-flip", "exponential", "permute-and-flip"]
    assert noisy_max("ab", [0, 1], **TERMS, noise="laplace").cost.kind == "pure"
    assert exponential("ab", [0, 1], **TERMS).cost.rho == Fraction(1, 8)
    assert permute_and_flip("ab", [0, 1], **TERMS).cost.rho > Fraction(4, 10)
    assert choose("ab", [0, 1], **TERMS).cost.kind == "permute-and-flip", "the default"


def watch(monkeypatch):
    """The scores, rates and scales that are about to be drawn with, in order."""
    seen = []

    def keep(kind, name):
        def stand_in(scores, **facts):
            (number,) = facts.values()
            seen.append((kind, list(np.asarray(scores).ravel()), number))
            return np.zeros(1, np.int64) if name == "exponential_choice" else 0

        return stand_in

    for kind, name in {
        "exponential": "exponential_index",
        "many": "exponential_choice",
        "flip": "permute_and_flip_index",
        "laplace": "laplace_max_index",
    }.items():
        monkeypatch.setattr(mechanisms, name, keep(kind, name))
    return seen


@pytest.mark.parametrize(("monotone", "divisor"), [(False, 2), (True, 1)])
def test_the_factor_two_is_there_unless_the_scores_are_monotone(monkeypatch, monotone, divisor):
    seen = watch(monkeypatch)
    terms = {"epsilon": "0.3", "sensitivity": "1.5", "monotone": monotone}
    rate = Fraction(3, 10) / Fraction(3, 2) / divisor
    exponential("ab", [1, 2], **terms)
    permute_and_flip("ab", [1, 2], **terms)
    noisy_max("ab", [1, 2], **terms)
    # On halves, where the sensitivity is whole, scores and scale are twice as many.
    noisy_max("ab", [1, "2.3"], **terms, noise="laplace")
    assert seen == [
        ("exponential", [1, 2], rate),
        ("flip", [1, 2], rate),
        ("flip", [1, 2], rate),
        ("laplace", [2, 4], 2 / rate),
    ]


def test_many_whole_scores_take_the_fast_way_and_others_do_not(monkeypatch):
    seen = watch(monkeypatch)
    exponential(range(2000), range(2000), **TERMS)
    exponential(range(2000), [Fraction(1, 3)] * 2000, **TERMS)
    exponential(range(2000), [2**70] * 2000, **TERMS)
    assert [kind for kind, _, _ in seen] == ["many", "exponential", "exponential"]


def test_both_ways_choose_the_same_where_there_is_no_doubt():
    scores = [0] * 1500
    scores[700] = 10**6
    assert exponential(range(1500), scores, **TERMS).candidate == 700
    assert exponential(range(1500), [Fraction(each, 3) for each in scores], **TERMS).candidate == 700


@pytest.mark.parametrize("function", [*FUNCTIONS, choose])
def test_the_charge_is_on_disk_before_a_score_is_computed(ledger, function):
    seen = []

    def score(candidate):
        seen.append(ledger.report().spent)
        return len(candidate)

    pick = function(["a", "bb"], score, **TERMS, ledger=ledger, unit="person", name="longest")
    assert seen == [1, 1]
    assert pick.entry in ledger.entries()
    assert pick.entry.costs == (pick.cost,)
    assert pick.entry.description["choice"] == "longest"
    assert pick.cost.unit == "person"


def test_a_score_that_fails_keeps_the_charge(ledger):
    def broken(candidate):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        choose("ab", broken, **TERMS, ledger=ledger)
    assert ledger.report().spent == 1


def test_no_score_is_computed_if_the_charge_does_not_fit(ledger):
    called = []
    for make in (
        lambda: choose("ab", called.append, epsilon=3, sensitivity=1, ledger=ledger),
        lambda: top("ab", called.append, 2, epsilon=3, sensitivity=1, ledger=ledger),
        lambda: quantile(lambda: called.append(1), [1, 2], 0.5, epsilon=3, ledger=ledger),
        lambda: above_threshold(iter(called.append, None), 1, 3, 1, ledger=ledger),
    ):
        with pytest.raises(sf.BudgetExceeded):
            make()
    assert not called
    assert ledger.report().spent == 0


def test_what_is_refused_is_refused_before_the_charge(ledger):
    called = []
    laplace = {"noise": "laplace", "sensitivity": 1, "epsilon": "1e-17"}
    for make, reason in (
        (lambda: choose([], called.append, **TERMS, ledger=ledger), "no candidate"),
        (lambda: choose("ab", [1], **TERMS, ledger=ledger), "one score for each"),
        (lambda: choose("ab", {"a": 1, "b": 2}, **TERMS, ledger=ledger), "function of a candidate"),
        (lambda: choose("ab", {1, 2}, **TERMS, ledger=ledger), "function of a candidate"),
        (lambda: choose("ab", "12", **TERMS, ledger=ledger), "function of a candidate"),
        (lambda: choose("ab", 7, **TERMS, ledger=ledger), "function of a candidate"),
        (lambda: choose("ab", called.append, epsilon=0, sensitivity=1, ledger=ledger), "epsilon"),
        (lambda: choose("ab", called.append, epsilon="nan", sensitivity=1, ledger=ledger), "epsilon"),
        (lambda: choose("ab", called.append, epsilon=1, sensitivity=-1, ledger=ledger), "sensitivity"),
        (lambda: choose("ab", called.append, **TERMS, mechanism="max", ledger=ledger), "mechanism"),
        (lambda: top("ab", called.append, 1, **TERMS, mechanism="max", ledger=ledger), "mechanism"),
        (lambda: choose("ab", called.append, **TERMS, monotone="no", ledger=ledger), "monotone"),
        (lambda: choose("ab", called.append, **TERMS, neighbours="all", ledger=ledger), "neighbours"),
        (lambda: choose("ab", called.append, **TERMS, unit="", ledger=ledger), "unit"),
        (lambda: choose("ab", called.append, **TERMS, name="", ledger=ledger), "name"),
        (
            lambda: choose("ab", called.append, **TERMS, monotone=True, neighbours="replace", ledger=ledger),
            "both ways",
        ),
        (lambda: noisy_max("ab", called.append, **TERMS, noise="gumbel", ledger=ledger), "noise"),
        (lambda: noisy_max("ab", called.append, **laplace, ledger=ledger), "2\\^50"),
        (lambda: top("ab", called.append, 3, **TERMS, ledger=ledger), "k must"),
        (lambda: top("ab", called.append, 0, **TERMS, ledger=ledger), "k must"),
        (lambda: top("ab", called.append, True, **TERMS, ledger=ledger), "k must"),
        (lambda: quantile([], [], 0.5, epsilon=1, ledger=ledger), "no candidate"),
        (lambda: quantile([], [2, 1], 0.5, epsilon=1, ledger=ledger), "ascend"),
        (lambda: quantile([], [1, 1], 0.5, epsilon=1, ledger=ledger), "ascend"),
        (lambda: quantile([], [1, "x"], 0.5, epsilon=1, ledger=ledger), "candidate"),
        (lambda: quantile([], [1, 2], 1.5, epsilon=1, ledger=ledger), "q must"),
        (lambda: quantile([], [1, 2], "1e-9", epsilon=1, ledger=ledger), "q must"),
        (lambda: quantile([], [1, 2], 0.5, epsilon=1, max_records=0, ledger=ledger), "max_records"),
        (lambda: above_threshold([], 1, 1, 1, count=0, ledger=ledger), "count"),
        (lambda: above_threshold([], 1, 1, 1, count=True, ledger=ledger), "count"),
        (lambda: above_threshold([], "x", 1, 1, ledger=ledger), "threshold"),
        (lambda: above_threshold([], 1, 1, 1, grid=0, ledger=ledger), "grid"),
        (lambda: above_threshold([], 1, "1e-17", 1, ledger=ledger), "2\\^50"),
    ):
        with pytest.raises(sf.RecipeError, match=reason):
            make()
    assert not called
    assert ledger.report().spent == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "secret", True, 1j, [1], Decimal("nan")])
def test_a_score_that_is_no_number_is_an_error_that_tells_nothing(value):
    with pytest.raises(sf.RecipeError, match="not a finite number") as caught:
        choose("ab", lambda candidate: value, **TERMS)
    error = caught.value
    while error is not None:
        assert str(value) not in str(error) or value is True
        error = error.__context__


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_exact_kind_of_number_is_a_score(mechanism):
    scores = [0, Fraction(1, 3), Decimal("0.1"), 0.1, np.int64(2), np.float64(0.5), "2/7", -(10**30), 10**6]
    assert choose(range(9), scores, **TERMS, mechanism=mechanism).index == 8
    assert choose(range(3), np.array([0, 0, 10**6]), **TERMS, mechanism=mechanism).index == 2


@pytest.mark.parametrize("function", FUNCTIONS)
def test_huge_scores_decide_and_tiny_epsilon_does_not(function):
    huge = [10**400, 10**400 - 10**390, -(10**400)]
    assert function("abc", huge, epsilon="1e-6", sensitivity=1).candidate == "a"
    assert function("abc", [0, 1, 2], epsilon=50, sensitivity="1/100").candidate == "c"
    drawn = Counter(function("abc", [0, 1, 2], epsilon="1e-6", sensitivity=1).candidate for _ in range(300))
    assert set(drawn) == set("abc")
    assert max(drawn.values()) < 200


@pytest.mark.parametrize("function", [*FUNCTIONS, lambda *a, **k: noisy_max(*a, **k, noise="laplace")])
def test_ties_are_broken_at_random(function):
    # Each of four gets 100 of 400 but for a chance below 1e-9.
    drawn = Counter(function("abcd", [7, 7, 7, 7], epsilon=50, sensitivity=1).candidate for _ in range(400))
    assert all(45 < drawn[each] < 160 for each in "abcd")


@given(st.lists(st.fractions(-5, 5), min_size=1, max_size=6), st.sampled_from(MECHANISMS))
def test_any_scores_give_one_of_the_candidates(scores, mechanism):
    pick = choose(range(len(scores)), scores, **TERMS, mechanism=mechanism)
    assert 0 <= pick.index == pick.candidate < len(scores)


def test_the_names_that_stay():
    from sfumato.choose import above_threshold, exponential, noisy_max, permute_and_flip

    assert all(map(callable, (exponential, permute_and_flip, noisy_max, above_threshold)))


def test_top_shares_epsilon_and_takes_each_candidate_once(ledger):
    picks = top("abcd", [900, 0, 700, 500], 3, epsilon="3/2", sensitivity=1, ledger=ledger)
    assert picks.candidates == ("a", "c", "d")
    assert picks.indices == (0, 2, 3)
    assert (picks.cost.scale, picks.cost.count, picks.cost.epsilon) == (Fraction(1, 2), 3, Fraction(3, 2))
    assert ledger.report().spent == Fraction(3, 2)
    assert picks.entry.costs == (picks.cost,)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_top_of_all_is_a_permutation(mechanism):
    picks = top("abcd", [0, 0, 0, 0], 4, **TERMS, mechanism=mechanism)
    assert sorted(picks.candidates) == list("abcd")
    assert tuple("abcd"[index] for index in picks.indices) == picks.candidates


def test_top_computes_scores_once_and_draws_among_the_rest(monkeypatch):
    seen, called = [], []

    def stand_in(scores, terms, mechanism, noise):
        seen.append((list(scores), terms.rate))
        return len(scores) - 1

    monkeypatch.setattr(mechanisms, "_draw_index", stand_in)
    picks = top("abc", lambda each: called.append(each) or ord(each), 2, epsilon=1, sensitivity=1)
    assert called == list("abc")
    assert seen == [([97, 98, 99], Fraction(1, 4)), ([97, 98], Fraction(1, 4))]
    assert picks.candidates == ("c", "b")


def test_a_quantile_is_read_after_the_charge_and_once(ledger):
    reads = []

    def values():
        reads.append(ledger.report().spent)
        return range(1000)

    pick = quantile(values, [100, 500, 900], "9/10", epsilon=1, ledger=ledger)
    assert (pick.candidate, pick.index, reads) == (900, 2, [1])


def slow_scores(values, edges, share):
    """By the definition: the distance of the wanted rank from those that a candidate covers."""
    total = len(values)
    scores = []
    for edge in edges:
        low = share.denominator * sum(value < edge for value in values)
        high = share.denominator * sum(value <= edge for value in values)
        wanted = share.numerator * total
        scores.append(-max(0, low - wanted, wanted - high))
    return scores


@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(9, 10), Fraction(1, 3), Fraction(1)]),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_scores_of_ranks_are_right_and_move_as_little_as_is_said(values, share, added, other):
    edges = [Fraction(each) for each in (0, 2, 3, 5, 8)]
    found = mechanisms._score_ranks(values, edges, share)
    assert found == slow_scores(values, edges, share)
    most = max(share.numerator, share.denominator - share.numerator)
    more = mechanisms._score_ranks([*values, added], edges, share)
    assert max(abs(a - b) for a, b in zip(found, more, strict=True)) <= most
    exchanged = mechanisms._score_ranks([*values, other], edges, share)
    assert max(abs(a - b) for a, b in zip(more, exchanged, strict=True)) <= share.denominator


def test_the_sensitivity_of_a_rank_is_reached():
    edges = [Fraction(0), Fraction(5)]
    one = mechanisms._score_ranks([9, 9, 9, 9], edges, Fraction(9, 10))
    two = mechanisms._score_ranks([9, 9, 9, 9, 9], edges, Fraction(9, 10))
    assert one[1] - two[1] == 9
    exchanged = mechanisms._score_ranks([9, 9, 9, 5], edges, Fraction(9, 10))
    assert exchanged[1] - one[1] == 10


@pytest.mark.parametrize(("neighbours", "step"), [("add-remove", 9), ("replace", 10)])
def test_the_sensitivity_of_a_quantile_is_derived(monkeypatch, neighbours, step):
    seen = watch(monkeypatch)
    quantile([1], [1, 2], 0.9, epsilon=1, max_records=3, neighbours=neighbours, mechanism="exponential")
    assert seen[0][2] == Fraction(1, 2 * 3 * step)


def test_what_is_no_number_does_not_count():
    edges = [Fraction(0), Fraction(10)]
    dirty = [5, None, float("nan"), "x", float("inf"), -float("inf"), 5.0]
    clean = [5, 11, -1, 5]
    assert mechanisms._score_ranks(dirty, edges, Fraction(1, 2)) == mechanisms._score_ranks(
        clean, edges, Fraction(1, 2)
    )
