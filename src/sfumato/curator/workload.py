"""Many statements bought together: planned, shown with their expected errors, and then paid for.

Part of the curator. What is measured goes through the door as statements of their own; the statements of
the workload follow from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from sfumato.accounting import max_mu
from sfumato.core.cost.curves import mu_to_epsilon
from sfumato.core.errors import BudgetExceeded, RecipeError, SfumatoError, UnsupportedQuery
from sfumato.core.exact import format_short
from sfumato.core.facts.domain import IntegerRange, Values
from sfumato.sql.expected import expected_errors
from sfumato.sql.links import link_measures, link_sources
from sfumato.sql.plan import QueryPlan
from sfumato.sql.question import Question, can_reuse, read_question, spell
from sfumato.sql.reuse import expect_noise, spread_of_noise
from sfumato.sql.rows import selects_rows
from sfumato.sql.statement import read_statement

if TYPE_CHECKING:
    from sfumato.curator.statements import Desk
    from sfumato.sql.finish import Answer
    from sfumato.sql.relation import Field
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
    texts: Sequence[str], *, desk: Desk, epsilon: Fraction, delta: Fraction, progress: Callable[[str], None]
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


_MOST_GROUPS = 20_000
_MOST_LISTED = 40
_ELSE = "(else)"
# With the cube of epsilon's share as its price, a measurement that serves more must be better by so much.
_GAIN = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wanted:
    """One statement of a workload, planned as if it were asked alone with an equal share."""

    number: int
    text: str
    statement: Statement
    plan: QueryPlan
    question: Question | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """One aggregate of a statement: which of its measures it needs, and how it is asked for."""

    wanted: Wanted
    measures: tuple[int, ...]
    aggregate: str
    conditions: dict[str, exp.Expr]
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Purchase:
    """One measurement: the statement that buys it, and the items that follow from it.

    `loss` is what these lose together at epsilon 1; at a share e of epsilon it is divided by its square. What
    does not go together with others is bought as it is: it has no `aggregate`.
    """

    text: str
    serves: tuple[Item, ...]
    loss: float
    aggregate: str | None = None
    conditions: dict[str, exp.Expr] = field(default_factory=dict)
    keys: dict[str, exp.Expr] = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The statements that it serves."""
        return tuple(sorted({item.wanted.number for item in self.serves}))

    def describe(self) -> str:
        """What is measured, for people: an aggregate by its keys, or a statement as it was written.

        Keys that were made so that every record is in a group are called by what they tell apart.
        """
        if self.aggregate is None:
            return self.text
        keys = ", ".join(map(_describe_key, self.keys.values()))
        where = " and ".join(sorted(self.conditions))
        text = f"{self.aggregate}{f' by {keys}' if keys else ''}{f' where {where}' if where else ''}"
        return text.replace('"t0".', "").replace("t0.", "").replace('"', "")


def choose_purchases(
    wanted: Sequence[Wanted], plan_again: Callable[[str], QueryPlan], tables: Callable[[QueryPlan], object]
) -> list[Purchase]:
    """What to measure for all `wanted`; `plan_again` plans a statement at epsilon 1.

    `tables` is the record of the described tables that a plan reads.
    """
    planner = _Planner(plan_again, tables)
    purchases = [purchase for each in wanted for purchase in planner.start(each)]
    return planner.improve(purchases)


def divide_epsilon(purchases: Sequence[Purchase], epsilon: Fraction) -> list[Fraction]:
    """The shares of epsilon that make the whole loss least: by the cube roots of the losses.

    They are whole millionths of epsilon.
    """
    roots = [each.loss ** (1 / 3) for each in purchases]
    parts = [max(1, math.floor(10**6 * root / sum(roots))) for root in roots]
    largest = parts.index(max(parts))
    parts[largest] += 10**6 - sum(parts)
    return [epsilon * part / 10**6 for part in parts]


def list_items(each: Wanted) -> list[Item] | None:
    """The aggregates of a statement that can be bought by themselves; None if one of them cannot."""
    question, plan = each.question, each.plan
    if (
        question is None
        or plan.selection is not None
        or plan.relation.joined
        or len(plan.relation.fields) != 1
    ):
        return None
    if not isinstance(plan.relation.tree.args["from_"].this, exp.Table):
        return None
    index = {noise.measure: place for place, noise in enumerate(plan.noises)}
    unit = plan.unit.column
    found: dict[str, tuple[tuple[int, ...], str, dict[str, exp.Expr]]] = {}
    for aggregate in plan.aggregates:
        places = tuple(index[measure] for measure in aggregate.measures)
        asked = question.asked[places[0]]
        tree = asked.measure.tree
        inner = "*" if tree is None else spell(tree)
        written = {
            "average": f"AVG({inner})",
            "variance": f"VAR_POP({inner})",
            "deviation": f"VAR_POP({inner})",
        }.get(aggregate.kind)
        if aggregate.kind == "measure":
            written = {
                "records": "COUNT(*)",
                "present": f"COUNT({inner})",
                "sum": f"SUM({inner})",
                "distinct": f"COUNT(DISTINCT {inner})",
                "individuals": f'COUNT(DISTINCT t0."{unit}")',
            }.get(asked.measure.statistic)
        if written is None:
            return None
        conditions = {**question.conditions, **{spell(one): one for one in asked.conditions}}
        found[f"{written} {sorted(conditions)}"] = places, written, conditions
    return [
        Item(wanted=each, measures=places, aggregate=written, conditions=conditions, weight=1 / len(found))
        for places, written, conditions in found.values()
    ]


