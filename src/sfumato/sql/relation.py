"""What a query can name: tables, their columns, and the relation that FROM, JOIN and WHERE make of them.

A relation keeps the individual of every row: its tree offers the column UNIT through all joins and inner
queries, so that the engine can hold each individual to its bounds. A column with a public domain is
offered twice, as stored and by the code of its label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from sfumato.schema import Bins, Column, IntegerRange, Label, Period, Table, Values, suggest_name
from sfumato.schema.table import PrivacyUnit
from sfumato.sql.check import (
    CAST_KINDS,
    Kind,
    check_scalar,
    find_aggregates,
    finite_labels,
    refuse,
    refuse_clauses,
)
from sfumato.sql.dates import derive_period, narrow_moments, read_labels
from sfumato.sql.hints import hint_column
from sfumato.sql.settle import TYPES, settle

UNIT = "unit of sfumato"
"""The column that names the individual of a row, in every relation over private tables."""

Bounds = tuple[Fraction | int, Fraction | int]

_COMMON_TYPES: dict[Kind, str] = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "date": "TIMESTAMP",
}


_MOST_LABELS = 1000  # that a column of an inner query is compared with


def code_name(name: str) -> str:
    """The name of the column that holds the code of `name`."""
    return f"code of {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column as a query sees it.

    `column` is its description if it has a public domain, whose codes the engine offers. The `labels` of
    a column of a public table are its values. `type` is how it is stored, if that is known;
    `moments` are from when to before when dates lie, by public knowledge or the statement's own conditions;
    with a `period`, they are beginnings of such. `is_private` says that its bounds are to be chosen.
    """

    name: str
    kind: Kind
    bounds: Bounds | None = None
    column: Column | None = None
    is_unit: bool = False
    labels: tuple[Label, ...] | None = None
    is_drafted: bool = False
    type: pa.DataType | None = None
    moments: tuple[datetime | None, datetime | None] | None = None
    period: str | int | None = None
    is_private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that can be named in FROM: its description, and the kinds of its stored columns.

    The `labels` of a public table are the values of its columns, which are public too. `types` has how
    columns are stored, in more detail than their kinds.
    """

    name: str
    stored: Mapping[str, str]
    table: Table | None = None
    labels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)


Catalog = dict[str, Source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What FROM and WHERE describe: a tree without a select list, and the columns it offers.

    `chosen` are bounds that were chosen privately, by the text of their operand.
    """

    tree: exp.Select
    fields: Mapping[str, Mapping[str, Field]]
    unit: PrivacyUnit | None
    unit_alias: str | None
    tables: tuple[str, ...]
    joined: bool = False
    chosen: Mapping[str, tuple[Fraction, Fraction]] = field(default_factory=dict)

    def find(self, node: exp.Column) -> tuple[str, Field]:
        """The alias of the table, and the field in it, that `node` names."""
        name, alias = node.name.lower(), node.table.lower()
        found = [
            (key, fields[name])
            for key, fields in self.fields.items()
            if name in fields and alias in ("", key)
        ]
        if not found:
            raise refuse(f"no column {node.sql()[:80]!r}{hint_column(node, self.fields)}")
        if len(found) > 1:
            raise refuse(f"column {node.name!r} is in several tables; write table.{node.name}")
        return found[0]

    def field(self, node: exp.Column) -> Field:
        """The field that `node` names."""
        return self.find(node)[1]

    def bounds(self, node: exp.Expr) -> Bounds | None:
        """An interval that holds every value of an expression that is not NULL, or None if none is known."""
        return bounds_of(node, self)

    def uses_unit(self, node: exp.Expr) -> bool:
        """Whether an expression is the unit, or is computed with it."""
        return any(self.field(column).is_unit for column in node.find_all(exp.Column))


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
        relation = _join(relation, _resolve_item(join.this, catalog, ctes), join)
    where = query.args.get("where")
    if where is not None:
        condition = qualify_condition(where.this, relation, where="WHERE")
        relation = replace(relation, tree=relation.tree.where(condition, append=True))
        relation = narrow_moments(condition, relation)
    return relation


