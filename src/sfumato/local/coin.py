"""Randomised response with two coins, as it is taught, and what an answer tells about a person."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_exact
from sfumato.local.checks import check_answers, check_codes, count_answers, refuse_impossible
from sfumato.local.draws import draw_events
from sfumato.local.mechanism import delivered_epsilon, support_variance
from sfumato.local.results import check_projection, make_estimate
from sfumato.local.thresholds import WORDS, log_above
from sfumato.noise.entropy import KeyStream

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.results import Estimate, Projection
    from sfumato.noise.entropy import BitSource


@dataclass(frozen=True, slots=True, init=False)
class CoinResponse:
    """Two coins: with chance `truth` the true answer, otherwise yes with chance `yes`.

    Privacy: ln of the larger of (1 - lie) / false yes and the same for no; with two fair coins the
    ratio is 3 and epsilon is ln 3, exactly. Lies are rounded up to whole 2^-64.

    >>> CoinResponse().likelihood_ratio
    Fraction(3, 1)
    """

    name: ClassVar[str] = "coin"
    categories: ClassVar[int] = 2

    truth: Fraction
    yes: Fraction

    def __init__(self, *, truth: ExactLike = Fraction(1, 2), yes: ExactLike = Fraction(1, 2)) -> None:
        for name, given in (("truth", truth), ("yes", yes)):
            chance = parse_exact(given, name=name)
            if not Fraction(1, 1 << 40) <= chance <= 1 - Fraction(1, 1 << 40):
                raise RecipeError(
                    f"{name} must be a chance above 0 and below 1, got {format_exact(chance)[:40]}"
                )
            object.__setattr__(self, name, chance)

    @property
    def false_no(self) -> Fraction:
        """The chance that a yes is answered with no."""
        return _round_up((1 - self.truth) * (1 - self.yes))

    @property
    def false_yes(self) -> Fraction:
        """The chance that a no is answered with yes."""
        return _round_up((1 - self.truth) * self.yes)

    @property
    def epsilon(self) -> Fraction:
        """The epsilon that is claimed: the logarithm of the coins' ratio, rounded up at the 30th decimal."""
        lies = (1 - self.truth) * (1 - self.yes), (1 - self.truth) * self.yes
        return log_above(max((1 - lies[0]) / lies[1], (1 - lies[1]) / lies[0]))

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of an answer under two values, exactly."""
        return max((1 - self.false_no) / self.false_yes, (1 - self.false_yes) / self.false_no)

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
        return {
            "mechanism": self.name,
            "truth": format_exact(self.truth),
            "yes": format_exact(self.yes),
            "categories": 2,
        }

    def variance(self, share: float) -> float:
        """The variance of the estimated share of yes, times the number of people."""
        return support_variance(share, hit=1 - self.false_no, miss=self.false_yes)

    def respond(self, values: ArrayLike, *, default: int | None = None) -> NDArray[Any]:
        """One answer, 0 or 1, per value, in the type of the values."""
        return self._draw(check_codes(values, 2, default=default), KeyStream())

    def _draw(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        # Both lies are drawn for everybody, so that neither time nor words depend on the value.
        from_yes = draw_events(int(self.false_no * WORDS), codes.size, source)
        from_no = draw_events(int(self.false_yes * WORDS), codes.size, source)
        held = codes.astype(np.bool_)
        answers: NDArray[Any] = ((held & ~from_yes) | (~held & from_no)).astype(codes.dtype)
        return answers

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """The shares of no and yes, from the answers of everybody."""
        projection = check_projection(project)
        answers = check_answers(responses, 2)
        said_yes = count_answers(answers, 2)[1:]
        hit, miss = 1 - self.false_no, self.false_yes
        refuse_impossible(said_yes, answers.size, least=float(miss), most=float(hit))
        share = float((Fraction(int(said_yes[0]), answers.size) - miss) / (hit - miss))
        variance = support_variance(min(max(share, 0.0), 1.0), hit=hit, miss=miss)
        return make_estimate(
            mechanism=self.name,
            epsilon=self.exact_epsilon,
            people=answers.size,
            frequencies=np.array([1 - share, share]),
            variances=np.array([variance, variance]),
            project=projection,
        )


def coin_response(
    values: ArrayLike, *, truth: ExactLike = Fraction(1, 2), yes: ExactLike = Fraction(1, 2)
) -> NDArray[Any]:
    """One answer per person: flip a coin, answer truly on heads, else say what a second coin says.

    Privacy: with fair coins epsilon is ln 3 for one answer.

    >>> coin_response([True, False, True]).dtype
    dtype('bool')
    """
    return CoinResponse(truth=truth, yes=yes).respond(values)


def estimate_coin(
    responses: ArrayLike,
    *,
    truth: ExactLike = Fraction(1, 2),
    yes: ExactLike = Fraction(1, 2),
    project: Projection = "none",
) -> Estimate:
    """The shares of no and yes behind coin responses; with fair coins that of yes is 2 p - 1/2.

    >>> estimate_coin([1] * 40 + [0] * 60).frequencies.round(9).tolist()
    [0.7, 0.3]
    """
    return CoinResponse(truth=truth, yes=yes).estimate(responses, project=project)


def posterior(prior: ExactLike, *, flip: ExactLike = Fraction(1, 4), answer: bool = True) -> Fraction:
    """The chance that the truth is yes, given an answer that is a lie with chance `flip`.

    `prior` is what was believed before. Two fair coins lie with chance 1/4. By Bayes, after a yes it is
    (1 - flip) prior / ((1 - flip) prior + flip (1 - prior)).

    >>> posterior("1/2"), posterior("1/10"), posterior("1/10", answer=False)
    (Fraction(3, 4), Fraction(1, 4), Fraction(1, 28))
    """
    before = parse_exact(prior, name="prior")
    lie = parse_exact(flip, name="flip")
    for name, chance in (("prior", before), ("flip", lie)):
        if not 0 <= chance <= 1:
            raise RecipeError(f"{name} must be a chance from 0 to 1, got {format_exact(chance)[:40]}")
    if_yes = 1 - lie if answer else lie
    seen = if_yes * before + (1 - if_yes) * (1 - before)
    if seen == 0:
        raise RecipeError("such an answer cannot come up with this prior and flip")
    return if_yes * before / seen


def _round_up(chance: Fraction) -> Fraction:
    return Fraction(-(-chance.numerator * WORDS // chance.denominator), WORDS)
