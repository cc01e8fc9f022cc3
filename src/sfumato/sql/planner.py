"""From a statement to a plan: private queries that aggregate, and plain queries of public tables."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.core.algebra.measures import CELLS, Measure
from sfumato.core.errors import refuse
from sfumato.core.exact import format_short
from sfumato.core.facts.table import MOST_RECORDS, PrivacyUnit, cap_unit
from sfumato.sql.aggregates import (
    Aggregate,
    Key,
    limit_steps,
    name_item,
    read_aggregate,
    read_key,
    read_keys,
    read_rows,
    spell_position,
)
from sfumato.sql.asks import plan_choices, plan_tally
from sfumato.sql.check import (
    AGGREGATE,
    GROUPINGS,
    KEY,
    check_output,
    find_aggregates,
    is_histogram,
    is_key,
    is_moment,
    refuse_deep,
)
from sfumato.sql.clips import JOINED, calibrate_clips, find_obstacle, hold_noises, is_worth_its_epsilon
from sfumato.sql.finish import rehearse_query
from sfumato.sql.laws import Held
from sfumato.sql.normalize import MOST_BINS, write_double
from sfumato.sql.plan import (
    MISS,
    AnyNoise,
    Noise,
    Output,
    QueryPlan,
    Stage,
    calibrate_noise,
    find_aggregate_numbers,
    find_mode,
    find_quantiles,
    name_columns,
    plan_selection,
)
from sfumato.sql.relation import Catalog, Relation, bounds_of
from sfumato.sql.rollups import choose_levels
from sfumato.sql.settle import qualify, settle
from sfumato.sql.sources import find_source, prune_columns, resolve_sources
from sfumato.sql.statement import Around
from sfumato.sql.windows import MOST_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sfumato.sql.statement import Statement


_LARGEST_ANSWER = 2**24
_LARGEST_QUANTILES = 2**25
_MOST_PLACES = 2_000_000


def plan_query(
    statement: Statement, catalog: Catalog, *, epsilon: Fraction, selection_delta: Fraction
) -> QueryPlan:
    """The plan of a private statement whose select list aggregates; `epsilon` is what it may spend."""
    return prepare_query(statement, catalog, selection_delta=selection_delta)(epsilon)


@refuse_deep
def prepare_query(
    statement: Statement,
    catalog: Catalog,
    *,
    selection_delta: Fraction,
    chosen: Mapping[str, tuple[Fraction, Fraction]] | None = None,
    cap: int | None = None,
    clips: tuple[Held, ...] = (),
    clip: bool = True,
    intervals: bool = True,
) -> Callable[[Fraction], QueryPlan]:
    """All that does not depend on epsilon, done once; what is returned gives the plan for an epsilon.

    `chosen` are the bounds that were chosen privately, by the text of their operand, once they are known, and
    `cap` is the bound on the records of an individual that was, and `clips` are those of norms. Without
    `clip` no bounds of norms are chosen, and without `intervals` nothing is spent on those of quantiles.
    """
    if statement.query.args.get("distinct"):
        raise refuse("SELECT DISTINCT beside aggregates; groups are listed once, by GROUP BY")
    if any(isinstance(item, exp.Star) for item in statement.query.expressions):
        raise refuse("a star beside GROUP BY or aggregates; name the columns")
    relation = replace(resolve_sources(statement.query, catalog), chosen=chosen or {})
    statement = expand_histogram(statement, relation)
    query, declared = statement.query, relation.unit
    if declared is None:
        raise refuse("the tables are public; a plain SELECT answers exactly and spends nothing")
    unbounded_tables = _list_unbounded(relation, catalog)
    entering = JOINED if len(unbounded_tables) > 1 else MOST_RECORDS
    unit = cap_unit(declared, entering) if unbounded_tables else declared
    relation = replace(relation, unit=unit)
    keys, answered = read_keys(query, relation)
    if unit.column is None and statement.around and any(key.is_open for key in keys):
        raise refuse(
            'an inner query that puts records together: with unit = "row" every record is an individual of '
            "its own, and no column says which belong together; declare the unit column in the project file"
        )
    reader = _Reader(relation, keys, query)
    outputs = _read_outputs(statement, relation, reader)
    stages = _read_stages(query, statement.around, reader)
    aggregates = tuple(reader.aggregates)
    _check_trees(query, outputs, stages, aggregates)
    measures = tuple(dict.fromkeys(measure for each in aggregates for measure in each.measures))
    relation = prune_columns(
        relation, [*(key.tree for key in keys), *(each.tree for each in measures if each.tree is not None)]
    )
    unbounded = tuple(dict.fromkeys(each.private for each in measures if each.private is not None))
    clips_people = (
        clip
        and statement.within is None
        and find_obstacle(measures, keys, unit) is None
        and (bool(unbounded_tables) or not (relation.individuals or statement.max_groups))
    )
    chooses_cap = bool(unbounded_tables) and not clips_people and not relation.individuals
    if chooses_cap:
        unit = _bound_unit(declared, relation, catalog, cap)
        relation = replace(relation, unit=unit)
    parts = len(measures) + len(unbounded) + chooses_cap
    _check_groups(keys, measures)
    if answered is not None:
        _check_sets(keys, measures)
    staged = [tree for each in stages for tree in each.trees]
    _check_windows(keys, [*(each.tree for each in outputs), *staged])
    max_groups = statement.max_groups or unit.max_groups or unit.max_records
    max_groups = min(unit.max_records, max_groups) if keys else 1
    text = query.sql(dialect="duckdb", normalize=True)
    together = _count_together(outputs, aggregates)

    @refuse_deep
    def plan_at(epsilon: Fraction) -> QueryPlan:
        selection, rest, delta = plan_selection(
            unit,
            keys,
            max_groups,
            epsilon,
            statement.delta,
            selection_delta,
            parts=parts,
            min_individuals=statement.min_individuals,
        )
        tally, rest = plan_tally(declared if chooses_cap else unit, rest, parts=parts)
        choices, rest = plan_choices(unbounded, unit, rest, parts=len(measures) + len(unbounded))
        if tally is not None:
            delta = Fraction(0)  # which noise is narrower would depend on what is chosen

        def calibrate(levels: int) -> tuple[tuple[AnyNoise, ...], tuple[Noise, ...]]:
            if clips_people:
                # Levels add up groups, which an L2 norm does not bound.
                pure = delta if answered is None else Fraction(0)
                found = calibrate_clips(
                    measures, unit, epsilon=rest, delta=pure, groups=max_groups, levels=levels
                )
                if unbounded_tables or is_worth_its_epsilon(found[1], unit):
                    return found
            noises = calibrate_noise(
                measures,
                unit,
                max_groups,
                epsilon=rest,
                delta=delta,
                levels=levels,
                together=together,
                intervals=intervals,
            )
            return noises, ()

        sets = None
        if answered is not None:
            # Of the first measure that noise is added to: none of a plan with grouping sets is chosen.
            found = {levels: calibrate(levels)[0][0] for levels in {1, len(set(answered))}}
            scales = {levels: each.deviation for levels, each in found.items() if isinstance(each, Noise)}
            sizes = tuple(len(key.labels or ()) for key in keys)
            sets = choose_levels(sizes, answered, deviation=scales)
        noises, tallies = calibrate(1 if sets is None else len(sets.levels))
        if tallies and clips:
            noises = hold_noises(noises, clips)
        plan = QueryPlan(
            text=text,
            intervals=intervals,
            miss=MISS / math.prod(len(key.labels or (0,)) for key in keys) if statement.picked else MISS,
            epsilon=epsilon,
            delta=statement.delta,
            relation=relation,
            unit=unit,
            max_groups=max_groups,
            keys=keys,
            aggregates=aggregates,
            noises=noises,
            outputs=outputs,
            selection=selection,
            stages=stages,
            around=tuple(each.describe() for each in statement.around),
            choices=choices,
            sets=sets,
            tally=tally,
            tallies=tallies,
            held=clips if tallies else (),
            entering=None if chooses_cap or not unbounded_tables else entering,
        )
        rehearse_query(plan)
        return plan

    return plan_at


def _count_together(outputs: tuple[Output, ...], aggregates: tuple[Aggregate, ...]) -> dict[Measure, int]:
    """The most aggregates that one output is made of, for each measure that is in it."""
    found: dict[Measure, int] = {}
    for output in outputs:
        used = set(find_aggregate_numbers(output.tree))
        for measure in (each for number in used for each in aggregates[number].measures):
            found[measure] = max(found.get(measure, 1), len(used))
    return found


def _list_unbounded(relation: Relation, catalog: Catalog) -> list[str]:
    """The tables of people's records, each as often as it is read, that state no bound."""
    found = [(name, catalog[name].table) for name in relation.tables]
    return [name for name, table in found if table is not None and table.unit.private_records]


