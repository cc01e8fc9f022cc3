"""Unary encoding: one bit per category, each randomised on its own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sfumato.errors import RecipeError, SchemaError
from sfumato.exact import format_exact
from sfumato.local.checks import as_array, check_codes, check_count
from sfumato.local.draws import draw_events, draw_fair
from sfumato.local.mechanism import delivered_epsilon, estimate_supports, support_variance
from sfumato.local.thresholds import WORDS, lie_threshold, parse_epsilon
from sfumato.noise.entropy import KeyStream

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.results import Estimate, Projection
    from sfumato.noise.entropy import BitSource

Flips = Literal["optimized", "symmetric"]

_MAX_BITS = 1 << 16


@dataclass(frozen=True, slots=True, init=False)
class UnaryEncoding:
    """Optimised (OUE; Wang et al. 2017) or symmetric unary encoding, the latter being basic one-time RAPPOR.

    Optimised: the true bit is a fair coin, every other bit is on with chance 1 / (e^epsilon + 1).
    Symmetric: every bit is flipped with chance 1 / (e^(epsilon / 2) + 1).

    Privacy: two values differ in two bits; their ratios multiply to e^epsilon at most
    (docs/proofs/local.md).

    >>> mechanism = UnaryEncoding(epsilon=1, categories=3)
    >>> mechanism.respond([0, 2]).shape
    (2, 3)
    """

    epsilon: Fraction
    categories: int
    flips: Flips

    def __init__(self, *, epsilon: ExactLike, categories: int = 2, flips: Flips = "optimized") -> None:
        if flips not in ("optimized", "symmetric"):
            raise RecipeError(f"flips must be 'optimized' or 'symmetric', got {str(flips)[:40]!r}")
        object.__setattr__(self, "epsilon", parse_epsilon(epsilon))
        object.__setattr__(
            self, "categories", check_count(categories, name="categories for one bit each", most=_MAX_BITS)
        )
        object.__setattr__(self, "flips", flips)
        lie_threshold(self._part, 1)

    @property
    def name(self) -> str:
        """`oue` or `sue`."""
        return "oue" if self.flips == "optimized" else "sue"

    @property
    def _part(self) -> Fraction:
        return self.epsilon if self.flips == "optimized" else self.epsilon / 2

    @property
    def lie(self) -> int:
        """Of 2^64 words, how many turn a bit on that should be off."""
        return lie_threshold(self._part, 1)

    @property
    def hit(self) -> Fraction:
        """The chance that the true bit is on."""
        return Fraction(1, 2) if self.flips == "optimized" else 1 - self.miss

    @property
    def miss(self) -> Fraction:
        """The chance that another bit is on."""
        return Fraction(self.lie, WORDS)

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""
        return self.hit * (1 - self.miss) / (self.miss * (1 - self.hit))

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""
        return delivered_epsilon(self.likelihood_ratio, self.epsilon)

    @property
    def bits(self) -> int:
        """The size of one answer in bits."""
        return self.categories

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

    def respond(self, values: ArrayLike, *, default: int | None = None) -> NDArray[np.bool_]:
        """One row of randomised bits per value.

        A value that is no category is refused, or taken for the category `default`.
        """
        return self._draw(check_codes(values, self.categories, default=default), KeyStream())

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[np.bool_]:
        people = codes.size
        flat = draw_events(self.lie, people * self.categories, source)
        places = np.arange(people) * self.categories + codes.astype(np.int64)
        if self.flips == "optimized":
            flat[places] = draw_fair(people, source)
        else:
            flat[places] ^= True
        return flat.reshape(people, self.categories)

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """The shares of the categories, from the bits of everybody."""
        bits = check_bits(responses, self.categories)
        return estimate_supports(
            count_bits(bits),
            people=len(bits),
            hit=self.hit,
            miss=self.miss,
            mechanism=self,
            project=project,
        )


def check_bits(responses: ArrayLike, width: int) -> NDArray[np.bool_]:
    """The responses as rows of `width` bits, or an error that says what is wrong with them.

    >>> check_bits(np.array([[0, 1]], np.uint8), 2)
    array([[False,  True]])
    """
    bits = as_array(responses, "the responses")
    if bits.ndim != 2 or bits.shape[1] != width:
        raise SchemaError(f"responses of this mechanism are rows of {width} bits; these are not")
    if len(bits) == 0:
        raise SchemaError("there are no responses; nothing can be estimated")
    if bits.dtype.kind == "b":
        return bits
    if bits.dtype.kind not in "iu" or int(bits.min()) < 0 or int(bits.max()) > 1:
        raise SchemaError("responses of this mechanism are bits; another value or type is among these")
    return bits.astype(np.bool_)


def count_bits(bits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many rows have each bit on.

    >>> count_bits(np.array([[True, False], [True, True]]))
    array([2, 1])
    """
    rows, width = bits.shape
    total = np.zeros(width, np.int64)
    narrow = bits.view(np.uint8)
    for start in range(0, rows, 255):  # sums of up to 255 bits fit a byte
        total += np.add.reduce(narrow[start : start + 255], axis=0, dtype=np.uint8)
    return total
