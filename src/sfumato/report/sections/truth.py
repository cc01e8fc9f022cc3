"""Against the truth: references, the sampling ladder, classifiers, groups and associations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.report.charts import draw_ladder
from sfumato.report.html import Html, clip_text, join, paragraph, tag
from sfumato.report.numbers import percent, short, signed, whole
from sfumato.report.palette import round_limit
from sfumato.report.sections.parts import figure, name_columns, scroll_table
from sfumato.report.tiles import draw_matrix, draw_scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.report.story import Comparison, Story

_MOST_GROUPS = 15
_MOST_PAIRS = 10
_OWN = "this release"


def tell_truth(story: Story) -> Html | None:
    """What only the truth can tell, in full for the largest epsilon; None without the truth."""
    if not story.comparisons:
        return None
    best = story.comparisons[-1]
    bound = story.facts.unit.get("max_records", 1)
    beyond = (
        ""
        if bound == 1
        else f" It holds all records, also those beyond {bound} of one individual, which the release "
        "does not fully count."
    )
    clipped = " The released counts are compared as they are, clipped at zero." if story.facts.weight else ""
    told = paragraph(f"The truth is the table that was given with the release.{beyond}{clipped}")
    return join(
        told,
        _tell_epsilons(story) if len(story.comparisons) > 1 else None,
        tag("h3", f"At epsilon {best.epsilon}") if best.epsilon else None,
        _tell_one(best),
    )


def _tell_epsilons(story: Story) -> Html:
    rows = []
    for comparison in reversed(story.comparisons):
        record = comparison.record
        ladder, propensity = record.get("ladder") or {}, record.get("propensity") or {}
        share = ladder.get("share")
        rows.append(
            (
                f"epsilon {comparison.epsilon}",
                whole((record.get("rows") or {}).get("release", 0)),
                short(ladder.get("release")),
                "below the ladder" if share is None else percent(float(share)),
                short(propensity.get("auc")),
            )
        )
    return scroll_table(
        ("release", "records", "mean distance of pairs", "like a sample of", "propensity AUC"),
        rows,
        numbers=(1, 2, 3, 4),
        label="all epsilons",
    )


def _tell_one(comparison: Comparison) -> Html:
    record = comparison.record
    rows = record.get("rows") or {}
    told = paragraph(
        "Records in the truth: ",
        tag("b", whole(rows.get("truth", 0))),
        "; in the release: ",
        tag("b", whole(rows.get("release", 0))),
        ".",
    )
    return join(
        told,
        tag(
            "div",
            _draw_ladder(record),
            tag("div", _tell_references(record), _tell_propensity(record)),
            class_="pair",
        ),
        _tell_downstream(record),
        _tell_groups(record),
        _tell_associations(record),
    )


def _draw_ladder(record: Mapping[str, Any]) -> Html | None:
    ladder = record.get("ladder") or {}
    rungs = [(float(each["share"]), float(each["tvd"])) for each in ladder.get("rungs") or ()]
    if len(rungs) < 2 or ladder.get("release") is None:
        return None
    share = ladder.get("share")
    like = (
        f"The release is as close as a plain sample of {percent(float(share))} of the individuals."
        if share is not None
        else f"The release is farther off than a plain sample of {percent(rungs[0][0])} of the individuals."
    )
    return figure(
        draw_ladder(
            rungs, float(ladder["release"]), "mean distance of samples of the truth, and of the release"
        ),
        "Sampling ladder: the mean distance of pairs of columns if a share of the individuals were "
        "published as they are. ",
        tag("b", like),
    )


def _tell_references(record: Mapping[str, Any]) -> Html | None:
    references = list(record.get("references") or ())
    marginals = record.get("marginals") or {}
    if not references:
        return None
    rows = [_reference_row(each) for each in references]
    if not any(each["name"] == _OWN for each in references):
        own = {f"tvd{size}": (marginals.get(str(size)) or {}).get("mean") for size in (1, 2, 3)}
        rows.insert(0, _reference_row({"name": _OWN, **own}))
    marked = [turn for turn, row in enumerate(rows) if row[0] == _OWN]
    return join(
        tag(
            "p",
            tag("b", "References"),
            ": mean distance of marginals of 1, 2 and 3 columns",
            style="margin-bottom:.3rem",
        ),
        scroll_table(("table", "1", "2", "3"), rows, numbers=(1, 2, 3), marked=marked, label="references"),
    )


def _reference_row(record: Mapping[str, Any]) -> tuple[str, ...]:
    return clip_text(record["name"], 50), *(short(record.get(f"tvd{size}")) for size in (1, 2, 3))


def _tell_propensity(record: Mapping[str, Any]) -> Html | None:
    told = record.get("propensity")
    if not told:
        return None
    return paragraph(
        tag("b", "Propensity. "),
        "A classifier that has to tell released from true records reaches an AUC of "
        f"{short(told.get('auc'))} (0.5 is chance) and a pMSE of "
        f"{short(told.get('pmse'))}, {short(told.get('ratio'))} times what chance would give "
        f"({short(told.get('expected'))}).",
    )


def _tell_downstream(record: Mapping[str, Any]) -> Html | None:
    rows = [
        (
            clip_text(each["target"], 40),
            *(percent(each.get(key)) for key in ("trained_on_release", "trained_on_truth", "majority")),
        )
        for each in record.get("downstream") or ()
    ]
    if not rows:
        return None
    return join(
        tag("h3", "Learning from the release"),
        paragraph(
            "A classifier is trained on the release and tested on records of the truth that it has not "
            "seen; beside it one that was trained on the truth, and the commonest value."
        ),
        scroll_table(
            ("column to tell", "trained on the release", "trained on the truth", "commonest value"),
            rows,
            numbers=(1, 2, 3),
            label="downstream accuracy",
        ),
    )


def _tell_groups(record: Mapping[str, Any]) -> Html | None:
    groups = sorted(
        record.get("groups") or (),
        key=lambda each: (-float(each["tvd"]), str(each["column"]), str(each["value"])),
    )
    rows = [
        (
            f"{clip_text(each['column'], 30)}: {clip_text(each['value'], 40)}",
            whole(each["truth"]),
            whole(each["release"]),
            short(float(each["tvd"])),
        )
        for each in groups[:_MOST_GROUPS]
    ]
    if not rows:
        return None
    return join(
        tag("h3", "Groups that are served worst"),
        paragraph(
            "Small groups bear most of the noise. The distance is the mean over the other columns within "
            "the group."
        ),
        scroll_table(("group", "truth", "release", "distance"), rows, numbers=(1, 2, 3), label="groups"),
    )


def _tell_associations(record: Mapping[str, Any]) -> Html | None:
    told = record.get("associations") or {}
    names = [str(name) for name in told.get("columns") or ()]
    if len(names) < 2:
        return None
    truth, release = (np.asarray(told[side], np.float64) for side in ("truth", "release"))
    shown = (
        ("Truth", truth, False),
        ("Release", release, False),
        ("Release less truth", release - truth, True),
    )
    figures = []
    for name, matrix, middle in shown:
        limit = round_limit(float(np.abs(matrix).max())) if middle else 1.0
        drawing = draw_matrix(matrix, names, f"associations, {name.lower()}", limit=limit, middle=middle)
        figures.append(
            tag(
                "figure",
                tag("figcaption", name, style="margin:0 0 .35rem;color:var(--ink)"),
                drawing,
                draw_scale(limit, middle=middle, unit=""),
                class_="chart",
            )
        )
    worst = [
        (
            name_columns(map(str, pair["columns"])),
            short(pair["truth"]),
            short(pair["release"]),
            signed(pair["release"] - pair["truth"]),
        )
        for pair in list(told.get("worst") or ())[:_MOST_PAIRS]
    ]
    return join(
        tag("h3", "Associations of pairs of columns"),
        tag("div", *figures, class_="pair"),
        scroll_table(
            ("pair", "truth", "release", "difference"), worst, numbers=(1, 2, 3), label="associations"
        )
        if worst
        else None,
    )
