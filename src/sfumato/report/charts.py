"""Small charts as inline SVG, drawn for the width of a phone and coloured by the style sheet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.report.html import Html, clip_text, join, tag
from sfumato.report.numbers import percent, short, whole
from sfumato.report.palette import round_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_WIDTH = 340
_MOST_TITLES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line through points; with `low`, the band between `low` and `high` and both of its ends."""

    high: Sequence[tuple[float, float]]
    low: Sequence[tuple[float, float]] = ()
    class_: str = "curve"
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A labelled value with half the width of its interval, once for every series."""

    label: str
    values: tuple[float, ...]
    halves: tuple[float, ...]


def picture(width: float, height: float, told: str, *children: object, class_: str = "") -> Html:
    """An SVG image of that size; `told` is what is read out in its place."""
    return tag(
        "svg",
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=told,
        class_=class_ or None,
    )


def bar_list(
    rows: Sequence[tuple[str, float]],
    *,
    show: Callable[[float], str] = whole,
    limit: float | None = None,
    wrap: bool = False,
) -> Html:
    """A table of labelled bars, as long as their values are large."""
    top = limit or max((abs(value) for _, value in rows), default=0) or 1
    lines = [
        tag(
            "tr",
            tag("th", clip_text(label, 60), scope="row", title=clip_text(label, 80)),
            tag("td", tag("span", class_="bar", style=f"width:{_share(value, top)}%")),
            tag("td", show(value), class_="num"),
        )
        for label, value in rows
    ]
    return tag("table", tag("tbody", *lines), class_="bars wrap" if wrap else "bars")


def draw_columns(
    values: NDArray[np.float64], labels: Sequence[str], told: str, *, width: float = _WIDTH
) -> Html:
    """A histogram: one column per value in their order, with the first and the last label below."""
    base = 84
    limit = max(float(values.max(initial=0)), 1e-9)
    step = width / max(values.size, 1)
    gap = min(1.5, step * 0.14)
    heights = [max(max(0.0, value) / limit * (base - 14), 0.6) for value in values.tolist()]
    places = [(turn * step + gap / 2, max(step - gap, 0.3), height) for turn, height in enumerate(heights)]
    if values.size > _MOST_TITLES:
        drawn = "".join(f"M{x:.1f} {base}v-{h:.1f}h{w:.1f}v{h:.1f}z" for x, w, h in places)
        columns = [tag("path", d=drawn, class_="column")]
    else:
        said = [
            f"{clip_text(label, 50)}: {whole(value)}" for label, value in zip(labels, values, strict=True)
        ]
        columns = [
            tag("rect", tag("title", told_here), x=x, y=base - h, width=w, height=h, class_="column")
            for told_here, (x, w, h) in zip(said, places, strict=True)
        ]
    top = _text(0, 9, f"largest {whole(limit)}", soft=True) if limit > 1e-9 else None
    below = _label_ends(labels, step, base + 17) if values.size else []
    return picture(width, base + 22, told, top, *columns, _line(0, base, width, base), *below)


def _label_ends(labels: Sequence[str], step: float, y: float) -> list[Html]:
    """The first, the middle and the last label, as far as they fit beside each other."""
    last, half = len(labels) - 1, len(labels) // 2
    width = step * len(labels)
    room = int(width / 2 / 6.6)
    ends = [clip_text(labels[0], room), clip_text(labels[last], room)]
    texts = [_text(0, y, ends[0])]
    if last:
        texts.append(_text(width, y, ends[1], at="end"))
    middle, center = clip_text(labels[half], room), (half + 0.5) * step
    reach = 3.3 * len(middle) + 8
    if (
        0 < half < last
        and 6.6 * len(ends[0]) < center - reach
        and center + reach < width - 6.6 * len(ends[1])
    ):
        texts.append(_text(center, y, middle, at="middle"))
    return texts


def draw_curves(curves: Sequence[Curve], told: str, *, x: str, y: str) -> Html:
    """Curves in a square from 0 to 100 % on both axes, with the diagonal."""
    left, top, side = 56, 10, 272

    def at(point: tuple[float, float]) -> str:
        return f"{left + point[0] * side:.1f} {top + (1 - point[1]) * side:.1f}"

    parts: list[Html] = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(_line(left, top + tick * side, left + side, top + tick * side))
        parts.append(_line(left + tick * side, top, left + tick * side, top + side))
        parts.append(
            _text(left - 7, top + (1 - tick) * side + 4, percent(tick), at="end", soft=True, size=11)
        )
        parts.append(
            _text(left + tick * side, top + side + 17, percent(tick), at="middle", soft=True, size=11)
        )
    parts.append(tag("path", d=f"M{at((0, 0))}L{at((1, 1))}", class_="dash"))
    for curve in curves:
        if curve.low and curve.class_ == "curve":
            outline = [*curve.high, *reversed(curve.low)]
            parts.append(tag("path", d="M" + "L".join(map(at, outline)) + "Z", class_="band"))
        lines = [line for line in (curve.high, curve.low) if line]
        parts += [tag("path", d="M" + "L".join(map(at, line)), class_=curve.class_) for line in lines]
    parts.append(_text(left + side / 2, top + side + 36, x, at="middle", size=12))
    turned = tag(
        "g", _text(0, 0, y, at="middle", size=12), transform=f"translate(11 {top + side / 2}) rotate(-90)"
    )
    return picture(_WIDTH, top + side + 42, told, *parts, turned)


def draw_intervals(points: Sequence[Point], told: str, *, series: Sequence[str] = ()) -> Html:
    """Labelled values with their intervals, one below the other, on one axis."""
    ends = [
        value + sign * half
        for point in points
        for value, half in zip(point.values, point.halves, strict=True)
        for sign in (-1, 1)
    ]
    low, high = min([0.0, *ends]), max([1e-9, *ends])
    limit = round_limit(max(high, -low / 4))
    floor = -round_limit(-low) if -low > 0.08 * limit else 0.0
    left, right = 8, 332

    def at(value: float) -> float:
        return left + (max(value, floor) - floor) / (limit - floor) * (right - left)

    many = max((len(point.values) for point in points), default=1)
    row = 21 + 9 * many
    bottom = 6 + row * len(points)
    parts = []
    for tick in sorted({floor, 0.0, limit / 2, limit}):
        parts.append(_line(at(tick), 2, at(tick), bottom))
        anchor = "middle" if left + 12 < at(tick) < right - 20 else "start" if at(tick) < 100 else "end"
        parts.append(_text(at(tick), bottom + 15, short(tick), at=anchor, soft=True, size=11))
    for line, point in enumerate(points):
        top = 4 + row * line
        parts.append(_text(left + 5, top + 12, clip_text(point.label, 34), size=12, halo=True))
        first = f"{short(point.values[0])} ± {short(point.halves[0])}"
        parts.append(_text(right, top + 12, first, at="end", size=11, halo=True))
        for turn, (value, half) in enumerate(zip(point.values, point.halves, strict=True)):
            y = top + 22 + 9 * turn
            parts.append(_line(at(value - half), y, at(value + half), y, class_="whisker"))
            told_here = f"{point.label}: {short(value)} ± {short(half)}"
            parts.append(
                tag(
                    "circle",
                    tag("title", told_here),
                    cx=at(value),
                    cy=y,
                    r=3.4,
                    class_=f"dot {'abc'[turn % 3]}",
                )
            )
    key = None
    if len(series) > 1:
        key = _series_key(series, bottom + 32)
    return picture(_WIDTH, bottom + (40 if key else 22), told, *parts, key)


def draw_spread(values: NDArray[np.float64], half: float, told: str) -> Html:
    """How noisy values are spread, with the range that noise alone explains shaded."""
    reach = float(np.quantile(np.abs(values), 0.95)) if values.size else 1.0
    limit = round_limit(min(max(reach, 2.2 * half), 12 * half))
    edges = np.linspace(-limit, limit, 50)
    counts, _ = np.histogram(np.clip(values, -limit, limit), bins=edges)
    base, tall = 118, 100
    share = np.sqrt(counts / max(int(counts.max(initial=1)), 1))

    def at(value: float) -> float:
        return float(8 + (value + limit) / (2 * limit) * 324)

    columns = [
        tag(
            "rect",
            tag("title", f"{short(low)} to {short(high)}: {whole(count)}"),
            x=at(low) + 0.4,
            y=base - height * tall,
            width=at(high) - at(low) - 0.8,
            height=height * tall,
            class_="column" if abs((low + high) / 2) > half else "column n",
        )
        for low, high, count, height in zip(
            edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), share.tolist(), strict=True
        )
        if count
    ]
    band = tag("rect", x=at(-half), y=12, width=at(half) - at(-half), height=base - 12, class_="band")
    texts = [
        _text(at(tick), base + 16, short(tick), at=where, soft=True, size=11)
        for tick, where in ((-limit, "start"), (0.0, "middle"), (limit, "end"))
    ]
    note = _text(at(0), 8, "noise alone, 95 %", at="middle", soft=True, size=11)
    return picture(_WIDTH, base + 22, told, band, *columns, _line(8, base, 332, base), note, *texts)


def draw_ladder(rungs: Sequence[tuple[float, float]], level: float, told: str) -> Html:
    """Distances of samples by their share, evenly spaced, and a level line for the release."""
    left, top, wide, tall = 44, 12, 284, 150
    limit = round_limit(max(level, *(distance for _, distance in rungs)))
    step = wide / (len(rungs) - 1)

    def at(distance: float) -> float:
        return top + (1 - distance / limit) * tall

    parts = []
    for tick in (0.0, limit / 2, limit):
        parts.append(_line(left, at(tick), left + wide, at(tick)))
        parts.append(_text(left - 6, at(tick) + 4, short(tick), at="end", soft=True, size=11))
    points = [(left + place * step, at(distance)) for place, (_, distance) in enumerate(rungs)]
    parts.append(tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_="thin"))
    for (x, y), (share, distance) in zip(points, rungs, strict=True):
        said = f"{percent(share)} of the individuals: {short(distance)}"
        parts.append(tag("circle", tag("title", said), cx=x, cy=y, r=3.2, class_="dot"))
        parts.append(_text(x, top + tall + 16, f"{100 * share:g}", at="middle", soft=True, size=10))
    parts.append(tag("path", d=f"M{left} {at(level):.1f}H{left + wide}", class_="level"))
    above = at(level) - 6 if at(level) > 30 else at(level) + 14
    parts.append(_text(left + wide, above, f"release {short(level)}", at="end", size=11))
    parts.append(
        _text(
            left + wide / 2,
            top + tall + 33,
            "share of the individuals in the sample, %",
            at="middle",
            size=11,
        )
    )
    return picture(_WIDTH, top + tall + 38, told, *parts)


def _series_key(series: Sequence[str], y: float) -> Html:
    parts, x = [], 12.0
    for turn, name in enumerate(series[:3]):
        parts += [
            tag("circle", cx=x, cy=y - 4, r=3.4, class_=f"dot {'abc'[turn]}"),
            _text(x + 8, y, clip_text(name, 18), size=11),
        ]
        x += 22 + 6.4 * min(len(name), 18)
    return join(*parts)


def _text(
    x: float,
    y: float,
    words: str,
    *,
    at: str = "start",
    soft: bool = False,
    size: int = 11,
    halo: bool = False,
) -> Html:
    return tag(
        "text",
        words,
        x=x,
        y=y,
        text_anchor=None if at == "start" else at,
        font_size=size,
        class_="q" if soft else "halo" if halo else None,
    )


def _line(x1: float, y1: float, x2: float, y2: float, *, class_: str = "axis") -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def _share(value: float, top: float) -> str:
    return f"{max(0.0, min(100.0, 100 * abs(value) / top)):.1f}"
