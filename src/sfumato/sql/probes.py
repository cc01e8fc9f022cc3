"""Questions that public facts answer: what columns there are, and which labels a column may have.

Tools ask `SELECT * FROM visits WHERE 1 = 0` to learn names and types, and `SELECT DISTINCT clinic` to fill
a list of choices. Neither needs a record, so both are free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from sfumato.sql.aggregates import name_item, read_key, read_rows
from sfumato.sql.check import refuse
from sfumato.sql.evaluate import COMPARISONS, label_column
from sfumato.sql.finish import sort_rows
from sfumato.sql.nested import aggregates
from sfumato.sql.relation import Relation, expand_star, field_type, resolve_sources
from sfumato.sql.settle import TYPES, is_day, kind_of

if TYPE_CHECKING:
    from sfumato.sql.relation import Catalog
    from sfumato.sql.statement import Statement


def is_probe(query: exp.Select) -> bool:
    """Whether a query can have no row by its form alone: LIMIT 0, or a condition of constants that fails.

    >>> import sqlglot
    >>> is_probe(sqlglot.parse_one("SELECT * FROM t WHERE (1 = 0)"))
    True
    """
    limit = query.args.get("limit")
    if limit is not None and isinstance(limit.expression, exp.Literal) and limit.expression.name == "0":
        return True
    where = query.args.get("where")
    if where is not None and _fails(where.this):
        return True
    from_ = query.args.get("from_")
    item = None if from_ is None or query.args.get("joins") else from_.this
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
        # Without GROUP BY an aggregate has a row even of nothing.
        return is_probe(item.this) and not aggregates(query)
    return False


def probe_rows(statement: Statement, catalog: Catalog) -> pa.Schema:
    """The names and types of the rows that a probe asks for: every column as it is stored."""
    query = statement.query
    relation = _resolve(query, catalog)
    texts = iter(statement.texts)
    columns = []
    starred = [isinstance(item.find(exp.Star), exp.Star) for item in query.expressions]
    for item, star in zip(query.expressions, starred, strict=True):
        text = next(texts)
        if star:
            listed = expand_star(exp.Select(expressions=[item.copy()]), relation)
            columns += [(each.name, _type_of(each, relation)) for each in listed]
        else:
            name = name_item(item, text, plain=statement.plain)
            columns.append((name, _type_of(item.unalias(), relation)))
    return pa.schema(columns)


def list_labels(statement: Statement, catalog: Catalog) -> pa.Table | None:
    """The answer to SELECT DISTINCT, or GROUP BY without an aggregate, of one column with public labels.

    None if the statement asks for something else.
    """
    query = statement.query
    if not statement.plain:
        return None  # what says that it spends is not answered for nothing
    if len(query.expressions) != 1 or isinstance(query.expressions[0], exp.Star) or query.args.get("having"):
        return None
    group, (item,) = query.args.get("group"), query.expressions
    node = item.unalias()
    if group is None and not query.args.get("distinct"):
        return None
    if aggregates(exp.Select(expressions=[item.copy()])):
        return None
    if query.args.get("distinct") and query.args["distinct"].args.get("on") is not None:
        return None
    where = query.args.get("where")
    if where is not None and not _only_present(where.this, node):
        return None
    if group is not None and [_spell(each, item) for each in group.expressions] != [node]:
        return None
    relation = resolve_sources(query, catalog)
    key = read_key(node, relation, where="SELECT DISTINCT")
    if relation.unit is None or key.labels is None:
        return None
    order = query.args.get("order")
    limit, offset = read_rows(query)
    ranks = []
    for each in order.expressions if order is not None else ():
        if _spell(each.this, item) != node:
            raise refuse("ORDER BY of another column than the one that is listed")
        ranks.append((np.arange(len(key.labels)), bool(each.args.get("desc"))))
    rows = sort_rows(np.arange(len(key.labels)), ranks, limit=limit, offset=offset)
    name = name_item(item, statement.texts[0], plain=statement.plain)
    return pa.table({name: label_column(key, rows)})


def _resolve(query: exp.Select, catalog: Catalog) -> Relation:
    """The relation of a probe, whose inner query may have clauses that inner queries have no use for."""
    query = query.copy()
    for inner in query.find_all(exp.Select):
        if inner is not query:
            for name in ("limit", "offset", "order", "distinct"):
                inner.set(name, None)
    return resolve_sources(query, catalog)


def _spell(node: exp.Expr, item: exp.Expr) -> exp.Expr:
    """What a place or an alias in GROUP BY and ORDER BY stands for."""
    if isinstance(node, exp.Literal) and node.name == "1":
        return item.unalias()
    if isinstance(node, exp.Column) and not node.table and node.name.lower() == item.alias.lower():
        return item.unalias()
    return node


def _only_present(condition: exp.Expr, node: exp.Expr) -> bool:
    """Whether a condition only asks that the column has a value."""
    while isinstance(condition, exp.Paren):
        condition = condition.this
    return condition == exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null()))


def _fails(condition: exp.Expr) -> bool:
    """Whether a condition never holds, by its constants alone."""
    match condition:
        case exp.Paren():
            return _fails(condition.this)
        case exp.And():
            return _fails(condition.this) or _fails(condition.expression)
        case exp.Boolean():
            return not condition.this
        case exp.Null():
            return True
        case exp.Not():
            return isinstance(condition.this, exp.Boolean) and bool(condition.this.this)
    left, right = condition.args.get("this"), condition.args.get("expression")
    if type(condition) in COMPARISONS and isinstance(left, exp.Literal) and isinstance(right, exp.Literal):
        if left.is_string and right.is_string:
            return not COMPARISONS[type(condition)](left.name, right.name)
        if not left.is_string and not right.is_string:
            return not COMPARISONS[type(condition)](float(left.name), float(right.name))
    return False


def _type_of(node: exp.Expr, relation: Relation) -> pa.DataType:
    if isinstance(node, exp.Column):
        return field_type(relation.field(node))
    kind = kind_of(node, relation)
    return TYPES["day" if kind == "date" and is_day(node, relation) else kind if kind in TYPES else "text"]
