"""Queries around an aggregate: made one with it where they only choose, compute, filter and order its rows.

`SELECT * FROM (SELECT clinic, COUNT(*) AS n FROM visits GROUP BY clinic) AS q WHERE n > 9 ORDER BY n LIMIT 5`
asks for one noisy answer and looks at that alone. The select list of the outermost query is written in terms
of the innermost, and what each query does to the rows becomes a stage of the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.core.errors import refuse
from sfumato.sql.aggregates import bare_name, spell_position
from sfumato.sql.check import find_aggregates
from sfumato.sql.evaluate import STAGE, mark_stage
from sfumato.sql.rollups import has_sets, list_leaves
from sfumato.sql.statement import Around

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.sql.statement import Statement


def flatten(statement: Statement, units: Mapping[str, set[str]]) -> Statement:
    """A statement as one query that aggregates, if it is one around another that does; else as it is.

    A query that groups by the unit gives rows of individuals, and what stands around it asks about these:
    it stays as it is. `units` are the unit columns of private tables, all names in lower case.
    """
    inner = _find_inner(statement.query, units)
    if inner is None:
        return _move_qualify(statement)
    named = tuple(_name(item) for item in inner.expressions)
    return _merge(statement, flatten(replace(statement, query=inner, texts=named), units))


def _move_qualify(statement: Statement) -> Statement:
    """A statement with QUALIFY, and what comes after it, as a query around the rest."""
    query = statement.query
    if query.args.get("qualify") is None or not aggregates(query):
        return statement
    query = query.copy()
    own = {item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)}
    kept, order = _expand(query.args["qualify"].this, own), query.args.get("order")
    mark_stage(kept, 0)
    around = Around(
        having=kept,
        order=tuple(order.expressions) if order is not None else (),
        limit=query.args.get("limit"),
        offset=query.args.get("offset"),
    )
    for name in ("qualify", "order", "limit", "offset"):
        query.set(name, None)
    return replace(statement, query=query, around=(around,))


def aggregates(query: exp.Select, *, having: bool = True) -> bool:
    """Whether a query gives one row for several records; without `having`, HAVING does not say so."""
    if query.args.get("group") is not None or (having and query.args.get("having") is not None):
        return True
    return any(True for item in query.expressions for _ in find_aggregates(item))


def picks_rows(query: exp.Select, asked: exp.Select) -> bool:
    """Whether a query picks rows of an inner one by what is computed there of all records of a group."""
    noisy = {item.alias_or_name.lower() for item in asked.expressions if item.find(exp.AggFunc)}
    clauses = ("where", "having", "qualify", *(("order",) if query.args.get("limit") else ()))
    named = (query.args[each].find_all(exp.Column) for each in clauses if query.args.get(each))
    return any(column.name.lower() in noisy for columns in named for column in columns)


def groups_individuals(query: exp.Select, units: Mapping[str, set[str]]) -> bool:
    """Whether a key of GROUP BY is a unit, as far as names tell."""
    group = query.args.get("group")
    if group is None:
        return False
    own = {item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)}
    listed = query.expressions if group.args.get("all") else group.expressions
    keys = [spell_position(each.unalias(), query, where="GROUP BY") for each in listed]
    keys = [own.get(_bare(each), each) for each in keys]
    known = _find_units(query, units)
    return any(isinstance(key, exp.Column) and _is_among(key, known) for key in keys)


def _is_among(column: exp.Column, known: Mapping[str, set[str]]) -> bool:
    sides = [names for alias, names in known.items() if column.table.lower() in ("", alias)]
    return any(column.name.lower() in names for names in sides)


def _find_units(query: exp.Select, known: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The columns of FROM and JOIN that are units, by the name that each table goes by.

    `known` are those of tables, and of queries of WITH around it.
    """
    clause, named = query.args.get("with_"), dict(known)
    for cte in clause.expressions if clause is not None else ():
        named[cte.alias.lower()] = _list_units(cte.this, named)
    items = [each.this for each in (query.args.get("from_"), *(query.args.get("joins") or [])) if each]
    found: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, exp.Subquery):
            found[item.alias.lower()] = _list_units(item.this, named)
        elif isinstance(item, exp.Table):
            found[item.alias_or_name.lower()] = named.get(item.name.lower(), set())
    return found


