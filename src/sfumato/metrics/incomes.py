"""Inequality of incomes and pay gaps of cities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_NOT_AVAILABLE = 999_998
_MAN, _WOMAN = 1, 2


class City(NamedTuple):
    """A city, the Gini coefficient of its wages, and the mean wage of men less that of women."""

    code: int
    gini: float
    pay_gap: float


def measure_cities(
    sex: NDArray[np.int64], city: NDArray[np.int64], wage: NDArray[np.int64]
) -> dict[int, City]:
    """Every city in the order of its first record; wages of 999,998 and more, or below 0, do not count.

    >>> measure_cities(np.array([1, 2]), np.array([4, 4]), np.array([30, 10]))
    {4: City(code=4, gini=-0.25, pay_gap=20.0)}
    """
    known = city >= 0
    sex, city, wage = sex[known], city[known], wage[known]
    codes, first, inverse = np.unique(city, return_index=True, return_inverse=True)
    paid = (wage >= 0) & (wage < _NOT_AVAILABLE)
    order = np.lexsort((wage[paid], inverse[paid]))
    wages, cities, sexes = wage[paid][order].astype(np.float64), inverse[paid][order], sex[paid][order]
    starts = np.searchsorted(cities, np.arange(codes.size + 1))
    measured = {}
    for place in np.argsort(first, kind="stable").tolist():
        part = slice(int(starts[place]), int(starts[place + 1]))
        gap = _mean(wages[part][sexes[part] == _MAN]) - _mean(wages[part][sexes[part] == _WOMAN])
        code = int(codes[place])
        measured[code] = City(code, _gini(wages[part]), gap)
    return measured


def score_cities(truth: Mapping[int, City], release: Mapping[int, City]) -> float:
    """How well the release keeps every city's inequality and its rank by pay gap, from 0 to 1."""
    ranks, found = _rank(truth), _rank(release)
    both = [code for code in truth if code in release]
    inequality = sum((1 - abs(truth[code].gini - release[code].gini)) ** 2 for code in both)
    steps = len(truth) - 1
    ranking = sum(max(0.0, 1 - abs(ranks[code] - found[code]) / steps) ** 2 for code in both)
    return (math.sqrt(inequality / len(truth)) + math.sqrt(ranking / len(truth))) / 2


def _rank(cities: Mapping[int, City]) -> dict[int, int]:
    ordered = sorted(cities.values(), key=lambda city: -city.pay_gap)  # ties keep their order
    return {city.code: rank for rank, city in enumerate(ordered)}


def _gini(wages: NDArray[np.float64]) -> float:
    total = float(wages.sum())
    if not total:
        return 1.0
    return 1 - 2 * float(np.cumsum(wages).sum()) / (wages.size * total)


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else 0.0
