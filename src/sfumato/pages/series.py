"""Values over time with the bands of their noise, and released against true values, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.pages.svg import draw_line, draw_picture, element, round_limit, write
from sfumato.pages.words import clip_text, short

_WIDTH = 172
_MOST_DOTS = 40
_MOST_POINTS = 4000


def draw_series(
    values: NDArray[np.float64],
    halves: NDArray[np.float64] | None,
    labels: Sequence[str],
    label: str,
    *,
    truth: NDArray[np.float64] | None = None,
) -> Markup:
    """A line through `values` with the band of their intervals; `labels` name the points in time.

    The axis holds zero, and is the picture's own. `truth` adds a second line.
    """
    left, right, top, bottom = 4.0, _WIDTH - 4.0, 14.0, 78.0
    reach = np.zeros(values.size) if halves is None else halves
    every = [0.0, *(values + reach).tolist(), *(values - reach).tolist(), *([] if truth is None else truth)]
    limit = round_limit(max(*every, 1e-9))
    floor = min(every) if min(every) < -0.02 * limit else 0.0
    step = (right - left) / max(1, values.size - 1)

    def at(turn: int, value: float) -> str:
        y = bottom - (min(max(value, floor), limit) - floor) / (limit - floor) * (bottom - top)
        return f"{left + turn * step:.1f} {y:.1f}"

    def walk(heights: NDArray[np.float64]) -> list[str]:
        return [at(turn, value) for turn, value in enumerate(heights.tolist())]

    parts = []
    if halves is not None:
        outline = [*walk(values + halves), *reversed(walk(values - halves))]
        parts.append(element("path", d="M" + "L".join(outline) + "Z", class_="band"))
    zero = float(at(0, 0.0).split()[1])
    parts.append(draw_line(left, zero, right, zero))
    if truth is not None:
        parts.append(element("path", d="M" + "L".join(walk(truth)), class_="level"))
    parts.append(element("path", d="M" + "L".join(walk(values)), class_="curve"))
    if values.size <= _MOST_DOTS:
        for turn, value in enumerate(values.tolist()):
            x, y = at(turn, value).split()
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
