"""Pictures of answers, releases and models: SVG that a notebook shows, or drawn on axes of matplotlib."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from sfumato.core.errors import RecipeError
from sfumato.report.pages.answers import Interval, find_axis
from sfumato.report.pages.charts import Point, draw_intervals, draw_shape
from sfumato.report.pages.svg import draw_file, round_limit, write
from sfumato.report.pages.words import clip_text

if TYPE_CHECKING:
    import pyarrow as pa

MOST_POINTS = 60
_MOST_PANELS = 12
_ORDERED = ("int", "uint", "date", "timestamp")
_WIDE, _GAP = 420, 24
_SHEET = (
    ".curve{stroke:var(--blue);fill:none;stroke-width:2}.band{fill:var(--fill);opacity:.55}"
    ".whisker{stroke:var(--ink);stroke-width:1.4}.dot{fill:var(--blue)}"
    ".halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px}"
)


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture: a notebook shows it, `svg` is its file."""

    svg: str

    def __repr__(self) -> str:
        return f"Plot({len(self.svg):,} bytes of SVG; a notebook shows it, write(path) keeps it)"

    def _repr_svg_(self) -> str:
        return self.svg

    def write(self, path: Path | str) -> None:
        """Writes the picture to a file."""
        Path(path).write_text(self.svg, encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Values with their intervals under a name; those that follow an order are drawn as a line.

    `ends` are those of the axis, of a line by default as far below zero as above.
    """

    name: str
    points: Sequence[Point]
    ordered: bool = False
    ends: tuple[float, float] | None = None


def draw_plot(title: str, panels: Sequence[Panel], *, ax: Any = None) -> Any:  # noqa: ANN401 - matplotlib's
    """Returns a picture of `panels`, or `ax` with the first of them on it: axes of matplotlib."""
    if ax is None:
        return Plot(_draw_file(title, panels))
    points, name = panels[0].points, panels[0].name
    values, halves = ([getattr(each, what)[0] for each in points] for what in ("values", "halves"))
    places, labels = list(range(len(points))), [each.label for each in points]
    if panels[0].ordered:
        ax.errorbar(places, values, yerr=halves, fmt="o-", capsize=3)
        ax.set_xticks(places, labels)
    else:
        ax.errorbar(values, places, xerr=halves, fmt="o", capsize=3)
        ax.set_yticks(places, labels)
        ax.invert_yaxis()
    ax.set_title(name or title)
    return ax


def plot_table(table: pa.Table, column: str | None, *, title: str, ax: Any = None) -> Any:  # noqa: ANN401
    """Returns a picture of a `column` of an answer, by default the first with an interval, for every row."""
    names = table.column_names
    known = [name for name in names if {f"{name}_low", f"{name}_high"} <= {*names}]
    if not known or column not in (None, *known):
        raise RecipeError(
            f"a plot is of a column with an interval; the answer has {', '.join(known) or 'none'}"
        )
    chosen = column or known[0]
    drawn = divide_rows(table, chosen, most=MOST_POINTS, apart=ax is None)
    ends = find_axis([each for group in drawn for each in group.rows])
    count = sum(len(group.rows) for group in drawn)
    more = f", {count} of {table.num_rows:,} rows" if table.num_rows > count else ""
    names = [" · ".join(filter(None, (chosen, group.name))) for group in drawn]
    panels = [
        Panel(name=name + more, points=list_points(group.rows), ordered=group.ordered, ends=ends)
        for name, group in zip(names, drawn, strict=True)
    ]
    return draw_plot(title, panels, ax=ax)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRows:
    """Values of an answer that are drawn together; `ordered` if they follow an order, as months do."""

    name: str
    rows: list[Interval]
    ordered: bool


def divide_rows(table: pa.Table, column: str, *, most: int, apart: bool = True) -> list[DrawnRows]:
    """Returns the values of `column` as they are drawn, `most` of them together.

    Where rows have two keys, those of one value are a group of their own if that makes few groups: of the key
    that has no order, else of the one with fewer values. With `apart` false all are one group.
    """
    names = table.column_names
    measured = {name for name in names if {f"{name}_low", f"{name}_high"} <= {*names}}
    ends = {f"{name}{end}" for name in measured for end in ("_low", "_high")}
    keys = [name for name in names if name not in {*measured, *ends}]
    kinds = {name: str(table.schema.field(name).type).startswith(_ORDERED) for name in keys}
    split = None
    if apart and len(keys) == 2:
        counts = {name: len(table[name].unique()) for name in keys}
        few = [name for name in keys if counts[name] <= min(_MOST_PANELS, table.num_rows - 1)]
        split = min(few, key=lambda name: (kinds[name], counts[name]), default=None)
    groups: dict[object, list[dict[str, Any]]] = {}
    for row in table.slice(0, most * (1 if split is None else _MOST_PANELS)).to_pylist():
        shown = groups.setdefault(row[split] if split else None, [])
        if len(shown) < most and None not in (row[column], row[f"{column}_low"], row[f"{column}_high"]):
            shown.append(row)
    shared = [name for name in keys if name != split]
    return [
        DrawnRows(
            name=f"{split} {value}" if split else "",
            rows=[
                Interval(
                    label=" · ".join(str(row[key]).removesuffix(" 00:00:00") for key in shared) or column,
                    value=float(row[column]),
                    low=float(row[f"{column}_low"]),
                    high=float(row[f"{column}_high"]),
                )
                for row in rows
            ],
            # Rows that were sorted by anything else are no line.
            ordered=len(shared) == 1
            and len(rows) > 2
            and _rise([row[shared[0]] for row in rows], numbers=kinds[shared[0]]),
        )
        for value, rows in groups.items()
    ]


def _rise(values: list[Any], *, numbers: bool) -> bool:
    """Whether every value is above the one before; of texts, whether they are bins that do."""
    if not numbers:
        found = [re.match(r"\[(-?[\d.e+-]+), .*[)\]]$", str(each)) for each in values]
        values = [float(each[1]) for each in found if each]
        numbers = len(values) == len(found)
    return numbers and all(one < other for one, other in pairwise(values))


def list_points(rows: Sequence[Interval]) -> list[Point]:
    """Returns the same values for the charts whose intervals reach as far up as down: as far as the wider."""
    return [
        Point(
            label=each.label,
            values=(each.value,),
            halves=(max(each.high - each.value, each.value - each.low),),
        )
        for each in rows
    ]


def find_ends(points: Sequence[Point]) -> tuple[float, float] | None:
    """Returns the ends of an axis from zero; None if something lies below it."""
    highs = [point.values[0] + point.halves[0] for point in points]
    if not points or min(point.values[0] - point.halves[0] for point in points) < -0.05 * max(highs):
        return None
    return 0.0, round_limit(max(highs))


def draw_panel(panel: Panel) -> Markup:
    """Returns the chart of a panel alone."""
    draw = draw_shape if panel.ordered else draw_intervals
    return draw(panel.points, panel.name, ends=panel.ends)


def _draw_file(title: str, panels: Sequence[Panel]) -> str:
    parts, wide, top, bottom = [], min(len(panels), 2), 60.0, 60.0
    for place, panel in enumerate(panels):
        if place % wide == 0:
            top = bottom
        draw = draw_panel(panel)
        found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', draw)
        assert found is not None
        high = _WIDE * float(found[2]) / float(found[1])
        left = _GAP + place % wide * (_WIDE + _GAP)
        placed = f'<svg x="{left}" y="{top + 18:.0f}" width="{_WIDE}" height="{high:.0f}" '
        parts += [
            write(left, top + 4, clip_text(panel.name, 60), size=13),
            Markup(str(draw).replace("<svg ", placed, 1)),
        ]
        bottom = max(bottom, top + high + 44)
    said = "; ".join(f"{each.name}: {len(each.points)} values with their 95 % intervals" for each in panels)
    width = wide * (_WIDE + _GAP) + _GAP
    return draw_file(width, math.ceil(bottom), *parts, title=title, description=said, sheet=_SHEET)
