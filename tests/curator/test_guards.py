"""What the door refuses, whoever asks: a changed source, a second answer, more than was charged."""

from fractions import Fraction

import pytest

from helpers.asking import Stub
from helpers.drawn import watch_draws
from helpers.projects import open_rows
from sfumato.accounting import Cost
from sfumato.core.door import Bill, Charged
from sfumato.core.errors import ChargeKept, LedgerError

COST = Cost(kind="laplace", scale=Fraction(4), sensitivity=Fraction(2))


def make_charge(*versions, **facts):
    """A charge for the first version; every look at the source finds the next."""
    left = list(versions[1:])
    bill = Bill(digest="d", description={}, tables="t", costs=(COST,), version=lambda _: left.pop(0))
    stub = Stub(versions[0], (COST,))
    return Charged(bill, stub, ledger=stub, noise=None, **facts)


def test_nothing_is_drawn_from_a_source_that_changed():
    drawn = []
    with pytest.raises(ChargeKept, match="changed while it was read"):
        make_charge("one", "two").measure([(COST, None)], lambda: 7, lambda exact, _: drawn.append(exact))
    assert drawn == []
    assert make_charge("one", "one").measure([(COST, None)], lambda: 7, lambda exact, _: exact + 1) == 8


def test_a_charge_that_has_its_answer_pays_for_no_other():
    drawn = []
    with pytest.raises(LedgerError, match="pays for no other"):
        make_charge("one", "one", answer=b"a").measure(
            [(COST, None)], lambda: 7, lambda exact, _: drawn.append(exact)
        )
    assert drawn == []


def test_a_charge_that_goes_on_pays_for_what_the_ledger_has_and_no_other_bill():
    bill = Bill(digest="d", description={}, tables="t", costs=(COST, COST), version=lambda _: "v")
    charge = Charged(bill, Stub("v", (COST,)), ledger=Stub("v"), noise=None, kept=b"", resumed=True)
    assert charge.measure([(COST, None)], lambda: 7, lambda exact, _: exact) == 7
    with pytest.raises(ChargeKept, match="more is asked than was charged"):
        charge.measure([(COST, None)], lambda: pytest.fail("records were read"), lambda exact, _: exact)


@pytest.mark.parametrize(("scale", "paid"), [(4, True), (5, True), (3, False)])
def test_nothing_is_read_for_less_noise_than_was_charged(scale, paid):
    actual = Cost(kind="laplace", scale=Fraction(scale), sensitivity=Fraction(2))
    charge, seen = make_charge("one", "one", "one"), []
    for left in (paid, False):
        if left:
            charge.measure([(actual, None)], lambda: 7, lambda exact, _: seen.append(exact))
        else:
            with pytest.raises(ChargeKept, match="more is asked than was charged"):
                charge.measure([(actual, None)], lambda: seen.append(0), lambda exact, _: None)
    assert seen == [7] * paid


def list_rates(folder, statement, **facts):
    rows = {"person": [f"p{n}" for n in range(60)], "x": [float(n % 40) for n in range(60)]}
    columns = {"x": {"bounds": [0, 40]}, "c": {"values": ["a", "b", "c"]}}
    rows["c"] = ["abc"[n % 3] for n in range(60)]
    with watch_draws() as charges:
        open_rows(folder, columns, rows, max_records=1, **facts).sql(statement)
    (charge,) = charges
    return [(draw.scale, cost.scale) for draw, cost in zip(charge.draws, charge.costs, strict=True)]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("statement", ["MEDIAN(x)", "QUANTILE_CONT(x, 0.9)"])
def test_quantiles_are_chosen_at_half_their_epsilon_where_one_record_moves_a_rank(
    tmp_path, statement, neighbours
):
    for rate, epsilon in list_rates(tmp_path, f"DP-SELECT 2 {statement} FROM t", neighbours=neighbours):
        assert rate <= epsilon / 2


def test_the_least_value_is_chosen_at_half_its_epsilon(tmp_path):
    assert all(rate == epsilon / 2 for rate, epsilon in list_rates(tmp_path, "DP-SELECT 2 MIN(x) FROM t"))
