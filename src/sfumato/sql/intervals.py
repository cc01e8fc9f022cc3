"""Intervals: where the noise-free value of an answer lies, with a stated confidence.

They speak of the noise alone. The value they enclose is the exact answer to the bounded question:
clamped values, and no more records of an individual than the bounds let count.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from sfumato.sql.plan import Noise

__all__ = ["half_width", "ratio_interval"]

_STEPS = 60


def half_width(noise: Noise, share: float) -> float:
    """The least width that the noise exceeds with a probability of at most `share`."""
    if noise.kind == "gaussian":
        return NormalDist().inv_cdf(1 - share / 2) * float(noise.scale)
    return float(_laplace_width(noise.scale, share))


def ratio_interval(
    top: NDArray[np.float64],
    bottom: NDArray[np.float64],
    noises: tuple[Noise, Noise],
    ends: tuple[float, float],
    share: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ratios between `ends` that the noisy `top` and `bottom` do not speak against.

    A ratio r is kept if top - r * bottom is no further from zero than its noise is, but for a share of
    the draws. That set holds the true ratio with probability 1 - share whatever the size of the bottom
    (Fieller's argument), also where few records or none are behind it.
    """
    guess = np.clip(np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0), *ends)
    # The best ratio is kept by itself; between it and an end that is not kept there is one edge.
    guess = np.where(np.abs(top - guess * bottom) <= np.abs(top), guess, np.clip(0.0, *ends))

    def speaks_against(ratio: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.abs(top - ratio * bottom) > _combined_width(noises, np.abs(ratio), share)

    edges = []
    for end in ends:
        far = np.full_like(top, end)
        refused = speaks_against(far)
        inside, outside = guess.copy(), far.copy()
        for _ in range(_STEPS):
            middle = (inside + outside) / 2
            against = speaks_against(middle)
            outside = np.where(against, middle, outside)
            inside = np.where(against, inside, middle)
        edges.append(np.where(refused, outside, far))
    return edges[0], edges[1]


def _laplace_width(scale: Fraction, share: float) -> int:
    # P(|X| > w) = 2 q^(w + 1) / (1 + q) with q = exp(-1 / scale).
    b = float(scale)
    q = math.exp(-1 / b) if b > 1e-3 else 0.0
    return max(0, math.ceil(b * math.log(2 / (share * (1 + q))) - 1))


def _combined_width(
    noises: tuple[Noise, Noise], ratio: NDArray[np.float64], share: float
) -> NDArray[np.float64]:
    """The width of (noise of the top) - ratio * (noise of the bottom)."""
    top, bottom = (float(noise.scale) for noise in noises)
    if all(noise.kind == "gaussian" for noise in noises):
        widths: NDArray[np.float64] = NormalDist().inv_cdf(1 - share / 2) * np.hypot(top, ratio * bottom)
        return widths
    a, c = top, ratio * bottom
    large, small = np.maximum(a, c), np.minimum(a, c)
    small = np.where(small > large * (1 - 1e-6), large * (1 - 1e-6), small)

    # P(|A + C| > t) = (a^2 exp(-t/a) - c^2 exp(-t/c)) / (a^2 - c^2) for two-sided exponentials.
    def tail(t: NDArray[np.float64]) -> NDArray[np.float64]:
        safe = np.maximum(small, 1e-300)
        difference = large**2 * np.exp(-t / large) - small**2 * np.exp(-t / safe)
        share_beyond: NDArray[np.float64] = difference / (large**2 - small**2)
        return share_beyond

    low, high = np.zeros_like(large), large * (math.log(1 / share) + 2) + small
    for _ in range(_STEPS):
        middle = (low + high) / 2
        heavy = tail(middle) > share
        low, high = np.where(heavy, middle, low), np.where(heavy, high, middle)
    # Half a step of each lattice is added, because the noise is discrete.
    result: NDArray[np.float64] = high + 0.5 + ratio * 0.5
    return result
