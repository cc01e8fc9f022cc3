"""HISTOGRAM: a table of bins, which is a statement that groups by public intervals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.core.exact import format_short
from sfumato.sql.aggregates import name_item, read_key
from sfumato.sql.check import find_aggregates, is_histogram, refuse
from sfumato.sql.normalize import MOST_BINS, write_double
from sfumato.sql.relation import Relation, bounds_of, qualify

if TYPE_CHECKING:
    from sfumato.sql.statement import Statement

BINS = 10
"""The bins of a column that has bounds and no labels, if a histogram does not say how many."""

_USE = "HISTOGRAM takes a column and a number of bins: HISTOGRAM(fee), HISTOGRAM(fee, 20)"


def expand_histogram(statement: Statement, relation: Relation) -> Statement:
    """A statement with HISTOGRAM(x, n) in its select list as one that groups by n intervals of x.

    In place of it are two columns: the interval, and the number of records in it.
    """
    query = statement.query
    places = [place for place, item in enumerate(query.expressions) if _find(item) is not None]
    if not places:
        return statement
    others = [item for place, item in enumerate(query.expressions) if place not in places]
    if len(places) > 1 or any(True for item in others for _ in find_aggregates(item)):
        raise refuse("HISTOGRAM beside another aggregate; its rows are intervals, so ask in two statements")
    (place,) = places
    item, found = query.expressions[place], _find(query.expressions[place])
    if found is None or item.unalias() is not found:
        raise refuse("HISTOGRAM stands by itself in the select list")
    inner, condition = (found.this, found.expression.this) if isinstance(found, exp.Filter) else (found, None)
    key = _interval_of(inner, relation)
    name = name_item(item, statement.texts[place], plain=statement.plain)
    counted: exp.Expr = exp.Count(this=exp.Star(), big_int=True)
    if condition is not None:
        counted = exp.Filter(this=counted, expression=exp.Where(this=condition.copy()))
    query = query.copy()
    columns = [exp.alias_(key, name, quoted=True), exp.alias_(counted, f"{name}_count", quoted=True)]
    query.set("expressions", [*query.expressions[:place], *columns, *query.expressions[place + 1 :]])
    group = query.args.get("group") or exp.Group(expressions=[])
    group.append("expressions", key.copy())
    query.set("group", group)
    texts = (*statement.texts[:place], name, f"{name}_count", *statement.texts[place + 1 :])
    return replace(statement, query=query, texts=texts)


def _find(item: exp.Expr) -> exp.Expr | None:
    """The histogram in an item of the select list."""
    for found in find_aggregates(item.unalias()):
        if is_histogram(found.this if isinstance(found, exp.Filter) else found):
            return found
    return None


def _interval_of(node: exp.Expr, relation: Relation) -> exp.Expr:
    """The key of a histogram: the column itself if it has public labels, else the interval as text."""
    parts = list(node.expressions)
    if not 1 <= len(parts) <= 2 or isinstance(parts[0], (exp.Star, exp.Distinct)):
        raise refuse(_USE)
    target: exp.Expr = parts[0]
    count = parts[1] if len(parts) == 2 else None
    if count is not None and not (isinstance(count, exp.Literal) and count.is_int and len(count.this) < 9):
        raise refuse(_USE)
    tree = qualify(target, relation, where="HISTOGRAM")
    if relation.uses_unit(tree):
        raise refuse("HISTOGRAM of the unit, or of what is computed with it, would single out individuals")
    if count is None and read_key(target.copy(), relation, where="HISTOGRAM").labels is not None:
        return target.unnest().copy()
    bounds = bounds_of(tree, relation)
    if bounds is None or bounds[0] >= bounds[1]:
        raise refuse(
            f"HISTOGRAM divides public bounds into bins, and {target.sql()[:60]!r} has none; declare bounds "
            "or values in the project file, or GROUP BY WIDTH_BUCKET(column, low, high, bins)"
        )
    bins = BINS if count is None else int(count.this)
    if not 1 <= bins <= MOST_BINS:
        raise refuse(f"HISTOGRAM takes 1 to {MOST_BINS} bins")
    return _label_intervals(target, Fraction(bounds[0]), Fraction(bounds[1]), bins)


def _label_intervals(node: exp.Expr, low: Fraction, high: Fraction, bins: int) -> exp.Expr:
    """The interval of a number as text; what is beyond the bounds is in the outermost, NULL in none."""
    edges = [low + (high - low) * step / bins for step in range(bins + 1)]
    shown = [format_short(edge) for edge in edges]
    case = exp.Case()
    for place in range(bins - 1):
        label = exp.Literal.string(f"[{shown[place]}, {shown[place + 1]})")
        case = case.when(exp.LT(this=node.copy(), expression=write_double(edges[place + 1])), label)
    label = exp.Literal.string(f"[{shown[-2]}, {shown[-1]}]")
    return case.when(exp.GTE(this=node.copy(), expression=write_double(edges[-2])), label)
