"""The whole of the protocol as libpq speaks it."""

import asyncio
import threading
import time
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

from helpers.wire import CLINICS, CountingService, RunningServer, make_certificate, spends
from sfumato.serve.state import User
from sfumato.serve.wire.session import Limits

psycopg = pytest.importorskip("psycopg")

COUNTS = "DP-SELECT 0.1 clinic, COUNT(*) FROM visits GROUP BY clinic"


@pytest.fixture(scope="module")
def server():
    with RunningServer() as running:
        yield running


@pytest.fixture
def connection(server):
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        yield connection


def plain(rows):
    return [tuple(None if value != value else value for value in row) for row in rows]


@pytest.mark.parametrize("binary", [False, True])
def test_answers_have_the_same_values_as_text_and_as_binary(server, connection, binary):
    with spends(server, 1):
        cursor = connection.execute(COUNTS, binary=binary)
        rows = cursor.fetchall()
    assert [column.name for column in cursor.description] == CLINICS.column_names
    assert plain(rows) == plain(zip(*CLINICS.to_pydict().values(), strict=True))
    assert isinstance(rows[0][3], date)
    assert isinstance(rows[0][4], datetime)
    assert rows[0][7] == Decimal("12345.60")


def test_parameters_reach_the_service_as_values(server, connection):
    text = "DP-SELECT 0.1 COUNT(*) FROM visits WHERE fee > %s AND clinic = %s AND day = %s AND flag = %s"
    for binary in ("%s", "%b"):
        given = (2.5, "North", date(2025, 2, 1), True)
        connection.execute(text.replace("%s", binary), given)
        assert server.service.asked[-1][2] == given
    connection.execute("DP-SELECT 0.1 COUNT(*) FROM visits WHERE fee > %s", ["20"])
    assert server.service.asked[-1][2] == (20.0,)  # the type was inferred
    connection.execute("DP-SELECT 0.1 COUNT(*) FROM visits WHERE x = ANY(%s)", [[1, 2, 300]])
    assert server.service.asked[-1][2] == ([1, 2, 300],)
    connection.execute("DP-SELECT 0.1 COUNT(*) FROM visits WHERE x = %s", [Decimal("-0.00012345")])
    assert server.service.asked[-1][2] == (Decimal("-0.00012345"),)


def prepare(connection, name, text):
    """Prepares without blocking: libpq's own calls keep the interpreter, and the server is in it."""
    connection.pgconn.send_prepare(name.encode(), text.encode())
    return connection.wait(psycopg.generators.execute(connection.pgconn))[0]


def test_describing_is_free(server, connection):
    with spends(server, 0):
        prepare(connection, "s1", COUNTS)
        connection.pgconn.send_describe_prepared(b"s1")
        (result,) = connection.wait(psycopg.generators.execute(connection.pgconn))
        assert [result.fname(place).decode() for place in range(result.nfields)] == CLINICS.column_names
        assert result.ftype(1) == 20


def test_a_parameter_is_never_taken_for_a_statement(server, connection):
    with spends(server, 0):
        row = connection.execute("SELECT %s::text", [COUNTS]).fetchone()
    assert row == (COUNTS,)


def test_a_price_for_plain_statements(server):
    with psycopg.connect(server.dsn(options="-csfumato.epsilon=0.25"), autocommit=True) as connection:
        assert connection.execute("SHOW sfumato.epsilon").fetchone() == ("0.25",)
        connection.execute("SELECT COUNT(*) FROM visits")
        assert str(server.service.asked[-1][1]) == "1/4"
        connection.execute("SET sfumato.epsilon = 0.5")
        connection.execute("SELECT COUNT(*) FROM visits")
        assert str(server.service.asked[-1][1]) == "1/2"
        connection.execute("SELECT set_config('sfumato.epsilon', %s, false)", ["0.125"])
        assert connection.execute("SHOW sfumato.epsilon").fetchone() == ("0.125",)
        connection.execute("RESET sfumato.epsilon")
        assert connection.execute("SHOW sfumato.epsilon").fetchone() == ("0.25",)
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET sfumato.epsilon = -1")
        with pytest.raises(psycopg.errors.UndefinedObject):
            connection.execute("SET sfumato.epsilom = 1")
        connection.execute("SET sfumato.epsilon TO ''")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="no price") as refused:
            connection.execute("SELECT COUNT(*) FROM visits")
        assert "SET sfumato.epsilon = 0.1" in refused.value.diag.message_hint


