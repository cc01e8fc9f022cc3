"""Names: from a parsed FROM to a checked tree whose every column is known and carries its individual.

A relation is a select over described tables. Private relations have one more column, `UNIT`, that names
the individual a row belongs to; a row must belong to exactly one. Columns with a public domain have a
second one, `code of <name>`, that holds the code. Both are added here and filled in by the engine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.schema import Bins, IntegerRange, Period, Values
from sfumato.sql.bounds import Bounds, bounds_of, is_whole
from sfumato.sql.check import find_aggregates, refuse
from sfumato.sql.joins import join_relations
from sfumato.sql.qualify import qualify, require_condition
from sfumato.sql.relation import UNIT, Catalog, Field, Kind, Relation, Source, code_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.schema import Column

_CAST_KINDS: dict[str, Kind] = {
    "BOOLEAN": "boolean",
    "TINYINT": "integer",
    "SMALLINT": "integer",
    "INT": "integer",
    "BIGINT": "integer",
    "FLOAT": "number",
    "DOUBLE": "number",
    "DECIMAL": "number",
    "TEXT": "text",
    "VARCHAR": "text",
    "DATE": "date",
    "TIMESTAMP": "date",
    "TIMESTAMPNTZ": "date",
}


def resolve_sources(
    query: exp.Select, catalog: Catalog, outer: Mapping[str, Relation] | None = None
) -> Relation:
    """The relation that the FROM, JOIN and WHERE of `query` describe; `outer` are names of WITH around it."""
    ctes = _resolve_ctes(query, catalog) if query.args.get("with_") is not None else outer or {}
    from_ = query.args.get("from_")
    if from_ is None:
        raise refuse("a statement needs FROM")
    for name in ("laterals", "sample", "pivots", "connect", "match", "windows", "qualify", "into", "locks"):
        if query.args.get(name):
            raise refuse(f"{name.upper()} is not supported")
    relation = _resolve_item(from_.this, catalog, ctes)
    for join in query.args.get("joins") or []:
        right = _resolve_item(join.this, catalog, ctes)
        relation = join_relations(relation, right, join)
    where = query.args.get("where")
    if where is not None:
        condition = qualify(where.this, relation, where="WHERE")
        require_condition(condition, relation, where="WHERE")
        relation = replace(relation, tree=relation.tree.where(condition, append=True))
    return relation


def _resolve_ctes(query: exp.Select, catalog: Catalog) -> dict[str, Relation]:
    """Every query of WITH, resolved once; each may name those before it."""
    clause = query.args["with_"]
    if clause.args.get("recursive"):
        raise refuse("WITH RECURSIVE is not supported")
    ctes: dict[str, Relation] = {}
    for cte in clause.expressions:
        name = cte.alias.lower()
        if not isinstance(cte.this, exp.Select) or name in ctes or name in catalog:
            raise refuse(f"WITH {cte.alias} must be one plain SELECT under a new name")
        if cte.args.get("alias") is not None and cte.args["alias"].columns:
            raise refuse("WITH name(columns) is not supported; name the columns inside with AS")
        ctes[name] = _resolve_rows(cte.this, catalog, ctes)
    return ctes


def _resolve_item(item: exp.Expr, catalog: Catalog, ctes: Mapping[str, Relation]) -> Relation:
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
        if not item.alias:
            raise refuse("a subquery in FROM needs a name: (SELECT ...) AS name")
        return _wrap(_resolve_rows(item.this, catalog, ctes), item.alias.lower())
    if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier):
        raise refuse(f"FROM reads described tables only, not {item.sql()[:60]!r}")
    if item.args.get("db") or item.args.get("joins") or item.args.get("sample") or item.args.get("pivots"):
        raise refuse(f"FROM {item.sql()[:60]!r}: name a table of the project file, nothing more")
    name, alias = item.name.lower(), (item.alias or item.name).lower()
    if name in ctes:
        return _wrap(ctes[name], alias)
    source = {key.lower(): value for key, value in catalog.items()}.get(name)
    if source is None:
        raise refuse(f"no table {item.name!r} (described: {', '.join(sorted(catalog))})")
    return _base(source, alias)


def _base(source: Source, alias: str) -> Relation:
    table = exp.Table(
        this=exp.to_identifier(source.name, quoted=True),
        alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)),
    )
    fields = {
        name.lower(): Field(name=name, kind=_kind(kind), labels=source.labels.get(name))
        for name, kind in source.stored.items()
    }
    if any(name == UNIT or name.startswith(code_name("")) for name in fields):
        raise refuse(f"table {source.name!r} has a column named {UNIT!r} or {code_name('...')!r}; rename it")
    unit = source.table.unit if source.table is not None else None
    if source.table is not None:
        for name, column in source.table.columns.items():
            fields[name.lower()] = _describe(name, column, source.stored)
        if unit is not None and unit.column is not None:
            name = unit.column
            fields[name.lower()] = replace(fields[name.lower()], is_unit=True)
    return Relation(
        tree=exp.Select().from_(table),
        fields={alias: fields},
        unit=unit,
        unit_alias=alias if unit is not None else None,
        tables=(source.name,),
    )


def _describe(name: str, column: Column, stored: Mapping[str, str]) -> Field:
    kind = _kind(stored[column.stored[0]]) if column.stored[0] in stored else "text"
    if column.drafted and not column.accepted:
        return Field(name=name, kind=kind, is_drafted=True)
    bounds: Bounds | None = column.bounds
    match column.domain:
        case Period():
            kind = "integer"
            bounds = bounds or (column.domain.span.low, column.domain.span.high)
        case Bins(edges):
            kind = "integer" if kind == "integer" else "number"
            bounds = bounds or (edges[0], edges[-1])
        case IntegerRange(low, high):
            kind = "integer"
            bounds = bounds or (low, high)
        case Values(values) if not isinstance(values[0], str):
            kind = "integer"
            bounds = bounds or (min(values), max(values))  # type: ignore[assignment]
        case None if column.bounds is not None and kind == "text":
            kind = "number"
        case _:
            pass
    usable = column.domain is not None
    return Field(name=name, kind=kind, bounds=bounds, column=column if usable else None)


def _kind(stored: str) -> Kind:
    return stored if stored in ("integer", "number", "boolean", "date") else "text"  # type: ignore[return-value]


def _wrap(relation: Relation, alias: str) -> Relation:
    """A finished row-level select as a source of its own."""
    ((_, fields),) = relation.fields.items()
    source = exp.Subquery(
        this=relation.tree.copy(), alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    )
    return Relation(
        tree=exp.Select().from_(source),
        fields={alias: fields},
        unit=relation.unit,
        unit_alias=alias if relation.unit is not None else None,
        tables=relation.tables,
        joined=relation.joined,
    )


def _resolve_rows(query: exp.Select, catalog: Catalog, ctes: Mapping[str, Relation]) -> Relation:
    """An inner select: one output row per input row, with its individual carried along."""
    for name, words in (
        ("distinct", "DISTINCT"),
        ("group", "GROUP BY"),
        ("having", "HAVING"),
        ("limit", "LIMIT"),
        ("offset", "OFFSET"),
        ("order", "ORDER BY"),
    ):
        if query.args.get(name):
            raise refuse(f"{words} in an inner query; inner queries choose and compute columns, row by row")
    relation = resolve_sources(query, catalog, ctes)
    projections: list[exp.Expr] = []
    fields: dict[str, Field] = {}
    for item in expand_star(query, relation):
        name = item.alias_or_name
        inner = item.unalias()
        if name.lower() == UNIT or name.lower().startswith(code_name("")):
            raise refuse(f"an inner query may not name a column {name!r}")
        if not name:
            raise refuse(f"name the column {item.sql()[:60]!r} of the inner query with AS")
        if any(True for _ in find_aggregates(inner)):
            raise refuse("an aggregate in an inner query; only the outermost select list aggregates")
        checked = qualify(inner, relation, where="an inner select list")
        projections.append(exp.alias_(checked, name, quoted=True))
        info = _derive(name, checked, relation)
        if isinstance(checked, exp.Column) and info.column is not None:
            code = exp.column(code_name(checked.name), table=checked.table, quoted=True)
            projections.append(exp.alias_(code, code_name(name), quoted=True))
        if name.lower() in fields:
            raise refuse(f"the inner query has two columns named {name!r}")
        fields[name.lower()] = info
    if relation.unit is not None:
        unit = exp.column(UNIT, table=relation.unit_alias, quoted=True)
        projections.append(exp.alias_(unit, UNIT, quoted=True))
    return replace(relation, tree=relation.tree.select(*projections), fields={"": fields})


def expand_star(query: exp.Select, relation: Relation) -> list[exp.Expr]:
    """The select list with every star replaced by the columns it stands for."""
    items: list[exp.Expr] = []
    for item in query.expressions:
        star = item.find(exp.Star)
        if star is not None and any(star.args.values()):
            raise refuse("a star with EXCEPT, REPLACE or RENAME; name the columns")
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            wanted = item.table.lower() if isinstance(item, exp.Column) else ""
            items += [
                exp.column(each.name, table=alias, quoted=True)
                for alias, fields in relation.fields.items()
                if wanted in ("", alias)
                for each in fields.values()
            ]
        else:
            items.append(item)
    return items


def _derive(name: str, node: exp.Expr, relation: Relation) -> Field:
    """What is known of an expression: its kind, its bounds, and its domain if it is a bare column."""
    if isinstance(node, exp.Column):
        return replace(relation.find(node)[1], name=name)

    def lookup(column: exp.Column) -> Field:
        return relation.find(column)[1]

    bounds = bounds_of(node, lookup)
    if bounds is not None:
        return Field(name=name, kind="integer" if is_whole(node, lookup) else "number", bounds=bounds)
    if isinstance(node, (exp.Predicate, exp.And, exp.Or, exp.Not)):
        return Field(name=name, kind="boolean")
    if isinstance(node, exp.Cast):
        return Field(name=name, kind=_CAST_KINDS.get(node.to.this.name, "unknown"))
    return Field(name=name, kind="unknown")
