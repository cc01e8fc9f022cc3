"""Charts of noisy answers, before and after they are bought, and of what was spent on them.

Drawn with attributes and classes alone, so that pages may forbid every inline style; the picture of error
against epsilon is a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from sfumato.report.pages.svg import (
    SEQUENTIAL,
    draw_box,
    draw_file,
    draw_levels,
    draw_line,
    draw_picture,
    draw_uprights,
    element,
    round_limit,
    scale_between,
    write,
    write_png,
)
from sfumato.report.pages.words import MINUS, clip_text, short

_WIDTH = 340  # units; a phone shows it without scrolling
_MOST_COLUMNS = 31
_CURVE_WIDTH, _CURVE_HEIGHT = 640, 430
_CURVE_LEFT, _CURVE_RIGHT, _CURVE_TOP, _CURVE_BOTTOM = 84.0, 604.0, 84.0, 350.0
_SHEET = (
    ".curve{fill:none;stroke:var(--blue);stroke-width:2.4;stroke-linejoin:round}"
    ".halo{paint-order:stroke;stroke:var(--paper);stroke-width:5px;stroke-linejoin:round}"
    ".band{fill:var(--blue);opacity:.22}.dot{fill:var(--gold)}.left{stroke:var(--red);stroke-width:1.6}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A labelled value between the ends of its confidence interval."""

    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """One charge: who made it, on which table, when (`moment`, in any unit of time), and how much.

    `when` writes the moment for people, `words` the whole.
    """

    person: str
    table: str
    moment: float
    epsilon: float
    when: str
    words: str


def draw_intervals_of(
    intervals: Sequence[Interval], label: str, *, ends: tuple[float, float] | None = None
) -> Markup:
    """Draws values with intervals: as columns if labels are few numbers, else line by line.

    The axis may have given `ends`.

    >>> many = [Interval(label=str(month), value=month, low=month - 1, high=month + 1) for month in range(12)]
    >>> draw_intervals_of(many, "by month").count("<rect")
    12
    """
    numbers = all(len(each.label) <= 10 and each.label[:1].isdigit() for each in intervals)
    if numbers and 3 <= len(intervals) <= _MOST_COLUMNS:
        return _draw_columns(intervals, label, ends or find_axis(intervals))
    return _draw_lines(intervals, label, ends or find_axis(intervals))


def find_axis(intervals: Sequence[Interval]) -> tuple[float, float]:
    """Returns round ends of an axis that holds zero and all intervals."""
    low = min([0.0, *(each.low for each in intervals)])
    high = max([0.0, *(each.high for each in intervals)])
    limit = round_limit(max(high, -low / 5, 1e-9))
    return (-round_limit(-low) if -low > 0.04 * limit else 0.0), limit


def _draw_columns(intervals: Sequence[Interval], label: str, ends: tuple[float, float]) -> Markup:
    floor, limit = ends
    ticks = sorted({floor, 0.0, limit / 2, limit})
    top, bottom, left = 8, 168, 10 + 6.4 * max(len(short(tick)) for tick in ticks)
    step = (_WIDTH - left) / len(intervals)
    wide = min(step * 0.66, 26)
    at = scale_between(floor, limit, bottom, top)
    parts = draw_levels(ticks, at, left, _WIDTH)
    every = math.ceil(max(6.8 * len(each.label) + 6 for each in intervals) / step)
    for place, each in enumerate(intervals):
        middle = left + (place + 0.5) * step
        upper, lower = sorted((at(each.value), at(0)))
        high, said = max(lower - upper, 0.8), _say(each)
        parts.append(draw_box(middle - wide / 2, upper, wide, high, said, rx=1.5, class_="column pale"))
        parts.append(draw_line(middle, at(each.low), middle, at(each.high), class_="whisker"))
        parts += [
            draw_line(middle - 3, at(end), middle + 3, at(end), class_="whisker")
            for end in (each.low, each.high)
        ]
        if place % every == 0:
            parts.append(write(middle, bottom + 16, each.label, at="middle"))
    return draw_picture(_WIDTH, bottom + 22, label, *parts)


def _draw_lines(intervals: Sequence[Interval], label: str, ends: tuple[float, float]) -> Markup:
    floor, limit = ends
    left, right, row = 4, _WIDTH - 4, 36
    bottom = 4 + row * len(intervals)
    at = scale_between(floor, limit, left, right)
    parts = draw_uprights(sorted({floor, 0.0, limit / 2, limit}), at, left, right, bottom)
    for line, each in enumerate(intervals):
        top = 4 + row * line
        said = f"{short(each.value)}  ({short(each.low)} to {short(each.high)})"
        room = max(8, int((right - left - 6.4 * len(said)) / 6.4) - 2)
        parts.append(write(left + 4, top + 11, clip_text(each.label, room), size=12, class_="halo"))
        parts.append(write(right, top + 11, said, at="end", class_="halo q"))
        first, last = sorted((at(0), at(each.value)))
        wide = max(last - first, 0.8)
        parts.append(draw_box(first, top + 17, wide, 10, _say(each), rx=1.5, class_="column pale"))
        parts.append(draw_line(at(each.low), top + 22, at(each.high), top + 22, class_="whisker"))
        parts += [
            draw_line(at(end), top + 19, at(end), top + 25, class_="whisker") for end in (each.low, each.high)
        ]
    return draw_picture(_WIDTH, bottom + 20, label, *parts)


def _say(each: Interval) -> str:
    return f"{clip_text(each.label, 60)}: {short(each.value)}, from {short(each.low)} to {short(each.high)}"


