"""What the door refuses, whoever asks: a changed source, a second answer, steps beyond the charge."""

from dataclasses import dataclass
from fractions import Fraction

import pytest

from helpers.asking import Stub
from helpers.drawn import watch_draws
from helpers.projects import open_rows
from sfumato.accounting import Cost
from sfumato.curator import draws
from sfumato.curator.door import Bill, Charged
from sfumato.errors import ChargeKept, LedgerError
from sfumato.sql.chosen import covers_costs
from sfumato.sql.plan import NoisyAggregates

COST = Cost(kind="laplace", scale=Fraction(4), sensitivity=Fraction(2))


def make_charge(*versions, **facts):
    """A charge for the first version; every look at the source finds the next."""
    left = list(versions[1:])
    bill = Bill(digest="d", description={}, tables="t", costs=(COST,), version=lambda _: left.pop(0))
    stub = Stub(versions[0])
    return Charged(bill, stub, ledger=stub, noise=None, **facts)


def test_nothing_is_drawn_from_a_source_that_changed():
    drawn = []
    with pytest.raises(ChargeKept, match="changed while it was read"):
        make_charge("one", "two").measure(lambda: 7, lambda exact, _: drawn.append(exact))
    assert drawn == []
    assert make_charge("one", "one").measure(lambda: 7, lambda exact, _: exact + 1) == 8


def test_a_charge_that_has_its_answer_pays_for_no_other():
    drawn = []
    with pytest.raises(LedgerError, match="pays for no other"):
        make_charge("one", "one", answer=b"a").measure(lambda: 7, lambda exact, _: drawn.append(exact))
    assert drawn == []


@pytest.mark.parametrize(("scale", "covered"), [(4, True), (5, True), (3, False)])
def test_less_noise_than_was_charged_is_not_covered(scale, covered):
    actual = Cost(kind="laplace", scale=Fraction(scale), sensitivity=Fraction(2))
    assert covers_costs((COST,), (actual,)) is covered
    assert not covers_costs((COST,), (actual, actual))


@dataclass(frozen=True)
class Step:
    """What stands for a plan whose number of records is chosen."""

    costs: tuple
    tally: object = None
    choices: tuple = ()
    tally_plan: object = None


@pytest.mark.parametrize(("scale", "measured"), [(4, 2), (3, 1)])
def test_what_would_cost_more_than_was_charged_is_not_measured(monkeypatch, scale, measured):
    monkeypatch.setattr(draws, "choose_records", lambda counts, plan: 2)
    actual, seen = Cost(kind="laplace", scale=Fraction(scale), sensitivity=Fraction(2)), []

    def measure(plan):
        seen.append(plan)
        return NoisyAggregates(values=((),), keys=None)

    def run():
        return draws.measure_in_steps(
            Step(costs=(COST,), tally=1), bind=lambda **_: Step(costs=(actual,)), measure=measure
        )

    if measured == 2:
        assert run().cap == 2
    else:
        with pytest.raises(ChargeKept, match="cost more than was charged"):
            run()
    assert len(seen) == measured


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
