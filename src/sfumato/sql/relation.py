"""What a query can name: sources, their columns, and the relation that FROM and WHERE make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from sfumato.schema import Bins, Column, IntegerRange, Label, Period, Table, Values
from sfumato.schema.table import PrivacyUnit
from sfumato.sql.check import check_scalar, find_aggregates, refuse

CELLS = 1024
"""Steps between the bounds of a column among which a private quantile chooses."""

Bounds = tuple[Fraction | int, Fraction | int]


Lookup = Callable[[exp.Column], "Field"]


def bounds_of(node: exp.Expr, lookup: Lookup) -> Bounds | None:
    """An interval that holds every value of `node` that is not NULL, or None if none is known."""
    match node:
        case exp.Literal() if node.is_number:
            value = Fraction(str(node.this))
            return value, value
        case exp.Column():
            return lookup(node).bounds
        case exp.Paren() | exp.Coalesce() | exp.Greatest() | exp.Least() | exp.Case():
            return _combined(node, lookup)
        case exp.Neg():
            return _map(bounds_of(node.this, lookup), lambda low, high: (-high, -low))
        case exp.Abs():
            return _map(
                bounds_of(node.this, lookup),
                lambda low, high: (max(0, low, -high), max(abs(low), abs(high))),
            )
        case exp.Round() | exp.Floor() | exp.Ceil():
            inner = bounds_of(node.this, lookup)
            return _map(inner, lambda low, high: (low // 1, -(-high // 1)))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _arithmetic(node, bounds_of(node.this, lookup), bounds_of(node.expression, lookup))
        case exp.Cast() | exp.TryCast():
            return bounds_of(node.this, lookup) if node.to.this.name != "BOOLEAN" else None
        case _:
            return None


def is_whole(node: exp.Expr, lookup: Lookup) -> bool:
    """Whether every value of `node` is a whole number."""
    match node:
        case exp.Literal():
            return node.is_int
        case exp.Column():
            return lookup(node).kind == "integer"
        case exp.Paren() | exp.Neg() | exp.Abs():
            return is_whole(node.this, lookup)
        case exp.Add() | exp.Sub() | exp.Mul():
            return is_whole(node.this, lookup) and is_whole(node.expression, lookup)
        case exp.Case():
            return all(is_whole(part, lookup) for part in _results(node))
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return all(is_whole(part, lookup) for part in [node.this, *node.expressions])
        case exp.Floor() | exp.Ceil():
            return True
        case _:
            return False


def _combined(node: exp.Expr, lookup: Lookup) -> Bounds | None:
    if isinstance(node, exp.Paren):
        return bounds_of(node.this, lookup)
    parts = _results(node) if isinstance(node, exp.Case) else [node.this, *node.expressions]
    known = [bounds_of(part, lookup) for part in parts]
    inside = [each for each in known if each is not None]
    if not inside or len(inside) != len(known):
        return None
    # GREATEST and LEAST skip NULL, so that any part may be the result.
    return min(each[0] for each in inside), max(each[1] for each in inside)


def _results(node: exp.Case) -> list[exp.Expr]:
    results = [branch.args["true"] for branch in node.args["ifs"]]
    default = node.args.get("default")
    results = results if default is None else [*results, default]
    return [result for result in results if not isinstance(result, exp.Null)]


def _arithmetic(node: exp.Expr, left: Bounds | None, right: Bounds | None) -> Bounds | None:
    if left is None or right is None:
        return None
    match node:
        case exp.Add():
            return left[0] + right[0], left[1] + right[1]
        case exp.Sub():
            return left[0] - right[1], left[1] - right[0]
        case exp.Mul():
            corners = [a * b for a in left for b in right]
            return min(corners), max(corners)
        case _:
            if right[0] <= 0 <= right[1]:
                return None
            corners = [Fraction(a) / Fraction(b) for a in left for b in right]
            return min(corners), max(corners)


def _map(bounds: Bounds | None, change: Callable[..., Bounds]) -> Bounds | None:
    return None if bounds is None else change(*bounds)


UNIT = "unit of sfumato"

Kind = Literal["integer", "number", "text", "boolean", "date", "unknown"]


def code_name(name: str) -> str:
    """The name of the column that holds the code of `name`."""
    return f"code of {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column as a query sees it."""

    name: str
    kind: Kind
    bounds: Bounds | None = None
    column: Column | None = None
    is_unit: bool = False
    labels: tuple[Label, ...] | None = None
    is_drafted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that can be named in FROM: its description, and the kinds of its stored columns.

    The `labels` of a public table are the values of its columns, which are public too.
    """

    name: str
    stored: Mapping[str, str]
    table: Table | None = None
    labels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)


Catalog = dict[str, Source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What FROM and WHERE describe: a tree without a select list, and the columns it offers."""

    tree: exp.Select
    fields: Mapping[str, Mapping[str, Field]]
    unit: PrivacyUnit | None
    unit_alias: str | None
    tables: tuple[str, ...]
    joined: bool = False

    def find(self, node: exp.Column) -> tuple[str, Field]:
        """The relation's alias and the field that `node` names."""
        name, alias = node.name.lower(), node.table.lower()
        found = [
            (key, fields[name])
            for key, fields in self.fields.items()
            if name in fields and alias in ("", key)
        ]
        if not found:
            # Only described names are listed: a text file without a header line has records for names.
            fields = [each for fields in self.fields.values() for each in fields.values()]
            known = sorted(
                {each.name for each in fields if each.column is not None or each.bounds is not None}
            )
            raise refuse(f"no column {node.sql()[:80]!r} (described: {', '.join(known) or 'none'})")
        if len(found) > 1:
            raise refuse(f"column {node.name!r} is in several tables; write table.{node.name}")
        return found[0]


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


