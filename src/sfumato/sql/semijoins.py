"""IN (SELECT ...) and EXISTS in WHERE: each becomes a join that multiplies no row, and a condition about it.

Of people's records only the individual's own may decide, so these are compared by the unit, or along a
reference, which leads to the same individual. A list from a public table may be compared with any column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.core.algebra.rows import FOUND, Among, Filter, Individuals, Named, Pair, Project, Sign, Union
from sfumato.core.errors import UnsupportedQuery, refuse
from sfumato.sql.check import list_conditions, looks_up
from sfumato.sql.relation import Field, Relation, relate
from sfumato.sql.settle import MIRRORED, qualify, qualify_condition, settle

if TYPE_CHECKING:
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


def is_reference(one: Field, other: Field) -> bool:
    """Whether equal columns belong to one individual: a reference and its key, or equal references."""
    if one.refers_to is not None and one.refers_to == other.refers_to:
        return True
    return any(
        child.refers_to is not None and child.refers_to == parent.origin
        for child, parent in ((one, other), (other, one))
    )


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
    if type(part) in MIRRORED and not _is_side(part.expression, inner, outer):
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


def _is_side(node: exp.Expr, inner: Relation, outer: Relation) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Column) and _is_known(node, inner, outer)


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
