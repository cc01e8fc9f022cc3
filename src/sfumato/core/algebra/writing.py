"""How rows are written for the database: from checked parts, each expression in a form that never fails.

What an inner query asks of each individual's records is a function of the multiset of its values: sums are of
whole numbers, which no order of addition changes, and where records tie the value itself decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sqlglot
from sqlglot import exp

from sfumato.core.algebra.expressions import make_total, shield
from sfumato.core.algebra.rows import (
    FOUND,
    Added,
    Among,
    Counted,
    Filter,
    Gathered,
    Held,
    Individuals,
    Join,
    Listed,
    Named,
    Operand,
    Pair,
    Picked,
    Rows,
    Scan,
    Shape,
    Sign,
    Tables,
    Tested,
    Union,
    read_shape,
    walk_rows,
)
from sfumato.core.facts.table import UNIT, Table

_ENDS: dict[str, type[exp.Expr]] = {"least": exp.Min, "most": exp.Max}
_SIGNS: dict[Sign, tuple[tuple[type[exp.Expr], str], ...]] = {
    "<>": ((exp.NEQ, "least"), (exp.NEQ, "most")),
    "<": ((exp.LT, "most"),),
    "<=": ((exp.LTE, "most"),),
    ">": ((exp.GT, "least"),),
    ">=": ((exp.GTE, "least"),),
}


def quote(name: str) -> exp.Identifier:
    """Return a name as an identifier in quotes."""
    return exp.to_identifier(name, quoted=True)


def equal(one: exp.Expr, other: exp.Expr, kind: str) -> exp.Expr:
    """Return that both sides are equal once converted, by a conversion that cannot fail."""
    return exp.EQ(this=_convert(one, kind), expression=_convert(other, kind))


def _convert(value: exp.Expr, kind: str) -> exp.Expr:
    return exp.TryCast(this=value.copy(), to=exp.DataType.build(kind))


def _differ(apart: Pair, sign: Sign, alias: str) -> exp.Expr:
    """That a value is different from one of those between the ends, or less or more."""
    value = _convert(apart.one, apart.kind)
    tests = [kind(this=value.copy(), expression=_column(end, alias)) for kind, end in _SIGNS[sign]]
    return exp.paren(exp.or_(*tests))


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes rows of described `tables`.

    `find` gives the relation that holds the records of a table: those of the table as it enters a join, or if
    it is told True all of them. `total` makes an expression over a record one that never fails.
    """

    tables: Tables
    find: Callable[[str, bool], str] = lambda name, _whole: name
    total: Callable[[exp.Expr], exp.Expr] = lambda tree: shield(make_total(tree))

    def select(self, node: Rows, *, whole: bool = False) -> exp.Select:
        """Return a query without a select list for rows; with `whole`, all records of tables are read."""
        tree = exp.Select()
        match node:
            case Scan() | Named():
                return tree.from_(self._source(node, whole=whole))
            case Filter():
                return self.select(node.rows, whole=whole).where(self._value(node.condition), append=True)
            case Join():
                tree = self.select(node.left, whole=whole)
                matches = [self._match(pair) for pair in node.pairs]
                left, right = self._shape(node.left), self._shape(node.right)
                if left.unit is not None and right.unit is not None:
                    matches.append(self._same_individual(left.alias, right.alias))
                source = self._source(node.right, whole=whole)
                on = exp.and_(*matches) if matches else exp.true()
                return tree.join(source, on=on, join_type="LEFT" if node.outer else "INNER")
            case Among():
                return self._look_among(node, whole=whole)

    def rows(self, node: Listed, *, whole: bool = False, text: bool = False) -> exp.Select | exp.Union:
        """Return a query for the rows of an inner query, each with its individual; as `text` in a union."""
        if isinstance(node, Union):
            union: exp.Select | exp.Union = self.rows(node.parts[0], whole=whole, text=True)
            for part in node.parts[1:]:
                other = self.rows(part, whole=whole, text=True)
                union = exp.Union(this=union, expression=other, distinct=False)
            return union
        if isinstance(node, Individuals):
            return self._group(node, whole=whole)
        items = [exp.alias_(self._value(item.tree), item.name, quoted=True) for item in node.items]
        shape = self._shape(node)
        if shape.unit is not None:
            unit: exp.Expr = self._unit(shape.alias)
            if text:
                unit = exp.TryCast(this=unit, to=exp.DataType.build("VARCHAR"))
            items.append(exp.alias_(unit, UNIT, quoted=True))
        return self.select(node.rows, whole=whole).select(*items or [exp.Literal.number(1)], append=False)

    def _shape(self, node: Rows | Listed) -> Shape:
        return read_shape(node, self.tables)

    def _source(self, node: Scan | Named, *, whole: bool) -> exp.Expr:
        alias = exp.TableAlias(this=quote(node.alias))
        if isinstance(node, Named):
            return exp.Subquery(this=self.rows(node.rows, whole=whole), alias=alias)
        return exp.Table(this=quote(self.find(node.table, whole)), alias=alias)

    def _look_among(self, node: Among, *, whole: bool) -> exp.Select:
        others, alias = self._shape(node.others), node.alias
        values = [
            exp.alias_(_convert(pair.other, pair.kind), f"value {place}", quoted=True)
            for place, pair in enumerate(node.pairs)
        ]
        on = [
            self._match(Pair(pair.one, _column(f"value {place}", alias), pair.kind))
            for place, pair in enumerate(node.pairs)
        ]
        if others.unit is not None:
            values.append(exp.alias_(self._unit(others.alias), UNIT, quoted=True))
            on.append(self._same_individual(self._shape(node.rows).alias, alias))
            whole_others = whole or not has_joins(node.others)
        else:
            whole_others = False
        # What is found is listed once, so that each row meets one of it at most: nothing is multiplied.
        found = exp.alias_(exp.true(), FOUND, quoted=True)
        source = self.select(node.others, whole=whole_others).select(*values, found)
        if node.apart is None:
            source = source.distinct()
        else:
            # One that differs is there if the least or the largest does, one that is more if the largest is.
            apart = _convert(node.apart.other, node.apart.kind)
            ends = [exp.alias_(kind(this=apart.copy()), name, quoted=True) for name, kind in _ENDS.items()]
            places = [exp.Literal.number(place) for place in range(1, len(values) + 2)]
            source = source.select(*ends).group_by(*places)
            on.append(_differ(node.apart, node.sign, alias))
        inner = exp.Subquery(this=source, alias=exp.TableAlias(this=quote(alias)))
        return self.select(node.rows, whole=whole).join(inner, on=exp.and_(*on), join_type="LEFT")

    def _group(self, node: Individuals, *, whole: bool) -> exp.Select:
        whole = whole or (node.alone and not has_joins(node.rows))
        shape = self._shape(node.rows)
        keys = [exp.alias_(self._unit(shape.alias), UNIT, quoted=True)]
        keys += [exp.alias_(self._parse(self._operand(key)), name, quoted=True) for name, key in node.keys]
        results = [
            exp.alias_(self._parse(self._gather(each)), name, quoted=True) for name, each in node.results
        ]
        places = [exp.Literal.number(place) for place in range(1, len(keys) + 1)]
        return self.select(node.rows, whole=whole).select(*keys, *results).group_by(*places)

    def _value(self, tree: exp.Expr) -> exp.Expr:
        return tree.copy() if isinstance(tree, exp.Column) else self.total(tree)

    def _match(self, pair: Pair) -> exp.Expr:
        return shield(equal(pair.one, pair.other, pair.kind))

    def _same_individual(self, one: str | None, other: str | None) -> exp.Expr:
        return equal(self._unit(one), self._unit(other), "VARCHAR")

    def _unit(self, alias: str | None) -> exp.Column:
        return _column(UNIT, alias or "")

    def _parse(self, text: str) -> exp.Expr:
        return sqlglot.parse_one(text, read="duckdb")

    def _operand(self, operand: Operand) -> str:
        value = self._value(operand.tree).sql(dialect="duckdb")
        if not operand.plain:
            return value
        # NaN is no number, and zero has one sign: both would compare alike and yet be told apart.
        value = f"TRY_CAST({value} AS DOUBLE)"
        return f"CASE WHEN isnan({value}) THEN NULL WHEN {value} = 0 THEN 0::DOUBLE ELSE {value} END"

    def _gather(self, result: Gathered) -> str:
        match result:
            case Counted(of=None):
                return "count(*)"
            case Counted():
                assert result.of is not None
                return f"count({'DISTINCT ' if result.distinct else ''}{self._operand(result.of)})"
            case Tested():
                return f"bool_{'and' if result.every else 'or'}({self._operand(Operand(result.of))})"
            case Held():
                whole = result.low.denominator == result.high.denominator == 1
                kind = "BIGINT" if whole else "DOUBLE"
                return _clamp(self._gather(result.of), result.low, result.high, kind)
            case Added():
                return self._add(result)
            case Picked():
                return self._pick(result)

    def _add(self, result: Added) -> str:
        """A sum or a mean of values as whole numbers of steps."""
        value = f"TRY_CAST({self._operand(Operand(result.of))} AS DOUBLE)"
        clamped = _clamp(value, result.low, result.high, "DOUBLE")
        steps = f"CAST(round(({clamped}) * {result.grid}) AS BIGINT)"
        fixed, grid = f"CASE WHEN NOT isnan({value}) THEN {steps} END", result.grid
        if result.mean:
            return f"CAST(sum({fixed}) AS DOUBLE) / (CAST(count({fixed}) AS DOUBLE) * {grid}::DOUBLE)"
        added = f"sum({fixed})"
        # One individual's records may be so many that their sum is beyond 64 bits, which must not fail.
        return f"TRY_CAST({added} AS BIGINT)" if grid == 1 else f"CAST({added} AS DOUBLE) / {grid}::DOUBLE"

    def _pick(self, result: Picked) -> str:
        chosen, target = "max" if result.last else "min", self._operand(result.of)
        order = [self._operand(each) for each in result.order]
        if not order:
            return f"{chosen}({target})"
        # A record that has no place in the order is left out, and so is one without the value; but a code
        # may be missing where the value, which comes last in the order then, is there.
        needed = order if result.code else [*order, target]
        parts = ", ".join(f"'p{place}': {each}" for place, each in enumerate([*order, target]))
        kept = " AND ".join(f"({each}) IS NOT NULL" for each in needed)
        return f"struct_extract({chosen}(CASE WHEN {kept} THEN {{{parts}}} END), 'p{len(order)}')"


