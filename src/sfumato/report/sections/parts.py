"""Parts that several sections share: tables in a box of their own, lists of names, fact sheets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.report.html import Html, clip_text, join, tag
from sfumato.report.numbers import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def code(text: object, most: int = 60) -> Html:
    """`text` as it would be typed."""
    return tag("code", clip_text(text, most))


def listed(names: Iterable[object], *, most: int = 12) -> Html:
    """Names as typed, with commas, the last joined by `and`; of very many, the first ones."""
    held = list(names)
    most = len(held) if len(held) <= most + 3 else most
    shown = [code(name) for name in held[:most]]
    if len(held) > most:
        return join(*shown, Html(f"{len(held) - most:,} more"), between=", ")
    if len(shown) < 2:
        return join(*shown)
    return join(join(*shown[:-1], between=", "), " and ", shown[-1])


def name_columns(columns: Iterable[str]) -> str:
    """The columns of a marginal in one line."""
    return f" {TIMES} ".join(clip_text(name, 40) for name in columns)


def plural(number: float, word: str, many: str = "") -> str:
    """`number` with its noun.

    >>> plural(1, "row"), plural(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{round(number):,} {word if round(number) == 1 else many or word + 's'}"


def fact_sheet(rows: Iterable[tuple[str, object]]) -> Html:
    """A table of two columns: what, and what is so."""
    lines = [
        tag("tr", tag("th", name, scope="row"), tag("td", told)) for name, told in rows if told is not None
    ]
    return tag("table", tag("tbody", *lines), class_="facts")


def scroll_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Sequence[int] = (),
    marked: Sequence[int] = (),
    long: int | None = None,
    label: str,
) -> Html:
    """A table that scrolls inside its own box.

    `numbers` are the columns set right, `long` is one with much text, and `marked` rows stand out.
    """
    top = tag(
        "tr",
        *(
            tag("th", head, scope="col", class_="num" if at in numbers else None)
            for at, head in enumerate(heads)
        ),
    )
    lines = []
    for turn, row in enumerate(rows):
        cells = [
            tag(
                "th" if at == 0 else "td",
                cell,
                scope="row" if at == 0 else None,
                class_="num" if at in numbers else "long" if at == long else None,
            )
            for at, cell in enumerate(row)
        ]
        lines.append(tag("tr", *cells, class_="mine" if turn in marked else None))
    table = tag("table", tag("thead", top), tag("tbody", *lines))
    return tag("div", table, class_="scroll", role="region", aria_label=label, tabindex="0")


def figure(drawing: Html, *caption: object, class_: str = "chart") -> Html:
    """A picture with what it shows."""
    return tag("figure", drawing, tag("figcaption", *caption) if caption else None, class_=class_)
