"""One ledger, one unit per table: a unit that changes is refused before anything is spent."""

from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.errors import RecipeError


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.db", Budget(10))


def charge(ledger, table, unit, units=None):
    cost = Cost(kind="pure", scale=Fraction(1, 10), unit=unit)
    return ledger.charge(
        description={}, plan_digest="p", table=table, table_version="v", costs=(cost,), units=units
    )


@pytest.mark.parametrize("other", ["row", "household"])
def test_a_table_keeps_the_unit_it_was_charged_with(ledger, other):
    charge(ledger, "visits", "person")
    charge(ledger, "visits", "person")
    spent = ledger.report().spent
    with pytest.raises(
        RecipeError, match=f"'visits'.*unit 'person', and now its unit is '{other}'.*put the unit back"
    ):
        charge(ledger, "visits", other)
    assert ledger.report().spent == spent
    charge(ledger, "sales", other)  # another table, another unit


def test_joins_name_the_unit_of_each_table(ledger):
    charge(ledger, "visits, people", "person", {"visits": "person", "people": "patient"})
    charge(ledger, "people", "patient")
    charge(ledger, "visits", "person")
    with pytest.raises(RecipeError, match=r"'people' was charged .*'patient', and now its unit is 'row'"):
        charge(ledger, "people", "row")
    with pytest.raises(RecipeError, match="'visits'"):
        charge(ledger, "people, visits", "patient", {"people": "patient", "visits": "household"})
    # A public table has no unit; the same one may be joined with tables of any.
    charge(ledger, "visits, regions", "person", {"visits": "person"})
    charge(ledger, "sales, regions", "row", {"sales": "row"})


def test_the_units_are_read_back_from_the_chain(ledger):
    charge(ledger, "visits, people", "person", {"visits": "person", "people": "patient"})
    again = Ledger(ledger.path)
    with pytest.raises(RecipeError, match="'people'"):
        charge(again, "people", "person")
    assert again.entries()[-1].units == {"visits": "person", "people": "patient"}
