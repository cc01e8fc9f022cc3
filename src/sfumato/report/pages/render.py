"""Templates filled in: one environment that escapes everything, with number formats as filters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from sfumato.core.exact import format_exact
from sfumato.report.pages.charts import draw_scale
from sfumato.report.pages.svg import STEPS, as_markup, colour_rules, element
from sfumato.report.pages.words import FILTERS, clip_text

if TYPE_CHECKING:
    from jinja2 import Environment

INTERNAL = "INTERNAL"
"""What marks every part of a page that must not be published."""
_FRAME = "width:100%;height:48em;border:1px solid rgba(138,150,147,.4)"


class Page(bytes):
    """An HTML page, the bytes of its file. A notebook shows it in a frame of its own."""

    def __repr__(self) -> str:
        return f"Page({len(self):,} bytes of HTML)"

    def _repr_html_(self) -> str:
        frame = element("iframe", " ", srcdoc=self.decode(), sandbox="allow-scripts", style=_FRAME)
        return str(frame)


def render_page(template: str, **values: object) -> Page:
    """Returns the page that `template` gives with `values`: the same bytes for the same input.

    >>> render_page("base.html", title="a < b", internal=False, sections=[])[:15]
    b'<!doctype html>'
    """
    return Page(_environment().get_template(template).render(values).encode("utf-8", "replace"))


def render_text(template: str, **values: object) -> str:
    """Returns the lines that a template of plain text gives with `values`."""
    plain = _environment().overlay(autoescape=False, finalize=None)  # markup means nothing on a terminal
    return plain.get_template(template).render(values).rstrip("\n")


@cache
def _environment() -> Environment:
    # Imported here, because commands that draw no page need not wait for it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("sfumato.report.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=as_markup,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {each.__name__: each for each in FILTERS}
    environment.filters |= {
        "clip": clip_text,
        "code": _show_code,
        "codes": _list_codes,
        "exact": format_exact,
        "moment": _show_moment,
        "name_cells": _name_cells,
        "sentence": _sentence,
    }
    environment.globals |= {
        "INTERNAL": INTERNAL,
        "STEPS": STEPS,
        "colour_rules": lambda mode: Markup(colour_rules(mode)),
        "draw_scale": draw_scale,
    }
    return environment


def _show_code(text: object, most: int = 60) -> Markup:
    """Returns `text` as it would be typed."""
    return element("code", clip_text(text, most))


def _list_codes(names: Iterable[object], most: int = 12) -> Markup:
    """Returns names as typed, with commas, the last joined by `and`; of very many, the first ones.

    >>> _list_codes("abc")
    Markup('<code>a</code>, <code>b</code> and <code>c</code>')
    """
    given = list(names)
    most = len(given) if len(given) <= most + 3 else most
    shown = [_show_code(name) for name in given[:most]]
    if len(given) > most:
        return Markup(", ").join([*shown, f"{len(given) - most:,} more"])
    return Markup(" and ").join([Markup(", ").join(shown[:-1]), *shown[-1:]] if len(shown) > 1 else shown)


def _show_moment(recorded: object) -> str:
    """Returns the time of a ledger's entry to the second, as it is recorded."""
    return str(recorded).partition(".")[0].partition("+")[0].replace("T", " ") + " UTC"


def _name_cells(rows: Markup, heads: Sequence[str]) -> Markup:
    r"""Writes the head of its column on every cell, for screens where cells are stacked.

    >>> _name_cells(Markup("<tr><th>a</th><td class='num'>1</td></tr>"), ["name", "count"])
    Markup('<tr><th data-head="name">a</th><td data-head="count" class=\'num\'>1</td></tr>')
    """
    names = cycle(escape(head) for head in heads)
    # What people wrote is escaped in these rows, so every cell that opens is one of ours.
    return Markup(re.sub(r"<(t[dh])\b", lambda found: f'{found[0]} data-head="{next(names)}"', str(rows)))


def _sentence(text: str) -> str:
    """Returns `text` with a capital letter and a full stop."""
    stop = "" if text.endswith((".", "…", "?", "!")) else "."
    return f"{text[:1].upper()}{text[1:]}{stop}"
