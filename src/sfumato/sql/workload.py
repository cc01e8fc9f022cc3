"""Many statements planned together: what to measure so that all of them follow, and how to divide epsilon.

Statements about one table are put together where one measurement by finer groups serves several of them
better than one each. What is better is a stated loss: the mean, over statements, of the variance of an answer
relative to that of asking the statements one by one at the same total. Public facts decide, nothing is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from sfumato.core.errors import SfumatoError
from sfumato.core.facts.domain import IntegerRange, Values
from sfumato.sql.links import link_measures, link_sources
from sfumato.sql.plan import QueryPlan
from sfumato.sql.question import Question, can_reuse, read_question, spell
from sfumato.sql.reuse import spread_of_noise

if TYPE_CHECKING:
    from sfumato.sql.relation import Field
    from sfumato.sql.statement import Statement

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
