"""Synthetic rows: what recipes share that make a table of rows out of codes.

All draws here are post-processing from a public seed: the same codes and the same seed give the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.exact import parse_whole
from sfumato.inference import Domain
from sfumato.inference.model import draw_places
from sfumato.recipes.base import Options, column_labels
from sfumato.recipes.public import WithinBins, has_numbers, parse_public, public_values, read_public
from sfumato.recipes.repair import check_rules, settle_numbers
from sfumato.recipes.rules import active_rules
from sfumato.schema import Bins, Column, Table
from sfumato.tables.arrays import hide_values, label_array, to_arrow

_FINE = 1000  # steps in the narrowest bin, for numbers that are not whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions(Options):
    """What recipes that release synthetic rows have in common.

    `public` names a table for values within bins; in a planned recipe it is what was read of that table.
    `seed` is the public seed of all draws, `rows` the number of rows, by default the estimated one.
    """

    public: Any = None
    seed: int = 0
    rows: int | None = None

    def __post_init__(self) -> None:
        self._keep(public=parse_public(self.public, where=f"{self.kind}: public"))
        self._keep(seed=parse_whole(self.seed, name=f"{self.kind}: seed", low=0))
        if self.rows is not None:
            self._keep(rows=parse_whole(self.rows, name=f"{self.kind}: rows", low=0))

    @property
    def within_bins(self) -> WithinBins:
        """The public values within bins, once the recipe is planned."""
        return public_values(self.public if isinstance(self.public, Mapping) else None)

    def with_public(
        self, table: Table, columns: Sequence[str], *, identifiers_by: Sequence[str] | None = None
    ) -> Self:
        """The recipe with what it needs of its public table in place of the file's name.

        So the plan alone states all that the release depends on. Rules that leave no row are refused.
        """
        check_rules(table, columns)
        if not isinstance(self.public, str):
            return self
        return replace(self, public=read_public(self.public, table, columns, groups=identifiers_by))


def model_domain(table: Table, columns: Sequence[str]) -> Domain:
    """The domain of a model of `columns`."""
    return Domain({name: table.column(name).size for name in columns})


def build_rows(
    table: Table,
    columns: Sequence[str],
    codes: Mapping[str, NDArray[np.int64]],
    *,
    seed: int,
    places: Mapping[str, int] | None = None,
    public: WithinBins | None = None,
) -> pa.Table:
    """The rows that `codes` stand for, in the `columns` of `table`.

    `seed` decides what is drawn, for every column by its number, which `places` may give.
    Listed values, ranges and periods are released as they are, combinations as the columns they
    combine. A bin becomes a number within it: one of the values of `public` in that bin, if there are
    any, otherwise any number of it with equal chance, or along the column's smooth density. Numbers are
    whole if all edges of the column are.
    The first and the last bin may be wider than their neighbours only to catch the rest; where they
    are, numbers are drawn next to the neighbour, over its width. A binned column with
    `outside = "other"` is released as text, the interval, because no number stands for `other`. Numbers
    obey the rules of the table. A missing value of a nullable column is NULL.
    """
    turns = places or {name: place for place, name in enumerate(columns, start=1)}

    def draw_numbers(name: str, drawn: NDArray[np.int64], turn: int = 0) -> NDArray[Any]:
        chances = draw_places(drawn.size, seed=seed, turn=turn + turns[name])
        column = table.column(name)
        known = np.minimum(drawn, column.size - len(column.extras) - 1)
        if name in tilts:
            chances = _tilt_places(chances, tilts[name][known])
        return _place_in_bins(column, known, chances, (public or {}).get(name))

    codes = dict(codes)
    tilts = {
        name: _find_tilts(table.column(name), codes[name])
        for name in columns
        if table.column(name).density == "smooth" and name not in (public or {})
    }
    numbers = {name: draw_numbers(name, codes[name]) for name in columns if has_numbers(table.column(name))}
    settle_numbers(table, columns, codes, numbers, draw_numbers, seed=seed)
    released: dict[str, pa.Array] = {}
    for name in columns:
        column = table.column(name)
        if name in numbers or column.nullable:
            released[name] = _hide_missing(column, codes[name], numbers.get(name))
            continue
        for label_name, labels in column_labels(column).items():
            released[label_name] = label_array(codes[name].astype(np.int32), labels)
    return pa.table(released)


def _hide_missing(column: Column, codes: NDArray[np.int64], numbers: NDArray[Any] | None) -> pa.Array:
    """The numbers, or labels in their own type, with NULL where a value is missing."""
    assert column.domain is not None
    size = column.domain.size
    if numbers is not None:
        return hide_values(to_arrow(numbers), codes >= size)
    labels = label_array(np.minimum(codes, size - 1).astype(np.int32), column.domain.labels)
    return hide_values(labels, codes >= size)


def describe_bins(table: Table, columns: Sequence[str], public: WithinBins | None) -> str:
    """What the write-up says of numbers within bins and of rules, if there are any."""
    ruled = len(active_rules(table, columns))
    told = (
        f"Rows obey {ruled} stated {'rule' if ruled == 1 else 'rules'}, by public knowledge. "
        if ruled
        else ""
    )
    numbers = [name for name in columns if has_numbers(table.column(name))]
    if not numbers:
        return told.rstrip()
    known = [name for name in numbers if name in (public or {})]
    smooth = [name for name in numbers if name not in known and table.column(name).density == "smooth"]
    drawn = [name for name in numbers if name not in (*known, *smooth)]
    parts = []
    if known:
        parts.append(f"from the values of a public table ({', '.join(known)})")
    if smooth:
        parts.append(f"along lines that follow the counts of neighbouring bins ({', '.join(smooth)})")
    if drawn:
        parts.append(f"with equal chance ({', '.join(drawn)})")
    return f"{told}Numbers within bins are drawn {' or '.join(parts)}."


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
        ends = np.array([int(edge) for edge in edges], np.int64)
        first, count = _clip_outer_bins(ends)
        if count[-1] == ends[-1] - ends[-2]:
            count[-1] += 1  # the last bin holds its upper edge
        values = first[codes] + np.floor(places * count[codes]).astype(np.int64)
        return values if public is None else _replace_known(values, codes, places, public)
    ends = np.array([float(edge) for edge in edges])
    low, width = _clip_outer_bins(ends)
    digits = int(max(0, np.ceil(-np.log10(width.min() / _FINE))))
    numbers = low[codes] + places * width[codes]
    if digits <= 15:
        numbers = np.round(numbers, digits)
    last = codes == ends.size - 2
    highest = np.where(last, ends[codes + 1], np.nextafter(ends[codes + 1], -np.inf))
    numbers = np.clip(numbers, ends[codes], highest)
    return numbers if public is None else _replace_known(numbers, codes, places, public)


def _find_tilts(column: Column, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """For every bin how its density rises, from -1 (to nothing at its upper end) to 1 (from nothing).

    The density is a line within a bin that keeps the bin's count. Its slope is the smaller of those to the
    densities of both neighbours, or none between a rise and a fall (the minmod limiter of finite volumes),
    so that no bump appears that the counts do not have. An outer bin of which only a part is used stays
    even: it holds the numbers of the rest, too, and a line would move them further from where they are.
    """
    assert isinstance(column.domain, Bins)
    ends = np.array([float(edge) for edge in column.domain.edges])
    low, width = _clip_outer_bins(ends)
    bins = width.size
    height = np.bincount(codes[codes < bins], minlength=bins) / width
    if bins == 1:
        return np.zeros(1)
    slopes = np.diff(height) / np.diff(low + width / 2)
    before, after = np.append(slopes[0], slopes), np.append(slopes, slopes[-1])
    nearer = np.where(np.abs(before) < np.abs(after), before, after)
    slope = np.where(before * after > 0, nearer, 0.0)
    rise = np.divide(slope * width, 2 * height, out=np.zeros(bins), where=height > 0)
    return np.where(width < np.diff(ends), 0.0, np.clip(rise, -1.0, 1.0))


def _tilt_places(places: NDArray[np.float64], tilts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places in [0, 1) with the density 1 + tilt (2 place - 1), from evenly spread ones."""
    level = 1 - tilts
    root = level + np.sqrt(level**2 + 4 * tilts * places)
    tilted = np.divide(2 * places, root, out=np.zeros_like(places), where=root > 0)
    return np.minimum(tilted, np.nextafter(1.0, 0.0))


def _clip_outer_bins(ends: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The lower end of every bin, and its width; the outer bins are as wide as their neighbours at most."""
    low, width = ends[:-1].copy(), np.diff(ends)
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
