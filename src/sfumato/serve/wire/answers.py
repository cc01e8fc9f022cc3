"""Answers on their way out: rows of the service or the catalog, and what a client is told of a failure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sfumato.core.errors import (
    AccessDenied,
    ApprovalNeeded,
    BudgetExceeded,
    RecipeError,
    SchemaError,
    SfumatoError,
    TooManyRequests,
    UnsupportedQuery,
)
from sfumato.serve.catalog.tables import Column
from sfumato.serve.wire.messages import Refusal
from sfumato.serve.wire.values import find_oid

_log = logging.getLogger("sfumato.serve.wire")

# Errors whose sentence is for the asker, most special first. All of them come before a charge.
_CODES: tuple[tuple[type[SfumatoError], str], ...] = (
    (BudgetExceeded, "53400"),
    (UnsupportedQuery, "0A000"),
    (RecipeError, "22023"),
    (SchemaError, "42000"),
    (AccessDenied, "42501"),
    (ApprovalNeeded, "55000"),
    (TooManyRequests, "53000"),
)
_FAILED = "58000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of an answer, or a stretch of them, and the word that completes it."""

    columns: tuple[Column, ...]
    source: pa.Table | Sequence[tuple[object, ...]]
    stretch: range
    word: str = "SELECT"
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.stretch)

    def take(self, start: int, stop: int) -> list[tuple[object, ...]]:
        """Returns the rows from `start` to before `stop`."""
        part = self.stretch[start:stop]
        if not part:
            return []
        low, high = min(part[0], part[-1]), max(part[0], part[-1]) + 1
        if isinstance(self.source, pa.Table):
            columns = [_to_list(column) for column in self.source.slice(low, high - low).columns]
            rows = list(zip(*columns, strict=True))
        else:
            rows = list(self.source[low:high])
        return rows if part.step > 0 else rows[::-1]


def move_cursor(place: int, count: int, direction: tuple[str, int | None]) -> tuple[range, int]:
    """Moves a cursor: returns the rows it goes over, and where it stands, from 1, before or after.

    >>> move_cursor(0, 10, ("forward", 2)), move_cursor(3, 10, ("backward", None))
    ((range(0, 2), 2), (range(1, -1, -1), 0))
    """
    way, steps = direction
    end = count + 1
    if way in ("absolute", "relative") and steps is not None:
        target = place + steps if way == "relative" else steps if steps >= 0 else end + steps
        target = min(max(target, 0), end)
        return range(target - 1, target if 0 < target < end else target - 1), target
    steps = end if steps is None else steps
    target = min(max(place - steps if way == "backward" else place + steps, 0), end)
    if target == place:
        here = steps == 0 and 0 < place < end
        return range(place - 1, place if here else place - 1), place
    if target > place:
        return range(place, min(target, count)), target
    return range(place - 2, max(target, 1) - 2, -1), target


def read_table(table: pa.Table, columns: tuple[Column, ...] | None, notes: tuple[str, ...]) -> Rows:
    """Returns the rows of an Arrow table, with the types that the client was told of before, if it was."""
    own = tuple(
        Column(name, find_oid(kind))
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
    )
    if columns is None or len(columns) != len(own):
        columns = own
    return Rows(columns=columns, source=table, stretch=range(table.num_rows), notes=notes)


def explain_failure(error: BaseException) -> Refusal:
    """Returns what the client is told of an error: the sentence of one that was made for the asker.

    Every other failure has one code and one sentence, so that nothing can be learnt from how a statement
    failed after it was charged, and no path or trace leaves the server.
    """
    if isinstance(error, Refusal):
        return error
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Refusal(code, str(error))
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
    _log.error("a statement failed with %s at %s", type(error).__name__, place)
    return Refusal(
        _FAILED,
        "the statement could not be answered",
        hint="the budget says whether it was charged; what was charged is not charged again",
    )


def _to_list(column: pa.ChunkedArray) -> list[object]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[object] = column.to_pylist()
    return values
