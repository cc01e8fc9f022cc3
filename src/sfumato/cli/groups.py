"""`sfumato groups`: columns that belong together, found in a public table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.output import Json, console, note, print_json, say

if TYPE_CHECKING:
    from sfumato.grouping import Grouping
    from sfumato.schema import Table

_WARNING = "the groups follow the public table, so it must be public and about nobody in the private one"


def groups(
    public: Annotated[str, typer.Argument(help="A public table: a Parquet, CSV or CSV.gz file.")],
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="A project file whose domains count.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="The table of the project file to be released.")] = None,
    columns: Annotated[str | None, typer.Option(help="Only these columns: a,b,c.")] = None,
    epsilon: Annotated[str, typer.Option(help="The epsilon of the release.")] = "1.0",
    records: Annotated[
        int | None, typer.Option(min=1, help="About how many records the private table has.")
    ] = None,
    max_cells: Annotated[int, typer.Option(min=1, help="The most cells of a group.")] = 1_000_000,
    max_columns: Annotated[int | None, typer.Option(min=1, help="The most columns of a group.")] = None,
    least: Annotated[
        float, typer.Option(min=0, max=1, help="The least mean association of groups to be joined.")
    ] = 0.1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A recipe file to write.")] = None,
    picture: Annotated[Path | None, typer.Option(help="An SVG picture to write.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    json: Json = False,
) -> None:
    """Find groups of correlated columns in a PUBLIC table, for the recipe field-groups.

    Example: sfumato groups survey.csv --project sfumato.toml --picture groups.svg > groups.toml
    """
    from sfumato.exact import parse_positive
    from sfumato.grouping import (
        draft_recipe,
        draw_groups,
        encode_described,
        encode_values,
        find_groups,
        read_columns,
    )
    from sfumato.tables import check_file, write_file

    budget = parse_positive(epsilon, name="epsilon")
    source = Path(public)
    described = _find_table(source, project, table)
    for path in (out, picture):
        if path is not None:
            _refuse_inputs(path, (source, Path(project or "sfumato.toml")))
            check_file(path, force=force)
    _refuse_same(out, picture)
    chosen = None if columns is None else _split(columns)
    rows = read_columns(source)
    if described is None:
        read = encode_values(rows, columns=chosen)
    else:
        read = encode_described(rows, described, columns=chosen)
    found = find_groups(
        read.codes,
        read.sizes,
        epsilon=float(budget),
        sensitivity=1.0 if described is None else _sensitivity(described),
        records=records,
        max_cells=max_cells,
        max_columns=max_columns,
        least=least,
    )
    recipe = draft_recipe(
        found,
        source=source.name,
        epsilon=budget,
        table=None if described is None else described.name,
        columns=None if chosen is None else found.columns,
    )
    if picture is not None:
        write_file(picture, draw_groups(found, source=source.name).encode(), force=force)
    if out is not None:
        write_file(out, recipe.encode(), force=force)
    notes = (*read.notes, *found.note_limits(max_cells))
    if json:
        files = {
            "out": None if out is None else str(out),
            "picture": None if picture is None else str(picture),
        }
        print_json({**found.to_record(), "notes": list(notes), **files})
        return
    _show(found, notes=notes)
    for path in (out, picture):
        if path is not None:
            note(f"written: {path}")
    if out is None:
        say(recipe.removesuffix("\n"))


def _find_table(source: Path, project: str | None, name: str | None) -> Table | None:
    """The described table that will be released, if there is a project; never one that is read here."""
    from sfumato.errors import SchemaError, SfumatoError
    from sfumato.schema import read_project, refuse_private_file

    if project is None and name is None:
        try:
            nearby = read_project("sfumato.toml")
        except SfumatoError:
            return None  # a project file that is not asked for need not be there, nor be right
        refuse_private_file(source, nearby)
        return None
    opened = read_project(project or "sfumato.toml")
    refuse_private_file(source, opened)
    if name is None and len(opened.tables) != 1:
        raise SchemaError(
            f"the project file describes several tables; name one with --table: {', '.join(opened.tables)}"
        )
    return opened.table(next(iter(opened.tables)) if name is None else name)


def _refuse_inputs(path: Path, inputs: tuple[Path, ...]) -> None:
    from sfumato.errors import ReleaseError

    if any(path.resolve() == each.resolve() for each in inputs):
        raise ReleaseError(
            f"{path.name!r} is read by this command and cannot be written by it; choose another name"
        )


def _refuse_same(out: Path | None, picture: Path | None) -> None:
    from sfumato.errors import ReleaseError

    if out is not None and picture is not None and out.resolve() == picture.resolve():
        raise ReleaseError(f"{out.name!r} cannot be two files; give --out and --picture different names")


def _split(columns: str) -> list[str]:
    from sfumato.errors import RecipeError

    names = [name.strip() for name in columns.split(",") if name.strip()]
    if not names:
        raise RecipeError("--columns names no column; write --columns a,b,c")
    return names


def _sensitivity(table: Table) -> float:
    from fractions import Fraction

    from sfumato.accounting import histogram_sensitivity

    contribution = Fraction(table.contribution, table.grid)
    return float(
        histogram_sensitivity(contribution=contribution, norm="L1", neighbours=table.unit.neighbours)
    )


def _show(found: Grouping, *, notes: tuple[str, ...]) -> None:
    """Prints groups, strong pairs that were kept apart, and notes for a person, on stderr."""
    from rich.table import Table

    from sfumato.pages.words import plain_text

    screen = console(stderr=True)

    def row(table: Table, names: tuple[str, ...], *cells: str) -> None:
        table.add_row(", ".join(map(plain_text, names)), *cells)

    several = [group for group in found.groups if len(group.columns) > 1]
    if several:
        table = Table("group", "cells", "association", "expected error")
        for group in several:
            row(table, group.columns, f"{group.cells:,}", f"{group.association:.2f}", f"{group.error:.1%}")
        screen.print(table)
    alone = len(found.groups) - len(several)
    note(f"{len(found.groups)} groups: {len(several)} of several columns, {alone} of one column")
    note(f"expected error of a pair of columns: {found.error:.1%}; all alone: {found.error_alone:.1%}")
    if found.apart:
        table = Table("strong pairs kept apart", "association", "cells together", "reason")
        for pair in found.apart:
            row(table, pair.columns, f"{pair.association:.2f}", f"{pair.cells:,}", pair.reason)
        screen.print(table)
    for text in notes:
        note(text)
    note(f"association: {found.measure}")
    note(_WARNING)
