"""Synthetic rows: what all recipes share that make a table of rows out of a model's codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sfumato.inference import Domain
from sfumato.inference.model import assign_identifiers, draw_places
from sfumato.recipes.base import column_labels, released_names
from sfumato.schema import Bins
from sfumato.tables.arrays import label_array, to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from sfumato.schema import Column, Table

__all__ = [
    "WithinBins",
    "assign_identifiers",
    "build_rows",
    "find_zeros",
    "has_numbers",
    "mark_epsilon",
    "model_domain",
    "name_rows",
    "tell_bins",
]

WithinBins = dict[str, tuple[tuple[float, ...], ...]]
"""By column, for every bin, the values of a public table that fall into it, evenly spaced and sorted."""

_FINE = 1000  # steps in the narrowest bin, for numbers that are not whole


def model_domain(table: Table, columns: Sequence[str]) -> Domain:
    """The domain of a model of `columns`."""
    return Domain({name: table.column(name).size for name in columns})


def find_zeros(table: Table, columns: Sequence[str]) -> list[tuple[tuple[str, ...], NDArray[np.bool_]]]:
    """The cells that the schema says no record can be in: columns and a mask over their cells."""
    zeros = []
    for rule in table.impossible:
        if set(rule) <= set(columns):
            mask = np.ones(1, np.bool_)
            for name, labels in rule.items():
                listed = np.array([label in labels for label in table.column(name).labels])
                mask = np.logical_and.outer(mask, listed).reshape(-1)
            zeros.append((tuple(rule), mask))
    return zeros


def name_rows(table: Table, columns: Sequence[str]) -> list[str]:
    """The names of the columns that `build_rows` makes."""
    return released_names(table, tuple(columns))


def build_rows(
    table: Table,
    columns: Sequence[str],
    codes: Mapping[str, NDArray[np.int64]],
    *,
    seed: int,
    turn: int = 0,
    public: WithinBins | None = None,
) -> pa.Table:
    """The rows that `codes` stand for, in the columns of the table.

    Listed values, ranges and periods are released as they are, combinations as the columns they
    combine. A bin becomes a number within it: one of the values of `public` in that bin, if there are
    any, otherwise any number of it with equal chance. Numbers are whole if all edges of the column are.
    The first and the last bin may be wider than their neighbours only to catch the rest; where they
    are, numbers are drawn next to the neighbour, over its width. A binned column with
    `outside = "other"` is released as text, the interval, because no number stands for `other`. Rows
    that are built in several turns say which columns came before, so that none share their draws.
    """
    released: dict[str, pa.Array] = {}
    for place, name in enumerate(columns, start=turn + 1):
        column = table.column(name)
        if has_numbers(column):
            places = draw_places(codes[name].size, seed=seed, turn=place)
            known = (public or {}).get(name)
            released[name] = to_arrow(_place_in_bins(column, codes[name], places, known))
            continue
        for label_name, labels in column_labels(column).items():
            released[label_name] = label_array(codes[name].astype(np.int32), labels)
    return pa.table(released)


def mark_epsilon(rows: pa.Table, epsilon: Fraction) -> pa.Table:
    """The rows with their epsilon as the first column, for releases of several."""
    return rows.add_column(0, "epsilon", to_arrow(np.full(rows.num_rows, float(epsilon))))


def has_numbers(column: Column) -> bool:
    """Whether rows hold a number within a bin of `column`."""
    return isinstance(column.domain, Bins) and not column.extras


def tell_bins(table: Table, columns: Sequence[str], public: WithinBins | None) -> str:
    """A sentence for the write-up about where numbers within bins come from, if there are any."""
    numbers = [name for name in columns if has_numbers(table.column(name))]
    if not numbers:
        return ""
    known = [name for name in numbers if name in (public or {})]
    drawn = [name for name in numbers if name not in known]
    parts = []
    if known:
        parts.append(f"from the values of a public table ({', '.join(known)})")
    if drawn:
        parts.append(f"with equal chance ({', '.join(drawn)})")
    return f"Numbers within bins are drawn {' or '.join(parts)}."


def _place_in_bins(
    column: Column,
    codes: NDArray[np.int64],
    places: NDArray[np.float64],
    public: tuple[tuple[float, ...], ...] | None,
) -> NDArray[Any]:
    assert isinstance(column.domain, Bins)
    edges = column.domain.edges
    whole = all(edge.denominator == 1 for edge in edges) and max(map(abs, edges)) < 2**53
    if whole:
        first, count = _whole_numbers([int(edge) for edge in edges])
        values = first[codes] + np.floor(places * count[codes]).astype(np.int64)
        return values if public is None else _replace_known(values, codes, places, public)
    low, width = _widths([float(edge) for edge in edges])
    digits = int(max(0, np.ceil(-np.log10(width.min() / _FINE))))
    numbers = low[codes] + places * width[codes]
    if digits <= 15:
        numbers = np.round(numbers, digits)
    ends = np.array([float(edge) for edge in edges])
    last = codes == ends.size - 2
    highest = np.where(last, ends[codes + 1], np.nextafter(ends[codes + 1], -np.inf))
    numbers = np.clip(numbers, ends[codes], highest)
    return numbers if public is None else _replace_known(numbers, codes, places, public)


def _whole_numbers(edges: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first whole number of every bin, and how many may be drawn."""
    ends = np.array(edges, np.int64)
    first, count = ends[:-1].copy(), ends[1:] - ends[:-1]
    if count.size > 1:
        if count[0] > count[1]:
            first[0] += count[0] - count[1]
            count[0] = count[1]
        if count[-1] > count[-2]:
            count[-1] = count[-2]
            return first, count
    count[-1] += 1  # the last bin holds its upper edge
    return first, count


def _widths(edges: list[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lower end of every bin, and how far above it numbers are drawn."""
    low, width = np.array(edges[:-1]), np.diff(np.array(edges))
    if width.size > 1:
        if width[0] > width[1]:
            low[0] += width[0] - width[1]
            width[0] = width[1]
        width[-1] = min(width[-1], width[-2])
    return low, width


def _replace_known(
    values: NDArray[Any],
    codes: NDArray[np.int64],
    places: NDArray[np.float64],
    public: tuple[tuple[float, ...], ...],
) -> NDArray[Any]:
    sizes = np.array([len(each) for each in public], np.int64)
    starts = np.cumsum(sizes) - sizes
    flat = np.array([value for each in public for value in each], values.dtype)
    if flat.size:
        known = sizes[codes] > 0
        chosen = starts[codes] + np.floor(places * sizes[codes]).astype(np.int64)
        values[known] = flat[chosen[known]]
    return values
