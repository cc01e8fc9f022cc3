"""The ledger: every charge on disk before its answer exists, in a chain that shows any edit.

`chain` says what the entries mean, `store` and `postgres` where they are kept, `budget` what may be charged.
The proof is docs/proofs/ledger.md.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn, Self

from sfumato.core.cost.budget import Budget, admits, describe_charge, explain_refusal, left
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.parallel import SpentByPeriod, find_periods
from sfumato.core.errors import BudgetExceeded, LedgerError, RecipeError
from sfumato.core.exact import ExactLike, format_exact
from sfumato.core.facts.part import Window
from sfumato.core.ledger import chain
from sfumato.core.ledger.chain import (
    AnswerEntry,
    BudgetEntry,
    ChargeEntry,
    Entry,
    History,
    Made,
    Purpose,
    ShareEntry,
    refuse_other_neighbours,
    refuse_other_periods,
    refuse_other_units,
)
from sfumato.core.ledger.report import BudgetReport
from sfumato.core.ledger.store import Session, find_store, take_turn, try_again

# What this process has verified of the ledgers that it used last, by their place: it opens them anew without
# reading all again. `verify` does, and so does every other process.
_verified: dict[str, History] = {}
_MOST_VERIFIED = 8


class Ledger:
    """One budget in one file or schema of a database, safe among processes, threads and crashes.

    Opening creates it if it is missing. The first opening in a process verifies the whole chain, and computes
    all sums from the recorded mechanisms. Every operation is a transaction of its own that verifies what came
    since, so that a process serves thousands of charges; `verify` reads everything again.

    >>> import tempfile
    >>> from fractions import Fraction
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name, "budget.ledger"), Budget(1))
    >>> cost = Cost(kind="laplace", scale=Fraction(10), unit="resident")
    >>> entry = ledger.charge(
    ...     description={"query": "residents by town"},
    ...     plan_digest="p1",
    ...     table="residents",
    ...     table_version="v1",
    ...     costs=(cost,),
    ... )
    >>> ledger.store_answer(entry, b"noisy counts")
    >>> ledger.report().left, ledger.find_answer(plan_digest="p1", table_version="v1")[1]
    (0.9, b'noisy counts')
    >>> folder.cleanup()
    """

    __slots__ = ("_reported", "_secret", "_store", "_timeout", "_verified", "_writable")

    # What was reported last of each share and of the whole, and from what: finding it takes milliseconds.
    _reported: dict[str | None, tuple[tuple[object, ...], SpentByPeriod, BudgetReport]]

    def __init__(
        self,
        path: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        timeout: float = 30.0,
    ) -> None:
        self._attach(path, timeout=timeout, writable=True)
        if not self._store.exists(timeout=timeout):
            if budget is None:
                raise LedgerError(f"ledger {self.name!r} does not exist; give a budget to open one")
            self._create(budget)
        history = self._load_secret()
        if budget is not None and budget != history.limit:
            raise LedgerError(
                f"ledger {self.name!r} was opened with {history.limit.describe()}, not "
                f"{budget.describe()}; to accept the change, open it without a budget and call "
                "change_budget, or run `sfumato budget --accept`"
            )

    @classmethod
    def read_only(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Self:
        """The ledger at `path` for reading and verification; nothing is created or written."""
        ledger = cls.__new__(cls)
        ledger._attach(path, timeout=timeout, writable=False)
        ledger._load_secret()
        return ledger

    @property
    def path(self) -> Path | str:
        """Where the ledger is kept: a path, or a URL."""
        return self._store.place

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._store.name

    @property
    def secret(self) -> bytes:
        """32 random bytes made with the ledger, to key versions of tables; never to be published."""
        return self._secret

    @property
    def budget(self) -> Budget:
        """The budget in force."""
        with self._history() as (_, history):
            return history.limit

    @try_again
    def charge(
        self,
        *,
        description: dict[str, Any],
        plan_digest: str,
        table: str,
        table_version: str,
        costs: tuple[Cost, ...],
        purpose: Purpose = "other",
        subject: str = "",
        resumable: bool = False,
        units: Mapping[str, str] | None = None,
        asked_by: str | None = None,
        part_of: ChargeEntry | None = None,
        window: Window | None = None,
    ) -> ChargeEntry:
        """Return the recorded charge, on disk by then; read the data only afterwards.

        `costs` is what is spent; `subject`, in words, and `description`, plain JSON, say on what, and
        `purpose` how the latter is read. `plan_digest` and `table_version` are digests of the plan and of
        the records of `table`; `find_answer` finds the answer by them.
        With `resumable`, `find_progress` finds it from now on: what it pays for may be asked later.
        `units` has the unit of every private table, the column or "row", where `table` names several;
        otherwise the costs say it. `asked_by` is who asks; if they have a share, the costs must fit in it
        as well as in the whole. With `part_of`, an earlier charge of the same table, there are no costs: that
        one has paid for this part of its answer as well. With a `window`, it reads records of these periods
        alone, and only the individuals of these pay for it.

        *Privacy:* check and charge are one exclusive transaction, so no interleaving of processes
        spends twice. There is no refund: whether an answer failed may itself depend on the data.

        Raises BudgetExceeded, having spent nothing, if the costs do not fit.
        """
        if bool(costs) == (part_of is not None) or not all(isinstance(cost, Cost) for cost in costs):
            raise RecipeError("a charge needs at least one Cost, or is a part of one that has them")
        if part_of is not None and window is not None:
            raise RecipeError("a part of a charge has no window: that of the charge has paid for it")
        with self._history(write=True) as (session, history):
            refuse_other_neighbours(history, costs, name=self.name)
            if part_of is not None:
                self._check_charge(history, part_of)
                if part_of.table != table or not part_of.costs:
                    raise LedgerError(f"charge {part_of.sequence} pays for no part of this one")
            units = units or {table: (part_of.costs if part_of else costs)[0].unit}
            refuse_other_units(history, units, name=self.name)
            if window is not None:
                refuse_other_periods(history, window, costs, name=self.name)
            for spent in history.spent.find(find_periods(window)):
                if not admits(history.limit, spent, costs):
                    raise explain_refusal(
                        history.limit, spent, costs, name=self.name, window=window is not None
                    )
            if asked_by is not None:
                _refuse_beyond_share(history, asked_by, costs, window)
            entry = _append(
                session,
                history,
                ChargeEntry,
                plan_digest=plan_digest,
                table=table,
                table_version=table_version,
                costs=[cost.to_record() for cost in costs],
                units=dict(units),
                asked_by=asked_by,
                part_of=None if part_of is None else part_of.sequence,
                window=None if window is None else window.to_record(),
                purpose=purpose,
                subject=subject,
                description=dict(description),
            )
            if resumable:
                nothing = hashlib.sha256(b"").hexdigest()
                session.replace_progress(sequence=entry.sequence, payload=b"", sha256=nothing)
            return entry

    @try_again
    def store_progress(self, entry: Entry, payload: bytes, *, after: bytes | None) -> None:
        """Keeps the noisy `payload`, what is answered so far of the charge `entry`.

        `after` is the progress it goes on from, None if there was none. If another is stored, the
        payload is refused: of two processes that go on with one charge, only one is heard.
        """
        sha256 = hashlib.sha256(payload).hexdigest()
        with self._history(write=True) as (session, history):
            self._check_charge(history, entry)
            if entry.sequence in history.answers:
                raise LedgerError(f"charge {entry.sequence} already has an answer")
            self._check_progress(session, entry, sha256, after)
            session.replace_progress(sequence=entry.sequence, payload=payload, sha256=sha256)

    def find_progress(self, *, plan_digest: str, table_version: str) -> tuple[ChargeEntry, bytes] | None:
        """The first charge for this plan on this version that has progress and no answer yet."""
        with self._history() as (session, history):
            for entry in map(history.get_charge, sorted(history.unanswered)):
                asked = (entry.plan_digest, entry.table_version) == (plan_digest, table_version)
                stored = session.read_progress(entry.sequence) if asked else None
                if stored is not None and hashlib.sha256(stored[0]).hexdigest() == stored[1]:
                    return entry, stored[0]
        return None

    @try_again
    def store_answer(self, entry: Entry, payload: bytes, *, after: bytes | None = None) -> None:
        """Keeps the noisy `payload` that answers the charge `entry`, sealed in the chain.

        Storing the same payload again changes nothing; another payload is refused, because a
        second draw of noise would be a second answer. `after` is as for `store_progress`.
        """
        sha256 = hashlib.sha256(payload).hexdigest()
        with self._history(write=True) as (session, history):
            self._check_charge(history, entry)
            sealed = history.answers.get(entry.sequence)
            if sealed == sha256:
                return
            if sealed is not None:
                raise LedgerError(f"charge {entry.sequence} already has another answer")
            self._check_progress(session, entry, sha256, after)
            session.drop_progress(entry.sequence)
            session.insert_answer(sequence=entry.sequence, payload=payload, sha256=sha256)
            _append(session, history, AnswerEntry, charge=entry.sequence, sha256=sha256)

    @contextmanager
    def exclusively(self, *, plan_digest: str, table_version: str = "") -> Iterator[None]:
        """Locks one question, from the look for an answer to its storage, against all who ask the same.

        Of equal questions the first is charged; the others wait, and find its answer.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger(Path(folder, "ledger.db"), Budget(1))
        ...     with ledger.exclusively(plan_digest="p1", table_version="v1"):
        ...         ledger.find_answer(plan_digest="p1", table_version="v1") is None
        True
        """
        key = int.from_bytes(hashlib.sha256(f"{plan_digest} {table_version}".encode()).digest()[:8]) >> 2
        with take_turn(str(self._store.place), key) as first, ExitStack() as lock:
            if first:
                lock.enter_context(self._store.lock_question(key, timeout=self._timeout))
            yield

    def find_answer(self, *, plan_digest: str, table_version: str) -> tuple[ChargeEntry, bytes] | None:
        """The first answered charge for this plan on this version of the table, and its payload."""
        return next(iter(self.find_answers((plan_digest,), table_version=table_version)), None)

    def find_answers(
        self, plan_digests: Iterable[str], *, table_version: str
    ) -> tuple[tuple[ChargeEntry, bytes], ...]:
        """As `find_answer` for one plan after another, all at once, up to the first without an answer."""
        found = []
        with self._history() as (session, history):
            for name in plan_digests:
                sequence = history.answered.get((name, table_version))
                if sequence is None:
                    break
                payload = self._payload(session, sequence, history.answers[sequence])
                found.append((history.get_charge(sequence), payload))
        return tuple(found)

    def entries(self) -> tuple[Entry, ...]:
        """All entries of the verified chain."""
        with self._history() as (_, history):
            return history.entries

    def report(self, window: Window | None = None) -> BudgetReport:
        """What was spent and what is left, recomputed from the verified chain.

        With a `window`, of the periods that it reads; without one, of all: of the one with the least.
        """
        with self._history() as (_, history):
            return self._find_report(None, history.limit, history.spent, window, history)

    @try_again
    def change_budget(self, budget: Budget) -> BudgetEntry:
        """The entry that puts `budget` in force; refused if more than it admits is already spent."""
        with self._history(write=True) as (session, history):
            if not all(admits(budget, each) for each in history.spent.find(None)):
                raise LedgerError(
                    f"ledger {self.name!r} has already spent more than "
                    f"{budget.describe()} admits; the budget stays {history.limit.describe()}"
                )
            return _append(session, history, BudgetEntry, budget=budget.to_record())

    @try_again
    def set_share(self, person: str, epsilon: ExactLike | None) -> ShareEntry | None:
        """The entry that lets `person` spend at most `epsilon` of the budget; None takes the limit away.

        Shares are limits within the budget and may add up to more than it. What was spent stays counted.
        Nothing is entered if it is so already.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger(Path(folder, "ledger.db"), Budget(1))
        ...     ledger.set_share("ana", "0.4").epsilon
        ...     ledger.report_share("ana").left
        Fraction(2, 5)
        0.4
        """
        share = None if epsilon is None else Budget(epsilon).epsilon
        with self._history(write=True) as (session, history):
            if history.shares.get(person) == share:
                return None
            spelled = None if share is None else format_exact(share)
            return _append(session, history, ShareEntry, person=person, epsilon=spelled)

    def report_share(self, person: str, window: Window | None = None) -> BudgetReport | None:
        """What `person` may spend, has spent and has left of their share; None if they have none.

        `window` is that of `report`.
        """
        with self._history() as (_, history):
            share = history.share_of(person)
            if share is None:
                return None
            spent = history.spent_by.get(person, SpentByPeriod())
            return self._find_report(person, share, spent, window, History())

    def verify(self, *, anchor: str | None = None) -> str:
        """The head of the chain, after checking every entry and every stored answer.

        With `anchor`, a head published earlier, it also proves that the ledger has grown from
        there: only an outside anchor can show that an older copy of the whole file was put back.
        """
        with self._history(whole=True) as (session, history):
            if session.read_answered() != set(history.answers):
                raise self._damaged("stored answers and recorded answers differ")
            for sequence, sealed in history.answers.items():
                self._payload(session, sequence, sealed)
            if anchor is not None and anchor not in {entry.hash for entry in history.entries}:
                raise self._damaged("it does not hold the given anchor; an older copy may have been put back")
            return history.head

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger cannot be pickled or copied; open it again from its path")

    def _attach(self, path: str | os.PathLike[str], *, timeout: float, writable: bool) -> None:
        self._store = find_store(path)
        self._timeout = timeout
        self._writable = writable
        self._secret = b""
        self._verified: History | None = None
        self._reported = {}

    def _create(self, budget: Budget) -> None:
        secret = secrets.token_bytes(32)
        first = chain.open_chain(budget, secret, public_key=self._make_key())
        self._store.create(secret=secret, first=first, timeout=self._timeout)

    def _make_key(self) -> str | None:
        """The public half of a new key for anchors; here are none, since nothing is admitted by one."""
        return None

    @try_again
    def _load_secret(self) -> History:
        # Opening for writing proves at once that the file can be charged.
        with self._history(write=self._writable) as (session, history):
            self._secret = session.read_secret()
            recorded = history.opening.secret_sha256
            if not hmac.compare_digest(hashlib.sha256(self._secret).hexdigest(), recorded):
                raise self._damaged("its secret was changed")
            return history

    @contextmanager
    def _history(self, *, write: bool = False, whole: bool = False) -> Iterator[tuple[Session, History]]:
        if write and not self._writable:
            raise LedgerError(f"ledger {self.name!r} was opened for reading only")
        # Taken before the transaction begins, which therefore sees at least as much.
        place = str(self._store.place)
        seen = self._verified or _verified.get(place)
        with self._store.open(timeout=self._timeout, write=write, read_only=not self._writable) as session:
            if self._verified is None and seen is not None and not _stands(session, seen):
                seen = None  # another ledger, or an older copy, stands in its place
            history = self._replay(session, None if whole else seen)
            if self._verified is None or len(history.entries) > len(self._verified.entries):
                self._verified = history
                _verified.pop(place, None)
                _verified[place] = history
                for old in [*_verified][:-_MOST_VERIFIED]:
                    _verified.pop(old, None)
            yield session, history

    def _replay(self, session: Session, seen: History | None) -> History:
        """What the chain says: all of it, or what came after the history that was `seen` and verified.

        The last entry that was seen must still stand where it stood; its hash covers all before it.
        """
        rows = session.read_rows(start=len(seen.entries) if seen else 1)
        try:
            new = [chain.parse_entry(*row) for row in rows]
            gone = seen is not None and new[:1] != [seen.entries[-1]]
            history = chain.replay_chain(new[1:] if seen else new, after=seen)
        except LedgerError as error:
            raise self._damaged(str(error)) from error
        if gone:
            raise self._damaged("entries that were there before are gone or were changed")
        return history

    def _find_report(
        self, whose: str | None, budget: Budget, spent: SpentByPeriod, window: Window | None, history: History
    ) -> BudgetReport:
        known = self._reported.get(whose)
        if (
            known is None
            or known[0] != (window, budget)
            or known[1] is not spent
            or known[2].entries is not history.entries
        ):
            known = (window, budget), spent, _report(budget, spent, window, history)
            self._reported[whose] = known
        return known[2]

    def _payload(self, session: Session, sequence: int, sealed: str) -> bytes:
        stored = session.read_answer(sequence)
        if stored is not None:
            payload, recorded = stored
            if hashlib.sha256(payload).hexdigest() == recorded == sealed:
                return payload
        raise self._damaged(f"the stored answer to charge {sequence} was edited or removed")

    def _check_charge(self, history: History, entry: Entry) -> None:
        if not isinstance(entry, ChargeEntry) or not history.holds(entry):
            raise LedgerError(f"ledger {self.name!r} has no such charge to answer")

    def _check_progress(self, session: Session, entry: Entry, sha256: str, after: bytes | None) -> None:
        stored = session.read_progress(entry.sequence)
        expected = None if after is None else hashlib.sha256(after).hexdigest()
        if (None if stored is None else stored[1]) not in (expected, sha256):
            raise LedgerError(
                f"another process goes on with charge {entry.sequence} of ledger {self.name!r}; "
                "run the same release again when it is done"
            )

    def _damaged(self, reason: str) -> LedgerError:
        return LedgerError(f"ledger {self.name!r} cannot be trusted: {reason}; restore it from a backup")


def _refuse_beyond_share(
    history: History, person: str, costs: tuple[Cost, ...], window: Window | None
) -> None:
    share = history.share_of(person)
    if share is None:
        return
    for spent in history.spent_by.get(person, SpentByPeriod()).find(find_periods(window)):
        if not admits(share, spent, costs):
            rest = left(share, spent)
            raise BudgetExceeded(
                f"the charge asks for {describe_charge(share, costs)}; epsilon {rest} of the share of "
                f"{person!r}, {format_exact(share.epsilon)}, is left. Nothing was spent; ask for less, or "
                "ask a steward for a larger share",
                left=rest,
            )


def _report(budget: Budget, spent: SpentByPeriod, window: Window | None, history: History) -> BudgetReport:
    """The report of the period that has least left, with all others that `window` reads."""
    first, *others = sorted(spent.find(find_periods(window)), key=lambda each: -each.rho)
    worst, rest = first, left(budget, first)
    for each in others:
        # Whether it fits is told at once; what is left takes a search, and few have less than the first.
        if rest > 0 and not admits(budget, each, [Cost(kind="pure", scale=rest)]):
            worst, rest = each, left(budget, each)
    beside = tuple(each for each in (first, *others) if each is not worst)
    head = history.head if history.entries else ""
    return BudgetReport(
        budget=budget, sums=worst, beside=beside, groups=spent.groups, entries=history.entries, head=head
    )


def _stands(session: Session, history: History) -> bool:
    """Return whether a ledger has the last entry of a history, whose hash covers all before it."""
    last = history.entries[-1]
    return session.read_rows(start=last.sequence)[:1] == [(last.sequence, last.record, last.hash)]


def _append(session: Session, history: History, kind: type[Made], **facts: object) -> Made:
    """Insert the next entry, of this kind and with these facts, and return it."""
    entry = chain.make_entry(history, kind, **facts)
    session.insert_entry(entry)
    return entry