def field_type(field: Field) -> pa.DataType:
    """The type of a column as a plain table would have it."""
    if field.kind in ("date", "unknown") and field.type is not None:
        return field.type
    return TYPES.get(field.kind, pa.string())


def expand_star(query: exp.Select, relation: Relation) -> list[exp.Expr]:
    """The select list with every star replaced by the columns it stands for."""
    items: list[exp.Expr] = []
    for item in query.expressions:
        star = item.find(exp.Star)
        if star is not None and any(star.args.values()):
            raise refuse("a star with EXCEPT, REPLACE or RENAME; name the columns")
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            table = item.table.lower() if isinstance(item, exp.Column) else ""
            items += [
                exp.column(each.name, table=alias, quoted=True)
                for alias, fields in relation.fields.items()
                if table in ("", alias)
                for each in fields.values()
            ]
        else:
            items.append(item)
    return items


def qualify(node: exp.Expr, relation: Relation, *, where: str) -> exp.Expr:
    """A checked copy of `node` in which every column says which relation it comes from.

    The constants of `node` itself are settled, so that the text of a plan shows them as they are meant.
    """
    check_scalar(node, where=where)
    node = settle(node, relation)
    for test in list(node.find_all(exp.Is)):
        column = test.this.unnest()
        unit = isinstance(column, exp.Column) and relation.field(column).is_unit and not relation.joined
        if unit and isinstance(test.expression, exp.Null) and test.parent is not None:
            test.replace(exp.Boolean(this=False))  # records of nobody are left out
    for part in node.walk():
        for condition in _conditions(part):
            _require_condition(condition, relation, where=where)

    def name_table(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        alias, found = relation.find(part)
        return exp.column(found.name, table=alias, quoted=True)

    return node.copy().transform(name_table)


def qualify_condition(node: exp.Expr, relation: Relation, *, where: str) -> exp.Expr:
    """A checked and qualified copy of `node`, which must be true or false by its form."""
    condition = qualify(node, relation, where=where)
    _require_condition(condition, relation, where=where)
    return condition


def bounds_of(node: exp.Expr, relation: Relation) -> Bounds | None:
    """An interval that holds every value of `node` that is not NULL, or None if none is known."""
    match node:
        case exp.Literal() if node.is_number:
            value = Fraction(str(node.this))
            return value, value
        case exp.Column():
            return relation.field(node).bounds
        case exp.Cast() if node.to.this.name == "BOOLEAN":
            return None
    inner = [bounds_of(part, relation) for part in _operands(node)]
    known = [each for each in inner if each is not None]
    if not known or len(known) < len(inner):
        return None
    (low, high), (other_low, other_high) = known[0], known[-1]
    match node:
        case exp.Neg():
            return -high, -low
        case exp.Abs():
            return max(0, low, -high), max(-low, high)
        case exp.Round() | exp.Floor() | exp.Ceil():
            return low // 1, -(-high // 1)
        case exp.Add():
            return low + other_low, high + other_high
        case exp.Sub():
            return low - other_high, high - other_low
        case exp.Mul():
            corners = [a * b for a in known[0] for b in known[1]]
            return min(corners), max(corners)
        case exp.Div():
            if other_low <= 0 <= other_high:
                return None
            corners = [Fraction(a) / Fraction(b) for a in known[0] for b in known[1]]
            return min(corners), max(corners)
        case _:
            # GREATEST and LEAST skip NULL, so that any part may be the result.
            return min(each[0] for each in known), max(each[1] for each in known)


def is_whole(node: exp.Expr, relation: Relation) -> bool:
    """Whether every value of `node` is a whole number."""
    match node:
        case exp.Literal():
            return node.is_int
        case exp.Column():
            return relation.field(node).kind == "integer"
        case exp.Floor() | exp.Ceil():
            return True
        case exp.Div() | exp.Cast() | exp.Round():
            return False
        case _:
            parts = _operands(node)
            return bool(parts) and all(is_whole(part, relation) for part in parts)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The parts from whose values that of `node` is made, if it is known how."""
    match node:
        case exp.Paren() | exp.Neg() | exp.Abs() | exp.Round() | exp.Floor() | exp.Ceil() | exp.Cast():
            return [node.this]
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return [node.this, node.expression]
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return [node.this, *node.expressions]
        case exp.Case():
            results = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
            return [each for each in results if each is not None and not isinstance(each, exp.Null)]
        case _:
            return []


def _require_condition(node: exp.Expr, relation: Relation, *, where: str) -> None:
    """Refuses what is not true or false by its form.

    Text or a number in the place of a condition would be converted, and the conversion can fail.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Column) and relation.field(node).kind == "boolean":
        return
    if isinstance(node, exp.Cast) and node.to.this.name == "BOOLEAN":
        return
    if not isinstance(node, (exp.Predicate, exp.And, exp.Or, exp.Not, exp.Boolean, exp.Null, exp.StartsWith)):
        raise refuse(f"{where} takes {node.sql()[:60]!r} for a condition; compare it with something")


