"""Which statements are aggregated where their table is, and the SQL that a server runs for them.

A plan is pushed down if all its expressions are among those that the server evaluates as DuckDB does, bit for
bit, and that can fail for no record; whether it is follows from the plan and the types of the columns. The
server aggregates the records of all individuals within their bound. Those of the others are fetched, and
DuckDB bounds and aggregates them as it does for files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.engine.encode import find_interval
from sfumato.servers.push.translate import Scope, read_scope, to_double
from sfumato.servers.push.words import Pushed, PushedKey, UnpushedError, Words
from sfumato.sql.aggregates import CELLS, Measure
from sfumato.sql.plan import QueryPlan
from sfumato.statements.execute import TrueAggregates

if TYPE_CHECKING:
    from sqlglot import exp

    from sfumato.core.facts.table import PrivacyUnit
    from sfumato.sql.aggregates import Key
    from sfumato.sql.relation import Relation

    _Record = QueryPlan | Relation | PrivacyUnit | Key | Measure

_SATURATED = 2**62
EVERYTHING = "TRUE"
"""The condition of a statement without one."""
_MOST_GROUPS = 2**24
"""Groups that may come back from a server."""
_FAR = 10.0**100
"""Bounds beyond this, or closer than its inverse, are left to DuckDB: elsewhere numbers may overflow."""
_LARGEST = 2**40  # what one record may add
_STATISTICS = ("records", "present", "individuals", "sum", "square", "quantile")
_KNOWN = {
    # of a plan
    *(
        "text",
        "epsilon",
        "delta",
        "relation",
        "unit",
        "max_groups",
        "keys",
        "aggregates",
        "noises",
        "outputs",
    ),
    *("selection", "stages", "choices", "sets", "miss", "intervals"),
    # of a relation and a unit
    *("tree", "fields", "unit_alias", "tables", "joined", "column", "max_records", "neighbours"),
    # of keys and measures
    *("node", "labels", "type", "statistic", "low", "high", "centre", "grid", "quantile", "is_number"),
    *("chosen", "numbered", "private", "edges", "parts"),
}


@dataclass(frozen=True, slots=True)
class PushedPlan:
    """The parts of a statement as a server spells them: the individual, a condition, keys and values."""

    unit: str | None
    condition: str
    keys: tuple[PushedKey, ...]
    values: Mapping[int, str]
    totals: Mapping[int, str]
    measures: tuple[Measure, ...]
    most: int

    @property
    def groups(self) -> int:
        """The number of groups."""
        return math.prod(key.size for key in self.keys)

    @property
    def only_counts(self) -> bool:
        """Whether one number of records per individual is all that is needed; then nothing is chosen."""
        counted = all(measure.statistic in ("records", "individuals") for measure in self.measures)
        return self.unit is not None and not self.keys and counted


def push_plan(plan: QueryPlan, words: Words) -> PushedPlan | None:
    """The plan as the server of `words` spells it, or None if it is left to DuckDB. Public facts decide."""
    try:
        return _push(plan, words)
    except UnpushedError:
        return None


_AMONG = "EXISTS (SELECT 1 FROM beyond WHERE beyond.u = records.u)"


def beyond_query(pushed: PushedPlan, relation: str, *, among: bool = False) -> str:
    """The individuals of more records than may count, of those that the statement keeps.

    With `among`, they are looked for in the relation `beyond` alone.
    """
    return (
        f"SELECT u FROM (SELECT {pushed.unit} AS u FROM {relation} WHERE {pushed.condition}) AS records "
        f"WHERE {_AMONG if among else 'u IS NOT NULL'} GROUP BY u HAVING count(*) > {pushed.most}"
    )


def clipped_query(pushed: PushedPlan, relation: str) -> str:
    """One row for a plan of `only_counts`: records, each individual's up to the bound, and individuals."""
    numbers = (
        f"SELECT u, count(*) AS n FROM (SELECT {pushed.unit} AS u FROM {relation} "
        f"WHERE {pushed.condition}) AS records WHERE u IS NOT NULL GROUP BY u"
    )
    clipped = f"sum(CASE WHEN n < {pushed.most} THEN n ELSE {pushed.most} END)"
    return f"SELECT {clipped} AS records, count(*) AS individuals FROM ({numbers}) AS numbers"


def spread_counts(pushed: PushedPlan, row: tuple[Any, ...]) -> TrueAggregates:
    """The aggregates in the row of `clipped_query`."""
    counted = dict(zip(("records", "individuals"), (int(each or 0) for each in row), strict=True))
    values = (np.array([counted[each.statistic]], np.int64) for each in pushed.measures)
    return TrueAggregates(tuple(values), None, None)