def test_a_steward_sets_the_price_and_the_most_of_a_connection(monkeypatch):
    ana = User(name="ana", role="analyst", epsilon=Fraction(1, 10), session_budget=Fraction(1, 4))
    with RunningServer() as server:
        monkeypatch.setattr(server.service, "find_user", lambda *_, **__: ana)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            assert connection.execute("SHOW sfumato.epsilon").fetchone() == ("0.1",)
            connection.execute("SET sfumato.session_budget = 100")
            for _ in range(2):
                connection.execute("SELECT clinic FROM visits")
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
                connection.execute("SELECT clinic FROM visits")
            connection.execute("SET sfumato.epsilon = 0.05")
            connection.execute("SELECT clinic FROM visits")
        assert [each[1] for each in server.service.asked] == [Fraction(1, 10)] * 2 + [Fraction(1, 20)]


def test_a_session_stops_at_its_own_budget(server):
    with psycopg.connect(server.dsn(options="-csfumato.session_budget=0.25"), autocommit=True) as connection:
        with spends(server, 2):
            for _ in range(2):
                connection.execute(COUNTS)
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as refused:
                connection.execute(COUNTS)
            assert "epsilon 0.25 in all (sfumato.session_budget)" in refused.value.diag.message_hint
        connection.execute("SET sfumato.session_budget = 0.3")
        connection.execute(COUNTS)


def test_notices_say_what_was_spent(connection):
    heard = []
    connection.add_notice_handler(lambda notice: heard.append((notice.severity, notice.message_primary)))
    connection.execute(COUNTS)
    assert heard == [("NOTICE", "epsilon 1/10 was spent")]
    connection.execute("SET client_min_messages TO warning")
    connection.execute(COUNTS)
    assert len(heard) == 1
    connection.execute("RESET client_min_messages")


def test_errors_have_their_codes_and_no_paths(connection):
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("DROP TABLE visits")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="nothing was spent"):
        connection.execute("DP-SELECT 5 COUNT(*) FROM poor")
    with pytest.raises(psycopg.Error) as found:
        connection.execute("DP-SELECT 0.1 boom FROM visits")
    assert found.value.sqlstate == "58000"
    assert "secret" not in str(found.value)
    assert "42" not in str(found.value)
    with pytest.raises(psycopg.errors.SyntaxError):
        connection.execute("SELECT 'open")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        connection.execute("SELECT " + "1 + " * 50_000 + "1")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_many_statements_stop_at_the_first_error(server, connection):
    with spends(server, 1), pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute(f"SET application_name = 'x;y'; {COUNTS}; DROP TABLE visits; {COUNTS}")
    assert connection.execute("SHOW application_name").fetchone() == ("x;y",)
    assert connection.info.parameter_status("application_name") == "x;y"
    cursor = connection.execute("SELECT 1; SELECT version()")
    assert cursor.fetchall() == [(1,)]
    assert cursor.nextset()
    assert cursor.fetchone()[0].startswith("15.0 (sfumato")


def test_a_failed_transaction_waits_for_its_end(server):
    heard = []
    with psycopg.connect(server.dsn()) as connection:
        connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        connection.execute("SET sfumato.epsilon = 0.5")
        connection.execute("SAVEPOINT a")
        connection.execute(COUNTS)
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute("DROP TABLE visits")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.execute("ROLLBACK TO a")
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.rollback()
        assert heard[-1] == "a rollback gives nothing back: epsilon 0.1 stays spent"
        assert connection.execute("SHOW sfumato.epsilon").fetchone() == ("",)
        connection.execute("SET LOCAL sfumato.epsilon = 0.5")
        connection.commit()
        assert connection.execute("SHOW sfumato.epsilon").fetchone() == ("",)
        with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
            connection.execute("ROLLBACK TO a")


