"""Statements that PostgreSQL aggregates: what DuckDB means, in the server's words.

No expression here can raise, whatever a record holds: comparisons, casts to wider types, arithmetic of
bounded numbers, and parts of moments that are within their ends.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.engines.encode import quote_text
from sfumato.engines.postgres.encode import (
    encode_plainly,
    identify,
    number_of,
    part_of_moment,
    plain_moment,
    stored_name,
    text_of,
)
from sfumato.engines.push.plan import PushedPlan, beyond_query
from sfumato.engines.push.words import Pushed, PushedKind, UnpushedError, Words

if TYPE_CHECKING:
    import psycopg

    from sfumato.engines.source import Stored
    from sfumato.schema import Column

_WHOLE = ("int2", "int4", "int8")
_TEXTS = ("text", "varchar", "bpchar", "uuid", "enum")
_EXACT_DIGITS = 15
# The types that individuals are listed in; all others are texts.
_ARRAYS = {"int2": "smallint", "int4": "integer", "int8": "bigint", "bool": "boolean"}


class PostgresWords(Words):
    """Columns of a table that is read as `stored`."""

    double = "float8"
    whole = "bigint"

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
            return Pushed(f"CAST({value} AS integer)", "integer", (0, 1))
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
        return Pushed(plain, "double")

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
        found = f"CAST(extract({part.lower()} FROM {value}) AS integer)"
        if part == "YEAR" and kind == "date":
            # There is no year 0 here, and DuckDB has one.
            return f"(CASE WHEN {found} < 0 THEN {found} + 1 ELSE {found} END)"
        return f"({found})"

    def spell_literal(self, text: str) -> str:
        """A text in quotes."""
        return quote_text(text)

    def spell_double(self, number: float) -> str:
        """A floating number, bit for bit."""
        return f"CAST('{number!r}' AS float8)"

    def spell_day(self, days: int) -> str:
        """A date, in days from 1970."""
        return f"DATE '{(date(1970, 1, 1) + timedelta(days=days)).isoformat()}'"

    def spell_moment(self, microseconds: int) -> str:
        """A moment, in microseconds from 1970."""
        moment = datetime(1970, 1, 1) + timedelta(microseconds=microseconds)
        return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"


def find_beyond(
    connection: psycopg.Connection[tuple[Any, ...]], pushed: PushedPlan, relation: str
) -> list[Any]:
    """The individuals of more records than may count, as the server names them."""
    if pushed.unit is None:
        return []
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
