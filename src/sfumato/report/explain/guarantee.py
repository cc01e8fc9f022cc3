"""A privacy guarantee as a record, what it lets one learn after one query and after many, and that in words.

Amounts add up over queries: pure epsilons, rates rho and squares of mu, and the probabilities delta with
which a query may fail. `posterior.py` has the bounds and their reasons. The adversary knows everybody else's
data; an answer multiplies the odds of a belief by the ratio of its probabilities, and the
logarithm of that ratio is the privacy loss of the answer.

In words, shares are rounded away from the safe side, never towards it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Literal, get_args

from sfumato.core.cost.curves import mu_to_epsilon, pure_to_mu, pure_to_rho, rho_to_epsilon, sqrt_up
from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, format_exact, parse_exact, parse_positive, round_up
from sfumato.report.explain.posterior import RARITIES, Total, largest_power, posterior_bounds, pure_bounds
from sfumato.report.pages.words import amount, at_least, at_most

Kind = Literal["epsilon", "rho", "mu"]

_LEAST, _MOST = Fraction(1, 10**12), Fraction(10**6)
_MOST_TIMES = 10**9
_NORMAL = NormalDist()
_GUARD = 1e-9  # above the rounding of floats, so that a bound stays one


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The guarantee of one query, asked `times` times: pure, zero-concentrated (rho) or Gaussian (mu).

    `delta` goes with epsilon only.

    >>> Guarantee(kind="epsilon", amount="0.1", times=10).total.epsilon
    Fraction(1, 1)
    """

    kind: Kind
    amount: Fraction
    delta: Fraction = Fraction(0)
    times: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise RecipeError(
                f"a guarantee is one of {', '.join(get_args(Kind))}, got {str(self.kind)[:40]!r}"
            )
        object.__setattr__(self, "amount", _parse_amount(self.amount, self.kind))
        object.__setattr__(self, "delta", _parse_delta(self.delta, self.kind))
        if isinstance(self.times, bool) or not isinstance(self.times, int):
            raise RecipeError("times must be a whole number")
        if not 1 <= self.times <= _MOST_TIMES:
            raise RecipeError(f"times must lie between 1 and {_MOST_TIMES:,}, got {self.times}")

    @property
    def total(self) -> Total:
        """What all queries cost together.

        Pure privacy is zero-concentrated and Gaussian too, which is less for many queries. Gaussian
        privacy is zero-concentrated, with half the square of mu.
        """
        times = self.times
        if self.kind == "rho":
            return Total(epsilon=None, rho=times * self.amount, mu_squared=None)
        if self.kind == "mu":
            squared = times * self.amount**2
            return Total(epsilon=None, rho=squared / 2, mu_squared=squared)
        return Total(
            epsilon=times * self.amount,
            rho=times * pure_to_rho(self.amount),
            mu_squared=times * pure_to_mu(self.amount) ** 2,
            failure=min(Fraction(1), times * self.delta),
        )

    def describe(self) -> str:
        """Returns the guarantee of one query in a few words.

        >>> Guarantee(kind="epsilon", amount=1, delta="1e-6").describe()
        'epsilon 1, delta 0.000001'
        """
        kinds = {"epsilon": "pure", "rho": "zero-concentrated", "mu": "Gaussian"}
        if self.delta:
            return f"epsilon {format_exact(self.amount)}, delta {format_exact(self.delta)}"
        return f"{self.kind} {format_exact(self.amount)} ({kinds[self.kind]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A guarantee read as an epsilon at a delta, and the way by which it was read."""

    epsilon: float
    delta: Fraction
    way: str


def parse_probability(value: ExactLike, *, name: str) -> Fraction:
    """Returns the probability from 0 to 1 that `value` stands for.

    >>> parse_probability("0.5", name="prior")
    Fraction(1, 2)
    """
    number = parse_exact(value, name=name)
    if not 0 <= number <= 1:
        raise RecipeError(f"{name} must lie between 0 and 1, got {str(value)[:40]!r}")
    return number


def belief_bounds(
    guarantee: Guarantee, prior: ExactLike, *, rarity: Fraction | None = None
) -> tuple[float, float]:
    """Returns the least and the largest belief after the answers, for a `prior` belief.

    Without `rarity`, after any answers: only pure epsilon bounds that, others give 0 and 1. With it,
    after evidence that is so rare if the belief is false (for the upper end; for the lower, if true).

    >>> [round(bound, 4) for bound in belief_bounds(Guarantee(kind="epsilon", amount=1), 0.5)]
    [0.2689, 0.7311]
    >>> belief_bounds(Guarantee(kind="rho", amount=1), 0.5)
    (0.0, 1.0)
    """
    return posterior_bounds(guarantee.total, float(parse_probability(prior, name="prior")), rarity=rarity)


