"""How DuckDB computes what an inner query asks of each individual's records.

Every result is a function of the multiset of the individual's values: sums are of whole numbers, which no
order of addition changes, and where records tie the value itself decides. None of it can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import sqlglot
from sqlglot import exp

from sfumato.sql.inner import INNER


def find_groups(tree: exp.Expr) -> list[exp.Select]:
    """The queries in a tree that put an individual's records together."""
    return [select for select in tree.find_all(exp.Select) if select.args.get("group") is not None]


def spell_groups(tree: exp.Select, total: Callable[[exp.Expr], exp.Expr] = lambda part: part) -> exp.Select:
    """The tree with the aggregates of all inner queries in the database's words, in place.

    `total` makes an expression over a record one that never fails.
    """
    for select in reversed(find_groups(tree)):
        for item in select.expressions:
            inner = item.unalias()
            if _is_ours(inner):
                item.set("this", sqlglot.parse_one(_spell(inner, total), read="duckdb"))
            elif not isinstance(inner, exp.Column):
                item.set("this", total(inner))
    return tree


def list_operands(select: exp.Select) -> Iterator[exp.Expr]:
    """The expressions over a record that a select list is made of."""
    for item in select.expressions:
        yield from _operands(item)


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    if not _is_ours(node.unalias()):
        yield node
        return
    for each in node.unalias().expressions:
        if not isinstance(each, exp.Literal):
            yield from _operands(each)


def _is_ours(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.startswith(INNER)


def _spell(node: exp.Expr, total: Callable[[exp.Expr], exp.Expr]) -> str:
    if not _is_ours(node):
        return (node if isinstance(node, exp.Column) else total(node)).sql(dialect="duckdb")
    given = node.expressions
    match node.name.removeprefix(INNER):
        case "records":
            return "count(*)"
        case "present":
            return f"count({_spell(given[0], total)})"
        case "distinct":
            return f"count(DISTINCT {_spell(given[0], total)})"
        case "any":
            return f"bool_or({_spell(given[0], total)})"
        case "all":
            return f"bool_and({_spell(given[0], total)})"
        case "least":
            return f"min({_spell(given[0], total)})"
        case "plain":
            # NaN is no number, and zero has one sign: both would compare alike and yet be told apart.
            value = f"TRY_CAST({_spell(given[0], total)} AS DOUBLE)"
            return f"CASE WHEN isnan({value}) THEN NULL WHEN {value} = 0 THEN 0::DOUBLE ELSE {value} END"
        case "held":
            low, high = (Fraction(each.name) for each in given[1:])
            kind = "BIGINT" if low.denominator == high.denominator == 1 else "DOUBLE"
            return _clamp(_spell(given[0], total), low, high, kind)
        case "sum":
            fixed, grid = _fix(given, total)
            added = f"sum({fixed})"
            return f"CAST({added} AS BIGINT)" if grid == 1 else f"CAST({added} AS DOUBLE) / {grid}::DOUBLE"
        case "average":
            fixed, grid = _fix(given, total)
            return f"CAST(sum({fixed}) AS DOUBLE) / (CAST(count({fixed}) AS DOUBLE) * {grid}::DOUBLE)"
        case "first" | "last":
            return _choose(node, total)
    raise AssertionError(node.name)  # pragma: no cover - the planner writes no other


def _clamp(value: str, low: Fraction, high: Fraction, kind: str) -> str:
    def number(bound: Fraction) -> str:
        return f"{int(bound)}::BIGINT" if kind == "BIGINT" else f"{float(bound)!r}::DOUBLE"

    return (
        f"CASE WHEN {value} < {number(low)} THEN {number(low)} "
        f"WHEN {value} > {number(high)} THEN {number(high)} ELSE {value} END"
    )


def _fix(given: list[exp.Expr], total: Callable[[exp.Expr], exp.Expr]) -> tuple[str, int]:
    """A value between its bounds as a whole number of steps, and how many steps are one."""
    low, high, grid = (Fraction(each.name) for each in given[1:])
    value = f"TRY_CAST({_spell(given[0], total)} AS DOUBLE)"
    clamped = _clamp(value, low, high, "DOUBLE")
    steps = f"round(({clamped}) * {grid})"
    return f"CASE WHEN NOT isnan({value}) THEN CAST({steps} AS BIGINT) END", int(grid)


def _choose(node: exp.Expr, total: Callable[[exp.Expr], exp.Expr]) -> str:
    """The first argument of the record whose further arguments come first, or last; then it decides itself.

    Without further ones it is the least or largest value.
    """
    chosen = "min" if node.name.endswith("first") else "max"
    target, *order = (_spell(each, total) for each in node.expressions)
    if not order:
        return f"{chosen}({target})"
    # A record that has no place in the order is left out, and so is one without the value; but a code may
    # be missing where the value, which comes last in the order then, is there.
    needed = order if _is_code(node.expressions[0]) else [*order, target]
    parts = ", ".join(f"'p{place}': {each}" for place, each in enumerate([*order, target]))
    kept = " AND ".join(f"({each}) IS NOT NULL" for each in needed)
    return f"struct_extract({chosen}(CASE WHEN {kept} THEN {{{parts}}} END), 'p{len(order)}')"


def _is_code(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name.startswith("code of ")
