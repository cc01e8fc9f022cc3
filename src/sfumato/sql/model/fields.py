"""The columns that a statement about a model may name, and which of their codes a condition keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from sfumato.exact import NORMAL_95, format_exact
from sfumato.recipes.base import column_labels
from sfumato.schema import Bins, Column, Label, Table
from sfumato.sql.check import refuse
from sfumato.tables.arrays import label_array, to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sfumato.questions import NoiseKind
    from sfumato.sql.model.folder import Output, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A released column: the model's column behind it, and what every code of that stands for.

    `ends` are the least and the largest number behind a code: equal for whole numbers, the edges for
    bins, of which all but the last exclude their upper one. Text has none.
    """

    name: str
    column: str
    labels: tuple[Label, ...]
    ends: tuple[tuple[Fraction, Fraction], ...] | None = None

    @property
    def distinct(self) -> tuple[Label, ...]:
        """The labels in the order of the domain, each once."""
        return tuple(dict.fromkeys(self.labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of a table, which a statement calls `alias`, by their names in lower case."""

    alias: str
    named: Mapping[str, Field]

    def find(self, column: exp.Column) -> Field:
        """The field that a statement names."""
        elsewhere = column.args.get("db") or column.table.lower() not in ("", self.alias.lower())
        if elsewhere or column.name.lower() not in self.named:
            known = ", ".join(field.name for field in self.named.values())
            raise refuse(f"the model has no column {column.sql()[:60]!r} (it has: {known})")
        return self.named[column.name.lower()]


def read_fields(table: Table, sizes: Mapping[str, int]) -> Fields:
    """The fields of `table` whose columns a model has with all their codes."""
    fields: dict[str, Field] = {}
    for name, size in sizes.items():
        column = table.columns.get(name)
        if column is None or column.domain is None or column.size != size:
            continue
        for label_name, labels in column_labels(column).items():
            ends = _ends(column, labels)
            fields[label_name.lower()] = Field(name=label_name, column=name, labels=labels, ends=ends)
    return Fields(alias=table.name, named=fields)


def _ends(column: Column, labels: tuple[Label, ...]) -> tuple[tuple[Fraction, Fraction], ...] | None:
    # `other` and missing values are no numbers, so a column that has them is compared as text.
    if column.extras:
        return None
    if isinstance(column.domain, Bins):
        return tuple(zip(column.domain.edges, column.domain.edges[1:], strict=False))
    numbers = [Fraction(label) for label in labels if isinstance(label, int)]
    return tuple((number, number) for number in numbers) or None


def keep_cells(
    node: exp.Expr, fields: Fields, columns: tuple[str, ...], sizes: Mapping[str, int]
) -> NDArray[np.bool_]:
    """Which cells of `columns` a condition keeps, as an array that broadcasts to their sizes."""
    match node:
        case exp.Paren():
            return keep_cells(node.this, fields, columns, sizes)
        case exp.And():
            left = keep_cells(node.this, fields, columns, sizes)
            return left & keep_cells(node.expression, fields, columns, sizes)
        case exp.Or():
            left = keep_cells(node.this, fields, columns, sizes)
            return left | keep_cells(node.expression, fields, columns, sizes)
        case exp.Not():
            return ~keep_cells(node.this, fields, columns, sizes)
        case exp.Boolean():
            return np.full((1,) * len(columns), bool(node.this))
    field, codes = _compare(node, fields)
    shape = [sizes[name] if name == field.column else 1 for name in columns]
    return np.array(codes, np.bool_).reshape(shape)


def _compare(node: exp.Expr, fields: Fields) -> tuple[Field, list[bool]]:
    if isinstance(node, exp.Between) and isinstance(node.this, exp.Column) and not node.args.get("symmetric"):
        field = fields.find(node.this)
        above = _test(exp.GTE, field, node.args["low"])
        below = _test(exp.LTE, field, node.args["high"])
        return field, [both == (True, True) for both in zip(above, below, strict=True)]
    if isinstance(node, exp.In) and isinstance(node.this, exp.Column) and node.expressions:
        field = fields.find(node.this)
        tests = [_test(exp.EQ, field, each) for each in node.expressions]
        return field, [any(each) for each in zip(*tests, strict=True)]
    if type(node) in _FLIPPED:
        left, right, kind = node.this, node.expression, type(node)
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            left, right, kind = right, left, _FLIPPED[kind]
        if isinstance(left, exp.Column):
            field = fields.find(left)
            return field, _test(kind, field, right)
    raise refuse(
        f"WHERE {node.sql()[:60]!r}; a model is asked by comparisons of a column with values, IN and "
        "BETWEEN, joined by AND, OR and NOT"
    )


_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_OPPOSITE: dict[type[exp.Expr], type[exp.Expr]] = {exp.NEQ: exp.EQ, exp.GTE: exp.LT, exp.GT: exp.LTE}


def _test(kind: type[exp.Expr], field: Field, value: exp.Expr) -> list[bool]:
    """For every code of a field whether what it stands for compares so with a literal."""
    if kind in _OPPOSITE:
        return [not each for each in _test(_OPPOSITE[kind], field, value)]
    literal = _read_literal(value, field)
    if isinstance(literal, str):
        if kind is not exp.EQ and (field.ends is not None or "other" in field.labels):
            raise refuse(
                f"WHERE orders {field.name!r} by text or with its 'other'; compare numbers, or use = and IN"
            )
        texts = [str(label) for label in field.labels]
        if kind is exp.EQ:
            return [text == literal for text in texts]
        return [text < literal if kind is exp.LT else text <= literal for text in texts]
    assert field.ends is not None
    last = len(field.ends) - 1
    return [
        _decide(kind, low, high, literal, open_end=low < high and place < last, field=field)
        for place, (low, high) in enumerate(field.ends)
    ]


def _decide(
    kind: type[exp.Expr], low: Fraction, high: Fraction, value: Fraction, *, open_end: bool, field: Field
) -> bool:
    """Whether all numbers from `low` to `high` compare so with `value`; a refusal if only some do."""
    ends_before = high < value or (open_end and high == value)
    if kind is exp.LT:
        every, none = ends_before, low >= value
    elif kind is exp.LTE:
        every, none = high <= value, low > value
    else:
        every, none = low == high == value, ends_before or low > value
    if every or none:
        return every
    raise refuse(
        f"WHERE {field.name} compares with {format_exact(value)}, which divides the bin from "
        f"{format_exact(low)} to {format_exact(high)}; ask for whole bins with >= and < at their edges"
    )


def _read_literal(value: exp.Expr, field: Field) -> str | Fraction:
    """A literal as text or as a number, whichever the field is compared with."""
    negative = isinstance(value, exp.Neg)
    node = value.this if negative else value
    if isinstance(node, exp.Boolean) and not negative and field.ends is None:
        return "true" if node.this else "false"
    if isinstance(node, exp.Literal) and node.is_string and not negative:
        text = str(node.this)
        # Text names a bin by its label, as the released table has it; numbers are not compared with text.
        if field.ends is None or text in field.labels:
            return text
        raise refuse(f"WHERE compares {field.name!r} with text that is no label of it; write a number")
    if isinstance(node, exp.Literal) and not node.is_string:
        number = _read_number(str(node.this)) * (-1 if negative else 1)
        if field.ends is not None:
            return number
        if "other" in field.labels and number.denominator == 1:
            return str(number.numerator)
        raise refuse(f"WHERE compares the text of {field.name!r} with a number; quote it")
    raise refuse(f"WHERE compares {field.name!r} with {value.sql()[:60]!r}; write a number or text")


def _read_number(text: str) -> Fraction:
    try:
        # A far exponent would be a number of a million digits.
        return Fraction(text) if abs(float(text)) < 1e300 and len(text) <= 1000 else Fraction("1e300")
    except (ValueError, ArithmeticError):
        raise refuse(f"WHERE compares with {text[:60]!r}, which is not a number") from None


_STEPS = 60

Ends = tuple["NDArray[np.float64]", "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Noisy counts of every cell that a question looks at, in records.

    The noise of a cell has the standard deviation `deviation`, in steps of `step`; the noises of cells
    are independent.
    """

    name: str
    values: NDArray[np.float64]
    deviation: float
    step: float
    noise: NoiseKind

    @property
    def reach(self) -> float:
        """How far a cell's noise reaches to one side, with 97.5 %; that of a sum of n, sqrt(n) times.

        A sum of Laplace noises has lighter tails than one of them. Half a step is added because the
        noise is discrete.
        """
        far = math.log(20) / math.sqrt(2) if self.noise == "laplace" else NORMAL_95
        return far * self.deviation + self.step / 2


def enclose_sum(evidence: Evidence, lows: Ends, highs: Ends) -> Ends:
    """The 95 % interval of a sum over cells whose weights lie between low and high ones.

    Of each, in groups: the weighted sum of the evidence, and the sum of squared weights. The sum is at
    least that of the exact counts with low weights and at most that with high ones.
    """
    return lows[0] - evidence.reach * np.sqrt(lows[1]), highs[0] + evidence.reach * np.sqrt(highs[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Sums over groups of cells: weight times evidence, evidence, weights, their squares, and ones."""

    weighted: NDArray[np.float64]
    count: NDArray[np.float64]
    weights: NDArray[np.float64]
    squares: NDArray[np.float64]
    cells: NDArray[np.float64]

    def speak_above(self, ratio: NDArray[np.float64], reach: float) -> NDArray[np.bool_]:
        """Whether the evidence for an average above `ratio` is more than noise."""
        squares = np.maximum(self.squares - 2 * ratio * self.weights + ratio**2 * self.cells, 0)
        above: NDArray[np.bool_] = self.weighted - ratio * self.count > reach * np.sqrt(squares)
        return above


def least_average(moments: Moments, reach: float, ends: Ends) -> NDArray[np.float64]:
    """The least average between `ends`, per group, that the evidence does not speak against.

    An average r is spoken against if the evidence for the sum of (weight - r) is further above zero than
    noise reaches. The exact average is not, with 97.5 % (Fieller's argument), also where few records or
    none are behind it.
    """
    outside, inside = ends
    refused = moments.speak_above(outside, reach)
    for _ in range(_STEPS):
        middle = (outside + inside) / 2
        against = moments.speak_above(middle, reach)
        outside, inside = np.where(against, middle, outside), np.where(against, inside, middle)
    return np.where(refused, outside, ends[0])


def respond(
    question: Question,
    sizes: Mapping[str, int],
    expected: NDArray[np.float64],
    evidence: Evidence | None,
) -> pa.Table:
    """The answer to `question`; `expected` are the counts of the cells of its columns, flat."""
    groups = _Groups(question, sizes, expected, evidence)
    rows = np.arange(groups.rows)
    for output, descending in reversed(question.order):
        ranks = groups.values(output)[rows]
        rows = rows[np.argsort(-ranks if descending else ranks, kind="stable")]
    rows = rows[question.offset :]
    rows = rows if question.limit is None else rows[: question.limit]
    columns: dict[str, pa.Array] = {}
    for output in question.outputs:
        values = groups.values(output)[rows]
        if output.kind == "key" and output.field is not None:
            columns[output.name] = label_array(values.astype(np.int32), output.field.distinct)
            continue
        columns[output.name] = _to_nullable(values)
        for suffix, ends in zip(("_low", "_high"), groups.interval(output), strict=True):
            columns[output.name + suffix] = _to_nullable(ends[rows])
    return pa.table(columns)


class _Groups:
    """The cells that a question keeps, parted by its keys."""

    def __init__(
        self,
        question: Question,
        sizes: Mapping[str, int],
        expected: NDArray[np.float64],
        evidence: Evidence | None,
    ) -> None:
        shape = tuple(sizes[name] for name in question.columns)
        kept = np.ones(shape, np.bool_)
        if question.condition is not None:
            kept &= keep_cells(question.condition, question.fields, question.columns, sizes)
        cells = np.flatnonzero(kept)
        self._codes = dict(
            zip(question.columns, np.unravel_index(cells, shape) if shape else (), strict=True)
        )
        self._expected = expected[cells]
        self._evidence = evidence
        self._noisy = None if evidence is None else evidence.values[cells]
        places = np.zeros(cells.size, np.int64)
        spans = [len(key.distinct) for key in question.keys]
        for key, span in zip(question.keys, spans, strict=True):
            places = places * span + self._place(key)
        # Without keys there is one group, even of no cell; with them, those that have a cell.
        held = np.unique(places) if question.keys else np.zeros(1, np.int64)
        self._inverse = np.searchsorted(held, places)
        self.rows = held.size
        self._keys: dict[Field, NDArray[np.int64]] = {}
        for key, span in reversed(list(zip(question.keys, spans, strict=True))):
            held, self._keys[key] = np.divmod(held, span)

    def values(self, output: Output) -> NDArray[np.float64]:
        """An output per group; a key by the place of its label."""
        if output.kind == "key" and output.field is not None:
            return self._keys[output.field].astype(np.float64)
        count = self._sum(self._expected)
        if output.field is None:
            return count
        lows, highs = self._ends(output.field)
        total = self._sum(self._expected * (lows + highs) / 2)
        if output.kind == "sum":
            return total
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def interval(self, output: Output) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The ends that hold the exact value with 95 %, and the model's value in any case."""
        if self._evidence is None or self._noisy is None:
            unknown = np.full(self.rows, np.nan)
            return unknown, unknown
        values = self.values(output)
        if output.field is None:
            ones = np.ones_like(self._noisy)
            low, high = enclose_sum(self._evidence, self._weigh(ones), self._weigh(ones))
            low = np.maximum(low, 0)
        elif output.kind == "sum":
            lows, highs = self._ends(output.field)
            low, high = enclose_sum(self._evidence, self._weigh(lows), self._weigh(highs))
        else:
            low, high = self._enclose_average(output.field)
        # A group without a record has no average, but its interval stands.
        return np.fmin(low, values), np.fmax(high, values)

    def _enclose_average(self, field: Field) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert self._evidence is not None
        assert field.ends is not None
        least, most = float(min(field.ends)[0]), float(max(high for _, high in field.ends))
        # Weights are taken from the middle: squares of far numbers would lose what they differ by.
        centre, half = (least + most) / 2, (most - least) / 2
        lows, highs = (each - centre for each in self._ends(field))
        smallest, largest = np.full(self.rows, half), np.full(self.rows, -half)
        np.minimum.at(smallest, self._inverse, lows)
        np.maximum.at(largest, self._inverse, highs)
        if not lows.size:
            smallest, largest = largest, smallest
        reach = self._evidence.reach
        low = least_average(self._moments(lows), reach, (smallest, largest))
        high = -least_average(self._moments(-highs), reach, (-largest, -smallest))
        return centre + low, centre + high

    def _moments(self, weights: NDArray[np.float64]) -> Moments:
        assert self._noisy is not None
        return Moments(
            weighted=self._sum(weights * self._noisy),
            count=self._sum(self._noisy),
            weights=self._sum(weights),
            squares=self._sum(weights**2),
            cells=self._sum(np.ones_like(weights)),
        )

    def _weigh(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert self._noisy is not None
        return self._sum(weights * self._noisy), self._sum(weights**2)

    def _sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self._inverse, weights=values, minlength=self.rows).astype(np.float64)

    def _ends(self, field: Field) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert field.ends is not None
        codes = self._codes[field.column]
        lows, highs = (np.array([float(pair[end]) for pair in field.ends]) for end in (0, 1))
        return lows[codes], highs[codes]

    def _place(self, key: Field) -> NDArray[np.int64]:
        places = {label: place for place, label in enumerate(key.distinct)}
        return np.array([places[label] for label in key.labels], np.int64)[self._codes[key.column]]


def _to_nullable(values: NDArray[np.float64]) -> pa.Array:
    if not np.isnan(values).any():
        return to_arrow(values)
    return pa.array([None if math.isnan(value) else value for value in values.tolist()], pa.float64())
