"""What an answer will look like: the names and types of its columns, from the plan alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from sfumato.sql.constants import from_python
from sfumato.sql.settle import TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The columns of an answer, each with its name and type, and the types of `$1`, `$2`, ..."""

    columns: tuple[tuple[str, pa.DataType], ...]
    parameters: tuple[pa.DataType, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns as a schema."""
        return pa.schema(list(self.columns))


def stands_for(types: Sequence[pa.DataType | None]) -> list[exp.Expr | None]:
    """For every parameter whose type was declared, a value of that type."""
    return [None if kind is None else _value_of(kind) for kind in types]


def kinds_of_parameters(
    found: Sequence[pa.DataType], declared: Sequence[pa.DataType | None]
) -> tuple[pa.DataType, ...]:
    """The types of parameters: as they were declared, else as they were found."""
    known = [*declared, *([None] * len(found))][: max(len(found), len(declared))]
    return tuple(
        kind if kind is not None else found[place] if place < len(found) else TYPES["text"]
        for place, kind in enumerate(known)
    )


def _value_of(kind: pa.DataType) -> exp.Expr | None:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return from_python(1)
    return exp.true() if pa.types.is_boolean(kind) else None
