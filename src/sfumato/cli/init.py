"""`sfumato init`: a project file drafted from names and types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.output import Json, note, print_json, say


def init(
    source: Annotated[str, typer.Argument(help="A Parquet, CSV or CSV.gz file.")],
    json: Json = False,
) -> None:
    """Draft a project file: names and types only, domains and bounds are yours to write.

    Example: sfumato init incidents.parquet > sfumato.toml
    """
    from sfumato.curator import describe_source
    from sfumato.schema import draft_project

    kinds = describe_source(source, folder=Path.cwd())
    if json:
        print_json({"source": source, "columns": kinds})
        return
    say(draft_project(source, kinds).removesuffix("\n"))
    if ".csv" in source.lower() or ".tsv" in source.lower():
        note("the first line was taken for the names of the columns; if it is a record, add a header line")
    note("next: fill in the TODOs, write a recipe, then `sfumato check recipe.toml`")
