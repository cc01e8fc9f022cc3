"""Aggregates: which bounded sums and counts a select list needs, and how they make up its values.

COUNT, SUM and the like are measured. AVG, VARIANCE and STDDEV are ratios of measured sums and counts,
so nothing about the number of records is assumed. Sums are of whole numbers on a grid, clamped to
public bounds, which gives them a sensitivity whatever the records hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
from sqlglot import exp

from sfumato.schema import Label
from sfumato.sql.check import check_scalar, is_top, refuse
from sfumato.sql.relation import (
    CELLS,
    Bounds,
    Field,
    Relation,
    bounds_of,
    code_name,
    is_whole,
    qualify,
    require_condition,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.schema.table import PrivacyUnit
    from sfumato.sql.plan import Noise


_PARTS: dict[str, tuple[int, int]] = {
    "QUARTER": (1, 4),
    "MONTH": (1, 12),
    "DAY": (1, 31),
    "DOW": (0, 6),
    "DAYOFWEEK": (0, 6),
    "ISODOW": (1, 7),
    "HOUR": (0, 23),
    "MINUTE": (0, 59),
}
_PART_NODES: dict[type[exp.Expr], str] = {
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Day: "DAY",
    exp.DayOfWeek: "DOW",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A group key: the tree that gives its code (or its text), and its labels if they are public."""

    node: exp.Expr
    tree: exp.Expr
    labels: tuple[Label, ...] | None

    @property
    def is_open(self) -> bool:
        """Whether the groups are in the records only, so that they must be chosen privately."""
        return self.labels is None


def read_keys(query: exp.Select, relation: Relation) -> tuple[Key, ...]:
    """The keys of GROUP BY, by name, by position, by alias or by expression."""
    group = query.args.get("group")
    if group is None:
        return ()
    for name in ("grouping_sets", "cube", "rollup", "totals", "all"):
        if group.args.get(name):
            raise refuse(f"GROUP BY {name.upper().replace('_', ' ')} is not supported; list the columns")
    keys = tuple(read_key(_target(item, query), relation) for item in group.expressions)
    texts = [key.node.sql() for key in keys]
    if len(set(texts)) != len(texts):
        raise refuse("GROUP BY names a column twice")
    return keys


def _target(item: exp.Expr, query: exp.Select) -> exp.Expr:
    item = spell_position(item, query, where="GROUP BY")
    if isinstance(item, exp.Column) and not item.table:
        for selected in query.expressions:
            if isinstance(selected, exp.Alias) and selected.alias.lower() == item.name.lower():
                named: exp.Expr = selected.this
                return named
    return item


def spell_position(node: exp.Expr, query: exp.Select, *, where: str) -> exp.Expr:
    """The item of the select list that a whole number stands for; anything else as it is."""
    if not (isinstance(node, exp.Literal) and node.is_int):
        return node
    position = int(node.this)
    if not 1 <= position <= len(query.expressions):
        raise refuse(f"{where} {position}: the select list has {len(query.expressions)} items")
    target: exp.Expr = query.expressions[position - 1].unalias()
    return target


def read_key(node: exp.Expr, relation: Relation, *, where: str = "GROUP BY") -> Key:
    """The key that groups by `node`; `where` is what a refusal calls the place."""
    tree = qualify(node, relation, where=where)
    if isinstance(tree, exp.Column):
        alias, field = relation.find(tree)
        if field.is_unit:
            raise refuse("GROUP BY the unit would single out individuals")
        if field.column is not None:
            code = exp.column(code_name(field.name), table=alias, quoted=True)
            return Key(node=tree, tree=code, labels=field.column.labels)
        if field.is_drafted:
            raise refuse(f"{where} {field.name}: its domain was drafted from the data; see accept_drafted")
        if field.labels is not None:
            return Key(node=tree, tree=_code_of(tree, field.labels), labels=field.labels)
        if field.kind == "boolean":
            return Key(node=tree, tree=_code_of(tree, (False, True)), labels=("false", "true"))
    elif any(relation.find(column)[1].is_unit for column in tree.find_all(exp.Column)):
        raise refuse("GROUP BY computes with the unit, which would single out individuals")
    labels = _finite_labels(tree)
    if labels is not None:
        shown = tuple(str(each).lower() if isinstance(each, bool) else each for each in labels)
        return Key(node=tree, tree=_code_of(tree, labels), labels=shown)
    return Key(node=tree, tree=exp.cast(tree, "VARCHAR"), labels=None)


