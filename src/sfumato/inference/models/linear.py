"""Linear models from noisy moments: coefficients, and intervals that know of sampling and of the noise.

`solve_noisy` is the heart. Directions whose curvature does not stand out of the noise are shrunk by a ridge
that the noise alone decides, and what depends on them is said to be not identified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Label
from sfumato.inference.models.design import number_values
from sfumato.inference.models.document import Family
from sfumato.tables.arrays import Flags, Floats, Whole

Pairs = Sequence[tuple[int, int]]

# A direction is strong if its curvature is so many times the norm that noise alone reaches.
STRONG = 2.0
# Of a coefficient that is identified, at most so much (squared) lies in weak directions.
_WEAK_SHARE = 0.05
# Inputs and target lie between -1 and 1, so that a coefficient along a weak direction is hardly larger than
# twice this: it enters intervals as if it had been drawn with this standard deviation.
_WEAK_SPREAD = 0.5
VISIBLE = 4.0  # standard deviations of noise that the variation of the target must hold
FEW = 4
_HIDDEN_SHARE = 0.25  # of the variance of the target, for a coefficient that the noise hides
_NORMAL_ONE_SIDED = 1.6448536269514722
# A robust variance is used as it is if its noise is less than this share of it.
_CERTAIN = 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyMoments:
    """The symmetric matrix of noisy sums of products, and the variance of the noise of each entry.

    `sources` tells for every entry which answer it was filled from, -1 for those that are zero by form.
    """

    matrix: Floats
    sources: Whole
    sigma: float

    @property
    def size(self) -> int:
        """Return the number of features."""
        return int(self.matrix.shape[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Estimated coefficients of scaled inputs, and all that their intervals need.

    `split` are the directions of the noisy matrix, `noise` is the covariance that the noise adds. Along weak
    directions coefficients have the deviation `hidden`. Where they are not `trusted`, there is no interval.
    """

    split: Directions
    coefficients: Floats
    noise: Floats
    residual: float
    records: float
    squares: NoisyMoments | None
    design_effect: float
    hidden: float
    trusted: Flags | bool = True


def arrange_moments(values: Floats, pairs: Pairs, *, features: int, sigma: float) -> NoisyMoments:
    """Return the matrix of noisy sums of products, from one answer per pair.

    Squares that were left out are those of features that are 0 or 1, equal to their own sums.
    """
    sources = np.full((features, features), -1, np.int64)
    for place, (one, other) in enumerate(pairs):
        sources[one, other] = sources[other, one] = place
    for feature in range(features):
        if sources[feature, feature] < 0:
            sources[feature, feature] = sources[0, feature]
    matrix = np.where(sources >= 0, values[np.maximum(sources, 0)], 0.0)
    return NoisyMoments(matrix=matrix, sources=sources, sigma=sigma)


def fit_linear(
    moments: NoisyMoments, *, squares: NoisyMoments | None = None, design_effect: float = 1.0
) -> Solution:
    """Return least squares of the last feature on all others.

    `squares` are noisy sums of products of inputs, times squared residuals; `design_effect` multiplies the
    variance of sampling, where individuals have several records.
    """
    target = moments.size - 1
    matrix, vector = moments.matrix[:target, :target], moments.matrix[:target, target]
    split = split_directions(matrix, moments.sigma)
    records = max(float(matrix[0, 0]), 1.0)
    coefficients = split.solve(vector)
    coefficients = coefficients + _second_order(split, moments, target, coefficients)
    full = np.append(-coefficients, 1.0)
    found = float(full @ moments.matrix @ full)
    spread = moments.sigma * math.sqrt(quadratic_variance(moments, full))
    # A residual that the noise may explain is taken for the largest that it may hide.
    residual = max(found, spread) / max(records - target, 1.0)
    errors = split.inverse @ propagate_noise(moments, full)[:target]
    return Solution(
        split=split,
        coefficients=coefficients,
        noise=moments.sigma**2 * errors @ errors.T,
        residual=residual,
        records=records,
        squares=squares,
        design_effect=design_effect,
        hidden=_WEAK_SPREAD,
    )


def average_moments(parts: Sequence[NoisyMoments]) -> NoisyMoments:
    """Return the mean of several measurements of the same moments, weighted by their precision."""
    precisions = [1.0 / part.sigma**2 for part in parts]
    total = math.fsum(precisions)
    matrix = sum(weight / total * part.matrix for weight, part in zip(precisions, parts, strict=True))
    return NoisyMoments(matrix=np.asarray(matrix), sources=parts[0].sources, sigma=1.0 / math.sqrt(total))


