"""The tests that zero-concentrated privacy allows, by their rates of false alarms.

Apart from the other bounds because it needs numpy, which is slow to load.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_HALVINGS = 58  # more than the bits of a double that are left
_ROUNDING = 4e-16  # two units in the last place
# The orders above one at which divergences are compared, less one.
_ORDERS = np.concatenate([np.geomspace(1e-3, 1e3, 140), np.geomspace(1.2e3, 1e7, 60)])


def concentrated_powers(rho: float, rarities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the largest power of a test under rho-zCDP, for each rate of false alarms inside 0 to 1.

    >>> concentrated_powers(0.5, np.array([0.05])).round(3).tolist()
    [0.336]
    """
    alarms = np.asarray(rarities, np.float64)[:, None]
    low, high = alarms.copy(), np.ones_like(alarms)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = _fits(rho, middle, alarms)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.asarray(np.minimum(high[:, 0] * (1 + 1e-12), 1.0))


def _fits(rho: float, power: NDArray[np.float64], alarms: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Returns whether two coins keep every divergence, as far as the floats can tell."""
    with np.errstate(divide="ignore"):
        yes, no = (np.log(power), np.log1p(-power)), (np.log(alarms), np.log1p(-alarms))
    limit = _ORDERS * (_ORDERS + 1) * rho
    fits = np.ones_like(power, dtype=bool)
    for first, second in ((yes, no), (no, yes)):
        terms = [(_ORDERS + 1) * a - _ORDERS * b for a, b in zip(first, second, strict=True)]
        size = (_ORDERS + 1) * sum(np.abs(np.clip(each, -800, 0)) for each in (*first, *second))
        kept = np.logaddexp(*terms) <= limit * (1 + 1e-12) + _ROUNDING * (1 + size)
        fits &= kept.all(axis=1, keepdims=True)
    return fits