def aggregate_queries(pushed: PushedPlan, relation: str, *, bounded: bool) -> dict[tuple[int, ...], str]:
    """The queries for the measures, by their places: keys, then for a quantile its step, then the numbers.

    With `bounded`, individuals in the relation `beyond` are left out.
    """
    keys = [f"g{place}" for place in range(len(pushed.keys))]
    items = [f"{key.sql} AS g{place}" for place, key in enumerate(pushed.keys)]
    items += [f"{value} AS v{place}" for place, value in pushed.values.items()]
    conditions = [pushed.condition]
    if pushed.unit is not None:
        items.append(f"{pushed.unit} AS u")
    records = f"SELECT {', '.join(items) or '1 AS one'} FROM {relation} WHERE {' AND '.join(conditions)}"
    if pushed.unit is not None:
        kept = "u IS NOT NULL"
        if bounded:
            kept += f" AND NOT {_AMONG}"
        records = f"SELECT * FROM ({records}) AS records WHERE {kept}"
    queries: dict[tuple[int, ...], str] = {}
    sums: dict[int, str] = {}
    for place, measure in enumerate(pushed.measures):
        match measure.statistic:
            case "records":
                sums[place] = "count(*)"
            case "present":
                sums[place] = f"count(v{place})"
            case "sum" | "square":
                sums[place] = pushed.totals[place]
            case "individuals":
                listed = ", ".join([*keys, "u"])
                distinct = f"SELECT {listed} FROM ({records}) AS inside GROUP BY {listed}"
                queries[(place,)] = _grouped(keys, ["count(*) AS a"], distinct)
            case "quantile":
                found = f"SELECT * FROM ({records}) AS inside WHERE v{place} IS NOT NULL"
                queries[(place,)] = _grouped([*keys, f"v{place}"], ["count(*) AS a"], found)
    if sums:
        named = [f"{sql} AS a{place}" for place, sql in sums.items()]
        queries[tuple(sums)] = _grouped(keys, named, records)
    return queries


def collect_aggregates(
    pushed: PushedPlan, answers: Mapping[tuple[int, ...], Iterable[tuple[Any, ...]]]
) -> TrueAggregates:
    """The aggregates in the rows that a server answers with."""
    values: list[NDArray[np.int64]] = [
        np.zeros((pushed.groups, CELLS + 1) if each.statistic == "quantile" else pushed.groups, np.int64)
        for each in pushed.measures
    ]
    width = len(pushed.keys)
    for places, rows in answers.items():
        columns = list(zip(*rows, strict=True))
        if not columns:
            continue
        cells, kept = _find_cells(pushed, columns[:width], len(columns[0]))
        quantile = pushed.measures[places[0]].statistic == "quantile"
        steps = np.array(columns[width], np.int64)[kept] if quantile else None
        for place, counted in zip(places, columns[width + quantile :], strict=True):
            whole = [max(-_SATURATED, min(int(each or 0), _SATURATED)) for each in counted]
            found = np.array(whole, np.int64)[kept]
            values[place][cells if steps is None else (cells, steps)] = found
    return TrueAggregates(tuple(values), None, None)


def add_aggregates(one: TrueAggregates, other: TrueAggregates) -> TrueAggregates:
    """The aggregates of two groups of individuals that have nobody in common."""
    pairs = zip(one.true_values, other.true_values, strict=True)
    # Neither is beyond 2^62, so that the sum of two is none beyond 2^63.
    added = (np.clip(a + b, -_SATURATED, _SATURATED) for a, b in pairs)
    return TrueAggregates(tuple(added), None, None)


def _grouped(keys: list[str], items: list[str], rows: str) -> str:
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *items])} FROM ({rows}) AS counted{grouped}"


