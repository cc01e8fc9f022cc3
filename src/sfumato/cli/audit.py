"""`sfumato audit`: tries to refute a privacy claim, on made-up tables. Internal."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.output import Json, ProjectOption, print_json, progress, say

if TYPE_CHECKING:
    from sfumato.audit.layers import Effort
    from sfumato.audit.result import Audit

_VIOLATED = 4  # the exit code


class TableKind(StrEnum):
    """What a function is handed as its table."""

    ARROW = "arrow"
    ROWS = "rows"
    PANDAS = "pandas"
    POLARS = "polars"
    PATH = "path"


def audit(
    mechanism: Annotated[
        str | None, typer.Argument(help="A recipe file, or FILE.py:NAME of a function of a table.")
    ] = None,
    sql: Annotated[str | None, typer.Option("--sql", help="Audit this DP-SELECT statement.")] = None,
    project: ProjectOption = "sfumato.toml",
    with_: Annotated[
        str | None, typer.Option("--with", help="A function's table with the individual.")
    ] = None,
    without: Annotated[str | None, typer.Option(help="The same table without the individual.")] = None,
    neighbours: Annotated[
        str | None, typer.Option(help="FILE.py:NAME of a pair of tables, or a function that makes one.")
    ] = None,
    table_as: Annotated[
        TableKind, typer.Option("--as", help="How a function gets the tables of --with and --without.")
    ] = TableKind.ARROW,
    epsilon: Annotated[list[str] | None, typer.Option(help="What is claimed; a recipe has its own.")] = None,
    delta: Annotated[str | None, typer.Option(help="What is claimed; 0 by default.")] = None,
    runs: Annotated[
        int | None, typer.Option(help="Runs on each side; by default as many as are quick.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure bounds by chance must be.")] = 0.95,
    timeout: Annotated[float, typer.Option(help="Seconds that one run of a function may take.")] = 10.0,
    memory: Annotated[int | None, typer.Option(help="Megabytes that a function may use.")] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Fewer tables, fewer runs, no canaries.")] = False,
    thorough: Annotated[bool, typer.Option("--thorough", help="More of everything; minutes.")] = False,
    json: Json = False,
) -> None:
    """Try to refute a privacy claim. Exit code 4 if it is refuted; nothing is spent.

    A recipe or a statement runs on tables made up from the project file: no record is read. A function
    runs on the two tables it is given, in a process of its own.
    """
    if (mechanism is None) == (sql is None):
        raise typer.BadParameter("give a recipe file, FILE.py:NAME, or --sql STATEMENT")
    if sql is not None and (epsilon is not None or delta is not None):
        raise typer.BadParameter("a statement says itself what it spends; leave --epsilon and --delta out")
    effort: Effort = "fast" if fast else "thorough" if thorough else "normal"
    with progress(quiet=json) as stage:
        if mechanism is not None and ".py:" in mechanism:
            result = _audit_function(
                mechanism,
                files=(with_, without),
                neighbours=neighbours,
                kind=table_as,
                epsilon=epsilon,
                delta=delta,
                runs=runs,
                confidence=confidence,
                timeout=timeout,
                memory=memory,
                stage=stage,
            )
        else:
            from sfumato.audit import audit as audit_mechanism
            from sfumato.audit.targets import read_target
            from sfumato.core.facts.project import read_project

            opened = read_project(project)
            result = audit_mechanism(
                mechanism if sql is None else read_target(sql, opened),
                project=opened,
                epsilon=epsilon,
                delta=delta,
                effort=effort,
                runs=runs,
                confidence=confidence,
                progress=stage,
            )
    if json:
        print_json(result.to_record())
    else:
        say(str(result))
    if result.verdict == "VIOLATED":
        raise typer.Exit(_VIOLATED)


def _audit_function(
    where: str,
    *,
    files: tuple[str | None, str | None],
    neighbours: str | None,
    kind: TableKind,
    epsilon: list[str] | None,
    delta: str | None,
    runs: int | None,
    confidence: float,
    timeout: float,
    memory: int | None,
    stage: Callable[[str], None],
) -> Audit:
    from sfumato.audit.callables import ProcessRunner, audit_runners
    from sfumato.core.exact import parse_exact

    if epsilon is None or len(epsilon) != 1:
        raise typer.BadParameter("a function needs --epsilon once: what it claims")
    job: dict[str, object] = {"where": where, "memory": memory}
    if neighbours is not None and files == (None, None):
        job["neighbours"] = neighbours
    elif neighbours is None and files[0] is not None and files[1] is not None:
        for file in files:
            if not Path(str(file)).is_file():
                raise typer.BadParameter(f"{file!r} does not exist")
        job |= {"files": list(files), "kind": kind.value}
    else:
        raise typer.BadParameter(
            "a function needs --with FILE and --without FILE, or --neighbours FILE.py:NAME"
        )
    return audit_runners(
        [ProcessRunner(job, timeout)],
        name=where,
        epsilon=float(parse_exact(epsilon[0], name="epsilon")),
        delta=0.0 if delta is None else float(parse_exact(delta, name="delta")),
        runs=runs,
        confidence=confidence,
        progress=stage,
    )