def _conditions(part: exp.Expr) -> list[exp.Expr]:
    """The conditions that stand directly in a node."""
    if isinstance(part, (exp.And, exp.Or)):
        return [part.this, part.expression]
    if isinstance(part, exp.Case) and part.this is None:
        return [branch.this for branch in part.args["ifs"]]
    if isinstance(part, exp.Not) or (isinstance(part, exp.If) and not isinstance(part.parent, exp.Case)):
        return [part.this]
    return []


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
        raise refuse(
            f"no table {item.name[:80]!r}{suggest_name(item.name, sorted(catalog), word='described')}"
        )
    return _read_table(source, alias)


def _read_table(source: Source, alias: str) -> Relation:
    """The relation of all rows of one table."""
    fields = {
        name.lower(): Field(
            name=name, kind=_kind(kind), labels=source.labels.get(name), type=source.types.get(name)
        )
        for name, kind in source.stored.items()
    }
    if any(_is_reserved(name) for name in fields):
        raise refuse(f"table {source.name!r} has a column named {UNIT!r} or {code_name('...')!r}; rename it")
    unit = None
    if source.table is not None:
        unit = source.table.unit
        for name, column in source.table.columns.items():
            fields[name.lower()] = _describe(name, column, source)
        if unit.column is not None:
            name = unit.column.lower()
            fields[name] = replace(fields[name], is_unit=True)
    table = exp.Table(this=exp.to_identifier(source.name, quoted=True), alias=_alias(alias))
    return Relation(
        tree=exp.Select().from_(table),
        fields={alias: fields},
        unit=unit,
        unit_alias=alias if unit is not None else None,
        tables=(source.name,),
    )


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def _is_reserved(name: str) -> bool:
    return name.lower() == UNIT or name.lower().startswith(code_name(""))


def _describe(name: str, column: Column, source: Source) -> Field:
    first = column.stored[0]
    kind, stored = _kind(source.stored.get(first, "text")), source.types.get(first)
    if column.drafted and not column.accepted:
        return Field(name=name, kind=kind, is_drafted=True, type=stored)
    bounds: Bounds | None = None
    match column.domain:
        case Period():
            kind, bounds = "integer", (column.domain.span.low, column.domain.span.high)
        case Bins(edges):
            kind, bounds = "integer" if kind == "integer" else "number", (edges[0], edges[-1])
        case IntegerRange(low, high):
            kind, bounds = "integer", (low, high)
        case Values(values) if not isinstance(values[0], str):
            kind, bounds = "integer", (min(values), max(values))  # type: ignore[assignment]
        case None if (column.bounds is not None or column.private_bounds) and kind == "text":
            kind = "number"
        case None if column.format is not None and kind != "date":
            kind, stored = "date", pa.timestamp("us")
        case None if column.dates is not None and kind == "text":
            kind, stored = "date", pa.timestamp("us")
    described = column if column.domain is not None else None
    plain = stored if kind == _kind(source.stored.get(first, "text")) or kind == "date" else None
    moments = None
    if column.dates is not None:
        begin, end = (datetime.combine(each, time()) for each in column.dates)
        moments = begin, end + timedelta(days=1)
    return Field(
        name=name,
        kind=kind,
        bounds=column.bounds or bounds,
        column=described,
        type=plain,
        moments=moments,
        is_private=column.private_bounds,
    )


def _kind(stored: str) -> Kind:
    return stored if stored in ("integer", "number", "boolean", "date") else "text"  # type: ignore[return-value]


