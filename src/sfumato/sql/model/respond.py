"""From a question and a model's expected counts to an answer, with intervals where evidence is at hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.sql.model.enclose import Moments, enclose_sum, least_average
from sfumato.sql.model.fields import keep_cells
from sfumato.tables.arrays import label_array, to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sfumato.sql.model.enclose import Evidence
    from sfumato.sql.model.fields import Field
    from sfumato.sql.model.question import Output, Question


def respond(
    question: Question,
    sizes: Mapping[str, int],
    expected: NDArray[np.float64],
    evidence: Evidence | None,
) -> pa.Table:
    """The answer to `question`; `expected` are the counts of the cells of its columns, flat."""
    groups = _Groups(question, sizes, expected, evidence)
    rows = np.arange(groups.rows)
    for output, descending in reversed(question.order):
        ranks = groups.values(output)[rows]
        rows = rows[np.argsort(-ranks if descending else ranks, kind="stable")]
    rows = rows[question.offset :]
    rows = rows if question.limit is None else rows[: question.limit]
    columns: dict[str, pa.Array] = {}
    for output in question.outputs:
        values = groups.values(output)[rows]
        if output.kind == "key" and output.field is not None:
            columns[output.name] = label_array(values.astype(np.int32), output.field.distinct)
            continue
        columns[output.name] = _to_nullable(values)
        for suffix, ends in zip(("_low", "_high"), groups.interval(output), strict=True):
            columns[output.name + suffix] = _to_nullable(ends[rows])
    return pa.table(columns)


class _Groups:
    """The cells that a question keeps, parted by its keys."""

    def __init__(
        self,
        question: Question,
        sizes: Mapping[str, int],
        expected: NDArray[np.float64],
        evidence: Evidence | None,
    ) -> None:
        shape = tuple(sizes[name] for name in question.columns)
        kept = np.ones(shape, np.bool_)
        if question.condition is not None:
            kept &= keep_cells(question.condition, question.fields, question.columns, sizes)
        cells = np.flatnonzero(kept)
        self._codes = dict(
            zip(question.columns, np.unravel_index(cells, shape) if shape else (), strict=True)
        )
        self._expected = expected[cells]
        self._evidence = evidence
        self._noisy = None if evidence is None else evidence.values[cells]
        places = np.zeros(cells.size, np.int64)
        spans = [len(key.distinct) for key in question.keys]
        for key, span in zip(question.keys, spans, strict=True):
            places = places * span + self._place(key)
        # Without keys there is one group, even of no cell; with them, those that have a cell.
        held = np.unique(places) if question.keys else np.zeros(1, np.int64)
        self._inverse = np.searchsorted(held, places)
        self.rows = held.size
        self._keys: dict[Field, NDArray[np.int64]] = {}
        for key, span in reversed(list(zip(question.keys, spans, strict=True))):
            held, self._keys[key] = np.divmod(held, span)

    def values(self, output: Output) -> NDArray[np.float64]:
        """An output per group; a key by the place of its label."""
        if output.kind == "key" and output.field is not None:
            return self._keys[output.field].astype(np.float64)
        count = self._sum(self._expected)
        if output.field is None:
            return count
        lows, highs = self._ends(output.field)
        total = self._sum(self._expected * (lows + highs) / 2)
        if output.kind == "sum":
            return total
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def interval(self, output: Output) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The ends that hold the exact value with 95 %, and the model's value in any case."""
        if self._evidence is None or self._noisy is None:
            unknown = np.full(self.rows, np.nan)
            return unknown, unknown
        values = self.values(output)
        if output.field is None:
            ones = np.ones_like(self._noisy)
            low, high = enclose_sum(self._evidence, self._weigh(ones), self._weigh(ones))
            low = np.maximum(low, 0)
        elif output.kind == "sum":
            lows, highs = self._ends(output.field)
            low, high = enclose_sum(self._evidence, self._weigh(lows), self._weigh(highs))
        else:
            low, high = self._enclose_average(output.field)
        # A group without a record has no average, but its interval stands.
        return np.fmin(low, values), np.fmax(high, values)

    def _enclose_average(self, field: Field) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert self._evidence is not None
        assert field.ends is not None
        least, most = float(min(field.ends)[0]), float(max(high for _, high in field.ends))
        # Weights are taken from the middle: squares of far numbers would lose what they differ by.
        centre, half = (least + most) / 2, (most - least) / 2
        lows, highs = (each - centre for each in self._ends(field))
        smallest, largest = np.full(self.rows, half), np.full(self.rows, -half)
        np.minimum.at(smallest, self._inverse, lows)
        np.maximum.at(largest, self._inverse, highs)
        if not lows.size:
            smallest, largest = largest, smallest
        reach = self._evidence.reach
        low = least_average(self._moments(lows), reach, (smallest, largest))
        high = -least_average(self._moments(-highs), reach, (-largest, -smallest))
        return centre + low, centre + high

    def _moments(self, weights: NDArray[np.float64]) -> Moments:
        assert self._noisy is not None
        return Moments(
            weighted=self._sum(weights * self._noisy),
            count=self._sum(self._noisy),
            weights=self._sum(weights),
            squares=self._sum(weights**2),
            cells=self._sum(np.ones_like(weights)),
        )

    def _weigh(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert self._noisy is not None
        return self._sum(weights * self._noisy), self._sum(weights**2)

    def _sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self._inverse, weights=values, minlength=self.rows).astype(np.float64)

    def _ends(self, field: Field) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert field.ends is not None
        codes = self._codes[field.column]
        lows, highs = (np.array([float(pair[end]) for pair in field.ends]) for end in (0, 1))
        return lows[codes], highs[codes]

    def _place(self, key: Field) -> NDArray[np.int64]:
        places = {label: place for place, label in enumerate(key.distinct)}
        return np.array([places[label] for label in key.labels], np.int64)[self._codes[key.column]]


def _to_nullable(values: NDArray[np.float64]) -> pa.Array:
    if not np.isnan(values).any():
        return to_arrow(values)
    return pa.array([None if math.isnan(value) else value for value in values.tolist()], pa.float64())
