"""Exact bounded aggregates of a checked query, with DuckDB over sealed tables.

The SQL that runs is written by the core from what it has checked. Each operation over private columns
is wrapped in TRY, so that a record for which it fails has NULL there instead, and no text grows beyond its
limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.expressions import is_condition, list_untold_conditions, make_total, shield
from sfumato.core.algebra.measures import MOST_STEPS, Checked, Measure, tally_individuals
from sfumato.core.algebra.rows import (
    Among,
    Filter,
    Individuals,
    Join,
    Rows,
    Scan,
    Tested,
    list_expressions,
    walk_rows,
)
from sfumato.core.algebra.writing import Writer, count_rows
from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.engine.bounded import add_up, find_starts, hold_to_norm, number_people, sort_places
from sfumato.core.engine.encode import find_interval, quote_name
from sfumato.core.engine.sealed import NUMBER, Sealed, register_columns
from sfumato.core.errors import refuse
from sfumato.core.exact import Withheld
from sfumato.core.facts.table import UNIT, Table

_BATCH_ROWS = 2**20
_SATURATED = 2**62


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TrueAggregates(Withheld):
    """Exact aggregates per group: one array per measure, and the keys of groups that are not public."""

    true_values: tuple[NDArray[np.int64], ...]
    true_keys: tuple[tuple[Any, ...], ...] | None
    true_individuals: NDArray[np.int64] | None


def names_in(checked: Checked) -> frozenset[str]:
    """The names of all columns of tables that a query mentions, in lower case."""
    names: set[str] = set()
    for rows, tree in _list_trees(checked):
        # What comes of an inner query is no column of a table, whatever it is called.
        scanned = set(_list_scanned(rows))
        names |= {each.name.lower() for each in tree.find_all(exp.Column) if each.table in scanned}
    needs_unit = not checked.shape.numbered and (checked.shape.joined or checked.chooses_groups)
    return frozenset(names | {UNIT} if needs_unit else names)


def open_sealed(
    connection: duckdb.DuckDBPyConnection, checked: Checked, table: Table, sealed: Sealed
) -> None:
    """Makes relations of a sealed table: its two parts, or for a join those records of it that may count.

    Inside, UNIT is the number of the individual. In the crowd it is the place of the record in the fixed
    order, unless records are only counted. For a join it is the individual as stored, which other tables
    name too.
    """
    name, inside = table.name, sealed.inside
    if NUMBER not in inside.column_names:
        inside = inside.append_column(UNIT, to_arrow(np.arange(inside.num_rows)))
    apart = checked.shape.joined or checked.shape.individuals
    if apart or checked.clipped is not None:
        # Of what is grouped by individuals, held to a norm, or not multiplied, all records are looked at.
        whole = _list_all(sealed, inside, numbered=not checked.shape.joined)
        register_columns(connection, _part("all", name), whole)
        if apart and not checked.shape.multiplied:
            return
    if not checked.shape.joined:
        register_columns(connection, _part("inside", name), _by_number(inside))
        if not sealed.crowd.num_rows:
            return
        if checked.only_counts:
            crowd = _by_number(sealed.crowd)
        else:
            places = to_arrow(np.arange(sealed.crowd.num_rows))
            crowd = _order_crowd(checked, sealed).drop_columns([UNIT, NUMBER]).append_column(UNIT, places)
        register_columns(connection, _part("crowd", name), crowd)
        return
    if sealed.crowd.num_rows:
        ordered = _order_crowd(checked, sealed)
        numbers = to_numpy(ordered[NUMBER].combine_chunks())
        kept = ordered.filter(pa.array(_rank(numbers) < table.unit.max_records))
        inside = pa.concat_tables([inside.select(kept.column_names), kept])
    register_columns(connection, name, inside)


def _list_all(sealed: Sealed, inside: pa.Table, *, numbered: bool) -> pa.Table:
    whole = inside
    if sealed.crowd.num_rows:
        whole = pa.concat_tables([inside, sealed.crowd.select(inside.column_names)])
    return _by_number(whole) if numbered else whole


def _order_crowd(checked: Checked, sealed: Sealed) -> pa.Table:
    return sealed.order_crowd(frozenset(names_in(checked)))


def count_aggregates(
    connection: duckdb.DuckDBPyConnection, checked: Checked, sealed: Mapping[str, Sealed]
) -> TrueAggregates:
    """Return the exact aggregates of a query, each individual held to the bounds that were derived.

    Privacy: an individual is in at most max_records rows of what is aggregated and in at most
    max_groups groups, or what all its rows add together is held to a norm; docs/proofs/sql.md derives the
    sensitivities from that.
    """
    if checked.clipped is not None:
        held = iter(_hold_to_norms(connection, checked.clipped))
        cut = () if checked.cut is None else count_aggregates(connection, checked.cut, sealed).true_values
        kept = iter(cut)
        values = tuple(next(kept if each.clip is None else held) for each in checked.query.measures)
        return TrueAggregates(values, None, None)
    counted = checked.only_counts
    if checked.shape.joined:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE _sf_encoded AS {_encoded(checked, with_unit=True)}")
        if counted:
            return _clip_joined(connection, checked)
        rows = _bound_rows(connection, checked)
    elif checked.shape.numbered:
        rows = _encoded(checked, with_unit=True)
    elif checked.unit.column is None:
        rows = _encoded(checked, with_unit=False, part="inside")
    else:
        ((name, table),) = sealed.items()
        if table.most > checked.unit.max_records:
            raise AssertionError("individuals are told apart by a larger bound than counts")
        if counted:
            return _clip_counts(connection, checked, table)
        rows = _bound_crowd(connection, checked, name, table)
    if checked.chooses_groups:
        rows = _bound_groups(
            connection, checked, rows, None if checked.shape.joined else next(iter(sealed.values()))
        )
    if checked.is_open:
        return _group_openly(connection, checked, rows)
    if checked.query.groups and all(measure.statistic == "records" for measure in checked.query.measures):
        return _tally(connection, checked, rows)
    return _group(connection, checked, rows)


def bind_aggregates(
    connection: duckdb.DuckDBPyConnection, checked: Checked, sealed: Mapping[str, Sealed]
) -> None:
    """Raises what would fail for every record: expressions are bound, on tables without one.

    What is counted of their values is written here alone, and needs no trial; but for joins and for groups
    that are chosen, which are tried as they are.
    """
    if checked.shape.joined or checked.is_open:
        count_aggregates(connection, checked, sealed)
        return
    with_unit = checked.unit.column is not None
    part = None if checked.shape.numbered else "inside"
    connection.execute(f"DESCRIBE {_encoded(checked, with_unit=with_unit, part=part)}")


def _part(part: str, name: str) -> str:
    return f"{part} of {name}"


def _write(checked: Checked, part: str | None) -> Writer:
    """What writes the rows of a query; with `part`, of that part of the one table that it reads."""
    shape = checked.shape

    def find(name: str, whole: bool) -> str:  # noqa: FBT001 - the writer says which, in its order
        if name not in shape.private:
            return name
        if part is not None:
            return _part(part, name)
        if shape.multiplied:
            # An individual may have many rows for many keys, and then at most max_records enter a join.
            return _part("all", name) if whole else name
        return _part("all", name)

    return Writer(checked.tables, find)


def _rank(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each entry among those of the same number, which stand together."""
    starts = find_starts(numbers)
    return np.arange(numbers.size) - np.repeat(starts, np.diff(starts, append=numbers.size))


