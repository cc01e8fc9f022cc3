"""Inner queries of each individual's own records: those that aggregate them, and those that look for some.

`SELECT person, COUNT(*) AS n ... GROUP BY person` has one row for an individual, or one for each of its
further keys, and every row is computed from that individual's records alone.

IN (SELECT ...) and EXISTS in WHERE become a join that multiplies no row, and a condition about it. Of
people's records only the individual's own may decide, so these are compared by the unit, or along a
reference, which leads to the same individual. A list from a public table may be compared with any column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from sfumato.core.algebra.rows import (
    FOUND,
    Added,
    Among,
    Counted,
    Filter,
    Gathered,
    Held,
    Individuals,
    Named,
    Operand,
    Pair,
    Picked,
    Project,
    Rows,
    Sign,
    Tested,
    Union,
)
from sfumato.core.errors import UnsupportedQuery, refuse
from sfumato.core.facts.table import code_name
from sfumato.sql.aggregates import only_where, refuse_unit, require_bounds, spell_position
from sfumato.sql.check import list_conditions, looks_up
from sfumato.sql.dates import derive_field
from sfumato.sql.magnitudes import is_marked
from sfumato.sql.normalize import PARAMETER
from sfumato.sql.relation import Field, Relation, is_whole, relate
from sfumato.sql.settle import MIRRORED, kind_of, qualify, qualify_condition, settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfumato.core.algebra.expressions import Kind


COMMON_TYPES: dict[Kind, str] = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "date": "TIMESTAMP",
}
"""What values of each kind are converted to before they are compared, by a conversion that cannot fail."""
_SIGNS: dict[type[exp.Expr], Sign] = {exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_LOOKED_FOR = "looked for"
Resolve = Callable[[exp.Select], Relation]

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
    field = relation.field(tree) if isinstance(tree, exp.Column) else None
    return field is not None and (field.is_unit or field.names_unit)


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


def is_reference(one: Field, other: Field) -> bool:
    """Whether equal columns belong to one individual: a reference and its key, or equal references."""
    alike = one.refers_to is not None and one.refers_to == other.refers_to
    return alike or leads_to(one, other) or leads_to(other, one)


def leads_to(child: Field, parent: Field) -> bool:
    """Whether one column holds the keys that another is."""
    return child.refers_to is not None and child.refers_to == parent.origin


def match_columns(one: exp.Expr, other: exp.Expr, relation: Relation, *, where: str) -> Pair:
    """Two columns of one kind that must be equal."""
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        raise refuse(
            f"{where} takes equalities of columns (a.x = b.y AND ...); put other conditions into WHERE"
        )
    kinds = {relation.field(one).kind, relation.field(other).kind}
    kinds = {"number"} if kinds == {"integer", "number"} else kinds
    if len(kinds) > 1 or "unknown" in kinds:
        text = f"{one.sql()} = {other.sql()}"[:80]
        raise refuse(f"a join compares columns of different types: {text}; cast one in an inner query")
    return Pair(one, other, COMMON_TYPES[kinds.pop()])


def keep_where(
    condition: exp.Expr, relation: Relation, *, resolve: Resolve, resolve_from: Resolve
) -> tuple[Relation, exp.Expr]:
    """The rows of `relation` for which the condition of WHERE holds, and the condition as it was read.

    `resolve` gives the relation of an inner query, `resolve_from` that of its FROM alone.

    Privacy: a row is kept or not by the rows of its own individual and public tables; docs/proofs/sql.md,
    "Semi-joins".
    """
    tests = _find_tests(condition)
    if not tests:
        checked = qualify_condition(condition, relation, where="WHERE")
        return _keep(relation, checked), checked
    for part in list_conditions(condition):
        if not _find_tests(part):
            settle(part, relation)  # in place: the text of a plan shows constants as they are meant
    holder = exp.Paren(this=condition.copy())
    marked = relation
    for place, (written, node) in enumerate(zip(tests, _find_tests(holder), strict=True)):
        if isinstance(written, exp.In):
            side = _read_in(written, marked, resolve)
        else:
            side = _read_exists(written, marked, resolve_from)
        marked = _mark(marked, side, f"test {place} of sfumato")
        _put_test(node, f"test {place} of sfumato")
    checked = qualify_condition(holder.this, marked, where="WHERE")
    return replace(_keep(marked, checked), fields=relation.fields), checked


def _keep(relation: Relation, condition: exp.Expr) -> Relation:
    return replace(relation, rows=Filter(relation.beside, condition))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The rows that are looked for, and pairs of a column of theirs and one of the outer rows.

    Without pairs, rows of the same individual are looked for. Of the columns of `apart` the outer one differs
    by the `sign`.
    """

    relation: Relation
    pairs: tuple[tuple[exp.Column, exp.Column], ...] = ()
    apart: tuple[exp.Column, exp.Column] | None = None
    sign: Sign = "<>"


