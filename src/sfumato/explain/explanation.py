"""What an adversary learns after one query and after many, as one record."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sfumato.errors import RecipeError
from sfumato.exact import ExactLike, format_exact, round_up
from sfumato.explain.belief import Reading, belief_bounds, best_guess, read_epsilon
from sfumato.explain.guarantee import Guarantee, parse_probability
from sfumato.explain.tradeoff import largest_detection
from sfumato.report.posterior import RARITIES

FALSE_ALARMS = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 20), Fraction(1, 10))
"""The rates of false alarms at which tests are told."""

READ_AT = Fraction(1, 10**6)
"""The delta at which a guarantee is read as an epsilon, if none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The bounds of belief after evidence that comes up with chance `rarity` on the other hypothesis."""

    rarity: Fraction
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The most that a test detects at a rate of false alarms."""

    false_alarm: Fraction
    detected: float

    @property
    def missed(self) -> float:
        """The share that the test misses at least."""
        return max(0.0, 1 - self.detected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is learned after the queries of `guarantee`; `belief` is None if no single answer is bounded."""

    guarantee: Guarantee
    belief: tuple[float, float] | None
    evidence: tuple[Evidence, ...]
    tests: tuple[Detection, ...]
    right: float
    reading: Reading | None

    def to_record(self) -> dict[str, Any]:
        """The finding as plain values for JSON."""
        total, failure = self.guarantee.total, self.guarantee.failure
        squared = total.mu_squared
        return {
            "times": self.guarantee.times,
            "epsilon": None if total.epsilon is None else format_exact(total.epsilon),
            "delta": format_exact(failure),
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
                {"rarity": float(each.rarity), "low": each.low, "high": each.high} for each in self.evidence
            ],
            "tests": [
                {"false_alarm": float(each.false_alarm), "detected": each.detected, "missed": each.missed}
                for each in self.tests
            ],
            "right_guesses": self.right,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What an adversary with belief `prior` learns from one query, and from all of them if several."""

    guarantee: Guarantee
    prior: Fraction
    once: Finding
    after: Finding | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The one finding, or both."""
        return (self.once,) if self.after is None else (self.once, self.after)

    def to_record(self) -> dict[str, Any]:
        """The explanation as plain values for JSON."""
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
    """What an adversary who knows everybody else's data learns, for a `prior` belief.

    `read_at` is the delta at which the guarantee is read as an epsilon.

    >>> told = explain_guarantee(Guarantee(kind="epsilon", amount=1, times=3), prior=0.1)
    >>> [round(bound, 3) for finding in told.findings for bound in finding.belief]
    [0.039, 0.232, 0.006, 0.691]
    """
    before = parse_probability(prior, name="prior")
    delta = parse_probability(read_at, name="delta")
    if delta in (0, 1):
        raise RecipeError("the delta at which to read a guarantee must lie above 0 and below 1")
    once = _find(guarantee.repeat(1), before, delta)
    after = _find(guarantee, before, delta) if guarantee.times > 1 else None
    return Explanation(guarantee=guarantee, prior=before, once=once, after=after)


def _find(guarantee: Guarantee, prior: Fraction, delta: Fraction) -> Finding:
    pure = guarantee.kind == "epsilon" and not guarantee.failure
    evidence = [(rarity, *belief_bounds(guarantee, prior, rarity=rarity)) for rarity in RARITIES]
    return Finding(
        guarantee=guarantee,
        belief=belief_bounds(guarantee, prior) if pure else None,
        evidence=tuple(Evidence(rarity=rarity, low=low, high=high) for rarity, low, high in evidence),
        tests=tuple(
            Detection(false_alarm=rate, detected=largest_detection(guarantee, float(rate)))
            for rate in FALSE_ALARMS
        ),
        right=best_guess(guarantee, prior),
        reading=read_epsilon(guarantee, delta),
    )
