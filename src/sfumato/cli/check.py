"""`sfumato check`: what a release would ask, cost and err, before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.output import Delta, Epsilons, Json, ProjectOption, print_json, print_table, say

if TYPE_CHECKING:
    from sfumato.curator import Check


def check(
    recipe: Annotated[str, typer.Argument(help="The recipe file.")],
    project: ProjectOption = "sfumato.toml",
    epsilon: Epsilons = None,
    delta: Delta = None,
    json: Json = False,
) -> None:
    """Dry run: unit, sensitivity, noise, expected error, cost. Reads no row, spends nothing.

    Exit code 3 if the release would not fit into what is left.
    """
    import sfumato

    result = sfumato.open(project).check(recipe, epsilon=epsilon, delta=delta)
    if json:
        print_json(result.to_record())
    else:
        show_check(result)
    if not result.admitted:
        raise typer.Exit(3)


def show_check(result: Check) -> None:
    """Prints a dry run for a person."""
    record = result.to_record()
    say(f"{record['recipe']} of table {record['table']}")
    say(f"  protects   one individual: {result.plan.table.unit.describe()}")
    say(f"  bounding   {record['bounding']}, enforced while counting")
    rows = [
        (
            row["name"],
            f"{row['cells']:,}",
            row["noise"],
            f"{row['scale']:.6g}",
            f"{row['sensitivity']:.6g} ({row['norm']})",
            f"+-{row['expected_error_95']:.4g}",
            row["epsilon"] or f"rho {row['rho']:.4g}",
        )
        for row in record["measurements"]
    ]
    if rows:
        headings = (
            "measurement",
            "cells",
            "noise",
            "scale",
            "sensitivity",
            "95 % of errors within",
            "epsilon",
        )
        print_table(*headings, rows=rows)
    if result.plan.allowance is not None:
        rho = sum(float(cost.rho) for cost in result.plan.costs)
        say(f"  asks       as it goes, by what it has seen, within rho {rho:.4g} charged at the start")
    if result.plan.parts:
        shares = ", ".join(f"{part.name} {float(part.share):.0%}" for part in result.plan.parts)
        say(f"  parts      {shares} of the people: each may be asked for all of it, and it is charged once")
    say(f"  budget     epsilon {record['left']} left; this release {result.verdict}; nothing was spent")
