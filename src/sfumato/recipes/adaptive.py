"""Synthetic rows without hand-picked marginals: what is measured next is chosen privately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.errors import RecipeError
from sfumato.inference import LARGEST_TREE
from sfumato.recipes.adapt import Limits, all_subsets, close_downwards, measure_adaptively
from sfumato.recipes.rows import model_domain
from sfumato.recipes.selected import (
    check_options,
    find_columns,
    plan_selection,
    read_values,
    run_selection,
    tell_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from sfumato.inference import Domain
    from sfumato.recipes.base import Conversation, Plan
    from sfumato.schema import Table

Columns = tuple[str, ...]

_LARGEST_MARGINAL = 2**18
_COUNTED = 2**25  # cells of all marginals together from which only pairs are the default workload
_MOST_WEIGHT = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Synthetic rows of a graphical model whose marginals are chosen privately, one after the other.

    `workload` says what the rows should be good for: all combinations of so many columns, 1 to 4, or a
    list of {columns = [...], weight = n}. By default it is 3, or 2 where that would be too many cells.
    `model_cells` bounds the model. `public` names a table for values within bins.

    Privacy: all choices and measurements together cost at most the Gaussian privacy that (epsilon,
    delta) admits, charged before the first of them (docs/proofs/adaptive.md).

    >>> Adaptive(table="people", workload=2).kind
    'adaptive'
    """

    kind: ClassVar[str] = "adaptive"

    table: str
    columns: Sequence[str] | None = None
    workload: Any = None
    model_cells: int = 2**21
    public: Any = None
    seed: int = 0
    rows: int | None = None

    def __post_init__(self) -> None:
        for key, value in check_options(self).items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "workload", _parse_workload(self.workload))
        if (
            isinstance(self.model_cells, bool)
            or not isinstance(self.model_cells, int)
            or not 1 <= self.model_cells <= LARGEST_TREE
        ):
            raise RecipeError(f"adaptive: model_cells must be a whole number from 1 to {LARGEST_TREE:,}")

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record."""
        return {
            "recipe": self.kind,
            "table": self.table,
            "columns": None if self.columns is None else list(self.columns),
            "workload": self.workload if not isinstance(self.workload, tuple) else list(self.workload),
            "model_cells": self.model_cells,
            "public": self.public,
            "seed": self.seed,
            "rows": self.rows,
        }

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """One allowance per epsilon; every marginal that may be chosen is counted."""
        domain = model_domain(table, find_columns(self, table))
        counted = self._candidates(domain, self._find_workload(domain))
        recipe = replace(self, public=read_values(self, table))
        return plan_selection(recipe, table, epsilons=epsilons, delta=delta, counted=tuple(counted))

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """The rows of a model of what was chosen and measured, for one epsilon after the other."""
        limits = Limits(model=self.model_cells, marginal=_LARGEST_MARGINAL)
        return run_selection(
            self,
            plan,
            measure=lambda purse, domain, label: measure_adaptively(
                purse, domain, self._find_workload(domain), limits=limits, label=label, progress=progress
            ),
        )

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up that are this recipe's own."""
        columns = find_columns(self, plan.table)
        return {
            "idea": (
                f"The release is a table of synthetic rows with the columns {', '.join(columns)}. A "
                "graphical model is fitted to noisy marginals; which marginals are measured is "
                "chosen privately, each "
                "time one that the model so far gets most wrong."
            ),
            "preprocessing": (
                "What the rows should be good for, the workload, is stated in the recipe. No record is "
                "touched, so the step costs nothing."
            ),
            "privatisation": (
                "First every single column is measured with Gaussian noise. Then, in rounds, a marginal is "
                "chosen by the exponential mechanism: its score is the L1 distance between its counts and "
                "the model's, less what noise alone would add, times its weight in the workload; one "
                "individual moves it by at most its contribution times the weight. The marginal is measured "
                "with Gaussian noise and the model is fitted anew. When a measurement moves the model by no "
                "more than noise would, later rounds get more of the budget. Rounds end when the Gaussian "
                "privacy of all choices and measurements together has used up what was charged."
            ),
            "postprocessing": tell_rows(self, plan),
        }

    def _find_workload(self, domain: Domain) -> dict[Columns, int]:
        columns = tuple(domain)
        if isinstance(self.workload, tuple):
            stated: dict[Columns, int] = {}
            for each in self.workload:
                names = domain.order(tuple(each["columns"]))
                if len(names) != len(each["columns"]):
                    raise RecipeError("adaptive: the workload names a column that the rows do not have")
                stated[names] = stated.get(names, 0) + each["weight"]
            return stated
        if self.workload is not None:
            return all_subsets(columns, self.workload)
        triples = all_subsets(columns, 3)
        cells = sum(domain.cells(each) for each in self._candidates(domain, triples))
        return triples if cells <= _COUNTED else all_subsets(columns, 2)

    def _candidates(self, domain: Domain, workload: Mapping[Columns, int]) -> list[Columns]:
        parts = {(name,): None for name in domain} | dict.fromkeys(close_downwards(domain, workload))
        return [each for each in parts if len(each) == 1 or domain.cells(each) <= _LARGEST_MARGINAL]


def _parse_workload(value: object) -> int | tuple[dict[str, Any], ...] | None:
    if value is None or (not isinstance(value, bool) and isinstance(value, int) and 1 <= value <= 4):
        return value
    message = (
        "adaptive: workload must be a number from 1 to 4, for all combinations of so many columns, or a list "
        "such as [{columns = ['a', 'b'], weight = 2}]"
    )
    if not isinstance(value, (list, tuple)) or not value:
        raise RecipeError(message)
    parsed = []
    for each in value:
        if not isinstance(each, Mapping) or not set(each) <= {"columns", "weight"} or "columns" not in each:
            raise RecipeError(message)
        names, weight = each["columns"], each.get("weight", 1)
        if not isinstance(names, (list, tuple)) or not names or len(set(names)) != len(names):
            raise RecipeError(message)
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= _MOST_WEIGHT:
            raise RecipeError(
                f"adaptive: the weight of a workload must be a whole number from 1 to {_MOST_WEIGHT:,}"
            )
        parsed.append({"columns": list(names), "weight": weight})
    return tuple(parsed)
