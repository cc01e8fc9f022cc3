"""The command line: one function per command, no logic of its own."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import Exit, Option
from typer.core import TyperGroup

from sfumato.cli.output import note
from sfumato.core import __version__
from sfumato.core.errors import SfumatoError

_INTERRUPTED = 130  # as shells report an interrupt: 128 + 2

# In the order of the help; two have commands of their own.
GROUPS = {
    "Start": ("demo", "init", "groups", "describe", "doctor"),
    "Release": ("check", "choose-epsilon", "release", "budget"),
    "Ask": ("sql", "serve", "user", "backup"),
    "Look": ("report", "explore", "score"),
    "Check": ("verify", "claim", "audit", "attack"),
    "Share": ("export", "anonymize", "respond", "estimate"),
    "Learn": ("predict", "regress", "rows"),
    "Teach": ("explain", "contest"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
# The modules of commands that have none of their own.
_MODULES = {
    "audit": "score", "budget": "release", "choose-epsilon": "check", "claim": "serve", "describe": "check",
    "doctor": "check", "estimate": "respond", "explain": "attack", "explore": "score", "export": "release",
    "groups": "init", "regress": "predict", "report": "score", "rows": "predict", "user": "serve",
    "verify": "release",
}  # fmt: skip


class _Grouped(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own, or typer's copy
        """Writes the commands under the heading of their group."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (f"{name:{max(map(len, COMMANDS))}}", self.commands[name].get_short_help_str(width))
                        for name in names
                        if name in self.commands
                    ]
                )


def build_app(*names: str) -> typer.Typer:
    """Returns the command line with the commands `names`, all by default: what is not named is not loaded."""
    app = typer.Typer(
        name="sfumato",
        cls=_Grouped,
        help="Publish the picture, not the people: private releases with their proof attached.",
        epilog="First steps: sfumato demo, then sfumato init yours.parquet > sfumato.toml",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for name in names or COMMANDS:
        command = getattr(import_module(f"sfumato.cli.{_MODULES.get(name, name)}"), name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command()(command)
    return app


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        sys.stdout.write(f"{__version__}\n")
        raise Exit


def options(
    _version: Annotated[bool, Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Publish the picture, not the people: private releases with their proof attached."""


def main() -> None:
    """Runs the command line; an error of ours, or an interrupt, is one line on stderr and its exit code.

    With --json an error of ours is one JSON object, too.
    """
    try:
        build_app(*(name for name in sys.argv[1:2] if name in COMMANDS))()
    except SfumatoError as error:
        told = {"error": str(error), "kind": type(error).__name__, "exit_code": error.exit_code}
        note(json.dumps(told) if "--json" in sys.argv else f"error: {error}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, SystemExit) as done:
        if isinstance(done, SystemExit) and done.code != _INTERRUPTED:
            raise
        note("interrupted; a charge that was made is kept, no half release was written")
        sys.exit(_INTERRUPTED)
