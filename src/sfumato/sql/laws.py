"""The law of sums and weighted means of independent noises, as intervals need it.

The proof that the widths hold for the discrete noise is in docs/proofs/reuse.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.core.law import Shape

# The characteristic function is integrated, by inverse standard deviations, in such steps until it is so
# small, or to the last end. Beyond, it falls at least with the square: what is left out is about half of it.
_STEP = 1 / 64
_SMALL = 2e-6
# Of rarer misses Chernoff's bound is taken.
_RARE = 1e-4
_ENDS = (30.0, 60.0, 120.0, 250.0, 500.0, 1000.0)
# What the integral may be wrong by, taken off the share that may miss.
_INTEGRATION = 1e-5


@dataclass(frozen=True, slots=True)
class NoisePart:
    """Independent noises of one law in a sum: their kind, their scale in it, and how many for each group."""

    shape: Shape
    scale: float
    counts: tuple[int, ...]

    @property
    def variances(self) -> NDArray[np.float64]:
        """What the part adds to the variance of each group."""
        single = self.scale**2 * self.shape.variance
        return np.array(self.counts) * single


def part_widths(parts: tuple[NoisePart, ...], slack: float, share: float) -> NDArray[np.float64]:
    """For each group the width that the sum of its noises exceeds with a probability of at most `share`.

    `slack` is added where there is noise: what rounding and the steps of the noise may add.
    """
    profiles = list(zip(*(part.counts for part in parts), strict=True))
    found = {
        counts: sum_width(
            tuple((one.shape, one.scale, count) for one, count in zip(parts, counts, strict=True) if count),
            share,
        )
        for counts in set(profiles)
    }
    widths = np.array([found[counts] for counts in profiles])
    return np.where(widths > 0, widths + slack, 0.0)


def total_width(parts: tuple[NoisePart, ...], slack: float, share: float) -> float:
    """The same of the sum over all groups."""
    together = tuple((part.shape, part.scale, sum(part.counts)) for part in parts)
    groups = len(parts[0].counts)
    return sum_width(tuple(each for each in together if each[2]), share) + slack * groups


@lru_cache(maxsize=4096)
def sum_width(parts: tuple[tuple[Shape, float, int], ...], share: float) -> float:
    """The width that a sum of continuous noises exceeds with a probability of at most `share`.

    `parts` are kinds, scales and numbers. One Laplace noise and normal noises have it in closed form; of
    other sums the probability is computed from the characteristic function.

    >>> from sfumato.core.law import SHAPES
    >>> round(sum_width(((SHAPES["laplace"], 1.0, 2),), 0.05), 2)
    4.11
    """
    normal = sum(scale**2 * count for shape, scale, count in parts if shape.normal)
    doubled = [(scale, count) for shape, scale, count in parts if not shape.normal]
    if not doubled:
        return NormalDist().inv_cdf(1 - share / 2) * math.sqrt(normal)
    if normal == 0 and len(doubled) == 1 and doubled[0][1] == 1:
        return doubled[0][0] * math.log(1 / share)
    if share < _RARE:
        return _chernoff_width(doubled, normal, share)
    deviation = math.sqrt(normal + 2 * sum(scale**2 * count for scale, count in doubled))
    shares = [(scale / deviation, count) for scale, count in doubled]

    def transform(rates: NDArray[np.float64]) -> NDArray[np.float64]:
        logs = -0.5 * normal / deviation**2 * rates**2
        for scale, count in shares:
            logs = logs - count * np.log1p((scale * rates) ** 2)
        found: NDArray[np.float64] = np.exp(logs)
        return found

    falls = transform(np.array(_ENDS)) <= _SMALL
    end = _ENDS[int(np.argmax(falls))] if falls.any() else _ENDS[-1]
    rates = np.arange(_STEP / 2, end, _STEP)
    weights = transform(rates) / rates * (2 / math.pi * _STEP)

    def exceeds(width: float) -> float:
        return 1 - float(np.sin(rates * width) @ weights)

    low, high = 0.0, 2.0
    while exceeds(high) > share - _INTEGRATION and high < 64:
        high *= 2
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) > share - _INTEGRATION else (low, middle)
    return high * deviation


def _chernoff_width(doubled: list[tuple[float, int]], normal: float, share: float) -> float:
    """The least w with 2 exp(-tw) E[exp(t sum)] <= share for some t."""
    rates = np.linspace(0.001, 0.999, 999) / max(scale for scale, _ in doubled)
    logs = math.log(2 / share) + 0.5 * normal * rates**2
    for scale, count in doubled:
        logs = logs - count * np.log1p(-((scale * rates) ** 2))
    return float((logs / rates).min())


def note_total(total: float, reach: float, *, of: str) -> str | None:
    """Return what is said of a total that its noise alone may explain; None of any other."""
    if total > reach:
        return None
    return (
        f"the total of this {of}, {total:,.0f}, lies within its noise (+-{reach:,.0f}): it may be noise "
        "alone; if you expected more records, check `source`, formats and domains with `sfumato doctor`"
    )


class Held(NamedTuple):
    """A bound of a norm that was chosen, and what it may leave out, as far as noise tells.

    It is at `place` of the norms. What is `cut` is in thousandths of all, and `beyond`, the most that it may
    be, in units of 1 / grid, if people's numbers fall above as below; nobody is expected above the `top`.
    Otherwise so much more may be `hidden` by noise, with 95 %.
    """

    place: int
    cut: int
    beyond: int
    top: int
    hidden: int
