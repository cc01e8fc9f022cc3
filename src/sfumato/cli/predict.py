"""`sfumato predict`: what a released model expects of new rows. Free."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.output import Force, Json, note, print_json, say


def predict(
    folder: Annotated[str, typer.Argument(help="The folder of a released model.")],
    file: Annotated[str, typer.Argument(help="New rows: Parquet, CSV or CSV.gz.")],
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="The file to write, .csv or .parquet.", show_default=False),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", help="Print a SELECT over this table in place of predictions.", show_default=False
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict for every row of a file with a released model, in the order of its rows.

    Reads no private record and spends nothing. Without --out the predictions are CSV on stdout.
    """
    from sfumato.core.files import check_file, write_file
    from sfumato.learn import open_model
    from sfumato.learn.model import to_columns
    from sfumato.tables.read import read_table, table_to_csv, table_to_parquet

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
    if json:
        print_json(
            {
                "rows": found.num_rows,
                "unknown": unknown,
                **({"out": out} if out is not None else {"predictions": found.to_pydict()}),
            }
        )
    content = table_to_parquet(found, varied=()) if str(out).endswith(".parquet") else table_to_csv(found)
    if out is not None:
        write_file(Path(out), content, force=force)
        if not json:
            say(f"Wrote {out}: {found.num_rows:,} predictions.")
    elif not json:
        typer.echo(content.decode(), nl=False)
