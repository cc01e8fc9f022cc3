"""What engines hand out, and what is known to fail before a record is read: columns, parts and sizes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.core.engine.opening import TEXT_FILES
from sfumato.core.errors import RecipeError, SchemaError, SourceError
from sfumato.core.exact import Withheld
from sfumato.core.facts.domain import IntegerRange, Tuples, Values
from sfumato.core.facts.table import PublicTable, Table
from sfumato.core.questions.residuals import Residuals

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from sfumato.core.engine.encode import Stored
    from sfumato.core.questions.choices import AnyQuestion


LARGEST_MARGINAL = 2**27


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TrueCounts(Withheld):
    """The exact counts of one marginal over its whole domain, row-major, in units of 1 / grid.

    Or the exact answers of queries over it, or numbers of individuals within norms or cells of it. With
    `cells`, in ascending order, only these have records.

    Never leaves the private room. Its arrays are read-only.
    """

    columns: tuple[str, ...]
    true_values: NDArray[np.int64]
    cells: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        self.true_values.flags.writeable = False
        if self.cells is not None:
            self.cells.flags.writeable = False

    def __repr__(self) -> str:
        size = f"cells={self.true_values.size}, " if self.cells is None else ""
        return f"TrueCounts(columns={self.columns}, {size}values withheld)"


def check_columns(
    table: Table,
    marginals: tuple[tuple[str, ...], ...],
    stored: Mapping[str, Stored],
    *,
    where: str,
    other: str,
    listed: bool = True,
) -> tuple[str, ...]:
    """The columns of `marginals` of `table`, or an error: each must be stored, as values that fit its domain.

    `stored` are all stored columns, `where` is how messages call the source, `other` says what is wrong with
    a column whose kind is none of ours. Without `listed`, messages do not list what is stored.
    """
    columns = all_columns(marginals)
    needed = [name for column in columns for name in table.column(column).stored]
    for name in [*needed, *([] if table.unit.column is None else [table.unit.column])]:
        if name not in stored:
            what = "unit column" if name == table.unit.column else "column"
            known = f" (it has: {', '.join(stored)})" if listed else ""
            raise SourceError(f"{where} has no {what} {name!r}{known}")
        if stored[name].kind == "other":
            raise SourceError(f"table {table.name!r}: column {name!r} {other}")
    check_unit(table, stored, where=where)
    for name in columns:
        column = table.column(name)
        digits = stored[column.stored[0]].digits
        # Only whole numbers would count.
        if isinstance(column.domain, IntegerRange) and digits is not None and digits[1]:
            raise SourceError(
                f"table {table.name!r}: column {name!r} is stored with decimals, and range is for whole "
                "numbers; declare bins, or bounds for SUM and AVG"
            )
    if table.unit.window is not None:
        _check_periods(table, stored)
    return columns


def _check_periods(table: Table, stored: Mapping[str, Stored]) -> None:
    """Refuses periods that depend on how they are stored: a copy of another type would have others."""
    column = table.column(str(table.unit.period))
    first = column.domain.values[0] if isinstance(column.domain, Values | Tuples) else ""
    labels = first if isinstance(first, tuple) else (first,)
    listed = isinstance(column.domain, Values | Tuples) and column.calendar is None
    for name, label in zip(column.stored, labels, strict=True):
        kind = stored[name]
        if kind.zoned or (listed and isinstance(label, str) and kind.kind != "text"):
            raise SourceError(
                f"table {table.name!r}: {name!r} tells the periods of a window, so that it must be stored as "
                f"{'text, as its values are' if listed else 'dates or timestamps without a zone'}; or else "
                "the same records, stored otherwise, would have other periods"
            )


def check_unit(table: Table, stored: Mapping[str, Stored], *, where: str) -> None:
    """Raises an error if the unit column is not stored there, or cannot name individuals."""
    name = table.unit.column
    if name is None:
        return
    if name not in stored:
        raise SourceError(f"{where} has no unit column {name!r}")
    if not stored[name].is_identifier:
        raise SourceError(
            f"table {table.name!r}: the unit column {name!r} must hold text, whole numbers, decimals, "
            "booleans or dates: values of other types cannot be told apart exactly"
        )


def describe_columns(table: Table, stored: Mapping[str, Stored], *, where: str) -> dict[str, str]:
    """The kinds of the stored columns that a query may name.

    Privacy: the first line of a text file is taken for names. If it holds none that the description knows, it
    may be a record, so nothing of it is told.
    """
    check_unit(table, stored, where=where)
    known = {name for column in table.columns.values() for name in column.stored} | {table.unit.column}
    is_text = table.source.lower().endswith(TEXT_FILES)
    if is_text and known.isdisjoint(stored):
        return {}
    return {name: column.kind for name, column in stored.items() if column.kind != "other"}


def described_names(table: Table) -> tuple[str, ...]:
    """The stored columns that the description of `table` names; a name that none has if there are none."""
    named = [name for column in table.columns.values() for name in column.stored]
    named += [table.unit.column] if table.unit.column is not None else []
    named += [table.reference.column] if table.reference is not None else []
    return tuple(dict.fromkeys(named)) or ("-",)


def all_columns(marginals: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Every column of the marginals once, in the order in which `encoded` has them."""
    return tuple(dict.fromkeys(name for marginal in marginals for name in marginal))


def cell_code(table: Table, columns: tuple[str, ...], marginal: tuple[str, ...]) -> str:
    """The SQL for the cell of a record in `marginal`, row-major, from the codes c0, c1, ... of `columns`."""
    cell = ""
    for name in marginal:
        code = f"CAST(c{columns.index(name)} AS BIGINT)"
        cell = f"({cell} * {table.column(name).size} + {code})" if cell else code
    return cell or "CAST(0 AS BIGINT)"


def name_source(table: Table | PublicTable) -> str:
    """How errors call the source of `table`."""
    return f"table {table.name!r}: source {table.source!r}"


def sign_version(facts: str, *, secret: bytes) -> str:
    """A keyed digest of facts about a source: their sizes and counters say how many people are in it."""
    return hmac.new(secret, facts.encode(), hashlib.sha256).hexdigest()


def check_part(table: Table, question: AnyQuestion) -> None:
    """Raises an error if `question` cannot be asked of the part of `table` that is to be asked.

    Privacy: who is in a part may not depend on what is asked (docs/proofs/parallel.md).
    """
    part = table.part
    if part is None:
        return
    if question.stated.bounding in ("norm", "cells"):
        raise RecipeError(f"part {part.name!r}: norms and counts of individuals are not asked of a part")
    columns = question.known if isinstance(question, Residuals) else question.columns
    # Records that are equal in the columns of the digest must be equal in all that is asked.
    if table.unit.column is None and not set(columns) <= set(part.columns):
        raise RecipeError(f"part {part.name!r} was made without a column that is asked about")


def refuse_large_marginals(table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
    """Raises an error that names the first marginal too large to count densely."""
    for columns in marginals:
        cells = table.cells(columns)
        if cells > LARGEST_MARGINAL:
            raise SchemaError(
                f"table {table.name!r}: {' x '.join(columns)} has {cells:,} cells, more than the "
                f"{LARGEST_MARGINAL:,} that can be released; use fewer columns or coarser domains"
            )


@dataclass(frozen=True, slots=True)
class Fetched:
    """Columns of a table: what is stored, the types of those that were asked for, and how to read them.

    `columns` has all stored columns, `schema` the wanted ones. Nothing is read before `read` is called.
    """

    columns: Mapping[str, Stored]
    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]
