"""Rows as PostgreSQL's clients see them: columns with the numbers of their types, and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result: its name, and the object identifier of its PostgreSQL type."""

    name: str
    oid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The rows of one statement, as Python values."""

    columns: tuple[Column, ...]
    rows: Sequence[tuple[object, ...]]
