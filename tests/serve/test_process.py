"""The server as a process: stopped, killed, doubled, cut off from its ledger, its table replaced."""

import asyncio
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.postgres_server import PASSWORD as KEEPER
from helpers.postgres_server import Server, why_missing
from helpers.served import PASSWORD, Served, add_user, serve
from helpers.wire import make_certificate
from sfumato.serve.facts import list_audit_files
from sfumato.serve.run import Log
from sfumato.serve.settings import Settings
from sfumato.serve.state import FileTables, State

psycopg = pytest.importorskip("psycopg", reason="`make engines` installs psycopg")

COUNT = "DP-SELECT 0.25 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"
# The process dies by itself when it has charged and is about to read.
DIES = """
import os, signal
from sfumato.core.engine.statements import StatementEngine
def aggregate(self, *args, **options):
    os.kill(os.getpid(), signal.SIGKILL)
StatementEngine.aggregate = aggregate
import sfumato.servers.project as module
module.ProjectEngine.aggregate = aggregate
"""
SLOW = """
import time
import sfumato.servers.project as module
plain = module.ProjectEngine.aggregate
def aggregate(self, *args, **options):
    time.sleep(2)
    return plain(self, *args, **options)
module.ProjectEngine.aggregate = aggregate
"""
# When it has charged it reads only once there is a file "go on".
WAITS = SLOW.replace("time.sleep(2)", "while not Path('go on').exists(): time.sleep(0.05)").replace(
    "import time", "import time; from pathlib import Path"
)


def charges(folder):
    return [entry for entry in sf.open(folder / "sfumato.toml").budget().entries if entry.kind == "charge"]


def ask(dsn, statement=COUNT):
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement).fetchall()


def wait_for_charge(folder):
    while not charges(folder):
        time.sleep(0.05)


def leave_early(dsn, statement, *, after):
    with psycopg.connect(dsn, autocommit=True) as connection:
        # Its socket is cut, and not itself closed: another thread is using it.
        line = socket.socket(fileno=os.dup(connection.fileno()))
        cut = threading.Timer(after, line.shutdown, [socket.SHUT_RDWR])
        cut.start()
        try:
            connection.execute(statement)
        finally:
            cut.cancel()
            cut.join()
            line.close()


def test_killed_between_charge_and_answer_the_answer_is_there_after_a_restart(folder):
    add_user(folder)
    with serve(folder, preload=DIES) as served:
        with pytest.raises(psycopg.OperationalError):
            ask(served.dsn())
        assert served.process.wait(timeout=60) == -signal.SIGKILL
    assert len(charges(folder)) == 1
    with serve(folder) as served:
        rows = ask(served.dsn())
        assert ask(served.dsn()) == rows
    assert len(charges(folder)) == 1
    assert sf.open(folder / "sfumato.toml").budget().spent == Fraction(1, 4)


def test_a_stop_finishes_what_was_charged(folder):
    add_user(folder)
    answers = []
    served = Served(folder, preload=SLOW)
    asking = threading.Thread(target=lambda: answers.append(ask(served.dsn())))
    asking.start()
    wait_for_charge(folder)
    assert served.stop() == 0
    asking.join()
    assert len(answers) == 1
    with serve(folder) as again:
        assert ask(again.dsn()) == answers[0]
    assert len(charges(folder)) == 1


def test_a_client_that_cancels_is_told_at_once_and_finds_its_answer_later(folder):
    add_user(folder)
    with serve(folder, preload=WAITS) as served:
        with psycopg.connect(served.dsn(), autocommit=True) as connection:

            def cancel():
                wait_for_charge(folder)
                connection.cancel()

            cancelling = threading.Thread(target=cancel)
            cancelling.start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute(COUNT)
            cancelling.join()
            (folder / "go on").touch()
            rows = connection.execute(COUNT).fetchall()
        assert ask(served.dsn()) == rows
    assert len(charges(folder)) == 1


def test_a_new_token_ends_what_the_old_one_opened_on_every_server(folder):
    state = State(FileTables(folder / "serve.db"))
    token, own = state.add_user("eve", "analyst"), "a password of her own"
    state.add_user("ben", "analyst", password=own)
    with ExitStack() as held:
        servers = [held.enter_context(serve(folder)) for _ in range(2)]
        dsns = [served.dsn("eve", password=token) for served in servers]
        connections = [held.enter_context(psycopg.connect(dsn, autocommit=True)) for dsn in dsns]
        kept = held.enter_context(psycopg.connect(servers[0].dsn("ben", password=own), autocommit=True))
        for connection in connections:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
        new = [state.new_token(name) for name in ("eve", "ben")]
        for connection in connections:
            with pytest.raises(psycopg.OperationalError, match="log in again"):
                connection.execute("SELECT 1")
            assert connection.closed
        assert ask(servers[1].dsn("eve", password=new[0]), "SELECT 1") == [(1,)]
        assert kept.execute("SELECT 1").fetchall() == [(1,)]  # opened by what is still his
        state.remove_user("ben")
        state.add_user("ben", "steward", password="another password")
        with pytest.raises(psycopg.OperationalError, match="log in again"):
            kept.execute("SELECT 1")
    assert charges(folder) == []


