"""Bounds of an expression, from the bounds of its columns: what SUM and AVG clamp to."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from sfumato.sql.relation import Field

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
