"""SQL of PostgreSQL that turns a stored value into its code, or NULL where the domain does not hold it.

The codes are those of `encode`, bit for bit, and the expressions are as total: no one can raise, whatever a
record holds. Texts that stand for numbers or moments are not read here (`is_plain`). `PostgresWords` spells
in the same way what statements aggregate there.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.core.engine.encode import (
    Kind,
    Stored,
    encode_clamped,
    encode_range,
    quote_name,
    quote_text,
    refuse_period,
)
from sfumato.core.engine.sealed import FIRST_MOMENT, LAST_MOMENT
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples, Values
from sfumato.core.facts.table import Table
from sfumato.servers.push.plan import EVERYTHING, PushedPlan, beyond_query
from sfumato.servers.push.words import Pushed, PushedKind, UnpushedError, Words, is_long

if TYPE_CHECKING:
    import psycopg


_KINDS: dict[str, Kind] = tomllib.loads(
    files("sfumato.servers").joinpath("postgres.toml").read_text("utf-8")
)["kinds"]
_SEPARATOR = "\x1f"
# Types whose texts may be long; they are cut as in a sealed table.
_TEXTS = ("text", "varchar")


def describe_type(name: str, modifier: int, *, is_enum: bool) -> Stored:
    """The column of a type of the catalogue; arrays, JSON, bytes and all that is no plain value are `other`.

    >>> describe_type("numeric", (12 << 16) + 2 + 4, is_enum=False)
    Stored(kind='number', is_identifier=True, type='numeric', digits=(12, 2), zoned=False)
    """
    if is_enum:
        return Stored("text", is_identifier=True, type="enum")
    kind = _KINDS.get(name, "other")
    digits = None
    if name == "numeric" and modifier >= 4:
        scale = (modifier - 4) & 0x7FF
        digits = ((modifier - 4) >> 16 & 0xFFFF, scale - 2048 if scale >= 1024 else scale)
    exact = kind in ("integer", "text", "boolean") or name == "date"
    if name == "numeric":
        exact = digits is None or digits[0] <= 38
    return Stored(kind, is_identifier=exact, type=name, digits=digits)


def stored_name(name: str) -> str:
    """Returns a stored column in SQL that reads the table as `stored`."""
    return f"stored.{quote_name(name)}"


def identify(name: str, column: Stored) -> str:
    """Returns the SQL for an individual, such that its text is the one that every engine has for it."""
    quoted = stored_name(name)
    return quoted if column.kind in ("integer", "boolean") else text_of(quoted, column)


def text_of(name: str, column: Stored) -> str:
    """Returns the SQL for the text of a value, compared by its bytes. Not for floating numbers."""
    text = f"CAST({name} AS text)"
    if column.type == "numeric":
        if column.digits is None:
            text = f"CAST(trim_scale({name}) AS text)"
        elif column.digits[0] == column.digits[1]:
            text = rf"regexp_replace({text}, '^(-?)0\.', '\1.')"
    elif column.type == "date":
        text = f"replace({text}, ' BC', ' (BC)')"
    elif column.kind == "date":
        text = f"CAST({plain_moment(name, column)} AS text)"
    return f'{text} COLLATE "C"'


def number_of(name: str, column: Stored) -> str:
    """Returns the SQL for the double nearest to a value, NULL for what is no number, such as NaN."""
    match column.kind:
        case "date" | "text" | "other":
            return "CAST(NULL AS float8)"
        case "boolean":
            return f"CAST(CAST({name} AS integer) AS float8)"
        case "integer":
            return f"CAST({name} AS float8)"
    return f"CASE WHEN {name} <> 'NaN' THEN CAST({name} AS float8) END"


def part_of_moment(name: str, column: Stored, part: str) -> str:
    """Returns the SQL for a part of a stored date or timestamp."""
    if column.type == "date":
        if part == "hour":
            value = "0"
        elif part == "year":
            # There is no year 0 here, and DuckDB has one.
            year = f"CAST(extract(year FROM {name}) AS integer)"
            value = f"CASE WHEN {year} < 0 THEN {year} + 1 ELSE {year} END"
        else:
            value = _extract(name, part)
        return f"CASE WHEN isfinite({name}) AND {name} <= DATE '294247-01-10' THEN {value} END"
    return _extract(plain_moment(name, column), part)


def encode_table(table: Table, columns: tuple[str, ...], stored: Mapping[str, Stored], relation: str) -> str:
    """Gives the query for `encoded`: the individual as u, the codes as c0, c1, ..., NULL outside a domain."""
    selected = []
    if table.unit.column is not None:
        selected.append(f"{identify(table.unit.column, stored[table.unit.column])} AS u")
    selected += [
        f"{encode_column(table.column(name), stored, limit=table.text_limit)} AS c{index}"
        for index, name in enumerate(columns)
    ]
    return f"SELECT {', '.join(selected) or '1 AS one'} FROM {relation} AS stored"


def encode_column(column: Column, stored: Mapping[str, Stored], *, limit: int) -> str:
    """Returns the SQL for the code of a column; texts are cut at `limit` characters, as in a sealed table."""
    parts = [
        (
            f"left({stored_name(name)}, {limit})" if stored[name].type in _TEXTS else stored_name(name),
            stored[name],
        )
        for name in column.stored
    ]
    inside = _encode(column, parts)
    if column.outside == "other":
        inside = f"COALESCE({inside}, {column.size - 1})"
    return f"CAST({inside} AS {'integer' if column.size <= 2**31 else 'bigint'})"


def plain_moment(name: str, column: Stored) -> str:
    """Returns a stored timestamp in UTC, NULL outside the years that are read."""
    moment = f"({name} AT TIME ZONE 'UTC')" if column.type == "timestamptz" else name
    ends = [datetime(1970, 1, 1) + timedelta(microseconds=each) for each in (FIRST_MOMENT, LAST_MOMENT)]
    low, high = (f"TIMESTAMP '{end.isoformat(sep=' ')}'" for end in ends)
    return f"CASE WHEN {moment} BETWEEN {low} AND {high} THEN {moment} END"


def _extract(moment: str, part: str) -> str:
    if part == "day_of_week":
        return f"CAST(extract(isodow FROM {moment}) AS integer) - 1"
    return f"CAST(extract({part} FROM {moment}) AS integer)"


def _encode(column: Column, stored: list[tuple[str, Stored]]) -> str:
    clamp = column.outside == "clamp"
    name, kind = stored[0]
    match column.domain:
        case Values(values) if isinstance(values[0], int):
            numbers = [int(value) for value in values]
            if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
                return encode_range(_integer(name, kind), numbers[0], numbers[-1])
            return _look_up(f"CAST({_integer(name, kind)} AS text)", [str(each) for each in numbers])
        case Values(values):
            return _look_up(text_of(name, kind), [str(value) for value in values])
        case Tuples(values):
            parts = [
                text_of(part, part_kind)
                if isinstance(label, str)
                else f"CAST({_integer(part, part_kind)} AS text)"
                for (part, part_kind), label in zip(stored, values[0], strict=True)
            ]
            joined = f" || {quote_text(_SEPARATOR)} || ".join(parts)
            return _look_up(f'({joined}) COLLATE "C"', [_SEPARATOR.join(map(str, each)) for each in values])
        case Bins(edges):
            return _encode_bins(number_of(name, kind), edges, clamp=clamp)
        case IntegerRange(low, high):
            if clamp:
                return encode_clamped(number_of(name, kind), low, high)
            return encode_range(_integer(name, kind), low, high)
        case Period(part):
            span = column.domain.span
            refuse_period(kind.kind, column.name, part, name)
            encode = encode_clamped if clamp else encode_range
            return encode(part_of_moment(name, kind, part), span.low, span.high)
        case None:  # pragma: no cover - Table.column refuses a column without a domain
            raise AssertionError


def _encode_bins(value: str, edges: tuple[Fraction, ...], *, clamp: bool) -> str:
    listed = ", ".join(repr(float(edge)) for edge in edges)
    place = f"width_bucket({value}, '{{{listed}}}'::float8[])"
    if clamp:
        kept = f"{value} IS NOT NULL"
    else:
        low, high = (f"CAST('{float(edge)!r}' AS float8)" for edge in (edges[0], edges[-1]))
        kept = f"{value} BETWEEN {low} AND {high}"
    return f"CASE WHEN {kept} THEN least(greatest({place}, 1), {len(edges) - 1}) - 1 END"


def _look_up(key: str, keys: list[str]) -> str:
    """Returns the place of `key` in a public list: a search in a constant, however long the list is."""
    # No stored text holds a NUL, so that a listed one is never met.
    places = {each: place for place, each in enumerate(keys) if "\x00" not in each}
    if not places:
        return "CAST(NULL AS integer)"
    listed = json.dumps(places, separators=(",", ":"))
    return f"CAST({quote_text(listed)}::jsonb ->> {key} AS integer)"


def _integer(name: str, column: Stored) -> str:
    if column.kind in ("date", "other"):
        return "CAST(NULL AS bigint)"
    if column.kind in ("integer", "boolean"):
        whole = f"CAST({name} AS integer)" if column.kind == "boolean" else name
        return f"CAST({whole} AS bigint)"
    # A direct cast would round 12.7 to 13, and 13 may be a value of the domain.
    value = number_of(name, column)
    whole = f"abs({value}) <= {2**53} AND {value} = floor({value})"
    return f"CASE WHEN {whole} THEN CAST({value} AS bigint) END"


_WHOLE = ("int2", "int4", "int8")
_SPELLED = ("text", "varchar", "bpchar", "uuid", "enum")
_STATE = "SELECT pg_current_snapshot()::text, pg_postmaster_start_time()::text, pg_is_in_recovery()"
_MOST_KEPT, _MOST_PEOPLE = 4, 2**20
_FINAL_DAY = 106_751_990  # from 1970, where moments end
_PARTS = {"DAYOFWEEK": "dow", "WEEKOFYEAR": "week"}
# The types that individuals are listed in; all others are texts.
_ARRAYS = {"int2": "smallint", "int4": "integer", "int8": "bigint", "bool": "boolean"}


class PostgresWords(Words):
    """Columns of a table that is read as `stored`."""

    double = "float8"
    whole = "bigint"
    divided = "/"

    def spell_unit(self, name: str, stored: Stored) -> str:
        """Returns an individual, NULL for nobody."""
        if stored.type not in (*_WHOLE, *_SPELLED, "bool"):
            raise UnpushedError
        return identify(name, stored)

    def spell_raw(self, name: str, stored: Stored) -> Pushed:
        """Returns a stored value made plain."""
        value = stored_name(name)
        match stored.type:
            case "int2" | "int4" | "int8":
                return Pushed(value, "integer")
            case "bool":
                return Pushed(value, "boolean")
            case "float8":
                return self.spell_number(name, stored)
            case "date":
                return Pushed(f"(CASE WHEN isfinite({value}) THEN {value} END)", "date")
            case "timestamp" | "timestamptz":
                return Pushed(f"({plain_moment(value, stored)})", "timestamp")
            case kind if kind in _SPELLED:
                return self.spell_text(name, stored)
            case _:
                raise UnpushedError

    def spell_whole(self, name: str, stored: Stored) -> Pushed:
        """Returns a stored whole number or truth value as a whole number."""
        value = stored_name(name)
        if stored.type == "bool":
            return Pushed(f"CAST({value} AS integer)", "integer", (0, 1), wide=True)
        if stored.type not in _WHOLE:
            raise UnpushedError
        return Pushed(value, "integer")

    def spell_number(self, name: str, stored: Stored) -> Pushed:
        """A stored floating number made plain: NaN is missing, an infinity the largest number of its sign."""
        value = stored_name(name)
        if stored.type == "numeric" and stored.digits is not None:
            if is_long(stored):
                raise UnpushedError
            return Pushed(f"({number_of(value, stored)})", "double")
        if stored.type not in ("float4", "float8"):
            raise UnpushedError
        most = float(np.finfo(np.float64 if stored.type == "float8" else np.float32).max)
        high, low = self.spell_double(most), self.spell_double(-most)
        wide = f"CAST({value} AS float8)" if stored.type == "float4" else value
        # NaN is larger than all numbers to the server.
        plain = (
            f"(CASE WHEN {wide} BETWEEN {low} AND {high} THEN {wide} WHEN {wide} < {low} THEN {low} "
            f"WHEN {wide} <> 'NaN' THEN {high} END)"
        )
        return Pushed(plain, "double", loose=wide)

    def spell_present(self, number: str, loose: str | None) -> str:
        """Returns whether there is a number."""
        return f"{number} IS NOT NULL" if loose is None else f"{loose} <> 'NaN'"

    def spell_text(self, name: str, stored: Stored) -> Pushed:
        """The text of a stored text or whole number, cut as in a sealed table, compared by its bytes."""
        if stored.type not in (*_SPELLED, *_WHOLE, "bool"):
            raise UnpushedError
        text = text_of(stored_name(name), stored)
        if stored.type in ("text", "varchar", "bpchar"):
            text = f'left({text}, {self.table.text_limit}) COLLATE "C"'
        return Pushed(f"({text})", "text")

    def spell_period(self, name: str, stored: Stored, part: str) -> Pushed:
        """Returns a part of a stored date or moment, as a described column has it."""
        if stored.kind != "date" or (stored.type == "date" and part == "hour"):
            raise UnpushedError
        return Pushed(f"({part_of_moment(stored_name(name), stored, part)})", "integer")

    def spell_code(self, column: Column) -> str:
        """Returns the code of a column, as recipes count it."""
        return f"({encode_column(column, self.stored, limit=self.table.text_limit)})"

    def spell_part(self, value: str, kind: PushedKind, part: str) -> str:
        """Returns a part of a plain date or moment."""
        if part == "EPOCH_US":
            return _microseconds(value, kind)
        name = _PARTS.get(part, part.lower())
        found = f"CAST(extract({name} FROM {value}) AS bigint)"
        if part == "YEAR" and kind == "date":
            # There is no year 0 here, and DuckDB has one.
            return f"(CASE WHEN {found} < 0 THEN {found} + 1 ELSE {found} END)"
        return f"({found})"

    def spell_literal(self, text: str) -> str:
        """Returns a text in quotes."""
        return quote_text(text)

    def spell_moment(self, microseconds: int) -> str:
        """Returns a moment, in microseconds from 1970."""
        moment = datetime(1970, 1, 1) + timedelta(microseconds=microseconds)
        return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"


def _microseconds(value: str, kind: PushedKind) -> str:
    """Microseconds from 1970, in whole numbers from the start; NULL where they would be no moment."""
    days = f"CAST(CAST({value} AS date) - DATE '1970-01-01' AS bigint)"
    if kind == "date":
        return f"(CASE WHEN {days} BETWEEN -{_FINAL_DAY} AND {_FINAL_DAY} THEN {days} * 86400000000 END)"
    parts = [(days, 86_400_000_000)]
    parts += [
        (f"CAST(extract({name} FROM {value}) AS bigint)", times)
        for name, times in (("hour", 3_600_000_000), ("minute", 60_000_000), ("microseconds", 1))
    ]
    return "(" + " + ".join(f"{part} * {times}" for part, times in parts) + ")"


class BeyondKept:
    """Who is over a bound in the whole of a table, kept for the next statements about the same state of it.

    Whoever is over the bound in what a condition keeps is over it in the whole, so that these serve for all
    conditions. Those that are found with a condition are not kept.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], list[Any]] = {}
        self._lock = Lock()

    def find(
        self, connection: psycopg.Connection[tuple[Any, ...]], pushed: PushedPlan, relation: str, server: str
    ) -> list[Any]:
        """Returns the individuals over the bound, as the server names them; `server` is how it is reached."""
        if pushed.unit is None:
            return []
        state = find_state(connection)
        key = None if state is None else (server, relation, pushed.unit, pushed.most, *state)
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        found = find_beyond(connection, pushed, relation)
        if key is not None and pushed.condition == EVERYTHING and len(found) <= _MOST_PEOPLE:
            with self._lock:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[key] = found
        return found


