"""The sections of the page about a released table; one without anything to tell is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.anonymity.page_charts import draw_pairs, list_pairs
from sfumato.anonymity.summary import MATCHING, list_models
from sfumato.report.charts import bar_list
from sfumato.report.html import Html, join, paragraph, tag
from sfumato.report.numbers import NONE, percent, short, whole
from sfumato.report.sections.parts import fact_sheet, figure, listed, scroll_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.anonymity.risk import Attacker, Risk
    from sfumato.anonymity.summary import Summary

_POPULATION = {
    "register": "The population is the register.",
    "weights": "The population is estimated by the sums of the survey weights.",
    "table": "No population was given, so the journalist is taken to know who is in the table, too.",
}


def _tell_models(summary: Summary) -> Html:
    plan, found = summary.options, summary.found
    rows = [(name.removesuffix(" ="), asked or NONE, value) for name, value, asked in list_models(summary)]
    by_column = None
    if len(found.by_column) > 1:
        by_column = scroll_table(
            ("sensitive column", "l", "entropy l", "t", "delta"),
            [
                (each.column, f"{each.l}", short(each.entropy_l), short(each.t), short(each.delta_disclosure))
                for each in found.by_column.values()
            ],
            numbers=(1, 2, 3, 4),
            label="Sensitive columns one by one",
        )
    share = percent(summary.suppressed / max(1, summary.records))
    return join(
        paragraph(
            "What was found is counted from the written file, by code that knows nothing of how it was "
            "made. A file that lacks anything that was asked is not handed over."
        ),
        scroll_table(("model", "asked", "found"), rows, label="What was asked and found"),
        by_column,
        fact_sheet(
            [
                ("quasi-identifiers", listed(plan.quasi_identifiers)),
                ("sensitive", listed(plan.sensitive) if plan.sensitive else None),
                ("kept as they are", listed(plan.keep) if plan.keep else None),
                ("method", tag("code", plan.method)),
                ("hierarchies", listed(plan.hierarchies) if plan.hierarchies else "none"),
                ("classes", whole(found.classes)),
                (
                    "left out",
                    f"{whole(summary.suppressed)} records ({share}; allowed {percent(plan.max_suppressed)})",
                ),
                (
                    "cells that are *",
                    f"{percent(summary.suppressed_cells)} (allowed {percent(plan.max_suppressed_cells)})",
                ),
            ]
        ),
        *(paragraph(f"{each[0].upper()}{each[1:]}.", class_="warn") for each in summary.notes),
        paragraph(f"{MATCHING[0].upper()}{MATCHING[1:]}.".replace("`*`", "*"), class_="note"),
    )


def _tell_sizes(summary: Summary) -> Html:
    before, after = summary.before, summary.after

    def shares(risk: Risk) -> list[float]:
        return [each.records / max(1, risk.records) for each in risk.sizes]

    chart = draw_pairs(
        [each.label for each in after.sizes],
        shares(before),
        shares(after),
        "share of the records by the size of their class, in the original and in the released table",
    )
    return join(
        paragraph(
            f"A class is all records that look the same. {percent(before.unique)} of the original records "
            f"were alone in theirs. Now {whole(after.records)} records are in {whole(after.classes)} classes."
        ),
        figure(chart, "Share of the records in classes of each size."),
    )


def _tell_attackers(summary: Summary) -> Html:
    before, after = summary.before, summary.after

    def row(name: str, first: Attacker, second: Attacker) -> tuple[str, ...]:
        pairs = [(getattr(first, key), getattr(second, key)) for key in ("largest", "average", "above")]
        return name, *(f"{percent(old)} → {percent(new)}" for old, new in pairs)

    rows = [
        row("prosecutor", before.prosecutor, after.prosecutor),
        row("journalist", before.journalist, after.journalist),
        ("marketer", NONE, f"{percent(before.marketer)} → {percent(after.marketer)}", NONE),
    ]
    unmatched = None
    if after.unmatched:
        unmatched = paragraph(
            f"{percent(after.unmatched)} of the released records fit nobody in the register. No risk is "
            "given to them there.",
            class_="warn",
        )
    return join(
        paragraph(
            "The prosecutor knows that somebody is in the table. The journalist wants to find anybody, in a "
            "population of which the table is a part. The marketer tries everybody and counts successes. "
            "Each knows the quasi-identifiers exactly and guesses among those who fit. ",
            _POPULATION[after.basis],
        ),
        scroll_table(
            ("attacker", "largest risk", "average risk", f"records above {percent(after.threshold)}"),
            rows,
            numbers=(1, 2, 3),
            label="Risks of three attackers",
        ),
        unmatched,
    )


def _tell_subsets(summary: Summary) -> Html | None:
    if not summary.subsets:
        return None
    rows = [(" + ".join(each.columns), each.unique_before, each.unique_after) for each in summary.subsets]
    return join(
        paragraph(
            "Up to three columns that single out most records: the share of records that are alone with what "
            "they say there. Whoever has a list with names and these columns can find them in the original."
        ),
        list_pairs(rows),
    )


def _tell_loss(summary: Summary) -> Html:
    loss = summary.loss
    rows = sorted(loss.by_column.items(), key=lambda each: -each[1])
    bits = sorted(loss.entropy_by_column.items(), key=lambda each: -each[1])
    return join(
        fact_sheet(
            [
                ("NCP", f"{percent(loss.ncp)} of the detail: 0 % is unchanged, 100 % is * everywhere"),
                ("entropy", f"{percent(loss.entropy)} of the bits that the cells told"),
                ("average class / k", f"{short(loss.average_class)}; 1 is the least that k allows"),
                ("discernibility", f"{whole(loss.discernibility)}, the sum of squared class sizes"),
            ]
        ),
        tag(
            "div",
            figure(bar_list(rows, show=percent), "NCP by column.", class_="list"),
            figure(bar_list(bits, show=percent), "Entropy lost by column.", class_="list"),
            class_="pair",
        ),
    )


def _tell_accuracy(summary: Summary) -> Html | None:
    found = summary.accuracy
    if found is None:
        return None
    rows = [
        ("original table", percent(found.before), percent(found.baseline_before)),
        ("released table", percent(found.after), percent(found.baseline_after)),
    ]
    return join(
        paragraph(
            "How often a simple classifier (naive Bayes, cross-validated) tells ",
            tag("code", found.target),
            " from the quasi-identifiers, and how often the most frequent value is right without looking.",
        ),
        scroll_table(
            ("trained and tested on", "right", "without looking"), rows, numbers=(1, 2), label="Accuracy"
        ),
        None
        if found.kept is None
        else paragraph(f"{percent(found.kept)} of what could be learned is left.", class_="note"),
    )


def _tell_linkage(summary: Summary) -> Html | None:
    before, after = summary.linked_before, summary.linked_after
    if before is None or after is None:
        return None

    def pair(name: str, first: int, second: int) -> tuple[str, str, str]:
        return name, whole(first), whole(second)

    rows = [
        pair("one record fits", before.unique, after.unique),
        pair(f"2 to {after.limit} records fit", before.few, after.few),
        pair("more fit", before.many, after.many),
        pair("none fits", before.none, after.none),
        pair("linked: one record, and it fits nobody else", before.linked, after.linked),
    ]
    if before.revealed is not None and after.revealed is not None:
        certain = f"{after.revealed.column} certain: all fitting records agree"
        rows.append(pair(certain, before.revealed.certain, after.revealed.certain))
    return join(
        paragraph(
            f"Both tables were joined with the {whole(after.people)} people of the register on all "
            "quasi-identifiers, as an adversary would. Numbers of people:"
        ),
        scroll_table(
            ("people of whom", "original", "released"), rows, numbers=(1, 2), label="Linkage", marked=(4,)
        ),
    )


def _tell_limits(summary: Summary) -> Html:
    worst = summary.found.l
    agree = None
    if worst == 1:
        agree = paragraph(
            "In this file there is a class whose records all have the same sensitive value: whoever knows "
            "that somebody is in it knows the value. Ask for l-diversity.",
            class_="warn strong",
        )
    points = (
        "A class that agrees on what is sensitive hides nobody; l-diversity and t-closeness help there.",
        "A second release about the same people can be joined with this one, and both together may single "
        "out somebody whom neither does alone.",
        "Whoever knows more than the quasi-identifiers, or the records of others in a class, learns more.",
        "Columns that are kept as they are may identify people, too; somebody had to choose the "
        "quasi-identifiers.",
    )
    return join(
        agree,
        paragraph(
            "k-anonymity is a property of this table. It is not differential privacy, which bounds what any "
            "adversary can learn about one person, whatever they know already. It leaves open:"
        ),
        tag("ul", *(tag("li", each) for each in points)),
        paragraph(
            "For a promise that holds whatever comes along: ",
            tag("code", "sfumato release"),
            ".",
            class_="note",
        ),
    )


SECTIONS: tuple[tuple[str, str, Callable[[Summary], Html | None]], ...] = (
    ("found", "Asked and found", _tell_models),
    ("sizes", "The size of the crowd", _tell_sizes),
    ("attackers", "Three attackers", _tell_attackers),
    ("subsets", "Columns that identify", _tell_subsets),
    ("loss", "What was lost", _tell_loss),
    ("accuracy", "What can still be learned", _tell_accuracy),
    ("linkage", "Linkage with the register", _tell_linkage),
    ("limits", "What this does not protect against", _tell_limits),
)
"""Key, heading and the function that tells each section, in their order."""