def _bound_unit(declared: PrivacyUnit, relation: Relation, catalog: Catalog, cap: int | None) -> PrivacyUnit:
    """The unit of a statement; where its bound on records is to be chosen, with the one that was, or 1."""
    if not declared.private_records:
        return declared
    source = catalog[relation.tables[0]].table
    derived = relation.joined or relation.individuals or len(relation.tables) > 1
    if derived or source is None or source.unit != declared:
        raise refuse(
            'max_records = "private" of joined tables, for more than COUNT, SUM and what is made of them in '
            "public groups; ask for these in a statement of their own, or declare a number of records"
        )
    return cap_unit(declared, cap or 1)


def _read_outputs(statement: Statement, relation: Relation, reader: _Reader) -> tuple[Output, ...]:
    """The columns of the answer, each with a name of its own."""
    outputs = tuple(
        Output(
            name=name_item(item, text, plain=statement.plain),
            # As the keys are: so that a condition that stands here and in GROUP BY is one.
            tree=_number(reader.read(settle(item.unalias(), relation) if reader.keys else item.unalias())),
        )
        for item, text in zip(list(statement.query.expressions), statement.texts, strict=True)
    )
    names = [name for output in outputs for name in name_columns(output, reader.aggregates)]
    if len(set(names)) != len(names):
        raise refuse("two columns of the answer, with those of their intervals, have the same name; use AS")
    return outputs


