"""The ledger: every charge on disk before its answer exists, in a chain that shows any edit.

`chain` says what the entries mean, `store` and `postgres` where they are kept, `budget` what may be charged.
The proof is docs/proofs/ledger.md.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    Entries,
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
# A summary is written with every so many entries: whoever opens the ledger reads and verifies no more.
_SUMMARISED_EVERY = 16
# Entries after which the sums of a summary are of no use: they are for the limits before.
_LIMITS = (BudgetEntry, ShareEntry)


class Index:
    """The stored answers of a ledger by their labels."""

    __slots__ = ("_read", "_session")

    def __init__(self, session: Session, read: Callable[[Session, int], ChargeEntry]) -> None:
        self._session = session
        self._read = read

    def list_labels(self, start: str) -> Iterator[str]:
        """All labels that begin so, in order."""
        label = self._session.find_label(start)
        while label is not None:
            yield label
            label = self._session.find_label(start, after=label)

    def find(self, label: str) -> list[tuple[int, int]]:
        """The answered charges with a label: the entry of each answer and the number of its charge."""
        return self._session.find_labelled(label)

    def find_purpose(self, purpose: Purpose, table: str, version: str) -> list[tuple[int, int]]:
        """The same of what was charged for a purpose, about a table in a version."""
        return self.find(_name_purpose(purpose, table, version))

    def read(self, sequence: int) -> ChargeEntry:
        """The charge of this number."""
        return self._read(self._session, sequence)


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
                self._check_charge(session, part_of)
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
            session.label(entry.sequence, _name_charge(entry))
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
        with self._history(write=True) as (session, _):
            self._check_charge(session, entry)
            if session.read_answered(entry.sequence):
                raise LedgerError(f"charge {entry.sequence} already has an answer")
            self._check_progress(session, entry, sha256, after)
            session.replace_progress(sequence=entry.sequence, payload=payload, sha256=sha256)

    def find_progress(self, *, plan_digest: str, table_version: str) -> tuple[ChargeEntry, bytes] | None:
        """The first charge for this plan on this version that has progress and no answer yet."""
        with self._history() as (session, _):
            for answered, sequence in session.find_labelled(_name_question(plan_digest, table_version)):
                stored = None if answered else session.read_progress(sequence)
                if stored is not None and hashlib.sha256(stored[0]).hexdigest() == stored[1]:
                    return self._read_charge(session, sequence, plan_digest, table_version), stored[0]
        return None

    @try_again
    def store_answer(
        self, entry: Entry, payload: bytes, *, after: bytes | None = None, labels: Iterable[str] = ()
    ) -> None:
        """Keeps the noisy `payload` that answers the charge `entry`, sealed in the chain.

        Storing the same payload again changes nothing; another payload is refused, because a
        second draw of noise would be a second answer. `after` is as for `store_progress`. By its `labels`,
        public facts about what was asked, `look_up` finds it.
        """
        sha256 = hashlib.sha256(payload).hexdigest()
        with self._history(write=True) as (session, history):
            self._check_charge(session, entry)
            assert isinstance(entry, ChargeEntry)
            stored = session.read_answered(entry.sequence)
            if stored == {sha256}:
                return
            if stored:
                raise LedgerError(f"charge {entry.sequence} already has another answer")
            self._check_progress(session, entry, sha256, after)
            session.drop_progress(entry.sequence)
            session.insert_answer(sequence=entry.sequence, payload=payload, sha256=sha256)
            sealed = _append(session, history, AnswerEntry, charge=entry.sequence, sha256=sha256)
            session.label(entry.sequence, (*_name_charge(entry), *labels), answered=sealed.sequence)

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
        with self._history() as (session, _):
            for name in plan_digests:
                labelled = session.find_labelled(_name_question(name, table_version))
                answered = next((each for each in labelled if each[0]), None)
                if answered is None:
                    break
                entry = self._read_charge(session, answered[1], name, table_version)
                found.append((entry, self._read_answer(session, *answered)))
        return tuple(found)

    def knows(self, plan_digest: str) -> bool:
        """Whether there is a charge for this plan, on any version of the table."""
        with self._history() as (session, _):
            return not session.bare and session.find_label(_name_question(plan_digest, "")) is not None

    @contextmanager
    def look_up(self) -> Iterator[Index]:
        """The stored answers by their labels, all as they are at one moment."""
        with self._history() as (session, _):
            yield Index(session, self._read_charge)

    def entries(self) -> tuple[Entry, ...]:
        """All entries of the chain, verified from its start."""
        with self._history() as (session, _):
            return tuple(self._verify_entries(session))

    def report(self, window: Window | None = None) -> BudgetReport:
        """What was spent and what is left, from the exact sums of the chain.

        With a `window`, of the periods that it reads; without one, of all: of the one with the least.
        """
        with self._history() as (_, history):
            return self._find_report(None, history.limit, history.spent, window, history)

    @try_again
    def change_budget(self, budget: Budget) -> BudgetEntry:
        """The entry that puts `budget` in force; refused if more than it admits is already spent."""
        # What is left of another budget is known from all charges alone.
        with self._history(write=True, whole=True) as (session, history):
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
        """The head of the chain, after checking every entry, every stored answer and the summary.

        With `anchor`, a head published earlier, it also proves that the ledger has grown from
        there: only an outside anchor can show that an older copy of the whole file was put back.
        """
        with self._history() as (session, _):
            entries = self._verify_entries(session)
            answers = {each.charge: each.sequence for each in entries if isinstance(each, AnswerEntry)}
            if session.list_answered() != set(answers):
                raise self._damaged("stored answers and recorded answers differ")
            for sequence, answered in answers.items():
                self._read_answer(session, answered, sequence)
            if anchor is not None and anchor not in {entry.hash for entry in entries}:
                raise self._damaged("it does not hold the given anchor; an older copy may have been put back")
            return entries[-1].hash

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
            if not hmac.compare_digest(hashlib.sha256(self._secret).hexdigest(), history.secret_sha256):
                raise self._damaged("its secret was changed")
            return history

    def _derive(self, session: Session) -> None:
        """Makes what follows from a chain that a version without summaries and labels has left."""
        session.derive()
        entries = self._verify_entries(session)
        answers = {each.charge: each.sequence for each in entries if isinstance(each, AnswerEntry)}
        for entry in entries:
            if isinstance(entry, ChargeEntry):
                session.label(entry.sequence, _name_charge(entry), answered=answers.get(entry.sequence, 0))

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
            if write and session.bare:
                self._derive(session)
            history = self._replay(session, None if whole else seen or self._restore(session), seen)
            if self._verified is None or history.count > self._verified.count or not history.restored:
                self._verified = history
                _verified.pop(place, None)
                _verified[place] = history
                for old in [*_verified][:-_MOST_VERIFIED]:
                    _verified.pop(old, None)
            if write and history.count >= session.read_summarised() + _SUMMARISED_EVERY:
                session.replace_summary(history.count, *history.summarise(session.read_secret()))
            yield session, history

    def _restore(self, session: Session) -> History | None:
        """What the summary says, if there is one: up to an entry that must stand where it stood."""
        kept = session.read_summary()
        if kept is None:
            return None
        try:
            history = chain.restore_history(*kept, session.read_secret())
        except LedgerError as error:
            raise self._damaged(str(error)) from error
        if not _stands(session, history):
            raise self._damaged("entries of its summary are gone or were changed")
        return history

    def _verify_entries(self, session: Session) -> list[Entry]:
        """All entries, verified from the first one, and the summary with them."""
        kept = self._restore(session)
        try:
            entries = [chain.parse_entry(*row) for row in session.read_rows(start=1)]
            known = chain.replay_chain(entries[: kept.count]) if kept else None
            rest = entries[known.count :] if known else entries
            chain.replay_chain(rest, after=known, find=lambda number: entries[number - 1])
        except LedgerError as error:
            raise self._damaged(str(error)) from error
        if kept and known and kept.summarise(b"") != known.summarise(b""):
            raise self._damaged("its summary is not that of its entries")
        return entries

    def _replay(self, session: Session, after: History | None, seen: History | None) -> History:
        """What the chain says: all of it, or what came `after` a history that was verified.

        The last entry that was `seen` must still stand where it stood; its hash covers all before it.
        """
        if seen is not None and not _stands(session, seen):
            raise self._damaged("entries that were there before are gone or were changed")
        try:
            new = [
                chain.parse_entry(*row) for row in session.read_rows(start=after.count + 1 if after else 1)
            ]
            if after is not None and after.restored and any(isinstance(each, _LIMITS) for each in new):
                return self._replay(session, None, seen)  # what is left of them is known from all alone
            return chain.replay_chain(new, after=after, find=lambda number: self._find_entry(session, number))
        except LedgerError as error:
            raise self._damaged(str(error)) from error

    def _read_entries(self, session: Session, start: int, end: int) -> list[Entry]:
        """The entries from a place on, before another, each as it was sealed."""
        rows = session.read_rows(start=start + 1, end=end + 1)
        found = [chain.parse_entry(*row) for row in rows]
        if len(found) != end - start or any(each.seal() != each.hash for each in found):
            raise self._damaged("entries were removed or edited")
        return found

    def _find_entry(self, session: Session, sequence: int) -> Entry | None:
        return next(iter(self._read_entries(session, sequence - 1, sequence)), None) if sequence > 0 else None

    def _read_charge(
        self, session: Session, sequence: int, plan_digest: str | None = None, version: str | None = None
    ) -> ChargeEntry:
        """The charge of this number, which is for this plan and version if they are given."""
        entry = self._find_entry(session, sequence)
        if isinstance(entry, ChargeEntry):
            asked = plan_digest or entry.plan_digest, version or entry.table_version
            if asked == (entry.plan_digest, entry.table_version):
                return entry
        raise self._damaged(f"entry {sequence} is not the charge that it is found as")

    def _find_report(
        self, whose: str | None, budget: Budget, spent: SpentByPeriod, window: Window | None, history: History
    ) -> BudgetReport:
        known = self._reported.get(whose)
        if (
            known is None
            or known[0] != (window, budget)
            or known[1] is not spent
            or len(known[2].entries) != history.count
        ):
            known = (window, budget), spent, _report(budget, spent, window, history, self._read)
            self._reported[whose] = known
        return known[2]

    def _read(self, start: int, end: int) -> list[Entry]:
        with self._history() as (session, _):
            return self._read_entries(session, start, end)

    def _read_answer(self, session: Session, answered: int, sequence: int) -> bytes:
        """The payload that answers a charge, as the entry `answered` seals it."""
        stored, sealed = session.read_answer(sequence), self._find_entry(session, answered)
        if stored is not None and isinstance(sealed, AnswerEntry) and sealed.charge == sequence:
            payload, recorded = stored
            if hashlib.sha256(payload).hexdigest() == recorded == sealed.sha256:
                return payload
        raise self._damaged(f"the stored answer to charge {sequence} was edited or removed")

    def _check_charge(self, session: Session, entry: Entry) -> None:
        row = (entry.sequence, entry.record, entry.hash)
        found = session.read_rows(start=entry.sequence, end=entry.sequence + 1)
        if not isinstance(entry, ChargeEntry) or found != [row]:
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


def _report(
    budget: Budget,
    spent: SpentByPeriod,
    window: Window | None,
    history: History,
    read: Callable[[int, int], Sequence[Entry]],
) -> BudgetReport:
    """The report of the period that has least left, with all others that `window` reads."""
    first, *others = sorted(spent.find(find_periods(window)), key=lambda each: -each.rho)
    worst, rest = first, left(budget, first)
    for each in others:
        # Whether it fits is told at once; what is left takes a search, and few have less than the first.
        if rest > 0 and not admits(budget, each, [Cost(kind="pure", scale=rest)]):
            worst, rest = each, left(budget, each)
    return BudgetReport(
        budget=budget,
        sums=worst,
        beside=tuple(each for each in (first, *others) if each is not worst),
        groups=spent.groups,
        entries=Entries(history.count, read),
        charged=history.charged,
        last=history.last,
        head=history.head if history.count else "",
    )


def _stands(session: Session, history: History) -> bool:
    """Return whether a ledger has the last entry of a history, whose hash covers all before it."""
    for _, record, sealed in session.read_rows(start=history.count, end=history.count + 1):
        return isinstance(record, bytes) and hashlib.sha256(record).hexdigest() == sealed == history.head
    return False


def _name_charge(entry: ChargeEntry) -> tuple[str, str]:
    """Return the labels of every charge: its question, and what it was for."""
    return (
        _name_question(entry.plan_digest, entry.table_version),
        _name_purpose(entry.purpose, entry.table, entry.table_version),
    )


def _name_purpose(purpose: Purpose, table: str, table_version: str) -> str:
    return f": {purpose} {table_version} {table}"


def _name_question(plan_digest: str, table_version: str) -> str:
    """Return the label by which the charges for a plan on one version of its table are found."""
    return f"= {plan_digest} {table_version}"


def _append(session: Session, history: History, kind: type[Made], **facts: object) -> Made:
    """Insert the next entry, of this kind and with these facts, and return it."""
    entry = chain.make_entry(history, kind, **facts)
    session.insert_entry(entry)
    return entry
