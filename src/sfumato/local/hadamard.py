"""One-bit Hadamard response: a random public row of a Hadamard matrix, and one noisy sign of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.exact import format_exact
from sfumato.local.checks import check_answers, check_codes, check_count, count_answers
from sfumato.local.draws import chunks, draw_events, draw_uniform
from sfumato.local.mechanism import delivered_epsilon, estimate_supports, support_variance
from sfumato.local.thresholds import WORDS, lie_threshold, parse_epsilon
from sfumato.noise.entropy import KeyStream

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.results import Estimate, Projection
    from sfumato.noise.entropy import BitSource


@dataclass(frozen=True, slots=True, init=False)
class HadamardResponse:
    """One-bit Hadamard response (Bassily, Smith 2015; Apple 2017; Acharya, Sun, Zhang 2019).

    An answer is one whole number, 2 row + bit. The row is drawn at random; the bit is the parity of row
    and value in common (the sign of the matrix there), flipped with chance 1 / (e^epsilon + 1). As only the
    bit depends on the value, rows may also be assigned by the server, and the client then sends one bit.

    Privacy: given the row, this is randomised response on one bit (docs/proofs/local.md).

    >>> mechanism = HadamardResponse(epsilon=1, categories=100)
    >>> mechanism.rows, mechanism.respond([5, 99]).shape
    (128, (2,))
    """

    name: ClassVar[str] = "hadamard"

    epsilon: Fraction
    categories: int

    def __init__(self, *, epsilon: ExactLike, categories: int = 2) -> None:
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "categories", check_count(categories, name="categories"))
        lie_threshold(self.epsilon, 1)

    @property
    def rows(self) -> int:
        """The order of the matrix: the least power of two that has a column for each category."""
        return 1 << (self.categories - 1).bit_length()

    @property
    def lie(self) -> int:
        """Of 2^64 words, how many flip the bit."""
        return lie_threshold(self.epsilon, 1)

    @property
    def hit(self) -> Fraction:
        """The chance that an answer supports the true category."""
        return 1 - Fraction(self.lie, WORDS)

    @property
    def miss(self) -> Fraction:
        """The chance that an answer supports another category: a half, as rows are orthogonal."""
        return Fraction(1, 2)

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""
        return self.hit / (1 - self.hit)

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""
        return delivered_epsilon(self.likelihood_ratio, self.epsilon)

    @property
    def bits(self) -> int:
        """The size of one answer in bits, the row included."""
        return self.rows.bit_length()

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

    def respond(self, values: ArrayLike, *, default: int | None = None) -> NDArray[np.int64]:
        """One randomised answer per value: row and bit in one whole number.

        A value that is no category is refused, or taken for the category `default`.
        """
        return self._draw(check_codes(values, self.categories, default=default), KeyStream())

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[np.int64]:
        answers = np.empty(codes.size, np.int64)
        for part in chunks(codes.size):
            piece = codes[part].astype(np.int64)
            rows = draw_uniform(self.rows, piece.size, source).view(np.int64)
            signs = np.bitwise_count(rows & piece) & 1
            signs ^= draw_events(self.lie, piece.size, source).view(np.uint8)
            answers[part] = 2 * rows + signs
        return answers

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """The shares of the categories, from the answers of everybody."""
        answers = check_answers(responses, 2 * self.rows)
        counts = count_answers(answers, 2 * self.rows)
        sums = transform_walsh(counts[::2] - counts[1::2])
        return estimate_supports(
            (answers.size + sums[: self.categories]) // 2,
            people=answers.size,
            hit=self.hit,
            miss=self.miss,
            mechanism=self,
            project=project,
        )


def transform_walsh(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sums over j of values[j] times the sign of (row j, column v), for all v, in whole numbers.

    >>> transform_walsh(np.array([1, 2, 3, 4])).tolist()
    [10, -2, -4, 0]
    """
    sums = values.astype(np.int64)
    half = 1
    while half < sums.size:
        pairs = sums.reshape(-1, 2, half)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return sums
