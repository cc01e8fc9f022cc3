"""How to use noisy numbers, with numbers of this release."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.report.estimates import matches
from sfumato.report.html import Html, join, tag
from sfumato.report.numbers import percent, short, spread, whole
from sfumato.report.sections.parts import code, plural

if TYPE_CHECKING:
    from sfumato.report.facts import Facts
    from sfumato.report.measured import Measured
    from sfumato.report.story import Story


def tell_usage(story: Story) -> Html:
    """Advice on intervals, sums, zeros, clipping and models, as far as it concerns this release."""
    facts = story.facts
    plain = [each for each in facts.measured if each.is_plain and matches(each, facts.best)]
    fullest = max(plain, key=lambda each: each.cells, default=None)
    told: list[tuple[str, Html] | None] = [_tell_interval(facts)]
    if facts.weight is not None:
        told += [_tell_clipping(facts, fullest) if fullest else None, _tell_zeros(facts)]
    told.append(_tell_sums(facts, fullest) if fullest else None)
    if facts.weight is None:
        told += [_tell_rows(facts), _tell_unmeasured(facts)]
    told.append(_tell_file(facts))
    items = [
        join(tag("h3", name), tag("p", text)) for part in told if part is not None for name, text in [part]
    ]
    return join(*items)


def _tell_interval(facts: Facts) -> tuple[str, Html] | None:
    noisy = [
        each
        for each in facts.measured
        if each.about != "choice" and matches(each, facts.best) and each.answers
    ]
    if not noisy:
        return None
    best, worst = min(noisy, key=lambda each: each.half), max(noisy, key=lambda each: each.half)
    at = f" (at epsilon {facts.best})" if facts.best else ""
    if best.half == worst.half:
        told = join(
            f"One noisy value of this release{at} is within {spread(best.half)} of the bounded exact one "
            "in 95 % of cases"
        )
    else:
        told = join(
            f"Noisy values of this release{at} are within {spread(best.half)} (",
            code(best.name),
            f") to {spread(worst.half)} (",
            code(worst.name),
            ") of the bounded exact ones in 95 % of cases",
        )
    return "Give the interval with the number", join(
        told,
        f", so a difference of less than about {short(best.half * math.sqrt(2))} between two of them means "
        "little.",
    )


def _tell_clipping(facts: Facts, measured: Measured) -> tuple[str, Html]:
    below = float((measured.values < 0).mean())
    noisy = float(measured.values.sum())
    half = 1.959964 * measured.deviation * math.sqrt(measured.answers)
    return "Do not add up clipped counts", join(
        f"{percent(below)} of the noisy counts are below zero; in the table none is. Post-processing like "
        "that "
        "moves sums: the released counts add up to ",
        tag("b", whole(facts.size)),
        ", the measurements to ",
        tag("b", f"{whole(noisy)} ± {short(half)}"),
        ". Sums belong to ",
        code("measurements.parquet"),
        ", where negative values are kept and cancel out.",
    )


def _tell_zeros(facts: Facts) -> tuple[str, Html]:
    counts = facts.table[facts.weight].cast(pa.float64()).to_numpy()
    zeros = float((counts == 0).mean()) if counts.size else 0.0
    threshold = float(Fraction(str(facts.recipe.get("threshold") or 0)))
    halves = [
        max(each.half, threshold * each.deviation)
        for each in facts.measured
        if each.about in ("cells", "held", "individuals") and matches(each, facts.best)
    ]
    size = f" of up to about {short(max(halves))}" if halves else ""
    return "A zero is not an absence", join(
        f"{percent(zeros)} of the released counts are 0. A zero does not say that nobody was there: noise "
        "hides "
        f"counts{size}. And a small count does not say that somebody was."
    )


def _tell_sums(facts: Facts, measured: Measured) -> tuple[str, Html]:
    steps = []
    seen = set()
    for name in measured.columns:
        field = facts.field(name)
        if field is not None and field.size not in seen and 1 < field.size < measured.cells:
            seen.add(field.size)
            half = 1.959964 * measured.deviation * math.sqrt(field.size)
            steps.append(f"of {field.size:,} cells (all of {name}) to {spread(half)}")
    half = 1.959964 * measured.deviation * math.sqrt(measured.answers)
    steps.append(f"of all {measured.answers:,} to {spread(half)}")
    relative = half / max(abs(float(np.sum(measured.values))), 1.0)
    return "Sums add up the noise", join(
        "The noise of a sum of k values grows with the square root of k. In ",
        code(measured.name),
        f" one value has {spread(measured.half)}; a sum {', '.join(steps)}, which is "
        f"{percent(min(relative, 1.0))} of that sum. Noise grows more slowly than "
        "the sum does, so coarse questions get better answers.",
    )


def _tell_rows(facts: Facts) -> tuple[str, Html]:
    many = " of each epsilon" if facts.best else ""
    asked = (
        join(
            "Ask the model instead, at no cost: ",
            code(f'sfumato sql --model {facts.name} "SELECT ..."', 90),
            " answers without the rounding of rows, with intervals where the marginal was measured.",
        )
        if "model.parquet" in facts.files
        else join("Take intervals from ", code("measurements.parquet"), ", not from the number of rows.")
    )
    return "Rows are drawings, not observations", join(
        f"The number of rows{many}, {whole(facts.size)} here, is itself an estimate or was stated. Do not "
        "compute standard errors as if the rows were a sample of people: the noise of the measurements is "
        "what limits them. Rare combinations of many columns are guesses. ",
        asked,
    )


def _tell_unmeasured(facts: Facts) -> tuple[str, Html] | None:
    names = [field.name for field in facts.shown]
    measured = [
        set(each.columns) for each in facts.measured if each.about != "choice" and matches(each, facts.best)
    ]
    pairs = [(a, b) for at, a in enumerate(names[:200]) for b in names[at + 1 : 200]]
    if not pairs or not measured:
        return None
    held = sum(any({a, b} <= each for each in measured) for a, b in pairs) if len(pairs) <= 4000 else 0
    if not held or held == len(pairs):
        return None
    return "What was not measured is assumed", join(
        f"{plural(held, 'pair')} of columns out of {len(pairs):,} were measured together. All others are "
        "related in the rows only through "
        "columns that they share; a relation that goes another way is lost, and nothing in the release "
        "tells so."
    )


def _tell_file(facts: Facts) -> tuple[str, Html]:
    del facts
    return "For estimates, use the measurements", join(
        code("measurements.parquet"),
        " holds the noisy values as they were drawn, unbiased, with the scale of their noise. Weighted "
        "sums of them, with intervals from "
        "the scale, are sound statistics. Whatever is computed from the release costs no privacy.",
    )
