"""The chain of entries: each one seals all before it, and the sums are recomputed from them all.

An anchor is the hash of one entry, signed with the project's key. Kept elsewhere, it shows later whether the
end of the chain was cut off or the whole was written anew, which the chain alone cannot.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from sfumato.core.cost.budget import Budget, admits
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.parallel import SpentByPeriod, find_periods
from sfumato.core.errors import LedgerError, RecipeError, SchemaError, VerificationFailed
from sfumato.core.exact import canonical_json, parse_positive
from sfumato.core.facts.part import Window

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from sfumato.core.facts.table import Neighbours

FORMAT = 3
GENESIS = "0" * 64
KEY_VARIABLE = "SFUMATO_LEDGER_KEY"

EntryKind = Literal["open", "charge", "answer", "budget", "share"]

_ANCHOR = "sfumato-anchor-1"
_FORM = re.compile(rf"{_ANCHOR}:([1-9][0-9]{{0,17}}):([0-9a-f]{{64}}):([0-9a-f]{{64}}):([0-9a-f]{{128}})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger. `hash` seals it together with everything before it."""

    sequence: int
    recorded_at: str
    kind: EntryKind
    description_json: bytes
    plan_digest: str
    table: str
    table_version: str
    previous: str
    hash: str

    @property
    def description(self) -> dict[str, Any]:
        """What was recorded, as a tree of plain values; a fresh copy each time."""
        tree: dict[str, Any] = json.loads(self.description_json)
        return tree

    @property
    def units(self) -> dict[str, frozenset[str]]:
        """The unit of each table that a charge names: the column, or "row"; empty if it is not recorded."""
        description = self.description
        if self.kind == "charge" and isinstance(description.get("units"), dict):
            return {name: frozenset({str(unit)}) for name, unit in description["units"].items()}
        if self.kind != "charge":
            return {}
        return {self.table: frozenset(cost.unit for cost in self.costs)}

    @property
    def costs(self) -> tuple[Cost, ...]:
        """The costs that a charge recorded; empty for the other kinds."""
        if self.kind != "charge":
            return ()
        return tuple(Cost.from_record(record) for record in self.description["costs"])

    @property
    def window(self) -> Window | None:
        """The periods that a charge was for; None if it was for all records, or is none."""
        recorded = self.description.get("window") if self.kind == "charge" else None
        return None if recorded is None else Window.from_record(recorded)

    @property
    def subject(self) -> str:
        """What a charge was for: the statement, or the recipe and the columns it groups by."""
        description = self.description
        recipe = description.get("recipe") or {}
        kind, by = str(recipe.get("recipe", "")), recipe.get("by")
        return str(
            description.get(
                "statement", f"{kind} by {', '.join(map(str, by))}" if isinstance(by, list) else kind
            )
        )

    @property
    def asked_by(self) -> str | None:
        """Who asked for what a charge paid for, where a server told people apart."""
        asked_by = self.description.get("asked_by") if self.kind == "charge" else None
        return None if asked_by is None else str(asked_by)

    def to_record(self) -> dict[str, Any]:
        """All fields but the two hashes: what the seal covers, spelled canonically."""
        return {
            "description": self.description,
            "kind": self.kind,
            "plan_digest": self.plan_digest,
            "recorded_at": self.recorded_at,
            "sequence": self.sequence,
            "table": self.table,
            "table_version": self.table_version,
        }

    def seal(self) -> str:
        """The hash that this entry must carry: SHA-256 of the previous hash and the record."""
        sealed = bytes.fromhex(self.previous) + canonical_json(self.to_record())
        return hashlib.sha256(sealed).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a verified chain says: its entries, the budget in force, and the exact sums.

    `answers` maps each answered charge to the digest of its answer, `answered` a plan and a version of its
    table to the first such charge; `unanswered` has the other charges. `units` maps each table to the units
    for which it was charged. `shares` has the most epsilon that each person may spend who has a share,
    `spent_by` what each who asked has spent. `axis` says what the periods of all windows are.
    """

    entries: tuple[Entry, ...] = ()
    budget: Budget | None = None
    spent: SpentByPeriod = field(default_factory=SpentByPeriod)
    neighbours: Neighbours | None = None
    answers: Mapping[int, str] = field(default_factory=dict)
    answered: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unanswered: frozenset[int] = frozenset()
    units: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    spent_by: Mapping[str, SpentByPeriod] = field(default_factory=dict)
    axis: str | None = None

    @property
    def head(self) -> str:
        """The hash of the last entry; kept elsewhere, it pins the whole ledger."""
        return self.entries[-1].hash if self.entries else GENESIS

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

    def holds(self, entry: Entry) -> bool:
        """Whether `entry` is one of the recorded entries, unchanged."""
        index = entry.sequence - 1
        return 0 <= index < len(self.entries) and self.entries[index] == entry


def open_chain(budget: Budget, secret: bytes, *, public_key: str | None = None) -> Entry:
    """The first entry of a new chain: its budget, a random name, the digest of its secret, its public key."""
    return make_entry(
        history=None,
        kind="open",
        description={
            "budget": budget.to_record(),
            "format": FORMAT,
            "ledger": secrets.token_hex(16),
            "secret_sha256": hashlib.sha256(secret).hexdigest(),
            **({} if public_key is None else {"public_key": public_key}),
        },
    )


def make_entry(
    *,
    history: History | None,
    kind: EntryKind,
    description: Mapping[str, Any],
    plan_digest: str = "",
    table: str = "",
    table_version: str = "",
) -> Entry:
    """The entry that comes next after `history`, recorded now and sealed; None begins a chain.

    `kind` says what the entry is and `description` all about it, as plain JSON. A charge names the digest of
    its plan (`plan_digest`), its `table` and the digest of the records (`table_version`).

    >>> first = make_entry(history=None, kind="open", description={})
    >>> first.sequence, first.hash == first.seal()
    (1, True)
    """
    try:
        spelled = canonical_json(dict(description))
        canonical_json([plan_digest, table, table_version])
    except (TypeError, ValueError) as error:
        raise RecipeError(f"the description of a ledger entry is not plain: {error}") from error
    unsealed = Entry(
        sequence=1 if history is None else len(history.entries) + 1,
        recorded_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        kind=kind,
        description_json=spelled,
        plan_digest=plan_digest,
        table=table,
        table_version=table_version,
        previous=GENESIS if history is None else history.head,
        hash="",
    )
    return replace(unsealed, hash=unsealed.seal())


def replay_chain(entries: Iterable[Entry], *, after: History | None = None) -> History:
    """What `entries` say, after checking every seal and that nothing was overspent.

    `after` is a history already replayed from the entries before these. Raises LedgerError at the
    first entry that was edited, removed, reordered or is unknown.

    >>> description = {"budget": Budget(1).to_record(), "format": FORMAT}
    >>> entry = make_entry(history=None, kind="open", description=description)
    >>> replay_chain([entry]).limit.describe()
    'epsilon 1'
    """
    start, new = after or History(), list(entries)
    if after is not None and not new:
        return after
    answers, answered, units = dict(start.answers), dict(start.answered), dict(start.units)
    shares, spent_by, unanswered = dict(start.shares), dict(start.spent_by), set(start.unanswered)
    whole = (*start.entries, *new)
    head, budget, spent, neighbours = start.head, start.budget, start.spent, start.neighbours
    axis = start.axis
    for sequence, entry in enumerate(new, start=len(start.entries) + 1):
        if entry.sequence != sequence or entry.previous != head or entry.seal() != entry.hash:
            raise LedgerError(f"entry {sequence} was edited, removed or moved")
        head = entry.hash
        if entry.kind not in get_args(EntryKind) or (entry.kind == "open") != (sequence == 1):
            raise LedgerError(f"entry {sequence} is of a kind that cannot stand there")
        try:
            costs, window = entry.costs, entry.window
            for name, unit in entry.units.items():
                units[name] = units.get(name, frozenset()) | unit
            if entry.kind in ("open", "budget"):
                budget = _recorded_budget(entry)
            if entry.kind == "answer":
                charge, sha256 = _recorded_answer(entry, whole)
                answers[charge] = sha256
                asked = whole[charge - 1]
                answered.setdefault((asked.plan_digest, asked.table_version), charge)
                unanswered.discard(charge)
            if entry.kind == "charge":
                unanswered.add(sequence)
            if entry.kind == "share":
                person, share = _recorded_share(entry)
                shares.pop(person, None)
                shares.update({} if share is None else {person: share})
        except (RecipeError, SchemaError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerError(
                f"entry {sequence} holds a budget, cost or answer this version does not know"
            ) from error
        relations = {cost.neighbours for cost in costs} | ({neighbours} if neighbours else set())
        if len(relations) > 1 or (entry.kind == "charge" and not costs and not _is_part(entry, whole)):
            raise LedgerError(f"entry {sequence} has no costs or mixes relations of neighbours")
        neighbours = next(iter(relations), None)
        if window is not None:
            if axis not in (None, window.axis) or neighbours != "add-remove":
                raise LedgerError(f"entry {sequence} has a window of other periods than those before")
            axis = window.axis
        periods = find_periods(window)
        spent = spent.add(costs, periods)
        asked_by = entry.asked_by
        if asked_by is not None:
            spent_by[asked_by] = spent_by.get(asked_by, SpentByPeriod()).add(costs, periods)
    history = History(
        entries=whole,
        budget=budget,
        spent=spent,
        neighbours=neighbours,
        answers=answers,
        answered=answered,
        unanswered=frozenset(unanswered),
        units=units,
        shares=shares,
        spent_by=spent_by,
        axis=axis,
    )
    if not all(admits(history.limit, each) for each in spent.find(None)):
        raise LedgerError("it records more than its budget admits")
    return history


def _is_part(entry: Entry, whole: tuple[Entry, ...]) -> bool:
    """Whether a charge without costs is for a part of what an earlier one of its table has paid for."""
    first = entry.description.get("part_of")
    if not isinstance(first, int) or not 1 <= first < entry.sequence:
        return False
    paid = whole[first - 1]
    return paid.kind == "charge" and paid.table == entry.table and bool(paid.costs)


def refuse_other_neighbours(history: History, costs: tuple[Cost, ...], *, name: str) -> None:
    """Raises an error if the costs are for another relation of neighbours than those before."""
    relations = {cost.neighbours for cost in costs}
    if history.neighbours is not None:
        relations.add(history.neighbours)
    if len(relations) > 1:
        raise RecipeError(
            f"ledger {name!r} adds up costs for one relation of neighbours; "
            "'add-remove' and 'replace' cannot be mixed"
        )


def refuse_other_units(history: History, units: Mapping[str, str], *, name: str) -> None:
    """Raises an error if a table was charged with another unit before."""
    for table, unit in units.items():
        charged = history.units.get(table, frozenset({unit}))
        if unit not in charged:
            before = " and ".join(repr(each) for each in sorted(charged))
            raise RecipeError(
                f"table {table!r} was charged to ledger {name!r} with unit {before}, and now its unit is "
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """That entry `sequence` of a ledger has the hash `head`, signed by the owner of `public_key`."""

    sequence: int
    head: str
    public_key: str
    signature: str

    def __str__(self) -> str:
        return f"{_ANCHOR}:{self.sequence}:{self.head}:{self.public_key}:{self.signature}"

    def to_record(self) -> dict[str, object]:
        """The anchor as a plain record."""
        return {
            "sequence": self.sequence,
            "head": self.head,
            "public_key": self.public_key,
            "signature": self.signature,
            "anchor": str(self),
        }


def sign_anchor(entry: Entry, key: Ed25519PrivateKey) -> Anchor:
    """The anchor of `entry`, signed with `key`."""
    public = public_half(key)
    signature = key.sign(_message(entry.sequence, entry.hash, public)).hex()
    return Anchor(sequence=entry.sequence, head=entry.hash, public_key=public, signature=signature)


def parse_anchor(text: str) -> Anchor:
    """The anchor that a line spells, its signature checked; anyone can do so."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise VerificationFailed(
            f"that is no anchor; one is printed by `sfumato budget --anchor` and begins with {_ANCHOR}:"
        )
    sequence, head, public, signature = found.groups()
    anchor = Anchor(sequence=int(sequence), head=head, public_key=public, signature=signature)
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _message(anchor.sequence, head, public))
    except (InvalidSignature, ValueError):
        raise VerificationFailed(
            "the signature of the anchor is wrong: it was changed, or never signed"
        ) from None
    return anchor


