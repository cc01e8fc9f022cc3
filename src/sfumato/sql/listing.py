"""Statements about the tables themselves: SHOW TABLES, DESCRIBE and SUMMARIZE.

They tell public facts alone: names, types, domains, bounds, and whom a table protects. No record is read and
none is counted, so they are free. Views are names for queries, of the project file or of a session, and no
more: what is asked of a view is asked of its tables, and costs what that costs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.core.errors import SourceError, refuse
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import suggest_name
from sfumato.core.facts.domain import Bins, IntegerRange, Label, Period
from sfumato.sql.relation import Field, Source
from sfumato.sql.settle import field_type
from sfumato.sql.sources import resolve_sources
from sfumato.sql.statement import mask_text, unwrap_explain
from sfumato.tables.arrays import text_array

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from sfumato.core.facts.column import Column
    from sfumato.core.facts.project import Project
    from sfumato.core.facts.table import Table

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
            return Listing(kind=kind, name=_unquote(named[1]), explain=explain)  # type: ignore[arg-type]
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
    described = {} if source.table is None else dict(source.table.columns)
    columns = [described.get(field.name) for field in fields]
    return pa.table(
        {
            "column": text_array([field.name for field in fields]),
            "type": text_array([_type(field, source) for field in fields]),
            "values": text_array(
                [_values(field, column) for field, column in zip(fields, columns, strict=True)]
            ),
            "bounds": text_array([_bounds(field) for field in fields]),
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


def _bounds(field: Field) -> str | None:
    if field.bounds is None:
        return None
    return " to ".join(format_exact(Fraction(each)) for each in field.bounds)


def _ends(field: Field) -> tuple[str | None, str | None]:
    if field.moments is not None:
        first, stop = field.moments
        # A range is kept as until before which day it lasts.
        last = None if stop is None else (stop - timedelta(days=1)).date().isoformat()
        return None if first is None else first.date().isoformat(), last
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


def _unquote(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


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
