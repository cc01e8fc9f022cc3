"""Place and time: a grid of tiles in code order, and the same for every point in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.report.charts import draw_columns
from sfumato.report.estimates import Estimate, estimate_counts
from sfumato.report.html import Html, clip_text, join, paragraph, tag
from sfumato.report.numbers import short, spread, whole
from sfumato.report.palette import round_limit
from sfumato.report.sections.parts import code, figure, plural
from sfumato.report.tiles import draw_heat, draw_multiples, draw_scale, draw_tiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.report.axes import Axes
    from sfumato.report.fields import Field
    from sfumato.report.story import Story

_MOST_PANELS = 36
_MOST_KEYS = 120
_MOST_CELLS = 2**22
_MOST_TILES = 2**16


def tell_places(story: Story) -> Html | None:
    """The tiles of the places, small multiples over time, and both against the truth if it was given."""
    axes = story.axes
    if axes.place is None or axes.place.size < 2:
        return None if axes.time is None else _tell_time(story, axes.time)
    place = axes.place
    alone = estimate_counts(story.facts, (place,))
    true_places = None
    if story.true_map is not None:
        true_places = story.true_map if axes.time is None else story.true_map.sum(axis=1)
    parts = [
        _introduce(axes, alone),
        _draw_places(place, alone.values, true_places, plain=story.terse),
        None if story.terse else _list_key(place),
    ]
    if axes.time is not None and axes.time is not place and place.size * axes.time.size <= _MOST_CELLS:
        both = estimate_counts(story.facts, (place, axes.time))
        parts.append(_draw_over_time(place, axes.time, both, story.true_map))
    return join(*parts)


def _introduce(axes: Axes, estimate: Estimate) -> Html:
    place = axes.place
    assert place is not None
    chosen = (
        None
        if axes.given
        else join(
            " It was taken because of its name or its size; ",
            code("--place"),
            " and ",
            code("--time"),
            " choose others.",
        )
    )
    noise = (
        f" The noise of one tile is within {spread(estimate.half)} in 95 % of cases."
        if estimate.half is not None
        else ""
    )
    source = (
        "noisy counts before negative ones were set to zero"
        if estimate.source == "measurements"
        else "the released table"
    )
    return paragraph(
        "Every tile is a value of ",
        code(place.name),
        f", in the order of its {plural(place.size, 'code')} and not by geography. Colours are sums of "
        f"{source}.{noise}",
        chosen,
    )


def _draw_places(
    place: Field, values: NDArray[np.float64], truth: NDArray[np.float64] | None, *, plain: bool
) -> Html:
    limit = _limit(values, truth)
    shown = [("Release", values, False)]
    if truth is not None:
        shown += [("Truth", truth, False), ("Release less truth", values - truth, True)]
    figures = []
    for name, counts, middle in shown:
        top = _limit(np.abs(counts)) if middle else limit
        told = f"{name.lower()} by {place.name}"
        drawing = draw_tiles(counts, place.labels, told, limit=top, middle=middle, plain=plain)
        caption = tag(
            "figcaption",
            name if truth is not None else "All records",
            style="margin:0 0 .35rem;color:var(--ink)",
        )
        figures.append(tag("figure", caption, drawing, draw_scale(top, middle=middle), class_="chart"))
    return tag("div", *figures, class_="pair") if truth is not None else join(*figures)


def _list_key(place: Field) -> Html | None:
    if all(len(label) <= 3 for label in place.labels):
        return None
    if place.size > _MOST_KEYS:
        return paragraph(
            f"Tiles are numbered in the order of the codes; the dictionary lists the {place.size:,} names.",
            class_="note",
        )
    items = [
        tag("li", tag("b", str(turn)), " ", clip_text(label, 40))
        for turn, label in enumerate(place.labels, start=1)
    ]
    return tag("ol", *items, class_="key")


def _draw_over_time(place: Field, time: Field, estimate: Estimate, truth: NDArray[np.float64] | None) -> Html:
    values = estimate.values
    limit = _limit(values, truth)
    rows = [("Release", values, False)]
    if truth is not None:
        rows += [("Truth", truth, False), ("Release less truth", values - truth, True)]
    parts: list[Html | None] = [
        tag("h3", f"Over time: {clip_text(time.name, 40)}"),
        figure(
            draw_columns(values.sum(axis=0), time.labels, f"released records by {time.name}"),
            "All places together.",
        ),
    ]
    noise = (
        f" The noise of one tile here is within {spread(estimate.half)} in 95 % of cases."
        if estimate.half is not None
        else ""
    )
    panels = time.size <= _MOST_PANELS and values.size <= _MOST_TILES
    if panels:
        told = f"Each small grid is the one above at one {clip_text(time.name, 40)}; all share one scale."
    else:
        told = (
            f"Every row is one of {whole(place.size)} places, every column one of {whole(time.size)} "
            "points in time."
        )
    parts.append(paragraph(told + noise))
    for name, counts, middle in rows:
        top = _limit(np.abs(counts)) if middle else limit
        parts.append(tag("p", tag("b", name)) if truth is not None else None)
        told = f"{name.lower()} by {place.name}"
        if panels:
            parts.append(draw_multiples(counts, time.labels, told, limit=top, middle=middle))
        else:
            drawing = draw_heat(counts, f"{told} and {time.name}", limit=top, middle=middle)
            parts.append(figure(drawing, class_="tiles"))
        parts.append(draw_scale(top, middle=middle))
    return join(*parts)


def _tell_time(story: Story, time: Field) -> Html:
    counts = estimate_counts(story.facts, (time,))
    largest = short(float(counts.values.max()))
    return join(
        paragraph(
            "The release has a column of time, ", code(time.name), ", and none that looks like a place."
        ),
        figure(
            draw_columns(counts.values, time.labels, f"released records by {time.name}"),
            f"The largest is {largest}.",
        ),
    )


def _limit(*arrays: NDArray[np.float64] | None) -> float:
    """A round number that all but the very largest values stay below."""
    held = [np.quantile(each, 0.97, method="higher") for each in arrays if each is not None and each.size]
    return round_limit(float(max(held, default=1.0)))
