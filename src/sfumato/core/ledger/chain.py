"""The chain of entries: each one seals all before it, and the sums are recomputed from them all.

The first entry may name the public key of anchors, signed hashes of entries that are kept elsewhere and show
what the chain alone cannot: that its end was cut off, or the whole was written anew.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

from sfumato.core.cost.budget import Budget, admits
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.parallel import SpentByPeriod, find_periods
from sfumato.core.errors import LedgerError, RecipeError, SfumatoError
from sfumato.core.exact import canonical_json, parse_positive
from sfumato.core.facts.part import Window

if TYPE_CHECKING:
    from sfumato.core.facts.table import Neighbours

FORMAT = 4
GENESIS = "0" * 64

Purpose = Literal["release", "statement", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the ledger; `hash` seals `record`, its spelling, which holds the hash of the one before.

    Each `kind` of entry is a class with fields of its own.
    """

    kind: ClassVar[str]

    sequence: int
    recorded_at: str
    previous: str
    hash: str
    record: bytes = field(repr=False)

    def seal(self) -> str:
        """Return the hash that this entry must carry: the SHA-256 of its record."""
        return hashlib.sha256(self.record).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningEntry(Entry):
    """The first entry: the budget, a random name, the digest of the secret, the public key of anchors."""

    kind: ClassVar[str] = "open"

    format: int
    budget: Budget
    ledger: str
    secret_sha256: str
    public_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetEntry(Entry):
    """A budget that takes the place of the one before."""

    kind: ClassVar[str] = "budget"

    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEntry(Entry):
    """The most epsilon that a person may spend from now on; None if they may spend all there is."""

    kind: ClassVar[str] = "share"

    person: str
    epsilon: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeEntry(Entry):
    """What was charged: the plan and the version of its tables by their digests, the costs, and who asked.

    `units` has the privacy unit of every private table, the column or "row". With `part_of`, an earlier
    charge has paid for this one, which has no costs. A charge with a `window` was for its periods alone.
    `subject` says in words what was asked; `description` is a record of it, read by its `purpose`.
    """

    kind: ClassVar[str] = "charge"

    plan_digest: str
    table: str
    table_version: str
    costs: tuple[Cost, ...]
    units: Mapping[str, str]
    asked_by: str | None
    part_of: int | None
    window: Window | None
    purpose: Purpose
    subject: str

    @property
    def description(self) -> dict[str, Any]:
        """Return what was asked as a tree of plain values; a fresh copy each time."""
        tree: dict[str, Any] = json.loads(self.record)["description"]
        return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEntry(Entry):
    """That the charge of the number `charge` has the answer with this digest."""

    kind: ClassVar[str] = "answer"

    charge: int
    sha256: str


Made = TypeVar("Made", bound=Entry)


