"""Counts with Laplace noise, shrunk towards a prediction of them by as much as the noise asks for.

A count x is taken for a draw of a Poisson law whose mean is the prediction times a ratio of its own, and the
ratios for draws of a gamma law of mean 1. How far ratios spread, the noisy counts themselves tell: every
spread has a weight by its likelihood (empirical Bayes). With much noise next to nothing is told, and a count
is its prediction; with little noise it is what was measured.

Predictions and ratios lie on one grid of logarithms, so that all laws are rows of one table.

Counts with Gaussian noise are drawn towards what all of them look like, or are beside their predictions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sfumato.inference.kernels import draw_components, draw_counts
from sfumato.tables.arrays import Flags, Floats, Whole

_STEP = 0.1  # of the grid, in logarithms
_RATIOS = np.arange(-40, 41, 4)  # in steps: from 1/55 to 55
_BETWEEN = 4 * _STEP
_REACH = 45  # more steps than any ratio
_LOWEST = -150  # steps: no prediction below e^-15 is told from another
_SHAPES = 2.0 ** np.arange(6, -5, -1)  # of the gamma law: from ratios within an eighth of 1 to mostly zeros
_FINE = 33  # counts below are told apart
_POINTS = 2000  # counts that are told apart at most; those between stand for each other
_UNHEARD = 1e-200  # chance of what no law explains, in place of nothing

# Of counts with Gaussian noise: from 1/55 to 90 times their mean, in logarithms and steps that noise hides.
_MULTIPLES = np.arange(-40, 46)
_CLEAR = 10  # times its noise: such a count stays as it is
_LEAST = 1e-6  # of a prediction, so that there are multiples of it
_NOTHING = 1 / 4  # of its noise: even sixteen counts together would not tell such a one from 0
_EM_STEPS = 200  # the law of the counts is known to within noise by then


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shrinkage:
    """Noisy counts and the law of the counts behind them, given any predictions.

    `likelihood` is the logarithm of what the predictions it was fitted with make of the noisy values.
    """

    noisy: Floats
    scale: float
    clear: Flags
    counts: Floats
    table: Floats
    prior: Floats
    noise: Floats
    sums: Floats
    places: Whole
    weights: Floats
    likelihood: float

    def expect(self, predicted: Floats) -> Floats:
        """Return the expected counts."""
        keys, cells = np.unique(
            _find_levels(predicted, self.table.shape[0]) * self.noise.shape[0] + self.places,
            return_inverse=True,
        )
        levels, places = keys // self.noise.shape[0], keys % self.noise.shape[0]
        means = np.empty(keys.size)
        for start in range(0, keys.size, 4096):
            part = slice(start, start + 4096)
            law = self.prior[levels[part]] * self.noise[places[part]]
            means[part] = (law * self.counts).sum(axis=1) / law.sum(axis=1)
        found = np.where(self.clear, self.noisy, means[cells.reshape(-1)])
        return np.asarray(found.reshape(predicted.shape), np.float64)

    def draw(self, predicted: Floats, random: np.random.Generator) -> tuple[Floats, Floats]:
        """Return counts as they may be, and the means of the Poisson laws behind them."""
        levels = _find_levels(predicted, self.table.shape[0])
        found = np.empty(levels.size, np.int64)
        uniforms = random.random(levels.size)
        draw_counts(self.prior, self.noise, self.sums, levels, self.places, uniforms, found)
        which = np.empty(levels.size, np.int64)
        uniforms = random.random(levels.size)
        draw_components(self.prior, self.table, self.weights, _RATIOS, levels, found, uniforms, which)
        ratios = np.append(np.exp(_RATIOS * _STEP), 0.0)[which]
        # A ratio stands for all between it and its neighbours.
        ratios *= np.exp((random.random(levels.size) - 0.5) * _BETWEEN)
        counts, means = self.counts[found], ratios * predicted.reshape(-1)
        if self.clear.any():
            sure = self.noisy + np.rint(random.laplace(scale=self.scale, size=levels.size))
            counts = np.where(self.clear, np.maximum(sure, 0), counts)
            means = np.where(self.clear, counts, means)
        return counts.reshape(predicted.shape), means.reshape(predicted.shape)


def fit_shrinkage(noisy: Floats, predicted: Floats, *, scale: float) -> Shrinkage:
    """Return shrinkage of `noisy` counts, whose Laplace noise has this `scale`, towards those `predicted`.

    >>> noisy = np.array([3.0, -2.0, 40.0, 1.0])
    >>> shrinkage = fit_shrinkage(noisy, np.full(4, 2.0), scale=5.0)
    >>> means = shrinkage.expect(np.full(4, 2.0))
    >>> bool((means >= 0).all()), bool(means[1] < means[0] < means[2])
    (True, True)
    """
    noisy, predicted = noisy.reshape(-1).astype(np.float64), predicted.reshape(-1)
    # Noise that is a tenth of what a Poisson law spreads is nothing to shrink.
    clear = noisy >= max(100.0, 100.0 * scale**2)
    step = max(1, int(scale / 8))
    known = np.where(clear, 0, np.rint(noisy / step) * step)
    largest = float(np.where(clear, 1, predicted).max())
    most = float(known.max()) + 5 * scale
    if most < 25 * scale:  # which noise alone may be: no more than a prediction allows
        most = min(most, 60 * largest + 60)
    counts, widths = _list_counts(most, scale)
    levels = np.arange(_LOWEST, int(math.log(max(largest, 1.0)) / _STEP) + 2 * _REACH) * _STEP
    factorials = np.array([math.lgamma(count + 1) for count in counts])
    laws = counts * levels[:, None] - np.exp(levels)[:, None] - factorials
    table = np.exp(laws - laws.max(axis=1, keepdims=True)) * widths
    table /= table.sum(axis=1, keepdims=True)
    values, places = np.unique(known, return_inverse=True)
    gaps = np.abs(values[:, None] - counts)
    noise = np.exp(-(gaps - gaps.min(axis=1, keepdims=True)) / scale)
    weights, likelihood = _weigh_spreads(
        table @ noise.T, noise[:, 0], _find_levels(predicted, levels.size)[~clear], places.reshape(-1)[~clear]
    )
    prior = np.full_like(table, _UNHEARD)  # a count that no law explains is what was measured
    inner = slice(_REACH, levels.size - _REACH)
    for weight, ratio in zip(weights[:-1], _RATIOS, strict=True):
        prior[inner] += weight * table[inner.start + ratio : inner.stop + ratio]
    prior[inner, 0] += weights[-1]
    return Shrinkage(
        noisy=noisy,
        scale=scale,
        clear=clear,
        counts=counts,
        table=table,
        prior=prior,
        noise=noise,
        sums=prior @ noise.T,
        places=places.reshape(-1),
        weights=weights,
        likelihood=likelihood,
    )


def shrink_counts(
    noisy: Floats, deviations: Floats, predicted: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return expected counts behind `noisy` ones with Gaussian noise of these `deviations`, and their own.

    All counts are taken for draws of one law on multiples of what is `predicted` for each, or else of their
    mean. It is the law under which the noisy counts are likeliest (Kiefer and Wolfowitz 1956), found by
    expectation maximisation. Counts that noise hides are so drawn to what such counts are on average, and
    none is below zero. Counts far above their noise stay as they are. Those far below it are 0, unless
    something is predicted.

    >>> noisy = np.array([-30.0, 40.0, 1010.0])
    >>> means, _ = shrink_counts(noisy, np.full(3, 50.0))
    >>> bool((means >= 0).all()), bool(abs(means[2] - 1010) < 100)
    (True, True)
    """
    if predicted is None:
        grid, unit = _list_multiples() * max(float(noisy.mean()), 1.0), np.ones(noisy.size)
    else:
        unit = np.maximum(predicted, _LEAST)
        grid = _list_multiples(float((noisy / unit).max()))
    laws = -0.5 * ((noisy[:, None] - unit[:, None] * grid) / deviations[:, None]) ** 2
    laws = np.exp(laws - laws.max(axis=1, keepdims=True))
    weights = np.full(grid.size, 1 / grid.size)
    for _ in range(_EM_STEPS):
        chances = weights * laws
        chances /= chances.sum(axis=1, keepdims=True)
        weights = chances.mean(axis=0)
    means = chances @ grid
    spread = unit * np.sqrt(np.maximum(chances @ grid**2 - means**2, 0.0))
    means *= unit
    if predicted is None:
        means[means < _NOTHING * deviations] = 0.0
    clear = noisy >= _CLEAR * deviations
    return np.where(clear, noisy, means), np.where(clear, deviations, spread)


