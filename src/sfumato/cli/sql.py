"""`sfumato sql`: private statements, one by one or in a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sfumato.cli.output import (
    Force,
    Json,
    ProjectOption,
    note,
    open_curator,
    print_json,
    print_table,
    progress,
    say,
)
from sfumato.errors import SfumatoError, UnsupportedQuery
from sfumato.exact import format_short

if TYPE_CHECKING:
    from sfumato.curator import Curator
    from sfumato.sql import Answer

Format = Literal["table", "csv", "json", "parquet"]

_MOST_SHOWN = 40


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
    delta: Annotated[str, typer.Option("--delta", help="With -f and --epsilon, also delta.")] = "0",
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show what -f and --epsilon would buy, and the errors.")
    ] = False,
    output: Annotated[Format, typer.Option("--format", help="How answers are printed.")] = "table",
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Write the last answer to this file.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Answer private SQL: one statement, those of a file, or in a shell with history.

    Example: sfumato sql "DP-SELECT 0.5 COUNT(*) FROM trips WHERE fare > 10"
    """
    from sfumato.tables import check_file, write_file

    if sum(each is not None for each in (statement, command, file)) > 1:
        raise typer.BadParameter("give one statement, as it is or with -c, or a file (-f)")
    if plan and (file is None or epsilon is None or model is not None):
        raise typer.BadParameter("--plan is for the statements of a file with a price: -f FILE --epsilon E")
    if epsilon is not None and model is None and file is None:
        raise typer.BadParameter(
            "--epsilon is for a file of statements (-f) or chooses the model of --model; what may be spent "
            "on one stands in DP-SELECT epsilon ..."
        )
    command = statement if command is None else command
    if out is not None and Path(out).suffix not in (".csv", ".json", ".parquet"):
        raise typer.BadParameter("--out takes a name that ends in .csv, .json or .parquet")
    if out is not None:
        check_file(Path(out), force=force)
    shown: Format = "json" if json else output
    if file is not None and epsilon is not None and model is None:
        last = _run_workload(project, file, epsilon, delta, plan=plan, output=shown, quiet=out is not None)
        if out is not None and last is not None:
            write_file(Path(out), _to_bytes(last, Path(out).suffix.lstrip(".")), force=force)
            note(f"wrote {out}")
        return
    respondent = _Curated(project) if model is None else _Modelled(model, epsilon)
    if command is None and file is None:
        _run_shell(respondent, shown)
        return
    answer: Answer | None = None
    for text in [command] if command is not None else _read_file(file or ""):
        answer = respondent.run(text or "", quiet=json)
        if out is None:
            _print(answer, shown)
    if out is not None and answer is not None:
        write_file(Path(out), _to_bytes(answer, Path(out).suffix.lstrip(".")), force=force)
        note(f"wrote {out}")


def _run_workload(
    project: str, file: str, epsilon: str, delta: str, *, plan: bool, output: Format, quiet: bool
) -> Answer | None:
    """Plans the statements of a file together and, unless only the `plan` is wanted, buys and prints them."""
    curator = open_curator(project)
    with progress(quiet=output == "json") as stage:
        stage("planning")
        workload = curator.sql_workload(_read_file(file), epsilon=epsilon, delta=delta, progress=stage)
        answers = [] if plan else workload.buy()
    if plan and output == "json":
        print_json(workload.to_record())
    elif plan:
        say(str(workload))
    for answer in () if quiet else answers:
        _print(answer, output)
        for each in answer.notes if output != "json" else ():
            note(each)
    if not plan:
        spent = sum((answer.spent for answer in answers), start=answers[0].spent * 0)
        note(f"spent epsilon {format_short(spent)} on all; epsilon {curator.budget().left} left")
    return answers[-1] if answers else None


def _read_file(name: str) -> list[str]:
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnsupportedQuery(f"file {name!r} cannot be read ({type(error).__name__})") from None
    return [part for part in split_statements(text) if part.strip()]


def split_statements(text: str) -> list[str]:
    """The statements of a file, parted at the semicolons outside quotes and comments."""
    from sfumato.sql.statement import mask_text

    masked, parts, start = mask_text(text), [], 0
    for index, char in enumerate(masked):
        if char == ";":
            parts.append(text[start:index])
            start = index + 1
    rest = text[start:]
    return [*parts, rest] if mask_text(rest).strip() else parts


class _Curated:
    """Statements answered by the project's curator, who charges the ledger."""

    welcome = "DP-SELECT epsilon ... FROM table;  EXPLAIN ... spends nothing;  .budget  .tables  .help  .quit"

    def __init__(self, project: str) -> None:
        self._curator = open_curator(project)
        self.history: Path | None = self._curator.project.folder / ".sfumato_history"

    def run(self, text: str, *, quiet: bool) -> Answer:
        _announce(self._curator, text)
        with progress(quiet=quiet) as stage:
            answer = self._curator.sql(text, progress=stage)
        for each in answer.notes:
            note(each)
        if not quiet:
            note(f"{_describe(answer)}; epsilon {self._curator.budget().left} left")
        return answer

    def run_dot(self, line: str) -> None:
        match line:
            case ".budget":
                note(self._curator.budget().describe_left())
            case ".tables":
                for name, table in self._curator.project.tables.items():
                    note(f"{name}: {', '.join(table.columns)} (protects {table.unit.describe()})")
                for name in self._curator.project.public:
                    note(f"{name}: public")
            case _:
                note(self.welcome)


