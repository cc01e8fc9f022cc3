"""The command line: one function per command, no logic of its own."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from sfumato.cli.output import note
from sfumato.core import __version__
from sfumato.core.errors import SfumatoError

_INTERRUPTED = 130  # as shells report an interrupt: 128 + 2

# In the order of the help; each is a function of the module of its name, and two have commands of their own.
COMMANDS = (
    "init", "groups", "describe", "doctor", "check", "release", "sql", "serve", "budget", "verify", "report",
    "export", "predict", "regress", "score", "audit", "anonymize", "explain", "respond", "estimate", "demo",
    "contest", "user", "attack",
)  # fmt: skip
_MODULES = {"respond": "estimate"}  # the same options, and answers that one writes and the other reads


def build_app(*names: str) -> typer.Typer:
    """Returns the command line with the commands `names`, all by default: what is not named is not loaded."""
    app = typer.Typer(
        name="sfumato",
        help="Publish the picture, not the people: private releases with their proof attached.",
        epilog="First steps: sfumato demo, then sfumato init yours.parquet > sfumato.toml",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for name in names or COMMANDS:
        command = getattr(import_module(f"sfumato.cli.{_MODULES.get(name, name)}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command()(command)
    return app


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


def options(
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Publish the picture, not the people: private releases with their proof attached."""


def main() -> None:
    """Runs the command line; an error of ours, or an interrupt, is one line on stderr and its exit code."""
    try:
        build_app(*(name for name in sys.argv[1:2] if name in COMMANDS))()
    except SfumatoError as error:
        note(f"error: {error}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, SystemExit) as done:
        if isinstance(done, SystemExit) and done.code != _INTERRUPTED:
            raise
        note("interrupted; a charge that was made is kept, no half release was written")
        sys.exit(_INTERRUPTED)
