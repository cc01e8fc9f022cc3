"""`sfumato doctor`: whether the description of a table fits its records, for its steward's eyes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sfumato.cli.output import Json, ProjectOption, note, print_json, print_table, say

_MOST_NAMED = 3  # columns that lose the most records


def doctor(
    table: Annotated[
        str | None,
        typer.Argument(help="One table of the project, or a recipe file (.toml); all tables by default."),
    ] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """INTERNAL: how many records are missing a value, cannot be read, or lie outside a domain.

    Reads the records and counts exactly: not private, not for publication. Spends nothing.
    """
    import sfumato

    curator = sfumato.open(project)
    fits = [curator.examine(name) for name in ([table] if table else curator.project.tables)]
    if json:
        print_json({"tables": fits})
    else:
        note("INTERNAL: exact counts of people's records, for their steward. Do not publish them.")
        for fit in fits:
            _show(fit)
    empty = [fit["table"] for fit in fits if fit["records"] == fit["nobody"]]
    if empty:
        note(
            f"NO RECORD COUNTS of {', '.join(empty)}: whatever is asked would be paid for and answered with "
            "noise. Compare the header with the records: as many fields, and the unit's column filled"
        )
    asked = table is not None and table not in curator.project.tables  # a recipe file
    if empty or (asked and not any(fit["counting"] for fit in fits)):
        raise typer.Exit(1)


def _show(fit: dict[str, Any]) -> None:
    numbers = ("inside", "outside", "missing", "unread", "changed")
    headings = ("inside", "outside", "missing", "not read", "cut or mended")
    print_table(
        "column",
        *headings,
        "what would help",
        numbers=range(1, 6),
        rows=(
            (each["name"], *(f"{each[key]:,}" for key in numbers), each["advice"]) for each in fit["columns"]
        ),
        title=f"INTERNAL: table {fit['table']}, {fit['records']:,} records",
    )
    say(
        f"{fit['individuals']:,} individuals, {fit['over_max_records']:,} with more than max_records; "
        f"{fit['nobody']:,} records of nobody"
    )
    if fit["lost"]:
        say(_describe_counting(fit))
    if (fit["lines"] or 0) > fit["records"]:
        say(
            f"{fit['lines']:,} lines after the header, {fit['lines'] - fit['records']:,} more than records: "
            "they hold texts with line breaks, or another number of fields than the header, or stand after a "
            'quote that is never closed, and then they are not read: if so, quoting = "line" or "none"'
        )
    if fit["open_quotes"]:
        say(
            f"{fit['open_quotes']:,} lines open a quote and do not close it. If fields hold line breaks, "
            'leave quoting out, or each line counts as a record; if quotes are text, quoting = "none"'
        )


def _describe_counting(fit: dict[str, Any]) -> str:
    """Returns how many records count at all, and which columns lose the others."""
    lost = sorted(((name, n) for name, n in fit["lost"].items() if n), key=lambda each: -each[1])
    counting = f"{fit['counting']:,} of {fit['records']:,} records count"
    text = f"{counting} where all {len(fit['lost'])} columns are asked about together"
    if not fit["counting"]:
        text = f"NO RECORD COUNTS: {text}"
    if lost:
        text += "; " + ", ".join(f"{n:,} lost to {name}" for name, n in lost[:_MOST_NAMED])
    missing = {each["name"]: each["missing"] for each in fit["columns"]}
    if any(missing.get(name) for name, _ in lost):
        text += "; keep missing as a value: nullable = true"
    return text
