"""The values of trees over keys and noisy aggregates, for every group of an answer."""

from __future__ import annotations

import math
import operator
from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from sfumato.core.algebra.measures import CELLS
from sfumato.core.dates import read_moment
from sfumato.core.errors import refuse
from sfumato.sql.bands import Band, absolute, aggregate_band, combine, constant_band, join_bands
from sfumato.sql.check import AGGREGATE, RANKS, is_key, is_text
from sfumato.sql.constants import EPOCH, NotConstant, fold, to_days, to_microseconds, to_moment
from sfumato.sql.plan import AnyNoise, Noise, QueryPlan, find_aggregate_numbers, list_levels, set_noise
from sfumato.sql.rollups import combine_levels
from sfumato.sql.settle import MIRRORED, TYPES
from sfumato.sql.windows import check_window, find_frames, rank_rows, single_noise, slide
from sfumato.tables.arrays import label_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sfumato.core.algebra.measures import Measure
    from sfumato.sql.aggregates import Key
    from sfumato.sql.plan import NoisyAggregates
    from sfumato.sql.rollups import GroupingSet

COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
}
"""What a comparison computes, of numbers or of texts."""

STAGE = "stage"
"""The mark of a window that says whose rows it sees."""
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128")
_NUMBERS = ("FLOAT", "DOUBLE", "DECIMAL")


def label_type(key: Key) -> pa.DataType:
    """The type of the column that a key with public labels becomes."""
    if key.type is not None:
        return key.type
    return pa.dictionary(pa.int32(), pa.string()) if isinstance((key.labels or ("",))[0], str) else pa.int64()


def label_column(key: Key, codes: NDArray[Any]) -> pa.Array:
    """The labels of a key by their codes."""
    labels = key.labels or ("",)
    if key.type is None:
        return label_array(codes.astype(np.int32), labels)
    if pa.types.is_floating(key.type):
        return pa.array(np.array([float(label) for label in labels])[codes])
    numbers = np.array(labels, np.int64)[codes]
    return pa.array(numbers.astype(np.int32) if pa.types.is_date32(key.type) else numbers).cast(key.type)


def mark_stage(node: exp.Expr, stage: int) -> None:
    """Says of which select list the windows in a tree are: they see its rows."""
    for window in node.find_all(exp.Window):
        if STAGE not in window.meta:
            window.meta[STAGE] = stage


