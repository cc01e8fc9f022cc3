"""`sfumato budget`: what was spent, by what, and what is left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.output import Json, ProjectOption, console, note_missing_ledger, print_json

if TYPE_CHECKING:
    from sfumato.curator import Curator


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
    import sfumato
    from sfumato.exact import format_exact

    if text is not None and not anchor:
        raise typer.BadParameter("an anchor is checked with --anchor TEXT")
    curator = sfumato.open(project)
    if anchor:
        _anchor(curator, text, json=json)
        return
    note_missing_ledger(curator)
    report = curator.accept_budget() if accept else curator.budget()
    charges = [
        {
            "sequence": entry.sequence,
            "recorded_at": entry.recorded_at,
            "table": entry.table,
            "by": _describe(entry.description),
            "epsilon": _add(cost.epsilon for cost in entry.costs),
            "rho": format_exact(sum((cost.rho for cost in entry.costs), start=report.total * 0)),
        }
        for entry in report.entries
        if entry.kind == "charge"
    ]
    if json:
        print_json(
            {
                "total": str(report.total),
                "delta": format_exact(report.delta),
                "spent": str(report.spent),
                "left": str(report.left),
                "more_like_last": report.more_like_last,
                "charges": charges,
            }
        )
        return
    from rich.table import Table

    show = console()
    show.print(f"epsilon {report.left} of {report.total} left, {report.spent} spent")
    if report.last:
        show.print(report.describe_left())
    if charges:
        table = Table("entry", "when", "table", "by", "epsilon", "rho")
        for charge in charges:
            table.add_row(*(str(value or "-") for value in charge.values()))
        show.print(table)


def _anchor(curator: Curator, text: str | None, *, json: bool) -> None:
    """Prints an anchor, or that the ledger holds the one in `text`."""
    from sfumato.accounting import Ledger

    ledger, folder = Ledger.read_only(curator.ledger_path), curator.project.folder
    found = ledger.sign_anchor(folder=folder) if text is None else ledger.check_anchor(text, folder=folder)
    if json:
        print_json({**found.to_record(), **({} if text is None else {"verified": True})})
    elif text is None:
        sys.stdout.write(f"{found}\n")
    else:
        console().print(f"the ledger holds entry {found.sequence} as the anchor has it, signed by its key")


def _describe(description: dict[str, Any]) -> str:
    """The recipe or the statement that was charged."""
    if "statement" in description:
        return str(description["statement"])
    recipe = description.get("recipe", {})
    kind, by = str(recipe.get("recipe", "")), recipe.get("by")
    return f"{kind} by {', '.join(by)}" if isinstance(by, list) else kind


def _add(epsilons: object) -> str | None:
    from collections.abc import Iterable
    from fractions import Fraction

    from sfumato.exact import format_exact

    total = Fraction(0)
    assert isinstance(epsilons, Iterable)
    for epsilon in epsilons:
        if epsilon is None:
            return None
        total += epsilon
    return format_exact(total)
