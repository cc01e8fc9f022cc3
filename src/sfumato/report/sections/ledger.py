"""The charge of this release and, if the ledger was given, all charges and what is left."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sfumato.accounting import Spent, add_costs
from sfumato.report.html import Html, clip_text, join, paragraph, tag
from sfumato.report.numbers import NONE, RHO, amount
from sfumato.report.sections.parts import code, fact_sheet, plural, scroll_table
from sfumato.report.sections.privacy import describe_total

if TYPE_CHECKING:
    from sfumato.accounting import BudgetReport, Entry
    from sfumato.report.story import Story

_MOST = 60


def tell_ledger(story: Story) -> Html:
    """What the certificate says of the charge, and what the ledger says of all of them."""
    entry = story.facts.certificate.get("ledger") or {}
    sheet = fact_sheet(
        [
            ("charge", describe_total(story.facts)),
            (
                "entry",
                join(f"no. {entry.get('sequence')} of the ledger, made {_time(entry.get('recorded_at'))}")
                if entry
                else None,
            ),
            (
                "seal",
                tag("span", str(entry.get("hash")), class_="mono digest") if entry.get("hash") else None,
            ),
        ]
    )
    told = paragraph(
        "The charge was written to the ledger before the first record was read. What does not fit the "
        "budget is refused "
        "and costs nothing; a repeated release costs nothing either."
    )
    if story.ledger is None:
        note = paragraph(
            "This report was made without the ledger, so it does not say what else was charged to the "
            "same people. With ",
            code("--project"),
            " it lists all charges and what is left.",
            class_="note",
        )
        return join(told, sheet, note)
    return join(told, sheet, _tell_budget(story.ledger, str(entry.get("hash"))))


def _tell_budget(report: BudgetReport, mine: str) -> Html:
    charges = [entry for entry in report.entries if entry.kind == "charge"]
    shown = charges[-_MOST:]
    rows = [_row(entry) for entry in shown]
    marked = [turn for turn, entry in enumerate(shown) if entry.hash == mine]
    delta = f" at δ = {amount(report.delta)}" if report.delta else ""
    share = float(report.spent / report.total) if report.total else 0.0
    meter = tag(
        "div",
        tag("i", style=f"width:{100 * min(1.0, share):.2f}%", class_="mine"),
        class_="meter",
        role="img",
        aria_label=f"epsilon {report.spent} of {report.total} spent",
    )
    missing = None
    if not marked:
        missing = paragraph("This ledger does not hold the charge of this release.", class_="warn strong")
    older = f" The latest {_MOST} of {len(charges):,} are listed." if len(charges) > _MOST else ""
    return join(
        tag("h3", "The whole ledger"),
        missing,
        paragraph(
            "Of ε = ",
            tag("b", amount(report.total)),
            delta,
            ", ",
            tag("b", amount(report.spent)),
            " is spent and ",
            tag("b", str(report.left)),
            f" is left, after {plural(len(charges), 'charge')}.{older}",
        ),
        meter,
        _tell_kind(report),
        scroll_table(
            ("entry", "when", "table", "what", "ε", RHO),
            rows,
            numbers=(0, 4, 5),
            marked=marked,
            label="all charges",
        )
        if rows
        else None,
    )


def _tell_kind(report: BudgetReport) -> Html | None:
    """What is left in releases like the last one, which the bar, in pure epsilon, does not show."""
    more = report.more_like_last
    if more is None:
        return None
    like = "no further charge" if more == 0 else plural(more, "further charge")
    return paragraph(
        f"The bar is in pure epsilon. Of charges like the last one, {like} would fit.", class_="note"
    )


def _row(entry: Entry) -> tuple[object, ...]:
    spent = add_costs(Spent(), entry.costs)
    rho: Fraction = spent.rho
    return (
        entry.sequence,
        _time(entry.recorded_at),
        clip_text(entry.table, 40),
        clip_text(_describe(entry.description), 120),
        amount(spent.epsilon),
        amount(rho),
    )


def _describe(description: dict[str, Any]) -> str:
    if "statement" in description:
        return str(description["statement"])
    recipe = description.get("recipe") or {}
    kind, by = str(recipe.get("recipe", "")), recipe.get("by")
    return f"{kind} by {', '.join(map(str, by))}" if isinstance(by, list) else kind


def _time(text: object) -> str:
    """An entry's time to the second, as it is recorded."""
    return str(text).partition(".")[0].partition("+")[0].replace("T", " ") + " UTC" if text else NONE
