"""Charges that an earlier one has paid for: no costs, an answer of their own, nothing without the first."""

from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.errors import LedgerError, RecipeError

TENTH = Cost(kind="pure", scale=Fraction(1, 10))


def charge(ledger, *costs, table="t", part_of=None, plan="p"):
    return ledger.charge(
        description={}, plan_digest=plan, table=table, table_version="v", costs=costs, part_of=part_of
    )


def test_a_part_of_a_charge_costs_nothing_and_has_an_answer_of_its_own(path):
    ledger = Ledger(path, Budget(1))
    first = charge(ledger, TENTH)
    second = charge(ledger, part_of=first, plan="q")
    ledger.store_answer(first, b"one")
    ledger.store_answer(second, b"two")
    assert ledger.report().spent == Fraction(1, 10)
    assert ledger.report().last == (TENTH,)
    assert second.part_of == first.sequence
    again = Ledger(path)
    again.verify()
    assert again.find_answer(plan_digest="q", table_version="v")[1] == b"two"
    assert [each["epsilon"] for each in again.report().to_record()["charges"]] == ["0.1", "0"]


def test_nothing_is_free_without_a_charge_of_the_same_table_that_has_costs(path):
    ledger = Ledger(path, Budget(1))
    with pytest.raises(RecipeError, match="at least one Cost"):
        charge(ledger)
    first = charge(ledger, TENTH)
    with pytest.raises(RecipeError, match="at least one Cost"):
        charge(ledger, TENTH, part_of=first)
    with pytest.raises(LedgerError, match="pays for no part"):
        charge(ledger, table="another", part_of=first)
    second = charge(ledger, part_of=first)
    with pytest.raises(LedgerError, match="pays for no part"):
        charge(ledger, part_of=second)
    other = Ledger(path.with_name("other.db"), Budget(1)) if hasattr(path, "with_name") else None
    if other is not None:
        charge(other, TENTH)
        with pytest.raises(LedgerError):
            charge(other, part_of=first)