def _bound_crowd(connection: duckdb.DuckDBPyConnection, checked: Checked, name: str, table: Sealed) -> str:
    """A query for the bounded rows of a statement without joins: u, keys, values.

    Who is inside has no more than max_records records. Of each individual in the crowd the first of those
    that the statement keeps are taken, in the fixed order.
    """
    rows = _encoded(checked, with_unit=True, part="inside")
    if not table.crowd.num_rows:
        return rows
    encoded = _encoded(checked, with_unit=True, part="crowd")
    found = connection.sql(f"SELECT u FROM ({encoded})").to_arrow_table().column(0).combine_chunks()
    chosen = np.zeros(table.crowd.num_rows, np.bool_)
    chosen[to_numpy(found)] = True
    places = np.flatnonzero(chosen)
    ordered = _order_crowd(checked, table)
    numbers = to_numpy(ordered[NUMBER].combine_chunks())
    chosen[places[_rank(numbers[places]) >= checked.unit.max_records]] = False
    kept = ordered.filter(pa.array(chosen))
    register_columns(connection, _part("chosen", name), _by_number(kept))
    return f"{rows} UNION ALL {_encoded(checked, with_unit=True, part='chosen')}"


def _by_number(records: pa.Table) -> pa.Table:
    """The records with the number of the individual as UNIT, in place of its stored name."""
    if NUMBER not in records.column_names:
        return records
    names = [each for each in records.column_names if each != UNIT]
    return records.select(names).rename_columns([UNIT if each == NUMBER else each for each in names])