class _Planner:
    def __init__(self, plan_again: Callable[[str], QueryPlan], tables: Callable[[QueryPlan], object]) -> None:
        self._plan_again, self._tables = plan_again, tables
        self._plans: dict[str, tuple[QueryPlan, Question] | None] = {}
        self._losses: dict[tuple[str, Item], float | None] = {}

    def start(self, each: Wanted) -> list[Purchase]:
        """The measurements of one statement by itself, one for each of its aggregates."""
        items = list_items(each)
        whole = Item(wanted=each, measures=(), aggregate="", conditions={}, weight=1.0)
        alone = Purchase(text=each.text, serves=(whole,), loss=float(each.plan.epsilon) ** 2)
        if items is None or each.question is None:
            return [alone]
        keys = {text: _move(key.node) for text, key in zip(each.question.keys, each.plan.keys, strict=True)}
        found = [self._build(item.aggregate, item.conditions, keys, (item,)) for item in items]
        built = [purchase for purchase in found if purchase is not None]
        return built if len(built) == len(items) else [alone]

    def merge(self, one: Purchase, other: Purchase) -> Purchase | None:
        """One measurement from which all that both serve follows, None if there is none."""
        aggregate = _join_aggregates(one.aggregate, other.aggregate)
        if aggregate is None or _source(one) != _source(other):
            return None
        shared = {text: tree for text, tree in one.conditions.items() if text in other.conditions}
        apart = {
            text: tree for text, tree in {**one.conditions, **other.conditions}.items() if text not in shared
        }
        serves = (*one.serves, *other.serves)
        best: Purchase | None = None
        for keys in self._list_keys(one, other, apart):
            found = self._build(aggregate, shared, keys, serves)
            if found is not None and (best is None or found.loss < best.loss):
                best = found
        return best

    def _list_keys(
        self, one: Purchase, other: Purchase, apart: dict[str, exp.Expr]
    ) -> list[dict[str, exp.Expr]]:
        """Keys from which both may follow: those of one or of both, with what decides their conditions."""
        found: dict[tuple[str, ...], dict[str, exp.Expr]] = {}
        bases = [one.keys, other.keys, {**one.keys, **other.keys}]
        for base in bases:
            found[tuple(sorted(base))] = base
            for total in (False, True):
                keys = dict(base)
                for text, tree in apart.items():
                    keys |= self._key_for(text, tree, one, total=total)
                if total:
                    pairs = [pair for text, tree in keys.items() for pair in self._total(text, tree, one)]
                    keys = dict(pairs)
                found[tuple(sorted(keys))] = keys
        return list(found.values())

    def improve(self, purchases: list[Purchase]) -> list[Purchase]:
        """Puts two measurements together as long as that makes the whole loss smaller."""
        gains: dict[tuple[Purchase, Purchase], tuple[float, Purchase | None]] = {}
        while True:
            for place, one in enumerate(purchases):
                for other in purchases[place + 1 :]:
                    if (one, other) not in gains:
                        merged = self.merge(one, other)
                        lost = one.loss ** (1 / 3) + other.loss ** (1 / 3)
                        gain = 0.0 if merged is None else lost - merged.loss ** (1 / 3)
                        gains[one, other] = gain, merged
            found = [
                (gain, pair, merged)
                for pair, (gain, merged) in gains.items()
                if merged is not None and gain > _GAIN and pair[0] in purchases and pair[1] in purchases
            ]
            if not found:
                return purchases
            _, pair, merged = max(found, key=lambda each: each[0])
            purchases = [*(each for each in purchases if each not in pair), merged]

    def _build(
        self,
        aggregate: str,
        conditions: dict[str, exp.Expr],
        keys: dict[str, exp.Expr],
        serves: tuple[Item, ...],
    ) -> Purchase | None:
        """A measurement, if all that it shall serve follows from it."""
        listed = ", ".join(f"{text} AS c{place}" for place, text in enumerate((*keys, aggregate)))
        where = " AND ".join(f"({text})" for text in sorted(conditions))
        group = ", ".join(str(place + 1) for place in range(len(keys)))
        table = serves[0].wanted.plan.relation.tables[0]
        text = f"SELECT {listed} FROM {exp.to_identifier(table, quoted=True).sql(dialect='duckdb')} AS t0"
        text += f" WHERE {where}" if where else ""
        text += f" GROUP BY {group}" if group else ""
        loss = self._find_loss(text, serves)
        if loss is None:
            return None
        return Purchase(
            text=text, serves=serves, loss=loss, aggregate=aggregate, conditions=conditions, keys=keys
        )

    def _plan(self, text: str) -> tuple[QueryPlan, Question] | None:
        if text not in self._plans:
            self._plans[text] = None
            with suppress(SfumatoError):
                plan = self._plan_again(text)
                if plan.selection is None and plan.groups <= _MOST_GROUPS and can_reuse(plan):
                    self._plans[text] = plan, read_question(plan, self._tables(plan))
        return self._plans[text]

    def _find_loss(self, text: str, serves: tuple[Item, ...]) -> float | None:
        planned = self._plan(text)
        if planned is None:
            return None
        loss = 0.0
        for item in serves:
            if (text, item) not in self._losses:
                self._losses[text, item] = _lose(item, *planned)
            found = self._losses[text, item]
            if found is None:
                return None
            loss += found
        return loss

    def _key_for(self, text: str, tree: exp.Expr, one: Purchase, *, total: bool) -> dict[str, exp.Expr]:
        """A key whose groups decide a condition: a column with few labels, or the condition itself."""
        columns = {spell(column): column for column in tree.find_all(exp.Column)}
        if len(columns) == 1:
            ((name, column),) = columns.items()
            field_ = self._field(column, one)
            described = None if field_ is None else field_.column
            if described is not None and described.domain is not None and described.size <= _MOST_LISTED:
                return {name: column}
        return dict([_tell_apart(tree)]) if total else {text: tree}

    def _total(self, text: str, tree: exp.Expr, one: Purchase) -> list[tuple[str, exp.Expr]]:
        """A key that holds every record, in place of one of a column whose other values are dropped."""
        if not isinstance(tree, exp.Column):
            condition = isinstance(tree, (exp.Predicate, exp.And, exp.Or, exp.Not))
            return [_tell_apart(tree) if condition else (text, tree)]
        found = self._field(tree, one)
        column = None if found is None else found.column
        if column is None or column.outside != "drop" or column.extras or column.size > _MOST_LISTED:
            return [(text, tree)]
        if not isinstance(column.domain, (Values, IntegerRange)):
            return [(text, tree)]
        case = exp.Case()
        for label in column.labels:
            test = exp.EQ(this=tree.copy(), expression=exp.convert(label))
            case = case.when(test, exp.Literal.string(str(label)))
        case = case.else_(exp.Literal.string(_ELSE))
        return [(spell(case), case)]

    def _field(self, column: exp.Column, one: Purchase) -> Field | None:
        relation = one.serves[0].wanted.plan.relation
        (fields,) = relation.fields.values()
        return fields.get(column.name.lower())


