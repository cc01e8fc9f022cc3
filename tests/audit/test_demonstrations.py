"""The two attacks on the SQL layer: what plain SQL gives away, and what the ledger keeps."""

import json
from fractions import Fraction

import pytest

from sfumato.anonymity.attack import INTERNAL, AttackError
from sfumato.audit.demonstrations import (
    describe_average,
    describe_difference,
    invent_town,
    run_average,
    run_difference,
)


@pytest.fixture(scope="module")
def difference():
    return run_difference(epsilon="0.1", budget="0.6")


@pytest.fixture(scope="module")
def average():
    return run_average(epsilon="0.1", budget="0.4", repeats=12)


def test_plain_sql_gives_the_secret_away(difference):
    assert difference.exact_difference == 1
    assert difference.exact[0] > 1


def test_the_difference_of_noisy_counts_is_noise(difference):
    assert len(difference.rounds) == 3
    assert difference.refused
    assert difference.spent == Fraction(6, 10)
    # Twelve standard deviations: the noise has light tails, and a fault would not.
    assert abs(difference.estimate - 1) < 12 * difference.deviation
    assert difference.deviation > 5
    for first, second in difference.rounds:
        assert not first.repeated
        assert not second.repeated
        assert first.high - first.low >= 40


def test_a_belief_stays_within_twice_what_was_spent(difference):
    import math

    low, high = difference.belief
    assert high == pytest.approx(1 / (1 + math.exp(-1.2)))
    assert low == pytest.approx(1 - high)


def test_repeats_bring_the_same_noise_and_cost_nothing(average):
    assert average.different == 1
    assert average.repeats_spent == Fraction(1, 10)
    assert [reply.repeated for reply in average.repeats] == [False] + [True] * 11


def test_other_words_cost_budget_until_there_is_none(average):
    assert len(average.reworded) == 3
    assert average.refused
    assert average.spent == Fraction(4, 10)
    assert abs(average.estimate - average.exact) < 12 * average.deviation
    assert average.careless_deviation < average.deviation
    assert average.careless_repeats == 3071


def test_both_say_what_they_are(difference, average):
    for attack, describe in ((difference, describe_difference), (average, describe_average)):
        text = describe(attack)
        assert text.startswith(INTERNAL)
        assert "invented clinic" in text
        assert "budget is spent" in text
        record = attack.to_record()
        assert record["internal"] == INTERNAL
        assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert "= 1: the secret is out" in describe_difference(difference)
    assert "asked 12 times: 1 different answer" in describe_average(average)


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 1, "budget": "0.5"},
        {"epsilon": "0.001", "budget": 1},
        {"people": 5},
    ],
)
def test_attacks_that_cannot_be_shown_are_refused(options):
    with pytest.raises(AttackError):
        run_difference(**options)


def test_a_budget_for_one_count_is_enough_to_average_nothing():
    attack = run_average(epsilon=1, budget=1, repeats=2)
    assert (attack.paid, attack.reworded, attack.refused) == (1, (), True)
    with pytest.raises(AttackError, match="from 1"):
        run_average(repeats=0)


def test_a_town_is_the_same_everywhere():
    town = invent_town(300)
    assert town.register.equals(invent_town(300).register)
    assert town.register["name"].to_pylist()[:2] == invent_town(2).register["name"].to_pylist()
    assert not town.register.equals(invent_town(300, word="other").register)
    assert len(set(town.register["name"].to_pylist())) == 300
    assert 40 < town.patients.num_rows < 120
    with pytest.raises(AttackError):
        invent_town(0)
