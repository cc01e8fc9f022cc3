"""What is worth a look before a release is paid for, by public facts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.core.engine.opening import TEXT_FILES
from sfumato.core.facts.domain import Period

if TYPE_CHECKING:
    from sfumato.recipes.base import Plan

_MOST_NAMED = 6  # columns in a note


def list_notes(plan: Plan) -> tuple[str, ...]:
    """What public facts say may be lost: records, values, columns and coefficients."""
    table = plan.table
    columns = [table.columns[name] for name in plan.columns if name in table.columns]
    dated = [each.name for each in columns if isinstance(each.domain, Period) and each.format is None]
    losing = [each.name for each in columns if each.missing_label is None]
    notes = [*table.unit.note_bound(table.bounding)]
    if dated and table.source.lower().endswith(TEXT_FILES):
        notes.append(
            f"{', '.join(dated)} of {table.name}: only dates written as 2025-01-31 are read; "
            "`sfumato doctor` shows how many are, and which format reads the others"
        )
    if losing:
        if len(losing) > _MOST_NAMED:
            losing[_MOST_NAMED - 1 :] = [f"{len(losing) - _MOST_NAMED + 1:,} other columns"]
        named = ", ".join(losing[:-1]) + " or " * (len(losing) > 1) + losing[-1]
        notes.append(
            f"records without a value in {named} are left out, as a whole; "
            "`sfumato doctor` with the recipe file counts them, and nullable = true keeps them"
        )
    described = {name for name, column in table.columns.items() if column.domain is not None}
    if hasattr(plan.recipe, "columns") and described <= set(plan.columns):  # as by default
        from sfumato.recipes.shared.rows import find_undescribed

        if absent := find_undescribed(table, plan.columns):
            notes.append(
                f"rows will have no {' and no '.join(absent)}: a range of dates or bounds alone are for "
                'statements; give dates a period = "day", "week" or "month", and numbers bins'
            )
    forecast = getattr(plan.recipe, "forecast", None)
    told = None if forecast is None else forecast(plan)
    return (*notes, told) if told else tuple(notes)
