"""Codes of two tables that can be compared: by described domains, or by the values that occur."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.errors import MetricError
from sfumato.metrics.codes import Label, is_text, number_column, number_pair
from sfumato.metrics.pair import CodedPair, Side
from sfumato.metrics.stored import (
    code_records,
    code_released,
    is_released_layout,
    released_names,
    stored_names,
)
from sfumato.metrics.tables import TableLike, measure, plain_column, read_table, require_columns, to_numbers
from sfumato.schema import IntegerRange, Period

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.schema import Column, Table

_MOST_NUMBERS = 50
_QUANTILES = 20


def encode_pair(
    truth: TableLike,
    release: TableLike,
    *,
    table: Table | None = None,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    unit: str | None = None,
    cut: bool = True,
) -> CodedPair:
    """Truth and release in the same codes, column by column.

    With a described `table`, by its domains: the truth as the engine codes it before it counts, the
    release as recipes lay it out. Without one, by the values of both; numbers with more than 50
    different values in the truth are cut at its 20-quantiles, unless `cut` is false.

    `weight` names a column that says how many records a row stands for, on the sides that have it;
    `unit` one that tells individuals apart. `columns` are those to compare, by default all that both
    sides have.

    >>> pair = encode_pair({"a": ["x", "y"]}, {"a": ["y"], "count": [3]}, weight="count")
    >>> pair.columns, pair.sizes, pair.release.total
    (('a',), {'a': 2}, 3.0)
    """
    if table is not None:
        return _encode_described(truth, release, table, columns=columns, weight=weight, unit=unit)
    ours, theirs = read_table(truth, side="truth"), read_table(release, side="release")
    _require_weight(weight, [*ours.column_names, *theirs.column_names])
    left_out = {weight, unit, "epsilon"}
    if columns is None:
        columns = [n for n in ours.column_names if n in theirs.column_names and n not in left_out]
    require_columns(ours, columns, side="truth")
    require_columns(theirs, columns, side="release")
    coded = {name: _code(ours, theirs, name, cut=cut) for name in columns}
    return CodedPair(
        columns=tuple(columns),
        sizes={name: len(labels) for name, (_, _, labels) in coded.items()},
        labels={name: labels for name, (_, _, labels) in coded.items()},
        truth=Side(
            {name: each[0] for name, each in coded.items()}, ours.num_rows, _weights(ours, weight, "truth")
        ),
        release=Side(
            {name: each[1] for name, each in coded.items()},
            theirs.num_rows,
            _weights(theirs, weight, "release"),
        ),
        unit=_units(ours, unit),
    )


def _encode_described(
    truth: TableLike,
    release: TableLike,
    table: Table,
    *,
    columns: Sequence[str] | None,
    weight: str | None,
    unit: str | None,
) -> CodedPair:
    theirs = read_table(release, side="release")
    stored = stored_names(truth, table=table, side="truth")
    _require_weight(weight, [*stored, *theirs.column_names])
    if columns is None:
        columns = [
            name
            for name, column in table.columns.items()
            if column.domain is not None
            and all(part in stored for part in column.stored)
            and (_has(theirs, released_names(column)) or _has(theirs, column.stored))
        ]
    if not columns:
        raise MetricError("truth and release have no described column in common")
    extra = [name for name in (weight, unit) if name is not None and name in stored]
    if unit is not None and unit not in stored:
        raise MetricError(f"truth: no column {unit!r} to tell individuals apart by")
    true_codes, kept = code_records(truth, table, columns, side="truth", extra=extra)
    codes, weights, rows = _code_release(theirs, table, columns, weight)
    return CodedPair(
        columns=tuple(columns),
        sizes={name: table.column(name).size for name in columns},
        labels={name: _labels(table.column(name)) for name in columns},
        truth=Side(true_codes, next(iter(true_codes.values())).size, _weights(kept, weight, "truth")),
        release=Side(codes, rows, weights),
        unit=_units(kept, unit),
    )


def _code_release(
    released: pa.Table, table: Table, columns: Sequence[str], weight: str | None
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.float64] | None, int]:
    """Codes by the labels of a release; a table in the stored layout is coded as the truth is."""
    if is_released_layout(released, [table.column(name) for name in columns]):
        found = {name: code_released(released, table.column(name), side="release") for name in columns}
        codes = {name: each for name, each in found.items() if each is not None}
        return codes, _weights(released, weight, "release"), released.num_rows
    extra = [weight] if weight is not None and weight in released.column_names else []
    coded, kept = code_records(released, table, columns, side="release", extra=extra)
    return coded, _weights(kept, weight, "release"), next(iter(coded.values())).size


def _code(
    truth: pa.Table, release: pa.Table, name: str, *, cut: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], Sequence[Label]]:
    first, second = plain_column(truth, name), plain_column(release, name)
    if cut and not is_text(first) and not is_text(second):
        known = to_numbers(first).astype(np.float64)
        known = known[np.isfinite(known)]
        if np.unique(known).size > _MOST_NUMBERS:
            edges = np.unique(np.quantile(known, np.arange(1, _QUANTILES) / _QUANTILES, method="nearest"))
            missing: list[Label] = [None] if _blank(first) or _blank(second) else []
            return _cut(first, edges), _cut(second, edges), [*_intervals(edges), *missing]
    return number_pair(truth, release, name, missing="number")


def _blank(array: pa.Array) -> bool:
    return bool(array.null_count)


def _cut(array: pa.Array, edges: NDArray[np.float64]) -> NDArray[np.int64]:
    numbers = to_numbers(array).astype(np.float64)
    codes = np.searchsorted(edges, numbers, side="right")
    return np.where(np.isnan(numbers), edges.size + 1, codes).astype(np.int64)


def _intervals(edges: NDArray[np.float64]) -> list[Label]:
    ends = [f"{edge:g}" for edge in edges.tolist()]
    between = [f"[{low}, {high})" for low, high in pairwise(ends)]
    return [f"below {ends[0]}", *between, f"{ends[-1]} and more"]


def _labels(column: Column) -> Sequence[Label]:
    if not column.extras:
        match column.domain:
            case IntegerRange(low, high):
                return range(low, high + 1)
            case Period():
                return range(column.domain.span.low, column.domain.span.high + 1)
    return column.labels


def _weights(table: pa.Table, weight: str | None, side: str) -> NDArray[np.float64] | None:
    if weight is None or weight not in table.column_names:
        return None
    weights = measure(table, weight, side=side)
    if weights.size and weights.min() < 0:
        raise MetricError(f"{side}: column {weight!r} holds negative counts; set them to 0 first")
    return weights


def _units(table: pa.Table, unit: str | None) -> NDArray[np.int64] | None:
    if unit is None:
        return None
    require_columns(table, [unit], side="truth")
    return number_column(table, unit)


def _require_weight(weight: str | None, names: list[str]) -> None:
    if weight is not None and weight not in names:
        raise MetricError(f"neither table has the column of weights {weight!r}")


def _has(table: pa.Table, names: tuple[str, ...]) -> bool:
    return all(name in table.column_names for name in names)