class _Modelled:
    """Statements answered from the model of a release, which is public: there is nothing to charge."""

    welcome = "SELECT ... FROM table;  spends nothing;  .tables  .help  .quit"
    history: Path | None = None

    def __init__(self, folder: str, epsilon: str | None) -> None:
        from sfumato.release.ask import open_model

        self._model = open_model(folder, epsilon=epsilon)

    def run(self, text: str, *, quiet: bool) -> Answer:
        answer = self._model.sql(text)
        # What an answer rests on is said to whoever reads it, also beside JSON.
        for each in answer.notes:
            note(each)
        if not quiet:
            note(f"from the model at epsilon {self._model.epsilon}: nothing spent")
        return answer

    def run_dot(self, line: str) -> None:
        if line == ".tables":
            note(f"{self._model.table.name}: {', '.join(self._model.columns)} (a model)")
        else:
            note(self.welcome)


def _announce(curator: Curator, text: str) -> None:
    """Says what a statement will spend whose epsilon follows from the error to stay within."""
    from sfumato.sql import read_statement

    statement = read_statement(text)
    if statement.within is None or statement.explain:
        return
    plan = curator.sql(f"EXPLAIN {text}").explanation or ""
    cost = next((line.split(None, 1)[1] for line in plan.splitlines() if line.startswith("  cost")), "")
    if statement.within.relative:
        note(f"WITHIN a share of the answer: begins with {cost}, and doubles until it is reached")
    else:
        note(f"WITHIN needs {cost}")


def _describe(answer: Answer) -> str:
    if answer.explanation is not None or answer.public:
        return "nothing spent"
    kind = "synthetic rows, no record is among them; " if answer.synthetic else ""
    if answer.repeated:
        return f"{kind}answered before: nothing spent"
    delta = f", delta {format_short(answer.delta)}" if answer.delta else ""
    return f"{kind}spent epsilon {format_short(answer.spent)}{delta}"


def _print(answer: Answer, output: Format) -> None:
    if output == "json":
        print_json(_to_record(answer))
    elif output == "csv" and sys.stdout.isatty():
        say(_to_bytes(answer, output).decode().removesuffix("\n"))
    elif output in ("csv", "parquet"):
        sys.stdout.buffer.write(_to_bytes(answer, output))
        sys.stdout.flush()
    elif answer.explanation is not None:
        say(answer.explanation)
    else:
        _print_table(answer)


def _print_table(answer: Answer) -> None:
    shown = answer.table.slice(0, _MOST_SHOWN).to_pylist()
    print_table(*answer.table.column_names, rows=(map(_show, row.values()) for row in shown))
    if answer.table.num_rows > _MOST_SHOWN:
        say(f"({answer.table.num_rows:,} rows; --format csv shows all)")
    if answer.synthetic:
        say("SYNTHETIC rows: drawn from a private model, none is a record")


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"
    return "" if value is None else str(value)


def _to_record(answer: Answer) -> dict[str, Any]:
    return {
        "columns": answer.table.column_names,
        "rows": [list(row.values()) for row in answer.table.to_pylist()],
        "spent": float(answer.spent),
        "repeated": answer.repeated,
        "synthetic": answer.synthetic,
        "noise": dict(answer.scales),
        **({"notes": list(answer.notes)} if answer.notes else {}),
    }


def _to_bytes(answer: Answer, kind: str) -> bytes:
    import json

    from sfumato.tables import table_to_csv, table_to_parquet

    if kind == "parquet":
        return table_to_parquet(answer.table, varied=())
    if kind == "json":
        return (json.dumps(_to_record(answer), default=str) + "\n").encode()
    return table_to_csv(answer.table)


def _run_shell(respondent: _Curated | _Modelled, output: Format) -> None:
    interactive = sys.stdin.isatty()
    if interactive:
        if respondent.history is not None:
            _load_history(respondent.history)
        note(respondent.welcome)
    pending = ""
    while True:
        try:
            prompt = ("      ...> " if pending else "sfumato> ") if interactive else ""
            line = input(prompt)
        except EOFError:
            break
        except KeyboardInterrupt:
            pending = ""
            continue
        if not pending and line.strip().startswith("."):
            if line.strip() in (".quit", ".exit"):
                break
            respondent.run_dot(line.strip())
            continue
        pending = f"{pending}\n{line}" if pending else line
        if pending.rstrip().endswith(";") or not interactive:
            text, pending = pending, ""
            try:
                if text.strip():
                    _print(respondent.run(text, quiet=False), output)
            except SfumatoError as error:
                note(f"error: {error}")


def _load_history(path: Path) -> None:
    import atexit
    import readline
    from contextlib import suppress

    # Statements hold no record, but they tell what somebody looked for: only the user may read them.
    with suppress(OSError):
        path.touch(mode=0o600)
        readline.read_history_file(path)
    readline.set_history_length(1000)
    atexit.register(lambda: readline.write_history_file(path))
