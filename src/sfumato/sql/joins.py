"""Joins: rows of two relations that match, such that every row still belongs to one individual."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from sfumato.schema.unit import PrivacyUnit
from sfumato.sql.check import refuse
from sfumato.sql.qualify import qualify
from sfumato.sql.relation import UNIT, Kind, Relation

_COMMON_TYPES = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "date": "TIMESTAMP",
}


def join_relations(left: Relation, right: Relation, join: exp.Join) -> Relation:
    """The relation of rows of `left` and `right` that match, each with its one individual."""
    side, method = (join.side or "").upper(), (join.kind or "").upper()
    if method not in ("", "INNER", "OUTER") or side in ("RIGHT", "FULL") or join.method:
        raise refuse("JOIN and LEFT JOIN are supported, with ON or USING")
    if set(left.fields) & set(right.fields):
        raise refuse("two tables of a join have the same name; give one another with AS")
    both = left.unit is not None and right.unit is not None
    if side == "LEFT" and left.unit is None and right.unit is not None:
        raise refuse("LEFT JOIN from a public to a private table; put the private table first")
    joined = replace(left, fields={**left.fields, **right.fields})
    if both:
        _require_unit_match(join, joined, left, right)
    condition = _join_condition(join, left, right, joined)
    if both:
        text = exp.DataType.build("VARCHAR")
        match = exp.EQ(
            this=exp.TryCast(this=exp.column(UNIT, table=left.unit_alias, quoted=True), to=text.copy()),
            expression=exp.TryCast(this=exp.column(UNIT, table=right.unit_alias, quoted=True), to=text),
        )
        condition = exp.and_(condition, match)
    right_item = right.tree.args["from_"].this
    return Relation(
        tree=left.tree.join(right_item, on=condition, join_type="LEFT" if side == "LEFT" else "INNER"),
        fields=joined.fields,
        unit=_join_units(left.unit, right.unit),
        unit_alias=left.unit_alias or right.unit_alias,
        tables=left.tables + right.tables,
        joined=True,
    )


def _join_condition(join: exp.Join, left: Relation, right: Relation, joined: Relation) -> exp.Expr:
    """Equalities of columns of one kind: a hash join, and no conversion that could fail for a record."""
    using, on = join.args.get("using") or [], join.args.get("on")
    if using:
        pairs = [
            (
                qualify(exp.column(name.name), left, where="USING"),
                qualify(exp.column(name.name), right, where="USING"),
            )
            for name in using
        ]
    elif on is not None:
        condition = qualify(on, joined, where="ON")
        parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
        pairs = [(part.this, part.expression) if isinstance(part, exp.EQ) else (part, part) for part in parts]
    else:
        raise refuse("a join without ON or USING multiplies records without a bound")
    return exp.and_(*(_match(one, other, joined) for one, other in pairs))


def _match(one: exp.Expr, other: exp.Expr, joined: Relation) -> exp.Expr:
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        raise refuse("ON takes equalities of columns (a.x = b.y AND ...); put other conditions into WHERE")
    kinds = [_comparable(joined.find(side)[1].kind) for side in (one, other)]
    if kinds[0] != kinds[1] or kinds[0] == "unknown":
        text = f"{one.sql()} = {other.sql()}"[:80]
        raise refuse(f"a join compares columns of different types: {text}; cast one in an inner query")
    stored = {joined.find(side)[1].kind for side in (one, other)}
    # Both sides are converted, by a conversion that cannot fail, so that none happens on its own.
    common = exp.DataType.build(_COMMON_TYPES["number" if "number" in stored else next(iter(stored))])
    return exp.EQ(
        this=exp.TryCast(this=one.copy(), to=common.copy()),
        expression=exp.TryCast(this=other.copy(), to=common.copy()),
    )


def _comparable(kind: Kind) -> str:
    return "number" if kind in ("integer", "number") else kind


def _require_unit_match(join: exp.Join, joined: Relation, left: Relation, right: Relation) -> None:
    on = join.args.get("on")
    for name in join.args.get("using") or []:
        column = exp.column(name.name)
        if left.find(column)[1].is_unit and right.find(column)[1].is_unit:
            return
    for part in (on.flatten() if isinstance(on, exp.And) else [on]) if on is not None else []:
        if (
            isinstance(part, exp.EQ)
            and isinstance(part.this, exp.Column)
            and isinstance(part.expression, exp.Column)
        ):
            sides = [joined.find(part.this), joined.find(part.expression)]
            if all(found.is_unit for _, found in sides) and {alias for alias, _ in sides} == {
                left.unit_alias,
                right.unit_alias,
            }:
                return
    raise refuse(
        "a join of private tables must match their units (ON a.unit = b.unit): otherwise a row would "
        "belong to two individuals"
    )


def _join_units(left: PrivacyUnit | None, right: PrivacyUnit | None) -> PrivacyUnit | None:
    if left is None or right is None:
        return left or right
    if left.column is None or right.column is None or left.neighbours != right.neighbours:
        raise refuse("joined private tables need a unit column each, and the same neighbours")
    return replace(left, max_records=max(left.max_records, right.max_records))
