"""The contract every engine keeps: exact, bounded counts out, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from sfumato.errors import SchemaError, SourceError
from sfumato.schema import IntegerRange, Label, PublicTable, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from sqlglot import exp

    from sfumato.engines.examine import TableFit
    from sfumato.engines.query import TrueAggregates
    from sfumato.engines.source import Stored
    from sfumato.questions.measurement import CapChoice, NormChoice, Request
    from sfumato.sql import QueryPlan


LARGEST_MARGINAL = 2**27


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TrueCounts:
    """The exact counts of one marginal over its whole domain, row-major, in units of 1 / grid.

    Or the exact answers of queries over it, or numbers of individuals within norms or cells of it. With
    `cells`, in ascending order, only these have records.

    Never leaves the private room: it prints without values and cannot be pickled.
    """

    columns: tuple[str, ...]
    true_values: NDArray[np.int64]
    cells: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        told = f"cells={self.true_values.size}, " if self.cells is None else ""
        return f"TrueCounts(columns={self.columns}, {told}values withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("exact counts cannot be pickled")


class Counting(Protocol):
    """Reads records where they are and hands out exact counts with enforced bounds."""

    def hold(self, table: Table) -> AbstractContextManager[None]:
        """Within it, all that is read of the table is as it was at the beginning, or its version differs."""

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error about public facts: sizes, the source, its columns, their types."""

    def version(self, table: Table, *, secret: bytes) -> str:
        """A keyed digest that changes when the source does, and says nothing else about it."""

    def count(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        *,
        occupied: tuple[tuple[str, ...], ...] = (),
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        """The counts of every marginal, each individual held to `table.contribution`.

        Those of `marginals` over all their cells, then those of `occupied` in the cells with records.
        """

    def count_clipped(
        self, table: Table, requests: tuple[Request, ...], *, progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The answers to requests with a norm, each individual held to it, in units of 1 / request_grid."""

    def count_heads(self, table: Table, request: Request, *, progress: Callable[[str], None]) -> TrueCounts:
        """The number of individuals for every question of `request.heads`, each in max_cells at most."""

    def count_norms(self, table: Table, choice: NormChoice, *, progress: Callable[[str], None]) -> TrueCounts:
        """The number of individuals within each norm of `choice`, then that of all individuals."""

    def count_lost(self, table: Table, choice: CapChoice, *, progress: Callable[[str], None]) -> TrueCounts:
        """The number of records that each bound of `choice` cuts off, of max_records of each individual."""

    def describe(self, table: Table) -> dict[str, str]:
        """The kinds of the stored columns that a query may name."""


class Engine(Counting, Protocol):
    """Answers statements too, and reads public tables as they are."""

    def version(self, table: Table | PublicTable, *, secret: bytes) -> str:
        """A keyed digest that changes when the source does, and says nothing else about it."""

    def describe(self, table: Table | PublicTable) -> dict[str, str]:
        """The kinds of the stored columns that a query may name."""

    def list_labels(self, table: PublicTable) -> dict[str, tuple[Label, ...]]:
        """The values of the columns of a public table, of those that have few."""

    def aggregate(
        self, plan: QueryPlan, tables: Mapping[str, Table | PublicTable], *, progress: Callable[[str], None]
    ) -> TrueAggregates:
        """The exact aggregates of a planned statement, bounded as the plan states."""

    def bind(self, plan: QueryPlan, tables: Mapping[str, Table | PublicTable]) -> None:
        """Raises a refusal if the types of a statement do not fit. Reads no record."""

    def examine(self, table: Table) -> TableFit:
        """How well the description of a table fits its records: exact counts, for its steward alone."""

    def select(self, tree: exp.Select, tables: Mapping[str, PublicTable]) -> pa.Table:
        """The exact answer to a checked query of public tables."""


def refuse_decimals(table: Table, columns: tuple[str, ...], decimals: Collection[str]) -> None:
    """Refuses a range over a stored column whose type has decimals: only whole numbers would count."""
    for name in columns:
        column = table.column(name)
        if isinstance(column.domain, IntegerRange) and column.stored[0] in decimals:
            raise SourceError(
                f"table {table.name!r}: column {name!r} is stored with decimals, and range is for whole "
                "numbers; declare bins, or bounds for SUM and AVG"
            )


def refuse_reading_keys(table: Table, columns: tuple[str, ...]) -> None:
    """Refuses columns whose description says how values are written: on a server, a view says it."""
    for name in columns:
        column = table.column(name)
        if column.format or column.decimal != "." or column.missing or column.missing_label is not None:
            raise SchemaError(
                f"table {table.name!r}: column {name!r} has format, decimal, missing or missing_label, which "
                "are read of files and by DP-SELECT; make a view on the server that holds plain values"
            )


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


class Fetch(Protocol):
    """Gets the columns `wanted` of a table and the one that names individuals.

    A column is wanted if its stored name is listed, as it is or in lower case.
    """

    def __call__(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """The columns; reads no record yet."""
