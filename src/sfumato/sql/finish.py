"""From noisy measures to an answer: ratios, arithmetic, HAVING, ORDER BY and LIMIT, with intervals.

A pure function of the plan and the noisy values, so it costs nothing and gives the same answer twice.
"""

from __future__ import annotations

import io
import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.errors import LedgerError, ReleaseError
from sfumato.questions import note_total
from sfumato.sql.check import AGGREGATE, refuse
from sfumato.sql.choices import cell_edges
from sfumato.sql.intervals import Term, ratio_interval, variance_interval
from sfumato.sql.plan import (
    MISS,
    Noise,
    QueryPlan,
    find_aggregate_numbers,
    find_mode,
    half_width,
    is_key,
    name_columns,
)
from sfumato.tables.arrays import label_array, read_parquet, to_arrow

if TYPE_CHECKING:
    from sfumato.sql.aggregates import Aggregate, Measure

_MOST_GROUPS = 2**24
COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
}
"""What a comparison computes, of numbers or of texts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyAggregates:
    """Noisy values per measure and group.

    For a quantile the chosen steps (answer, low end, high end), for a mode the codes of the chosen labels.
    """

    values: tuple[NDArray[np.int64], ...]
    keys: tuple[tuple[Any, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a statement would cost and err, before it is bought.

    `errors` has half the width of the 95 % confidence interval of each column, None where it depends on the
    answer; `groups` their number, None if they are chosen privately. `admitted` says whether the budget has
    room for it, `stored` whether it was answered before and is free.
    """

    epsilon: Fraction
    delta: Fraction
    errors: Mapping[str, float | None]
    groups: int | None
    admitted: bool
    stored: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The answer to a statement.

    Aggregates have their 95 % confidence interval beside them, in `<name>_low` and `<name>_high`. `scales`
    names the noise behind each column, `spent` what was charged now: nothing for a repeated statement,
    `notes` what should be known of the answer before it is used. EXPLAIN answers with a `price`.
    """

    table: pa.Table
    spent: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    repeated: bool = False
    synthetic: bool = False
    public: bool = False
    scales: Mapping[str, str] = field(default_factory=dict)
    explanation: str | None = None
    price: Price | None = None
    notes: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        """The answer as an Arrow table."""
        return self.table

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not a dependency
        """The answer as a pandas frame; pandas must be installed."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:  # noqa: ANN401 - polars is not a dependency
        """The answer as a polars frame; polars must be installed."""
        try:
            import polars  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise ReleaseError("polars is not installed; install it, or use to_arrow()") from None
        return polars.from_arrow(self.table)

    def __repr__(self) -> str:
        return self.explanation or f"Answer({self.table.num_rows} rows: {', '.join(self.table.column_names)})"


def finish_query(plan: QueryPlan, noisy: NoisyAggregates) -> pa.Table:
    """The answer as a table: one column per output, with its `_low` and `_high` beside aggregates."""
    evaluator = _Evaluator(plan, noisy)
    rows = np.arange(evaluator.rows)
    if plan.having is not None:
        rows = rows[evaluator.test(plan.having)]
    order = [(evaluator.sort_key(tree), descending) for tree, descending in plan.order]
    rows = sort_rows(rows, order, limit=plan.limit, offset=plan.offset)
    columns: dict[str, pa.Array] = {}
    for output in plan.outputs:
        if is_key(output.tree):
            columns[output.name] = evaluator.labels(int(output.tree.name), rows)
            continue
        mode = find_mode(output.tree, plan.aggregates)
        if mode is not None:
            arrays = evaluator.chosen_labels(mode, rows)
            columns |= dict(zip(name_columns(output, plan.aggregates), arrays, strict=True))
            continue
        band = evaluator.band(output.tree)
        for suffix, array in (("", band.value), ("_low", band.low), ("_high", band.high)):
            columns[output.name + suffix] = to_arrow(array[rows])
    return pa.table(columns)


def sort_rows(
    rows: NDArray[np.intp], order: list[tuple[NDArray[Any], bool]], *, limit: int | None, offset: int
) -> NDArray[np.intp]:
    """The rows that ORDER BY, LIMIT and OFFSET leave; `order` has ranks and whether they descend."""
    for ranks, descending in reversed(order):
        rows = rows[np.argsort(-ranks[rows] if descending else ranks[rows], kind="stable")]
    return rows[offset:][:limit]


