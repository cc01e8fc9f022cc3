"""Small charts as inline SVG, drawn for the width of a phone and coloured by the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.report.pages.svg import (
    EMPTY,
    STEPS,
    Position,
    draw_box,
    draw_frame,
    draw_image,
    draw_levels,
    draw_line,
    draw_picture,
    draw_uprights,
    element,
    round_limit,
    scale_between,
    step_of,
    trace,
    write,
)
from sfumato.report.pages.words import clip_text, percent, short, signed, whole

_WIDTH = 340  # units; a phone shows it without scrolling
_TICK = 40  # between the numbers of an axis
MOST_COLUMNS = 170
"""Of how many values the columns can still be told apart."""

_SERIES_WIDTH = 172
_MOST_DOTS = 40  # with more, dots cover the line
_MOST_POINTS = 4000  # drawn of a scatter; an even choice of more looks the same
_MOST_TITLES = 40
_MOST_SHAPES = 6000  # beyond these a picture of pixels is smaller than one of shapes
_MOST_LABELLED = 300
_MOST_NAMED = 30
_MOST_PIXELS = 2**16  # beyond these, neighbours are folded into one


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The band between `low` and `high`, with both of its ends as lines."""

    high: Sequence[Position]
    low: Sequence[Position]
    class_: str = "curve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A labelled value with half the width of its interval, once for every series."""

    label: str
    values: tuple[float, ...]
    halves: tuple[float, ...]


def draw_columns(
    values: NDArray[np.float64],
    labels: Sequence[str],
    label: str,
    *,
    width: float = _WIDTH,
    edges: Sequence[float] = (),
    truth: NDArray[np.float64] | None = None,
) -> Markup:
    """Returns a histogram: one column per value in their order, with the first and the last label below.

    Columns of values below zero hang from the axis, in grey. With the `edges` of bins, columns are as wide
    as their bins and as high as records per unit, so that areas stand for counts. `truth` draws a line
    across every column.
    """
    uneven = len(edges) == values.size + 1 > 1 and has_uneven_bins(edges, width=width)
    spans = np.diff(np.asarray(edges, np.float64)) if uneven else np.ones(values.size)
    rates = values / spans if uneven else values
    lines = None if truth is None else truth / spans if uneven else truth
    both = rates if lines is None else np.concatenate([rates, lines])
    high, low = max(float(both.max(initial=0)), 1e-9), min(float(both.min(initial=0)), 0.0)
    base = 14 + 70 * high / (high - low)
    starts = np.concatenate([[0.0], np.cumsum(spans)]) * (width / max(float(spans.sum()), 1e-9))
    drawn = _draw_bars(rates, starts, base, 70 / (high - low), _titles(labels, values, truth))
    marks = []
    for turn, line in enumerate(() if lines is None else lines.tolist()):
        y = base - line * 70 / (high - low)
        marks.append(draw_line(float(starts[turn]), y, float(starts[turn + 1]), y, class_="level"))
    unit = " per unit" if uneven else ""
    top = write(0, 9, f"largest {short(high)}{unit}", class_="q") if high > 1e-9 else None
    below = _label_ends(labels, width / values.size, 101) if values.size else []
    axis = draw_line(0, base, width, base)
    return draw_picture(width, 106, label, top, *drawn, axis, *marks, *below)


def has_uneven_bins(edges: Sequence[float], *, width: float = math.inf) -> bool:
    """Returns whether bins differ in width, and the narrowest would still be seen in a picture of that width.

    >>> has_uneven_bins([0, 1, 2]), has_uneven_bins([0, 1, 5]), has_uneven_bins([0, 1, 5000], width=300)
    (False, True, False)
    """
    spans = np.diff(np.asarray(edges, np.float64))
    return bool(spans.max() > spans.min() * (1 + 1e-9) and spans.min() * width >= spans.sum())


def _titles(
    labels: Sequence[str], values: NDArray[np.float64], truth: NDArray[np.float64] | None
) -> list[str]:
    if values.size > _MOST_TITLES:
        return []
    real = [""] * values.size if truth is None else [f", truth {whole(each)}" for each in truth.tolist()]
    named = zip(labels, values.tolist(), real, strict=True)
    return [f"{clip_text(name, 50)}: {whole(value)}{more}" for name, value, more in named]


