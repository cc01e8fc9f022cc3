"""What public facts answer: SHOW TABLES, DESCRIBE and SUMMARIZE, and what tools ask first of all.

They tell names, types, domains, bounds, and whom a table protects. No record is read and none is counted, so
they are free. Tools ask `SELECT * FROM visits WHERE 1 = 0` to learn names and types, and
`SELECT DISTINCT clinic` to fill a list of choices. Views are names for queries, of the project file or of a
session, and no more: what is asked of a view is asked of its tables, and costs what that costs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.core.errors import SourceError, refuse
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import suggest_name
from sfumato.core.facts.domain import Bins, IntegerRange, Label, Period
from sfumato.sql.aggregates import name_item, read_key, read_rows
from sfumato.sql.check import find_aggregates
from sfumato.sql.evaluate import COMPARISONS, label_column
from sfumato.sql.finish import sort_rows
from sfumato.sql.nested import aggregates
from sfumato.sql.relation import Field, Source
from sfumato.sql.settle import TYPES, field_type, is_day, kind_of, shown_type
from sfumato.sql.sources import expand_star, resolve_sources
from sfumato.sql.statement import mask_text, unwrap_explain
from sfumato.tables.arrays import text_array

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from sfumato.core.facts.column import Column
    from sfumato.core.facts.project import Project
    from sfumato.core.facts.table import PublicTable, Table
    from sfumato.sql.relation import Catalog, Relation
    from sfumato.sql.statement import Statement


PublicFacts = tuple[dict[str, tuple["Label", ...]], dict[str, tuple[Fraction, Fraction]]]
"""The values of columns of a public table, and the least and the largest number of others."""
_MOST_LISTED = 1000
_MOST_NUMBERS = 2**18

_NAME = r'(?:public\s*\.\s*)?("(?:[^"]|"")+"|[^\s"().;]+)'
_TABLES = re.compile(r"show\s+(?:all\s+)?tables", re.IGNORECASE)
_COLUMNS = re.compile(
    rf"(?:(?:describe|desc)\s+(?:table\s+)?|show\s+(?:full\s+)?columns\s+(?:from|in)\s+){_NAME}",
    re.IGNORECASE,
)
_SUMMARY = re.compile(rf"summari[sz]e\s+(?:table\s+)?{_NAME}", re.IGNORECASE)
_STATEMENT = re.compile(r"(?:describe|desc)\s+((?:dp[-_]select|select|with)\b.*)", re.IGNORECASE | re.DOTALL)
_BEGINS = re.compile(r"(show|describe|desc|summari[sz]e)\b", re.IGNORECASE)

_VIEW = re.compile(r"(create|drop)\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?view\b", re.IGNORECASE)
_MOST_VIEWS = 100
_MOST_VALUES = 20  # that are spelled out; the rest is counted
_QUANTITIES = ("integer", "number")
_SUMS = "SUM, AVG, STDDEV, quantiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What is asked about tables: all of them, the columns of one, or those of the answer to a statement."""

    kind: Literal["tables", "columns", "summary", "answer"]
    name: str = ""
    explain: bool = False


def read_listing(text: str) -> Listing | None:
    """What `text` asks about the tables themselves, None if it is another statement.

    >>> read_listing("describe visits;")
    Listing(kind='columns', name='visits', explain=False)
    """
    if not isinstance(text, str) or len(text) > 10**5:
        return None
    plain, explain = unwrap_explain(mask_text(text, quotes=False).strip().rstrip(";").strip())
    if not _BEGINS.match(plain):
        return None
    if _TABLES.fullmatch(plain):
        return Listing(kind="tables", explain=explain)
    asked = _STATEMENT.fullmatch(plain)
    if asked:
        return Listing(kind="answer", name=asked[1], explain=explain)
    for pattern, kind in ((_COLUMNS, "columns"), (_SUMMARY, "summary")):
        named = pattern.fullmatch(plain)
        if named:
            name = named[1][1:-1].replace('""', '"') if named[1].startswith('"') else named[1]
            return Listing(kind=kind, name=name, explain=explain)  # type: ignore[arg-type]
    word = plain.split(None, 1)[0].upper()
    raise refuse(
        f"{word} is read as SHOW TABLES, DESCRIBE table, SUMMARIZE table or DESCRIBE statement; for what is "
        "in the records write DP-SELECT epsilon ..."
    )


