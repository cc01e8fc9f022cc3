"""How answers are shown: as a box, line by line, as CSV, JSON, Markdown or Parquet, and page by page."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args

from sfumato.cli.output import escape_controls, print_json, say

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.sql.finish import Answer

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
    import json

    from sfumato.tables.read import table_to_csv, table_to_parquet

    if kind == "parquet":
        return table_to_parquet(answer.table, varied=())
    if kind == "json":
        return (json.dumps(to_record(answer), default=str) + "\n").encode()
    return table_to_csv(answer.table, bare_names=True)


def page(text: str) -> None:
    """Prints text on a terminal, by the program that PAGER names, or less, if it does not fit the screen."""
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
