"""Sums of products of records: moments, and the slopes and curvatures that a fitted model needs.

A record is a row of whole numbers, its features, that its codes look up in public tables. The answer adds
features (`order` 1) or products of two features (`order` 2) over all bounded records, each times a public
weight of the record's own codes, if a link states one, or in groups by the nearest of public centres. Nothing
is rounded or clipped while counting: what a record may add is what the tables hold, and they are checked when
the question is made. Where most features are labels, weights of records are first added by pairs of codes,
and features are multiplied at the end; else features are multiplied block by block, to the same numbers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.core.cost.curves import sqrt_up
from sfumato.core.errors import RecipeError
from sfumato.core.questions.question import L2, Codes, Question, Stated
from sfumato.core.questions.residuals import freeze

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.law import Norm

SCORE_GRID = 2**10
"""Features are whole multiples of 1 / SCORE_GRID, from -1 to 1."""
MOMENT_WEIGHTS = 2**10
"""Where records are weighted, so finely: coarser than in counts, so that sums stay far below 2^63."""
LINK_GRID = 2**16
"""Predictors are whole multiples of 1 / LINK_GRID."""
LARGEST_WEIGHT = 2**20
"""A link may weigh features so much, and products up to LARGEST_CURVATURE: both sums stay exact."""
LARGEST_CURVATURE = 2**10

MOST_FEATURES = 1000
MOST_CENTRES = 1024
# Of so many records, products of features, weights and links add up to 2^53 at most, so that floats are
# exact, in whatever order a library adds.
_ROWS = 2**13
_HALF = 2**32
_SATURATED = 2**62
_MOST_PAIRED = 2**20  # codes of two columns that are counted together
_WORD = 2**20
_MOST_OFFSET = 2**40
_MOST_LEVELS = 2**20
_TABLES = "the tables of moments"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkWeights:
    """A public weight of every record: looked up by its predictor, and by the code of the last column.

    The predictor is the sum of `offsets`, one table per column, in units of 1 / LINK_GRID. It is shifted
    right by `shift` bits, held to the levels from -levels / 2 up, and then names a place of `weights`, in the
    row that `branches` gives to the code of the last column.
    """

    offsets: tuple[NDArray[np.int64], ...]
    branches: NDArray[np.int64]
    weights: NDArray[np.int64]
    shift: int

    def __post_init__(self) -> None:
        offsets = tuple(freeze(each, _TABLES, most=_MOST_OFFSET) for each in self.offsets)
        weights = freeze(self.weights, _TABLES, dimensions=2, most=LARGEST_WEIGHT)
        branches = freeze(self.branches, _TABLES, most=_MOST_OFFSET)
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "branches", branches)
        if not 0 <= self.shift <= 40 or not 2 <= weights.shape[1] <= _MOST_LEVELS or weights.shape[1] % 2:
            raise RecipeError("a link needs an even number of levels up to 2^20, and a shift of 0 to 40 bits")
        if branches.min(initial=0) < 0 or branches.max(initial=0) >= weights.shape[0]:
            raise RecipeError("a link needs a row of weights for every branch")

    @property
    def largest(self) -> int:
        """The largest weight, without its sign."""
        return int(np.abs(self.weights).max())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments(Question):
    """Sums of features, or of products of two features, over all bounded records.

    `scores` has a table for every column: a row of features for each of its codes. Before them all stands
    the feature that is 1 for every record. Of products, those are left out that are zero for every code, and
    squares that say what the feature says already: both follow from the tables.

    Privacy: the answers of one record are public numbers of its own codes, so their L2 norm is at most that
    of the largest ones, computed here in whole numbers; an individual has `table.contribution` records at
    most, so it adds at most so many times that. With `centres` a record adds its features to the sums of one
    of them, that which is nearest to its features (the first of equals), so the norm is the same. With an
    off-diagonal product counted once, the norm of a record with d features at their ends is
    sqrt(d (d + 1) / 2). Proof: docs/proofs/linear.md, docs/proofs/clusters.md.

    >>> ends = np.array([[-SCORE_GRID], [SCORE_GRID]])
    >>> Moments(columns=("a", "b"), scores=(ends, ends)).pairs
    ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    """

    stated: ClassVar = Stated(bounding="records", tally="streamed", norms=L2, signed=True, sampled=False)
    queries: ClassVar[None] = None  # type: ignore[misc]

    columns: tuple[str, ...]
    scores: tuple[NDArray[np.int64], ...]
    order: Literal[1, 2] = 2
    link: LinkWeights | None = None
    centres: NDArray[np.int64] | None = None
    """Places among the features, the constant left out; sums of features are then asked for each."""
    pairs: tuple[tuple[int, int], ...] = field(init=False, repr=False)
    """The products that are added up, in the order of the answers; of order 1, those with the constant."""
    most_of_record: int = field(init=False, repr=False)
    """The square of the most that one record adds, in units of 1 / grid, whatever its codes are."""

    def __post_init__(self) -> None:
        self.check_columns()
        if self.order not in (1, 2):
            raise RecipeError("moments are of order 1 or 2")
        scores = tuple(freeze(each, _TABLES, dimensions=2, most=SCORE_GRID) for each in self.scores)
        object.__setattr__(self, "scores", scores)
        if len(scores) != len(self.columns) or not all(each.shape[0] for each in scores):
            raise RecipeError("moments need a table of features for every column")
        if self.features > MOST_FEATURES:
            raise RecipeError(
                f"moments of {self.features:,} features, more than {MOST_FEATURES:,}; use fewer columns or "
                "coarser domains"
            )
        if self.link is not None:
            sizes = [each.shape[0] for each in scores]
            if [each.size for each in self.link.offsets] != sizes or self.link.branches.size != sizes[-1]:
                raise RecipeError("a link needs an offset for every code, and a branch for those of the last")
            if self.order == 2 and self.link.largest > LARGEST_CURVATURE:
                raise RecipeError(f"a link weighs products by at most {LARGEST_CURVATURE:,}")
        if self.centres is not None:
            centres = freeze(self.centres, _TABLES, dimensions=2, most=SCORE_GRID)
            object.__setattr__(self, "centres", centres)
            if self.order != 1 or self.link is not None or not 1 <= centres.shape[0] <= MOST_CENTRES:
                raise RecipeError(f"up to {MOST_CENTRES:,} centres go with moments of order 1 and no link")
            if centres.shape[1] != self.features - 1:
                raise RecipeError("a centre needs a number for every feature")
        object.__setattr__(self, "pairs", _list_pairs(scores, self.order))
        object.__setattr__(self, "most_of_record", self._bound_record())

    @property
    def features(self) -> int:
        """The number of features, with the one that is always 1."""
        return 1 + sum(int(each.shape[1]) for each in self.scores)

    @property
    def groups(self) -> int:
        """The number of groups that sums are asked for, one after another in the answers."""
        return 1 if self.centres is None else int(self.centres.shape[0])

    def _bound_record(self) -> int:
        largest = [int((each**2).sum(axis=1).max(initial=0)) for each in self.scores]
        weight = 1 if self.link is None else self.link.largest
        across = SCORE_GRID**2 + sum(largest)
        if self.order == 1:
            return int(weight**2 * across)
        # Products of features of different columns, each once; then those within a column.
        total = (across**2 - SCORE_GRID**4 - sum(each**2 for each in largest)) // 2 + SCORE_GRID**4
        asked = set(self.pairs)
        for first, scores in zip(_first_features(self.scores), self.scores, strict=True):
            squares, sums = scores**2, np.zeros(scores.shape[0], np.int64)
            for one in range(scores.shape[1]):
                for other in range(one, scores.shape[1]):
                    if (first + one, first + other) in asked:
                        sums += squares[:, one] * squares[:, other]
            total += int(sums.max(initial=0))
        return int(weight**2 * total)

    def grid(self, table: Table) -> int:
        """The denominator of the answers, without that of a link."""
        return int(SCORE_GRID**self.order) * min(table.grid, MOMENT_WEIGHTS)

    def size(self, table: Table) -> int:
        """The number of answers."""
        return len(self.pairs) * self.groups

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        return (
            sqrt_up(Fraction(self.most_of_record)) * table.unit.max_records * min(table.grid, MOMENT_WEIGHTS)
        )

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        if [each.shape[0] for each in self.scores] != [table.column(name).size for name in self.columns]:
            raise RecipeError(
                f"{' x '.join(self.columns)}: moments need a row of features for every code of a column"
            )

    def start(self, table: Table) -> MomentTally:
        """What adds up the records that stream by."""
        return MomentTally(table, self)

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns: its size, the most a record adds, and a digest."""
        content = hashlib.sha256()
        arrays = [*self.scores]
        if self.link is not None:
            arrays += [*self.link.offsets, self.link.branches, self.link.weights, np.array([self.link.shift])]
        if self.centres is not None:
            arrays += [self.centres]
        for array in arrays:
            content.update(repr(array.shape).encode() + array.astype("<i8").tobytes())
        return {
            "moments": {
                "order": self.order,
                "features": self.features,
                "answers": len(self.pairs) * self.groups,
                "record_norm_squared": str(self.most_of_record),
                "sha256": content.hexdigest(),
            }
        }


