"""`sfumato sql`: private statements, one by one, from scripts, or in a shell."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, BadParameter, Exit, Option

from sfumato.cli.output import Force, Json, ProjectOption, note
from sfumato.core.errors import RecipeError, UnsupportedQuery

if TYPE_CHECKING:
    from sfumato.cli.output import Mode
    from sfumato.sql.finish import Answer


Format = Literal["table", "box", "line", "csv", "json", "markdown", "parquet"]


def sql(
    statement: Annotated[str | None, Argument(help="One statement to run.")] = None,
    project: ProjectOption = "sfumato.toml",
    command: Annotated[str | None, Option("-c", "--command", help="The same.")] = None,
    file: Annotated[str | None, Option("-f", "--file", help="A file of statements.")] = None,
    model: Annotated[
        str | None, Option(help="Ask the model of the release in this folder; spends nothing.")
    ] = None,
    epsilon: Annotated[
        str | None, Option(help="With -f, what all statements may spend together; with --model, which model.")
    ] = None,
    population: Annotated[
        bool, Option("--population", help="With --model, intervals about the population of the records.")
    ] = False,
    delta: Annotated[str, Option(help="With -f and --epsilon, also delta.")] = "0",
    plan: Annotated[
        bool, Option("--plan", help="Only show what -f and --epsilon would buy, and the errors.")
    ] = False,
    output: Annotated[Format, Option("--format", help="How answers are printed.")] = "table",
    out: Annotated[str | None, Option("--out", "-o", help="Write the last answer to this file.")] = None,
    keep_going: Annotated[
        bool, Option("--keep-going", help="After an error, go on with the next statement.")
    ] = False,
    timing: Annotated[bool, Option("--timing", help="Say how long each statement took.")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Answer private SQL: one statement, a script, or in a shell.

    Example: sfumato sql "DP-SELECT 0.5 COUNT(*) FROM trips WHERE fare > 10"
    """
    if sum(each is not None for each in (statement, command, file)) > 1:
        raise BadParameter("give one statement, as it is or with -c, or a file (-f)")
    if plan and (file is None or epsilon is None or model is not None):
        raise BadParameter("--plan is for the statements of a file with a price: -f FILE --epsilon E")
    if epsilon is not None and model is None and file is None:
        raise BadParameter(
            "--epsilon is for a file of statements (-f) or chooses the model of --model; what may be spent "
            "on one stands in DP-SELECT epsilon ..."
        )
    if population and model is None:
        raise BadParameter("--population goes with --model, whose intervals can be about a population")
    if out is not None and Path(out).suffix not in (".csv", ".json", ".parquet"):
        raise BadParameter("--out takes a name that ends in .csv, .json or .parquet")
    from sfumato.cli.output import to_bytes
    from sfumato.cli.shell import Curated, Modelled, Piece, Quit, Shell, read_lines
    from sfumato.core.files import check_file, write_file

    if out is not None:
        check_file(Path(out), force=force)
    mode: Mode = "json" if json else "box" if output == "table" else output

    def write(answer: Answer | None) -> None:
        if out is not None and answer is not None:
            write_file(Path(out), to_bytes(answer, Path(out).suffix.lstrip(".")), force=force)
            note(f"wrote {out}")

    if file is not None and epsilon is not None and model is None:
        write(run_workload(project, file, epsilon, delta, plan=plan, mode=mode, quiet=out is not None))
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
    if shell.code:
        raise Exit(shell.code)
    write(shell.last)


_NUMBERED = re.compile(r"statement (\d+) of the workload")


def run_workload(
    project: str, file: str, epsilon: str, delta: str, *, plan: bool, mode: Mode, quiet: bool
) -> Answer | None:
    """Plans the statements of a file together and, unless only the `plan` is wanted, buys and prints them.

    `epsilon` and `delta` are what all of them may spend. Gives the last answer; `quiet` prints none.
    """
    from sfumato.cli.output import open_curator, print_json, progress, say, show_answer
    from sfumato.cli.shell import read_lines, split_script
    from sfumato.core.exact import format_short

    curator = open_curator(project)
    pieces = list(split_script(read_lines(file)))
    texts = [piece.text.rstrip(";") for piece in pieces]
    with progress(quiet=mode == "json") as stage:
        stage("planning")
        try:
            workload = curator.sql_workload(texts, epsilon=epsilon, delta=delta, progress=stage)
        except (RecipeError, UnsupportedQuery) as error:
            found = _NUMBERED.match(str(error))
            where = "" if found is None else f"{file}, line {pieces[int(found[1]) - 1].line}: "
            raise type(error)(f"{where}{error}") from None
        answers = [] if plan else workload.buy()
    if plan and mode == "json":
        print_json(workload.to_record())
    elif plan:
        say(str(workload))
    for answer in () if quiet else answers:
        show_answer(answer, mode)
        for each in answer.notes if mode != "json" else ():
            note(each)
    if not plan:
        spent = sum((answer.spent for answer in answers), start=answers[0].spent * 0)
        note(f"spent epsilon {format_short(spent)} on all; epsilon {curator.budget().left} left")
    return answers[-1] if answers else None
