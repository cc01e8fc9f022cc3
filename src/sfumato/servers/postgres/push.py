"""Statements that PostgreSQL aggregates: what DuckDB means, in the server's words.

No expression here can raise, whatever a record holds: comparisons, casts to wider types, arithmetic of
bounded numbers, and parts of moments that are within their ends.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.core.engine.encode import quote_text
from sfumato.servers.postgres.encode import (
    encode_plainly,
    identify,
    number_of,
    part_of_moment,
    plain_moment,
    stored_name,
    text_of,
)
from sfumato.servers.push.plan import EVERYTHING, PushedPlan, beyond_query
from sfumato.servers.push.words import Pushed, PushedKind, UnpushedError, Words

if TYPE_CHECKING:
    import psycopg

    from sfumato.core.engine.source import Stored
    from sfumato.core.facts.column import Column

_WHOLE = ("int2", "int4", "int8")
_TEXTS = ("text", "varchar", "bpchar", "uuid", "enum")
_EXACT_DIGITS = 15
_STATE = "SELECT pg_current_snapshot()::text, pg_postmaster_start_time()::text, pg_is_in_recovery()"
_MOST_KEPT, _MOST_PEOPLE = 4, 2**20
_LAST_DAY = 106_751_990  # from 1970, where moments end
_PARTS = {"DAYOFWEEK": "dow", "WEEKOFYEAR": "week"}
# The types that individuals are listed in; all others are texts.
_ARRAYS = {"int2": "smallint", "int4": "integer", "int8": "bigint", "bool": "boolean"}


class PostgresWords(Words):
    """Columns of a table that is read as `stored`."""

    double = "float8"
    whole = "bigint"
    divided = "/"

    def spell_unit(self, name: str, stored: Stored) -> str:
        """An individual, NULL for nobody."""
        if stored.type not in (*_WHOLE, *_TEXTS, "bool"):
            raise UnpushedError
        return identify(name, stored)

    def spell_raw(self, name: str, stored: Stored) -> Pushed:
        """A stored value made plain."""
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
            case kind if kind in _TEXTS:
                return self.spell_text(name, stored)
            case _:
                raise UnpushedError

    def spell_whole(self, name: str, stored: Stored) -> Pushed:
        """A stored whole number or truth value as a whole number."""
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
            precision, scale = stored.digits
            if precision > _EXACT_DIGITS or not 0 <= scale <= precision:
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
        """Whether there is a number."""
        return f"{number} IS NOT NULL" if loose is None else f"{loose} <> 'NaN'"

    def spell_text(self, name: str, stored: Stored) -> Pushed:
        """The text of a stored text or whole number, cut as in a sealed table, compared by its bytes."""
        if stored.type not in (*_TEXTS, *_WHOLE, "bool"):
            raise UnpushedError
        text = text_of(stored_name(name), stored)
        if stored.type in ("text", "varchar", "bpchar"):
            text = f'left({text}, {self.table.text_limit}) COLLATE "C"'
        return Pushed(f"({text})", "text")

    def spell_period(self, name: str, stored: Stored, part: str) -> Pushed:
        """A part of a stored date or moment, as a described column has it."""
        if stored.kind != "date" or (stored.type == "date" and part == "hour"):
            raise UnpushedError
        return Pushed(f"({part_of_moment(stored_name(name), stored, part)})", "integer")

    def spell_code(self, column: Column) -> str:
        """The code of a column, as recipes count it."""
        code = encode_plainly(column, self.stored, limit=self.table.text_limit)
        if code is None:
            raise UnpushedError
        return f"({code})"

    def spell_part(self, value: str, kind: PushedKind, part: str) -> str:
        """A part of a plain date or moment."""
        if part == "EPOCH_US":
            return _microseconds(value, kind)
        name = _PARTS.get(part, part.lower())
        found = f"CAST(extract({name} FROM {value}) AS bigint)"
        if part == "YEAR" and kind == "date":
            # There is no year 0 here, and DuckDB has one.
            return f"(CASE WHEN {found} < 0 THEN {found} + 1 ELSE {found} END)"
        return f"({found})"

    def spell_literal(self, text: str) -> str:
        """A text in quotes."""
        return quote_text(text)

    def spell_moment(self, microseconds: int) -> str:
        """A moment, in microseconds from 1970."""
        moment = datetime(1970, 1, 1) + timedelta(microseconds=microseconds)
        return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"


def _microseconds(value: str, kind: PushedKind) -> str:
    """Microseconds from 1970, in whole numbers from the start; NULL where they would be no moment."""
    days = f"CAST(CAST({value} AS date) - DATE '1970-01-01' AS bigint)"
    if kind == "date":
        return f"(CASE WHEN {days} BETWEEN -{_LAST_DAY} AND {_LAST_DAY} THEN {days} * 86400000000 END)"
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
        """The individuals over the bound, as the server names them; `server` is how it is reached."""
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
    """What tells the state that a transaction sees apart from all others, or None if nothing does.

    Whatever changes a row has a number of its own, and is ended, under way or to come in a snapshot: two that
    read the same see the same rows. A server that repeats another's changes does not list what is under way.
    """
    row = connection.execute(_STATE).fetchone()
    return None if row is None or row[-1] else tuple(row[:-1])


def find_beyond(
    connection: psycopg.Connection[tuple[Any, ...]], pushed: PushedPlan, relation: str
) -> list[Any]:
    """The individuals of more records than may count, as the server names them."""
    return [row[0] for row in connection.execute(beyond_query(pushed, relation)).fetchall()]


def ask_beside(
    connection: psycopg.Connection[tuple[Any, ...]], query: str, beyond: list[Any], kind: str
) -> list[tuple[Any, ...]]:
    """The rows of a query that may read `beyond`, a list of individuals that the server stores as `kind`."""
    if not beyond:
        return connection.execute(query).fetchall()
    return connection.execute(with_beyond(query, kind), [beyond]).fetchall()


def with_beyond(query: str, kind: str) -> str:
    """A query that may read `beyond`, individuals that are given as its one parameter."""
    listed = f"SELECT u FROM unnest(%s::{_ARRAYS.get(kind, 'text')}[]) AS listed(u)"
    return f"WITH beyond AS ({listed}) {query.replace('%', '%%')}"
