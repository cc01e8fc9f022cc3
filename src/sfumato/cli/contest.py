"""`sfumato contest`: a contest pack in, its submission out."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sfumato.cli.output import Json, console, print_json, progress


def contest(
    sprint: Annotated[Literal["sprint1"], typer.Argument(help="Which contest.")],
    pack: Annotated[
        str, typer.Argument(help="A folder with incidents.csv, parameters.json, submission_format.csv.")
    ],
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="The submission file; PACK/submission.csv by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing submission.")] = False,
    json: Json = False,
) -> None:
    """Read a contest pack and write its submission, every epsilon charged to a ledger in the pack."""
    from pathlib import Path

    from sfumato.contest import make_submission

    target = Path(out) if out else Path(pack) / "submission.csv"
    with progress(quiet=json) as stage:
        release = make_submission(Path(pack), target, force=force, progress=stage)
    if json:
        print_json({"contest": sprint, "submission": str(target), "total": release.certificate["total"]})
        return
    show = console()
    spent = (
        "nothing (answered before)"
        if release.repeated
        else f"epsilon {release.certificate['total']['epsilon']}"
    )
    show.print(f"Wrote {target}; spent {spent}.")
