"""What a ledger says of its budget: spent and left, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.accounting.budget import Amount, Budget, Spent, left
from sfumato.accounting.remaining import MANY, count_more, describe_costs

if TYPE_CHECKING:
    from sfumato.accounting.chain import Entry, History
    from sfumato.accounting.cost import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReport:
    """What a verified ledger says: `spent` and `left` add up to `total`, all in epsilon.

    `left` is the largest pure epsilon that fits. How much of another kind of charge fits is another
    matter: `more_like_last` counts further charges like the last one, and `describe_left` says both.
    `sums` holds the exact totals behind them, `head` the hash that pins the whole ledger.
    """

    total: Amount
    spent: Amount
    left: Amount
    delta: Amount
    budget: Budget
    sums: Spent
    entries: tuple[Entry, ...]
    head: str

    @property
    def last(self) -> tuple[Cost, ...]:
        """The costs of the last charge; empty if there is none."""
        return next((entry.costs for entry in reversed(self.entries) if entry.kind == "charge"), ())

    @property
    def more_like_last(self) -> int | None:
        """How many more charges like the last one fit, at most a million; None if there is none yet."""
        return count_more(self.budget, self.sums, self.last) if self.last else None

    def describe_left(self) -> str:
        """What is left in one line, as pure epsilon and in charges like the last one.

        >>> empty = Spent()
        >>> BudgetReport(
        ...     total=Amount(1),
        ...     spent=Amount(0),
        ...     left=Amount(1),
        ...     delta=Amount(0),
        ...     budget=Budget(1),
        ...     sums=empty,
        ...     entries=(),
        ...     head="",
        ... ).describe_left()
        'epsilon 1 of 1 left'
        """
        text = f"epsilon {self.left} of {self.total} left"
        more = self.more_like_last
        if more is None:
            return text
        pure = all(cost.epsilon is not None for cost in self.last)
        kind = describe_costs(self.last, self.budget.delta)
        text += "" if pure else " as pure epsilon"
        if more == 0:
            return f"{text}, and none like the last one ({kind}) fits"
        times = f"{more:,}" if more < MANY else f"more than {MANY:,}"
        return f"{text}, or {times} more like the last one ({kind})"


def make_report(history: History) -> BudgetReport:
    """What a verified history says of its budget."""
    remaining = left(history.limit, history.spent)
    return BudgetReport(
        total=Amount(history.limit.epsilon),
        spent=Amount(history.limit.epsilon - remaining),
        left=remaining,
        delta=Amount(history.limit.delta),
        budget=history.limit,
        sums=history.spent,
        entries=history.entries,
        head=history.head,
    )
