"""Questions that public facts answer: what columns there are, and which labels a column may have.

Tools ask `SELECT * FROM visits WHERE 1 = 0` to learn names and types, and `SELECT DISTINCT clinic` to fill
a list of choices. Neither needs a record, so both are free.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from sfumato.core.errors import refuse
from sfumato.sql.aggregates import name_item, read_key, read_rows
from sfumato.sql.check import find_aggregates
from sfumato.sql.evaluate import COMPARISONS, label_column
from sfumato.sql.finish import sort_rows
from sfumato.sql.nested import aggregates
from sfumato.sql.settle import TYPES, is_day, kind_of, shown_type
from sfumato.sql.sources import expand_star, resolve_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sfumato.core.facts.domain import Label
    from sfumato.core.facts.table import PublicTable
    from sfumato.sql.relation import Catalog, Relation
    from sfumato.sql.statement import Statement


PublicFacts = tuple[dict[str, tuple["Label", ...]], dict[str, tuple[Fraction, Fraction]]]
"""The values of columns of a public table, and the least and the largest number of others."""

_MOST_VALUES = 1000
_MOST_NUMBERS = 2**18


def summarize_public(
    table: PublicTable, kinds: Mapping[str, str], select: Callable[..., pa.Table]
) -> PublicFacts:
    """The values of the columns of a public table, and the bounds of its numbers.

    Values are listed of columns that have at most a thousand, and of whole numbers without a gap.
    """
    labels: dict[str, tuple[Label, ...]] = {}
    bounds: dict[str, tuple[Fraction, Fraction]] = {}
    source = exp.Table(this=exp.to_identifier(table.name, quoted=True))
    for name in (each for each, kind in kinds.items() if kind in ("integer", "number")):
        value = exp.column(name, quoted=True)
        number = exp.TryCast(this=value, to=exp.DataType.build("DOUBLE"))
        ends = [exp.Min(this=value.copy()), exp.Max(this=value.copy())]
        tree = exp.select(*ends, exp.Count(this=exp.Distinct(expressions=[value.copy()]))).from_(
            source.copy()
        )
        finite = exp.Anonymous(this="isfinite", expressions=[number])
        low, high, count = (each[0].as_py() for each in select(tree.where(finite), {table.name: table}))
        if low is not None:
            bounds[name] = Fraction(low), Fraction(high)
        if kinds[name] == "integer" and _MOST_VALUES < count <= _MOST_NUMBERS and high - low + 1 == count:
            labels[name] = tuple(range(int(low), int(high) + 1))
    for name in (each for each, kind in kinds.items() if kind in ("integer", "text")):
        value = exp.column(name, quoted=True)
        there = exp.Not(this=exp.Is(this=value, expression=exp.Null()))
        tree = exp.select(value.copy()).distinct().from_(source.copy()).where(there).order_by("1")
        found = select(tree.limit(_MOST_VALUES + 1), {table.name: table}).column(0).to_pylist()
        if 0 < len(found) <= _MOST_VALUES:
            labels[name] = tuple(each if kinds[name] == "integer" else str(each) for each in found)
    return labels, bounds


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
    """The names and types of the rows that a probe asks for, as an answer has them."""
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
    order = query.args.get("order")
    if any(True for each in (item, order) if each is not None for _ in find_aggregates(each)):
        return None
    if query.args.get("distinct") and query.args["distinct"].args.get("on") is not None:
        return None
    where = query.args.get("where")
    if where is not None and {each.sql() for each in where.find_all(exp.Column)} != {node.sql()}:
        return None
    if group is not None and [_spell(each, item) for each in group.expressions] != [node]:
        return None
    relation = resolve_sources(query, catalog)
    key = read_key(node, relation, where="SELECT DISTINCT")
    if relation.unit is None or key.labels is None:
        return None
    limit, offset = read_rows(query)
    labels = label_column(key, np.arange(len(key.labels))).to_pylist()
    kept = [place for place, label in enumerate(labels) if where is None or _holds(where.this, label)]
    ranks = []
    for each in order.expressions if order is not None else ():
        if _spell(each.this, item) != node:
            raise refuse("ORDER BY of another column than the one that is listed")
        ranks.append((np.arange(len(key.labels)), bool(each.args.get("desc"))))
    rows = sort_rows(np.array(kept, np.intp), ranks, limit=limit, offset=offset)
    name = name_item(item, statement.texts[0], plain=statement.plain)
    return pa.table({name: label_column(key, rows)})


def list_constants(statement: Statement) -> pa.Table | None:
    """The one row of `SELECT 1 FROM table LIMIT 1`, by which tools ask whether a table is there."""
    query = statement.query
    limit = query.args.get("limit")
    others = ("where", "group", "having", "distinct", "offset", "joins")
    if limit is None or limit.expression.name != "1" or any(query.args.get(name) for name in others):
        return None
    values = {}
    for item, text in zip(query.expressions, statement.texts, strict=True):
        node = item.unalias()
        if not isinstance(node, exp.Literal):
            return None
        name = name_item(item, text, plain=statement.plain)
        values[name] = [node.name if node.is_string else int(node.name) if node.is_int else float(node.name)]
    return pa.table(values) if len(values) == len(query.expressions) else None


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


def _holds(condition: exp.Expr, label: object) -> bool:
    """Whether a condition about one column holds for a label of it."""
    match condition:
        case exp.Paren():
            return _holds(condition.this, label)
        case exp.And():
            return _holds(condition.this, label) and _holds(condition.expression, label)
        case exp.Or():
            return _holds(condition.this, label) or _holds(condition.expression, label)
        case exp.Not():
            return not _holds(condition.this, label)
        case exp.Is() if isinstance(condition.expression, exp.Null):
            return False
        case exp.Like() | exp.ILike() if condition.expression.is_string:
            parts = re.split("([%_])", condition.expression.name)
            pattern = "".join({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in parts)
            flags = re.DOTALL | (re.IGNORECASE if isinstance(condition, exp.ILike) else 0)
            return re.fullmatch(pattern, _text_of(condition.this, label), flags) is not None
        case exp.In() if condition.expressions:
            return any(_equals(condition.this, each, label) for each in condition.expressions)
        case exp.EQ():
            return _equals(condition.this, condition.expression, label)
        case exp.NEQ():
            return not _equals(condition.this, condition.expression, label)
    raise refuse("SELECT DISTINCT with a condition other than =, IN, LIKE and IS NOT NULL of its column")


def _text_of(node: exp.Expr, label: object) -> str:
    match node:
        case exp.Column():
            return str(label)
        case exp.Paren() | exp.Cast():
            return _text_of(node.this, label)
        case exp.Lower():
            return _text_of(node.this, label).lower()
        case exp.Upper():
            return _text_of(node.this, label).upper()
    raise refuse("SELECT DISTINCT with a condition that computes with its column")


def _equals(node: exp.Expr, other: exp.Expr, label: object) -> bool:
    if not isinstance(other, exp.Literal):
        raise refuse("SELECT DISTINCT with a condition that is no comparison with constants")
    return _text_of(node, label) == other.name


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
        return shown_type(relation.field(node))
    kind = kind_of(node, relation)
    return TYPES["day" if kind == "date" and is_day(node, relation) else kind if kind in TYPES else "text"]


def name_columns_of(table: pa.Table, statement: Statement) -> pa.Table:
    """The answer of public tables with its columns named as they are written, if none stands for several."""
    items = statement.query.expressions
    if len(items) != table.num_columns or any(isinstance(item, exp.Star) for item in items):
        return table
    pairs = zip(items, statement.texts, strict=True)
    return table.rename_columns([name_item(item, text, plain=True) for item, text in pairs])