def fold_condition(
    tree: exp.Expr,
    compare: Callable[[type[exp.Expr], exp.Expr, exp.Expr], NDArray[np.bool_]],
    *,
    where: str,
) -> NDArray[np.bool_]:
    """Where a condition holds, made of comparisons of a left with a right side.

    `compare` is called with the kind of each comparison; `where` is what a refusal says of the rest.
    """

    def fold(node: exp.Expr) -> NDArray[np.bool_]:
        match node:
            case exp.Paren():
                return fold(node.this)
            case exp.And():
                return fold(node.this) & fold(node.expression)
            case exp.Or():
                return fold(node.this) | fold(node.expression)
            case exp.Not():
                return ~fold(node.this)
            case exp.Boolean():
                return np.array(bool(node.this))
            case exp.Between() if not node.args.get("symmetric"):
                low, high = node.args["low"], node.args["high"]
                return compare(exp.GTE, node.this, low) & compare(exp.LTE, node.this, high)
            case exp.In() if node.expressions:
                tests = [compare(exp.EQ, node.this, each) for each in node.expressions]
                any_of: NDArray[np.bool_] = np.logical_or.reduce(tests)
                return any_of
            case _ if type(node) in COMPARISONS:
                return compare(type(node), node.this, node.expression)
        raise refuse(f"{node.sql()[:60]!r} {where}")

    return fold(tree)


def note_counts(plan: QueryPlan, noisy: NoisyAggregates) -> tuple[str, ...]:
    """That all counts of an answer together may be noise alone, if they may."""
    found = [
        (half_width(noise, count=values.size), float(values.sum(dtype=object)))
        for noise, values in zip(plan.noises, noisy.values, strict=True)
        if noise.measure.statistic in ("records", "present", "individuals") and values.size
    ]
    if not found or plan.selection is not None:
        return ()
    reach, total = min(found)
    note = note_total(total, reach, of="answer")
    return () if note is None else (note,)


def rehearse_query(plan: QueryPlan) -> None:
    """Raises the refusal that finishing an answer to `plan` would end in: before it is paid for."""
    trees = [*(output.tree for output in plan.outputs), *(tree for tree, _ in plan.order)]
    if plan.having is None and all(isinstance(tree, exp.Column) for tree in trees):
        return
    groups = 0 if plan.selection is not None else plan.groups
    values = tuple(
        np.zeros((len(noise.costs), groups) if noise.kind == "exponential" else groups, np.int64)
        for noise in plan.noises
    )
    finish_query(plan, NoisyAggregates(values=values, keys=() if plan.selection is not None else None))


def pack_noisy(noisy: NoisyAggregates) -> bytes:
    """Noisy aggregates as bytes for the ledger; holds no exact value."""
    columns = {
        f"{index}/{part}": to_arrow(row)
        for index, values in enumerate(noisy.values)
        for part, row in enumerate(np.atleast_2d(values))
    }
    if noisy.keys is not None:
        columns["keys"] = pa.array([json.dumps(key) for key in noisy.keys], pa.string())
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def unpack_noisy(payload: bytes, plan: QueryPlan) -> NoisyAggregates:
    """The noisy aggregates of a stored answer to `plan`."""
    try:
        table = read_parquet(payload, rows=_MOST_GROUPS)
        values = []
        for index, noise in enumerate(plan.noises):
            stored = sum(name.startswith(f"{index}/") for name in table.column_names)
            rows = [np.asarray(table[f"{index}/{part}"].combine_chunks()) for part in range(max(1, stored))]
            values.append(np.stack(rows) if noise.kind == "exponential" else rows[0])
        keys = None
        if plan.selection is not None:
            keys = tuple(tuple(json.loads(text)) for text in table["keys"].to_pylist())
    except (pa.ArrowException, KeyError, OSError, ValueError):
        raise LedgerError("a stored answer cannot be read; verify the ledger") from None
    return NoisyAggregates(values=tuple(values), keys=keys)


