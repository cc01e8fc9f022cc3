"""The associations of all pairs of columns as one picture, with the groups framed."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.grouping.text import clip_text, plain_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.grouping.groups import Group, Grouping

LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Where the next shade begins; weaker pairs have none."""

_LIGHT = ("#e3eef2", "#c9e0e8", "#a9cddb", "#82b5c9", "#5a9ab3", "#38809c", "#1f6280", "#0d4460")
_DARK = ("#16282f", "#1b3842", "#214b58", "#2a6273", "#377d91", "#4f9db2", "#7cc1d1", "#b9e6ee")

_MARGIN = 24
_LONGEST = 32


def draw_groups(found: Grouping, *, source: str) -> str:
    """An SVG picture: a square of associations ordered by group, the groups framed and described.

    It needs nothing from elsewhere, and follows a reader's choice of a light or a dark page.
    """
    place = {name: index for index, name in enumerate(found.columns)}
    ordered = [name for group in found.groups for name in group.columns]
    order = [place[name] for name in ordered]
    matrix = found.association[np.ix_(order, order)]
    layout = _Layout(len(ordered), max(len(clip_text(name, _LONGEST)) for name in ordered))
    several = sum(len(group.columns) > 1 for group in found.groups)
    title = f"Association of {_many(len(ordered), 'column')} in {_many(len(found.groups), 'group')}"
    shown = f"{plain_text(source)}, {_many(found.rows, 'row')}"
    told = (
        f"Heat map of {found.measure} for every pair of columns of {shown}, ordered by group. "
        f"{_many(several, 'group')} of several columns framed: "
        + "; ".join(
            ", ".join(map(plain_text, group.columns)) for group in found.groups if len(group.columns) > 1
        )
        + "."
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" '
        f'width="{layout.width:.0f}" height="{layout.height:.0f}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{_escape(title)}</title>',
        f'<desc id="desc">{_escape(told)}</desc>',
        f"<style>{_style(layout)}</style>",
        f'<rect class="paper" width="{layout.width:.0f}" height="{layout.height:.0f}"/>',
        f'<text class="head" x="{_MARGIN}" y="38">{_escape(title)}</text>',
        f'<text class="soft" x="{_MARGIN}" y="58">{_escape(clip_text(shown, 90))}</text>',
        *_draw_legend(),
        f'<g transform="translate({layout.left:.1f} {layout.top:.1f})">',
        f'<rect class="empty" width="{layout.side:.1f}" height="{layout.side:.1f}"/>',
        *_draw_shades(matrix, layout),
        *_draw_labels(ordered, layout),
        *_draw_frames(found.groups, layout),
        "</g>",
        "</svg>",
        "",
    ]
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where things are, for so many columns and a longest label of so many signs."""

    columns: int
    signs: int

    @property
    def cell(self) -> float:
        """The side of a cell: small for many columns, never too small for its label."""
        return min(26.0, max(10.0, 640 / self.columns))

    @property
    def font(self) -> float:
        """The size of a label."""
        return min(12.0, self.cell * 0.9)

    @property
    def side(self) -> float:
        """The side of the square."""
        return self.cell * self.columns

    @property
    def label(self) -> float:
        """The room for a label."""
        return 10 + 0.64 * self.font * self.signs

    @property
    def left(self) -> float:
        """Where the square begins."""
        return _MARGIN + self.label

    @property
    def top(self) -> float:
        """Where the square begins, under heading, legend and labels."""
        return 122 + self.label

    @property
    def width(self) -> float:
        """The width of the picture, with room for what is said of the groups."""
        return max(560.0, self.left + self.side + 190 + _MARGIN)

    @property
    def height(self) -> float:
        """The height of the picture."""
        return self.top + self.side + _MARGIN


def _draw_legend() -> list[str]:
    """The shades with the associations at which they begin."""
    step = 38
    parts = ['<g transform="translate(24 76)">']
    parts += [
        f'<rect class="s{level}" x="{step * level}" width="{step}" height="12"/>'
        for level in range(len(LEVELS))
    ]
    parts += [
        f'<text class="tick" x="{step * level}" y="26" text-anchor="middle">{least:g}</text>'
        for level, least in enumerate((*LEVELS, 1))
        if level
    ]
    end = step * len(LEVELS)
    parts.append(f'<text class="tick" x="0" y="26">{LEVELS[0]:g}</text>')
    parts.append(f'<rect class="frame" x="{end + 26}" y="-1" width="14" height="14"/>')
    parts.append(f'<text class="soft" x="{end + 47}" y="10">one histogram</text>')
    return [*parts, "</g>"]


def _draw_shades(matrix: NDArray[np.float64], layout: _Layout) -> list[str]:
    """One path per shade, so that a hundred columns stay a small file."""
    levels = np.searchsorted(LEVELS, matrix, side="right") - 1
    np.fill_diagonal(levels, len(LEVELS))
    cell = layout.cell
    parts = []
    for level in range(len(LEVELS) + 1):
        runs = []
        for row in range(layout.columns):
            here = np.flatnonzero(np.diff(levels[row] == level, prepend=False, append=False))
            for start, stop in here.reshape(-1, 2):
                wide = (stop - start) * cell
                runs.append(f"M{start * cell:.5g} {row * cell:.5g}h{wide:.5g}v{cell:.5g}h{-wide:.5g}z")
        if runs:
            name = "self" if level == len(LEVELS) else f"s{level}"
            parts.append(f'<path class="{name}" d="{"".join(runs)}"/>')
    return parts


def _draw_labels(names: list[str], layout: _Layout) -> list[str]:
    """The names of the columns, beside the rows and above the columns; whole ones on hovering."""
    parts = []
    for index, name in enumerate(names):
        middle = (index + 0.5) * layout.cell
        short, whole = clip_text(name, _LONGEST), plain_text(name)
        words = _escape(short) + ("" if short == whole else f"<title>{_escape(whole)}</title>")
        base = middle + 0.35 * layout.font
        parts.append(f'<text class="name" x="-6" y="{base:.1f}" text-anchor="end">{words}</text>')
        parts.append(f'<text class="name" transform="translate({base:.1f} -6) rotate(-90)">{words}</text>')
    return parts


def _draw_frames(groups: tuple[Group, ...], layout: _Layout) -> list[str]:
    """A frame around every group of several columns, and its cells at the edge of the square."""
    parts, start = [], 0
    for group in groups:
        count = len(group.columns)
        if count > 1:
            at, wide = start * layout.cell, count * layout.cell
            parts.append(
                f'<rect class="frame" x="{at:.1f}" y="{at:.1f}" width="{wide:.1f}" height="{wide:.1f}"/>'
            )
            middle = at + wide / 2
            told = f"{group.cells:,} cells, {group.association:.2f}"
            parts.append(f'<path class="lead" d="M{at + wide:.1f} {middle:.1f}H{layout.side + 8:.1f}"/>')
            base = middle + 0.35 * layout.font
            parts.append(f'<text class="note" x="{layout.side + 12:.1f}" y="{base:.1f}">{told}</text>')
        start += count
    return parts


def _style(layout: _Layout) -> str:
    font = f"{layout.font:.1f}px"
    rules = [
        "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#22302f}",
        ".head{font-size:18px;font-weight:600}.soft{font-size:12px;fill:#5d6b69}",
        ".tick{font-size:10px;fill:#5d6b69}",
        f".name{{font-size:{font}}}.note{{font-size:{font};fill:#5d6b69}}",
        ".paper{fill:#fbfaf6}.empty{fill:#f3f2ec}.self{fill:#d5d3c9}",
        ".frame{fill:none;stroke:#b5483a;stroke-width:1.6}",
        ".lead{fill:none;stroke:#b5483a;stroke-width:.6;stroke-dasharray:1 3;opacity:.7}",
        *(f".s{level}{{fill:{color}}}" for level, color in enumerate(_LIGHT)),
    ]
    dark = [
        "text{fill:#e6ece9}.soft,.tick,.note{fill:#a3b1ae}",
        ".paper{fill:#121817}.empty{fill:#18201f}.self{fill:#3a4443}",
        ".frame,.lead{stroke:#f0a35e}",
        *(f".s{level}{{fill:{color}}}" for level, color in enumerate(_DARK)),
    ]
    return "".join(rules) + "@media (prefers-color-scheme:dark){" + "".join(dark) + "}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _escape(text: str) -> str:
    return html.escape(text, quote=True)
