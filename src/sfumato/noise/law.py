"""The two laws of noise, described exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, get_args

from sfumato.errors import RecipeError
from sfumato.exact import parse_positive

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

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise RecipeError(f"the kind of noise must be 'laplace' or 'gaussian', got {self.kind!r}")
        name = _scale_name(self.kind)
        if parse_positive(self.scale, name=name) > MAX_SCALE:
            raise RecipeError(
                f"{name} must be at most 2^50 = {MAX_SCALE} so that noise fits 64-bit integers; "
                f"measure in a larger unit"
            )

    def exponent(self, magnitude: int) -> Fraction:
        """How far, in nats, the weight of `magnitude` lies below the weight of zero."""
        if self.kind == "laplace":
            return magnitude / self.scale
        return Fraction(magnitude * magnitude) / (2 * self.scale * self.scale)


def make_law(kind: Kind, scale: object) -> Law:
    """The law of this kind, its scale read exactly from a number or from text.

    >>> make_law("laplace", "0.1")
    Law(kind='laplace', scale=Fraction(1, 10))
    """
    return Law(kind, parse_positive(scale, name=_scale_name(kind)))


def _scale_name(kind: Kind) -> str:
    return "sigma" if kind == "gaussian" else "scale"