_COMPARING = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.Between,
    exp.In,
    exp.Nullif,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Greatest,
    exp.Least,
)
"""What brings operands to one type, and where a text may have to be read as something else."""


def check_forms(connection: duckdb.DuckDBPyConnection, checked: Checked) -> None:
    """Refuses constants that cannot be computed, or converted to what they are compared with.

    For every record such a condition would be NULL, and the answer noise around nothing. Refuses also what
    stands for a condition and is none: its conversion could fail for a record.
    """
    part = None if checked.shape.joined or checked.shape.individuals else "inside"
    writer, known = _write(checked, part), dict[tuple[Rows, str], str]()

    def find_type(rows: Rows, tree: exp.Expr) -> str:
        # A key is compared with each of its labels, and its type is asked for once.
        key = (rows, tree.sql(dialect="duckdb"))
        if key not in known:
            query = writer.select(rows).select(tree.copy()).sql(dialect="duckdb")
            ((_, kind, *_),) = connection.execute(f"DESCRIBE {query}").fetchall()
            known[key] = str(kind)
        return known[key]

    def require_condition(rows: Rows, tree: exp.Expr) -> None:
        if not is_condition(tree) and find_type(rows, tree) != "BOOLEAN":
            raise refuse(f"{tree.sql()[:60]!r} stands for a condition; compare it with something")

    for rows, tree in _list_trees(checked):
        for node in _find_constants(tree):
            _require_value(connection, node.sql(dialect="duckdb"), node)
        for node in tree.find_all(*_COMPARING):
            _check_operands(connection, node, partial(find_type, rows))
        for test in list_untold_conditions(tree):
            require_condition(rows, test)
    for each in walk_rows(checked.query.rows):
        if isinstance(each, Filter):
            require_condition(each.rows, each.condition)
        elif isinstance(each, Individuals):
            for _, result in each.results:
                if isinstance(result, Tested):
                    require_condition(each.rows, result.of)


def _list_trees(checked: Checked) -> Iterator[tuple[Rows, exp.Expr]]:
    """All expressions of a query, each with the rows that it is over."""
    query = checked.query
    for tree in (*(each.tree for each in query.groups), *(each.tree for each in query.measures)):
        if tree is not None:
            yield query.rows, tree
    for part in walk_rows(query.rows):
        yield from list_expressions(part)


def _list_scanned(rows: Rows) -> Iterator[str]:
    """The names of the tables that stand beside each other in `rows`."""
    match rows:
        case Scan():
            yield rows.alias
        case Join():
            yield from (*_list_scanned(rows.left), *_list_scanned(rows.right))
        case Among() | Filter():
            yield from _list_scanned(rows.rows)


def _check_operands(
    connection: duckdb.DuckDBPyConnection, node: exp.Expr, find_type: Callable[[exp.Expr], str]
) -> None:
    """Refuses texts that cannot be read as what they meet, and texts of records that meet moments.

    These the database would convert by itself, and in doing so look beyond the end of a text.
    """
    parts = list(node.iter_expressions())
    if isinstance(node, exp.Case):
        parts += [each.this for each in node.args["ifs"]] if node.this is not None else []
        parts += [each.args["true"] for each in node.args["ifs"]]
        parts = [part for part in parts if not isinstance(part, exp.If)]
    texts = [part for part in parts if isinstance(part, exp.Literal) and part.is_string]
    others = [part for part in parts if not isinstance(part, (exp.Literal, exp.Null, exp.Boolean))]
    if not any(part.find(exp.Column) for part in others) or len(others) + len(texts) < 2:
        return
    kinds = [find_type(part) for part in others]
    moments = [kind for kind in kinds if kind.startswith(("DATE", "TIMESTAMP"))]
    if moments and "VARCHAR" in kinds:
        shown = node.sql(dialect="duckdb")[:80]
        raise refuse(f"{shown} mixes text with dates; convert the text: CAST(column AS {moments[0]})")
    kind = next((each for each in kinds if each != "BOOLEAN"), kinds[0])
    if isinstance(node, (exp.Case, exp.If, exp.Coalesce)) or kind == "VARCHAR":
        return
    for text in texts:
        _require_value(connection, f"CAST({text.sql(dialect='duckdb')} AS {kind})", text)