def load_key(place: Path | str, *, folder: Path | None = None, create: bool) -> Ed25519PrivateKey | None:
    """The key of the ledger at `place`, made if it may be; None if there is no place for it, or no key."""
    path = find_key(place, folder=folder)
    return None if path is None else read_key(path, create=create)


def find_key(place: Path | str, *, folder: Path | None = None) -> Path | None:
    """Where the key of the ledger at `place` is kept: `SFUMATO_LEDGER_KEY`, or a file beside it.

    Beside a ledger in a database means `ledger.key` in the project's `folder`; without one, nowhere.
    """
    if named := os.environ.get(KEY_VARIABLE):
        return Path(named)
    if isinstance(place, Path):
        return place.with_name(place.name + ".key")
    return None if folder is None else folder / "ledger.key"


def read_key(path: Path, *, create: bool) -> Ed25519PrivateKey | None:
    """The key in the file at `path`, made if it may be; None if it is not there and may not."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        if create and not path.exists():
            _write_key(path)
        text = path.read_text(encoding="ascii", errors="replace") if path.exists() else None
    except OSError as error:
        raise LedgerError(f"the key {path.name!r} cannot be read or made: {error.strerror}") from None
    if text is None:
        return None
    try:
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(text.strip(), validate=True))
    except ValueError:
        raise LedgerError(f"{path.name!r} is not the key of a ledger; restore it from a backup") from None


def public_half(key: Ed25519PrivateKey) -> str:
    """The public key that belongs to `key`, in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def _recorded_answer(entry: Entry, entries: tuple[Entry, ...]) -> tuple[int, str]:
    description = entry.description
    charge, sha256 = description["charge"], description["sha256"]
    if not isinstance(charge, int) or not isinstance(sha256, str):
        raise RecipeError("an answer names its charge and its digest")
    if not 1 <= charge < entry.sequence or entries[charge - 1].kind != "charge":
        raise RecipeError("an answer names a charge before it")
    return charge, sha256


def _recorded_share(entry: Entry) -> tuple[str, Fraction | None]:
    person, epsilon = entry.description["person"], entry.description["epsilon"]
    if not isinstance(person, str) or not person:
        raise RecipeError("a share names a person")
    return person, None if epsilon is None else parse_positive(epsilon, name="share")


def _recorded_budget(entry: Entry) -> Budget:
    description = entry.description
    if entry.kind == "open" and description["format"] != FORMAT:
        raise RecipeError(f"format {description['format']} is not known")
    return Budget.from_record(description["budget"])


def _write_key(path: Path) -> None:
    """A new key, whole from its first instant; one that another process has just made is left."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(32)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)


def _message(sequence: int, head: str, public: str) -> bytes:
    return f"{_ANCHOR}\n{sequence}\n{head}\n{public}\n".encode()
