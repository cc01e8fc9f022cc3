"""From noisy measures to an answer: ratios, arithmetic, HAVING, ORDER BY and LIMIT, with intervals.

A pure function of the plan and the noisy values, so it costs nothing and gives the same answer twice.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp

from sfumato.errors import LedgerError, ReleaseError
from sfumato.questions import note_total
from sfumato.sql.check import AGGREGATE, KEY, refuse
from sfumato.sql.intervals import Term, half_width, ratio_interval, variance_interval
from sfumato.sql.plan import Noise, QueryPlan, find_mode, name_columns
from sfumato.sql.relation import CELLS
from sfumato.tables.arrays import label_array, read_parquet, to_arrow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.sql.aggregates import Aggregate, Measure


_MISS = 0.05
_CANDIDATES = CELLS + 3
_LAST = _CANDIDATES - 1
# Offsets from the answer at which blocks begin; the last block reaches beyond every candidate.
_STARTS = np.array([0, *(2**power for power in range(_LAST.bit_length()))])
_ENDS = np.array([*(_STARTS[1:] - 1), 2 ** _LAST.bit_length() - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One choice: how far from the wanted rank it aims, and the rate of the exponential mechanism."""

    shift: int
    rate: Fraction
    side: Literal["answer", "low", "high"] = "answer"


def quantile_ranks(noise: Noise, plan: QueryPlan) -> tuple[Ranks, ...]:
    """The choices of a quantile: the answer, then a block of cells below it and one above it.

    Only an end on the side where the true quantile lies can miss it, and does so with a probability of at
    most exp(-rate * shift) / (1 + exp(-rate * shift)). The ends aim far enough for that to be 5 %; less if
    an output is made of several aggregates, whose intervals must hold at once.

    MIN and MAX take one choice. It aims so far inside that it lies beyond the extreme with 5 % at most; on
    the other side one record more could lie anywhere, so the interval goes to the bound.
    """
    share, unit = noise.measure.quantile or Fraction(0), plan.unit
    largest = max(share.numerator, share.denominator - share.numerator)
    sensitivity = Fraction(unit.max_records * largest * (2 if unit.neighbours == "replace" else 1))
    rates = [cost.scale / (2 * sensitivity) for cost in noise.costs]
    odds = _count_parts(noise, plan) / _MISS - 1
    if share in (0, 1):
        edge = math.ceil(math.log(_CANDIDATES * odds) / float(rates[0]))
        return (Ranks(shift=edge if share == 0 else -edge, rate=rates[0]),)
    answer, low, high = rates
    reach = math.ceil(math.log(odds) / float(low))
    return (
        Ranks(shift=0, rate=answer),
        Ranks(shift=-reach, rate=low, side="low"),
        Ranks(shift=reach, rate=high, side="high"),
    )


def _count_parts(noise: Noise, plan: QueryPlan) -> int:
    """The most aggregates that one output is made of together with the measure of `noise`."""
    parts = 1
    for output in plan.outputs:
        used = {node.name for node in output.tree.find_all(exp.Column) if node.table == AGGREGATE}
        if any(noise.measure in plan.aggregates[int(name)].measures for name in used):
            parts = max(parts, len(used))
    return parts


