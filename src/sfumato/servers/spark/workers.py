"""What Spark's workers run: counters and listers, sent to them whole, since they do not have this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Array]]

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
    """Gives the codes of columns of these sizes packed into few words: what a worker reads is a tenth of it.

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
    """Gives the function that counts one part of the records: batches of packed codes in, sparse counts out.

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
    """Yields every batch as one binary value, so that batches can be fetched one by one."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["b"])


_ROWS = 2**17
_ODD = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: spreads names over places
_TEXT_BYTES = 64
"""Bytes from the start of a name that decide its place, beside its length and its last eight."""


def find_places(column: pa.Array, bits: int) -> NDArray[np.int64]:
    """Returns a place below 2^bits for every individual of a column without NULL; equal ones have the same.

    Which places are equal beside that matters for speed alone.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()):
        hashed = column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64) * np.uint64(_ODD)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        hashed = _hash_texts(column)
    else:
        raise TypeError("individuals of this type are not placed")
    places: NDArray[np.int64] = (hashed >> np.uint64(64 - bits)).astype(np.int64)
    return places


def count_places(read: Read, bits: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What counts the records of every place, in one part of a table: one row of bytes, and their width."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = np.zeros(2**bits, np.uint32)
        records = 0
        for column in read(batches):
            records += len(column)
            np.add.at(counts, find_places(column, bits), np.uint32(1))
        if records >= 2**32:
            raise OverflowError("more records than are counted here")
        kind = np.min_scalar_type(int(counts.max()))
        yield pa.RecordBatch.from_arrays(
            [pa.array([counts.astype(kind).tobytes()], pa.binary()), pa.array([kind.itemsize], pa.int32())],
            names=["counts", "width"],
        )

    return count


def list_units(
    read: Read, crowded: bytes, bits: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns what lists the individuals of crowded places, given as bits, once for each of their records."""

    def listed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chosen = np.unpackbits(np.frombuffer(crowded, np.uint8)).astype(np.bool_)
        for column in read(batches):
            kept = column.filter(pa.array(chosen[find_places(column, bits)]))
            if len(kept):
                yield pa.RecordBatch.from_arrays([kept], names=["u"])

    return listed


def read_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
    """Yields the individuals of batches that Spark read."""
    for batch in batches:
        yield batch.column(0).drop_null()


def read_files(unit: str, kind: pa.DataType) -> Read:
    """Reads the individuals of files; batches name a file, the first of its parts to read, and a step."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
        import pyarrow.parquet as pq

        for batch in batches:
            for path, first, step in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                with pq.ParquetFile(path) as file:
                    if file.schema_arrow.names.count(unit) != 1:
                        raise KeyError("no such column, or several")
                    parts = list(range(first, file.num_row_groups, step))
                    found = file.iter_batches(_ROWS, row_groups=parts, columns=[unit], use_threads=False)
                    for each in found:
                        column = each.column(0).drop_null()
                        if pa.types.is_dictionary(column.type):
                            column = column.dictionary_decode()
                        find_places(column[:0], 1)  # raises for a type that Spark may read otherwise
                        yield column.cast(kind)

    return read


def _hash_texts(column: pa.Array) -> NDArray[np.uint64]:
    """Returns a hash of each text: of its length, its first bytes and its last ones."""
    wide = pa.types.is_large_string(column.type)
    _, ends, data = column.buffers()
    if not len(column):
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(ends, np.int64 if wide else np.int32)[column.offset :][: len(column) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    held: Any = b"" if data is None else data
    padded = np.concatenate((np.frombuffer(held, np.uint8), np.zeros(8, np.uint8)))
    # Eight bytes from every place on, as one number.
    words = np.ndarray((padded.size - 7,), "<u8", padded, 0, (1,))
    masks = np.array([2 ** (8 * kept) - 1 for kept in range(9)], np.uint64)
    hashed = lengths.astype(np.uint64)
    longest = int(lengths.max())
    places = [starts + at for at in range(0, min(longest, _TEXT_BYTES), 8)]
    lefts = [lengths - at for at in range(0, min(longest, _TEXT_BYTES), 8)]
    if longest > _TEXT_BYTES:
        places.append(starts + np.maximum(lengths - 8, 0))
        lefts.append(lengths)
    for place, left in zip(places, lefts, strict=True):
        word = words[np.minimum(place, words.size - 1)] & masks[np.clip(left, 0, 8)]
        hashed = (hashed ^ word) * np.uint64(_ODD)
        hashed ^= hashed >> np.uint64(32)
    return hashed * np.uint64(_ODD)