def _tell_apart(condition: exp.Expr) -> tuple[str, exp.Expr]:
    """A key with a group for the records for which a condition holds, and one for all others."""
    case = exp.Case().when(condition.copy(), exp.Literal.string("yes")).else_(exp.Literal.string("no"))
    return spell(case), case


def _lose(item: Item, plan: QueryPlan, question: Question) -> float | None:
    """What an item loses if it follows from a plan at epsilon 1, None if it does not follow."""
    wanted = item.wanted
    assert wanted.question is not None
    links = link_measures(wanted.plan, wanted.question, plan, question)
    if not set(item.measures) <= set(links):
        return None
    loss = 0.0
    for place in item.measures:
        link = links[place]
        counts = np.bincount(link.target[link.target >= 0], minlength=wanted.plan.groups)
        noise = wanted.plan.noises[place]
        single = sum(
            spread_of_noise(source) * factor**2 for source, factor in link_sources(noise, link, plan)
        )
        loss += float(counts.mean()) * single / spread_of_noise(noise)
    return loss * item.weight / len(item.measures)


def _join_aggregates(one: str | None, other: str | None) -> str | None:
    """The aggregate from which two follow, None if there is none: sums and counts follow from a mean."""
    if one is None or other is None or one == other:
        return one if one == other else None
    inner = {each[each.index("(") :] for each in (one, other)}
    names = {each[: each.index("(")] for each in (one, other)}
    mean = len(inner) == 1 and names <= {"SUM", "COUNT", "AVG"}
    return f"AVG{inner.pop()}" if mean and inner != {"(*)"} else None


def _describe_key(tree: exp.Expr) -> str:
    default = tree.args.get("default") if isinstance(tree, exp.Case) else None
    if isinstance(default, exp.Literal) and default.this in (_ELSE, "no"):
        test = tree.args["ifs"][0].this
        return spell(test.this if default.this == _ELSE else test)
    return spell(tree)


def _source(one: Purchase) -> str:
    question = one.serves[0].wanted.question
    return "" if question is None else question.source


def _move(node: exp.Expr) -> exp.Expr:
    """An aggregate with its columns those of the table that purchases call t0."""
    moved = node.copy()
    for column in moved.find_all(exp.Column):
        column.set("table", exp.to_identifier("t0", quoted=True))
        column.set("this", exp.to_identifier(column.name, quoted=True))
    return moved