def _draw_bars(
    heights: NDArray[np.float64], starts: NDArray[np.float64], base: float, scale: float, titles: list[str]
) -> list[Markup]:
    """Returns columns from the axis at `base` up or down, with their `titles`; without these as two paths."""
    shapes = []
    for turn, value in enumerate(heights.tolist()):
        room = float(starts[turn + 1] - starts[turn])
        gap = min(1.5, room * 0.14)
        tall = max(abs(value) * scale, 0.6)
        top = base if value < 0 else base - tall
        shapes.append((float(starts[turn]) + gap / 2, top, max(room - gap, 0.3), tall, value < 0))
    if titles:
        return [
            draw_box(x, y, w, h, title, class_="column n" if below else "column")
            for title, (x, y, w, h, below) in zip(titles, shapes, strict=True)
        ]
    parts = []
    for sunk, style in ((False, "column"), (True, "column n")):
        mine = [shape for *shape, below in shapes if below is sunk]
        if mine:
            drawn = "".join(f"M{x:.1f} {y:.1f}v{h:.1f}h{w:.1f}v-{h:.1f}z" for x, y, w, h in mine)
            parts.append(element("path", d=drawn, class_=style))
    return parts


def _label_ends(labels: Sequence[str], step: float, y: float) -> list[Markup]:
    """Returns the first, the middle and the last label, as far as they fit beside each other."""
    last, half = len(labels) - 1, len(labels) // 2
    width = step * len(labels)
    room = int(width / 2 / 6.6)  # a sign of this size is about 6.6 wide
    ends = [clip_text(labels[0], room), clip_text(labels[last], room)]
    texts = [write(0, y, ends[0])]
    if last:
        texts.append(write(width, y, ends[1], at="end"))
    middle, center = clip_text(labels[half], room), (half + 0.5) * step
    reach = 3.3 * len(middle) + 8
    free = 6.6 * len(ends[0]) < center - reach and center + reach < width - 6.6 * len(ends[1])
    if 0 < half < last and free:
        texts.append(write(center, y, middle, at="middle"))
    return texts


