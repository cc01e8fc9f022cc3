"""`sfumato sql`: private statements, one by one, from scripts, or in a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from sfumato.cli.output import Force, Json, ProjectOption, note

Format = Literal["table", "box", "line", "csv", "json", "markdown", "parquet"]


def sql(
    statement: Annotated[str | None, typer.Argument(help="One statement to run.")] = None,
    project: ProjectOption = "sfumato.toml",
    command: Annotated[str | None, typer.Option("-c", "--command", help="The same.")] = None,
    file: Annotated[str | None, typer.Option("-f", "--file", help="A file of statements.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Ask the model of the release in this folder; spends nothing."),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            "--epsilon", help="With -f, what all statements may spend together; with --model, which model."
        ),
    ] = None,
    population: Annotated[
        bool,
        typer.Option("--population", help="With --model, intervals about the population of the records."),
    ] = False,
    delta: Annotated[str, typer.Option("--delta", help="With -f and --epsilon, also delta.")] = "0",
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show what -f and --epsilon would buy, and the errors.")
    ] = False,
    output: Annotated[Format, typer.Option("--format", help="How answers are printed.")] = "table",
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Write the last answer to this file.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="After an error, go on with the next statement.")
    ] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Say how long each statement took.")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Answer private SQL: one statement, those of a file or a pipe, or in a shell with completion.

    Example: sfumato sql "DP-SELECT 0.5 COUNT(*) FROM trips WHERE fare > 10"
    """
    if sum(each is not None for each in (statement, command, file)) > 1:
        raise typer.BadParameter("give one statement, as it is or with -c, or a file (-f)")
    if plan and (file is None or epsilon is None or model is not None):
        raise typer.BadParameter("--plan is for the statements of a file with a price: -f FILE --epsilon E")
    if epsilon is not None and model is None and file is None:
        raise typer.BadParameter(
            "--epsilon is for a file of statements (-f) or chooses the model of --model; what may be spent "
            "on one stands in DP-SELECT epsilon ..."
        )
    if population and model is None:
        raise typer.BadParameter("--population goes with --model, whose intervals can be about a population")
    if out is not None and Path(out).suffix not in (".csv", ".json", ".parquet"):
        raise typer.BadParameter("--out takes a name that ends in .csv, .json or .parquet")
    from sfumato.cli.display import Mode, to_bytes
    from sfumato.cli.respondent import Curated, Modelled
    from sfumato.cli.script import Piece
    from sfumato.cli.shell import Quit, Shell, read_lines
    from sfumato.cli.workload import run_workload
    from sfumato.core.files import check_file, write_file

    if out is not None:
        check_file(Path(out), force=force)
    mode: Mode = "json" if json else "box" if output == "table" else output
    if file is not None and epsilon is not None and model is None:
        last = run_workload(project, file, epsilon, delta, plan=plan, mode=mode, quiet=out is not None)
        if out is not None and last is not None:
            write_file(Path(out), to_bytes(last, Path(out).suffix.lstrip(".")), force=force)
            note(f"wrote {out}")
        return
    shell = Shell(
        respondent=Curated(project) if model is None else Modelled(model, epsilon, population=population),
        mode=mode,
        keep_going=keep_going,
        quiet=json,
        shown=out is None,
        timing=timing,
    )
    command = statement if command is None else command
    try:
        if command is not None:
            shell.run(Piece(text=command, line=1))
        elif file is not None:
            shell.run_script(read_lines(file), name="" if file == "-" else file)
        elif sys.stdin.isatty():
            shell.interactive = True
            shell.converse()
        else:
            shell.run_script(sys.stdin)
    except Quit:
        pass
    if out is not None and shell.last is not None and shell.code == 0:
        write_file(Path(out), to_bytes(shell.last, Path(out).suffix.lstrip(".")), force=force)
        note(f"wrote {out}")
    if shell.code:
        raise typer.Exit(shell.code)