def test_cursors_ask_once_and_go_both_ways(server):
    with (
        psycopg.connect(server.dsn()) as connection,
        spends(server, 1),
        connection.cursor("c", scrollable=True) as cursor,
    ):
        cursor.execute("DP-SELECT 0.1 k FROM many")
        assert [column.name for column in cursor.description] == ["k", "text"]
        assert cursor.fetchmany(3) == [(0, "row 0"), (1, "row 1"), (2, "row 2")]
        cursor.scroll(10)
        assert cursor.fetchone() == (13, "row 13")
        cursor.scroll(2499, mode="absolute")
        assert cursor.fetchall() == [(2499, "row 2499")]
        connection.execute("MOVE FIRST FROM c")
        assert connection.execute("FETCH RELATIVE 2 FROM c").fetchall() == [(2, "row 2")]
        back = connection.execute("FETCH BACKWARD ALL IN c").fetchall()
        assert back == [(1, "row 1"), (0, "row 0")]
        assert connection.execute("FETCH LAST c").fetchall() == [(2499, "row 2499")]
        assert connection.execute("FETCH c").fetchall() == []
        assert connection.execute("FETCH PRIOR c").fetchall() == [(2499, "row 2499")]
    with psycopg.connect(server.dsn(), autocommit=True) as connection, spends(server, 1):
        with connection.cursor("h", withhold=True) as cursor:
            cursor.execute("DP-SELECT 0.1 k FROM many WHERE fee > %s", [2])
            assert len(cursor.fetchall()) == 2500
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("FETCH ALL h")


def test_copy_in_three_forms(server, connection):
    with spends(server, 3), connection.cursor() as cursor:
        with cursor.copy(f"COPY ({COUNTS}) TO STDOUT") as copy:
            lines = b"".join(copy).decode().splitlines()
        assert lines[0].split("\t")[:3] == ["North", "10", "0.5"]
        assert lines[2].split("\t")[:3] == ["\\N", "1099511627776", "NaN"]
        with cursor.copy(f"COPY ({COUNTS}) TO STDOUT WITH (FORMAT csv, HEADER, DELIMITER ';')") as copy:
            lines = b"".join(copy).decode().splitlines()
        assert lines[0] == ";".join(CLINICS.column_names)
        assert lines[1].endswith(';t;12345.60;1;"{a,""b \\""c\\"""",NULL}"')
        assert lines[3].startswith(";1099511627776;NaN")
        with cursor.copy(f"COPY ({COUNTS}) TO STDOUT (FORMAT binary)") as copy:
            kinds = "text int8 float8 date timestamp timestamptz bool numeric int2 text[]"
            copy.set_types(kinds.split())
            rows = list(copy.rows())
    assert plain(rows) == plain(zip(*CLINICS.to_pydict().values(), strict=True))
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("COPY visits TO STDOUT")


def test_a_pipeline_skips_to_its_end_after_an_error(server, connection):
    def ask_in_one_go():
        with connection.pipeline():
            connection.execute(COUNTS)
            connection.execute("DROP TABLE visits")
            connection.execute(COUNTS)

    with spends(server, 1), pytest.raises(psycopg.errors.FeatureNotSupported):
        ask_in_one_go()
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_prepared_statements_are_kept_within_bounds():
    small = RunningServer(limits=Limits(statements=20, portals=5))
    with small, psycopg.connect(small.dsn(), autocommit=True) as connection:
        results = [prepare(connection, f"s{number}", "SELECT 1") for number in range(25)]
        assert b"too many prepared" in results[20].error_message
        assert not results[19].error_message
        connection.execute("DEALLOCATE ALL")
        assert not prepare(connection, "s1", "SELECT 1").error_message
        connection.execute("BEGIN")
        for number in range(4):
            connection.execute(f"DECLARE c{number} CURSOR FOR {COUNTS}")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            connection.execute(f"DECLARE c4 CURSOR FOR {COUNTS}; DECLARE c5 CURSOR FOR {COUNTS}")


def test_who_was_removed_can_ask_no_more():
    service = CountingService()
    with RunningServer(service=service) as server:
        connection = psycopg.connect(server.dsn(), autocommit=True)
        connection.execute(COUNTS)
        service.find_user = lambda name, proven: None
        with spends(server, 0), pytest.raises(psycopg.OperationalError, match="was removed"):
            connection.execute(COUNTS)
        assert connection.closed


def test_explain_costs_nothing(server, connection):
    with spends(server, 0):
        assert connection.execute(f"EXPLAIN {COUNTS}").fetchall() == [("COUNT(*)",), ("  noise 20",)]


