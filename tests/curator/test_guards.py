"""What the door refuses, whoever asks: a changed source, a second answer, more than was charged."""

from dataclasses import replace
from fractions import Fraction

import pytest

from helpers.asking import TABLES, Counted, Stub, count_records
from helpers.drawn import watch_draws
from helpers.projects import open_rows
from sfumato.accounting import Cost
from sfumato.core.algebra.asks import Divided, Kept, Labelled, Levelled, Ranked
from sfumato.core.door import Bill, Charged
from sfumato.core.errors import ChargeKept, LedgerError

COST = Cost(kind="laplace", scale=Fraction(4), sensitivity=Fraction(2), unit="p")
BILL = {"digest": "d", "description": {}, "tables": "t", "described": TABLES}


def make_charge(*versions, **facts):
    """A charge for the first version; every look at the source finds the next."""
    left = list(versions[1:])
    bill = Bill(**BILL, costs=(COST,), version=lambda _: left.pop(0))
    stub = Stub(versions[0], (COST,))
    return Charged(bill, stub, ledger=stub, noise=None, **facts)


@pytest.fixture(autouse=True)
def drawn(monkeypatch):
    """The exact values that noise was drawn for, none of which is added."""
    values = []

    def add_noise(exact, *, kind, scale):
        values.append(exact.tolist())
        return exact

    monkeypatch.setattr("sfumato.core.noise.add_noise", add_noise)
    return values


def test_nothing_is_drawn_from_a_source_that_changed(drawn):
    with pytest.raises(ChargeKept, match="changed while it was read"):
        Counted().ask(make_charge("one", "two"), count_records(4))
    assert drawn == []
    assert Counted().ask(make_charge("one", "one"), count_records(4)) == 7


def test_a_charge_that_has_its_answer_pays_for_no_other(drawn):
    with pytest.raises(LedgerError, match="pays for no other"):
        Counted().ask(make_charge("one", "one", answer=b"a"), count_records(4))
    assert drawn == []


def test_a_charge_that_goes_on_pays_for_what_the_ledger_has_and_no_other_bill():
    bill, engine = Bill(**BILL, costs=(COST, COST), version=lambda _: "v"), Counted()
    charge = Charged(bill, Stub("v", (COST,)), ledger=Stub("v"), noise=None, kept=b"", resumed=True)
    assert engine.ask(charge, count_records(4)) == 7
    with pytest.raises(ChargeKept, match="more is asked than was charged"):
        engine.ask(charge, count_records(4))
    assert engine.times == 1


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (replace(count_records(4), kept=Kept(Fraction(4), 100, Fraction(1, 10**9))), "chosen privately"),
        (replace(count_records(4), drawn=(Ranked(()),)), "no histogram"),
        (replace(count_records(4), drawn=(Labelled(Fraction(1), 1),)), "no histogram"),
        (replace(count_records(4), drawn=(Levelled("laplace", Fraction(4), ((0,),)),)), "no public ones"),
        (replace(count_records(4), drawn=(Divided("laplace", Fraction(4), (1,)),)), "not added up so"),
    ],
)
def test_draws_that_do_not_fit_the_query_are_refused_before_records_are_read(asked, told):
    engine = Counted()
    with pytest.raises(ChargeKept, match=told):
        engine.ask(make_charge("one", "one"), asked)
    assert engine.times == 0


@pytest.mark.parametrize(("scale", "paid"), [(4, True), (5, True), (3, False)])
def test_nothing_is_read_for_less_noise_than_was_charged(drawn, scale, paid):
    charge, engine = make_charge("one", "one", "one"), Counted()
    for left in (paid, False):
        if left:
            engine.ask(charge, count_records(scale))
        else:
            with pytest.raises(ChargeKept, match="more is asked than was charged"):
                engine.ask(charge, count_records(scale))
    assert engine.times == paid
    assert drawn == [[7]] * paid


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


def test_the_number_of_records_beside_a_quantile_has_the_noise_that_is_paid_for(tmp_path):
    *_, (drawn, paid) = list_rates(tmp_path, "DP-SELECT 2 QUANTILE(x, 0.95) FROM t")
    assert drawn == paid == 1 / (2 * Fraction(2, 100))
