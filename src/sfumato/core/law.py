"""The laws of noise: the one place that says what "laplace" and "gaussian" mean.

A kind is one record of `SHAPES`, of which nothing has a default: a new one states all of it here, its cost in
`cost/cost.py`, and how its thresholds are found in `noise/thresholds.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args

from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95, check_option, parse_positive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.core.exact import ExactLike

Kind = Literal["laplace", "gaussian"]
Norm = Literal["L1", "L2"]

SPARSE_KIND: Final[Kind] = "laplace"
"""The kind whose draws above a threshold, among cells too many to list, are drawn without listing them."""

MAX_SCALE: Final = 1 << 50
"""Above it a draw, or a count plus a draw, could leave the 64-bit integers in earnest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a kind of noise means, whatever its scale is.

    `norm` is that in which sensitivities count. With `power` p the weight of k is exp(-|k|^p / (p scale^p)).
    `deviation` and `half_width` are exact for the law on the integers. The rest is of the continuous law of
    scale 1, which has no smaller moments: its `variance`, in standard deviations half the width of a 95 %
    interval, `reach`, and the mean size E|z|, and whether sums of several are `normal`, too. `claim` says to
    readers of a release what privacy it gives, and why.
    """

    kind: Kind
    norm: Norm
    scale_name: str
    power: int
    deviation: Callable[[float], float]
    half_width: Callable[[float, float], float]
    variance: float
    reach: float
    mean_size: float
    normal: bool
    claim: str


# Exact for the discrete law: at small scales the continuous one would be off by most of a step.
def _laplace_half_width(scale: float, miss: float) -> float:
    # The least k with P(|X| > k) = 2 q^(k + 1) / (1 + q) of at most `miss`.
    return float(max(0, math.ceil(scale * math.log(2 / (miss * (1 + math.exp(-1 / scale))))) - 1))


SHAPES: Final[dict[Kind, Shape]] = {
    "laplace": Shape(
        kind="laplace",
        norm="L1",
        scale_name="scale",
        power=1,
        # Var = 2q / (1 - q)^2 with q = exp(-1 / scale); sinh must not overflow.
        deviation=lambda scale: 1 / (math.sqrt(2) * math.sinh(min(350.0, 1 / (2 * scale)))),
        half_width=_laplace_half_width,
        variance=2.0,
        reach=2.1184,  # ln(20) / sqrt(2), rounded up
        mean_size=math.sqrt(1 / 2),
        normal=False,
        claim="Discrete Laplace noise with scale b on integer counts of L1 sensitivity s has "
        "P(output | D) <= exp(s/b) P(output | D') for every output, because the probability of a noise "
        "vector z is proportional to exp(-|z|1/b) and | |z|1 - |z'|1 | <= s: it is s/b-DP.",
    ),
    "gaussian": Shape(
        kind="gaussian",
        norm="L2",
        scale_name="sigma",
        power=2,
        deviation=lambda sigma: sigma,
        half_width=lambda sigma, miss: NormalDist().inv_cdf(1 - miss / 2) * sigma,
        variance=1.0,
        reach=NORMAL_95,
        mean_size=math.sqrt(2 / math.pi),
        normal=True,
        claim="Discrete Gaussian noise with parameter sigma on integer counts of L2 sensitivity s satisfies "
        "rho-zCDP with rho = s^2/(2 sigma^2) (Canonne, Kamath, Steinke 2020, theorem 14).",
    ),
}


@dataclass(frozen=True, slots=True)
class Law:
    """A law on the integers, symmetric about zero, with weight exp(-exponent(|x|)) at x.

    `scale` is the b of the discrete Laplace law or the sigma of the discrete Gaussian law.

    >>> Law("gaussian", Fraction(20)).exponent(10)
    Fraction(1, 8)
    >>> Law("laplace", Fraction(3)).half_width(), round(Law("laplace", Fraction(1)).deviation, 3)
    (9.0, 1.357)
    """

    kind: Kind
    scale: Fraction

    def __post_init__(self) -> None:
        check_option(self.kind, get_args(Kind), name="the kind of noise")
        name = self.shape.scale_name
        if parse_positive(self.scale, name=name) > MAX_SCALE:
            raise RecipeError(
                f"{name} must be at most 2^50 = {MAX_SCALE} so that noise fits 64-bit integers; "
                f"measure in a larger unit"
            )

    @property
    def shape(self) -> Shape:
        """What laws of its kind have in common."""
        return SHAPES[self.kind]

    @property
    def norm(self) -> Norm:
        """The norm in which the sensitivity counts of what gets this noise."""
        return self.shape.norm

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return self.shape.deviation(float(self.scale))

    def exponent(self, magnitude: int) -> Fraction:
        """How far, in nats, the weight of `magnitude` lies below the weight of zero."""
        power = self.shape.power
        return Fraction(magnitude**power) / (power * self.scale**power)

    def half_width(self, miss: float = 0.05) -> float:
        """Returns half the width of an interval that a draw leaves with a probability of at most `miss`."""
        return self.shape.half_width(float(self.scale), miss)


def make_law(kind: Kind, scale: object) -> Law:
    """Returns the law of this kind, its scale read exactly from a number or from text.

    >>> make_law("laplace", "0.1")
    Law(kind='laplace', scale=Fraction(1, 10))
    """
    name = SHAPES[kind].scale_name if kind in SHAPES else "scale"
    return Law(kind, parse_positive(scale, name=name))


class NoiseSource(Protocol):
    """What answers are drawn with: `add_noise`, `poisson_sample` and the others, or the like.

    A curator that is given none, as every command and `sfumato.open` do, draws from this package. Only
    audits give one, on tables that they made up themselves.
    """

    def add_noise(self, values: NDArray[np.int64], *, kind: Kind, scale: ExactLike) -> NDArray[np.int64]:
        """`values` with noise."""

    def add_sparse_noise(
        self,
        cells: NDArray[np.int64],
        values: NDArray[np.int64],
        *,
        size: int,
        scale: ExactLike,
        threshold: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cells whose noisy value reaches `threshold`, and these values.

        `values` are those of the occupied `cells`, of `size` in all; `scale` is that of the noise.
        """

    def exponential_choice(self, scores: NDArray[np.int64], *, rate: ExactLike) -> NDArray[np.int64]:
        """An index for every row of `scores`, in proportion to exp(rate * score)."""

    def permute_and_flip(self, scores: NDArray[np.int64], *, rate: ExactLike) -> NDArray[np.int64]:
        """The same, by the law of the largest score plus exponential noise of this rate."""

    def poisson_sample(self, *, size: int, rate: ExactLike) -> NDArray[np.bool_]:
        """Whether each of `size` individuals is drawn, with the probability `rate`."""
