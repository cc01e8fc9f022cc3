"""`sfumato export`: a certificate in the forms of a registry of deployments and of a reviewer's checklist."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.cli.output import Json, print_json, say


def export(
    folder: Annotated[str, typer.Argument(help="The folder of a release.")],
    checklist: Annotated[
        bool, typer.Option("--checklist", help="The points of NIST SP 800-226, as Markdown.")
    ] = False,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="NAME=TEXT: what only the curator knows; may repeat.")
    ] = None,
    json: Json = False,
) -> None:
    """Tell a release's guarantee in the fields of a deployments registry, or as a checklist.

    Example: sfumato export out --state curator="City of Example" --state rationale="..."
    """
    from sfumato.release.deployment import describe_deployment, write_checklist

    stated = dict(part.split("=", 1) for part in state or () if "=" in part)
    if len(stated) != len(state or ()):
        raise typer.BadParameter("--state is NAME=TEXT, such as curator=City, each name once")
    if checklist and not json:
        say(write_checklist(folder, **stated).removesuffix("\n"))
        return
    entry = describe_deployment(folder, **stated)
    print_json({**entry, "checklist": write_checklist(folder, **stated)} if checklist else entry)
