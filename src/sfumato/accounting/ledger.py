"""The ledger: every charge on disk before its answer exists, in a chain that shows any edit."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from sfumato.accounting import chain
from sfumato.accounting.anchor import (
    KEY_VARIABLE,
    Anchor,
    find_key,
    parse_anchor,
    public_key,
    read_key,
    sign_anchor,
)
from sfumato.accounting.budget import Amount, Budget, Spent, admits, left
from sfumato.accounting.chain import Entry, EntryKind, History, make_entry, replay_chain
from sfumato.accounting.cost import Cost
from sfumato.accounting.refusal import explain_refusal
from sfumato.accounting.remaining import MANY, count_more, describe_costs
from sfumato.accounting.stores import Row, Session, find_store, parse_row, try_again
from sfumato.accounting.turns import take_turn
from sfumato.errors import LedgerError, RecipeError, VerificationFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["BudgetReport", "Ledger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReport:
    """What a verified ledger says: `spent` and `left` add up to `total`, all in epsilon.

    `left` is the largest pure epsilon that fits. How much of another kind of charge fits is another
    matter: `more_like_last` counts further charges like the last one, and `describe_left` says both.
    `sums` holds the exact totals behind them, `head` the hash that pins the whole ledger.
    """

    total: Amount
    spent: Amount
    left: Amount
    delta: Amount
    budget: Budget
    sums: Spent
    entries: tuple[Entry, ...]
    head: str

    @property
    def last(self) -> tuple[Cost, ...]:
        """The costs of the last charge; empty if there is none."""
        return next((entry.costs for entry in reversed(self.entries) if entry.kind == "charge"), ())

    @property
    def more_like_last(self) -> int | None:
        """How many more charges like the last one fit, at most a million; None if there is none yet."""
        return count_more(self.budget, self.sums, self.last) if self.last else None

    def describe_left(self) -> str:
        """What is left in one line, as pure epsilon and in charges like the last one.

        >>> empty = Spent()
        >>> BudgetReport(
        ...     total=Amount(1),
        ...     spent=Amount(0),
        ...     left=Amount(1),
        ...     delta=Amount(0),
        ...     budget=Budget(1),
        ...     sums=empty,
        ...     entries=(),
        ...     head="",
        ... ).describe_left()
        'epsilon 1 of 1 left'
        """
        text = f"epsilon {self.left} of {self.total} left"
        more = self.more_like_last
        if more is None:
            return text
        pure = all(cost.epsilon is not None for cost in self.last)
        kind = describe_costs(self.last, self.budget.delta)
        text += "" if pure else " as pure epsilon"
        if more == 0:
            return f"{text}, and none like the last one ({kind}) fits"
        times = f"{more:,}" if more < MANY else f"more than {MANY:,}"
        return f"{text}, or {times} more like the last one ({kind})"


class Ledger:
    """One budget in one file or schema of a database, safe among processes, threads and crashes.

    Opening creates it if it is missing. Every operation has a connection and a transaction
    of its own, verifies the whole chain, and recomputes all sums from the recorded mechanisms.

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

    __slots__ = ("_secret", "_store", "_timeout", "_verified", "_writable")

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
                message = f"ledger {self._store.name!r} does not exist; give a budget to open one"
                raise LedgerError(message)
            self._create(budget)
        history = self._load_secret()
        if budget is not None and not _same_budget(budget, history.limit):
            message = (
                f"ledger {self._store.name!r} was opened with {history.limit.describe()}, not "
                f"{budget.describe()}; to accept the change, open it without a budget and call "
                "change_budget, or run `sfumato budget --accept`"
            )
            raise LedgerError(message)

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
        resumable: bool = False,
        units: Mapping[str, str] | None = None,
    ) -> Entry:
        """The recorded charge, on disk when this returns; read the data only afterwards.

        With `resumable`, `find_progress` finds it from now on: what it pays for may be asked later.
        `units` has the unit of every private table, the column or "row", where `table` names several;
        otherwise the costs say it.

        *Privacy:* check and charge are one exclusive transaction, so no interleaving of processes
        spends twice. There is no refund: whether an answer failed may itself depend on the data.

        Raises BudgetExceeded, having spent nothing, if the costs do not fit.
        """
        if not costs or not all(isinstance(cost, Cost) for cost in costs):
            message = "a charge needs at least one Cost"
            raise RecipeError(message)
        if {"costs", "units"} & set(description):
            message = "a description must not have a field 'costs' or 'units'; pass them as arguments"
            raise RecipeError(message)
        recorded = {**description, "costs": [cost.to_record() for cost in costs]}
        if units is not None:
            recorded["units"] = dict(units)
        with self._history(write=True) as (session, history):
            self._check_neighbours(history, costs)
            self._check_units(history, units or {table: costs[0].unit})
            if not admits(history.limit, history.spent, costs):
                raise explain_refusal(history.limit, history.spent, costs, name=self._store.name)
            entry = _append(
                session,
                history,
                kind="charge",
                description=recorded,
                plan_digest=plan_digest,
                table=table,
                table_version=table_version,
            )
            if resumable:
                nothing = hashlib.sha256(b"").hexdigest()
                session.replace_progress(sequence=entry.sequence, payload=b"", sha256=nothing)
            return entry

    @try_again
    def store_progress(self, entry: Entry, payload: bytes, *, after: bytes | None) -> None:
        """Nothing; keeps the noisy `payload`, what is answered so far of the charge `entry`.

        `after` is the progress it goes on from, None if there was none. If another is stored, the
        payload is refused: of two processes that go on with one charge, only one is heard.
        """
        sha256 = hashlib.sha256(payload).hexdigest()
        with self._history(write=True) as (session, history):
            self._check_charge(history, entry)
            if entry.sequence in history.answers:
                message = f"charge {entry.sequence} already has an answer"
                raise LedgerError(message)
            self._check_progress(session, entry, sha256, after)
            session.replace_progress(sequence=entry.sequence, payload=payload, sha256=sha256)

    def find_progress(self, *, plan_digest: str, table_version: str) -> tuple[Entry, bytes] | None:
        """The first charge for this plan on this version that has progress and no answer yet."""
        with self._history() as (session, history):
            for entry in history.entries:
                named = entry.plan_digest == plan_digest and entry.table_version == table_version
                if not named or entry.kind != "charge" or entry.sequence in history.answers:
                    continue
                stored = session.read_progress(entry.sequence)
                if stored is not None and hashlib.sha256(stored[0]).hexdigest() == stored[1]:
                    return entry, stored[0]
        return None

    @try_again
    def store_answer(self, entry: Entry, payload: bytes, *, after: bytes | None = None) -> None:
        """Nothing; keeps the noisy `payload` that answers the charge `entry`, sealed in the chain.

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
                message = f"charge {entry.sequence} already has another answer"
                raise LedgerError(message)
            self._check_progress(session, entry, sha256, after)
            session.drop_progress(entry.sequence)
            session.insert_answer(sequence=entry.sequence, payload=payload, sha256=sha256)
            _append(
                session,
                history,
                kind="answer",
                description={"charge": entry.sequence, "sha256": sha256},
                plan_digest=entry.plan_digest,
                table=entry.table,
                table_version=entry.table_version,
            )

    @contextmanager
    def exclusively(self, *, plan_digest: str, table_version: str) -> Iterator[None]:
        """Holds one question, from the look for an answer to its storage, against all who ask the same.

        Of equal questions at one moment the first is charged; the others wait, and find its answer.
        Other questions do not wait. What a process holds is free when it ends, however it ends.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger(Path(folder, "ledger.db"), Budget(1))
        ...     with ledger.exclusively(plan_digest="p1", table_version="v1"):
        ...         ledger.find_answer(plan_digest="p1", table_version="v1") is None
        True
        """
        digest = hashlib.sha256(f"{plan_digest} {table_version}".encode()).digest()
        key = int.from_bytes(digest[:8]) >> 2
        place = self._store.place
        where = str(place.resolve() if isinstance(place, Path) else place)
        with take_turn(where, key), self._store.hold_question(key, timeout=self._timeout):
            yield

    def find_answer(self, *, plan_digest: str, table_version: str) -> tuple[Entry, bytes] | None:
        """The first answered charge for this plan on this version of the table, and its payload."""
        with self._history() as (session, history):
            for sequence, sealed in history.answers.items():
                entry = history.entries[sequence - 1]
                if entry.plan_digest == plan_digest and entry.table_version == table_version:
                    return entry, self._payload(session, sequence, sealed)
        return None

    def entries(self) -> tuple[Entry, ...]:
        """All entries, after verifying the chain."""
        with self._history() as (_, history):
            return history.entries

    def report(self) -> BudgetReport:
        """What was spent and what is left, recomputed from the verified chain."""
        with self._history() as (_, history):
            pass
        remaining = left(history.limit, history.spent)
        return BudgetReport(
            total=Amount(history.limit.epsilon),
            spent=Amount(history.limit.epsilon - remaining),
            left=remaining,
            delta=Amount(history.limit.delta),
            budget=history.limit,
            sums=history.spent,
            entries=history.entries,
            head=history.head,
        )

    @try_again
    def change_budget(self, budget: Budget) -> Entry:
        """The entry that puts `budget` in force; refused if more than it admits is already spent."""
        with self._history(write=True) as (session, history):
            if budget.accounting != history.limit.accounting:
                message = (
                    f"ledger {self._store.name!r} counts by {history.limit.accounting} since it was "
                    "opened; both ways would need a share of delta, so it cannot change"
                )
                raise LedgerError(message)
            if not admits(budget, history.spent):
                message = (
                    f"ledger {self._store.name!r} has already spent more than "
                    f"{budget.describe()} admits; the budget stays {history.limit.describe()}"
                )
                raise LedgerError(message)
            return _append(session, history, kind="budget", description={"budget": budget.to_record()})

    def sign_anchor(self, *, folder: Path | None = None) -> Anchor:
        """The last entry, signed with the project's key, which is made if the ledger has none yet.

        Kept elsewhere, the line shows later whether entries were cut off or the chain was written anew.
        `folder` is that of the project, where the key is if the ledger is in a database.
        """
        with self._history() as (_, history):
            entry = history.entries[-1]
        return sign_anchor(sequence=entry.sequence, head=entry.hash, key=self._key(history, folder))

    def check_anchor(self, text: str, *, folder: Path | None = None) -> Anchor:
        """The anchor in `text`, if this ledger holds its entry and the project's key signed it.

        Raises VerificationFailed if not. Without the key, the public one in the first entry is enough.
        """
        anchor = parse_anchor(text)
        self.verify()
        with self._history() as (_, history):
            known = self._public_key(history, folder)
        if known is None:
            message = f"ledger {self._store.name!r} has no key yet, so none of its anchors can be signed"
            raise VerificationFailed(message)
        if anchor.public_key != known:
            message = f"the anchor is signed by another key than that of ledger {self._store.name!r}"
            raise VerificationFailed(message)
        entries = history.entries
        if anchor.sequence > len(entries) or entries[anchor.sequence - 1].hash != anchor.head:
            message = (
                f"ledger {self._store.name!r} does not hold entry {anchor.sequence} as the anchor has it: an "
                "older copy was put back, its end was cut off, or it was written anew"
            )
            raise VerificationFailed(message)
        return anchor

    def verify(self, *, anchor: str | None = None) -> str:
        """The head of the chain, after checking every entry and every stored answer.

        With `anchor`, a head published earlier, it also proves that the ledger has grown from
        there: only an outside anchor can show that an older copy of the whole file was put back.
        """
        with self._history() as (session, history):
            if session.read_answered() != set(history.answers):
                message = "stored answers and recorded answers differ"
                raise self._damaged(message)
            for sequence, sealed in history.answers.items():
                self._payload(session, sequence, sealed)
            if anchor is not None and anchor not in {entry.hash for entry in history.entries}:
                message = "it does not contain the given anchor; an older copy may have been put back"
                raise self._damaged(message)
            return history.head

    def __repr__(self) -> str:
        return f"Ledger({self._store.name!r})"

    def __reduce__(self) -> NoReturn:
        message = "a ledger cannot be pickled or copied; open it again from its path"
        raise TypeError(message)

    def _attach(self, path: str | os.PathLike[str], *, timeout: float, writable: bool) -> None:
        self._store = find_store(path)
        self._timeout = timeout
        self._writable = writable
        self._secret = b""
        self._verified: tuple[list[Row], History | None] = ([], None)

    def _create(self, budget: Budget) -> None:
        place = self._store.place
        path = find_key(place)
        # Where no ledger can be made, that is what the error is about.
        possible = isinstance(place, Path) and place.parent.is_dir() and os.access(place.parent, os.W_OK)
        key = None if path is None else read_key(path, create=possible)
        secret = secrets.token_bytes(32)
        first = chain.open_chain(budget, secret, public_key=None if key is None else public_key(key))
        self._store.create(secret=secret, first=first, timeout=self._timeout)

    def _public_key(self, history: History, folder: Path | None) -> str | None:
        """The key of the first entry, or else that of the file."""
        recorded = history.entries[0].description.get("public_key")
        if recorded is not None:
            return str(recorded)
        path = find_key(self._store.place, folder=folder)
        key = None if path is None else read_key(path, create=False)
        return None if key is None else public_key(key)

    def _key(self, history: History, folder: Path | None) -> Ed25519PrivateKey:
        recorded = history.entries[0].description.get("public_key")
        path = find_key(self._store.place, folder=folder)
        key = None if path is None else read_key(path, create=recorded is None)
        if key is None or recorded not in (None, public_key(key)):
            message = (
                f"the key that ledger {self._store.name!r} was opened with is missing; restore the file "
                f"beside it from a backup, or name it in {KEY_VARIABLE}"
            )
            raise LedgerError(message)
        return key

    @try_again
    def _load_secret(self) -> History:
        # Opening for writing proves at once that the file can be charged.
        with self._history(write=self._writable) as (session, history):
            self._secret = session.read_secret()
            recorded = str(history.entries[0].description.get("secret_sha256"))
            if not hmac.compare_digest(hashlib.sha256(self._secret).hexdigest(), recorded):
                message = "its secret was changed"
                raise self._damaged(message)
            return history

    @contextmanager
    def _history(self, *, write: bool = False) -> Iterator[tuple[Session, History]]:
        if write and not self._writable:
            message = f"ledger {self._store.name!r} was opened for reading only"
            raise LedgerError(message)
        read_only = not self._writable
        with self._store.open(timeout=self._timeout, write=write, read_only=read_only) as session:
            yield session, self._replay(session.read_rows(), latest=write)

    def _replay(self, rows: list[Row], *, latest: bool) -> History:
        """What the rows say. Those that are byte for byte what was verified before stay verified.

        A reader beside a writer may see a shorter history than one that was seen before; a writer
        sees the `latest`, so that to it a shorter one has been cut.
        """
        seen, history = self._verified
        if history is not None and rows[: len(seen)] != seen:
            if latest and rows == seen[: len(rows)]:
                message = "entries that were there before are gone"
                raise self._damaged(message)
            seen, history = [], None
        try:
            history = replay_chain(map(parse_row, rows[len(seen) :]), after=history)
        except LedgerError as error:
            raise self._damaged(str(error)) from error
        self._verified = (rows, history)
        return history

    def _payload(self, session: Session, sequence: int, sealed: str) -> bytes:
        stored = session.read_answer(sequence)
        if stored is not None:
            payload, recorded = stored
            if hashlib.sha256(payload).hexdigest() == recorded == sealed:
                return payload
        message = f"the stored answer to charge {sequence} was edited or removed"
        raise self._damaged(message)

    def _check_charge(self, history: History, entry: Entry) -> None:
        if entry.kind != "charge" or not history.holds(entry):
            message = f"ledger {self._store.name!r} has no such charge to answer"
            raise LedgerError(message)

    def _check_progress(self, session: Session, entry: Entry, sha256: str, after: bytes | None) -> None:
        stored = session.read_progress(entry.sequence)
        expected = None if after is None else hashlib.sha256(after).hexdigest()
        if (None if stored is None else stored[1]) not in (expected, sha256):
            message = (
                f"another process goes on with charge {entry.sequence} of ledger {self._store.name!r}; "
                "run the same release again when it is done"
            )
            raise LedgerError(message)

    def _check_neighbours(self, history: History, costs: tuple[Cost, ...]) -> None:
        relations = {cost.neighbours for cost in costs}
        if history.neighbours is not None:
            relations.add(history.neighbours)
        if len(relations) > 1:
            message = (
                f"ledger {self._store.name!r} adds up costs for one relation of neighbours; "
                "'add-remove' and 'replace' cannot be mixed"
            )
            raise RecipeError(message)

    def _check_units(self, history: History, units: Mapping[str, str]) -> None:
        for name, unit in units.items():
            charged = history.units.get(name, frozenset({unit}))
            if unit not in charged:
                before = " and ".join(repr(each) for each in sorted(charged))
                message = (
                    f"table {name!r} was charged to ledger {self._store.name!r} with unit {before}, and now "
                    f"its unit is {unit!r}: what protects the one does not protect the other, so the costs "
                    "do not add up. Nothing was spent; put the unit back, or keep the table under its new "
                    "unit in a project with a ledger of its own, whose budget comes on top of this one"
                )
                raise RecipeError(message)

    def _damaged(self, reason: str) -> LedgerError:
        return LedgerError(
            f"ledger {self._store.name!r} cannot be trusted: {reason}; restore it from a backup"
        )


def _same_budget(budget: Budget, limit: Budget) -> bool:
    """Whether a ledger opened with `limit` is the one that `budget` asks for.

    A budget that does not choose a way of counting is right for a ledger that was opened with one.
    """
    if budget.accounting != "any":
        return budget == limit
    way = limit.accounting
    alike = Budget(budget.epsilon, budget.delta, accounting=way, selection=budget.selection)
    return limit in (budget, budget.under(way), alike)


def _append(
    session: Session,
    history: History,
    *,
    kind: EntryKind,
    description: dict[str, Any],
    plan_digest: str = "",
    table: str = "",
    table_version: str = "",
) -> Entry:
    entry = make_entry(
        history=history,
        recorded_at=chain.current_time(),
        kind=kind,
        description=description,
        plan_digest=plan_digest,
        table=table,
        table_version=table_version,
    )
    session.insert_entry(entry)
    return entry
