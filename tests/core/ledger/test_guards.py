"""What a ledger refuses: beyond a share, another relation of neighbours, beyond every order of the filter."""

import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.cost.filter import Limits, Trail, admits_trail
from sfumato.core.cost.parallel import Allowance
from sfumato.core.errors import BudgetExceeded, SfumatoError


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


def test_what_earlier_charges_took_of_the_gaussian_rule_is_not_given_back():
    cost = Cost(kind="gaussian", scale=Fraction(50), sensitivity=Fraction(1))
    first = Trail((cost,), None)
    limit = 10**18
    taken = limit - first.gaussian_left(limit)
    assert taken > 0
    assert Trail((cost,), Trail((cost,), first)).gaussian_left(limit) == limit - 3 * taken
    assert Trail((cost,), first).gaussian_left(2 * taken - 1) is None


def test_everybody_pays_beside_the_parts():
    one = Cost(kind="pure", scale=Fraction(1))
    allowance = Allowance([one, one])
    assert all(allowance.pay(one, part=part) for part in (None, "first", "second"))
    assert not any(allowance.pay(one, part=part) for part in (None, "first", "second"))


def test_an_entry_that_was_altered_in_its_file_is_refused(tmp_path, forget):
    ledger = Ledger(tmp_path / "ledger.db", Budget(10))
    charge(ledger, "first")
    charge(ledger, "second")
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        (table,) = (
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "entr" in name
        )
        edited = "CAST(replace(record, 'second', 'third') AS BLOB)"
        database.execute(f"UPDATE {table} SET record = {edited} WHERE sequence = 3")
        database.commit()
    forget()
    with pytest.raises(SfumatoError):
        Ledger(tmp_path / "ledger.db", Budget(10)).entries()
