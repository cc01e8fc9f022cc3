"""A ledger in PostgreSQL: what it refuses, what it promises, and who may do what."""

import secrets
import sys
import threading
from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger, find_store
from sfumato.core.errors import Conflict, LedgerError, SfumatoError
from sfumato.core.ledger import store
from sfumato.core.ledger.store import try_again

TENTH = Cost(kind="pure", scale=Fraction(1, 10))
PLAN = {"plan_digest": "p", "table_version": "v"}


def charge(ledger, *, table="t", resumable=False):
    return ledger.charge(description={}, table=table, costs=(TENTH,), resumable=resumable, **PLAN)


@pytest.fixture
def schema():
    return f"s{secrets.token_hex(6)}"


@pytest.fixture
def url(server, schema):
    return server.url(schema=schema)


@pytest.fixture
def ledger(url):
    return Ledger(url, Budget(1))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://ana:hunter2@host/db", "PGPASSWORD"),
        ("postgresql://ana:@host/db", "PGPASSWORD"),
        ("postgresql://host/db?password=hunter2", "PGPASSWORD"),
        ("postgres://host/db?sslpassword=hunter2", "PGPASSWORD"),
        ("postgresql://host/db?options=-csynchronous_commit%3Doff", "may say"),
        ("postgresql://host/db?schema=a&schema=b", "each once"),
        ("postgresql://host/db#hunter2", "may say"),
        ("postgresql://host/db?hunter2", "cannot be read"),
        ("postgresql://host:hunter2/db", "cannot be read"),
        ("postgresql://one,two/db", "several servers"),
        ("postgresql://host/db?schema=public", "to itself"),
        ("postgresql://host/db?schema=pg_x", "small letters"),
        ('postgresql://host/db?schema=a"b', "small letters"),
        ("postgresql://host/db?schema=", "small letters"),
        ("mysql://ana:hunter2@host/db", "postgresql://HOST"),
        ("postgresql:hunter2", "postgresql://HOST"),
        ("PostgreSQL://host/hunter2", "postgresql://HOST"),
    ],
)
def test_urls_that_are_refused_are_not_repeated(url, words):
    with pytest.raises(LedgerError, match=words) as it:
        Ledger(url, Budget(1))
    assert "hunter2" not in str(it.value)


def test_a_ledger_shows_neither_user_nor_socket(ledger, server, schema, url):
    assert repr(ledger) == f"Ledger('postgresql:///postgres?schema={schema}')"
    assert ledger.path == url
    store = find_store("postgresql://ana@db.example.org:5433/privacy?service=s&sslmode=require")
    assert repr(store) == (
        "PostgresStore('postgresql://db.example.org:5433/privacy?service=s&schema=sfumato')"
    )


def test_one_database_holds_several_ledgers(server):
    one, two = (Ledger(server.url(), Budget(1)) for _ in range(2))
    charge(one)
    assert (one.report().left, two.report().left) == (Fraction(9, 10), 1)
    assert one.secret != two.secret


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET record = record || ' ' WHERE sequence = 2",
        "UPDATE entries SET record = set_byte(record, 20, 65) WHERE sequence = 2",
        "UPDATE entries SET record = 'nonsense' WHERE sequence = 2",
        "UPDATE entries SET hash = 'zz' WHERE sequence = 2",
        "DELETE FROM entries WHERE sequence = 3",
        "DELETE FROM entries WHERE sequence = 1",
        "DELETE FROM entries",
        "UPDATE entries SET sequence = 9 WHERE sequence = 4",
        "UPDATE meta SET format = 1",
        "DELETE FROM meta",
        "INSERT INTO meta SELECT * FROM meta",
        "UPDATE meta SET secret = 'x'",
    ],
)
def test_edits_are_detected(server, schema, url, ledger, statement, forget):
    for _ in range(3):
        charge(ledger)
    server.execute(f"SET search_path = {schema}", statement)
    forget()
    with pytest.raises(LedgerError, match=schema):
        Ledger(url, Budget(1))
    if "secret" not in statement:
        with pytest.raises(LedgerError, match=schema):
            ledger.verify()


