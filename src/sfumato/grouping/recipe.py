"""A recipe file of the groups that were found, to be edited by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.exact import format_exact
from sfumato.grouping.text import plain_text
from sfumato.schema import quote_toml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.grouping.groups import Group, Grouping


def draft_recipe(
    found: Grouping,
    *,
    source: str,
    epsilon: Fraction,
    table: str | None = None,
    columns: Sequence[str] | None = None,
) -> str:
    """A recipe `field-groups` in TOML, with one group per line.

    `source` names the public table. Without `table`, the file says what is still to be written. With
    `columns`, only these are released.
    """
    told = plain_text(source)
    lines = [
        f"# Groups of associated columns, found by `sfumato groups` in {told}: {found.rows:,} rows.",
        "# They rest on that table alone. It must be public, and about nobody in the table to be released.",
        f"# Association: {found.measure}; the mean over the pairs of a group.",
    ]
    if table is None:
        lines += [
            "# Cells are counted by the values in the public table. Domains must be described in the",
            "# project file; then `sfumato groups --project` counts by them.",
        ]
    lines += [
        "",
        'recipe = "field-groups"',
        f"table = {quote_toml('TODO' if table is None else table)}"
        + ("   # the table's name in the project file" if table is None else ""),
        f"epsilon = {_number(epsilon)}",
    ]
    if columns is not None:
        lines.append(f"columns = [{', '.join(quote_toml(name) for name in columns)}]")
    lines += ["groups = [", *(_line(group) for group in found.groups), "]", ""]
    return "\n".join(lines)


def _line(group: Group) -> str:
    names = ", ".join(quote_toml(name) for name in group.columns)
    told = "" if group.association is None else f", association {group.association:.2f}"
    return f"  [{names}],   # {group.cells:,} {'cell' if group.cells == 1 else 'cells'}{told}"


def _number(epsilon: Fraction) -> str:
    text = format_exact(epsilon)
    return f'"{text}"' if "/" in text else text
