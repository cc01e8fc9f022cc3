"""Exact bounded aggregates of a planned statement, with DuckDB.

The SQL that runs is generated here from the checked trees of the plan. Each finished expression over
private columns is wrapped in TRY, so that a record for which it fails has NULL there instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import sqlglot
from sqlglot import exp

from sfumato.arrays import to_numpy
from sfumato.engines.connection import SLOW_OPTIMIZER
from sfumato.engines.encode import encode_column, quote_name, quote_text, value_column, value_list
from sfumato.sql import CELLS, UNIT, Measure, QueryPlan, code_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    from numpy.typing import NDArray

    from sfumato.engines.source import Stored
    from sfumato.schema import Table

__all__ = ["TrueAggregates", "bind_plan", "count_aggregates", "create_table", "names_in"]

_Tree = TypeVar("_Tree", bound=exp.Expr)

_BATCH_ROWS = 2**20
_SATURATED = 2**62


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TrueAggregates:
    """Exact aggregates per group: one array per measure, and the keys of groups that are not public."""

    true_values: tuple[NDArray[np.int64], ...]
    true_keys: tuple[tuple[Any, ...], ...] | None
    true_individuals: NDArray[np.int64] | None

    def __repr__(self) -> str:
        return f"TrueAggregates({len(self.true_values)} measures, values withheld)"

    def __reduce__(self) -> NoReturn:
        message = "exact aggregates cannot be pickled"
        raise TypeError(message)


def names_in(plan: QueryPlan) -> set[str]:
    """The names of all columns that a plan mentions, in lower case."""
    trees = [plan.relation.tree, *(key.tree for key in plan.keys)]
    trees += [noise.measure.tree for noise in plan.noises if noise.measure.tree is not None]
    names = {column.name.lower() for tree in trees for column in tree.find_all(exp.Column)}
    return names | {UNIT} if plan.relation.joined else names


def create_table(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    stored: Mapping[str, Stored],
    scan: str,
    *,
    names: set[str],
    keep: bool,
) -> None:
    """Creates the table as queries see it: values and codes of the `names`, and every row's individual."""
    columns: dict[str, str] = {}
    for name, each in stored.items():
        if each.kind != "other" and name.lower() in names:
            columns[name.lower()] = f"{each.pattern.format(quote_name(name))} AS {quote_name(name)}"
    codes = []
    for index, (name, column) in enumerate(table.columns.items()):
        if not all(part in stored and stored[part].kind != "other" for part in column.stored):
            continue
        if name.lower() in names:
            columns[name.lower()] = f"{value_column(column, stored)} AS {quote_name(name)}"
        if column.domain is not None and code_name(name).lower() in names:
            list_type = quote_name(f"list {index} of {table.name}")
            texts = value_list(column)
            if texts is not None:
                listed = ", ".join(quote_text(text) for text in texts)
                connection.execute(f"CREATE TEMP TYPE {list_type} AS ENUM ({listed})")
            code = encode_column(column, stored, list_type=list_type)
            codes.append(f"{code} AS {quote_name(code_name(name))}")
    selected = [*columns.values(), *codes]
    if table.unit.column is not None or UNIT in names:
        unit = "row_number() OVER ()" if table.unit.column is None else quote_name(table.unit.column)
        selected.append(f"{unit} AS {quote_name(UNIT)}")
    selected = selected or ["1 AS one"]
    kind = "TABLE" if keep else "VIEW"
    connection.execute(
        f"CREATE TEMP {kind} {quote_name(table.name)} AS SELECT {', '.join(selected)} FROM {scan}"
    )


def count_aggregates(connection: duckdb.DuckDBPyConnection, plan: QueryPlan) -> TrueAggregates:
    """The exact aggregates of `plan`, each individual held to the bounds that the plan states.

    Privacy: an individual is in at most max_records rows of what is aggregated and in at most
    max_groups groups; docs/proofs/sql.md derives the sensitivities from that.
    """
    bounded = plan.unit.column is not None or plan.relation.joined
    query = _encoded(plan, with_unit=bounded)
    connection.execute(f"CREATE TEMP TABLE _sf_encoded AS {query}")
    # No expression of the statement is evaluated from here on, so all optimisers may help.
    connection.execute(f"SET disabled_optimizers = '{SLOW_OPTIMIZER}'")
    statistics = {noise.measure.statistic for noise in plan.noises}
    if bounded and not plan.keys and statistics <= {"records", "individuals"}:
        return _clip_counts(connection, plan)
    rows = _bound_rows(connection, plan) if bounded else "SELECT * FROM _sf_encoded"
    if plan.selection is not None:
        return _group_openly(connection, plan, rows)
    if statistics == {"records"} and plan.keys:
        return _tally(connection, plan, rows)
    return _group(connection, plan, rows)