def find_state(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[str, ...] | None:
    """Returns what tells the state that a transaction sees apart from all others, or None if nothing does.

    Whatever changes a row has a number of its own, and is ended, under way or to come in a snapshot: two that
    read the same see the same rows. A server that repeats another's changes does not list what is under way.
    """
    row = connection.execute(_STATE).fetchone()
    return None if row is None or row[-1] else tuple(row[:-1])


def find_beyond(
    connection: psycopg.Connection[tuple[Any, ...]], pushed: PushedPlan, relation: str
) -> list[Any]:
    """Returns the individuals of more records than may count, as the server names them."""
    return [row[0] for row in connection.execute(beyond_query(pushed, relation)).fetchall()]


def ask_beside(
    connection: psycopg.Connection[tuple[Any, ...]], query: str, beyond: list[Any], kind: str
) -> list[tuple[Any, ...]]:
    """The rows of a query that may read `beyond`, a list of individuals that the server stores as `kind`."""
    if not beyond:
        return connection.execute(query).fetchall()
    return connection.execute(with_beyond(query, kind), [beyond]).fetchall()


def with_beyond(query: str, kind: str) -> str:
    """Returns a query that may read `beyond`, individuals that are given as its one parameter."""
    listed = f"SELECT u FROM unnest(%s::{_ARRAYS.get(kind, 'text')}[]) AS listed(u)"
    return f"WITH beyond AS ({listed}) {query.replace('%', '%%')}"
