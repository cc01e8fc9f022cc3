"""`sfumato release`, `budget`, `verify` and `export`: a release, its charge, and its proof."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

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
    print_result,
    print_table,
    progress,
    say,
)
from sfumato.core.errors import SfumatoError

if TYPE_CHECKING:
    from sfumato.curator import Curator

_LISTED = 100  # charges, the last ones


def release(
    recipe: Annotated[str | None, Argument(help="The recipe file.")] = None,
    out: Annotated[
        str | None, Option("--out", "-o", help="The folder to write; it must not exist yet.")
    ] = None,
    project: ProjectOption = "sfumato.toml",
    epsilon: Epsilons = None,
    delta: Delta = None,
    through: Annotated[
        str | None, Option(help="The last period of a series (running) to release now.")
    ] = None,
    resume: Annotated[
        str | None, Option(help="Finish the release begun in this folder; spends nothing.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Charge the ledger, then count, add noise, and write a folder."""
    if resume is not None and any(given is not None for given in (recipe, out, epsilon, delta, through)):
        raise BadParameter("--resume takes recipe, folder, epsilon and delta from the folder; give it alone")
    if resume is None and (recipe is None or out is None):
        raise BadParameter("give a recipe file and --out FOLDER, or --resume FOLDER")
    folder = str(out or resume)
    curator = open_curator(project)
    before = curator.budget()
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
    document = {
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
    if result.repeated:
        lines = ["The same plan was answered before on this table: the stored release, nothing spent."]
    elif result.resumed:
        lines = [f"Finished what was begun before, nothing more spent; epsilon {report.left} left."]
    elif report.spent == before.spent:
        lines = ["Paid before, with the first period of the series: nothing more spent."]
    else:
        lines = [f"{report.describe_since(before).capitalize()}."]
    if "not_identified" in facts:
        every, lost = facts["coefficients"], facts["not_identified"]
        lines.append(f"{every - lost} of {every} coefficients stand out of the noise.")
    if judged:
        lines.append(_describe_evaluation(judged))
    lines += [f"Wrote {folder}: {', '.join(sorted(result.files))}", f"next: sfumato verify {folder}"]
    print_result(document, *lines, json=json)


def _describe_evaluation(judged: dict[str, Any]) -> str:
    from sfumato.report.model import list_figures

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


def budget(
    project: ProjectOption = "sfumato.toml",
    accept: Annotated[
        bool, Option("--accept", help="Enter the project file's changed budget into the ledger.")
    ] = False,
    anchor: Annotated[
        bool, Option("--anchor", help="Print a signed anchor of the ledger, or check the one given as TEXT.")
    ] = False,
    text: Annotated[str | None, Argument(help="With --anchor: an anchor printed earlier.")] = None,
    verbose: Annotated[
        bool, Option("--verbose", help="List all charges, and rho, what they add up in.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what has been spent, by what, and what is left."""
    from sfumato.core.cost.budget import Spent, add_costs, describe_costs
    from sfumato.core.exact import format_exact

    if text is not None and not anchor:
        raise BadParameter("an anchor is checked with --anchor TEXT")
    if anchor:
        _print_anchor(project, text, json=json)
        return
    curator = open_curator(project)
    report = curator.accept_budget() if accept else curator.budget()
    if json:
        print_json(report.to_record())
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
    charges = report.list_last(report.charged if verbose else _LISTED)
    if charges:
        rows = [
            [
                *(
                    str(each or "-")
                    for each in (entry.sequence, entry.recorded_at, entry.table, entry.subject)
                ),
                describe_costs(entry.costs, report.budget.delta),
                *([format_exact(add_costs(Spent(), entry.costs).rho)] if verbose else []),
            ]
            for entry in charges
        ]
        print_table("entry", "when", "table", "by", "cost", *(["rho"] if verbose else []), rows=rows)
    if missing := report.charged - len(charges):
        say(f"earlier charges, not listed: {missing:,}; --verbose and --json list all")


def _print_anchor(project: str, text: str | None, *, json: bool) -> None:
    """Prints an anchor, or that the ledger holds the one in `text`."""
    import sfumato
    from sfumato.accounting import Ledger

    curator = sfumato.open(project)
    ledger, folder = Ledger.read_only(curator.ledger_path), curator.project.folder
    found = ledger.sign_anchor(folder=folder) if text is None else ledger.check_anchor(text, folder=folder)
    if text is None:
        print_result(found.to_record(), str(found), json=json)
        return
    checked = f"the ledger holds entry {found.sequence} as the anchor has it, signed by its key"
    print_result({**found.to_record(), "verified": True}, checked, json=json)


def verify(
    folder: Annotated[str, Argument(help="The folder of a release.")],
    earlier: Annotated[
        str | None, Option(help="An earlier release of the same series, to compare with.")
    ] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Derive a release again from its measurements, and compare.

    The ledger is checked, too, if the project is here. Without it the release is only found consistent:
    measurements can be invented. Exit code 4 if anything differs.
    """
    import sfumato

    result = sfumato.verify(folder, ledger=_find_ledger(project), earlier=earlier)
    document = {
        "verified": not result.unchecked,
        "consistent": True,
        "verdict": result.verdict,
        "checked": result.checked,
        "unchecked": result.unchecked,
        "total": result.total,
    }
    lines = [f"  ok          {line}" for line in result.checked]
    lines += [f"  not checked {line}" for line in result.unchecked]
    print_result(document, *lines, result.verdict, json=json)


def _find_ledger(project: str) -> Path | str | None:
    """Return the ledger of a project that was named, or is here."""
    import sfumato

    return sfumato.open(project).ledger_path if project != "sfumato.toml" or Path(project).exists() else None


def export(
    folder: Annotated[str, Argument(help="The folder of a release.")],
    pack: Annotated[
        str | None, Option(help="Write what a compliance officer signs to this folder.", metavar="FOLDER")
    ] = None,
    checklist: Annotated[
        bool, Option("--checklist", help="The points of NIST SP 800-226, as Markdown.")
    ] = False,
    csvw: Annotated[bool, Option("--csvw", help="The public facts of the table, as CSVW metadata.")] = False,
    attack: Annotated[
        str | None, Option(help="What `sfumato attack link --json` printed, for the pack.")
    ] = None,
    state: Annotated[
        list[str] | None, Option(help="NAME=TEXT: what only the curator knows; may repeat.")
    ] = None,
    project: ProjectOption = "sfumato.toml",
    force: Force = False,
    json: Json = False,
) -> None:
    """Tell a release's guarantee to a registry, as a checklist, or as a pack for the decision.

    Example: sfumato export out --pack pack --state curator="City of Example" --state rationale="..."
    """
    from sfumato.report.pack import describe_csvw, describe_deployment, write_checklist, write_pack

    stated = dict(part.split("=", 1) for part in state or () if "=" in part)
    if len(stated) != len(state or ()):
        raise BadParameter("--state is NAME=TEXT, such as curator=City, each name once")
    if attack is not None and pack is None:
        raise BadParameter("--attack goes into a pack; name its folder with --pack")
    if pack is not None:
        files, left = write_pack(
            folder, pack, stated=stated, attack=attack, ledger=_find_ledger(project), force=force
        )
        document = {"pack": pack, "files": list(files), "open": left}
        lines = f"{len(files)} files in {pack}; begin with decision.html"
        note(f"{left} places are left for people to fill: --state NAME=TEXT, or in the files")
        print_result(document, lines, json=json)
    elif csvw:
        print_json(describe_csvw(folder))
    elif checklist and not json:
        say(write_checklist(folder, **stated).removesuffix("\n"))
    else:
        entry = describe_deployment(folder, **stated)
        print_json({**entry, "checklist": write_checklist(folder, **stated)} if checklist else entry)