def best_guess(guarantee: Guarantee, prior: ExactLike) -> float:
    """Returns the largest share of right guesses, if the one table is true with chance `prior`.

    >>> round(best_guess(Guarantee(kind="epsilon", amount=1), 0.5), 4)
    0.7311
    >>> round(best_guess(Guarantee(kind="mu", amount=1), 0.5), 4)
    0.6915
    """
    before = float(parse_probability(prior, name="prior"))
    plain = max(before, 1 - before)
    if plain == 1:
        return 1.0
    total = guarantee.total
    rights = [1.0]
    if total.epsilon is not None:
        # The corner of the trade-off, where both errors are 1 / (1 + e^epsilon).
        rights.append(pure_bounds(float(total.epsilon), 0.5)[1])
    if total.mu_squared is not None:
        rights.append(_gaussian_right(math.sqrt(total.mu_squared), before))
    elif total.rho is not None:
        rights.append(_concentrated_right(float(total.rho), before))
    right = max(plain, min(rights))
    failure = float(total.failure)
    return min(1.0, failure + (1 - failure) * right)


def read_epsilon(guarantee: Guarantee, delta: ExactLike) -> Reading | None:
    """Returns the least epsilon that is known to hold at `delta`, rounded up; None if a failure is likelier.

    Pure epsilons add up; over many queries, what they are as Gaussian and zero-concentrated privacy adds
    up to less.

    >>> reading = read_epsilon(Guarantee(kind="epsilon", amount=0.1, times=100), 1e-6)
    >>> round(reading.epsilon, 2), reading.way
    (5.22, 'zero-concentrated')
    """
    at = parse_probability(delta, name="delta")
    total = guarantee.total
    left = at - total.failure
    ways: list[tuple[float, str]] = []
    if total.epsilon is not None and left >= 0:
        ways.append((float(total.epsilon), "sum"))
    if 0 < left < 1 and total.mu_squared is not None:
        ways.append((mu_to_epsilon(sqrt_up(total.mu_squared), left), "Gaussian"))
    if 0 < left < 1 and total.rho is not None:
        ways.append((rho_to_epsilon(total.rho, left), "zero-concentrated"))
    if not ways:
        return None
    epsilon, way = min(ways, key=lambda each: each[0])
    return Reading(epsilon=epsilon, delta=at, way=way)


def largest_detection(guarantee: Guarantee, false_alarm: float) -> float:
    """Returns the largest share of true cases that a test finds, if it accuses `false_alarm` of the others.

    >>> round(largest_detection(Guarantee(kind="epsilon", amount=1), 0.05), 4)
    0.1359
    >>> round(largest_detection(Guarantee(kind="mu", amount=1), 0.05), 4)
    0.2595
    """
    if not 0 <= false_alarm <= 1:
        raise RecipeError("the rate of false alarms must lie between 0 and 1")
    return largest_power(guarantee.total, false_alarm)


def least_missed(guarantee: Guarantee, false_alarm: float) -> float:
    """Returns the least share of true cases that a test misses, if it accuses `false_alarm` of the others.

    >>> round(least_missed(Guarantee(kind="rho", amount=0.5), 0.05), 4)
    0.6644
    """
    return max(0.0, 1 - largest_detection(guarantee, false_alarm))


def _parse_amount(value: ExactLike, kind: Kind) -> Fraction:
    number = parse_positive(value, name=kind)
    if not _LEAST <= number <= _MOST:
        raise RecipeError(f"{kind} must lie between 1e-12 and 1e6 to be explained")
    return number


def _parse_delta(value: ExactLike, kind: Kind) -> Fraction:
    number = parse_exact(value, name="delta")
    if not 0 <= number < 1:
        raise RecipeError("delta must be 0 or more, and below one")
    if number and kind != "epsilon":
        raise RecipeError(f"{kind} has no delta of its own; state at which delta to read it as an epsilon")
    return number


def _gaussian_right(mu: float, prior: float) -> float:
    """Returns the test at the likelihood ratio (1 - prior) / prior, which no other test beats."""
    cut = (math.log1p(-prior) - math.log(prior)) / mu
    found, alarms = _NORMAL.cdf(mu / 2 - cut), _NORMAL.cdf(-mu / 2 - cut)
    return prior * found + (1 - prior) * (1 - alarms) + _GUARD