def estimate_loss(moments: NoisyMoments, coefficients: Floats) -> float:
    """Return how much of R2 the noise costs: what it costs less than in 95 of 100 draws of the noise.

    The model without noise, on the same records, has coefficients b; that of `moments` errs from it, along
    the eigenvectors of the noisy matrix, by noise of known variance and by what shrinking takes from b. What
    b is along weak directions nobody can know: it is taken for what it is along the weakest that can be seen,
    and for no less than half a standard deviation of the target (docs/proofs/refinement.md).
    """
    target = moments.size - 1
    records, spread = max(float(moments.matrix[0, 0]), 1.0), _find_spread(moments)
    if spread * records <= VISIBLE * moments.sigma:
        return 1.0  # nobody can tell how much there is to explain
    split, variances = _split_noise(moments, coefficients)
    along = split.vectors.T @ moments.matrix[:target, target]
    seen = np.flatnonzero(split.values > moments.sigma * math.sqrt(target))  # in ascending order
    seen = seen[: max(FEW, (seen.size + 1) // 2)]
    hidden = spread * _HIDDEN_SHARE
    if seen.size:
        hidden = max(hidden, float(((along[seen] ** 2 - variances[seen]) / split.values[seen] ** 2).mean()))
    values = np.maximum(split.values, 0.0)
    missed = (1.0 - split.gains * values) ** 2 * hidden
    # Noise in the matrix also multiplies what the coefficients miss.
    variances = variances + moments.sigma**2 * float(missed.sum())
    losses = values * (missed + split.gains**2 * variances) / (spread * records)
    return bound_sum(losses)


def _find_spread(moments: NoisyMoments) -> float:
    """Return the noisy variance of the target."""
    records = max(float(moments.matrix[0, 0]), 1.0)
    return float(moments.matrix[-1, -1]) / records - float(moments.matrix[0, -1] / records) ** 2


def _split_noise(moments: NoisyMoments, coefficients: Floats) -> tuple[Directions, Floats]:
    """Return the directions of the inputs, and the variance that noise has in the equations along each."""
    target = moments.size - 1
    split = split_directions(moments.matrix[:target, :target], moments.sigma)
    moved = split.vectors.T @ propagate_noise(moments, np.append(-coefficients, 1.0))[:target]
    return split, moments.sigma**2 * (moved**2).sum(axis=1)


def bound_sum(means: Floats) -> float:
    """Return what a sum of independent squares of normal numbers with these means stays below, with 95 %.

    By the law of a multiple of chi squared with the same mean and variance, after Wilson and Hilferty.

    >>> round(bound_sum(np.ones(10)), 1)  # chi squared with ten degrees of freedom
    18.3
    """
    mean = float(means.sum())
    part = 2.0 * float((means**2).sum()) / max(9.0 * mean**2, 1e-300)
    return mean * (1.0 - part + _NORMAL_ONE_SIDED * math.sqrt(part)) ** 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Directions:
    """The eigenvectors of a noisy matrix, cut into those that stand out of the noise and the others."""

    values: Floats
    vectors: Floats
    strong: Flags
    ridge: float
    damping: float

    @property
    def inverse(self) -> Floats:
        """Return the inverse along strong directions, zero along the others."""
        kept = self.vectors[:, self.strong]
        return np.asarray((kept / self.values[self.strong]) @ kept.T)

    @property
    def positive(self) -> Floats:
        """Return the matrix along strong directions."""
        kept = self.vectors[:, self.strong]
        return np.asarray((kept * self.values[self.strong]) @ kept.T)

    def solve(self, vector: Floats) -> Floats:
        """Return the solution, along weak directions shrunk as far as the noise makes it uncertain."""
        return np.asarray(self.vectors @ (self.gains * (self.vectors.T @ vector)))

    @property
    def gains(self) -> Floats:
        """Return what a slope along every direction is multiplied by."""
        held = np.maximum(self.values, 0.0)
        shrunk = held / np.maximum(held**2 + self.damping**2, 1e-300)
        return np.where(self.strong, 1.0 / np.where(self.strong, self.values, 1.0), shrunk)


def split_directions(
    matrix: Floats, sigma: float, *, slope: float | None = None, damped: float = 1.0
) -> Directions:
    """Return directions of a symmetric matrix whose entries have noise of `sigma`, slopes noise of `slope`.

    `damped` is how much of the noise of the matrix shrinks what is solved along weak directions.
    """
    values, vectors = np.linalg.eigh(matrix)
    size = matrix.shape[0]
    # Symmetric noise has a norm of about 2 sigma sqrt(size), and hardly ever more.
    ridge = STRONG * 2.0 * sigma * math.sqrt(size)
    noise = sigma if slope is None else slope
    damping = math.hypot(noise / _WEAK_SPREAD, damped * sigma * math.sqrt(size))
    return Directions(values=values, vectors=vectors, strong=values > ridge, ridge=ridge, damping=damping)


def propagate_noise(moments: NoisyMoments, direction: Floats) -> Floats:
    """How noise of one standard deviation in each answer moves matrix @ direction: a column per answer."""
    size, sources = moments.size, moments.sources
    answers = int(sources.max()) + 1
    moved = np.zeros((size, answers))
    rows = np.repeat(np.arange(size), size)
    flat = sources.ravel()
    weights = np.tile(direction, size)
    kept = flat >= 0
    np.add.at(moved, (rows[kept], flat[kept]), weights[kept])
    return moved


def quadratic_variance(moments: NoisyMoments, direction: Floats) -> float:
    """Return the variance of direction' E direction, for noise E of variance 1 in every answer."""
    moved = direction @ propagate_noise(moments, direction)
    return float(moved @ moved)


def _second_order(split: Directions, moments: NoisyMoments, target: int, coefficients: Floats) -> Floats:
    """Return what the inverse of a noisy matrix is off by on average, in second order, taken off."""
    inverse = split.inverse
    variances = np.where(moments.sources[:target, :target] >= 0, moments.sigma**2, 0.0)
    expected = variances * inverse.T
    np.fill_diagonal(expected, variances @ np.diag(inverse))
    shift = inverse @ expected @ coefficients
    # Where the correction is not small, it is no correction.
    limit = 0.5 * float(np.abs(coefficients).max(initial=0.0))
    return np.zeros_like(shift) if float(np.abs(shift).max(initial=0.0)) > limit else -shift


def estimate_errors(solution: Solution, transform: Floats) -> Floats:
    """Standard errors of transform @ coefficients, for sampling, noise and weak directions together."""
    split, inverse = solution.split, solution.split.inverse
    sampling = _diagonal(transform, solution.residual * inverse)
    if solution.squares is not None:
        ways = transform @ inverse
        robust = _diagonal(ways, solution.squares.matrix)
        noise = np.array([math.sqrt(quadratic_variance(solution.squares, way)) for way in ways])
        noise = solution.squares.sigma * noise
        # Where it drowns, an interval is no narrower than that of equal variances, and errs to the wide side.
        wide = np.maximum(sampling, robust + _CERTAIN * noise)
        sampling = np.where(noise < _CERTAIN * robust, robust, wide)
    weak = split.vectors[:, ~split.strong]
    others = _diagonal(transform, solution.noise + solution.hidden**2 * weak @ weak.T)
    variances = np.maximum(solution.design_effect * sampling, 0.0) + np.maximum(others, 0.0)
    return np.asarray(np.sqrt(variances))


def list_needed(matrix: Floats, sigma: float) -> Floats:
    """From how many records on each coefficient stands out, if one record adds `matrix` on average.

    `sigma` is the noise of every entry.
    """
    values, vectors = np.linalg.eigh(matrix)
    needed = STRONG * 2.0 * sigma * math.sqrt(values.size) / np.maximum(values, 1e-12)
    # The weakest directions come first; a coefficient does without those that hold next to nothing of it.
    spared = (np.cumsum(vectors**2, axis=1) <= _WEAK_SHARE).sum(axis=1)
    return np.asarray(needed[np.minimum(spared, values.size - 1)])


def is_identified(solution: Solution, transform: Floats) -> Flags:
    """Return whether all coefficients that a row of `transform` needs are identified."""
    weak = solution.split.vectors[:, ~solution.split.strong]
    identified = ((weak**2).sum(axis=1) <= _WEAK_SHARE) & solution.trusted
    return np.asarray(~((transform != 0) & ~identified).any(axis=1))


def _diagonal(transform: Floats, matrix: Floats) -> Floats:
    return np.asarray(((transform @ matrix) * transform).sum(axis=1))


def find_components(moments: NoisyMoments, *, inputs: int) -> tuple[Floats, Floats, Floats, float]:
    """Principal components of the inputs: variances in descending order, their noise, and loadings as rows.

    Only components whose variance stands out of the noise are listed, that is above the last number given;
    the largest loading is positive. The noise of a variance is a standard deviation along its loading.
    """
    records = max(float(moments.matrix[0, 0]), 1.0)
    means = moments.matrix[0, 1 : 1 + inputs] / records
    spread = moments.matrix[1 : 1 + inputs, 1 : 1 + inputs] / records - np.outer(means, means)
    values, vectors = np.linalg.eigh(spread)
    floor = STRONG * 2.0 * moments.sigma * math.sqrt(max(inputs, 1)) / records
    order = [place for place in range(inputs - 1, -1, -1) if values[place] > floor]
    loadings = vectors[:, order].T
    for row in loadings:
        if row[np.argmax(np.abs(np.round(row, 9)))] < 0:
            row *= -1
    noise = [
        moments.sigma * math.sqrt(quadratic_variance(moments, way)) / records for way in _widen(loadings)
    ]
    return values[order], np.array(noise), loadings, floor


def _widen(loadings: Floats) -> Floats:
    """Return loadings of inputs as directions of all features, between the constant and the target."""
    return np.pad(loadings, ((0, 0), (1, 1)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegressionModel:
    """A table of effects per column, by code, and a constant; of numbers also their `slopes`.

    A linear model predicts a number, held to the public `bounds` of its target; a logistic one the
    probability of the last of its two `classes`. A value that is unknown, of code -1, has the effect of the
    middle of the bounds, or of the label that was left out.
    """

    family: Family
    constant: float
    effects: Mapping[str, Floats]
    unknown: Mapping[str, float]
    slopes: Mapping[str, float]
    bounds: tuple[float, float] | None = None
    classes: tuple[Label, ...] = ()

    def predictors(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Return the constant and the effects of all columns, added up in their order."""
        found = np.full(rows, self.constant)
        for name, effects in self.effects.items():
            code = codes[name]
            found += np.where(code >= 0, effects[np.maximum(code, 0)], self.unknown[name])
        return found

    def numbers(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Return the number that is expected for every row."""
        assert self.bounds is not None
        return np.asarray(np.clip(self.predictors(codes, rows), *self.bounds))

    def probabilities(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Return the probability of both classes, one row for every row of new data."""
        held = np.clip(self.predictors(codes, rows), -30.0, 30.0)
        chances = 1.0 / (1.0 + np.exp(-held))
        return np.column_stack([1.0 - chances, chances])


def read_regression(document: Mapping[str, Any], columns: Mapping[str, Column]) -> RegressionModel:
    """Return the model that a model.json describes; `columns` are those of its inputs.

    >>> from sfumato.core.facts.column import parse_column
    >>> columns = {"sex": parse_column("sex", {"values": ["m", "f"]})}
    >>> terms = [{"column": None, "coefficient": 1.0}, {"column": "sex", "label": "f", "coefficient": 0.5}]
    >>> document = {"recipe": "linear", "bounds": ["0", "9"], "terms": terms}
    >>> read_regression(document, columns).numbers({"sex": np.array([0, 1, -1])}, 3).tolist()
    [1.0, 1.5, 1.0]
    """
    constant = 0.0
    effects = {name: np.zeros(column.size) for name, column in columns.items()}
    unknown = dict.fromkeys(columns, 0.0)
    slopes: dict[str, float] = {}
    for term in document["terms"]:
        name, coefficient = term["column"], float(term["coefficient"])
        if name is None:
            constant = coefficient
        elif "label" in term:
            place = columns[name].labels.index(term["label"])
            effects[name][place] += coefficient
        else:
            values = number_values(columns[name]) or []
            numbers = np.array([float(each) for each in values])
            slopes[name] = coefficient
            effects[name][: numbers.size] += coefficient * numbers
            middle = float(Fraction(term["low"]) + Fraction(term["high"])) / 2
            effects[name][numbers.size :] += coefficient * middle
            unknown[name] = coefficient * middle
    ends = document.get("bounds")
    return RegressionModel(
        family="classification" if ends is None else "regression",
        constant=constant,
        effects=effects,
        unknown=unknown,
        slopes=slopes,
        bounds=None if ends is None else (float(Fraction(ends[0])), float(Fraction(ends[1]))),
        classes=tuple(document.get("classes", ())),
    )