@dataclass(frozen=True, slots=True)
class _Band:
    """Values with the interval that encloses what they would be without noise."""

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]

    def apply(self, rising: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> _Band:
        """The band of a function that never falls."""
        return _Band(*(rising(each.astype(float)) for each in (self.value, self.low, self.high)))


class _Evaluator:
    """The values of trees over keys and aggregates, for every group."""

    def __init__(self, plan: QueryPlan, noisy: NoisyAggregates) -> None:
        self._plan, self._noisy = plan, noisy
        self._index = {noise.measure: index for index, noise in enumerate(plan.noises)}
        self.rows = plan.groups if noisy.keys is None else len(noisy.keys)

    def labels(self, key: int, rows: NDArray[np.intp]) -> pa.Array:
        """The labels of a key for some rows."""
        known = self._plan.keys[key].labels
        if self._noisy.keys is not None:
            found = [self._noisy.keys[row][key] for row in rows]
            return pa.array(found if known is None else [known[code] for code in found])
        return label_array(self._codes(key)[rows].astype(np.int32), known or ("",))

    def chosen_labels(self, mode: Measure, rows: NDArray[np.intp]) -> list[pa.Array]:
        """The labels that were chosen for some rows, the first ones first."""
        codes = self._noisy.values[self._index[mode]]
        return [label_array(each[rows].astype(np.int32), mode.labels or ("",)) for each in codes]

    def sort_key(self, tree: exp.Expr) -> NDArray[Any]:
        """Numbers in the order of a tree's values; keys sort in the order of their domain."""
        if not is_key(tree):
            return self.band(tree).value
        if self._noisy.keys is None:
            return self._codes(int(tree.name))
        texts = [row[int(tree.name)] for row in self._noisy.keys]
        return np.unique(texts, return_inverse=True)[1] if texts else np.empty(0, np.int64)

    def band(self, tree: exp.Expr) -> _Band:
        """The values of a tree and an interval that holds all that they are made of at once."""
        return self._walk(tree, MISS / max(1, len(set(find_aggregate_numbers(tree)))))

    def test(self, tree: exp.Expr) -> NDArray[np.bool_]:
        """Whether a condition holds for the noisy values of each group."""
        return np.broadcast_to(fold_condition(tree, self._compare, where="is not a condition"), (self.rows,))

    def _codes(self, key: int) -> NDArray[np.int64]:
        sizes = [len(each.labels or ()) for each in self._plan.keys]
        inner = int(np.prod(sizes[key + 1 :], dtype=np.int64))
        return np.arange(self.rows) // inner % sizes[key]

    def _walk(self, tree: exp.Expr, share: float) -> _Band:
        match tree:
            case exp.Literal():
                if tree.is_string:
                    raise refuse("text in arithmetic over aggregates")
                number = np.full(self.rows, float(tree.this))
                return _Band(number, number, number)
            case exp.Column() if tree.table == AGGREGATE:
                return self._aggregate(self._plan.aggregates[int(tree.name)], share)
            case exp.Column():
                labels = self._plan.keys[int(tree.name)].labels
                if labels is None or not isinstance(labels[0], int) or self._noisy.keys is not None:
                    raise refuse(
                        "arithmetic with a group key that is not a whole number with a public domain"
                    )
                numbers = np.array(labels, float)[self._codes(int(tree.name))]
                return _Band(numbers, numbers, numbers)
            case exp.Paren():
                return self._walk(tree.this, share)
            case exp.Neg():
                inner = self._walk(tree.this, share)
                return _Band(-inner.value, -inner.high, -inner.low)
            case exp.Round():
                places = _places(tree.args.get("decimals"))
                return self._walk(tree.this, share).apply(lambda numbers: np.round(numbers, places))
            case exp.Sqrt():
                inner = self._walk(tree.this, share)
                return inner.apply(lambda numbers: np.sqrt(np.maximum(numbers, 0)))
            case exp.Abs():
                inner = self._walk(tree.this, share)
                crosses = (inner.low <= 0) & (inner.high >= 0)
                ends = np.stack([np.abs(inner.low), np.abs(inner.high)])
                return _Band(np.abs(inner.value), np.where(crosses, 0, ends.min(0)), ends.max(0))
            case _:
                return _combine(tree, self._walk(tree.this, share), self._walk(tree.expression, share))

    def _compare(self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> NDArray[np.bool_]:
        if is_key(left) and isinstance(right, exp.Literal):
            labels = self.labels(int(left.name), np.arange(self.rows)).to_pylist()
            known = self._plan.keys[int(left.name)].labels
            if not right.is_string and (known is None or not isinstance(known[0], int)):
                raise refuse("HAVING compares a text key with a number; quote it")
            read: type[str] | type[float] = str if right.is_string else float
            literal = read(right.this)
            return np.array([COMPARISONS[kind](read(label), literal) for label in labels], bool)
        result: NDArray[np.bool_] = COMPARISONS[kind](self.band(left).value, self.band(right).value)
        return result

    def _aggregate(self, aggregate: Aggregate, share: float) -> _Band:
        indices = [self._index[measure] for measure in aggregate.measures]
        parts = [(self._plan.noises[index], self._noisy.values[index]) for index in indices]
        if aggregate.kind == "measure":
            return _measured(*parts[0], share)
        if aggregate.kind == "average":
            return _average(parts, share)
        return _spread(parts, share, sample=aggregate.sample, root=aggregate.kind == "deviation")


def _measured(noise: Noise, noisy: NDArray[np.int64], share: float) -> _Band:
    measure = noise.measure
    if noise.kind == "exponential":
        cells = [cell_edges(chosen, float(measure.low), float(measure.high)) for chosen in noisy]
        lower, upper = cells[0]
        value = (lower + upper) / 2
        if len(cells) > 1:
            return _Band(value, np.minimum(value, cells[1][0]), np.maximum(value, cells[2][1]))
        # MIN or MAX, whose one choice lies inside with 95 %: the extreme is between it and the bound.
        if measure.quantile == 0:
            return _Band(value, np.full_like(value, float(measure.low)), upper)
        return _Band(value, lower, np.full_like(value, float(measure.high)))
    width = half_width(noise, share)
    if measure.grid == 1:
        whole = int(np.ceil(width))
        return _Band(noisy, noisy - whole, noisy + whole)
    value = noisy / measure.grid
    return _Band(value, value - width / measure.grid, value + width / measure.grid)


def _average(parts: list[tuple[Noise, NDArray[np.int64]]], share: float) -> _Band:
    (top_noise, top), (bottom_noise, bottom) = parts
    measure = top_noise.measure
    centre, grid = float(measure.centre), measure.grid
    low, high = float(measure.low), float(measure.high)
    ends = (low - centre) * grid, (high - centre) * grid
    total, count = top.astype(float), bottom.astype(float)
    ratio = np.divide(total, count, out=np.zeros_like(total), where=count >= 1)
    first, last = ratio_interval(Term(total, top_noise), Term(count, bottom_noise), ends, share)
    return _Band(*(np.clip(centre + each / grid, low, high) for each in (ratio, first, last)))


def _spread(parts: list[tuple[Noise, NDArray[np.int64]]], share: float, *, sample: bool, root: bool) -> _Band:
    """Variance or standard deviation from noisy sums, sums of squares and counts."""
    (sum_noise, sums), (square_noise, squares), (count_noise, counts) = parts
    half = float(sum_noise.measure.high - sum_noise.measure.low) / 2
    total = Term(sums.astype(float), sum_noise, 1 / sum_noise.measure.grid)
    square = Term(squares.astype(float), square_noise, half**2 / square_noise.measure.grid)
    count = np.maximum(counts.astype(float), 1)
    value = square.values / count - np.clip(total.values / count, -half, half) ** 2
    value = value * count / np.maximum(count - 1, 1) if sample else value
    value = np.clip(value, 0, half**2 * (2 if sample else 1))
    low, high = variance_interval(
        total, square, Term(counts.astype(float), count_noise), half, share, sample=sample
    )
    if root:
        value, low, high = np.sqrt(value), np.sqrt(low), np.sqrt(high)
    return _Band(value, np.minimum(low, value), np.maximum(high, value))


def _places(node: exp.Expr | None) -> int:
    if node is None:
        return 0
    sign, literal = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(literal, exp.Literal) or not literal.is_int:
        raise refuse("ROUND takes a whole number of places")
    return sign * int(literal.this)


def _combine(tree: exp.Expr, left: _Band, right: _Band) -> _Band:
    match tree:
        case exp.Add():
            return _Band(left.value + right.value, left.low + right.low, left.high + right.high)
        case exp.Sub():
            return _Band(left.value - right.value, left.low - right.high, left.high - right.low)
        case exp.Mul():
            corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
            return _Band(left.value * right.value, np.min(corners, 0), np.max(corners, 0))
        case _:
            unsure = (right.low <= 0) & (right.high >= 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                corners = [a / b for a in (left.low, left.high) for b in (right.low, right.high)]
                low = np.where(unsure, -np.inf, np.min(corners, 0))
                high = np.where(unsure, np.inf, np.max(corners, 0))
                zero = right.value == 0
                return _Band(np.where(zero, np.nan, left.value / np.where(zero, 1, right.value)), low, high)
