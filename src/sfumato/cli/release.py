"""`sfumato release`: charges the ledger and writes the release."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.output import (
    Delta,
    Epsilons,
    Force,
    Json,
    ProjectOption,
    note,
    note_compiling,
    open_curator,
    print_json,
    progress,
    say,
)
from sfumato.core.errors import SfumatoError

if TYPE_CHECKING:
    from sfumato.curator import Curator


def release(
    recipe: Annotated[str | None, typer.Argument(help="The recipe file.")] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="The folder to write; it must not exist yet.")
    ] = None,
    project: ProjectOption = "sfumato.toml",
    epsilon: Epsilons = None,
    delta: Delta = None,
    through: Annotated[
        str | None, typer.Option("--through", help="The last period of a series (running) to release now.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Finish the release begun in this folder; spends nothing.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Charge the ledger, then count, add noise, and write the release folder."""
    if resume is not None and any(given is not None for given in (recipe, out, epsilon, delta, through)):
        raise typer.BadParameter(
            "--resume takes recipe, folder, epsilon and delta from the folder; give it alone"
        )
    if resume is None and (recipe is None or out is None):
        raise typer.BadParameter("give a recipe file and --out FOLDER, or --resume FOLDER")
    folder = str(out or resume)
    curator = open_curator(project)
    before = curator.budget().spent
    if recipe is not None and _fits_model(recipe):
        note_compiling("inference")
    try:
        with progress(quiet=json) as stage:
            if recipe is None:
                result = curator.resume(folder, progress=stage)
            else:
                result = curator.release(
                    recipe,
                    epsilon=epsilon,
                    delta=delta,
                    through=through,
                    out=folder,
                    force=force,
                    progress=stage,
                )
    except KeyboardInterrupt:
        _note_kept(curator, folder, project)
        raise
    report = curator.budget()
    total = result.certificate["total"]
    notes = [*result.notes, *result.certificate.get("notes", [])]
    for each in notes:
        note(each)
    facts = result.certificate.get("postprocessing", {})
    judged = facts.get("evaluation")
    if json:
        print_json(
            {
                "folder": folder,
                "rows": result.table.num_rows,
                "repeated": result.repeated,
                "resumed": result.resumed,
                "total": total,
                "left": str(report.left),
                "files": sorted(result.files),
                **({"notes": notes} if notes else {}),
                **({"evaluation": judged} if judged else {}),
            }
        )
        return
    if result.repeated:
        say("The same plan was answered before on this table: the stored release, nothing spent.")
    elif result.resumed:
        say(f"Finished what was begun before, nothing more spent; epsilon {report.left} left.")
    elif report.spent == before:
        say(f"Nothing spent: this series was paid for with its first period; {report.describe_left()}.")
    else:
        pure = f"epsilon {total['epsilon']}" if total["epsilon"] is not None else f"rho {total['rho']}"
        say(f"Spent {pure}; {report.describe_left()}.")
    if "not_identified" in facts:
        all_of_them = facts["coefficients"]
        say(f"{all_of_them - facts['not_identified']} of {all_of_them} coefficients stand out of the noise.")
    if judged:
        say(_describe_evaluation(judged))
    say(f"Wrote {folder}: {', '.join(sorted(result.files))}")
    say(f"next: sfumato verify {folder}")


def _describe_evaluation(judged: dict[str, Any]) -> str:
    from sfumato.report.evaluation import list_figures

    figures = [
        f"{each['name']} {each['value']} ({each['low']} to {each['high']})" for each in list_figures(judged)
    ]
    return f"On held-out people: {', '.join(figures) or judged.get('note', '')}."


def _fits_model(recipe: str) -> bool:
    """Returns whether the recipe file asks for rows of a fitted model."""
    from sfumato.recipes.files import read_recipe

    with suppress(SfumatoError):
        return read_recipe(recipe).recipe.kind in ("adaptive", "adaptive-grid", "tree", "related")
    return False


def _note_kept(curator: Curator, folder: str, project: str) -> None:
    """Says on stderr what an interrupted release has kept, and how to finish it."""
    kept = curator.kept(folder)
    if kept is None:
        return
    option = "" if project == "sfumato.toml" else f" --project {shlex.quote(project)}"
    measurements = "1 measurement" if kept == 1 else f"{kept} measurements"
    note(
        f"the charge and {measurements} are kept; finish, free of charge, with: "
        f"sfumato release --resume {shlex.quote(folder)}{option}"
    )
