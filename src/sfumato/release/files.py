"""Noisy answers as one Parquet file, and back: the same answers give the same bytes.

What is read back is checked against the questions, row by row: a file answers its plan or is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.errors import ReleaseError
from sfumato.core.questions.choices import Chosen
from sfumato.core.questions.measurement import Answer, Ask, Measurement, Request, request_grid, request_size
from sfumato.recipes.base import MOST_ANSWERS
from sfumato.tables.arrays import label_array, read_parquet
from sfumato.tables.read import table_to_parquet

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

_COLUMNS = ("measurement", "cell", "noisy_value", "noise_scale")


def pack_measurements(answers: tuple[Answer, ...]) -> bytes:
    """Return all answers as one Parquet file: noisy values, unclipped, with the scale of their noise.

    Value and scale are in units of 1 / grid; the certificate states the grid. A choice is one row: the
    index that was drawn, with a scale of 0. An answer in which no cell passed its threshold is one row,
    of cell -1.
    """
    parts = [_parts(answer) for answer in answers]
    names = tuple(name for name, _, _ in parts)
    scales = np.array([scale for _, _, scale in parts])
    which = np.repeat(np.arange(len(names), dtype=np.int32), [values.size for _, values, _ in parts])
    cells = [_cells(answer, values.size) for answer, (_, values, _) in zip(answers, parts, strict=True)]
    table = pa.table(
        {
            "measurement": label_array(which, names),
            "cell": to_arrow(np.concatenate(cells)),
            "noisy_value": to_arrow(np.concatenate([values for _, values, _ in parts])),
            "noise_scale": to_arrow(scales[which]),
        }
    )
    return table_to_parquet(table, varied=("cell", "noisy_value"), statistics=False)


def pack_step(answers: tuple[Answer, ...]) -> bytes:
    """Return the noisy values of one batch, as 64 bits each: what the ledger keeps of a step."""
    return b"".join(_parts(answer)[1].astype("<i8").tobytes() for answer in answers)


def unpack_step(packed: bytes, asks: tuple[Ask, ...], table: Table) -> tuple[Answer, ...]:
    """Return the answers to `asks` that `pack_step` packed."""
    values = np.frombuffer(packed, "<i8").astype(np.int64)
    sizes = [request_size(table, ask) if isinstance(ask, Request) else 1 for ask in asks]
    if sum(sizes) != values.size:
        raise ReleaseError("what the ledger keeps of a step is not the answer to what is asked now")
    answers: list[Answer] = []
    for ask, part in zip(asks, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
        if isinstance(ask, Request):
            answers.append(Measurement(request=ask, noisy_values=part, grid=request_grid(table, ask)))
        else:
            answers.append(Chosen(choice=ask, index=int(part[0])))
    return tuple(answers)


def append_answers(kept: bytes, answers: tuple[Answer, ...]) -> bytes:
    """What is kept of a charge with one more batch of answers, which is packed by itself after its length."""
    packed = pack_measurements(answers)
    return kept + len(packed).to_bytes(8, "big") + packed


def split_answers(kept: bytes) -> tuple[bytes, ...]:
    """Return the packed batches of `append_answers`.

    >>> split_answers((3).to_bytes(8, "big") + b"abc" + (1).to_bytes(8, "big") + b"d")
    (b'abc', b'd')
    """
    parts, start = [], 0
    while start < len(kept):
        stop = start + 8 + int.from_bytes(kept[start : start + 8], "big")
        parts.append(kept[start + 8 : stop])
        start = stop
    return tuple(parts)


def split_values(answers: pa.Table) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Returns the noisy values and the cells of every measurement in packed `answers`, by its name."""
    named = answers["measurement"].unify_dictionaries().combine_chunks()
    named = named.dictionary_encode()
    which = to_numpy(named.indices)
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(named.dictionary)))[:-1]
    values, cells = (
        np.split(to_numpy(answers[name].combine_chunks())[order], ends) for name in ("noisy_value", "cell")
    )
    return dict(zip(named.dictionary.to_pylist(), zip(values, cells, strict=True), strict=False))


