"""What was taken as public, what the guarantee does not cover, and the data dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.report.html import Html, clip_text, join, paragraph, tag
from sfumato.report.numbers import NONE
from sfumato.report.sections.parts import code, listed, plural, scroll_table

if TYPE_CHECKING:
    from sfumato.report.fields import Field
    from sfumato.report.story import Story

_MOST_COLUMNS = 200
_FEW_COLUMNS = 40
_MOST_LABELS = 12
_FEW_LABELS = 3
_OUTSIDE = {
    "drop": "the record is not counted",
    "clamp": "counted as the nearest end",
    "other": "counted as “other”",
}


def tell_public(story: Story) -> Html:
    """What anybody may know, and what is outside of the guarantee."""
    facts = story.facts
    drafted = [field.name for field in facts.fields if field.drafted]
    unit = facts.unit
    items = [
        tag(
            "li",
            "the names, domains and bounds of the columns below, ",
            f"{plural(len(facts.fields), 'column')} in all, and what happens to values outside;",
        ),
        tag(
            "li",
            "whom to protect and the bound of ",
            f"{plural(int(unit.get('max_records', 1)), 'record')} per individual;",
        ),
        tag("li", "the recipe with all its parameters, epsilons and deltas, and the scale of every noise;"),
        tag("li", "that this table exists, and when the release was made."),
    ]
    if "seed" in facts.recipe:
        items.insert(
            3,
            tag(
                "li",
                "the seed of the rows, ",
                code(facts.recipe["seed"]),
                ": it drives post-processing only, never the noise;",
            ),
        )
    uncovered = []
    if drafted:
        told = (
            ". Their values were read off the records and accepted by the data holder, so that a value is "
            "listed is told outside of the guarantee."
        )
        uncovered.append(tag("li", tag("b", "Domains drafted from the data: "), listed(drafted), told))
    if facts.recipe.get("public") is not None:
        uncovered.append(
            tag(
                "li",
                "A public table was used for numbers within bins. It is taken to be about nobody in the "
                "data.",
            )
        )
    if story.internal:
        told = (
            "These figures were computed from the records without noise. They are not private, and this "
            "report must not leave the house."
        )
        uncovered.append(tag("li", tag("b", "Everything here that compares with the truth. "), told))
    uncovered.append(
        tag(
            "li",
            "What is known about individuals from elsewhere, and whatever is released about them under "
            "another ledger.",
        )
    )
    return join(
        paragraph("Taken as known to everybody, so not protected and assumed not to come from the records:"),
        tag("ul", *items),
        tag("h3", "Not covered by the guarantee"),
        tag("ul", *uncovered),
    )


def tell_dictionary(story: Story) -> Html:
    """Every released column with its domain."""
    facts = story.facts
    most, labels = (_FEW_COLUMNS, _FEW_LABELS) if story.terse else (_MOST_COLUMNS, _MOST_LABELS)
    rows = [_row(field, labels) for field in facts.fields[:most]]
    known = facts.described
    for name in facts.table.column_names:
        if name in known or len(rows) >= most:
            continue
        told = {
            facts.weight: "the noisy count, at least 0",
            "epsilon": "the epsilon that the row belongs to",
        }.get(name, "not described by the schema, or with too many values to list")
        rows.append((code(name, 40), str(facts.table.schema.field(name).type), NONE, told, NONE, NONE))
    cut = len(facts.fields) - most
    return join(
        scroll_table(
            ("column", "kind", "values", "what", "a value outside", "where the domain is from"),
            rows,
            numbers=(2,),
            long=3,
            label="columns",
        ),
        paragraph(f"{plural(cut, 'further column')} not listed.", class_="note") if cut > 0 else None,
    )


def _row(field: Field, most: int) -> tuple[object, ...]:
    kinds = {
        "values": "listed values",
        "combinations": "combinations",
        "bins": "intervals",
        "range": "whole numbers",
        "period": "part of a date",
    }
    source = field.stored if field.stored != (field.name,) else ()
    renamed = field.released if field.released != (field.name,) else ()
    origin = [clip_text(field.origin, 60)]
    if field.drafted:
        origin.append("drafted from the data")
    notes = [f"released as {', '.join(renamed)}"] if renamed else []
    if source and source != renamed:
        notes.append(f"from {', '.join(clip_text(each, 30) for each in source)}")
    return (
        join(
            code(field.name, 40),
            tag("br") if notes else None,
            tag("span", "; ".join(notes), class_="note") if notes else None,
        ),
        kinds[field.kind],
        f"{field.size:,}",
        _list_labels(field, most),
        _OUTSIDE.get(field.outside, field.outside),
        "; ".join(origin),
    )


def _list_labels(field: Field, most: int) -> str:
    if field.kind in ("range", "period") and field.size > 2 and field.outside != "other":
        return f"{field.labels[0]} to {field.labels[-1]}"
    shown = ", ".join(clip_text(label, 30) for label in field.labels[:most])
    return shown if field.size <= most else f"{shown}, … {clip_text(field.labels[-1], 30)}"
