"""MODE and TOP: which labels are the most frequent, chosen privately among those that are public.

The records of every label are counted in every group, each individual held to max_records over all groups.
A label is then chosen by the exponential mechanism, and for TOP taken out and the next one chosen. Counts of
added records only grow, so no factor 2 is needed; docs/proofs/choice.md derives the rates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from sfumato.sql.bounds import CELLS
from sfumato.sql.check import check_scalar, is_top, refuse
from sfumato.sql.keys import read_key

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from sfumato.schema import Label
    from sfumato.schema.unit import PrivacyUnit
    from sfumato.sql.calibrate import Noise
    from sfumato.sql.relation import Relation


def read_mode(node: exp.Expr, relation: Relation) -> tuple[exp.Expr, tuple[Label, ...], int]:
    """The code that is counted, its labels, and how many of them are asked for.

    MODE(column), MODE() WITHIN GROUP (ORDER BY column) and TOP(column, k) are read.
    """
    name = "TOP" if is_top(node) else "MODE"
    target, chosen = _read_target(node, name)
    check_scalar(target, where=name)
    if any(relation.find(column)[1].is_unit for column in target.find_all(exp.Column)):
        raise refuse(f"{name} of the unit, or of what is computed with it, would single out individuals")
    key = read_key(target, relation, where=name)
    if key.labels is None:
        raise refuse(
            f"{name} chooses among public labels, and {target.sql()[:60]!r} has none; declare them in the "
            "project file: [tables.TABLE.columns.COLUMN] values = [...]"
        )
    if len(key.labels) > CELLS + 1:
        raise refuse(
            f"{name} chooses among at most {CELLS + 1:,} labels, and {target.sql()[:60]!r} has "
            f"{len(key.labels):,}; GROUP BY it, ORDER BY COUNT(*) DESC and LIMIT"
        )
    if chosen > len(key.labels):
        raise refuse(f"TOP asks for {chosen} labels of {len(key.labels)}")
    return key.tree, key.labels, chosen


def mode_scale(unit: PrivacyUnit, epsilon: Fraction) -> Fraction:
    """By how many records a label must lead to weigh e times as much, for one choice at `epsilon`."""
    return unit.max_records * (2 if unit.neighbours == "replace" else 1) / epsilon


def mode_reach(noise: Noise, share: float) -> int:
    """How far, in records, any chosen label lies below the best left, but for a share of the draws.

    A choice misses by more than t with probability at most (number of labels) * exp(-t / scale).
    """
    choices = len(noise.measure.labels or ()) * noise.measure.chosen
    return math.floor(float(noise.scale) * math.log(choices / share))


def label_counts(true_histogram: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
    """The exact counts of every label, for every group: what the labels are scored by."""
    return true_histogram[:, : len(noise.measure.labels or ())]


def take_out(values: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every row without the entry at its place.

    >>> take_out(np.array([[1, 2, 3], [4, 5, 6]]), np.array([0, 2])).tolist()
    [[2, 3], [4, 5]]
    """
    rows, width = values.shape
    kept = np.ones((rows, width), np.bool_)
    kept[np.arange(rows), places] = False
    return values[kept].reshape(rows, width - 1)


def _read_target(node: exp.Expr, name: str) -> tuple[exp.Expr, int]:
    if isinstance(node, exp.WithinGroup):
        ordered = node.expression.expressions
        if node.this.this is not None or len(ordered) != 1:
            raise refuse("MODE is read as MODE(column) or MODE() WITHIN GROUP (ORDER BY column)")
        return ordered[0].this, 1
    parts = list(node.expressions) if is_top(node) else [node.this]
    target = parts[0] if parts else None
    if (
        target is None
        or isinstance(target, (exp.Star, exp.Distinct, exp.Order))
        or node.args.get("deterministic")
    ):
        raise refuse(f"{name} takes one column: MODE(region), TOP(region, 3)")
    if name == "MODE":
        return target, 1
    count = parts[1] if len(parts) == 2 else None
    if not isinstance(count, exp.Literal) or not count.is_int or len(count.this) > 9 or int(count.this) < 1:
        raise refuse("TOP takes a column and a whole number above zero: TOP(region, 3)")
    return target, int(count.this)
