"""Tables whose individuals are found along references: an item is of whoever has the visit that it names.

A record is copied for every individual that holds the key it refers to, once for each; one that refers to
nothing is nobody's. What is an individual's is then a function of its own rows and of those that refer to
them, and everything after that bounds it as in any other table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.engine.base import Fetched, check_unit
from sfumato.core.engine.encode import code_type, connect, quote_name
from sfumato.core.engine.sealed import clean_column, clean_type, divide_records, register_columns
from sfumato.core.errors import SourceError
from sfumato.core.facts.table import UNIT, Table, code_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.core.engine.encode import Stored
    from sfumato.core.engine.sealed import Sealed
    from sfumato.core.facts.table import Family, Table

_ROWS = 2**20  # looked up at once: a table of keys is hashed for each lot


def follow_reference(table: Table, own: Fetched, parent: Fetched) -> Fetched:
    """The columns of a table that refers to another, with the individual of every record beside them.

    `own` has at least the referring column of `table`, `parent` the column that it refers to and the unit
    of the referred table. Nothing is read before the result is.

    Privacy: docs/proofs/sql.md, "References".
    """
    reference = table.reference
    assert reference is not None
    assert table.unit.column is not None
    unit, theirs = table.unit.column, reference.table.unit.column
    where = f"table {table.name!r}: references {reference.column!r}"
    assert theirs is not None
    named = {name.lower(): name for name in own.columns}
    if reference.column not in own.columns:
        raise SourceError(f"{where}: the source has no such column")
    if unit.lower() in named:
        raise SourceError(
            f"{where}: the source has a column {named[unit.lower()]!r}, which is the name of the unit of "
            f"table {reference.table.name!r}; declare it as unit, in place of references"
        )
    if reference.key not in parent.columns:
        raise SourceError(f"{where}: table {reference.table.name!r} has no column {reference.key!r}")
    for fetched, name in ((own, reference.column), (parent, reference.key), (parent, theirs)):
        if name in fetched.columns and name not in fetched.schema.names:
            raise SourceError(f"{where}: column {name!r} has a nested or binary type; store keys as text")
    check_unit(reference.table, parent.columns, where=f"table {reference.table.name!r}")
    kind = _common_type(
        own.schema.field(reference.column).type, parent.schema.field(reference.key).type, where=where
    )
    columns = {**own.columns, unit: parent.columns[theirs]}
    stored = _plain(pa.array([], parent.schema.field(theirs).type)).type
    kinds = [pa.large_string() if pa.types.is_string_view(each.type) else each.type for each in own.schema]
    schema = pa.schema([*zip(own.schema.names, kinds, strict=True), (unit, stored)])

    def read() -> Iterator[pa.RecordBatch]:
        held = _read_holders(parent, reference.key, theirs, kind, limit=reference.table.text_limit)
        for lot in _lots(map(_make_plain, own.read())):
            keys = _clean_keys(lot.column(reference.column), kind, limit=reference.table.text_limit)
            rows, people = held.find(keys)
            names = held.people.take(to_arrow(people))
            yield from lot.take(to_arrow(rows)).append_column(schema.field(unit), names).to_batches()

    return Fetched(columns, schema, read)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Holders:
    """Who holds which key: for each of `keys`, `holders` from one of `starts` on are places in `people`."""

    keys: pa.Array
    starts: NDArray[np.int64]
    holders: NDArray[np.int64]
    people: pa.Array

    def find(self, keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each pair of a place in `keys` and one who holds the key there: the place, and who it is."""
        found = pc.index_in(keys, value_set=self.keys)
        there = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        places = to_numpy(found.drop_null()).astype(np.int64)
        counts = self.starts[places + 1] - self.starts[places]
        rows = np.repeat(there, counts)
        before = np.cumsum(counts) - counts
        within = np.arange(rows.size) - np.repeat(before, counts)
        return rows, self.holders[np.repeat(self.starts[places], counts) + within]


