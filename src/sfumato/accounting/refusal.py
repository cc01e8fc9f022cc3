"""Why a charge does not fit, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.accounting.budget import Budget, Spent, add_costs, left
from sfumato.accounting.remaining import describe_costs, largest_like
from sfumato.errors import BudgetExceeded, RecipeError
from sfumato.exact import format_exact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.accounting.chain import History
    from sfumato.accounting.cost import Cost


def explain_refusal(budget: Budget, spent: Spent, costs: tuple[Cost, ...], *, name: str) -> BudgetExceeded:
    """The error that says why `costs` do not fit after `spent` in the ledger `name`."""
    remaining = left(budget, spent)
    where = f"ledger {name!r}"
    return BudgetExceeded(
        _explain_failures(budget, spent, costs, where=where)
        or (
            f"the charge asks for {describe_costs(costs, budget.delta)}; epsilon {remaining} of "
            f"{budget.describe()} is left in {where}{_explain_kind(budget, spent, costs)}. Nothing "
            "was spent; ask for less or with more noise"
        ),
        left=remaining,
    )


def _explain_kind(budget: Budget, spent: Spent, costs: tuple[Cost, ...]) -> str:
    """The most of this kind of charge that would fit, where that is not the pure epsilon that is left."""
    if len(costs) == 1 and costs[0].kind == "pure" and costs[0].count == 1:
        return ""
    if budget.delta == 0:
        pure = all(cost.epsilon is not None for cost in costs)
        return "" if pure else ", and without delta in the budget no charge of this kind fits"
    fitting = largest_like(budget, spent, costs)
    if fitting is None:
        return ", and nothing of this kind fits"
    return f", and of this kind {describe_costs(fitting, budget.delta)} would fit"


def _explain_failures(budget: Budget, spent: Spent, costs: tuple[Cost, ...], *, where: str) -> str:
    """Why the part of delta for selection refuses `costs`, or nothing if it does not."""
    asked = add_costs(Spent(), costs).delta
    rest = budget.selection - spent.delta
    if asked <= rest:
        return ""
    return (
        f"the charge may fail with probability {format_exact(asked)}; {format_exact(rest)} of the "
        f"{format_exact(budget.selection)} that {budget.describe()} keeps for selection is left in "
        f"{where}. Nothing was spent; select with a smaller delta, or raise `[budget] selection_delta` "
        "(below delta) and run `sfumato budget --accept`"
    )


def refuse_other_neighbours(history: History, costs: tuple[Cost, ...], *, name: str) -> None:
    """Raises an error if the costs are for another relation of neighbours than those before."""
    relations = {cost.neighbours for cost in costs}
    if history.neighbours is not None:
        relations.add(history.neighbours)
    if len(relations) > 1:
        raise RecipeError(
            f"ledger {name!r} adds up costs for one relation of neighbours; "
            "'add-remove' and 'replace' cannot be mixed"
        )


def refuse_other_units(history: History, units: Mapping[str, str], *, name: str) -> None:
    """Raises an error if a table was charged with another unit before."""
    for table, unit in units.items():
        charged = history.units.get(table, frozenset({unit}))
        if unit not in charged:
            before = " and ".join(repr(each) for each in sorted(charged))
            raise RecipeError(
                f"table {table!r} was charged to ledger {name!r} with unit {before}, and now its unit is "
                f"{unit!r}: what protects the one does not protect the other, so the costs do not add up. "
                "Nothing was spent; put the unit back, or keep the table under its new unit in a project "
                "with a ledger of its own, whose budget comes on top of this one"
            )