def idle_connections(url):
    return [connection for place, connection in store.connections.idle if place == url]


def test_connections_are_kept_and_made_anew_when_the_server_ended_them(server, url, ledger):
    import psycopg

    charge(ledger)
    kept = idle_connections(url)
    assert len(kept) == 1
    charge(ledger)
    assert idle_connections(url) == kept
    server.execute(f"SELECT pg_terminate_backend({kept[0].info.backend_pid})")
    charge(ledger)
    assert len(ledger.entries()) == 4
    assert idle_connections(url)[0] is not kept[0]
    with pytest.raises(LedgerError), ledger._store.open(timeout=5, write=True) as session:
        session.run("SELECT 1/0")
    for connection in idle_connections(url):
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


REFUND = "CREATE FUNCTION refund() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"


@pytest.mark.parametrize(
    "statements",
    [
        f"{REFUND}; CREATE TRIGGER t BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION refund()",
        "CREATE RULE r AS ON INSERT TO entries DO INSTEAD NOTHING",
        "ALTER TABLE entries ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON entries USING (sequence < 2)",
        "ALTER TABLE entries SET UNLOGGED",
        "ALTER TABLE entries ADD COLUMN note text",
        "ALTER TABLE entries DROP COLUMN record",
        "ALTER TABLE entries DROP COLUMN hash; ALTER TABLE entries ADD COLUMN hash text NOT NULL DEFAULT 'x'",
        "ALTER TABLE entries ALTER COLUMN hash SET DEFAULT 'x'",
        "ALTER TABLE entries ALTER COLUMN hash DROP NOT NULL",
        "ALTER TABLE entries ALTER COLUMN hash TYPE varchar(70)",
        "ALTER TABLE entries DROP CONSTRAINT entries_pkey",
        "ALTER TABLE entries ADD CHECK (sequence < 9)",
        "CREATE TABLE heir () INHERITS (entries)",
        "CREATE TABLE public.{schema}_heir () INHERITS (entries)",
        "CREATE TABLE public.{schema}_key (k bigint REFERENCES entries)",
        "CREATE INDEX ON entries (lower(hash))",
        "CREATE TABLE more (note text)",
        "CREATE VIEW more AS SELECT 1",
        "DROP TABLE answers",
        "DROP TABLE progress",
        "ALTER TABLE entries RENAME TO kept; CREATE VIEW entries AS SELECT * FROM kept WHERE sequence < 2",
    ],
)
def test_a_changed_layout_is_refused(server, schema, url, ledger, statements):
    charge(ledger)
    server.execute(f"SET search_path = {schema}", statements.format(schema=schema))
    for opening in (lambda: Ledger(url, Budget(1)), lambda: charge(ledger)):
        with pytest.raises(LedgerError, match="tables were changed"):
            opening()
    with pytest.raises(LedgerError, match=r"tables were changed|does not exist"):
        Ledger.read_only(url)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE answers SET payload = substring(payload, 1, 3)",
        "UPDATE answers SET payload = 'x', sha256 = '0'",
        "DELETE FROM answers",
    ],
)
def test_edited_answers_are_detected(server, schema, ledger, statement):
    ledger.store_answer(charge(ledger), b"payload")
    server.execute(f"SET search_path = {schema}", statement)
    with pytest.raises(LedgerError, match="answer"):
        ledger.find_answer(**PLAN)
    with pytest.raises(LedgerError, match="answer"):
        ledger.verify()


def test_a_cut_end_is_noticed_by_an_open_ledger_and_by_an_anchor(server, schema, url, ledger):
    charge(ledger)
    anchor = ledger.verify()
    server.execute(f"DELETE FROM {schema}.entries WHERE sequence = 2")
    with pytest.raises(LedgerError, match="are gone"):
        charge(ledger)
    with pytest.raises(LedgerError, match="anchor"):
        Ledger(url).verify(anchor=anchor)


