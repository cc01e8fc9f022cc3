"""Dry runs: what a release would ask, cost and err, and what is worth a look, shown before it is paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfumato.core.engine.opening import TEXT_FILES
from sfumato.core.exact import format_exact
from sfumato.core.facts.domain import Period
from sfumato.core.questions.measurement import ask_cost, request_grid, request_size

if TYPE_CHECKING:
    from sfumato.core.cost.budget import Amount
    from sfumato.recipes.base import Plan

_MOST_NAMED = 6  # columns in a note


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A dry run: the plan, whether it would be admitted, and what is left before it.

    A release that was answered before, or was begun and not finished, costs nothing.
    """

    plan: Plan
    admitted: bool
    left: Amount
    answered: bool = False
    begun: bool = False

    @property
    def verdict(self) -> str:
        """Whether the release fits into the budget, or is free."""
        if self.answered:
            return "was answered before and is free"
        if self.begun:
            return "was begun before and is finished free of charge"
        return "fits" if self.admitted else "does NOT fit"

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth a look before it is paid, by public facts."""
        return list_notes(self.plan)

    def __repr__(self) -> str:
        recipe = self.plan.recipe
        return f"Check({recipe.kind} of table {recipe.table} {self.verdict}; epsilon {self.left} left)"

    def _repr_html_(self) -> str:
        from sfumato.report.pages.notebook import render_card

        record = self.to_record()
        return render_card(
            f"{record['recipe']} of table {record['table']}",
            facts={
                "protects": f"one individual: {self.plan.table.unit.describe()}",
                "budget": f"epsilon {record['left']} left; this release {self.verdict}; nothing was spent",
            },
            columns=("measurement", "cells", "noise", "95 % of errors within", "epsilon"),
            rows=[
                (
                    row["name"],
                    row["cells"],
                    row["noise"],
                    f"±{row['expected_error_95']:.4g}",
                    row["epsilon"] or f"rho {row['rho']:.4g}",
                )
                for row in record["measurements"]
            ],
            count=len(record["measurements"]),
        )

    def to_record(self) -> dict[str, Any]:
        """The dry run as plain data: what is asked, its noise, expected error and cost."""
        plan, table, unit = self.plan, self.plan.table, self.plan.table.unit
        planned = [(each, ask_cost(table, each), request_grid(table, each)) for each in plan.requests]
        allowance = {} if plan.allowance is None else {"allowance": [cost.to_record() for cost in plan.costs]}
        return {
            "recipe": plan.recipe.kind,
            "table": table.name,
            "unit": unit.name,
            "max_records": unit.max_records,
            "neighbours": unit.neighbours,
            **({} if unit.window is None else {"window": list(unit.window)}),
            "bounding": table.bounding,
            "measurements": [
                {
                    "name": request.name,
                    "cells": request_size(table, request),
                    "noise": request.noise,
                    "scale": float(request.scale / grid),
                    "sensitivity": float(cost.sensitivity / grid),
                    "norm": cost.norm,
                    "expected_error_95": request.law.half_width() / grid,
                    "epsilon": None if cost.epsilon is None else format_exact(cost.epsilon),
                    "rho": float(cost.rho),
                }
                for request, cost, grid in planned
            ],
            **allowance,
            **({"parts": [part.to_record() for part in plan.parts]} if plan.parts else {}),
            "left": str(self.left),
            "admitted": self.admitted,
            "answered": self.answered,
            "begun": self.begun,
            **({"notes": list(self.notes)} if self.notes else {}),
        }


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
