"""A released distribution as it is read back: shares up to every cell, and the quantiles they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.exact import parse_exact
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Label
from sfumato.inference.models.cumulative import Floats, find_cell


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DistributionModel:
    """Shares of the records up to the end of every cell, a row for each group.

    Cells are whole numbers, or bins (`whole` is false) whose first begins at `least`. Shares of a group whose
    total the noise hides are NaN.
    """

    groups: tuple[Label | None, ...]
    ends: Floats
    least: float
    whole: bool
    counts: NDArray[np.int64]
    shares: Floats
    low: Floats
    high: Floats
    family: str = "distribution"
    classes: tuple[Label, ...] = ()

    def is_known(self, row: int) -> bool:
        """Return whether the shares of a group are known."""
        return not bool(np.isnan(self.shares[row, 0]))

    def quantile(self, row: int, share: float) -> dict[str, float]:
        """Return value at `share` with the ends of its interval; within a bin, records are spread evenly."""
        shares = self.shares[row]
        cell, first, last = find_cell(shares, self.low[row], self.high[row], share)
        if self.whole:
            value, low, high = (float(self.ends[each]) for each in (cell, first, last))
            return {"value": value, "low_95": low, "high_95": high}
        starts = np.concatenate(([self.least], self.ends[:-1]))
        before = float(shares[cell - 1]) if cell else 0.0
        inside = float(shares[cell]) - before
        part = min(max((share - before) / inside, 0.0), 1.0) if inside > 0 else 1.0
        value = float(starts[cell] + part * (self.ends[cell] - starts[cell]))
        return {"value": value, "low_95": float(starts[first]), "high_95": float(self.ends[last])}

    def share_upto(self, row: int, value: float) -> float:
        """Return the share up to the last end that is not above `value`."""
        place = int(np.searchsorted(self.ends, value, side="right"))
        return float(self.shares[row, place - 1]) if place else 0.0

    def numbers(self, codes: Mapping[str, NDArray[np.int64]], rows: int) -> Floats:
        """Return a distribution predicts nothing."""
        raise NotImplementedError

    probabilities = numbers


def read_distribution(document: Mapping[str, Any], columns: Mapping[str, Column]) -> DistributionModel:
    """Return the distribution that a model.json describes; raises a ValueError if it describes none."""
    groups = next((column.labels for column in columns.values()), (None,))
    ends = np.array(document["ends"], np.float64)
    shape = len(groups), ends.size
    parts = {
        name: np.array(document[name], np.float64).reshape(shape) for name in ("share", "low_95", "high_95")
    }
    if (np.diff(ends) <= 0).any() or (np.diff(parts["share"], axis=1) < 0).any():
        raise ValueError("ends and shares must rise")
    return DistributionModel(
        groups=groups,
        ends=ends,
        least=float(parse_exact(document["low"], name="low")),
        whole=bool(document["whole"]),
        counts=np.array(document["count"], np.int64).reshape(shape),
        shares=parts["share"],
        low=parts["low_95"],
        high=parts["high_95"],
    )