def _find_tests(condition: exp.Expr) -> list[exp.Expr]:
    """The outermost IN (SELECT ...) and EXISTS of a condition."""
    if looks_up(condition):
        return [condition]
    if isinstance(condition, (exp.Select, exp.Subquery)):
        return []  # refused where it stands
    return [found for child in condition.iter_expressions() for found in _find_tests(child)]


def _read_in(node: exp.In, relation: Relation, resolve: Resolve) -> _Side:
    query = node.args["query"].unnest()
    if not isinstance(query, exp.Select):
        raise refuse("IN takes a list of constants or one SELECT")
    column = qualify(node.this.unnest().copy(), relation, where="IN")
    if not isinstance(column, exp.Column):
        raise refuse("IN (SELECT ...) looks for a column; compute it in an inner query")
    inner = resolve(query)
    ((_, fields),) = inner.fields.items()
    if len(fields) != 1:
        raise refuse("IN (SELECT ...) selects one column")
    (found,) = fields.values()
    if inner.unit is None:
        return _Side(relation=inner, pairs=((exp.column(found.name, quoted=True), column),))
    outer = relation.field(column)
    if relation.unit is not None and is_reference(found, outer):
        return _Side(relation=inner, pairs=((exp.column(found.name, quoted=True), column),))
    if not (found.is_unit and relation.unit is not None and outer.is_unit):
        raise refuse(
            "IN (SELECT ...) of people's records compares the unit with the unit (person IN (SELECT person "
            "FROM ...)), or a reference with its key: otherwise other individuals' records would decide"
        )
    return _Side(relation=inner)


def _read_exists(node: exp.Expr, relation: Relation, resolve_from: Resolve) -> _Side:
    query = node.this.unnest()
    if not isinstance(query, exp.Select):
        raise refuse("EXISTS takes one SELECT")
    if query.args.get("from_") is None:
        raise refuse("EXISTS (SELECT ...) without FROM looks at nothing")
    for name in ("group", "having", "distinct", "limit", "offset", "order", "with_"):
        if query.args.get(name):
            raise refuse(f"{name.upper().rstrip('_')} in EXISTS (SELECT ...); put it into an inner query")
    inner = resolve_from(query)
    where = query.args.get("where")
    own: list[exp.Expr] = []
    pairs: list[tuple[exp.Column, exp.Column]] = []
    units, apart, sign = False, None, _SIGNS[exp.NEQ]
    for part in list_conditions(where.this) if where is not None else []:
        if all(_is_known(column, inner, relation) for column in part.find_all(exp.Column)):
            own.append(qualify_condition(part, inner, where="EXISTS"))
            continue
        pair, found = _read_pair(part, inner, relation)
        if found is not None:
            if apart is not None:
                raise refuse("EXISTS with two columns that differ from the outer rows; one is compared")
            apart, sign = pair, found
        elif relation.field(pair[1]).is_unit and inner.field(pair[0]).is_unit:
            units = True
        else:
            units |= is_reference(inner.field(pair[0]), relation.field(pair[1]))
            pairs.append(pair)
    if inner.unit is not None and not units:
        raise refuse(
            "EXISTS of people's records needs the unit of both (WHERE o.person = v.person), or a reference "
            "with its key, among its equalities: otherwise other individuals' records would decide"
        )
    if inner.unit is None and not pairs:
        raise refuse("EXISTS without an equality with a column of the outer rows")
    if own:
        inner = _keep(inner, exp.and_(*own))
    return _Side(relation=inner, pairs=tuple(pairs), apart=apart, sign=sign)


