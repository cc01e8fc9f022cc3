"""Sparse counts of many marginals, where the records are: on the workers of a cluster.

A worker has numpy and pyarrow, and not this package: what runs there is sent to it by value, so that this
module imports nothing at its top that a worker may lack, and nothing of this package at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

COUNTED = "m INT, cell BIGINT, n BIGINT"
"""What a counter yields: the place of a marginal, a cell of it, and its count in this part."""

_WORD = 63  # bits of a whole number without its sign
_DENSE = 2**20  # the largest marginal that is counted with every cell in its place
_DENSE_TOTAL = 2**23  # and how many cells all those may have together
_HELD = 2**22  # cells that wait to be merged, over all marginals
_BATCH = 2**16


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the code of each column lies: in which word, from which bit on, in how many bits."""

    places: tuple[tuple[int, int, int], ...]
    words: int


def lay_out(sizes: tuple[int, ...]) -> Layout:
    """The codes of columns of these sizes packed into few words: what a worker reads is a tenth of it.

    >>> lay_out((12, 77, 2**40, 2**30))
    Layout(places=((0, 0, 4), (0, 4, 7), (0, 11, 40), (1, 0, 30)), words=2)
    """
    places: list[tuple[int, int, int]] = []
    word = used = 0
    for size in sizes:
        bits = max(1, (size - 1).bit_length())
        if used + bits > _WORD:
            word, used = word + 1, 0
        places.append((word, used, bits))
        used += bits
    return Layout(tuple(places), word + 1)


def make_counter(
    layout: Layout, marginals: tuple[tuple[tuple[int, int], ...], ...], *, weighted: bool, grid: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that counts one part of the records: batches of packed codes in, sparse counts out.

    A marginal is its columns, each with its size. The last column of a batch is the weight if it is
    `weighted`, else every record counts `grid`. It keeps little: small marginals whole, large ones until
    they have many cells, and then it hands these on to be added up elsewhere.
    """
    places, columns = layout.places, sorted({column for marginal in marginals for column, _ in marginal})
    totals = [1] * len(marginals)
    for place, marginal in enumerate(marginals):
        for _, size in marginal:
            totals[place] *= size
    dense: set[int] = set()
    room = _DENSE_TOTAL
    for place in sorted(range(len(marginals)), key=totals.__getitem__):
        if totals[place] <= min(_DENSE, room):
            dense.add(place)
            room -= totals[place]
    most_held = max(_BATCH, _HELD // max(1, len(marginals) - len(dense)))

    def find_cells(
        marginal: tuple[tuple[int, int], ...], codes: dict[int, Any], rows: int
    ) -> NDArray[np.int64]:
        if not marginal:
            return np.zeros(rows, np.int64)
        cells: NDArray[np.int64] = codes[marginal[0][0]]
        for column, size in marginal[1:]:
            cells = cells * size
            cells += codes[column]
        return cells

    def sum_by_cell(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        cells, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = np.argsort(cells, kind="stable")
        ordered = cells[order]
        first = np.ones(ordered.size, np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        return ordered[starts], np.add.reduceat(counts[order], starts)

    def hand_on(place: int, cells: NDArray[np.int64], counts: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        for start in range(0, cells.size, _BATCH):
            part = slice(start, start + _BATCH)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(np.full(cells[part].size, place, np.int32)),
                    pa.array(cells[part]),
                    pa.array(counts[part]),
                ],
                names=["m", "cell", "n"],
            )

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tallies = {place: np.zeros(totals[place], np.int64) for place in dense}
        waiting: dict[int, list[tuple[Any, Any]]] = {
            place: [] for place in range(len(marginals)) if place not in dense
        }
        held = dict.fromkeys(waiting, 0)
        for batch in batches:
            rows = batch.num_rows
            if not rows:
                continue
            arrays = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            weights = arrays[-1] if weighted else None
            codes = {}
            for column in columns:
                word, shift, bits = places[column]
                codes[column] = (arrays[word] >> shift) & (2**bits - 1)
            for place, marginal in enumerate(marginals):
                cells = find_cells(marginal, codes, rows)
                if place in tallies:
                    counts = tallies[place]
                    if weights is not None:
                        np.add.at(counts, cells, weights)
                    elif rows * 4 < counts.size:
                        np.add.at(counts, cells, grid)
                    else:
                        counts += np.bincount(cells, minlength=counts.size) * grid
                    continue
                each = np.full(rows, grid, np.int64) if weights is None else weights
                waiting[place].append(sum_by_cell([(cells, each)]))
                held[place] += waiting[place][-1][0].size
                if held[place] > most_held:
                    merged = sum_by_cell(waiting[place])
                    waiting[place], held[place] = [merged], merged[0].size
                    if held[place] * 2 > most_held:
                        yield from hand_on(place, *merged)
                        waiting[place], held[place] = [], 0
        for place, counts in tallies.items():
            cells = np.flatnonzero(counts)
            yield from hand_on(place, cells, counts[cells])
        for place, parts in waiting.items():
            if parts:
                yield from hand_on(place, *sum_by_cell(parts))

    return count


def pack_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every batch as one binary value, so that batches can be fetched one by one."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["b"])