def _find_constants(node: exp.Expr) -> Iterator[exp.Expr]:
    """The largest parts of an expression that convert or compute, and name no column."""
    if node.find(exp.Column):
        for child in node.iter_expressions():
            yield from _find_constants(child)
    elif node.find(exp.Cast, exp.Func) and isinstance(node, (exp.Condition, exp.Cast)):
        yield node


def _require_value(connection: duckdb.DuckDBPyConnection, expression: str, shown: exp.Expr) -> None:
    try:
        connection.execute(f"SELECT {expression}").fetchall()
    except duckdb.Error:
        raise refuse(
            f"the constant {shown.sql(dialect='duckdb')[:80]} cannot be read as what it is compared with"
        ) from None


def _encoded(checked: Checked, *, with_unit: bool, part: str | None = None) -> str:
    """One row per record: the individual u, the keys k0, k1, ..., the values v0, v1, ...

    With `part`, of that part of the one table that the query reads. A code that is none of a public group's
    is dropped with its record.
    """
    read: dict[str, str] = {}  # what is evaluated of a record, and its name: each only once
    kept: list[str] = []
    selected: list[str] = []
    if with_unit:
        unit = exp.column(UNIT, table=checked.shape.alias, quoted=True)
        read[unit.sql(dialect="duckdb")] = "u"
        selected.append("u")
        kept.append("u IS NOT NULL")
    for index, key in enumerate(checked.query.groups):
        name = read.setdefault(_try(key.tree), f"r{len(read)}")
        selected.append(f"{name if key.size is not None else f'CAST({name} AS VARCHAR)'} AS k{index}")
        public = f"TRY_CAST({name} AS BIGINT) BETWEEN 0 AND {(key.size or 1) - 1}"
        kept.append(f"{name} IS NOT NULL" if key.size is None else public)
    for index, measure in enumerate(checked.query.measures):
        if measure.tree is not None:
            name = read.setdefault(_raw(measure), f"r{len(read)}")
            selected.append(f"{_value(measure, name)} AS v{index}")
    items = ", ".join(f"{text} AS {name}" for text, name in read.items()) or "1 AS one"
    body = _write(checked, part).select(checked.query.rows).select("1").sql(dialect="duckdb")
    body = body.replace("SELECT 1 FROM", f"SELECT {items} FROM", 1)
    return f"SELECT {', '.join(selected) or 'one'} FROM ({body})" + (
        f" WHERE {' AND '.join(kept)}" if kept else ""
    )


def _try(tree: exp.Expr) -> str:
    return (tree if isinstance(tree, exp.Column) else shield(make_total(tree))).sql(dialect="duckdb")


def _raw(measure: Measure) -> str:
    """What a measure evaluates of a record: a number, or a value that is only looked at."""
    assert measure.tree is not None
    value = _try(measure.tree)
    if measure.statistic == "distinct" or (measure.statistic == "present" and not measure.is_number):
        return value
    return f"TRY_CAST({value} AS DOUBLE)"


