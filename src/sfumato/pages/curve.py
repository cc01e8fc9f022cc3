"""Expected error against epsilon as an SVG file of its own, on axes by powers of ten."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sfumato.pages.svg import draw_file, draw_line, element, write
from sfumato.pages.words import clip_text, short

_WIDTH, _HEIGHT = 640, 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 604.0, 84.0, 350.0
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
    """The curve through `points`, in order of epsilon, with a dot on every `chosen` epsilon.

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

    def across(epsilon: float) -> float:
        return _LEFT + math.log(epsilon / first) / math.log(last / first) * (_RIGHT - _LEFT)

    def down(error: float) -> float:
        return _BOTTOM - math.log(error / low) / math.log(high / low) * (_BOTTOM - _TOP)

    parts = [write(24, 58, clip_text(shown, 90), size=13, class_="q")]
    for tick in _ticks(first, last):
        parts.append(draw_line(across(tick), _TOP, across(tick), _BOTTOM))
        parts.append(write(across(tick), _BOTTOM + 17, short(tick), at="middle", class_="q"))
    for tick in _ticks(low, high):
        parts.append(draw_line(_LEFT, down(tick), _RIGHT, down(tick)))
        parts.append(write(_LEFT - 7, down(tick) + 4, f"±{short(tick)}", at="end", class_="q"))
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
            end = x > _RIGHT - 170
            spot = (x - 9, y + 20) if end else (x + 9, y - 9)
            parts.append(element("circle", cx=x, cy=y, r=5, class_="dot"))
            parts.append(write(*spot, said, at="end" if end else "start", size=13, class_="head halo"))
    parts.append(write((_LEFT + _RIGHT) / 2, _BOTTOM + 38, "epsilon", at="middle", size=12))
    turned = f"translate(24 {(_TOP + _BOTTOM) / 2:g}) rotate(-90)"
    parts.append(
        element("g", write(0, 0, "95 % of errors, in records", at="middle", size=12), transform=turned)
    )
    note = "from public facts alone: nothing was read, nothing was spent"
    parts.append(write(_LEFT, _BOTTOM + 62, note, size=12, class_="q"))
    start, stop = short(points[0].most), short(points[-1].most)
    ends = f"from ±{start} at epsilon {short(first)} to ±{stop} at {short(last)}"
    return draw_file(
        _WIDTH,
        _HEIGHT,
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
    end = x > _RIGHT - 120
    return [
        draw_line(x, _TOP, x, _BOTTOM, class_="left"),
        write(x - 6 if end else x + 6, _TOP + 14, f"left: {short(left)}", at="end" if end else "start"),
    ]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`: powers of ten, and between few of them 2 and 5 times these.

    >>> _ticks(0.3, 60)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 4 else (1,)
    found = [float(f"{factor}e{power}") for power in powers for factor in factors]
    return [each for each in found if low * (1 - 1e-9) <= each <= high * (1 + 1e-9)]
