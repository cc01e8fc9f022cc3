"""What a query can name: sources, their columns, and the relation that FROM and WHERE make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from sfumato.schema import Label
from sfumato.schema.unit import PrivacyUnit
from sfumato.sql.bounds import Bounds
from sfumato.sql.check import refuse

if TYPE_CHECKING:
    from sfumato.schema import Column, Table

UNIT = "unit of sfumato"

Kind = Literal["integer", "number", "text", "boolean", "date", "unknown"]


def code_name(name: str) -> str:
    """The name of the column that holds the code of `name`."""
    return f"code of {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column as a query sees it."""

    name: str
    kind: Kind
    bounds: Bounds | None = None
    column: Column | None = None
    is_unit: bool = False
    labels: tuple[Label, ...] | None = None
    is_drafted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that can be named in FROM: its description, and the kinds of its stored columns.

    The `labels` of a public table are the values of its columns, which are public too.
    """

    name: str
    stored: Mapping[str, str]
    table: Table | None = None
    labels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)


Catalog = dict[str, Source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What FROM and WHERE describe: a tree without a select list, and the columns it offers."""

    tree: exp.Select
    fields: Mapping[str, Mapping[str, Field]]
    unit: PrivacyUnit | None
    unit_alias: str | None
    tables: tuple[str, ...]
    joined: bool = False

    def find(self, node: exp.Column) -> tuple[str, Field]:
        """The relation's alias and the field that `node` names."""
        name, alias = node.name.lower(), node.table.lower()
        found = [
            (key, fields[name])
            for key, fields in self.fields.items()
            if name in fields and alias in ("", key)
        ]
        if not found:
            # Only described names are listed: a text file without a header line has records for names.
            fields = [each for fields in self.fields.values() for each in fields.values()]
            known = sorted(
                {each.name for each in fields if each.column is not None or each.bounds is not None}
            )
            raise refuse(f"no column {node.sql()[:80]!r} (described: {', '.join(known) or 'none'})")
        if len(found) > 1:
            raise refuse(f"column {node.name!r} is in several tables; write table.{node.name}")
        return found[0]