class Entries(Sequence[Entry]):
    """The entries of a verified chain, read from where they are kept when they are looked at."""

    __slots__ = ("_count", "_read")

    def __init__(self, count: int = 0, read: Callable[[int, int], Sequence[Entry]] = lambda *_: ()) -> None:
        self._count = count
        self._read = read

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | Sequence[Entry]:
        chosen = range(self._count)[place]
        if isinstance(chosen, int):
            return self._read(chosen, chosen + 1)[0]
        found = self._read(min(chosen), max(chosen) + 1) if chosen else ()
        return [found[each - min(chosen)] for each in chosen]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self[:])

    def __reversed__(self) -> Iterator[Entry]:
        end, step = self._count, 4
        while end:  # more at once the longer somebody looks back
            start = max(0, end - step)
            yield from reversed(self[start:end])
            end, step = start, 2 * step


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a verified chain says: the budget in force, the exact sums, and how to go on.

    `count` are its entries, `charged` the charges among them, `head` the hash of the last one, `last` the
    costs of the last charge that has any. `units` maps each table to the unit for which it was charged.
    `shares` has the most epsilon that each person may spend who has a share, `spent_by` what each who asked
    has spent. `axis` says what the periods of all windows are. One that was `restored` knows its sums for the
    budget and the shares in force alone.
    """

    count: int = 0
    charged: int = 0
    head: str = GENESIS
    secret_sha256: str = ""
    budget: Budget | None = None
    spent: SpentByPeriod = field(default_factory=SpentByPeriod)
    last: tuple[Cost, ...] = ()
    neighbours: Neighbours | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    spent_by: Mapping[str, SpentByPeriod] = field(default_factory=dict)
    axis: str | None = None
    restored: bool = field(default=False, compare=False)

    @property
    def limit(self) -> Budget:
        """The budget in force; a chain that opened none is refused."""
        if self.budget is None:
            raise LedgerError("it has no entries")
        return self.budget

    def share_of(self, person: str) -> Budget | None:
        """The part of the budget in force that `person` may spend; None if it is the whole."""
        share = self.shares.get(person)
        if share is None:
            return None
        limit = self.limit
        return Budget(share, limit.delta, selection=limit.selection)

    def summarise(self, secret: bytes) -> tuple[bytes, str]:
        """The history as a record that `restore_history` reads, and its authentication code by the secret.

        Privacy: docs/proofs/ledger.md says what rests on it.
        """
        limits = {person: self.share_of(person) or self.limit for person in self.spent_by}
        kept = {
            **{name: getattr(self, name) for name in _SUMMARISED},
            "budget": self.limit.to_record(),
            "spent": self.spent.keep(self.limit),
            "last": [cost.to_record() for cost in self.last],
            "spent_by": {name: each.keep(limits[name]) for name, each in self.spent_by.items()},
        }
        record = canonical_json(kept)
        return record, hmac.digest(secret, record, "sha256").hex()


def restore_history(record: bytes, mac: str, secret: bytes) -> History:
    """The history that `summarise` wrote; refuses what was not written with this secret."""
    if not hmac.compare_digest(hmac.digest(secret, record, "sha256").hex().encode(), mac.encode()):
        raise LedgerError("its summary was edited")
    kept = json.loads(record)
    kept |= {
        "budget": Budget.from_record(kept["budget"]),
        "spent": SpentByPeriod.restore(kept["spent"]),
        "last": tuple(map(Cost.from_record, kept["last"])),
        "shares": {name: Fraction(share) for name, share in kept["shares"].items()},
        "spent_by": {name: SpentByPeriod.restore(each) for name, each in kept["spent_by"].items()},
    }
    return History(**kept, restored=True)


def open_chain(budget: Budget, secret: bytes, *, public_key: str | None = None) -> Entry:
    """Return the first entry of a new chain, with a random name for the ledger."""
    return make_entry(
        None,
        OpeningEntry,
        format=FORMAT,
        budget=budget.to_record(),
        ledger=secrets.token_hex(16),
        secret_sha256=hashlib.sha256(secret).hexdigest(),
        public_key=public_key,
    )


def make_entry(history: History | None, kind: type[Made], **facts: object) -> Made:
    """Return the entry that comes next after `history`, recorded now and sealed; None begins a chain.

    `kind` is its class, and `facts` are the fields of that as plain values.

    >>> first = open_chain(Budget(1), b"secret")
    >>> first.sequence, first.hash == first.seal()
    (1, True)
    """
    sequence = 1 if history is None else history.count + 1
    try:
        record = canonical_json(
            {
                "kind": kind.kind,
                "sequence": sequence,
                "recorded_at": datetime.now(UTC).isoformat(timespec="microseconds"),
                "previous": GENESIS if history is None else history.head,
                **facts,
            }
        )
    except (TypeError, ValueError) as error:
        raise RecipeError(f"the description of a ledger entry is not plain: {error}") from error
    entry = parse_entry(sequence, record, hashlib.sha256(record).hexdigest())
    assert isinstance(entry, kind)
    return entry


def parse_entry(sequence: object, record: object, seal: object) -> Entry:
    """Return the entry that a record spells, its seal not yet checked; refuses what it does not know."""
    try:
        tree = json.loads(record)  # type: ignore[arg-type]  # what is no text is refused
        kind = _KINDS[tree.pop("kind")]
        described = tree.pop("description") if kind is ChargeEntry else {}
        facts = {name: _READERS[name](value) for name, value in tree.items()}
        entry = kind(**facts, record=record, hash=seal)  # type: ignore[arg-type]  # each reader gives its type
    except (SfumatoError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise LedgerError(f"entry {sequence} was edited, or is not of this version") from error
    if not isinstance(record, bytes) or not isinstance(described, dict) or entry.sequence != sequence:
        raise LedgerError(f"entry {sequence} was edited or moved")
    return entry


def replay_chain(
    entries: Iterable[Entry],
    *,
    after: History | None = None,
    find: Callable[[int], Entry | None] = lambda _: None,
) -> History:
    """Return what `entries` say, after checking every seal and that nothing was overspent.

    `after` is what the entries before these say, and `find` gives one of them. Raises LedgerError at the
    first entry that was edited, removed, reordered or is out of place.

    >>> replay_chain([open_chain(Budget(1), b"secret")]).limit.describe()
    'epsilon 1'
    """
    start, new = after or History(), list(entries)
    if after is not None and not new:
        return after
    units, shares, spent_by = dict(start.units), dict(start.shares), dict(start.spent_by)
    head, budget, spent, neighbours = start.head, start.budget, start.spent, start.neighbours
    axis, last, charged, secret_sha256 = start.axis, start.last, start.charged, start.secret_sha256

    def find_charge(number: int | None, sequence: int) -> ChargeEntry | None:
        if number is None or not 1 <= number < sequence:
            return None
        known = new[number - 1 - start.count] if number > start.count else find(number)
        return known if isinstance(known, ChargeEntry) else None

    for sequence, entry in enumerate(new, start=start.count + 1):
        if entry.sequence != sequence or entry.previous != head or entry.seal() != entry.hash:
            raise LedgerError(f"entry {sequence} was edited, removed or moved")
        head = entry.hash
        if isinstance(entry, OpeningEntry) != (sequence == 1):
            raise LedgerError(f"entry {sequence} is of a kind that cannot stand there")
        if isinstance(entry, OpeningEntry) and entry.format != FORMAT:
            raise LedgerError(f"its format {entry.format} is one this version does not know")
        match entry:
            case OpeningEntry():
                budget, secret_sha256 = entry.budget, entry.secret_sha256
            case BudgetEntry():
                budget = entry.budget
            case ShareEntry(person=person, epsilon=share):
                shares.pop(person, None)
                shares.update({} if share is None else {person: share})
            case AnswerEntry(charge=charge):
                if find_charge(charge, sequence) is None:
                    raise LedgerError(f"entry {sequence} answers no charge before it")
        if not isinstance(entry, ChargeEntry):
            continue
        relations = {cost.neighbours for cost in entry.costs} | ({neighbours} if neighbours else set())
        paid = None if entry.costs else find_charge(entry.part_of, sequence)
        # Without costs it is for a part of what an earlier charge of its table has paid for.
        is_paid = bool(entry.costs) or (paid is not None and paid.table == entry.table and bool(paid.costs))
        if len(relations) > 1 or not is_paid:
            raise LedgerError(f"entry {sequence} has no costs or mixes relations of neighbours")
        neighbours = next(iter(relations), None)
        if any(units.setdefault(name, unit) != unit for name, unit in entry.units.items()):
            raise LedgerError(f"entry {sequence} charges a table for another unit than before")
        charged, last = charged + 1, entry.costs or last
        window, asked_by = entry.window, entry.asked_by
        if window is not None:
            if axis not in (None, window.axis) or neighbours != "add-remove":
                raise LedgerError(f"entry {sequence} has a window of other periods than those before")
            axis = window.axis
        periods = find_periods(window)
        spent = spent.add(entry.costs, periods)
        if asked_by is not None:
            spent_by[asked_by] = spent_by.get(asked_by, SpentByPeriod()).add(entry.costs, periods)
    history = History(
        count=start.count + len(new),
        charged=charged,
        head=head,
        secret_sha256=secret_sha256,
        budget=budget,
        spent=spent,
        last=last,
        neighbours=neighbours,
        units=units,
        shares=shares,
        spent_by=spent_by,
        axis=axis,
        restored=start.restored,
    )
    if not all(admits(history.limit, each) for each in history.spent.find(None)):
        raise LedgerError("it records more than its budget admits")
    return history


def refuse_other_neighbours(history: History, costs: tuple[Cost, ...], *, name: str) -> None:
    """Raises an error if the costs are for another relation of neighbours than those before."""
    if len({cost.neighbours for cost in costs} | ({history.neighbours} - {None})) > 1:
        raise RecipeError(
            f"ledger {name!r} adds up costs for one relation of neighbours; "
            "'add-remove' and 'replace' cannot be mixed"
        )


def refuse_other_units(history: History, units: Mapping[str, str], *, name: str) -> None:
    """Raises an error if a table was charged with another unit before."""
    for table, unit in units.items():
        charged = history.units.get(table, unit)
        if unit != charged:
            raise RecipeError(
                f"table {table!r} was charged to ledger {name!r} with unit {charged!r}, and now its unit is "
                f"{unit!r}: what protects the one does not protect the other, so the costs do not add up. "
                "Nothing was spent; put the unit back, or keep the table under its new unit in a project "
                "with a ledger of its own, whose budget comes on top of this one"
            )


def refuse_other_periods(history: History, window: Window, costs: tuple[Cost, ...], *, name: str) -> None:
    """Raises an error if the window's periods are others than those of the windows before."""
    if any(cost.neighbours != "add-remove" for cost in costs):
        raise RecipeError(
            "a charge with a window needs costs for neighbours that add or remove an individual"
        )
    if history.axis not in (None, window.axis):
        raise RecipeError(
            f"ledger {name!r} has windows over {str(history.axis).partition(': ')[0]!r}, and now they are "
            f"over {window.axis.partition(': ')[0]!r}, or it is described in another way: a record may be of "
            "another period now, so that nobody knows what was spent on it. Nothing was spent; put the "
            "description of the column back (its list of periods may grow), or take a project of its own"
        )


