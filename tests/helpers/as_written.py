"""The calibration of the contest's write-up of user-counts as a recipe, for audits to catch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import pyarrow as pa

from sfumato.audit.targets import RecipeTarget
from sfumato.core.cost.cost import Cost
from sfumato.core.questions.counts import IndividualCounts
from sfumato.core.questions.measurement import Request
from sfumato.recipes.base import Plan, Product, Recipe
from sfumato.recipes.user_counts import list_questions


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCountsAsWritten(Recipe):
    """Counts of individuals with Laplace noise of scale 1 / epsilon.

    Each single question counts an individual once, and the write-up takes 1 for the sensitivity of all of
    them together. An individual with records in max_records cells moves as many answers, so it is
    max_records x epsilon-DP, under replacement twice that (docs/proofs/user-counts.md).
    """

    kind: ClassVar[str] = "user-counts-as-written"

    by: Sequence[str]

    def request(self, table, epsilon):
        """Return what the write-up asks; its bound on cells is what it assumes of everybody."""
        cells, times = list_questions(table, self.by, times=(1, 2), record=None, period=None, reach=0)
        most = table.unit.max_records
        counted = IndividualCounts(columns=self.by, max_cells=most, cells=cells, times=times)
        return Request(name=f"as written at {epsilon}", counted=counted, noise="laplace", scale=1 / epsilon)

    def plan(self, table, *, epsilons, delta):
        requests = tuple(self.request(table, each) for each in epsilons)
        return Plan(self, table, epsilons, delta, requests=requests)

    def run(self, plan, *, progress):
        answers = yield plan.requests
        return Product(table=pa.table({"answers": [len(answers)]}))

    def describe(self, plan):
        keys = ("idea", "preprocessing", "bounding", "sensitivity", "privatisation", "postprocessing")
        return dict.fromkeys(keys, "A specimen for audits.")


def as_written(*by):
    """Return the recipe at epsilon 1, and what the write-up says it costs: sensitivity 1, so epsilon."""
    cost = Cost(kind="laplace", scale=Fraction(1), sensitivity=Fraction(1), norm="L1")

    def claim(table):
        return (replace(cost, neighbours=table.unit.neighbours, unit=table.unit.column or "row"),)

    recipe = UserCountsAsWritten(table="t", by=by)
    return RecipeTarget(recipe=recipe, epsilons=(Fraction(1),), delta=Fraction(0), claimed=claim)