def draw_sketch(half: float, label: str, *, gaussian: bool = False) -> Markup:
    """Returns where an answer will lie around what is counted: the law of its noise, with 95 % of it shaded.

    `half` is how far 95 % of the noise reaches to each side.
    """
    base, tall, middle = 76, 56, _WIDTH / 2
    scale = 96.0  # pixels from the middle to the end of the interval

    def height(share: float) -> float:
        """Returns the density at `share` of the interval's half; both laws have 95 % within one."""
        return math.exp(-1.92 * share**2) if gaussian else math.exp(-2.996 * abs(share))

    shares = [step / 40 for step in range(-70, 71)]
    curve = [(middle + share * scale, base - tall * height(share)) for share in shares]
    inner = [point for point, share in zip(curve, shares, strict=True) if abs(share) <= 1]
    shaded = f"M{inner[0][0]:.1f} {base}L{_join(inner)}L{inner[-1][0]:.1f} {base}Z"
    parts = [
        element("path", d=shaded, class_="band"),
        element("path", d=f"M{_join(curve)}", class_="curve"),
        draw_line(8, base, _WIDTH - 8, base),
        draw_line(middle, base - tall - 6, middle, base + 4, class_="dash"),
        draw_line(middle - scale, base + 9, middle + scale, base + 9, class_="whisker"),
    ]
    for end, said in ((-1, f"{MINUS}{short(half)}"), (1, f"+{short(half)}")):
        parts.append(
            draw_line(middle + end * scale, base + 5, middle + end * scale, base + 13, class_="whisker")
        )
        anchor = "end" if end < 0 else "start"
        parts.append(write(middle + end * (scale + 6), base + 13, said, at=anchor))
    parts.append(write(middle, base + 25, "what is counted", at="middle", class_="q"))
    return draw_picture(_WIDTH, base + 30, label, *parts)


def draw_meter(total: float, spent: float, price: float, label: str) -> Markup:
    """Returns a bar of all that may be spent: what is, what a question would add, what is left."""
    whole = max(total, spent + price, 1e-12)
    done, more = _WIDTH * spent / whole, _WIDTH * price / whole
    parts = []
    if spent > 0:
        parts.append(draw_box(0, 0, max(done, 1.5), 12, class_="spent"))
    if price > 0:
        wide = max(more, 2.5)
        parts.append(draw_box(min(done, _WIDTH - wide), 0, wide, 12, class_="price"))
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {_WIDTH} 12",
        preserveAspectRatio="none",  # as long as there is room
        role="img",
        aria_label=label,
        class_="budget",
    )


def draw_timeline(charges: Sequence[Spending], total: float, label: str) -> Markup:
    """Draws all charges in time: their sum up to `total`, and one line per person below."""
    width, left, top, tall, row = 680, 92, 22, 96, 30
    people = list(dict.fromkeys(each.person for each in charges))
    tables = list(dict.fromkeys(each.table for each in charges))
    moments = [each.moment for each in charges]
    first, last = min(moments, default=0.0), max(moments, default=1.0)
    base, right = top + tall, width - 16

    def across(moment: float) -> float:
        return left + 10 + (right - left - 20) * ((moment - first) / (last - first) if last > first else 0.5)

    down = scale_between(0.0, total or 1.0, base, top)
    parts = draw_levels((0.0, total / 2, total), down, left, right)
    parts.append(
        write(left, top - 9, "epsilon of the charges, added up; the top line is all there is", class_="q")
    )
    path, summed = f"M{left} {base}", 0.0
    for each in sorted(charges, key=lambda each: each.moment):
        path += f"H{across(each.moment):.1f}"
        summed += each.epsilon
        path += f"V{down(summed):.1f}"
    path += f"H{right}"
    parts.append(element("path", d=f"{path}V{base}H{left}Z", class_="band"))
    parts.append(element("path", d=path, class_="curve"))
    largest = max((each.epsilon for each in charges), default=1.0) or 1.0
    for line, person in enumerate(people):
        y = base + 42 + row * line
        parts.append(draw_line(left, y, right, y))
        parts.append(write(left - 8, y + 4, clip_text(person, 12), at="end", size=12))
    for each in charges:
        y = base + 42 + row * people.index(each.person)
        size = 3 + 5 * math.sqrt(each.epsilon / largest)
        kind = "abcdef"[tables.index(each.table) % 6]
        title = element("title", each.words)
        parts.append(element("circle", title, cx=across(each.moment), cy=y, r=size, class_=f"charge {kind}"))
    bottom = base + 42 + row * len(people)
    ordered = sorted(charges, key=lambda each: each.moment)
    ends = list(dict.fromkeys((ordered[0].when, ordered[-1].when))) if ordered else []
    for said, at, place in zip(ends, ("start", "end"), (left, right), strict=False):
        parts.append(write(place, base + 14, said, at=at, class_="q"))
    x = float(left)
    for place, table in enumerate(tables[:6]):
        parts.append(element("circle", cx=x + 5, cy=bottom, r=5, class_=f"charge {'abcdef'[place]}"))
        parts.append(write(x + 15, bottom + 4, clip_text(table, 20)))
        x += 30 + 6.8 * min(len(table), 20)
    return draw_picture(width, bottom + 14, label, *parts)


def draw_icon() -> bytes:
    r"""Returns a small picture for the browser's tab, as a PNG file: a point that fades outwards.

    >>> draw_icon()[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    places = np.arange(32) - 15.5
    distance = np.hypot(places[:, None], places[None, :])
    shades = SEQUENTIAL["light"][:0:-1]
    codes = np.minimum(distance / 16 * len(shades), len(shades)).astype(np.int64)
    return write_png(codes, (*shades, "#000000"), clear=(len(shades),))


def _join(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


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
