"""The linkage attack: published records without names joined with a register of names.

Whoever has the register looks for the records that fit a person's quasi-identifiers. If one record fits
the person and nobody else, it is taken for theirs, with all that it tells. And where many fit but agree
on what is sensitive, nobody need be found to be exposed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.anonymity.attack.matching import Classes, build_classes, join_classes
from sfumato.core.engine.arrays import to_numpy
from sfumato.core.errors import AttackError
from sfumato.report.pages.render import render_text
from sfumato.tables.read import TableLike, read_table, require_columns, restore_formulas, spell_table

INTERNAL = "INTERNAL: an attack on records of people, not private, do not publish"

FEW = 5
"""The most records that count as few, if not said otherwise."""

_MOST_VALUES = 12


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Published:
    """A published table as text, and how many records each row stands for; rows of none are left out."""

    table: pa.Table
    weights: NDArray[np.int64]

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """What is learned about the column `column`.

    `values` are those of the linked records, with how often. `certain` counts everybody whose fitting
    records, one or many, all have one value.
    """

    column: str
    values: tuple[tuple[str, int], ...] = field(repr=False)
    certain: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How many links and certain values are right; None if no value was asked for."""

    present: int
    true_links: int
    false_links: int
    certain_true: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Linkage:
    """How many records fit the people of a register.

    One fits `unique` people, from two to `limit` fit `few`, more fit `many`, and none fits `none`.
    `linked` of the unique ones are the only people whom their record fits. `pairs` has the rows of
    these in register and release.
    """

    on: tuple[str, ...]
    records: int
    people: int
    limit: int
    unique: int
    few: int
    many: int
    none: int
    linked: int
    revealed: Revealed | None = None
    verdict: Verdict | None = None
    pairs: NDArray[np.int64] = field(repr=False, compare=False)

    def to_record(self) -> dict[str, Any]:
        """Returns the counts for JSON, without any person or record."""
        revealed = self.revealed
        return {
            "on": list(self.on),
            "records": self.records,
            "people": self.people,
            "matches": {"unique": self.unique, "few": self.few, "many": self.many, "none": self.none},
            "limit": self.limit,
            "linked": self.linked,
            "linked_share": self.linked / max(1, self.people),
            "linked_records_share": self.linked / max(1, self.records),
            "revealed": None
            if revealed is None
            else {
                "column": revealed.column,
                "certain": revealed.certain,
                "certain_share": revealed.certain / max(1, self.people),
                "values": [
                    {"value": value, "count": count, "share": count / max(1, self.linked)}
                    for value, count in revealed.values
                ],
            },
            "truth": None if self.verdict is None else asdict(self.verdict),
        }


def read_text(source: TableLike, *, side: str) -> pa.Table:
    """Reads a file, a frame or an Arrow table with all cells as text; errors call it `side`.

    >>> read_text(pa.table({"age": [61, None], "height": [1.5, 2.0]}), side="register").to_pylist()
    [{'age': '61', 'height': '1.5'}, {'age': None, 'height': '2'}]
    """
    return spell_table(read_table(source, side=side), side=side)


def link_tables(
    release: Published,
    register: pa.Table,
    *,
    on: Sequence[str],
    reveal: str | None = None,
    identity: str | None = None,
    identities: pa.Array | None = None,
    limit: int = FEW,
) -> Linkage:
    """Returns the linkage of `release` with a `register` of people on the quasi-identifiers `on`.

    `reveal` names a sensitive column of the release, `limit` the most records that count as few, 2 or more.
    `identities` says of every row of the release whose it is, in the terms of the register's column
    `identity`, to tell right links from wrong ones.

    >>> from sfumato.anonymity.attack import open_published
    >>> rows = open_published(pa.table({"age": ["60+", "60+", "20-40"], "ill": ["flu", "flu", "gout"]}))
    >>> people = pa.table({"name": ["Ada", "Bo"], "age": ["61", "33"]})
    >>> found = link_tables(rows, people, on=["age"], reveal="ill")
    >>> found.unique, found.few, found.linked, found.revealed, found.revealed.values
    (1, 1, 1, Revealed(column='ill', certain=2), (('gout', 1),))
    """
    on = tuple(on)
    register = read_text(register, side="register")
    if not on or len(set(on)) != len(on):
        raise AttackError("name the quasi-identifiers to link on, each once: birthday,postcode,sex")
    require_columns(release.table, on if reveal is None else (*on, reveal), side="release")
    require_columns(register, on, side="register")
    if reveal in on:
        raise AttackError(f"column {reveal!r} cannot be both known and revealed")
    if limit < 2:
        raise AttackError("few matches are two or more; the limit must be at least 2")
    rows = build_classes(release.table, on, weights=release.weights)
    people = build_classes(register, on)
    secret = None if reveal is None else _codes(release.table[reveal])
    found = _Found(rows, people, secret)
    records = found.records[people.of_row]
    partner = found.partner[people.of_row]
    # A link is one record for one person: who shares a record with others is not found by it.
    linked = np.flatnonzero((records == 1) & (found.people[partner] == 1))
    pairs = np.stack([linked, found.first_row[partner[linked]]], axis=1)
    certain = found.certain[people.of_row] & (records > 0)
    return Linkage(
        on=on,
        records=release.records,
        people=register.num_rows,
        limit=limit,
        unique=int((records == 1).sum()),
        few=int(((records > 1) & (records <= limit)).sum()),
        many=int((records > limit).sum()),
        none=int((records == 0).sum()),
        linked=linked.size,
        revealed=None if reveal is None else _reveal(release, reveal, pairs, certain),
        verdict=_judge(register, identity, identities, pairs, secret, certain, found.low[people.of_row]),
        pairs=pairs,
    )


