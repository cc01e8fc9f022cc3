"""One offline HTML report on a release: what it is made of, and what else was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core.errors import RecipeError
from sfumato.report.explain.posterior import RARITIES, posterior_bounds
from sfumato.report.facts import Facts, judge_signal, matches, read_epsilon, read_facts
from sfumato.report.fields import Axes, Field, choose_axes
from sfumato.report.geography import AreaMap, Geography, count_matches, place_areas
from sfumato.report.pages.render import render_page
from sfumato.report.sections import SECTIONS, describe_total
from sfumato.report.truth import JudgedRelease, ReportInput, read_true_counts

if TYPE_CHECKING:
    from sfumato.core.ledger.report import BudgetReport


_LARGEST = 900_000  # bytes; a larger page is drawn again in fewer words, to stay below a megabyte


def build_report(
    folder: Path | str,
    *,
    ledger: BudgetReport | None = None,
    comparison: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    maps: Mapping[str, Any] | None = None,
    place: str | None = None,
    time: str | None = None,
    geography: Geography | None = None,
    key: str | None = None,
) -> bytes:
    """Returns the report on the release in `folder`: one HTML file, the same bytes for the same input.

    `ledger` adds all charges and what is left. `comparison` (one record, or a list of
    {"epsilon": ..., "comparison": ...}) and `maps` (exact counts as `read_true_counts` takes them) come
    from the truth; with either, every part of the report is marked internal. `place` and `time` name
    columns. Places are drawn on the areas of `geography`, whose property `key` has their names.

    Privacy: without `comparison` and `maps` it is made of the release, its certificate and the ledger
    alone, so it costs nothing.
    """
    facts = read_facts(folder)
    axes = find_axes(facts, place=place, time=time, geography=geography)
    given = ReportInput(
        facts=facts,
        axes=axes,
        ledger=ledger,
        comparisons=_read_comparisons(comparison),
        true=read_true_counts(maps, facts, axes),
        area_map=None if geography is None else place_on_map(geography, axes, key=key),
    )
    page = _build_page(given)
    return page if len(page) <= _LARGEST else _build_page(replace(given, terse=True))


def find_axes(
    facts: Facts, *, place: str | None = None, time: str | None = None, geography: Geography | None = None
) -> Axes:
    """Chooses the columns drawn as places and time; of a map, the one that names most areas."""
    axes = choose_axes(facts.shown, place=place, time=time)
    if geography is None or place is not None:
        return axes
    matches_of = {field.name: count_matches(geography, _texts(field)) for field in facts.shown}
    best = max(facts.shown, key=lambda field: matches_of[field.name], default=None)
    return axes if best is None or not matches_of[best.name] else replace(axes, place=best)


def place_on_map(geography: Geography, axes: Axes, *, key: str | None = None) -> AreaMap:
    """Returns the areas of the map, with the released labels that they stand for."""
    if axes.place is None:
        raise RecipeError(
            "the release has no described column of places to draw on a map; name it with --place"
        )
    values = [str(each[0]) for each in axes.place.keys if len(each) == 1]
    return place_areas(geography, axes.place.labels, column=axes.place.name, key=key, values=values)


def _texts(field: Field) -> list[str]:
    return [*field.labels, *(str(each[0]) for each in field.keys if len(each) == 1)]


def _build_page(given: ReportInput) -> bytes:
    facts = given.facts
    sections = [
        {"name": name, "heading": heading, "template": f"report/{name}.html", "record": record}
        for name, heading, describe in SECTIONS
        if (record := describe(given)) is not None
    ]
    return render_page(
        "report/page.html",
        title=f"{facts.source}: {_name_kind(facts)}",
        internal=given.internal,
        notice="compares with the truth, is not private, do not publish",
        printed="compares with the truth",
        sections=sections,
        facts=facts,
        total=describe_total(facts),
        key=_describe_key(facts),
    )


def _describe_key(facts: Facts) -> dict[str, Any]:
    """Returns what the key figures are made of."""
    noisy = [each for each in facts.measured if each.about != "choice"]
    halves = [each.half for each in noisy if matches(each, facts.best)]
    rarity = None if facts.total.is_pure else RARITIES[1]
    return {
        "replaced": facts.unit["neighbours"] == "replace",
        "belief": posterior_bounds(facts.total, 0.5, rarity=rarity)[1],
        "individuals": all(each.about == "individuals" for each in noisy),
        "least": min(halves, default=None),
        "most": max(halves, default=None),
        "signal": judge_signal(facts),
    }


def _name_kind(facts: Facts) -> str:
    names = [field.name for field in facts.shown]
    if facts.weight is None:
        return f"synthetic rows of {len(names):,} columns" if len(names) != 1 else f"synthetic {names[0]}"
    if not names:
        return "private counts"
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"private counts by {joined}"


def _read_comparisons(
    given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
) -> tuple[JudgedRelease, ...]:
    """Gives the comparisons that were given: one record, or one per epsilon; the best epsilon comes last."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return (JudgedRelease(epsilon=None, record=given),)
    read = []
    for entry in given:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("comparison"), Mapping):
            raise RecipeError("a list of comparisons holds {'epsilon': ..., 'comparison': {...}} entries")
        read.append(JudgedRelease(epsilon=str(entry.get("epsilon")), record=entry["comparison"]))
    return tuple(sorted(read, key=lambda each: read_epsilon(each.epsilon or "")))
