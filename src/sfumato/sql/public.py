"""Plain SELECT: exact answers about public tables, from a tree that was checked all the same."""

from __future__ import annotations

from sqlglot import exp

from sfumato.sql.check import check_scalar, find_aggregates, is_top, refuse, refuse_deep
from sfumato.sql.keys import read_whole
from sfumato.sql.relation import Catalog
from sfumato.sql.scope import resolve_sources


@refuse_deep
def plan_public(query: exp.Select, catalog: Catalog) -> tuple[exp.Select, tuple[str, ...]]:
    """The checked tree of a query of public tables, and the tables it reads."""
    relation = resolve_sources(query, catalog)
    if relation.unit is not None:
        raise refuse(
            "a plain SELECT reads public tables only, and this one reads people's records; write DP-SELECT "
            "epsilon in place of SELECT"
        )
    for name in ("limit", "offset"):
        read_whole(query.args.get(name), name.upper())
    tree = relation.tree.select(append=False)
    for item in query.expressions:
        tree = tree.select(_check(item))
    for name in ("group", "having", "order", "limit", "offset", "distinct"):
        clause = query.args.get(name)
        if clause is not None:
            for found in clause.find_all(exp.Subquery, exp.Select, exp.Window):
                raise refuse(f"{found.key.upper()} in {name.upper()}")
            for part in clause.iter_expressions():
                _check_parts(part, name)
            tree.set(name, clause.copy())
    return tree, tuple(dict.fromkeys(relation.tables))


def _check(item: exp.Expr) -> exp.Expr:
    if isinstance(item, exp.Star):
        if any(item.args.values()):
            raise refuse("a star with EXCEPT, REPLACE or RENAME; name the columns")
        return item.copy()
    _check_parts(item.unalias(), "the select list")
    return item.copy()


def _check_parts(node: exp.Expr, where: str) -> None:
    """Refuses whatever is neither an aggregate nor allowed in one value per row."""
    if isinstance(node, (exp.Ordered, exp.Distinct)):
        for part in node.iter_expressions():
            _check_parts(part, where)
        return
    for aggregate in find_aggregates(node):
        if any(is_top(part) for part in aggregate.walk()):
            raise refuse(f"{where} uses TOP, which is for private tables; use GROUP BY, ORDER BY and LIMIT")
        for inner in aggregate.iter_expressions():
            if not isinstance(inner, exp.Star):
                _check_parts(inner, where)
    bare = exp.Paren(this=node.copy())
    for found in list(find_aggregates(bare)):
        found.replace(exp.Literal.number(1))
    check_scalar(bare, where=where)
