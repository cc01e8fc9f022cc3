"""`sfumato groups`: columns that belong together, found in a public table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.output import Force, Json, note, print_json, print_table, refuse_inputs, say, split_names

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.recipes.grouping import Grouping

_WARNING = "the groups follow the public table, so it must be public and about nobody in the private one"


def groups(
    public: Annotated[str, typer.Argument(help="A public table: a Parquet, CSV or CSV.gz file.")],
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="A project file whose domains count.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="The table of the project file to be released.")] = None,
    columns: Annotated[str | None, typer.Option(help="Only these columns: a,b,c.")] = None,
    epsilon: Annotated[str, typer.Option(help="The epsilon of the release.")] = "1.0",
    delta: Annotated[str, typer.Option(help="The delta of the release.")] = "0",
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
    force: Force = False,
    json: Json = False,
) -> None:
    """Find groups of correlated columns in a PUBLIC table, for the recipe field-groups.

    Example: sfumato groups survey.csv --project sfumato.toml --picture groups.svg > groups.toml
    """
    from sfumato.core.errors import RecipeError, ReleaseError
    from sfumato.core.exact import parse_delta, parse_positive
    from sfumato.core.files import check_file, write_file
    from sfumato.recipes.grouping import (
        draft_recipe,
        draw_groups,
        encode_described,
        encode_values,
        find_groups,
        read_columns,
    )

    budget = parse_positive(epsilon, name="epsilon")
    chance = parse_delta(delta)
    source = Path(public)
    described = _find_table(source, project, table)
    for path in (out, picture):
        if path is not None:
            refuse_inputs(path, source, Path(project or "sfumato.toml"))
            check_file(path, force=force)
    if out is not None and picture is not None and out.resolve() == picture.resolve():
        raise ReleaseError(f"{out.name!r} cannot be two files; give --out and --picture different names")
    chosen = None if columns is None else split_names(columns)
    if chosen == ():
        raise RecipeError("--columns names no column; write --columns a,b,c")
    rows = read_columns(source)
    if described is None:
        read = encode_values(rows, columns=chosen)
    else:
        read = encode_described(rows, described, columns=chosen)
    found = find_groups(
        read.codes,
        read.sizes,
        epsilon=float(budget),
        delta=float(chance),
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
        delta=chance,
        table=None if described is None else described.name,
        columns=None if chosen is None else found.columns,
    )
    if picture is not None:
        write_file(picture, draw_groups(found, source=source.name).encode(), force=force)
    if out is not None:
        write_file(out, recipe.encode(), force=force)
    notes = (*read.notes, *found.note_limits(max_cells))
    if json:
        print_json({**found.to_record(), "notes": list(notes), "out": out, "picture": picture})
        return
    _show(found, notes=notes)
    for path in (out, picture):
        if path is not None:
            note(f"written: {path}")
    if out is None:
        say(recipe.removesuffix("\n"))


def _find_table(source: Path, project: str | None, name: str | None) -> Table | None:
    """Gives the described table that will be released, if there is a project; never one that is read here."""
    from sfumato.core.errors import SchemaError, SfumatoError
    from sfumato.core.facts.project import read_project, refuse_private_file

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


def _sensitivity(table: Table) -> float:
    from fractions import Fraction

    from sfumato.core.cost.curves import histogram_sensitivity

    contribution = Fraction(table.contribution, table.grid)
    return float(
        histogram_sensitivity(contribution=contribution, norm="L1", neighbours=table.unit.neighbours)
    )


def _show(found: Grouping, *, notes: tuple[str, ...]) -> None:
    """Prints groups, strong pairs that were kept apart, and notes for a person, on stderr."""
    from sfumato.report.pages.words import plain_text

    def join(names: tuple[str, ...]) -> str:
        return ", ".join(map(plain_text, names))

    several = [group for group in found.groups if len(group.columns) > 1]
    if several:
        rows = (
            (join(each.columns), f"{each.cells:,}", f"{each.association:.2f}", f"{each.error:.1%}")
            for each in several
        )
        print_table("group", "cells", "association", "expected error", rows=rows, stderr=True)
    alone = len(found.groups) - len(several)
    note(f"{len(found.groups)} groups: {len(several)} of several columns, {alone} of one column")
    note(f"expected error of a pair of columns: {found.error:.1%}; all alone: {found.error_alone:.1%}")
    if found.apart:
        headings = ("strong pairs kept apart", "association", "cells together", "reason")
        pairs = (
            (join(pair.columns), f"{pair.association:.2f}", f"{pair.cells:,}", pair.reason)
            for pair in found.apart
        )
        print_table(*headings, rows=pairs, stderr=True)
    for text in notes:
        note(text)
    note(f"association: {found.measure}")
    note(_WARNING)
