"""The first section: what was released, in plain words, with the released data in pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.report.charts import bar_list, draw_columns
from sfumato.report.estimates import count_records, estimate_counts
from sfumato.report.html import Html, join, paragraph, tag
from sfumato.report.numbers import short, whole
from sfumato.report.sections.parts import code, listed, plural

if TYPE_CHECKING:
    from sfumato.report.facts import Facts
    from sfumato.report.fields import Field
    from sfumato.report.story import Story

_MOST_CARDS = 18
_FEW_CARDS = 6
_MOST_BARS = 7
_MOST_COLUMNS = 170


def tell_released(story: Story) -> Html:
    """Pictures of every released column, and what the table is and how it was made."""
    facts = story.facts
    shown = facts.shown[: _FEW_CARDS if story.terse else _MOST_CARDS]
    cards = [_draw_card(facts, field) for field in shown]
    more = len(facts.shown) - len(shown)
    left = (
        f" {plural(more, 'further column')} of the table {'is' if more == 1 else 'are'} not drawn."
        if more
        else ""
    )
    at = join(" At epsilon ", tag("b", facts.best), ", the largest of this release.") if facts.best else None
    return join(
        tag("div", *cards, class_="cards") if cards else None,
        paragraph(_tell_source(facts), at, left, class_="note"),
        tag("h3", "In plain words"),
        *_tell_table(facts),
        _tell_making(facts),
    )


def _draw_card(facts: Facts, field: Field) -> Html:
    estimate = estimate_counts(facts, (field,))
    values = estimate.values
    named = join(field.name, tag("small", plural(field.size, "value")))
    if field.ordered and field.size > 2:
        drawn = _draw_ordered(field, values)
    else:
        order = np.argsort(-values, kind="stable")[:_MOST_BARS]
        drawn = bar_list([(field.labels[code], float(values[code])) for code in order.tolist()])
        if field.size > _MOST_BARS:
            drawn = join(
                drawn,
                tag(
                    "p",
                    f"the {_MOST_BARS} largest of {field.size:,}",
                    class_="note",
                    style="margin:.4rem 0 0",
                ),
            )
    return tag("div", tag("h3", named), drawn, class_="card")


def _draw_ordered(field: Field, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Html:
    labels = list(field.labels)
    if field.size > _MOST_COLUMNS:
        width = -(-field.size // _MOST_COLUMNS)
        starts = range(0, field.size, width)
        values = np.add.reduceat(values, list(starts))
        labels = [labels[start] for start in starts]
    return draw_columns(values, labels, f"released counts by {field.name}", width=270)


def _tell_source(facts: Facts) -> str:
    if facts.weight is None:
        return "Drawn from the released rows; bins are counted as the schema cuts them."
    if any(each.is_plain for each in facts.measured):
        return (
            "Sums of the noisy counts as they were measured, which add up without bias; the released counts "
            "are clipped at zero, so their sums do not."
        )
    return "Sums of the released counts."


def _tell_table(facts: Facts) -> list[Html]:
    held = facts.table.num_rows
    names = [name for name in facts.table.column_names if name in facts.described]
    if facts.weight is not None:
        what = join(
            f"A table of {plural(held, 'noisy count')}: one row for every combination of ",
            listed(names),
            ", whether or not any record fell into it. The column ",
            code(facts.weight),
            f" holds the count; together the rows stand for about {short(count_records(facts))} records.",
        )
    else:
        what = join(
            f"A table of {plural(held, 'synthetic row')} in the columns ",
            listed(names),
            ". No row belongs to anybody: rows were drawn from ",
            "a model that was fitted to noisy counts." if "model.parquet" in facts.files else "noisy counts.",
        )
    several = None
    if len(facts.epsilons) > 1:
        several = join(
            "It holds the same table several times, once for each epsilon (",
            listed(facts.epsilons),
            "), told apart by the column " if facts.has_epsilon else ")",
            join(code("epsilon"), ").") if facts.has_epsilon else ".",
            " They are about the same people, so what they reveal adds up.",
        )
        several = Html(several.replace("), told apart", ", told apart"))
    extra = [
        name for name in facts.table.column_names if name not in facts.described | {facts.weight, "epsilon"}
    ]
    others = (
        join("Further columns, which the schema does not describe: ", listed(extra), ".") if extra else None
    )
    return [paragraph(part) for part in (what, several, others) if part]


def _tell_making(facts: Facts) -> Html:
    measured = [each for each in facts.measured if each.about != "choice"]
    choices = len(facts.measured) - len(measured)
    answers = sum(each.answers for each in measured)
    kinds = sorted({each.noise for each in measured})
    noise = " and ".join(kind.capitalize() for kind in kinds) or "no"
    chosen = f" {plural(choices, 'private choice')} decided what to measure;" if choices else ""
    model = (
        " A model was fitted to the noisy answers, and the rows were drawn from it."
        if "model.parquet" in facts.files
        else ""
    )
    return paragraph(
        "Recipe ",
        code(facts.kind),
        " on the table ",
        code(facts.source),
        f".{chosen} {plural(len(measured), 'measurement')} with {whole(answers)} "
        f"noisy {'answer' if answers == 1 else 'answers'} in all got discrete {noise} noise.{model} "
        "Everything after "
        "the noise used the noisy answers and public facts only.",
    )