def _typed(*kinds: type) -> Callable[[Any], object]:
    def read(value: object) -> object:
        if type(value) not in kinds:
            raise TypeError("a field of another type")
        return value

    return read


def _or_none(read: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda value: None if value is None else read(value)


# What a summary holds as it is.
_SUMMARISED = ("count", "charged", "head", "secret_sha256", "neighbours", "units", "shares", "axis")

# What each kind of entry is called in its record, and how each field is read.
_KINDS: dict[str, type[Entry]] = {
    each.kind: each for each in (OpeningEntry, BudgetEntry, ShareEntry, ChargeEntry, AnswerEntry)
}
_READERS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("sequence", "charge", "format"), _typed(int)),
    **dict.fromkeys(("recorded_at", "previous", "ledger", "secret_sha256", "sha256"), _typed(str)),
    **dict.fromkeys(("person", "plan_digest", "table", "table_version", "purpose", "subject"), _typed(str)),
    **dict.fromkeys(("public_key", "asked_by"), _typed(str, type(None))),
    "part_of": _typed(int, type(None)),
    "budget": Budget.from_record,
    "epsilon": _or_none(lambda value: parse_positive(value, name="share")),
    "costs": lambda value: tuple(map(Cost.from_record, value)),
    "units": _typed(dict),
    "window": _or_none(Window.from_record),
}
