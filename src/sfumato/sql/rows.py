"""Row selection: DP-SELECT of plain columns answers with synthetic rows.

The rows are drawn from a private model of exactly those columns. If the combinations are few it is one noisy
histogram. Else every pair of columns is counted, and a graphical model is fitted to the noisy counts: of
single columns, and of those pairs that stand out of the noise. With too many columns for that, it is a chain
of neighbouring pairs. No row of the answer is a record.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from sfumato.core.algebra.measures import Measure
from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import refuse
from sfumato.sql.aggregates import Aggregate, Key, read_key, read_rows
from sfumato.sql.check import find_aggregates, refuse_clauses, refuse_deep
from sfumato.sql.evaluate import label_column, label_type
from sfumato.sql.plan import QueryPlan, calibrate_noise
from sfumato.sql.settle import field_type
from sfumato.sql.sources import expand_star, prune_columns, resolve_sources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from numpy.typing import NDArray

    from sfumato.core.facts.table import PrivacyUnit
    from sfumato.inference.model import Model
    from sfumato.sql.plan import NoisyAggregates
    from sfumato.sql.relation import Catalog, Relation
    from sfumato.sql.statement import Statement

_JOINT_CELLS = 4096
_PAIR_CELLS = 2**20
_MOST_PAIRS = 66  # each is counted by itself: twelve columns
_MODEL_CELLS = 2**18
_BINS = 32
_MOST_ROWS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """The histograms behind a row selection, and the columns that are drawn from them.

    `widths` has the least value and the width of a bin for columns that are drawn as numbers. `blanks` has,
    by name, columns of which nothing may be told: they are empty. `names` are the others, `order` has all.
    If it is `modelled`, the parts are all pairs of keys, in order; if not, all keys, or pairs of neighbours.
    """

    parts: tuple[QueryPlan, ...]
    names: tuple[str, ...]
    keys: tuple[Key, ...]
    widths: tuple[tuple[float, float] | None, ...]
    limit: int | None
    blanks: Mapping[str, pa.DataType] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    modelled: bool = False


def selects_rows(query: exp.Select) -> bool:
    """Whether a statement asks for rows: no aggregate and no GROUP BY."""
    aggregates = (found for item in query.expressions for found in find_aggregates(item))
    return query.args.get("group") is None and next(aggregates, None) is None


@refuse_deep
def plan_rows(statement: Statement, catalog: Catalog, *, epsilon: Fraction) -> RowPlan:
    """The plan of a row selection."""
    query = statement.query
    if query.args.get("distinct"):
        raise refuse(
            "DISTINCT of rows, which are synthetic here; a plain SELECT DISTINCT of one column with public "
            "values is free, and GROUP BY with COUNT(*) tells how many there are of each"
        )
    clauses = ("HAVING", "ORDER BY", "OFFSET")
    refuse_clauses(query, clauses, "in a row selection; its rows are synthetic and come in no order")
    relation = resolve_sources(query, catalog)
    unit = relation.unit
    if unit is None:
        raise refuse("the tables are public; a plain SELECT answers exactly and spends nothing")
    if unit.private_records:
        raise refuse('synthetic rows of a table with max_records = "private"; declare a number of records')
    items, blanks, order = _selected(statement, relation)
    keys, widths = zip(*(_read_column(node, relation) for _, node in items), strict=True)
    sets = [keys]
    if _count_cells(keys) > _JOINT_CELLS and len(keys) > 1:
        sets = list(itertools.combinations(keys, 2))
    cells = sum(map(_count_cells, sets))
    modelled = 1 < len(sets) <= _MOST_PAIRS and cells <= _PAIR_CELLS
    if len(sets) > 1 and not modelled:
        sets = list(itertools.pairwise(keys))
    if any(_count_cells(part) > _PAIR_CELLS for part in sets):
        raise refuse("two neighbouring columns have too many combinations; select fewer or coarser columns")
    parts = tuple(
        _plan_counts(statement, relation, unit, part, epsilon=epsilon, parts=len(sets), together=modelled)
        for part in sets
    )
    return RowPlan(
        parts=parts,
        names=tuple(name for name, _ in items),
        keys=tuple(keys),
        widths=tuple(widths),
        limit=read_rows(query)[0],
        blanks=blanks,
        order=order,
        modelled=modelled,
    )


def finish_rows(plan: RowPlan, noisy: tuple[NoisyAggregates, ...]) -> pa.Table:
    """Synthetic rows: a pure function of the noisy histograms, drawn from a seed that the plan gives."""
    seed = int(plan.parts[0].digest[:16], 16)
    random = np.random.default_rng(seed)
    sizes = [len(key.labels or ()) for key in plan.keys]
    rows = int(min(_MOST_ROWS, round(max(0.0, float(np.mean([each.values[0].sum() for each in noisy]))))))
    rows = rows if plan.limit is None else min(rows, plan.limit)
    if plan.modelled:
        codes = list(_fit_pairs(plan, noisy, sizes).sample(rows, seed=seed).values())
    else:
        codes = _draw_chain(
            random, [np.maximum(each.values[0], 0).astype(float) for each in noisy], sizes, rows
        )
    columns = {}
    for name, key, width, code in zip(plan.names, plan.keys, plan.widths, codes, strict=True):
        if width is None:
            columns[name] = label_column(key, code)
        else:
            low, step = width
            columns[name] = to_arrow(low + step * (code + random.random(rows)))
    columns |= {name: pa.nulls(rows, kind) for name, kind in plan.blanks.items()}
    return pa.table({name: columns[name] for name in plan.order})


def _draw_chain(
    random: np.random.Generator, histograms: list[NDArray[np.float64]], sizes: list[int], rows: int
) -> list[NDArray[np.int64]]:
    """The codes of rows from one histogram of all columns, or from those of neighbours."""
    joint = sizes if len(histograms) == 1 else sizes[:2]
    codes: list[NDArray[np.int64]] = list(np.unravel_index(_draw(random, histograms[0], rows), joint))
    for index, histogram in enumerate(histograms[1:], start=1):
        codes.append(_follow(random, histogram.reshape(sizes[index], sizes[index + 1]), codes[-1]))
    return codes


def _fit_pairs(plan: RowPlan, noisy: tuple[NoisyAggregates, ...], sizes: list[int]) -> Model:
    """The model of noisy counts of all pairs: of those that are farther from independent than noise is.

    Pairs are taken by how much farther, as long as the model stays small.
    """
    # Compiled kernels, which other statements do not wait for.
    from sfumato.inference.domain import Domain, Measurement, estimate_total, merge_measurements
    from sfumato.inference.estimation import estimate
    from sfumato.inference.tree import tree_cells

    names = [str(place) for place in range(len(sizes))]
    domain = Domain(dict(zip(names, sizes, strict=True)))
    (noise,) = plan.parts[0].added
    sigma = noise.deviation
    pairs = [
        Measurement(columns=columns, values=each.values[0], sigma=sigma)
        for columns, each in zip(itertools.combinations(names, 2), noisy, strict=True)
    ]
    singles = {}
    for name in names:
        # What every pair says of one of its columns.
        sums = [
            Measurement(
                columns=(name,),
                values=each.values.reshape(domain.shape(each.columns)).sum(1 - each.columns.index(name)),
                sigma=sigma * (domain.cells(each.columns) / domain[name]) ** 0.5,
            )
            for each in pairs
            if name in each.columns
        ]
        (singles[name],) = merge_measurements(domain, sums)
    total = estimate_total(domain, pairs)

    def score(pair: Measurement) -> float:
        """How far counts are from those of independent columns, less what noise adds to the distance."""
        one, other = (np.maximum(singles[name].values, 0) for name in pair.columns)
        expected = np.outer(one, other).reshape(-1) * (total / max(1.0, one.sum() * other.sum()))
        noise_alone = sigma * pair.values.size * (2 / np.pi) ** 0.5
        return float(np.abs(pair.values - expected).sum() - noise_alone)

    chosen: list[Measurement] = []
    for gained, pair in sorted(((score(pair), pair) for pair in pairs), key=lambda each: -each[0]):
        held = [*(each.columns for each in chosen), pair.columns]
        if gained > 0 and tree_cells(domain, held) <= _MODEL_CELLS:
            chosen.append(pair)
    return estimate(domain, [*singles.values(), *chosen])


def describe_rows(plan: RowPlan) -> pa.Schema:
    """The schema of the rows of `plan`."""
    types = {
        name: pa.float64() if width is not None else label_type(key)
        for name, key, width in zip(plan.names, plan.keys, plan.widths, strict=True)
    }
    types |= plan.blanks
    return pa.schema([(name, types[name]) for name in plan.order])


def _count_cells(keys: tuple[Key, ...]) -> float:
    return float(np.prod([len(key.labels or ()) for key in keys], dtype=float))


def _plan_counts(
    statement: Statement,
    relation: Relation,
    unit: PrivacyUnit,
    keys: tuple[Key, ...],
    *,
    epsilon: Fraction,
    parts: int,
    together: bool,
) -> QueryPlan:
    """The plan that counts the records of `relation` in every combination of `keys`.

    It is one of so many `parts` of the statement, whose noise is that of equal shares of epsilon and delta,
    or with `together` what all of them may have at epsilon and delta.
    """
    measures = (Measure(statistic="records"),)
    names = ", ".join(key.node.sql(dialect="duckdb") for key in keys)
    share, delta = epsilon / parts, statement.delta / parts
    if together:
        noises = calibrate_noise(measures, unit, 1, epsilon=epsilon, delta=statement.delta, levels=parts)
        noises = tuple(replace(noise, costs=noise.costs[:1]) for noise in noises)
    else:
        noises = calibrate_noise(measures, unit, 1, epsilon=share, delta=delta)
    return QueryPlan(
        text=f"{statement.query.sql(dialect='duckdb', normalize=True)} [counts by {names}]",
        epsilon=share,
        delta=delta,
        relation=prune_columns(relation, [key.tree for key in keys]),
        unit=unit,
        max_groups=unit.max_records,
        keys=keys,
        aggregates=(Aggregate(measures=measures),),
        noises=noises,
    )


def _selected(
    statement: Statement, relation: Relation
) -> tuple[list[tuple[str, exp.Expr]], dict[str, pa.DataType], tuple[str, ...]]:
    """The columns that are drawn, those that stay empty, and the names of all in their order.

    A tool that writes a plain SELECT lists every column that a table has. What has no public domain, and
    the unit, is empty then; DP-SELECT refuses it.
    """
    query = statement.query
    starred = any(item.find(exp.Star) is not None for item in query.expressions)
    items, blanks, order = [], {}, []
    for item in expand_star(query, relation):
        node, name = item.unalias(), item.alias_or_name or item.sql()
        if isinstance(node, exp.Column):
            found = relation.field(node)
            untold = found.column is None and found.bounds is None
            hidden = found.is_unit or (untold and found.moments is None)
            if not hidden and untold and not found.is_drafted:
                hidden = read_key(
                    node, relation, where="the select list"
                ).is_open  # moments by themselves are no groups
            if statement.plain and hidden and (found.is_drafted or found.is_unit or found.labels is None):
                blanks[name] = field_type(found)
                order.append(name)
                continue
            if starred and hidden and not statement.plain:
                continue
            if found.is_unit:
                raise refuse("the unit is never selected; its values name individuals")
        items.append((name, node))
        order.append(name)
    if not items:
        raise refuse("no column with a public domain or bounds; declare them in the project file")
    if len(set(order)) != len(order):
        raise refuse("two columns of the answer have the same name; name them with AS")
    return items, blanks, tuple(order)


def _read_column(node: exp.Expr, relation: Relation) -> tuple[Key, tuple[float, float] | None]:
    key = read_key(node, relation, where="the select list")
    if not key.is_open:
        return key, None
    found = relation.field(key.node) if isinstance(key.node, exp.Column) else None
    if found is None or found.bounds is None:
        raise refuse(
            f"column {node.sql()[:60]!r} has neither a public domain nor bounds; declare values, bins, "
            "range or bounds in the project file"
        )
    low, high = float(found.bounds[0]), float(found.bounds[1])
    step = (high - low) / _BINS

    def number(value: float) -> exp.Expr:
        return exp.Literal.number(value)

    above = exp.paren(exp.Sub(this=key.node.copy(), expression=number(low)))
    place = exp.Floor(this=exp.Div(this=above, expression=number(step)))
    before = exp.LT(this=key.node.copy(), expression=number(low))
    last = exp.GTE(this=key.node.copy(), expression=number(low + step * (_BINS - 1)))
    case = exp.Case().when(before, number(0)).when(last, number(_BINS - 1)).else_(place)
    return replace(key, tree=case, labels=tuple(range(_BINS))), (low, step)


def _draw(random: np.random.Generator, weights: NDArray[np.float64], rows: int) -> NDArray[np.int64]:
    total = weights.sum()
    weights = weights / total if total > 0 else np.full(weights.size, 1 / weights.size)
    return random.choice(weights.size, rows, p=weights)


def _follow(
    random: np.random.Generator, table: NDArray[np.float64], previous: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The next column given the one before, by the noisy counts of the pair."""
    marginal = table.sum(0)
    marginal = marginal if marginal.sum() > 0 else np.ones(table.shape[1])
    rows = np.where(table.sum(1, keepdims=True) > 0, table, marginal)
    steps = np.cumsum(rows, axis=1)
    targets = random.random(previous.size) * steps[previous, -1]
    chosen = (steps[previous] <= targets[:, None]).sum(1)
    codes: NDArray[np.int64] = np.minimum(chosen, table.shape[1] - 1)
    return codes
