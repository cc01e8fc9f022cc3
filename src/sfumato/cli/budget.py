"""`sfumato budget`: what was spent, by what, and what is left."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.cli.output import Json, ProjectOption, open_curator, print_json, print_table, say


def budget(
    project: ProjectOption = "sfumato.toml",
    accept: Annotated[
        bool, typer.Option("--accept", help="Enter the project file's changed budget into the ledger.")
    ] = False,
    anchor: Annotated[
        bool,
        typer.Option("--anchor", help="Print a signed anchor of the ledger, or check the one given as TEXT."),
    ] = False,
    text: Annotated[str | None, typer.Argument(help="With --anchor: an anchor printed earlier.")] = None,
    json: Json = False,
) -> None:
    """Show what has been spent, by what, and what is left."""
    if text is not None and not anchor:
        raise typer.BadParameter("an anchor is checked with --anchor TEXT")
    if anchor:
        _print_anchor(project, text, json=json)
        return
    curator = open_curator(project)
    report = curator.accept_budget() if accept else curator.budget()
    record = report.to_record()
    if json:
        print_json(record)
        return
    say(f"epsilon {report.left} of {report.total} left, {report.spent} spent")
    if report.last:
        say(report.describe_left())
    window = curator.project.find_window()
    if window is not None:
        say(
            f"this is of the window, {' to '.join(window)}: the budget is for each period, and one that was "
            "never read has it whole"
        )
    if report.groups:
        print_table(
            "periods read", "", "epsilon left", rows=([*map(str, each)] for each in report.list_periods())
        )
    if record["charges"]:
        rows = ([str(value or "-") for value in charge.values()] for charge in record["charges"])
        print_table("entry", "when", "table", "by", "epsilon", "rho", rows=rows)


def _print_anchor(project: str, text: str | None, *, json: bool) -> None:
    """Prints an anchor, or that the ledger holds the one in `text`."""
    import sfumato
    from sfumato.core.ledger.ledger import Ledger

    curator = sfumato.open(project)
    ledger, folder = Ledger.read_only(curator.ledger_path), curator.project.folder
    found = ledger.sign_anchor(folder=folder) if text is None else ledger.check_anchor(text, folder=folder)
    if json:
        print_json({**found.to_record(), **({} if text is None else {"verified": True})})
    elif text is None:
        say(str(found))
    else:
        say(f"the ledger holds entry {found.sequence} as the anchor has it, signed by its key")
