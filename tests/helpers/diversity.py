"""Models of sensitive columns, written out in fractions as they are defined."""

import math
from fractions import Fraction


def holds(model, values, table):
    """Whether a class with these values satisfies the model in this table, by definition."""
    counts = [values.count(value) for value in sorted(set(table))]
    totals = [table.count(value) for value in sorted(set(table))]
    shares = [Fraction(count, len(values)) for count in counts]
    whole = [Fraction(total, len(table)) for total in totals]
    present = sorted((count for count in counts if count), reverse=True)
    if model.kind == "distinct":
        return len(present) >= model.limit
    if model.kind == "entropy":
        # exp(entropy) >= l, both sides to the power of the class size
        product = math.prod(count**count for count in present)
        return len(values) ** len(values) >= Fraction(str(model.limit)) ** len(values) * product
    if model.kind == "recursive":
        return present[0] < Fraction(str(model.limit)) * sum(present[model.l - 1 :])
    if model.kind == "equal":
        return sum(abs(p - q) for p, q in zip(shares, whole, strict=True)) / 2 <= Fraction(str(model.limit))
    if model.kind == "ordered":
        moved = sum(abs(sum(shares[:at]) - sum(whole[:at])) for at in range(1, len(whole)))
        return moved <= Fraction(str(model.limit)) * (len(whole) - 1)
    return all(p > 0 and abs(math.log(p / q)) < model.limit for p, q in zip(shares, whole, strict=True))