def _value(measure: Measure, raw: str) -> str:
    """What a measure adds up, from the column `raw`."""
    if measure.statistic == "distinct":
        return raw
    if measure.statistic == "present":
        test = f"NOT isnan({raw})" if measure.is_number else f"{raw} IS NOT NULL"
        return f"CASE WHEN {test} THEN 1::UTINYINT END"
    if measure.edges is not None:
        interval = find_interval(measure.edges, raw)
        return f"CASE WHEN NOT isnan({raw}) THEN {interval} END"
    low, high, centre = (float(each) for each in (measure.low, measure.high, measure.centre))
    # NULL stays NULL and NaN becomes NULL: neither may turn into a bound.
    clamped = (
        f"CASE WHEN isnan({raw}) THEN NULL WHEN {raw} < {low!r}::DOUBLE THEN {low!r}::DOUBLE "
        f"WHEN {raw} > {high!r}::DOUBLE THEN {high!r}::DOUBLE ELSE {raw} END"
    )
    if measure.statistic == "sum":
        small = "INTEGER" if measure.largest < 2**31 else "BIGINT"
        return f"CAST(round(({clamped} - {centre!r}::DOUBLE) * {measure.grid}) AS {small})"
    if measure.statistic == "square":
        half = float((measure.high - measure.low) / 2)
        share = f"({clamped} - {centre!r}::DOUBLE) / {half!r}::DOUBLE"
        # A product is rounded in one way only; how a power is depends on who computes it.
        return f"CAST(round(({share}) * ({share}) * {measure.grid}) AS BIGINT)"
    width = float(measure.high - measure.low)
    return f"CAST(floor(({clamped} - {low!r}::DOUBLE) * {measure.steps} / {width!r}::DOUBLE) AS INTEGER)"


def _columns(checked: Checked) -> list[str]:
    keys = [f"k{index}" for index in range(len(checked.query.groups))]
    values = [f"v{index}" for index, measure in enumerate(checked.query.measures) if measure.tree is not None]
    return [*keys, *values]


def _clip_counts(connection: duckdb.DuckDBPyConnection, checked: Checked, table: Sealed) -> TrueAggregates:
    """Counts without groups: one number per individual, so nothing has to be ordered or cut."""
    tallied = any(measure.statistic == "records per individual" for measure in checked.query.measures)
    met = np.zeros(table.individuals, np.bool_)
    all_sizes = np.zeros(table.individuals if tallied else 0, np.int64)
    records = 0
    inside = f"SELECT u FROM ({_encoded(checked, with_unit=True, part='inside')})"
    for batch in connection.sql(inside).to_arrow_reader(_BATCH_ROWS):
        records += batch.num_rows
        met[to_numpy(batch.column(0))] = True
        if tallied:
            all_sizes += np.bincount(to_numpy(batch.column(0)), minlength=table.individuals)
    if table.crowd.num_rows:
        crowd = f"SELECT u FROM ({_encoded(checked, with_unit=True, part='crowd')})"
        numbers = to_numpy(connection.sql(crowd).to_arrow_table().column(0).combine_chunks())
        sizes = np.bincount(numbers, minlength=table.individuals)
        records += int(np.minimum(sizes, checked.unit.max_records).sum())
        met |= sizes > 0
        all_sizes = all_sizes + sizes if tallied else all_sizes
    if tallied:
        # One individual in one of the counts, however many records it has.
        return TrueAggregates((tally_individuals(all_sizes),), None, None)
    return _spread(checked, records=records, individuals=int(met.sum()))


def _clip_joined(connection: duckdb.DuckDBPyConnection, checked: Checked) -> TrueAggregates:
    ((records, individuals),) = connection.execute(
        f"SELECT COALESCE(sum(least(n, {checked.unit.max_records})), 0)::BIGINT, count(*)::BIGINT "
        "FROM (SELECT count(*) AS n FROM _sf_encoded GROUP BY u)"
    ).fetchall()
    return _spread(checked, records=records, individuals=individuals)


def _spread(checked: Checked, **counted: int) -> TrueAggregates:
    values = tuple(np.array([counted[measure.statistic]], np.int64) for measure in checked.query.measures)
    return TrueAggregates(values, None, None)


