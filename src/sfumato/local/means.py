"""Means of numbers by Laplace noise, and by one bit (Duchi, Jordan, Wainwright)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from sfumato.errors import RecipeError
from sfumato.local.checks import check_answers, count_answers, refuse_impossible
from sfumato.local.draws import chunks, draw_words
from sfumato.local.mechanism import delivered_epsilon
from sfumato.local.numbers import STEPS, check_integers, check_numbers, check_range, make_mean, mean_record
from sfumato.local.thresholds import WORDS, lie_threshold, parse_epsilon, power_above
from sfumato.noise.entropy import KeyStream
from sfumato.noise.laws import MAX_SCALE, Law
from sfumato.noise.samplers import draw_wide

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.results import MeanEstimate
    from sfumato.noise.entropy import BitSource

_REACH: Final = 64


@dataclass(frozen=True, slots=True, init=False)
class LaplaceMean:
    """A number plus discrete Laplace noise of scale (high - low) / epsilon, in steps of the grid.

    Privacy: epsilon exactly, as the noise has exactly its law (docs/proofs/noise.md).

    >>> mechanism = LaplaceMean(epsilon=1, low=0, high=100)
    >>> mechanism.respond([20.5, 70]).dtype, mechanism.exact_epsilon
    (dtype('int64'), Fraction(1, 1))
    """

    name: ClassVar[str] = "laplace"

    epsilon: Fraction
    low: Fraction
    high: Fraction

    def __init__(self, *, epsilon: ExactLike, low: ExactLike, high: ExactLike) -> None:
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        ends = check_range(low, high)
        object.__setattr__(self, "low", ends[0])
        object.__setattr__(self, "high", ends[1])
        if STEPS / self.epsilon > MAX_SCALE:
            raise RecipeError("epsilon is too small for Laplace noise on this grid; give 2^-26 or more")

    @property
    def law(self) -> Law:
        """The law of the noise, in steps."""
        return Law("laplace", STEPS / self.epsilon)

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, e^epsilon, rounded up."""
        return power_above(self.epsilon)

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that is delivered: the claimed one."""
        return self.epsilon

    @property
    def bits(self) -> int:
        """The size of one answer in bits."""
        return 64

    def to_record(self) -> dict[str, Any]:
        """What the server must know, as a plain record."""
        return mean_record(self)

    def variance(self, place: float) -> float:
        """The variance of an answer, in squared widths of the range; the same at every place."""
        return 2 / float(self.epsilon) ** 2 + 0 * place

    def respond(self, values: ArrayLike, *, default: float | None = None) -> NDArray[np.int64]:
        """One noisy number per value, in steps of the grid; see `to_numbers`.

        Values are held to the range. NaN is refused, or taken for `default`.
        """
        places = check_numbers(values, low=self.low, high=self.high, default=default)
        return self._draw(places, KeyStream())

    def _draw(self, places: NDArray[np.int64], source: BitSource) -> NDArray[np.int64]:
        noise = np.empty(places.size, np.int64)
        draw_wide(self.law, noise, source)
        return places + noise

    def to_numbers(self, responses: NDArray[np.int64]) -> NDArray[np.float64]:
        """The answers in the unit of the values, unbiased."""
        return float(self.low) + responses.astype(np.float64) * (float(self.high - self.low) / STEPS)

    def estimate(self, responses: ArrayLike) -> MeanEstimate:
        """The mean of the values, from the answers of everybody."""
        reach = int(_REACH * self.law.scale) + 1  # exceeded with a chance below e^-64
        answers = check_integers(responses, -reach, STEPS + reach)
        spread = float(np.var(answers / STEPS))
        return make_mean(
            float(np.mean(answers / STEPS)),
            max(spread, self.variance(0)),
            mechanism=self,
            people=answers.size,
        )


@dataclass(frozen=True, slots=True, init=False)
class DuchiMean:
    """One bit per number: high with a chance that grows linearly with the value (Duchi et al. 2018).

    Privacy: the chance of either bit lies between Q / 2^64 and 1 - Q / 2^64, whatever the value, and
    (2^64 - Q) / Q <= e^epsilon (docs/proofs/local.md).

    >>> mechanism = DuchiMean(epsilon=1, low=0, high=100)
    >>> set(mechanism.respond([20.5] * 100).tolist()) <= {0, 1}
    True
    """

    name: ClassVar[str] = "duchi"

    epsilon: Fraction
    low: Fraction
    high: Fraction

    def __init__(self, *, epsilon: ExactLike, low: ExactLike, high: ExactLike) -> None:
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        ends = check_range(low, high)
        object.__setattr__(self, "low", ends[0])
        object.__setattr__(self, "high", ends[1])
        lie_threshold(self.epsilon, 1)

    @property
    def lie(self) -> int:
        """Of 2^64 words, how many give the bit that is less likely at an end of the range."""
        return lie_threshold(self.epsilon, 1)

    @property
    def stretch(self) -> Fraction:
        """How much farther than the ends the two points lie: (e^epsilon + 1) / (e^epsilon - 1), rounded."""
        return Fraction(WORDS, WORDS - 2 * self.lie)

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""
        return Fraction(WORDS - self.lie, self.lie)

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""
        return delivered_epsilon(self.likelihood_ratio, self.epsilon)

    @property
    def bits(self) -> int:
        """The size of one answer in bits."""
        return 1

    def to_record(self) -> dict[str, Any]:
        """What the server must know, as a plain record."""
        return mean_record(self)

    def variance(self, place: float) -> float:
        """The variance of an answer at this place in the range (0 low, 1 high), in squared widths."""
        return (float(self.stretch) ** 2 - (2 * place - 1) ** 2) / 4

    def threshold(self, places: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Of 2^64 words, how many answer high at each place of the grid."""
        # lie + floor(place * (2^64 - 2 lie) / 2^24), in two halves that fit 64 bits.
        span = WORDS - 2 * self.lie
        place = places.astype(np.uint64)
        whole = place * np.uint64(span >> 24)
        part = place * np.uint64(span & (STEPS - 1)) >> np.uint64(24)
        return whole + part + np.uint64(self.lie)

    def respond(self, values: ArrayLike, *, default: float | None = None) -> NDArray[np.uint8]:
        """One bit per value: 1 for high, 0 for low.

        Values are held to the range. NaN is refused, or taken for `default`.
        """
        places = check_numbers(values, low=self.low, high=self.high, default=default)
        return self._draw(places, KeyStream())

    def _draw(self, places: NDArray[np.int64], source: BitSource) -> NDArray[np.uint8]:
        answers = np.empty(places.size, np.uint8)
        for part in chunks(places.size):
            piece = places[part]
            answers[part] = draw_words(piece.size, source) < self.threshold(piece)
        return answers

    def estimate(self, responses: ArrayLike) -> MeanEstimate:
        """The mean of the values, from the bits of everybody."""
        answers = check_answers(responses, 2)
        high = count_answers(answers, 2)[1:]
        lie = self.lie / WORDS
        refuse_impossible(high, answers.size, least=lie, most=1 - lie)
        place = self.place(float(high[0] / answers.size))
        return make_mean(place, self.variance(min(max(place, 0), 1)), mechanism=self, people=answers.size)

    def place(self, share: float) -> float:
        """The place in the range that a share of bits for high stands for."""
        return (float(self.stretch) * (2 * share - 1) + 1) / 2