def _list_units(query: exp.Expr, named: Mapping[str, set[str]]) -> set[str]:
    """The names under which an inner query offers the unit; `named` are those of tables and queries."""
    while isinstance(query, (exp.Subquery, exp.Union)):
        query = query.this  # the first query of a union names its columns
    if not isinstance(query, exp.Select):
        return set()
    known = _find_units(query, named)
    offered: set[str] = set()
    for item in query.expressions:
        column = item.unalias()
        if item.find(exp.Star) is not None:
            offered |= {name for names in known.values() for name in names}
        elif isinstance(column, exp.Column) and _is_among(column, known):
            offered.add(item.alias_or_name.lower())
    return offered


def _find_inner(query: exp.Select, units: Mapping[str, set[str]]) -> exp.Select | None:
    """The query in FROM, if it is the only one there and aggregates or stands around one that does."""
    from_ = query.args.get("from_")
    if from_ is None or query.args.get("joins"):
        return None
    item, clause = from_.this, query.args.get("with_")
    before: list[exp.Expr] = list(clause.expressions) if clause is not None else []
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
        inner = item.this
    elif isinstance(item, exp.Table) and clause is not None and not clause.args.get("recursive"):
        names = [cte.alias.lower() for cte in before]
        if names.count(item.name.lower()) != 1 or item.args.get("db"):
            return None
        place = names.index(item.name.lower())
        cte, before = before[place], before[:place]
        if not isinstance(cte.this, exp.Select) or cte.args["alias"].columns:
            return None
        inner = cte.this
    else:
        return None
    if before and inner.args.get("with_") is None:
        inner = inner.copy()
        inner.set("with_", exp.With(expressions=[each.copy() for each in before]))
    if groups_individuals(inner, units):
        return None
    return inner if aggregates(inner) or _find_inner(inner, units) is not None else None


def _merge(statement: Statement, flat: Statement) -> Statement:
    query, texts = statement.query, statement.texts
    if query.args.get("having") is not None and not aggregates(query, having=False):
        raise refuse("HAVING without an aggregate; use WHERE")
    stage = 1 + len(flat.around)
    inner = _spell_out(flat.query) if not flat.around else flat.query
    names = {
        _name(item).lower(): item.unalias() for item in inner.expressions if not isinstance(item, exp.Star)
    }
    alias = (query.args["from_"].this.alias_or_name or "").lower()
    again = aggregates(query)
    if again:
        query = _add_up(query)
    items: list[exp.Expr] = []
    kept: list[str] = []
    for item, text in zip(query.expressions, texts, strict=True):
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            items += [each.copy() for each in inner.expressions]
            kept += flat.texts
            continue
        node = _substitute(item.unalias(), names, alias, stage)
        shown = item.alias or (bare_name(text) if isinstance(item, exp.Column) else text)
        items.append(exp.alias_(node, shown, quoted=True))
        kept.append(text)
    if again and not any(True for item in items for _ in find_aggregates(item)):
        raise refuse(
            "an aggregate in an inner query under another one, or under GROUP BY, that does not use it; "
            "leave it out"
        )
    if query.args.get("distinct") and not _covers_keys(items, inner):
        raise refuse("SELECT DISTINCT of a part of an answer; leave it out")
    own = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}
    first, around = _stages(query, items, {**names, **own}, names, alias, stage)
    merged = inner.copy()
    merged.set("expressions", items)
    stages = flat.around
    looks_around = any(
        window.meta.get(STAGE) == stage
        for tree in (*items, *around.order)
        for window in tree.find_all(exp.Window)
    )
    plain = not (around.having or around.order or looks_around) and around.offset is None
    if again:
        stages = (*stages, first, around)
    elif plain and not stages and inner.args.get("limit") is None and inner.args.get("offset") is None:
        merged.set("limit", around.limit)
    elif around != Around() or looks_around:
        stages = (*stages, around)
    return replace(statement, query=merged, texts=tuple(kept), around=stages)


def _stages(
    query: exp.Select,
    items: list[exp.Expr],
    known: dict[str, exp.Expr],
    names: dict[str, exp.Expr],
    alias: str,
    stage: int,
) -> tuple[Around, Around]:
    """What a query does to the rows before it adds them up, if it does, and afterwards."""
    where, having, order = (query.args.get(name) for name in ("where", "having", "order"))
    condition = None if where is None else _substitute(where.this, names, alias, stage)
    orders = tuple(
        _order(each, items, known, alias, stage) for each in (order.expressions if order is not None else ())
    )
    limit, offset = (exp.maybe_copy(query.args.get(name)) for name in ("limit", "offset"))
    if having is None:
        return Around(), Around(having=condition, order=orders, limit=limit, offset=offset)
    kept = _substitute(having.this, known, alias, stage)
    return Around(having=condition), Around(having=kept, order=orders, limit=limit, offset=offset)


