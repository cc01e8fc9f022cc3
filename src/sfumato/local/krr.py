"""Randomised response over k categories: the truth, or any other answer with equal chance."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.exact import format_exact
from sfumato.local.checks import check_answers, check_codes, check_count, count_answers
from sfumato.local.draws import CHUNK, chunks, draw_events
from sfumato.local.mechanism import delivered_epsilon, estimate_supports, support_variance
from sfumato.local.thresholds import WORDS, lie_threshold, parse_epsilon
from sfumato.noise.entropy import KeyStream

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.results import Estimate, Projection
    from sfumato.noise.entropy import BitSource


@dataclass(frozen=True, slots=True, init=False)
class RandomizedResponse:
    """k-ary randomised response (Warner 1965; Kairouz, Bonawitz, Ramage 2016).

    One word of 64 bits makes one answer: the words below (k - 1) Q are cut into k - 1 equal shares, one
    for each other category, and the rest tell the truth.

    Privacy: (2^64 - (k - 1) Q) / Q <= e^epsilon for any two values (docs/proofs/local.md).

    >>> mechanism = RandomizedResponse(epsilon=1, categories=4)
    >>> answers = mechanism.respond([0, 1, 2, 3])
    >>> answers.shape, mechanism.exact_epsilon <= 1
    ((4,), True)
    """

    name: ClassVar[str] = "krr"

    epsilon: Fraction
    categories: int

    def __init__(self, *, epsilon: ExactLike, categories: int = 2) -> None:
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "categories", check_count(categories, name="categories"))
        lie_threshold(self.epsilon, self.categories - 1)

    @property
    def lie(self) -> int:
        """Of 2^64 words, how many give a certain wrong answer."""
        return lie_threshold(self.epsilon, self.categories - 1)

    @property
    def hit(self) -> Fraction:
        """The chance of a true answer."""
        return 1 - (self.categories - 1) * self.miss

    @property
    def miss(self) -> Fraction:
        """The chance of a certain wrong answer."""
        return Fraction(self.lie, WORDS)

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""
        return self.hit / self.miss

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""
        return delivered_epsilon(self.likelihood_ratio, self.epsilon)

    @property
    def bits(self) -> int:
        """The size of one answer in bits."""
        return (self.categories - 1).bit_length()

    def to_record(self) -> dict[str, Any]:
        """What the server must know, as a plain record."""
        return {
            "mechanism": self.name,
            "epsilon": format_exact(self.epsilon),
            "categories": self.categories,
        }

    def variance(self, share: float) -> float:
        """The variance of the estimate of a category with this share, times the number of people."""
        return support_variance(share, hit=self.hit, miss=self.miss)

    def respond(self, values: ArrayLike, *, default: int | None = None) -> NDArray[Any]:
        """One randomised answer per value, in the type of the values.

        A value that is no category is refused, or taken for the category `default`.
        """
        return self._draw(check_codes(values, self.categories, default=default), KeyStream())

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        if self.categories == 2:
            lies = draw_events(self.lie, codes.size, source)
            flipped = np.empty_like(codes)
            for part in chunks(codes.size):
                np.bitwise_xor(codes[part], lies[part].astype(codes.dtype), out=flipped[part])
            return flipped
        answers = codes.copy()
        share, lying = np.uint64(self.lie), np.uint64((self.categories - 1) * self.lie)
        room = np.empty(CHUNK, np.uint64)
        for part in chunks(codes.size):
            piece = answers[part]
            words = room[: piece.size]
            source.fill(words)
            places = np.flatnonzero(words < lying)
            moved = piece[places].astype(np.int64)
            moved += (words[places] // share).view(np.int64)
            moved += 1
            moved -= self.categories * (moved >= self.categories)
            piece[places] = moved
        return answers

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """The shares of the categories, from the answers of everybody."""
        answers = check_answers(responses, self.categories)
        return estimate_supports(
            count_answers(answers, self.categories),
            people=answers.size,
            hit=self.hit,
            miss=self.miss,
            mechanism=self,
            project=project,
        )
