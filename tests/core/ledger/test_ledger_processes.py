"""The ledger among processes: races, kills, forks, and a full disk."""

import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato
from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.errors import BudgetExceeded

SOURCE = str(Path(sfumato.__file__).parents[1])
SPEND = """
import sys
from fractions import Fraction
from sfumato.accounting import Cost, Ledger
from sfumato.core.errors import BudgetExceeded

ledger = Ledger(sys.argv[1])
cost = Cost(kind="pure", scale=Fraction(1, 1000))
print("ready", flush=True)
sys.stdin.readline()
while True:
    try:
        entry = ledger.charge(
            description={}, plan_digest="p", table="t", table_version="v", costs=(cost,)
        )
    except BudgetExceeded:
        break
    print(entry.sequence, flush=True)
    if "--answer" in sys.argv:
        ledger.store_answer(entry, b"x" * 5000)
"""


def start(*arguments, code=SPEND):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
        text=True,
    )


def test_eight_processes_racing_for_forty_slots_get_exactly_forty(path):
    ledger = Ledger(path, Budget("0.040"))
    spenders = [start(path) for _ in range(8)]
    for spender in spenders:
        assert spender.stdout.readline() == "ready\n"
    for spender in spenders:
        spender.stdin.write("go\n")
        spender.stdin.flush()
    outputs = [spender.communicate(timeout=60)[0].split() for spender in spenders]
    assert [spender.returncode for spender in spenders] == [0] * 8
    sequences = sorted(int(word) for output in outputs for word in output)
    assert sequences == list(range(2, 42))
    assert ledger.report().left == 0
    ledger.verify()


def test_processes_that_create_at_once_use_the_same_ledger(path):
    code = """
import sys
from sfumato.accounting import Budget, Ledger

print("ready", flush=True)
sys.stdin.readline()
print(Ledger(sys.argv[1], Budget(1)).entries()[0].hash)
"""
    creators = [start(path, code=code) for _ in range(4)]
    for creator in creators:
        assert creator.stdout.readline() == "ready\n"
    outputs = [creator.communicate("go\n", timeout=60)[0] for creator in creators]
    assert set(outputs) == {Ledger(path).entries()[0].hash + "\n"}


def test_killed_spenders_leave_a_valid_chain_with_every_acknowledged_charge(path):
    budget = Budget(1000)
    ledger = Ledger(path, budget)
    for attempt in range(10):
        spender = start(path, "--answer")
        assert spender.stdout.readline() == "ready\n"
        spender.stdin.write("go\n")
        spender.stdin.flush()
        acknowledged = [int(spender.stdout.readline())]
        time.sleep(0.011 * attempt)
        os.kill(spender.pid, signal.SIGKILL)
        rest, _ = spender.communicate()
        acknowledged += [int(line) for line in rest.split("\n")[:-1]]
        ledger.verify()
        # All of one moment: a server may end a commit that a killed process sent.
        report = ledger.report()
        assert set(acknowledged) <= {entry.sequence for entry in report.charges}
        assert report.sums.epsilon == Fraction(len(report.charges), 1000)
        assert report.left == 1000 - Fraction(len(report.charges), 1000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_spends_from_the_same_budget(path):
    ledger = Ledger(path, Budget(1))
    half = Cost(kind="pure", scale=Fraction(1, 2))

    def spend():
        ledger.charge(description={}, plan_digest="", table="", table_version="", costs=(half,))

    spend()
    child = os.fork()
    if child == 0:
        try:
            spend()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(BudgetExceeded):
        spend()


@pytest.mark.skipif(os.name == "nt", reason="needs limits on the size of files")
def test_a_full_disk_is_an_error_and_spends_nothing(tmp_path):
    path = tmp_path / "l"
    ledger = Ledger(path, Budget(1))
    code = """
import resource, sys
from fractions import Fraction
from sfumato.accounting import Cost, Ledger
from sfumato.core.errors import LedgerError

ledger = Ledger(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    ledger.charge(
        description={}, plan_digest="", table="", table_version="",
        costs=(Cost(kind="pure", scale=Fraction(1, 2)),),
    )
except LedgerError as error:
    print(error)
"""
    output, _ = start(path, code=code).communicate(timeout=60)
    assert "disk" in output
    assert ledger.report().left == 1
    ledger.verify()
