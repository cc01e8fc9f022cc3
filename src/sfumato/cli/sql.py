"""`sfumato sql`: private statements, one by one or in a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sfumato.cli.output import Json, ProjectOption, console, note, note_missing_ledger, print_json, progress
from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    from sfumato.curator import Curator
    from sfumato.sql import Answer

__all__ = ["sql"]

Format = Literal["table", "csv", "json", "parquet"]

_WELCOME = "DP-SELECT epsilon ... FROM table;  EXPLAIN ... spends nothing;  .budget  .tables  .help  .quit"
_MOST_SHOWN = 40


def sql(
    project: ProjectOption = "sfumato.toml",
    command: Annotated[str | None, typer.Option("-c", "--command", help="One statement to run.")] = None,
    file: Annotated[str | None, typer.Option("-f", "--file", help="A file of statements.")] = None,
    output: Annotated[Format, typer.Option("--format", help="How answers are printed.")] = "table",
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Write the last answer to this file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Answer private SQL: with -c or -f, or in a shell with history.

    Example: sfumato sql -c "DP-SELECT 0.5 COUNT(*) FROM trips WHERE fare > 10"
    """
    import sfumato
    from sfumato.release import check_file, write_file

    if command is not None and file is not None:
        message = "give a statement (-c) or a file (-f), not both"
        raise typer.BadParameter(message)
    if out is not None and Path(out).suffix not in (".csv", ".json", ".parquet"):
        message = "--out takes a name that ends in .csv, .json or .parquet"
        raise typer.BadParameter(message)
    if out is not None:
        check_file(Path(out), force=force)
    curator = sfumato.open(project)
    note_missing_ledger(curator)
    shown: Format = "json" if json else output
    if command is None and file is None:
        _run_shell(curator, shown)
        return
    answer: Answer | None = None
    for text in [command] if command is not None else _read_file(file or ""):
        answer = _run(curator, text or "", quiet=json)
        if out is None:
            _print(answer, shown)
    if out is not None and answer is not None:
        write_file(Path(out), _to_bytes(answer, Path(out).suffix.lstrip(".")), force=force)
        note(f"wrote {out}")


def _read_file(name: str) -> list[str]:
    from sfumato.errors import UnsupportedQuery

    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"file {name!r} cannot be read ({type(error).__name__})"
        raise UnsupportedQuery(message) from None
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


def _run(curator: Curator, text: str, *, quiet: bool) -> Answer:
    _announce(curator, text)
    with progress(quiet=quiet) as stage:
        answer = curator.sql(text, progress=stage)
    if not quiet:
        note(f"{_describe(answer)}; epsilon {curator.budget().left} left")
    return answer


def _announce(curator: Curator, text: str) -> None:
    """Says what a statement will spend whose epsilon follows from a wanted error."""
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
    return f"{kind}spent epsilon {float(answer.spent):.6g}"


def _print(answer: Answer, output: Format) -> None:
    if output == "json":
        print_json(_to_record(answer))
    elif output in ("csv", "parquet"):
        sys.stdout.buffer.write(_to_bytes(answer, output))
        sys.stdout.flush()
    elif answer.explanation is not None:
        sys.stdout.write(answer.explanation + "\n")
    else:
        _print_table(answer)


def _print_table(answer: Answer) -> None:
    from rich.table import Table

    table = Table(*answer.table.column_names)
    for row in answer.table.slice(0, _MOST_SHOWN).to_pylist():
        table.add_row(
            *(f"{value:,.4g}" if isinstance(value, float) else str(value) for value in row.values())
        )
    show = console()
    show.print(table)
    if answer.table.num_rows > _MOST_SHOWN:
        show.print(f"({answer.table.num_rows:,} rows; --format csv shows all)")
    if answer.synthetic:
        show.print("SYNTHETIC rows: drawn from a private model, none is a record")


def _to_record(answer: Answer) -> dict[str, Any]:
    return {
        "columns": answer.table.column_names,
        "rows": [list(row.values()) for row in answer.table.to_pylist()],
        "spent": float(answer.spent),
        "repeated": answer.repeated,
        "synthetic": answer.synthetic,
        "noise": dict(answer.scales),
    }


def _to_bytes(answer: Answer, kind: str) -> bytes:
    import json

    from sfumato.release.files import table_to_csv, table_to_parquet

    if kind == "parquet":
        return table_to_parquet(answer.table, varied=())
    if kind == "json":
        return (json.dumps(_to_record(answer), default=str) + "\n").encode()
    return table_to_csv(answer.table)


def _run_shell(curator: Curator, output: Format) -> None:
    interactive = sys.stdin.isatty()
    if interactive:
        _load_history(curator)
        note(_WELCOME)
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
            if not _run_dot(curator, line.strip()):
                break
            continue
        pending = f"{pending}\n{line}" if pending else line
        if pending.rstrip().endswith(";") or not interactive:
            text, pending = pending, ""
            if text.strip():
                _try(curator, text, output)


def _try(curator: Curator, text: str, output: Format) -> None:
    try:
        _print(_run(curator, text, quiet=False), output)
    except SfumatoError as error:
        note(f"error: {error}")


def _run_dot(curator: Curator, line: str) -> bool:
    match line:
        case ".quit" | ".exit":
            return False
        case ".budget":
            report = curator.budget()
            note(f"epsilon {report.left} of {report.total} left")
        case ".tables":
            for name, table in curator.project.tables.items():
                note(f"{name}: {', '.join(table.columns)} (protects {table.unit.describe()})")
            for name in curator.project.public:
                note(f"{name}: public")
        case _:
            note(_WELCOME)
    return True


def _load_history(curator: Curator) -> None:
    import atexit
    import readline
    from contextlib import suppress

    # Statements hold no record, but they tell what somebody looked for: only the user may read them.
    path = curator.project.folder / ".sfumato_history"
    with suppress(OSError):
        path.touch(mode=0o600)
        readline.read_history_file(path)
    readline.set_history_length(1000)
    atexit.register(lambda: readline.write_history_file(path))