def _find_cells(
    pushed: PushedPlan, columns: list[tuple[Any, ...]], rows: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The cells of all rows that are in one, and which rows these are."""
    cells, kept = np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    for key, column in zip(pushed.keys, columns, strict=True):
        absent = -1 if key.other is None else key.other
        if key.codes is None:
            codes = np.array([absent if each is None else each - key.low for each in column], np.int64)
        else:
            codes = np.array([key.codes.get(each, absent) for each in column], np.int64)
        kept &= codes >= 0
        cells = cells * key.size + codes
    return cells[kept], kept


def _push(plan: QueryPlan, words: Words) -> PushedPlan:
    table = words.table
    measures = tuple(noise.measure for noise in plan.noises)
    records: list[_Record] = [plan, plan.relation, plan.unit, *plan.keys, *measures]
    for record in records:
        _refuse_unknown(record)
    chooses = bool(plan.keys) and plan.max_groups < plan.unit.max_records
    if plan.relation.joined or plan.relation.individuals:
        raise UnpushedError
    if plan.selection is not None or table.part is not None or chooses:
        raise UnpushedError
    if plan.groups > _MOST_GROUPS or any(key.labels is None for key in plan.keys):
        raise UnpushedError
    scope = read_scope(plan.relation.tree, words)
    unit = words.unit()
    keys = tuple(_push_key(key.tree, len(key.labels or ()), scope, words) for key in plan.keys)
    values = {}
    for place, measure in enumerate(measures):
        if measure.statistic not in _STATISTICS or (measure.statistic == "individuals" and unit is None):
            raise UnpushedError
        if measure.tree is not None:
            values[place] = _push_value(measure, scope.translate(measure.tree), words)
    totals = {
        place: words.spell_total(f"v{place}", measure.largest)
        for place, measure in enumerate(measures)
        if measure.statistic in ("sum", "square")
    }
    condition = " AND ".join(f"({each})" for each in scope.conditions) or EVERYTHING
    return PushedPlan(unit, condition, keys, values, totals, measures, plan.unit.max_records)


def _refuse_unknown(record: _Record) -> None:
    """Gives up a plan that says more than is known here: what is passed over may be a bound."""
    for field in fields(record):
        if field.name not in _KNOWN and getattr(record, field.name) not in (None, False, (), 0):
            raise UnpushedError


def _push_key(tree: exp.Expr, size: int, scope: Scope, words: Words) -> PushedKey:
    name = scope.code_of(tree)
    if name is not None:
        key = words.key(name)
        if key.size != size:
            raise UnpushedError
        return key
    found = scope.translate(tree)
    if found.kind != "integer":
        raise UnpushedError
    # Whatever the expression gives, a group is one of those that are public.
    return PushedKey(f"CASE WHEN {found.sql} BETWEEN 0 AND {size - 1} THEN {found.sql} END", size)


def _push_value(measure: Measure, value: Pushed, words: Words) -> str:
    """What a measure adds up of a record, as `_value` in `execute` has it."""
    if measure.statistic == "present" and not measure.is_number:
        return f"CASE WHEN {value.sql} IS NOT NULL THEN 1 END"
    if value.kind not in ("integer", "double", "boolean", "null"):
        raise UnpushedError
    number = to_double(value, words)
    there = words.spell_present(number, value.loose)
    if measure.statistic == "present":
        return f"CASE WHEN {there} THEN 1 END"
    if measure.edges is not None:
        interval = find_interval(measure.edges, number, spell=words.spell_double)
        return f"CASE WHEN {there} THEN {interval} END"
    ends = [float(each) for each in (measure.low, measure.high, measure.centre)]
    width = float(measure.high - measure.low)
    if any(abs(each) > _FAR for each in ends) or not 1 / _FAR < width < _FAR or measure.largest > _LARGEST:
        raise UnpushedError
    low, high, centre = (words.spell_double(each) for each in ends)
    # Whatever is infinite becomes a bound, and the negative zero adds what zero does.
    clamped = f"(CASE WHEN {there} THEN least(greatest({value.loose or number}, {low}), {high}) END)"
    if measure.statistic == "sum":
        return _round_away(f"({clamped} - {centre}) * {words.spell_double(float(measure.grid))}", words)
    if measure.statistic == "square":
        half = words.spell_double(float((measure.high - measure.low) / 2))
        share = f"(({clamped} - {centre}) / {half})"
        # What is so near to the centre adds nothing, and its square might be too small for a number.
        tiny = words.spell_double(1e-9)
        square = (
            f"(CASE WHEN abs({share}) < {tiny} THEN {words.spell_double(0.0)} ELSE {share} * {share} END)"
        )
        return _round_away(f"{square} * {words.spell_double(float(measure.grid))}", words)
    step = f"({clamped} - {low}) * {words.spell_double(float(CELLS))} / {words.spell_double(width)}"
    near = f"{clamped} - {low} < {words.spell_double(1e-200)}"
    return f"CASE WHEN {near} THEN 0 ELSE CAST(floor({step}) AS {words.whole}) END"


def _round_away(value: str, words: Words) -> str:
    """A number rounded to a whole one, halves away from zero, as DuckDB does; servers differ in that.

    From a half to 2^40 adding a half is exact, or rounds to a number whose floor is the same.
    """
    half = words.spell_double(0.5)
    up = f"WHEN {value} >= {half} THEN CAST(floor({value} + {half}) AS {words.whole})"
    down = f"WHEN {value} <= -{half} THEN CAST(ceil({value} - {half}) AS {words.whole})"
    return f"CASE {up} {down} WHEN {value} IS NOT NULL THEN 0 END"
