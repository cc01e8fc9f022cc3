"""How exact the release is, from public facts: the noise of every measurement is stated."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from sfumato.report.charts import Point, draw_intervals, draw_spread
from sfumato.report.estimates import matches
from sfumato.report.html import Html, join, paragraph, tag
from sfumato.report.numbers import percent, short, spread, whole
from sfumato.report.sections.parts import code, figure, name_columns, plural, scroll_table

if TYPE_CHECKING:
    from sfumato.report.facts import Facts
    from sfumato.report.measured import Measured
    from sfumato.report.story import Story

_FEW = 12
_MOST = 120
_LARGEST = 10


def tell_accuracy(story: Story) -> Html:
    """The noise of all measurements, the largest cells with their intervals, and signal against noise."""
    facts = story.facts
    measured = [each for each in facts.measured if each.about != "choice" and each.answers]
    if not measured:
        return paragraph("The release lists no measurement with noisy values.")
    chosen = _choose(story, measured)
    return join(
        paragraph(
            "The noise was drawn from a stated law, so its size is known without looking at the records. "
            "An interval of 95 % holds the "
            "bounded exact count with that probability, for a cell chosen beforehand."
        ),
        _tell_table(measured),
        tag("div", _draw_largest(facts, chosen, measured), _draw_noise(chosen), class_="pair"),
        _tell_limits(facts, measured),
    )


def label_cell(facts: Facts, measured: Measured, cell: int) -> str:
    """What the cell of a measurement stands for: the label of every column, in their order."""
    labels = []
    for name in reversed(measured.columns):
        field = facts.field(name)
        if field is None:
            return f"cell {cell}"
        cell, code_ = divmod(cell, field.size)
        labels.append(field.labels[code_])
    return " · ".join(reversed(labels))


def _choose(story: Story, measured: list[Measured]) -> Measured:
    """The measurement to draw: cells at the best epsilon, of the places if they were measured alone."""
    mine = [each for each in measured if matches(each, story.facts.best)] or measured
    plain = [each for each in mine if each.is_plain] or mine
    place = story.axes.place
    if place is not None:
        alone = [each for each in plain if each.columns == (place.name,)]
        if alone:
            return min(alone, key=lambda each: each.deviation)
    return max(plain, key=lambda each: (-len(each.columns), each.cells))


def _tell_table(measured: list[Measured]) -> Html:
    if len(measured) <= _FEW:
        return _list(measured)
    groups = []
    ranked = sorted(measured, key=_group)
    for (epsilon, _, about, _), held in groupby(ranked, key=_group):
        members = list(held)
        answers = sum(each.answers for each in members)
        near = sum(each.near_zero * each.answers for each in members) / max(answers, 1)
        size = len(members[0].columns)
        what = "single columns" if size == 1 else f"combinations of {size} columns"
        what += f", epsilon {epsilon}" if epsilon else ""
        groups.append(
            (
                what,
                len(members),
                about,
                whole(answers),
                short(members[0].deviation),
                spread(members[0].half),
                percent(near),
            )
        )
    top = scroll_table(
        ("measurements", "number", "answers are", "answers", "std. dev.", "95 %", "noise alone"),
        groups[:_MOST],
        numbers=(1, 3, 4, 5, 6),
        label="measurements by kind",
    )
    listed = tag(
        "details",
        tag("summary", f"All measurements{f', the first {_MOST}' if len(measured) > _MOST else ''}"),
        _list(measured[:_MOST]),
    )
    return join(top, listed)


def _group(each: Measured) -> tuple[str, int, str, float]:
    """What is told in one line; the exact deviation keeps different epsilons apart, too."""
    return each.epsilon or "", len(each.columns), each.about, each.deviation


def _list(measured: list[Measured]) -> Html:
    rows = [
        (
            each.name,
            name_columns(each.columns),
            each.about,
            whole(each.answers),
            each.noise,
            short(each.deviation),
            spread(each.half),
            percent(each.near_zero),
        )
        for each in measured
    ]
    return scroll_table(
        ("measurement", "columns", "answers are", "answers", "noise", "std. dev.", "95 %", "noise alone"),
        rows,
        numbers=(3, 5, 6, 7),
        label="measurements",
    )


def _draw_largest(facts: Facts, chosen: Measured, measured: list[Measured]) -> Html | None:
    if chosen.about not in ("cells", "large cells"):
        return None
    series = _same_cells(chosen, measured)
    order = np.argsort(-chosen.values, kind="stable")[:_LARGEST]
    points = []
    for place in order.tolist():
        cell = int(chosen.places[place])
        label = label_cell(facts, chosen, cell)
        values = tuple(float(each.values[place]) for each in series)
        points.append(Point(label=label, values=values, halves=tuple(each.half for each in series)))
    columns = name_columns(chosen.columns)
    of = "" if columns == chosen.name else f" ({columns})"
    names = [f"epsilon {each.epsilon}" for each in series] if len(series) > 1 else []
    drawing = draw_intervals(points, "the largest noisy values with their 95 % intervals", series=names)
    return figure(
        drawing,
        f"The {len(points)} largest noisy values of ",
        code(chosen.name),
        f"{of}, in records, with 95 % intervals. The largest of many tend to "
        "have noise in their favour, so "
        "read them with care.",
    )


def _same_cells(chosen: Measured, measured: list[Measured]) -> list[Measured]:
    """The measurements of the same cells at other epsilons, the chosen one first, three at most."""
    series = [chosen]
    if chosen.is_plain:
        for each in sorted(measured, key=lambda each: each.deviation):
            known = {one.epsilon for one in series}
            if each.columns == chosen.columns and each.is_plain and each.epsilon not in known:
                series.append(each)
    return series[:3]


def _draw_noise(chosen: Measured) -> Html:
    return figure(
        draw_spread(chosen.values, chosen.half, "noisy values and the range of the noise"),
        f"All {whole(chosen.answers)} noisy values of ",
        code(chosen.name),
        f": {percent(chosen.near_zero)} lie within {spread(chosen.half)}, the shaded range, where noise "
        "alone explains "
        "them. Heights are square roots of numbers, so that few cells are seen, too; the outermost "
        "columns hold all that is beyond.",
    )


def _tell_limits(facts: Facts, measured: list[Measured]) -> Html | None:
    parts = []
    if any(each.about == "sums" for each in measured):
        parts.append("Answers that are sums join several cells, so that small ones are learnt together.")
    if any(each.about == "large cells" for each in measured):
        parts.append(
            "Of some measurements only cells above a threshold are listed; all others were measured and "
            "fell below."
        )
    if any(each.about == "individuals" for each in measured):
        parts.append("Where individuals are counted, read individuals for records.")
    if "model.parquet" in facts.files:
        parts.append(
            "Rows follow a model that joins all measurements, so they are mostly closer than a single "
            "answer; what was not measured "
            "may be farther off, and no interval covers that."
        )
    held = [each for each in measured if each.about == "held"]
    if held:
        told = facts.certificate.get("postprocessing", {}).get("bounds") or [{}]
        parts.append(
            "How many records of one individual count was chosen privately: "
            f"{told[-1].get('records', '?')} of {facts.unit.get('max_records')}. The released counts are the "
            "noisy ones times "
            f"{told[-1].get('scaled_by', '1')}, and so is their noise; intervals do not cover what the "
            "bound leaves out."
        )
    elif facts.unit.get("max_records", 1) != 1:
        parts.append(
            f"Records beyond {facts.unit.get('max_records')} of one individual are not fully counted; "
            "intervals do not cover what that leaves out."
        )
    choices = sum(each.about == "choice" for each in facts.measured)
    if choices:
        parts.append(
            f"{plural(choices, 'choice').capitalize()} among candidates "
            f"{'was' if choices == 1 else 'were'} private as well and {'has' if choices == 1 else 'have'} "
            "no interval."
        )
    return paragraph(" ".join(parts), class_="note") if parts else None
