"""Dry runs: what a release would ask, cost and err, and what is worth a look, shown before it is paid for."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from sfumato.core.cost.budget import describe_costs
from sfumato.core.engine.opening import TEXT_FILES
from sfumato.core.errors import SfumatoError
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import OTHER
from sfumato.core.facts.domain import Period
from sfumato.core.questions.measurement import ask_cost, request_grid, request_size

if TYPE_CHECKING:
    from sfumato.core.cost.budget import Amount
    from sfumato.recipes.base import Plan

EPSILONS = tuple(Fraction(each) for each in ("0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10"))
_FORECAST = ("records", "noise_share", "stand_out", "coefficients")
_LITTLE_NOISE = 0.1  # of an average cell
_SURE = 0.9  # of guesses that are right: more is no protection to recommend
_MOST_NAMED = 6  # columns in a note


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A dry run: the plan, whether it would be admitted, and what is left before it.

    A release that was answered before, or was begun and not finished, costs nothing. `records` is about how
    many the table has, as somebody said or a noisy count that was paid for.
    """

    plan: Plan
    admitted: bool
    left: Amount
    answered: bool = False
    begun: bool = False
    records: int | None = None

    @property
    def verdict(self) -> str:
        """Whether the release fits into the budget, or is free."""
        if self.answered:
            return "was answered before and is free"
        if self.begun and self.plan.series:
            return "was paid for with the first period of its series"
        if self.begun:
            return "was begun before and is finished free of charge"
        return "fits" if self.admitted else "does NOT fit"

    @property
    def foreseen(self) -> tuple[str, ...]:
        """What errors to expect, in words; or why nobody can tell before it is paid."""
        return tuple(tell_errors(self.plan, self.records))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth a look before it is paid, by public facts."""
        return list_notes(self.plan, self.records)

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
            columns=("measurement", "cells", "noise", "95 % of errors within", "costs"),
            rows=[
                (
                    row["name"],
                    row["cells"],
                    row["noise"],
                    f"±{row['expected_error_95']:.4g}",
                    row["cost"],
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
                    "cost": describe_costs([cost], plan.delta),
                }
                for request, cost, grid in planned
            ],
            **allowance,
            **({"parts": [part.to_record() for part in plan.parts]} if plan.parts else {}),
            "left": str(self.left),
            "admitted": self.admitted,
            "answered": self.answered,
            "begun": self.begun,
            **({} if self.records is None else {"forecast": forecast(plan, self.records)}),
            **({"notes": list(self.notes)} if self.notes else {}),
        }


def list_errors(plan: Plan, records: int | None = None) -> list[dict[str, Any]]:
    """The error of each noisy number, by public facts: `cells`, its `typical_error`, and 95 % of errors.

    Of a recipe that asks by what it has seen, as far as about so many `records` tell what that will be.
    """
    expect = getattr(plan.recipe, "expect", None)  # recipes of others need not forecast
    return [] if expect is None else [each.to_record() for each in expect(plan, records)]


def forecast(plan: Plan, records: int) -> dict[str, Any]:
    """What to expect of a release about so many `records`: the noise in an average cell, what stands out."""
    noise = [
        each
        if each["cells"] is None
        else {**each, "noise_share": each["typical_error"] * each["cells"] / records}
        for each in list_errors(plan, records)
    ]
    count = getattr(plan.recipe, "count_standing", None)
    standing = None if count is None else count(plan, records)
    told = {} if standing is None else {"stand_out": standing[0], "coefficients": standing[1]}
    # Pairs that noise outweighs are not chosen, so that they spoil nothing.
    alone = [each for each in noise if "noise_share" in each and "group" not in each]
    worst = max((each["noise_share"] for each in alone), default=None)
    return {"records": records, "noise_share": worst, "measurements": noise, **told}


def tell_errors(plan: Plan, records: int | None) -> Iterator[str]:
    """Yields what `forecast` expects as sentences, one for every group of numbers."""
    if why := getattr(plan.recipe, "unforeseen", ""):
        yield f"none: {why}"
        return
    errors = list_errors(plan, records) if records is None else forecast(plan, records)["measurements"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in errors:
        groups.setdefault(each.get("group", "" if "noise_share" in each else each["name"]), []).append(each)
    for name, group in groups.items():
        widths = [each["expected_error_95"] for each in group]
        shares = [each["noise_share"] for each in group if "noise_share" in each]
        what = name or ("single columns" if "pairs" in groups else "counts")
        told = [] if plan.allowance is None else [f"95 % of errors within +-{_span(widths, '{:.4g}')}"]
        if shares:
            told.append(
                f"with {records:,} records an average cell is off by {_span(shares, '{:.1%}')} of itself"
            )
        if told:
            many = f"{len(group):,} " if len(group) > 2 else ""
            yield (f"{many}{what}: " if plan.allowance is not None else "") + "; ".join(told)


def _span(values: Sequence[float], form: str) -> str:
    """The least and the largest of several numbers, and of more than two the middle one."""
    ends = list(dict.fromkeys(form.format(each) for each in (min(values), max(values))))
    middle = f" (half of them {form.format(median(values))} at most)" if len(values) > 2 else ""
    return " to ".join(ends) + middle * (len(ends) > 1)


def weigh_epsilons(check_at: Callable[[Fraction], Check]) -> list[dict[str, Any]]:
    """What each of several epsilons buys, and tells an attacker; `check_at` is a dry run at an epsilon."""
    from sfumato.report.explain.guarantee import Guarantee, best_guess

    rows = []
    for epsilon in EPSILONS:
        try:
            check = check_at(epsilon)
        except SfumatoError:  # too little for this recipe, or too much
            continue
        guarantee = Guarantee(kind="epsilon", amount=epsilon, delta=check.plan.delta)
        expected = {} if check.records is None else forecast(check.plan, check.records)
        errors = [each["expected_error_95"] for each in list_errors(check.plan, check.records)]
        rows.append(
            {
                "epsilon": format_exact(epsilon),
                "expected_error_95": max(errors, default=None),
                **{key: expected.get(key) for key in _FORECAST},
                "right_guesses": best_guess(guarantee, Fraction(1, 2)),
                "admitted": check.admitted,
            }
        )
    return rows


def recommend(rows: Sequence[dict[str, Any]], unforeseen: str = "") -> tuple[str | None, str]:
    """The epsilon of `weigh_epsilons` that is enough, if one is, and the reason in words."""
    if not any(row["records"] for row in rows):
        return None, "say about how many records there are (--records N), or pay for a noisy count first"
    if all(row["noise_share"] is None and row["coefficients"] is None for row in rows):
        return None, unforeseen or "what noise leaves of this recipe is not known before it is paid"
    advice = "ask for fewer cells or inputs, or bring more records"
    row = next((row for row in rows if _suffices(row)), None)
    if row is None:
        return None, f"no epsilon up to {rows[-1]['epsilon']} is enough: {advice}"
    if row["coefficients"]:
        why = f"{row['stand_out']} of {row['coefficients']} coefficients stand out of the noise"
    else:
        why = f"an average cell is off by {row['noise_share']:.1%} of itself"
    why += f"; who guesses whether somebody is in the table is right {row['right_guesses']:.1%} of the time"
    if row["right_guesses"] > _SURE or not row["admitted"]:
        much = "does NOT fit into the budget" if row["right_guesses"] <= _SURE else "promises little"
        return None, f"it takes epsilon {row['epsilon']}, which {much} ({why}): {advice}"
    return row["epsilon"], why


def _suffices(row: dict[str, Any]) -> bool:
    """Whether noise is small beside an average cell, or most coefficients stand out."""
    if row["coefficients"]:
        return bool(2 * row["stand_out"] >= row["coefficients"])
    return row["noise_share"] is not None and row["noise_share"] <= _LITTLE_NOISE


def read_deployments() -> list[dict[str, Any]]:
    """What published deployments took, from the least epsilon on, each with its source."""
    path = Path(__file__).with_name("deployments.toml")
    return list(tomllib.loads(path.read_text(encoding="utf-8"))["deployments"])


def list_notes(plan: Plan, records: int | None = None) -> tuple[str, ...]:
    """What public facts say may be lost: records, values, columns and coefficients."""
    table = plan.table
    columns = [table.columns[name] for name in plan.columns if name in table.columns]
    dated = [each.name for each in columns if isinstance(each.domain, Period) and each.format is None]
    losing = [each.name for each in columns if each.missing_label is None and each.outside != OTHER]
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
    twice = [each.name for each in columns if each.outside == OTHER and "Other" in each.labels]
    if twice:
        notes.append(
            f"{', '.join(twice)}: 'Other' is listed and what is not listed is 'other': both are given"
        )
    described = {name for name, column in table.columns.items() if column.domain is not None}
    if hasattr(plan.recipe, "columns") and described <= set(plan.columns):  # as by default
        from sfumato.recipes.shared.rows import find_undescribed

        if absent := find_undescribed(table, plan.columns):
            notes.append(
                f'rows will have no {" and no ".join(absent)}: give dates a period = "day", "week" or '
                '"month", and numbers bins; recipes adaptive and tree take a range of dates, and '
                "bounds, of columns that no other column is made from"
            )
    tell = getattr(plan.recipe, "forecast", None)
    told = None if tell is None else tell(plan, records)
    return (*notes, told) if told else tuple(notes)
