"""The sampling ladder: how much of the truth a plain sample would have to show to be as close."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.metrics.cells import half_distance, pack_codes
from sfumato.metrics.pair import Side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.metrics.pair import CodedPair

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_MOST_PAIRS = 500
_DENSE = 2**18


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Deal:
    """The truth's records in the order of their rungs: sample j is all before the start of rung j + 1."""

    side: Side
    starts: NDArray[np.intp]

    def sample(self, share: float) -> Side:
        """The sample of this share of the individuals."""
        rows = np.arange(self.starts[SHARES.index(share) + 1])
        return self.side.take(rows, None if self.side.weights is None else self.side.weights[rows])


@dataclass(frozen=True, slots=True)
class Ladder:
    """The mean distance of all pairs of columns: of the release, and of samples of the truth."""

    release: float
    rungs: tuple[tuple[float, float], ...]

    @property
    def share(self) -> float | None:
        """The share of the individuals whose sample is as close as the release; None below the ladder.

        >>> Ladder(0.15, ((0.1, 0.2), (0.3, 0.1))).share
        0.2
        """
        steps = [*self.rungs, (1.0, 0.0)]
        if self.release > steps[0][1]:
            return None
        for (low, far), (high, near) in pairwise(steps):
            if near <= self.release <= far:
                part = (far - self.release) / (far - near) if far > near else 1.0
                return round(low + part * (high - low), 12)
        return 1.0

    def to_record(self) -> dict[str, Any]:
        """The ladder as a plain record."""
        rungs = [{"share": share, "tvd": tvd} for share, tvd in self.rungs]
        return {"release": self.release, "rungs": rungs, "share": self.share}


def deal_truth(pair: CodedPair, *, seed: int) -> Deal:
    """Every individual, or every record where none is known, dealt to a rung by a public seed."""
    generator = np.random.default_rng([seed, 4])
    truth = pair.truth
    if truth.weights is None or pair.unit is not None:
        unit = np.arange(truth.rows) if pair.unit is None else pair.unit
        people = int(unit.max()) + 1
        ends = [max(1, round(share * people)) for share in SHARES]
        rung = np.searchsorted(ends, generator.permutation(people), side="right")[unit]
        return _order(truth, np.arange(truth.rows), rung, truth.weights)
    chances = np.diff([0.0, *SHARES, 1.0])
    dealt = generator.multinomial(np.round(truth.weights).astype(np.int64), chances)
    rows, rung = np.nonzero(dealt)
    return _order(truth, rows, rung, dealt[rows, rung].astype(np.float64))


def _order(
    truth: Side, rows: NDArray[np.intp], rung: NDArray[np.intp], weights: NDArray[np.float64] | None
) -> Deal:
    order = np.argsort(rung, kind="stable")
    starts = np.searchsorted(rung[order], np.arange(len(SHARES) + 2))
    return Deal(truth.take(rows[order], None if weights is None else weights[order]), starts)


def measure_ladder(pair: CodedPair, deal: Deal, *, seed: int) -> Ladder:
    """The mean distance of pairs of columns, of the release and of samples of growing size.

    Of very many pairs, 500 are drawn from `seed`.
    """
    pairs = list(combinations(pair.columns, min(2, len(pair.columns))))
    if len(pairs) > _MOST_PAIRS:
        generator = np.random.default_rng([seed, 5])
        pairs = [pairs[i] for i in np.sort(generator.choice(len(pairs), size=_MOST_PAIRS, replace=False))]
    distances = np.array([_climb(pair, deal, columns) for columns in pairs]).mean(axis=0).tolist()
    return Ladder(distances[-1], tuple(zip(SHARES, distances, strict=False)))


def _climb(pair: CodedPair, deal: Deal, columns: tuple[str, ...]) -> list[float]:
    """The distance of every sample and, last, of the release from the truth, for these columns."""
    sizes = [pair.sizes[name] for name in columns]
    keys = [pack_codes([side.codes[name] for name in columns], sizes) for side in (deal.side, pair.release)]
    cells = math.prod(sizes)
    if cells > _DENSE:  # number the cells that occur
        found, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        keys = np.split(inverse.reshape(-1), [keys[0].size])
        cells = found.size
    weights = deal.side.weights
    truth = np.bincount(keys[0], weights, minlength=cells).astype(np.float64)
    release = np.bincount(keys[1], pair.release.weights, minlength=cells).astype(np.float64)
    sample = np.zeros(cells)
    distances = []
    for start, end in zip(deal.starts[:-2], deal.starts[1:-1], strict=True):
        part = slice(int(start), int(end))
        sample += np.bincount(keys[0][part], None if weights is None else weights[part], minlength=cells)
        distances.append(half_distance(truth, sample))
    return [*distances, half_distance(truth, release)]
