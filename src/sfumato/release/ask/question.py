"""What may be asked of a released model: its columns, and statements that count, sum and average them.

A model knows which cell of its columns a record lies in and no more, so a condition keeps or leaves out
whole codes: it is refused where it would divide a bin. The measurements of the release, as evidence for
intervals, are read when a question first needs them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.errors import VerificationFailed, refuse
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, Label
from sfumato.core.facts.table import Table
from sfumato.core.questions.counts import ClippedMarginal, Marginal
from sfumato.core.questions.measurement import Request, request_grid
from sfumato.inference.domain import Domain, merge_measurements
from sfumato.inference.domain import Measurement as Noisy
from sfumato.inference.evidence import Evidence, NoisyCounts
from sfumato.recipes.base import MOST_ANSWERS, column_labels
from sfumato.recipes.shared.compression import Compression, take_contrasts
from sfumato.recipes.shared.rules import find_zeros
from sfumato.release.folder import split_values
from sfumato.sql.aggregates import name_item, read_rows, spell_position
from sfumato.sql.evaluate import fold_condition
from sfumato.sql.plan import MISS, normal_width
from sfumato.tables.arrays import read_parquet

if TYPE_CHECKING:
    from sfumato.sql.statement import Statement


_CLAUSES = ("expressions", "from_", "where", "group", "order", "limit", "offset", "kind", "hint")
_ASKED = (
    "and a model is asked by comparisons of a column with values, IN and BETWEEN, joined by AND, OR and NOT"
)
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_OPPOSITE: dict[type[exp.Expr], type[exp.Expr]] = {exp.NEQ: exp.EQ, exp.GTE: exp.LT, exp.GT: exp.LTE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A released column: the model's column behind it, and what every code of that stands for.

    `ends` are the least and the largest number behind a code: equal for whole numbers, the edges for
    bins, of which all but the last exclude their upper one. Text has none. `numbers` are the same of the
    codes that come before missing and other values.
    """

    name: str
    column: str
    labels: tuple[Label, ...]
    ends: tuple[tuple[Fraction, Fraction], ...] | None = None
    numbers: tuple[tuple[Fraction, Fraction], ...] | None = None

    @property
    def distinct(self) -> tuple[Label, ...]:
        """Return the labels in the order of the domain, each once."""
        return tuple(dict.fromkeys(self.labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of a table, which a statement calls `alias`, by their names in lower case."""

    alias: str
    named: Mapping[str, Field]

    def find(self, column: exp.Column) -> Field:
        """Return the field that a statement names."""
        elsewhere = column.args.get("db") or column.table.lower() not in ("", self.alias.lower())
        if elsewhere or column.name.lower() not in self.named:
            known = ", ".join(field.name for field in self.named.values())
            raise refuse(f"the model has no column {column.sql()[:60]!r} (it has: {known})")
        return self.named[column.name.lower()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column of the answer: a key, a number of records, or a sum or average of a field or of a condition.

    A condition counts 1 where it holds and 0 where it does not, so that its average is a share.
    """

    kind: Literal["key", "count", "sum", "average"]
    field: Field | None = None
    condition: exp.Expr | None = None
    name: str = ""

    @property
    def range(self) -> tuple[float, float]:
        """Return the least and the largest number that is averaged."""
        if self.field is None or self.field.ends is None:
            return 0.0, 1.0
        return float(min(self.field.ends)[0]), float(max(high for _, high in self.field.ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseQuestion:
    """A checked statement; `columns` are those of the model that it looks at."""

    fields: Fields
    keys: tuple[Field, ...]
    outputs: tuple[Output, ...]
    condition: exp.Expr
    order: tuple[tuple[Output, bool], ...]
    limit: int | None
    offset: int
    columns: tuple[str, ...]


def read_fields(table: Table, sizes: Mapping[str, int]) -> Fields:
    """Return the fields of `table` whose columns a model has with all their codes."""
    fields: dict[str, Field] = {}
    for name, size in sizes.items():
        column = table.columns.get(name)
        if column is None or column.domain is None or column.size != size:
            continue
        for label_name, labels in column_labels(column).items():
            numbers = _ends(column, labels)
            # `other` and missing values are no numbers, so a column that has them is compared as text.
            ends = None if column.extras else numbers
            fields[label_name.lower()] = Field(
                name=label_name, column=name, labels=labels, ends=ends, numbers=numbers
            )
    return Fields(alias=table.name, named=fields)


def read_question(statement: Statement, fields: Fields) -> ReleaseQuestion:
    """Return the question that a statement asks of the model of one table, or a refusal that says why."""
    if statement.mode == "private" or statement.explain:
        raise refuse("a released model is asked with a plain SELECT, which spends nothing")
    query = statement.query
    for name, clause in query.args.items():
        if clause and name not in _CLAUSES:
            raise refuse(f"{name.strip('_').upper()} in a question to a model")
    fields = replace(fields, alias=_read_source(query, fields))
    keys = _read_keys(query, fields)
    outputs = tuple(
        replace(_read_output(item.unalias(), fields, keys), name=name_item(item, text))
        for item, text in zip(query.expressions, statement.texts, strict=True)
    )
    names = [
        output.name + suffix
        for output in outputs
        for suffix in (("",) if output.kind == "key" else ("", "_low", "_high"))
    ]
    if len(set(names)) != len(names):
        raise refuse("two columns of the answer, with those of their intervals, have the same name; use AS")
    where, order = query.args.get("where"), query.args.get("order")
    condition = exp.true() if where is None else where.this
    named = {output.name.lower(): output for output in reversed(outputs)}
    ordered = []
    for each in order.expressions if order is not None else ():
        plain = isinstance(each.this, exp.Column) and not each.this.table
        output = named.get(each.this.name.lower()) if plain else None
        if output is None:
            output = _read_output(spell_position(each.this, query, where="ORDER BY"), fields, keys)
        ordered.append((output, bool(each.args.get("desc"))))
    used = [*keys, *(each.field for each in (*outputs, *(output for output, _ in ordered)) if each.field)]
    tested = [condition, *(each.condition for each in (*outputs, *(each for each, _ in ordered)))]
    used += [
        fields.find(column) for each in tested if each is not None for column in each.find_all(exp.Column)
    ]
    limit, offset = read_rows(query)
    return ReleaseQuestion(
        fields=fields,
        keys=keys,
        outputs=outputs,
        condition=condition,
        order=tuple(ordered),
        limit=limit,
        offset=offset,
        columns=tuple(dict.fromkeys(field.column for field in used)),
    )


def keep_cells(
    question: ReleaseQuestion, sizes: Mapping[str, int], condition: exp.Expr | None = None
) -> NDArray[np.bool_]:
    """Return which cells of its columns a question keeps, as an array that broadcasts to their sizes.

    With `condition` it is that which decides, and not the question's own.
    """

    def compare(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> NDArray[np.bool_]:
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            left, right, kind = right, left, _FLIPPED.get(kind, kind)
        if not isinstance(left, exp.Column) or kind is exp.Is:
            raise refuse(f"WHERE compares {left.sql()[:60]!r}, {_ASKED}")
        field = question.fields.find(left)
        shape = [sizes[name] if name == field.column else 1 for name in question.columns]
        return np.array(_test(kind, field, right), np.bool_).reshape(shape)

    asked = question.condition if condition is None else condition
    return fold_condition(asked, compare, where=f"in WHERE, {_ASKED}")


def _ends(column: Column, labels: tuple[Label, ...]) -> tuple[tuple[Fraction, Fraction], ...] | None:
    if isinstance(column.domain, Bins):
        return tuple(zip(column.domain.edges, column.domain.edges[1:], strict=False))
    if column.extras and column.domain is not None:  # beside which numbers are texts
        labels = column.domain.labels
    numbers = [Fraction(label) for label in labels if isinstance(label, int)]
    return tuple((number, number) for number in numbers) or None


def _read_source(query: exp.Select, fields: Fields) -> str:
    """Return the name by which the statement calls the table of the model."""
    source = query.args.get("from_")
    table = source.this if source is not None else None
    if (
        not isinstance(table, exp.Table)
        or not isinstance(table.this, exp.Identifier)
        or any(value for name, value in table.args.items() if name not in ("this", "alias"))
    ):
        raise refuse(f"a model is asked with FROM {fields.alias}, its one table, and nothing beside it")
    if table.name.lower() != fields.alias.lower():
        raise refuse(f"no table {table.name[:60]!r}; the model is of {fields.alias!r}")
    return str(table.alias or table.name)


def _read_keys(query: exp.Select, fields: Fields) -> tuple[Field, ...]:
    group = query.args.get("group")
    if group is None:
        return ()
    if any(value for name, value in group.args.items() if name != "expressions"):
        raise refuse("GROUP BY ALL, ROLLUP, CUBE and GROUPING SETS; list the columns")
    keys = []
    aliases = {item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)}
    for item in group.expressions:
        node = spell_position(item, query, where="GROUP BY")
        if isinstance(node, exp.Column) and not node.table and node.name.lower() not in fields.named:
            node = aliases.get(node.name.lower(), node)
        if not isinstance(node, exp.Column):
            raise refuse(f"GROUP BY {node.sql()[:60]!r}; a model is grouped by its columns")
        keys.append(fields.find(node))
    if len(set(keys)) != len(keys):
        raise refuse("GROUP BY names a column twice")
    return tuple(keys)


def _read_output(node: exp.Expr, fields: Fields, keys: tuple[Field, ...]) -> Output:
    match node:
        case exp.Column() if not isinstance(node.this, exp.Star):
            field = fields.find(node)
            if field not in keys:
                raise refuse(
                    f"column {field.name!r} is neither aggregated nor in GROUP BY; rows are in the "
                    "release's own table"
                )
            return Output(kind="key", field=field)
        case exp.Count() if isinstance(node.this, exp.Star) and not node.expressions:
            return Output(kind="count")
        case exp.Sum() | exp.Avg() if isinstance(node.this, exp.Column):
            field = fields.find(node.this)
            if field.ends is None:
                raise refuse(f"{node.key.upper()} of {field.name!r}, which holds no numbers")
            return Output(kind="sum" if isinstance(node, exp.Sum) else "average", field=field)
        case exp.Sum() | exp.Avg() if isinstance(node.this, exp.Case):
            kind: Literal["sum", "average"] = "sum" if isinstance(node, exp.Sum) else "average"
            return Output(kind=kind, condition=_read_case(node.this))
        case _:
            raise refuse(
                f"{node.sql()[:60]!r} in the select list; a model answers COUNT(*), SUM(column), "
                "AVG(column), both of CASE WHEN ... THEN 1 ELSE 0 END, and the columns of GROUP BY"
            )


def _read_case(case: exp.Case) -> exp.Expr:
    """Return the condition of CASE WHEN condition THEN 1 ELSE 0 END."""
    branches, rest = case.args["ifs"], case.args.get("default")
    one = len(branches) == 1 and case.this is None and branches[0].args["true"].sql() == "1"
    if not one or rest is None or rest.sql() != "0":
        raise refuse(f"{case.sql()[:60]!r} in the select list; write CASE WHEN condition THEN 1 ELSE 0 END")
    condition: exp.Expr = branches[0].this
    return condition


def _test(kind: type[exp.Expr], field: Field, value: exp.Expr) -> list[bool]:
    """Return for every code of a field whether what it stands for compares so with a literal."""
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
    """Return whether all numbers from `low` to `high` compare so with `value`; a refusal if only some do."""
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
    """Return a literal as text or as a number, whichever the field is compared with."""
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


if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.core.facts.table import Table
    from sfumato.inference.domain import Columns

    _Numbers = NDArray[np.float64]

MEASUREMENTS = "measurements.parquet"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Evidence about counts of the same kind of contribution.

    `maps` has the columns whose values were joined, with what each became. The noise of a count lies on
    multiples of `step`.
    """

    evidence: Evidence
    requests: tuple[Request, ...]
    step: float
    maps: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def has_laplace(self) -> bool:
        """Return whether some of the noise has the tails of Laplace's."""
        return not all(each.law.shape.normal for each in self.requests)

    @property
    def width(self) -> float:
        """How many standard deviations noise reaches with 95 %; a sum of Laplace noises has lighter tails."""
        return math.log(1 / MISS) / math.sqrt(2) if self.has_laplace else normal_width(MISS)

    def shape(self, columns: Columns, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the numbers of values of `columns`, of which the whole domains have `sizes`."""
        return tuple(int(self.maps[name].max()) + 1 if name in self.maps else sizes[name] for name in columns)

    def describe(self, columns: Columns) -> str:
        """Return what an interval about `columns` comes from, in a line."""
        best = [each for each in self.requests if set(columns) <= set(each.columns)] or list(self.requests)
        more = "" if len(best) == 1 else f" and {len(best) - 1} more"
        noise = "laplace" if self.has_laplace else "gaussian"
        sizes = self.evidence.sizes

        def variance(request: Request) -> float:
            return float(request.scale) ** 2 * math.prod(sizes[name] for name in request.columns)

        name = min(best, key=variance).name
        deviation = self.evidence.deviation(columns)
        return (
            f"intervals from {name}{more}: {noise} noise, standard deviation "
            f"{deviation:.6g} per combination of the columns asked about"
        )


class Measured:
    """What was measured of the marginals of a table, packed.

    `requests` are in the order in which they were asked. `queries` has, by the name of a request, the record
    of queries where sums of cells were asked.
    """

    def __init__(
        self,
        table: Table,
        columns: Iterable[str],
        requests: tuple[Request, ...],
        queries: Mapping[str, Mapping[str, Any]],
        packed: bytes,
    ) -> None:
        self._table = table
        self._domain = Domain({name: table.column(name).size for name in columns})
        # A certificate has the digest of queries alone, so that requests are taken to be without them.
        self._requests = tuple(
            replace(each, counted=Marginal(each.columns)) if each.counted.tally == "cells" else each
            for each in requests
            if set(each.columns) <= set(self._domain)
        )
        self._queries = queries
        self._packed = packed

    def find_sources(self, columns: Columns) -> list[Source]:
        """Evidence about `columns`: of the cells themselves, then of cells in which values were joined."""
        # Which is used must depend on public facts alone, never on the noisy values themselves.
        found = sorted(
            self.wholes, key=lambda source: np.nan_to_num(source.evidence.deviation(columns), nan=np.inf)
        )
        joined = self.joined
        if joined is not None and set(columns) & set(joined.maps):
            return [*found[:1], joined]
        # Where no value was joined, differences tell of the same counts as those that were asked whole.
        return [joined] if joined is not None and joined.evidence.has_contrasts else found[:1]

    @cached_property
    def wholes(self) -> tuple[Source, ...]:
        """Return the evidence about cells themselves, by kind of contribution."""
        kinds: dict[object, list[Request]] = {}
        for each in self._requests:
            if each.name not in self._queries:
                # Individuals that are scaled down to another norm are other counts.
                norm = each.counted.norm if isinstance(each.counted, ClippedMarginal) else None
                kinds.setdefault(norm, []).append(each)
        return tuple(
            self._source(Evidence(self._domain, [self._counts[each.name] for each in whole]), whole)
            for whole in kinds.values()
        )

    def _source(self, evidence: Evidence, requests: list[Request], **more: Any) -> Source:  # noqa: ANN401
        step = max(1 / request_grid(self._table, each) for each in requests)
        return Source(evidence=evidence, requests=tuple(requests), step=step, **more)

    @cached_property
    def joined(self) -> Source | None:
        """Evidence of counts over columns whose rare values were joined, if that is how sums were asked."""
        asked = [each.name in self._queries for each in self._requests]
        if True not in asked or any(each.counted.tally == "clipped" for each in self._requests):
            return None
        # Values are joined by what was known of single columns before the first sums were asked.
        first = asked.index(True)
        singles = {
            each.columns[0]: each
            for each in merge_measurements(
                self._domain, [self._noisy(each) for each in self._requests[:first] if len(each.columns) == 1]
            )
        }
        if set(singles) != set(self._domain):
            return None
        zeros = {name for names, _ in find_zeros(self._table, tuple(self._domain)) for name in names}
        known = {name: (each.values, each.sigma) for name, each in singles.items()}
        compression = Compression(self._domain, known, whole=zeros)
        counts, used = [], []
        for each in self._requests:
            queries, signed = compression.queries(each.columns), None
            if each.name in self._queries:
                record = self._queries[each.name]
                if queries is None or queries.to_record() != record:
                    signed = take_contrasts(compression, each.columns)
                    if signed is None or signed.queries.to_record() != record:
                        return None  # neither sums of joined values nor differences
            elif queries is not None:
                continue
            told = self._reshape(each, compression.domain.shape(each.columns))
            if signed is not None:
                scale = signed.scale * signed.queries.grid
                told = replace(
                    told, values=told.values / scale, variance=told.variance / scale**2, along=signed.along
                )
            counts.append(told)
            used.append(each)
        # Those that decided which values are joined would say that the joined ones are fewer than they are.
        finest = [each for each in self._requests[first:] if len(each.columns) == 1 and each not in used]
        for single in merge_measurements(self._domain, [self._noisy(each) for each in finest]):
            codes, size = compression.maps[single.columns[0]], compression.domain.cells(single.columns)
            counts.append(
                NoisyCounts(
                    columns=single.columns,
                    values=np.bincount(codes, weights=single.values, minlength=size).astype(np.float64),
                    variance=single.variance,
                    added=np.bincount(codes, minlength=size).astype(np.float64),
                )
            )
        return self._source(Evidence(compression.domain, counts), used + finest, maps=compression.maps)

    @cached_property
    def _counts(self) -> dict[str, NoisyCounts]:
        return {
            each.name: self._reshape(each, self._domain.shape(each.columns))
            for each in self._requests
            if each.name not in self._queries
        }

    def _noisy(self, request: Request) -> Noisy:
        counts = self._counts[request.name]
        return Noisy(columns=request.columns, values=counts.values, sigma=counts.variance**0.5)

    def _reshape(self, request: Request, shape: tuple[int, ...]) -> NoisyCounts:
        grid = request_grid(self._table, request)
        try:
            values = self._values[request.name].reshape(shape) / grid
        except (LookupError, ValueError) as error:
            raise VerificationFailed(
                f"{MEASUREMENTS} does not hold {request.name!r} ({type(error).__name__})"
            ) from None
        variance = (request.standard_deviation / grid) ** 2
        return NoisyCounts(columns=request.columns, values=values, variance=variance)

    @cached_property
    def _values(self) -> dict[str, _Numbers]:
        """Return the noisy values of every measurement, in units of its grid."""
        try:
            parts = split_values(read_parquet(self._packed, rows=MOST_ANSWERS))
        except (pa.ArrowException, LookupError, ValueError, OSError) as error:
            raise VerificationFailed(f"{MEASUREMENTS} cannot be read ({type(error).__name__})") from None
        return {name: values.astype(np.float64) for name, (values, _) in parts.items()}
