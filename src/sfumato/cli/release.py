"""`sfumato release`: charges the ledger and writes the release."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.cli.output import Json, ProjectOption, console, note_missing_ledger, print_json, progress

__all__ = ["release"]


def release(
    recipe: Annotated[str, typer.Argument(help="The recipe file.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The folder to write; it must not exist yet.")],
    project: ProjectOption = "sfumato.toml",
    epsilon: Annotated[list[str] | None, typer.Option(help="In place of the recipe's; may repeat.")] = None,
    delta: Annotated[str | None, typer.Option(help="In place of the recipe's.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing release.")] = False,
    json: Json = False,
) -> None:
    """Charge the ledger, then count, add noise, and write the release folder."""
    import sfumato

    curator = sfumato.open(project)
    note_missing_ledger(curator)
    with progress(quiet=json) as stage:
        result = curator.release(recipe, epsilon=epsilon, delta=delta, out=out, force=force, progress=stage)
    report = curator.budget()
    total = result.certificate["total"]
    if json:
        print_json(
            {
                "folder": out,
                "rows": result.table.num_rows,
                "repeated": result.repeated,
                "total": total,
                "left": str(report.left),
                "files": sorted(result.files),
            }
        )
        return
    show = console()
    if result.repeated:
        show.print("The same plan was answered before on this table: the stored release, nothing spent.")
    else:
        pure = f"epsilon {total['epsilon']}" if total["epsilon"] is not None else f"rho {total['rho']}"
        show.print(f"Spent {pure}; epsilon {report.left} of {report.total} left.")
    show.print(f"Wrote {out}: {', '.join(sorted(result.files))}")
    show.print(f"next: sfumato verify {out}")
