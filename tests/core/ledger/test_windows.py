"""Charges with windows: a period pays for what reads it, and for nothing else."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Budget, Cost, Ledger, Spent, add_costs, admits
from sfumato.core.cost.parallel import SpentByPeriod
from sfumato.core.errors import BudgetExceeded, LedgerError, RecipeError
from sfumato.core.facts.part import Window
from sfumato.core.ledger.chain import ChargeEntry, make_entry, open_chain, replay_chain

MONTHS = tuple("abcdef")
AXIS = "month of t: 1"
HALF = Cost(kind="pure", scale=Fraction(1, 2), unit="p x month")
QUARTER = Cost(kind="pure", scale=Fraction(1, 4), unit="p x month")


def window(months, *, axis=AXIS):
    return Window(axis=axis, periods=frozenset(months))


def charge(ledger, cost, months=None, *, axis=AXIS, asked_by=None):
    return ledger.charge(
        description={},
        plan_digest="p",
        table="t",
        table_version="v",
        costs=(cost,),
        asked_by=asked_by,
        window=None if months is None else window(months, axis=axis),
    )


costs = st.one_of(
    st.builds(Cost, kind=st.just("pure"), scale=st.sampled_from([Fraction(1, 5), Fraction(1, 2)])),
    st.builds(Cost, kind=st.just("gaussian"), scale=st.sampled_from([Fraction(9), Fraction(30)])),
)
charges = st.lists(
    st.tuples(costs, st.one_of(st.none(), st.frozensets(st.sampled_from(MONTHS), min_size=1))), max_size=8
)


@given(charges)
@settings(max_examples=100)
def test_every_period_has_the_sum_of_the_charges_that_read_it(made):
    spent, budget = SpentByPeriod(), Budget(2, "1e-6")
    for cost, months in made:
        spent = spent.add((cost,), months)
    for month in (*MONTHS, "never named"):
        alone = Spent()
        for cost, months in made:
            if months is None or month in months:
                alone = add_costs(alone, (cost,))
        (found,) = spent.find(frozenset([month]))
        assert found == alone
        # The rules that use delta look at the charges one by one, so these must be the same, too.
        assert admits(budget, found) == admits(budget, alone)
        links, link = [], found.trail
        while link is not None:
            links, link = [link.costs, *links], link.previous
        assert links == [(cost,) for cost, months in made if months is None or month in months]
        assert found in spent.find(None)


def test_disjoint_windows_have_the_budget_each_and_overlaps_add_up(path):
    ledger = Ledger(path, Budget(1))
    for months in ("ab", "ab", "cd", "d"):
        charge(ledger, HALF, months)
    report = ledger.report(window("c"))
    assert (report.left, report.spent) == (Fraction(1, 2), Fraction(1, 2))
    assert ledger.report(window("ef")).left == 1
    assert ledger.report(window("cd")).left == 0
    assert ledger.report().left == 0
    assert ledger.report(window("cd")).list_periods() == [
        ("a", "b", 0),
        ("c", "c", Fraction(1, 2)),
        ("d", "d", 0),
    ]
    for months in ("a", "bc", "de", "abcdef", None):
        with pytest.raises(BudgetExceeded):
            charge(ledger, QUARTER, months)
    charge(ledger, QUARTER, "cef")
    again = Ledger(path)
    again.verify()
    assert again.report(window("e")).left == Fraction(3, 4)
    assert again.report(window("c")).left == Fraction(1, 4)


def test_what_reads_everything_is_paid_for_by_every_period_also_those_to_come(path):
    ledger = Ledger(path, Budget(1))
    charge(ledger, HALF, "a")
    charge(ledger, QUARTER)
    assert [ledger.report(window(month)).left for month in "ab"] == [Fraction(1, 4), Fraction(3, 4)]
    with pytest.raises(BudgetExceeded, match="for a period of the window"):
        charge(ledger, HALF, "ab")
    charge(ledger, HALF, "b")


@pytest.mark.parametrize("first", ["ab", "b"])
def test_a_charge_must_fit_every_period_it_reads_whichever_was_named_first(path, first):
    ledger = Ledger(path, Budget(1))
    charge(ledger, QUARTER, first)
    charge(ledger, QUARTER, "a")
    charge(ledger, HALF, "b")
    with pytest.raises(BudgetExceeded, match="for a period of the window"):
        charge(ledger, HALF, "ab")
    charge(ledger, HALF, "a")
    assert [ledger.report(window(month)).left for month in "ab"] == [
        Fraction(0) if first == "ab" else Fraction(1, 4),
        Fraction(1, 4),
    ]


def test_a_smaller_budget_must_admit_every_period(path):
    ledger = Ledger(path, Budget(1))
    charge(ledger, HALF, "a")
    with pytest.raises(LedgerError, match="already spent more"):
        ledger.change_budget(Budget("0.4"))
    ledger.change_budget(Budget("0.5"))
    assert ledger.report(window("b")).left == Fraction(1, 2)


def test_shares_renew_with_their_periods(path):
    ledger = Ledger(path, Budget(4))
    ledger.set_share("ana", "0.5")
    charge(ledger, HALF, "ab", asked_by="ana")
    with pytest.raises(BudgetExceeded, match="the share of 'ana'"):
        charge(ledger, QUARTER, "bc", asked_by="ana")
    assert ledger.report_share("ana", window("bc")).left == 0
    charge(ledger, HALF, "c", asked_by="ana")
    assert ledger.report_share("ana", window("d")).left == Fraction(1, 2)


def test_periods_that_are_read_in_another_way_are_refused(path):
    ledger = Ledger(path, Budget(1))
    charge(ledger, HALF, "a")
    with pytest.raises(RecipeError, match="put the description of the column back"):
        charge(ledger, HALF, "b", axis="month of t: 2")
    exchanged = Cost(kind="pure", scale=Fraction(1, 2), neighbours="replace", unit="p x month")
    with pytest.raises(RecipeError):
        charge(
            Ledger(path.with_name("other.db"), Budget(1)) if hasattr(path, "with_name") else ledger,
            exchanged,
            "b",
        )
    assert ledger.report(window("b")).left == 1


def chain_of(*windows, cost=HALF):
    """A chain that was sealed right, whatever it holds."""
    opened = open_chain(Budget(1), b"secret")
    entries, history = [opened], replay_chain([opened])
    facts = dict.fromkeys(("plan_digest", "table_version", "subject"), "")
    facts |= {"table": "t", "units": {}, "costs": [cost.to_record()], "asked_by": None, "part_of": None}
    for each in windows:
        entry = make_entry(history, ChargeEntry, **facts, window=each, purpose="other", description={})
        entries.append(entry)
        history = replay_chain(entries)
    return history


@pytest.mark.parametrize(
    "windows",
    [
        ({"axis": AXIS, "periods": ["a"]}, {"axis": "another", "periods": ["b"]}),
        ({"axis": AXIS, "periods": []},),
        ({"axis": AXIS, "periods": ["b", "a"]},),
        ({"axis": AXIS, "periods": ["a", "a"]},),
        ({"axis": AXIS},),
        ("a",),
        ({"axis": AXIS, "periods": ["a"]},) * 3,
        ({"axis": AXIS, "periods": ["a"]}, {"axis": AXIS, "periods": ["a", "b"]}, None),
    ],
)
def test_a_chain_whose_windows_are_wrong_or_overspent_is_not_trusted(windows):
    with pytest.raises(LedgerError):
        chain_of(*windows)


def test_a_chain_with_windows_replays():
    history = chain_of(*({"axis": AXIS, "periods": [month]} for month in "aabbccdd"))
    assert history.axis == AXIS
    assert {spent.epsilon for spent in history.spent.find(None)} == {Fraction(0), Fraction(1)}


def test_a_report_is_of_the_period_that_has_least_left(path):
    """Also where that is not the one with the largest sums, since pure and Gaussian charges mix."""
    ledger = Ledger(path, Budget(3, "1e-6"))
    gauss = Cost(kind="gaussian", scale=Fraction(4), unit="p x month")
    for cost, months in (
        (HALF, "ab"),
        (gauss, "bc"),
        (QUARTER, "cd"),
        (gauss, "d"),
        (HALF, "acd"),
        (HALF, "a"),
    ):
        charge(ledger, cost, months)
    each = {month: ledger.report(window(month)).left for month in "abcde"}
    for months in ("ab", "bc", "acd", "abcde"):
        assert ledger.report(window(months)).left == min(each[month] for month in months)
    assert ledger.report().left == min(each.values())
    assert {
        first: rest for first, last, rest in ledger.report().list_periods() if first == last
    }.items() <= each.items()
    assert len(set(each.values())) > 3
