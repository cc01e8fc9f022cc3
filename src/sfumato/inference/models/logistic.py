"""Logistic models from noisy Newton steps: what follows from noisy slopes and curvatures, and what does not.

Every step measures the slope of the likelihood at the coefficients so far, and its curvature. Curvatures of
earlier steps are pooled, since they change little near the end, and so are the slopes of the last steps:
near the solution each of them points to it with noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from sfumato.inference.models.linear import (
    FEW,
    VISIBLE,
    Directions,
    Floats,
    NoisyMoments,
    Solution,
    average_moments,
    bound_sum,
    finish_solution,
    list_needed,
    propagate_noise,
    split_directions,
)

REACH = 16
"""Predictors are held to this on both sides, where a probability is one in nine million."""
_FINE = 2**10  # steps of the predictor in one unit
_DISCOUNT = 0.3  # of a curvature, for every step that it is old
_STALE = 0.2  # of the last move, that such curvatures may make it wrong by
_DAMPED = 0.5  # of the noise of a curvature: later steps go on where one was shrunk too far
_LONGEST = 8.0  # that a step may move any predictor
LAST = 3
"""The steps whose slopes make the estimate."""
# Where the noise alone moves a coefficient of a scaled input by more, one step no longer tells where it ends.
_STEADY = 0.5
_ARRIVED, _NEAR = 4.0, 0.1  # a coefficient moved so many errors, or so little, when it was last measured
_PULLED, _FAR, _SMALL = 3.5, 3.0, 0.5
_HIDDEN_VARIANCE = math.pi**2 / 12  # half a standard deviation of logistic noise, squared
_FAINT = 0.2  # of the reach of the noise: the least curvature that a slope is divided by
_HIDDEN = 1.5  # what a coefficient along a weak direction may well be


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """The noisy slope and curvature at some coefficients, and the standard deviation of the slope's noise."""

    coefficients: Floats
    slope: Floats
    sigma: float
    curvature: NoisyMoments


