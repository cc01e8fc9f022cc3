"""`sfumato init`: a project file drafted from names and types, public material, or at a price."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.output import Json, note, print_json, progress, say

if TYPE_CHECKING:
    from sfumato.tables.draft import Known


def init(
    source: Annotated[
        str, typer.Argument(help="A file (.parquet, .csv, .jsonl, .zip, .xlsx), or the URL of a table.")
    ],
    codebook: Annotated[
        list[str] | None,
        typer.Option("--codebook", help="A public file that describes columns: .json, .csv, .tsv or .sql."),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option("--public", help="A public table with the same columns, such as last year's."),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", help="Find what is still unknown in the records, at this price."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help='The column that names the individual, or "row".')
    ] = None,
    max_records: Annotated[
        int | None,
        typer.Option("--max-records", help="The most records of one individual that count.", min=1),
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", help="The most that the project may ever spend, in epsilon.")
    ] = "1.0",
    delta: Annotated[
        str | None, typer.Option("--delta", help="The delta of that budget; with --epsilon 1e-6 by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Draft a project file: each column is a line that says where it came from.

    Example: sfumato init incidents.parquet --codebook codes.json > sfumato.toml
    """
    from sfumato.core.engine.opening import TEXT_FILES, has_lines
    from sfumato.core.facts.project import match_files
    from sfumato.curator import describe_source
    from sfumato.tables.codebook import read_codebook
    from sfumato.tables.draft import draft_project, merge_known

    folder = Path.cwd()
    kinds = describe_source(source, folder=folder)
    if unit is not None and unit != "row" and max_records is None:
        raise typer.BadParameter("--unit needs --max-records, the most records of one individual that count")
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
                "a column names people, remove ledger.db and begin again with --unit and --max-records"
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