def bind_plan(connection: duckdb.DuckDBPyConnection, plan: QueryPlan) -> None:
    """Nothing, or the engine's own error if the types of the generated query do not fit."""
    bounded = plan.unit.column is not None or plan.relation.joined
    connection.execute(f"EXPLAIN {_encoded(plan, with_unit=bounded)}")


def _encoded(plan: QueryPlan, *, with_unit: bool) -> str:
    """One row per record: the individual u, the keys k0, k1, ..., the values v0, v1, ..."""
    tree = _shield(_guard(plan.relation.tree.copy()))
    selected: list[str] = []
    kept: list[str] = []
    if with_unit:
        unit = exp.column(UNIT, table=plan.relation.unit_alias, quoted=True)
        selected.append(f"{unit.sql(dialect='duckdb')} AS u")
        kept.append("u IS NOT NULL")
    for index, key in enumerate(plan.keys):
        selected.append(f"{_try(key.tree)} AS k{index}")
        kept.append(f"k{index} IS NOT NULL")
    for index, noise in enumerate(plan.noises):
        value = _value(noise.measure)
        if value is not None:
            selected.append(f"{value} AS v{index}")
    body = tree.select("1", append=False).sql(dialect="duckdb")
    selected = selected or ["1 AS one"]
    body = body.replace("SELECT 1 FROM", f"SELECT {', '.join(selected)} FROM", 1)
    return f"SELECT * FROM ({body})" + (f" WHERE {' AND '.join(kept)}" if kept else "")


def _guard(tree: exp.Select) -> exp.Select:
    """The tree with every condition and computed column of it and its subqueries made total."""
    for select in tree.find_all(exp.Select):
        where = select.args.get("where")
        if where is not None:
            where.set("this", _total(where.this))
        for item in select.expressions:
            if isinstance(item, exp.Alias) and not isinstance(item.this, exp.Column):
                item.set("this", _total(item.this))
    return tree


def _total(tree: exp.Expr) -> exp.Expr:
    """The expression with every operation that could fail made NULL where it does.

    Each operation is wrapped by itself. Around a whole condition it would not do: the engine leaves out
    what the smallest and largest value of a column decide, and so one record could decide whether the
    rest is evaluated, and fails, for all the others.
    """
    tree = exp.Paren(this=tree.copy())
    for node in reversed(list(tree.dfs())):
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            node.replace(exp.TryCast(this=node.this.copy(), to=node.args["to"].copy()))
        elif isinstance(node, (exp.Binary, exp.Func, exp.Neg, exp.In, exp.Between)) and not isinstance(
            node, (exp.And, exp.Or, exp.Case, exp.If, exp.TryCast, exp.Anonymous)
        ):
            node.replace(exp.Anonymous(this="TRY", expressions=[node.copy()]))
    inner: exp.Expr = tree.this
    return exp.Anonymous(this="TRY", expressions=[inner.copy()])


def _shield(tree: _Tree) -> _Tree:
    """The tree with every text that ends in a colon no moment, as in `encode`.

    There DuckDB would look at one character more, which is of another record.
    """
    for node in reversed(list(tree.find_all(exp.Cast))):
        if node.to.this.name.startswith("TIMESTAMP"):
            text = f"CAST({node.this.sql(dialect='duckdb')} AS VARCHAR)"
            guarded = f"CASE WHEN NOT ends_with({text}, ':') THEN {node.sql(dialect='duckdb')} END"
            node.replace(sqlglot.parse_one(guarded, read="duckdb"))
    return tree


def _try(tree: exp.Expr) -> str:
    return (tree if isinstance(tree, exp.Column) else _shield(_total(tree))).sql(dialect="duckdb")


