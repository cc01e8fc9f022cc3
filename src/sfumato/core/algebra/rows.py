"""Rows that statements ask about: a small algebra in which every row is of one individual, or of nobody.

Each record below states which rows it stands for. By induction, the rows of an individual are a function of
the records of that individual and of public tables: docs/proofs/algebra.md, claims 3 to 9. Whoever makes such
a tree is not trusted: `read_shape` derives from the described tables whom the rows are of and how many of one
individual there may be, and refuses what cannot be bounded. The individual of a row has no name here, so that
no expression can look at it or replace it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from sfumato.core.algebra.expressions import CAST_KINDS, check_expression
from sfumato.core.errors import refuse
from sfumato.core.facts.table import UNIT, PrivacyUnit, PublicTable, Table

FOUND = "found"
"""The column that says, beside a row, that rows were found which it was looked for among."""

Sign = Literal["<>", "<", "<=", ">", ">="]

_LARGEST_FIXED = 2**52


@dataclass(frozen=True, slots=True)
class Scan:
    """The records of one table under an alias: of a private table each is of its individual (claim 3)."""

    table: str
    alias: str


@dataclass(frozen=True, slots=True)
class Named:
    """The rows of an inner query under an alias: whose a row is does not change."""

    rows: Listed
    alias: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two columns that must be equal once both are converted to `kind`, by a conversion that never fails."""

    one: exp.Column
    other: exp.Column
    kind: str


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which a condition over each of them holds (claim 4)."""

    rows: Rows
    condition: exp.Expr


@dataclass(frozen=True, slots=True)
class Join:
    """Rows beside rows that match; with `outer` those too that match none.

    With a public table a row keeps its individual (claim 5). Of two private sides only rows of the same
    individual match, whatever `pairs` say (claim 6): that is added to what runs.
    """

    left: Rows
    right: Scan | Named
    pairs: tuple[Pair, ...]
    outer: bool = False


@dataclass(frozen=True, slots=True)
class Among:
    """All rows, each with whether there are `others` that match it, as FOUND of `alias` (claim 8).

    Of people's records only those of the individual of the row itself are looked at, of these those that
    match by `pairs`; public ones by `pairs` alone. With `apart`, one of these differs from the row by `sign`.
    """

    rows: Rows
    others: Rows
    pairs: tuple[Pair, ...]
    alias: str
    apart: Pair | None = None
    sign: Sign = "<>"


@dataclass(frozen=True, slots=True)
class Item:
    """A column by its name, and the expression over one row that gives it."""

    name: str
    tree: exp.Expr


@dataclass(frozen=True, slots=True)
class Project:
    """A row for every row, with columns that are computed of that row alone (claim 4)."""

    rows: Rows
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A value of a record; a `plain` one is a number that is never NaN, and zero in one way only."""

    tree: exp.Expr
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of an individual's records, or of those with a value, or of its different values."""

    of: Operand | None = None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Tested:
    """Whether a condition holds for any, or for every record of an individual."""

    of: exp.Expr
    every: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """The sum of values clamped to [low, high] and rounded to steps of 1 / grid, or their mean."""

    of: exp.Expr
    low: Fraction
    high: Fraction
    grid: int
    mean: bool = False

    def __post_init__(self) -> None:
        if self.grid < 1 or max(abs(self.low), abs(self.high)) * self.grid > _LARGEST_FIXED:
            raise refuse("a sum of one individual's records beyond 2^52 steps")


@dataclass(frozen=True, slots=True)
class Picked:
    """The value of the record that comes first, or `last`, by `order` and then by the value itself.

    With a `code` a record may have no value, since its order ends in the value that the code stands for.
    """

    of: Operand
    order: tuple[Operand, ...] = ()
    last: bool = False
    code: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A number of an individual held to public bounds."""

    of: Counted | Added
    low: Fraction
    high: Fraction


Gathered = Counted | Tested | Added | Picked | Held


@dataclass(frozen=True, slots=True)
class Individuals:
    """One row for each individual, or one for each of its `keys`: a function of its records (claim 7)."""

    rows: Rows
    keys: tuple[tuple[str, Operand], ...]
    results: tuple[tuple[str, Gathered], ...]

    @property
    def alone(self) -> bool:
        """Whether an individual has one row at most."""
        return not self.keys


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of all parts; the rows of an individual are those of it in each part (claim 9)."""

    parts: tuple[Project, ...]


