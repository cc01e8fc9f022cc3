"""An explanation as one picture: belief after against belief before, and misses against false alarms."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.explain.belief import belief_bounds
from sfumato.explain.tradeoff import concentrated_powers, least_missed
from sfumato.explain.words import at_least, at_most
from sfumato.report.html import Html, raw, tag
from sfumato.report.palette import colour_rules
from sfumato.report.posterior import pure_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.explain.explanation import Explanation
    from sfumato.explain.guarantee import Guarantee

_SIDE, _TOP, _LEFT, _RIGHT = 280, 92, 74, 444
_WIDTH, _HEIGHT = 760, 470
_RARITY = Fraction(1, 20)
_PRIORS = tuple(step / 60 for step in range(61))
_RATES = (0.0, *(1 / (1 + np.exp(-np.linspace(-9, 9, 120)))).tolist(), 1.0)

Point = tuple[float, float]


def draw_explanation(told: Explanation) -> str:
    """An SVG picture of the explanation; needs nothing from elsewhere and follows light and dark pages.

    >>> from sfumato.explain import Guarantee, explain_guarantee
    >>> draw_explanation(explain_guarantee(Guarantee(kind="epsilon", amount=1))).startswith("<svg ")
    True
    """
    title = f"What an adversary learns: {told.guarantee.describe()}"
    several = told.after is not None
    names = ["one query", *([f"{told.guarantee.times:,} queries"] if several else [])]
    guarantees = [finding.guarantee for finding in told.findings]
    pure = told.once.belief is not None
    belief = [_beliefs(each, pure=pure) for each in guarantees]
    tests = [_misses(each) for each in guarantees]
    parts: list[Html] = [
        tag("title", title, id="title"),
        tag("desc", _tell(told), id="desc"),
        tag("style", raw(_style())),
        tag("rect", width=_WIDTH, height=_HEIGHT, rx=8, class_="paper"),
        _text(24, 34, title, class_="head"),
        _text(24, 56, "about one person, to somebody who knows everybody else's data", class_="soft"),
        *_frame(_LEFT, "belief before", "belief after", rising=True),
        *_frame(_RIGHT, "false alarms", "missed detections", rising=False),
    ]
    for turn, (low, high) in reversed(list(enumerate(belief))):
        outline = [*high, *reversed(low)]
        parts.append(tag("path", d=_path(outline, _LEFT) + "Z", class_=f"band c{turn}"))
        parts += [tag("path", d=_path(line, _LEFT), class_=f"curve c{turn}") for line in (low, high)]
    for turn, line in enumerate(tests):
        parts.append(tag("path", d=_path(line, _RIGHT), class_=f"curve c{turn}"))
    shown = "after any answer" if pure else "on evidence of 1 in 20"
    bottom = _TOP + _SIDE + 58
    parts += [
        _text(_LEFT, bottom, f"within the band, {shown}", class_="soft"),
        _text(_RIGHT, bottom, "no test gets below its curve", class_="soft"),
        *_key(names, bottom + 24),
    ]
    return (
        tag(
            "svg",
            *parts,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            width=_WIDTH,
            height=_HEIGHT,
            role="img",
            aria_labelledby="title desc",
        )
        + "\n"
    )


def _beliefs(guarantee: Guarantee, *, pure: bool) -> tuple[list[Point], list[Point]]:
    bounds = [belief_bounds(guarantee, prior, rarity=None if pure else _RARITY) for prior in _PRIORS]
    low = [(prior, bound[0]) for prior, bound in zip(_PRIORS, bounds, strict=True)]
    high = [(prior, bound[1]) for prior, bound in zip(_PRIORS, bounds, strict=True)]
    return low, high


def _misses(guarantee: Guarantee) -> list[Point]:
    if guarantee.kind == "rho":
        powers = concentrated_powers(float(guarantee.total.rho or 0), np.array(_RATES[1:-1]))
        return [(0.0, 1.0), *zip(_RATES[1:-1], (1 - powers).tolist(), strict=True), (1.0, 0.0)]
    # Where the two straight lines of an epsilon meet.
    corner = 1 - pure_bounds(float(guarantee.total.epsilon or 0), 0.5)[1]
    rates = sorted({*_RATES, (1 - float(guarantee.failure)) * corner})
    return [(rate, least_missed(guarantee, rate)) for rate in rates]


def _tell(told: Explanation) -> str:
    """The picture for those who do not see it."""
    sentences = []
    for finding in told.findings:
        times = finding.guarantee.times
        after = "After one query" if times == 1 else f"After {times:,} queries"
        low, high = finding.belief or (finding.evidence[0].low, finding.evidence[0].high)
        condition = "" if finding.belief else ", on evidence that comes up for 1 in 20 otherwise,"
        test = next(each for each in finding.tests if each.false_alarm == _RARITY)
        sentences.append(
            f"{after} a belief of {float(told.prior):.3g}{condition} becomes at least {at_least(low)} and at "
            f"most {at_most(high)}; a test with 5 % false alarms misses at least {at_least(test.missed)}."
        )
    return " ".join(sentences)


def _frame(left: int, x: str, y: str, *, rising: bool) -> list[Html]:
    """The axes of one panel from 0 to 100 %, with the line on which nothing is learned."""
    parts = []
    for tick in (0, 25, 50, 75, 100):
        across, down = left + tick / 100 * _SIDE, _TOP + (1 - tick / 100) * _SIDE
        parts += [
            tag("line", x1=left, y1=down, x2=left + _SIDE, y2=down, class_="axis"),
            tag("line", x1=across, y1=_TOP, x2=across, y2=_TOP + _SIDE, class_="axis"),
            _text(left - 7, down + 4, f"{tick} %", at="end", class_="tick"),
            _text(across, _TOP + _SIDE + 17, f"{tick} %", at="middle", class_="tick"),
        ]
    ends: list[Point] = [(0, 0), (1, 1)] if rising else [(0, 1), (1, 0)]
    parts.append(tag("path", d=_path(ends, left), class_="dash"))
    parts.append(_text(left + _SIDE / 2, _TOP + _SIDE + 36, x, at="middle"))
    turn = f"translate({left - 50} {_TOP + _SIDE / 2:g}) rotate(-90)"
    parts.append(tag("g", _text(0, 0, y, at="middle"), transform=turn))
    return parts


def _key(names: Sequence[str], y: float) -> list[Html]:
    parts, x = [], float(_LEFT)
    for turn, name in enumerate(names):
        parts.append(tag("line", x1=x, y1=y - 4, x2=x + 26, y2=y - 4, class_=f"curve c{turn}"))
        parts.append(_text(x + 34, y, name))
        x += 60 + 7.2 * len(name)
    parts.append(tag("line", x1=x, y1=y - 4, x2=x + 26, y2=y - 4, class_="dash"))
    parts.append(_text(x + 34, y, "nothing learned"))
    return parts


def _path(points: Sequence[Point], left: int) -> str:
    return "M" + "L".join(f"{left + x * _SIDE:.1f} {_TOP + (1 - y) * _SIDE:.1f}" for x, y in points)


def _text(x: float, y: float, words: str, *, at: str = "start", class_: str | None = None) -> Html:
    return tag("text", words, x=x, y=y, text_anchor=None if at == "start" else at, class_=class_)


def _style() -> str:
    return (
        f":root{{{colour_rules('light')}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{colour_rules('dark')}}}}}"
        "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--ink)}"
        ".head{font-size:18px;font-weight:600}.soft{fill:var(--soft)}.tick{font-size:11px;fill:var(--soft)}"
        ".paper{fill:var(--paper)}.axis{stroke:var(--line);stroke-width:1}"
        ".dash{stroke:var(--soft);fill:none;stroke-width:1.4;stroke-dasharray:4 4}"
        ".curve{fill:none;stroke-width:2.4;stroke-linejoin:round}.curve.c0{stroke:var(--blue)}"
        ".curve.c1{stroke:var(--gold);stroke-dasharray:9 3}"
        ".band{opacity:.28}.band.c0{fill:var(--blue)}.band.c1{fill:var(--gold)}"
    )
