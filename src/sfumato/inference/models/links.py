"""Links in fixed point: what is predicted for a whole-numbered score, as a table every engine can read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SCORE_UNITS = 256
"""Scores under a link are whole multiples of 1 / SCORE_UNITS."""
_FAR = 8  # log odds beyond which a chance is as good as certain


def logistic_table(scale: int) -> tuple[int, NDArray[np.int64]]:
    """Return the lowest score, and the probability of a class from it on, in units of 1 / scale.

    >>> low, values = logistic_table(4096)
    >>> low, int(values[-low]), int(values[0]), values.size
    (-2048, 2048, 1, 4097)
    """
    scores = np.arange(-_FAR * SCORE_UNITS, _FAR * SCORE_UNITS + 1)
    return int(scores[0]), np.rint(scale / (1 + np.exp(-scores / SCORE_UNITS))).astype(np.int64)


def weight_table(scale: int) -> tuple[int, NDArray[np.int64]]:
    """As `logistic_table`, p (1 - p) in place of p."""
    low, values = logistic_table(scale)
    shares = values / scale
    return low, np.rint(scale * shares * (1 - shares)).astype(np.int64)


def exponential_table(scale: float, *, least: float, most: float) -> tuple[int, NDArray[np.int64]]:
    """The lowest score, and the expected number from it on, from `least` to `most`, in units of 1 / scale."""
    low, high = (int(np.floor(np.log(each) * SCORE_UNITS)) for each in (least, most))
    scores = np.arange(low, max(high, low + 1) + 1)
    return low, np.rint(scale * np.exp(scores / SCORE_UNITS)).astype(np.int64)
