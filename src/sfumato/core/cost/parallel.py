"""What a charge pays for, item by item, and parallel composition over disjoint parts of the people.

An individual is in one part, so it pays for the questions of that part and for those asked of everybody.
Where neighbours exchange one individual for another, the two may be in different parts, and each pays there
as one who comes or goes. Proof: docs/proofs/parallel.md. `SpentByPeriod` is the same over time, for a ledger:
an individual of one period pays for what reads that period. Proof: docs/proofs/renewal.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sfumato.core.cost.budget import Spent, add_costs
from sfumato.core.cost.cost import Cost

if TYPE_CHECKING:
    from sfumato.core.cost.budget import Budget
    from sfumato.core.facts.part import Window


class Allowance:
    """What a charge still pays for, to everybody and to each of several disjoint parts, by their names.

    A question is paid by a use of the same cost, else by what is left of one use in every amount, else by the
    Gaussian items of the charge, which add up. Two pure items never pay for one question together: noise of
    twice the epsilon costs more than twice. Proof: docs/proofs/ledger.md.

    >>> one, two = (Cost(kind="pure", scale=Fraction(each)) for each in (1, 2))
    >>> Allowance([one, one]).pay(two), Allowance([two]).pay(one)
    (False, True)
    >>> allowance = Allowance([one, two])
    >>> [allowance.pay(one, part=part) for part in ("fit", "fit", "held out", None, "fit")]
    [True, True, True, True, False]
    """

    def __init__(self, costs: Iterable[Cost]) -> None:
        self._everybody = _Items(costs)
        self._parts: dict[str, _Items] = {}

    def pay(self, cost: Cost, *, part: str | None = None) -> bool:
        """Takes what one question costs the individuals of `part`, or all; False if that is not left."""
        if part is None or not _is_parallel(cost):
            return all(each.pay(cost) for each in (self._everybody, *self._parts.values()))
        if part not in self._parts:
            # What was asked of everybody before is gone for this part, too; what others asked is not.
            self._parts[part] = deepcopy(self._everybody)
        return self._parts[part].pay(cost)


_Amounts = tuple[Fraction | None, Fraction | None, Fraction | None, Fraction | None]


@dataclass(slots=True)
class _Item:
    """`count` uses of one cost that are not begun, or what is left of one; and what each of them pays for."""

    cost: Cost | None
    count: int
    pays: _Amounts


class _Items:
    """What one individual has left of a charge."""

    def __init__(self, costs: Iterable[Cost]) -> None:
        gaussian: list[Cost] = []
        self._items: list[_Item] = []
        for cost, times in Counter(costs).items():
            if cost.kind == "sampled":
                # A run is charged as a whole, failures included: its steps are counted and not added up.
                step = replace(cost, count=1, delta=Fraction(0))
                self._items.append(_Item(step, times * cost.count, (Fraction(0),) * 4))
            elif cost.epsilon is None:
                gaussian += [cost] * times
            else:
                pays = _read_amounts(cost, cost.count)
                self._items.append(_Item(replace(cost, count=1), times * cost.count, pays))
        pool = add_costs(Spent(), gaussian)
        self._pool: _Amounts = (Fraction(0), None, pool.rho, pool.mu_squared)

    def pay(self, cost: Cost) -> bool:
        use = replace(cost, count=1)
        for item in self._items:
            if item.cost == use and item.count >= cost.count:
                item.count -= cost.count
                return True
        if cost.kind == "sampled":
            return False
        # What fits the smallest item is taken from it, so that larger ones stay whole for what needs them.
        asked = _read_amounts(cost)
        self._items = [item for item in self._items if item.count]
        for item in sorted(self._items, key=lambda each: [amount or 0 for amount in each.pays]):
            left = _subtract(item.pays, asked)
            if left is not None:
                item.count -= 1
                self._items.append(_Item(None, 1, left))
                return True
        left = _subtract(self._pool, asked)
        self._pool = self._pool if left is None else left
        return left is not None


@dataclass(frozen=True, slots=True)
class SpentByPeriod:
    """What was spent, in all, of the individuals of each period.

    `groups` has periods that the same charges have read, with these charges; `others` those of every period
    that none of them names, which are the charges without a window.

    >>> cost, spent = Cost(kind="pure", scale=Fraction(1)), SpentByPeriod()
    >>> for periods in (frozenset(["may"]), frozenset(["may", "june"]), None):
    ...     spent = spent.add((cost,), periods)
    >>> {period: spent.find(frozenset([period]))[0].epsilon for period in ("may", "june", "july")}
    {'may': Fraction(3, 1), 'june': Fraction(2, 1), 'july': Fraction(1, 1)}
    """

    others: Spent = field(default_factory=Spent)
    groups: tuple[tuple[frozenset[str], Spent], ...] = ()

    def add(self, costs: tuple[Cost, ...], periods: frozenset[str] | None) -> SpentByPeriod:
        """What is spent once `costs` are, by a charge that reads these periods, or all if there is None."""
        everybody = add_costs(self.others, costs)
        if periods is None:
            paid = tuple((names, add_costs(spent, costs)) for names, spent in self.groups)
            return SpentByPeriod(everybody, paid)
        # Groups are split where the new periods cut them, so that each period is in one group.
        groups, fresh = list[tuple[frozenset[str], Spent]](), periods
        for names, spent in self.groups:
            fresh -= names
            groups += [(names & periods, add_costs(spent, costs)), (names - periods, spent)]
        groups.append((fresh, everybody))
        return SpentByPeriod(self.others, tuple(each for each in groups if each[0]))

    def find(self, periods: frozenset[str] | None) -> tuple[Spent, ...]:
        """What was spent of the periods that a charge would read, each different sum once.

        A charge that is for no periods is for all, also those that were never named.
        """
        found = [spent for names, spent in self.groups if periods is None or names & periods]
        named = frozenset().union(*(names for names, _ in self.groups))
        return (*found, self.others) if periods is None or periods - named else tuple(found)

    def keep(self, budget: Budget) -> list[Any]:
        """All that `restore` needs to admit further charges under `budget`."""
        groups = [[sorted(names), spent.keep(budget)] for names, spent in self.groups]
        return [self.others.keep(budget), groups]

    @classmethod
    def restore(cls, kept: list[Any]) -> SpentByPeriod:
        """The sums that were kept."""
        groups = tuple((frozenset(names), Spent.restore(spent)) for names, spent in kept[1])
        return cls(Spent.restore(kept[0]), groups)


def find_periods(window: Window | None) -> frozenset[str] | None:
    """The periods that a window reads; None for all."""
    return None if window is None else window.periods


def _is_parallel(cost: Cost) -> bool:
    """Whether `cost` is counted in its part alone.

    One who comes or goes costs at most half of an exchange, in mu^2 and in rho, if the noise is Gaussian: its
    sensitivity for exchanges is at least sqrt(2) times that for one. Of other mechanisms it is not proved.
    """
    return cost.neighbours == "add-remove" or cost.kind == "gaussian"


def _read_amounts(cost: Cost, parts: int = 1) -> _Amounts:
    """One of so many equal `parts` of what a cost adds to every sum: failures, epsilon, rho and mu^2."""
    epsilon, squared = (each and each / parts for each in (cost.epsilon, cost.mu_squared))
    return cost.failure / parts, epsilon, cost.rho / parts, squared


def _subtract(left: _Amounts, asked: _Amounts) -> _Amounts | None:
    """What is `left` after `asked`; None if an amount is too large. What no rule can use is no bound."""
    rest: list[Fraction | None] = []
    for most, amount in zip(left, asked, strict=True):
        if most is None:
            rest.append(None)
        elif amount is None or amount > most:
            return None
        else:
            rest.append(most - amount)
    first, second, third, fourth = rest
    return first, second, third, fourth
