"""How well the release serves every group: the records of one value of one column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.metrics.marginals import count_marginal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.metrics.codes import Label
    from sfumato.metrics.pair import CodedPair

_MOST_VALUES = 50


@dataclass(frozen=True, slots=True)
class Group:
    """One value of one column: its records on both sides, and the mean distance of the other columns."""

    column: str
    value: Label
    truth: float
    release: float
    tvd: float

    def to_record(self) -> dict[str, Any]:
        """The group as a plain record."""
        return {
            "column": self.column,
            "value": self.value,
            "truth": _plain(self.truth),
            "release": _plain(self.release),
            "tvd": self.tvd,
        }


def measure_groups(pair: CodedPair) -> tuple[Group, ...]:
    """Every value of every column with at most 50 of them, worst first.

    The distance of a group is the mean, over all other columns, of the total variation distance of
    that column within the group; 1 if one side has no record of the group.
    """
    groups: list[Group] = []
    sides = pair.truth, pair.release
    for name in pair.columns:
        size = pair.sizes[name]
        if size > _MOST_VALUES:
            continue
        ours, theirs = (
            np.bincount(side.codes[name], side.weights, minlength=size).astype(np.float64) for side in sides
        )
        others = [other for other in pair.columns if other != name]
        distance = np.zeros(size)
        for other in others:
            distance += _within(pair, name, other, ours, theirs)
        mean = distance / max(len(others), 1)
        groups += [
            Group(name, pair.labels[name][code], float(ours[code]), float(theirs[code]), float(mean[code]))
            for code in range(size)
            if ours[code] > 0 or theirs[code] > 0
        ]
    return tuple(sorted(groups, key=lambda group: -group.tvd))


def _within(
    pair: CodedPair, name: str, other: str, ours: NDArray[np.float64], theirs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The distance of column `other` within every value of `name`."""
    cells, (truth, release) = count_marginal(pair, (name, other), (pair.truth, pair.release))
    group = cells // pair.sizes[other]
    difference = np.abs(truth / np.maximum(ours, 1e-300)[group] - release / np.maximum(theirs, 1e-300)[group])
    distance = np.bincount(group, difference, minlength=ours.size) / 2
    return np.where((ours > 0) & (theirs > 0), np.minimum(distance, 1), 1.0)


def _plain(count: float) -> float | int:
    return int(count) if count == int(count) else count
