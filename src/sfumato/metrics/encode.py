"""Truth and release in the same codes: by described domains, or by the values that occur."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.engine.base import Fetched
from sfumato.core.engine.encode import Stored, hide_failures
from sfumato.core.engine.sealed import seal_table
from sfumato.core.engine.source import describe_stored, find_files
from sfumato.core.errors import MetricError
from sfumato.core.exact import Withheld
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import IntegerRange, Period
from sfumato.core.facts.table import PrivacyUnit, Table, code_name
from sfumato.metrics.columns import (
    CodedColumn,
    Label,
    SideName,
    code_column,
    code_pair,
    finite_numbers,
    is_text,
    plain_column,
    read_side,
    read_sides,
    renumber,
    to_numbers,
)
from sfumato.metrics.released import code_released, is_released_layout, released_names
from sfumato.tables.arrays import Floats, Whole
from sfumato.tables.read import TableLike, require_columns

ROW = "row of the table"

_MOST_NUMBERS = 50  # different numbers of a column that are compared one by one
_QUANTILES = 20
_COUNT = "count of the cell"
_SEPARATOR = "\x1f"  # the unit separator of ASCII


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Side(Withheld):
    """The records of one side: a code per column, and how many records a row stands for."""

    codes: Mapping[str, Whole]
    rows: int
    weights: Floats | None = None

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.rows) if self.weights is None else float(self.weights.sum())

    def __repr__(self) -> str:
        return f"Side({len(self.codes)} columns, values withheld)"

    def take(self, rows: NDArray[np.intp]) -> Side:
        """Returns the rows of these numbers, with their weights."""
        weights = None if self.weights is None else self.weights[rows]
        return Side({name: codes[rows] for name, codes in self.codes.items()}, rows.size, weights)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CodedPair:
    """Truth and release in the same codes: names, numbers of codes, what a code stands for, both sides.

    `unit` numbers the individual behind every row of the truth, if one is known.
    """

    columns: tuple[str, ...]
    sizes: Mapping[str, int]
    labels: Mapping[str, Sequence[Label]]
    truth: Side
    release: Side
    unit: Whole | None = None

    def __post_init__(self) -> None:
        if not self.columns:
            raise MetricError("truth and release have no column in common")
        if self.truth.total <= 0:
            raise MetricError("truth has no records within the described domains")

    def __repr__(self) -> str:
        return f"CodedPair(columns={self.columns}, values withheld)"

    def compact(self) -> CodedPair:
        """Returns the same pair with codes that occur only, for columns with more than a million codes.

        Arrays over all codes of such a column would be larger than the records.
        """
        wide = [name for name in self.columns if self.sizes[name] > 2**20]
        if not wide:
            return self
        truth, release, labels = dict(self.truth.codes), dict(self.release.codes), dict(self.labels)
        for name in wide:
            found, (truth[name], release[name]) = renumber([truth[name], release[name]])
            labels[name] = [self.labels[name][code] for code in found.tolist()]
        sizes = {name: len(labels[name]) for name in self.columns}
        ours, theirs = replace(self.truth, codes=truth), replace(self.release, codes=release)
        return replace(self, sizes=sizes, labels=labels, truth=ours, release=theirs)


def draw_records(side: Side, size: int, generator: np.random.Generator) -> Side:
    """At most `size` records of `side`, drawn without replacement, one row each.

    Weights that are not whole are drawn from at even distances, so that no row comes more often than
    its share asks for.
    """
    rows = np.arange(side.rows)
    if side.weights is None:
        if side.rows > size:
            rows = np.sort(generator.choice(side.rows, size=size, replace=False))
        return side.take(rows)
    ends = np.cumsum(side.weights)
    count = int(min(size, round(float(ends[-1])))) if ends.size else 0
    if count == 0:
        rows = rows[:0]
    else:
        if (side.weights == np.floor(side.weights)).all():
            places = np.sort(generator.choice(int(ends[-1]), size=count, replace=False)) + 0.5
        else:
            places = (np.arange(count) + generator.random()) * (ends[-1] / count)
        rows = np.minimum(np.searchsorted(ends, places, side="right"), ends.size - 1)
    return replace(side.take(rows), weights=None)


def encode_pair(
    truth: TableLike,
    release: TableLike,
    *,
    table: Table | None = None,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    unit: str | None = None,
    cut: bool = True,
) -> CodedPair:
    """Returns the tables `truth` and `release` in the same codes, column by column.

    With a described `table`, by its domains: the truth as the engine codes it before it counts, the
    release as recipes lay it out. Without one, by the values of both; numbers with more than 50
    different values in the truth are cut at its 20-quantiles, unless `cut` is false.

    `weight` names a column that says how many records a row stands for, on the sides that have it;
    `unit` one that tells individuals apart. `columns` are those to compare, by default all that both
    sides have.

    >>> pair = encode_pair({"a": ["x", "y"]}, {"a": ["y"], "count": [3]}, weight="count")
    >>> pair.columns, pair.sizes, pair.release.total
    (('a',), {'a': 2}, 3.0)
    """
    if table is not None:
        return _encode_described(truth, release, table, columns=columns, weight=weight, unit=unit)
    ours, theirs = read_sides(truth, release)
    _require_weight(weight, [*ours.column_names, *theirs.column_names])
    left_out = {weight, unit, "epsilon"}
    if columns is None:
        columns = [n for n in ours.column_names if n in theirs.column_names and n not in left_out]
    require_columns(ours, columns, side="truth")
    require_columns(theirs, columns, side="release")
    coded = {name: _code_values(ours, theirs, name, cut=cut) for name in columns}
    labels = {name: each[2] for name, each in coded.items()}
    return CodedPair(
        columns=tuple(columns),
        sizes={name: len(each) for name, each in labels.items()},
        labels=labels,
        truth=_make_side({name: each[0] for name, each in coded.items()}, ours, weight, "truth"),
        release=_make_side({name: each[1] for name, each in coded.items()}, theirs, weight, "release"),
        unit=_code_units(ours, unit),
    )


def encode_wide(
    truth: pa.Table, release: pa.Table, *, rows: Sequence[str], kind: str, unit: str | None = None
) -> CodedPair:
    """Encodes `truth` and a `release` with a column of counts for every value of `kind`.

    The columns `rows` together become the column ROW: the rows to score are those that occur, which are
    all rows of the release. `unit` is the column of the truth that tells individuals apart, if there is one.

    >>> records = pa.table({"month": [1, 1], "kind": [7, 8]})
    >>> pair = encode_wide(records, pa.table({"month": [1], "7": [3], "8": [0]}), rows=["month"], kind="kind")
    >>> pair.sizes, pair.release.total
    ({'row of the table': 1, 'kind': 2}, 3.0)
    """
    units = [] if unit is None else [unit]
    require_columns(truth, (*rows, kind, *units), side="truth")
    require_columns(release, rows, side="release")
    counted = [name for name in release.column_names if name not in rows]
    if not counted:
        raise MetricError("release: no column of counts beside those of place and time")
    row = _join_columns(release, rows)
    parts = [
        pa.table({ROW: row, kind: pa.repeat(name, release.num_rows), _COUNT: release.column(name)})
        for name in counted
    ]
    try:
        long = pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException:
        raise MetricError("release: every column beside those of place and time must hold counts") from None
    records = truth.select([kind, *units]).append_column(ROW, _join_columns(truth, rows))
    return encode_pair(records, long, columns=[ROW, kind], weight=_COUNT, unit=unit, cut=False)


def stored_names(truth: TableLike, *, table: Table) -> list[str]:
    """Returns the names of the columns that `truth` has, without reading its records if it is a file."""
    if isinstance(truth, (str, Path)):
        found = find_files(
            str(truth), folder=Path(), table=table.name, encoding=table.encoding, quoting=table.quoting
        )
        return list(found.columns)
    return list(read_side(truth, side="truth").column_names)


def _encode_described(
    truth: TableLike,
    release: TableLike,
    table: Table,
    *,
    columns: Sequence[str] | None,
    weight: str | None,
    unit: str | None,
) -> CodedPair:
    theirs = read_side(release, side="release")
    stored = stored_names(truth, table=table)
    _require_weight(weight, [*stored, *theirs.column_names])
    if columns is None:
        names = set(theirs.column_names)
        known = [
            column
            for column in table.columns.values()
            if column.domain is not None and set(column.stored) <= set(stored)
        ]
        # A date that rows were given by its periods says nothing of a period that they do not have.
        made = {
            column.stored
            for column in known
            if isinstance(column.domain, Period) and column.stored != (column.name,) and column.name in names
        }
        columns = [
            column.name
            for column in known
            if set(released_names(column)) <= names
            or (set(column.stored) <= names and column.stored not in made)
        ]
    if not columns:
        raise MetricError("truth and release have no described column in common")
    extra = [name for name in (weight, unit) if name is not None and name in stored]
    if unit is not None and unit not in stored:
        raise MetricError(f"truth: no column {unit!r} to tell individuals apart by")
    true_codes, kept = _code_records(truth, table, columns, side="truth", extra=extra)
    if is_released_layout(theirs, [table.column(name) for name in columns]):
        found = {name: code_released(theirs, table.column(name)) for name in columns}
        codes = {name: each for name, each in found.items() if each is not None}
    else:  # a release in the stored layout is coded as the truth is
        extra = [weight] if weight is not None and weight in theirs.column_names else []
        codes, theirs = _code_records(theirs, table, columns, side="release", extra=extra)
    return CodedPair(
        columns=tuple(columns),
        sizes={name: table.column(name).size for name in columns},
        labels={name: _list_labels(table.column(name)) for name in columns},
        truth=_make_side(true_codes, kept, weight, "truth"),
        release=_make_side(codes, theirs, weight, "release"),
        unit=_code_units(kept, unit),
    )


def _code_records(
    records: TableLike, table: Table, columns: Sequence[str], *, side: SideName, extra: Sequence[str]
) -> tuple[dict[str, Whole], pa.Table]:
    """Returns (codes, further columns) of records as they are stored, coded by the engine that counts them.

    A record that a column's policy drops is left out. The `extra` columns come as they are.
    """
    # What a window does not read is no truth about it.
    period = table.unit.period if table.unit.window is not None and side == "truth" else None
    coded_names = tuple(dict.fromkeys((*columns, *([] if period is None else [period]))))
    named = {name: table.column(name) for name in coded_names}
    used = [*(name for column in named.values() for name in column.stored), *extra]
    if isinstance(records, (str, Path)):
        source = find_files(
            str(records), folder=Path(), table=table.name, encoding=table.encoding, quoting=table.quoting
        )
        stored, fetch = source.columns, source.fetch
    else:
        found = read_side(records, side=side)
        stored, fetch = _describe(found), functools.partial(_fetch, found)
    missing = [name for name in used if name not in stored]
    if missing:
        raise MetricError(f"{side}: no column {missing[0]!r}")
    # Every record counts: what is compared is the table, not what one individual may add to it.
    plain = replace(table, unit=PrivacyUnit(column=None, max_records=1), columns=named)
    names = frozenset(name.lower() for name in (*map(code_name, coded_names), *extra))
    with hide_failures(f"{side}: the records"):
        # The same rows in the same order each time: what is drawn by a seed depends on it.
        fetched = fetch(frozenset(used))
        coded = seal_table(plain, stored, fetched.schema, fetched.read(), names=names).inside
    kept = [pc.is_valid(coded[code_name(name)]) for name in coded_names]
    coded = coded.filter(functools.reduce(pc.and_, kept))
    codes = {name: to_numpy(coded[code_name(name)].combine_chunks()).astype(np.int64) for name in columns}
    return codes, coded.select(list(extra))


def _describe(records: pa.Table) -> dict[str, Stored]:
    return {
        field.name: Stored("text") if pa.types.is_null(field.type) else describe_stored(field.type)
        for field in records.schema
    }


def _fetch(records: pa.Table, used: frozenset[str]) -> Fetched:
    chosen = records.select([name for name in records.column_names if name in used])
    return Fetched(_describe(records), chosen.schema, lambda: iter(chosen.to_batches()))


def _make_side(codes: Mapping[str, Whole], table: pa.Table, weight: str | None, side: SideName) -> Side:
    """Returns the side with these codes; `table` has its rows, and its column of weights if there is one."""
    weights = None
    if weight is not None and weight in table.column_names:
        weights = finite_numbers(table, weight, side=side)
        if weights.size and weights.min() < 0:
            raise MetricError(f"{side}: column {weight!r} holds negative counts; set them to 0 first")
    return Side(codes, next(iter(codes.values())).size if codes else table.num_rows, weights)


def _code_values(truth: pa.Table, release: pa.Table, name: str, *, cut: bool) -> CodedColumn:
    first, second = plain_column(truth, name), plain_column(release, name)
    if cut and not is_text(first) and not is_text(second):
        known = to_numbers(first).astype(np.float64)
        known = known[np.isfinite(known)]
        if np.unique(known).size > _MOST_NUMBERS:
            edges = np.unique(np.quantile(known, np.arange(1, _QUANTILES) / _QUANTILES, method="nearest"))
            ends = [f"{edge:g}" for edge in edges.tolist()]
            between = [f"[{low}, {high})" for low, high in pairwise(ends)]
            labels: list[Label] = [f"below {ends[0]}", *between, f"{ends[-1]} and more"]
            missing = [None] if first.null_count or second.null_count else []
            return _cut(first, edges), _cut(second, edges), [*labels, *missing]
    return code_pair(truth, release, name, missing="code")


def _cut(array: pa.Array, edges: Floats) -> Whole:
    numbers = to_numbers(array).astype(np.float64)
    codes = np.searchsorted(edges, numbers, side="right")
    return np.where(np.isnan(numbers), edges.size + 1, codes).astype(np.int64)


def _list_labels(column: Column) -> Sequence[Label]:
    """Returns the labels of all codes; a range without further labels is not spelled out."""
    if not column.extras:
        match column.domain:
            case IntegerRange(low, high):
                return range(low, high + 1)
            case Period():
                return range(column.domain.span.low, column.domain.span.high + 1)
    return column.labels


def _code_units(table: pa.Table, unit: str | None) -> Whole | None:
    if unit is None:
        return None
    require_columns(table, [unit], side="truth")
    return code_column(table, unit)


def _require_weight(weight: str | None, names: list[str]) -> None:
    if weight is not None and weight not in names:
        raise MetricError(f"neither table has the column of weights {weight!r}")


def _join_columns(table: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    texts = [table.column(name).cast(pa.string()) for name in names]
    return pc.binary_join_element_wise(*texts, _SEPARATOR, null_handling="replace")
