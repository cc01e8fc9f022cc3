"""Public grids, from which bounds are chosen that nobody has declared.

The bounds of values are two edges of a grid of magnitudes: both signs, zero between them, and half octaves:
1, 1.5, 2, 3, 4, 6 and so on. A record is counted by the interval of the grid that its value lies in.

The bound on records is a power of two. Individuals are counted by how many records they have in what a
statement reads: each of them once. From the noisy counts follows which bound loses least, records that are
cut and noise together.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.measures import CAPS, LARGEST

MARK = "BOUNDED_PRIVATELY"
"""The function that `x BOUNDED PRIVATELY` is read as."""

_FIRST, _LAST = -20, 31
_HALVES = tuple(Fraction(2) ** power * part for power in range(_FIRST, _LAST) for part in (1, Fraction(3, 2)))
EDGES = (*(-edge for edge in (Fraction(2) ** _LAST, *_HALVES[::-1])), *_HALVES, Fraction(2) ** _LAST)
"""The edges of the intervals, in ascending order; the one in the middle is around zero."""

INTERVALS = len(EDGES) - 1
_ZERO = bisect_right(EDGES, 0) - 1


def is_marked(node: object) -> bool:
    """Whether `node` is an operand whose bounds are to be chosen.

    >>> is_marked(exp.Anonymous(this="bounded_privately"))
    True
    """
    return isinstance(node, exp.Anonymous) and node.name.upper() == MARK


def unmark(node: exp.Expr) -> exp.Expr:
    """The operand that a mark stands around."""
    return node.expressions[0] if is_marked(node) and len(node.expressions) == 1 else node


def choose_interval(noisy_counts: NDArray[np.int64], threshold: float) -> tuple[int, int]:
    """The first and the last interval whose noisy count reaches the threshold; the fullest if none does."""
    found = np.flatnonzero(noisy_counts >= threshold)
    if not found.size:
        found = np.array([int(np.argmax(noisy_counts))])
    return int(found[0]), int(found[-1])


def bounds_around(first: int, last: int) -> tuple[Fraction, Fraction]:
    """The bounds that hold the intervals from `first` to `last`.

    Zero is a bound where all that was found is on one side of it.

    >>> [str(bound) for bound in bounds_around(_ZERO, _ZERO + 41)]
    ['0', '3/2']
    """
    low = Fraction(0) if first == _ZERO else EDGES[first]
    high = Fraction(0) if last == _ZERO else EDGES[last + 1]
    if low == high:
        high = EDGES[_ZERO + 1]
    return low, high


def grid_between(low: Fraction, high: Fraction, centre: Fraction) -> int:
    """Steps in one unit, so that nothing between the bounds is more than LARGEST steps from the centre."""
    return 2 * int(LARGEST // (2 * max(abs(low - centre), abs(high - centre))))


def choose_cap(noisy_counts: NDArray[np.int64], threshold: float, *, noise: Fraction) -> int:
    """The bound that loses least: records of individuals that are cut, and `noise` for each record allowed.

    Counts below the threshold may be noise alone, and count for nothing.
    """
    counts = np.where(noisy_counts >= threshold, noisy_counts, 0).astype(float)
    # Those between two bounds have about three quarters of the upper one.
    records = np.array([1.0, *(0.75 * cap for cap in CAPS[1:])])
    losses = [float((counts * np.maximum(records - cap, 0)).sum()) + float(noise) * cap for cap in CAPS]
    return CAPS[losses.index(min(losses))]
