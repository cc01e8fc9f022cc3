"""WIDTH_BUCKET: numbers by equal intervals, as a choice among constants."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp

from sfumato.sql.check import refuse

MOST_BINS = 500
"""The most intervals that a column is divided into."""


def bucket_of(node: exp.Expr, low: Fraction, high: Fraction, buckets: int) -> exp.Expr:
    """WIDTH_BUCKET(node, low, high, buckets): 0 below, the bucket from 1 on, and one more from `high` on."""
    if not 1 <= buckets <= MOST_BINS or low >= high:
        raise refuse(
            f"WIDTH_BUCKET takes a low end, a higher one, and 1 to {MOST_BINS} buckets: "
            "WIDTH_BUCKET(fee, 0, 100, 10)"
        )
    edges = [low + (high - low) * step / buckets for step in range(buckets + 1)]
    case = exp.Case()
    for place, edge in enumerate(edges):
        case = case.when(exp.LT(this=node.copy(), expression=write_number(edge)), exp.Literal.number(place))
    return case.when(
        exp.GTE(this=node.copy(), expression=write_number(high)), exp.Literal.number(buckets + 1)
    )


def write_number(value: Fraction) -> exp.Expr:
    """A constant as it is compared with doubles."""
    number = exp.Literal.number(repr(abs(float(value))))
    return exp.Neg(this=number) if value < 0 else number