def _resolve_rows(query: exp.Select, catalog: Catalog, ctes: Mapping[str, Relation]) -> Relation:
    """An inner select: one output row per input row, with its individual carried along."""
    clauses = ("DISTINCT", "GROUP BY", "HAVING", "LIMIT", "OFFSET", "ORDER BY")
    refuse_clauses(query, clauses, "in an inner query; inner queries choose and compute columns, row by row")
    relation = resolve_sources(query, catalog, ctes)
    projections: list[exp.Expr] = []
    fields: dict[str, Field] = {}
    for item in expand_star(query, relation):
        name = item.alias_or_name
        inner = item.unalias()
        if _is_reserved(name):
            raise refuse(f"an inner query may not name a column {name!r}")
        if not name:
            raise refuse(f"name the column {item.sql()[:60]!r} of the inner query with AS")
        if any(True for _ in find_aggregates(inner)):
            raise refuse("an aggregate in an inner query; only the outermost select list aggregates")
        checked = qualify(inner, relation, where="an inner select list")
        projections.append(exp.alias_(checked, name, quoted=True))
        derived = _derive(name, checked, relation)
        if isinstance(checked, exp.Column) and derived.column is not None:
            code = exp.column(code_name(checked.name), table=checked.table, quoted=True)
            projections.append(exp.alias_(code, code_name(name), quoted=True))
        if name.lower() in fields:
            raise refuse(f"the inner query has two columns named {name!r}")
        fields[name.lower()] = derived
    if relation.unit is not None:
        unit = exp.column(UNIT, table=relation.unit_alias, quoted=True)
        projections.append(exp.alias_(unit, UNIT, quoted=True))
    return replace(relation, tree=relation.tree.select(*projections), fields={"": fields})


def _derive(name: str, node: exp.Expr, relation: Relation) -> Field:
    """What is known of an expression: its kind, its bounds, and its domain if it is a bare column."""
    if isinstance(node, exp.Column):
        return replace(relation.field(node), name=name)
    period = derive_period(node, relation)
    if period is not None:
        return replace(period, name=name)
    labels = finite_labels(node)
    if labels is None and not relation.uses_unit(node):
        found = read_labels(node, relation)
        labels = (
            found[0] if found is not None and found[2] is None and len(found[0]) <= _MOST_LABELS else None
        )
    bounds = bounds_of(node, relation)
    if bounds is not None:
        kind_of_number: Kind = "integer" if is_whole(node, relation) else "number"
        numbered = labels is not None and not any(isinstance(each, (str, bool)) for each in labels)
        return Field(name=name, kind=kind_of_number, bounds=bounds, labels=labels if numbered else None)
    if labels is not None and not isinstance(labels[0], bool):
        return Field(name=name, kind="text" if isinstance(labels[0], str) else "integer", labels=labels)
    kind: Kind = "unknown"
    if isinstance(node, (exp.Predicate, exp.And, exp.Or, exp.Not)):
        kind = "boolean"
    elif isinstance(node, exp.Cast):
        kind = CAST_KINDS.get(node.to.this.name, "unknown")
    return Field(name=name, kind=kind)


def _wrap(relation: Relation, alias: str) -> Relation:
    """A finished row-level select as a source of its own."""
    ((_, fields),) = relation.fields.items()
    return replace(
        relation,
        tree=exp.Select().from_(exp.Subquery(this=relation.tree.copy(), alias=_alias(alias))),
        fields={alias: fields},
        unit_alias=alias if relation.unit is not None else None,
    )


