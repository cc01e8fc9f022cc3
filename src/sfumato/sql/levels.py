"""Least squares between levels: what is known of sums of groups improves the groups, and they add up to it.

Post-processing of noisy values with known noise. docs/proofs/reuse.md has the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.sql.laws import NoisePart
from sfumato.sql.plan import Noise

_Numbers = NDArray[np.float64]

MOST_GROUPS = 400
"""So many groups, and sums of groups, are fitted at most."""

# They are fitted with so many different laws of their noise at most.
_MOST_PARTS = 64
_MOST_LAWS = 200
# Weights closer than this are taken for equal, the larger one; smaller ones than the second are none.
_CLOSE = 1e-6
_NOTHING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums:
    """Noisy sums of groups: for each group the sum that it is in, or -1; the values, and their noise."""

    target: NDArray[np.int64]
    values: NDArray[np.int64]
    noise: Noise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Noisy values of all groups: how many draws of a noise each has, and its weight in their mean."""

    noise: Noise
    draws: NDArray[np.int64]
    weights: _Numbers


def fit_levels(
    noise: Noise, mean: _Numbers, sources: Sequence[Source], sums: Sequence[Sums]
) -> tuple[Noise, NDArray[np.int64]] | None:
    """The groups fitted by least squares to their `mean` and to `sums` of them, and the noise that is left.

    `mean` is that of `sources`, by their weights. None where there is nothing to fit, or too much. What is
    done depends on scales and labels, never on noisy values.
    """
    variances = sum(each.weights**2 * each.draws * each.noise.deviation**2 for each in sources)
    members = [each.target == place for each in sums for place in range(each.values.size)]
    filled = [bool(each.any()) for each in members]
    values = np.concatenate([each.values for each in sums]) if sums else np.zeros(0)
    spread = [each.noise.deviation**2 for each in sums for _ in range(each.values.size)]
    if not any(filled) or mean.size > MOST_GROUPS or sum(filled) > MOST_GROUPS:
        return None
    held = np.array(members, np.float64)[filled]
    # The gain of Kalman's filter: the groups are known by themselves, then their sums are seen.
    both = held * variances
    gain = np.asarray(np.linalg.solve(np.diag(np.array(spread)[filled]) + both @ held.T, both).T, np.float64)
    own = np.asarray(np.eye(mean.size) - gain @ held, np.float64)
    fitted = own @ mean + gain @ values[filled]
    parts: list[NoisePart] = []
    steps = np.zeros(mean.size)
    for source in sources:
        steps = steps + _add_parts(parts, source.noise, own * source.weights, source.draws)
    first = 0
    for each in sums:
        kept = np.array(filled[first : first + each.values.size])
        before = sum(filled[:first])
        columns = gain[:, before : before + int(kept.sum())]
        steps = steps + _add_parts(parts, each.noise, columns, np.ones(columns.shape[1], np.int64))
        first += each.values.size
    laws = len(set(zip(*(part.counts for part in parts), strict=True)))
    if len(parts) > _MOST_PARTS or laws > _MOST_LAWS:
        return None
    # Each lattice of noise adds at most its step, rounding at most a half.
    slack = float(steps.max()) + 0.5
    return replace(noise, parts=tuple(parts), slack=slack), np.rint(fitted).astype(np.int64)


def _add_parts(parts: list[NoisePart], noise: Noise, weights: _Numbers, draws: NDArray[np.int64]) -> _Numbers:
    """Adds the parts of the noise of every group, by weights of its draws; returns the steps of each."""
    sizes = np.abs(weights)
    there = sizes > _NOTHING
    rounded = np.where(there, np.ceil(np.log(np.where(there, sizes, 1.0)) / _CLOSE), np.nan)
    steps = np.zeros(weights.shape[0])
    for each in np.unique(rounded[there]):
        size = float(np.exp(each * _CLOSE))
        counts = ((rounded == each) * draws).sum(axis=1)
        parts.append(NoisePart(noise.shape, float(noise.scale) * size, tuple(counts.tolist())))
        steps += size * (counts > 0)
    return steps
