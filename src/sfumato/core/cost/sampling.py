"""Gaussian noise on a sample of the individuals: what a run of such steps costs.

Each step draws every individual with probability `sampling`, independently, adds up what those drawn
contribute, at most one unit in L2, and adds Gaussian noise of standard deviation `sigma` units. The loss of
one step, the logarithm of the ratio of likelihoods, gets a law on a grid: masses between two points of the
grid are split between them, which only tells more. Laws of many steps are convolutions. Masses are never
negative, so that nothing cancels; whatever is rounded, is rounded towards larger losses.
Proof: docs/proofs/network.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.core.cost.curves import log_delta
from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, parse_exact, parse_whole, round_up

Order = Literal["removed", "added"]
MOST_STEPS = 10**5
LEAST_SAMPLING = Fraction(1, 1000)

_FINE = 32  # points of the grid within one standard deviation of the loss
_MOST_POINTS = 4096
_REACH = 12.0  # standard deviations of the noise beyond which masses count as lost
_TAIL = 1e-22  # mass beyond either end that a law is cut off by
_ERROR = 1e-13  # relative, tens of times the error of erfc in any C library in use
_SHIFT = 1e-12  # of losses, for the rounding of the points of the grid
_LEAST_MU = 1e-6
_ROUNDED = 1e-5  # by which a parameter is raised in the end


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    """Masses of losses `(low + place) * step`, and of a loss without bound."""

    low: int
    masses: NDArray[np.float64]
    endless: float
    step: float

    def trim(self) -> _Law:
        """Without far ends: what is below is raised to the lowest loss kept, what is above has no bound."""
        below, above = np.cumsum(self.masses), np.cumsum(self.masses[::-1])
        first, last = (int(np.searchsorted(sums, _TAIL)) for sums in (below, above))
        masses = self.masses[first : self.masses.size - last].copy()
        if first:
            masses[0] += below[first - 1]
        endless = self.endless + (float(above[last - 1]) if last else 0.0)
        return _Law(self.low + first, masses, endless, self.step)

    def coarsen(self) -> _Law:
        """The law on a grid of twice the step: every other mass is split between its neighbours."""
        low, masses = self.low, self.masses
        if low % 2:
            low, masses = low - 1, np.insert(masses, 0, 0.0)
        if masses.size % 2 == 0:
            masses = np.append(masses, 0.0)
        kept, split = masses[::2].copy(), masses[1::2]
        kept[1:] += split / (1 + math.exp(-self.step))
        kept[:-1] += split / (1 + math.exp(self.step))
        return _Law(low // 2, kept, self.endless, 2 * self.step)

    def add(self, other: _Law) -> _Law:
        """The law of the sum of both, which have one step."""
        masses = np.convolve(self.masses, other.masses)
        return _Law(self.low + other.low, masses, self.endless + other.endless, self.step).trim()

    def settle(self) -> _Law:
        """On a grid as coarse as its spread allows."""
        law = self
        while law.deviation() > 2 * law.step * _FINE:
            law = law.coarsen()
        return law

    def deviation(self) -> float:
        """The standard deviation of the losses that have a bound."""
        places = np.arange(self.masses.size, dtype=np.float64)
        mean = float(self.masses @ places / self.masses.sum())
        return float(self.step * math.sqrt(self.masses @ (places - mean) ** 2 / self.masses.sum()))

    def deltas(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The losses x of the grid and E[(1 - e^(x - L))+] at each, added up without a difference."""
        factor, growth = math.exp(-self.step), math.expm1(self.step)
        found = np.empty(self.masses.size)
        rest, total = 0.0, self.endless
        for place in range(self.masses.size - 1, -1, -1):
            found[place] = total = total + growth * rest
            rest = factor * (rest + self.masses[place])
        return np.asarray((self.low + np.arange(found.size)) * self.step, np.float64), found


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRun:
    """`count` steps, each with noise of `sigma` on a sample taken with probability `sampling`.

    Privacy: an individual is added or removed; the sum of those drawn moves by at most 1 in L2.

    >>> run = SampledRun(sigma=2.0, sampling=Fraction(1, 8), count=100)
    >>> round(run.delta(3), 7), 0.72 < run.mu(failure=1e-7) < 0.73
    (9.3e-06, True)
    """

    sigma: float
    sampling: Fraction
    count: int

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf or not LEAST_SAMPLING <= self.sampling < 1:
            raise RecipeError("a sampled run needs noise, and a sampling rate from 1/1000 to below 1")
        parse_whole(self.count, name="count", high=MOST_STEPS)

    def delta(self, epsilon: ExactLike) -> float:
        """The delta of the whole run at `epsilon`, an upper bound for both orders of neighbours."""
        wanted = float(parse_exact(epsilon, name="epsilon"))
        found = 0.0
        for order in ("removed", "added"):
            losses, deltas = self._curve(order)
            # Between two losses of its grid the curve is a straight line over e^x.
            found = max(found, float(np.interp(_exp(wanted), _exp(losses), deltas, left=1.0)))
        return min(1.0, found * (1 + 1e-9))

    def mu(self, *, failure: float) -> float:
        """A mu such that, but for a failure of this probability, the whole run is mu-Gaussian-private.

        It is the least, to five digits, that is `covered`; at most that of noise without sampling.
        """
        low, high = 0.0, math.sqrt(self.count) / self.sigma
        while high - low > _ROUNDED * high and high > _LEAST_MU:
            middle = (low + high) / 2
            low, high = (low, middle) if self.covered(middle, failure=failure) else (middle, high)
        return high * (1 + _ROUNDED)

    def covered(self, mu: float, *, failure: float) -> bool:
        """Whether (1 - w) delta_mu + w, w being `failure`, lies above the curves of both orders."""
        # Losses without a bound are covered by nothing else.
        if any(self._curve(order)[1][-1] > failure for order in ("removed", "added")):
            return False
        spans = (span for order in ("removed", "added") for span in self._spans(order, failure))
        return all(_covers(mu, failure, *span) for span in spans)

    def _spans(self, order: Order, weight: float) -> list[tuple[float, float, float, float]]:
        """Neighbouring losses from 0 on and the deltas there, while these exceed `weight`."""
        losses, deltas = self._curve(order)
        points = list(zip(losses.tolist(), deltas.tolist(), strict=True))
        return [
            (first, last, above, below)
            for (first, above), (last, below) in pairwise(points)
            if last > 0 and above > weight
        ]

    def _curve(self, order: Order) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return _compose(self.sigma, self.sampling, self.count, order)


