"""From a statement to a plan: what is measured, with which sensitivity, which noise and at what cost.

Everything here follows from the statement and the project file. The sensitivity of every measure is
derived from the bounds the engine enforces; docs/proofs/sql.md has the derivations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from sfumato.accounting import Cost, discrete_gaussian_sigma, histogram_sensitivity, selection_threshold
from sfumato.exact import digest, round_up
from sfumato.questions import LARGEST_SCALE
from sfumato.schema.table import PrivacyUnit
from sfumato.sql.aggregates import (
    Aggregate,
    Key,
    Measure,
    mode_scale,
    name_item,
    read_aggregate,
    read_keys,
    read_whole,
    spell_position,
)
from sfumato.sql.check import (
    AGGREGATE,
    KEY,
    check_output,
    check_scalar,
    find_aggregates,
    is_top,
    refuse,
    refuse_deep,
)
from sfumato.sql.relation import CELLS, Catalog, Relation, resolve_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sfumato.sql.statement import Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How one measure is answered: by noise of a scale, or by exponential choices, one for each cost.

    The scale of a quantile is the epsilon of its choices; that of a mode is in records: a label that
    leads by so many weighs e times as much.
    """

    measure: Measure
    kind: Literal["laplace", "gaussian", "exponential"]
    scale: Fraction
    costs: tuple[Cost, ...]

    def to_record(self) -> dict[str, Any]:
        """The noise as a plain record."""
        return {"measure": self.measure.describe(), "kind": self.kind, "scale": self.scale}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Groups that are in the records only: kept if enough individuals are in them, after noise."""

    scale: Fraction
    threshold: int
    cost: Cost


def plan_selection(
    unit: PrivacyUnit,
    keys: tuple[Key, ...],
    groups: int,
    epsilon: Fraction,
    delta: Fraction,
    reserve: Fraction,
    *,
    parts: int,
) -> tuple[Selection | None, Fraction, Fraction]:
    """The selection of open groups, and the epsilon and delta that are left for the measures."""
    open_keys = [key for key in keys if key.is_open]
    if not open_keys:
        return None, epsilon, delta
    name = open_keys[0].node.sql()
    if delta == 0 or reserve == 0:
        raise refuse(
            f"GROUP BY {name}: its groups are not public, so they are chosen privately, which needs delta "
            "(DP-SELECT 0.5 DELTA 1e-9 ..., and delta in [budget]); or declare its values in the project file"
        )
    share = epsilon / (parts + 1)
    sensitivity = histogram_sensitivity(contribution=Fraction(groups), norm="L1", neighbours=unit.neighbours)
    # A hundredth of the ledger's reserve at most, so that a hundred such statements fit.
    chance = min(delta / 2, reserve / 100)
    scale = sensitivity / share
    cost = Cost(
        kind="selection",
        scale=scale,
        sensitivity=sensitivity,
        neighbours=unit.neighbours,
        unit=unit.column or "row",
        delta=chance,
    )
    threshold = selection_threshold(scale=scale, sensitivity=sensitivity, delta=chance)
    return Selection(scale=scale, threshold=threshold, cost=cost), epsilon - share, delta - chance


def calibrate_noise(
    measures: tuple[Measure, ...],
    unit: PrivacyUnit,
    groups: int,
    *,
    epsilon: Fraction,
    delta: Fraction,
) -> tuple[Noise, ...]:
    """The noise of every measure: epsilon shared equally, or Gaussian for all where that is smaller."""
    share = epsilon / len(measures)
    facts = {"neighbours": unit.neighbours, "unit": unit.column or "row"}
    noises = []
    for measure in measures:
        if measure.labels is not None:
            noises.append(_mode_noise(measure, share, unit, facts))
            continue
        if measure.statistic == "quantile":
            noises.append(_quantile_noise(measure, share, facts))
            continue
        first = _sensitivity(measure, unit, groups, norm="L1")
        cost = Cost(kind="laplace", scale=first / share, sensitivity=first, **facts)  # type: ignore[arg-type]
        noise = Noise(measure=measure, kind="laplace", scale=cost.scale, costs=(cost,))
        if delta > 0 and not any(each.statistic == "quantile" for each in measures):
            second = _sensitivity(measure, unit, groups, norm="L2")
            sigma = round_up(
                discrete_gaussian_sigma(
                    epsilon=epsilon, delta=delta, sensitivity=second, count=len(measures)
                ),
                places=6,
            )
            if float(sigma) < math.sqrt(2) * float(noise.scale):
                cost = Cost(kind="gaussian", scale=sigma, sensitivity=second, **facts)  # type: ignore[arg-type]
                noise = Noise(measure=measure, kind="gaussian", scale=sigma, costs=(cost,))
        if noise.scale > LARGEST_SCALE:
            raise refuse("the noise would be beyond 2^50, more than any answer; spend more epsilon")
        noises.append(noise)
    kinds = {noise.kind for noise in noises}
    if len(kinds) > 1 and "gaussian" in kinds:
        # Each Gaussian was calibrated as one of many; beside Laplace noise that would not add up.
        return calibrate_noise(measures, unit, groups, epsilon=epsilon, delta=Fraction(0))
    return tuple(noises)


def _mode_noise(measure: Measure, share: Fraction, unit: PrivacyUnit, facts: dict[str, Any]) -> Noise:
    cost = Cost(kind="exponential", scale=share / measure.chosen, **facts)
    scale = mode_scale(unit, cost.scale)
    return Noise(measure=measure, kind="exponential", scale=scale, costs=(cost,) * measure.chosen)


def _quantile_noise(measure: Measure, share: Fraction, facts: dict[str, Any]) -> Noise:
    # Three fifths for the answer, a fifth for each end of its interval. The interval of MIN and MAX goes from
    # the answer to the bound and needs no choice of its own.
    parts = (share,) if measure.quantile in (0, 1) else (share * 3 / 5, share / 5, share / 5)
    costs = tuple(Cost(kind="exponential", scale=part, **facts) for part in parts)
    return Noise(measure=measure, kind="exponential", scale=share, costs=costs)


def _sensitivity(measure: Measure, unit: PrivacyUnit, groups: int, *, norm: Literal["L1", "L2"]) -> Fraction:
    """The most that neighbouring tables differ in `measure`, over all groups, in units of 1 / grid."""
    if measure.statistic == "individuals":
        contribution = Fraction(groups)
        if norm == "L2":
            contribution = round_up(math.sqrt(groups) * (1 + 1e-15), places=9)
    else:
        contribution = Fraction(unit.max_records * measure.largest)
    return histogram_sensitivity(
        contribution=contribution, norm=norm, neighbours=unit.neighbours, signed=measure.is_signed
    )


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


@refuse_deep
def plan_public(query: exp.Select, catalog: Catalog) -> tuple[exp.Select, tuple[str, ...]]:
    """The checked tree of a query of public tables, and the tables it reads."""
    relation = resolve_sources(query, catalog)
    if relation.unit is not None:
        raise refuse(
            "a plain SELECT reads public tables only, and this one reads people's records; write DP-SELECT "
            "epsilon in place of SELECT"
        )
    for name in ("limit", "offset"):
        read_whole(query.args.get(name), name.upper())
    tree = relation.tree.select(append=False)
    for item in query.expressions:
        tree = tree.select(_check(item))
    for name in ("group", "having", "order", "limit", "offset", "distinct"):
        clause = query.args.get(name)
        if clause is not None:
            for found in clause.find_all(exp.Subquery, exp.Select, exp.Window):
                raise refuse(f"{found.key.upper()} in {name.upper()}")
            for part in clause.iter_expressions():
                _check_parts(part, name)
            tree.set(name, clause.copy())
    return tree, tuple(dict.fromkeys(relation.tables))


def _check(item: exp.Expr) -> exp.Expr:
    if isinstance(item, exp.Star):
        if any(item.args.values()):
            raise refuse("a star with EXCEPT, REPLACE or RENAME; name the columns")
        return item.copy()
    _check_parts(item.unalias(), "the select list")
    return item.copy()


def _check_parts(node: exp.Expr, where: str) -> None:
    """Refuses whatever is neither an aggregate nor allowed in one value per row."""
    if isinstance(node, (exp.Ordered, exp.Distinct)):
        for part in node.iter_expressions():
            _check_parts(part, where)
        return
    for aggregate in find_aggregates(node):
        if any(is_top(part) for part in aggregate.walk()):
            raise refuse(f"{where} uses TOP, which is for private tables; use GROUP BY, ORDER BY and LIMIT")
        for inner in aggregate.iter_expressions():
            if not isinstance(inner, exp.Star):
                _check_parts(inner, where)
    bare = exp.Paren(this=node.copy())
    for found in list(find_aggregates(bare)):
        found.replace(exp.Literal.number(1))
    check_scalar(bare, where=where)
