"""Rules: what everybody knows to hold for every record.

A table carries them for the recipes that keep to them. No sensitivity and no bound follows from one, so that
the core reads none: how they are written, and contest parameters, are registered from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sfumato.core.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

    from sfumato.core.facts.column import Column
    from sfumato.core.facts.domain import Label


Operator = Literal["<", "<=", ">", ">=", "=", "in", "missing"]
Kind = Literal["impossible", "missing", "order", "sum", "dependence"]

MOST_COLUMNS = 6
"""The most columns that one rule may name."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One column compared: by size with a number, by `=` and `in` with labels, or whether it is missing."""

    column: str
    operator: Operator
    values: tuple[Fraction | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Combination:
    """Conditions joined by `and` or `or`, or one that is denied by `not`."""

    word: Literal["and", "or", "not"]
    parts: tuple[Condition, ...]


Condition = Comparison | Combination


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule as it was written, with what it says.

    `columns` are those it names, in its order: of a sum the total first, of an order the smaller one, of a
    dependence what decides and what is decided. An `impossible` rule, and one of `missing` values, has the
    `condition` that no record meets; `strict` orders are `<`. A dependence may have the `decided` label of
    every deciding one.
    """

    kind: Kind
    text: str
    columns: tuple[str, ...]
    condition: Condition | None = None
    strict: bool = False
    decided: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise SchemaError(f"rule {self.text!r} names a column twice")
        if len(self.columns) > MOST_COLUMNS:
            raise SchemaError(f"rule {self.text!r} names more than {MOST_COLUMNS} columns; split it")


def rule_spec(rule: Rule) -> str | dict[str, Any]:
    """The entry that reads back as `rule`."""
    if rule.decided is None:
        return rule.text
    return {"from": rule.columns[0], "to": rule.columns[1], "map": dict(rule.decided)}


class Readers(Protocol):
    """Reads what a description holds of rules, and columns from a file of contest parameters."""

    def parse_rules(
        self, spec: Mapping[str, Any], columns: Mapping[str, Column], *, folder: Path | None, where: str
    ) -> tuple[tuple[dict[str, tuple[Label, ...]], ...], tuple[Rule, ...]]:
        """What `impossible` and `rules` say: entries of values that never meet, and everything else."""

    def read_columns(self, path: Path) -> dict[str, Column]:
        """The columns that a file of contest parameters describes."""


_READERS: list[Readers] = []


def register_readers(readers: Readers) -> None:
    """Lets tables be described with rules and with contest parameters."""
    _READERS[:] = [readers]


def find_readers() -> Readers:
    """What was registered."""
    if not _READERS:
        raise SchemaError("rules and contest parameters need the room of tables: import sfumato.tables")
    return _READERS[0]
