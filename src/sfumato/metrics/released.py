"""Released tables: opened from disk, split by epsilon, coded by the description of their columns.

Nothing here sees a record of the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.core.errors import MetricError
from sfumato.core.facts.column import OTHER, Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples
from sfumato.core.facts.table import Table
from sfumato.metrics.columns import (
    code_text,
    finite_numbers,
    is_text,
    pack_codes,
    plain_column,
    read_side,
    renumber,
    to_numbers,
)
from sfumato.recipes.base import column_labels
from sfumato.release.folder import open_folder
from sfumato.tables.arrays import Floats, Whole, code_days

EPSILON = "epsilon"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Released:
    """A released table; with a certificate, also the description of its columns and their order."""

    table: pa.Table
    described: Table | None = None
    columns: tuple[str, ...] = ()


def open_release(path: Path | str) -> Released:
    """Returns the release in the folder `path`, or the table in the file `path`.

    >>> open_release("nowhere")
    Traceback (most recent call last):
        ...
    sfumato.core.errors.SourceError: release: there is no file 'nowhere'
    """
    path = Path(path)
    if not path.is_dir():
        return Released(read_side(path, side="release"))
    opened = open_folder(path, load=("table.parquet",))
    plan, table = opened.plan(), opened.table("table.parquet")
    if plan.recipe.kind == "hierarchy":
        # Every level counts all records; the last is the finest, and the others are its sums.
        table = table.filter(pc.equal(table["level"], table["level"][table.num_rows - 1]))
    return Released(table, plan.table, tuple(plan.columns))


def split_epsilons(released: pa.Table) -> list[tuple[float | None, pa.Table]]:
    """Returns (epsilon, table) for every epsilon of a release of several, in their order; else (None, table).

    >>> both = pa.table({"epsilon": [1.0, 2.0], "a": [1, 2]})
    >>> [(epsilon, part.column_names) for epsilon, part in split_epsilons(both)]
    [(1.0, ['a']), (2.0, ['a'])]
    """
    if EPSILON not in released.column_names:
        return [(None, released)]
    values = finite_numbers(released, EPSILON, side="release")
    _, first = np.unique(values, return_index=True)  # epsilons come in the order of their first row
    rest = released.drop_columns([EPSILON])
    column = released.column(EPSILON)
    return [(float(values[at]), rest.filter(pc.equal(column, column[int(at)]))) for at in np.sort(first)]


def released_names(column: Column) -> tuple[str, ...]:
    """Returns the names under which `column` is released: a combination as the columns it combines."""
    return column.stored if isinstance(column.domain, Tuples) and column.outside != OTHER else (column.name,)


def is_released_layout(released: pa.Table, columns: Sequence[Column]) -> bool:
    """Returns whether `released` holds the columns as recipes lay them out, and not as they are stored."""
    for column in columns:
        names = released_names(column)
        if any(name not in released.column_names for name in names):
            return False
        kind = released.schema.field(names[0]).type
        if isinstance(column.domain, Period) and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return False
    return True


def code_released(released: pa.Table, column: Column) -> Whole | None:
    """Gives codes of `column` from the names and labels under which it is released; None if it is not there.

    Combinations are released as the columns they combine; bins as their interval (tables of counts) or
    as a number within it (rows).
    """
    if not is_released_layout(released, [column]):
        return None
    arrays = [plain_column(released, name) for name in released_names(column)]
    if isinstance(column.domain, Tuples) and column.outside != OTHER:
        codes = _code_combinations(arrays, column)
    elif isinstance(column.domain, Bins) and not is_text(arrays[0]):
        codes = _code_bins(to_numbers(arrays[0]).astype(np.float64), column.domain)
    elif column.calendar is not None and pa.types.is_date(released.schema.field(column.name).type):
        codes = code_days(released[column.name], [str(label) for label in column.labels])
    else:
        # Labels are looked up once for each different one: there are far fewer than rows.
        places, words = _find_words(arrays[0])
        codes = np.array(_code_words(words, column), np.int64)[places]
    if column.missing_label is not None and arrays[0].null_count:
        assert column.domain is not None
        codes = np.where(arrays[0].is_null().to_numpy(zero_copy_only=False), column.domain.size, codes)
    if codes.size and codes.min() < 0:
        raise MetricError(
            f"release: column {column.name!r} holds values that its described domain does not list"
        )
    return codes


def _code_combinations(arrays: list[pa.Array], column: Column) -> Whole:
    if not len(arrays[0]):
        return np.empty(0, np.int64)
    labels = zip(*column_labels(column).values(), strict=True)
    known = {tuple(map(str, each)): code for code, each in enumerate(labels)}
    numbered = [_find_words(array) for array in arrays]
    sizes = [len(words) for _, words in numbered]
    found, (inverse,) = renumber([pack_codes([codes for codes, _ in numbered], sizes)])
    places = zip(*(part.tolist() for part in np.unravel_index(found, sizes)), strict=True)
    codes = [
        known.get(tuple(words[part] for (_, words), part in zip(numbered, place, strict=True)), -1)
        for place in places
    ]
    return np.array(codes, np.int64)[inverse]


def _code_bins(numbers: Floats, domain: Bins) -> Whole:
    edges = np.array([float(edge) for edge in domain.edges])
    inside = (numbers >= edges[0]) & (numbers <= edges[-1])
    return np.where(inside, np.searchsorted(edges[1:-1], numbers, side="right"), -1).astype(np.int64)


def _code_words(words: list[str], column: Column) -> list[int]:
    """Returns the code behind every label, -1 for a foreign one; a wide range is never listed."""
    if not isinstance(column.domain, (IntegerRange, Period)):
        known = {str(label): code for code, label in enumerate(column.labels)}
        return [known.get(word, -1) for word in words]
    span = column.domain if isinstance(column.domain, IntegerRange) else column.domain.span
    extras = {label: span.high - span.low + 1 + place for place, label in enumerate(column.extras)}
    return [
        int(word) - span.low
        if word.removeprefix("-").isdecimal() and span.low <= int(word) <= span.high
        else extras.get(word, -1)
        for word in words
    ]


def _find_words(array: pa.Array) -> tuple[Whole, list[str]]:
    """Returns codes of the values, and the values as a release writes them: whole numbers without a point."""
    if not is_text(array):
        values, codes = np.unique(to_numbers(array), return_inverse=True)
        words = [str(int(v)) if np.isfinite(v) and v == np.floor(v) else str(v) for v in values.tolist()]
        return codes.reshape(-1).astype(np.int64), words
    codes, labels = code_text(array)
    return codes, [str(label) for label in labels]
