"""The records of one part of the people, by a public digest of each individual.

Every engine asks for the same digest, so that an individual is in the same part everywhere. Proof:
docs/proofs/parallel.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.engine.encode import connect, quote_name, quote_text
from sfumato.core.engine.sealed import Sealed, register_columns
from sfumato.core.facts.part import SALT
from sfumato.core.facts.table import UNIT, code_name

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

_ROW = "row of sfumato"


def encoded_columns(table: Table, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that `encoded` needs for a question about `columns`: those of the digest come after."""
    if table.part is None or table.unit.column is not None:
        return columns
    return tuple(dict.fromkeys((*columns, *table.part.columns)))


def select_part(table: Table, columns: tuple[str, ...], *, source: str = "encoded") -> str:
    """The relation of those records of `source` that are in the part of `table`; of all if it is no part.

    `columns` are those of the codes c0, c1, ... of `source`, of which a table of rows has all of the digest.
    """
    part = table.part
    if part is None:
        return source
    if table.unit.column is not None:
        rows, digested = source, ["CAST(u AS VARCHAR)"]
    else:
        codes = [f"c{columns.index(name)}" for name in part.columns]
        listed = ", ".join(codes)
        # Equal records are numbered; which of them has which number makes no difference.
        rows = (
            f"(SELECT *, row_number() OVER (PARTITION BY {listed} ORDER BY {listed}) AS copy FROM {source})"
        )
        digested = [f"CAST(coalesce(CAST({code} AS BIGINT), -1) AS VARCHAR)" for code in codes]
        digested.append("CAST(copy AS VARCHAR)")
    digest = f"substr(md5(concat_ws(':', {quote_text(SALT)}, {', '.join(digested)})), 1, 8)"
    within = f"{digest} >= '{part.first}'"
    if part.beyond is not None:
        within += f" AND {digest} < '{part.beyond}'"
    return f"(SELECT * FROM {rows} AS all_parts WHERE {within}) AS in_part"


def restrict_sealed(sealed: Sealed, table: Table) -> Sealed:
    """The individuals of a sealed table that are in the part of `table`, with all their records."""
    assert table.part is not None
    if table.unit.column is not None:
        columns: tuple[str, ...] = ()
        selected = [f"{quote_name(UNIT)} AS u"]
    else:
        columns = table.part.columns
        selected = [f"{quote_name(code_name(name))} AS c{place}" for place, name in enumerate(columns)]

    def restrict(records: pa.Table) -> pa.Table:
        if not records.num_rows:
            return records
        with connect() as connection:
            numbered = records.append_column(_ROW, to_arrow(np.arange(records.num_rows)))
            register_columns(connection, "sealed", numbered)
            listed = ", ".join([*selected, f"{quote_name(_ROW)} AS place"])
            connection.execute(f"CREATE TEMP VIEW encoded AS SELECT {listed} FROM sealed")
            found = connection.sql(f"SELECT place FROM {select_part(table, columns)}").to_arrow_table()
            places = to_numpy(found.column(0).combine_chunks())
        return records.take(pa.array(np.sort(places)))

    return Sealed(
        sealed.names, sealed.most, restrict(sealed.inside), restrict(sealed.crowd), sealed.individuals
    )