def list_tables(project: Project) -> pa.Table:
    """The tables of a project: whether they are private, whom they protect, and their bounds."""
    private = project.tables.items()
    names = [*project.tables, *project.public]
    rest = [None] * len(project.public)
    return pa.table(
        {
            "name": pa.array(names, pa.string()),
            "kind": pa.array(["private"] * len(project.tables) + ["public"] * len(rest), pa.string()),
            "unit": pa.array([*(table.unit.name for _, table in private), *rest], pa.string()),
            "max_records": pa.array([*(table.unit.max_records for _, table in private), *rest], pa.int64()),
            "max_groups": pa.array([*(table.unit.max_groups for _, table in private), *rest], pa.int64()),
            "columns": pa.array([*(", ".join(table.columns) for _, table in private), *rest], pa.string()),
        }
    )


def find_table(name: str, project: Project) -> str:
    """The name of the table of the project that is meant by `name`, as it is written there."""
    known = [*project.tables, *project.public]
    found = next((each for each in known if each.lower() == name.lower()), None)
    if found is None:
        raise refuse(f"no table {name[:80]!r}{suggest_name(name, known, word='described')}")
    return found


def list_columns(source: Source) -> pa.Table:
    """The columns of a table: name, type, public values, bounds, and what else is known of them."""
    fields = _fields(source)
    ends = [_bounds(field) for field in fields]
    described = {} if source.table is None else dict(source.table.columns)
    columns = [described.get(field.name) for field in fields]
    return pa.table(
        {
            "column": text_array([field.name for field in fields]),
            "type": text_array([_type(field, source) for field in fields]),
            "values": text_array(
                [_values(field, column) for field, column in zip(fields, columns, strict=True)]
            ),
            "bounds": text_array([None if low is None else f"{low} to {high}" for low, high in ends]),
            "about": text_array(
                [_about(field, column, source.table) for field, column in zip(fields, columns, strict=True)]
            ),
        }
    )


def list_summary(source: Source) -> pa.Table:
    """For every column its public least and largest value, how many public values, and what may be asked."""
    fields = _fields(source)
    ends = [_ends(field) for field in fields]
    labels = [_labels(field) for field in fields]
    return pa.table(
        {
            "column": text_array([field.name for field in fields]),
            "type": text_array([_type(field, source) for field in fields]),
            "least": text_array([low for low, _ in ends]),
            "largest": text_array([high for _, high in ends]),
            "values": pa.array([None if each is None else len(each) for each in labels], pa.int64()),
            "ask": text_array([_asks(field, source) for field in fields]),
        }
    )


def list_answer(schema: pa.Schema) -> pa.Table:
    """The columns of the answer to a statement."""
    return pa.table(
        {
            "column": pa.array(schema.names, pa.string()),
            "type": pa.array([_spell(kind) for kind in schema.types], pa.string()),
        }
    )


def answer_listing(
    asked: Listing,
    project: Project,
    *,
    find_source: Callable[[str], Source],
    describe: Callable[[str], pa.Schema],
) -> pa.Table:
    """The answer to `asked` about the tables of `project`.

    `find_source` tells the stored columns of a table, `describe` the columns of the answer to a statement.
    """
    if asked.kind == "tables":
        return list_tables(project)
    if asked.kind == "answer":
        return list_answer(describe(asked.name))
    name = find_table(asked.name, project)
    try:
        source = find_source(name)
    except SourceError:  # the project file has facts of its own
        source = Source(name=name, stored={}, table=project.tables.get(name))
    return list_columns(source) if asked.kind == "columns" else list_summary(source)


def _fields(source: Source) -> list[Field]:
    if source.table is not None and not source.stored:
        # What is stored cannot be seen, so that nothing but the project file speaks of it.
        unit = source.table.unit.column
        stored = {name: "" for column in source.table.columns.values() for name in column.stored}
        stored |= {unit: ""} if unit is not None else {}
        source = Source(name=source.name, stored=stored, table=source.table)
    query = exp.select("*").from_(exp.to_table(exp.to_identifier(source.name, quoted=True).sql()))
    return list(resolve_sources(query, {source.name: source}).fields[source.name.lower()].values())


