"""The ledger as one user sees it: charges, answers, budgets, and every edit detected."""

import copy
import os
import pickle
import sqlite3
import stat
import threading
from contextlib import closing, suppress
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.accounting import Budget, Cost, CostKind, Ledger, Spent, add_costs, admits
from sfumato.core.errors import BudgetExceeded, LedgerError, RecipeError
from sfumato.core.ledger import chain

TENTH = Cost(kind="pure", scale=Fraction(1, 10))
WIDE = Cost(kind="gaussian", scale=Fraction(100), sensitivity=Fraction(2))


def charge(ledger, *costs, plan="plan", version="v1", **description):
    return ledger.charge(
        description=description,
        plan_digest=plan,
        table="residents",
        table_version=version,
        costs=costs or (TENTH,),
    )


def edit(path, *statements):
    """What someone with an editor for databases could do to the file."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


only_file = pytest.mark.parametrize("path", ["file"], indirect=True)


@pytest.fixture
def ledger(path):
    return Ledger(path, Budget(1, "1e-6"))


def test_ten_tenths_fit_and_the_eleventh_does_not(path):
    ledger = Ledger(path, Budget("1.0"))
    for _ in range(10):
        charge(ledger)
    with pytest.raises(BudgetExceeded, match=r"asks for epsilon 0\.1; epsilon 0 of epsilon 1") as it:
        charge(ledger)
    assert it.value.left == 0
    report = ledger.report()
    assert (report.spent, report.left, report.total, report.delta) == (1, 0, 1, 0)
    assert str(report.spent) == "1"
    assert len(report.entries) == 11
    assert report.head == ledger.verify()


def test_every_kind_of_cost_is_written_and_read_back(path):
    costs = (
        TENTH,
        WIDE,
        Cost(kind="laplace", scale=Fraction(10), sensitivity=Fraction(2)),
        Cost(kind="exponential", scale=Fraction(1, 10)),
        Cost(kind="permute-and-flip", scale=Fraction(1, 10)),
        Cost(kind="selection", scale=Fraction(100), delta=Fraction(1, 10**9)),
        Cost(kind="filter", scale=Fraction(1, 3), count=2),
        Cost(kind="sampled", scale=Fraction(40), sampling=Fraction(1, 4), delta=Fraction(1, 10**10), count=9),
    )
    assert {cost.kind for cost in costs} == set(get_args(CostKind))
    charge(Ledger(path, Budget(10, "1e-6", selection="1e-8")), *costs)
    again = Ledger(path)
    assert again.entries()[-1].costs == costs
    assert again.report().sums == add_costs(Spent(), costs)
    assert again.report().sums.epsilon is None


def test_refused_gaussian_charges_name_their_rho(path):
    ledger = Ledger(path, Budget(1))
    with pytest.raises(BudgetExceeded, match=r"rho 0\.0002"):
        charge(ledger, WIDE)
    assert len(ledger.entries()) == 1


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(Cost, kind=st.just("pure"), scale=st.fractions(Fraction(1, 30), 1))
        | st.builds(Cost, kind=st.just("gaussian"), scale=st.fractions(3, 60)),
        max_size=8,
    )
)
def test_no_sequence_of_charges_overspends(tmp_path_factory, costs):
    budget = Budget(1, "1e-5")
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "l", budget)
    for cost in costs:
        expected = admits(budget, ledger.report().sums, [cost])
        try:
            charge(ledger, cost)
        except BudgetExceeded:
            assert not expected
        else:
            assert expected
    spent = Spent()
    for entry in ledger.report().charges:
        spent = add_costs(spent, entry.costs)  # charge by charge: the first one chooses among the rules
    assert admits(budget, spent)


def test_a_ledger_opens_again_with_all_it_knew(path, ledger):
    entry = charge(ledger, TENTH, WIDE, query="by town")
    again = Ledger(path, Budget(1, "1e-6"))
    assert again.secret == ledger.secret
    assert len(again.secret) == 32
    assert again.entries() == ledger.entries()
    assert again.entries()[1] == entry
    assert entry.costs == (TENTH, WIDE)
    assert entry.description["query"] == "by town"
    assert again.budget == Budget(1, "1e-6")
    assert Ledger(path).report().left == again.report().left


@only_file
def test_the_file_is_private_and_stands_alone(path, ledger):
    charge(ledger)
    ledger.report()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.with_name(path.name + ".key")
    assert sorted(path.parent.iterdir()) == [path, key]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_another_budget_is_refused_with_the_way_to_accept_it(path, ledger):
    with pytest.raises(LedgerError, match=r"epsilon 1 at .*epsilon 2.*change_budget.*--accept"):
        Ledger(path, Budget(2, "1e-6"))


def test_a_budget_changes_by_a_chained_entry(path, ledger):
    charge(ledger, Cost(kind="pure", scale=Fraction(1, 2)))
    assert ledger.change_budget(Budget(2, "1e-6")).kind == "budget"
    assert Ledger(path, Budget(2, "1e-6")).report().left == Fraction(3, 2)
    with pytest.raises(LedgerError, match="already spent more"):
        ledger.change_budget(Budget("0.1", "1e-6"))
    assert [entry.kind for entry in ledger.entries()] == ["open", "charge", "budget"]


def test_the_reserve_for_selection_is_spent_and_refused_with_the_way_to_raise_it(path):
    select = Cost(kind="selection", scale=Fraction(100), sensitivity=Fraction(2), delta="6e-8")
    ledger = Ledger(path, Budget(1, "1e-6", selection="1e-7"))
    entry = charge(ledger, select)
    assert Ledger(path).entries()[1].costs == entry.costs == (select,)
    words = r"fail with probability 0\.00000006; 0\.00000004 of the 0\.0000001 .*`\[budget\] selection_delta`"
    with pytest.raises(BudgetExceeded, match=words) as it:
        charge(ledger, select)
    assert it.value.left == ledger.report().left == Fraction(98, 100)
    assert ledger.report().sums.delta == select.delta
    charge(ledger, TENTH)
    with pytest.raises(LedgerError, match="already spent more"):
        ledger.change_budget(Budget(1, "1e-6", selection="5e-8"))
    ledger.change_budget(Budget(1, "1e-6", selection="2e-7"))
    charge(ledger, select)
    assert Ledger(path, Budget(1, "1e-6", selection="2e-7")).report().sums.delta == 2 * select.delta
    with pytest.raises(LedgerError, match=r"0\.0000002 for selection.*change_budget"):
        Ledger(path, Budget(1, "1e-6"))


def test_a_charge_that_does_not_fit_its_epsilon_is_not_blamed_on_the_reserve(ledger):
    with pytest.raises(BudgetExceeded, match=r"asks for epsilon 20; epsilon 1 of"):
        charge(ledger, Cost(kind="selection", scale=Fraction(1, 20), delta="1e-9"))


def test_answers_are_kept_found_and_never_drawn_twice(path, ledger):
    assert ledger.find_answer(plan_digest="p", table_version="v1") is None
    entry = charge(ledger, plan="p")
    assert ledger.find_answer(plan_digest="p", table_version="v1") is None
    ledger.store_answer(entry, b"noisy")
    ledger.store_answer(entry, b"noisy")
    assert Ledger(path).find_answer(plan_digest="p", table_version="v1") == (entry, b"noisy")
    assert ledger.find_answer(plan_digest="p", table_version="v2") is None
    assert ledger.find_answer(plan_digest="q", table_version="v1") is None
    with pytest.raises(LedgerError, match="already has another answer"):
        ledger.store_answer(entry, b"a second draw")
    assert [entry.kind for entry in ledger.entries()] == ["open", "charge", "answer"]
    ledger.verify()


def test_answers_need_a_charge_of_this_ledger(tmp_path, ledger):
    foreign = charge(Ledger(tmp_path / "other", Budget(1)))
    for entry in (foreign, ledger.entries()[0]):
        with pytest.raises(LedgerError, match="no such charge"):
            ledger.store_answer(entry, b"x")


@only_file
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET record = CAST(replace(record, 'residents', 'x') AS BLOB) WHERE sequence = 3",
        "UPDATE entries SET record = replace(record, '0.1', '0.01') WHERE sequence = 2",
        "UPDATE entries SET record = CAST(replace(record, '0.1', '0.2') AS BLOB)",
        "UPDATE entries SET record = CAST('nonsense' AS BLOB) WHERE sequence = 2",
        "UPDATE entries SET record = CAST('[1]' AS BLOB) WHERE sequence = 2",
        "UPDATE entries SET record = CAST(replace(record, 'charge', 'refund') AS BLOB) WHERE sequence = 3",
        "UPDATE entries SET hash = X'00' WHERE sequence = 4",
        "DELETE FROM entries WHERE sequence = 3",
        "DELETE FROM entries WHERE sequence = 1",
        "DELETE FROM entries",
        "UPDATE entries SET sequence = 9 WHERE sequence = 4",
        "UPDATE meta SET format = 1",
        "UPDATE meta SET secret = zeroblob(32)",
        "UPDATE meta SET secret = 'text'",
        "CREATE TRIGGER refund AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "DROP TABLE answers",
    ],
)
def test_edits_are_detected(path, ledger, statement, forget):
    for _ in range(3):
        charge(ledger)
    before = ledger.report().sums.epsilon
    edit(path, statement)
    forget()
    with pytest.raises(LedgerError, match="a budget 100%"):
        Ledger(path, Budget(1, "1e-6"))
    if "secret" not in statement:
        # What is kept open rests on what it has verified: an edit of earlier entries cannot lower its sums.
        with suppress(LedgerError):
            charge(ledger)
            assert ledger.report().sums.epsilon == before + Fraction(1, 10)
        with pytest.raises(LedgerError):
            ledger.verify()


@only_file
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET record = CAST(replace(record, 'residents', 'x') AS BLOB) WHERE sequence = 4",
        "DELETE FROM entries WHERE sequence = 4",
        "DELETE FROM entries",
        "UPDATE entries SET sequence = 9 WHERE sequence = 4",
        "UPDATE meta SET format = 1",
        "CREATE TRIGGER refund AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
    ],
)
def test_a_ledger_kept_open_refuses_another_end(path, ledger, statement):
    for _ in range(3):
        charge(ledger)
    ledger.report()
    edit(path, statement)
    for use in (
        lambda: charge(ledger),
        ledger.report,
        lambda: ledger.find_answer(plan_digest="p", table_version="v"),
    ):
        with pytest.raises(LedgerError):
            use()


def test_a_share_limits_one_person_within_the_whole(path):
    ledger = Ledger(path, Budget(1))
    tenth = {"description": {}, "plan_digest": "p", "table": "t", "table_version": "v", "costs": (TENTH,)}
    ledger.set_share("ana", "0.25")
    ledger.set_share("ben", "0.9")
    ledger.charge(**tenth, asked_by="ana")
    entry = ledger.charge(**tenth, asked_by="ana")
    assert entry.asked_by == "ana"
    assert ledger.report_share("ana").left == Fraction(5, 100)
    with pytest.raises(BudgetExceeded, match="share of 'ana'"):
        ledger.charge(**tenth, asked_by="ana")
    for _ in range(8):
        ledger.charge(**tenth, asked_by="ben")
    with pytest.raises(BudgetExceeded, match="is left in ledger"):
        ledger.charge(**tenth, asked_by="ben")  # the shares are overbooked, the whole is not
    assert ledger.report_share("carl") is None
    again = Ledger(ledger.path)
    assert again.report_share("ben").spent == Fraction(8, 10)
    assert again.set_share("ana", "0.25") is None
    again.set_share("ana", None)
    assert ledger.report_share("ana") is None


def test_a_share_counts_what_was_spent_before_it_was_set(path):
    ledger = Ledger(path, Budget(1))
    tenth = {"description": {}, "plan_digest": "p", "table": "t", "table_version": "v", "costs": (TENTH,)}
    ledger.charge(**tenth, asked_by="ana")
    ledger.charge(**tenth, asked_by="ana")
    ledger.set_share("ana", "0.25")
    for opened in (ledger, Ledger(ledger.path)):
        assert opened.report_share("ana").left == Fraction(5, 100)
        with pytest.raises(BudgetExceeded, match="share of 'ana'"):
            opened.charge(**tenth, asked_by="ana")


@only_file
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE answers SET payload = substr(payload, 1, 3)",
        "UPDATE answers SET payload = X'00', sha256 = '0'",
        "DELETE FROM answers",
    ],
)
def test_edited_answers_are_detected(path, ledger, statement):
    ledger.store_answer(charge(ledger, plan="p"), b"payload")
    edit(path, statement)
    with pytest.raises(LedgerError, match="answer"):
        ledger.find_answer(plan_digest="p", table_version="v1")
    with pytest.raises(LedgerError, match="answer"):
        ledger.verify()


@only_file
def test_smuggled_answers_are_detected(path, ledger):
    charge(ledger)
    edit(path, "INSERT INTO answers VALUES (2, X'00', 'x')")
    with pytest.raises(LedgerError, match="answers differ"):
        ledger.verify()


@only_file
def test_only_an_anchor_shows_that_an_older_copy_was_put_back(path, ledger):
    charge(ledger)
    older = path.read_bytes()
    charge(ledger)
    anchor = ledger.verify()
    charge(ledger)
    assert ledger.verify(anchor=anchor) != anchor
    path.write_bytes(older)
    back = Ledger(path)
    back.verify()
    with pytest.raises(LedgerError, match="anchor"):
        back.verify(anchor=anchor)


def test_opening_again_reads_what_came_since_and_verify_all(path, ledger, forget, monkeypatch):
    read, parse = [], chain.parse_entry
    monkeypatch.setattr(chain, "parse_entry", lambda *row: read.append(row[0]) or parse(*row))
    for _ in range(3):
        charge(ledger)
    read.clear()
    assert Ledger(path).report().left == Fraction(7, 10)
    assert set(read) == {4}
    Ledger(path).verify()
    assert set(read) == {1, 2, 3, 4}
    read.clear()
    forget()
    Ledger(path)
    assert set(read) == {1, 2, 3, 4}


@only_file
def test_a_new_ledger_in_the_place_of_another_is_read_from_its_start(path, ledger):
    charge(ledger)
    path.unlink()
    assert Ledger(path, Budget(2)).report().left == 2


@only_file
def test_read_only_neither_creates_nor_charges(path, tmp_path, ledger):
    charge(ledger)
    before = path.read_bytes()
    reader = Ledger.read_only(path)
    assert reader.verify() == ledger.verify()
    with pytest.raises(LedgerError, match="reading only"):
        charge(reader)
    assert path.read_bytes() == before
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.read_only(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


@only_file
@pytest.mark.parametrize("content", [b"", b"not a database, only text" * 100, bytes(8192)])
def test_what_is_not_a_ledger_is_refused(path, content):
    path.write_bytes(content)
    for opening in (lambda: Ledger(path, Budget(1)), lambda: Ledger.read_only(path)):
        with pytest.raises(LedgerError, match="a budget 100%"):
            opening()
    assert path.read_bytes() == content


@only_file
def test_a_damaged_page_is_refused(path, ledger):
    for _ in range(10):
        charge(ledger)
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="a budget 100%"):
        Ledger(path)


@only_file
def test_a_lock_is_waited_for_and_then_named(path, ledger):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked by another process"):
            Ledger(path, timeout=0.05)
        assert len(ledger.entries()) == 1
        other.execute("ROLLBACK")
    charge(Ledger(path, timeout=0.05))


def test_missing_and_impossible_places_are_named(tmp_path):
    with pytest.raises(LedgerError, match=r"'l'.*folder does not exist; create"):
        Ledger(tmp_path / "none" / "l", Budget(1))
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="folder does not exist"):
        Ledger(tmp_path / "file" / "l", Budget(1))
    with pytest.raises(LedgerError, match="not a file"):
        Ledger(tmp_path, Budget(1))
    with pytest.raises(LedgerError, match="give a budget"):
        Ledger(tmp_path / "new")


@only_file
@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_can_be_verified_and_not_charged(path, ledger):
    charge(ledger)
    path.parent.chmod(0o500)
    try:
        Ledger.read_only(path).verify()
        with pytest.raises(LedgerError, match="allow"):
            charge(ledger)
        with pytest.raises(LedgerError, match="cannot be written"):
            Ledger(path.parent / "new", Budget(1))
    finally:
        path.parent.chmod(0o700)


@only_file
def test_a_removed_ledger_is_not_made_anew_by_a_charge(path, ledger):
    path.unlink()
    with pytest.raises(LedgerError, match="does not exist"):
        charge(ledger)
    assert not path.exists()


def test_what_cannot_be_recorded_is_refused_before_anything_is_spent(ledger):
    for call in (
        lambda: charge(ledger, 0.1),
        lambda: charge(ledger, value=0.5),
        lambda: charge(ledger, text="\ud800"),
        lambda: charge(ledger, plan=b"bytes"),
        lambda: ledger.charge(description={}, plan_digest="", table="", table_version="", costs=()),
    ):
        with pytest.raises(RecipeError):
            call()
    assert len(ledger.entries()) == 1


def test_relations_of_neighbours_are_not_mixed(ledger):
    replace = Cost(kind="pure", scale=Fraction(1, 10), neighbours="replace")
    with pytest.raises(RecipeError, match="cannot be mixed"):
        charge(ledger, TENTH, replace)
    charge(ledger, TENTH)
    with pytest.raises(RecipeError, match="cannot be mixed"):
        charge(ledger, replace)


@only_file
def test_a_ledger_cannot_be_duplicated_in_memory(ledger):
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="pickled or copied"):
            duplicate(ledger)
    assert repr(ledger) == "Ledger('a budget 100%.ledger')"


def test_threads_share_one_budget(path):
    ledger = Ledger(path, Budget(1))
    outcomes = []

    def spend():
        for _ in range(5):
            try:
                charge(ledger)
                outcomes.append(1)
            except BudgetExceeded:
                outcomes.append(0)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(outcomes), sum(outcomes)) == (20, 10)
    assert ledger.report().left == 0
