"""The door against the transition system: the same turns, charges, answers and refusals in random runs."""

import random
from contextlib import nullcontext
from fractions import Fraction

import pytest

from sfumato.core.cost.budget import Budget
from sfumato.core.cost.cost import Cost
from sfumato.core.door import Bill, open_charge
from sfumato.core.errors import BudgetExceeded, ChargeKept, LedgerError
from sfumato.core.facts.part import Window
from sfumato.core.ledger.chain import ChargeEntry
from sfumato.core.ledger.ledger import Ledger

pytestmark = pytest.mark.slow
LIMIT, SHARES = 100, {1: 30, 2: 55}
PROCESSES = (1, 2, 3)


class Door:
    """Several processes at one ledger, each between two of its steps."""

    def __init__(self, path, *, locking):
        self.ledger = Ledger(path, Budget(1))
        for who, share in SHARES.items():
            self.ledger.set_share(str(who), Fraction(share, 100))
        self.locking, self.version = locking, 0
        self.busy, self.read = {}, set()

    def open(self, process, question, cost, periods, who):
        if process in self.busy or (self.locking and question in {each for each, *_ in self.busy.values()}):
            return
        bill = Bill(
            digest=str(question),
            description={},
            tables="people",
            costs=(Cost(kind="pure", scale=Fraction(cost, 100)),),
            version=lambda _: f"v{self.version}",
            asked_by=None if who is None else str(who),
            window=None if periods is None else Window(axis="period", periods=frozenset(map(str, periods))),
        )
        waiting = open_charge(bill, ledger=self.ledger, progress=lambda _: None)
        try:
            charged = waiting.__enter__()
        except BudgetExceeded:
            return
        if charged.answer is None:
            self.busy[process] = question, waiting, charged
        else:
            waiting.__exit__(None, None, None)

    def leave(self, process):
        _, waiting, _ = self.busy.pop(process)
        self.read.discard(process)
        waiting.__exit__(None, None, None)

    def read_records(self, process):
        if process in self.busy and process not in self.read:
            charged = self.busy[process][2]
            try:
                charged.pay(())  # what is asked costs nothing here: the order of events is compared
                charged._read(lambda: None, lambda *_: None)
                self.read.add(process)
            except ChargeKept:
                self.leave(process)

    def store(self, process, value, *, final):
        if process in self.read:
            try:
                self.busy[process][2].store(b"%d" % value, final=final)
                self.read.discard(process)
            except LedgerError:
                final = True
            if final:
                self.leave(process)

    def crash(self, process):
        if process in self.busy:
            self.leave(process)

    def phase(self, process):
        if process not in self.busy:
            return "idle"
        charged = self.busy[process][2]
        number = [entry.sequence for entry in self.charges()].index(charged.entry.sequence)
        return f"{'holding' if process in self.read else 'under'} {number} {int(charged.kept or b'0'):b}"

    def charges(self):
        return [entry for entry in self.ledger.entries() if isinstance(entry, ChargeEntry)]

    def show_all(self):
        shown = []
        charges = self.charges()
        with self.ledger._history() as (session, _):
            for entry in charges:
                sealed = session.read_answer(entry.sequence)
                answer = "-" if sealed is None else f"{int(sealed[0]):b}"
                stored = session.read_progress(entry.sequence)
                progress = "-" if stored is None else f"{int(stored[0] or b'0'):b}"
                cost = int(entry.costs[0].scale * 100)
                version = int(entry.table_version[1:])
                shown.append(f"{int(entry.plan_digest):b} {version:b} {cost:b} {answer} {progress}")
        return "all " + ";".join(shown)


@pytest.mark.parametrize("locking", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_door_does_what_the_theorems_of_the_door_are_about(oracle, tmp_path, monkeypatch, locking, seed):
    if not locking:
        monkeypatch.setattr(Ledger, "exclusively", lambda *_, **__: nullcontext())
    draw, door = random.Random(f"{seed} {locking}"), Door(tmp_path / "ledger", locking=locking)
    oracle.ask("door", int(locking), LIMIT, *([who, share] for who, share in SHARES.items()))
    refused = 0
    for number in range(1, 320):
        process = draw.choice(PROCESSES)
        match draw.choice(
            ["open", "open", "open", "read", "read", "keep", "keep", "finish", "crash", "change"]
        ):
            case "open":
                question, cost = draw.randint(1, 5), draw.choice([1, 4, 9, 20, 40])
                periods = draw.choice([None, [1], [2], [1, 2], [2, 3], [3, 4, 5]])
                who = draw.choice([None, 1, 2, 3])
                before = len(door.charges())
                door.open(process, question, cost, periods, who)
                oracle.ask_all(
                    [("take", process, question), ("look", process), ("spend", process, cost, periods, who)]
                )
                refused += len(door.charges()) == before and process not in door.busy
            case "read":
                door.read_records(process)
                oracle.ask("read", process)
            case "keep":
                door.store(process, number, final=False)
                oracle.ask("keep", process, number)
            case "finish":
                door.store(process, number, final=True)
                oracle.ask("finish", process, number)
            case "crash":
                door.crash(process)
                oracle.ask("crash", process)
            case "change":
                if draw.random() < 0.3:
                    door.version = number
                    oracle.ask("change", number)
        for each in PROCESSES:
            assert oracle.ask("phase", each) == door.phase(each), ("Door.safe_step", number)
    assert oracle.ask("charges") == door.show_all(), "Door.charged_once, Door.one_answer, Door.always_within"
    assert refused
    assert len(door.charges()) > 4
    for process in [*door.busy]:
        door.leave(process)