@lru_cache(maxsize=1)
def logistic_weights() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return residuals, for outcomes 0 and 1, and curvatures at every level of the predictor."""
    levels = 2 * REACH * _FINE
    middles = [(level + 0.5) / _FINE - REACH for level in range(levels)]
    chances = np.array([1.0 / (1.0 + math.exp(-middle)) for middle in middles])
    residuals = np.stack([-chances, 1.0 - chances])
    return residuals, chances * (1.0 - chances)


def level_shift(grid: int) -> int:
    """By how many bits a predictor in units of 1 / grid is shifted to its level."""
    return (grid // _FINE).bit_length() - 1


def pool_start(steps: list[Step]) -> Step:
    """What all steps at coefficients of zero say together: there every record has a curvature of 1/4."""
    still = [each for each in steps if not each.coefficients.any()]
    precisions = np.array([1.0 / each.sigma**2 for each in still])
    slope = sum(weight * each.slope for weight, each in zip(precisions, still, strict=True))
    return Step(
        coefficients=still[0].coefficients,
        slope=np.asarray(slope) / precisions.sum(),
        sigma=1.0 / math.sqrt(float(precisions.sum())),
        curvature=average_moments([each.curvature for each in still]),
    )


def is_visible(start: Step) -> bool:
    """Return whether the number of records stands out of the noise, so that there is something to move by."""
    return float(start.curvature.matrix[0, 0]) > VISIBLE * start.curvature.sigma


def next_coefficients(steps: list[Step], *, reach: Callable[[Floats], float]) -> Floats:
    """Where the next slope is measured; `reach` tells how far a move takes the predictor of any record."""
    last = steps[-1]
    matrix, sigma = _pool(steps)
    split = split_directions(matrix, sigma, slope=last.sigma, damped=_DAMPED)
    move = split.solve(last.slope)
    found = last.coefficients + move * min(1.0, _LONGEST / max(reach(move), 1e-300))
    # Beyond the reach of the link no coefficient can be told from a larger one.
    return np.asarray(np.clip(found, -REACH, REACH))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Arrival:
    """Where the slopes of the last steps point to: from `start`, along directions, by their mean slope."""

    split: Directions
    sigma: float
    start: Floats
    slope: Floats
    variance: float

    @property
    def coefficients(self) -> Floats:
        return np.asarray(np.clip(self.start + self.split.solve(self.slope), -REACH, REACH))


def _arrive(steps: list[Step], last: int) -> _Arrival:
    matrix, sigma = _pool(steps)
    used = steps[-last:]
    precisions = np.array([1.0 / each.sigma**2 for each in used])
    variance = 1.0 / float(precisions.sum())
    shares = precisions * variance
    return _Arrival(
        split=split_directions(matrix, sigma, slope=math.sqrt(variance), damped=_DAMPED),
        sigma=sigma,
        start=np.asarray(sum(share * each.coefficients for share, each in zip(shares, used, strict=True))),
        slope=np.asarray(sum(share * each.slope for share, each in zip(shares, used, strict=True))),
        variance=variance,
    )


def estimate_auroc_loss(steps: list[Step], *, last: int) -> float:
    """Return how much of AUROC the noise costs: what it costs less than in 95 of 100 draws of the noise.

    Errors of coefficients add variance to the predictor: from noise, from what is taken for hidden along weak
    directions, and from slopes along these that noise does not explain. Of a predictor that is normal in both
    classes, variance that tells nothing lowers AUROC by a formula (docs/proofs/refinement.md).
    """
    found = _arrive(steps, last)
    split, coefficients = found.split, found.coefficients
    matrix = (split.vectors * split.values) @ split.vectors.T
    weight = float(matrix[0, 0])  # of all records together
    if weight <= VISIBLE * found.sigma:
        return 1.0
    spread = float(coefficients @ matrix @ coefficients) / weight
    spread -= float(matrix[0] @ coefficients / weight) ** 2
    if spread <= 0:
        return 1.0
    values, gains = np.maximum(split.values, 0.0), split.gains
    reach = found.sigma * math.sqrt(values.size)  # what noise alone makes of a curvature
    seen = np.flatnonzero(split.values > reach)
    seen = seen[: max(FEW, (seen.size + 1) // 2)]
    hidden = max(
        _HIDDEN_VARIANCE, float(((split.vectors.T @ coefficients)[seen] ** 2).sum()) / max(seen.size, 1)
    )
    moved = found.sigma**2 * float(((coefficients - found.start) ** 2).sum())
    missed = values * (1.0 - gains * values) ** 4 * hidden  # at least two steps went along every direction
    pulled = np.maximum((split.vectors.T @ found.slope) ** 2 - found.variance, 0.0)
    pulled *= (1.0 - gains * values) ** 2 / np.maximum(split.values, _FAINT * reach)
    away = np.maximum(missed, pulled)
    added = bound_sum((values * gains**2 * (found.variance + moved) + away) / weight)
    normal = NormalDist().cdf
    # What is missed belongs to the predictor without noise.
    whole = spread + float(away.sum()) / weight
    return normal(math.sqrt(whole / 2)) - normal(spread / math.sqrt(2 * (spread + added)))


def fit_logistic(
    steps: list[Step], *, squares: NoisyMoments | None = None, design_effect: float = 1.0, last: int = LAST
) -> Solution:
    """Return the coefficients that the slopes of the `last` steps point to, and their covariance."""
    found = _arrive(steps, last)
    split, sigma, start, slope = found.split, found.sigma, found.start, found.slope
    coefficients, variance = found.coefficients, found.variance
    moved = propagate_noise(steps[-1].curvature, coefficients - start)
    noise = variance * np.eye(coefficients.size) + sigma**2 * moved @ moved.T
    noise = np.asarray(split.inverse @ noise @ split.inverse)
    # A curvature that is partly from earlier steps makes the last move too short or too long.
    noise += np.diag((_STALE * (coefficients - start)) ** 2)
    solution = finish_solution(
        split,
        coefficients,
        noise=noise,
        residual=1.0,
        records=0.0,
        squares=squares,
        design_effect=design_effect,
        hidden=_HIDDEN,
    )
    errors = np.sqrt(np.maximum(np.diag(noise), 0.0))
    arrived = np.abs(coefficients - start) <= np.maximum(_ARRIVED * errors, _NEAR)
    # A slope along a weak direction that noise does not explain would go on to move the other coefficients:
    # a move by t along it shifts their slopes by at most half its curvature times t^2, of order t this slope.
    along = np.abs(split.vectors[:, ~split.strong].T @ slope)
    left = _FAR * float(along[along > _PULLED * math.sqrt(variance)].sum()) / 2
    shifts = left * np.sqrt((split.inverse**2).sum(axis=1))
    steady = shifts <= _SMALL * np.sqrt(np.maximum(np.diag(noise + split.inverse), 0.0))
    trusted = (errors <= _STEADY) & arrived & (np.abs(coefficients) < REACH) & steady
    return replace(solution, identified=solution.identified & trusted)


def list_needed_logistic(matrix: Floats, slopes: list[float], curvatures: list[float]) -> Floats:
    """From how many records on each coefficient stands out, if one record adds `matrix` to the products.

    `slopes` and `curvatures` are the noise of those that the steps measure.
    """
    sigma = math.sqrt(float(_weigh(curvatures) ** 2 @ np.array(curvatures) ** 2))
    slope = 1.0 / math.sqrt(sum(1.0 / each**2 for each in slopes[-LAST:]))
    errors = slope * np.sqrt((np.linalg.pinv(matrix / 4) ** 2).sum(axis=1))  # for one record
    return np.asarray(np.maximum(list_needed(matrix / 4, sigma), errors / _STEADY))


def _weigh(sigmas: list[float]) -> Floats:
    """Return the weights of curvatures with this noise, older ones for less."""
    weights = np.array(
        [_DISCOUNT ** (len(sigmas) - 1 - place) / each**2 for place, each in enumerate(sigmas)]
    )
    return np.asarray(weights / weights.sum())


def _pool(steps: list[Step]) -> tuple[Floats, float]:
    """Return the weighted mean of all curvatures, older ones for less, and the deviation of its noise."""
    weights = _weigh([each.curvature.sigma for each in steps])
    matrix = sum(weight * each.curvature.matrix for weight, each in zip(weights, steps, strict=True))
    variances = np.array([each.curvature.sigma**2 for each in steps])
    return np.asarray(matrix), math.sqrt(float(weights**2 @ variances))
