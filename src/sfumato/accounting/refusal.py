"""Why a charge does not fit, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.accounting.budget import Budget, Spent, add_costs, left
from sfumato.errors import BudgetExceeded
from sfumato.exact import format_exact

if TYPE_CHECKING:
    from sfumato.accounting.cost import Cost

__all__ = ["explain_refusal"]


def explain_refusal(budget: Budget, spent: Spent, costs: tuple[Cost, ...], *, name: str) -> BudgetExceeded:
    """The error that says why `costs` do not fit after `spent` in the ledger `name`."""
    remaining = left(budget, spent)
    where = f"ledger {name!r}"
    message = _explain_failures(budget, spent, costs, where=where) or (
        f"the charge asks for {_describe_costs(costs)}; epsilon {remaining} of "
        f"{budget.describe()} is left in {where}. Nothing "
        "was spent; ask for less or with more noise"
    )
    return BudgetExceeded(message, left=remaining)


def _describe_costs(costs: tuple[Cost, ...]) -> str:
    total = add_costs(Spent(), costs)
    if total.epsilon is not None:
        return f"epsilon {format_exact(total.epsilon)}"
    return f"rho {float(total.rho):.6g}"


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
