"""`sfumato predict`, `regress` and `rows`: a released model asked about rows, or for rows. Free."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from sfumato.cli.output import Force, Json, note, print_json, print_result, print_table, say, split_names

if TYPE_CHECKING:
    import pyarrow as pa


def predict(
    folder: Annotated[str, Argument(help="The folder of a released model.")],
    file: Annotated[str, Argument(help="New rows: Parquet, CSV or CSV.gz.")],
    out: Annotated[
        str | None, Option("--out", "-o", help="The file to write, .csv or .parquet.", show_default=False)
    ] = None,
    sql: Annotated[
        str | None, Option(help="Print a SELECT over this table in place of predictions.", show_default=False)
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict for every row of a file with a released model. Rows keep their order.

    Reads no private record and spends nothing. Without --out the predictions are CSV on stdout.
    """
    from sfumato.core.files import check_file
    from sfumato.learn import open_model
    from sfumato.learn.model import to_columns
    from sfumato.tables.read import read_table

    model = open_model(folder)
    if sql is not None:
        say(model.to_sql(sql))
        return
    if out is not None:
        check_file(Path(out), force=force)
    rows = read_table(file, side="new data", columns=model.stored)
    found = to_columns(model, rows)
    unknown = model.unknown(rows)
    for name, count in unknown.items():
        note(
            f"column {name!r}: {count:,} of {rows.num_rows:,} values are unknown to the model and "
            f"{model.of_unknown}"
        )
    document: dict[str, Any] = {"rows": found.num_rows, "unknown": unknown}
    _deliver(found, document, "predictions", out=out, force=force, json=json)


def rows(
    folder: Annotated[str, Argument(help="The folder of a release with a model.")],
    where: Annotated[
        str | None, Option(help="A condition that the rows fit: \"age >= 65 AND region = 'north'\".")
    ] = None,
    count: Annotated[
        int | None, Option("-n", min=0, help="How many rows; as many as the model expects by default.")
    ] = None,
    epsilon: Annotated[str | None, Option(help="Which model, if the release has several.")] = None,
    seed: Annotated[int | None, Option(help="Other rows of the same model.")] = None,
    out: Annotated[
        str | None, Option("--out", "-o", help="The file to write, .csv or .parquet.", show_default=False)
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Draw synthetic rows that fit a condition, from a released model. Without --out as CSV on stdout.

    Reads no private record and spends nothing.
    """
    from sfumato.core.files import check_file
    from sfumato.release.ask import open_model

    if out is not None:
        check_file(Path(out), force=force)
    table, notes = open_model(folder, epsilon=epsilon).draw_rows(where, rows=count, seed=seed)
    for each in notes:
        note(each)
    document = {"rows": table.num_rows, "notes": list(notes)}
    _deliver(table, document, "synthetic rows", out=out, force=force, json=json)


def _deliver(
    table: pa.Table, document: dict[str, Any], name: str, *, out: str | None, force: bool, json: bool
) -> None:
    """Writes rows to a file, into the JSON object, or as CSV to stdout."""
    from sfumato.core.files import write_file
    from sfumato.tables.read import table_to_csv, table_to_parquet

    if out is None and json:
        print_json({**document, name: table.to_pydict()})
        return
    parquet = str(out).endswith(".parquet")
    content = table_to_parquet(table, varied=()) if parquet else table_to_csv(table)
    if out is None:
        typer.echo(content.decode(), nl=False)
        return
    write_file(Path(out), content, force=force)
    print_result({**document, "out": out}, f"Wrote {out}: {table.num_rows:,} {name}.", json=json)


def regress(
    folder: Annotated[str, Argument(help="The folder of a release that holds a model.")],
    target: Annotated[str, Option(help="A column of numbers, or a condition such as \"job = 'yes'\".")],
    inputs: Annotated[list[str], Option(help="The columns to explain it by: a,b,c.")],
    family: Annotated[
        Literal["linear", "logistic"], Option(help="Least squares, or logistic for a condition.")
    ] = "linear",
    population: Annotated[
        bool, Option("--population", help="Intervals about the population that records are a sample of.")
    ] = False,
    epsilon: Annotated[str | None, Option(help="Which model, if the release holds several.")] = None,
    json: Json = False,
) -> None:
    """Explain a column by others on the model of a release. Spends nothing.

    The 95 % intervals account for the privacy noise. Where measurements do not tell all that they need, there
    is none and a note says so.

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
    shown = (
        (term, *("" if number is None else f"{number:.6g}" for number in numbers))
        for term, *numbers in (row.values() for row in rows)
    )
    title = f"{family} regression of {target}"
    print_table("term", "coefficient", "low", "high", rows=shown, title=title, numbers=(1, 2, 3))
    note(f"from the model at epsilon {model.epsilon}: nothing spent")
