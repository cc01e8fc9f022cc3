"""Expressions in their place: checked, every column traced to its relation, conditions true or false."""

from __future__ import annotations

from sqlglot import exp

from sfumato.sql.check import check_scalar, refuse
from sfumato.sql.relation import Relation


def qualify(node: exp.Expr, relation: Relation, *, where: str) -> exp.Expr:
    """A checked copy of `node` in which every column says which relation it comes from."""
    check_scalar(node, where=where)
    for part in node.walk():
        for condition in _conditions(part):
            require_condition(condition, relation, where=where)

    def name_table(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        alias, found = relation.find(part)
        return exp.column(found.name, table=alias, quoted=True)

    return node.copy().transform(name_table)


def require_condition(node: exp.Expr, relation: Relation, *, where: str) -> None:
    """Refuses what is not true or false by its form.

    Text or a number in the place of a condition would be converted, and the conversion can fail.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Column) and relation.find(node)[1].kind == "boolean":
        return
    if isinstance(node, exp.Cast) and node.to.this.name == "BOOLEAN":
        return
    if not isinstance(node, (exp.Predicate, exp.And, exp.Or, exp.Not, exp.Boolean, exp.Null, exp.StartsWith)):
        raise refuse(f"{where} takes {node.sql()[:60]!r} for a condition; compare it with something")


def _conditions(part: exp.Expr) -> list[exp.Expr]:
    if isinstance(part, (exp.And, exp.Or)):
        return [part.this, part.expression]
    if isinstance(part, exp.Not):
        return [part.this]
    if isinstance(part, exp.Case) and part.this is None:
        return [branch.this for branch in part.args["ifs"]]
    if isinstance(part, exp.If) and not isinstance(part.parent, exp.Case):
        return [part.this]
    return []