def quantile_scores(
    true_histogram: NDArray[np.int64], noise: Noise, ranks: Ranks, answers: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The score of every candidate for every group; those of an end lie next to the chosen `answers`."""
    share = noise.measure.quantile or Fraction(0)
    total = true_histogram.sum(axis=1, keepdims=True)
    upto = np.cumsum(true_histogram, axis=1)
    far = np.full_like(total, 2**60)
    first = np.hstack([-far, share.denominator * (upto - true_histogram), share.denominator * total])
    last = np.hstack([np.zeros_like(total), share.denominator * upto, far])
    if answers is not None:
        lower, upper = _blocks(answers, ranks)
        first, last = np.take_along_axis(first, lower, axis=1), np.take_along_axis(last, upper, axis=1)
    wanted = share.numerator * total + ranks.shift
    scores: NDArray[np.int64] = -np.maximum(0, np.maximum(first - wanted, wanted - last))
    if answers is not None:
        return np.repeat(scores, _ENDS - _STARTS + 1, axis=1)
    return scores


def choose_step(
    places: NDArray[np.int64], ranks: Ranks, answers: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The cell that a chosen candidate stands for: of a block of cells the outermost."""
    if answers is None:
        return places
    outermost = _ENDS[np.searchsorted(_ENDS, places)]
    steps: NDArray[np.int64] = answers - outermost if ranks.side == "low" else answers + outermost
    return np.clip(steps, 0, _LAST)


def _blocks(answers: NDArray[np.int64], ranks: Ranks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last cell of every block beside the answers; beyond a bound it is the bound."""
    if ranks.side == "low":
        lower, upper = answers[:, None] - _ENDS, answers[:, None] - _STARTS
    else:
        lower, upper = answers[:, None] + _STARTS, answers[:, None] + _ENDS
    return np.clip(lower, 0, _LAST), np.clip(upper, 0, _LAST)


def cell_edges(
    chosen: NDArray[np.int64], low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The interval that each chosen candidate stands for."""
    width = (high - low) / CELLS
    lower = np.clip(low + (chosen - 1) * width, low, high)
    upper = np.clip(low + chosen * width, low, high)
    upper = np.where(chosen == 0, low, upper)
    return lower, upper


_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyAggregates:
    """Noisy values per measure and group.

    For a quantile the chosen steps (answer, low end, high end), for a mode the codes of the chosen labels.
    """

    values: tuple[NDArray[np.int64], ...]
    keys: tuple[tuple[Any, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class _Band:
    """Values with the interval that encloses what they would be without noise."""

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]

    def take(self, rows: NDArray[np.intp]) -> _Band:
        return _Band(self.value[rows], self.low[rows], self.high[rows])


def finish_query(plan: QueryPlan, noisy: NoisyAggregates) -> pa.Table:
    """The answer as a table: one column per output, with its `_low` and `_high` beside aggregates."""
    evaluator = _Evaluator(plan, noisy)
    rows = np.arange(evaluator.rows)
    if plan.having is not None:
        rows = rows[evaluator.test(plan.having)]
    for tree, descending in reversed(plan.order):
        ranks = evaluator.sort_key(tree)[rows]
        order = np.argsort(-ranks if descending else ranks, kind="stable")
        rows = rows[order]
    rows = rows[plan.offset :]
    rows = rows if plan.limit is None else rows[: plan.limit]
    columns: dict[str, pa.Array] = {}
    for output in plan.outputs:
        if isinstance(output.tree, exp.Column) and output.tree.table == KEY:
            columns[output.name] = evaluator.labels(int(output.tree.name), rows)
            continue
        mode = find_mode(output.tree, plan.aggregates)
        if mode is not None:
            arrays = evaluator.chosen_labels(mode, rows)
            columns |= dict(zip(name_columns(output, plan.aggregates), arrays, strict=True))
            continue
        band = evaluator.band(output.tree).take(rows)
        for suffix, array in (("", band.value), ("_low", band.low), ("_high", band.high)):
            columns[output.name + suffix] = to_arrow(array)
    return pa.table(columns)


def note_counts(plan: QueryPlan, noisy: NoisyAggregates) -> tuple[str, ...]:
    """That all counts of an answer together may be noise alone, if they may."""
    found = []
    for noise, values in zip(plan.noises, noisy.values, strict=True):
        if noise.measure.statistic in ("records", "present", "individuals") and values.size:
            # A sum of many has a normal law, and one count the law of its noise.
            width = half_width(noise, _SHARE)
            if values.size > 1:
                width = NormalDist().inv_cdf(1 - _SHARE / 2) * _deviation(noise) * math.sqrt(values.size)
            found.append((width, float(values.sum(dtype=object))))
    if not found or plan.selection is not None:
        return ()
    reach, total = min(found)
    told = note_total(total, reach, of="answer")
    return () if told is None else (told,)


def _deviation(noise: Noise) -> float:
    scale = float(noise.scale)
    return scale if noise.kind == "gaussian" else math.sqrt(2) * scale


def rehearse_query(plan: QueryPlan) -> None:
    """Raises the refusal that finishing an answer to `plan` would end in: before it is paid for."""
    trees = [output.tree for output in plan.outputs if not _is_plain(output.tree)]
    if not trees and plan.having is None and all(_is_plain(tree) for tree, _ in plan.order):
        return
    groups = 0 if plan.selection is not None else plan.groups
    values = tuple(
        np.zeros((len(noise.costs), groups) if noise.kind == "exponential" else groups, np.int64)
        for noise in plan.noises
    )
    finish_query(plan, NoisyAggregates(values=values, keys=() if plan.selection is not None else None))


def _is_plain(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Column)


class _Evaluator:
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
        if not (isinstance(tree, exp.Column) and tree.table == KEY):
            return self.band(tree).value
        if self._noisy.keys is None:
            return self._codes(int(tree.name))
        texts = [row[int(tree.name)] for row in self._noisy.keys]
        return np.unique(texts, return_inverse=True)[1] if texts else np.empty(0, np.int64)

    def band(self, tree: exp.Expr) -> _Band:
        """The values of a tree and an interval that holds all that they are made of at once."""
        parts = {node.name for node in tree.find_all(exp.Column) if node.table == AGGREGATE}
        return self._walk(tree, _SHARE / max(1, len(parts)))

    def test(self, tree: exp.Expr) -> NDArray[np.bool_]:
        """Whether a condition holds for the noisy values of each group."""
        result = self._logic(tree)
        return np.broadcast_to(result, (self.rows,))

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
                inner = self._walk(tree.this, share)
                places = _places(tree.args.get("decimals"))
                return _Band(
                    *(np.round(each.astype(float), places) for each in (inner.value, inner.low, inner.high))
                )
            case exp.Sqrt():
                inner = self._walk(tree.this, share)
                return _Band(
                    *(
                        np.sqrt(np.maximum(each.astype(float), 0))
                        for each in (inner.value, inner.low, inner.high)
                    )
                )
            case exp.Abs():
                inner = self._walk(tree.this, share)
                crosses = (inner.low <= 0) & (inner.high >= 0)
                ends = np.stack([np.abs(inner.low), np.abs(inner.high)])
                return _Band(np.abs(inner.value), np.where(crosses, 0, ends.min(0)), ends.max(0))
            case _:
                return _combine(tree, self._walk(tree.this, share), self._walk(tree.expression, share))

    def _logic(self, tree: exp.Expr) -> NDArray[np.bool_]:
        match tree:
            case exp.Paren():
                return self._logic(tree.this)
            case exp.And():
                return self._logic(tree.this) & self._logic(tree.expression)
            case exp.Or():
                return self._logic(tree.this) | self._logic(tree.expression)
            case exp.Not():
                return ~self._logic(tree.this)
            case exp.Between():
                low, high = tree.args["low"], tree.args["high"]
                return self._compare(exp.GTE, tree.this, low) & self._compare(exp.LTE, tree.this, high)
            case exp.In():
                tests = [self._compare(exp.EQ, tree.this, each) for each in tree.expressions]
                any_of: NDArray[np.bool_] = np.logical_or.reduce(tests)
                return any_of
            case exp.EQ() | exp.NEQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
                return self._compare(type(tree), tree.this, tree.expression)
            case _:
                raise refuse(f"{tree.sql()[:60]} is not a condition")

    def _compare(self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> NDArray[np.bool_]:
        if isinstance(left, exp.Column) and left.table == KEY and isinstance(right, exp.Literal):
            rows = np.arange(self.rows)
            values: list[Any] = self.labels(int(left.name), rows).to_pylist()
            known = self._plan.keys[int(left.name)].labels
            if not right.is_string and (known is None or not isinstance(known[0], int)):
                raise refuse("HAVING compares a text key with a number; quote it")
            wanted: Any = str(right.this) if right.is_string else float(right.this)
            pairs = [(float(value) if not right.is_string else str(value), wanted) for value in values]
            return np.array([_OPERATIONS[kind](*pair) for pair in pairs], bool)
        result: NDArray[np.bool_] = _OPERATIONS[kind](self.band(left).value, self.band(right).value)
        return result

    def _noisy_of(self, aggregate: Aggregate) -> list[tuple[Noise, NDArray[np.int64]]]:
        indices = [self._index[measure] for measure in aggregate.measures]
        return [(self._plan.noises[index], self._noisy.values[index]) for index in indices]

    def _aggregate(self, aggregate: Aggregate, share: float) -> _Band:
        parts = self._noisy_of(aggregate)
        if aggregate.kind == "measure":
            return _measured(*parts[0], share)
        if aggregate.kind == "average":
            return _average(parts, share)
        return _spread(parts, share, sample=aggregate.sample, root=aggregate.kind == "deviation")


def _measured(noise: Noise, noisy: NDArray[np.int64], share: float) -> _Band:
    measure = noise.measure
    if noise.kind == "exponential":
        cells = [cell_edges(chosen, float(measure.low), float(measure.high)) for chosen in noisy]
        value = (cells[0][0] + cells[0][1]) / 2
        if len(cells) == 1:
            return _extreme(measure, value, cells[0])
        return _Band(value, np.minimum(value, cells[1][0]), np.maximum(value, cells[2][1]))
    width = half_width(noise, share)
    if measure.grid == 1:
        whole = int(np.ceil(width))
        return _Band(noisy, noisy - whole, noisy + whole)
    value = noisy / measure.grid
    return _Band(value, value - width / measure.grid, value + width / measure.grid)


def _extreme(
    measure: Measure, value: NDArray[np.float64], edges: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> _Band:
    """MIN or MAX, whose one choice lies inside with 95 %: the extreme is between it and the bound."""
    if measure.quantile == 0:
        return _Band(value, np.full_like(value, float(measure.low)), edges[1])
    return _Band(value, edges[0], np.full_like(value, float(measure.high)))


def _average(parts: list[tuple[Noise, NDArray[np.int64]]], share: float) -> _Band:
    (top_noise, top), (bottom_noise, bottom) = parts
    measure = top_noise.measure
    centre, grid = float(measure.centre), measure.grid
    low, high = float(measure.low), float(measure.high)
    ends = (low - centre) * grid, (high - centre) * grid
    total, count = top.astype(float), bottom.astype(float)
    ratio = np.divide(total, count, out=np.zeros_like(total), where=count >= 1)
    first, last = ratio_interval(Term(total, top_noise), Term(count, bottom_noise), ends, share)
    shift = [np.clip(centre + each / grid, low, high) for each in (ratio, first, last)]
    return _Band(*shift)


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
            return _divide(left, right)


def _divide(left: _Band, right: _Band) -> _Band:
    unsure = (right.low <= 0) & (right.high >= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = [a / b for a in (left.low, left.high) for b in (right.low, right.high)]
        low = np.where(unsure, -np.inf, np.min(corners, 0))
        high = np.where(unsure, np.inf, np.max(corners, 0))
        value = np.where(right.value == 0, np.nan, left.value / np.where(right.value == 0, 1, right.value))
    return _Band(value, low, high)


_OPERATIONS: dict[type[exp.Expr], Any] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
}


_MOST_GROUPS = 2**24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The answer to a statement.

    Aggregates have their 95 % interval beside them, in `<name>_low` and `<name>_high`. `scales` names
    the noise behind each column, `spent` what was charged now: nothing for a repeated statement, `notes`
    what should be known of the answer before it is used.
    """

    table: pa.Table
    spent: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    repeated: bool = False
    synthetic: bool = False
    public: bool = False
    scales: Mapping[str, str] = field(default_factory=dict)
    explanation: str | None = None
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
