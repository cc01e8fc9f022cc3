"""What a verified ledger says of its budget: what was spent, what is left, and how much more would fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sfumato.core.cost.budget import (
    MANY,
    Amount,
    Budget,
    Spent,
    add_costs,
    admits,
    count_more,
    describe_charge,
    left,
)
from sfumato.core.cost.cost import Cost
from sfumato.core.exact import digest, format_exact
from sfumato.core.ledger.chain import ChargeEntry, Entry

_PARTS = re.compile("([0-9]+)")


def describe_cost(cost: str, more: int | None = None) -> str:
    """What something cost, and how many `more` like it fit if that is known: the same words everywhere.

    >>> describe_cost("epsilon 1", 12)
    'this cost epsilon 1; about 12 more like it fit'
    """
    if more is None:
        return f"this cost {cost}"
    times = f"more than {MANY:,}" if more >= MANY else f"about {more:,}" if more else "no"
    return f"this cost {cost}; {times} more like it {'fit' if more > 1 else 'fits'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReport:
    """What a verified ledger says: `spent` and `left` add up to `total`, all in epsilon.

    `left` is the largest pure epsilon that fits. How much of another kind of charge fits is another
    matter: `more_like_last` counts further charges like the last one, and `describe_left` says both.
    `sums` holds the exact totals behind them, `head` the hash that pins the whole ledger, `last` the costs of
    the last charge that has any. Of the `entries`, `charged` are charges; they are read when they are looked
    at.

    Where charges have windows, all of this is of the period that has least left, among those that are read
    now; `beside` are the sums of the other ones, and `groups` those of all periods that were ever read.
    """

    budget: Budget
    sums: Spent
    entries: Sequence[Entry] = field(default=(), compare=False, repr=False)
    charged: int = 0
    last: tuple[Cost, ...] = ()
    head: str = ""
    beside: tuple[Spent, ...] = ()
    groups: tuple[tuple[frozenset[str], Spent], ...] = ()
    total: Amount = field(init=False)
    spent: Amount = field(init=False)
    left: Amount = field(init=False)
    delta: Amount = field(init=False)

    def __post_init__(self) -> None:
        remaining = left(self.budget, self.sums)
        object.__setattr__(self, "total", Amount(self.budget.epsilon))
        object.__setattr__(self, "spent", Amount(self.budget.epsilon - remaining))
        object.__setattr__(self, "left", remaining)
        object.__setattr__(self, "delta", Amount(self.budget.delta))

    def admits(self, costs: Iterable[Cost]) -> bool:
        """Whether `costs` may be charged now, for all periods that are read."""
        charge = tuple(costs)
        return all(admits(self.budget, each, charge) for each in (self.sums, *self.beside))

    def list_periods(self) -> list[tuple[str, str, Amount]]:
        """The periods that were ever read, by first and last of those that have the same left, in order."""
        # The same sums leave the same, and what they leave takes a search.
        found: dict[str, Amount] = {}
        known = []
        for names, spent in self.groups:
            sums = digest(spent.keep(self.budget))
            if sums not in found:
                found[sums] = left(self.budget, spent)
            known += [(name, found[sums]) for name in names]
        known.sort(key=lambda each: [(part.isdecimal(), part.zfill(20)) for part in _PARTS.split(each[0])])
        runs: list[tuple[str, str, Amount]] = []
        for name, rest in known:
            if runs and runs[-1][2] == rest:
                runs[-1] = (runs[-1][0], name, rest)
            else:
                runs.append((name, name, rest))
        return runs

    @property
    def charges(self) -> tuple[ChargeEntry, ...]:
        """Return the entries that are charges, in order."""
        return tuple(entry for entry in self.entries if isinstance(entry, ChargeEntry))

    def list_last(self, count: int) -> list[ChargeEntry]:
        """The last charges, at most so many, in order."""
        charges = (entry for entry in reversed(self.entries) if isinstance(entry, ChargeEntry))
        return [*islice(charges, max(0, count))][::-1]

    @property
    def more_like_last(self) -> int | None:
        """How many more charges like the last one fit, at most a million; None if there is none yet."""
        return count_more(self.budget, self.sums, self.last) if self.last else None

    def to_record(self) -> dict[str, Any]:
        """The report as plain text and numbers, with a record of every charge."""
        charges = [(entry, add_costs(Spent(), entry.costs)) for entry in self.charges]
        return {
            "total": str(self.total),
            "delta": str(self.delta),
            "spent": str(self.spent),
            "left": str(self.left),
            "more_like_last": self.more_like_last,
            **({"periods": [[*map(str, each)] for each in self.list_periods()]} if self.groups else {}),
            "charges": [
                {
                    "sequence": entry.sequence,
                    "recorded_at": entry.recorded_at,
                    "table": entry.table,
                    "by": entry.subject,
                    "epsilon": None if spent.epsilon is None else format_exact(spent.epsilon),
                    "rho": format_exact(spent.rho),
                }
                for entry, spent in charges
            ],
        }

    def __repr__(self) -> str:
        return f"BudgetReport({self.describe_left()})"

    def describe_since(self, earlier: BudgetReport, cost: str = "") -> str:
        """What was charged after an `earlier` report, or `cost` in its place, and how often it fits."""
        made = self.list_last(self.charged - earlier.charged)
        costs = tuple(cost for entry in made for cost in entry.costs)
        more = count_more(self.budget, self.sums, costs) if costs else None
        return describe_cost(cost or describe_charge(self.budget, costs), more)

    def describe_left(self) -> str:
        """What is left in one line, as pure epsilon and in charges like the last one."""
        text = f"epsilon {self.left} of {self.total} left"
        more = self.more_like_last
        if more is None:
            return text
        pure = all(cost.epsilon is not None for cost in self.last)
        kind = describe_charge(self.budget, self.last)
        text += "" if pure else " as pure epsilon"
        if more == 0:
            return f"{text}, and none like the last one ({kind}) fits"
        times = f"{more:,}" if more < MANY else f"more than {MANY:,}"
        return f"{text}, or {times} more like the last one ({kind})"
