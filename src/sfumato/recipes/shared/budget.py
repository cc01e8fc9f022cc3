"""A charge that recipes spend as they ask: what is left of it, and how much noise a part of it buys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.accounting import max_mu, mu_to_pure
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import SMOOTHING
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, round_up
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Ask, Request, ask_cost, request_grid, request_sensitivity
from sfumato.core.questions.question import Queries, Question
from sfumato.inference.domain import Columns, Domain
from sfumato.recipes.base import Expected, Plan, expect_noise
from sfumato.tables.arrays import Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


_GRAIN = 10**12  # allowances are whole multiples of 1 / _GRAIN
_LEAST = Fraction(1, 10**5)


class RemainingBudget:
    """What is left of a charge in squared Gaussian privacy, mu^2, and how much noise a part of it buys."""

    def __init__(self, table: Table, *, mu_squared: Fraction, room: Fraction = Fraction(0)) -> None:
        self.table = table
        self.total = self.left = mu_squared - room
        self._room = room

    def split(self, part: Fraction) -> RemainingBudget:
        """Return a budget of its own with this part of the whole, which is deducted here."""
        amount = self.total * part
        self.total -= amount
        self.left -= amount
        self._room /= 2
        return RemainingBudget(self.table, mu_squared=amount + self._room, room=self._room)

    def spend(self, ask: Ask) -> Ask:
        """Return the question, its cost deducted."""
        cost = ask_cost(self.table, ask).mu_squared
        if cost is None or cost > self.left + self._room:
            raise RecipeError(f"{ask.name!r} costs more than is left of the recipe's budget")
        # Costs are rounded up, by which small ones may exceed what they were calibrated for.
        beyond = max(cost - self.left, Fraction(0))
        self._room -= beyond
        self.left -= cost - beyond
        return ask

    def ask(self, name: str, counted: Question, mu_squared: Fraction) -> Request:
        """Return a request with the Gaussian noise that `mu_squared` buys, its cost deducted."""
        request = calibrate(self.table, name, counted, mu_squared)
        self.spend(request)
        return request

    def count(
        self, name: str, columns: Columns, mu_squared: Fraction, *, queries: Queries | None = None
    ) -> Request:
        """Return such a request for the counts of a marginal, or for sums of them."""
        return self.ask(name, Marginal(columns, queries), mu_squared)

    def calibrate_choice(self, mu_squared: Fraction) -> Fraction:
        """Return the epsilon of a choice that costs at most `mu_squared`."""
        # The exponential mechanism is as private as a pure one with half its epsilon (docs/proofs/choice.md).
        return 2 * mu_to_pure(mu_squared)

    def noise_deviation(self, mu_squared: Fraction) -> float:
        """Return the standard deviation, in records, of the noise that `mu_squared` buys for counts."""
        probe = self._probe(mu_squared)
        return float(probe.scale) / request_grid(self.table, probe)

    def expect_counts(self, domain: Domain, shares: Mapping[Columns, Fraction]) -> list[Expected]:
        """Return the noise of counts of single columns, and of pairs, that cost `shares`."""
        noise = {share: expect_noise(self.table, self._probe(share)) for share in set(shares.values())}
        return [
            replace(
                noise[share],
                name=" x ".join(names),
                cells=domain.cells(names),
                group="pairs" if len(names) > 1 else "",
            )
            for names, share in shares.items()
        ]

    def _probe(self, mu_squared: Fraction) -> Request:
        name = next(name for name, each in self.table.columns.items() if each.domain is not None)
        return calibrate(self.table, "probe", Marginal((name,)), mu_squared)


def open_budget(plan: Plan) -> RemainingBudget:
    """Return the budget of the first epsilon of a plan."""
    mu_squared = plan.costs[0].mu_squared
    assert mu_squared is not None
    return RemainingBudget(plan.table, mu_squared=mu_squared)


def sum_groups(groups: Whole, rows: int) -> Queries:
    """Return the sums of cells by group, numbered from 0 on, as queries over the cells."""
    starts = np.concatenate(([0], np.cumsum(np.bincount(groups, minlength=rows))))
    members, ones = np.argsort(groups, kind="stable"), np.ones(groups.size, np.int32)
    return Queries(cells=groups.size, grid=1, starts=starts, members=members, weights=ones)


def weigh_cells(weights: Whole, *, grid: int) -> Queries:
    """Return weighted sums over all cells as queries: a row of `weights`, multiples of 1 / grid, for each."""
    rows, cells = weights.shape
    return Queries(
        cells=cells,
        grid=grid,
        starts=np.arange(rows + 1) * cells,
        members=np.tile(np.arange(cells), rows),
        weights=weights.reshape(-1),
    )


def calibrate(table: Table, name: str, counted: Question, mu_squared: Fraction) -> Request:
    """Return a request with Gaussian noise that costs at most `mu_squared`."""
    probe = Request(name=name, counted=counted, noise="gaussian", scale=Fraction(1))
    sensitivity = float(request_sensitivity(table, probe))
    sigma = math.sqrt(sensitivity**2 / float(mu_squared) + SMOOTHING)
    return replace(probe, scale=round_up(Fraction(sigma * (1 + 1e-9)), places=6))


def allow_gaussian(table: Table, epsilon: Fraction, delta: Fraction) -> Cost:
    """Return what is charged for one epsilon."""
    # A hair less than all, so that no rounding of sums exceeds epsilon.
    scale = Fraction(int(max_mu(epsilon, delta) * (1 - 1e-9) * _GRAIN), _GRAIN)
    if scale < _LEAST:
        raise RecipeError(
            f"epsilon {format_exact(epsilon)} at this delta buys less than can be measured; spend more"
        )
    return Cost(kind="filter", scale=scale, neighbours=table.unit.neighbours, unit=table.unit.name)