def _list_multiples(most: float = 1.0) -> Floats:
    """0, and multiples of what is expected from a count, so far that `most` is among them."""
    above = np.arange(_MULTIPLES[-1] + 1, math.ceil(10 * math.log(max(most, 1.0))) + 1)
    return np.append(0.0, np.exp(np.append(_MULTIPLES, above) / 10))


def _weigh_spreads(
    fits: Floats,
    empty: Floats,
    levels: Whole,
    places: Whole,
) -> tuple[Floats, float]:
    """Return the weights of the ratios, that of 0 last, and the likelihood they give to the noisy values."""
    laws = np.array([_spread_ratios(shape) for shape in _SHAPES])
    if not levels.size:
        return laws[0], 0.0
    keys, times = np.unique(levels * empty.size + places, return_counts=True)
    level, place = keys // empty.size, keys % empty.size
    chances = np.stack([*(fits[level + ratio, place] for ratio in _RATIOS), empty[place]], axis=1)
    scores = (times[:, None] * np.log(np.maximum(chances @ laws.T, _UNHEARD))).sum(axis=0)
    shares = np.exp(scores - scores.max())
    weights = (shares / shares.sum()) @ laws
    return weights, float(times @ np.log(np.maximum(chances @ weights, _UNHEARD)))


def _spread_ratios(shape: float) -> Floats:
    """Return a gamma law of mean 1 on the ratios; what lies below the least of them is 0."""
    ratios = np.exp(_RATIOS * _STEP)
    law = np.exp(shape * (np.log(ratios) - ratios + 1))
    law = np.append(law, law[0] / math.expm1(_BETWEEN * shape))
    return np.asarray(law / law.sum())


def _list_counts(most: float, scale: float) -> tuple[Floats, Floats]:
    """Return counts from 0 to `most` that stand for those around them, and for how many each stands."""
    counts = [float(count) for count in range(_FINE)]
    while counts[-1] < most:
        # Neither a Poisson law nor the noise has edges finer than this.
        gap = max(min(math.sqrt(counts[-1]) / 2, scale), most / _POINTS)
        counts.append(counts[-1] + max(1, math.floor(gap)))
    middle = [(one + other) / 2 for one, other in pairwise(counts)]
    return np.array(counts), np.diff([-0.5, *middle, counts[-1] + 0.5])


def _find_levels(predicted: Floats, size: int) -> Whole:
    levels = np.rint(np.log(np.maximum(predicted.reshape(-1), 1e-9)) / _STEP).astype(np.int64) - _LOWEST
    return np.clip(levels, _REACH, size - _REACH - 1)