def _hold_to_norms(connection: duckdb.DuckDBPyConnection, checked: Checked) -> list[NDArray[np.int64]]:
    """Sums over individuals, what each adds to the groups scaled down to a norm; or individuals by that norm.

    Privacy: what is scaled is a function of the individual's rows, in any order, and rounded towards zero;
    docs/proofs/sql.md, section 3a.
    """
    measures = checked.query.measures
    added = {index: f"COALESCE(v{index}, 0)" for index, each in enumerate(measures) if each.tree is not None}
    rows = _encoded(checked, with_unit=True, part=None if checked.shape.joined else "all")
    kind = "INTEGER" if checked.size < 2**31 else "BIGINT"
    read = connection.sql(
        f"SELECT u, CAST({_cell(checked)} AS {kind}), {', '.join(added.values()) or '1'} FROM ({rows})"
    ).to_arrow_table()
    people, cells, *columns = (each.combine_chunks() for each in read.columns)
    del read
    pairs = number_people(people)
    pairs *= checked.size
    pairs += to_numpy(cells)
    pairs, order = sort_places(pairs)
    starts = find_starts(pairs)
    people, cells = np.divmod(pairs[starts], checked.size)
    firsts = find_starts(people)
    sizes = np.diff(starts, append=pairs.size)
    del pairs
    values = dict(zip(added, columns, strict=False))
    held = []
    for index, measure in enumerate(measures):
        if measure.clip is None:
            continue
        shares = sizes if index not in values else add_up(to_numpy(values[index])[order], starts, sizes)
        times = measure.grid if measure.statistic in ("records", "present") else 1
        most = MOST_STEPS // times + 1  # what is more is held to MOST_STEPS, and its product would not fit
        shares = np.clip(np.clip(shares, -most, most).astype(np.int64) * times, -MOST_STEPS, MOST_STEPS)
        held.append(hold_to_norm(shares, measure.clip, firsts=firsts, cells=cells, groups=checked.size))
    return held


def _bound_rows(connection: duckdb.DuckDBPyConnection, checked: Checked) -> str:
    """A query for the bounded rows of a join: at most max_records of every individual."""
    columns = _columns(checked)
    listed = ", ".join(["u", *columns])
    most = checked.unit.max_records
    connection.execute(
        f"CREATE TEMP TABLE _sf_over AS SELECT u FROM _sf_encoded GROUP BY u HAVING count(*) > {most}"
    )
    ranked = (
        f"SELECT {listed}, row_number() OVER (PARTITION BY u ORDER BY {_order(checked, columns)}) AS place "
        "FROM _sf_encoded SEMI JOIN _sf_over USING (u)"
    )
    connection.execute(f"CREATE TEMP TABLE _sf_cut AS SELECT {listed} FROM ({ranked}) WHERE place <= {most}")
    within = f"SELECT {listed} FROM _sf_encoded ANTI JOIN _sf_over USING (u)"
    return f"{within} UNION ALL SELECT {listed} FROM _sf_cut"


def _bound_groups(
    connection: duckdb.DuckDBPyConnection, checked: Checked, rows: str, table: Sealed | None
) -> str:
    """A query for those of the bounded rows that fall into at most max_groups groups of every individual."""
    keys = [f"k{index}" for index in range(len(checked.query.groups))]
    together = ", ".join(keys)
    connection.execute(f"CREATE TEMP TABLE _sf_bounded AS {rows}")
    pairs = f"SELECT DISTINCT u, {together} FROM _sf_bounded"
    order = _order(checked, keys)
    if table is not None:
        # The number of an individual changes with who else is there, so its stored name decides.
        register_columns(connection, "_sf_people", table.everything.select([NUMBER, UNIT]))
        people = f"SELECT DISTINCT {quote_name(NUMBER)} AS number, {quote_name(UNIT)} AS name FROM _sf_people"
        pairs = f"SELECT u, {together}, name FROM ({pairs}) JOIN ({people}) ON u = number"
        order = _order(checked, keys, unit="name")
    ranked = (
        f"SELECT u, {together}, row_number() OVER (PARTITION BY u ORDER BY {order}) AS place FROM ({pairs})"
    )
    connection.execute(
        f"CREATE TEMP TABLE _sf_chosen AS SELECT u, {together} FROM ({ranked}) "
        f"WHERE place <= {checked.query.max_groups}"
    )
    return f"SELECT * FROM _sf_bounded SEMI JOIN _sf_chosen USING (u, {together})"


def _order(checked: Checked, columns: list[str], *, unit: str = "u") -> str:
    """An order of an individual's rows that no other individual's rows can change."""
    # A row's number changes with other rows, so that without a unit column it must not decide.
    parts = [unit, *columns] if checked.unit.column is not None else columns
    # Rows that tie in the hash are told apart by what they hold, and equal rows are interchangeable.
    return f"hash({', '.join(parts)}), {', '.join(parts)}" if parts else "1"


