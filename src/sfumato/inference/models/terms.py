"""One term of an additive model: groups of codes, a centred smooth basis over them, its fit to noisy sums.

A term is a function of one column. Codes that are too rare to be told from noise are joined into groups. Over
the groups there is a basis with few large directions, in which smooth functions lie, so that noise in it
hides little of them. What noisy sums say of a term is then weighed against what noise alone would say, by the
likelihood of both: empirical Bayes, which takes nothing but noisy numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfumato.tables.arrays import Floats, Whole

Codes = Whole

MOST_GROUPS = 64
_REACH = 0.4  # of the range of an ordered column, over which its values remain alike
_KEPT = 0.995  # of the variance of the prior, which the basis holds
_VARIANCES = 4.0 ** np.arange(-8, 2)  # of the prior that are weighed against each other, and against none
_SHORTEST = 1e-6  # rows of the basis, relative to the longest, that are not worth asking
_NOTHING = 0.3  # the prior probability that a term is nothing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Basis:
    """A centred basis over groups of the codes of one column, and what is asked of them.

    `groups` is the group of every code, `counts` the number of records of every group. The term is
    `directions` @ coefficients. Asked are sums with `weights`, in whole multiples of 1 / grid, whose rows are
    as long as they may be: grid in L2. They are not centred, so that the constant is in them too.
    """

    groups: Codes
    counts: Floats
    directions: Floats
    weights: Codes
    grid: int

    @property
    def asked(self) -> Floats:
        """Return the weights of the sums that are asked, as numbers."""
        return self.weights / self.grid

    @property
    def rank(self) -> int:
        """Return the number of directions, and of sums that are asked."""
        return int(self.directions.shape[1])

    def slopes(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return how the sums change with the coefficients, with one another, and with the constant.

        `weights` is the weight of a record of every group.
        """
        counts, asked = self.counts * weights, self.asked
        weighted = asked * counts[:, None]
        return weighted.T @ self.directions, weighted.T @ asked, weighted.sum(axis=0)

    def express(self) -> Floats:
        """Return the directions as a constant, which is the first row, and combinations of what is asked."""
        rows = np.column_stack([np.ones(self.counts.size), self.asked])
        root = np.sqrt(self.counts)[:, None]
        return np.asarray(np.linalg.lstsq(rows * root, self.directions * root, rcond=1e-9)[0])


def join_codes(counts: Floats, *, ordered: int, least: float) -> Codes:
    """Return the group of every code, such that groups hold about `least` records; by noisy `counts`.

    The first `ordered` codes have an order, and neighbours are joined; of the others, all rare ones are.

    >>> join_codes(np.array([5.0, 1, 1, 9, 9, 0, 0]), ordered=4, least=4).tolist()
    [0, 1, 1, 2, 3, 4, 4]
    """
    groups = np.zeros(counts.size, np.int64)
    least = max(least, 1.0)
    number, held = 0, 0.0
    for code in range(ordered):
        # A code that could stand alone is not joined to rare ones that nearly can.
        alone = counts[code] >= least and held >= least / 2
        if alone or (held >= least and held + counts[code] >= 1.5 * least):
            number, held = number + 1, 0.0
        groups[code] = number
        held += max(float(counts[code]), 0.0)
    if ordered and held < least and number > 0:
        groups[:ordered][groups[:ordered] == number] = number - 1
        number -= 1
    last = number if ordered else -1
    rare = -1
    for code in range(ordered, counts.size):
        if counts[code] >= least:
            last += 1
            groups[code] = last
        else:
            if rare < 0:
                last += 1
                rare = last
            groups[code] = rare
    return groups


def build_basis(counts: Floats, groups: Codes, *, ordered: int, grid: int) -> Basis:
    """Return centred basis over `groups`; those of the first `ordered` codes are smooth in their order."""
    size = int(groups.max()) + 1
    totals = np.maximum(np.bincount(groups, weights=counts, minlength=size), 1.0)
    if size < 2:
        nothing = np.zeros((size, 1))
        return Basis(
            groups=groups, counts=totals, directions=nothing, weights=nothing.astype(np.int64), grid=grid
        )
    chained = int(groups[:ordered].max()) + 1 if ordered else 0
    covariance = np.eye(size)
    if chained > 1:
        places = np.arange(chained) / (chained - 1)
        near = np.exp(-np.abs(places[:, None] - places[None, :]) / _REACH)
        covariance[:chained, :chained] = near
    share = totals / totals.sum()
    if chained <= 1:
        # All groups are alike, so that one orthonormal frame is as good as another: one that is written down.
        rows = _frame(size) - (share @ _frame(size))[None, :]
    else:
        centred = covariance - (share @ covariance)[None, :]
        centred = centred - (centred @ share)[:, None]
        values, vectors = np.linalg.eigh((centred + centred.T) / 2)
        order = np.argsort(-values, kind="stable")
        values, vectors = np.maximum(values[order], 0.0), vectors[:, order]
        rank = min(size - 1, int(np.searchsorted(np.cumsum(values) / values.sum(), _KEPT)) + 1)
        rows = vectors[:, :rank] * np.sqrt(values[:rank])
        # The sign of a direction is free, so it is fixed.
        signs = np.sign(rows[np.argmax(np.abs(rows), axis=0), np.arange(rank)])
        rows = rows * np.where(signs == 0, 1.0, signs)
    # The longest row has length one.
    rows = rows / math.sqrt(float((rows**2).sum(axis=1).max()))
    # What is asked is as long for every group, since a shorter row would hide more behind the same noise.
    # Cut towards zero, so that no row grows.
    lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    asked = np.where(lengths > _SHORTEST, rows / np.maximum(lengths, _SHORTEST), rows)
    weights = np.trunc(np.round(asked * grid * (1 - 1e-9), 6)).astype(np.int64)
    return Basis(groups=groups, counts=totals, directions=rows, weights=weights, grid=grid)


