"""Codes of the rows of a public table, or of new data, in the domain of a described column.

One encoder serves records and public tables: the expressions are the engine's. Here they are given a table in
memory, and no source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.engine.encode import (
    Stored,
    connect,
    create_list_type,
    encode_column,
    sql_kind,
    value_column,
)
from sfumato.core.errors import RecipeError, SourceError
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Period

if TYPE_CHECKING:
    from sfumato.core.engine.encode import Kind


def encode_public(column: Column, rows: pa.Table) -> NDArray[np.int64]:
    """Return the codes of a column in the rows of a public table, -1 for what its policy drops.

    Values have the codes that the engine gives to those of records.
    """
    missing = [name for name in column.stored if name not in rows.column_names]
    if missing:
        raise RecipeError(
            f"the public table has no column {missing[0]!r}, which column {column.name!r} is read from"
        )
    if column.domain is None:
        raise RecipeError(f"column {column.name!r} has no domain, so a public table cannot be encoded")
    with connect(plainly=True) as connection:
        connection.register("rows", rows.select(dict.fromkeys(column.stored)))
        kinds = connection.execute("SELECT column_name, column_type FROM (DESCRIBE rows)").fetchall()
        stored = {name: Stored(cast("Kind", sql_kind(kind))) for name, kind in kinds}
        create_list_type(connection, column, "listed")
        try:
            code = encode_column(column, stored, list_type="listed")
            value = value_column(column, stored)
        except SourceError:
            raise _refuse_kind(column, "dates") from None
        found = connection.execute(
            f"SELECT COALESCE(CAST({code} AS BIGINT), -1) AS code, {value} IS NOT NULL AS known FROM rows"
        ).fetchnumpy()
    dated, text = isinstance(column.domain, Period) or column.calendar is not None, kinds[0][1] == "VARCHAR"
    # Text that is no number has no code; whoever has nothing but other values named the wrong column.
    if (dated or not text) and not found["known"].any() and rows[column.stored[0]].null_count < rows.num_rows:
        raise _refuse_kind(column, "dates" if dated else "numbers")
    return np.asarray(found["code"], np.int64)


def _refuse_kind(column: Column, what: str) -> RecipeError:
    return RecipeError(f"column {column.name!r} of the public table must hold {what}, as its domain does")
