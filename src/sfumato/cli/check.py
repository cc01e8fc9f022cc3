"""`sfumato check`: what a release would ask, cost and err, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.output import Delta, Epsilons, Force, Json, ProjectOption, note, print_json, show_check

if TYPE_CHECKING:
    from sfumato.curator import Curator
    from sfumato.curator.check import Check


def check(
    recipe: Annotated[str, typer.Argument(help="The recipe file.")],
    project: ProjectOption = "sfumato.toml",
    epsilon: Epsilons = None,
    delta: Delta = None,
    through: Annotated[
        str | None, typer.Option("--through", help="The last period of a series (running) to release.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="An SVG picture to write: expected error by epsilon.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Dry run: unit, sensitivity, noise, expected error, cost. Reads no row, spends nothing.

    Exit code 3 if the release would not fit into what is left.
    """
    import sfumato
    from sfumato.core.files import check_file, write_file

    if picture is not None:
        check_file(picture, force=force)
    curator = sfumato.open(project)
    result = curator.check(recipe, epsilon=epsilon, delta=delta, through=through)
    if picture is not None:
        write_file(picture, _draw_curve(curator, recipe, delta, result).encode(), force=force)
    if json:
        print_json({**result.to_record(), **({} if picture is None else {"picture": picture})})
    else:
        show_check(result)
    if picture is not None:
        note(f"written: {picture}")
    if not result.admitted:
        raise typer.Exit(3)


def _draw_curve(curator: Curator, recipe: str, delta: str | None, result: Check) -> str:
    """Expected error against epsilon: the recipe planned again at other epsilons, from public facts alone."""
    from sfumato.core.errors import RecipeError, SfumatoError
    from sfumato.report.pages.series import ErrorPoint, draw_errors

    chosen = [float(each) for each in result.plan.epsilons]
    if result.plan.allowance is not None or not result.plan.requests:
        raise RecipeError(
            "this recipe asks by what it has seen, so its noise is not known beforehand; --picture is for "
            "recipes whose measurements `sfumato check` lists"
        )
    points = []
    steps = {each * 2.0 ** (step / 2) for each in chosen for step in range(-8, 9)}
    for each in sorted(step for step in steps if min(chosen) / 17 < step < 17 * max(chosen)):
        try:
            planned = curator.check(recipe, epsilon=f"{each:.12g}", delta=delta).to_record()["measurements"]
        except SfumatoError:  # too little for this recipe, or too much
            continue
        errors = [row["expected_error_95"] for row in planned if row["expected_error_95"] > 0]
        if errors:
            points.append(ErrorPoint(epsilon=each, least=min(errors), most=max(errors)))
    if len(points) < 2:
        raise RecipeError("this recipe adds no noise that could be drawn; leave --picture out")
    left = str(result.left)
    return draw_errors(
        points,
        chosen=chosen,
        left=float(left) if left.replace(".", "", 1).isdecimal() else None,
        title="What more epsilon buys",
        shown=f"error of one noisy count of {result.plan.recipe.kind} on {result.plan.table.name}",
    )
