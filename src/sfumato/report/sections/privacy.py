"""The privacy statement: whom it is about, what was spent, and what an attacker can learn at most."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.report.charts import Curve, draw_curves
from sfumato.report.html import Html, clip_text, join, paragraph, tag
from sfumato.report.numbers import RHO, amount, exponent, percent
from sfumato.report.posterior import RARITIES, Total, posterior_bounds
from sfumato.report.sections.parts import code, fact_sheet, figure, listed

if TYPE_CHECKING:
    from sfumato.report.facts import Facts
    from sfumato.report.story import Story

_PRIORS = [step / 100 for step in (0.5, *range(1, 100), 99.5)]
_LARGE, _HUGE = 1, 10


def tell_privacy(story: Story) -> Html:
    """The guarantee with its parameters, and the posterior against the prior."""
    facts = story.facts
    return join(
        paragraph(_tell_unit(facts), class_="lead"),
        fact_sheet(_list_parameters(facts)),
        _warn(facts.total),
        _warn_of_drafts(facts),
        tag("h3", "What an attacker can learn at most"),
        tag("div", _draw(facts), _tell_posterior(facts), class_="pair"),
        _tell_several(facts),
    )


def describe_total(facts: Facts) -> str:
    """The total in a few words: pure epsilon, or epsilon at a delta."""
    total = facts.total
    if total.epsilon is not None:
        return f"ε = {amount(total.epsilon)}"
    stated = next(iter(sorted(total.at_delta, key=lambda key: _same(key, facts.delta))), None)
    if stated is None:
        return "unknown"
    return f"ε = {amount(total.at_delta[stated])} at δ = {_tell_delta(stated)}"


def _same(key: str, delta: str) -> bool:
    """False, which sorts first, for the delta that the plan states."""
    try:
        return abs(float(key) - float(delta)) > 1e-9 * float(delta)
    except ValueError:
        return True


def _tell_delta(text: str) -> str:
    try:
        return exponent(float(text))
    except ValueError:
        return clip_text(text, 20)


def _tell_unit(facts: Facts) -> Html:
    unit = facts.unit
    column, most = str(unit.get("column", "row")), unit.get("max_records", 1)
    if column == "row":
        return join(
            "Protected is one row of the table ", code(facts.source), ", each an individual of its own."
        )
    counts = "one record counts" if most == 1 else f"{most} records count"
    return join(
        "Protected is one individual: all records of ",
        code(facts.source),
        " that share a value of ",
        code(column),
        f", of which at most {counts}.",
    )


def _list_parameters(facts: Facts) -> list[tuple[str, object]]:
    unit, total = facts.unit, facts.total
    neighbours = {
        "add-remove": "one is the other with all records of one individual added or removed",
        "replace": "one is the other with all records of one individual exchanged for others",
    }.get(str(unit.get("neighbours")), str(unit.get("neighbours")))
    bounding = {
        "truncate": "records of one individual beyond the bound are not counted",
        "weight": "all records of one individual count, with weights that add up to the bound at most",
    }.get(str(unit.get("bounding")), str(unit.get("bounding")))
    kinds = sorted({each.noise for each in facts.measured})
    names = {
        "laplace": "discrete Laplace noise",
        "gaussian": "discrete Gaussian noise",
        "exponential": "exponential mechanism",
    }
    readings = [
        join("ε = ", amount(epsilon), " at δ = ", _tell_delta(delta))
        for delta, epsilon in total.at_delta.items()
    ]
    pure = (
        join("ε = ", tag("b", amount(total.epsilon)), " and δ = 0: pure differential privacy")
        if total.is_pure
        else None
    )
    return [
        ("neighbours", f"Two tables are neighbours if {neighbours}."),
        ("bounding", None if unit.get("column") == "row" else f"Enforced while counting: {bounding}."),
        ("mechanisms", ", ".join(names.get(kind, kind) for kind in kinds) or None),
        ("total", pure if pure is not None else join(*readings, between="; ")),
        ("native total", _native(total)),
    ]


def _native(total: Total) -> Html | None:
    parts = []
    if total.rho is not None:
        parts.append(join(f"{RHO} = ", amount(total.rho), " of zero-concentrated privacy"))
    if total.mu_squared is not None:
        parts.append(join("μ = ", amount(_root(total.mu_squared)), " of Gaussian privacy"))
    return join(*parts, between="; ") if parts else None


def _root(square: Fraction) -> float:
    return math.sqrt(square) * (1 + 1e-12)


def _warn(total: Total) -> Html | None:
    readings = [float(each) for each in total.at_delta.values() if _is_number(each)]
    epsilon = float(total.epsilon) if total.epsilon is not None else min(readings, default=0.0)
    if epsilon > _HUGE:
        told = (
            "An epsilon above 10 promises little by itself: in the worst case an attacker may become nearly "
            "certain. The noise may still hide individuals from weaker attackers, but that is no guarantee."
        )
        return paragraph(told, class_="warn strong")
    if epsilon > _LARGE:
        told = "An epsilon above 1 is a moderate promise. Read the curve below before you rely on it."
        return paragraph(told, class_="warn")
    return None


def _warn_of_drafts(facts: Facts) -> Html | None:
    drafted = [field.name for field in facts.fields if field.drafted]
    if not drafted:
        return None
    return paragraph(
        "The guarantee does not cover which values are listed for ",
        listed(drafted),
        ": they were read off the records.",
        class_="warn",
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _draw(facts: Facts) -> Html:
    total = facts.total
    if total.is_pure:
        curves = [_curve(total, None)]
        for epsilon in facts.epsilons if len(facts.epsilons) > 1 else ():
            if _is_number(epsilon):
                part = Total(epsilon=Fraction(epsilon), rho=None, mu_squared=None, at_delta={})
                curves.append(_curve(part, None, class_="thin"))
        caption = (
            "Belief before and after the release. Whatever the output, the belief stays within the shaded "
            "band; on the "
            "dashed line nothing is learnt."
        )
        if len(curves) > 1:
            caption += " Thin lines: what each epsilon of the release would allow by itself."
    else:
        curves = [
            _curve(total, RARITIES[1]),
            *(_curve(total, each, class_="thin") for each in (RARITIES[0], RARITIES[2])),
        ]
        caption = (
            "Belief before and after the release, from the trade-off curve of all measurements together. "
            "Band: evidence "
            "that comes up 1 time in 1,000 without the individual; thin lines: 1 time in 20 (inner) and 1 "
            "in 1,000,000 "
            "(outer). On the dashed line nothing is learnt."
        )
    drawing = draw_curves(
        curves, "posterior belief against prior belief", x="belief before", y="belief after"
    )
    return figure(drawing, caption)


def _curve(total: Total, rarity: Fraction | None, class_: str = "curve") -> Curve:
    bounds = [(prior, *posterior_bounds(total, prior, rarity=rarity)) for prior in _PRIORS]
    high = [(0.0, 0.0), *((prior, each) for prior, _, each in bounds), (1.0, 1.0)]
    low = [(0.0, 0.0), *((prior, each) for prior, each, _ in bounds), (1.0, 1.0)]
    return Curve(high=high, low=low, class_=class_)


def _tell_posterior(facts: Facts) -> Html:
    total = facts.total
    replaced = facts.unit.get("neighbours") == "replace"
    claim = (
        "the individual's records are these and not those" if replaced else "the individual is in the table"
    )
    lines = []
    rarity = None if total.is_pure else RARITIES[1]
    for prior in (0.5, 0.1):
        low, high = posterior_bounds(total, prior, rarity=rarity)
        lines.append(
            tag(
                "li",
                f"Who believed with {percent(prior)} that {claim} believes it afterwards with at least ",
                tag("b", percent(low)),
                " and at most ",
                tag("b", percent(high)),
                "." if total.is_pure else ", on evidence that has a chance of 1 in 1,000 if it is otherwise.",
            )
        )
    how = (
        "This holds for every output, and for an attacker who knows everything about everybody else."
        if total.is_pure
        else "It holds for an attacker who knows everything about everybody else. This kind of privacy "
        "bounds no single output: rarer evidence tells more, and is rarer. With delta, in one line: "
        f"{describe_total(facts)}."
    )
    twice = (
        None
        if replaced
        else paragraph(
            "The curve is about being in the table. To tell two versions of one individual's records "
            f"apart takes a removal and an addition: {_tell_two_steps(total)}.",
            class_="note",
        )
    )
    return tag("div", tag("ul", *lines), paragraph(how), twice)


def _tell_two_steps(total: Total) -> str:
    if total.is_pure:
        return "at most twice that epsilon"
    return "at most twice that μ" if total.mu_squared is not None else f"at most four times that {RHO}"


def _tell_several(facts: Facts) -> Html | None:
    if len(facts.epsilons) < 2:
        return None
    return paragraph(
        "The release holds answers at the epsilons ",
        listed(facts.epsilons),
        ". They are about the same people and can be combined by anybody, so the total counts: ",
        tag("b", describe_total(facts)),
        ".",
    )
