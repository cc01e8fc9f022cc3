"""One offline HTML file about a released table, in the look of the project's reports. Internal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.anonymity.check import NOT_DP
from sfumato.anonymity.page_sections import SECTIONS
from sfumato.report.html import Html, clip_text, paragraph, raw, tag
from sfumato.report.numbers import percent, whole
from sfumato.report.style import build_style

if TYPE_CHECKING:
    from sfumato.anonymity.summary import Summary

_NOTICE = "INTERNAL: facts of the original table, do not publish"
_PRINTED = (
    "INTERNAL - compares with the truth - do not publish",
    "INTERNAL - facts of the original table - do not publish",
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def build_page(summary: Summary, *, name: str) -> bytes:
    """The page about the file called `name`: one HTML file without any request, the same for the same input.

    >>> from sfumato.anonymity.anonymize import release_table
    >>> from sfumato.anonymity.options import Options
    >>> from sfumato.anonymity.summary import summarise
    >>> options = Options(quasi_identifiers=["age"], k=2)
    >>> found = summarise(release_table({"age": [61, 72, 40, 35]}, options))
    >>> build_page(found, name="coarse.csv")[:15]
    b'<!doctype html>'
    """
    sections: list[Html] = []
    contents: list[Html] = []
    for key, heading, tell in SECTIONS:
        body = tell(summary)
        if body is None:
            continue
        number = tag("span", str(len(sections) + 1), class_="no")
        mark = tag("span", "INTERNAL", class_="mark")
        head = tag("h2", number, heading, mark, id=key)
        sections.append(tag("section", head, body, aria_labelledby=key))
        contents.append(tag("li", tag("a", number, heading, href=f"#{key}")))
    body = tag(
        "body",
        tag("a", "to the report", href="#main", class_="skip"),
        tag("div", _NOTICE, class_="internal-bar", role="note"),
        tag(
            "div",
            _build_header(summary, name),
            tag("nav", tag("ol", *contents), class_="toc", aria_label="Contents"),
            tag("main", *sections, id="main"),
            _build_footer(name),
            class_="page",
        ),
        tag("div", "INTERNAL", class_="internal-foot", aria_hidden="true"),
    )
    page = tag("html", _build_head(name), body, lang="en")
    return f"<!doctype html>\n{page}\n".encode("utf-8", "replace")


def _build_head(name: str) -> Html:
    style = build_style(internal=True).replace(*_PRINTED)
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="robots", content="noindex"),
        tag("title", clip_text(f"INTERNAL: how anonymous is {name}?", 120)),
        tag("style", raw(style)),
    )


def _build_header(summary: Summary, name: str) -> Html:
    found, before, after = summary.found, summary.before, summary.after
    if summary.options.k_map:
        first = (f"k-map = {found.k_map}", "people of the register at least fit every class")
    else:
        first = (f"k = {found.k}", "records at least look the same, counted in the written file")
    figures = [
        first,
        (
            f"{percent(before.prosecutor.largest)} → {percent(after.prosecutor.largest)}",
            "largest risk to be found, before and after",
        ),
        (percent(summary.loss.ncp), "of the detail of the quasi-identifiers is lost (NCP)"),
        (whole(summary.released), f"of {whole(summary.records)} records released"),
    ]
    boxes = [tag("div", tag("b", value), tag("span", told), class_="figure") for value, told in figures]
    return tag(
        "header",
        paragraph("Internal report on a k-anonymous table", class_="kicker"),
        tag("h1", clip_text(f"{name}: how anonymous it is, and what that cost", 120)),
        paragraph(
            tag("b", f"This is {NOT_DP}. "),
            "Who knows more than the quasi-identifiers may still find people in the file. This page itself "
            "tells facts of the original table and stays inside.",
            class_="warn strong",
        ),
        tag("div", *boxes, class_="figures"),
    )


def _build_footer(name: str) -> Html:
    return tag(
        "footer",
        paragraph(
            "Made by sfumato with the file ",
            tag("code", clip_text(name, 60)),
            ". It tells facts of the original table: it is not private itself and must not be published.",
        ),
    )