def _add_up(query: exp.Select) -> exp.Select:
    """A query that adds up the rows of another, with windows in place of its aggregates.

    Every row of a group has the same sums then, and one of them is kept.
    """
    query = query.copy()
    own = {item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)}
    group = query.args.get("group")
    if group is not None and has_sets(group):
        raise refuse("ROLLUP, CUBE or GROUPING SETS around an aggregate; put them into the inner query")
    keys = [spell_position(each, query, where="GROUP BY") for each in group.expressions] if group else []
    keys = [own.get(_bare(each), each).copy() for each in keys]
    first = exp.EQ(this=_over(exp.RowNumber(), keys), expression=exp.Literal.number(1))
    having = query.args.get("having")
    held = first if having is None else exp.and_(having.this, first)
    query.set("having", exp.Having(this=held))
    query.set("group", None)
    for tree in (
        *query.expressions,
        query.args["having"],
        *([query.args["order"]] if query.args.get("order") else []),
    ):
        for found in list(find_aggregates(tree)):
            if not isinstance(found, (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count)):
                raise refuse(f"{found.key.upper()} of an aggregate in an inner query, or GROUP BY around one")
            found.replace(_over(found.copy(), keys))
    return query


def _over(function: exp.Expr, keys: list[exp.Expr]) -> exp.Window:
    return exp.Window(this=function, partition_by=[key.copy() for key in keys], over="OVER")


def _spell_out(query: exp.Select) -> exp.Select:
    """A copy of a query in which no clause names an item of the select list, by alias or by place."""
    query = query.copy()
    own = {item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)}
    for item in query.expressions:
        mark_stage(item, 0)
    group, order, having = (query.args.get(name) for name in ("group", "order", "having"))
    for leaf in list_leaves(group) if group is not None else ():
        spelled = spell_position(leaf, query, where="GROUP BY")
        leaf.replace(own.get(_bare(spelled), spelled).copy())
    for each in order.expressions if order is not None else ():
        node = spell_position(each.this, query, where="ORDER BY").copy()
        each.set("this", _expand(node, own))
    if having is not None:
        having.set("this", _expand(having.this, own))
    return query


def _bare(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Column) and not node.table else ""


def _expand(node: exp.Expr, own: dict[str, exp.Expr]) -> exp.Expr:
    return node.transform(lambda part: own[_bare(part)].copy() if _bare(part) in own else part)


def _order(
    each: exp.Expr, items: list[exp.Expr], names: dict[str, exp.Expr], alias: str, stage: int
) -> exp.Expr:
    each = each.copy()
    place = each.this
    if isinstance(place, exp.Literal) and place.is_int:
        holder = exp.Select(expressions=[item.copy() for item in items])
        each.set("this", spell_position(place, holder, where="ORDER BY").copy())
    else:
        each.set("this", _substitute(place, names, alias, stage))
    return each


def _substitute(node: exp.Expr, names: dict[str, exp.Expr], alias: str, stage: int) -> exp.Expr:
    """`node` with every column of the inner query replaced by what it stands for."""
    if node.find(exp.Select):
        raise refuse("a query inside a condition about another one's rows")  # unless it is answered first
    node = node.copy()
    mark_stage(node, stage)

    def put(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        found = names.get(part.name.lower()) if part.table.lower() in ("", alias) else None
        if found is None:
            raise refuse(f"no column {part.sql()[:80]!r} in the inner query")
        inner = found.copy()
        return inner if isinstance(inner, (exp.Column, exp.Literal, exp.Func)) else exp.Paren(this=inner)

    return node.transform(put)


def _covers_keys(items: list[exp.Expr], inner: exp.Select) -> bool:
    """Whether a select list holds every key, so that no two rows of it are equal."""
    group = inner.args.get("group")
    keys = list_leaves(group) if group is not None else []
    return all(any(item.unalias() == key for item in items) for key in keys)


def _name(item: exp.Expr) -> str:
    name = item.alias_or_name
    return name if name and name != "*" else item.sql(dialect="duckdb")
