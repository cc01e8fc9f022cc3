"""What every command shares: how results, notes and errors reach the person or the pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from sfumato.curator import Curator

__all__ = ["Json", "ProjectOption", "console", "note", "note_missing_ledger", "print_json", "progress"]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
ProjectOption = Annotated[str, typer.Option("--project", "-p", help="The project file.", show_default=True)]


def print_json(document: dict[str, Any]) -> None:
    """Prints one JSON object on stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, default=str) + "\n")


def note(text: str) -> None:
    """Prints a line for the person on stderr."""
    sys.stderr.write(text + "\n")


def note_missing_ledger(curator: Curator) -> None:
    """Says on stderr that no ledger is there, so that a lost one is not taken for an unspent one."""
    if not curator.has_ledger():
        name = curator.ledger_name
        note(f"no ledger {name!r} yet: the first charge makes one. If there was one, put it back first")


def console(*, stderr: bool = False) -> Console:
    """A console that wraps and colours on a terminal and prints plainly elsewhere."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, soft_wrap=not stream.isatty(), highlight=False)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows the stage of a long work: a spinner on a terminal, nothing elsewhere.

    Stages are named, never measured in records: a row count on a screen is a row count told.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    with console(stderr=True).status("starting") as status:
        yield status.update
