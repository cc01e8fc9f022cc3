"""What every command shares: how results, answers, notes and errors reach the person or the pipe.

An answer is shown as a box, line by line, as CSV, JSON, Markdown or Parquet, and page by page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from typer import Option

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from sfumato.curator import Curator
    from sfumato.curator.check import Check
    from sfumato.sql.finish import Answer


# Of ASCII, of Latin-1, those that turn the direction of writing, and what no encoding can write.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

# Options that several commands have.
Json = Annotated[bool, Option("--json", help="Print one JSON object on stdout.")]
ProjectOption = Annotated[str, Option("--project", "-p", help="The project file.", show_default=True)]
Force = Annotated[bool, Option("--force", help="Replace what is there.")]
Epsilons = Annotated[list[str] | None, Option("--epsilon", help="In place of the recipe's; may repeat.")]
Delta = Annotated[str | None, Option("--delta", help="In place of the recipe's.")]


def escape_controls(text: str) -> str:
    r"""Writes out control characters: a label must not steer the terminal that shows it.

    Line breaks and tabs stay. The form is one that JSON and TOML read back.

    >>> escape_controls("a" + chr(27) + "[2J")
    'a\\u001b[2J'
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(document: dict[str, Any]) -> None:
    """Prints one JSON object on stdout."""
    say(json.dumps(document, ensure_ascii=False, default=str))


def print_result(document: dict[str, Any], *lines: str, json: bool) -> None:
    """Prints one JSON object or, for a person, the `lines`."""
    if json:
        print_json(document)
    elif lines:
        say("\n".join(lines))


def say(text: str) -> None:
    """Prints lines for the person on stdout."""
    sys.stdout.write(escape_controls(text) + "\n")


def note(text: str) -> None:
    """Prints a line for the person on stderr."""
    sys.stderr.write(escape_controls(text) + "\n")


def open_curator(project: str) -> Curator:
    """Returns the curator of the project file, for a command that charges or reads its ledger."""
    import sfumato

    curator = sfumato.open(project)
    note_no_ledger(curator)
    return curator


def note_no_ledger(curator: Curator) -> None:
    """Says on stderr if no ledger is there, so that a lost one is not taken for an unspent one."""
    if not curator.has_ledger():
        name = curator.ledger_name
        note(f"no ledger {name!r} yet: the first charge makes one. If there was one, put it back first")


def note_compiling(folder: str) -> None:
    """Says that inner loops of the package in `folder` are compiled now, if they never were."""
    kept = Path(__file__).parents[1] / folder / "__pycache__"
    if not any(kept.glob("*.nbi")):
        note("first use: inner loops are compiled, which takes up to half a minute, once")


def split_names(*texts: str) -> tuple[str, ...]:
    """Returns the names in options such as a,b,c; one that is given several times adds up."""
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def refuse_inputs(path: Path, *inputs: Path) -> None:
    """Raises an error if the file to be written is one of the `inputs`."""
    from sfumato.core.errors import ReleaseError

    if path.resolve() in {each.resolve() for each in inputs}:
        raise ReleaseError(
            f"{path.name!r} is read by this command and cannot be written by it; choose another name"
        )


def console(*, stderr: bool = False) -> Console:
    """Opens a console that wraps and colours on a terminal, and prints plainly elsewhere."""
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:  # noqa: ANN401
            for part in super().render(*arguments, **options):
                yield part if part.control else Segment(escape_controls(part.text), part.style)

    stream = sys.stderr if stderr else sys.stdout
    # A label such as [red] or :sos: means itself.
    return Plain(stderr=stderr, soft_wrap=not stream.isatty(), highlight=False, markup=False, emoji=False)


def print_table(
    *headings: str,
    rows: Iterable[Iterable[str]],
    title: str | None = None,
    numbers: Container[int] = (),
    stderr: bool = False,
) -> None:
    """Prints a table under its `headings` and `title`; columns at the places `numbers` are set flush right.

    It goes to stdout, or to `stderr` if it is no result.
    """
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place in numbers else "left")
    for row in rows:
        table.add_row(*row)
    console(stderr=stderr).print(table)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the stage of a long work: a spinner on a terminal, nothing elsewhere.

    Stages are named, never measured in records: a row count on a screen is a row count published.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    with console(stderr=True).status("starting") as status:
        yield status.update


def show_check(result: Check) -> None:
    """Prints a dry run for a person."""
    from sfumato.core.cost.budget import describe_costs

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
            row["cost"],
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
            "costs",
        )
        print_table(*headings, rows=rows)
    if result.plan.allowance is not None:
        most = describe_costs(result.plan.costs, result.plan.delta)
        say(f"  asks       as it goes, by what it has seen, within {most}, charged at the start")
    if result.plan.parts:
        shares = ", ".join(f"{part.name} {float(part.share):.0%}" for part in result.plan.parts)
        say(f"  parts      {shares} of the people: each may be asked for all of it, and it is charged once")
    for each in result.foreseen:
        say(f"  forecast   {each}")
    say(f"  budget     epsilon {record['left']} left; this release {result.verdict}; nothing was spent")
    for each in result.notes:
        note(each)


Mode = Literal["box", "line", "csv", "json", "markdown", "parquet"]
MODES: tuple[Mode, ...] = get_args(Mode)

