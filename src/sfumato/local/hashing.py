"""Optimal local hashing: a random public hash shrinks the categories, randomised response hides the rest.

The hash family. For a prime g, a category is written with m digits in base g. A member of the family has m
coefficients in 0 .. g - 1, and its hash is the sum of coefficients times digits, modulo g. Two different
categories collide under exactly one member in g, so that estimates are unbiased without any assumption
about a hash. The sum is linear, so a server need not hash each category for each answer: it counts
(member, answer) pairs and reads all categories off one Fourier transform.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from sfumato.errors import RecipeError
from sfumato.exact import format_exact
from sfumato.local.checks import check_answers, check_codes, check_count, count_answers
from sfumato.local.draws import chunks, draw_uniform
from sfumato.local.krr import RandomizedResponse
from sfumato.local.mechanism import estimate_supports, support_variance
from sfumato.local.thresholds import WORDS, lie_threshold, parse_epsilon
from sfumato.noise.entropy import KeyStream

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.results import Estimate, Projection
    from sfumato.noise.entropy import BitSource

_LARGEST: Final = 251
_MAX_CELLS: Final = 1 << 25


@dataclass(frozen=True, slots=True, init=False)
class LocalHashing:
    """Optimal local hashing (OLH; Wang et al. 2017) with an exactly universal family.

    An answer is one whole number: the member of the hash family, drawn at random, times `hash_size`,
    plus the hash of the value after randomised response. Without `hash_size` it is the prime of least
    variance, near e^epsilon + 1.

    Privacy: the member does not depend on the value; given it, this is randomised response over
    `hash_size` answers (docs/proofs/local.md).

    >>> mechanism = LocalHashing(epsilon=1, categories=100)
    >>> mechanism.hash_size, mechanism.digits, mechanism.respond([5, 99]).shape
    (3, 5, (2,))
    """

    name: ClassVar[str] = "olh"

    epsilon: Fraction
    categories: int
    hash_size: int

    def __init__(self, *, epsilon: ExactLike, categories: int = 2, hash_size: int | None = None) -> None:
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(self, "categories", check_count(categories, name="categories"))
        size = _best_size(self.epsilon, self.categories) if hash_size is None else hash_size
        object.__setattr__(self, "hash_size", _check_prime(size, self.categories))
        lie_threshold(self.epsilon, self.hash_size - 1)

    @property
    def digits(self) -> int:
        """The number of base-g digits of a category."""
        return _count_digits(self.hash_size, self.categories)

    @property
    def members(self) -> int:
        """The number of hash functions in the family."""
        return int(self.hash_size**self.digits)

    @property
    def inner(self) -> RandomizedResponse:
        """The randomised response over hashes."""
        return RandomizedResponse(epsilon=self.epsilon, categories=self.hash_size)

    @property
    def hit(self) -> Fraction:
        """The chance that an answer supports the true category."""
        return self.inner.hit

    @property
    def miss(self) -> Fraction:
        """The chance that an answer supports another category: one in `hash_size`, exactly."""
        return Fraction(1, self.hash_size)

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""
        return self.inner.likelihood_ratio

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""
        return self.inner.exact_epsilon

    @property
    def bits(self) -> int:
        """The size of one answer in bits."""
        return (self.members * self.hash_size - 1).bit_length()

    def to_record(self) -> dict[str, Any]:
        """What the server must know, as a plain record."""
        return {
            "mechanism": self.name,
            "epsilon": format_exact(self.epsilon),
            "categories": self.categories,
            "hash_size": self.hash_size,
        }

    def variance(self, share: float) -> float:
        """The variance of the estimate of a category with this share, times the number of people."""
        return support_variance(share, hit=self.hit, miss=self.miss)

    def hash(self, members: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The hash of each code under its member of the family."""
        size = np.int64(self.hash_size)
        total = np.zeros(codes.shape, np.int64)
        for _ in range(self.digits):
            members, coefficient = np.divmod(members, size)
            codes, digit = np.divmod(codes, size)
            total += coefficient * digit
        return total % size

    def respond(self, values: ArrayLike, *, default: int | None = None) -> NDArray[np.int64]:
        """One randomised answer per value: hash member and hash in one whole number.

        A value that is no category is refused, or taken for the category `default`.
        """
        return self._draw(check_codes(values, self.categories, default=default), KeyStream())

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[np.int64]:
        answers = np.empty(codes.size, np.int64)
        inner = self.inner
        for part in chunks(codes.size):
            piece = codes[part].astype(np.int64)
            members = draw_uniform(self.members, piece.size, source).view(np.int64)
            hashes = inner._draw(self.hash(members, piece), source)
            answers[part] = members * self.hash_size + hashes
        return answers

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """The shares of the categories, from the answers of everybody."""
        cells = self.members * self.hash_size
        answers = check_answers(responses, cells)
        table = count_answers(answers, cells).reshape(*[self.hash_size] * self.digits, self.hash_size)
        return estimate_supports(
            _count_supports(table)[: self.categories],
            people=answers.size,
            hit=self.hit,
            miss=self.miss,
            mechanism=self,
            project=project,
        )


