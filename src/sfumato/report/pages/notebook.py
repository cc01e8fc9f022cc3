"""What notebooks show of a record: one small card, without scripts, whose styles reach nothing else.

Every style is an attribute: a notebook may strip sheets, and a sheet would reach the rest of the page.
Colours are legible on light and dark pages. The stage of a long work is shown without widgets, too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from sfumato.core.cost.budget import describe_costs
from sfumato.report.pages.render import render_page
from sfumato.report.pages.svg import element
from sfumato.report.pages.words import MINUS, NONE, clip_text, plural

if TYPE_CHECKING:
    from sfumato.core.ledger.report import BudgetReport


MOST_ROWS = 20
"""How many rows of a table a card shows."""
_MOST_COLUMNS = 16
_WIDTH, _HEIGHT = 140, 16
_BLUE, _SOFT = "#3f86a6", "#8a9693"


def render_card(
    title: str,
    *,
    facts: Mapping[str, object] | None = None,
    used: float | None = None,
    columns: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (),
    count: int = 0,
    text: str = "",
    notes: Iterable[str] = (),
) -> str:
    """Returns a card as HTML.

    `facts` are names and what they are, `used` the filled part of a bar, from 0 to 1; `rows` are the first of
    `count` rows of a table with `columns`; `text` stands as it is written, `notes` below all.

    >>> "&lt;b&gt;" in render_card("<b>", facts={"left": 1})
    True
    """
    shown = [list(row)[:_MOST_COLUMNS] for row, _ in zip(rows, range(MOST_ROWS), strict=False)]
    return render_page(
        "notebook.html",
        title=title,
        facts=facts or {},
        used=None if used is None else 100 * min(max(used, 0.0), 1.0),
        columns=[clip_text(name, 40) for name in columns[:_MOST_COLUMNS]],
        rows=[[_show(value) for value in row] for row in shown],
        more=_count_more(count - len(shown), len(columns) - _MOST_COLUMNS),
        text=text,
        notes=[note for note in notes if note],
    ).decode()


def render_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    count: int,
    facts: Mapping[str, object] | None = None,
    notes: Iterable[str] = (),
) -> str:
    """Returns a card with a table of `count` rows, of which `rows` are the first.

    Where a column `x` has its interval beside it, in `x_low` and `x_high`, the three are drawn in one.
    """
    places = {name: place for place, name in enumerate(columns)}
    drawn = {
        name: (places[name], places[f"{name}_low"], places[f"{name}_high"])
        for name in columns
        if f"{name}_low" in places and f"{name}_high" in places
    }
    ends = {f"{name}{end}" for name in drawn for end in ("_low", "_high")}
    kept = [name for name in columns if name not in ends]
    shown = list(rows[:MOST_ROWS])
    pictures = {
        name: _draw_intervals([[row[at] for at in where] for row in shown]) for name, where in drawn.items()
    }
    filled = [
        [
            part
            for name in kept
            for part in ((row[places[name]], pictures[name][at]) if name in drawn else (row[places[name]],))
        ]
        for at, row in enumerate(shown)
    ]
    headings = [part for name in kept for part in ((name, "95 %") if name in drawn else (name,))]
    return render_card(title, facts=facts, columns=headings, rows=filled, count=count, notes=notes)


def _count_more(rows: int, columns: int) -> str:
    parts = [plural(number, word) for number, word in ((rows, "row"), (columns, "column")) if number > 0]
    return f"and {' and '.join(parts)} more" if parts else ""


def _show(value: object) -> object:
    if isinstance(value, Markup):
        return value
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:,.6g}".replace("-", MINUS)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}".replace("-", MINUS)
    return clip_text(value, 60)


def _draw_intervals(intervals: Sequence[Sequence[object]]) -> list[Markup]:
    """Returns a picture for each (value, low, high), all on one axis that holds zero."""
    known = [
        [float(each) for each in one if isinstance(each, (int, float)) and math.isfinite(each)]
        for one in intervals
    ]
    ends = [0.0, *(each for one in known if len(one) == 3 for each in one)]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0

    def place(number: float) -> float:
        return round(4 + (number - low) / span * (_WIDTH - 8), 1)

    middle = _HEIGHT / 2
    zero = element("line", x1=place(0), x2=place(0), y1=1, y2=_HEIGHT - 1, stroke=_SOFT, stroke_opacity="0.5")
    pictures = []
    for one in known:
        if len(one) != 3:
            pictures.append(Markup())
            continue
        value, start, end = one
        line = element(
            "line", x1=place(start), x2=place(end), y1=middle, y2=middle, stroke=_BLUE, stroke_width="2"
        )
        dot = element("circle", cx=place(value), cy=middle, r="3.5", fill=_BLUE)
        label = f"from {_show(start)} to {_show(end)}"
        shown = (element("title", label), zero, line, dot)
        pictures.append(element("svg", *shown, width=_WIDTH, height=_HEIGHT, role="img", aria_label=label))
    return pictures


def render_budget(report: BudgetReport) -> str:
    """Returns what is spent and left, and every charge, the last one first."""
    charges = report.to_record()["charges"][::-1]
    return render_card(
        "Budget",
        facts={"spent": f"epsilon {report.spent} of {report.total}", "left": report.describe_left()},
        used=float(report.spent / report.total),
        columns=("entry", "when", "table", "by", "cost"),
        rows=[
            (
                each["sequence"],
                str(each["recorded_at"])[:16].replace("T", " "),
                each["table"],
                each["by"],
                describe_costs(entry.costs, report.budget.delta),
            )
            for entry, each in zip(report.charges[::-1], charges, strict=True)
        ],
        count=len(charges),
    )


@contextmanager
def show_stages(given: Callable[[str], None] | None = None) -> Iterator[Callable[[str], None]]:
    """Yields the function to call with each stage: `given`, or one that shows it in a notebook.

    Stages are named, never measured in records: a row count on a screen is a row count published.

    >>> with show_stages() as stage:
    ...     stage("counting")
    """
    display = _find_display() if given is None else None
    if display is None:
        yield given or (lambda _: None)
        return
    handles: list[Any] = []

    def show(stage: str) -> None:
        bar = "<progress style='vertical-align:middle;width:8em'></progress> " if stage else ""
        content = {"text/html": f"{bar}{escape(stage)}", "text/plain": stage}
        # What cannot be drawn must not stop what is paid for.
        with suppress(Exception):
            if handles:
                handles[0].update(content, raw=True)
            else:
                handles.append(display(content, raw=True, display_id=True))

    try:
        yield show
    finally:
        if handles:
            show("")


def _find_display() -> Callable[..., Any] | None:
    """Returns what shows something in the cell that runs; None outside of a notebook."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    display: Callable[..., Any] = import_module("IPython.display").display
    return display
