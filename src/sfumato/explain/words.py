"""An explanation in plain words; shares are rounded away from the safe side, never towards it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.exact import format_exact
from sfumato.report.numbers import amount

if TYPE_CHECKING:
    from sfumato.explain.explanation import Explanation, Finding

_PLAIN = 12
"""The largest epsilon whose factor of odds is written out."""


def at_most(share: float) -> str:
    """`share` as a percentage that is not below it, with more digits next to 0 and 1.

    >>> at_most(0.731059), at_most(0.5), at_most(0.00001), at_most(0.9999546)
    ('73.2 %', '50 %', '0.001 %', '99.9955 %')
    """
    return _percent(share, up=True)


def at_least(share: float) -> str:
    """`share` as a percentage that is not above it, with more digits next to 0 and 1.

    >>> at_least(0.268941), at_least(0.5), at_least(0.0000454)
    ('26.8 %', '50 %', '0.0045 %')
    """
    return _percent(share, up=False)


def describe_explanation(told: Explanation) -> str:
    """The explanation in plain words, a paragraph for one query and one for all of them.

    >>> from sfumato.explain import Guarantee, explain_guarantee
    >>> print(describe_explanation(explain_guarantee(Guarantee(kind="epsilon", amount=1))).splitlines()[3])
      belief    whoever believed 50 % before believes at most 73.2 % after, and at least 26.8 %
    """
    lines = [
        f"{told.guarantee.describe()}: what the answers can teach about one person,",
        "to somebody who knows everybody else's data",
    ]
    for finding in told.findings:
        lines += _describe_finding(finding, told.prior)
    return "\n".join(lines)


def _describe_finding(finding: Finding, prior: Fraction) -> list[str]:
    times = finding.guarantee.times
    queries = "one query" if times == 1 else f"{times:,} queries"
    lines = [f"after {queries}: {_cost(finding)}"]
    lines += _tell_belief(finding, prior)
    lines += _tell_guesses(finding, prior)
    lines += _tell_tests(finding)
    return lines


def _cost(finding: Finding) -> str:
    guarantee, total = finding.guarantee, finding.guarantee.total
    if guarantee.kind == "epsilon":
        told = f"epsilon {amount(total.epsilon)}"
        told += f", delta {amount(guarantee.failure)}" if guarantee.failure else ""
    elif guarantee.kind == "rho":
        told = f"rho {amount(total.rho)}"
    else:
        told = f"mu {_up(math.sqrt(total.mu_squared or 0))}"
    reading = finding.reading
    if reading is None or reading.way == "sum" or (guarantee.kind == "epsilon" and guarantee.times == 1):
        return told
    return f"{told}; read as epsilon {_up(reading.epsilon)} at delta {amount(reading.delta)} ({reading.way})"


def _tell_belief(finding: Finding, prior: Fraction) -> list[str]:
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
    elif finding.guarantee.failure:
        chance = amount(finding.guarantee.failure)
        lines.append(
            f"  belief    with a chance of {chance} the answers may tell everything; this counted in,"
        )
    else:
        lines.append("  belief    no single answer is bounded: the rarer the evidence, the more it may tell")
    show = finding.belief is None or finding.guarantee.times > 1
    for each in finding.evidence if show else ():
        one_in = f"1 in {round(1 / each.rarity):,}"
        lines.append(
            f"            on evidence that comes up for {one_in} otherwise: from {before} to "
            f"{at_most(each.high)} at most, or down to {at_least(each.low)}"
        )
    return lines


def _tell_guesses(finding: Finding, prior: Fraction) -> list[str]:
    blind = float(max(prior, 1 - prior))
    return [
        f"  guessing  of 100 guesses at most {_hundred(finding.right)} are right; "
        f"without any answer, {_hundred(blind)}"
    ]


def _tell_tests(finding: Finding) -> list[str]:
    lines = []
    for each in finding.tests:
        base = 1000 if each.false_alarm < Fraction(1, 100) else 100
        accused = each.false_alarm * base
        found = at_most(each.detected).removesuffix(" %")
        missed = at_least(each.missed).removesuffix(" %")
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


def _hundred(share: float) -> str:
    return at_most(share).removesuffix(" %")


def _percent(share: float, *, up: bool) -> str:
    near = min(share, 1 - share)
    places = 1 if near >= 1e-3 or near <= 0 else min(8, -math.floor(math.log10(near)) - 1)
    unit = 10**places
    # Floats that stand for round percentages stay on them.
    steps = math.ceil(share * 100 * unit - 1e-6) if up else math.floor(share * 100 * unit + 1e-6)
    text = f"{min(100 * unit, max(0, steps)) / unit:.{places}f}"
    return text.rstrip("0").rstrip(".") + " %"


def _up(number: float) -> str:
    """`number` with four digits that count, rounded up."""
    if number == 0 or math.isinf(number):
        return f"{number:g}"
    unit = 10.0 ** (math.floor(math.log10(number)) - 3)
    return f"{math.ceil(number / unit - 1e-9) * unit:.4g}"