def has_joins(node: Rows | Listed) -> bool:
    """Return whether rows of several tables meet anywhere in `node`."""
    return any(isinstance(each, Join | Among) for each in walk_rows(node))


def _column(name: str, alias: str) -> exp.Column:
    return exp.column(name, table=alias, quoted=True)


def _clamp(value: str, low: Fraction, high: Fraction, kind: str) -> str:
    def number(bound: Fraction) -> str:
        return f"{int(bound)}::BIGINT" if kind == "BIGINT" else f"{float(bound)!r}::DOUBLE"

    return (
        f"CASE WHEN {value} < {number(low)} THEN {number(low)} "
        f"WHEN {value} > {number(high)} THEN {number(high)} ELSE {value} END"
    )


def count_rows(node: Rows | Listed, writer: Writer, execute: Callable[[str], Any]) -> int | None:
    """The most rows of one individual that joins make, None of public rows; these are asked for repeats."""
    match node:
        case Scan():
            table = writer.tables[node.table]
            return table.unit.max_records if isinstance(table, Table) else None
        case Union():
            parts = [count_rows(each, writer, execute) for each in node.parts]
            return None if None in parts else sum(each or 0 for each in parts)
        case Individuals() if node.alone:
            return 1
        case Join():
            left, right = (count_rows(each, writer, execute) for each in (node.left, node.right))
            if right is None:
                # A record meets at most as many public rows as share one key.
                return None if left is None else left * _most_repeats(writer, node.right, node.pairs, execute)
            return right * (_most_repeats(writer, node.left, node.pairs, execute) if left is None else left)
        case _:
            return count_rows(node.rows, writer, execute)


def _most_repeats(writer: Writer, node: Rows, pairs: tuple[Pair, ...], execute: Callable[[str], Any]) -> int:
    """How often a key of a join stands in public rows."""
    scope = read_shape(node, writer.tables).scope
    sides = [(side, pair.kind) for pair in pairs for side in (pair.one, pair.other) if side.table in scope]
    # As they are compared: two keys may be one after their conversion.
    keys = ", ".join(sorted({f"TRY_CAST({side.sql(dialect='duckdb')} AS {kind})" for side, kind in sides}))
    counts = writer.select(node).select("count(*) AS n").sql(dialect="duckdb") + f" GROUP BY {keys}" * bool(
        keys
    )
    ((found,),) = execute(f"SELECT COALESCE(max(n), 0) FROM ({counts})").fetchall()
    return max(1, int(found))
