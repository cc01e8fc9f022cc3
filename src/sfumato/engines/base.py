"""The contract every engine keeps: exact, bounded counts out, nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from sfumato.errors import RecipeError, SchemaError, SourceError
from sfumato.questions import (
    CapChoice,
    CappedMarginal,
    ClippedMarginal,
    Counted,
    IndividualCounts,
    Marginal,
    NormChoice,
    OccupiedCells,
)
from sfumato.schema import IntegerRange, Label, PublicTable, Table, hold_records

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
    from sfumato.sql import QueryPlan


LARGEST_MARGINAL = 2**27

MOST_CELLS = 2**62
"""A marginal with more cells has cells that no 64-bit number can name."""

Question = Counted | NormChoice | CapChoice


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
        size = f"cells={self.true_values.size}, " if self.cells is None else ""
        return f"TrueCounts(columns={self.columns}, {size}values withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("exact counts cannot be pickled")


class CountingEngine(ABC):
    """Reads records where they are and hands out exact counts with enforced bounds."""

    def count(
        self, table: Table, questions: tuple[Question, ...], *, progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The exact answer to every question, in their order, each individual bounded as the question states.

        All cells are counted in one pass over the records. Of a choice of a norm, the answer is the number of
        individuals within each norm, then that of all; of a choice of a bound, the number of records that
        each bound cuts off.
        """
        for question in questions:
            _check_question(table, question)
        found = self._count_marginals(table, questions, progress)
        clipped = tuple(each for each in questions if isinstance(each, ClippedMarginal))
        if clipped:
            found |= zip(map(id, clipped), self._count_clipped(table, clipped, progress), strict=True)
        for each in questions:
            if isinstance(each, CappedMarginal):
                capped = hold_records(table, each.max_records)
                (found[id(each)],) = self._count_cells(capped, (each.columns,), (), progress)
            elif isinstance(each, IndividualCounts):
                found[id(each)] = self._count_individuals(table, each, progress)
            elif isinstance(each, NormChoice):
                found[id(each)] = self._count_within(table, each, progress)
            elif isinstance(each, CapChoice):
                found[id(each)] = self._count_lost(table, each, progress)
        return tuple(found[id(each)] for each in questions)

    def _count_marginals(
        self, table: Table, questions: tuple[Question, ...], progress: Callable[[str], None]
    ) -> dict[int, TrueCounts]:
        plain = tuple(each for each in questions if isinstance(each, Marginal))
        sparse = tuple(each for each in questions if isinstance(each, OccupiedCells))
        if not plain and not sparse:
            return {}
        marginals, occupied = (
            tuple(dict.fromkeys(each.columns for each in kind)) for kind in (plain, sparse)
        )
        counts = self._count_cells(table, marginals, occupied, progress)
        dense = dict(zip(marginals, counts, strict=False))
        with_records = dict(zip(occupied, counts[len(marginals) :], strict=True))
        found = {id(each): with_records[each.columns] for each in sparse}
        for each in plain:
            counted = dense[each.columns]
            if each.queries is not None:
                counted = TrueCounts(each.columns, each.queries.apply(counted.true_values))
            found[id(each)] = counted
        return found

    @abstractmethod
    def snapshot(self, table: Table) -> AbstractContextManager[None]:
        """Within it, all that is read of the table is as it was at the beginning, or its version differs."""

    @abstractmethod
    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error about public facts: sizes, the source, its columns and types. Reads no record."""

    @abstractmethod
    def version(self, table: Table, *, secret: bytes) -> str:
        """A keyed digest that changes when the source does, and says nothing else about it."""

    @abstractmethod
    def describe(self, table: Table) -> dict[str, str]:
        """The kinds of the stored columns that a query may name."""

    @abstractmethod
    def _count_cells(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        occupied: tuple[tuple[str, ...], ...],
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        """The counts of `marginals` over all their cells, then those of `occupied` where records are.

        Privacy: one individual adds at most `table.contribution` to the counts of each marginal, whatever
        the records hold; proofs in docs/proofs/bounds.md and docs/proofs/engines.md.
        """

    @abstractmethod
    def _count_clipped(
        self, table: Table, questions: tuple[ClippedMarginal, ...], progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The answers in units of 1 / grid, each individual scaled down to the norm.

        Privacy: one individual adds at most norm * grid to the answers of each question, in L2, whatever the
        records hold; proof in docs/proofs/contribution-norms.md.
        """

    @abstractmethod
    def _count_individuals(
        self, table: Table, question: IndividualCounts, progress: Callable[[str], None]
    ) -> TrueCounts:
        """The number of individuals for every pair of cell and times.

        Privacy: one individual adds 1 to at most max_cells of the numbers, whatever the records hold; proof
        in docs/proofs/user-counts.md.
        """

    @abstractmethod
    def _count_within(self, table: Table, choice: NormChoice, progress: Callable[[str], None]) -> TrueCounts:
        """The number of individuals within each norm, then that of all individuals.

        Privacy: one individual adds 0 or 1 to each number; docs/proofs/choice.md.
        """

    @abstractmethod
    def _count_lost(self, table: Table, choice: CapChoice, progress: Callable[[str], None]) -> TrueCounts:
        """The number of records that each bound cuts off, of max_records of each individual.

        Privacy: an individual adds max(0, min(n, max_records) - bound) for its n records, and nothing else
        does; docs/proofs/capped-counts.md.
        """


class Engine(Protocol):
    """Counts, answers statements too, and reads public tables as they are."""

    def snapshot(self, table: Table) -> AbstractContextManager[None]:
        """Within it, all that is read of the table is as it was at the beginning, or its version differs."""

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error about public facts: sizes, the source, its columns, their types."""

    def count(
        self, table: Table, questions: tuple[Question, ...], *, progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The exact answer to every question, in their order, each individual bounded as it states."""

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


def _check_question(table: Table, question: Question) -> None:
    """Raises an error about public facts: a question that does not fit its table, or a norm of rows."""
    shown = " x ".join(question.columns)
    if isinstance(question, ClippedMarginal | NormChoice):
        refuse_large_marginals(table, (question.columns,))
        if table.unit.column is None:
            raise SchemaError(
                f"table {table.name!r}: every row is an individual of norm 1, so there is nothing to hold "
                "to a norm; name a unit column, or leave the norm out"
            )
    queries = question.queries if isinstance(question, Marginal | ClippedMarginal) else None
    cells = table.cells(question.columns)
    if queries is not None and queries.cells != cells:
        raise RecipeError(f"queries are over {queries.cells:,} cells, and {shown} has {cells:,}")
    # Cells that do not fit into 64 bits would fail for the records that reach them.
    if isinstance(question, IndividualCounts) and (question.cells[-1] >= cells or cells > MOST_CELLS):
        raise RecipeError(f"{shown}: asks for individuals in cells that these columns do not have")
    if isinstance(question, CapChoice) and table.unit.column is None:
        raise RecipeError(
            f"choice {question.name!r}: every row is an individual, so there is no bound to choose"
        )


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