def _first_features(scores: tuple[NDArray[np.int64], ...]) -> list[int]:
    """The number of the first feature of every column."""
    firsts, first = [], 1
    for each in scores:
        firsts.append(first)
        first += each.shape[1]
    return firsts


def _list_pairs(scores: tuple[NDArray[np.int64], ...], order: int) -> tuple[tuple[int, int], ...]:
    features = 1 + sum(each.shape[1] for each in scores)
    if order == 1:
        return tuple((0, other) for other in range(features))
    left_out = set()
    for first, each in zip(_first_features(scores), scores, strict=True):
        used = (each != 0).astype(np.float64)
        together = used.T @ used  # for how many codes two features are both not zero
        plain = ((each == 0) | (each == SCORE_GRID)).all(axis=0)  # such a feature is its own square
        for one in range(each.shape[1]):
            if plain[one]:
                left_out.add((first + one, first + one))
            others = np.flatnonzero(together[one, one + 1 :] == 0) + one + 1
            left_out.update((first + one, first + other) for other in others.tolist())
    pairs = ((one, other) for one in range(features) for other in range(one, features))
    return tuple(pair for pair in pairs if pair not in left_out)


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

    def add(self, codes: Codes, weights: NDArray[np.int64] | None, *, rows: int) -> None:
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

    def finish(self) -> NDArray[np.int64]:
        """The sums of all pairs, in their order."""
        sums = self._high.astype(object) * _HALF + self._low.astype(object)
        if self._paired:
            sums = self._combine()
        order = self._question.order
        values = sums.reshape(-1).tolist() if order == 1 else [sums[pair] for pair in self._question.pairs]
        # To hold every sum to a range moves neighbouring ones no further apart.
        held = [min(max(int(each), -_SATURATED), _SATURATED) for each in values]
        return np.array(held, np.int64)

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
        firsts = _first_features(question.scores)
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