def _value(measure: Measure) -> str | None:
    if measure.tree is None:
        return None
    raw = _try(measure.tree)
    if measure.statistic == "distinct":
        return raw
    if measure.statistic == "present" and not measure.is_number:
        return f"CASE WHEN {raw} IS NOT NULL THEN 1::UTINYINT END"
    number = f"TRY_CAST({raw} AS DOUBLE)"
    if measure.statistic == "present":
        return f"CASE WHEN NOT isnan({number}) THEN 1::UTINYINT END"
    low, high, centre = (float(each) for each in (measure.low, measure.high, measure.centre))
    # NULL stays NULL and NaN becomes NULL: neither may turn into a bound.
    clamped = (
        f"CASE WHEN isnan({number}) THEN NULL WHEN {number} < {low!r}::DOUBLE THEN {low!r}::DOUBLE "
        f"WHEN {number} > {high!r}::DOUBLE THEN {high!r}::DOUBLE ELSE {number} END"
    )
    if measure.statistic == "sum":
        small = "INTEGER" if measure.largest < 2**31 else "BIGINT"
        return f"CAST(round(({clamped} - {centre!r}::DOUBLE) * {measure.grid}) AS {small})"
    if measure.statistic == "square":
        half = float((measure.high - measure.low) / 2)
        share = f"({clamped} - {centre!r}::DOUBLE) / {half!r}::DOUBLE"
        return f"CAST(round(pow({share}, 2) * {measure.grid}) AS BIGINT)"
    width = float(measure.high - measure.low)
    return f"CAST(floor(({clamped} - {low!r}::DOUBLE) * {CELLS} / {width!r}::DOUBLE) AS INTEGER)"


def _columns(plan: QueryPlan) -> list[str]:
    keys = [f"k{index}" for index in range(len(plan.keys))]
    values = [f"v{index}" for index, noise in enumerate(plan.noises) if noise.measure.tree is not None]
    return [*keys, *values]


def _clip_counts(connection: duckdb.DuckDBPyConnection, plan: QueryPlan) -> TrueAggregates:
    """Counts without groups: one number per individual, so nothing has to be ordered or cut."""
    most = plan.unit.max_records
    connection.execute("SET perfect_ht_threshold = 20")
    row = connection.execute(
        f"SELECT COALESCE(sum(least(n, {most})), 0)::BIGINT, count(*)::BIGINT "
        "FROM (SELECT count(*) AS n FROM _sf_encoded GROUP BY u)"
    ).fetchone()
    records, individuals = row or (0, 0)
    counted = {"records": records, "individuals": individuals}
    return TrueAggregates(
        tuple(np.array([counted[noise.measure.statistic]], np.int64) for noise in plan.noises), None, None
    )


def _bound_rows(connection: duckdb.DuckDBPyConnection, plan: QueryPlan) -> str:
    """A query for the bounded rows: at most max_records of every individual, in max_groups groups."""
    columns = _columns(plan)
    listed = ", ".join(["u", *columns])
    most = plan.unit.max_records
    connection.execute("SET perfect_ht_threshold = 20")
    connection.execute(
        f"CREATE TEMP TABLE _sf_over AS SELECT u FROM _sf_encoded GROUP BY u HAVING count(*) > {most}"
    )
    connection.execute("RESET perfect_ht_threshold")
    ranked = (
        f"SELECT {listed}, row_number() OVER (PARTITION BY u ORDER BY {_order(plan, columns)}) AS place "
        "FROM _sf_encoded SEMI JOIN _sf_over USING (u)"
    )
    connection.execute(f"CREATE TEMP TABLE _sf_cut AS SELECT {listed} FROM ({ranked}) WHERE place <= {most}")
    within = f"SELECT {listed} FROM _sf_encoded ANTI JOIN _sf_over USING (u)"
    bounded = f"{within} UNION ALL SELECT {listed} FROM _sf_cut"
    if not plan.keys or plan.max_groups >= most:
        return bounded
    keys = [f"k{index}" for index in range(len(plan.keys))]
    together = ", ".join(keys)
    connection.execute(f"CREATE TEMP TABLE _sf_bounded AS {bounded}")
    place = f"row_number() OVER (PARTITION BY u ORDER BY {_order(plan, keys)})"
    connection.execute(
        f"CREATE TEMP TABLE _sf_chosen AS SELECT u, {together} "
        f"FROM (SELECT u, {together}, {place} AS place "
        f"FROM (SELECT DISTINCT u, {together} FROM _sf_bounded)) WHERE place <= {plan.max_groups}"
    )
    return f"SELECT {listed} FROM _sf_bounded SEMI JOIN _sf_chosen USING (u, {together})"


def _order(plan: QueryPlan, columns: list[str]) -> str:
    """An order of an individual's rows that no other individual's rows can change."""
    # A row's number changes with other rows, so that without a unit column it must not decide.
    parts = ["u", *columns] if plan.unit.column is not None else columns
    # Rows that tie in the hash are told apart by what they hold, and equal rows are interchangeable.
    return f"hash({', '.join(parts)}), {', '.join(parts)}" if parts else "1"


def _cell(plan: QueryPlan) -> str:
    cell = "0::BIGINT"
    for index, key in enumerate(plan.keys):
        cell = f"({cell} * {len(key.labels or ())} + k{index}::BIGINT)"
    return cell


