"""Inner queries that aggregate each individual's records: SELECT person, COUNT(*) AS n ... GROUP BY person.

What comes out has one row for an individual, or one for each of its further keys, and every row is computed
from that individual's records alone.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from sfumato.core.algebra.rows import (
    Added,
    Counted,
    Filter,
    Gathered,
    Held,
    Individuals,
    Named,
    Operand,
    Picked,
    Rows,
    Tested,
)
from sfumato.core.errors import refuse
from sfumato.core.facts.table import code_name
from sfumato.sql.aggregates import only_where, refuse_unit, require_bounds, spell_position
from sfumato.sql.dates import derive_field
from sfumato.sql.magnitudes import is_marked
from sfumato.sql.normalize import PARAMETER
from sfumato.sql.relation import Field, Relation, is_whole, relate
from sfumato.sql.settle import kind_of, qualify, qualify_condition

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROWS = "individuals of sfumato"
_KNOWN = "COUNT, SUM, AVG, MIN, MAX, FIRST(x ORDER BY d), LAST, ARG_MIN, ARG_MAX, BOOL_OR and BOOL_AND"
_LARGEST_FIXED = 2**52
_MOST_DECIMALS = 12


def gathers(query: exp.Select) -> bool:
    """Whether an inner query puts records together: by DISTINCT, GROUP BY or aggregates."""
    clauses = any(query.args.get(name) for name in ("distinct", "group", "having"))
    return clauses or any(True for item in query.expressions for _ in _find_aggregates(item))


def group_individuals(
    query: exp.Select, items: list[exp.Expr], relation: Relation
) -> tuple[Relation, list[exp.Expr]]:
    """The rows of an inner query that groups by the unit, and its select list in terms of their columns.

    `items` is the select list with its stars written out, `relation` what FROM and WHERE describe.

    Privacy: a row is a function of one individual's records. With the unit alone as key, an individual has
    one row, whatever its records are; docs/proofs/sql.md, "Inner aggregates".
    """
    unit = relation.unit
    assert unit is not None
    if unit.column is None:
        raise refuse(
            'an inner query that aggregates records: with unit = "row" every record is an individual of its '
            "own, and no column says which belong together; declare the unit column in the project file"
        )
    keys = _read_keys(query, items, relation)
    if not any(_is_unit(key, relation) for key in keys):
        what = "an aggregate in an inner query without GROUP BY"
        if query.args.get("distinct") or query.args.get("group"):
            what = (
                "DISTINCT in an inner query" if query.args.get("distinct") else "GROUP BY in an inner query"
            )
        raise refuse(
            f"{what}, of several individuals' records; put the unit ({unit.column}) into it, so that each of "
            "its rows is of one individual, or let the outermost select list aggregate"
        )
    group = _Group(relation, keys)
    chosen: list[exp.Expr] = []
    for item in items:
        name = item.alias if isinstance(item, exp.Alias) or not isinstance(item, exp.Column) else item.name
        if not name:
            raise refuse(f"name the column {item.sql()[:60]!r} of the inner query with AS")
        chosen.append(exp.alias_(group.read(item.unalias(), held=True), name, quoted=True))
    having = query.args.get("having")
    condition = None
    if having is not None:
        named = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}
        spelled = _spell_out(having.this, named)
        condition = group.read(spelled, held=False, condition=True)
        _tell_kinds(spelled, having.this)
    return group.finish(condition), chosen


def _read_keys(query: exp.Select, items: list[exp.Expr], relation: Relation) -> list[exp.Expr]:
    """What an inner query groups by: the keys of GROUP BY, or all that it selects DISTINCT."""
    group, distinct = query.args.get("group"), query.args.get("distinct")
    if distinct is not None:
        if group is not None or distinct.args.get("on") is not None:
            raise refuse("DISTINCT beside GROUP BY or with ON in an inner query; use GROUP BY alone")
        return _unique([qualify(item.unalias(), relation, where="SELECT DISTINCT") for item in items])
    if group is None:
        return []
    if group.args.get("all"):
        plain = [item.unalias() for item in items if not any(True for _ in _find_aggregates(item))]
        return _unique([qualify(item.copy(), relation, where="GROUP BY ALL") for item in plain])
    for name in ("grouping_sets", "cube", "rollup", "totals"):
        if group.args.get(name):
            raise refuse(f"GROUP BY {name.upper().replace('_', ' ')} in an inner query; list the columns")
    named = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}
    holder = exp.Select(expressions=items)
    keys = []
    for item in group.expressions:
        node = spell_position(item, holder, where="GROUP BY")
        if isinstance(node, exp.Column) and not node.table:
            node = named.get(node.name.lower(), node)
        keys.append(qualify(node.copy(), relation, where="GROUP BY"))
    return _unique(keys)


def _unique(keys: list[exp.Expr]) -> list[exp.Expr]:
    return list({key.sql(): key for key in keys}.values())


def _is_unit(tree: exp.Expr, relation: Relation) -> bool:
    return isinstance(tree, exp.Column) and relation.field(tree).is_unit


def _spell_out(node: exp.Expr, named: dict[str, exp.Expr]) -> exp.Expr:
    """`node` with the names of items of the select list replaced by what they stand for."""

    def put(part: exp.Expr) -> exp.Expr:
        known = named.get(part.name.lower()) if isinstance(part, exp.Column) and not part.table else None
        return part if known is None else exp.paren(known.copy())

    return node.copy().transform(put)


def _find_aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Window):
        return
    inner = node.this if isinstance(node, (exp.Filter, exp.IgnoreNulls)) else node
    if isinstance(inner, (exp.AggFunc, exp.WithinGroup)):
        yield node
        return
    for child in node.iter_expressions():
        yield from _find_aggregates(child)


class _Group:
    """The columns of grouped rows: the unit, the further keys, and each aggregate that is asked for."""

    def __init__(self, relation: Relation, keys: list[exp.Expr]) -> None:
        self._relation = relation
        self._fields: dict[str, Field] = {}
        self._keys: dict[str, exp.Column] = {}
        self._known: dict[Gathered, exp.Column] = {}
        self._grouped: list[tuple[str, Operand]] = []
        self._aggregated: list[tuple[str, Gathered]] = []
        # What is computed from here on may name columns of the records, or of the grouped rows.
        self._mixed = replace(relation, fields={**relation.fields, _ROWS: self._fields})
        for place, key in enumerate(keys):
            if _is_unit(key, relation):
                column = relation.field(key)  # type: ignore[arg-type]
                self._keys[key.sql()] = self._add(Picked(Operand(key)), column)
            else:
                self._keys[key.sql()] = self._add_key(f"key {place}", key)

    def read(self, node: exp.Expr, *, held: bool, condition: bool = False) -> exp.Expr:
        """`node` in terms of the grouped rows; with `held`, counts and sums stay within their bounds."""
        holder = exp.Paren(this=node.copy())
        for found in list(_find_aggregates(holder)):
            found.replace(self._read_aggregate(found, held=held))
        where = "HAVING" if condition else "an inner select list"
        check = qualify_condition if condition else qualify
        tree = check(holder.this, self._mixed, where=where).transform(self._name_key)
        _tell_kinds(tree, node)
        for column in tree.find_all(exp.Column):
            if column.table != _ROWS:
                raise refuse(
                    f"column {column.name[:60]!r} is neither aggregated nor in GROUP BY of the inner query"
                )
        return tree

    def finish(self, condition: exp.Expr | None) -> Relation:
        """The relation of the grouped rows for which `condition` holds."""
        grouped = Individuals(self._relation.beside, tuple(self._grouped), tuple(self._aggregated))
        rows: Rows = Named(grouped, _ROWS)
        rows = rows if condition is None else Filter(rows, condition)
        return relate(rows, {_ROWS: self._fields}, self._relation.described)

    def _name_key(self, part: exp.Expr) -> exp.Expr:
        known = self._keys.get(part.sql()) if isinstance(part, (exp.Condition, exp.Cast)) else None
        return part if known is None else known.copy()

    def _add_key(self, name: str, key: exp.Expr) -> exp.Column:
        found = self._describe(name, key, "GROUP BY")
        self._grouped.append((name, self._plain(key, found)))
        if isinstance(key, exp.Column) and found.column is not None:
            self._grouped.append((code_name(name), Operand(self._code(key))))
        self._fields[name] = found
        return exp.column(name, table=_ROWS, quoted=True)

    def _add(self, call: Gathered, found: Field, *, code: Gathered | None = None) -> exp.Column:
        """The column of one aggregate; `code` is that of its label, if it has one."""
        if call not in self._known:
            name = f"inner {len(self._known)}"
            self._aggregated.append((name, call))
            if code is not None:
                self._aggregated.append((code_name(name), code))
            self._fields[name] = replace(found, name=name)
            self._known[call] = exp.column(name, table=_ROWS, quoted=True)
        return self._known[call].copy()

    def _read_aggregate(self, node: exp.Expr, *, held: bool) -> exp.Column:
        relation = self._relation
        condition = None
        if isinstance(node, exp.Filter):
            condition = qualify_condition(node.expression.this, relation, where="FILTER")
            node = node.this
        match node:
            case exp.Count() | exp.CountIf():
                return self._read_count(node, condition, held=held)
            case exp.Sum() | exp.Avg():
                return self._read_sum(node, condition, held=held)
            case exp.Min() | exp.Max() if not node.expressions:
                return self._choose(
                    node.this, [], condition, node.key.upper(), last=isinstance(node, exp.Max)
                )
            case exp.First() | exp.Last() if isinstance(node.this, exp.Order):
                return self._read_first(node, condition)
            case exp.ArgMin() | exp.ArgMax() if node.args.get("count") is None:
                name, last = node.key.upper().replace("ARG", "ARG_"), isinstance(node, exp.ArgMax)
                return self._choose(node.this, [node.expression], condition, name, last=last)
            case exp.LogicalOr() | exp.LogicalAnd():
                name = "any" if isinstance(node, exp.LogicalOr) else "all"
                test = qualify_condition(
                    node.this, relation, where=f"BOOL_{'OR' if name == 'any' else 'AND'}"
                )
                tested = Tested(only_where(condition, test), every=name == "all")
                return self._add(tested, Field(name="", kind="boolean"))
        if isinstance(node, (exp.First, exp.Last)):
            name = node.key.upper()
            raise refuse(f"{name} in an inner query needs an order: {name}(x ORDER BY d)")
        inner = node.this if isinstance(node, (exp.IgnoreNulls, exp.WithinGroup)) else node
        raise refuse(
            f"{inner.key.upper()} in an inner query; of each individual's records there are {_KNOWN}"
        )

    def _read_count(self, node: exp.Expr, condition: exp.Expr | None, *, held: bool) -> exp.Column:
        relation, target = self._relation, node.this
        low = 0
        if isinstance(node, exp.CountIf):
            test = qualify_condition(target, relation, where="COUNT_IF")
            condition = test if condition is None else exp.and_(condition, test)
            call = Counted(Operand(only_where(condition, exp.Literal.number(1))))
        elif isinstance(target, exp.Star) and condition is None:
            call, low = Counted(), 1
        elif isinstance(target, exp.Star):
            call = Counted(Operand(only_where(condition, exp.Literal.number(1))))
        elif target is None or node.expressions:
            raise refuse("COUNT takes * or one column")
        else:
            distinct = isinstance(target, exp.Distinct)
            if distinct and len(target.expressions) != 1:
                raise refuse("COUNT(DISTINCT ...) takes one column")
            tree = qualify(target.expressions[0] if distinct else target, relation, where="COUNT")
            refuse_unit(tree, relation, "COUNT in an inner query")
            plain = self._plain(tree, self._describe("", tree, "COUNT"), condition)
            call = Counted(plain, distinct=distinct)
        assert relation.unit is not None
        return self._hold(call, Field(name="", kind="integer"), (low, relation.unit.max_records), held=held)

    def _hold(
        self, call: Counted | Added, found: Field, bounds: tuple[int, int], *, held: bool
    ) -> exp.Column:
        """A whole number as it is, or held to its bounds, which are public."""
        if not held:
            return self._add(call, found)
        found = replace(found, bounds=bounds, counted=True, type=pa.int64())
        return self._add(Held(call, *map(Fraction, bounds)), found)

    def _read_sum(self, node: exp.Expr, condition: exp.Expr | None, *, held: bool) -> exp.Column:
        relation, name = self._relation, node.key.upper()
        if isinstance(node.this, exp.Distinct):
            raise refuse(f"{name}(DISTINCT ...) in an inner query")
        if is_marked(node.this):
            raise refuse(
                f"{name}(... BOUNDED PRIVATELY) in an inner query; declare bounds of the column, or write "
                "BOUNDED PRIVATELY in the outermost select list"
            )
        tree = qualify(node.this, relation, where=name)
        refuse_unit(tree, relation, name)
        low, high = require_bounds(tree, relation, name)
        whole = is_whole(tree, relation)
        if whole:
            low = Fraction(ceil(low))
            high = max(low, Fraction(floor(high)))
        # Steps of a decimal fraction: amounts of money stay what they are.
        grid, largest = 1, max(abs(low), abs(high), Fraction(1))
        while not whole and grid < 10**_MOST_DECIMALS and largest * grid * 10 <= _LARGEST_FIXED:
            grid *= 10
        call = Added(
            only_where(condition, tree), Fraction(low), Fraction(high), grid, isinstance(node, exp.Avg)
        )
        if call.mean:
            return self._add(call, Field(name="", kind="number", bounds=(low, high)))
        assert relation.unit is not None
        most = relation.unit.max_records
        ends = min(low, low * most), max(high, high * most)
        if whole:
            return self._hold(call, Field(name="", kind="integer"), (int(ends[0]), int(ends[1])), held=held)
        return self._add(
            Held(call, *ends) if held else call, Field(name="", kind="number", bounds=ends if held else None)
        )

    def _read_first(self, node: exp.Expr, condition: exp.Expr | None) -> exp.Column:
        name, order = node.key.upper(), node.this
        falling = {bool(each.args.get("desc")) for each in order.expressions}
        if len(falling) > 1:
            raise refuse(
                f"{name} with ORDER BY in two directions; order by columns that all rise or all fall"
            )
        last = isinstance(node, exp.Last) != falling.pop()
        return self._choose(order.this, [each.this for each in order.expressions], condition, name, last=last)

    def _choose(
        self, target: exp.Expr, order: list[exp.Expr], condition: exp.Expr | None, name: str, *, last: bool
    ) -> exp.Column:
        """The value of the first or last record in an order; ties go to the least or largest value itself.

        Without an order that is the least or largest value. Records without a value, or without a place in
        the order, are left out.
        """
        relation = self._relation
        parts = []
        for each in (*order, target):
            tree = qualify(each, relation, where=name)
            refuse_unit(tree, relation, name)
            found = self._describe("", tree, name)
            parts.append(self._plain(tree, found, condition))
        value = parts[-1]
        call, code = Picked(value, tuple(parts[:-1]), last), None
        if isinstance(tree, exp.Column) and found.column is not None:
            code = Picked(Operand(self._code(tree)), tuple(parts), last, code=True)
        return self._add(call, found, code=code)

    def _describe(self, name: str, tree: exp.Expr, where: str) -> Field:
        """What is known of a column of the grouped rows that takes values of `tree`."""
        found = derive_field(name, tree, self._relation)
        kind = found.kind if found.kind != "unknown" else kind_of(tree, self._relation)
        if kind == "unknown":
            raise refuse(f"{where} {tree.sql()[:60]!r}: its type is not known here; cast it")
        return replace(found, kind=kind, is_unit=False)

    def _plain(self, tree: exp.Expr, found: Field, condition: exp.Expr | None = None) -> Operand:
        """A value that compares as it is; a number that is computed may be no number, or zero in two ways."""
        value = only_where(condition, tree.copy())
        stored = isinstance(tree, exp.Column) and found.type is not None
        return Operand(value, plain=found.kind in ("integer", "number") and not stored)

    def _code(self, column: exp.Column) -> exp.Column:
        return exp.column(code_name(column.name), table=column.table, quoted=True)


def _tell_kinds(tree: exp.Expr, written: exp.Expr) -> None:
    """Lets parameters, as they are written, know what was found out about them in a copy."""
    found = {part.meta[PARAMETER]: part.meta for part in tree.walk() if part.meta.get(PARAMETER)}
    for part in written.walk():
        if part.meta.get(PARAMETER) in found:
            part.meta.update(found[part.meta[PARAMETER]])