def _count_supports(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each category the number of answers whose hash is that of the category.

    `table` counts answers by the member's digits (the highest first) and the hash y. The support of v is
    the sum of table[a, y] over all a, y with a.v = y mod g. As 1[a.v = y] is the mean over t of the root of
    unity to the power t (a.v - y), it is a mean over t of Fourier transforms at the places t v. Counts are
    whole numbers, so rounding the transform gives them exactly.
    """
    size, digits = table.shape[-1], table.ndim - 1
    spectrum = np.fft.fft(table, axis=-1)
    total = np.zeros(table.shape[:-1])
    for power in range(1, size // 2 + 1):
        moved = np.fft.ifftn(spectrum[..., power], norm="forward").real
        places = np.arange(size) * power % size
        # A power and its negative give conjugates; for g = 2 they are the same one.
        total += (1 if 2 * power == size else 2) * moved[np.ix_(*[places] * digits)]
    total += float(table.sum())
    total /= size
    supports = np.rint(total)
    if np.abs(total - supports).max() > 0.25:
        raise RecipeError(
            "there are too many answers for one exact transform; estimate them in several parts"
        )
    return supports.astype(np.int64).ravel()


def _count_digits(size: int, categories: int) -> int:
    digits, reach = 1, size
    while reach < categories:
        digits, reach = digits + 1, reach * size
    return digits


@lru_cache(maxsize=256)
def _best_size(epsilon: Fraction, categories: int) -> int:
    """The prime of least variance among those whose table of answers stays small."""

    def variance(size: int) -> Fraction:
        hit = 1 - Fraction((size - 1) * lie_threshold(epsilon, size - 1), WORDS)
        miss = Fraction(1, size)
        return miss * (1 - miss) / (hit - miss) ** 2

    allowed = [size for size in _primes() if _cells(size, categories) <= _MAX_CELLS]
    # A hash that is wider than the categories gains nothing over their own codes.
    useful = [size for at, size in enumerate(allowed) if at == 0 or allowed[at - 1] < categories]
    return min(useful, key=variance)


def _primes() -> list[int]:
    return [n for n in range(2, _LARGEST + 1) if all(n % d for d in range(2, int(n**0.5) + 1))]


def _cells(size: int, categories: int) -> int:
    return int(size ** (_count_digits(size, categories) + 1))


def _check_prime(size: object, categories: int) -> int:
    number = check_count(size, name="hash_size", most=_LARGEST)
    if number not in _primes():
        raise RecipeError(f"hash_size must be a prime up to {_LARGEST}, got {number}")
    if _cells(number, categories) > _MAX_CELLS:
        raise RecipeError(
            f"hash_size {number} needs too large a table for {categories} categories; leave it out"
        )
    return number
