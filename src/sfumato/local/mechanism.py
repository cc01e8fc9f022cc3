"""What every mechanism offers, and the estimate shared by those that count support."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from sfumato.local.checks import refuse_impossible
from sfumato.local.results import Estimate, MeanEstimate, Projection, check_projection, make_estimate
from sfumato.local.thresholds import log_above

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Mechanism(Protocol):
    """A client's law of answers. The server holds the same record, and nothing else is shared."""

    @property
    def name(self) -> str:
        """The short name that travels with the answers."""

    @property
    def epsilon(self) -> Fraction:
        """The epsilon that is claimed."""

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that the rounded law delivers, never above the claimed one."""

    @property
    def bits(self) -> int:
        """The size of one answer in bits."""

    def to_record(self) -> dict[str, Any]:
        """What the server must know, as a plain record."""


@runtime_checkable
class FrequencyMechanism(Mechanism, Protocol):
    """A mechanism that answers which of some categories a person is in."""

    @property
    def categories(self) -> int:
        """The number of categories, whose codes are 0 to categories - 1."""

    def respond(self, values: ArrayLike, *, default: int | None = None) -> NDArray[Any]:
        """One randomised answer per value, on the client."""

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """The estimated shares, on the server."""

    def variance(self, share: float) -> float:
        """The variance of the estimate of a category with this share, times the number of people."""


@runtime_checkable
class MeanMechanism(Mechanism, Protocol):
    """A mechanism that answers with a noisy number."""

    @property
    def low(self) -> Fraction:
        """The lowest value; lower ones are held to it."""

    @property
    def high(self) -> Fraction:
        """The highest value; higher ones are held to it."""

    def respond(self, values: ArrayLike, *, default: float | None = None) -> NDArray[Any]:
        """One randomised answer per value, on the client."""

    def estimate(self, responses: ArrayLike) -> MeanEstimate:
        """The estimated mean, on the server."""

    def variance(self, place: float) -> float:
        """The variance of an answer at this place in the range (0 low, 1 high), in squared widths."""


def delivered_epsilon(ratio: Fraction, epsilon: Fraction) -> Fraction:
    """The logarithm of a likelihood ratio of at most e^epsilon, rounded up, but not above epsilon.

    >>> delivered_epsilon(Fraction(3), Fraction("1.0987")) < Fraction("1.0987")
    True
    """
    return min(log_above(ratio), epsilon)


def support_variance(share: float, *, hit: Fraction, miss: Fraction) -> float:
    """The variance, times people, of the estimate from counts of support.

    A person's answer supports the person's own category with chance `hit` and another with `miss`.

    >>> round(support_variance(0.0, hit=Fraction(3, 4), miss=Fraction(1, 4)), 9)
    0.75
    """
    own, other = float(hit * (1 - hit)), float(miss * (1 - miss))
    return (share * own + (1 - share) * other) / float(hit - miss) ** 2


def estimate_supports(
    counts: NDArray[np.int64],
    *,
    people: int,
    hit: Fraction,
    miss: Fraction,
    mechanism: Mechanism,
    project: Projection,
) -> Estimate:
    """The unbiased shares (C / n - miss) / (hit - miss), with their errors, projected as told."""
    projection = check_projection(project)
    refuse_impossible(counts, people, least=float(miss), most=float(hit))
    shares = (counts / people - float(miss)) / float(hit - miss)
    inside = np.clip(shares, 0.0, 1.0)
    own, other = float(hit * (1 - hit)), float(miss * (1 - miss))
    variances = (inside * own + (1 - inside) * other) / float(hit - miss) ** 2
    return make_estimate(
        mechanism=mechanism.name,
        epsilon=mechanism.exact_epsilon,
        people=people,
        frequencies=shares,
        variances=variances,
        project=projection,
    )