@contextmanager
def cancels(server, connection):
    """Cancels what the connection asks within, once the service has been asked."""
    before = server.counts

    def cancel():
        while server.counts == before:
            time.sleep(0.01)
        connection.cancel_safe()

    thread = threading.Thread(target=cancel, daemon=True)
    thread.start()
    yield
    thread.join(60)


def test_cancel_answers_at_once_and_the_work_goes_on(server, connection):
    server.service.release.clear()
    with spends(server, 1), cancels(server, connection), pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute("DP-SELECT 0.1 slow FROM visits")
    assert connection.execute("SELECT 1").fetchone() == (1,)
    server.service.release.set()


def test_a_wrong_key_cancels_nothing(server, connection):
    import socket
    import struct

    server.service.release.clear()
    for secret in (b"", b"1234", b"x" * 32):
        with socket.create_connection(("127.0.0.1", server.port)) as other:
            pid = connection.info.backend_pid
            other.sendall(struct.pack("!iii", 12 + len(secret), 80877102, pid) + secret)
            assert other.recv(1) == b""
    threading.Timer(0.2, server.service.release.set).start()
    assert connection.execute("DP-SELECT 0.1 slow, clinic FROM visits").rowcount == 3


def test_wrong_passwords_are_refused_and_limited():
    with RunningServer(limits=Limits(pause_seconds=0.01)) as server:
        messages = set()
        for user in ("ana", "nobody"):
            for _ in range(3):
                with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                    psycopg.connect(server.dsn(user=user, password="wrong"))
            with pytest.raises(psycopg.OperationalError, match="too many wrong passwords") as found:
                psycopg.connect(server.dsn(user=user))
            messages.add(str(found.value).replace(user, ""))
        assert len(messages) == 1  # a name that is known is told in the same words


def test_guesses_made_at_once_are_not_more_guesses():
    async def guess(dsn):
        with pytest.raises(psycopg.OperationalError) as found:
            await psycopg.AsyncConnection.connect(dsn)
        return "password authentication failed" in str(found.value)

    async def crowd(dsn):
        return await asyncio.gather(*(guess(dsn) for _ in range(30)))

    with RunningServer(limits=Limits(pause_seconds=0.2)) as server:
        assert sum(asyncio.run(crowd(server.dsn(password="wrong")))) == 3


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory):
    files = make_certificate(tmp_path_factory.mktemp("tls"))
    with RunningServer(tls=files) as running:
        running.certificate = files[0]
        yield running


@pytest.mark.parametrize("negotiation", ["postgres", "direct"])
@pytest.mark.parametrize("binding", ["disable", "require"])
def test_tls_with_and_without_channel_binding(tls_server, negotiation, binding):
    dsn = tls_server.dsn(
        host="localhost",
        sslmode="verify-full",
        sslrootcert=tls_server.certificate,
        sslnegotiation=negotiation,
        channel_binding=binding,
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.pgconn.ssl_in_use
        assert len(connection.execute("DP-SELECT 0.1 k FROM many").fetchall()) == 2500
        assert len(connection.execute("DP-SELECT 0.1 k FROM wide").fetchall()) == 5000


@pytest.mark.parametrize("version", ["3.0", "3.2", "latest"])
def test_versions_of_the_protocol(server, version):
    with psycopg.connect(server.dsn(max_protocol_version=version), autocommit=True) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        server.service.release.clear()
        with cancels(server, connection), pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("DP-SELECT 0.1 slow FROM visits")
        server.service.release.set()


def test_a_server_that_stops_lets_statements_finish():
    with RunningServer() as server:
        idle = psycopg.connect(server.dsn(), autocommit=True)
        busy = psycopg.connect(server.dsn(), autocommit=True)
        rows = []
        thread = threading.Thread(
            target=lambda: rows.extend(busy.execute("DP-SELECT 0.1 slow, clinic FROM visits").fetchall())
        )
        thread.start()
        while not server.service.asked:
            time.sleep(0.01)
    thread.join()
    assert len(rows) == 3
    with pytest.raises(psycopg.errors.AdminShutdown):
        idle.execute("SELECT 1")
    busy.close()
    idle.close()
