"""What a query can name: tables, their columns, and what is known of the expressions over them.

A relation keeps the individual of every row through all joins and inner queries, so that the engine can hold
each individual to its bounds. A column with a public domain is
offered twice, as stored and by the code of its label.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from sfumato.core.algebra.rows import (
    Among,
    Filter,
    Join,
    Listed,
    Named,
    Rows,
    Scan,
    Shape,
    Tables,
    read_shape,
)
from sfumato.core.algebra.writing import Writer
from sfumato.core.engine.opening import TEXT_FILES
from sfumato.core.errors import refuse
from sfumato.core.facts.column import Column, suggest_name
from sfumato.core.facts.domain import Bins, IntegerRange, Label, Period, Values
from sfumato.core.facts.table import UNIT, PrivacyUnit, PublicTable, Table, code_name
from sfumato.sql.check import finite_labels, list_conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.core.algebra.expressions import Kind

Bounds = tuple[Fraction | int, Fraction | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column as a query sees it.

    `column` is its description if it has a public domain, whose codes the engine offers. The `labels` of
    a column of a public table are its values. `type` is how it is stored, if that is known;
    `moments` are from when to before when dates lie, by public knowledge or the statement's own conditions;
    with a `period`, they are beginnings of such. What is `counted` is a whole number within its bounds,
    and `is_private` says that bounds are to be chosen. What is `written` is text because its whole file is.
    `origin` are the table and the stored column it is, `refers_to` those that it holds keys of; if these are
    the individuals it `names_unit`.
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
    counted: bool = False
    origin: tuple[str, str] | None = None
    refers_to: tuple[str, str] | None = None
    names_unit: bool = False
    is_private: bool = False
    written: bool = False

    @property
    def is_borrowed(self) -> bool:
        """Whether it is the individual of a table that only refers to it; another table has the column."""
        return self.is_unit and self.origin is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that can be named in FROM: its description, and the kinds of its stored columns.

    The `labels` of a public table are the values of its columns, and `bounds` those of its numbers, which are
    public too. `types` has how columns are stored, in more detail than their kinds.
    """

    name: str
    stored: Mapping[str, str]
    table: Table | None = None
    labels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    bounds: Mapping[str, tuple[Fraction, Fraction]] = field(default_factory=dict)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)