def _type(field: Field, source: Source) -> str | None:
    known = bool(source.stored) or field.column is not None or field.bounds is not None
    return _spell(field_type(field)) if known else None


def _spell(kind: pa.DataType) -> str:
    """A type by its name in SQL."""
    if pa.types.is_dictionary(kind):
        return _spell(kind.value_type)
    for test, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "bigint"),
        (pa.types.is_floating, "double"),
        (pa.types.is_decimal, "decimal"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_time, "time"),
    ):
        if test(kind):
            return name
    return "text"


def _labels(field: Field) -> tuple[Label, ...] | range | None:
    """The public values of a column; a range is not written out, it may hold a billion."""
    column = field.column
    if column is None:
        return field.labels
    if isinstance(column.domain, IntegerRange) and not column.extras:
        return range(column.domain.low, column.domain.high + 1)
    return column.labels


def _values(field: Field, column: Column | None) -> str | None:
    domain = None if field.column is None else field.column.domain
    if column is not None and column.dates is not None:
        return f"{column.dates[0].isoformat()} to {column.dates[1].isoformat()}"
    if isinstance(domain, (IntegerRange, Period)):
        span = domain.span if isinstance(domain, Period) else domain
        more = "".join(f", {label}" for label in column.extras) if column is not None else ""
        return f"{span.low} to {span.high}{more}"
    labels = _labels(field)
    if labels is None:
        return None
    shown = ", ".join(str(label) for label in labels[:_MOST_VALUES])
    return shown if len(labels) <= _MOST_VALUES else f"{shown}, ... ({len(labels):,} in all)"


def _ends(field: Field) -> tuple[str | None, str | None]:
    if field.moments is not None:
        first, stop = field.moments
        # A range is kept as until before which day it lasts.
        last = None if stop is None else (stop - timedelta(days=1)).date().isoformat()
        return None if first is None else first.date().isoformat(), last
    return _bounds(field)


def _bounds(field: Field) -> tuple[str | None, str | None]:
    if field.bounds is None:
        return None, None
    low, high = (format_exact(Fraction(each)) for each in field.bounds)
    return low, high


def _about(field: Field, column: Column | None, table: Table | None) -> str | None:
    if field.is_unit and table is not None:
        return f"the unit: names the individual that is protected, {table.unit.describe().split(', ', 1)[1]}"
    if column is None:
        return None
    facts = []
    if field.is_drafted:
        facts.append("drafted from the data: not used unless accept_drafted = true")
    if column.stored != (column.name,):
        part = f"{column.domain.part} of " if isinstance(column.domain, Period) else "from "
        facts.append(part + ", ".join(column.stored))
    if isinstance(column.domain, Bins):
        facts.append(f"in {column.domain.size:,} bins")
    if column.outside != "drop" and column.domain is not None:
        facts.append(f"other values: {column.outside}")
    return "; ".join(facts) or None


def _asks(field: Field, source: Source) -> str:
    """What a statement may ask of a column."""
    if source.table is None:
        return "anything: the table is public"
    if field.is_unit:
        return "COUNT(DISTINCT)"
    asks = []
    if field.column is not None or field.labels is not None:
        asks.append("GROUP BY")
    elif field.moments is not None:
        asks.append("GROUP BY periods, MIN, MAX, quantiles")
    elif field.kind == "boolean":
        asks.append("GROUP BY")
    elif field.kind in _QUANTITIES and field.bounds is not None:
        asks.append("GROUP BY ROUND or FLOOR of it")
    if field.bounds is not None:
        asks.append(_SUMS)
    asks.append("COUNT, WHERE")
    if field.column is None and field.labels is None and field.moments is None and field.bounds is None:
        asks.append("GROUP BY with DELTA")
    return "; ".join(asks)


