"""`sfumato describe`: the columns of a table as the project file describes them, and rules for approval."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.output import Json, ProjectOption, note, print_json, print_table, say

if TYPE_CHECKING:
    from sfumato.core.facts.project import Project


def describe(
    table: Annotated[
        str | None, typer.Argument(help="One table of the project; all of them by default.")
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option("--rules", help="A public table like this one: propose rules that all its rows obey."),
    ] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Show what is publicly known of a table's columns. Reads no record and spends nothing."""
    import sfumato

    curator = sfumato.open(project)
    names = [table] if table is not None else list(curator.project.tables)
    if rules is not None:
        if len(names) != 1:
            raise typer.BadParameter("--rules needs the name of one table")
        _propose(curator.project, names[0], rules, json=json)
        return
    listed = {}
    for name in names:
        quoted = name.replace('"', '""')
        listed[name] = curator.sql(f'DESCRIBE "{quoted}"').table
    if json:
        print_json({"tables": {name: rows.to_pylist() for name, rows in listed.items()}})
        return
    for name, rows in listed.items():
        lines = [[str(value or "") for value in row.values()] for row in rows.to_pylist()]
        print_table(*rows.column_names, rows=lines, title=name)


def _propose(project: Project, name: str, public: str, *, json: bool) -> None:
    """Prints rules that every row of a public table obeys, as comments for the project file."""
    from sfumato.core.facts.project import refuse_private_file
    from sfumato.recipes.grouping import draft_rules, find_rules, read_columns

    refuse_private_file(public, project)
    found = find_rules(project.table(name).columns, read_columns(Path(public)))
    if json:
        print_json({"table": name, "proposed": [asdict(rule) for rule in found]})
        return
    for line in draft_rules(found, origin=Path(public).name):
        say(line)
    if not found:
        note("no rule was found that holds in every public row and that chance would break")
    else:
        note(f"these belong under [tables.{name}]; none is in force until you take its # away")
