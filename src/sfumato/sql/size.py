"""How large a statement is with every inner query written out: what planning it costs, known beforehand.

A name of an inner query stands for its whole expression, a name of WITH for its whole query. So a few
hundred characters can stand for millions of parts, and whoever plans them works that long, free of charge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.sql.check import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_PARTS = 5_000
_MOST_JOINS = 8
_DEEPEST = 64  # Python's own limit leaves room for about twice as many


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """The parts and joins of a query written out, and the parts of each column that it gives."""

    parts: int
    joins: int
    columns: Mapping[str, int]


def refuse_large(query: exp.Select) -> None:
    """Refuses a statement that is nested too deep or would be too large to plan."""
    _refuse_deep(query)
    size = _measure(query, {})
    if size.joins > _MOST_JOINS:
        raise refuse(
            f"more than {_MOST_JOINS} joins in one statement, those of inner queries counted each time"
        )
    if max(size.parts, sum(1 for _ in query.walk())) > _MOST_PARTS:
        raise refuse(f"a statement of more than {_MOST_PARTS:,} parts with its inner queries written out")


def _refuse_deep(query: exp.Select) -> None:
    depths = {id(query): 0}
    for node in query.walk():
        for child in node.iter_expressions():
            # A long list of conditions is a chain, not a nest.
            depths[id(child)] = depths[id(node)] + (not isinstance(node, exp.Connector))
    if max(depths.values()) > _DEEPEST:
        raise refuse(f"a statement that is nested more than {_DEEPEST} levels deep")


def _measure(query: exp.Select, known: Mapping[str, _Size]) -> _Size:
    """The size of `query`, in which the names `known` stand for queries of their own."""
    clause = query.args.get("with_")
    if clause is not None:
        known = {}
        for cte in clause.expressions:
            if isinstance(cte.this, exp.Select):
                known = {**known, cte.alias.lower(): _measure(cte.this, known)}
    joins = query.args.get("joins") or []
    items = [each.this for each in [query.args.get("from_"), *joins] if each is not None]
    sources = [_measure_item(item, known) for item in items]
    columns: dict[str, int] = {}
    for source in sources:
        for name, parts in source.columns.items():
            columns[name] = max(parts, columns.get(name, 1))
    outputs = [(item.alias_or_name.lower(), _weigh(item, columns)) for item in query.expressions]
    given = columns if any(name == "*" for name, _ in outputs) else {}
    given = {**given, **dict(outputs)}
    parts = sum(source.parts for source in sources) + sum(weight for _, weight in outputs)
    parts += sum(_weigh(join.args[key], columns) for join in joins for key in ("on",) if join.args.get(key))
    places = {str(place): weight for place, (_, weight) in enumerate(outputs, start=1)}
    for name in ("where", "group", "having", "order"):
        if query.args.get(name) is not None:
            # What follows the select list may name its items, by alias or by place.
            own = columns if name == "where" else {**columns, **given, **places}
            parts += _weigh(query.args[name], own)
    return _Size(parts=parts, joins=len(joins) + sum(source.joins for source in sources), columns=given)


def _measure_item(item: exp.Expr, known: Mapping[str, _Size]) -> _Size:
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
        return _measure(item.this, known)
    if isinstance(item, exp.Table) and item.name.lower() in known:
        return known[item.name.lower()]
    return _Size(parts=1, joins=0, columns={})


def _weigh(node: exp.Expr, columns: Mapping[str, int]) -> int:
    """The parts of an expression, each name counted with all that it stands for."""
    if isinstance(node, exp.Column) or (isinstance(node, exp.Literal) and node.is_int):
        return columns.get(node.name.lower(), 1)
    parts = 1 + sum(_weigh(child, columns) for child in node.iter_expressions())
    # An engine looks at a text twice before it takes it for a moment.
    return 2 * parts if isinstance(node, exp.Cast) and node.to.this.name.startswith("TIMESTAMP") else parts