def test_what_is_in_the_schema_already_is_no_ledger_and_stays(server, schema, url):
    server.execute(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.mine AS SELECT 1 AS a")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(url, Budget(1))
    assert server.execute(f"SELECT a FROM {schema}.mine") == [(1,)]


def test_a_removed_ledger_is_not_made_anew_by_a_charge(server, schema, url, ledger):
    server.execute(f"DROP SCHEMA {schema} CASCADE")
    for opening in (lambda: charge(ledger), lambda: Ledger(url), lambda: Ledger.read_only(url)):
        with pytest.raises(LedgerError, match="does not exist"):
            opening()
    assert not find_store(url).exists(timeout=5)


def test_every_commit_waits_for_the_disk_whatever_the_role_says(server, url, ledger):
    server.execute("ALTER ROLE keeper SET synchronous_commit = off")
    try:
        with find_store(url).open(timeout=5, write=True) as session:
            assert session.run("SHOW synchronous_commit") == [("on",)]
            assert session.run("SHOW transaction_isolation") == [("serializable",)]
            assert session.run("SHOW lock_timeout") == [("5s",)]
    finally:
        server.execute("ALTER ROLE keeper RESET synchronous_commit")


def test_a_server_that_may_forget_is_refused(server, url, ledger):
    server.configure("fsync", "off")
    try:
        for opening in (lambda: charge(ledger), lambda: Ledger(server.url(), Budget(1))):
            with pytest.raises(LedgerError, match="fsync = off"):
                opening()
        assert ledger.report().left == 1
    finally:
        server.configure("fsync", None)
    charge(ledger)


def test_a_database_that_cannot_spell_every_name_is_refused(server):
    server.execute("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(LedgerError, match="UTF8"):
        Ledger(server.url(database="ascii"), Budget(1))


@pytest.mark.parametrize("name", ["жители 👪", "a\0b"])
def test_every_name_is_kept(url, ledger, name):
    assert charge(ledger, table=name).table == Ledger(url).entries()[1].table == name


def test_a_reader_cannot_write_and_creates_nothing(server, url, ledger):
    with (
        pytest.raises(LedgerError, match="cannot be written"),
        find_store(url).open(timeout=5, write=False) as session,
    ):
        session.run("DELETE FROM entries")
    with pytest.raises(LedgerError, match="reading only"):
        charge(Ledger.read_only(url))
    missing = server.url()
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.read_only(missing)
    assert not find_store(missing).exists(timeout=5)


def test_an_error_inside_rolls_back(url, ledger):
    def interrupted():
        with find_store(url).open(timeout=5, write=True) as session:
            session.run("DELETE FROM entries")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    ledger.verify()


def test_a_lock_is_waited_for_and_then_named(url, ledger):
    with find_store(url).open(timeout=5, write=True):
        with pytest.raises(LedgerError, match="locked by another process"):
            Ledger(url, timeout=0.05)
        assert len(ledger.entries()) == 1
        assert Ledger.read_only(url).report().left == 1
    charge(Ledger(url, timeout=0.5))


def test_who_waited_sees_what_was_charged_meanwhile_without_a_second_try(url, ledger, monkeypatch):
    monkeypatch.setattr(store, "_TRIES", 1)
    spenders = [threading.Thread(target=charge, args=(Ledger(url),)) for _ in range(4)]
    with find_store(url).open(timeout=5, write=True):
        for spender in spenders:
            spender.start()
        spenders[0].join(0.3)
        assert all(spender.is_alive() for spender in spenders)
    for spender in spenders:
        spender.join()
    assert ledger.report().left == Fraction(6, 10)


def test_an_entry_written_past_the_lock_is_a_conflict(server, schema, url, ledger):
    copy = f"INSERT INTO {schema}.entries SELECT 2, record, hash FROM {schema}.entries WHERE sequence = 1"

    def clash():
        with find_store(url).open(timeout=5, write=True) as session:
            session.read_rows(start=1)
            server.execute(copy)
            session.run(copy)

    with pytest.raises(Conflict, match="written by others"):
        clash()
    with pytest.raises(LedgerError, match="entry 2 was edited"):
        charge(ledger)


def test_tries_are_bounded():
    tries = []

    class Busy:
        @try_again
        def work(self, *, until):
            tries.append(1)
            if len(tries) < until:
                raise Conflict("busy")
            return len(tries)

    assert Busy().work(until=3) == 3
    with pytest.raises(Conflict):
        Busy().work(until=99)
    assert len(tries) == 3 + 5


def test_of_many_who_create_at_once_all_use_the_first(url):
    made, gate = [], threading.Barrier(8)

    def create():
        gate.wait()
        made.append(Ledger(url, Budget(1)).secret)

    creators = [threading.Thread(target=create) for _ in range(8)]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join()
    assert len(made) == 8
    assert len(set(made)) == 1
    assert [entry.kind for entry in Ledger(url).entries()] == ["open"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"database": "none"}, "no such database"),
        ({"user": "nobody_we_know"}, "refuses the user"),
    ],
)
def test_what_the_server_refuses_is_told_in_words(server, change, words):
    with pytest.raises(LedgerError, match=words) as it:
        Ledger(server.url(**change), Budget(1))
    assert it.value.__cause__ is None
    assert "nobody_we_know" not in str(it.value)


