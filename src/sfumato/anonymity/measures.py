"""How a sensitive column is spread over classes: diversity, closeness, disclosure, from counts alone.

Every measure is the worst over all classes. They are computed from the pairs of a class and a value that
occur, so that a column of many values costs no more than its records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Distance = Literal["equal", "ordered"]
"""Equal: all values are as far apart. Ordered: neighbours are near, and the ends are 1 apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """What classes tell of one sensitive column; a missing value is a value of its own.

    - `values`: the number of different values in the whole table;
    - `l`: the smallest number of different values in a class;
    - `entropy_l`: exp of the smallest entropy of a class;
    - `t`: the largest distance between the shares of a class and those of the table;
    - `delta_disclosure`: the largest |log(share in a class / share in the table)| over all values of the
      table, infinite where a class lacks one of them;
    - `dominance`: for each number from 1 to `l`, the largest ratio of a class's most frequent value to all
      its values from the so many-th on.
    """

    column: str
    values: int
    l: int  # noqa: E741 - the field's word
    entropy_l: float
    t: float
    distance: Distance
    delta_disclosure: float
    dominance: tuple[float, ...] = field(repr=False)

    def is_recursive(self, c: float, l: int) -> bool:  # noqa: E741 - the field's word
        """Whether in every class the most frequent value is rarer than `c` times those from the l-th on."""
        return 1 <= l <= len(self.dominance) and self.dominance[l - 1] < c

    def to_record(self) -> dict[str, Any]:
        """The measures for JSON, in which an infinite one is None."""
        finite = math.isfinite(self.delta_disclosure)
        return {
            "column": self.column,
            "values": self.values,
            "l": self.l,
            "entropy_l": self.entropy_l,
            "t": self.t,
            "distance": self.distance,
            "delta_disclosure": self.delta_disclosure if finite else None,
        }


def measure_spread(
    column: str,
    classes: NDArray[np.int64],
    codes: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    distance: Distance = "equal",
) -> Diversity:
    """The measures of a column whose values, in their order, have the `codes` 0, 1, ... in these classes.

    >>> found = measure_spread("ill", np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1, 1, 2]))
    >>> found.l, found.t, found.delta_disclosure
    (1, 0.25, inf)
    """
    values = int(codes.max(initial=-1)) + 1
    if not values:
        return Diversity(
            column=column,
            values=0,
            l=0,
            entropy_l=0.0,
            t=0.0,
            distance=distance,
            delta_disclosure=0.0,
            dominance=(),
        )
    keys, place = np.unique(classes * values + codes, return_inverse=True)
    found = np.bincount(place.reshape(-1), counts).astype(np.int64)
    of_class, of_value = np.divmod(keys, values)
    sizes = np.bincount(of_class, found)
    different = np.bincount(of_class)
    table = np.bincount(of_value, found, minlength=values) / found.sum()
    shares = found / sizes[of_class]
    entropies = np.bincount(of_class, -shares * np.log(shares))
    apart = _ordered if distance == "ordered" else _equal
    full = bool((different == values).all())
    ratios = np.abs(np.log(shares / table[of_value]))
    return Diversity(
        column=column,
        values=values,
        l=int(different.min()),
        entropy_l=math.exp(float(entropies.min())),
        t=float(apart(of_class, of_value, found, sizes, table).max()),
        distance=distance,
        delta_disclosure=float(ratios.max()) if full else math.inf,
        dominance=_find_dominance(of_class, found, int(different.min())),
    )


def _equal(
    of_class: NDArray[np.int64],
    of_value: NDArray[np.int64],
    found: NDArray[np.int64],
    sizes: NDArray[Any],
    table: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The total variation distance of each class: only a value that a class has can be too frequent."""
    excess = np.maximum(found / sizes[of_class] - table[of_value], 0)
    return np.minimum(np.bincount(of_class, excess), 1.0)


def _ordered(
    of_class: NDArray[np.int64],
    of_value: NDArray[np.int64],
    found: NDArray[np.int64],
    sizes: NDArray[Any],
    table: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The earth mover's distance of each class, neighbours being 1 / (values - 1) apart.

    It is the sum, over all values, of how far the share of records up to that value is from the table's.
    Between two values that a class has, its own share stays the same and the table's grows: they cross at
    one place, and sums on both sides of it come from sums of the table's shares.
    """
    values = table.size
    if values == 1:
        return np.zeros(sizes.size)
    below = np.cumsum(table)
    sums = np.concatenate([[0.0], np.cumsum(below)])
    first = np.flatnonzero(np.diff(of_class, prepend=-1))
    running = np.cumsum(found)
    before = np.repeat(running[first] - found[first], np.diff(np.append(first, found.size)))
    share = (running - before) / sizes[of_class]
    stop = np.append(of_value[1:], values)
    stop[np.append(first[1:], found.size) - 1] = values
    cross = np.clip(np.searchsorted(below, share), of_value, stop)
    lower = share * (cross - of_value) - (sums[cross] - sums[of_value])
    upper = (sums[stop] - sums[cross]) - share * (stop - cross)
    total = np.bincount(of_class, lower + upper) + sums[of_value[first]]
    return np.asarray(np.clip(total / (values - 1), 0.0, 1.0))


def _find_dominance(of_class: NDArray[np.int64], found: NDArray[np.int64], most: int) -> tuple[float, ...]:
    """For each l up to `most`, the largest ratio of the highest count of a class to those from l on."""
    order = np.lexsort((-found, of_class))
    counts, groups = found[order], of_class[order]
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    lengths = np.diff(np.append(first, counts.size))
    rank = np.arange(counts.size) - np.repeat(first, lengths)
    running = np.cumsum(counts)
    total = np.repeat(running[first + lengths - 1], lengths)
    rest = total - running + counts
    highest = np.repeat(counts[first], lengths)
    chosen = rank < most
    worst = np.zeros(most)
    np.maximum.at(worst, rank[chosen], highest[chosen] / rest[chosen])
    return tuple(worst.tolist())