class Evaluator:
    """The values of trees over keys and aggregates, for every group.

    To `rehearse`, before anything is paid, only what is refused and which types come out matters.
    """

    def __init__(self, plan: QueryPlan, noisy: NoisyAggregates, *, rehearse: bool = False) -> None:
        self._plan, self._noisy, self._rehearse = plan, noisy, rehearse
        self._index = {noise.measure: index for index, noise in enumerate(plan.noises)}
        self.rows = len(noisy.keys) if noisy.keys is not None else 1 if rehearse else plan.rows
        self._blocks: list[tuple[tuple[AnyNoise, ...], tuple[Any, ...]]] = [(plan.noises, noisy.values)]
        if plan.sets is not None and not rehearse:
            fitted = [combine_levels(values, plan.sets) for values in noisy.values]
            self._blocks = [
                (
                    tuple(set_noise(noise, plan.sets, each) for noise in plan.noises),
                    tuple(values[place] for values in fitted),
                )
                for place, each in enumerate(plan.sets.answered)
            ]
        self._seen: dict[int, NDArray[np.intp]] = {}
        self.picked = 1.0  # the share of rows that were picked by their noisy values

    def enter(self, stage: int, rows: NDArray[np.intp]) -> None:
        """Notes the rows that the windows of a stage see."""
        self._seen[stage] = rows

    def labels(self, key: int, rows: NDArray[np.intp]) -> pa.Array:
        """The labels of a key for some rows."""
        known = self._plan.keys[key]
        if self._noisy.keys is None:
            codes = self._codes(key)[rows]
            if self._plan.sets is None:
                return label_column(known, codes)
            # A key that a row is not divided by is NULL there.
            return label_column(known, np.arange(len(known.labels or ()))).take(
                pa.array(np.maximum(codes, 0), mask=codes < 0)
            )
        found = [self._noisy.keys[row][key] for row in rows]
        if known.labels is None:
            return pa.array(found, pa.string())
        if known.type is not None:
            return label_column(known, np.array(found, np.int64))
        kind = pa.string() if isinstance(known.labels[0], str) else pa.int64()
        return pa.array([known.labels[code] for code in found], kind)

    def chosen_labels(self, mode: Measure, rows: NDArray[np.intp]) -> list[pa.Array]:
        """The labels that were chosen for some rows, the first ones first."""
        codes = self._noisy.values[self._index[mode]]
        return [label_array(each[rows].astype(np.int32), mode.labels or ("",)) for each in codes]

    def quantiles(self, measure: Measure) -> list[NDArray[np.float64]]:
        """The values of all quantiles of APPROX_QUANTILES, each followed by the ends of its interval."""
        if self._rehearse:
            return [np.zeros(self.rows)] * 3 * (measure.parts + 1)
        index = self._index[measure]
        noise = self._plan.noises[index]
        assert isinstance(noise, Noise)
        found = _read_quantiles(noise, self._noisy.values[index])
        return [each for quantile in found for each in quantile]

    def sort_key(self, tree: exp.Expr) -> NDArray[Any]:
        """Numbers in the order of a tree's values; keys sort in the order of their domain."""
        if is_text(tree):
            return np.unique(self.texts(tree).astype(str), return_inverse=True)[1]
        if not is_key(tree):
            return self.band(tree).value
        if self._noisy.keys is None:
            codes = self._codes(int(tree.name))
            return np.where(codes < 0, len(self._plan.keys[int(tree.name)].labels or ()), codes)
        texts = [row[int(tree.name)] for row in self._noisy.keys]
        return np.unique(texts, return_inverse=True)[1] if texts else np.empty(0, np.int64)

    def band(self, tree: exp.Expr) -> Band:
        """The values of a tree and an interval that holds all that they are made of at once."""
        return self._walk(
            tree, self._plan.miss * self.picked / max(1, len(set(find_aggregate_numbers(tree))))
        )

    def places(self, tree: exp.Expr) -> NDArray[Any]:
        """The values of a rank, which are whole unless it is a share."""
        value = self.band(tree).value
        window = tree.find(exp.Window)
        shares = (exp.PercentRank, exp.CumeDist)
        is_share = window is not None and isinstance(window.this, shares)
        return value if is_share else value.astype(np.int64)

    def texts(self, tree: exp.Expr) -> NDArray[np.object_]:
        """The texts of a tree; None where it has none."""
        match tree:
            case exp.Paren():
                return self.texts(tree.this)
            case exp.Literal():
                return np.full(self.rows, str(tree.this), object)
            case exp.Cast():
                return self._spell(tree.this)
            case exp.Coalesce():
                texts = [self._spell(each) for each in (tree.this, *tree.expressions)]
                chosen = texts[0]
                for other in texts[1:]:
                    chosen = np.array(
                        [b if a is None else a for a, b in zip(chosen, other, strict=True)], object
                    )
                return chosen
            case exp.Case():
                found, open_ = np.full(self.rows, None, object), np.ones(self.rows, np.bool_)
                for branch in tree.args["ifs"]:
                    holds = open_ & self._branch(tree, branch)
                    if not isinstance(branch.args["true"], exp.Null):
                        found = np.where(holds, self.texts(branch.args["true"]), found)
                    open_ &= ~holds
                default = tree.args.get("default")
                if default is not None and not isinstance(default, exp.Null):
                    found = np.where(open_, self.texts(default), found)
                return found
        raise refuse("text that is computed from aggregates")

    def _spell(self, tree: exp.Expr) -> NDArray[np.object_]:
        """Numbers as text; keys as their labels."""
        if is_text(tree):
            return self.texts(tree)
        if is_key(tree):
            labels = self.labels(int(tree.name), np.arange(self.rows)).to_pylist()
            return np.array([None if label is None else str(label) for label in labels], object)
        numbers = self.band(tree).value.tolist()
        told = [None if number != number else f"{number:.15g}" for number in numbers]
        return np.array(told, object)

    def moments(self, tree: exp.Expr) -> pa.Array:
        """A constant date or moment, for every row."""
        value = fold(tree, EPOCH)
        return pa.array([value] * self.rows, TYPES["date" if isinstance(value, datetime) else "day"])

    def dates(self, tree: exp.Expr) -> list[pa.Array] | None:
        """The values and ends of an aggregate that is a date, None for anything else."""
        if not (isinstance(tree, exp.Column) and tree.table == AGGREGATE):
            return None
        kind = self._plan.aggregates[int(tree.name)].type
        if kind is None:
            return None
        band = self.band(tree)
        step = 1 if pa.types.is_date32(kind) else 10**6
        stored = np.int32 if pa.types.is_date32(kind) else np.int64
        ends = [np.floor(each * step).astype(stored) for each in (band.value, band.low, band.high)]
        return [pa.array(each).cast(kind) for each in ends]

    def test(self, tree: exp.Expr) -> NDArray[np.bool_]:
        """Whether a condition holds for the noisy values of each group."""
        return np.broadcast_to(fold_condition(tree, self._compare, where="is not a condition"), (self.rows,))

    def _codes(self, key: int) -> NDArray[np.int64]:
        sets = self._plan.sets
        if sets is not None and not self._rehearse:
            return np.concatenate([_codes_in(each, key, sets.sizes) for each in sets.answered])
        sizes = tuple(len(each.labels or ()) for each in self._plan.keys)
        return _codes_in(tuple(range(len(sizes))), key, sizes)[: self.rows]

    def _walk(self, tree: exp.Expr, share: float) -> Band:
        match tree:
            case exp.Literal():
                if tree.is_string:
                    raise refuse("text in arithmetic over aggregates")
                return constant_band(float(tree.this), self.rows)
            case exp.Boolean():
                return constant_band(float(bool(tree.this)), self.rows)
            case exp.Null():
                return constant_band(np.nan, self.rows)
            case exp.Column() if tree.table == AGGREGATE:
                aggregate = self._plan.aggregates[int(tree.name)]
                places = [self._index[measure] for measure in aggregate.measures]
                bands = [
                    aggregate_band(
                        aggregate, [(noises[i], values[i]) for i in places], share, rehearse=self._rehearse
                    )
                    for noises, values in self._blocks
                ]
                return bands[0] if len(bands) == 1 else join_bands(bands)
            case exp.Grouping() | exp.GroupingId():
                return self._grouping(tree)
            case exp.Column():
                return self._key_band(int(tree.name))
            case exp.Paren():
                return self._walk(tree.this, share)
            case exp.Neg():
                inner = self._walk(tree.this, share)
                return Band(-inner.value, -inner.high, -inner.low)
            case exp.Abs():
                return absolute(self._walk(tree.this, share))
            case exp.Window():
                return self._window(tree, share)
            case exp.Cast():
                return _cast(self._walk(tree.this, share), tree)
            case exp.Nullif():
                inner, other = self._walk(tree.this, share), self._walk(tree.expression, share)
                equal = inner.value == other.value
                value = np.where(equal, np.nan, inner.value)
                return Band(value, inner.low.astype(float), inner.high.astype(float))
            case exp.Coalesce():
                found = self._walk(tree.this, share)
                for each in tree.expressions:
                    found = found.where(~np.isnan(found.value.astype(float)), self._walk(each, share))
                return found
            case exp.Case() | exp.If():
                return self._choose(tree, share)
            case exp.Greatest() | exp.Least():
                found = self._walk(tree.this, share)
                for each in tree.expressions:
                    found = combine(tree, found, self._walk(each, share))
                return found
            case exp.Round() | exp.Sqrt() | exp.Floor() | exp.Ceil() | exp.Ln() | exp.Exp() | exp.Sign():
                return self._walk(tree.this, share).apply(_rising(tree))
            case _:
                return combine(tree, self._walk(tree.this, share), self._walk(tree.expression, share))

    def _key_band(self, key: int) -> Band:
        known = self._plan.keys[key]
        labels = known.labels
        plain = labels is not None and isinstance(labels[0], int) and known.type is None
        if labels is None or not plain or self._noisy.keys is not None:
            raise refuse("arithmetic with a group key that is not a whole number with a public domain")
        codes = self._codes(key)
        numbers = np.where(codes < 0, np.nan, np.array(labels, float)[codes])
        return Band(numbers, numbers, numbers)

    def _grouping(self, tree: exp.Expr) -> Band:
        """GROUPING: a bit for each key, the last one lowest, that is set where the key is rolled up."""
        found = np.zeros(self.rows)
        for each in tree.expressions:
            if not is_key(each):
                raise refuse("GROUPING takes columns of GROUP BY")
            found = 2 * found + (self._codes(int(each.name)) < 0)
        return Band(found, found, found)

    def _choose(self, tree: exp.Expr, share: float) -> Band:
        """CASE and IF: noisy values say which branch is taken, and any may be the true one."""
        branches = tree.args["ifs"] if isinstance(tree, exp.Case) else [tree]
        default = tree.args.get("default") if isinstance(tree, exp.Case) else tree.args.get("false")
        found = self._walk(exp.Null() if default is None else default, share)
        bands = [self._walk(branch.args["true"], share) for branch in branches]
        for branch, band in reversed(list(zip(branches, bands, strict=True))):
            found = band.where(self._branch(tree, branch), found)
        nulls = [] if default is not None else [constant_band(np.nan, self.rows)]
        given = [*bands, *([self._walk(default, share)] if default is not None else []), *nulls]
        with np.errstate(invalid="ignore"):
            low = np.fmin.reduce([each.low for each in given])
            high = np.fmax.reduce([each.high for each in given])
        return Band(found.value, low, high)

    def _branch(self, tree: exp.Expr, branch: exp.Expr) -> NDArray[np.bool_]:
        if isinstance(tree, exp.Case) and tree.this is not None:
            return self._compare(exp.EQ, tree.this, branch.this)
        return self.test(branch.this)

    def _window(self, tree: exp.Window, share: float) -> Band:
        check_window(tree)
        function, stage = tree.this, tree.meta.get(STAGE, 0)
        rows = self._seen.get(stage, np.arange(self.rows))
        frames = find_frames(tree, rows, self.sort_key)
        placed = rows[frames.order]
        if isinstance(function, RANKS):
            ranks = np.zeros(self.rows, np.float64)
            ranks[placed] = rank_rows(function, frames)
            return Band(ranks, ranks, ranks)
        if isinstance(function, exp.Count):
            counts = np.zeros(self.rows, np.int64)
            counts[placed] = np.maximum(frames.last - frames.first + 1, 0)
            return Band(counts, counts, counts)
        longest = int(np.max(frames.last - frames.first + 1, initial=1))
        inner = self._walk(function.this, share / max(1, longest))
        ordered = Band(inner.value[placed], inner.low[placed], inner.high[placed])
        noise = None if self._rehearse else single_noise(function.this, self._noise_of)
        found = slide(function, ordered, frames, noise, share)
        parts = []
        for each in (found.value, found.low, found.high):
            full = np.zeros(self.rows, each.dtype)
            full[placed] = each
            parts.append(full)
        return Band(*parts)

    def _noise_of(self, number: int) -> Noise | None:
        if self._plan.sets is not None:
            return None
        aggregate = self._plan.aggregates[number]
        noise = self._plan.noises[self._index[aggregate.measures[0]]]
        if not isinstance(noise, Noise) or aggregate.kind != "measure" or noise.parts or noise.beyond:
            return None
        return noise

    def _compare(self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> NDArray[np.bool_]:
        if kind is exp.Is:
            if is_key(left):
                rolled: NDArray[np.bool_] = self._codes(int(left.name)) < 0
                return rolled if self._noisy.keys is None else np.zeros(self.rows, np.bool_)
            missing: NDArray[np.bool_] = np.isnan(self.band(left).value.astype(float))
            return missing
        if is_key(right) and not is_key(left):
            return self._compare(MIRRORED[kind], right, left)
        if is_key(left) and isinstance(right, (exp.Literal, exp.Cast)):
            return self._compare_key(kind, int(left.name), right)
        result: NDArray[np.bool_] = COMPARISONS[kind](self.band(left).value, self.band(right).value)
        return result

    def _compare_key(self, kind: type[exp.Expr], key: int, right: exp.Expr) -> NDArray[np.bool_]:
        known = self._plan.keys[key]
        if known.type is not None:
            literal = _moment_number(right, known.type)
            numbers = np.array(known.labels or (), np.int64)
            codes = (
                self._codes(key)
                if self._noisy.keys is None
                else np.array([row[key] for row in self._noisy.keys], np.int64)
            )
            holds: NDArray[np.bool_] = COMPARISONS[kind](numbers[codes], literal) & (codes >= 0)
            return holds
        if not isinstance(right, exp.Literal):
            raise refuse("HAVING compares a key with a constant of another type")
        labels = self.labels(key, np.arange(self.rows)).to_pylist()
        if not right.is_string and (known.labels is None or not isinstance(known.labels[0], int)):
            raise refuse("HAVING compares a text key with a number; quote it")
        read: type[str] | type[float] = str if right.is_string else float
        value = read(right.this)
        return np.array(
            [label is not None and COMPARISONS[kind](read(label), value) for label in labels], bool
        )


def _codes_in(each: GroupingSet, key: int, sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """The code of a key in every group of a grouping set; -1 if the set is not divided by it."""
    cells = math.prod(sizes[other] for other in each)
    if key not in each:
        return np.full(cells, -1)
    inner = math.prod(sizes[other] for other in each[each.index(key) + 1 :])
    return np.arange(cells) // inner % sizes[key]


def fold_condition(
    tree: exp.Expr,
    compare: Callable[[type[exp.Expr], exp.Expr, exp.Expr], NDArray[np.bool_]],
    *,
    where: str,
) -> NDArray[np.bool_]:
    """Where a condition holds, made of comparisons of a left with a right side.

    `compare` is called with the kind of each comparison; `where` is what a refusal says of the rest.
    """

    def fold_node(node: exp.Expr) -> NDArray[np.bool_]:
        match node:
            case exp.Paren():
                return fold_node(node.this)
            case exp.And():
                return fold_node(node.this) & fold_node(node.expression)
            case exp.Or():
                return fold_node(node.this) | fold_node(node.expression)
            case exp.Not():
                return ~fold_node(node.this)
            case exp.Boolean():
                return np.array(bool(node.this))
            case exp.Between() if not node.args.get("symmetric"):
                low, high = node.args["low"], node.args["high"]
                return compare(exp.GTE, node.this, low) & compare(exp.LTE, node.this, high)
            case exp.Is() if isinstance(node.expression, exp.Null):
                return compare(exp.Is, node.this, node.expression)
            case exp.In() if node.expressions:
                tests = [compare(exp.EQ, node.this, each) for each in node.expressions]
                any_of: NDArray[np.bool_] = np.logical_or.reduce(tests)
                return any_of
            case _ if type(node) in COMPARISONS:
                return compare(type(node), node.this, node.expression)
        raise refuse(f"{node.sql()[:60]!r} {where}")

    return fold_node(tree)


def _moment_number(node: exp.Expr, kind: pa.DataType) -> int | float:
    """A constant in the numbers that a column of dates or moments is stored in."""
    try:
        value = fold(node, EPOCH)
    except NotConstant:
        value = None
    if isinstance(value, str):
        value = read_moment(value)
    if not isinstance(value, date):
        raise refuse("HAVING compares a date with what is none")
    moment = to_moment(value)
    if pa.types.is_date32(kind):
        return to_days(moment) + (moment.time() != EPOCH.time()) * 0.5
    return to_microseconds(moment)


def _cast(inner: Band, tree: exp.Cast) -> Band:
    name = tree.to.this.name
    if name in _INTEGERS:
        return inner.apply(np.round)
    if name not in _NUMBERS:
        raise refuse(f"noisy values are cast to numbers, not to {name}")
    sizes = [each.this for each in tree.to.expressions]
    if name == "DECIMAL" and len(sizes) == 2:
        places = int(Fraction(sizes[1].name))
        return inner.apply(lambda numbers: np.round(numbers, places))
    return inner.apply(lambda numbers: numbers)


def _rising(tree: exp.Expr) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """A function of numbers that never falls."""

    def logarithm(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: NDArray[np.float64] = np.log(np.maximum(numbers, 0))
            return found

    def exponential(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            found: NDArray[np.float64] = np.exp(numbers)
            return found

    match tree:
        case exp.Round():
            places = _places(tree.args.get("decimals"))
            return lambda numbers: np.round(numbers, places)
        case exp.Sqrt():
            return lambda numbers: np.sqrt(np.maximum(numbers, 0))
        case exp.Floor():
            return np.floor
        case exp.Ceil():
            return np.ceil
        case exp.Ln():
            return logarithm
        case exp.Exp():
            return exponential
        case _:
            return np.sign


def _places(node: exp.Expr | None) -> int:
    if node is None:
        return 0
    sign, literal = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(literal, exp.Literal) or not literal.is_int:
        raise refuse("ROUND takes a whole number of places")
    return sign * int(literal.this)


# No share is exactly nothing or everything: there every cell before the first record would do.
_EDGE = 1e-9


def _read_quantiles(
    noise: Noise, noisy_counts: NDArray[np.int64]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """For every quantile the values of all groups, with the ends of their 95 % intervals.

    `noisy_counts` has all levels, one after the other, in rows; columns are groups.
    """
    measure, widths = noise.measure, list_levels()
    sizes = [-(-CELLS // width) for width in widths]
    levels = np.split(noisy_counts.T.astype(float), np.cumsum(sizes)[:-1], axis=1)
    variances = [noise.deviation**2] * len(widths)
    from sfumato.inference.models.cumulative import estimate_cumulative, find_cell

    found = estimate_cumulative(levels, widths, variances, reach=noise.shape.reach)
    low, high = float(measure.low), float(measure.high)
    quantiles = []
    for part in range(measure.parts + 1):
        share = min(max(part / measure.parts, _EDGE), 1 - _EDGE)
        cells = np.array(
            [
                find_cell(shares, lower, upper, share)
                # Where all counts together are within their noise, nothing is known.
                if not np.isnan(shares[0])
                else (CELLS // 2, 0, CELLS - 1)
                for shares, lower, upper in zip(found.shares, found.low, found.high, strict=True)
            ],
            np.int64,
        ).reshape(-1, 3)
        # The middle of the cell, from the lower end of the first to the upper end of the last possible one.
        value, first, last = (cells + np.array([0.5, 0, 1])).T * (high - low) / CELLS + low
        quantiles.append((value, first, last))
    return quantiles