Catalog = dict[str, Source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What FROM and WHERE describe: rows, and the columns that they offer.

    `shape` is what the core derives of the rows from the `described` tables. `unit` is whom they are of, with
    the bound of a statement. `chosen` are bounds that were chosen privately, by the text of their operand,
    and `listed` are the only values that conditions leave of an expression, by its text.
    """

    rows: Rows | Listed
    fields: Mapping[str, Mapping[str, Field]]
    described: Tables
    shape: Shape
    unit: PrivacyUnit | None
    chosen: Mapping[str, tuple[Fraction, Fraction]] = field(default_factory=dict)
    listed: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)

    @property
    def beside(self) -> Rows:
        """The rows, to which others can be joined: they are no list of columns yet."""
        assert isinstance(self.rows, Scan | Named | Filter | Join | Among)
        return self.rows

    @property
    def tree(self) -> exp.Select:
        """The rows as a query without a select list, as they are meant and not as they run."""
        return Writer(self.described, total=lambda tree: tree.copy()).select(self.beside)

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables that are read."""
        return self.shape.tables

    @property
    def private(self) -> tuple[str, ...]:
        """The tables of people's records."""
        return self.shape.private

    @property
    def joined(self) -> bool:
        """Whether rows are made of several tables, or of groups of records."""
        return self.shape.joined

    @property
    def individuals(self) -> bool:
        """Whether there is one row for each individual."""
        return self.shape.individuals

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
            found = [each for each in found if not each[1].is_borrowed] or found[:1]
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


def count_values(tree: exp.Expr, relation: Relation) -> Fraction:
    """How many values of an expression are public; 0 if that is not known."""
    if not isinstance(tree, exp.Column):
        return Fraction(len(finite_labels(tree) or ()))
    field = relation.field(tree)
    return Fraction(len(field.labels or ()) if field.column is None else field.column.size)


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
        case exp.Sub(this=exp.Column() as one, expression=exp.Column() as other):
            pair = [relation.field(each) for each in (one, other)]
            (begin, end), (first, last) = (each.moments or (None, None) for each in pair)
            if all(each.kind == "date" for each in pair) and begin and end and first and last:
                day = timedelta(days=1)  # moments are before their end
                return Fraction((begin - last + day).days), Fraction((end - first - day).days)
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


def read_table(source: Source, alias: str) -> Relation:
    """The relation of all rows of one table."""
    fields = {
        name.lower(): Field(
            name=name,
            kind=_kind(kind),
            bounds=source.bounds.get(name),
            labels=source.labels.get(name),
            type=source.types.get(name),
        )
        for name, kind in source.stored.items()
    }
    if any(is_reserved(name) for name in fields):
        raise refuse(f"table {source.name!r} has a column named {UNIT!r} or {code_name('...')!r}; rename it")
    if source.table is not None:
        unit = source.table.unit
        for name, column in source.table.columns.items():
            fields[name.lower()] = describe_field(name, column, source)
        for name in source.stored:
            key = name.lower()
            written = source.table.source.lower().endswith(TEXT_FILES)
            fields[key] = replace(fields[key], origin=(source.name.lower(), key), written=written)
        if unit.column is not None:
            name = unit.column.lower()
            # Along a reference the individual is a column that no file has: it is of the other table.
            own = source.table.reference is None
            fields[name] = replace(fields[name], is_unit=True, origin=fields[name].origin if own else None)
        reference = source.table.reference
        if reference is not None:
            key = reference.column.lower()
            fields[key] = replace(
                fields[key],
                refers_to=(reference.table.name.lower(), reference.key.lower()),
                names_unit=key in list_unit_names(source.table),
            )
    described = source.table or PublicTable(name=source.name, source="")
    return relate(Scan(source.name, alias), {alias: fields}, {source.name: described})


def list_unit_names(table: Table) -> set[str]:
    """The columns of a table that say whose a row is, in lower case: the unit, and a reference to it."""
    unit, reference = (table.unit.column or "").lower(), table.reference
    own = reference is not None and reference.table.reference is None and reference.key.lower() == unit
    return {unit, *([reference.column.lower()] if reference is not None and own else [])}


def relate(rows: Rows | Listed, fields: Mapping[str, Mapping[str, Field]], *described: Tables) -> Relation:
    """The relation of rows of `described` tables that offer these columns."""
    known = {name: table for each in described for name, table in each.items()}
    shape = read_shape(rows, known)
    return Relation(rows=rows, fields=fields, described=known, shape=shape, unit=shape.unit)


def labels_of(node: exp.Expr, relation: Relation) -> tuple[Label | bool, ...] | None:
    """The values that the form of an expression, its columns or conditions allow, if they are public."""
    known = finite_labels(node) or relation.listed.get(node.sql())
    node = node.unnest()
    if known is not None or not isinstance(node, (exp.Case, exp.Coalesce)):
        return known
    found: dict[Label | bool, None] = {}
    for part in _operands(node):
        part = part.unnest()
        field = relation.field(part) if isinstance(part, exp.Column) else None
        labels: tuple[Label, ...] | None = None
        if isinstance(part, exp.Literal) and part.is_string:
            labels = (part.name,)
        if field is not None and not field.is_drafted:
            labels = field.labels if field.column is None else field.column.labels
        if labels is None or not all(isinstance(each, str) for each in labels):
            return None
        found |= dict.fromkeys(labels)
    return tuple(sorted(found, key=str)) or None


def list_values(condition: exp.Expr, relation: Relation) -> Relation:
    """The relation with the values that `x IN (...)` and `x = ...` of its conditions leave of x."""
    listed = dict(relation.listed)
    for part in list_conditions(condition):
        match part:
            case exp.In() if part.expressions:
                values = part.expressions
            case exp.EQ():
                values = [part.expression]
            case _:
                continue
        kinds = {(each.is_string, each.is_int) for each in values if isinstance(each, exp.Literal)}
        if all(isinstance(each, exp.Literal) for each in values) and kinds in (
            {(True, False)},
            {(False, True)},
        ):
            labels = (each.name if each.is_string else int(each.name) for each in values)
            listed.setdefault(part.this.unnest().sql(), tuple(sorted(dict.fromkeys(labels))))
    return replace(relation, listed=listed)


def is_reserved(name: str) -> bool:
    """Whether a name is kept for columns that no statement may name."""
    return name.lower() == UNIT or name.lower().startswith(code_name(""))


def describe_field(name: str, column: Column, source: Source) -> Field:
    """A described column of a table as a query sees it."""
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
        case Values() if column.calendar is not None:
            kind = "text"
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


def hint_column(node: exp.Column, fields: Mapping[str, Mapping[str, Field]]) -> str:
    """What to say behind a name that is no column. Only described names are told.

    A text file without a header line has records for names.
    """
    found = [each for named in fields.values() for each in named.values()]
    described = [each for each in found if each.column is not None or each.bounds is not None or each.moments]
    select = node.find_ancestor(exp.Select)
    items = [] if select is None or node.find_ancestor(exp.Where) is None else select.expressions
    if any(item.alias.lower() == node.name.lower() and item.find(exp.AggFunc) for item in items):
        return "; it is computed of groups, and conditions about groups stand in HAVING"
    if node.table and node.table.lower() not in fields:
        listed = suggest_name(node.table, fields, word="there are")
        return f": no table is called {node.table[:80]!r} here{listed}"
    values = {
        str(value).casefold(): value
        for each in described
        if each.column is not None and isinstance(each.column.domain, Values)
        for value in each.column.domain.values
    }
    if node.name.casefold() in values:
        return f"; it is a value, and text stands in single quotes: '{values[node.name.casefold()]}'"
    names = sorted({each.name for each in described})
    listed = suggest_name(node.name, names, word="described")
    if node.this.meta.get("quoted"):
        near = difflib.get_close_matches(node.name.casefold(), [name.casefold() for name in names], n=1)
        return listed if near else f"; double quotes are around names, text stands in single quotes{listed}"
    return listed