def _is_known(column: exp.Column, relation: Relation, outer: Relation) -> bool:
    """Whether the inner rows have a column; the individual that they refer to may be meant of the outer."""
    try:
        field = relation.field(column)
    except UnsupportedQuery:
        return False
    name = column.name.lower()
    named = [fields[name] for fields in outer.fields.values() if not column.table and name in fields]
    return not field.is_borrowed or not any(not each.is_borrowed for each in named)


def _read_pair(
    part: exp.Expr, inner: Relation, outer: Relation
) -> tuple[tuple[exp.Column, exp.Column], Sign | None]:
    """A column of the inner rows and one of the outer rows that must be equal, or differ by a sign."""
    side = part.args.get("expression")
    side = side.unnest() if isinstance(side, exp.Expr) else side
    if type(part) in MIRRORED and not (isinstance(side, exp.Column) and _is_known(side, inner, outer)):
        part = MIRRORED[type(part)](this=part.expression, expression=part.this)
    sides = [part.expression.unnest(), part.this.unnest()] if type(part) in MIRRORED else []
    if len(sides) != 2 or not all(isinstance(side, exp.Column) for side in sides):
        raise refuse(
            "EXISTS is tied to the outer rows by equalities of columns (o.person = v.person), and by one "
            "column that differs (o.clinic <> v.clinic)"
        )
    one, other = (
        qualify(side.copy(), each, where="EXISTS") for side, each in zip(sides, (inner, outer), strict=True)
    )
    assert isinstance(one, exp.Column)
    assert isinstance(other, exp.Column)
    return (one, other), _SIGNS.get(type(part))


def _mark(relation: Relation, side: _Side, alias: str) -> Relation:
    """`relation` with whether something was found beside each of its rows: nothing is multiplied."""
    inner, rows = side.relation, side.relation.rows
    if isinstance(rows, Project | Individuals | Union):
        rows = Named(rows, _LOOKED_FOR)
    pairs = []
    for key, column in (*side.pairs, *([side.apart] if side.apart is not None else [])):
        listed = exp.column(key.name, table=_LOOKED_FOR, quoted=True) if rows is not inner.rows else key
        both = replace(
            relation, fields={**relation.fields, listed.table: {key.name.lower(): inner.field(key)}}
        )
        pair = match_columns(column, listed, both, where="IN")
        pairs.append(pair)
    fields = {**relation.fields, alias: {FOUND: Field(name=FOUND, kind="boolean")}}
    apart = pairs.pop() if side.apart is not None else None
    marked = Among(relation.beside, rows, tuple(pairs), alias, apart, side.sign)
    return relate(marked, fields, relation.described, inner.described)


def _put_test(node: exp.Expr, alias: str) -> None:
    """Puts a condition about the joined rows in the place of IN or EXISTS."""
    found = exp.column(FOUND, table=alias, quoted=True)
    test: exp.Expr = exp.Not(this=exp.Is(this=found.copy(), expression=exp.Null()))
    outer = node.parent
    while isinstance(outer, exp.Paren):
        outer = outer.parent
    if isinstance(node, exp.In) and isinstance(outer, exp.Not):
        # What is missing is neither in a list nor outside of it.
        there = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
        outside = exp.and_(exp.Is(this=found, expression=exp.Null()), there)
        outer.replace(exp.paren(outside))
        return
    node.replace(exp.paren(test))
