"""Exact sums of products, by numpy as the codes of bounded records stream by.

Where most features are labels, weights of records are first added by pairs of codes, and features are
multiplied at the end. Else features are multiplied block by block. Both give the same whole numbers.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.engine.base import TrueCounts
from sfumato.core.questions.moments import MOMENT_WEIGHTS, SCORE_GRID, Moments

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

# Of so many records, products of features, weights and links add up to 2^53 at most, so that floats are
# exact, in whatever order a library adds.
_ROWS = 2**13
_HALF = 2**32
_SATURATED = 2**62
_MOST_PAIRED = 2**20  # codes of two columns that are counted together
_WORD = 2**20


class MomentTally:
    """The running sums of one question."""

    def __init__(self, table: Table, question: Moments) -> None:
        self._question = question
        self._columns = question.columns
        self._finer = table.grid // min(table.grid, MOMENT_WEIGHTS)
        self._whole = min(table.grid, MOMENT_WEIGHTS)
        sizes = [each.shape[0] for each in question.scores]
        largest = sorted(sizes)[-2:]
        self._paired = (
            (question.order == 1 and question.centres is None)
            or (question.features > 3 * len(sizes) and largest[0] * largest[-1] <= _MOST_PAIRED)
        ) and max(sizes) <= _MOST_PAIRED
        shape = (question.features,) * question.order
        if question.centres is not None:
            shape = (question.groups, question.features)
        # Two words each, since there may be more records than 63 bits can add up.
        self._high, self._low = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._scores = [each.astype(np.float64) for each in question.scores]
        used = [place for place, each in enumerate(question.scores) if each.shape[1]] if self._paired else []
        self._used = used
        self._total = 0
        self._single = {place: np.zeros(sizes[place], np.int64) for place in used}
        pairs = combinations(used, 2) if question.order == 2 else ()
        self._double = {(one, two): np.zeros(sizes[one] * sizes[two], np.int64) for one, two in pairs}

    def add(
        self, codes: dict[str, NDArray[np.int64]], weights: NDArray[np.int64] | None, *, rows: int
    ) -> None:
        """Adds one batch: every record whole, or for its weight in units of 1 / table.grid."""
        listed = [codes[name] for name in self._columns]
        step = _WORD if self._paired else _ROWS
        for start in range(0, rows, step):
            part = [each[start : start + step] for each in listed]
            held = None if weights is None else weights[start : start + step]
            factors = np.full(part[0].size, self._whole, np.int64) if held is None else held // self._finer
            if self._question.link is not None:
                factors = factors * _link_weights(self._question, part)
            weighed = factors.astype(np.float64)
            if self._paired:
                self._count(part, weighed)
            else:
                self._multiply(part, weighed)

    def finish(self) -> TrueCounts:
        """The sums of all pairs, in their order."""
        sums = self._high.astype(object) * _HALF + self._low.astype(object)
        if self._paired:
            sums = self._combine()
        order = self._question.order
        values = sums.reshape(-1).tolist() if order == 1 else [sums[pair] for pair in self._question.pairs]
        # To hold every sum to a range moves neighbouring ones no further apart.
        held = [min(max(int(each), -_SATURATED), _SATURATED) for each in values]
        return TrueCounts(self._columns, np.array(held, np.int64))

    def _multiply(self, codes: list[NDArray[np.int64]], weighed: NDArray[np.float64]) -> None:
        features = np.empty((codes[0].size, self._question.features), np.float64)
        features[:, 0] = SCORE_GRID
        first = 1
        for table, code in zip(self._scores, codes, strict=True):
            features[:, first : first + table.shape[1]] = table[code]
            first += table.shape[1]
        if self._question.centres is not None:
            sums = _sum_nearest(features, weighed, self._question.centres)
        elif self._question.order == 1:
            sums = weighed @ features
        else:
            sums = (features * weighed[:, None]).T @ features
        exact = sums.astype(np.int64)
        self._high += exact // _HALF
        self._low += exact % _HALF

    def _count(self, codes: list[NDArray[np.int64]], weighed: NDArray[np.float64]) -> None:
        """Adds the weights of records by the codes of one column and of two: at most 2^20 times 2^30."""
        self._total += int(weighed.sum())
        for place, counts in self._single.items():
            counts += np.bincount(codes[place], weights=weighed, minlength=counts.size).astype(np.int64)
        for (one, two), counts in self._double.items():
            cells = codes[one].astype(np.int64) * self._question.scores[two].shape[0] + codes[two]
            counts += np.bincount(cells, weights=weighed, minlength=counts.size).astype(np.int64)

    def _combine(self) -> NDArray[np.object_]:
        """The sums of features, or of their products, from the weights by codes."""
        question = self._question
        firsts, first = [], 1
        for each in question.scores:
            firsts.append(first)
            first += each.shape[1]
        places = {
            place: slice(firsts[place], firsts[place] + question.scores[place].shape[1])
            for place in self._used
        }
        sums = np.zeros((question.features,) * question.order, object)
        if question.order == 1:
            sums[0] = self._total * SCORE_GRID
            for place, counts in self._single.items():
                sums[places[place]] = _exact_product(question.scores[place].T, counts)
            return sums
        sums[0, 0] = self._total * SCORE_GRID**2
        for place, counts in self._single.items():
            scores, here = question.scores[place], places[place]
            sums[0, here] = _exact_product(scores.T, counts) * SCORE_GRID
            for one in range(scores.shape[1]):
                row = _exact_product((scores[:, one : one + 1] * scores).T, counts)
                sums[here.start + one, here] = row
        for (one, two), counts in self._double.items():
            left, right = question.scores[one], question.scores[two]
            table = counts.reshape(left.shape[0], right.shape[0])
            inner = _exact_product(left.T, table)
            sums[places[one], places[two]] = inner @ right.astype(object)
        return sums


def _sum_nearest(
    features: NDArray[np.float64], weighed: NDArray[np.float64], centres: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The sums of features by the nearest centre, the first of equals: whole numbers below 2^53, so exact."""
    places = centres.astype(np.float64)
    # |f - c|^2 without |f|^2, which is the same for all centres.
    nearest = np.argmin((places**2).sum(axis=1) - 2 * (features[:, 1:] @ places.T), axis=1)
    columns = ((weighed * each, len(places)) for each in features.T)
    return np.stack([np.bincount(nearest, weights=each, minlength=size) for each, size in columns], axis=1)


def _exact_product(left: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.object_]:
    """The matrix product as numbers of any size: in two words, each exact in 64 bits."""
    high, low = counts // _WORD, counts % _WORD
    return np.asarray((left @ high).astype(object) * _WORD + (left @ low).astype(object))


def _link_weights(question: Moments, codes: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The public weight of every record, by its predictor and the code of the last column."""
    link = question.link
    assert link is not None
    predictors = np.zeros(codes[0].size, np.int64)
    for offsets, code in zip(link.offsets, codes, strict=True):
        predictors += offsets[code]
    half = link.weights.shape[1] // 2
    levels = np.clip(predictors >> link.shift, -half, half - 1) + half
    return np.asarray(link.weights[link.branches[codes[-1]], levels])