@lru_cache(maxsize=1024)
def sampled_mu(variance: Fraction, sampling: Fraction, count: int, failure: Fraction) -> Fraction:
    """`SampledRun.mu` of noise with this variance, rounded up."""
    sigma = math.sqrt(variance) * (1 - 1e-15)
    run = SampledRun(sigma=sigma, sampling=sampling, count=count)
    return round_up(run.mu(failure=float(failure) * (1 - 1e-12)), places=9)


def _covers(mu: float, weight: float, first: float, last: float, above: float, below: float) -> bool:
    """Whether the curve of mu lies above the chord from (first, above) to (last, below), over e^x.

    It is convex over e^x, so it lies above its tangent in the middle, which is compared at both ends.
    """
    first = max(first, 0.0)  # the delta before 0 bounds that at 0
    middle = (first + last) / 2
    height = math.exp(log_delta(mu, middle)) * (1 - 1e-8)
    slope = math.erfc((middle / mu + mu / 2) / math.sqrt(2)) / 2 * (1 + _ERROR)
    ends = ((first, above), (last, below))
    return all(
        delta <= weight + (1 - weight) * (height - slope * math.exp(middle) * math.expm1(end - middle))
        for end, delta in ends
    )


@lru_cache(maxsize=64)
def _compose(
    sigma: float, sampling: Fraction, count: int, order: Order
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The losses and deltas of the whole run, raised by all that floats may err."""
    law, error = _one_step(sigma, sampling, order)
    whole: _Law | None = None
    left = count
    while left:
        if left % 2:
            if whole is not None:
                while whole.step < law.step:
                    whole = whole.coarsen()
            whole = law if whole is None else whole.add(law)
        left //= 2
        if left:
            law = law.add(law).settle()
    assert whole is not None
    losses, deltas = whole.deltas()
    # Each of `count` masses is off by at most `error`, and convolutions of nonnegative masses by far less.
    return losses + count * _SHIFT, deltas * math.exp(count * (error + 2 * _MOST_POINTS * 2.0**-52))


def _one_step(sigma: float, sampling: Fraction, order: Order) -> tuple[_Law, float]:
    """The law of the loss of one step, and the relative error of its masses.

    With m = 1 / sigma, outcomes are z of N(0, 1) without the individual, and of a mixture with N(m, 1) with
    it; the loss of the latter against the former at z is ln(1 - q + q exp(m z - m^2 / 2)).
    """
    q, m = math.nextafter(float(sampling), 1.0), 1 / sigma

    def loss(z: float) -> float:
        return math.log1p(q * math.expm1(m * z - m * m / 2))

    lowest, highest = loss(-_REACH), loss(m + _REACH)
    step = max(q * m / _FINE, (highest - lowest) / _MOST_POINTS)
    first, last = math.floor(lowest / step), math.ceil(highest / step)
    places = [_place(number * step, q, m) for number in range(first, last + 1)]
    without = _masses(places, 0.0)
    present = (1 - q) * without + q * _masses(places, m)
    with_it, edges = present[1:-1], np.arange(first, last + 1) * step
    out = without[1:-1]
    if order == "removed":
        top, other, low, starts = with_it, out, first, edges[:-1]
        lowest_mass, endless = present[0], present[-1]
    else:  # the loss of the former against the latter: everything the other way round
        top, other, low, starts = out[::-1], with_it[::-1], -last, -edges[:0:-1]
        lowest_mass, endless = without[-1], without[0]
    error = 4 * _ERROR * max(1.0, m / step)
    # Of a mass between two points, so much goes to the upper one that both laws keep their masses.
    share = (top - other * np.exp(starts)) / -math.expm1(-step)
    upper = np.clip(share + 4 * error / step * top, 0.0, top)
    masses = np.zeros(top.size + 1)
    masses[:-1] += top - upper
    masses[1:] += upper
    masses[0] += lowest_mass
    return _Law(low, masses, float(endless), step).trim(), error


def _exp(losses: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.exp(np.minimum(losses, 700.0)))


def _place(loss: float, q: float, m: float) -> float:
    """The outcome at which the loss is `loss`; minus infinity below all losses."""
    odds = math.expm1(loss) / q + 1
    return -math.inf if odds <= 0 else (math.log(odds) + m * m / 2) / m


def _masses(places: list[float], mean: float) -> NDArray[np.float64]:
    """The masses of N(mean, 1) before the first place, between neighbours, and after the last."""
    tails = [
        (math.erfc((each - mean) / math.sqrt(2)) / 2, math.erfc((mean - each) / math.sqrt(2)) / 2)
        for each in places
    ]
    between = [
        one[0] - two[0] if place > mean else two[1] - one[1]
        for place, (one, two) in zip(places, pairwise(tails), strict=False)
    ]
    return np.array([tails[0][1], *between, tails[-1][0]])
