"""Equal questions at the same moment: one charge, one answer; among threads, processes, and after a kill."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato
from sfumato.accounting import Budget, Cost, Ledger

SOURCE = str(Path(sfumato.__file__).parents[1])
ASK = """
import secrets, sys, time
from fractions import Fraction
from sfumato.accounting import Cost, Ledger

ledger = Ledger(sys.argv[1])
question = {"plan_digest": sys.argv[2], "table_version": "v"}
print("ready", flush=True)
sys.stdin.readline()
with ledger.exclusively(**question):
    found = ledger.find_answer(**question)
    if found is None:
        cost = Cost(kind="pure", scale=Fraction(1, 10))
        entry = ledger.charge(description={}, table="t", costs=(cost,), **question)
        if "--hang" in sys.argv:
            print("holding", flush=True)
            time.sleep(600)
        payload = secrets.token_bytes(16)
        ledger.store_answer(entry, payload)
    else:
        payload = found[1]
print(payload.hex(), flush=True)
"""


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", ASK, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
        text=True,
    )


def begin(process):
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()


def ask(ledger, plan, *, pause=0.0):
    question = {"plan_digest": plan, "table_version": "v"}
    with ledger.exclusively(**question):
        found = ledger.find_answer(**question)
        if found is not None:
            return found[1]
        cost = Cost(kind="pure", scale=Fraction(1, 10))
        entry = ledger.charge(description={}, table="t", costs=(cost,), **question)
        time.sleep(pause)
        payload = os.urandom(16)
        ledger.store_answer(entry, payload)
        return payload


def charges(ledger):
    return sum(entry.kind == "charge" for entry in ledger.entries())


def test_eight_threads_with_one_question_make_one_charge(path):
    ledger = Ledger(path, Budget(1))
    gate = threading.Barrier(8)

    def run(turn):
        mine = ledger if turn % 2 else Ledger(path)
        gate.wait()
        return ask(mine, "p", pause=0.05)

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(run, range(8)))
    assert len(answers) == 1
    assert charges(ledger) == 1


def test_four_processes_with_one_question_make_one_charge(path):
    ledger = Ledger(path, Budget(1))
    askers = [start(path, "p") for _ in range(4)]
    for asker in askers:
        begin(asker)
    answers = {asker.communicate(timeout=60)[0] for asker in askers}
    assert len(answers) == 1
    assert charges(ledger) == 1


def test_other_questions_do_not_wait_and_turns_do_not_lock_up(path):
    ledger = Ledger(path, Budget(1))
    gate = threading.Barrier(2)

    def run(order):
        gate.wait()
        return [ask(ledger, plan) for plan in order]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, (["a", "b"], ["b", "a"]))
    assert first == second[::-1]
    assert charges(ledger) == 2
    with ledger.exclusively(plan_digest="a", table_version="v"):
        assert ask(ledger, "c") == ask(ledger, "c")


def test_a_killed_process_lets_go(path):
    ledger = Ledger(path, Budget(1))
    hung = start(path, "p", "--hang")
    begin(hung)
    assert hung.stdout.readline() == "holding\n"
    waiting = start(path, "p")
    begin(waiting)
    time.sleep(0.5)
    assert waiting.poll() is None  # it waits for its turn
    hung.send_signal(signal.SIGKILL)
    hung.communicate(timeout=20)
    answer, _ = waiting.communicate(timeout=60)
    assert bytes.fromhex(answer.strip()) == ask(ledger, "p")
    assert charges(ledger) == 2  # that of the killed process is kept


def test_an_error_lets_go(path):
    ledger = Ledger(path, Budget(1))
    with pytest.raises(ValueError, match="mine"), ledger.exclusively(plan_digest="p", table_version="v"):
        raise ValueError("mine")
    assert ask(ledger, "p") == ask(ledger, "p")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_turns_of_its_own(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", Budget(1))
    with ledger.exclusively(plan_digest="p", table_version="v"):
        child = os.fork()
        if child == 0:
            done = 1
            try:
                ask(Ledger(tmp_path / "ledger.db"), "q")
                done = 0
            finally:
                os._exit(done)
        assert os.waitpid(child, 0)[1] == 0
    assert charges(ledger) == 1


def test_the_lock_file_is_the_owners(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", Budget(1))
    ask(ledger, "p")
    lock = tmp_path / "ledger.db.lock"
    assert lock.stat().st_mode & 0o777 == 0o600
    lock.unlink()  # somebody tidied up
    assert ask(ledger, "q") == ask(ledger, "q")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_few_files_stay_open(tmp_path):
    """An audit makes thousands of ledgers in one process."""
    for turn in range(8):
        ask(Ledger(tmp_path / f"{turn}.db", Budget(1)), "p")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for turn in range(8, 24):
        ask(Ledger(tmp_path / f"{turn}.db", Budget(1)), "p")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_one_thread_that_is_done_does_not_let_go_for_another(tmp_path):
    """Two questions of one process share the lock file; when the first ends, the second is still held."""
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, Budget(1))
    with ledger.exclusively(plan_digest="p", table_version="v"):
        ask(ledger, "q")
        other = start(path, "p")
        begin(other)
        time.sleep(0.7)
        assert other.poll() is None
        assert charges(ledger) == 1
    assert other.communicate(timeout=60)[0].strip()
    assert charges(ledger) == 2


def test_a_thread_does_not_wait_for_itself(path):
    ledger = Ledger(path, Budget(1))
    with ledger.exclusively(plan_digest="p", table_version="v"):
        answer = ask(ledger, "p")
    assert ask(ledger, "p") == answer
    assert charges(ledger) == 1