def _number(tree: exp.Expr) -> exp.Expr:
    """A comparison of noisy values as 1 or 0, which has an interval; any other column as it is."""
    if not isinstance(tree, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)):
        return tree
    return exp.Case(ifs=[exp.If(this=tree, true=exp.true())], default=exp.false())


def _check_trees(
    query: exp.Select,
    outputs: tuple[Output, ...],
    stages: tuple[Stage, ...],
    aggregates: tuple[Aggregate, ...],
) -> None:
    """Refuses what cannot be computed of noisy values, and a select list without an aggregate."""
    plain = [
        each.tree
        for each in outputs
        if not (is_key(each.tree) or _stands_alone(each.tree, aggregates) or is_moment(each.tree))
    ]
    for tree in (*plain, *(tree for stage in stages for tree, _ in stage.order)):
        _check_tree(tree, aggregates, logic=False)
    for stage in stages:
        if stage.having is not None:
            _check_tree(stage.having, aggregates, logic=True)
    if not aggregates and any(item.find(exp.Window) for item in query.expressions):
        raise refuse("window functions look at other individuals' records, unless they are over aggregates")
    if not aggregates:
        raise refuse(
            "the select list has no aggregate; DP-SELECT columns without GROUP BY gives synthetic rows"
        )


@refuse_deep
def plan_public(query: exp.Select, catalog: Catalog) -> tuple[exp.Select, tuple[str, ...]]:
    """The query as it runs, and the public tables that it reads; refuses one that reads people's records."""
    made = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    named = [each for each in query.find_all(exp.Table) if each.name.lower() not in made]
    sources = [find_source(each, catalog) for each in named]
    private = [each for each in sources if each.table is not None]
    if private and query.args.get("distinct"):
        raise refuse(
            "SELECT DISTINCT would list what is in the records, and these values are not public; declare "
            "values = [...] in the project file, or choose them privately: DP-SELECT 1 DELTA 1e-9 column, "
            "COUNT(*) FROM table GROUP BY column"
        )
    if private:
        raise refuse(
            "a plain SELECT reads public tables only, and this one reads people's records; write DP-SELECT "
            "epsilon in place of SELECT"
        )
    return query, tuple(dict.fromkeys(each.name for each in sources))


