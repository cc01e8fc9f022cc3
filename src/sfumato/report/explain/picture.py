"""An explanation as one picture: belief after against belief before, and misses against false alarms."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sfumato.report.explain.guarantee import (
    Explanation,
    Guarantee,
    belief_bounds,
    count_queries,
    least_missed,
)
from sfumato.report.explain.posterior import pure_bounds
from sfumato.report.explain.powers import concentrated_powers
from sfumato.report.pages.svg import Position, draw_file, draw_frame, draw_line, element, trace, write
from sfumato.report.pages.words import at_least, at_most

_SIDE, _TOP, _LEFT, _RIGHT = 280, 92, 74, 444
_WIDTH, _HEIGHT = 760, 470
_RARITY = Fraction(1, 20)  # 1 in 20, as in the words beside it
_PRIORS = tuple(step / 60 for step in range(61))
_RATES = (0.0, *(1 / (1 + np.exp(-np.linspace(-9, 9, 120)))).tolist(), 1.0)
_SHEET = (
    ".curve{fill:none;stroke-width:2.4;stroke-linejoin:round}.curve.c0{stroke:var(--blue)}"
    ".curve.c1{stroke:var(--gold);stroke-dasharray:9 3}"
    ".band{opacity:.28}.band.c0{fill:var(--blue)}.band.c1{fill:var(--gold)}"
)


def draw_explanation(explanation: Explanation) -> str:
    """Gives an SVG picture of the explanation; needs nothing from elsewhere and follows light and dark pages.

    >>> from sfumato.report.explain.guarantee import Guarantee, explain_guarantee
    >>> draw_explanation(explain_guarantee(Guarantee(kind="epsilon", amount=1))).startswith("<svg ")
    True
    """
    left, right = (_LEFT, _TOP, _SIDE), (_RIGHT, _TOP, _SIDE)
    guarantees = [finding.guarantee for finding in explanation.findings]
    pure = explanation.findings[0].belief is not None
    parts = [
        write(24, 56, "about one person, to somebody who knows everybody else's data", size=13, class_="q"),
        *draw_frame(*left, x="belief before", y="belief after"),
        *draw_frame(*right, x="false alarms", y="missed detections", falling=True),
    ]
    # The band of all queries is the wider one and lies below that of one query.
    for turn, guarantee in reversed(list(enumerate(guarantees))):
        low, high = _beliefs(guarantee, pure=pure)
        parts.append(element("path", d=trace([*high, *reversed(low)], *left) + "Z", class_=f"band c{turn}"))
        parts += [element("path", d=trace(line, *left), class_=f"curve c{turn}") for line in (low, high)]
    for turn, guarantee in enumerate(guarantees):
        parts.append(element("path", d=trace(_misses(guarantee), *right), class_=f"curve c{turn}"))
    bottom = _TOP + _SIDE + 58
    when = "after any answer" if pure else "on evidence of 1 in 20"
    parts.append(write(_LEFT, bottom, f"within the band, {when}", size=13, class_="q"))
    parts.append(write(_RIGHT, bottom, "no test gets below its curve", size=13, class_="q"))
    key = [(f"curve c{turn}", count_queries(each.times)) for turn, each in enumerate(guarantees)]
    x, y = float(_LEFT), bottom + 24
    for class_, name in (*key, ("dash", "nothing learned")):
        parts.append(draw_line(x, y - 4, x + 26, y - 4, class_=class_))
        parts.append(write(x + 34, y, name, size=13))
        x += 60 + 7.2 * len(name)
    return draw_file(
        _WIDTH,
        _HEIGHT,
        *parts,
        title=f"What an adversary learns: {explanation.guarantee.describe()}",
        description=_describe(explanation),
        sheet=_SHEET,
    )


def _beliefs(guarantee: Guarantee, *, pure: bool) -> tuple[list[Position], list[Position]]:
    bounds = [belief_bounds(guarantee, prior, rarity=None if pure else _RARITY) for prior in _PRIORS]
    low, high = zip(*bounds, strict=True)
    return list(zip(_PRIORS, low, strict=True)), list(zip(_PRIORS, high, strict=True))


def _misses(guarantee: Guarantee) -> list[Position]:
    total = guarantee.total
    if guarantee.kind == "rho":
        powers = concentrated_powers(float(total.rho or 0), np.array(_RATES[1:-1]))
        return [(0.0, 1.0), *zip(_RATES[1:-1], (1 - powers).tolist(), strict=True), (1.0, 0.0)]
    # Where the two straight lines of an epsilon meet.
    corner = 1 - pure_bounds(float(total.epsilon or 0), 0.5)[1]
    rates = sorted({*_RATES, (1 - float(total.failure)) * corner})
    return [(rate, least_missed(guarantee, rate)) for rate in rates]


def _describe(explanation: Explanation) -> str:
    """Returns the picture for those who do not see it."""
    sentences = []
    for finding in explanation.findings:
        low, high = finding.belief or finding.evidence[_RARITY]
        condition = "" if finding.belief else ", on evidence that comes up for 1 in 20 otherwise,"
        sentences.append(
            f"After {count_queries(finding.guarantee.times)} a belief of {float(explanation.prior):.3g}"
            f"{condition} becomes at least {at_least(low)} and at most {at_most(high)}; "
            f"a test with 5 % false alarms misses at least {at_least(finding.tests[_RARITY][1])}."
        )
    return " ".join(sentences)