class _Found:
    """What the join of classes tells of every class: sums, one partner, and the range of secrets."""

    def __init__(self, rows: Classes, people: Classes, secrets: NDArray[np.int64] | None) -> None:
        many, known = people.weights.size, rows.weights.size
        self.records = np.zeros(many, np.int64)
        self.people = np.zeros(max(1, known), np.int64)
        self.partner = np.zeros(many, np.int64)
        self.first_row = np.zeros(max(1, known), np.int64)
        # Backwards: the last one written, which stays, is the first row of its class.
        self.first_row[rows.of_row[::-1]] = np.arange(rows.of_row.size)[::-1]
        self.low = np.full(many, np.iinfo(np.int64).max)
        high = np.full(many, -1)
        least, most = np.zeros(known, np.int64), np.zeros(known, np.int64)
        if secrets is not None:
            least[:] = np.iinfo(np.int64).max
            np.minimum.at(least, rows.of_row, secrets)
            np.maximum.at(most, rows.of_row, secrets)
        for mine, theirs in join_classes(rows, people) if many and known else ():
            self.records += np.bincount(theirs, rows.weights[mine], minlength=many).astype(np.int64)
            self.people += np.bincount(mine, people.weights[theirs], minlength=known).astype(np.int64)
            self.partner[theirs] = mine
            np.minimum.at(self.low, theirs, least[mine])
            np.maximum.at(high, theirs, most[mine])
        self.certain = self.low == high  # the least code and the largest are one: all fitting records agree


def _reveal(
    release: Published, column: str, pairs: NDArray[np.int64], certain: NDArray[np.bool_]
) -> Revealed:
    cells = release.table[column].take(pa.array(pairs[:, 1])).to_pylist()
    counted = Counter("" if cell is None else str(cell) for cell in cells)
    values = tuple(sorted(counted.items(), key=lambda each: (-each[1], each[0])))
    return Revealed(column=column, values=values, certain=int(certain.sum()))


