"""Means of numbers by a window around the value, and by a mix of the window and of two points."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from sfumato.local.draws import chunks, draw_events, draw_uniform
from sfumato.local.means import DuchiMean
from sfumato.local.mechanism import delivered_epsilon
from sfumato.local.numbers import STEPS, check_integers, check_numbers, check_range, make_mean, mean_record
from sfumato.local.thresholds import WORDS, parse_epsilon, scaled_exp, weigh_threshold
from sfumato.noise.entropy import KeyStream
from sfumato.noise.laws import loss_floor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.results import MeanEstimate
    from sfumato.noise.entropy import BitSource

_SWITCH: Final = Fraction(61, 100)
_LOW, _HIGH = -1, -2


@dataclass(frozen=True, slots=True, init=False)
class PiecewiseMean:
    """A cell near the value with a high chance, any other cell with a low one (Wang et al. 2019).

    The 2^24 + W cells hold a window of W cells that begins at the value's place; W is 2^24 e^(-epsilon / 2),
    rounded. A word below a threshold picks a cell inside, any other word one outside.

    Privacy: the chance of a cell inside is at most e^epsilon times that of a cell outside
    (docs/proofs/local.md).

    >>> mechanism = PiecewiseMean(epsilon=2, low=0, high=100)
    >>> mechanism.respond([20.5, 70]).dtype, mechanism.exact_epsilon <= 2
    (dtype('int64'), True)
    """

    name: ClassVar[str] = "piecewise"

    epsilon: Fraction
    low: Fraction
    high: Fraction

    def __init__(self, *, epsilon: ExactLike, low: ExactLike, high: ExactLike) -> None:
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        ends = check_range(low, high)
        object.__setattr__(self, "low", ends[0])
        object.__setattr__(self, "high", ends[1])

    @property
    def window(self) -> int:
        """The number of cells that are likely."""
        return scaled_exp(self.epsilon / 2, STEPS)

    @property
    def inside(self) -> int:
        """Of 2^64 words, how many pick a cell of the window."""
        return weigh_threshold(self.epsilon, self.window, STEPS)

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""
        return Fraction(self.inside * STEPS, (WORDS - self.inside) * self.window)

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""
        return delivered_epsilon(self.likelihood_ratio, self.epsilon)

    @property
    def line(self) -> tuple[Fraction, Fraction]:
        """(intercept, slope) of the expected cell as a function of the place on the grid, exactly."""
        share, window = Fraction(self.inside, WORDS), self.window
        cells = STEPS + window
        slope = share - (1 - share) * Fraction(window, STEPS)
        apart = Fraction(cells * (cells - 1) - window * (window - 1), 2 * STEPS)
        return share * Fraction(window - 1, 2) + (1 - share) * apart, slope

    @property
    def bits(self) -> int:
        """The size of one answer in bits."""
        return (STEPS + self.window - 1).bit_length()

    def to_record(self) -> dict[str, Any]:
        """What the server must know, as a plain record."""
        return mean_record(self)

    def variance(self, place: float) -> float:
        """The variance of an answer at this place in the range (0 low, 1 high), in squared widths."""
        at, window, cells = round(place * STEPS), self.window, STEPS + self.window
        near = _squares(at + window) - _squares(at)
        share = Fraction(self.inside, WORDS)
        square = share * Fraction(near, window) + (1 - share) * Fraction(_squares(cells) - near, STEPS)
        intercept, slope = self.line
        return float((square - (intercept + slope * at) ** 2) / (slope * STEPS) ** 2)

    def respond(self, values: ArrayLike, *, default: float | None = None) -> NDArray[np.int64]:
        """The number of a cell per value; see `to_numbers`.

        Values are held to the range. NaN is refused, or taken for `default`.
        """
        places = check_numbers(values, low=self.low, high=self.high, default=default)
        return self._draw(places, KeyStream())

    def _draw(self, places: NDArray[np.int64], source: BitSource) -> NDArray[np.int64]:
        answers = np.empty(places.size, np.int64)
        for part in chunks(places.size):
            piece = places[part]
            inside = draw_events(self.inside, piece.size, source)
            near = piece + draw_uniform(self.window, piece.size, source).view(np.int64)
            far = draw_uniform(STEPS, piece.size, source).view(np.int64)
            far = far + self.window * (far >= piece)
            answers[part] = np.where(inside, near, far)
        return answers

    def to_places(self, responses: NDArray[np.int64]) -> NDArray[np.float64]:
        """The answers as places in the range, 0 low and 1 high, unbiased."""
        intercept, slope = self.line
        return (responses.astype(np.float64) - float(intercept)) / float(slope * STEPS)

    def to_numbers(self, responses: NDArray[np.int64]) -> NDArray[np.float64]:
        """The answers in the unit of the values, unbiased."""
        return float(self.low) + self.to_places(responses) * float(self.high - self.low)

    def estimate(self, responses: ArrayLike) -> MeanEstimate:
        """The mean of the values, from the answers of everybody."""
        places = self.to_places(check_integers(responses, 0, STEPS + self.window - 1))
        return make_mean(
            float(places.mean()),
            max(float(places.var()), self.variance(0.5)),
            mechanism=self,
            people=places.size,
        )


def _squares(end: int) -> int:
    """The sum of the squares of 0 .. end - 1."""
    return (end - 1) * end * (2 * end - 1) // 6


@dataclass(frozen=True, slots=True, init=False)
class HybridMean:
    """A public coin decides between the window and the two points (Wang et al. 2019).

    Up to epsilon 0.61 it is always two points; above, the window with chance 1 - e^(-epsilon / 2). The worst
    variance is then the least of the three.

    Privacy: the coin does not depend on the value, and either side is epsilon-private.

    >>> HybridMean(epsilon=2, low=0, high=100).respond([20.5, 70]).shape
    (2,)
    """

    name: ClassVar[str] = "hybrid"

    epsilon: Fraction
    low: Fraction
    high: Fraction

    def __init__(self, *, epsilon: ExactLike, low: ExactLike, high: ExactLike) -> None:
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        ends = check_range(low, high)
        object.__setattr__(self, "low", ends[0])
        object.__setattr__(self, "high", ends[1])
        _ = self.two_points.lie

    @property
    def two_points(self) -> DuchiMean:
        """The side that answers with one of two points."""
        return DuchiMean(epsilon=self.epsilon, low=self.low, high=self.high)

    @property
    def windowed(self) -> PiecewiseMean:
        """The side that answers with a cell."""
        return PiecewiseMean(epsilon=self.epsilon, low=self.low, high=self.high)

    @property
    def coin(self) -> int:
        """Of 2^64 words, how many choose the window."""
        return 0 if self.epsilon <= _SWITCH else loss_floor(self.epsilon / 2, 64)

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""
        ratio = self.two_points.likelihood_ratio
        return max(ratio, self.windowed.likelihood_ratio) if self.coin else ratio

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""
        return delivered_epsilon(self.likelihood_ratio, self.epsilon)

    @property
    def bits(self) -> int:
        """The size of one answer in bits."""
        return self.windowed.bits + 1

    def to_record(self) -> dict[str, Any]:
        """What the server must know, as a plain record."""
        return mean_record(self)

    def variance(self, place: float) -> float:
        """The variance of an answer at this place in the range (0 low, 1 high), in squared widths."""
        share = self.coin / WORDS
        return share * self.windowed.variance(place) + (1 - share) * self.two_points.variance(place)

    def respond(self, values: ArrayLike, *, default: float | None = None) -> NDArray[np.int64]:
        """One answer per value: the number of a cell, or -1 for the lower point and -2 for the upper one.

        Values are held to the range. NaN is refused, or taken for `default`.
        """
        places = check_numbers(values, low=self.low, high=self.high, default=default)
        return self._draw(places, KeyStream())

    def _draw(self, places: NDArray[np.int64], source: BitSource) -> NDArray[np.int64]:
        coins = draw_events(self.coin, places.size, source)
        cells = self.windowed._draw(places, source)
        points = self.two_points._draw(places, source)
        return np.where(coins, cells, np.where(points == 1, _HIGH, _LOW))

    def to_places(self, responses: NDArray[np.int64]) -> NDArray[np.float64]:
        """The answers as places in the range, 0 low and 1 high, unbiased."""
        points = np.where(responses == _HIGH, self.two_points.place(1), self.two_points.place(0))
        return np.where(responses < 0, points, self.windowed.to_places(responses))

    def estimate(self, responses: ArrayLike) -> MeanEstimate:
        """The mean of the values, from the answers of everybody."""
        most = STEPS + self.windowed.window - 1 if self.coin else -1
        places = self.to_places(check_integers(responses, _HIGH, most))
        least = min(self.variance(0), self.variance(0.5))
        return make_mean(
            float(places.mean()), max(float(places.var()), least), mechanism=self, people=places.size
        )
