"""The records of a family: every child beside its parent and the sibling before it.

What becomes of a parent and its children follows from their own rows alone: the children that the domains
hold, in their order, up to max_records of them. A child of nobody is left out; a parent without children has
one record that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.engine.encode import code_type, connect, quote_name
from sfumato.core.engine.sealed import divide_records, register_columns
from sfumato.core.errors import SourceError
from sfumato.core.facts.table import UNIT, code_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.core.engine.sealed import Sealed
    from sfumato.core.engine.source import Stored
    from sfumato.core.facts.family import Family
    from sfumato.core.facts.table import Table

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
