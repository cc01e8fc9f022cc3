"""`sfumato explain`: what an adversary learns from a privacy guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sfumato.cli.output import Force, Json, note, print_json, say


def explain(
    kind: Annotated[Literal["epsilon", "rho", "mu"], typer.Argument(help="The kind of guarantee.")],
    amount: Annotated[str, typer.Argument(help="The amount of one query.")],
    delta: Annotated[
        str | None,
        typer.Option("--delta", help="The delta that goes with epsilon; for rho and mu, as --read-at."),
    ] = None,
    prior: Annotated[str, typer.Option("--prior", help="What the adversary believed before.")] = "0.5",
    times: Annotated[int, typer.Option("--times", help="How many such queries are asked.")] = 1,
    read_at: Annotated[
        str | None,
        typer.Option("--read-at", help="The delta at which to read the guarantee as an epsilon; 1e-6."),
    ] = None,
    compositions: Annotated[
        bool, typer.Option("--compositions", help="Compare rules for what all queries cost together.")
    ] = False,
    picture: Annotated[Path | None, typer.Option("--picture", help="An SVG picture to write.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Explain what a guarantee lets an adversary learn who knows everybody else's data.

    Example: sfumato explain epsilon 1.0 --prior 0.1 --times 10
    """
    from sfumato.core.exact import parse_exact
    from sfumato.core.files import check_file, write_file
    from sfumato.report.explain.composition import compare_compositions, describe_compositions
    from sfumato.report.explain.explanation import describe_explanation, explain_guarantee
    from sfumato.report.explain.guarantee import Guarantee

    if kind != "epsilon" and delta is not None:
        if read_at is not None:
            raise typer.BadParameter(f"{kind} has no delta of its own; give --delta or --read-at, not both")
        delta, read_at = None, delta
    if picture is not None:
        check_file(picture, force=force)
    guarantee = Guarantee(
        kind=kind,
        amount=parse_exact(amount, name=kind),
        delta=parse_exact(delta or "0", name="delta"),
        times=times,
    )
    read_at = "1e-6" if read_at is None else read_at
    explanation = explain_guarantee(guarantee, prior=prior, read_at=read_at)
    lines = compare_compositions(guarantee, delta=read_at) if compositions else ()
    if picture is not None:
        from sfumato.report.explain.picture import draw_explanation

        write_file(picture, draw_explanation(explanation).encode(), force=force)
    if json:
        compared = {"compositions": [line.to_record() for line in lines]} if compositions else {}
        print_json({**explanation.to_record(), **compared, "picture": picture})
        return
    say(describe_explanation(explanation))
    if compositions:
        say(describe_compositions(lines, delta=read_at))
    if picture is not None:
        note(f"written: {picture}")
