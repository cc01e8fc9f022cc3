"""Running counts of one marginal: over all its cells, or where records are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.engines.base import TrueCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.schema import Table

_HELD = 2**22  # cells of single records that wait to be merged


class Tally:
    """The running counts of one marginal, every cell in its place."""

    def __init__(self, table: Table, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._sizes = [table.column(name).size for name in columns]
        self._grid = table.grid
        self._counts = np.zeros(table.cells(columns), np.int64)

    def add(
        self, codes: dict[str, NDArray[np.int64]], weights: NDArray[np.int64] | None, *, rows: int
    ) -> None:
        """Counts one batch: every record for one whole, or for its weight in units of 1 / grid."""
        cells = _find_cells(self._columns, self._sizes, codes, rows=rows)
        if weights is not None:
            np.add.at(self._counts, cells, weights)
        elif cells.size * 4 < self._counts.size:
            np.add.at(self._counts, cells, self._grid)
        else:
            self._counts += np.bincount(cells, minlength=self._counts.size) * self._grid

    def finish(self) -> TrueCounts:
        """The counts, read-only from here on."""
        self._counts.flags.writeable = False
        return TrueCounts(self._columns, self._counts)


class OccupiedTally:
    """The running counts of one marginal that may have up to 2^63 cells: only those with records."""

    def __init__(self, table: Table, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._sizes = [table.column(name).size for name in columns]
        self._grid = table.grid
        self._cells = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._held = 0

    def add(
        self, codes: dict[str, NDArray[np.int64]], weights: NDArray[np.int64] | None, *, rows: int
    ) -> None:
        """Counts one batch, as a Tally does."""
        cells = _find_cells(self._columns, self._sizes, codes, rows=rows)
        counted = _sum_by_cell(cells, np.full(rows, self._grid, np.int64) if weights is None else weights)
        self._waiting.append(counted)
        self._held += counted[0].size
        if self._held > max(_HELD, self._cells.size):
            self._merge()

    def finish(self) -> TrueCounts:
        """The counts and their cells in ascending order, read-only from here on."""
        self._merge()
        self._cells.flags.writeable = False
        self._counts.flags.writeable = False
        return TrueCounts(self._columns, self._counts, self._cells)

    def _merge(self) -> None:
        parts = [(self._cells, self._counts), *self._waiting]
        cells, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        self._cells, self._counts = _sum_by_cell(cells, counts)
        self._waiting, self._held = [], 0


def _find_cells(
    columns: tuple[str, ...], sizes: list[int], codes: dict[str, NDArray[np.int64]], *, rows: int
) -> NDArray[np.int64]:
    """The cell of every record, in row-major order."""
    cells = np.zeros(rows, np.int64)
    for name, size in zip(columns, sizes, strict=True):
        cells *= size
        cells += codes[name]
    return cells


def _sum_by_cell(
    cells: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different cells in ascending order, and the sum of the counts of each."""
    order = np.argsort(cells, kind="stable")
    ordered = cells[order]
    first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    if not starts.size:
        return ordered, counts
    return ordered[starts], np.add.reduceat(counts[order], starts)
