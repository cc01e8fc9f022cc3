"""SVG put together from elements: escaped text, the colours of light and dark pages, small PNG images."""

from __future__ import annotations

import base64
import math
import re
import struct
import tomllib
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from sfumato.report.pages.words import percent, short, show_hidden

Position = tuple[float, float]

STEPS = 9  # colours of a scale; more cannot be told apart
EMPTY = STEPS
"""The step of a tile that stands for nothing."""

_READ = tomllib.loads(Path(__file__).with_name("colours.toml").read_text(encoding="utf-8"))
SEQUENTIAL: dict[str, list[str]] = _READ["sequential"]
DIVERGING: dict[str, list[str]] = _READ["diverging"]
COLOURS: dict[str, dict[str, str]] = _READ["colours"]

_DARK_TEXT_FROM = 6  # on tiles from this step on, plain text would lack contrast
_VOID = frozenset({"img", "source"})
# Signs that stay on the line of their number: 95 %, < 5, ε = 1, 2 × 10⁻⁵, 3 ± 1.
_TIED = re.compile(
    r" (?=%)|(?<=[<>]) (?=\d)|(?<=[εδρμ]) (?==)|(?<=[εδρμ] =) "
    r"| (?=\xd7 10)|(?<= \xd7) (?=10)| (?=± )|(?<= ±) "
)
_SHEET = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--ink)}"
    ".head{font-weight:600}.q{fill:var(--soft)}.paper{fill:var(--paper)}"
    ".axis{stroke:var(--line);stroke-width:1}"
    ".dash{stroke:var(--soft);fill:none;stroke-width:1.4;stroke-dasharray:4 4}"
)


def as_markup(value: object) -> Markup:
    r"""Gives `value` escaped, unless it is markup; hidden signs are shown, and units stay with their numbers.

    >>> as_markup("a < 5 & 95 %")
    Markup('a &lt;\xa05 &amp; 95\xa0%')
    """
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup()
    return escape(_TIED.sub("\N{NO-BREAK SPACE}", _plain(value)))


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """Gives an element: children and attribute values are escaped unless they are markup; a None is left out.

    Of a name, a trailing underscore is dropped, and others become hyphens.

    >>> element("text", "a < b", class_="q", x=1.5)
    Markup('<text class="q" x="1.5">a &lt; b</text>')
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup(f"<{name}{said}{'' if name in _VOID else '/'}>")
    return Markup(f"<{name}{said}>{''.join(map(as_markup, children))}</{name}>")


def draw_picture(width: float, height: float, label: str, *children: object, class_: str = "") -> Markup:
    """Returns an SVG image of that size for a page; `label` is what is read out in its place."""
    return element(
        "svg",
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        class_=class_ or None,
    )


def draw_file(
    width: float, height: float, *children: object, title: str, description: str, sheet: str
) -> str:
    """Returns an SVG file of its own, of `width` by `height` pixels, that follows light and dark screens.

    Its `title` is also its heading, `description` is for who cannot see it; `sheet` adds styles.
    """
    # Plain colours, since librsvg and Cairo know no custom properties and would draw all of it black.
    rules = f"{_SHEET}{sheet}"
    style = f"{_fill_in(rules, 'light')}@media (prefers-color-scheme:dark){{{_fill_in(rules, 'dark')}}}"
    drawn = element(
        "svg",
        element("title", title, id="title"),
        element("desc", description, id="desc"),
        element("style", Markup(style)),
        element("rect", width=width, height=height, rx=8, class_="paper"),
        write(24, 36, title, size=18, class_="head"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_labelledby="title desc",
    )
    return f"{drawn}\n"


def write(
    x: float, y: float, words: object, *, at: str = "start", size: float = 11, class_: str | None = None
) -> Markup:
    """Returns `words` at the place `x`, `y`, which is their start, middle or end (`at`).

    `size` is that of the letters in pixels, `class_` their style.
    """
    anchor = None if at == "start" else at
    return element("text", words, x=x, y=y, text_anchor=anchor, font_size=size, class_=class_)


def draw_line(x1: float, y1: float, x2: float, y2: float, *, class_: str = "axis") -> Markup:
    """Returns a straight line from (`x1`, `y1`) to (`x2`, `y2`) in the style `class_`."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def draw_box(
    x: float, y: float, width: float, height: float, title: str | None = None, **style: object
) -> Markup:
    """Returns a rectangle with its upper left corner at (`x`, `y`); `title` is told of it."""
    told = () if title is None else (element("title", title),)
    return element("rect", *told, x=x, y=y, width=width, height=height, **style)


