"""How many individuals there are of each size, from noisy counts of which most may be noise alone."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from sfumato.core.law import Law
from sfumato.tables.arrays import Floats, Whole

_STRAY = 1e-3
_ABOVE = 2  # intervals above the last in which people are seen
_RATES = np.geomspace(0.3, 40, 60)  # at which numbers fall with the logarithm of sizes: Pareto's shapes
_LIKELY = 2.706  # by how much -2 log(likelihood) may be less likely than the best: one side of 95 %
_SLOWER = 0.9  # above what is seen, numbers are taken to fall at no less than so much of the rate
_SEEN = 2.0  # standard deviations by which numbers must stand out
_LONGEST = 10  # intervals in which people are seen that rates are looked for in


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


def fit_tail(
    noisy_counts: Whole,
    law: Law,
    *,
    last: int,
    spans: Floats,
    weights: Floats,
) -> tuple[int, Floats, Floats] | None:
    """How many individuals are likely in ascending intervals from a place on, and how many at most.

    Numbers are taken to fall exponentially with the logarithm of sizes, in which intervals have widths
    `spans`: Pareto's law does, and most others fall ever faster, so that a rate from below holds above. Of
    places up to the `last` interval in which people are seen the one is taken that leaves least above. The
    `most` are those of the rate and the number of the largest sum by `weights` that noise makes no less
    likely than one in twenty. None if nobody is seen.

    >>> from sfumato.core.law import make_law
    >>> counts, spans = np.array([16000, 4010, 990, 260, 57, 20, -4]), np.full(7, 1.0)
    >>> above, law = np.arange(7) > 4, make_law("laplace", 10)
    >>> place, likely, most = fit_tail(counts, law, last=4, spans=spans, weights=above)
    >>> place, likely[place:].round().tolist(), most[place:].round().tolist()
    (2, [987.0, 260.0, 68.0, 18.0, 5.0], [985.0, 296.0, 89.0, 27.0, 8.0])
    """
    ends = np.concatenate([[0.0], np.cumsum(spans)])
    noisy = noisy_counts.astype(float)
    variances = law.deviation**2 + np.maximum(noisy, 0)
    found: list[tuple[float, int, Floats, Floats]] = []
    for place in range(max(0, last - _LONGEST), last + 1):
        left = np.exp(-_RATES[:, None] * (ends[place:] - ends[place]))
        shares, own, spread = -np.diff(left), noisy[place:], variances[place:]
        certain = (shares**2 / spread).sum(axis=1)
        numbers = np.maximum((shares * own / spread).sum(axis=1) / certain, 0)
        unlikely = ((own - numbers[:, None] * shares) ** 2 / spread).sum(axis=1)
        room = _LIKELY - (unlikely - unlikely.min())
        largest = np.where(room >= 0, numbers + np.sqrt(np.maximum(room, 0) / certain), 0)
        slower = -np.diff(left**_SLOWER)
        sums = largest * (slower @ weights[place:])
        best, worst = int(np.argmin(unlikely)), int(np.argmax(sums))
        if numbers[best] ** 2 * certain[best] > _SEEN**2:
            before = np.zeros(place)
            likely, most = numbers[best] * shares[best], largest[worst] * slower[worst]
            found.append(
                (sums[worst], place, np.concatenate([before, likely]), np.concatenate([before, most]))
            )
    return min(found, key=lambda each: each[0])[1:] if found else None
