"""A logarithm that gives the same bits everywhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TERMS = 12
_TWO_OVER_LN_2 = 2.8853900817779268  # written out: a library's log(2) may round differently


def log2(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms to base 2 of numbers above zero, each a function of its own number alone.

    A library's logarithm may round a number differently in the middle of an array than at its end, or
    on another processor. This one is built from additions, products and quotients only, which are
    rounded in one way by definition: log2(m 2^e) = e + (2 / ln 2) (s + s^3/3 + s^5/5 + ...) with
    s = (m - 1) / (m + 1) and m within a factor sqrt(2) of 1, so that twelve terms are exact to the last bits.

    >>> log2(np.array([1.0, 8.0, 0.25])).tolist()
    [0.0, 3.0, -2.0]
    """
    mantissa, exponent = np.frexp(values)
    low = mantissa < math.sqrt(0.5)
    mantissa = np.where(low, 2 * mantissa, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square = ratio * ratio
    series = np.full_like(ratio, 1 / (2 * _TERMS + 1))
    for term in range(_TERMS - 1, -1, -1):
        series = series * square + 1 / (2 * term + 1)
    return np.asarray((exponent - low) + _TWO_OVER_LN_2 * (ratio * series))