def _tally(connection: duckdb.DuckDBPyConnection, plan: QueryPlan, rows: str) -> TrueAggregates:
    """Counts of records in groups with public labels, counted as they stream by."""
    counts = np.zeros(plan.groups, np.int64)
    kind = "INTEGER" if plan.groups < 2**31 else "BIGINT"
    query = f"SELECT CAST({_cell(plan)} AS {kind}) FROM ({rows})"
    for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS):
        cells = to_numpy(batch.column(0))
        if cells.size * 4 < counts.size:
            np.add.at(counts, cells, 1)
        else:
            counts += np.bincount(cells, minlength=counts.size)
    return TrueAggregates(tuple(counts for _ in plan.noises), None, None)


def _group(connection: duckdb.DuckDBPyConnection, plan: QueryPlan, rows: str) -> TrueAggregates:
    cell = _cell(plan)
    sums = _sums(plan)
    values = [np.zeros(plan.groups, np.int64) for _ in plan.noises]
    quantiles = [index for index, noise in enumerate(plan.noises) if noise.measure.statistic == "quantile"]
    if len(quantiles) > 1 or (quantiles and sums):
        connection.execute(f"CREATE TEMP TABLE _sf_finished AS {rows}")
        rows = "SELECT * FROM _sf_finished"
    if sums:
        listed = ", ".join(sums.values())
        table = connection.sql(f"SELECT {cell} AS cell, {listed} FROM ({rows}) GROUP BY ALL").to_arrow_table()
        cells = to_numpy(table.column(0).combine_chunks())
        for position, index in enumerate(sums, start=1):
            values[index][cells] = to_numpy(table.column(position).combine_chunks())
    for index in quantiles:
        values[index] = _histogram(connection, rows, cell, index, groups=plan.groups)
    return TrueAggregates(tuple(values), None, None)


def _histogram(
    connection: duckdb.DuckDBPyConnection, rows: str, cell: str, index: int, *, groups: int
) -> NDArray[np.int64]:
    place = f"({cell} * {CELLS + 1} + v{index}::BIGINT)"
    table = connection.sql(
        f"SELECT {place} AS place, count(*)::BIGINT AS n FROM ({rows}) "
        f"WHERE v{index} IS NOT NULL GROUP BY ALL"
    ).to_arrow_table()
    counts = np.zeros(groups * (CELLS + 1), np.int64)
    counts[to_numpy(table.column(0).combine_chunks())] = to_numpy(table.column(1).combine_chunks())
    return counts.reshape(groups, CELLS + 1)


def _sums(plan: QueryPlan) -> dict[int, str]:
    """The aggregate expressions of all measures but the quantiles."""
    sums: dict[int, str] = {}
    for index, noise in enumerate(plan.noises):
        match noise.measure.statistic:
            case "records":
                sums[index] = f"count(*)::BIGINT AS a{index}"
            case "individuals":
                sums[index] = f"count(DISTINCT u)::BIGINT AS a{index}"
            case "distinct":
                sums[index] = f"count(DISTINCT v{index})::BIGINT AS a{index}"
            case "quantile":
                pass
            case _:
                total = f"COALESCE(sum(v{index}), 0)"
                sums[index] = (
                    f"CAST(least(greatest({total}, -{_SATURATED}), {_SATURATED}) AS BIGINT) AS a{index}"
                )
    return sums


def _group_openly(connection: duckdb.DuckDBPyConnection, plan: QueryPlan, rows: str) -> TrueAggregates:
    """Aggregates of the groups that occur, with the number of individuals in each."""
    keys = ", ".join(f"k{index}" for index in range(len(plan.keys)))
    sums = _sums(plan)
    if len(sums) != len(plan.noises):  # pragma: no cover - refused by the planner
        message = "quantiles of open groups"
        raise AssertionError(message)
    people = "count(DISTINCT u)" if plan.unit.column is not None else "count(*)"
    listed = "".join(f", {text}" for text in sums.values())
    table = connection.sql(
        f"SELECT {keys}, {people}::BIGINT AS people{listed} FROM ({rows}) GROUP BY {keys}"
    ).to_arrow_table()
    width = len(plan.keys)
    true_keys = tuple(zip(*(table.column(index).to_pylist() for index in range(width)), strict=True))
    arrays = [to_numpy(table.column(index).combine_chunks()) for index in range(width, table.num_columns)]
    return TrueAggregates(tuple(arrays[1:]), true_keys, arrays[0])