def _read_holders(parent: Fetched, key: str, unit: str, kind: pa.DataType, *, limit: int) -> _Holders:
    """Every pair of a key and an individual who holds it, once."""
    keys: list[pa.Array] = []
    people: list[pa.Array] = []
    for batch in parent.read():
        keys.append(_clean_keys(batch.column(key), kind, limit=limit))
        people.append(_plain(batch.column(unit)))
    schema = parent.schema.field(unit).type
    stored = pa.chunked_array(people, _plain(pa.array([], schema)).type).combine_chunks()
    named = clean_column(stored, limit=limit, keep_apart=True).dictionary_encode()
    coded = pa.chunked_array(keys, kind).combine_chunks().dictionary_encode()
    known = np.logical_and(
        coded.indices.is_valid().to_numpy(zero_copy_only=False),
        named.indices.is_valid().to_numpy(zero_copy_only=False),
    )
    one, other = (_codes(each)[known] for each in (coded, named))
    width = max(1, len(named.dictionary))
    pairs = np.unique(one * width + other)
    starts = np.searchsorted(pairs, np.arange(len(coded.dictionary) + 1) * width)
    # An individual as it is stored, in the first of its rows: it is made plain later, as a unit is.
    first = np.zeros(width, np.int64)
    places = np.flatnonzero(known)[::-1]
    first[other[::-1]] = places
    names = stored.take(to_arrow(first)) if len(stored) else stored
    return _Holders(coded.dictionary, starts, pairs % width, names)