def _join(left: Relation, right: Relation, join: exp.Join) -> Relation:
    """The relation of rows of `left` and `right` that match, each with its one individual."""
    side, method = (join.side or "").upper(), (join.kind or "").upper()
    if method not in ("", "INNER", "OUTER") or side in ("RIGHT", "FULL") or join.method:
        raise refuse("JOIN and LEFT JOIN are supported, with ON or USING")
    if set(left.fields) & set(right.fields):
        raise refuse("two tables of a join have the same name; give one another with AS")
    if side == "LEFT" and left.unit is None and right.unit is not None:
        raise refuse("LEFT JOIN from a public to a private table; put the private table first")
    joined = replace(left, fields={**left.fields, **right.fields})
    pairs = _read_pairs(join, left, right, joined)
    both = left.unit is not None and right.unit is not None
    units = {left.unit_alias, right.unit_alias}
    if both and not any(_matches_units(pair, joined, units, join) for pair in pairs):
        raise refuse(
            "a join of private tables must match their units (ON a.unit = b.unit): otherwise a row would "
            "belong to two individuals"
        )
    matches = [_match(one, other, joined) for one, other in pairs]
    if both:
        # What the statement compares may be a copy that lost something, so the units are compared too.
        one, other = (exp.column(UNIT, table=each.unit_alias, quoted=True) for each in (left, right))
        matches.append(_equal(one, other, "VARCHAR"))
    return Relation(
        tree=left.tree.join(
            right.tree.args["from_"].this,
            on=exp.and_(*matches),
            join_type="LEFT" if side == "LEFT" else "INNER",
        ),
        fields=joined.fields,
        unit=_join_units(left.unit, right.unit),
        unit_alias=left.unit_alias or right.unit_alias,
        tables=left.tables + right.tables,
        joined=True,
    )


def _read_pairs(
    join: exp.Join, left: Relation, right: Relation, joined: Relation
) -> list[tuple[exp.Expr, exp.Expr]]:
    """What is compared with what in ON or USING; another condition is paired with itself."""
    using, on = join.args.get("using") or [], join.args.get("on")
    if using:
        columns = [exp.column(name.name) for name in using]
        return [
            (qualify(column, left, where="USING"), qualify(column, right, where="USING"))
            for column in columns
        ]
    if on is None:
        raise refuse("a join without ON or USING multiplies records without a bound")
    condition = qualify(on, joined, where="ON")
    return [
        (part.this.unnest(), part.expression.unnest()) if isinstance(part, exp.EQ) else (part, part)
        for part in _list_conditions(condition)
    ]


def _list_conditions(condition: exp.Expr) -> list[exp.Expr]:
    """What stands between the ANDs of a condition, without the brackets that some tools put around it."""
    condition = condition.unnest()
    if not isinstance(condition, exp.And):
        return [condition]
    return [part for each in condition.flatten() for part in _list_conditions(each)]


def _matches_units(
    pair: tuple[exp.Expr, exp.Expr], joined: Relation, units: set[str | None], join: exp.Join
) -> bool:
    """Whether the unit of the left relation is compared with that of the right one."""
    sides = [joined.find(side) for side in pair if isinstance(side, exp.Column)]
    aliases = {alias for alias, _ in sides}
    # USING always takes one column of each side.
    return all(found.is_unit for _, found in sides) and bool(join.args.get("using") or aliases == units)


def _match(one: exp.Expr, other: exp.Expr, joined: Relation) -> exp.Expr:
    """The equality of two columns of one kind: a hash join, and no conversion that could fail."""
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        raise refuse("ON takes equalities of columns (a.x = b.y AND ...); put other conditions into WHERE")
    kinds = {joined.field(one).kind, joined.field(other).kind}
    kinds = {"number"} if kinds == {"integer", "number"} else kinds
    if len(kinds) > 1 or "unknown" in kinds:
        text = f"{one.sql()} = {other.sql()}"[:80]
        raise refuse(f"a join compares columns of different types: {text}; cast one in an inner query")
    return _equal(one, other, _COMMON_TYPES[kinds.pop()])


def _equal(one: exp.Expr, other: exp.Expr, kind: str) -> exp.Expr:
    """Both sides converted, by a conversion that cannot fail, so that none happens on its own."""
    left, right = (exp.TryCast(this=each.copy(), to=exp.DataType.build(kind)) for each in (one, other))
    return exp.EQ(this=left, expression=right)


def _join_units(left: PrivacyUnit | None, right: PrivacyUnit | None) -> PrivacyUnit | None:
    if left is None or right is None:
        return left or right
    if left.column is None or right.column is None or left.neighbours != right.neighbours:
        raise refuse("joined private tables need a unit column each, and the same neighbours")
    return replace(left, max_records=max(left.max_records, right.max_records))
