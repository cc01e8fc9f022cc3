"""Aggregates: which bounded sums and counts a select list needs, and how they make up its values.

COUNT, SUM and the like are measured. AVG, VARIANCE and STDDEV are ratios of measured sums and counts,
so nothing about the number of records is assumed. Sums are of whole numbers on a grid, clamped to
public bounds, which gives them a sensitivity whatever the records hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from sfumato.schema import Label
from sfumato.sql.bounds import CELLS, bounds_of, is_whole
from sfumato.sql.check import is_top, refuse
from sfumato.sql.modes import read_mode
from sfumato.sql.qualify import qualify, require_condition
from sfumato.sql.relation import Field, Relation

if TYPE_CHECKING:
    from sfumato.sql.bounds import Bounds

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
