"""A public table as codes: by the domains of a described table, or by its own values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.errors import RecipeError
from sfumato.recipes.shared.public import read_public_table
from sfumato.report.pages.words import list_names, plain_text
from sfumato.tables.codes import encode_public

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

MOST_VALUES = 100
"""Numbers with more distinct values than this are cut into bins."""

BINS = 20

_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none")  # among numbers that are written as text


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicCodes:
    """Codes for every row of a public table, by column, the size of each domain, and what is worth saying.

    `unknown` are described columns that the public table does not have.
    """

    codes: Mapping[str, NDArray[np.int64]]
    sizes: Mapping[str, int]
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def read_columns(path: Path) -> pa.Table:
    """Return table in a Parquet, CSV or CSV.gz file, with columns of different names and at least one row."""
    shown = plain_text(path.name)
    rows, _ = read_public_table(path)
    names = rows.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RecipeError(
            f"public table {shown!r} has several columns named {plain_text(twice[0])!r}; rename them"
        )
    if not names or not rows.num_rows:
        raise RecipeError(f"public table {shown!r} has no {'rows' if names else 'columns'}")
    return rows


def encode_values(rows: pa.Table, *, columns: Sequence[str] | None = None) -> PublicCodes:
    """Return the codes of the columns by their own values, a missing value being one of them.

    Numbers and dates with more than MOST_VALUES values are cut into BINS bins of about equal counts.

    >>> found = encode_values(pa.table({"a": ["x", "y", None], "b": [7, 7, 8]}))
    >>> found.codes["a"].tolist(), dict(found.sizes)
    ([0, 1, 2], {'a': 3, 'b': 2})
    """
    codes: dict[str, NDArray[np.int64]] = {}
    sizes: dict[str, int] = {}
    binned, missing, own = [], [], []
    for name in _choose(rows.column_names, columns, where="the public table"):
        values = _plain_values(name, rows[name])
        if values.null_count == len(values):
            missing.append(name)
            continue
        distinct = pc.count_distinct(values).as_py()
        if not pa.types.is_floating(values.type) and distinct > max(MOST_VALUES, len(values) // 2):
            own.append(name)
        if distinct > MOST_VALUES and _is_number(values.type):
            codes[name] = _cut(values)
            binned.append(name)
        else:
            codes[name] = _number(values)
        sizes[name] = int(codes[name].max()) + 1
    if not codes:
        raise RecipeError("no column of the public table has a value")
    notes = (
        (binned, f"cut into {BINS} bins, because they have more than {MOST_VALUES} numbers or dates"),
        (missing, "left out, because they have no value in any row"),
        (own, "nearly a value of its own for every row; leave identifiers out (--columns)"),
        (_constant(codes), "one value in all rows: nothing to group, yet each takes a share of the budget"),
    )
    return PublicCodes(codes=codes, sizes=sizes, notes=_list_notes(notes))


def encode_described(rows: pa.Table, table: Table, *, columns: Sequence[str] | None = None) -> PublicCodes:
    """Return the codes of the columns by the domains of the described `table`, -1 outside of them."""
    described = [name for name, column in table.columns.items() if column.domain is not None]
    codes: dict[str, NDArray[np.int64]] = {}
    sizes: dict[str, int] = {}
    unknown = []
    for name in _choose(described, columns, where=f"table {table.name!r}, with a domain"):
        column = table.column(name)
        if set(column.stored) <= set(rows.column_names):
            codes[name] = encode_public(column, rows)
        else:
            unknown.append(name)
            codes[name] = np.full(rows.num_rows, -1, np.int64)
        sizes[name] = column.size
    if len(unknown) == len(codes):
        raise RecipeError(f"the public table has none of the columns of table {table.name!r}")
    outside = [name for name in codes if name not in unknown and int(codes[name].max()) < 0]
    notes = (
        (unknown, "not in the public table, so they stay alone"),
        (
            outside,
            "no public row has a value of the domain, so they stay alone; are values written otherwise?",
        ),
        (_constant(codes), "one value in all rows: nothing to group, yet each takes a share of the budget"),
    )
    return PublicCodes(codes=codes, sizes=sizes, notes=_list_notes(notes), unknown=tuple(unknown))


def _choose(names: Sequence[str], chosen: Sequence[str] | None, *, where: str) -> list[str]:
    if chosen is None:
        return list(names)
    strange = [name for name in chosen if name not in names]
    if strange:
        raise RecipeError(f"no column {plain_text(strange[0])!r} in {where}")
    # In the order of the table, each once: the groups do not depend on how the option is typed.
    return [name for name in names if name in set(chosen)]


def _plain_values(name: str, column: pa.ChunkedArray) -> pa.Array:
    """Return the values as numbers or text, missing where there is none."""
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.int64())
    if pa.types.is_boolean(kind):
        return values
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        few = pc.count_distinct(values).as_py() <= MOST_VALUES
        return values if few else _read_numbers(values)
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if numbers or (pa.types.is_temporal(kind) and kind != pa.month_day_nano_interval()):
        return _plain_numbers(values)
    what = "text that is not UTF-8" if pa.types.is_binary(kind) else "neither numbers, text nor dates"
    raise RecipeError(
        f"column {plain_text(name)!r} of the public table holds {what}; save the file as UTF-8, or choose "
        "other columns (--columns)"
    )


def _read_numbers(values: pa.Array) -> pa.Array:
    """Return text as the numbers or dates it is written for, if all of it is; otherwise as it is."""
    marked = pc.is_in(pc.utf8_lower(values), value_set=pa.array(_MISSING, values.type))
    known = pc.if_else(marked, None, values)
    if known.null_count == len(known):
        return values
    for kind in (pa.int64(), pa.float64(), pa.timestamp("us")):
        try:
            return _plain_numbers(known.cast(kind))
        except pa.ArrowException:
            continue
    return values


def _plain_numbers(values: pa.Array) -> pa.Array:
    """Return numbers and dates as numbers, missing where there is none."""
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(values), None, values)
    if pa.types.is_temporal(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _number(values: pa.Array) -> NDArray[np.int64]:
    """Return a number for every distinct value, in order of appearance; the last one for a missing value."""
    encoded = values.dictionary_encode()
    return to_numpy(encoded.indices.fill_null(len(encoded.dictionary))).astype(np.int64)


def _cut(values: pa.Array) -> NDArray[np.int64]:
    """Return bins of numbers, by cuts at equal shares of the rows; a frequent number has a bin of its own."""
    known = to_numpy(values.is_valid().cast(pa.uint8())).astype(bool)
    numbers = to_numpy(values.drop_null())
    ordered = np.sort(numbers)
    cuts = ordered[np.arange(1, BINS) * ordered.size // BINS]
    often = np.unique(cuts[1:][cuts[1:] == cuts[:-1]])
    after = np.searchsorted(ordered, often, side="right")
    cuts = np.unique(np.concatenate([cuts, ordered[after[after < ordered.size]]]))
    bins = np.searchsorted(cuts, numbers, side="right")
    codes = np.full(len(values), cuts.size + 1, np.int64)
    codes[known] = bins
    return np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _constant(codes: Mapping[str, NDArray[np.int64]]) -> list[str]:
    return [name for name, each in codes.items() if each.max() >= 0 and each.max() == each.min()]


def _list_notes(notes: Sequence[tuple[Sequence[str], str]]) -> tuple[str, ...]:
    return tuple(f"{list_names(names)}: {text}" for names, text in notes if names)
