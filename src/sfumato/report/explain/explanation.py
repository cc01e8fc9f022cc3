"""What an adversary learns after one query and after many, as one record and in plain words.

In words, shares are rounded away from the safe side, never towards it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, format_exact, round_up
from sfumato.report.explain.guarantee import (
    Guarantee,
    Reading,
    belief_bounds,
    best_guess,
    largest_detection,
    parse_probability,
    read_epsilon,
)
from sfumato.report.explain.posterior import RARITIES
from sfumato.report.pages.words import amount, at_least, at_most

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
