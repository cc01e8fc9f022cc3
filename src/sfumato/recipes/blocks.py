"""Query matrices of adaptive granularity: single cells where counts may be large, sums elsewhere.

A marginal S is measured after all its parts. A cell is *plausible* if every part of S with one column less
has flagged its projection; plausible cells are measured one by one. Any other cell is measured as part
of sums, those of the smaller marginals with the plausible cells taken out.

Seen from a cell, a chain of marginals that leads from S down to one column, dropping a column at a time,
passes from marginals T + b in which the cell is not plausible to one, T, in which it is; from there on
it stays so. The chain stands for one query: the sum of all cells that agree in T and are not plausible in
T + b. All chains weigh the same, and chains with the same T and b ask the same, so that they are one
query with the weight of all of them, which tells as much as they do together. If T is not flagged, nothing
above it is plausible and b does not matter either. Hence every query is a sum over few cells
of a small marginal, and only the engine needs it over the cells of S (docs/proofs/adaptive-grid.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato.inference import Measurement as Noisy
from sfumato.inference import Sparse
from sfumato.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from sfumato.inference import Domain

Columns = tuple[str, ...]
Kind = Literal["cell", "slab", "whole", "rest"]

GRID = 2**10
"""Weights are whole multiples of 1 / GRID, rounded down; up to four columns that loses 0.2 % at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Sums of cells of the marginal `columns`, one for each of some cells of the marginal `by`.

    "cell": plausible cells, one by one. "slab": plausible cells that are not flagged, for marginals
    above. "rest": for flagged cells of `by`, what of them is not plausible in `columns`, one column more.
    "whole": those of which nothing is plausible with that column, so that it need not be named.
    """

    kind: Kind
    by: Columns
    columns: Columns
    starts: NDArray[np.int64]
    members: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """The number of sums."""
        return int(self.starts.size - 1)


def children(columns: Columns) -> tuple[Columns, ...]:
    """The marginals with one column less, none for a single column."""
    return tuple(combinations(columns, len(columns) - 1)) if len(columns) > 1 else ()


def find_plausible(
    domain: Domain, columns: Columns, flags: Mapping[Columns, NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Which cells of a marginal all its children have flagged."""
    result = np.ones(domain.shape(columns), np.bool_)
    for child in children(columns):
        result &= _extend(domain, flags[child], child, columns)
    return result.reshape(-1)


class Blocks:
    """The blocks of all marginals, as plausible cells and flags become known."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.plausible: dict[Columns, NDArray[np.bool_]] = {}
        self.flags: dict[Columns, NDArray[np.bool_]] = {}
        self._made: dict[tuple[str, Columns, Columns], tuple[Block, ...]] = {}

    def build(self, columns: Columns) -> tuple[tuple[Block, int], ...]:
        """The blocks of one marginal, each with its weight in units of 1 / GRID; none is empty.

        All parts of `columns` must be flagged. The squares of the weights of a cell add up to GRID^2, or
        to less where weights are rounded down.
        """
        if columns not in self.plausible:
            self.plausible[columns] = find_plausible(self.domain, columns, self.flags)
        size = len(columns)
        found = [(block, GRID) for block in self._cells("cell", columns)]
        for part in (part for parts in range(1, size) for part in combinations(columns, parts)):
            weight = _weight(1, math.comb(size, len(part)))
            found += ((block, weight) for block in self._cells("slab", part))
            above = len(part) + 1
            chains = math.factorial(size - above) * math.factorial(above - 1)
            weight = _weight(chains, math.factorial(size))
            for name in columns:
                if name not in part:
                    rest = self._rest(part, self.domain.order({*part, name}))
                    found += ((block, weight) for block in rest)
        return tuple((block, weight) for block, weight in found if block.rows)

    def flag(self, columns: Columns, large: NDArray[np.bool_]) -> None:
        """Notes which of the plausible cells of a marginal are `large`."""
        flags = np.zeros(self.domain.cells(columns), np.bool_)
        flags[np.flatnonzero(self.plausible[columns])[large]] = True
        self.flags[columns] = flags

    def _cells(self, kind: Literal["cell", "slab"], columns: Columns) -> tuple[Block, ...]:
        key = (kind, columns, columns)
        if key not in self._made:
            chosen = self.plausible[columns]
            if kind == "slab":
                chosen = chosen & ~self.flags[columns]
            self._made[key] = (_single(kind, columns, np.flatnonzero(chosen)),)
        return self._made[key]

    def _rest(self, part: Columns, columns: Columns) -> tuple[Block, ...]:
        key = ("rest", part, columns)
        if key not in self._made:
            shape = self.domain.shape(columns)
            flagged = _extend(self.domain, self.flags[part], part, columns)
            hits = flagged & ~self.plausible[columns].reshape(shape)
            (added,) = (axis for axis, name in enumerate(columns) if name not in part)
            hits = np.moveaxis(hits, added, -1)
            counts = np.count_nonzero(hits, axis=-1).reshape(-1)
            whole = counts == shape[added]
            hits = hits & ~whole.reshape(hits.shape[:-1])[..., None]
            members = np.moveaxis(np.arange(hits.size).reshape(shape), added, -1)[hits]
            starts = np.concatenate(([0], np.cumsum(counts[(counts > 0) & ~whole])))
            self._made[key] = (
                _single("whole", part, np.flatnonzero(whole)),
                Block(kind="rest", by=part, columns=columns, starts=starts, members=members),
            )
        return self._made[key]


def expand_blocks(domain: Domain, columns: Columns, blocks: Sequence[tuple[Block, int]]) -> Queries:
    """The queries of `blocks` over the cells of `columns`: what they do not name is summed over."""
    strides, stride = {}, 1
    for name in reversed(columns):
        strides[name] = stride
        stride *= domain[name]
    expanded = [_expand(domain, columns, block, strides) for block, _ in blocks]
    sizes = np.concatenate([rows for rows, _ in expanded])
    return Queries(
        cells=domain.cells(columns),
        grid=GRID,
        starts=np.concatenate(([0], np.cumsum(sizes))),
        members=np.concatenate([members for _, members in expanded]),
        weights=np.repeat(
            np.array([weight for _, weight in blocks], np.int32), [members.size for _, members in expanded]
        ),
    )


def _expand(
    domain: Domain, columns: Columns, block: Block, strides: Mapping[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The lengths of the rows of a block over the cells of `columns`, and their members, ascending."""
    (*_, last) = [-1, *(columns.index(name) for name in block.columns if name not in block.by)]
    others = [name for name in columns if name not in block.columns]
    outer = _offsets(domain, [name for name in others if columns.index(name) < last], strides)
    inner = _offsets(domain, [name for name in others if columns.index(name) > last], strides)
    home = _offsets(domain, block.columns, strides)[block.members]
    if outer.size > 1:
        # Every row is repeated for each value of the columns before the one that it sums over.
        lengths = np.diff(block.starts)
        row = np.repeat(np.arange(block.rows), lengths * outer.size)
        turn, place = np.divmod(np.arange(row.size) - block.starts[row] * outer.size, lengths[row])
        home = home[block.starts[row] + place] + outer[turn]
    return np.diff(block.starts) * (outer.size * inner.size), (home[:, None] + inner).reshape(-1)