_MOST_SHOWN = 40  # rows, about a screen
_MOST_PAGED = 10_000
_WIDEST = 80  # signs of a cell
_HORIZONTAL, _CORNERS = "─", (("┌", "┬", "┐"), ("├", "┼", "┤"), ("└", "┴", "┘"))


def show_answer(
    answer: Answer, mode: Mode, *, facts: dict[str, Any] | None = None, paged: bool = False
) -> None:
    """Prints an answer on stdout; `facts` are added to JSON. A long one is `paged` on a terminal."""
    if mode == "json":
        print_json({**to_record(answer), **(facts or {})})
    elif mode == "parquet" or (mode == "csv" and not sys.stdout.isatty()):
        sys.stdout.buffer.write(to_bytes(answer, mode))
        sys.stdout.flush()
    elif mode == "csv":
        say(to_bytes(answer, mode).decode().removesuffix("\n"))
    elif answer.explanation is not None:
        say(answer.explanation)
    else:
        _show_rows(answer, _RENDERERS[mode], paged=paged and sys.stdout.isatty())


def to_record(answer: Answer) -> dict[str, Any]:
    """Returns an answer as one JSON object."""
    return {
        "columns": answer.table.column_names,
        "rows": [list(row.values()) for row in answer.table.to_pylist()],
        "spent": float(answer.spent),
        "repeated": answer.repeated,
        "synthetic": answer.synthetic,
        "noise": dict(answer.scales),
        **({"notes": list(answer.notes)} if answer.notes else {}),
    }


def to_bytes(answer: Answer, kind: str) -> bytes:
    """Returns an answer as the bytes of a file of this kind."""
    from sfumato.tables.read import table_to_csv, table_to_parquet

    if kind == "parquet":
        return table_to_parquet(answer.table, varied=())
    if kind == "json":
        return (json.dumps(to_record(answer), default=str) + "\n").encode()
    return table_to_csv(answer.table, bare_names=True)


def page(text: str) -> None:
    """Prints text on a terminal, by the program that PAGER names, or less, if it does not fit the screen."""
    import shlex
    import subprocess

    size = shutil.get_terminal_size()
    lines = text.splitlines()
    command = os.environ.get("PAGER")
    if command is None:
        command = "less -FRSX" if shutil.which("less") else ""
    fits = len(lines) < size.lines and max(map(len, lines), default=0) <= size.columns
    if fits or not command.strip():
        say(text)
        return
    try:
        subprocess.run(shlex.split(command), input=f"{escape_controls(text)}\n", text=True, check=False)
    except (OSError, ValueError):
        say(text)


def _show_rows(answer: Answer, render: Callable[[pa.Table, int], Iterable[str]], *, paged: bool) -> None:
    most = _MOST_PAGED if paged else _MOST_SHOWN
    lines = list(render(answer.table, most))
    if answer.table.num_rows > most:
        lines.append(f"({answer.table.num_rows:,} rows; csv shows all)")
    if answer.synthetic:
        lines.append("SYNTHETIC rows: drawn from a private model, none is a record")
    (page if paged else say)("\n".join(lines))


def _render_box(table: pa.Table, most: int) -> Iterable[str]:
    from rich.cells import cell_len

    plain = not _can_write(_HORIZONTAL)
    across, down = ("-", "|") if plain else (_HORIZONTAL, "│")
    columns = [
        [_cut(_show(value)) for value in column.slice(0, most).to_pylist()] for column in table.columns
    ]
    names = [_cut(escape_controls(name)) for name in table.column_names]
    widths = [max(map(cell_len, [name, *cells])) for name, cells in zip(names, columns, strict=True)]

    def rule(corners: tuple[str, str, str]) -> str:
        first, middle, last = ("+", "+", "+") if plain else corners
        return first + middle.join(across * (width + 2) for width in widths) + last

    def row(cells: Iterable[str], right: Iterable[bool]) -> str:
        padded = []
        for cell, width, flush in zip(cells, widths, right, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(f" {space}{cell} " if flush else f" {cell}{space} ")
        return down + down.join(padded) + down

    numbers = [_is_number(kind) for kind in table.schema.types]
    yield rule(_CORNERS[0])
    yield row(names, [False] * len(names))
    yield rule(_CORNERS[1])
    yield from (row(cells, numbers) for cells in zip(*columns, strict=True))
    yield rule(_CORNERS[2])


def _render_lines(table: pa.Table, most: int) -> Iterable[str]:
    width = max(map(len, table.column_names), default=0)
    for place, row in enumerate(table.slice(0, most).to_pylist()):
        if place:
            yield ""
        yield from (f"{name:>{width}} = {_show(value)}" for name, value in row.items())


def _render_markdown(table: pa.Table, most: int) -> Iterable[str]:
    def row(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    yield row(table.column_names)
    yield row("---:" if _is_number(kind) else "---" for kind in table.schema.types)
    for each in table.slice(0, most).to_pylist():
        yield row(map(_show, each.values()))


_RENDERERS: dict[str, Callable[[Any, int], Iterable[str]]] = {
    "box": _render_box,
    "line": _render_lines,
    "markdown": _render_markdown,
}


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"
    return "" if value is None else escape_controls(str(value))


def _cut(text: str) -> str:
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _is_number(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _can_write(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