def _finite_labels(tree: exp.Expr) -> tuple[Label, ...] | None:
    """The values that the form of an expression allows, if they are few and public."""
    if isinstance(tree, exp.Paren):
        return _finite_labels(tree.this)
    if isinstance(tree, (exp.Predicate, exp.And, exp.Or, exp.Not)):
        return (False, True)
    part = tree.name.upper() if isinstance(tree, exp.Extract) else _PART_NODES.get(type(tree), "")
    if part in _PARTS:
        low, high = _PARTS[part]
        return tuple(range(low, high + 1))
    if isinstance(tree, exp.Case):
        results = [branch.args["true"] for branch in tree.args["ifs"]]
        default = tree.args.get("default")
        results += [default] if default is not None and not isinstance(default, exp.Null) else []
        if all(isinstance(result, exp.Literal) for result in results):
            values = [
                str(result.this) if result.is_string else int(result.this) if result.is_int else None
                for result in results
            ]
            kinds = {type(value) for value in values}
            if None not in values and len(kinds) == 1:
                return tuple(dict.fromkeys(value for value in values if value is not None))
    return None


def _code_of(tree: exp.Expr, labels: Sequence[Label | bool]) -> exp.Expr:
    """A CASE that gives the position of the label that `tree` takes, NULL if it takes none."""
    case = exp.Case()
    for index, label in enumerate(labels):
        literal = exp.convert(label)
        case = case.when(exp.EQ(this=exp.paren(tree.copy()), expression=literal), exp.Literal.number(index))
    return case


def name_item(item: exp.Expr, text: str) -> str:
    """The name of an item of a select list: its alias, or else `text`."""
    return str(item.alias) if isinstance(item, exp.Alias) else text


def read_whole(clause: exp.Expr | None, name: str) -> int | None:
    """The whole number of a clause such as LIMIT, None if there is none."""
    if clause is None:
        return None
    node = clause.expression
    if not isinstance(node, exp.Literal) or not node.is_int or clause.args.get("limit_options"):
        raise refuse(f"{name} takes a whole number of rows, not a share")
    return int(node.this)


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


Statistic = Literal["records", "present", "individuals", "distinct", "sum", "square", "quantile"]

