"""Maps without geography: one tile per value in the order of the codes, and small multiples of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato.report.charts import picture
from sfumato.report.html import Html, clip_text, data_uri, tag
from sfumato.report.numbers import MINUS, short
from sfumato.report.palette import DIVERGING, EMPTY, SEQUENTIAL, STEPS, step_of
from sfumato.report.png import write_png

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MOST_SHAPES = 6000
_MOST_LABELLED = 300
_MOST_PIXELS = 2**16


def tile_columns(count: int) -> int:
    """How many tiles stand side by side: somewhat more than below each other, with a full last row.

    >>> tile_columns(89), tile_columns(278), tile_columns(3)
    (10, 20, 3)
    """
    about = max(1, min(count, math.ceil(math.sqrt(count * 1.25))))
    near = range(max(1, about - 2), min(count, about + 2) + 1)
    return min(near, key=lambda columns: (-count % columns, -columns))


def draw_tiles(
    values: NDArray[np.float64],
    labels: Sequence[str],
    told: str,
    *,
    limit: float,
    middle: bool = False,
    plain: bool = False,
) -> Html:
    """One large grid of labelled tiles; of very many values or if `plain`, a picture without labels."""
    if values.size > _MOST_LABELLED or plain:
        width = -(-values.size // _MOST_PIXELS)
        folded = np.add.reduceat(values, range(0, values.size, width)) / width
        return _as_image(_fold(step_of(folded, limit=limit, middle=middle)), told, middle=middle)
    columns = tile_columns(values.size)
    side = 340 / columns
    high = side if columns > 4 else 54.0
    kind = "d" if middle else "s"
    steps = step_of(values, limit=limit, middle=middle).tolist()
    named = all(len(label) <= 3 for label in labels)
    parts = []
    for place, (step, label, value) in enumerate(zip(steps, labels, values.tolist(), strict=True)):
        x, y = place % columns * side, place // columns * high
        size = min(11.0, side * 0.42)
        parts += [
            tag(
                "rect",
                tag("title", f"{clip_text(label, 60)}: {short(value)}"),
                x=x, y=y, width=side, height=high, stroke_width=1.2, class_=f"{kind}{step}",
            ),
            tag(
                "text",
                label if named else str(place + 1),
                x=x + side / 2, y=y + high / 2 + size * 0.36, text_anchor="middle", font_size=size,
                class_=f"x{abs(2 * step - STEPS + 1) if middle else step}", aria_hidden="true",
            ),
        ]  # fmt: skip
    rows = -(-values.size // columns)
    return picture(340, rows * high, told, *parts, class_="tiles")


def draw_multiples(
    values: NDArray[np.float64],
    names: Sequence[str],
    told: str,
    *,
    limit: float,
    middle: bool = False,
) -> Html:
    """One small grid of tiles per column of `values` (places by times), under its name."""
    figures = []
    steps = step_of(values, limit=limit, middle=middle)
    for turn, name in enumerate(names):
        grid = _fold(steps[:, turn])
        said = f"{told}, {clip_text(name, 40)}"
        drawn = (
            _as_shapes(grid, said, middle=middle)
            if steps.size <= _MOST_SHAPES
            else _as_image(grid, said, middle=middle)
        )
        figures.append(tag("figure", tag("figcaption", clip_text(name, 24)), drawn))
    return tag("div", *figures, class_="multiples")


def draw_heat(values: NDArray[np.float64], told: str, *, limit: float, middle: bool = False) -> Html:
    """Rows and columns of many values as one small picture; more than it can hold are averaged."""
    folded = values
    while folded.size > _MOST_PIXELS:
        axis = int(np.argmax(folded.shape))
        pairs = folded.shape[axis] // 2
        kept = np.take(folded, range(2 * pairs), axis=axis)
        shape = (pairs, 2, folded.shape[1]) if axis == 0 else (folded.shape[0], pairs, 2)
        folded = kept.reshape(shape).mean(axis=axis + 1)
    return _as_image(step_of(folded, limit=limit, middle=middle), told, middle=middle, ratio="8/5")


def draw_matrix(
    values: NDArray[np.float64], names: Sequence[str], told: str, *, limit: float, middle: bool = False
) -> Html:
    """A square of tiles with the names of its rows; of very many, a picture without names."""
    count = len(names)
    steps = step_of(values, limit=limit, middle=middle)
    if count > 40:
        return _as_image(steps, told, middle=middle)
    left = 96
    side = (340 - left) / count
    size = min(11.0, max(6.0, side * 0.72))
    texts = [
        tag(
            "text",
            clip_text(name, 16),
            x=left - 5,
            y=(row + 0.5) * side + size * 0.35,
            text_anchor="end",
            font_size=size,
        )
        for row, name in enumerate(names)
    ]
    drawn = _shapes(steps, middle=middle, gap=min(0.1, 1.2 / side))
    tiles = tag("g", *drawn, transform=f"translate({left} 0) scale({side:.3f})")
    return picture(340, count * side, told, *texts, tiles, class_="tiles")


def draw_scale(limit: float, *, middle: bool = False, unit: str = "records") -> Html:
    """The key of the colours: both ends with their values."""
    kind = "d" if middle else "s"
    boxes = [
        tag("rect", x=step * 20, y=0, width=20, height=14, class_=f"{kind}{step}") for step in range(STEPS)
    ]
    named = f" {unit}" if unit else ""
    low = f"{MINUS}{short(limit)}" if middle else "0 or less" if unit else "0"
    high = f"+{short(limit)}{named}" if middle else f"{short(limit)}{named}{' or more' if unit else ''}"
    halfway = None if middle else tag("span", f"(middle: {short(limit / 4)})")
    bar = picture(20 * STEPS, 14, f"colours from {low} to {high}", *boxes)
    return tag("div", tag("span", low), bar, tag("span", high), halfway, class_="scale")


def _fold(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Steps in rows of tiles; what is left of the last row is empty."""
    columns = tile_columns(steps.size)
    rows = -(-steps.size // columns)
    grid = np.full(rows * columns, EMPTY, np.int64)
    grid[: steps.size] = steps
    return grid.reshape(rows, columns)


def _as_shapes(grid: NDArray[np.int64], told: str, *, middle: bool) -> Html:
    return picture(grid.shape[1], grid.shape[0], told, *_shapes(grid, middle=middle), class_="tiles")


def _shapes(grid: NDArray[np.int64], *, middle: bool, gap: float = 0.1) -> list[Html]:
    """Tiles as one path per colour, so that they follow the colours of the page."""
    kind = "d" if middle else "s"
    parts = []
    for step in range(STEPS):
        rows, columns = np.nonzero(grid == step)
        if rows.size:
            drawn = "".join(f"M{x} {y}h1v1h-1z" for y, x in zip(rows.tolist(), columns.tolist(), strict=True))
            parts.append(tag("path", d=drawn, class_=f"{kind}{step}", stroke_width=gap))
    return parts


def _as_image(grid: NDArray[np.int64], told: str, *, middle: bool, ratio: str = "") -> Html:
    """Tiles as two small images, one for light and one for dark pages."""
    scale = DIVERGING if middle else SEQUENTIAL
    light, dark = (
        data_uri(write_png(grid, (*scale[mode], "#000000"), clear=(EMPTY,))) for mode in ("light", "dark")
    )
    source = tag("source", media="screen and (prefers-color-scheme: dark)", srcset=dark)
    height, width = grid.shape
    image = tag(
        "img", src=light, alt=told, class_="map", style=f"aspect-ratio:{ratio or f'{width}/{height}'}"
    )
    return tag("picture", source, image)
