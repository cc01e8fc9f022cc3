"""From a statement to a plan: what is measured, with which sensitivity, which noise and at what cost.

Everything here follows from the statement and the project file. The sensitivity of every measure is
derived from the bounds the engine enforces; docs/proofs/sql.md has the derivations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sfumato.accounting import Cost
from sfumato.exact import digest
from sfumato.schema.unit import PrivacyUnit
from sfumato.sql.aggregates import Aggregate, Measure, read_aggregate
from sfumato.sql.bounds import CELLS
from sfumato.sql.calibrate import Noise, Selection, calibrate_noise, plan_selection
from sfumato.sql.check import AGGREGATE, KEY, check_output, find_aggregates, refuse, refuse_deep
from sfumato.sql.keys import Key, name_item, read_keys, read_whole, spell_position
from sfumato.sql.relation import Catalog, Relation
from sfumato.sql.scope import resolve_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sfumato.sql.statement import Statement

__all__ = [
    "CELLS",
    "Noise",
    "Output",
    "QueryPlan",
    "Selection",
    "find_mode",
    "name_columns",
    "plan_counts",
    "plan_query",
    "prepare_query",
]

_LARGEST_ANSWER = 2**24
_LARGEST_QUANTILES = 2**25


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One column of the answer: its name, and a tree over keys and aggregates."""

    name: str
    tree: exp.Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """A private statement, planned."""

    text: str
    epsilon: Fraction
    delta: Fraction
    relation: Relation
    unit: PrivacyUnit
    max_groups: int
    keys: tuple[Key, ...]
    aggregates: tuple[Aggregate, ...]
    noises: tuple[Noise, ...]
    outputs: tuple[Output, ...]
    selection: Selection | None = None
    having: exp.Expr | None = None
    order: tuple[tuple[exp.Expr, bool], ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def groups(self) -> int:
        """The number of groups with public labels; 1 without GROUP BY."""
        return math.prod(len(key.labels) for key in self.keys if key.labels is not None)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Every cost, in the order in which the answers are drawn."""
        first = () if self.selection is None else (self.selection.cost,)
        return (*first, *(cost for noise in self.noises for cost in noise.costs))

    def to_record(self) -> dict[str, Any]:
        """The plan as a plain record."""
        selection = self.selection
        return {
            "statement": self.text,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit.describe(),
            "max_groups": self.max_groups,
            "noise": [noise.to_record() for noise in self.noises],
            "selection": None
            if selection is None
            else {"scale": selection.scale, "threshold": selection.threshold},
        }

    @property
    def digest(self) -> str:
        """The SHA-256 of the plan's record."""
        return digest(self.to_record())


def plan_query(
    statement: Statement, catalog: Catalog, *, epsilon: Fraction, selection_delta: Fraction
) -> QueryPlan:
    """The plan of a private statement whose select list aggregates; `epsilon` is what it may spend."""
    return prepare_query(statement, catalog, selection_delta=selection_delta)(epsilon)


@refuse_deep
def prepare_query(
    statement: Statement, catalog: Catalog, *, selection_delta: Fraction
) -> Callable[[Fraction], QueryPlan]:
    """All that does not depend on epsilon, done once; what is returned gives the plan for an epsilon."""
    query = statement.query
    _refuse_clauses(query)
    relation = resolve_sources(query, catalog)
    if relation.unit is None:
        raise refuse("the tables are public; a plain SELECT answers exactly and spends nothing")
    keys = read_keys(query, relation)
    reader = _Reader(relation, keys, query)
    outputs = tuple(
        Output(name=name_item(item, text), tree=reader.read(item.unalias()))
        for item, text in zip(query.expressions, statement.texts, strict=True)
    )
    names = [name for output in outputs for name in name_columns(output, reader.aggregates)]
    if len(set(names)) != len(names):
        raise refuse("two columns of the answer, with those of their intervals, have the same name; use AS")
    having = query.args.get("having")
    order = query.args.get("order")
    having_tree = None if having is None else reader.read(having.this, aliases=True)
    ordered = order.expressions if order is not None else []
    order_targets = [spell_position(each.this, query, where="ORDER BY") for each in ordered]
    order_trees = tuple(
        (reader.read(target, aliases=True), bool(each.args.get("desc")))
        for each, target in zip(ordered, order_targets, strict=True)
    )
    for output in outputs:
        if find_mode(output.tree, reader.aggregates) is None and not _is_key(output.tree):
            check_output(output.tree, logic=False)
            _refuse_mode(output.tree, reader.aggregates)
    for tree, _ in order_trees:
        check_output(tree, logic=False)
        _refuse_mode(tree, reader.aggregates)
    if having_tree is not None:
        check_output(having_tree, logic=True)
        _refuse_mode(having_tree, reader.aggregates)
    if not reader.aggregates:
        raise refuse(
            "the select list has no aggregate; DP-SELECT columns without GROUP BY gives synthetic rows"
        )
    if any(key.is_open for key in keys) and any(
        measure.statistic == "quantile" for each in reader.aggregates for measure in each.measures
    ):
        raise refuse(
            "quantiles, MODE or TOP in groups that are not public; declare the values of the group's column"
        )
    groups = _bound_groups(relation.unit, keys, statement.max_groups)
    measures = tuple(dict.fromkeys(m for each in reader.aggregates for m in each.measures))
    _refuse_large(keys, measures)
    unit = relation.unit
    text = query.sql(dialect="duckdb", normalize=True)
    limit = read_whole(query.args.get("limit"), "LIMIT")
    offset = read_whole(query.args.get("offset"), "OFFSET") or 0

    @refuse_deep
    def plan_at(epsilon: Fraction) -> QueryPlan:
        selection, rest, delta = plan_selection(
            unit, keys, groups, epsilon, statement.delta, selection_delta, parts=len(measures)
        )
        plan = QueryPlan(
            text=text,
            epsilon=epsilon,
            delta=statement.delta,
            relation=relation,
            unit=unit,
            max_groups=groups,
            keys=keys,
            aggregates=tuple(reader.aggregates),
            noises=calibrate_noise(measures, unit, groups, epsilon=rest, delta=delta),
            outputs=outputs,
            selection=selection,
            having=having_tree,
            order=order_trees,
            limit=limit,
            offset=offset,
        )
        from sfumato.sql.finish import rehearse_query

        rehearse_query(plan)
        return plan

    return plan_at


def name_columns(output: Output, aggregates: Sequence[Aggregate]) -> tuple[str, ...]:
    """The names of the columns that one item of the select list becomes."""
    if _is_key(output.tree):
        return (output.name,)
    mode = find_mode(output.tree, aggregates)
    if mode is None:
        return output.name, f"{output.name}_low", f"{output.name}_high"
    if not mode.numbered:
        return (output.name,)
    return tuple(f"{output.name}_{place}" for place in range(1, mode.chosen + 1))


def find_mode(tree: exp.Expr, aggregates: Sequence[Aggregate]) -> Measure | None:
    """What is measured if the tree is one MODE or TOP, None for anything else."""
    if isinstance(tree, exp.Column) and tree.table == AGGREGATE:
        aggregate = aggregates[int(tree.name)]
        if aggregate.kind == "mode":
            return aggregate.measures[0]
    return None


def plan_counts(
    statement: Statement,
    relation: Relation,
    keys: tuple[Key, ...],
    *,
    epsilon: Fraction,
    delta: Fraction,
) -> QueryPlan:
    """The plan that counts the records of `relation` in every combination of `keys`."""
    if relation.unit is None:
        raise refuse("the tables are public")
    measures = (Measure(statistic="records"),)
    noises = calibrate_noise(measures, relation.unit, 1, epsilon=epsilon, delta=delta)
    names = ", ".join(key.node.sql(dialect="duckdb") for key in keys)
    return QueryPlan(
        text=f"{statement.query.sql(dialect='duckdb', normalize=True)} [counts by {names}]",
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        unit=relation.unit,
        max_groups=relation.unit.max_records,
        keys=keys,
        aggregates=(Aggregate(kind="measure", measures=measures),),
        noises=noises,
        outputs=(),
    )


class _Reader:
    """Turns the trees of a select list into trees over keys (`key.N`) and aggregates (`aggregate.N`)."""

    def __init__(self, relation: Relation, keys: tuple[Key, ...], query: exp.Select) -> None:
        self._relation = relation
        self._keys = {key.node.sql(): index for index, key in enumerate(keys)}
        self._aliases = {
            item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)
        }
        self.aggregates: list[Aggregate] = []

    def read(self, node: exp.Expr, *, aliases: bool = False) -> exp.Expr:
        """`node` with every aggregate and every key replaced by its number.

        With `aliases`, a name outside an aggregate may also be that of a column of the select list.
        """
        node = node.copy()
        for found in list(find_aggregates(node)):
            number = self._number(read_aggregate(found, self._relation))
            column = exp.column(str(number), table=AGGREGATE)
            node = column if found is node else _replace(node, found, column)
        if aliases:
            for column in list(node.find_all(exp.Column)):
                named = self._aliases.get(column.name.lower()) if not column.table else None
                if named is not None:
                    spelled = self.read(named)
                    node = spelled if column is node else _replace(node, column, spelled)
        return self._replace_keys(node)

    def _number(self, aggregate: Aggregate) -> int:
        if aggregate not in self.aggregates:
            self.aggregates.append(aggregate)
        return self.aggregates.index(aggregate)

    def _replace_keys(self, node: exp.Expr) -> exp.Expr:
        def name_table(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column) or part.table in (AGGREGATE, KEY):
                return part
            alias, found = self._relation.find(part)
            return exp.column(found.name, table=alias, quoted=True)

        def name_key(part: exp.Expr) -> exp.Expr:
            named = self._keys and not isinstance(part, (exp.Literal, exp.Identifier))
            key = self._keys.get(part.sql()) if named else None
            if key is not None:
                return exp.column(str(key), table=KEY)
            if isinstance(part, exp.Column) and part.table not in (AGGREGATE, KEY):
                raise refuse(f"column {part.name[:60]!r} is neither aggregated nor in GROUP BY")
            return part

        return node.transform(name_table).transform(name_key)