Listed = Project | Individuals | Union
Rows = Scan | Named | Filter | Join | Among
Tables = Mapping[str, Table | PublicTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the core derives of rows: whose they are, and how an individual's are bounded.

    `unit` is None of public rows, and else has the most rows that count of one individual. The rows are
    those of one table, or else they are `joined`: made of several, or of groups of records, and bounded after
    all that. What is `multiplied` by a join has at most max_records records of an individual enter it. Of
    `individuals` there is one row for each. `tables` are all that are read, `private` those of people's
    records, and `alias` is where the individual of a row is found.
    """

    unit: PrivacyUnit | None
    alias: str | None
    tables: tuple[str, ...]
    private: tuple[str, ...]
    scope: Mapping[str, frozenset[str] | None]
    joined: bool = False
    multiplied: bool = False
    individuals: bool = False

    @property
    def numbered(self) -> bool:
        """Whether there is one row for each individual of one table, who is known by a number."""
        return self.individuals and not self.joined


def read_shape(node: Rows | Listed, tables: Tables) -> Shape:
    """Return what follows of rows from the described `tables`; refuses what cannot be bounded."""
    match node:
        case Scan():
            if node.table not in tables:
                raise refuse(f"no table {node.table[:80]!r} is described")
            table, alias = tables[node.table], node.alias
            private = isinstance(table, Table)
            if isinstance(table, Table) and table.unit.period is not None:
                raise refuse("statements are answered for whole individuals, not for their periods")
            return Shape(
                unit=table.unit if isinstance(table, Table) else None,
                alias=alias if private else None,
                tables=(node.table,),
                private=(node.table,) if private else (),
                scope={alias: None},
            )
        case Named():
            inner = read_shape(node.rows, tables)
            alias = node.alias
            offered = frozenset(_list_names(node.rows))
            return replace(inner, alias=alias if inner.unit else None, scope={alias: offered})
        case Filter():
            return read_shape(node.rows, tables)
        case Join():
            return _join(node, read_shape(node.left, tables), read_shape(node.right, tables))
        case Among():
            return _look_among(node, read_shape(node.rows, tables), read_shape(node.others, tables))
        case Project():
            return read_shape(node.rows, tables)
        case Individuals():
            return _group(node, read_shape(node.rows, tables))
        case Union():
            if len({tuple(_list_names(each)) for each in node.parts}) > 1:
                raise refuse("UNION ALL of queries whose columns differ")
            return _unite([read_shape(each, tables) for each in node.parts])


def check_rows(node: Rows | Listed, tables: Tables) -> Shape:
    """Return the shape of rows after every expression in them was checked where it stands."""
    shape = read_shape(node, tables)
    for part in walk_rows(node):
        names = [each for each, _ in list_named(part)]
        # The database tells no capitals from small letters.
        plain = {name.lower() for name in names}
        if len(plain) < len(names) or UNIT in plain:
            raise refuse("an inner query with two columns of one name, or one of a name that is kept")
        for pair in list_pairs(part) if isinstance(part, Join | Among) else ():
            columns = isinstance(pair.one, exp.Column) and isinstance(pair.other, exp.Column)
            if not columns or pair.kind not in CAST_KINDS:
                raise refuse("rows that meet by what are no columns, or are compared as an unknown type")
        for rows, tree in list_expressions(part):
            check_in_scope(tree, read_shape(rows, tables).scope)
    return shape


def check_in_scope(tree: exp.Expr, scope: Mapping[str, frozenset[str] | None]) -> None:
    """Raises a refusal unless `tree` is an expression over the rows of `scope` that names no individual."""
    check_expression(tree, where="a statement")
    for column in tree.find_all(exp.Column):
        offered, lowered = scope.get(column.table, frozenset()), column.name.lower()
        known = column.name in offered if offered is not None else not lowered.endswith(" of sfumato")
        if not known or lowered == UNIT:
            raise refuse(f"no column {column.name[:80]!r} of {column.table[:80]!r}")


def walk_rows(node: Rows | Listed) -> Iterator[Rows | Listed]:
    """All parts of a tree, from the outermost on."""
    yield node
    for child in list_children(node):
        yield from walk_rows(child)


def list_children(node: Rows | Listed) -> tuple[Rows | Listed, ...]:
    """The parts that a part is made of."""
    match node:
        case Scan():
            return ()
        case Join():
            return (node.left, node.right)
        case Among():
            return (node.rows, node.others)
        case Union():
            return node.parts
        case _:
            return (node.rows,)


def list_expressions(node: Rows | Listed) -> Iterator[tuple[Rows, exp.Expr]]:
    """The expressions of one part, each with the rows that it is over."""
    match node:
        case Filter():
            yield node.rows, node.condition
        case Project():
            for item in node.items:
                yield node.rows, item.tree
        case Individuals():
            for _, key in node.keys:
                yield node.rows, key.tree
            for _, result in node.results:
                for tree in list_operands(result):
                    yield node.rows, tree
        case Join() | Among():
            for pair in list_pairs(node):
                yield (node if isinstance(node, Join) else node.rows), pair.one
                yield (node if isinstance(node, Join) else node.others), pair.other


def list_pairs(node: Join | Among) -> tuple[Pair, ...]:
    """The columns that are compared where rows meet."""
    apart = node.apart if isinstance(node, Among) else None
    return node.pairs if apart is None else (*node.pairs, apart)


def list_operands(result: Gathered) -> Iterator[exp.Expr]:
    """The expressions over a record that a result is made of."""
    match result:
        case Held():
            yield from list_operands(result.of)
        case Picked():
            yield from (each.tree for each in (result.of, *result.order))
        case Counted():
            yield from () if result.of is None else (result.of.tree,)
        case _:
            yield result.of


def list_named(node: Rows | Listed) -> list[tuple[str, exp.Expr | Operand | Gathered]]:
    """The columns that a part gives names to."""
    if isinstance(node, Project):
        return [(item.name, item.tree) for item in node.items]
    return [*node.keys, *node.results] if isinstance(node, Individuals) else []


def _list_names(node: Listed) -> list[str]:
    return _list_names(node.parts[0]) if isinstance(node, Union) else [name for name, _ in list_named(node)]


def _scopes(left: Shape, scope: Mapping[str, frozenset[str] | None]) -> Mapping[str, frozenset[str] | None]:
    if set(left.scope) & set(scope):
        raise refuse("two tables of a join have the same name; give one another with AS")
    return {**left.scope, **scope}


def _match_units(one: PrivacyUnit, other: PrivacyUnit) -> None:
    if one.column is None or other.column is None or one.neighbours != other.neighbours:
        raise refuse("joined private tables need a unit column each, and the same neighbours")


def _join(node: Join, left: Shape, right: Shape) -> Shape:
    if node.outer and left.unit is None and right.unit is not None:
        raise refuse("LEFT JOIN from a public to a private table; put the private table first")
    unit = left.unit or right.unit
    if left.unit is not None and right.unit is not None:
        _match_units(left.unit, right.unit)
        unit = replace(left.unit, max_records=max(left.unit.max_records, right.unit.max_records))
    return Shape(
        unit=unit,
        alias=left.alias or right.alias,
        tables=left.tables + right.tables,
        private=tuple(dict.fromkeys(left.private + right.private)),
        scope=_scopes(left, right.scope),
        joined=True,
        multiplied=True,
    )


def _look_among(node: Among, rows: Shape, others: Shape) -> Shape:
    if others.unit is None and not node.pairs:
        raise refuse("rows are looked for among public ones by equalities of columns")
    if others.unit is not None and rows.unit is None:
        raise refuse("among people's records only those of the row's own individual are looked at")
    if others.unit is not None and rows.unit is not None:
        _match_units(rows.unit, others.unit)
    return replace(
        rows,
        tables=rows.tables + others.tables,
        private=tuple(dict.fromkeys(rows.private + others.private)),
        scope=_scopes(rows, {node.alias: frozenset([FOUND])}),
        joined=rows.joined or others.unit is not None,
        multiplied=rows.multiplied or others.multiplied,
    )


def _group(node: Individuals, rows: Shape) -> Shape:
    if rows.unit is None or rows.unit.column is None:
        raise refuse("records are put together for individuals that a column names")
    several = rows.multiplied or len(rows.private) > 1
    return replace(
        rows,
        unit=replace(rows.unit, max_records=1, max_groups=None) if node.alone else rows.unit,
        joined=several or not node.alone,
        individuals=node.alone,
    )


def _unite(parts: list[Shape]) -> Shape:
    known = [part.unit for part in parts if part.unit is not None]
    if known and len(known) < len(parts):
        raise refuse("UNION ALL of people's records with a public table: its rows would be nobody's")
    for unit in known:
        _match_units(known[0], unit)
    groups = [unit.max_groups or unit.max_records for unit in known]
    limited = any(unit.max_groups is not None for unit in known)
    return Shape(
        unit=replace(
            known[0],
            max_records=sum(unit.max_records for unit in known),
            max_groups=sum(groups) if limited else None,
        )
        if known
        else None,
        alias=None,
        tables=tuple(name for part in parts for name in part.tables),
        private=tuple(dict.fromkeys(name for part in parts for name in part.private)),
        scope={},
        joined=True,
        multiplied=any(part.multiplied for part in parts),
    )
