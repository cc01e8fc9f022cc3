"""How many individuals there are of each size, from noisy counts of which most may be noise alone."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from sfumato.core.law import Law
from sfumato.tables.arrays import Floats, Whole

_STRAY = 1e-3
_ABOVE = 2  # intervals above the last in which people are seen


def find_people(noisy_counts: Whole, law: Law) -> Floats:
    """How many individuals are in each of ascending intervals, as far as noise of this `law` tells.

    The few who are just above all that is seen for certain would be cut without a word, so that two further
    intervals are taken as they are.

    >>> from sfumato.core.law import make_law
    >>> law = make_law("laplace", 5)
    >>> find_people(np.array([4, 910, 60, 2, -7]), law).tolist()
    [0.0, 910.0, 60.0, 2.0, 0.0]
    """
    noisy = noisy_counts.astype(float)
    counts = np.zeros(noisy.size)
    # One threshold for the sums of all sizes that may be looked at.
    share = _STRAY / (2 * noisy.size)
    spread = NormalDist().inv_cdf(1 - share / 2) * law.deviation

    def look(first: int, last: int) -> None:
        # Where individuals are between the two, by halves as noise allows. Few of them in one interval are
        # seen there, although they are lost in the noise of all.
        width, total = last - first, float(noisy[first:last].sum())
        if width > 1:
            look(first, (first + last) // 2)
            look((first + last) // 2, last)
        # Of one draw the tail of its law, of many that of their sum: few of Laplace noise are no normal law.
        least = math.hypot(law.half_width(share), spread * math.sqrt(max(0, width - 1)))
        if total > least and not counts[first:last].any():
            counts[(first + last - 1) // 2] = total

    look(0, noisy.size)
    if counts.any():
        above = slice(top := int(np.flatnonzero(counts)[-1]) + 1, top + _ABOVE)
        counts[above] = np.maximum(noisy[above], 0)
    return counts
