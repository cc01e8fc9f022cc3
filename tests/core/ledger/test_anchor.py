"""Anchors: signed, checked by anyone, and missed by a ledger that was cut or written anew."""

import sqlite3
from dataclasses import replace
from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger, find_key, parse_anchor, read_key, sign_anchor
from sfumato.core.errors import LedgerError, VerificationFailed

TENTH = Cost(kind="pure", scale=Fraction(1, 10))


def charge(ledger, plan="p"):
    return ledger.charge(description={}, plan_digest=plan, table="t", table_version="v", costs=(TENTH,))


@pytest.fixture
def folder(path, tmp_path):
    return tmp_path


@pytest.fixture
def ledger(path):
    ledger = Ledger(path, Budget(1))
    charge(ledger)
    return ledger


def test_an_anchor_is_one_line_and_stays_true_while_the_ledger_grows(ledger, folder, path):
    anchor = ledger.sign_anchor(folder=folder)
    line = str(anchor)
    assert "\n" not in line
    assert line.startswith("sfumato-anchor-1:2:")
    assert parse_anchor(f" {line}\n") == anchor
    charge(ledger, "q")
    assert ledger.check_anchor(line, folder=folder) == anchor
    assert Ledger.read_only(path).check_anchor(line, folder=folder).head == anchor.head
    assert ledger.sign_anchor(folder=folder).sequence == 3


def test_what_was_changed_in_an_anchor_is_noticed(ledger, folder):
    name, sequence, head, public, signature = str(ledger.sign_anchor(folder=folder)).split(":")
    faults = [
        (name, "1", head, public, signature),
        (name, sequence, "0" * 64, public, signature),
        (name, sequence, head, "1" * 64, signature),
        (name, sequence, head, public, "0" * 128),
        (name, sequence, head, public),
        ("sfumato-anchor-2", sequence, head, public, signature),
    ]
    for fault in faults:
        with pytest.raises(VerificationFailed, match="anchor"):
            ledger.check_anchor(":".join(fault), folder=folder)


def test_an_anchor_of_another_key_is_refused(ledger, folder, tmp_path):
    entry = ledger.entries()[-1]
    other = read_key(tmp_path / "other.key", create=True)
    forged = sign_anchor(entry, other)
    ledger.sign_anchor(folder=folder)
    with pytest.raises(VerificationFailed, match="another key"):
        ledger.check_anchor(str(forged), folder=folder)


def test_a_ledger_whose_end_was_cut_fails(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, Budget(1))
    charge(ledger)
    charge(ledger, "q")
    anchor = str(ledger.sign_anchor())
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM entries WHERE sequence = 3")
    connection.close()
    cut = Ledger(path)
    cut.verify()  # the chain alone does not show it
    with pytest.raises(VerificationFailed, match="cut off"):
        cut.check_anchor(anchor)
    charge(cut, "r")
    with pytest.raises(VerificationFailed, match="written anew"):
        cut.check_anchor(anchor)


def test_a_chain_that_was_sealed_anew_fails(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, Budget(1))
    charge(ledger)
    anchor = str(ledger.sign_anchor())
    before = ledger.entries()[1]
    edited = replace(before, record=before.record.replace(b'"plan_digest":"', b'"plan_digest":"other'))
    with sqlite3.connect(path) as connection:
        change = "UPDATE entries SET record = ?, hash = ? WHERE sequence = 2"
        connection.execute(change, (edited.record, edited.seal()))
    connection.close()
    Ledger(path).verify()  # the chain alone does not show it
    with pytest.raises(VerificationFailed, match="written anew"):
        Ledger(path).check_anchor(anchor)


def test_the_key_is_made_with_the_ledger_for_its_owner_only(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, Budget(1))
    key = tmp_path / "ledger.db.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert ledger.entries()[0].public_key == ledger.sign_anchor().public_key
    anchor = str(ledger.sign_anchor())
    key.rename(tmp_path / "elsewhere")
    assert ledger.check_anchor(anchor)  # the public half is in the first entry
    with pytest.raises(LedgerError, match="SFUMATO_LEDGER_KEY"):
        ledger.sign_anchor()
    read_key(key, create=True)
    with pytest.raises(LedgerError, match="missing"):
        ledger.sign_anchor()  # another key than the ledger was opened with
    key.write_text("nonsense")
    with pytest.raises(LedgerError, match="not the key"):
        ledger.sign_anchor()


def test_the_key_may_be_kept_elsewhere(tmp_path, monkeypatch):
    place = tmp_path / "safe" / "my.key"
    place.parent.mkdir()
    monkeypatch.setenv("SFUMATO_LEDGER_KEY", str(place))
    ledger = Ledger(tmp_path / "ledger.db", Budget(1))
    assert place.exists()
    assert not (tmp_path / "ledger.db.key").exists()
    assert ledger.check_anchor(str(ledger.sign_anchor()))
    assert find_key("postgresql://host/db") == place
    monkeypatch.delenv("SFUMATO_LEDGER_KEY")
    assert find_key("postgresql://host/db") is None
    assert find_key("postgresql://host/db", folder=tmp_path) == tmp_path / "ledger.key"


def test_a_ledger_without_a_key_gets_one_with_its_first_anchor(tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    monkeypatch.setattr("sfumato.accounting.find_key", lambda *_, **__: None)
    ledger = Ledger(path, Budget(1))
    monkeypatch.undo()
    assert ledger.entries()[0].public_key is None
    other = Ledger(tmp_path / "other.db", Budget(1))
    with pytest.raises(VerificationFailed, match="has no key"):
        ledger.check_anchor(str(other.sign_anchor()))
    anchor = str(ledger.sign_anchor())
    assert ledger.check_anchor(anchor)
    assert (tmp_path / "ledger.db.key").exists()


def test_a_key_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot be read or made"):
        read_key(tmp_path / "file" / "a.key", create=True)
    assert read_key(tmp_path / "none.key", create=False) is None
    assert not list(tmp_path.glob("*.new"))
