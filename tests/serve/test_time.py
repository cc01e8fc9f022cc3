"""Clocks that jump, and certificates that end."""

import signal
import ssl
import time
import urllib.request
from fractions import Fraction

import pytest

import sfumato as sf
from helpers.cli import run_main
from helpers.served import add_user, serve
from helpers.wire import make_certificate
from sfumato.serve import state as kept

psycopg = pytest.importorskip("psycopg", reason="`make engines` installs psycopg")

# The server's clock is off by the seconds in the file "clock".
JUMPS = """
import time
from datetime import datetime
from pathlib import Path
import sfumato.core.ledger.chain, sfumato.serve.facts
time.time = lambda real=time.time, clock=Path("clock"): real() + float(clock.read_text() or 0)
class Jumping(datetime):
    @classmethod
    def now(cls, tz=None, time=time, datetime=datetime):
        return datetime.fromtimestamp(time.time(), tz)
for module in (sfumato.core.ledger.chain, sfumato.serve.facts):
    module.datetime = Jumping
"""
DAY = 86400


def ask(line, number):
    return line.execute(f"DP-SELECT 0.01 COUNT(*) AS n FROM visits WHERE fee > {number}").fetchall()


def test_a_clock_that_jumps_neither_charges_twice_nor_lifts_a_limit(folder):
    add_user(folder, "ana")
    token = add_user(folder, "ben")
    run_main("user", "limit", "ben", "--daily", "0.02", cwd=folder)
    clock = folder / "clock"

    def spend(number):
        sql = f"DP-SELECT 0.01 COUNT(*) AS n FROM visits WHERE fee > {number}"
        return served.post("/api/sql", {"sql": sql}, token=token).get("spent")

    clock.write_text("0")
    with serve(folder, preload=JUMPS) as served, psycopg.connect(served.dsn(), autocommit=True) as line:
        first = ask(line, 0)
        assert [spend(number) for number in (1, 2, 3)] == [0.01, 0.01, None]
        for number, jump in enumerate((3 * DAY, -3 * DAY, 3600, -3600, 0), start=10):
            clock.write_text(f"{jump}")
            assert ask(line, 0) == first
            assert ask(line, number) == ask(line, number)
            assert spend(number + 20) == (0.01 if jump > DAY else None)
    entries = sf.open(folder / "sfumato.toml").budget().entries
    charged = [entry.subject for entry in entries if entry.kind == "charge"]
    assert len(charged) == len(set(charged)) == 1 + 2 + 5 + 1


def test_a_job_whose_claim_ends_by_a_clock_is_charged_once(make_service, run, folder, monkeypatch):
    one, other = make_service(), make_service()
    ana = one.state.find_user("ana")
    recipe = 'recipe = "cell-counts"\ntable = "visits"\nby = ["clinic"]\nepsilon = 0.5\n'

    async def both():
        job = await one.start_release(ana, recipe, name="first")
        monkeypatch.setattr(kept.time, "time", lambda real=time.time: real() + 3600)
        other._jobs.start(job["number"])  # takes it over, though it is at work
        async for found in other.watch_job(ana, job["number"]):
            last = found
        await one.close()
        await other.close()
        return last

    assert run(both())["status"] == "done"
    assert sf.open(folder / "sfumato.toml").budget().spent == Fraction(1, 2)
    assert sf.verify(folder / "releases" / "first")


def test_a_certificate_that_has_ended_is_counted_refused_by_clients_and_replaced(folder):
    token = add_user(folder)
    make_certificate(folder, days=-1)
    with (folder / "sfumato.toml").open("a") as project:
        project.write('[serve]\ncertificate = "server.crt"\nkey = "server.key"\n')
    strict = f"{folder}/server.crt"

    def read_metrics():
        lax = ssl.create_default_context()
        lax.check_hostname, lax.verify_mode = False, ssl.CERT_NONE
        with urllib.request.urlopen(f"{served.page}/metrics", context=lax) as reply:
            lines = reply.read().decode().splitlines()
        return float(next(each for each in lines if each.startswith("sfumato_certificate_ends ")).split()[1])

    with serve(folder) as served:
        assert token
        assert read_metrics() < time.time()
        with pytest.raises(psycopg.OperationalError, match=r"expired|verify failed"):
            psycopg.connect(served.dsn(sslmode="verify-ca", sslrootcert=strict))
        make_certificate(folder)
        served.process.send_signal(signal.SIGHUP)
        while read_metrics() < time.time():
            time.sleep(0.05)
        with psycopg.connect(served.dsn(sslmode="verify-ca", sslrootcert=strict)) as line:
            assert ask(line, 0)
