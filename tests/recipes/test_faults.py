"""Second tests of what a recipe is held to: each fails for one planted fault of tests/mutants."""

from fractions import Fraction

import pytest

from sfumato.core.errors import RecipeError
from sfumato.core.facts.part import Part
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import check_asks
from sfumato.recipes import CellCounts

SPEC = {
    "source": "t.parquet",
    "unit": "p",
    "max_records": 2,
    "columns": {"a": {"range": [0, 3]}, "b": {"range": [0, 3]}},
}


def part(name, low, high, *columns):
    return Part(name=name, low=Fraction(low), high=Fraction(high), columns=columns)


@pytest.fixture
def plan():
    return CellCounts(table="t", by=("a",)).plan(
        parse_table("t", SPEC), epsilons=(Fraction(1),), delta=Fraction(0)
    )


def test_parts_that_overlap_by_a_hair_are_not_paid_for_as_apart(plan):
    check_asks(plan.table, plan.requests, parts=(part("fit", 0, "4/5"), part("judge", "4/5", 1)))
    with pytest.raises(RecipeError, match="people in common"):
        check_asks(plan.table, plan.requests, parts=(part("fit", 0, "4/5"), part("judge", "3999/5000", 1)))


def test_parts_of_two_splits_are_not_paid_for_as_apart(plan):
    with pytest.raises(RecipeError, match="people in common"):
        check_asks(
            plan.table, plan.requests, parts=(part("fit", 0, "1/2", "a"), part("judge", "1/2", 1, "b"))
        )