def _codes(values: pa.DictionaryArray) -> NDArray[np.int64]:
    return to_numpy(values.indices.fill_null(0)).astype(np.int64)


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_string_view(values.type):  # which Arrow cannot gather; taken for text as it is
        raw = values.cast(pa.large_binary())
        return pa.Array.from_buffers(pa.large_string(), len(raw), raw.buffers(), raw.null_count, raw.offset)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _make_plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_plain(each) if pa.types.is_string_view(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _clean_keys(values: pa.Array, kind: pa.DataType, *, limit: int) -> pa.Array:
    """Keys made plain such that two that differ stay two, in the type in which they are compared."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return clean_column(values, limit=limit, keep_apart=True).cast(kind)


def _lots(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in chain(batches, [None]):
        if held and (batch is None or sum(each.num_rows for each in held) >= _ROWS):
            yield pa.Table.from_batches(held).combine_chunks()
            held = []
        held += [] if batch is None else [batch]


def _common_type(one: pa.DataType, other: pa.DataType, *, where: str) -> pa.DataType:
    """The type in which keys are compared: as both are stored, or that of whole numbers, or of texts."""
    kinds: list[Any] = [clean_type(each) for each in (one, other)]
    if all(pa.types.is_integer(kind) and kind != pa.uint64() for kind in kinds):
        return pa.int64()
    if all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in kinds):
        return pa.large_string()
    exact = pa.types.is_integer, pa.types.is_decimal, pa.types.is_date, pa.types.is_boolean
    if kinds[0] != kinds[1] or not any(test(kinds[0]) for test in exact):
        raise SourceError(
            f"{where}: keys are stored as {one} and {other}; both must be whole numbers, or texts, or of one "
            "type of decimals or dates"
        )
    return kinds[0]


_RANKED_ROWS = 3_000_000  # what is ranked at once: a window does not spill all that it holds


def family_names(family: Family) -> list[tuple[Table | None, frozenset[str]]]:
    """The tables of a family, children first, each with what must be sealed of it."""
    codes = {code_name(name).lower() for name in family.columns}
    order = set() if family.order is None else {family.order.lower()}
    above = {code_name(name).lower() for name in family.parent_columns}
    return [
        (family.child, frozenset(codes | order | {UNIT})),
        (family.parent, frozenset(above | {UNIT})),
    ]


def check_order(family: Family, stored: Mapping[str, Stored]) -> None:
    """Raises an error if the column that orders siblings is not there."""
    if family.order is None:
        return
    kinds = {name.lower(): each.kind for name, each in stored.items()}
    described = {name.lower() for name in family.child.columns}
    name = family.order.lower()
    if name not in described and kinds.get(name, "other") == "other":
        raise SourceError(
            f"table {family.child.name!r} has no column {family.order!r} that siblings could be ordered by; "
            "order names a stored or described column of numbers, texts or dates"
        )


def link_records(table: Table, child: Sealed, parent: Sealed | None) -> Sealed:
    """The records of the family of `table`, sealed: codes by column, and the individual.

    Privacy: the records of an individual follow from its own rows, and whoever counts them gives each of n
    the weight 1 / n (docs/proofs/related.md).
    """
    family = table.family
    assert family is not None
    groups = 1 + (child.inside.num_rows + child.crowd.num_rows) // _RANKED_ROWS
    linked = []
    with connect() as connection:
        register_columns(connection, "sealed children", child.everything)
        if parent is not None:
            register_columns(connection, "sealed parents", parent.everything)
        for group in range(groups):
            query = _link_query(table, family, f"hash({quote_name(UNIT)}) % {groups} = {group}")
            linked.append(connection.sql(query).to_arrow_table())
    records = pa.concat_tables(linked)
    numbers = to_numpy(records["n"].combine_chunks()).astype(np.int64)
    steps = np.searchsorted(np.array(family.steps), numbers, side="right") - 1
    place = records.column_names.index("n")
    records = records.set_column(place, code_name(family.number), to_arrow(steps.astype(np.int16)))
    names = frozenset(code_name(name).lower() for name in table.columns) | {UNIT}
    return divide_records(records, names=names, most=table.unit.max_records)


def _link_query(table: Table, family: Family, chosen: str) -> str:
    """Every child of one part of the people beside its parent and the child before it."""
    unit, most = quote_name(UNIT), family.child.unit.max_records
    own = [f"c{place}" for place in range(len(family.columns))]
    codes = [quote_name(code_name(name)) for name in family.columns]
    listed = ", ".join(f"{code} AS {name}" for code, name in zip(codes, own, strict=True))
    held = " AND ".join([chosen, *(f"{code} IS NOT NULL" for code in codes)])
    order = "" if family.order is None else f"{quote_name(family.order)} ASC NULLS LAST, "
    # Without an order of their own, and among equals, siblings stand by a digest that nobody else moves.
    order += f"hash({', '.join([unit, *codes])}), {', '.join(codes)}"
    lag = "lag({0}) OVER (PARTITION BY u ORDER BY place) AS {0}_before"
    before = ", ".join(lag.format(name) for name in own)
    relations = {
        "placed": f"SELECT {unit} AS u, {listed}, row_number() OVER (PARTITION BY {unit} ORDER BY {order}) "
        f'AS place FROM "sealed children" WHERE {held}',
        "kept": f"SELECT u, place, {', '.join(own)}, count(*) OVER (PARTITION BY u) AS n, {before} "
        f"FROM placed WHERE place <= {most}",
    }
    columns = [f"u AS {unit}"]
    source = "kept"
    if family.parent is not None:
        relations["heads"] = _heads_query(family, chosen)
        columns = [f"heads.u AS {unit}"]
        columns += [
            f"{quote_name(f'p{place}')} AS {quote_name(code_name(family.of_parent(name)))}"
            for place, name in enumerate(family.parent_columns)
        ]
        source = "heads LEFT JOIN kept ON kept.u = heads.u"
    columns.append("coalesce(n, 0) AS n")
    later = quote_name(code_name(family.later))
    columns.append(f"CAST(CASE WHEN place > 1 THEN 1 ELSE 0 END AS UTINYINT) AS {later}")
    for suffix, name_of in (("", family.of_child), ("_before", family.of_previous)):
        for code, name in zip(own, family.columns, strict=True):
            column = table.column(name_of(name))
            kind = code_type(column.size)
            value = f"coalesce(CAST({code}{suffix} AS {kind}), CAST({column.size - 1} AS {kind}))"
            columns.append(f"{value} AS {quote_name(code_name(name_of(name)))}")
    joined = ", ".join(f"{name} AS ({query})" for name, query in relations.items())
    return f"WITH {joined} SELECT {', '.join(columns)} FROM {source}"


def _heads_query(family: Family, chosen: str) -> str:
    """One row for every parent whose columns the domains hold; of several, the first by its codes."""
    unit = quote_name(UNIT)
    codes = [quote_name(code_name(name)) for name in family.parent_columns]
    listed = "".join(f", {code} AS p{place}" for place, code in enumerate(codes))
    held = " AND ".join([chosen, *(f"{code} IS NOT NULL" for code in codes)])
    order = f" ORDER BY {', '.join(codes)}" if codes else ""
    ranked = (
        f"SELECT {unit} AS u{listed}, row_number() OVER (PARTITION BY {unit}{order}) AS turn "
        f'FROM "sealed parents" WHERE {held}'
    )
    names = "".join(f", p{place}" for place in range(len(codes)))
    return f"SELECT u{names} FROM ({ranked}) AS ranked WHERE turn = 1"
