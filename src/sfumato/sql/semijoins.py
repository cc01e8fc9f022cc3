"""IN (SELECT ...) and EXISTS in WHERE: each becomes a join that multiplies no row, and a condition about it.

Of people's records only the individual's own may decide, so these are compared by the unit. A list from a
public table may be compared with any column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from sfumato.core.algebra.expressions import Kind
from sfumato.core.errors import UnsupportedQuery, refuse
from sfumato.core.facts.table import UNIT
from sfumato.sql.check import list_conditions, looks_up
from sfumato.sql.relation import Field, Relation, alias_table, qualify, qualify_condition
from sfumato.sql.settle import settle

COMMON_TYPES: dict[Kind, str] = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "date": "TIMESTAMP",
}
"""What values of each kind are converted to before they are compared, by a conversion that cannot fail."""

Resolve = Callable[[exp.Select], Relation]


def equal(one: exp.Expr, other: exp.Expr, kind: str) -> exp.Expr:
    """Both sides converted, by a conversion that cannot fail, so that none happens on its own."""
    left, right = (exp.TryCast(this=each.copy(), to=exp.DataType.build(kind)) for each in (one, other))
    return exp.EQ(this=left, expression=right)


def match_columns(one: exp.Expr, other: exp.Expr, relation: Relation, *, where: str) -> exp.Expr:
    """The equality of two columns of one kind: a hash join, and no conversion that could fail."""
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        raise refuse(
            f"{where} takes equalities of columns (a.x = b.y AND ...); put other conditions into WHERE"
        )
    kinds = {relation.field(one).kind, relation.field(other).kind}
    kinds = {"number"} if kinds == {"integer", "number"} else kinds
    if len(kinds) > 1 or "unknown" in kinds:
        text = f"{one.sql()} = {other.sql()}"[:80]
        raise refuse(f"a join compares columns of different types: {text}; cast one in an inner query")
    return equal(one, other, COMMON_TYPES[kinds.pop()])


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
        return replace(relation, tree=relation.tree.where(checked, append=True)), checked
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
        _put_test(node, side, f"test {place} of sfumato")
    checked = qualify_condition(holder.this, marked, where="WHERE")
    tree = marked.tree.where(checked, append=True)
    return replace(marked, tree=tree, fields=relation.fields), checked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The rows that are looked for, and pairs of a column of theirs and one of the outer rows.

    Without pairs, rows of the same individual are looked for.
    """

    relation: Relation
    pairs: tuple[tuple[exp.Column, exp.Column], ...] = ()


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
    if not (found.is_unit and relation.unit is not None and relation.field(column).is_unit):
        raise refuse(
            "IN (SELECT ...) of people's records compares the unit with the unit (person IN (SELECT person "
            "FROM ...)): otherwise other individuals' records would decide"
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
    units = False
    for part in list_conditions(where.this) if where is not None else []:
        if all(_is_known(column, inner) for column in part.find_all(exp.Column)):
            own.append(qualify_condition(part, inner, where="EXISTS"))
            continue
        pair = _read_pair(part, inner, relation)
        if relation.field(pair[1]).is_unit and inner.field(pair[0]).is_unit:
            units = True
        elif inner.unit is not None:
            raise refuse("EXISTS of people's records is tied to the outer rows by the unit alone")
        else:
            pairs.append(pair)
    if inner.unit is not None and not units:
        raise refuse(
            "EXISTS of people's records needs the unit of both (WHERE o.person = v.person): otherwise other "
            "individuals' records would decide"
        )
    if inner.unit is None and not pairs:
        raise refuse("EXISTS without an equality with a column of the outer rows")
    if own:
        inner = replace(inner, tree=inner.tree.where(exp.and_(*own), append=True))
    return _Side(relation=inner, pairs=tuple(pairs))


def _is_known(column: exp.Column, relation: Relation) -> bool:
    try:
        relation.find(column)
    except UnsupportedQuery:
        return False
    return True


def _read_pair(part: exp.Expr, inner: Relation, outer: Relation) -> tuple[exp.Column, exp.Column]:
    """A column of the inner rows and one of the outer rows that must be equal."""
    sides = [part.this.unnest(), part.expression.unnest()] if isinstance(part, exp.EQ) else []
    sides.sort(key=lambda side: not (isinstance(side, exp.Column) and _is_known(side, inner)))
    if len(sides) != 2 or not all(isinstance(side, exp.Column) for side in sides):
        raise refuse("EXISTS is tied to the outer rows by equalities of columns (o.person = v.person)")
    one, other = (
        qualify(side.copy(), each, where="EXISTS") for side, each in zip(sides, (inner, outer), strict=True)
    )
    assert isinstance(one, exp.Column)
    assert isinstance(other, exp.Column)
    return one, other


def _mark(relation: Relation, side: _Side, alias: str) -> Relation:
    """`relation` with what was found beside each of its rows: nothing is multiplied, for keys are unique."""
    inner = side.relation
    if inner.unit is None:
        selected: list[exp.Expr] = []
        fields: dict[str, Field] = {}
        matches: list[exp.Expr] = []
        for place, (key, column) in enumerate(side.pairs):
            name = f"value {place}"
            found = inner.field(key)
            source = exp.column(key.name, table="looked for", quoted=True) if inner.tree.expressions else key
            fields[name] = Field(name=name, kind=found.kind)
            marked = replace(relation, fields={**relation.fields, alias: fields})
            value = exp.column(name, table=alias, quoted=True)
            matches.append(match_columns(column, value, marked, where="IN"))
            kind = matches[-1].this.to.sql(dialect="duckdb")
            selected.append(
                exp.alias_(exp.TryCast(this=source, to=exp.DataType.build(kind)), name, quoted=True)
            )
        rows = _offer(inner).select(*selected, append=False).distinct()
        on: exp.Expr = exp.and_(*matches)
    else:
        unit = exp.column(UNIT, table=inner.unit_alias, quoted=True)
        rows = _offer(inner)
        if rows is not inner.tree:
            unit = exp.column(UNIT, table="looked for", quoted=True)
        rows = rows.select(exp.alias_(unit, UNIT, quoted=True), append=False).group_by(exp.Literal.number(1))
        own, theirs = (exp.column(UNIT, table=each, quoted=True) for each in (relation.unit_alias, alias))
        on = equal(own, theirs, "VARCHAR")
        fields = {UNIT: Field(name=UNIT, kind="text")}
        unit_of, theirs_of = relation.unit, inner.unit
        if unit_of is None or unit_of.column is None or theirs_of is None or theirs_of.column is None:
            raise refuse(
                'IN (SELECT ...) and EXISTS of people\'s records need unit columns, not unit = "row"'
            )
        if unit_of.neighbours != theirs_of.neighbours:
            raise refuse("private tables that are compared need the same neighbours")
    joined = exp.Subquery(this=rows, alias=alias_table(alias))
    return replace(
        relation,
        tree=relation.tree.join(joined, on=on, join_type="LEFT"),
        fields={**relation.fields, alias: fields},
        tables=relation.tables + inner.tables,
        private=tuple(dict.fromkeys(relation.private + inner.private)),
        joined=relation.joined or inner.unit is not None,
        multiplied=relation.multiplied or inner.multiplied,
    )


def _offer(relation: Relation) -> exp.Select:
    """A query whose select list may name the columns of `relation`."""
    if not relation.tree.expressions:
        return relation.tree
    inner = exp.Subquery(this=relation.tree.copy(), alias=alias_table("looked for"))
    return exp.Select().from_(inner)


def _put_test(node: exp.Expr, side: _Side, alias: str) -> None:
    """Puts a condition about the joined rows in the place of IN or EXISTS."""
    name = UNIT if side.relation.unit is not None else "value 0"
    found = exp.column(name, table=alias, quoted=True)
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
