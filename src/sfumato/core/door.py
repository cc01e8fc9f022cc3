"""The door: the one place where exact values meet noise, and only under a charge that is on disk.

Recipes, statements, scores and whatever else is answered goes through it in one order. What was answered
before is found and costs nothing. Otherwise the charge is written to the ledger; only then are records
read; that they did not change meanwhile is seen by their version; noise is added; and the noisy answer is
stored before anybody sees it. A failure before the charge costs nothing, a failure after it keeps the
charge: a refund would tell about the records. Whoever asks the same again goes on under that charge.
Proof: docs/proofs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from sfumato.core.cost.budget import describe_charge, describe_costs, read_epsilon
from sfumato.core.cost.parallel import Allowance
from sfumato.core.engine.opening import check_whole
from sfumato.core.errors import (
    BudgetExceeded,
    ChargeKept,
    LedgerError,
    ReleaseError,
    SfumatoError,
    SourceError,
)
from sfumato.core.exact import format_short

if TYPE_CHECKING:
    from pathlib import Path

    from sfumato.core.cost.cost import Cost
    from sfumato.core.facts.part import Window
    from sfumato.core.ledger.chain import Entry
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.core.noise.samplers import NoiseSource

Exact = TypeVar("Exact")
Noisy = TypeVar("Noisy")
Asked = Iterable[tuple["Cost", str | None]]
"""What is asked under a charge: costs, each with the name of the part of the people that pays, if not all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What is to be charged: public facts about a question, and how to tell the version of its tables.

    `digest` names the question, and `description` is what the ledger keeps of it; `tables` are their names
    and `units` the individuals that they protect, where they are several. `version` gives the keyed digest
    of what is read. `asked_by` is who asks, and `at_most` the most epsilon that they would spend on it. With
    `part_of`, a charge was made before that has paid for this one, too, and there are no costs. `window` is
    that of the table: the periods that are read of it. `packed` gives the files that must be whole.
    """

    digest: str
    description: dict[str, Any]
    tables: str
    costs: tuple[Cost, ...]
    version: Callable[[bytes], str]
    units: Mapping[str, str] | None = None
    asked_by: str | None = None
    at_most: Fraction | None = None
    part_of: Entry | None = None
    window: Window | None = None
    packed: Callable[[], tuple[Path, ...]] = tuple


class Charged:
    """A durable charge. `answer` is the stored answer once there is one, `kept` the parts so far."""

    def __init__(
        self,
        bill: Bill,
        entry: Entry,
        *,
        ledger: Ledger,
        noise: NoiseSource | None,
        answer: bytes | None = None,
        kept: bytes | None = None,
        resumed: bool = False,
    ) -> None:
        self.entry = entry
        self.answer = answer
        self.kept = kept
        self.resumed = resumed
        self._bill = bill
        self._ledger = ledger
        if noise is None:
            from sfumato.core import noise as system_noise  # here, since few commands draw any

            noise = system_noise
        self._noise: NoiseSource = noise
        self._allowance = Allowance(bill.costs)

    def pay(self, costs: Asked) -> None:
        """Takes what is asked from what was charged, and refuses what that does not pay for."""
        if self.answer is not None:
            raise LedgerError(f"charge {self.entry.sequence} has its answer, and pays for no other")
        if not all(self._allowance.pay(cost, part=part) for cost, part in costs):
            raise ChargeKept("more is asked than was charged; no record was read for it. The charge is kept")

    def measure(
        self, costs: Asked, read: Callable[[], Exact], draw: Callable[[Exact, NoiseSource], Noisy]
    ) -> Noisy:
        """What `draw` makes of the exact values that `read` gives: nothing else ever sees these.

        Privacy: `costs`, those of what is drawn, are paid by the charge before anything is read. `read`
        enforces the bounds that its sensitivities state, and `draw` adds the noise that they cost.
        """
        self.pay(costs)
        try:
            true_values = read()
            self._refuse_changed()
        except SfumatoError as error:
            raise ChargeKept(
                f"{error}. The charge is kept, because a refund would tell about the records"
            ) from None
        except Exception as error:
            raise ChargeKept(
                "the records could not be read. The charge is kept, because a refund would tell about them"
            ) from error
        return draw(true_values, self._noise)

    def _refuse_changed(self) -> None:
        if self._bill.version(self._ledger.secret) != self.entry.table_version:
            raise SourceError(
                f"table {self._bill.tables!r}: its source changed while it was read; run it again"
            )

    def store(self, payload: bytes, *, final: bool = True) -> None:
        """Makes noisy answers durable: the whole answer, or if not `final` what there is of it so far."""
        store = self._ledger.store_answer if final else self._ledger.store_progress
        store(self.entry, payload, after=self.kept)
        self.kept = payload
        if final:
            self.answer = payload


@contextmanager
def open_charge(
    bill: Bill,
    *,
    ledger: Ledger,
    noise: NoiseSource | None = None,
    prepare: Callable[[], None] = lambda: None,
    may_charge: bool = True,
    progress: Callable[[str], None],
) -> Iterator[Charged]:
    """The charge for `bill`: of an answer given before, of one begun and not finished, or a new one.

    All who ask the same of one `ledger` wait for each other, so that equal questions are charged once.
    `prepare` raises what can be known to fail before a new charge is made; with `may_charge=False` there is
    none. `noise` is what audits draw from in place of the system's; `progress` is called with each stage.

    Raises BudgetExceeded, having spent nothing, if the costs do not fit.
    """
    with ledger.exclusively(plan_digest=bill.digest):
        # Taken when it is our turn: the source may have changed while others were answered.
        version = bill.version(ledger.secret)
        found = ledger.find_answer(plan_digest=bill.digest, table_version=version)
        if found is not None:
            yield Charged(bill, found[0], ledger=ledger, noise=noise, answer=found[1])
            return
        begun = ledger.find_progress(plan_digest=bill.digest, table_version=version)
        if begun is not None:
            progress("going on under an earlier charge")
            yield Charged(bill, begun[0], ledger=ledger, noise=noise, kept=begun[1], resumed=True)
            return
        if not may_charge:
            raise ReleaseError(
                "nothing is kept of this release: its table, its project file or its ledger is not what "
                "it was. Nothing was spent; run `sfumato release` again, which is a new charge"
            )
        prepare()
        _refuse_beyond(bill, ledger)
        packed = bill.packed()
        # How long it takes tells how large they are: nobody waits for it whose charge does not fit.
        if packed and all(report.admits(bill.costs) for report in _report(bill, ledger)):
            for path in packed:
                check_whole(path)
        progress("charging the ledger")
        entry = ledger.charge(
            description=bill.description,
            plan_digest=bill.digest,
            table=bill.tables,
            table_version=version,
            costs=bill.costs,
            resumable=True,
            units=bill.units,
            asked_by=bill.asked_by,
            part_of=bill.part_of,
            window=bill.window,
        )
        yield Charged(bill, entry, ledger=ledger, noise=noise, kept=b"")


def answer_under_charge(
    bill: Bill,
    *,
    ledger: Ledger,
    noise: NoiseSource | None,
    prepare: Callable[[], None] = lambda: None,
    measure: Callable[[Charged], Noisy],
    pack: Callable[[Noisy], bytes],
    unpack: Callable[[bytes], Noisy],
    progress: Callable[[str], None],
    pace: Callable[[], None] = lambda: None,
    under: Callable[[Entry], None] = lambda _: None,
) -> tuple[Noisy, bool]:
    """The noisy answer to a question that is asked at once, and whether it was charged now.

    It was not if it is stored, or if a charge was made whose answer nobody has seen: that one is finished.
    `bill`, `ledger`, `noise`, `prepare` and `progress` are those of `open_charge`; `measure` is given the
    charge and measures under it, once or in steps that look at the noisy answers before. The ledger keeps
    what `pack` makes of the answer; `unpack` is its inverse. `pace` is called when the reading has ended,
    well or not, and returns when that may be seen. `under` is told the entry of the charge before anything
    else is called.
    """
    with open_charge(bill, ledger=ledger, noise=noise, prepare=prepare, progress=progress) as charge:
        under(charge.entry)
        if charge.answer is not None:
            return unpack(charge.answer), False
        try:
            noisy = measure(charge)
        finally:
            # Here, because whoever waits for the same, or looks whether it is stored, sees what comes next.
            pace()
        try:
            charge.store(pack(noisy))
        except LedgerError as error:
            raise ChargeKept(f"{error}. The charge is kept, and nobody has seen its answer") from None
        return noisy, not charge.resumed


def refuse_most(bill: Bill, ledger: Ledger) -> None:
    """Raises BudgetExceeded if the costs of `bill`, the most that its steps may cost, do not fit now.

    Every step is compared again when it is charged: others may spend meanwhile.
    """
    _refuse_beyond(bill, ledger)
    for report in _report(bill, ledger):
        if not report.admits(bill.costs):
            raise BudgetExceeded(
                f"this may cost up to {describe_charge(report.budget, bill.costs)}, and epsilon "
                f"{report.left} is left. Nothing more was spent; state a smaller epsilon as the most",
                left=report.left,
            )


def _report(bill: Bill, ledger: Ledger) -> list[BudgetReport]:
    """What is left of the budget, and of the share of who asks if they have one."""
    share = None if bill.asked_by is None else ledger.report_share(bill.asked_by, bill.window)
    return [ledger.report(bill.window), *([] if share is None else [share])]


def _refuse_beyond(bill: Bill, ledger: Ledger) -> None:
    if bill.at_most is None:
        return
    delta = ledger.budget.delta
    epsilon = read_epsilon(bill.costs, delta)
    if epsilon is None or epsilon > bill.at_most:
        raise BudgetExceeded(
            f"this would cost {describe_costs(bill.costs, delta)}, and at most epsilon "
            f"{format_short(bill.at_most)} was to be spent on it. Nothing was spent; raise the limit or ask "
            "for less",
            left=bill.at_most,
        )