def _cell(checked: Checked) -> str:
    cell = "0::BIGINT"
    for index, key in enumerate(checked.query.groups):
        cell = f"({cell} * {key.size} + k{index}::BIGINT)"
    return cell


def _tally(connection: duckdb.DuckDBPyConnection, checked: Checked, rows: str) -> TrueAggregates:
    """Counts of records in groups with public labels, counted as they stream by."""
    counts = np.zeros(checked.size, np.int64)
    kind = "INTEGER" if checked.size < 2**31 else "BIGINT"
    query = f"SELECT CAST({_cell(checked)} AS {kind}) FROM ({rows})"
    for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS):
        cells = to_numpy(batch.column(0))
        if cells.size * 4 < counts.size:
            np.add.at(counts, cells, 1)
        else:
            counts += np.bincount(cells, minlength=counts.size)
    return TrueAggregates(tuple(counts for _ in checked.query.measures), None, None)


def _group(connection: duckdb.DuckDBPyConnection, checked: Checked, rows: str) -> TrueAggregates:
    cell = _cell(checked)
    sums = _sums(checked)
    values = [np.zeros(checked.size, np.int64) for _ in checked.query.measures]
    quantiles = [
        index for index, measure in enumerate(checked.query.measures) if measure.statistic == "quantile"
    ]
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
        values[index] = _histogram(connection, rows, cell, index, checked)
    return TrueAggregates(tuple(values), None, None)


def _histogram(
    connection: duckdb.DuckDBPyConnection, rows: str, cell: str, index: int, checked: Checked
) -> NDArray[np.int64]:
    width = checked.query.measures[index].steps + 1
    place = f"({cell} * {width} + v{index}::BIGINT)"
    table = connection.sql(
        f"SELECT {place} AS place, count(*)::BIGINT AS n FROM ({rows}) "
        f"WHERE v{index} IS NOT NULL GROUP BY ALL"
    ).to_arrow_table()
    counts = np.zeros(checked.size * width, np.int64)
    counts[to_numpy(table.column(0).combine_chunks())] = to_numpy(table.column(1).combine_chunks())
    return counts.reshape(checked.size, width)


def _sums(checked: Checked) -> dict[int, str]:
    """The aggregate expressions of all measures but the quantiles."""
    sums: dict[int, str] = {}
    for index, measure in enumerate(checked.query.measures):
        match measure.statistic:
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


def _group_openly(connection: duckdb.DuckDBPyConnection, checked: Checked, rows: str) -> TrueAggregates:
    """Aggregates of the groups that occur, with the number of individuals in each."""
    keys = ", ".join(f"k{index}" for index in range(len(checked.query.groups)))
    sums = _sums(checked)
    if len(sums) != len(checked.query.measures):  # pragma: no cover - refused by the planner
        raise AssertionError("quantiles of open groups")
    people = "count(DISTINCT u)" if checked.unit.column is not None else "count(*)"
    listed = "".join(f", {text}" for text in sums.values())
    table = connection.sql(
        f"SELECT {keys}, {people}::BIGINT AS people{listed} FROM ({rows}) GROUP BY {keys}"
    ).to_arrow_table()
    width = len(checked.query.groups)
    true_keys = tuple(zip(*(table.column(index).to_pylist() for index in range(width)), strict=True))
    arrays = [to_numpy(table.column(index).combine_chunks()) for index in range(width, table.num_columns)]
    return TrueAggregates(tuple(arrays[1:]), true_keys, arrays[0])


_MOST_JOINED = 2**16
"""The most rows that a join may make of one individual."""


def check_joins(connection: duckdb.DuckDBPyConnection, checked: Checked) -> None:
    """Refuses joins that could make more rows of one individual than anybody needs.

    Otherwise how long an answer takes would tell of one individual's records.
    """
    most = None
    if checked.shape.multiplied:
        most = count_rows(checked.query.rows, Writer(checked.tables), connection.execute)
    if most is not None and most > _MOST_JOINED:
        raise refuse(
            f"the join could make {most:,} rows of one individual, and at most {_MOST_JOINED:,} are made; "
            "join fewer times, on more columns, or lower max_records"
        )