_FINEST = 2**20
_SQUARES = 2**16
_FINEST_SHARE = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number per group that is measured with noise of its own.

    `tree` is the value of a record; `low`, `high` bound it. A sum adds round((value - centre) * grid); a
    sum of squares adds round(((value - centre) / half the range)^2 * grid).

    A quantile is one of the steps between the bounds. With `labels` the steps are their codes, and the
    `chosen` most frequent of them are asked for in place of a rank: to the engine both are one histogram.
    TOP numbers its columns, MODE does not.
    """

    statistic: Statistic
    tree: exp.Expr | None = None
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)
    centre: Fraction = Fraction(0)
    grid: int = 1
    quantile: Fraction | None = None
    is_number: bool = False
    labels: tuple[Label, ...] | None = None
    chosen: int = 1
    numbered: bool = False

    @property
    def largest(self) -> int:
        """The most that one record adds, in units of 1 / grid."""
        if self.statistic == "sum":
            ends = (self.low - self.centre, self.high - self.centre)
            return max(1, *(-(-abs(end * self.grid) // 1) for end in ends))  # however halves are rounded
        return self.grid if self.statistic == "square" else 1

    @property
    def is_signed(self) -> bool:
        """Whether a record may add less than nothing."""
        return self.statistic == "sum" and self.low < self.centre

    def describe(self) -> str:
        """The measure in one canonical line."""
        inner = "*" if self.tree is None else self.tree.sql(dialect="duckdb")
        if self.labels is not None:
            return f"{self.chosen} most frequent of {len(self.labels)} labels({inner})"
        facts = ""
        if self.statistic in ("sum", "square", "quantile"):
            facts = f" in [{self.low}, {self.high}] from {self.centre} by 1/{self.grid}"
        where = "" if self.quantile is None else f" at {self.quantile}"
        return f"{self.statistic}({inner}){facts}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """An aggregate as written: how it follows from its measures."""

    kind: Literal["measure", "average", "variance", "deviation", "mode"]
    measures: tuple[Measure, ...]
    sample: bool = False


def read_aggregate(node: exp.Expr, relation: Relation) -> Aggregate:
    """The aggregate that `node` asks for."""
    condition: exp.Expr | None = None
    if isinstance(node, exp.Filter):
        condition = qualify(node.expression.this, relation, where="FILTER")
        require_condition(condition, relation, where="FILTER")
        node = node.this
    if is_top(node) or isinstance(node.this if isinstance(node, exp.WithinGroup) else node, exp.Mode):
        code, labels, chosen = read_mode(node, relation)
        measure = Measure(
            statistic="quantile",
            tree=_when(condition, code),
            high=Fraction(CELLS),
            labels=labels,
            chosen=chosen,
            numbered=is_top(node),
        )
        return Aggregate(kind="mode", measures=(measure,))
    if isinstance(node, exp.WithinGroup):
        return _read_within_group(node, relation, condition)
    if isinstance(node, exp.Count):
        return _read_count(node, relation, condition)
    if isinstance(node, exp.CountIf):
        test = qualify(node.this, relation, where="COUNT_IF")
        require_condition(test, relation, where="COUNT_IF")
        return _single(Measure(statistic="present", tree=_when(_and(condition, test), exp.Literal.number(1))))
    operand = _operand(node, relation)
    tree = _when(condition, operand)
    low, high, whole = _require_bounds(operand, relation, node)
    if isinstance(node, exp.Sum):
        return _single(_sum(tree, low, high, whole=whole, centre=Fraction(0)))
    present = Measure(statistic="present", tree=tree, is_number=True)
    if isinstance(node, exp.Avg):
        return Aggregate(kind="average", measures=(_centred(tree, low, high, whole=whole), present))
    if isinstance(node, (exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevPop, exp.StddevSamp)):
        square = Measure(
            statistic="square", tree=tree, low=low, high=high, centre=(low + high) / 2, grid=_SQUARES
        )
        deviation = isinstance(node, (exp.Stddev, exp.StddevPop, exp.StddevSamp))
        return Aggregate(
            kind="deviation" if deviation else "variance",
            measures=(_centred(tree, low, high, whole=whole), square, present),
            sample=isinstance(node, (exp.Variance, exp.Stddev, exp.StddevSamp)),
        )
    return _single(_quantile(tree, low, high, _quantile_of(node)))


def _read_count(node: exp.Count, relation: Relation, condition: exp.Expr | None) -> Aggregate:
    target = node.this
    if isinstance(target, exp.Star):
        if condition is None:
            return _single(Measure(statistic="records"))
        return _single(Measure(statistic="present", tree=_when(condition, exp.Literal.number(1))))
    if isinstance(target, exp.Distinct):
        if len(target.expressions) != 1 or node.expressions:
            raise refuse("COUNT(DISTINCT ...) takes one column")
        tree = qualify(target.expressions[0], relation, where="COUNT(DISTINCT)")
        if isinstance(tree, exp.Column) and relation.find(tree)[1].is_unit:
            if condition is not None:
                raise refuse("COUNT(DISTINCT unit) with FILTER; put the condition into WHERE")
            return _single(Measure(statistic="individuals"))
        _refuse_unit(tree, relation, "COUNT(DISTINCT)")
        return _single(Measure(statistic="distinct", tree=_when(condition, tree)))
    if target is None or node.expressions:
        raise refuse("COUNT takes * or one column")
    tree = qualify(target, relation, where="COUNT")
    # A number that is not a number contributes nothing, to COUNT as to SUM and AVG.
    number = bounds_of(tree, lambda column: relation.find(column)[1]) is not None
    return _single(Measure(statistic="present", tree=_when(condition, tree), is_number=number))


def _read_within_group(node: exp.WithinGroup, relation: Relation, condition: exp.Expr | None) -> Aggregate:
    inner, order = node.this, node.expression
    if not isinstance(inner, (exp.PercentileCont, exp.PercentileDisc)) or len(order.expressions) != 1:
        raise refuse("WITHIN GROUP is read as PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY column)")
    ordered = order.expressions[0]
    share = _share(inner.this)
    operand = qualify(ordered.this, relation, where="WITHIN GROUP")
    low, high, _ = _require_bounds(operand, relation, inner)
    share = 1 - share if ordered.args.get("desc") else share
    return _single(_quantile(_when(condition, operand), low, high, share))


def _operand(node: exp.Expr, relation: Relation) -> exp.Expr:
    target = node.this
    name = node.key.upper()
    if isinstance(target, exp.Distinct):
        raise refuse(f"{name}(DISTINCT ...) has no private form here")
    if target is None or isinstance(target, exp.Star):
        raise refuse(f"{name} needs a column")
    tree = qualify(target, relation, where=name)
    _refuse_unit(tree, relation, name)
    return tree


def _refuse_unit(tree: exp.Expr, relation: Relation, name: str) -> None:
    if any(relation.find(column)[1].is_unit for column in tree.find_all(exp.Column)):
        raise refuse(f"{name} over the unit's own value; only COUNT(DISTINCT unit) is answered")


def _require_bounds(operand: exp.Expr, relation: Relation, node: exp.Expr) -> tuple[Fraction, Fraction, bool]:
    def lookup(column: exp.Column) -> Field:
        return relation.find(column)[1]

    bounds: Bounds | None = bounds_of(operand, lookup)
    name = node.key.upper()
    if bounds is None:
        column = next(iter(operand.find_all(exp.Column)), None)
        about = f"column {column.name!r}" if column is not None else "the expression"
        if any(lookup(each).is_drafted for each in operand.find_all(exp.Column)):
            raise refuse(
                f"{name}: {about} was drafted from the data; write public bounds, or accept_drafted = true"
            )
        raise refuse(
            f"{name} clamps to public bounds, and {about} has none; declare them in the project file: "
            "[tables.TABLE.columns.COLUMN] bounds = [low, high]"
        )
    low, high = Fraction(bounds[0]), Fraction(bounds[1])
    if low == high:
        high = low + 1
    if float(high) - float(low) < 1e-9 * max(abs(float(low)), abs(float(high)), 1.0):
        raise refuse(
            f"{name}: bounds so close together cannot be told apart; shift or rescale the expression"
        )
    if max(abs(low), abs(high)) > 2**32:
        raise refuse(f"{name}: bounds beyond 2^32; rescale the expression, for example divide by 1000")
    return low, high, is_whole(operand, lookup)


def _sum(tree: exp.Expr, low: Fraction, high: Fraction, *, whole: bool, centre: Fraction) -> Measure:
    grid = 1
    if not (whole and centre.denominator == 1):
        while (high - low) * grid * 2 <= _FINEST:
            grid *= 2
    if centre.denominator == 2 and whole:
        grid = 2
    return Measure(statistic="sum", tree=tree, low=low, high=high, centre=centre, grid=grid)


def _centred(tree: exp.Expr, low: Fraction, high: Fraction, *, whole: bool) -> Measure:
    return _sum(tree, low, high, whole=whole, centre=(low + high) / 2)


def _quantile(tree: exp.Expr, low: Fraction, high: Fraction, share: Fraction) -> Measure:
    return Measure(statistic="quantile", tree=tree, low=low, high=high, quantile=share)


def _quantile_of(node: exp.Expr) -> Fraction:
    match node:
        case exp.Min():
            return Fraction(0)
        case exp.Max():
            return Fraction(1)
        case exp.Median():
            return Fraction(1, 2)
        case exp.Quantile() | exp.ApproxQuantile():
            return _share(node.args.get("quantile"))
        case exp.PercentileCont() | exp.PercentileDisc():
            return _share(
                node.expression if isinstance(node.expression, exp.Literal) else node.args.get("expression")
            )
        case _:
            raise refuse(f"{node.key.upper()} has no private form here")


def _share(node: exp.Expr | None) -> Fraction:
    if (
        not isinstance(node, exp.Literal)
        or not node.is_number
        or len(node.this) > 40
        or "e" in node.this.lower()
        or not 0 <= Fraction(str(node.this)) <= 1
    ):
        raise refuse("a quantile is a number between 0 and 1, such as QUANTILE(fare, 0.9)")
    if Fraction(str(node.this)).denominator > _FINEST_SHARE:
        raise refuse("a quantile has at most six decimals")
    return Fraction(str(node.this))


def _single(measure: Measure) -> Aggregate:
    return Aggregate(kind="measure", measures=(measure,))


def _and(condition: exp.Expr | None, test: exp.Expr) -> exp.Expr:
    return test if condition is None else exp.and_(condition, test)


def _when(condition: exp.Expr | None, tree: exp.Expr) -> exp.Expr:
    return tree if condition is None else exp.Case().when(condition, tree)
