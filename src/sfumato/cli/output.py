"""What every command shares: how results, notes and errors reach the person or the pipe."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

if TYPE_CHECKING:
    from rich.console import Console

    from sfumato.curator import Curator
    from sfumato.curator.check import Check


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
    """Returns the curator of the project file, for a command that charges or reads its ledger.

    Says on stderr if no ledger is there, so that a lost one is not taken for an unspent one.
    """
    import sfumato

    curator = sfumato.open(project)
    if not curator.has_ledger():
        name = curator.ledger_name
        note(f"no ledger {name!r} yet: the first charge makes one. If there was one, put it back first")
    return curator


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
            row["epsilon"] or f"rho {row['rho']:.4g}",
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
            "epsilon",
        )
        print_table(*headings, rows=rows)
    if result.plan.allowance is not None:
        rho = sum(float(cost.rho) for cost in result.plan.costs)
        say(f"  asks       as it goes, by what it has seen, within rho {rho:.4g} charged at the start")
    if result.plan.parts:
        shares = ", ".join(f"{part.name} {float(part.share):.0%}" for part in result.plan.parts)
        say(f"  parts      {shares} of the people: each may be asked for all of it, and it is charged once")
    say(f"  budget     epsilon {record['left']} left; this release {result.verdict}; nothing was spent")
    for each in result.notes:
        note(each)