def scale_between(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    """Returns the axis that has `low` at the place `start` and `high` at `stop`, and stops there.

    >>> at = scale_between(0, 10, 100, 20)
    >>> at(5), at(99)
    (60.0, 20.0)
    """

    def at(value: float) -> float:
        return float(start + (min(max(value, low), high) - low) / (high - low) * (stop - start))

    return at


def draw_levels(
    ticks: Iterable[float], at: Callable[[float], float], left: float, right: float
) -> list[Markup]:
    """Returns a line from `left` to `right` for each of the `ticks` of an upright axis, with its number."""
    parts = []
    for tick in ticks:
        parts.append(draw_line(left, at(tick), right, at(tick)))
        parts.append(write(left - 6, at(tick) + 4, short(tick), at="end", class_="q"))
    return parts


def draw_uprights(
    ticks: Iterable[float], at: Callable[[float], float], left: float, right: float, bottom: float
) -> list[Markup]:
    """Returns an upright line for each of the `ticks` of an axis from `left` to `right`, with its number."""
    parts = []
    for tick in ticks:
        x = at(tick)
        anchor = "start" if x <= left + 12 else "end" if x >= right - 20 else "middle"
        parts.append(draw_line(x, 2, x, bottom))
        parts.append(write(x, bottom + 15, short(tick), at=anchor, class_="q"))
    return parts


def draw_frame(
    left: float,
    top: float,
    side: float,
    *,
    x: str,
    y: str,
    falling: bool = False,
    names: Callable[[float], str] = percent,
) -> list[Markup]:
    """Returns the axes of a square from 0 to 100 % both ways, with its diagonal.

    `left`, `top` and `side` place it, in pixels; `x` and `y` name the axes; the diagonal may be `falling`.
    Other `names` than percentages may be given to the ticks.
    """
    parts = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        across, down = left + tick * side, top + (1 - tick) * side
        parts += [
            draw_line(left, down, left + side, down),
            draw_line(across, top, across, top + side),
            write(left - 7, down + 4, names(tick), at="end", class_="q"),
            write(across, top + side + 17, names(tick), at="middle", class_="q"),
        ]
    ends = [(0, 1), (1, 0)] if falling else [(0, 0), (1, 1)]
    turned = f"translate({left - 45:g} {top + side / 2:g}) rotate(-90)"
    return [
        *parts,
        element("path", d=trace(ends, left, top, side), class_="dash"),
        write(left + side / 2, top + side + 36, x, at="middle", size=12),
        element("g", write(0, 0, y, at="middle", size=12), transform=turned),
    ]


def trace(points: Sequence[Position], left: float, top: float, side: float) -> str:
    """Returns the path through points of the unit square, drawn with its corner at `left` and `top`."""
    return "M" + "L".join(f"{left + x * side:.1f} {top + (1 - y) * side:.1f}" for x, y in points)


def step_of(values: NDArray[np.floating[Any]], *, limit: float, middle: bool = False) -> NDArray[np.int64]:
    """Returns the colour step of every value: from 0 up to `limit`, or from -limit to limit around a middle.

    From 0 up, steps follow square roots, so that small counts can be told apart beside large ones: the
    middle step stands for a quarter of `limit`.

    >>> step_of(np.array([-5.0, 0.0, 25.0, 100.0, 900.0]), limit=100).tolist()
    [0, 0, 4, 8, 8]
    >>> step_of(np.array([-100.0, 0.0, 10.0, 100.0]), limit=100, middle=True).tolist()
    [0, 4, 4, 8]
    """
    scaled = np.nan_to_num(values, nan=0.0) / limit if limit > 0 else np.zeros(values.shape)
    scaled = (scaled + 1) / 2 if middle else np.sqrt(np.maximum(scaled, 0))
    return np.asarray(np.clip(np.round(scaled * (STEPS - 1)), 0, STEPS - 1), dtype=np.int64)


def round_limit(number: float) -> float:
    """Returns the least of 1, 1.5, 2, 3, 4, 5, 6, 8 and 10 times a power of ten that is not below `number`.

    >>> round_limit(734.0), round_limit(0.012), round_limit(0)
    (800.0, 0.015, 1.0)
    """
    if not number > 0 or math.isinf(number):
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    factor = next(each for each in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if each * power >= number * (1 - 1e-9))
    return float(f"{factor * power:.6g}")


def colour_rules(mode: str) -> str:
    """Returns the custom properties of a style sheet for `mode`, light or dark."""
    named = {**COLOURS[mode]}
    named |= {f"s{step}": colour for step, colour in enumerate(SEQUENTIAL[mode])}
    named |= {f"d{step}": colour for step, colour in enumerate(DIVERGING[mode])}
    strong = COLOURS["light"]["panel"] if mode == "light" else "#0e1314"
    plain = COLOURS["light"]["ink" if mode == "light" else "panel"]
    named |= {f"x{step}": strong if step >= _DARK_TEXT_FROM else plain for step in range(STEPS)}
    return "".join(f"--{name}:{colour};" for name, colour in named.items())


def _fill_in(sheet: str, mode: str) -> str:
    """Returns a style sheet with the colours of `mode` in the place of custom properties."""
    named = dict(re.findall(r"--(\w+):([^;]+);", colour_rules(mode)))
    return re.sub(r"var\(--(\w+)\)", lambda found: named[found[1]], sheet)


def write_png(codes: NDArray[np.integer[Any]], colours: Sequence[str], *, clear: Sequence[int] = ()) -> bytes:
    r"""Returns a PNG file with one pixel per entry of `codes`, coloured by its number in `colours`.

    Colours are #rrggbb; those numbered in `clear` are not drawn at all. The same input gives the same
    bytes.

    >>> write_png(np.array([[0, 1]]), ["#ffffff", "#2f6f8f"])[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    pixels = np.asarray(codes)
    if pixels.ndim != 2 or not pixels.size:
        raise ValueError("a picture needs rows and columns")
    if not 1 <= len(colours) <= 256 or pixels.min() < 0 or pixels.max() >= len(colours):
        raise ValueError("every code needs a colour, and there are at most 256")
    height, width = pixels.shape
    palette = b"".join(bytes.fromhex(colour.removeprefix("#")) for colour in colours)
    lines = np.zeros((height, width + 1), np.uint8)  # every line begins with the number of its filter
    lines[:, 1:] = pixels
    chunks = [
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", palette),
    ]
    if clear:
        chunks.append(_chunk(b"tRNS", bytes(0 if code in clear else 255 for code in range(len(colours)))))
    chunks += [_chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def draw_image(steps: NDArray[np.int64], label: str, *, middle: bool, ratio: str = "") -> Markup:
    """Steps as two small images, one for light and one for dark pages."""
    scale = DIVERGING if middle else SEQUENTIAL
    light, dark = (
        _data_uri(write_png(steps, (*scale[mode], "#000000"), clear=(EMPTY,))) for mode in ("light", "dark")
    )
    height, width = steps.shape
    return element(
        "picture",
        element("source", media="screen and (prefers-color-scheme: dark)", srcset=dark),
        element(
            "img", src=light, alt=label, class_="map", style=f"aspect-ratio:{ratio or f'{width}/{height}'}"
        ),
    )


def _data_uri(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < 1e6 else f"{value:.0f}"
    return show_hidden(str(value))