def _replace(node: exp.Expr, found: exp.Expr, column: exp.Expr) -> exp.Expr:
    return node.transform(lambda part: column.copy() if part is found or part == found else part)


def _bound_groups(unit: PrivacyUnit, keys: tuple[Key, ...], wanted: int | None) -> int:
    if not keys:
        return 1
    return min(unit.max_records, wanted or unit.max_groups or unit.max_records)


def _refuse_clauses(query: exp.Select) -> None:
    if query.args.get("distinct"):
        raise refuse("SELECT DISTINCT would list what is in the records; use GROUP BY")
    if any(isinstance(item, exp.Star) for item in query.expressions):
        raise refuse("a star beside GROUP BY or aggregates; name the columns")


def _refuse_large(keys: tuple[Key, ...], measures: tuple[Measure, ...]) -> None:
    groups = math.prod(len(key.labels) for key in keys if key.labels is not None)
    if groups > _LARGEST_ANSWER:
        raise refuse(f"the answer would have {groups:,} groups; group by fewer columns")
    quantiles = sum(measure.statistic == "quantile" for measure in measures)
    if quantiles and groups * CELLS > _LARGEST_QUANTILES:
        raise refuse(f"quantiles, MODE or TOP of {groups:,} groups; group by fewer columns")


def _refuse_mode(tree: exp.Expr, aggregates: Sequence[Aggregate]) -> None:
    if any(find_mode(node, aggregates) is not None for node in tree.find_all(exp.Column)):
        raise refuse(
            "MODE and TOP stand by themselves in the select list; labels are not computed or ordered with"
        )


def _is_key(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Column) and tree.table == KEY
