"""A recipe followed through its questions, each batch checked against its plan before it is answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from sfumato.accounting import Spent, add_costs
from sfumato.errors import RecipeError
from sfumato.measurement import CapChoice, Choice, NormChoice, Request, ask_cost, is_dense, request_size
from sfumato.recipes.base import MOST_ANSWERS, Product

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.measurement import Answer, Ask
    from sfumato.recipes.base import Plan


def follow_recipe(
    plan: Plan,
    *,
    answer: Callable[[tuple[Ask, ...]], tuple[Answer, ...]],
    progress: Callable[[str], None],
) -> tuple[tuple[Answer, ...], Product]:
    """All answers that the recipe of `plan` asked for, and what it made of them.

    Privacy: no batch reaches `answer` unless all that was asked so far is what the plan allows and
    costs no more than the plan charges.
    """
    asked = _Asked(plan)
    answers: list[Answer] = []
    run = plan.recipe.run(plan, progress=progress)
    try:
        batch = next(run)
        while True:
            asked.admit(batch)
            given = answer(batch)
            answers += given
            batch = run.send(given)
    except StopIteration as done:
        product = done.value
    finally:
        run.close()
    if not isinstance(product, Product) or not answers:
        raise RecipeError(f"recipe {plan.recipe.kind!r} asked nothing, or made no product of its answers")
    return tuple(answers), product


@dataclass(slots=True)
class _Asked:
    """What a recipe has asked so far."""

    plan: Plan
    spent: Spent = field(default_factory=Spent)
    names: set[str] = field(default_factory=set)
    size: int = 0

    def admit(self, batch: tuple[Ask, ...]) -> None:
        """Refuses the whole batch, from public facts alone."""
        if not isinstance(batch, tuple) or not batch:
            self._refuse("yielded no questions")
        for ask in batch:
            if not isinstance(ask, (Request, Choice, NormChoice, CapChoice)):
                self._refuse("asked something that is neither a request nor a choice")
            if ask.name in self.names:
                self._refuse(f"asked {ask.name!r} twice; every question needs a name of its own")
            self.names.add(ask.name)
            self._check_columns(ask)
            self.size += request_size(self.plan.table, ask) if isinstance(ask, Request) else 1
        if self.size > MOST_ANSWERS:
            self._refuse(f"asked for {self.size:,} values, more than the {MOST_ANSWERS:,} that are kept")
        self.spent = add_costs(self.spent, (ask_cost(self.plan.table, ask) for ask in batch))
        if not _within(self.spent, add_costs(Spent(), self.plan.costs)):
            self._refuse("asked for more than its plan charges")

    def _check_columns(self, ask: Ask) -> None:
        plan = self.plan
        if isinstance(ask, Choice):
            known = {each.columns for each in ask.candidates} <= set(plan.marginals)
        elif isinstance(ask, Request) and is_dense(ask):
            known = ask.columns in plan.marginals
        elif isinstance(ask, Request) and ask.threshold is not None:
            known = ask.columns in plan.occupied
        else:
            known = set(ask.columns) <= set(plan.columns)
        if not known:
            self._refuse(f"asked {ask.name!r} of columns that its plan does not name")
        if isinstance(ask, CapChoice) and not ask.caps[0] < ask.caps[-1] <= plan.table.unit.max_records:
            self._refuse(f"asked {ask.name!r} among bounds beyond max_records")
        if not isinstance(ask, Request):
            return
        if ask.heads is not None and ask.heads.cells[-1] >= plan.table.cells(ask.columns):
            self._refuse(f"asked {ask.name!r} about individuals in cells that its columns do not have")
        if ask.queries is None:
            return
        if ask.queries.cells != plan.table.cells(ask.columns):
            self._refuse(f"asked {ask.name!r} with queries over another number of cells")

    def _refuse(self, reason: str) -> NoReturn:
        raise RecipeError(f"recipe {self.plan.recipe.kind!r} {reason}")


def _within(asked: Spent, allowed: Spent) -> bool:
    """Whether every sum that `allowed` bounds is bounded by it in `asked`."""
    if asked.rho > allowed.rho or asked.delta > allowed.delta:
        return False
    pairs = ((asked.epsilon, allowed.epsilon), (asked.mu_squared, allowed.mu_squared))
    return all(most is None or (amount is not None and amount <= most) for amount, most in pairs)