def change_views(text: str, views: dict[str, str], *, taken: Collection[str]) -> str | None:
    """Makes or drops the view of a session that `text` says, and tells so; None of another statement.

    >>> views = {}
    >>> change_views("CREATE TEMP VIEW v AS SELECT * FROM visits", views, taken=["visits"])
    'view v is there until the session ends'
    """
    if not isinstance(text, str) or not re.search(r"\bview\b", text, re.IGNORECASE):
        return None
    text = mask_text(text, quotes=False).strip().rstrip(";")
    if not _VIEW.match(text):
        return None
    tree = _parse(text)
    name = tree.find(exp.Table)
    if name is None or name.args.get("db") or name.name.lower() in {each.lower() for each in taken}:
        raise refuse("a view needs a name that no table and no view of the project file has")
    if isinstance(tree, exp.Drop):
        if views.pop(name.name.lower(), None) is None and not tree.args.get("exists"):
            raise refuse(f"no view {name.name[:80]!r}")
        return f"view {name.name} is gone"
    if len(views) >= _MOST_VIEWS or (name.name.lower() in views and not tree.args.get("replace")):
        raise refuse(f"a view {name.name[:80]!r} that is there already, or one of more than {_MOST_VIEWS}")
    _read_view(name.name.lower(), text)
    views[name.name.lower()] = text
    return f"view {name.name} is there until the session ends"


def add_views(query: exp.Select, views: Mapping[str, str]) -> None:
    """Puts the views that a query names, and those that they name, into its WITH, in place."""
    known = {name.lower(): text for name, text in views.items()}
    made = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    needed: dict[str, exp.CTE] = {}

    def need(tree: exp.Expr, around: tuple[str, ...]) -> None:
        for name in (each.name.lower() for each in tree.find_all(exp.Table) if not each.args.get("db")):
            if name in around:
                raise refuse(f"views that name each other in a circle: {', '.join(around)}")
            if name in known and name not in made and name not in needed:
                cte = _read_view(name, known[name])
                need(cte.this, (*around, name))
                needed[name] = cte

    need(query, ())
    if needed:
        clause = query.args.get("with_")
        query.set("with_", exp.With(expressions=[*needed.values(), *(clause.expressions if clause else [])]))


def _parse(text: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(text, dialect="duckdb")
    except SqlglotError:
        trees = []
    if len(trees) != 1 or trees[0] is None:
        raise refuse("a view is CREATE VIEW name AS SELECT ..., or its SELECT alone in [views]")
    return trees[0]


def _read_view(name: str, text: str) -> exp.CTE:
    """A view as a query of WITH: from its SELECT, or from CREATE VIEW."""
    tree, columns = _parse(text), list[exp.Expr]()
    if isinstance(tree, exp.Create):
        columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
        tree = tree.expression
    if not isinstance(tree, exp.Query) or tree.find(exp.Parameter, exp.Placeholder):
        raise refuse(f"view {name[:80]!r} is no SELECT, or has a parameter")
    tree = tree.unnest()
    if isinstance(tree, exp.Select) and columns:
        if len(columns) != len(tree.expressions):
            raise refuse(f"view {name[:80]!r} names {len(columns)} columns of {len(tree.expressions)}")
        pairs = zip(tree.expressions, columns, strict=True)
        named = [exp.alias_(item.unalias(), column.name, quoted=True) for item, column in pairs]
        tree.set("expressions", named)
    return exp.CTE(this=tree, alias=exp.TableAlias(this=exp.to_identifier(name)))


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
        if kinds[name] == "integer" and _MOST_LISTED < count <= _MOST_NUMBERS and high - low + 1 == count:
            labels[name] = tuple(range(int(low), int(high) + 1))
    for name in (each for each, kind in kinds.items() if kind in ("integer", "text")):
        value = exp.column(name, quoted=True)
        there = exp.Not(this=exp.Is(this=value, expression=exp.Null()))
        tree = exp.select(value.copy()).distinct().from_(source.copy()).where(there).order_by("1")
        found = select(tree.limit(_MOST_LISTED + 1), {table.name: table}).column(0).to_pylist()
        if 0 < len(found) <= _MOST_LISTED:
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
    if group is not None and [_spell_out(each, item) for each in group.expressions] != [node]:
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
        if _spell_out(each.this, item) != node:
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


def _spell_out(node: exp.Expr, item: exp.Expr) -> exp.Expr:
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
