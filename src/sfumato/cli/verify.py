"""`sfumato verify`: a release derived again from its own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.output import Json, ProjectOption, print_json, say


def verify(
    folder: Annotated[str, typer.Argument(help="The folder of a release.")],
    earlier: Annotated[
        str | None, typer.Option("--earlier", help="An earlier release of the same series, to compare with.")
    ] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Derive the privacy total and the tables again, and check the ledger if the project is here.

    Without a ledger the release is only found consistent: measurements can be invented. Exit code 4 if
    anything differs.
    """
    import sfumato

    named = project != "sfumato.toml"
    ledger = sfumato.open(project).ledger_path if named or Path(project).exists() else None
    result = sfumato.verify(folder, ledger=ledger, earlier=earlier)
    if json:
        print_json(
            {
                "verified": not result.unchecked,
                "consistent": True,
                "verdict": result.verdict,
                "checked": result.checked,
                "unchecked": result.unchecked,
                "total": result.total,
            }
        )
        return
    for line in result.checked:
        say(f"  ok          {line}")
    for line in result.unchecked:
        say(f"  not checked {line}")
    say(result.verdict)
