"""`sfumato regress`: a regression on the model of a release, with intervals. Free."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sfumato.cli.output import Json, note, print_json, print_table, split_names

Population = Annotated[
    bool,
    typer.Option(
        "--population", help="Intervals about the population that the records are a random sample of."
    ),
]


def regress(
    folder: Annotated[str, typer.Argument(help="The folder of a release that holds a model.")],
    target: Annotated[str, typer.Option(help="A column of numbers, or a condition such as \"job = 'yes'\".")],
    inputs: Annotated[list[str], typer.Option(help="The columns to explain it by: a,b,c.")],
    family: Annotated[
        Literal["linear", "logistic"], typer.Option(help="Least squares, or logistic for a condition.")
    ] = "linear",
    population: Population = False,
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", help="Which model, if the release holds several.")
    ] = None,
    json: Json = False,
) -> None:
    """Explain a column by others on the model of a release, with 95 % intervals. Spends nothing.

    Intervals account for the privacy noise. Where measurements do not tell all that they need, there is none
    and a note says so.

    Example: sfumato regress out/ --target income --inputs age,sex
    """
    from sfumato.release.ask import open_model

    model = open_model(folder, epsilon=epsilon)
    answer = model.regress(target, split_names(*inputs), family=family, population=population)
    for each in answer.notes:
        note(each)
    rows = answer.table.to_pylist()
    if json:
        print_json({"target": target, "family": family, "coefficients": rows, "notes": list(answer.notes)})
        return

    def show(number: float | None) -> str:
        return "" if number is None else f"{number:.6g}"

    print_table(
        "term",
        "coefficient",
        "low",
        "high",
        rows=(
            (row["term"], *(show(row[f"coefficient{end}"]) for end in ("", "_low", "_high"))) for row in rows
        ),
        title=f"{family} regression of {target}",
        numbers=(1, 2, 3),
    )
    note(f"from the model at epsilon {model.epsilon}: nothing spent")