def _frame(size: int) -> Floats:
    """Return orthonormal columns that each add up to nothing (Helmert's)."""
    columns = np.zeros((size, size - 1))
    for place in range(size - 1):
        length = math.sqrt((place + 1) * (place + 2))
        columns[: place + 1, place] = 1 / length
        columns[place + 1, place] = -(place + 1) / length
    return columns


def cross_bases(one: Basis, two: Basis, *, counts: Floats | None, rank: int) -> Basis:
    """Return the basis of what two columns do together beyond what each does alone: products of directions.

    Of each column the first `rank` directions are taken. `counts` are those of the pairs of groups; without
    them the columns are taken to be independent.
    """
    first, second = one.directions[:, :rank], two.directions[:, :rank]
    rows = np.einsum("ai,bj->abij", first, second).reshape(len(first) * len(second), -1)
    rows = rows / max(math.sqrt(float((rows**2).sum(axis=1).max())), _SHORTEST)
    if counts is None:
        counts = np.outer(one.counts, two.counts).reshape(-1) / max(float(one.counts.sum()), 1.0)
    return Basis(
        groups=np.add.outer(one.groups * len(second), two.groups).reshape(-1),
        counts=np.maximum(counts, 0.5),
        directions=rows,
        # Not stretched, as the rows of one column are: they would add up what its own term leaves.
        weights=np.trunc(np.round(rows * one.grid * (1 - 1e-9), 6)).astype(np.int64),
        grid=one.grid,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """What noisy sums say of a term: sums = slopes @ coefficients + constant * intercept.

    Each has noise of `variance`; beyond that they vary from one set of people to another, by `sampling` times
    the variance of a residual.
    """

    sums: Floats
    slopes: Floats
    sampling: Floats
    constant: Floats
    variance: float


def mix_evidence(older: Evidence | None, newer: Evidence, *, weight: float) -> Evidence:
    """Return both together, the newer with `weight` between 0 and 1."""
    if older is None:
        return newer
    rest = 1 - weight
    return Evidence(
        sums=rest * older.sums + weight * newer.sums,
        slopes=rest * older.slopes + weight * newer.slopes,
        sampling=rest * older.sampling + weight * newer.sampling,
        constant=rest * older.constant + weight * newer.constant,
        variance=rest**2 * older.variance + weight**2 * newer.variance,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """The coefficients that are expected, their covariance, and the log odds that they are not nothing."""

    coefficients: Floats
    covariance: Floats
    log_odds: float


def shrink(evidence: Evidence, *, spread: float, doubt: float = 0.0, prior: float = 1.0) -> Fitted:
    """Return the coefficients that are expected given noisy sums.

    They are normal with a variance that is unknown: several are weighed by how likely they make the sums, and
    against no effect at all. `spread` is the variance of a residual over its weight; `doubt` is that of the
    intercept, whose part in the sums is taken to be away already; `prior` scales the variances.
    """
    constant = evidence.constant
    noise = spread * evidence.sampling + doubt * np.outer(constant, constant)
    values, vectors = np.linalg.eigh((noise + noise.T) / 2)
    whiten = vectors / np.sqrt(np.maximum(values, 0.0) + evidence.variance)
    left, sizes, right = np.linalg.svd(whiten.T @ evidence.slopes, full_matrices=False)
    seen = left.T @ (whiten.T @ evidence.sums)
    variances = np.concatenate(([0.0], prior * _VARIANCES))
    total = 1 + variances[:, None] * sizes[None, :] ** 2
    likelihood = -0.5 * (seen[None, :] ** 2 / total + np.log(total)).sum(axis=1)
    weights = np.concatenate(([math.log(_NOTHING)], np.full(_VARIANCES.size, math.log1p(-_NOTHING))))
    weights[1:] -= math.log(_VARIANCES.size)
    scores = likelihood + weights
    some = scores[1:].max() + math.log(np.exp(scores[1:] - scores[1:].max()).sum())
    odds = float(some - scores[0])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    means = variances[:, None] * sizes[None, :] / total * seen[None, :]
    mean = shares @ means
    # What is left of the prior's variance, and how far the means of the variances differ.
    variance = shares @ (variances[:, None] / total + means**2) - mean**2
    return Fitted(
        coefficients=right.T @ mean, covariance=(right.T * np.maximum(variance, 0.0)) @ right, log_odds=odds
    )