def draw_curves(curves: Sequence[Curve], label: str, *, x: str, y: str) -> Markup:
    """Curves in a square from 0 to 100 % on both axes, with the diagonal."""
    square = 56, 10, 272
    parts = draw_frame(*square, x=x, y=y)
    for curve in curves:
        if curve.class_ == "curve":
            outline = [*curve.high, *reversed(curve.low)]
            parts.append(element("path", d=trace(outline, *square) + "Z", class_="band"))
        for line in (curve.high, curve.low):
            parts.append(element("path", d=trace(line, *square), class_=curve.class_))
    return draw_picture(_WIDTH, 324, label, *parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was observed where something was predicted, with the ends of its interval."""

    predicted: float
    value: float
    low: float
    high: float


def draw_calibration(points: Sequence[Observed], label: str, *, x: str, y: str, shares: bool) -> Markup:
    """Draws what was observed by what was predicted, in a square with its diagonal.

    Axes are those of `shares`, from 0 to 100 %, or reach around all numbers.
    """
    square = left, top, side = 56, 10, 272
    low, high = 0.0, 1.0
    if not shares:
        ends = [end for each in points for end in (each.predicted, each.low, each.high)]
        low, high = min(ends, default=0.0), max(ends, default=1.0)
        step = round_limit((high - low) / 4 or 1.0)
        low = math.floor(low / step) * step
        while low + 4 * step < high:  # the least may lie far below its first step
            step = round_limit(step * 1.01)
            low = math.floor(low / step) * step
        high = low + 4 * step

    def name(tick: float) -> str:
        return percent(tick) if shares else short(low + tick * (high - low))

    parts = draw_frame(*square, x=x, y=y, names=name)
    across, down = scale_between(low, high, left, left + side), scale_between(low, high, top + side, top)
    show = percent if shares else short
    for each in points:
        observed = f"observed {show(each.value)} ({show(each.low)} to {show(each.high)})"
        title = element("title", f"predicted {show(each.predicted)}: {observed}")
        at = across(each.predicted)
        parts.append(draw_line(at, down(each.high), at, down(each.low), class_="whisker"))
        parts.append(element("circle", title, cx=at, cy=down(each.value), r=3.4, class_="dot"))
    return draw_picture(_WIDTH, 324, label, *parts)


def draw_intervals(
    points: Sequence[Point],
    label: str,
    *,
    series: Sequence[str] = (),
    ends: tuple[float, float] | None = None,
) -> Markup:
    """Labelled values with their intervals, one below the other, on one axis, which may have given `ends`."""
    reached = [
        value + sign * half
        for point in points
        for value, half in zip(point.values, point.halves, strict=True)
        for sign in (-1, 1)
    ]
    low, high = min([0.0, *reached]), max([1e-9, *reached])
    limit = round_limit(max(high, -low / 4))
    floor, limit = ends or (-round_limit(-low) if -low > 0.08 * limit else 0.0, limit)
    left, right = 8, 332
    at = scale_between(floor, limit, left, right)
    many = max((len(point.values) for point in points), default=1)
    row = 21 + 9 * many
    bottom = 6 + row * len(points)
    ticks = {0.0, limit / 2, limit} | ({floor} if at(0.0) - at(floor) > _TICK else set())
    parts = draw_uprights(sorted(ticks), at, left, right, bottom)
    for line, point in enumerate(points):
        top = 4 + row * line
        first = f"{short(point.values[0])} ± {short(point.halves[0])}"
        parts.append(write(left + 5, top + 12, clip_text(point.label, 34), size=12, class_="halo"))
        parts.append(write(right, top + 12, first, at="end", class_="halo"))
        for turn, (value, half) in enumerate(zip(point.values, point.halves, strict=True)):
            y = top + 22 + 9 * turn
            title = element("title", f"{point.label}: {short(value)} ± {short(half)}")
            parts.append(draw_line(at(value - half), y, at(value + half), y, class_="whisker"))
            parts.append(element("circle", title, cx=at(value), cy=y, r=3.4, class_=f"dot {'abc'[turn % 3]}"))
    if len(series) < 2:
        return draw_picture(_WIDTH, bottom + 22, label, *parts)
    x = 12.0
    for turn, name in enumerate(series[:3]):
        parts.append(element("circle", cx=x, cy=bottom + 28, r=3.4, class_=f"dot {'abc'[turn]}"))
        parts.append(write(x + 8, bottom + 32, clip_text(name, 18)))
        x += 22 + 6.4 * min(len(name), 18)
    return draw_picture(_WIDTH, bottom + 40, label, *parts)


def draw_shape(points: Sequence[Point], label: str, *, ends: tuple[float, float] | None = None) -> Markup:
    """Returns a function of ordered values as a line of steps with the band of its intervals.

    The axis goes from one of `ends` to the other, by default as far below zero as above it.
    """
    left, right, top, bottom = 44.0, 332.0, 8.0, 150.0
    values = np.array([point.values[0] for point in points])
    halves = np.array([point.halves[0] for point in points])
    reach = max(float(np.abs(values + halves).max(initial=0)), float(np.abs(values - halves).max(initial=0)))
    limit = round_limit(max(float(np.abs(values).max(initial=0)), reach, 1e-9))
    lowest, highest = ends or (-limit, limit)
    step = (right - left) / max(1, values.size)
    at = scale_between(lowest, highest, bottom, top)

    def walk(heights: Sequence[float]) -> list[str]:
        ends = [(left + step * place, at(each)) for place, each in enumerate(heights)]
        return [f"{x:.1f} {y:.1f} L{x + step:.1f} {y:.1f}" for x, y in ends]

    high, low = walk((values + halves).tolist()), walk((values - halves).tolist())
    back = [" L".join(reversed(each.split(" L"))) for each in reversed(low)]
    parts = [element("path", d="M" + " L".join([*high, *back]) + "Z", class_="band")]
    middle = 0.0 if lowest < 0 < highest else (lowest + highest) / 2
    parts += draw_levels((lowest, middle, highest), at, left, right)
    parts.append(element("path", d="M" + " L".join(walk(values.tolist())), class_="curve"))
    names = (points[0].label, points[-1].label) if points else ("", "")
    parts.append(write(left, bottom + 16, clip_text(names[0], 20), class_="q"))
    parts.append(write(right, bottom + 16, clip_text(names[1], 20), at="end", class_="q"))
    return draw_picture(_WIDTH, bottom + 24, label, *parts)


def draw_spread(values: NDArray[np.float64], half: float, label: str) -> Markup:
    """Returns how noisy values are spread, with the range that noise alone explains shaded."""
    reach = float(np.quantile(np.abs(values), 0.95)) if values.size else 1.0
    limit = round_limit(min(max(reach, 2.2 * half), 12 * half))
    edges = np.linspace(-limit, limit, 50)
    counts, _ = np.histogram(np.clip(values, -limit, limit), bins=edges)
    base, tall = 118, 100
    # Square roots, so that a few cells are seen beside very many.
    heights = np.sqrt(counts / max(int(counts.max(initial=1)), 1)) * tall
    at = scale_between(-limit, limit, 8, 332)
    columns = []
    for (low, high), count, height in zip(
        pairwise(edges.tolist()), counts.tolist(), heights.tolist(), strict=True
    ):
        if count:
            title = f"{short(low)} to {short(high)}: {whole(count)}"
            style = "column" if abs((low + high) / 2) > half else "column n"
            wide = at(high) - at(low) - 0.8
            columns.append(draw_box(at(low) + 0.4, base - height, wide, height, title, class_=style))
    band = draw_box(at(-half), 12, at(half) - at(-half), base - 12, class_="band")
    texts = [
        write(at(tick), base + 16, short(tick), at=where, class_="q")
        for tick, where in ((-limit, "start"), (0.0, "middle"), (limit, "end"))
    ]
    note = write(at(0), 8, "noise alone, 95 %", at="middle", class_="q")
    return draw_picture(_WIDTH, base + 22, label, band, *columns, draw_line(8, base, 332, base), note, *texts)


def draw_ladder(rungs: Sequence[Position], level: float, label: str) -> Markup:
    """Distances of samples by their share, evenly spaced, and a level line for the release."""
    left, top, wide, tall = 44, 12, 284, 150
    limit = round_limit(max(level, *(distance for _, distance in rungs)))
    step = wide / (len(rungs) - 1)
    at = scale_between(0.0, limit, top + tall, top)
    parts = draw_levels((0.0, limit / 2, limit), at, left, left + wide)
    points = [(left + place * step, at(distance)) for place, (_, distance) in enumerate(rungs)]
    parts.append(element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_="thin"))
    for (x, y), (share, distance) in zip(points, rungs, strict=True):
        title = element("title", f"{percent(share)} of the individuals: {short(distance)}")
        parts.append(element("circle", title, cx=x, cy=y, r=3.2, class_="dot"))
        parts.append(write(x, top + tall + 16, f"{100 * share:g}", at="middle", size=10, class_="q"))
    parts.append(element("path", d=f"M{left} {at(level):.1f}H{left + wide}", class_="level"))
    above = at(level) - 6 if at(level) > 30 else at(level) + 14
    parts.append(write(left + wide, above, f"release {short(level)}", at="end"))
    below = "share of the individuals in the sample, %"
    parts.append(write(left + wide / 2, top + tall + 33, below, at="middle"))
    return draw_picture(_WIDTH, top + tall + 38, label, *parts)


def draw_pairs(
    labels: Sequence[str],
    before: Sequence[float],
    after: Sequence[float],
    label: str,
    *,
    unit: str = "records",
) -> Markup:
    """Gives two columns for every label, shares of one before and after, with the larger share written above.

    What is shared out, and counted in a class, is called `unit`.

    >>> draw_pairs(["1", "2"], [1.0, 0.0], [0.0, 1.0], "classes").count("<rect")
    6
    """
    base, tall = 128, 96
    top = max([*before, *after, 1e-9])
    step = _WIDTH / len(labels)
    wide = step * 0.36
    parts = [
        draw_box(0, 1, 9, 9, class_="column n"),
        write(13, 9, "original table", size=10),
        draw_box(96, 1, 9, 9, class_="column"),
        write(109, 9, "released table", size=10),
    ]
    for place, (name, *shares) in enumerate(zip(labels, before, after, strict=True)):
        for turn, share in enumerate(shares):
            title = f"{name}: {percent(share)} of the {unit} {'after' if turn else 'before'}"
            style = "column" if turn else "column n"
            x, high = place * step + step * 0.12 + turn * wide, max(share / top * tall, 0.6)
            parts.append(draw_box(x, base - high, wide - 1, high, title, class_=style))
        middle, largest = place * step + step / 2, max(shares)
        if largest:
            above = base - largest / top * tall - 4
            parts.append(write(middle, above, percent(largest), at="middle", size=8, class_="q"))
        parts.append(write(middle, base + 14, name, at="middle", size=8))
    below = write(_WIDTH / 2, base + 29, f"{unit} in the class", at="middle", size=10, class_="q")
    return draw_picture(_WIDTH, base + 34, label, *parts, draw_line(0, base, _WIDTH, base), below)


def tile_columns(count: int) -> int:
    """Returns how many tiles stand side by side: somewhat more than below each other, with a full last row.

    >>> tile_columns(89), tile_columns(278), tile_columns(3)
    (10, 20, 3)
    """
    about = max(1, min(count, math.ceil(math.sqrt(count * 1.25))))
    near = range(max(1, about - 2), min(count, about + 2) + 1)
    return min(near, key=lambda columns: (-count % columns, -columns))


def draw_tiles(
    values: NDArray[np.float64],
    labels: Sequence[str],
    label: str,
    *,
    limit: float,
    middle: bool = False,
    plain: bool = False,
    half: float | None = None,
) -> Markup:
    """Returns a map without geography: one tile for each of `values`, with its one of the `labels`.

    `label` describes the whole. Up to 30 tiles have room for their names and values; more are
    numbered. Of very many values, or if `plain`, an image without labels. Colours go from 0 to `limit`, or
    with `middle` from -limit to limit. Values within `half`, their noise, are hatched.
    """
    if values.size > _MOST_LABELLED or plain:
        width = -(-values.size // _MOST_PIXELS)
        folded = np.add.reduceat(values, range(0, values.size, width)) / width
        return draw_image(_fold(step_of(folded, limit=limit, middle=middle)), label, middle=middle)
    steps = step_of(values, limit=limit, middle=middle).tolist()
    few = values.size <= _MOST_NAMED
    short_names = all(len(name) <= 3 for name in labels)
    columns = min(3, values.size) if few and not short_names else tile_columns(values.size)
    side = _WIDTH / columns
    high = 38.0 if few and not short_names else side if columns > 4 else 54.0
    size = 10.0 if few else min(11.0, side * 0.42)
    kind = "d" if middle else "s"
    parts = []
    for place, (step, name, value) in enumerate(zip(steps, labels, values.tolist(), strict=True)):
        x, y = place % columns * side, place // columns * high
        title = f"{clip_text(name, 60)}: {short(value)}" + ("" if half is None else f" ± {short(half)}")
        parts.append(draw_box(x, y, side, high, title, stroke_width=1.2, class_=f"{kind}{step}"))
        if half is not None and value <= half:
            parts.append(draw_box(x, y, side, high, class_="hatch"))
        texts = [name if short_names else str(place + 1)]
        if few:
            room = max(3, int((side - 8) / (size * 0.56)))
            texts = [clip_text(name, room), short(value)]
        strength = abs(2 * step - STEPS + 1) if middle else step
        first = y + high / 2 + size * 0.36 - (len(texts) - 1) * size * 0.62
        parts += [
            element(
                "text", text,
                x=x + side / 2, y=first + line * size * 1.25, text_anchor="middle", font_size=size,
                class_=f"x{strength}", aria_hidden="true",
            )
            for line, text in enumerate(texts)
        ]  # fmt: skip
    rows = -(-values.size // columns)
    return draw_picture(_WIDTH, rows * high, label, *parts, class_="tiles")


def draw_multiples(
    values: NDArray[np.float64], names: Sequence[str], label: str, *, limit: float, middle: bool = False
) -> list[tuple[str, Markup]]:
    """Returns one small grid of tiles per column of `values` (places by times), with its one of the `names`.

    `label` describes them; colours go from 0 to `limit`, or with `middle` from -limit to limit.
    """
    steps = step_of(values, limit=limit, middle=middle)
    drawn = []
    for turn, name in enumerate(names):
        grid, said = _fold(steps[:, turn]), f"{label}, {clip_text(name, 40)}"
        if steps.size <= _MOST_SHAPES:
            shapes = _draw_shapes(grid, middle=middle)
            drawn.append((name, draw_picture(grid.shape[1], grid.shape[0], said, *shapes, class_="tiles")))
        else:
            drawn.append((name, draw_image(grid, said, middle=middle)))
    return drawn


def draw_heat(values: NDArray[np.float64], label: str, *, limit: float, middle: bool = False) -> Markup:
    """Rows and columns of many values as one small image; more than it can hold are averaged."""
    folded = values
    while folded.size > _MOST_PIXELS:
        axis = int(np.argmax(folded.shape))
        pairs = folded.shape[axis] // 2
        kept = np.take(folded, range(2 * pairs), axis=axis)
        shape = (pairs, 2, folded.shape[1]) if axis == 0 else (folded.shape[0], pairs, 2)
        folded = kept.reshape(shape).mean(axis=axis + 1)
    return draw_image(step_of(folded, limit=limit, middle=middle), label, middle=middle, ratio="8/5")


def draw_matrix(
    values: NDArray[np.float64], names: Sequence[str], label: str, *, limit: float, middle: bool = False
) -> Markup:
    """Draws a square of tiles for `values`, with `names`; of very many, an image alone.

    `label` describes it; colours go from 0 to `limit`, or with `middle` from -limit to limit.
    """
    count = len(names)
    steps = step_of(values, limit=limit, middle=middle)
    if count > 40:
        return draw_image(steps, label, middle=middle)
    left = 96
    side = (_WIDTH - left) / count
    size = min(11.0, max(6.0, side * 0.72))
    shown = [clip_text(name, 16) for name in names]
    bottom = count * side
    texts = [
        write(left - 5, (row + 0.5) * side + size * 0.35, name, at="end", size=size)
        for row, name in enumerate(shown)
    ]
    # Below, the names stand upright, so that they fit however narrow the tiles are.
    for column, name in enumerate(shown):
        across = left + (column + 0.5) * side + size * 0.35
        turned = f"translate({across:.1f} {bottom + 5:.1f}) rotate(-90)"
        texts.append(element("g", write(0, 0, name, at="end", size=size), transform=turned))
    shapes = _draw_shapes(steps, middle=middle, gap=min(0.1, 1.2 / side))
    tiles = element("g", *shapes, transform=f"translate({left} 0) scale({side:.3f})")
    room = 10 + 0.6 * size * max(len(name) for name in shown)
    return draw_picture(_WIDTH, bottom + room, label, *texts, tiles, class_="tiles")


def draw_scale(label: str, *, limit: float, middle: bool, plain: bool = False) -> Markup:
    """Returns the colours of tiles in their order, with the values that every second one stands for.

    `plain` has the ends alone for their values.
    """
    kind, wide, last = ("d" if middle else "s"), 24, STEPS - 1
    boxes = [draw_box(12 + step * wide, 0, wide, 14, class_=f"{kind}{step}") for step in range(STEPS)]
    texts = []
    for step in (0, last) if plain else range(0, STEPS, 2):
        share = 2 * step / last - 1 if middle else (step / last) ** 2
        said = signed(share * limit) if middle else short(share * limit)
        texts.append(write(12 + (step + 0.5) * wide, 25, said, at="middle", size=9.5, class_="q"))
    return draw_picture(24 + wide * STEPS, 28, label, *boxes, *texts)


def _fold(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Steps in rows of tiles; what is left of the last row is empty."""
    columns = tile_columns(steps.size)
    rows = -(-steps.size // columns)
    grid = np.full(rows * columns, EMPTY, np.int64)
    grid[: steps.size] = steps
    return grid.reshape(rows, columns)


def _draw_shapes(grid: NDArray[np.int64], *, middle: bool, gap: float = 0.1) -> list[Markup]:
    """Tiles as one path per colour, so that they follow the colours of the page."""
    kind = "d" if middle else "s"
    parts = []
    for step in range(STEPS):
        rows, columns = np.nonzero(grid == step)
        if rows.size:
            drawn = "".join(f"M{x} {y}h1v1h-1z" for y, x in zip(rows.tolist(), columns.tolist(), strict=True))
            parts.append(element("path", d=drawn, class_=f"{kind}{step}", stroke_width=gap))
    return parts


def draw_series(
    values: NDArray[np.float64],
    halves: NDArray[np.float64] | None,
    labels: Sequence[str],
    label: str,
    *,
    truth: NDArray[np.float64] | None = None,
) -> Markup:
    """Returns a line through `values` with the band of their intervals; `labels` name the points in time.

    The axis holds zero, and is the picture's own. `truth` adds a second line.
    """
    left, right, top, bottom = 4.0, _SERIES_WIDTH - 4.0, 14.0, 78.0
    reach = np.zeros(values.size) if halves is None else halves
    every = [0.0, *(values + reach).tolist(), *(values - reach).tolist(), *([] if truth is None else truth)]
    limit = round_limit(max(*every, 1e-9))
    floor = min(every) if min(every) < -0.02 * limit else 0.0
    step = (right - left) / max(1, values.size - 1)
    at = scale_between(floor, limit, bottom, top)

    def walk(heights: NDArray[np.float64]) -> list[str]:
        return [f"{left + turn * step:.1f} {at(value):.1f}" for turn, value in enumerate(heights.tolist())]

    parts = []
    if halves is not None:
        outline = [*walk(values + halves), *reversed(walk(values - halves))]
        parts.append(element("path", d="M" + "L".join(outline) + "Z", class_="band"))
    zero = round(at(0.0), 1)
    parts.append(draw_line(left, zero, right, zero))
    if truth is not None:
        parts.append(element("path", d="M" + "L".join(walk(truth)), class_="level"))
    parts.append(element("path", d="M" + "L".join(walk(values)), class_="curve"))
    if values.size <= _MOST_DOTS:
        for turn, (value, place) in enumerate(zip(values.tolist(), walk(values), strict=True)):
            x, y = place.split()
            noise = "" if halves is None else f" ± {short(float(halves[turn]))}"
            real = "" if truth is None else f", truth {short(float(truth[turn]))}"
            title = element("title", f"{clip_text(labels[turn], 30)}: {short(value)}{noise}{real}")
            parts.append(element("circle", title, cx=x, cy=y, r=1.9, class_="dot"))
    parts.append(write(left, 10, f"up to {short(limit)}", size=9.5, class_="q"))
    if len(labels) > 1:
        parts.append(write(left, bottom + 13, clip_text(labels[0], 16), size=9.5, class_="q"))
        parts.append(write(right, bottom + 13, clip_text(labels[-1], 16), at="end", size=9.5, class_="q"))
    return draw_picture(_SERIES_WIDTH, bottom + 17, label, *parts)


def draw_scatter(
    truth: NDArray[np.float64], released: NDArray[np.float64], half: float | None, label: str
) -> Markup:
    """Released against true values, both on square-root axes, with the diagonal and the range of the noise.

    Of very many, an even choice of them is drawn.
    """
    left, top, side = 50.0, 8.0, 270.0
    limit = round_limit(max(float(truth.max(initial=0)), float(released.max(initial=0)), 1.0))

    def at(value: float) -> float:
        return math.sqrt(min(max(value, 0.0), limit) / limit) * side

    parts = []
    for share in (0.0, 1 / 16, 1 / 4, 9 / 16, 1.0):
        place = at(share * limit)
        parts += [
            draw_line(left, top + side - place, left + side, top + side - place),
            draw_line(left + place, top, left + place, top + side),
            write(left - 6, top + side - place + 4, short(share * limit), at="end", size=10, class_="q"),
        ]
        if share != 1 / 16:
            parts.append(
                write(left + place, top + side + 15, short(share * limit), at="middle", size=10, class_="q")
            )
    ends = [limit * (step / 40) ** 2 for step in range(41)]
    if half is not None:
        upper = [(at(end), at(end + half)) for end in ends]
        lower = [(at(end), at(end - half)) for end in reversed(ends)]
        traced = "L".join(f"{left + x:.1f} {top + side - y:.1f}" for x, y in [*upper, *lower])
        parts.append(element("path", d=f"M{traced}Z", class_="band"))
    parts.append(element("path", d=f"M{left} {top + side}L{left + side} {top}", class_="dash"))
    every = max(1, -(-truth.size // _MOST_POINTS))
    spots = {
        (f"{left + at(x):.0f}", f"{top + side - at(y):.0f}")
        for x, y in zip(truth[::every].tolist(), released[::every].tolist(), strict=True)
    }
    dots = "".join(f"M{x} {y}h0" for x, y in sorted(spots))
    parts.append(element("path", d=dots, class_="spots"))
    parts.append(write(left + side / 2, top + side + 31, "truth", at="middle"))
    turned = f"translate(10 {top + side / 2:g}) rotate(-90)"
    parts.append(element("g", write(0, 0, "released", at="middle"), transform=turned))
    return draw_picture(left + side + 12, top + side + 36, label, *parts)