@dataclass(slots=True, eq=False)
class _Sums:
    """What is known of the sums of some rows: their precision, and their values times it."""

    block: Block
    precision: NDArray[np.float64]
    weighted: NDArray[np.float64]


class Pool:
    """Noisy sums, those of the same cells averaged by their precision."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._sums: dict[tuple[Columns, Columns], _Sums] = {}

    def add(self, blocks: Sequence[tuple[Block, int]], values: NDArray[np.float64], *, sigma: float) -> None:
        """Takes in the answers to the queries of `blocks`, in records.

        The plausible cells of a marginal come first, and the sums of marginals above it later.
        """
        start = 0
        for block, weight in blocks:
            factor = weight / GRID
            answers = values[start : start + block.rows]
            start += block.rows
            key = (block.by, block.columns)
            if key not in self._sums:
                self._sums[key] = _Sums(block, np.zeros(block.rows), np.zeros(block.rows))
            known = self._sums[key]
            place: slice | NDArray[np.int64] = slice(None)
            if block.rows < known.block.rows:
                place = np.searchsorted(known.block.members, block.members)
            known.precision[place] += (factor / sigma) ** 2
            known.weighted[place] += answers * (factor / sigma**2)

    def cells(self, columns: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The average answers for the plausible cells of a marginal, and their standard deviations."""
        known = self._sums.get((columns, columns))
        if known is None:
            return np.empty(0), np.empty(0)
        return known.weighted / known.precision, 1 / np.sqrt(known.precision)

    def measurements(self) -> Iterator[Noisy]:
        """All sums for inference, each over its own small marginal."""
        for (_, columns), known in self._sums.items():
            most = float(known.precision.max())
            weights = np.sqrt(known.precision / most)
            queries = None
            if known.block.rows < self._domain.cells(columns) or weights.min() < 1:
                block = known.block
                spread = np.repeat(weights, np.diff(block.starts))
                queries = Sparse(starts=block.starts, members=block.members, weights=spread)
            yield Noisy(
                columns=columns,
                values=known.weighted / known.precision * weights,
                sigma=1 / math.sqrt(most),
                queries=queries,
            )


def _single(kind: Kind, columns: Columns, members: NDArray[np.int64]) -> Block:
    starts = np.arange(members.size + 1)
    return Block(kind=kind, by=columns, columns=columns, starts=starts, members=members)


def _weight(part: int, whole: int) -> int:
    """GRID * sqrt(part / whole), rounded down."""
    return math.isqrt(GRID**2 * part // whole)


def _extend(domain: Domain, flat: NDArray[np.bool_], part: Columns, columns: Columns) -> NDArray[np.bool_]:
    """An array over the cells of `part`, shaped so that it spreads over those of `columns`."""
    return flat.reshape([domain[name] if name in part else 1 for name in columns])


def _offsets(domain: Domain, names: Sequence[str], strides: Mapping[str, int]) -> NDArray[np.int32]:
    """The places of all combinations of `names`, where every other column has its first value."""
    places = np.zeros(1, np.int32)
    for name in names:
        places = (places[:, None] + np.arange(domain[name], dtype=np.int32) * strides[name]).reshape(-1)
    return places
