"""Values over time, released against true values, and error against epsilon, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.report.pages.svg import (
    draw_file,
    draw_line,
    draw_picture,
    element,
    round_limit,
    scale_between,
    write,
)
from sfumato.report.pages.words import clip_text, short

_WIDTH = 172
_MOST_DOTS = 40  # with more, dots cover the line
_MOST_POINTS = 4000  # drawn of a scatter; an even choice of more looks the same


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
    left, right, top, bottom = 4.0, _WIDTH - 4.0, 14.0, 78.0
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
    return draw_picture(_WIDTH, bottom + 17, label, *parts)


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


_CURVE_WIDTH, _CURVE_HEIGHT = 640, 430
_CURVE_LEFT, _CURVE_RIGHT, _CURVE_TOP, _CURVE_BOTTOM = 84.0, 604.0, 84.0, 350.0
_SHEET = (
    ".curve{fill:none;stroke:var(--blue);stroke-width:2.4;stroke-linejoin:round}"
    ".halo{paint-order:stroke;stroke:var(--paper);stroke-width:5px;stroke-linejoin:round}"
    ".band{fill:var(--blue);opacity:.22}.dot{fill:var(--gold)}.left{stroke:var(--red);stroke-width:1.6}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPoint:
    """What 95 % of the errors stay within at one epsilon, for the most and the least exact measurement."""

    epsilon: float
    least: float
    most: float


def draw_errors(
    points: Sequence[ErrorPoint],
    *,
    chosen: Sequence[float],
    left: float | None,
    title: str,
    shown: str,
) -> str:
    """Returns the curve through `points`, in order of epsilon, with a dot on every `chosen` epsilon.

    `left` is the budget, drawn as a line; `shown` says below the title what the errors are of.

    >>> points = [ErrorPoint(epsilon=each, least=3 / each, most=3 / each) for each in (0.1, 1.0, 10.0)]
    >>> draw_errors(points, chosen=[1.0], left=2.0, title="t", shown="s").startswith("<svg ")
    True
    """
    first, last = points[0].epsilon, points[-1].epsilon
    low = min(point.least for point in points)
    high = max(point.most for point in points)
    flat = high / low < 1.5  # an axis needs some height
    low, high = (low / 2, high * 2) if flat else (low, high)

    wide = scale_between(math.log(first), math.log(last), _CURVE_LEFT, _CURVE_RIGHT)
    tall = scale_between(math.log(low), math.log(high), _CURVE_BOTTOM, _CURVE_TOP)

    def across(epsilon: float) -> float:
        return wide(math.log(epsilon))

    def down(error: float) -> float:
        return tall(math.log(error))

    parts = [write(24, 58, clip_text(shown, 90), size=13, class_="q")]
    for tick in _ticks(first, last):
        parts.append(draw_line(across(tick), _CURVE_TOP, across(tick), _CURVE_BOTTOM))
        parts.append(write(across(tick), _CURVE_BOTTOM + 17, short(tick), at="middle", class_="q"))
    for tick in _ticks(low, high):
        parts.append(draw_line(_CURVE_LEFT, down(tick), _CURVE_RIGHT, down(tick)))
        parts.append(write(_CURVE_LEFT - 7, down(tick) + 4, f"±{short(tick)}", at="end", class_="q"))
    most = [f"{across(each.epsilon):.1f} {down(each.most):.1f}" for each in points]
    least = [f"{across(each.epsilon):.1f} {down(each.least):.1f}" for each in points]
    if most != least:
        parts.append(element("path", d="M" + "L".join([*most, *reversed(least)]) + "Z", class_="band"))
        parts.append(element("path", d="M" + "L".join(least), class_="curve"))
    parts.append(element("path", d="M" + "L".join(most), class_="curve"))
    parts += _draw_left(left, first, last, across)
    for epsilon in chosen:
        point = next((each for each in points if math.isclose(each.epsilon, epsilon)), None)
        if point is not None:
            x, y = across(epsilon), down(point.most)
            said = f"epsilon {short(epsilon)}: ±{short(point.most)}"
            # The curve falls, so there is room above it to the right, and below it to the left.
            end = x > _CURVE_RIGHT - 170
            spot = (x - 9, y + 20) if end else (x + 9, y - 9)
            parts.append(element("circle", cx=x, cy=y, r=5, class_="dot"))
            parts.append(write(*spot, said, at="end" if end else "start", size=13, class_="head halo"))
    parts.append(write((_CURVE_LEFT + _CURVE_RIGHT) / 2, _CURVE_BOTTOM + 38, "epsilon", at="middle", size=12))
    turned = f"translate(24 {(_CURVE_TOP + _CURVE_BOTTOM) / 2:g}) rotate(-90)"
    parts.append(
        element("g", write(0, 0, "95 % of errors, in records", at="middle", size=12), transform=turned)
    )
    note = "from public facts alone: nothing was read, nothing was spent"
    parts.append(write(_CURVE_LEFT, _CURVE_BOTTOM + 62, note, size=12, class_="q"))
    start, stop = short(points[0].most), short(points[-1].most)
    ends = f"from ±{start} at epsilon {short(first)} to ±{stop} at {short(last)}"
    return draw_file(
        _CURVE_WIDTH,
        _CURVE_HEIGHT,
        *parts,
        title=clip_text(title, 60),
        description=f"Expected error against epsilon, {ends}.",
        sheet=_SHEET,
    )


def _draw_left(
    left: float | None, first: float, last: float, across: Callable[[float], float]
) -> list[Markup]:
    if left is None or not first < left < last:
        return []
    x = across(left)
    end = x > _CURVE_RIGHT - 120
    return [
        draw_line(x, _CURVE_TOP, x, _CURVE_BOTTOM, class_="left"),
        write(x - 6 if end else x + 6, _CURVE_TOP + 14, f"left: {short(left)}", at="end" if end else "start"),
    ]


def _ticks(low: float, high: float) -> list[float]:
    """Returns round numbers from `low` to `high`: powers of ten, and between few of them 2 and 5 times these.

    >>> _ticks(0.3, 60)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 4 else (1,)
    found = [float(f"{factor}e{power}") for power in powers for factor in factors]
    return [each for each in found if low * (1 - 1e-9) <= each <= high * (1 + 1e-9)]
