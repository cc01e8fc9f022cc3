"""The marginals that are farthest off: measured against the truth, or expected from the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfumato.report.charts import bar_list
from sfumato.report.estimates import count_records, expect_noise
from sfumato.report.html import Html, join, paragraph, tag
from sfumato.report.numbers import percent, short, spread, whole
from sfumato.report.sections.parts import name_columns, plural, scroll_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.report.story import Comparison, Story

_MOST = 20


def tell_marginals(story: Story) -> Html | None:
    """Worst marginals: by distance from the truth if it was given, else by the noise to be expected."""
    expected = _tell_expected(story)
    if not story.comparisons:
        return expected
    told = paragraph(
        "The distance is the total variation between the marginals of truth and release: the share of "
        "records that would have to be "
        "moved to make them equal. 0 is the same, 1 has nothing in common."
    )
    more = join(tag("h3", "What the noise leads one to expect"), expected) if expected else None
    return join(told, _tell_means(story), _tell_distances(story.comparisons[-1]), more)


def _tell_means(story: Story) -> Html:
    rows = []
    for comparison in reversed(story.comparisons):
        marginals = comparison.record.get("marginals") or {}
        at = f", epsilon {comparison.epsilon}" if comparison.epsilon else ""
        for size in ("1", "2", "3"):
            told = marginals.get(size) or {}
            if told.get("count"):
                what = f"{size} {'column' if size == '1' else 'columns'}{at}"
                rows.append((what, whole(told["count"]), short(told.get("mean")), short(told.get("worst"))))
    return scroll_table(
        ("marginals of", "number", "mean distance", "worst"), rows, numbers=(1, 2, 3), label="mean distances"
    )


def _tell_distances(comparison: Comparison) -> Html | None:
    marginals: Mapping[str, Any] = comparison.record.get("marginals") or {}
    ranked = sorted(
        marginals.get("list") or (), key=lambda each: (-float(each["tvd"]), list(map(str, each["columns"])))
    )
    worst = [(name_columns(map(str, each["columns"])), float(each["tvd"])) for each in ranked[:_MOST]]
    counted = max(
        len(ranked), sum(int((marginals.get(size) or {}).get("count", 0)) for size in ("1", "2", "3"))
    )
    if not worst:
        return None
    at = f" at epsilon {comparison.epsilon}" if comparison.epsilon else ""
    caption = f"The {len(worst)} worst of {counted:,}{at}, by distance."
    bars = bar_list(worst, show=short, limit=1.0, wrap=True)
    return tag("figure", bars, tag("figcaption", caption), class_="list")


def _tell_expected(story: Story) -> Html | None:
    facts = story.facts
    found = expect_noise(facts)
    if not found:
        return paragraph(
            "No measurement covers whole marginals, so nothing can be said about their noise beforehand."
        )
    records = max(count_records(facts), 0.0)
    rows = [
        (
            name_columns(each.columns),
            whole(each.answers),
            short(records / each.answers),
            spread(each.half),
            percent(min(each.share, 1.0)) if each.share < 1 else "all",
        )
        for each in found[:_MOST]
    ]
    at = f" All at epsilon {facts.best}." if facts.best else ""
    cut = f" The worst {_MOST} of {plural(len(found), 'marginal')}." if len(found) > _MOST else ""
    what = ""
    if facts.weight is not None:
        what = "Sums of noisy counts add up their noise. "
    elif "model.parquet" in facts.files:
        what = "The model joins all measurements, so rows are mostly closer than that. "
    return join(
        paragraph(
            "How far a marginal is off only the truth could tell; how far to expect it, the noise tells. The "
            f"last column is the share of records that noise alone would seem to move. {what}Where it is "
            "large, "
            f"use fewer columns or coarser ones.{at}{cut}"
        ),
        scroll_table(
            ("marginal", "answers", "records each", "95 % of one", "moved by noise"),
            rows,
            numbers=(1, 2, 3, 4),
            label="expected noise",
        ),
    )