def _concentrated_right(rho: float, prior: float) -> float:
    """Bounds from above on a grid: the detections of one rate with the alarms of the next."""
    import numpy as np

    from sfumato.report.explain.powers import concentrated_powers

    edges = np.concatenate([[0.0], 1 / (1 + np.exp(-np.linspace(-16, 16, 160))), [1.0]])
    for _ in range(2):
        inside = (edges > 0) & (edges < 1)
        powers = edges.copy()
        powers[inside] = concentrated_powers(rho, edges[inside])
        at = prior * powers + (1 - prior) * (1 - edges)
        above = prior * powers[1:] + (1 - prior) * (1 - edges[:-1])
        best = float(above.max())
        keep = np.flatnonzero(above >= at.max() - _GUARD)
        edges = np.linspace(edges[keep[0]], edges[keep[-1] + 1], 160)
    return best + _GUARD


FALSE_ALARMS = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 20), Fraction(1, 10))
"""The rates of false alarms at which tests are described."""

READ_AT = Fraction(1, 10**6)
"""The delta at which a guarantee is read as an epsilon, if none is given."""

_PLAIN = 12
"""The largest epsilon whose factor of odds is written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is learned after the queries of `guarantee`; `belief` is None if no single answer is bounded.

    `evidence` has the bounds of belief after evidence, by how rare it is on the other hypothesis; `tests` the
    most that a test detects and the least that it misses, by its rate of false alarms.
    """

    guarantee: Guarantee
    belief: tuple[float, float] | None
    evidence: Mapping[Fraction, tuple[float, float]]
    tests: Mapping[Fraction, tuple[float, float]]
    right: float
    reading: Reading | None

    def to_record(self) -> dict[str, Any]:
        """Returns the finding as plain values for JSON."""
        total = self.guarantee.total
        squared = total.mu_squared
        return {
            "times": self.guarantee.times,
            "epsilon": None if total.epsilon is None else format_exact(total.epsilon),
            "delta": format_exact(total.failure),
            "rho": None if total.rho is None else format_exact(round_up(total.rho, places=18)),
            "mu_squared": None if squared is None else format_exact(round_up(squared, places=18)),
            "reading": None
            if self.reading is None
            else {
                "epsilon": self.reading.epsilon,
                "delta": format_exact(self.reading.delta),
                "way": self.reading.way,
            },
            "belief": None if self.belief is None else dict(zip(("low", "high"), self.belief, strict=True)),
            "evidence": [
                {"rarity": float(rarity), "low": low, "high": high}
                for rarity, (low, high) in self.evidence.items()
            ],
            "tests": [
                {"false_alarm": float(rate), "detected": detected, "missed": missed}
                for rate, (detected, missed) in self.tests.items()
            ],
            "right_guesses": self.right,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What an adversary with belief `prior` learns from one query, and from all of them if several."""

    guarantee: Guarantee
    prior: Fraction
    findings: tuple[Finding, ...]

    def to_record(self) -> dict[str, Any]:
        """Returns the explanation as plain values for JSON."""
        return {
            "kind": self.guarantee.kind,
            "amount": format_exact(self.guarantee.amount),
            "delta": format_exact(self.guarantee.delta),
            "prior": format_exact(self.prior),
            "findings": [finding.to_record() for finding in self.findings],
        }


def explain_guarantee(
    guarantee: Guarantee, *, prior: ExactLike = Fraction(1, 2), read_at: ExactLike = READ_AT
) -> Explanation:
    """Returns what an adversary who knows everybody else's data learns, for a `prior` belief.

    `read_at` is the delta at which the guarantee is read as an epsilon.

    >>> found = explain_guarantee(Guarantee(kind="epsilon", amount=1, times=3), prior=0.1)
    >>> [round(bound, 3) for finding in found.findings for bound in finding.belief]
    [0.039, 0.232, 0.006, 0.691]
    """
    before = parse_probability(prior, name="prior")
    delta = parse_probability(read_at, name="delta")
    if delta in (0, 1):
        raise RecipeError("the delta at which to read a guarantee must lie above 0 and below 1")
    numbers = dict.fromkeys((1, guarantee.times))
    findings = tuple(_find(replace(guarantee, times=times), before, delta) for times in numbers)
    return Explanation(guarantee=guarantee, prior=before, findings=findings)


def _find(guarantee: Guarantee, prior: Fraction, delta: Fraction) -> Finding:
    detected = {rate: largest_detection(guarantee, float(rate)) for rate in FALSE_ALARMS}
    return Finding(
        guarantee=guarantee,
        belief=belief_bounds(guarantee, prior) if guarantee.total.is_pure else None,
        evidence={rarity: belief_bounds(guarantee, prior, rarity=rarity) for rarity in RARITIES},
        tests={rate: (share, max(0.0, 1 - share)) for rate, share in detected.items()},
        right=best_guess(guarantee, prior),
        reading=read_epsilon(guarantee, delta),
    )


def describe_explanation(explanation: Explanation) -> str:
    """Returns the explanation in plain words, a paragraph for one query and one for all of them.

    >>> print(describe_explanation(explain_guarantee(Guarantee(kind="epsilon", amount=1))).splitlines()[3])
      belief    whoever believed 50 % before believes at most 73.2 % after, and at least 26.8 %
    """
    lines = [
        f"{explanation.guarantee.describe()}: what the answers can teach about one person,",
        "to somebody who knows everybody else's data",
    ]
    blind = max(explanation.prior, 1 - explanation.prior)
    for finding in explanation.findings:
        lines.append(f"after {count_queries(finding.guarantee.times)}: {_describe_cost(finding)}")
        lines += _describe_belief(finding, explanation.prior)
        lines.append(
            f"  guessing  of 100 guesses at most {at_most(finding.right).removesuffix(' %')} are right; "
            f"without any answer, {at_most(float(blind)).removesuffix(' %')}"
        )
        lines += _describe_tests(finding)
    return "\n".join(lines)


def count_queries(times: int) -> str:
    """Returns the number of queries in words."""
    return "one query" if times == 1 else f"{times:,} queries"


def _describe_cost(finding: Finding) -> str:
    guarantee, total = finding.guarantee, finding.guarantee.total
    if guarantee.kind == "epsilon":
        cost = f"epsilon {amount(total.epsilon)}"
        cost += f", delta {amount(total.failure)}" if total.failure else ""
    elif guarantee.kind == "rho":
        cost = f"rho {amount(total.rho)}"
    else:
        cost = f"mu {_up(math.sqrt(total.mu_squared or 0))}"
    reading = finding.reading
    if reading is None or reading.way == "sum" or (guarantee.kind == "epsilon" and guarantee.times == 1):
        return cost
    return f"{cost}; read as epsilon {_up(reading.epsilon)} at delta {amount(reading.delta)} ({reading.way})"


def _describe_belief(finding: Finding, prior: Fraction) -> list[str]:
    before = _share(prior)
    if prior in (0, 1):
        return [
            f"  belief    whoever was certain before ({before}) stays so: no answer moves a certain belief"
        ]
    lines = []
    if finding.belief is not None:
        low, high = finding.belief
        epsilon = float(finding.guarantee.total.epsilon or 0)
        factor = _up(math.exp(epsilon)) if epsilon <= _PLAIN else f"e^{_up(epsilon)}"
        lines.append(
            f"  belief    whoever believed {before} before believes at most {at_most(high)} after, "
            f"and at least {at_least(low)}"
        )
        lines.append(f"            whatever the answers are: the odds move by a factor of {factor} at most")
    elif finding.guarantee.total.failure:
        chance = amount(finding.guarantee.total.failure)
        lines.append(
            f"  belief    with a chance of {chance} the answers may tell everything; this counted in,"
        )
    else:
        lines.append("  belief    no single answer is bounded: the rarer the evidence, the more it may tell")
    show = finding.belief is None or finding.guarantee.times > 1
    for rarity, (low, high) in finding.evidence.items() if show else ():
        lines.append(
            f"            on evidence that comes up for 1 in {round(1 / rarity):,} otherwise: from {before} "
            f"to {at_most(high)} at most, or down to {at_least(low)}"
        )
    return lines


def _describe_tests(finding: Finding) -> list[str]:
    lines = []
    for rate, (detected, least) in finding.tests.items():
        base = 1000 if rate < Fraction(1, 100) else 100
        accused = rate * base
        found, missed = at_most(detected).removesuffix(" %"), at_least(least).removesuffix(" %")
        who = "is" if accused == 1 else "are"
        lines.append(
            f"if {format_exact(accused)} of {base} innocent people {who} accused, at most {found} of 100 "
            f"guilty ones are found and {missed} missed"
        )
    return [f"  {'testing' if turn == 0 else '':9s} {line}" for turn, line in enumerate(lines)]


def _share(share: Fraction) -> str:
    percent = share * 100
    exact = format_exact(percent)
    return f"{exact} %" if len(exact) <= 8 and "/" not in exact else f"{float(percent):.4g} %"


def _up(number: float) -> str:
    """Returns `number` with four digits that count, rounded up."""
    if number == 0 or math.isinf(number):
        return f"{number:g}"
    unit = 10.0 ** (math.floor(math.log10(number)) - 3)
    return f"{math.ceil(number / unit - 1e-9) * unit:.4g}"
