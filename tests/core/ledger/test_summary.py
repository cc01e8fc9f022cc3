"""The summary of a ledger: what a new process reads in place of the whole chain, and what rests on it."""

import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.cost.budget import admits
from sfumato.core.errors import BudgetExceeded, LedgerError
from sfumato.core.facts.part import Window
from sfumato.core.ledger import chain
from sfumato.core.ledger.ledger import _SUMMARISED_EVERY

PURE = Cost(kind="pure", scale=Fraction(1, 700))
GAUSSIAN = Cost(kind="gaussian", scale=Fraction(300), sensitivity=Fraction(1))


def charge(ledger, number=0, *costs, answer=True, **facts):
    named = {"plan_digest": f"p{number}", "table": "t", "table_version": "v"}
    entry = ledger.charge(description={}, costs=costs or (PURE,), **named, **facts)
    if answer:
        ledger.store_answer(entry, b"%d" % number, labels=[f"? of {number % 3}"])
    return entry


def edit(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.fixture
def parsed(monkeypatch):
    """The numbers of the entries that are read."""
    read, parse = [], chain.parse_entry
    monkeypatch.setattr(chain, "parse_entry", lambda *row: read.append(row[0]) or parse(*row))
    return read


@pytest.mark.parametrize("count", [20, 45])
def test_a_new_process_reads_no_more_entries_of_a_longer_chain(path, forget, parsed, count):
    ledger = Ledger(path, Budget(10, "1e-6"))
    for number in range(count):
        charge(ledger, number)
    forget()
    parsed.clear()
    again = Ledger(path, Budget(10, "1e-6"))
    assert again.report().left == ledger.report().left
    assert len(parsed) <= _SUMMARISED_EVERY + 2
    parsed.clear()
    assert again.find_answer(plan_digest="p1", table_version="v")[1] == b"1"
    assert again.find_answer(plan_digest="q", table_version="v") is None
    assert again.knows("p2")
    assert not again.knows("q")
    with again.look_up() as index:
        assert [*index.list_labels("?")] == ["? of 0", "? of 1", "? of 2"]
        assert len(index.find("? of 0")) == (count + 2) // 3
    assert len(again.report().list_last(2)) == 2
    assert len(parsed) <= 20
    again.verify()


def test_what_a_summary_admits_is_what_the_whole_chain_admits(path, forget):
    """Step by step the same as sums that were never written down, for people and periods, too."""
    budget = Budget(2, "1e-6")
    ledger = Ledger(path, budget)
    ledger.set_share("ana", "0.3")
    made = [PURE, GAUSSIAN, Cost(kind="pure", scale=Fraction(1, 9)), GAUSSIAN]
    for number in range(36):
        forget()
        again = Ledger(path, budget)
        months = frozenset("abc"[number % 3 :]) if number % 5 else None
        window = None if months is None else Window(axis="months", periods=months)
        whole = chain.replay_chain(again.entries())
        cost = made[number % 4]
        found = again.report(window)
        expected = whole.spent.find(months)
        assert {found.sums, *found.beside} == {*expected}
        fits = all(admits(budget, each, [cost]) for each in expected)
        share = whole.share_of("ana")
        mine = whole.spent_by.get("ana")
        who = "ana" if number % 2 else "ben"
        if who == "ana" and mine is not None:
            fits = fits and all(admits(share, each, [cost]) for each in mine.find(months))
        try:
            charge(again, number, cost, asked_by=who, window=window)
            assert fits
        except BudgetExceeded:
            assert not fits
    forget()
    assert Ledger(path).verify()


def test_a_budget_and_a_share_that_change_are_compared_with_all_charges(path, forget):
    ledger = Ledger(path, Budget(2, "1e-6"))
    for number in range(40):
        charge(ledger, number, GAUSSIAN, asked_by="ana")
    forget()
    again = Ledger(path)
    with pytest.raises(LedgerError, match="already spent more"):
        again.change_budget(Budget("0.01", "1e-6"))
    again.change_budget(Budget("1.5", "1e-6"))
    again.set_share("ana", "0.01")
    for _ in range(2):
        forget()
        other = Ledger(path)
        assert other.budget == Budget("1.5", "1e-6")
        with pytest.raises(BudgetExceeded, match="share of 'ana'"):
            charge(other, 50, GAUSSIAN, asked_by="ana")
        for number in range(_SUMMARISED_EVERY):
            charge(other, 60 + number, answer=False)


@pytest.mark.parametrize("path", ["file"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE summary SET record = CAST(replace(record, '\"count\"', '\"count\" ') AS BLOB)",
        "UPDATE summary SET mac = 'x'",
        "UPDATE summary SET record = 'text'",
        "UPDATE meta SET secret = zeroblob(32)",
        "DELETE FROM entries WHERE sequence > 5",
        "DELETE FROM entries",
    ],
)
def test_an_edited_summary_is_refused(path, forget, statement):
    ledger = Ledger(path, Budget(1))
    for number in range(20):
        charge(ledger, number)
    edit(path, statement)
    forget()
    with pytest.raises(LedgerError, match="cannot be trusted"):
        Ledger(path)


@pytest.mark.parametrize("path", ["file"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entries WHERE sequence = 4",
        "UPDATE entries SET record = CAST(replace(record, '1/700', '1/900') AS BLOB) WHERE sequence = 2",
    ],
)
def test_an_earlier_edit_lowers_no_sum_and_is_shown_by_verify(path, forget, statement):
    ledger = Ledger(path, Budget(1))
    for number in range(20):
        charge(ledger, number)
    edit(path, statement)
    forget()
    again = Ledger(path)
    assert again.report().sums.epsilon == 20 * PURE.epsilon
    for look in (again.verify, again.entries):
        with pytest.raises(LedgerError, match="cannot be trusted"):
            look()


@pytest.mark.parametrize("path", ["file"], indirect=True)
def test_a_summary_put_back_or_taken_away_gives_nothing_back(path, forget):
    ledger = Ledger(path, Budget(1))
    for number in range(20):
        charge(ledger, number)
    with closing(sqlite3.connect(path)) as connection:
        (older,) = connection.execute("SELECT * FROM summary").fetchall()
    for number in range(20, 40):
        charge(ledger, number)
    for row in (older, None):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM summary")
            if row is not None:
                connection.execute("INSERT INTO summary VALUES (?, ?, ?)", row)
            connection.commit()
        forget()
        assert Ledger.read_only(path).report().sums.epsilon == 40 * PURE.epsilon
        Ledger.read_only(path).verify()


@pytest.mark.parametrize("path", ["file"], indirect=True)
def test_a_summary_of_other_sums_is_shown_by_verify(path, forget):
    """Whoever has the secret can write one; `verify` compares it with the entries."""
    ledger = Ledger(path, Budget(1))
    for number in range(20):
        charge(ledger, number)
    entries = ledger.entries()
    other = chain.replay_chain(entries[:12])
    forged = chain.History(
        **{name: getattr(other, name) for name in chain.History.__dataclass_fields__}
        | {"count": 14, "head": entries[13].hash}
    )
    record, mac = forged.summarise(ledger.secret)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE summary SET sequence = 14, record = ?, mac = ?", (record, mac))
        connection.commit()
    forget()
    with pytest.raises(LedgerError, match="its summary is not that of its entries"):
        Ledger(path).verify()


@pytest.mark.parametrize("path", ["file"], indirect=True)
def test_a_ledger_without_a_summary_gets_one_and_loses_no_answer(path, forget):
    ledger = Ledger(path, Budget(1))
    for number in range(20):
        charge(ledger, number)
    unanswered = charge(ledger, 30, answer=False, resumable=True)
    for table in ("summary", "labels"):
        edit(path, f"DROP TABLE {table}")
    forget()
    reader = Ledger.read_only(path)
    assert reader.verify() == reader.report().head
    again = Ledger(path)
    assert again.find_answer(plan_digest="p7", table_version="v")[1] == b"7"
    assert again.find_progress(plan_digest="p30", table_version="v") == (unanswered, b"")
    again.store_answer(unanswered, b"30", after=b"")
    forget()
    assert Ledger(path).report().left == 1 - 21 * PURE.epsilon
    again.verify()


def test_a_summary_is_read_with_the_secret_it_was_written_with():
    secret, budget = b"secret", Budget(1)
    history = chain.replay_chain([chain.open_chain(budget, secret)])
    record, mac = history.summarise(secret)
    assert chain.restore_history(record, mac, secret) == history
    for altered in ((record + b" ", mac, secret), (record, "0" * 64, secret), (record, mac, b"another")):
        with pytest.raises(LedgerError, match="summary was edited"):
            chain.restore_history(*altered)


def test_a_share_that_is_set_after_a_summary_counts_what_is_in_it(path, forget):
    ledger = Ledger(path, Budget(2, "1e-6"))
    for number in range(20):
        charge(ledger, number, asked_by="ana")
    for opened in (ledger, None):
        forget()
        again = opened or Ledger(path)
        most = 22 if opened else 21
        again.set_share("ana", most * PURE.epsilon)
        assert 0 < again.report_share("ana").left < most * PURE.epsilon