def test_what_is_kept_somewhere_holds_no_link(folder):
    with serve(folder) as served:
        assert "steward" not in served.addresses
        assert "link" not in json.dumps(served.addresses)
    command = [sys.executable, "-m", "sfumato", "serve", "--http-port", "0", "--pg-port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        told = [server.stdout.readline() for _ in range(7)]
        server.send_signal(signal.SIGTERM)
    assert told[-1].startswith("Others:")
    assert "link=" not in "".join(told)
    shown, terminal = os.openpty()
    with subprocess.Popen(command, cwd=folder, stdout=terminal) as server, os.fdopen(shown) as lines:
        while not (line := lines.readline()).startswith("Steward, open this once"):
            assert server.poll() is None
        server.send_signal(signal.SIGTERM)
    os.close(terminal)
    assert "/enter?link=" in line
    with serve(folder, options=("--link", "steward")) as served:
        with urllib.request.urlopen(served.addresses["steward"]) as page:
            assert page.status == 200
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(served.addresses["steward"])


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_terminal_that_is_closed_ends_a_server_in_order(folder):
    command = [sys.executable, "-m", "sfumato", "serve", "--http-port", "0", "--pg-port", "0"]
    shown, terminal = os.openpty()
    with subprocess.Popen(command, cwd=folder, stdout=terminal) as server, os.fdopen(shown) as lines:
        while not lines.readline().startswith("Others:"):
            assert server.poll() is None
        server.send_signal(signal.SIGHUP)
        assert server.wait(timeout=60) == 0
    os.close(terminal)
    assert [line["event"] for line in read_audit(folder)] == ["start", "stop"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_server_reads_its_files_again_and_keeps_what_it_has_where_they_are_wrong(folder):
    add_user(folder)
    (folder / "audit.jsonl").touch(mode=0o644)
    make_certificate(folder)
    with (folder / "sfumato.toml").open("a") as project:
        project.write('[serve]\ncertificate = "server.crt"\nkey = "server.key"\n')

    def reload(served, text):
        (folder / "sfumato.toml").write_text(text)
        before = len(read_audit(folder))
        served.process.send_signal(signal.SIGHUP)
        while len(lines := read_audit(folder)) == before or lines[-1]["event"] != "reload":
            assert served.process.poll() is None
            time.sleep(0.05)
        return lines[-1]["outcome"]

    def fingerprint(served):
        return ssl.get_server_certificate(("127.0.0.1", int(served.addresses["http_port"])))

    told = (folder / "sfumato.toml").read_text()
    (folder / "wards.csv").write_text("name\na\n")
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
    with serve(folder) as served, psycopg.connect(served.dsn(), autocommit=True) as kept:
        first = fingerprint(served)
        assert reload(served, "[budget") == "refused"
        assert ask(served.dsn(), tables) == [("visits",)]
        make_certificate(folder)
        more = '[tables.wards]\npublic = true\nsource = "wards.csv"\n'
        assert reload(served, told.replace("[serve]", f"{more}[serve]\napprove_above = 0.1")) == "ok"
        assert ask(served.dsn(channel_binding="require"), tables) == [("visits",), ("wards",)]
        assert ask(served.dsn(), "SELECT name FROM wards") == [("a",)]
        assert fingerprint(served) != first
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="approval"):
            kept.execute(COUNT)
    assert stat.S_IMODE((folder / "audit.jsonl").stat().st_mode) == 0o600


PROXY = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{plain}; location / {{ proxy_pass {page}; }} }}
  server {{
    listen 127.0.0.1:{full};
    location / {{
      proxy_pass {page};
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For 192.0.2.7;
      proxy_set_header X-Forwarded-Proto https;
    }}
  }}
}}
"""


def test_people_sign_in_through_nginx(folder):
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.skip("the Debian package nginx-light is not installed")
    add_user(folder)
    with (folder / "sfumato.toml").open("a") as project:
        project.write('[serve]\nbehind_proxy = true\nnames = ["clinic.example"]\n')
    ports = []
    with ExitStack() as held:
        for _ in range(2):
            free = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(free.getsockname()[1])
    with serve(folder) as served:
        page = f"http://127.0.0.1:{served.addresses['http_port']}"
        facts = {"folder": folder, "page": page, "plain": ports[0], "full": ports[1]}
        (folder / "nginx.conf").write_text(PROXY.format(**facts))
        with subprocess.Popen([nginx, "-e", folder / "nginx.log", "-c", folder / "nginx.conf"]) as proxy:

            def send(port, origin):
                form = urllib.parse.urlencode({"name": "ana", "password": PASSWORD, "next": "/"})
                headers = {"Host": "clinic.example", "Origin": origin}
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as line:
                    line.request("POST", "/login", body=form, headers=headers)
                    reply = line.getresponse()
                    return reply.status, reply.headers.get("Set-Cookie", "")

            try:
                for port in ports:
                    while proxy.poll() is None:
                        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                            break
                    assert send(port, "https://clinic.example")[0] == 303
                    assert send(port, "https://evil.example")[0] == 403
                assert send(ports[1], "https://clinic.example")[1].startswith("__Host-sfumato=")
            finally:
                proxy.terminate()
    logins = [line["address"] for line in read_audit(folder) if line["event"] == "login"]
    assert logins == ["127.0.0.1", "192.0.2.7", "192.0.2.7"]


def read_audit(folder):
    return list(map(json.loads, (folder / "audit.jsonl").read_text().splitlines()))


def test_the_audit_log_begins_new_files_and_keeps_so_many(tmp_path):
    settings = Settings(audit_megabytes=1, audit_files=2)
    log = Log(tmp_path / "audit.jsonl", settings=settings)
    for number in range(50):
        log({"event": "ask", "number": number, "text": "x" * 100_000})
    files = list_audit_files(tmp_path)
    assert [path.name == "audit.jsonl" for path in files] == [False, False, True]
    assert all(path.stat().st_size < 1_200_000 for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    numbers = [json.loads(line)["number"] for path in files for line in path.read_text().splitlines()]
    assert numbers == list(range(numbers[0], 50))


def test_sixty_four_clients_with_one_statement_make_one_charge(folder):
    add_user(folder)
    token = add_user(folder, "ben")
    with serve(folder) as served:

        async def gather():
            by_wire = (asyncio.to_thread(ask, served.dsn()) for _ in range(48))
            by_http = (
                asyncio.to_thread(served.post, "/api/sql", {"sql": COUNT}, token=token) for _ in range(16)
            )
            return await asyncio.gather(*by_wire, *by_http)

        replies = asyncio.run(gather())
    rows = {
        str([list(row) for row in (reply if isinstance(reply, list) else reply["rows"])]) for reply in replies
    }
    assert len(rows) == 1
    assert len(charges(folder)) == 1


def test_two_servers_on_one_ledger_share_one_budget(folder):
    add_user(folder, share="10")
    with serve(folder) as one, serve(folder) as other:
        for served in (one, other):  # a token made while they run counts at once
            assert "rows" in served.post("/api/sql", {"sql": COUNT}, token=add_user(folder, f"u{id(served)}"))
        dsns, faults = [one.dsn(), other.dsn()] * 4, []

        def spend(dsn, number):
            for part in range(4):
                statement = f"DP-SELECT 0.5 COUNT(*) FROM visits WHERE fee > {number * 4 + part}"
                try:
                    ask(dsn, statement)
                except psycopg.errors.ConfigurationLimitExceeded:
                    pass
                except psycopg.Error as error:
                    faults.append(error)

        threads = [threading.Thread(target=spend, args=(dsn, i)) for i, dsn in enumerate(dsns)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not faults
    budget = sf.open(folder / "sfumato.toml").budget()
    assert budget.spent == Fraction(39, 4)  # a quarter, and nineteen of the 32 halves
    assert len(charges(folder)) == 20


@pytest.mark.skipif(bool(why_missing()), reason=why_missing() or "there is a server")
def test_two_servers_on_one_ledger_in_postgresql_and_one_that_goes_away(folder, monkeypatch):
    server = Server()
    try:
        url, env = server.url(schema="served"), {"PGPASSWORD": KEEPER}
        text = (folder / "sfumato.toml").read_text(encoding="utf-8")
        (folder / "sfumato.toml").write_text(
            text.replace("epsilon = 10.0", f'epsilon = 10.0\nledger = "{url}"'), encoding="utf-8"
        )
        monkeypatch.setenv("PGPASSWORD", KEEPER)
        add_user(folder)
        with serve(folder, env=env) as one, serve(folder, env=env) as other:
            rows = ask(one.dsn())
            assert ask(other.dsn()) == rows
            server.halt(mode="fast")
            with pytest.raises(psycopg.Error) as caught:
                ask(one.dsn(), "DP-SELECT 0.5 COUNT(*) FROM visits")
            assert str(server.folder) not in str(caught.value)
            server.start()
            assert len(ask(one.dsn(), "DP-SELECT 0.5 COUNT(*) FROM visits")) == 1
            assert ask(other.dsn()) == rows
        assert len(charges(folder)) == 2
    finally:
        server.stop()


def test_a_replaced_table_is_a_new_question_and_a_lost_ledger_spends_nothing(folder):
    add_user(folder)
    with serve(folder) as served:
        first = ask(served.dsn())
        table = pq.read_table(folder / "visits.parquet")
        pq.write_table(pa.concat_tables([table] * 3), folder / "new.parquet")
        (folder / "new.parquet").rename(folder / "visits.parquet")
        second = ask(served.dsn())
        assert second != first
        assert ask(served.dsn()) == second
        (folder / "ledger.db").rename(folder / "away.db")
        with pytest.raises(psycopg.Error) as caught:
            ask(served.dsn(), "DP-SELECT 0.1 COUNT(*) FROM visits")
        assert str(folder) not in str(caught.value)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{served.page}/readyz")
        (folder / "away.db").rename(folder / "ledger.db")
        with urllib.request.urlopen(f"{served.page}/readyz") as ready:
            assert ready.status == 200
        assert len(ask(served.dsn(), "DP-SELECT 0.1 COUNT(*) FROM visits")) == 1
    assert len(charges(folder)) == 3


def test_a_full_disk_is_no_answer_and_no_crash(folder):
    token = add_user(folder)
    # Files of the server cannot grow beyond what the ledger has now.
    full = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    with serve(folder) as served:
        ask(served.dsn())
    size = max(file.stat().st_size for file in folder.iterdir())
    full += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 4096 * 4096}, {size // 4096 * 4096}))\n"
    with serve(folder, preload=full) as served:
        refusals, kinds = [], set()
        for number in range(40):
            try:
                ask(served.dsn(), f"DP-SELECT 0.01 COUNT(*) FROM visits WHERE fee > {number}")
            except psycopg.Error as error:
                refusals.append(str(error))
        for number in range(40, 80):
            sql = f"DP-SELECT 0.01 COUNT(*) FROM visits WHERE fee > {number}"
            kinds.add(served.post("/api/sql", {"sql": sql}, token=token).get("error", {}).get("kind"))
        assert kinds <= {"LedgerError", None}  # 503: neither the statement's fault nor its price
        assert str(folder) not in "".join(refusals)
        assert served.process.poll() is None
        assert ask(served.dsn(), "SELECT 1") == [(1,)]
    sf.open(folder / "sfumato.toml").budget()
    with serve(folder) as served:
        assert len(ask(served.dsn(), "DP-SELECT 0.01 COUNT(*) FROM visits WHERE fee > 39")) == 1


@pytest.mark.slow
def test_a_while_of_mixed_load_loses_nothing(folder):
    """As long as SFUMATO_LOAD_SECONDS says: every answer stays what it was, every charge is counted once."""
    seconds = float(os.environ.get("SFUMATO_LOAD_SECONDS", "30"))
    token = add_user(folder, share="9")
    answers, faults, guard = {}, [], threading.Lock()
    stop = time.monotonic() + seconds

    def keep(statement, rows):
        with guard:
            if answers.setdefault(statement, rows) != rows:
                faults.append(statement)

    def work(served, seed):
        rng = random.Random(seed)
        while time.monotonic() < stop:
            number = rng.randrange(400)
            statement = (
                f"DP-SELECT 0.01 clinic, COUNT(*) AS n FROM visits WHERE fee > {number} GROUP BY clinic"
            )
            try:
                kind = rng.randrange(6)
                if kind == 0:
                    reply = served.post("/api/sql", {"sql": statement}, token=token)
                    keep(statement, [tuple(row) for row in reply["rows"]])
                elif kind == 1:
                    served.post("/api/explain", {"sql": statement}, token=token)
                elif kind == 2:  # leaves in the middle
                    leave_early(served.dsn(), statement, after=rng.random() / 10)
                elif kind == 3:
                    ask(served.dsn(), "SELECT relname FROM pg_catalog.pg_class WHERE relname = 'visits'")
                elif kind == 4:
                    ask(served.dsn("nobody", password="wrong"))
                else:
                    keep(statement, ask(served.dsn(), statement))
            except (psycopg.Error, OSError, KeyError):
                pass  # they left, or were refused

    with serve(folder) as served:
        threads = [threading.Thread(target=work, args=(served, seed)) for seed in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for statement, rows in answers.items():
            assert ask(served.dsn(), statement) == rows
    assert not faults
    made = charges(folder)
    assert len({entry.plan_digest for entry in made}) == len(made)
    assert sf.open(folder / "sfumato.toml").budget().sums.epsilon == Fraction(len(made), 100)
    sf.accounting.Ledger(folder / "ledger.db").verify()
