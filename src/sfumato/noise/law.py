"""The two laws of noise, described exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, get_args

from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_positive

__all__ = ["MAX_SCALE", "Kind", "Law", "make_law"]

Kind = Literal["laplace", "gaussian"]

MAX_SCALE: Final = 1 << 50
"""Above it a draw, or a count plus a draw, could leave the 64-bit integers in earnest."""


@dataclass(frozen=True, slots=True)
class Law:
    """A law on the integers, symmetric about zero, with weight exp(-exponent(|x|)) at x.

    `scale` is the b of the discrete Laplace law, exponent k / b, or the sigma of the discrete
    Gaussian law, exponent k^2 / (2 sigma^2).

    >>> Law("gaussian", Fraction(20)).exponent(10)
    Fraction(1, 8)
    """

    kind: Kind
    scale: Fraction

    def exponent(self, magnitude: int) -> Fraction:
        """How far, in nats, the weight of `magnitude` lies below the weight of zero."""
        if self.kind == "laplace":
            return magnitude / self.scale
        return Fraction(magnitude * magnitude) / (2 * self.scale * self.scale)


def make_law(kind: str, scale: object, *, name: str = "scale") -> Law:
    """The law of this kind and scale, or a RecipeError that calls the scale `name`.

    >>> make_law("laplace", "0.1")
    Law(kind='laplace', scale=Fraction(1, 10))
    """
    if kind not in get_args(Kind):
        message = f"the kind of noise must be 'laplace' or 'gaussian', got {str(kind)[:40]!r}"
        raise RecipeError(message)
    number = parse_positive(scale, name=name)
    if number > MAX_SCALE:
        message = (
            f"{name} must be at most 2^50 = {MAX_SCALE} so that noise fits 64-bit integers, "
            f"got {format_exact(number)[:40]}; measure in a larger unit"
        )
        raise RecipeError(message)
    return Law("laplace" if kind == "laplace" else "gaussian", number)
