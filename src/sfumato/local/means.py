"""Means of numbers: Laplace noise, one bit (Duchi, Jordan, Wainwright), or a window around the value.

A value is clamped to its stated range and laid on a grid of 2^24 steps; from there on everything is whole
numbers. Answers are whole numbers too, so that no spare bits of a float tell the value.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.exact import ExactLike, parse_exact
from sfumato.core.law import MAX_SCALE, Law
from sfumato.core.noise.entropy import BitSource, KeyStream
from sfumato.core.noise.samplers import draw_wide
from sfumato.local.draws import (
    WORDS,
    chunks,
    draw_events,
    draw_uniform,
    draw_words,
    lie_threshold,
    parse_epsilon,
    power_above,
    scaled_exp,
    weigh_threshold,
)
from sfumato.local.mechanism import (
    MeanEstimate,
    Mechanism,
    as_array,
    check_answers,
    count_answers,
    refuse_impossible,
)

STEPS: Final = 1 << 24
"""Steps of the grid over [low, high]; a value is moved by half a step at most."""

_REACH: Final = 64  # scales of the noise, which it exceeds with a chance below e^-64


@dataclass(frozen=True, slots=True, init=False)
class MeanMechanism(Mechanism):
    """A mechanism that answers with a noisy number; values are clamped to the range from `low` to `high`.

    `limits` are the least and the largest answer that a server takes.
    """

    parameters: ClassVar[tuple[str, ...]] = ("epsilon", "low", "high")

    low: Fraction
    high: Fraction
    limits: tuple[int, int] = field(repr=False)

    def __init__(self, *, epsilon: ExactLike, low: ExactLike, high: ExactLike) -> None:
        self._set(epsilon=parse_epsilon(epsilon))
        ends = check_range(low, high)
        self._set(low=ends[0], high=ends[1])
        self._state_law()

    @abstractmethod
    def variance(self, place: float) -> float:
        """Returns the variance of an answer at this place in the range (0 low, 1 high), in squared widths."""

    def respond(self, values: ArrayLike, *, default: float | None = None) -> NDArray[Any]:
        """Returns one randomised answer per value, a whole number, on the client; see `to_numbers`.

        Values are clamped to the range. NaN is refused, or taken for `default`.
        """
        places = check_numbers(values, low=self.low, high=self.high, default=default)
        return self._draw(places, KeyStream())

    @abstractmethod
    def _draw(self, places: NDArray[np.int64], source: BitSource) -> NDArray[Any]:
        """Returns one answer per place on the grid, from the words of `source`."""

    @abstractmethod
    def to_places(self, responses: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the answers as places in the range, 0 low and 1 high, unbiased."""

    def to_numbers(self, responses: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the answers in the unit of the values, unbiased."""
        return float(self.low) + self.to_places(responses) * float(self.high - self.low)

    def estimate(self, responses: ArrayLike) -> MeanEstimate:
        """Returns the mean of the values, on the server, from the answers of everybody."""
        least, most = self.limits
        places = self.to_places(check_answers(responses, most + 1, least=least))
        # Few answers may be alike by chance; no value has less variance than this.
        floor = min(self.variance(0), self.variance(0.5))
        return self._estimate(float(places.mean()), max(float(places.var()), floor), places.size)

    def _estimate(self, place: float, variance: float, people: int) -> MeanEstimate:
        """Gives the record of a mean, given as a place in the range and the variance of one answer there."""
        width = float(self.high - self.low)
        return MeanEstimate(
            mechanism=self.name,
            epsilon=self.exact_epsilon,
            people=people,
            low=self.low,
            high=self.high,
            mean=float(self.low) + place * width,
            standard_error=math.sqrt(variance / people) * width,
        )


@dataclass(frozen=True, slots=True, init=False)
class LaplaceMean(MeanMechanism):
    """A number plus discrete Laplace noise of scale (high - low) / epsilon, its `law` in steps of the grid.

    Privacy: epsilon exactly, as the noise has exactly its law (docs/proofs/noise.md).

    >>> mechanism = LaplaceMean(epsilon=1, low=0, high=100)
    >>> mechanism.respond([20.5, 70]).dtype, mechanism.exact_epsilon
    (dtype('int64'), Fraction(1, 1))
    """

    name: ClassVar[str] = "laplace"

    law: Law = field(repr=False)

    def _state_law(self) -> None:
        scale = STEPS / self.epsilon
        if scale > MAX_SCALE:
            raise RecipeError("epsilon is too small for Laplace noise on this grid; give 2^-26 or more")
        reach = int(_REACH * scale) + 1  # exceeded with a chance below e^-64
        self._set(law=Law("laplace", scale), limits=(-reach, STEPS + reach), bits=64)
        self._set(likelihood_ratio=power_above(self.epsilon))  # e^epsilon, rounded up

    def variance(self, place: float) -> float:
        """Returns the variance of an answer, in squared widths of the range; the same at every place."""
        return 2 / float(self.epsilon) ** 2 + 0 * place

    def _draw(self, places: NDArray[np.int64], source: BitSource) -> NDArray[np.int64]:
        noise = np.empty(places.size, np.int64)
        draw_wide(self.law, noise, source)
        return places + noise

    def to_places(self, responses: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the answers as places in the range, 0 low and 1 high, unbiased."""
        return responses.astype(np.float64) / STEPS


@dataclass(frozen=True, slots=True, init=False)
class DuchiMean(MeanMechanism):
    """One bit per number: high with a chance that grows linearly with the value (Duchi et al. 2018).

    Privacy: the chance of either bit lies between Q / 2^64 and 1 - Q / 2^64, whatever the value, and
    (2^64 - Q) / Q <= e^epsilon for the `lie` Q (docs/proofs/local.md). The two points of an estimate lie
    `stretch` times farther from the middle than the ends: (e^epsilon + 1) / (e^epsilon - 1), rounded.

    >>> mechanism = DuchiMean(epsilon=1, low=0, high=100)
    >>> set(mechanism.respond([20.5] * 100).tolist()) <= {0, 1}
    True
    """

    name: ClassVar[str] = "duchi"

    lie: int = field(repr=False)
    stretch: Fraction = field(repr=False)

    def _state_law(self) -> None:
        lie = lie_threshold(self.epsilon, 1)
        self._set(lie=lie, stretch=Fraction(WORDS, WORDS - 2 * lie), limits=(0, 1), bits=1)
        self._set(likelihood_ratio=Fraction(WORDS - lie, lie))

    def variance(self, place: float) -> float:
        """Returns the variance of an answer at this place in the range (0 low, 1 high), in squared widths."""
        return (float(self.stretch) ** 2 - (2 * place - 1) ** 2) / 4

    def threshold(self, places: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Of 2^64 words, how many answer high at each place of the grid."""
        # lie + floor(place * (2^64 - 2 lie) / 2^24), in two halves that fit 64 bits.
        span = WORDS - 2 * self.lie
        place = places.astype(np.uint64)
        whole = place * np.uint64(span >> 24)
        part = place * np.uint64(span & (STEPS - 1)) >> np.uint64(24)
        return whole + part + np.uint64(self.lie)

    def _draw(self, places: NDArray[np.int64], source: BitSource) -> NDArray[np.uint8]:
        answers = np.empty(places.size, np.uint8)
        for part in chunks(places.size):
            piece = places[part]
            answers[part] = draw_words(piece.size, source) < self.threshold(piece)
        return answers

    def to_places(self, responses: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the bits as places in the range, 0 low and 1 high, unbiased; shares of bits too."""
        return (float(self.stretch) * (2 * responses.astype(np.float64) - 1) + 1) / 2

    def estimate(self, responses: ArrayLike) -> MeanEstimate:
        """Returns the mean of the values, on the server, from the bits of everybody."""
        answers = check_answers(responses, 2)
        high = count_answers(answers, 2)[1:]
        lie = self.lie / WORDS
        refuse_impossible(high, answers.size, least=lie, most=1 - lie)
        place = float(self.to_places(high / answers.size)[0])
        return self._estimate(place, self.variance(min(max(place, 0), 1)), answers.size)


@dataclass(frozen=True, slots=True, init=False)
class PiecewiseMean(MeanMechanism):
    """A cell near the value with a high chance, any other cell with a low one (Wang et al. 2019).

    The 2^24 + W cells have a window of W cells that begins at the value's place; W is 2^24 e^(-epsilon / 2),
    rounded. A word below a threshold, `inside`, picks a cell inside, any other word one outside. An answer is
    the number of a cell; what is expected of it is a `line`, (intercept, slope), over the places of the grid.

    Privacy: the chance of a cell inside is at most e^epsilon times that of a cell outside
    (docs/proofs/local.md).

    >>> mechanism = PiecewiseMean(epsilon=2, low=0, high=100)
    >>> mechanism.respond([20.5, 70]).dtype, mechanism.exact_epsilon <= 2
    (dtype('int64'), True)
    """

    name: ClassVar[str] = "piecewise"

    window: int = field(repr=False)
    inside: int = field(repr=False)
    line: tuple[Fraction, Fraction] = field(repr=False)

    def _state_law(self) -> None:
        window = scaled_exp(self.epsilon / 2, STEPS)
        inside = weigh_threshold(self.epsilon, window, STEPS)
        share, cells = Fraction(inside, WORDS), STEPS + window
        slope = share - (1 - share) * Fraction(window, STEPS)
        apart = Fraction(cells * (cells - 1) - window * (window - 1), 2 * STEPS)
        intercept = share * Fraction(window - 1, 2) + (1 - share) * apart
        self._set(window=window, inside=inside, line=(intercept, slope))
        self._set(limits=(0, cells - 1), bits=(cells - 1).bit_length())
        self._set(likelihood_ratio=Fraction(inside * STEPS, (WORDS - inside) * window))

    def variance(self, place: float) -> float:
        """Returns the variance of an answer at this place in the range (0 low, 1 high), in squared widths."""
        at, window, cells = round(place * STEPS), self.window, STEPS + self.window
        near = _squares(at + window) - _squares(at)
        share = Fraction(self.inside, WORDS)
        square = share * Fraction(near, window) + (1 - share) * Fraction(_squares(cells) - near, STEPS)
        intercept, slope = self.line
        return float((square - (intercept + slope * at) ** 2) / (slope * STEPS) ** 2)

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

    def to_places(self, responses: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the answers as places in the range, 0 low and 1 high, unbiased."""
        intercept, slope = self.line
        return (responses.astype(np.float64) - float(intercept)) / float(slope * STEPS)


def _squares(end: int) -> int:
    """Returns the sum of the squares of 0 .. end - 1."""
    return (end - 1) * end * (2 * end - 1) // 6


def check_range(low: ExactLike, high: ExactLike) -> tuple[Fraction, Fraction]:
    """Returns the ends of a range as rationals, low below high."""
    ends = parse_exact(low, name="low"), parse_exact(high, name="high")
    most = max(abs(ends[0]), abs(ends[1]))
    if ends[0] >= ends[1] or most > Fraction(10) ** 300 or (ends[1] - ends[0]) * 2**20 < most / 2**20:
        raise RecipeError(
            "a range needs two numbers, low below high, not above 1e300 and not too close for doubles"
        )
    return ends


def check_numbers(
    values: ArrayLike, *, low: Fraction, high: Fraction, default: float | None
) -> NDArray[np.int64]:
    """Returns the grid place 0 .. 2^24 of each value, clamped; NaN is `default` or refused."""
    numbers = as_array(values, "the values")
    if numbers.size == 0 and numbers.ndim == 1:
        return np.empty(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise SchemaError("the values must be a one-dimensional array of numbers")
    numbers = numbers.astype(np.float64)
    missing = np.isnan(numbers)
    if missing.any():
        if default is None or math.isnan(default):
            raise SchemaError("a value is missing (NaN); leave it out, or state a default for such values")
        numbers[missing] = default
    ends = float(low), float(high)
    # Halves, because the width of a range near the largest double is no double.
    middle, half = ends[0] / 2 + ends[1] / 2, ends[1] / 2 - ends[0] / 2
    places = np.rint(((np.clip(numbers, *ends) - middle) / half + 1) * (STEPS / 2))
    clamped: NDArray[np.int64] = np.clip(places, 0, STEPS).astype(np.int64)
    return clamped
