"""What all recipes of models have in common: a target, inputs, one epsilon, and the header of model.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_positive
from sfumato.core.facts.column import Column, column_spec, refuse_unknown_keys
from sfumato.core.facts.domain import IntegerRange, Period, Tuples, Values
from sfumato.inference.models.design import code_values, find_inputs, is_described
from sfumato.inference.models.document import FORMAT, LINKS, Family
from sfumato.recipes.base import Plan, Recipe

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(Recipe):
    """The column to predict, and those to predict it from: by default all that have a domain or bounds.

    With `holdout`, a share of the people is left out of the fit, and the model is judged by them; `groups`
    is a column by whose values it is judged, too. `choose` lists candidates, options of the recipe each, of
    which the best is taken; each is fitted with its part of the budget.
    """

    optional: ClassVar[tuple[str, ...]] = ("holdout", "groups", "choose", "within")
    evaluated: ClassVar[bool] = False
    """Whether its models can be judged by held-out people."""

    target: str
    inputs: Sequence[str] | None = None
    holdout: Fraction | None = None
    groups: str | None = None
    choose: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        self._check_evaluation()
        if not isinstance(self.target, str) or not self.target:
            raise RecipeError(f"{self.kind}: target must name the column to predict")
        self._keep_columns("inputs")
        if self.target in (self.inputs or ()):
            raise RecipeError(f"{self.kind}: the target {self.target!r} is among the inputs; leave it out")

    def find_inputs(self, table: Table) -> tuple[str, ...]:
        """Return the columns of `table` to predict from."""
        return find_inputs(table, target=self.target, inputs=self.inputs, kind=self.kind)

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        bare = replace(self, holdout=None, groups=None, choose=())
        recipes = [replace(bare, **options) for options in self.choose] or [bare]
        names = dict.fromkeys(name for each in recipes for name in each.find_inputs(plan.table))
        return {"target": self.target, "inputs": ", ".join(f"`{name}`" for name in names)}

    def _check_evaluation(self) -> None:
        if self.holdout is None:
            if self.groups is not None or self.choose:
                raise RecipeError(f"{self.kind}: groups and choose need held-out people: set holdout = 0.2")
            self._keep(choose=())
            return
        if not self.evaluated:
            raise RecipeError(f"{self.kind}: holdout is not offered for this recipe")
        share = parse_positive(self.holdout, name=f"{self.kind}: holdout")
        if not Fraction(1, 100) <= share <= Fraction(9, 10):
            raise RecipeError(f"{self.kind}: holdout must be a share of the people from 0.01 to 0.9")
        if self.groups is not None and not isinstance(self.groups, str):
            raise RecipeError(f"{self.kind}: groups must name one column of the table")
        if not isinstance(self.choose, (list, tuple)) or not all(
            isinstance(each, Mapping) for each in self.choose
        ):
            raise RecipeError(f"{self.kind}: choose must list candidates, each a table of options")
        if self.choose and not 2 <= len(self.choose) <= MOST_CANDIDATES:
            raise RecipeError(f"{self.kind}: choose must list 2 to {MOST_CANDIDATES} candidates")
        known = {each.name for each in fields(self)} - {"table", "target", "holdout", "groups", "choose"}
        for options in self.choose:
            refuse_unknown_keys(options, tuple(sorted(known)), where=f"{self.kind}: a candidate of choose")
        self._keep(holdout=share, choose=tuple(dict(each) for each in self.choose))

    def refuse_budget(self, epsilons: tuple[Fraction, ...], delta: Fraction) -> None:
        """Raises an error if there is no delta, or more than one epsilon."""
        if len(epsilons) != 1:
            raise RecipeError(f"{self.kind}: a model has one epsilon; make one release for each")
        self.refuse_no_delta(delta)


def judge_target(column: Column, stated: str | None, *, kind: str, classes: int, most: int) -> Family:
    """Return what kind of target a column is, or an error where it cannot be what a recipe `stated`.

    Listed values are classes, other domains numbers. `classes` is how many there would be, at most `most`.
    """
    domain, name = column.domain, column.name
    if not is_described(column):
        raise RecipeError(
            f"{kind}: the target {name!r} needs values, a range or bins, or bounds if it is a number"
        )
    listed = isinstance(domain, (Values, Tuples, Period)) or (
        isinstance(domain, IntegerRange) and domain.size == 2
    )
    if stated == "classification" or (stated is None and listed):
        if not 2 <= classes <= most:
            raise RecipeError(
                f"{kind}: the classes of {name!r} must be 2 to {most} listed values, or a range; for a "
                'number set family = "regression"'
            )
        return "classification"
    if domain is not None and len(code_values(domain) or ()) < 2:
        raise RecipeError(f"{kind}: {name!r} is no number, or can be one number only")
    return "counts" if stated == "counts" else "regression"


def describe_model(
    plan: Plan, *, target: str, inputs: Iterable[str], family: Family | Literal["distribution", "clusters"]
) -> dict[str, Any]:
    """Return what a model.json begins with: what is predicted from what, for whom, and at what cost."""
    table = plan.table
    return {
        "format": FORMAT,
        "recipe": plan.recipe.kind,
        "table": table.name,
        "target": target,
        "columns": {name: column_spec(table.columns[name]) for name in inputs},
        "protects": table.unit.describe(),
        "epsilon": format_exact(plan.epsilons[0]),
        "delta": format_exact(plan.delta),
        "family": family,
        "link": LINKS.get(family, "identity"),
    }


def describe_target(table: Table, target: str, family: Family) -> Table:
    """Return the table with a target that has no code for missing values, whose records are left out."""
    column = replace(table.columns[target], missing_label=None)
    if family == "regression" and column.outside == "other":
        column = replace(column, outside="drop")
    return replace(table, columns={**table.columns, target: column})
