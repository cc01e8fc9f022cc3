"""Parallel composition: what questions cost that are asked of disjoint parts of the people.

An individual is in one part, so it pays for the questions of that part and for those asked of everybody.
Where neighbours exchange one individual for another, the two may be in different parts, and each pays there
as one who comes or goes. Proof: docs/proofs/parallel.md. `SpentByPeriod` is the same over time, for a ledger:
an individual of one period pays for what reads that period. Proof: docs/proofs/renewal.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.accounting.budget import Spent, add_costs
from sfumato.accounting.cost import Cost

if TYPE_CHECKING:
    from sfumato.schema.part import Window


@dataclass(slots=True)
class Parallel:
    """What was asked of everybody, and what was asked of each of several disjoint parts, by their names.

    >>> asked, cost = Parallel(), Cost(kind="pure", scale=Fraction(1))
    >>> for part in ("fit", "fit", "held out", None):
    ...     asked.add(cost, part=part)
    >>> asked.total().epsilon
    Fraction(3, 1)
    """

    everybody: Spent = field(default_factory=Spent)
    parts: dict[str, Spent] = field(default_factory=dict)

    def add(self, cost: Cost, *, part: str | None) -> None:
        """Adds what one question costs the individuals of `part`, or all if there is none."""
        if part is None or not _is_parallel(cost):
            self.everybody = add_costs(self.everybody, (cost,))
        else:
            self.parts[part] = add_costs(self.parts.get(part, Spent()), (cost,))

    def total(self) -> Spent:
        """The most that all of it costs one individual, or two that are exchanged."""
        spent, parts = self.everybody, list(self.parts.values())
        return Spent(
            epsilon=_add_largest(spent.epsilon, [each.epsilon for each in parts]),
            rho=spent.rho + max((each.rho for each in parts), default=Fraction(0)),
            mu_squared=_add_largest(spent.mu_squared, [each.mu_squared for each in parts]),
            delta=spent.delta + sum(each.delta for each in parts),
        )


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


def find_periods(window: Window | None) -> frozenset[str] | None:
    """The periods that a window reads; None for all."""
    return None if window is None else window.periods


def _is_parallel(cost: Cost) -> bool:
    """Whether `cost` is counted in its part alone.

    One who comes or goes costs at most half of an exchange, in mu^2 and in rho, if the noise is Gaussian: its
    sensitivity for exchanges is at least sqrt(2) times that for one. Of other mechanisms it is not proved.
    """
    return cost.neighbours == "add-remove" or cost.kind == "gaussian"


def _add_largest(amount: Fraction | None, amounts: list[Fraction | None]) -> Fraction | None:
    if amount is None or None in amounts:
        return None
    largest: Callable[..., Fraction] = max
    return amount + largest((each for each in amounts if each is not None), default=Fraction(0))