_COMMON_TYPES = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "date": "TIMESTAMP",
}


def join_relations(left: Relation, right: Relation, join: exp.Join) -> Relation:
    """The relation of rows of `left` and `right` that match, each with its one individual."""
    side, method = (join.side or "").upper(), (join.kind or "").upper()
    if method not in ("", "INNER", "OUTER") or side in ("RIGHT", "FULL") or join.method:
        raise refuse("JOIN and LEFT JOIN are supported, with ON or USING")
    if set(left.fields) & set(right.fields):
        raise refuse("two tables of a join have the same name; give one another with AS")
    both = left.unit is not None and right.unit is not None
    if side == "LEFT" and left.unit is None and right.unit is not None:
        raise refuse("LEFT JOIN from a public to a private table; put the private table first")
    joined = replace(left, fields={**left.fields, **right.fields})
    if both:
        _require_unit_match(join, joined, left, right)
    condition = _join_condition(join, left, right, joined)
    if both:
        text = exp.DataType.build("VARCHAR")
        match = exp.EQ(
            this=exp.TryCast(this=exp.column(UNIT, table=left.unit_alias, quoted=True), to=text.copy()),
            expression=exp.TryCast(this=exp.column(UNIT, table=right.unit_alias, quoted=True), to=text),
        )
        condition = exp.and_(condition, match)
    right_item = right.tree.args["from_"].this
    return Relation(
        tree=left.tree.join(right_item, on=condition, join_type="LEFT" if side == "LEFT" else "INNER"),
        fields=joined.fields,
        unit=_join_units(left.unit, right.unit),
        unit_alias=left.unit_alias or right.unit_alias,
        tables=left.tables + right.tables,
        joined=True,
    )


def _join_condition(join: exp.Join, left: Relation, right: Relation, joined: Relation) -> exp.Expr:
    """Equalities of columns of one kind: a hash join, and no conversion that could fail for a record."""
    using, on = join.args.get("using") or [], join.args.get("on")
    if using:
        pairs = [
            (
                qualify(exp.column(name.name), left, where="USING"),
                qualify(exp.column(name.name), right, where="USING"),
            )
            for name in using
        ]
    elif on is not None:
        condition = qualify(on, joined, where="ON")
        parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
        pairs = [(part.this, part.expression) if isinstance(part, exp.EQ) else (part, part) for part in parts]
    else:
        raise refuse("a join without ON or USING multiplies records without a bound")
    return exp.and_(*(_match(one, other, joined) for one, other in pairs))


def _match(one: exp.Expr, other: exp.Expr, joined: Relation) -> exp.Expr:
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        raise refuse("ON takes equalities of columns (a.x = b.y AND ...); put other conditions into WHERE")
    kinds = [_comparable(joined.find(side)[1].kind) for side in (one, other)]
    if kinds[0] != kinds[1] or kinds[0] == "unknown":
        text = f"{one.sql()} = {other.sql()}"[:80]
        raise refuse(f"a join compares columns of different types: {text}; cast one in an inner query")
    stored = {joined.find(side)[1].kind for side in (one, other)}
    # Both sides are converted, by a conversion that cannot fail, so that none happens on its own.
    common = exp.DataType.build(_COMMON_TYPES["number" if "number" in stored else next(iter(stored))])
    return exp.EQ(
        this=exp.TryCast(this=one.copy(), to=common.copy()),
        expression=exp.TryCast(this=other.copy(), to=common.copy()),
    )


def _comparable(kind: Kind) -> str:
    return "number" if kind in ("integer", "number") else kind


def _require_unit_match(join: exp.Join, joined: Relation, left: Relation, right: Relation) -> None:
    on = join.args.get("on")
    for name in join.args.get("using") or []:
        column = exp.column(name.name)
        if left.find(column)[1].is_unit and right.find(column)[1].is_unit:
            return
    for part in (on.flatten() if isinstance(on, exp.And) else [on]) if on is not None else []:
        if (
            isinstance(part, exp.EQ)
            and isinstance(part.this, exp.Column)
            and isinstance(part.expression, exp.Column)
        ):
            sides = [joined.find(part.this), joined.find(part.expression)]
            if all(found.is_unit for _, found in sides) and {alias for alias, _ in sides} == {
                left.unit_alias,
                right.unit_alias,
            }:
                return
    raise refuse(
        "a join of private tables must match their units (ON a.unit = b.unit): otherwise a row would "
        "belong to two individuals"
    )


def _join_units(left: PrivacyUnit | None, right: PrivacyUnit | None) -> PrivacyUnit | None:
    if left is None or right is None:
        return left or right
    if left.column is None or right.column is None or left.neighbours != right.neighbours:
        raise refuse("joined private tables need a unit column each, and the same neighbours")
    return replace(left, max_records=max(left.max_records, right.max_records))


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
