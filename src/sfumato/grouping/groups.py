"""Groups of columns for one histogram each, found in a public table.

Columns kept apart lose what they tell about each other. Columns put together lose the records in cells too
small for the noise. Both are distances in total variation, so they can be weighed: two groups are joined
while that brings the pairs of columns of the release, taken together, nearer to those of the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.grouping.association import MEASURE, measure_association
from sfumato.grouping.partition import make_partition
from sfumato.grouping.search import GroupSearch
from sfumato.grouping.spread import Noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MOST_ROWS = 200_000
"""Of a larger public table, as many rows are looked at, evenly spaced."""

_MOST_APART = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Columns that share a histogram; `association` is the mean over their pairs, None for one column.

    `error` is the expected distance of the released histogram from the true one, in total variation.
    """

    columns: tuple[str, ...]
    cells: int
    association: float | None
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Two associated columns of different groups, the cells these groups would have together, and why."""

    columns: tuple[str, str]
    association: float
    cells: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """The groups found, and what they were found by.

    `association` is the matrix for `columns`, which are in the order of the table. `error` is the
    expected distance of a pair of columns of the release from that of the table, `error_alone` the same
    with every column by itself.
    """

    groups: tuple[Group, ...]
    columns: tuple[str, ...]
    association: NDArray[np.float64]
    measure: str
    rows: int
    apart: tuple[Apart, ...]
    error: float
    error_alone: float


def find_groups(
    codes: Mapping[str, NDArray[np.int64]],
    sizes: Mapping[str, int],
    *,
    epsilon: float = 1.0,
    sensitivity: float = 1.0,
    records: int | None = None,
    cut: float = 2.3,
    max_cells: int = 1_000_000,
    max_columns: int | None = None,
    least: float = 0.1,
) -> Grouping:
    """Groups of associated columns, each with at most `max_cells` combinations of values.

    `codes` holds, per column of a public table, a code for every row, negative where a row has no value
    of the domain; `sizes` the sizes of the domains. Two groups may be joined if the mean association between
    their columns is at least `least`. Of these joins the best is made, and then the next, as long as they
    help a release of `records` records (as many as the public table has, unless stated) at `epsilon`,
    where each group has an equal share and counts under `cut` x scale x log10(cells) are cut.

    Privacy: groups are part of the recipe, so they must not depend on the private table. The codes must
    come from a table that is public and about nobody in the private one.

    >>> rows = np.arange(6000)
    >>> codes = {"month": rows % 12, "day": rows % 7, "quarter": rows % 12 // 3}
    >>> found = find_groups(codes, {"month": 12, "day": 7, "quarter": 4})
    >>> [(group.columns, group.cells) for group in found.groups]
    [(('month', 'quarter'), 48), (('day',), 7)]
    """
    names = tuple(codes)
    arrays = _check_codes(codes, sizes)
    _check_options(
        epsilon=epsilon,
        sensitivity=sensitivity,
        records=records,
        cut=cut,
        max_cells=max_cells,
        max_columns=max_columns,
        least=least,
    )
    rows = arrays[0].size
    looked = min(rows, MOST_ROWS)
    if looked < rows:
        places = np.arange(looked) * rows // looked
        arrays = [each[places] for each in arrays]
    partitions = [make_partition(each) for each in arrays]
    association = measure_association(partitions)
    search = GroupSearch(
        partitions,
        [int(sizes[name]) for name in names],
        association,
        noise=Noise(
            epsilon=float(epsilon),
            sensitivity=float(sensitivity),
            records=float(rows if records is None else records),
            rows=looked,
            cut=float(cut),
        ),
        max_cells=max_cells,
        max_columns=max_columns,
        least=least,
    )
    alone = search.pair_error()
    search.join_all()
    groups = sorted(search.groups(), key=lambda each: (len(each.members) == 1, each.members))
    return Grouping(
        groups=tuple(
            Group(
                columns=tuple(names[place] for place in each.members),
                cells=each.cells,
                association=_mean_inside(association, each.members),
                error=each.error,
            )
            for each in groups
        ),
        columns=names,
        association=association,
        measure=MEASURE,
        rows=rows,
        apart=_find_apart(names, association, search, least=least),
        error=search.pair_error(),
        error_alone=alone,
    )


def _mean_inside(association: NDArray[np.float64], members: tuple[int, ...]) -> float | None:
    if len(members) == 1:
        return None
    inside = association[np.ix_(members, members)]
    return float(inside[np.triu_indices(len(members), 1)].mean())


def _find_apart(
    names: Sequence[str], association: NDArray[np.float64], search: GroupSearch, *, least: float
) -> tuple[Apart, ...]:
    """The strongest pairs of columns in different groups, and why their groups were not joined."""
    first, second = np.triu_indices(len(names), 1)
    values = association[first, second]
    home = {place: slot for slot, each in enumerate(search.groups()) for place in each.members}
    groups = search.groups()
    apart: list[Apart] = []
    for at in np.argsort(-values, kind="stable"):
        if values[at] < least or values[at] <= 0 or len(apart) == _MOST_APART:
            break
        i, j = int(first[at]), int(second[at])
        if home[i] == home[j]:
            continue
        apart.append(
            Apart(
                columns=(names[i], names[j]),
                association=float(values[at]),
                cells=groups[home[i]].cells * groups[home[j]].cells,
                reason=search.refusal(home[i], home[j]),
            )
        )
    return tuple(apart)


def _check_codes(codes: Mapping[str, NDArray[np.int64]], sizes: Mapping[str, int]) -> list[NDArray[np.int64]]:
    if not codes:
        raise RecipeError("there is no column to group")
    arrays = [np.asarray(each) for each in codes.values()]
    if len({each.shape for each in arrays}) > 1 or arrays[0].ndim != 1 or not arrays[0].size:
        raise RecipeError("columns to group need codes for the same rows, and at least one row")
    for name, each in zip(codes, arrays, strict=True):
        if each.dtype.kind not in "iu" or name not in sizes or int(each.max()) >= sizes[name]:
            raise RecipeError(f"column {name!r} needs whole codes below the size of its domain")
    return [each.astype(np.int64) for each in arrays]


def _check_options(
    *,
    epsilon: float,
    sensitivity: float,
    records: int | None,
    cut: float,
    max_cells: int,
    max_columns: int | None,
    least: float,
) -> None:
    for key, value in (("epsilon", epsilon), ("sensitivity", sensitivity), ("cut", cut)):
        if not (math.isfinite(value) and value > 0):
            raise RecipeError(f"{key} must be a number above zero")
    for key, whole in (("records", records), ("max_cells", max_cells), ("max_columns", max_columns)):
        if whole is not None and whole < 1:
            raise RecipeError(f"{key} must be at least 1")
    if not 0 <= least <= 1:
        raise RecipeError("least must lie between 0 and 1: associations do")
