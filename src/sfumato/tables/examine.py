"""How well a description fits a table: what is missing, cannot be read, or lies outside, for its steward.

INTERNAL. These are exact counts of people's records, made without noise and without a charge. They never go
into a release; they help whoever holds the records to describe them rightly before anything is paid for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sfumato.core.engine.base import check_unit, name_source
from sfumato.core.engine.encode import (
    connect,
    create_list_type,
    encode_column,
    hide_failures,
    quote_name,
    quote_text,
    value_column,
)
from sfumato.core.engine.sealed import clean_batch, clean_schema
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Values
from sfumato.core.facts.table import Table, find_place
from sfumato.tables.draft import repeats_as_names
from sfumato.tables.profile import DATE_FORMATS

if TYPE_CHECKING:
    import duckdb

    from sfumato.core.engine.base import Fetched
    from sfumato.core.engine.duckdb import DuckDBEngine

_MANY = 0.05  # of the records: more that are dropped are worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFit:
    """Exact numbers of records of one described column: missing, unread, outside its domain, and inside.

    `changed` texts were cut or mended. `advice` says what would read more of them.
    """

    name: str
    missing: int
    unread: int
    outside: int
    inside: int
    changed: int
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFit:
    """Exact numbers: of records, of those of nobody, of individuals, and of those over their bound.

    Of text files also that of their lines, since those that are no record are not seen otherwise, and of
    those that leave a quote open. `counting` have a place in all columns that are asked about together;
    `lost` tells how many each of these leaves out, and `cut` how many of them the bound of individuals does.
    Where every row is an individual, `repeating` is a column whose values repeat as names of people do.
    """

    table: str
    records: int
    nobody: int
    individuals: int
    over_max_records: int
    columns: tuple[ColumnFit, ...]
    counting: int
    lost: dict[str, int]
    cut: int = 0
    repeating: str | None = None
    lines: int | None = None
    open_quotes: int = 0

    def to_record(self) -> dict[str, Any]:
        """Returns all numbers as a plain record that says what they are."""
        return {"internal": "exact counts of records; not for publication", **asdict(self)}


def examine_source(engine: DuckDBEngine, table: Table, columns: Sequence[str]) -> TableFit:
    """Returns how well the description of a table fits its records: exact counts, for its steward alone.

    Counted is also how many have a place in all of `columns`.
    """
    described = frozenset(name.lower() for name in table.columns)
    if table.unit.column is None and table.reference is None:  # any column may turn out to name people
        described |= {name.lower() for name in engine._find(table).columns}
    with engine.snapshot(table):
        fetched = engine._open(table, described)
        check_unit(table, fetched.columns, where=name_source(table))
        with hide_failures(name_source(table)):
            stored = find_place(table.source) == "file"
            lines, open_quotes = engine._find(table).count_lines() if stored else (None, 0)
            found = examine_table(table, fetched, columns)
            return replace(found, lines=lines, open_quotes=open_quotes)


def examine_table(table: Table, fetched: Fetched, columns: Sequence[str]) -> TableFit:
    """Reads all records once and counts how each described column fits them, and how many fit `columns`."""
    changed = dict.fromkeys(fetched.schema.names, 0)
    schema = clean_schema(fetched.schema)

    def clean() -> Iterator[pa.RecordBatch]:
        for batch in fetched.read():
            cleaned = clean_batch(batch, schema, table)
            for name, before, after in zip(schema.names, batch.columns, cleaned.columns, strict=True):
                if pa.types.is_string(after.type) and not pa.types.is_dictionary(before.type):
                    raw = pa.Array.from_buffers(pa.binary(), len(before), before.buffers(), -1, before.offset)
                    differs = pc.not_equal(raw, after.cast(pa.binary()))
                    changed[name] += pc.sum(differs).as_py() or 0
            yield cleaned

    with connect(plainly=True) as connection:
        connection.register("stream", pa.RecordBatchReader.from_batches(schema, clean()))
        connection.execute("CREATE TEMP TABLE stored AS SELECT * FROM stream")
        unit = "NULL" if table.unit.column is None else quote_name(table.unit.column)
        ((records, nobody),) = connection.execute(
            f"SELECT count(*), count(*) FILTER ({unit} IS NULL) FROM stored"
        ).fetchall()
        individuals, crowded = records, 0
        if table.unit.column is not None:
            sizes = f"SELECT count(*) AS n FROM stored WHERE {unit} IS NOT NULL GROUP BY {unit}"
            ((individuals, crowded),) = connection.execute(
                f"SELECT count(*), count(*) FILTER (n > {table.unit.max_records}) FROM ({sizes})"
            ).fetchall()
        fits = tuple(
            _examine_column(
                connection, column, fetched, records, sum(changed[part] for part in column.stored)
            )
            for column in table.columns.values()
            if all(part in changed for part in column.stored)
        )
        counting, cut, lost = _count_complete(connection, table, fetched, columns)
        repeating = None if table.unit.column is not None else _find_repeating(connection, table, schema)
    return TableFit(
        table=table.name,
        records=records,
        nobody=nobody if table.unit.column is not None else 0,
        individuals=individuals,
        over_max_records=crowded,
        columns=fits,
        counting=counting,
        lost=lost,
        cut=cut,
        repeating=repeating,
    )


def _count_complete(
    connection: duckdb.DuckDBPyConnection, table: Table, fetched: Fetched, columns: Sequence[str]
) -> tuple[int, int, dict[str, int]]:
    """Returns how many records of somebody have a place in all `columns`, and of these beyond the bound.

    Also how many have none in each column.
    """
    absent = ["false" if table.unit.column is None else f"{quote_name(table.unit.column)} IS NULL"]
    for place, column in enumerate(table.columns[name] for name in columns):
        code = value_column(column, fetched.columns)
        if column.domain is not None:
            create_list_type(connection, column, f"listed_{place}")
            code = encode_column(column, fetched.columns, list_type=f"listed_{place}")
        absent.append(f"({code}) IS NULL")
    listed = ", ".join(f"{test} AS absent_{place}" for place, test in enumerate(absent))
    names = [f"absent_{place}" for place in range(len(absent))]
    numbers = ", ".join(f"count(*) FILTER ({name})" for name in names)
    kept = f"NOT ({' OR '.join(names)})"
    asked = f"(SELECT {listed}, * FROM stored)"
    ((complete, _, *lost),) = connection.execute(
        f"SELECT count(*) FILTER ({kept}), {numbers} FROM {asked}"
    ).fetchall()
    cut = 0
    if table.unit.column is not None and table.bounding == "truncate":
        whose = quote_name(table.unit.column)
        if table.unit.period is not None:
            whose += f", {value_column(table.columns[table.unit.period], fetched.columns)}"
        beyond = f"greatest(count(*) - {table.unit.max_records}, 0)"
        ((cut,),) = connection.execute(
            f"SELECT coalesce(sum(n), 0)::BIGINT FROM "
            f"(SELECT {beyond} AS n FROM {asked} WHERE {kept} GROUP BY {whose})"
        ).fetchall()
    return complete, cut, dict(zip(columns, lost, strict=True))


def _find_repeating(connection: duckdb.DuckDBPyConnection, table: Table, schema: pa.Schema) -> str | None:
    """Returns the undescribed column that repeats as names of people do; of several, the most varied."""
    described = {part for column in table.columns.values() for part in column.stored}
    found = {}
    for field in schema:
        if field.name in described or not (pa.types.is_integer(field.type) or pa.types.is_string(field.type)):
            continue
        name = quote_name(field.name)
        ((records, values),) = connection.execute(
            f"SELECT count({name}), count(DISTINCT {name}) FROM stored"
        ).fetchall()
        if repeats_as_names(field.name, records, values):
            found[field.name] = values
    return max(found, key=lambda each: found[each], default=None)


def _examine_column(
    connection: duckdb.DuckDBPyConnection, column: Column, fetched: Fetched, records: int, changed: int
) -> ColumnFit:
    missing, read, inside = _count_read(connection, column, fetched)
    unread = records - missing - read
    advice = ""
    empty = missing > _MANY * records and column.domain is not None and column.missing_label is None
    if unread:
        # What a better description would read, found by trying: the records are its steward's to look at.
        tried = {each: _count_read(connection, each, fetched)[1] for each in _others(column)}
        best = max(tried, key=lambda each: tried[each], default=None)
        if best is not None and tried[best] > read:
            key = "decimal" if best.decimal != column.decimal else "format"
            advice = f'{key} = "{getattr(best, key)}" reads {tried[best]:,} of them'
    elif changed:
        advice = "texts were cut or mended: see encoding and text_limit"
    elif read > inside and (alike := _count_alike(connection, column, fetched) - inside) > 0:
        advice = f'{alike:,} more match if case and spaces are ignored: match = "loose" reads them'
    elif not inside and read:
        advice = "no value is in its domain: compare the spelling of its values"
    elif empty and read - inside <= missing and len(column.stored) == 1:
        fate, remedy = "are left out", "nullable = true keeps them"
        if column.outside == "other":
            fate, remedy = "count as other", 'missing_label = "missing" tells them apart'
        advice = f"{missing / records:.0%} have no value and {fate}: {remedy}"
    elif read - inside > _MANY * records and column.domain is None:
        advice = f"{(read - inside) / records:.0%} of the records lie beyond it: widen it"
    elif read - inside > _MANY * records and column.outside == "drop":
        advice = f'{(read - inside) / records:.0%} of the records are dropped: widen it, or outside = "other"'
    return ColumnFit(
        name=column.name,
        missing=missing,
        unread=unread,
        outside=read - inside,
        inside=inside,
        changed=changed,
        advice=advice,
    )


def _count_alike(connection: duckdb.DuckDBPyConnection, column: Column, fetched: Fetched) -> int:
    """Returns how many records hold a listed text but for case and spaces around it; 0 for other domains."""
    if not isinstance(column.domain, Values) or not isinstance(column.domain.values[0], str):
        return 0
    listed = ", ".join(quote_text(str(label).strip().lower()) for label in column.domain.values)
    ((alike,),) = connection.execute(
        f"SELECT count(*) FROM stored "
        f"WHERE lower(trim({value_column(column, fetched.columns)})) IN ({listed})"
    ).fetchall()
    return int(alike)


def _others(column: Column) -> list[Column]:
    if isinstance(column.domain, Period) or column.calendar is not None or column.dates is not None:
        # A month alone is no date where others are guessed: 10-11 may be an age.
        return [replace(column, format=each) for each in (*DATE_FORMATS, "%Y-%m") if each != column.format]
    if isinstance(column.domain, (Bins, IntegerRange)) or column.bounds is not None:
        return [replace(column, decimal="," if column.decimal == "." else ".")]
    return []


def _count_read(
    connection: duckdb.DuckDBPyConnection, column: Column, fetched: Fetched
) -> tuple[int, int, int]:
    """Returns how many records have no value, one that can be read, and one in the domain."""
    listed = ", ".join(quote_text(text) for text in ("", *column.missing))
    absent = " AND ".join(
        f"({quote_name(part)} IS NULL OR CAST({quote_name(part)} AS VARCHAR) IN ({listed}))"
        for part in column.stored
    )
    value = value_column(column, fetched.columns)
    code = value
    if column.dates is not None:
        first, last = column.dates
        code = f"CASE WHEN CAST({value} AS DATE) BETWEEN DATE '{first}' AND DATE '{last}' THEN 1 END"
    elif column.bounds is not None and column.domain is None:
        low, high = map(float, column.bounds)
        code = f"CASE WHEN {value} BETWEEN {low!r} AND {high!r} THEN 1 END"
    elif column.domain is not None:
        plain = replace(column, outside="drop", missing_label=None, nullable=False)
        connection.execute("DROP TYPE IF EXISTS listed")
        create_list_type(connection, plain, "listed")
        code = encode_column(plain, fetched.columns, list_type="listed")
    ((missing, read, inside),) = connection.execute(
        f"SELECT count(*) FILTER ({absent}), count(*) FILTER (NOT ({absent}) AND ({value}) IS NOT NULL), "
        f"count(*) FILTER (NOT ({absent}) AND ({code}) IS NOT NULL) FROM stored"
    ).fetchall()
    return missing, read, inside
