"""Synthetic rows: what recipes share that make a table of rows out of codes.

All draws here are post-processing from a public seed: the same codes and the same seed give the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from sfumato.errors import RecipeError
from sfumato.inference import Domain
from sfumato.recipes.base import Options, column_labels, require_whole
from sfumato.recipes.public import WithinBins, has_numbers, parse_public, public_values, read_public
from sfumato.schema import Bins
from sfumato.tables.arrays import label_array, to_arrow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.schema import Column, Table

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
        require_whole(self.seed, f"{self.kind}: seed")
        if self.rows is not None:
            require_whole(self.rows, f"{self.kind}: rows")

    @property
    def within_bins(self) -> WithinBins:
        """The public values within bins, once the recipe is planned."""
        return public_values(self.public if isinstance(self.public, Mapping) else None)

    def with_public(
        self, table: Table, columns: Sequence[str], *, identifiers_by: Sequence[str] | None = None
    ) -> Self:
        """The recipe with what it needs of its public table in place of the file's name.

        So the plan alone states all that the release depends on.
        """
        if not isinstance(self.public, str):
            return self
        return replace(self, public=read_public(self.public, table, columns, groups=identifiers_by))


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
            places = _generator(seed, place).random(codes[name].size)
            known = (public or {}).get(name)
            released[name] = to_arrow(_place_in_bins(column, codes[name], places, known))
            continue
        for label_name, labels in column_labels(column).items():
            released[label_name] = label_array(codes[name].astype(np.int32), labels)
    return pa.table(released)


def describe_bins(table: Table, columns: Sequence[str], public: WithinBins | None) -> str:
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


def draw_codes(shares: NDArray[np.float64], count: int, *, seed: int, turn: int) -> NDArray[np.int64]:
    """`count` places in `shares`, in these proportions to within rounding, in random order.

    >>> sorted(draw_codes(np.array([1.0, 3.0]), 4, seed=0, turn=1).tolist())
    [0, 1, 1, 1]
    """
    generator = _generator(seed, 2**16 + turn)
    total = float(shares.sum())
    running = np.cumsum(shares) / total if total > 0 else np.arange(1, shares.size + 1) / shares.size
    ends = np.floor(running * count + generator.random())
    ends[-1] = count
    uses = np.diff(np.minimum(ends, count), prepend=0).astype(np.int64)
    return generator.permutation(np.repeat(np.arange(shares.size), uses))


def assign_identifiers(
    groups: NDArray[np.int64],
    *,
    most: int,
    seed: int,
    public: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> NDArray[np.int64]:
    """An identifier for every row, none on more than `most` rows.

    `public` gives the group and the identifier, at least 0, of the rows of a public table. Within a group
    they are shuffled, repeated as often as needed, and paired with the shuffled rows. A row whose group
    has no public row, or whose identifier has `most` rows already, gets a new one of its own. Without
    `public` new identifiers are dealt to shuffled rows, `most` rows each.

    >>> assign_identifiers(np.zeros(4, np.int64), most=2, seed=0).tolist().count(0)
    2
    """
    if most < 1:
        raise RecipeError("an identifier needs at least one row")
    rows = groups.size
    generator = _generator(seed, 0)
    shuffled = generator.permutation(rows)
    result = np.empty(rows, np.int64)
    if public is None:
        result[shuffled] = np.arange(rows) // most
        return result
    order = shuffled[np.argsort(groups[shuffled], kind="stable")]
    public_groups, public_identifiers = public
    stirred = generator.permutation(public_groups.size)
    stirred = stirred[np.argsort(public_groups[stirred], kind="stable")]
    wanted = groups[order]
    first = np.searchsorted(public_groups[stirred], wanted, side="left")
    offered = np.searchsorted(public_groups[stirred], wanted, side="right") - first
    place = np.arange(rows) - np.searchsorted(wanted, wanted, side="left")
    found = offered > 0
    given = np.full(rows, -1, np.int64)
    given[found] = public_identifiers[stirred[(first + place % np.maximum(offered, 1))[found]]]
    # Which rows an identifier keeps is decided by chance, not by their group.
    stirred_rows = generator.permutation(rows)
    by_identifier = stirred_rows[np.argsort(given[stirred_rows], kind="stable")]
    sorted_given = given[by_identifier]
    turn = np.arange(rows) - np.searchsorted(sorted_given, sorted_given, side="left")
    new = np.empty(rows, np.bool_)
    new[by_identifier] = (turn >= most) | (sorted_given < 0)
    next_free = int(public_identifiers.max(initial=-1)) + 1
    given[new] = next_free + np.arange(int(new.sum()))
    result[order] = given
    return result


def _generator(seed: int, turn: int) -> np.random.Generator:
    """A generator for one column; every `turn` has draws of its own."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, turn))))


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
