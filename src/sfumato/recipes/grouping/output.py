"""What is written about groups: a recipe file to be edited by hand, and a picture of all associations."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.exact import format_exact
from sfumato.report.pages.svg import draw_file, element, write
from sfumato.report.pages.words import clip_text, plain_text, plural
from sfumato.tables import quote_toml
from sfumato.tables.arrays import Floats

if TYPE_CHECKING:
    from markupsafe import Markup

    from sfumato.recipes.grouping.groups import Group, Grouping

LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Where the next shade of the picture begins; weaker pairs have none."""

_MARGIN = 24
_LONGEST = 32
_SHEET = (
    ".empty{fill:var(--panel)}.self{fill:var(--line)}.frame{fill:none;stroke:var(--red);stroke-width:1.6}"
    ".lead{fill:none;stroke:var(--red);stroke-width:.6;stroke-dasharray:1 3;opacity:.7}"
) + "".join(f".s{level}{{fill:var(--s{level + 1})}}" for level in range(len(LEVELS)))


def draft_recipe(
    found: Grouping,
    *,
    source: str,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    table: str | None = None,
    columns: Sequence[str] | None = None,
) -> str:
    """A recipe `field-groups` in TOML, with the groups of `found` one per line, at `epsilon` and `delta`.

    `source` names the public table. Without `table`, the file says what is still to be written. With
    `columns`, only these are released.
    """
    lines = [
        "# Groups of associated columns, found by `sfumato groups` in "
        f"{plain_text(source)}: {found.rows:,} rows.",
        "# They rest on that table alone. It must be public, and about nobody in the table to be released.",
        f"# Association: {found.measure}; the mean over the pairs of a group.",
    ]
    if table is None:
        lines += [
            "# Cells are counted by the values in the public table. Domains must be described in the",
            "# project file; then `sfumato groups --project` counts by them.",
        ]
    lines += [
        "",
        'recipe = "field-groups"',
        f"table = {quote_toml('TODO' if table is None else table)}"
        + ("   # the table's name in the project file" if table is None else ""),
        f"epsilon = {_number(epsilon)}",
    ]
    if delta:
        lines.append(f"delta = {_number(delta)}")
    if columns is not None:
        lines.append(f"columns = [{', '.join(quote_toml(name) for name in columns)}]")
    lines += ["groups = [", *(_line(group) for group in found.groups), "]", ""]
    return "\n".join(lines)


def _line(group: Group) -> str:
    names = ", ".join(quote_toml(name) for name in group.columns)
    linked = "" if group.association is None else f", association {group.association:.2f}"
    return f"  [{names}],   # {plural(group.cells, 'cell')}{linked}"


def _number(epsilon: Fraction) -> str:
    text = format_exact(epsilon)
    return f'"{text}"' if "/" in text else text


def draw_groups(found: Grouping, *, source: str) -> str:
    """Return an SVG picture: a square of associations ordered by group, the groups framed and described.

    It needs nothing from elsewhere, and follows a reader's choice of a light or a dark page.
    """
    place = {name: index for index, name in enumerate(found.columns)}
    ordered = [name for group in found.groups for name in group.columns]
    order = [place[name] for name in ordered]
    matrix = found.association[np.ix_(order, order)]
    layout = _Layout(len(ordered), max(len(clip_text(name, _LONGEST)) for name in ordered))
    several = [group.columns for group in found.groups if len(group.columns) > 1]
    shown = f"{plain_text(source)}, {plural(found.rows, 'row')}"
    square = element(
        "g",
        element("rect", width=layout.side, height=layout.side, class_="empty"),
        *_draw_shades(matrix, layout),
        *_draw_labels(ordered, layout),
        *_draw_frames(found.groups, layout),
        transform=f"translate({layout.left:.1f} {layout.top:.1f})",
    )
    return draw_file(
        round(layout.width),
        round(layout.height),
        write(_MARGIN, 58, clip_text(shown, 90), size=12, class_="q"),
        _draw_legend(),
        square,
        title=f"Association of {plural(len(ordered), 'column')} in {plural(len(found.groups), 'group')}",
        description=f"Heat map of {found.measure} for every pair of columns of {shown}, ordered by group. "
        f"{plural(len(several), 'group')} of several columns framed: "
        f"{'; '.join(', '.join(map(plain_text, columns)) for columns in several)}.",
        sheet=_SHEET,
    )


class _Layout:
    """Where things are, for so many columns and a longest label of so many signs."""

    def __init__(self, columns: int, signs: int) -> None:
        self.columns = columns
        self.cell = min(26.0, max(10.0, 640 / columns))  # small for many columns, never too small for a label
        self.font = min(12.0, self.cell * 0.9)
        self.side = self.cell * columns  # of the square
        label = 10 + 0.64 * self.font * signs
        self.left, self.top = _MARGIN + label, 122 + label  # of the square, under heading, legend and labels
        self.width = max(560.0, self.left + self.side + 190 + _MARGIN)  # with room for what is said of groups
        self.height = self.top + self.side + _MARGIN


def _draw_legend() -> Markup:
    """Return the shades with the associations at which they begin."""
    step = 38
    end = step * len(LEVELS)
    parts = [
        element("rect", x=step * level, width=step, height=12, class_=f"s{level}")
        for level in range(len(LEVELS))
    ]
    for level, least in enumerate((*LEVELS, 1)):
        at = "middle" if level else "start"
        parts.append(write(step * level, 26, f"{least:g}", at=at, size=10, class_="q"))
    parts.append(element("rect", x=end + 26, y=-1, width=14, height=14, class_="frame"))
    parts.append(write(end + 47, 10, "one histogram", size=12, class_="q"))
    return element("g", *parts, transform=f"translate({_MARGIN} 76)")


def _draw_shades(matrix: Floats, layout: _Layout) -> list[Markup]:
    """Return one path per shade, so that a hundred columns stay a small file."""
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
            parts.append(element("path", d="".join(runs), class_=name))
    return parts


def _draw_labels(names: list[str], layout: _Layout) -> list[Markup]:
    """Return the names of the columns, beside the rows and above the columns; whole ones on hovering."""
    parts = []
    for index, name in enumerate(names):
        clipped, whole = clip_text(name, _LONGEST), plain_text(name)
        words = [clipped] if clipped == whole else [clipped, element("title", whole)]
        base = (index + 0.5) * layout.cell + 0.35 * layout.font
        turned = f"translate({base:.1f} -6) rotate(-90)"
        parts.append(element("text", *words, x=-6, y=base, text_anchor="end", font_size=layout.font))
        parts.append(element("text", *words, transform=turned, font_size=layout.font))
    return parts


def _draw_frames(groups: tuple[Group, ...], layout: _Layout) -> list[Markup]:
    """Return a frame around every group of several columns, and its cells at the edge of the square."""
    parts, start = [], 0
    for group in groups:
        count = len(group.columns)
        if count > 1:
            at, wide = start * layout.cell, count * layout.cell
            middle = at + wide / 2
            about = f"{group.cells:,} cells, {group.association:.2f}"
            parts += [
                element("rect", x=at, y=at, width=wide, height=wide, class_="frame"),
                element("path", d=f"M{at + wide:.1f} {middle:.1f}H{layout.side + 8:.1f}", class_="lead"),
                write(layout.side + 12, middle + 0.35 * layout.font, about, size=layout.font, class_="q"),
            ]
        start += count
    return parts
