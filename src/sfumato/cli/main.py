"""The command line: one function per command, no logic of its own."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sfumato._version import __version__
from sfumato.cli.anonymize import anonymize
from sfumato.cli.attack import attack
from sfumato.cli.audit import audit
from sfumato.cli.budget import budget
from sfumato.cli.check import check
from sfumato.cli.contest import contest
from sfumato.cli.demo import demo
from sfumato.cli.describe import describe
from sfumato.cli.doctor import doctor
from sfumato.cli.estimate import estimate
from sfumato.cli.explain import explain
from sfumato.cli.export import export
from sfumato.cli.groups import groups
from sfumato.cli.init import init
from sfumato.cli.output import note
from sfumato.cli.predict import predict
from sfumato.cli.regress import regress
from sfumato.cli.release import release
from sfumato.cli.report import report
from sfumato.cli.respond import respond
from sfumato.cli.score import score
from sfumato.cli.serve import serve
from sfumato.cli.sql import sql
from sfumato.cli.user import user
from sfumato.cli.verify import verify
from sfumato.errors import SfumatoError

_INTERRUPTED = 130

app = typer.Typer(
    name="sfumato",
    help="Publish the picture, not the people: private releases with their proof attached.",
    epilog="First steps: sfumato demo, then sfumato init yours.parquet > sfumato.toml",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

for command in (
    init,
    groups,
    describe,
    doctor,
    check,
    release,
    sql,
    serve,
    budget,
    verify,
    report,
    export,
    predict,
    regress,
    score,
    audit,
    anonymize,
    explain,
    respond,
    estimate,
    demo,
    contest,
):
    app.command()(command)
app.add_typer(user, name="user")
app.add_typer(attack, name="attack")


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Publish the picture, not the people: private releases with their proof attached."""


def main() -> None:
    """Runs the command line; an error of ours, or an interrupt, is one line on stderr and its exit code."""
    try:
        app()
    except SfumatoError as error:
        note(f"error: {error}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, SystemExit) as done:
        if isinstance(done, SystemExit) and done.code != _INTERRUPTED:
            raise
        note("interrupted; a charge that was made is kept, no half release was written")
        sys.exit(_INTERRUPTED)