class PackedAnswers:
    """The rows of packed files, taken one batch of questions after the other; at most `rows` of each."""

    __slots__ = ("_rows", "_start", "_table")

    def __init__(self, payloads: tuple[bytes, ...], table: Table, *, rows: int = MOST_ANSWERS) -> None:
        self._table = table
        self._start = 0
        try:
            parts = [read_parquet(payload, rows=rows) for payload in payloads]
            self._rows = pa.concat_tables(parts).unify_dictionaries()
        except (pa.ArrowException, OSError) as error:
            raise ReleaseError(f"measurements.parquet cannot be read ({type(error).__name__})") from None
        if self._rows.column_names != list(_COLUMNS):
            raise ReleaseError(
                f"measurements.parquet must have the columns {', '.join(_COLUMNS)} and no other"
            )

    @property
    def left(self) -> int:
        """Return the number of rows that were not taken yet."""
        return int(self._rows.num_rows - self._start)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all answers, in no particular order."""
        return tuple(pc.unique(self._rows["measurement"]).to_pylist())

    def take(self, asks: tuple[Ask, ...]) -> tuple[Answer, ...]:
        """Return the answers to `asks`, which the next rows must be, in order."""
        return tuple(self._take(ask) for ask in asks)

    def _take(self, ask: Ask) -> Answer:
        if isinstance(ask, Request):
            size = request_size(self._table, ask) if ask.threshold is None else self._run(ask.name)
        else:
            size = 1
        if size > self.left:
            raise ReleaseError(f"measurements.parquet ends before the answer to {ask.name!r}")
        part = self._rows.slice(self._start, size)
        self._start += size
        scale = float(ask.scale) if isinstance(ask, Request) else 0.0
        for name, expected in (("measurement", ask.name), ("noise_scale", scale)):
            if pc.unique(part[name]).to_pylist() != [expected]:
                raise ReleaseError(f"measurements.parquet: {ask.name!r} states another {name} than its plan")
        cells, values = (_whole_numbers(part[name], ask.name) for name in ("cell", "noisy_value"))
        if isinstance(ask, Request) and ask.threshold is not None:
            return self._sparse(ask, ask.threshold, cells, values)
        if not np.array_equal(cells, np.arange(size)):
            raise ReleaseError(f"measurements.parquet: the cells of {ask.name!r} are not in their order")
        if isinstance(ask, Request):
            return Measurement(request=ask, noisy_values=values, grid=request_grid(self._table, ask))
        if not 0 <= values[0] < ask.options:
            raise ReleaseError(f"measurements.parquet: {ask.name!r} has no candidate of that index")
        return Chosen(choice=ask, index=int(values[0]))

    def _run(self, name: str) -> int:
        """Return the number of next rows that belong to the measurement `name`."""
        named = pc.equal(self._rows["measurement"].slice(self._start), name)
        first = pc.index(named, value=False).as_py()
        return self.left if first < 0 else int(first)

    def _sparse(
        self, ask: Request, threshold: int, cells: NDArray[np.int64], values: NDArray[np.int64]
    ) -> Measurement:
        if cells.tolist() == [-1] and values.tolist() == [0]:
            cells, values = cells[:0], values[:0]
        elif not (
            cells.size
            and cells[0] >= 0
            and cells[-1] < self._table.cells(ask.columns)
            and (cells[1:] > cells[:-1]).all()
            and values.min() >= threshold
        ):
            raise ReleaseError(
                f"measurements.parquet: {ask.name!r} has cells out of order or below its threshold"
            )
        grid = request_grid(self._table, ask)
        return Measurement(request=ask, noisy_values=values, grid=grid, cells=cells)


def _parts(answer: Answer) -> tuple[str, NDArray[np.int64], float]:
    if isinstance(answer, Measurement):
        values = answer.noisy_values
        if answer.cells is not None and not values.size:
            values = np.zeros(1, np.int64)
        return answer.ask.name, values, float(answer.request.scale)
    return answer.ask.name, np.array([answer.index], np.int64), 0.0


def _cells(answer: Answer, size: int) -> NDArray[np.int64]:
    """Return the cells of an answer's rows."""
    if not isinstance(answer, Measurement) or answer.cells is None:
        return np.arange(size, dtype=np.int64)
    return answer.cells if answer.cells.size else np.array([-1], np.int64)


def _whole_numbers(column: pa.ChunkedArray, name: str) -> NDArray[np.int64]:
    values = column.combine_chunks()
    if values.type != pa.int64() or values.null_count:
        raise ReleaseError(f"measurements.parquet: {name!r} holds values that are not whole numbers")
    return to_numpy(values)
