"""`sfumato check`: what a release would ask, cost and err, before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.output import Json, ProjectOption, console, print_json

if TYPE_CHECKING:
    from sfumato.curator import Check

__all__ = ["check"]


def check(
    recipe: Annotated[str, typer.Argument(help="The recipe file.")],
    project: ProjectOption = "sfumato.toml",
    epsilon: Annotated[list[str] | None, typer.Option(help="In place of the recipe's; may repeat.")] = None,
    delta: Annotated[str | None, typer.Option(help="In place of the recipe's.")] = None,
    json: Json = False,
) -> None:
    """Dry run: unit, sensitivity, noise, expected error, cost. Reads no row, spends nothing.

    Exit code 3 if the release would not fit into what is left.
    """
    import sfumato

    result = sfumato.open(project).check(recipe, epsilon=epsilon, delta=delta)
    if json:
        print_json(describe_check(result))
    else:
        show_check(result)
    if not result.admitted:
        raise typer.Exit(3)


def describe_check(result: Check) -> dict[str, Any]:
    """A dry run as a plain record."""
    from sfumato.exact import format_exact

    plan = result.plan
    return {
        "recipe": plan.recipe.kind,
        "table": plan.table.name,
        "unit": plan.table.unit.column or "row",
        "max_records": plan.table.unit.max_records,
        "neighbours": plan.table.unit.neighbours,
        "bounding": plan.table.bounding,
        "measurements": [
            {
                "name": request.name,
                "cells": plan.table.cells(request.columns),
                "noise": request.noise,
                "scale": float(request.scale / plan.table.grid),
                "sensitivity": float(cost.sensitivity / plan.table.grid),
                "norm": cost.norm,
                "expected_error_95": request.interval / plan.table.grid,
                "epsilon": None if cost.epsilon is None else format_exact(cost.epsilon),
                "rho": float(cost.rho),
            }
            for request, cost in zip(plan.requests, plan.costs, strict=True)
        ],
        "left": str(result.left),
        "admitted": result.admitted,
        "answered": result.answered,
    }


def show_check(result: Check) -> None:
    """Prints a dry run for a person."""
    from rich.table import Table

    record = describe_check(result)
    out = console()
    out.print(f"{record['recipe']} of table {record['table']}")
    out.print(f"  protects   one individual: {result.plan.table.unit.describe()}")
    out.print(f"  bounding   {record['bounding']}, enforced while counting")
    table = Table("measurement", "cells", "noise", "scale", "sensitivity", "95 % of errors within", "epsilon")
    for row in record["measurements"]:
        table.add_row(
            row["name"],
            f"{row['cells']:,}",
            row["noise"],
            f"{row['scale']:.6g}",
            f"{row['sensitivity']:.6g} ({row['norm']})",
            f"+-{row['expected_error_95']:.4g}",
            row["epsilon"] or f"rho {row['rho']:.4g}",
        )
    out.print(table)
    verdict = "fits" if result.admitted else "does NOT fit"
    verdict = "was answered before and is free" if result.answered else verdict
    out.print(f"  budget     epsilon {record['left']} left; this release {verdict}; nothing was spent")
