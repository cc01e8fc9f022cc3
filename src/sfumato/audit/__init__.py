"""Audits: lower bounds on what a mechanism really tells, against what it claims.

INTERNAL: an audit works on made-up tables, or on tables it is handed, and its report is for those who build
a mechanism. It can refute a claim; it never proves one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sfumato.audit.callables import audit_callable
from sfumato.audit.layers import Effort, audit_target
from sfumato.audit.one_run import audit_one_run
from sfumato.audit.result import Audit, Finding, Verdict
from sfumato.audit.targets import RecipeTarget, StatementTarget, read_target
from sfumato.core.errors import AuditError
from sfumato.core.exact import parse_delta
from sfumato.core.facts.project import Project, read_project
from sfumato.recipes.base import parse_epsilons
from sfumato.recipes.files import read_recipe

__all__ = ["Audit", "AuditError", "Effort", "Finding", "Verdict", "audit", "audit_one_run"]

_STATEMENT = re.compile(r"\s*(dp[-_]select|select|with|explain)\s", re.IGNORECASE)


def audit(
    mechanism: Any,  # noqa: ANN401 - a function, a recipe, a recipe file or a statement
    *,
    neighbours: Any = None,  # noqa: ANN401 - tables of any kind
    epsilon: Any = None,  # noqa: ANN401 - a number, or several for a recipe
    delta: Any = None,  # noqa: ANN401
    runs: int | None = None,
    project: Project | Path | str | None = None,
    effort: Effort = "normal",
    confidence: float = 0.95,
    timeout: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Audits `mechanism`: gives `.epsilon_lower`, `.verdict`, and the findings of every layer.

    A function from a table to an output is run on `neighbours`, a pair of tables or a list of pairs, which
    differ by one individual; `epsilon` and `delta` are what it claims, and with a `timeout` it runs in a
    process of its own. A recipe, the path of a recipe file or a DP-SELECT statement is run on tables made up
    from the description in `project`, with more or less `effort`; its privacy parameters are its own unless
    given. The private source is not read, the ledger is not touched, nothing is spent. `runs` is the number
    of runs on each side, `confidence`, from 0.5 to below 1, how sure bounds by chance must be; `timeout` is
    in seconds; `progress` is called with a few words at every step. Raises AuditError for what cannot be run.

    >>> audit(lambda table: len(table), neighbours=([1, 2], [1]), epsilon=1.0, runs=200).verdict
    'VIOLATED'
    """
    if project is not None:
        opened = project if isinstance(project, Project) else read_project(project)
        if isinstance(mechanism, str) and _STATEMENT.match(mechanism):
            mechanism = read_target(mechanism, opened)
        if not isinstance(mechanism, RecipeTarget | StatementTarget):
            mechanism = _make_target(mechanism, epsilon, delta)
        return audit_target(
            mechanism, opened, effort=effort, runs=runs, confidence=confidence, progress=progress
        )
    if not callable(mechanism):
        raise AuditError("a mechanism is a function of a table; recipes and statements need project=")
    if neighbours is None or epsilon is None:
        raise AuditError("a function needs neighbours=(with, without) and the epsilon that it claims")
    return audit_callable(
        mechanism,
        neighbours=neighbours,
        epsilon=float(epsilon),
        delta=float(delta or 0.0),
        runs=runs,
        confidence=confidence,
        timeout=timeout,
        progress=progress,
    )


def _make_target(recipe: Any, epsilon: Any, delta: Any) -> RecipeTarget:  # noqa: ANN401 - see audit
    """Returns a recipe, or the recipe in a file, with its privacy parameters."""
    if isinstance(recipe, (str, Path)):
        file = read_recipe(recipe)
        recipe = file.recipe
        epsilon = file.epsilons if epsilon is None else epsilon
        delta = file.delta if delta is None else delta
    if epsilon is None:
        raise AuditError("say what the recipe claims: epsilon in its file, or as an argument")
    epsilons = parse_epsilons(epsilon)
    exact = parse_delta(0 if delta is None else delta)
    return RecipeTarget(recipe=recipe, epsilons=epsilons, delta=exact)