def _judge(
    register: pa.Table,
    identity: str | None,
    identities: pa.Array | None,
    pairs: NDArray[np.int64],
    secret: NDArray[np.int64] | None,
    certain: NDArray[np.bool_],
    guessed: NDArray[np.int64],
) -> Verdict | None:
    if identities is None:
        return None
    if identity is None:
        raise AttackError("say which column of the register names people, to compare it with the truth")
    require_columns(register, [identity], side="register")
    names = register[identity].to_pylist()
    owners = identities.cast(pa.string()).to_pylist()
    row_of = {owner: row for row, owner in enumerate(owners) if owner is not None}  # the last of several
    right = sum(names[person] == owners[row] for person, row in pairs.tolist())
    rows = np.array([row_of.get(name, -1) for name in names], np.int64)
    certain_true = None
    if secret is not None:
        own = np.where(rows >= 0, secret[rows], -1) if secret.size else np.full(rows.size, -1)
        certain_true = int((certain & (own == guessed)).sum())
    return Verdict(
        true_links=right,
        false_links=len(pairs) - right,
        present=int((rows >= 0).sum()),
        certain_true=certain_true,
    )


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Returns a number for every cell, the same for equal cells."""
    return to_numpy(column.combine_chunks().fill_null("").dictionary_encode().indices).astype(np.int64)


def describe_linkage(after: Linkage, *, before: Linkage | None = None) -> str:
    """Returns the counts and shares of a linkage, of two releases beside each other if `before` is given.

    >>> from sfumato.anonymity.attack import link_tables, open_published
    >>> people = pa.table({"name": ["Ada", "Bo"], "age": ["61", "33"]})
    >>> found = link_tables(open_published(people.drop_columns(["name"])), people, on=["age"])
    >>> print(describe_linkage(found).splitlines()[8].strip())
    linked: one record, and it fits nobody else          2 (100 %)
    """
    values = () if after.revealed is None else after.revealed.values[:_MOST_VALUES]
    shown = [("".join(sign if sign.isprintable() else "?" for sign in each)[:30], n) for each, n in values]
    return render_text(
        "anonymity/attack.txt",
        internal=INTERNAL,
        after=after,
        each=[after] if before is None else [before, after],
        shown=[(each or "(empty)", count) for each, count in shown],
    )


_LARGEST = 2**40


def open_published(
    source: Path | str | pa.Table, *, count: str | None = None, side: str = "release"
) -> Published:
    """Returns the rows of a release folder or of a file, with the numbers of records in the column `count`.

    A folder whose table has a column `count` is one of counts, also without saying so.

    >>> counts = open_published(pa.table({"ward": ["a", "b"], "n": [3, 0]}), count="n")
    >>> counts.table.to_pylist(), counts.records
    ([{'ward': 'a'}], 3)
    """
    folder = not isinstance(source, pa.Table) and Path(source).is_dir()
    if folder:
        from sfumato.release.folder import open_folder

        opened = open_folder(str(source), load=("table.parquet",))
        opened.plan()  # a certificate that could not have been made fails here as it does everywhere
        source = opened.table("table.parquet")
    table = read_text(source, side=side)
    if not isinstance(source, pa.Table) and not str(source).lower().endswith(".parquet"):
        table = restore_formulas(table)
    if folder and count is None and "count" in table.column_names:
        count = "count"
    if folder and "epsilon" in table.column_names and len(pc.unique(table["epsilon"])) > 1:
        raise AttackError(
            f"{side}: holds tables at several epsilons; write the rows of one to a file and give that"
        )
    if count is None:
        return Published(table, np.ones(table.num_rows, np.int64))
    require_columns(table, [count], side=side)
    weights = _whole_numbers(table[count], count, side)
    kept = weights > 0
    return Published(table.filter(pa.array(kept)).drop_columns([count]), weights[kept])


def read_identities(
    release: Published, truth: pa.Table, *, identity: str, key: str | None = None
) -> pa.Array:
    """Reads the identity behind every row: that of `truth` in its place, or of its `key`.

    >>> from sfumato.anonymity.attack import open_published
    >>> rows = open_published(pa.table({"id": ["2", "1"], "age": ["60+", "20-40"]}))
    >>> truth = pa.table({"id": ["1", "2"], "name": ["Ada", "Bo"]})
    >>> read_identities(rows, truth, identity="name", key="id").to_pylist()
    ['Bo', 'Ada']
    """
    truth = read_text(truth, side="truth")
    require_columns(truth, [identity, *([] if key is None else [key])], side="truth")
    if (release.weights != 1).any():
        raise AttackError("a release of counts has no record to compare; leave the truth out")
    owners = truth[identity]
    if key is None:
        if truth.num_rows != release.table.num_rows:
            raise AttackError(
                "truth and release have different numbers of rows; name a column of both that joins them"
            )
        return owners.combine_chunks()
    require_columns(release.table, [key], side="release")
    names = truth[key].to_pylist()
    known = dict(zip(names, owners.to_pylist(), strict=True))
    if len(known) != len(names):
        raise AttackError(f"truth: column {key!r} has a value twice, so it does not tell rows apart")
    return pa.array([known.get(value) for value in release.table[key].to_pylist()], pa.string())


def _whole_numbers(column: pa.ChunkedArray, name: str, side: str) -> NDArray[np.int64]:
    try:
        numbers = column.combine_chunks().cast(pa.int64())
    except pa.ArrowException:
        numbers = None
    if numbers is None or numbers.null_count or (len(numbers) and pc.max(numbers).as_py() > _LARGEST):
        raise AttackError(f"{side}: column {name!r} must hold whole numbers of records")
    return to_numpy(numbers)
