"""Many statements bought together: planned, shown with their expected errors, and then paid for.

Part of the curator. What is measured goes through the door as statements of their own; the statements of
the workload follow from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.accounting import max_mu
from sfumato.core.cost.curves import mu_to_epsilon
from sfumato.core.errors import BudgetExceeded, RecipeError, UnsupportedQuery
from sfumato.core.exact import format_short
from sfumato.sql.expected import expected_errors
from sfumato.sql.reuse import expect_noise, spread_of_noise
from sfumato.sql.rows import selects_rows
from sfumato.sql.statement import read_statement
from sfumato.sql.workload import Purchase, Wanted, choose_purchases, divide_epsilon

if TYPE_CHECKING:
    from sfumato.curator.statements import Desk
    from sfumato.sql.finish import Answer
    from sfumato.sql.plan import QueryPlan
    from sfumato.sql.question import Question
    from sfumato.sql.statement import Statement

Errors = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement of a workload: the statement that buys it, its epsilon, and which statements follow.

    `about` says what is measured, in short.
    """

    text: str
    about: str
    epsilon: Fraction
    groups: int
    serves: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One statement of a workload, with half the widths of its 95 % intervals: planned, and asked alone.

    `variance_ratio` is how many times the variance of asking it alone, at an equal share, is larger.
    """

    text: str
    errors: Errors
    alone: Errors
    variance_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Statements planned together. Nothing is spent until `buy()`, which returns the answers in their order.

    `purchases` are what is measured and `statements` what is expected of each. `improvement` is how many
    times the mean squared error of asking them one by one, each relative to that, is larger.
    """

    epsilon: Fraction
    delta: Fraction
    purchases: tuple[Measured, ...]
    statements: tuple[Expected, ...]
    admitted: bool
    buy: Callable[[], list[Answer]]

    @property
    def improvement(self) -> float:
        """How many times larger the mean squared error of asking one by one is, at the same total."""
        return 1 / float(np.mean([1 / each.variance_ratio for each in self.statements]))

    def to_record(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "admitted": self.admitted,
            "improvement": self.improvement,
            "purchases": [
                {
                    "statement": each.text,
                    "about": each.about,
                    "epsilon": float(each.epsilon),
                    "groups": each.groups,
                    "statements": [number + 1 for number in each.serves],
                }
                for each in self.purchases
            ],
            "statements": [
                {
                    "statement": each.text,
                    "errors": dict(each.errors),
                    "one_by_one": dict(each.alone),
                    "variance_ratio": each.variance_ratio,
                }
                for each in self.statements
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"{len(self.statements)} statements from {len(self.purchases)} measurements, epsilon "
            f"{format_short(self.epsilon)} in all; nothing was spent",
            f"mean squared error {self.improvement:.3g} times less than one by one at the same total",
        ]
        for each in self.purchases:
            served = ", ".join(str(number + 1) for number in each.serves)
            lines.append(f"  epsilon {float(each.epsilon):.4g} for {served}: {each.about}")
        for number, one in enumerate(self.statements, start=1):
            lines.append(f"  {number}. {one.text}")
            pairs = [
                f"{name} {_show(error)} ({_show(one.alone[name])})" for name, error in one.errors.items()
            ]
            lines.append(f"     95 % within, one by one in brackets: {', '.join(pairs)}")
        if not self.admitted:
            lines.append("the budget has no room for this")
        return "\n".join(lines)


def plan_workload(
    texts: Sequence[str],
    *,
    desk: Desk,
    epsilon: Fraction,
    delta: Fraction,
    progress: Callable[[str], None],
) -> Workload:
    """The plan of a workload: what is measured for `texts`, with which shares, and what to expect."""
    if not texts:
        raise UnsupportedQuery("a workload needs at least one statement")
    share = epsilon / len(texts)
    wanted = []
    for number, text in enumerate(texts):
        try:
            wanted.append(_read_wanted(number, text, desk, share, delta))
        except (RecipeError, UnsupportedQuery) as error:
            raise type(error)(f"statement {number + 1} of the workload: {error}") from None
    make = _Maker(desk, delta)
    purchases = choose_purchases(wanted, lambda text: make.plan(text, Fraction(1)), desk.described)
    shares = divide_epsilon(purchases, epsilon)
    if delta > 0:
        shares = _divide_gaussian(purchases, make, epsilon, delta) or shares
    plans = [make.plan(each.text, part) for each, part in zip(purchases, shares, strict=True)]
    measured = [(plan, question) for plan in plans if (question := desk.question(plan)) is not None]
    alone = {
        each.numbers[0]: plan for each, plan in zip(purchases, plans, strict=True) if each.aggregate is None
    }
    workload = Workload(
        epsilon=epsilon,
        delta=delta,
        purchases=tuple(
            Measured(
                text=each.text, about=each.describe(), epsilon=part, groups=plan.groups, serves=each.numbers
            )
            for each, part, plan in zip(purchases, shares, plans, strict=True)
        ),
        statements=tuple(_expect(each, measured, alone.get(each.number)) for each in wanted),
        admitted=desk.report().admits(cost for plan in plans for cost in plan.costs),
        buy=lambda: _buy(workload, wanted, purchases, shares, make, progress=progress),
    )
    return workload


class _Maker:
    """Plans statements of a desk at a price."""

    def __init__(self, desk: Desk, delta: Fraction) -> None:
        self.desk, self._delta = desk, delta

    def statement(self, text: str, epsilon: Fraction) -> Statement:
        statement = read_statement(text)
        if statement.mode == "private" or statement.price is not None or statement.explain:
            raise UnsupportedQuery("a workload takes plain SELECT; its epsilon says what all may spend")
        return replace(self.desk.prepare(statement, epsilon=epsilon), delta=self._delta)

    def plan(self, text: str, epsilon: Fraction) -> QueryPlan:
        statement = self.statement(text, epsilon)
        return self.desk.plan(statement, self.desk.catalog(statement))


def _read_wanted(number: int, text: str, desk: Desk, share: Fraction, delta: Fraction) -> Wanted:
    make = _Maker(desk, delta)
    statement = make.statement(text, share)
    if statement.mode == "public" or selects_rows(statement.query):
        raise UnsupportedQuery("a workload takes SELECT that aggregates private tables")
    plan = desk.plan(statement, desk.catalog(statement))
    return Wanted(number=number, text=text, statement=statement, plan=plan, question=desk.question(plan))


def _divide_gaussian(
    purchases: list[Purchase], make: _Maker, epsilon: Fraction, delta: Fraction
) -> list[Fraction] | None:
    """Shares under which Gaussian noise composes to the whole: squares of mu add up; None if noise is other.

    The variance of a purchase falls with mu squared, so its share of that goes with the root of its loss.
    """
    plans = [make.plan(each.text, epsilon) for each in purchases]
    if any(not noise.is_normal for plan in plans for noise in plan.noises):
        return None
    roots = [math.sqrt(each.loss) for each in purchases]
    whole = max_mu(epsilon, delta) ** 2
    shares = []
    for each, root in zip(purchases, roots, strict=True):
        part = mu_to_epsilon(math.sqrt(whole * root / sum(roots)), delta) * (1 - 1e-6)
        shares.append(Fraction(math.floor(part * 10**9), 10**9))
        if any(not noise.is_normal for noise in make.plan(each.text, shares[-1]).noises):
            return None
    return shares


def _expect(each: Wanted, measured: list[tuple[QueryPlan, Question]], alone: QueryPlan | None) -> Expected:
    """What is expected of one statement that follows from what is `measured`, or is bought `alone`."""
    plan = alone
    if plan is None and each.question is not None:
        plan = expect_noise(each.plan, each.question, measured)
    assert plan is not None, "a statement that nothing was planned for"
    pairs = zip(each.plan.noises, plan.noises, strict=True)
    ratios = [spread_of_noise(noise) / spread_of_noise(before) for before, noise in pairs]
    return Expected(
        text=each.text,
        errors=_widths(plan),
        alone=_widths(each.plan),
        variance_ratio=1 / float(np.mean(ratios)),
    )


def _buy(
    workload: Workload,
    wanted: list[Wanted],
    purchases: list[Purchase],
    shares: list[Fraction],
    make: _Maker,
    *,
    progress: Callable[[str], None],
) -> list[Answer]:
    desk = make.desk
    if not workload.admitted:
        left = desk.report().left
        raise BudgetExceeded(
            f"the workload needs epsilon {format_short(workload.epsilon)}, and {left} is left; nothing was "
            "spent",
            left=left,
        )
    spent = dict.fromkeys(range(len(wanted)), (Fraction(0), Fraction(0)))
    answers: dict[int, Answer] = {}
    for purchase, share in zip(purchases, shares, strict=True):
        statement = replace(make.statement(purchase.text, share), fresh=True)
        bought = desk.answer_prepared(statement, progress=progress)
        first = purchase.numbers[0]
        if purchase.aggregate is None:
            answers[first] = bought
        # What a measurement cost is said once, with the first statement that follows from it.
        spent[first] = spent[first][0] + bought.spent, max(spent[first][1], bought.delta)
    for each in wanted:
        if each.number not in answers:
            answers[each.number] = desk.answer_prepared(replace(each.statement, free=True), progress=progress)
    return [
        replace(answers[number], spent=spent[number][0], delta=spent[number][1])
        for number in range(len(wanted))
    ]


def _show(error: float | None) -> str:
    return "as the answer tells" if error is None else f"+-{error:.4g}"


def _widths(plan: QueryPlan) -> dict[str, float | None]:
    """The expected errors of the columns of a plan, None where they depend on the records."""
    return {name: each.width for name, each in expected_errors(plan).items()}
