"""`sfumato describe`: the columns of a table as the project file describes them."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.cli.output import Json, ProjectOption, print_json, print_table


def describe(
    table: Annotated[
        str | None, typer.Argument(help="One table of the project; all of them by default.")
    ] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Show what is publicly known of a table's columns. Reads no record and spends nothing."""
    import sfumato

    curator = sfumato.open(project)
    names = [table] if table is not None else list(curator.project.tables)
    told = {}
    for name in names:
        quoted = name.replace('"', '""')
        told[name] = curator.sql(f'DESCRIBE "{quoted}"').table
    if json:
        print_json({"tables": {name: rows.to_pylist() for name, rows in told.items()}})
        return
    for name, rows in told.items():
        lines = [[str(value or "") for value in row.values()] for row in rows.to_pylist()]
        print_table(*rows.column_names, rows=lines, title=name)
