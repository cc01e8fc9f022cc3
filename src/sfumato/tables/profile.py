"""What a public table tells of its columns: kinds, values and quantiles, for drafts of project files."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.dates import read_column
from sfumato.core.engine.arrays import to_numpy
from sfumato.core.exact import parse_exact
from sfumato.tables.draft import MOST_LISTED, Known, round_edges
from sfumato.tables.read import is_text

DATE_FORMATS = (
    "%d.%m.%Y",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%Y/%m/%d",
    "%d-%b-%y",
    "%m/%d/%Y %I:%M:%S %p",
    "epoch",
    "epoch_ms",
)
"""How dates are often written, besides as in 2025-12-31."""
_FEW = 12  # whole numbers of no more values than this are codes
_ISO = r"^\d{4}-\d{2}-\d{2}([T ]|$)"
_PARTS = 10


def profile_table(table: pa.Table, *, origin: str) -> dict[str, Known]:
    """Returns what is known of each column from a public `table`, which `origin` names.

    >>> found = profile_table(pa.table({"ward": ["N", "S", "N"], "age": [3, 94, 40]}), origin="2024.csv")
    >>> found["ward"].values, found["age"].values
    (('N', 'S'), (3, 40, 94))
    """
    return {name: _profile(table[name], origin) for name in table.column_names}


def _profile(column: pa.ChunkedArray, origin: str) -> Known:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values, form, decimal = _read_values(column.drop_null())
    facts: dict[str, Any] = {
        "origin": origin,
        "complete": False,
        "format": form,
        "decimal": decimal,
    }
    if not len(values):
        return Known(origin=origin)
    kind = values.type
    if pa.types.is_boolean(kind):
        return Known(origin=origin, kind="boolean", values=(False, True))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        ends = pc.min_max(values.cast(pa.timestamp("s"), safe=False)).as_py()
        first, last = date(ends["min"].year, 1, 1), date(ends["max"].year, 12, 31)
        return Known(**facts, kind="date", low=first, high=last)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _profile_numbers(values, facts)
    if not is_text(kind):
        return Known(origin=origin)
    listed = sorted(pc.unique(values).to_pylist())
    if len(listed) > max(20, 0.9 * len(values)):
        return Known(origin=origin, kind="text", identifier=len(listed) == len(values))
    # More than can be listed are told all the same, so that a draft can say so.
    return Known(**facts, kind="text", values=tuple(listed[: MOST_LISTED + 1]))


def _profile_numbers(values: pa.Array, facts: dict[str, Any]) -> Known:
    whole = pa.types.is_integer(values.type)
    distinct = pc.unique(values)
    if whole and len(distinct) <= _FEW:
        return Known(**facts, kind="integer", values=tuple(sorted(distinct.to_pylist())))
    plain = values.cast(pa.float64(), safe=False)
    numbers = to_numpy(plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain)
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return Known(origin=str(facts["origin"]), kind="number")
    low, high = (parse_exact(float(end), name="end") for end in (numbers.min(), numbers.max()))
    if whole and high - low < 120:
        return Known(**facts, kind="integer", low=low, high=high)
    edges = find_edges(np.quantile(numbers, np.arange(1, _PARTS) / _PARTS), low, high)
    return Known(**facts, kind="integer" if whole else "number", low=edges[0], high=edges[-1], edges=edges)


def find_edges(quantiles: NDArray[np.float64], low: Fraction, high: Fraction) -> tuple[Fraction, ...]:
    """Edges of bins at quantiles, rounded to two digits, between round ends that hold `low` and `high`.

    >>> [int(edge) for edge in find_edges(np.array([12.3, 31.8, 64.1]), Fraction(3), Fraction(94))]
    [0, 12, 32, 64, 100]
    """
    around = round_edges(low, high)
    if not around:
        return (low, low + 1)
    inner = {parse_exact(float(f"{each:.2g}"), name="edge") for each in quantiles}
    return (around[0], *sorted(each for each in inner if around[0] < each < around[-1]), around[-1])


def _read_values(values: pa.ChunkedArray) -> tuple[pa.Array, str | None, str]:
    """Reads text as the numbers or dates it stands for, with their format and decimal sign."""
    if not is_text(values.type) or not len(values):
        return values, None, "."
    coded = pc.any(pc.match_substring_regex(values, r"^-?0\d")).as_py()
    for kind in () if coded else (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return values.cast(kind), None, "."
    if pc.all(pc.match_substring_regex(values, r"^-?\d+,\d+$")).as_py():
        return pc.replace_substring(values, ",", ".").cast(pa.float64()), None, ","
    if pc.all(pc.match_substring_regex(values, _ISO)).as_py():
        with suppress(pa.ArrowInvalid):
            return pc.utf8_slice_codeunits(values, 0, 10).cast(pa.date32()), None, "."
    for form in DATE_FORMATS:
        if "%" in form and not (moments := read_column(values, form)).null_count:
            return moments, form, "."
    return values, None, "."
