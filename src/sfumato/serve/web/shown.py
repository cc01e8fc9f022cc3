"""Answers as pages show them: rows with their intervals, and charts of what was measured."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from sfumato.report.pages.answers import draw_intervals_of, draw_meter, find_axis
from sfumato.report.pages.charts import draw_shape
from sfumato.report.pages.plot import DrawnRows, divide_rows, list_points
from sfumato.report.pages.words import clip_text, short
from sfumato.serve.web.exchange import list_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from markupsafe import Markup

    from sfumato.serve.purchase import Reply

MOST_SHOWN = 500  # rows on a page; the file has all
MOST_DRAWN = 40  # values in a chart that still has room for labels
MOST_CHARTS = 4


def describe_table(table: pa.Table) -> dict[str, Any]:
    """Gives a table of answers for a page: the first rows, with intervals beside their values, and charts."""
    names = table.column_names
    measured = [name for name in names if f"{name}_low" in names and f"{name}_high" in names]
    ends = {f"{name}{end}" for name in measured for end in ("_low", "_high")}
    rows = list_rows(table.select([name for name in names if name not in ends]), most=MOST_SHOWN)
    spans = {
        name: list_rows(table.select([f"{name}_low", f"{name}_high"]), most=MOST_SHOWN) for name in measured
    }
    drawn = {name: divide_rows(table, name, most=MOST_DRAWN) for name in measured[:MOST_CHARTS]}
    charts = [
        (name, group.name, _draw_group(group, name, axis))
        for name, groups in drawn.items()
        for axis in [find_axis([each for group in groups for each in group.rows])]
        for group in groups
        if group.rows
    ]
    fewest = min((sum(len(group.rows) for group in groups) for groups in drawn.values()), default=0)
    shown = [name for name in names if name not in ends]
    heads: list[str] = []
    for name in shown:
        heads += [name, "95 % interval"] if name in measured else [name]
    numeric = {name for name in shown if _is_number(table.schema.field(name).type)}
    right = {*measured, "95 % interval"} if measured else numeric
    keys = [name for name in shown if name not in measured]
    return {
        "title": clip_text(" by ".join(filter(None, (", ".join(measured), ", ".join(keys)))), 80),
        "heads": heads,
        "measured": measured,
        "numbers": [place for place, name in enumerate(heads) if name in right],
        "rows": [
            [
                (value, spans[name][line] if name in spans else None)
                for name, value in zip(shown, row, strict=True)
            ]
            for line, row in enumerate(rows)
        ],
        "more": table.num_rows - len(rows),
        "charts": charts,
        "undrawn": table.num_rows - fewest,
    }


def _draw_group(group: DrawnRows, name: str, axis: tuple[float, float]) -> Markup:
    label = f"{name}{group.name and ' where '}{clip_text(group.name)} with its 95 % intervals"
    if group.ordered:
        return draw_shape(list_points(group.rows), label, ends=axis)
    return draw_intervals_of(group.rows, label, ends=axis)


def _is_number(kind: object) -> bool:
    return str(kind).startswith(("int", "uint", "double", "float", "decimal"))


def digest_text(text: str) -> str:
    """Returns what says that a text was seen with its price."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def draw_budget(budget: dict[str, Any], price: float) -> object:
    """Draws what somebody may spend, what they spent, and what a `price` would add."""
    share = budget.get("share")
    total, spent = ((share or budget)[key] for key in ("total", "spent"))
    label = f"epsilon {short(spent)} of {short(total)} is spent"
    return draw_meter(total, spent, price, f"{label}, {short(price)} would be added" if price else label)


def describe_reply(reply: Reply) -> dict[str, Any]:
    """Returns an answer for its page: the table, and a chart of every value with an interval."""
    table = reply.table
    return {
        "spent": reply.spent,
        "left": reply.left,
        "repeated": reply.repeated,
        "notes": reply.notes,
        **describe_table(table),
    }
