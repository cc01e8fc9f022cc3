"""What a ledger refuses: beyond a share, another relation of neighbours, beyond every order of the filter."""

from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger
from sfumato.accounting.filter import Limits, Trail, admits_trail
from sfumato.errors import BudgetExceeded, SfumatoError


def charge(ledger, name, *, epsilon="0.6", neighbours="add-remove", **facts):
    cost = Cost(kind="pure", scale=Fraction(epsilon), neighbours=neighbours)
    named = {"plan_digest": name, "table": "t", "table_version": "v1"}
    return ledger.charge(description={"asked": name}, costs=(cost,), **named, **facts)


def test_a_person_spends_no_more_than_their_share_and_others_go_on(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", Budget(10))
    ledger.set_share("ana", 1)
    charge(ledger, "first", asked_by="ana")
    with pytest.raises(BudgetExceeded):
        charge(ledger, "second", asked_by="ana")
    charge(ledger, "second", asked_by="ben")
    charge(ledger, "third", asked_by="ana", epsilon="0.4")
    assert [entry.asked_by for entry in ledger.entries() if entry.kind == "charge"] == ["ana", "ben", "ana"]


@pytest.mark.parametrize(("first", "second"), [("add-remove", "replace"), ("replace", "add-remove")])
def test_one_ledger_is_about_one_relation_of_neighbours(tmp_path, first, second):
    ledger = Ledger(tmp_path / "ledger.db", Budget(10))
    charge(ledger, "first", neighbours=first)
    with pytest.raises(SfumatoError, match="neighbours"):
        charge(ledger, "second", neighbours=second)
    assert len([entry for entry in ledger.entries() if entry.kind == "charge"]) == 1


def test_an_order_admits_what_is_within_its_limit_and_nothing_more():
    trail = Trail((Cost(kind="laplace", scale=Fraction(3)),) * 4, None)
    spent = trail.orders()
    assert admits_trail(Limits(gaussian=0, orders=spent), trail)
    assert not admits_trail(Limits(gaussian=0, orders=tuple(each - 1 for each in spent)), trail)
    for place in range(len(spent)):
        only = tuple(each if k == place else 0 for k, each in enumerate(spent))
        assert admits_trail(Limits(gaussian=0, orders=only), trail)