def _read_stages(query: exp.Select, around: tuple[Around, ...], reader: _Reader) -> tuple[Stage, ...]:
    """What the statement does to the rows of its answer, and then what those around it do."""
    having, order = query.args.get("having"), query.args.get("order")
    own = Around(
        having=None if having is None else having.this,
        order=tuple(order.expressions) if order is not None else (),
        limit=query.args.get("limit"),
        offset=query.args.get("offset"),
    )
    stages = []
    for each in (own, *around):
        limit, offset = read_rows(exp.Select(limit=each.limit, offset=each.offset))
        stages.append(
            Stage(
                having=None if each.having is None else reader.read(each.having, aliases=True),
                order=tuple(
                    (
                        reader.read(spell_position(item.this, query, where="ORDER BY"), aliases=True),
                        bool(item.args.get("desc")),
                    )
                    for item in each.order
                ),
                limit=limit,
                offset=offset,
            )
        )
    return tuple(stages)


class _Reader:
    """Turns the trees of a select list into trees over keys (`key.N`) and aggregates (`aggregate.N`)."""

    def __init__(self, relation: Relation, keys: tuple[Key, ...], query: exp.Select) -> None:
        self._relation = relation
        self.keys = {key.node.sql(): index for index, key in enumerate(keys)}
        self._groups = math.prod(len(key.labels) for key in keys if key.labels is not None)
        self._aliases = {
            item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)
        }
        self.aggregates: list[Aggregate] = []

    def read(self, node: exp.Expr, *, aliases: bool = False) -> exp.Expr:
        """`node` with every aggregate and every key replaced by its number.

        With `aliases`, a name outside an aggregate may also be that of a column of the select list.
        """
        # All of them are read first: reading settles constants in place, and replacing copies.
        aggregates = [
            (found, limit_steps(read_aggregate(found, self._relation), self._groups))
            for found in find_aggregates(node)
        ]
        for found, aggregate in aggregates:
            if aggregate not in self.aggregates:
                self.aggregates.append(aggregate)
            number = self.aggregates.index(aggregate)
            node = _replace(node, found, exp.column(str(number), table=AGGREGATE))
        columns = list(node.find_all(exp.Column)) if aliases else []
        # GROUPING names what GROUP BY does, which may be an alias anywhere.
        columns += [part for each in node.find_all(*GROUPINGS) for part in each.find_all(exp.Column)]
        if columns:
            for column in columns:
                named = self._aliases.get(column.name.lower()) if not column.table else None
                if named is not None:
                    node = _replace(node, column, self.read(named))
        return node.transform(self._name_table).transform(self._name_key)

    def _name_table(self, part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or part.table in (AGGREGATE, KEY):
            return part
        alias, found = self._relation.find(part)
        return exp.column(found.name, table=alias, quoted=True)

    def _name_key(self, part: exp.Expr) -> exp.Expr:
        named = self.keys and not isinstance(part, (exp.Literal, exp.Identifier))
        key = self.keys.get(part.sql()) if named else None
        if key is not None:
            return exp.column(str(key), table=KEY)
        if isinstance(part, exp.Column) and part.table not in (AGGREGATE, KEY):
            raise refuse(
                f"column {part.name[:60]!r} is neither aggregated nor in GROUP BY; add GROUP BY "
                f"{part.name[:60]}, or put a condition about it into WHERE"
            )
        return part


def _replace(node: exp.Expr, found: exp.Expr, other: exp.Expr) -> exp.Expr:
    """A copy of `node` with `other` wherever it has `found`, but for the own function of a window."""

    def put(part: exp.Expr) -> exp.Expr:
        if part != found or (isinstance(part.parent, exp.Window) and part.arg_key == "this"):
            return part
        return other.copy()

    return node.transform(put)


def _check_tree(tree: exp.Expr, aggregates: tuple[Aggregate, ...], *, logic: bool) -> None:
    check_output(tree, logic=logic)
    dated = any(aggregates[number].type is not None for number in find_aggregate_numbers(tree))
    if dated and not (isinstance(tree, exp.Column) and not logic):
        raise refuse("what is computed with the least or the largest date; it stands by itself")
    if any(_stands_alone(node, aggregates) for node in tree.find_all(exp.Column)):
        raise refuse(
            "MODE, TOP and APPROX_QUANTILES stand by themselves in the select list; they are not computed or "
            "ordered with"
        )


def _stands_alone(tree: exp.Expr, aggregates: tuple[Aggregate, ...]) -> bool:
    """Whether a tree is an aggregate that becomes several columns, or labels."""
    return find_mode(tree, aggregates) is not None or find_quantiles(tree, aggregates) is not None


def _check_groups(keys: tuple[Key, ...], measures: tuple[Measure, ...]) -> None:
    """Refuses groups that are too many, or that are not public where something is chosen in them."""
    by_choice = any(measure.statistic == "quantile" for measure in measures)
    if by_choice and any(key.is_open for key in keys):
        raise refuse(
            "quantiles, MODE or TOP in groups that are not public; declare the values of the group's column"
        )
    groups = math.prod(len(key.labels) for key in keys if key.labels is not None)
    if groups > _LARGEST_ANSWER:
        raise refuse(f"the answer would have {groups:,} groups; group by fewer columns")
    if by_choice and groups * CELLS > _LARGEST_QUANTILES:
        raise refuse(f"quantiles, MODE or TOP of {groups:,} groups; group by fewer columns")


def _check_sets(keys: tuple[Key, ...], measures: tuple[Measure, ...]) -> None:
    """Refuses ROLLUP and the like where groups are not public, or where they do not add up."""
    for key in keys:
        if key.is_open:
            name = key.node.sql(dialect="postgres")
            raise refuse(
                f"GROUP BY ROLLUP, CUBE or GROUPING SETS of {name}, whose groups are not public; declare its "
                "values, or write one statement for each grouping"
            )
    for measure in measures:
        if measure.statistic not in ("records", "present", "sum", "square"):
            name = {"individuals": "COUNT(DISTINCT unit)", "distinct": "COUNT(DISTINCT)"}.get(
                measure.statistic, "quantiles, MODE and TOP"
            )
            raise refuse(
                f"{name} with ROLLUP, CUBE or GROUPING SETS: groups of it do not add up; write one statement "
                "for each grouping"
            )


def _check_windows(keys: tuple[Key, ...], trees: Sequence[exp.Expr]) -> None:
    """Refuses windows over more rows than are looked at, which is known beforehand for public groups."""
    windows = sum(1 for tree in trees for _ in tree.find_all(exp.Window))
    groups = math.prod(len(key.labels) for key in keys if key.labels is not None)
    if windows and groups > MOST_ROWS:
        raise refuse(f"a window over more than {MOST_ROWS:,} groups")
    if windows * groups > _MOST_PLACES:
        raise refuse(f"{windows} windows over {groups:,} groups each; write fewer")


BINS = 10
"""The bins of a column that has bounds and no labels, if a histogram does not say how many."""

_USE = "HISTOGRAM takes a column and a number of bins: HISTOGRAM(fee), HISTOGRAM(fee, 20)"


def expand_histogram(statement: Statement, relation: Relation) -> Statement:
    """A statement with HISTOGRAM(x, n) in its select list as one that groups by n intervals of x.

    In place of it are two columns: the interval, and the number of records in it.
    """
    query = statement.query
    places = [place for place, item in enumerate(query.expressions) if _find(item) is not None]
    if not places:
        return statement
    others = [item for place, item in enumerate(query.expressions) if place not in places]
    if len(places) > 1 or any(True for item in others for _ in find_aggregates(item)):
        raise refuse("HISTOGRAM beside another aggregate; its rows are intervals, so ask in two statements")
    (place,) = places
    item, found = query.expressions[place], _find(query.expressions[place])
    if found is None or item.unalias() is not found:
        raise refuse("HISTOGRAM stands by itself in the select list")
    inner, condition = (found.this, found.expression.this) if isinstance(found, exp.Filter) else (found, None)
    key = _interval_of(inner, relation)
    name = name_item(item, statement.texts[place], plain=statement.plain)
    counted: exp.Expr = exp.Count(this=exp.Star(), big_int=True)
    if condition is not None:
        counted = exp.Filter(this=counted, expression=exp.Where(this=condition.copy()))
    query = query.copy()
    columns = [exp.alias_(key, name, quoted=True), exp.alias_(counted, f"{name}_count", quoted=True)]
    query.set("expressions", [*query.expressions[:place], *columns, *query.expressions[place + 1 :]])
    group = query.args.get("group") or exp.Group(expressions=[])
    group.append("expressions", key.copy())
    query.set("group", group)
    texts = (*statement.texts[:place], name, f"{name}_count", *statement.texts[place + 1 :])
    return replace(statement, query=query, texts=texts)


def _find(item: exp.Expr) -> exp.Expr | None:
    """The histogram in an item of the select list."""
    for found in find_aggregates(item.unalias()):
        if is_histogram(found.this if isinstance(found, exp.Filter) else found):
            return found
    return None


def _interval_of(node: exp.Expr, relation: Relation) -> exp.Expr:
    """The key of a histogram: the column itself if it has public labels, else the interval as text."""
    parts = list(node.expressions)
    if not 1 <= len(parts) <= 2 or isinstance(parts[0], (exp.Star, exp.Distinct)):
        raise refuse(_USE)
    target: exp.Expr = parts[0]
    count = parts[1] if len(parts) == 2 else None
    if count is not None and not (isinstance(count, exp.Literal) and count.is_int and len(count.this) < 9):
        raise refuse(_USE)
    tree = qualify(target, relation, where="HISTOGRAM")
    if relation.uses_unit(tree):
        raise refuse("HISTOGRAM of the unit, or of what is computed with it, would single out individuals")
    if count is None and read_key(target.copy(), relation, where="HISTOGRAM").labels is not None:
        return target.unnest().copy()
    bounds = bounds_of(tree, relation)
    if bounds is None or bounds[0] >= bounds[1]:
        raise refuse(
            f"HISTOGRAM divides public bounds into bins, and {target.sql()[:60]!r} has none; declare bounds "
            "or values in the project file, or GROUP BY WIDTH_BUCKET(column, low, high, bins)"
        )
    bins = BINS if count is None else int(count.this)
    if not 1 <= bins <= MOST_BINS:
        raise refuse(f"HISTOGRAM takes 1 to {MOST_BINS} bins")
    return _label_intervals(target, Fraction(bounds[0]), Fraction(bounds[1]), bins)


def _label_intervals(node: exp.Expr, low: Fraction, high: Fraction, bins: int) -> exp.Expr:
    """The interval of a number as text; what is beyond the bounds is in the outermost, NULL in none."""
    edges = [low + (high - low) * step / bins for step in range(bins + 1)]
    shown = [format_short(edge) for edge in edges]
    case = exp.Case()
    for place in range(bins - 1):
        label = exp.Literal.string(f"[{shown[place]}, {shown[place + 1]})")
        case = case.when(exp.LT(this=node.copy(), expression=write_double(edges[place + 1])), label)
    label = exp.Literal.string(f"[{shown[-2]}, {shown[-1]}]")
    return case.when(exp.GTE(this=node.copy(), expression=write_double(edges[-2])), label)
