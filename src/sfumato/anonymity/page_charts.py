"""Charts that set the released table beside the original one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.report.charts import picture
from sfumato.report.html import Html, clip_text, tag
from sfumato.report.numbers import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _BASE, _TALL = 340, 128, 96


def draw_pairs(labels: Sequence[str], before: Sequence[float], after: Sequence[float], told: str) -> Html:
    """Two columns for every label, shares of one before and after, with the larger share written above.

    >>> draw_pairs(["1", "2"], [1.0, 0.0], [0.0, 1.0], "classes").count("<rect")
    6
    """
    top = max([*before, *after, 1e-9])
    step = _WIDTH / len(labels)
    wide = step * 0.36
    parts: list[Html] = []
    for place, (label, *shares) in enumerate(zip(labels, before, after, strict=True)):
        left = place * step + step * 0.12
        for turn, share in enumerate(shares):
            high = max(share / top * _TALL, 0.6)
            said = f"{label}: {percent(share)} of the records {'after' if turn else 'before'}"
            parts.append(
                tag(
                    "rect",
                    tag("title", said),
                    x=left + turn * wide,
                    y=_BASE - high,
                    width=wide - 1,
                    height=high,
                    class_="column" if turn else "column n",
                )
            )
        middle = place * step + step / 2
        largest = max(shares)
        if largest:
            parts.append(
                _write(middle, _BASE - largest / top * _TALL - 4, percent(largest), size=8, soft=True)
            )
        parts.append(_write(middle, _BASE + 14, label, size=8))
    axis = tag("line", x1=0, y1=_BASE, x2=_WIDTH, y2=_BASE, class_="axis")
    key = [
        tag("rect", x=0, y=1, width=9, height=9, class_="column n"),
        _write(13, 9, "original table", size=10, at="start"),
        tag("rect", x=96, y=1, width=9, height=9, class_="column"),
        _write(109, 9, "released table", size=10, at="start"),
    ]
    below = _write(_WIDTH / 2, _BASE + 29, "records in the class", size=10, soft=True)
    return picture(_WIDTH, _BASE + 34, told, *key, *parts, axis, below)


def list_pairs(rows: Sequence[tuple[str, float, float]]) -> Html:
    """A table of labelled bars as long as the shares before are large, with the share after beside each.

    >>> list_pairs([("age", 0.5, 0.0)]).count("<td")
    4
    """
    top = max([before for _, before, _ in rows], default=0) or 1
    lines = [
        tag(
            "tr",
            tag("th", clip_text(label, 80), scope="row"),
            tag("td", tag("span", class_="bar", style=f"width:{100 * before / top:.1f}%")),
            tag("td", percent(before), class_="num"),
            tag("td", percent(after), class_="num"),
        )
        for label, before, after in rows
    ]
    heads = tag(
        "tr",
        tag("th", "columns", scope="col"),
        tag("td"),
        tag("th", "before", scope="col", class_="num"),
        tag("th", "after", scope="col", class_="num"),
    )
    # The widths of the style sheet are for bars with one number; here are two.
    widths = tag(
        "colgroup", *(tag("col", style=f"width:{each}") for each in ("42%", "auto", "3.9rem", "3.7rem"))
    )
    return tag("table", widths, tag("thead", heads), tag("tbody", *lines), class_="bars wrap list")


def _write(x: float, y: float, words: str, *, size: int, at: str = "middle", soft: bool = False) -> Html:
    return tag("text", words, x=x, y=y, text_anchor=at, font_size=size, class_="q" if soft else None)