def test_wrong_and_missing_passwords_are_told_apart(server, url, monkeypatch, tmp_path):
    monkeypatch.setenv("PGPASSWORD", "wrong horse")
    with pytest.raises(LedgerError, match="the user or the password") as it:
        Ledger(url, Budget(1))
    assert "wrong horse" not in str(it.value)
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with pytest.raises(LedgerError, match="asks for a password"):
        Ledger(url, Budget(1))


def test_a_service_file_tells_the_rest(server, schema, monkeypatch, tmp_path):
    file = tmp_path / "services"
    file.write_text(
        f"[team]\nhost={server.folder}\nuser=keeper\ndbname=postgres\npassword=a secret of the tests\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    monkeypatch.delenv("PGPASSWORD")
    ledger = Ledger(f"postgresql:///?service=team&schema={schema}", Budget(1))
    assert repr(ledger) == f"Ledger('postgresql:///?service=team&schema={schema}')"
    with pytest.raises(LedgerError, match="service"):
        Ledger("postgresql:///?service=none", Budget(1))


@pytest.mark.usefixtures("server")  # which skips without the driver
def test_an_unreachable_server_is_named():
    with pytest.raises(
        LedgerError, match=r"'postgresql://localhost:1/db\?schema=sfumato'.*cannot be reached"
    ):
        Ledger("postgresql://localhost:1/db", Budget(1))


def test_a_missing_driver_is_named(url, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"sfumato\[postgres\]"):
        Ledger(url, Budget(1))


def test_the_documented_grants_suffice_and_no_more_is_possible(server, schema, url, ledger):
    writer, reader = f"{schema}_w", f"{schema}_r"
    server.execute(
        *(f"CREATE ROLE {role} LOGIN PASSWORD 'a secret of the tests'" for role in (writer, reader)),
        f"GRANT USAGE ON SCHEMA {schema} TO {writer}, {reader}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {writer}, {reader}",
        f"GRANT INSERT ON {schema}.entries, {schema}.answers, {schema}.progress TO {writer}",
        f"GRANT UPDATE, DELETE ON {schema}.progress TO {writer}",
        f"GRANT INSERT, DELETE ON {schema}.labels, {schema}.summary TO {writer}",
    )
    written = Ledger(server.url(schema=schema, user=writer), Budget(1))
    entry = charge(written, resumable=True)
    written.store_progress(entry, b"one", after=b"")
    written.store_answer(entry, b"one two", after=b"one")
    written.change_budget(Budget(2))
    assert Ledger.read_only(server.url(schema=schema, user=reader)).verify() == ledger.verify()
    with pytest.raises(LedgerError, match=r"closed to this user.*docs/ledger\.md"):
        Ledger(server.url(schema=schema, user=reader))
    with pytest.raises(LedgerError, match="closed to this user"):
        Ledger(server.url(user=reader), Budget(1))
    for statement in ("DELETE FROM entries", "UPDATE entries SET hash = 'x'", "DELETE FROM answers"):
        with (
            pytest.raises(SfumatoError, match="closed"),
            find_store(server.url(schema=schema, user=writer)).open(timeout=5, write=True) as session,
        ):
            session.run(statement)
