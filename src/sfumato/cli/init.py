"""`sfumato init` and `groups`: a project file, and groups of columns, drafted from public material."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from sfumato.cli.output import (
    Force,
    Json,
    note,
    print_json,
    print_table,
    progress,
    refuse_inputs,
    say,
    split_names,
)

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.recipes.grouping.groups import Grouping
    from sfumato.tables.draft import Known


def init(
    source: Annotated[
        str, Argument(help="A file (.parquet, .csv, .jsonl, .zip, .xlsx), or the URL of a table.")
    ],
    codebook: Annotated[
        list[str] | None, Option(help="A public file that describes columns: .json, .csv, .tsv, .sql, .txt.")
    ] = None,
    public: Annotated[
        str | None, Option(help="A public table with the same columns, such as last year's.")
    ] = None,
    csvw: Annotated[
        str | None, Option(help="CSVW metadata that is public: columns, and who is protected.")
    ] = None,
    epsilon: Annotated[
        str | None, Option(help="Find what is still unknown in the records, at this price.")
    ] = None,
    unit: Annotated[str | None, Option(help='The column that names the individual, or "row".')] = None,
    max_records: Annotated[
        int | None,
        Option(help="The most records of one individual that count; else chosen privately.", min=1),
    ] = None,
    budget: Annotated[str, Option(help="The most that the project may ever spend, in epsilon.")] = "1.0",
    delta: Annotated[
        str | None, Option(help="The delta of that budget; with --epsilon 1e-6 by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Draft a project file. Each column is a line that says where it came from.

    Example: sfumato init incidents.parquet --codebook codes.json > sfumato.toml
    """
    from sfumato.core.engine.opening import TEXT_FILES, has_lines
    from sfumato.core.facts.project import match_files
    from sfumato.curator import describe_source
    from sfumato.tables.codebook import read_codebook, read_csvw_unit
    from sfumato.tables.draft import draft_project, merge_known

    folder = Path.cwd()
    kinds = describe_source(source, folder=folder)
    if csvw is not None:
        codebook = [*(codebook or ()), csvw]
        stated = read_csvw_unit(csvw)
        unit, max_records = unit or stated[0], max_records or stated[1]
    known: dict[str, Known] = {}
    for path in codebook or ():
        known = merge_known(known, read_codebook(path))
    rules: list[str] = []
    if public is not None:
        from sfumato.curator.draft import propose_rules, read_public_profile

        known = merge_known(known, read_public_profile(public, source, folder=folder))
        rules = propose_rules(public, source, kinds, known)
    if epsilon is not None and all(
        name in known or name == unit or kind == "other" for name, kind in kinds.items()
    ):
        note("no column is left to ask the records about: nothing was asked, and nothing was spent")
    elif epsilon is not None:
        from sfumato.curator.draft import draft_privately, find_names

        delta = delta or "1e-6"
        if unit is None:
            unit = "row"
            known = merge_known(known, find_names(kinds))
            note(
                "no --unit was given, so each RECORD is protected by itself, not a person with several: if "
                "a column names people, remove ledger.db and begin again with --unit"
            )
        with progress(quiet=json) as stage:
            found = draft_privately(
                source,
                {name: kind for name, kind in kinds.items() if name not in known},
                unit=unit,
                max_records=max_records,
                epsilon=epsilon,
                budget=budget,
                delta=delta,
                folder=folder,
                progress=stage,
            )
        known = merge_known(known, found.known)
        note(found.describe())
    text = draft_project(
        source,
        kinds,
        known=known,
        unit=unit,
        max_records=max_records,
        epsilon=budget,
        delta=delta,
        rules=rules,
    )
    if json:
        print_json({"source": source, "columns": kinds, "project": text})
        return
    say(text.removesuffix("\n"))
    if any(map(has_lines, match_files(folder / source))):
        note("the keys of the first line were taken for the names of the columns; add what other lines have")
    elif source.lower().endswith(TEXT_FILES):
        odd = sum(re.fullmatch(r"[-+\d.,:/ ]+", name) is not None for name in kinds)
        note(
            f"{odd} of {len(kinds)} names are numbers or dates, as in a record: is there a header line? If "
            "not, add one, and delete this draft, which holds the first record"
            if odd
            else "the first line was taken for the names of the columns; if it is a record, add a header line"
        )
    note("next: fill in the TODOs, look with `sfumato doctor`, write a recipe, `sfumato check` it")


_WARNING = "the groups follow the public table, so it must be public and about nobody in the private one"


def groups(
    public: Annotated[str, Argument(help="A public table: a Parquet, CSV or CSV.gz file.")],
    project: Annotated[
        str | None, Option("--project", "-p", help="A project file whose domains count.")
    ] = None,
    table: Annotated[str | None, Option(help="The table of the project file to be released.")] = None,
    columns: Annotated[str | None, Option(help="Only these columns: a,b,c.")] = None,
    epsilon: Annotated[str, Option(help="The epsilon of the release.")] = "1.0",
    delta: Annotated[str, Option(help="The delta of the release.")] = "0",
    records: Annotated[
        int | None, Option(min=1, help="About how many records the private table has.")
    ] = None,
    max_cells: Annotated[int, Option(min=1, help="The most cells of a group.")] = 1_000_000,
    max_columns: Annotated[int | None, Option(min=1, help="The most columns of a group.")] = None,
    least: Annotated[
        float, Option(min=0, max=1, help="The least mean association of groups to be joined.")
    ] = 0.1,
    out: Annotated[Path | None, Option("--out", "-o", help="A recipe file to write.")] = None,
    picture: Annotated[Path | None, Option(help="An SVG picture to write.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Find groups of correlated columns in a PUBLIC table. They are for the recipe field-groups.

    Example: sfumato groups survey.csv --project sfumato.toml --picture groups.svg > groups.toml
    """
    from sfumato.core.errors import RecipeError, ReleaseError
    from sfumato.core.exact import parse_delta, parse_positive
    from sfumato.core.files import check_file, write_file
    from sfumato.recipes.grouping.groups import find_groups
    from sfumato.recipes.grouping.output import draft_recipe, draw_groups
    from sfumato.recipes.grouping.rules import encode_described, encode_values, read_columns

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
    _show_groups(found, notes=notes)
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


def _show_groups(found: Grouping, *, notes: tuple[str, ...]) -> None:
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
