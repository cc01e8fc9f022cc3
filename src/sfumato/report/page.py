"""The page: head, title, key figures, contents and sections, as one file without any request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.report.axes import choose_axes
from sfumato.report.estimates import matches
from sfumato.report.facts import read_facts
from sfumato.report.html import Html, clip_text, paragraph, raw, tag
from sfumato.report.numbers import percent, spread, whole
from sfumato.report.posterior import RARITIES, posterior_bounds
from sfumato.report.sections import SECTIONS
from sfumato.report.sections.privacy import describe_total
from sfumato.report.story import Story, read_comparisons, read_maps
from sfumato.report.style import build_style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sfumato.accounting import BudgetReport
    from sfumato.report.facts import Facts

INTERNAL = "INTERNAL"
_LARGEST = 900_000
_NOTICE = "INTERNAL: compares with the truth, is not private, do not publish"


def build_report(
    folder: Path | str,
    *,
    ledger: BudgetReport | None = None,
    comparison: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    maps: Mapping[str, Any] | None = None,
    place: str | None = None,
    time: str | None = None,
) -> bytes:
    """The report on the release in `folder`: one HTML file, the same bytes for the same input.

    `ledger` adds all charges and what is left. `comparison` (one record, or a list of
    {"epsilon": ..., "comparison": ...}) and `maps` ({"truth": counts by place and time}) come from the
    truth; with either, every part of the report is marked internal. `place` and `time` name columns.

    Privacy: without `comparison` and `maps` it is made of the release, its certificate and the ledger
    alone, so it costs nothing.
    """
    facts = read_facts(folder)
    axes = choose_axes(facts, place=place, time=time)
    story = Story(
        facts=facts,
        axes=axes,
        ledger=ledger,
        comparisons=read_comparisons(comparison),
        true_map=read_maps(maps, axes),
    )
    page = _build_page(story).encode("utf-8", "replace")
    if len(page) > _LARGEST:
        page = _build_page(replace(story, terse=True)).encode("utf-8", "replace")
    return page


def _build_page(story: Story) -> str:
    facts = story.facts
    title = f"{facts.source}: {_tell_kind(facts)}"
    sections: list[Html] = []
    contents: list[Html] = []
    for name, heading, tell in SECTIONS:
        body = tell(story)
        if body is None:
            continue
        number = str(len(sections) + 1)
        mark = tag("span", INTERNAL, class_="mark") if story.internal else None
        head = tag("h2", tag("span", number, class_="no"), heading, mark, id=name)
        sections.append(tag("section", head, body, aria_labelledby=name))
        contents.append(tag("li", tag("a", tag("span", number, class_="no"), heading, href=f"#{name}")))
    toc = tag("nav", tag("ol", *contents), class_="toc", aria_label="Contents")
    shown = f"{INTERNAL}: {title}" if story.internal else title
    bar, foot = None, None
    if story.internal:
        bar = tag("div", _NOTICE, class_="internal-bar", role="note")
        foot = tag("div", INTERNAL, class_="internal-foot", aria_hidden="true")
    body = tag(
        "body",
        tag("a", "to the report", href="#main", class_="skip"),
        bar,
        tag(
            "div",
            _build_header(story, title),
            toc,
            tag("main", *sections, id="main"),
            _build_footer(story),
            class_="page",
        ),
        foot,
    )
    page = tag("html", _build_head(shown, internal=story.internal), body, lang="en")
    return f"<!doctype html>\n{page}\n"


def _build_head(title: str, *, internal: bool) -> Html:
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="robots", content="noindex") if internal else None,
        tag("title", clip_text(title, 120)),
        tag("style", raw(build_style(internal=internal))),
    )


def _build_header(story: Story, title: str) -> Html:
    facts = story.facts
    kicker = (
        f"Internal report on a private release · {facts.name}"
        if story.internal
        else f"Report on a private release · {facts.name}"
    )
    figures = [
        tag("div", tag("b", value), tag("span", told), class_="figure") for value, told in _key_figures(facts)
    ]
    return tag(
        "header",
        paragraph(clip_text(kicker, 120), class_="kicker"),
        tag("h1", clip_text(title, 120)),
        tag("div", *figures, class_="figures"),
        *(
            paragraph(tag("b", "Note: "), clip_text(note, 400), ".", class_="warn strong")
            for note in facts.notes
        ),
    )


def _key_figures(facts: Facts) -> list[tuple[str, str]]:
    what = "noisy counts" if facts.weight is not None else "synthetic rows"
    several = " at all epsilons" if facts.best else ""
    figures = [(whole(facts.table.num_rows), f"{what}{several}")]
    total, _, at = describe_total(facts).partition(" at ")
    figures.append((total, f"total privacy loss at {at}" if at else "total privacy loss, pure"))
    rarity = None if facts.total.is_pure else RARITIES[1]
    _, high = posterior_bounds(facts.total, 0.5, rarity=rarity)
    rare = "" if rarity is None else ", on evidence of 1 in 1,000"
    about = (
        "about one individual"
        if facts.unit.get("neighbours") == "replace"
        else "in one individual's presence"
    )
    told = f"at most: belief {about} after the release, if it was 50 % before{rare}"
    figures.append((percent(high), told))
    halves = sorted(
        {each.half for each in facts.measured if each.about != "choice" and matches(each, facts.best)}
    )
    if halves:
        heads = all(each.about == "individuals" for each in facts.measured if each.about != "choice")
        told = f"{'individuals' if heads else 'records'}: 95 % of the noise in one measured value"
        text = (
            spread(halves[0])
            if halves[0] == halves[-1]
            else f"{spread(halves[0])} to {spread(halves[-1]).removeprefix('±')}"
        )
        figures.append((text, told + (f", at epsilon {facts.best}" if facts.best else "")))
    return figures


def _tell_kind(facts: Facts) -> str:
    names = [field.name for field in facts.shown]
    if facts.weight is None:
        return f"synthetic rows of {len(names):,} columns" if len(names) != 1 else f"synthetic {names[0]}"
    if not names:
        return "private counts"
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"private counts by {joined}"


def _build_footer(story: Story) -> Html:
    made = (
        "It compares with the private records: it is not private itself and must not be published."
        if story.internal
        else "It was made of the released files alone: reading and sharing it costs no privacy."
    )
    return tag(
        "footer",
        paragraph(
            "Made by sfumato from the release ", tag("code", clip_text(story.facts.name, 60)), f". {made}"
        ),
    )
