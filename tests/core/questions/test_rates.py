"""The rates of choices by hand: epsilon over twice what one individual moves a score by."""

from fractions import Fraction

import pytest

from sfumato.core.facts.table import parse_table
from sfumato.core.questions.choices import Candidate, Choice, NormChoice

EPSILON = Fraction(3)


def describe(neighbours):
    facts = {"source": "t.parquet", "unit": "p", "max_records": 5, "neighbours": neighbours}
    return parse_table("t", {**facts, "columns": {"a": {"range": [0, 3]}}})


@pytest.mark.parametrize(("neighbours", "moved"), [("add-remove", 5), ("replace", 10)])
@pytest.mark.parametrize("weight", [1, 7])
def test_a_marginal_is_chosen_by_what_all_records_of_one_individual_move(neighbours, moved, weight):
    candidate = Candidate(columns=("a",), estimate=lambda: None, weight=weight)
    choice = Choice(name="choice", candidates=(candidate,), epsilon=EPSILON)
    assert choice.rate(describe(neighbours)) == EPSILON / (2 * weight * moved)


@pytest.mark.parametrize(("neighbours", "moved"), [("add-remove", 9), ("replace", 10)])
def test_a_norm_is_chosen_by_what_one_individual_moves(neighbours, moved):
    norms = {"columns": ("a",), "norms": (Fraction(1), Fraction(2)), "quantile": Fraction(9, 10)}
    assert NormChoice(name="norm", epsilon=EPSILON, **norms).rate(describe(neighbours)) == EPSILON / (
        2 * moved
    )
