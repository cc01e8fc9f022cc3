"""The one door: the only module that hands an exact count to the noise, after the charge is durable.

The order of a release is fixed. Everything that rests on public facts is checked; the charge is
written to the ledger; only then are records read, counted and noised. A failure before the charge
costs nothing, a failure after it keeps the charge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.accounting import Amount, Budget, BudgetReport, Ledger, Spent, admits
from sfumato.engines import DuckDBEngine, find_files
from sfumato.errors import RecipeError, SfumatoError, SourceError
from sfumato.measurement import Measurement
from sfumato.noise import add_noise
from sfumato.recipes import (
    Plan,
    Recipe,
    parse_delta,
    parse_epsilons,
    read_recipe,
    refuse_large_answers,
)
from sfumato.release import Release, build_release, check_folder, describe_entry, repeat_release
from sfumato.schema import Project, read_project

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.engines import Engine
    from sfumato.schema import Table
    from sfumato.sql import Answer

__all__ = ["Check", "Curator", "describe_source", "open_project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A dry run: the plan, whether it would be admitted, and what is left before it."""

    plan: Plan
    admitted: bool
    left: Amount
    answered: bool = False


class Curator:
    """Answers about the tables of one project, each charged to its ledger before it is computed."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._engine: Engine = DuckDBEngine(project.folder)
        self._budget = Budget(
            epsilon=project.epsilon,
            delta=project.delta,
            accounting=project.accounting,
            selection=project.selection_delta,
        )

    @property
    def project(self) -> Project:
        """The project file, as read."""
        return self._project

    @property
    def ledger_path(self) -> Path:
        """Where the ledger is, or will be when the first charge is made."""
        return self._project.folder / self._project.ledger

    def budget(self) -> BudgetReport:
        """What the project may spend, what it has spent, and what is left. Spends nothing."""
        if not self.ledger_path.exists():
            total = Amount(self._budget.epsilon)
            return BudgetReport(
                total=total,
                spent=Amount(0),
                left=total,
                delta=Amount(self._budget.delta),
                budget=self._budget,
                sums=Spent(),
                entries=(),
                head="",
            )
        return self._ledger().report()

    def accept_budget(self) -> BudgetReport:
        """Enters the project file's budget into the ledger in place of the one it was opened with."""
        ledger = Ledger(self.ledger_path)
        if ledger.budget != self._budget:
            ledger.change_budget(self._budget)
        return ledger.report()

    def check(
        self,
        recipe: Recipe | Path | str,
        *,
        epsilon: object = None,
        delta: object = None,
    ) -> Check:
        """What a release would ask, cost and err. Reads no record and spends nothing."""
        plan = self._plan(recipe, epsilon=epsilon, delta=delta)
        self._engine.check(plan.table, plan.marginals)
        report = self.budget()
        answered = False
        if self.ledger_path.exists():
            ledger = self._ledger()
            version = self._engine.version(plan.table, secret=ledger.secret)
            answered = ledger.find_answer(plan_digest=plan.digest, table_version=version) is not None
        admitted = answered or admits(report.budget, report.sums, plan.costs)
        return Check(plan=plan, admitted=admitted, left=report.left, answered=answered)

    def release(
        self,
        recipe: Recipe | Path | str,
        *,
        epsilon: object = None,
        delta: object = None,
        out: Path | str | None = None,
        force: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Release:
        """The release of `recipe`, written to the folder `out` if one is given.

        Privacy: every measurement is charged before a record is read, and the noise covers the
        sensitivity that follows from the table's description. The same plan on an unchanged table
        returns the stored measurements at no cost.

        >>> import sfumato
        >>> curator = sfumato.open("sfumato.toml")  # doctest: +SKIP
        >>> curator.release("monthly.toml", epsilon=1.0, out="out/")  # doctest: +SKIP
        """
        plan = self._plan(recipe, epsilon=epsilon, delta=delta)
        self._engine.check(plan.table, plan.marginals)
        if out is not None:
            folder = self._project.folder
            check_folder(Path(out), force=force, keep=(self.ledger_path, folder, folder / plan.table.source))
        ledger = self._ledger()
        version = self._engine.version(plan.table, secret=ledger.secret)
        found = ledger.find_answer(plan_digest=plan.digest, table_version=version)
        if found is not None:
            entry, packed = found
            release = repeat_release(plan, packed, ledger=describe_entry(entry))
        else:
            progress("charging the ledger")
            entry = ledger.charge(
                description=plan.to_record(),
                plan_digest=plan.digest,
                table=plan.table.name,
                table_version=version,
                costs=plan.costs,
            )
            measurements = self._measure(plan, version=version, secret=ledger.secret, progress=progress)
            progress("post-processing")
            release = build_release(
                plan,
                measurements,
                ledger=describe_entry(entry),
                keep=lambda packed: ledger.store_answer(entry, packed),
            )
        if out is not None:
            progress("writing the release")
            release.write(out, force=force)
            release = replace(release, folder=Path(out))
        return release

    def sql(self, text: str, *, progress: Callable[[str], None] = lambda _: None) -> Answer:
        """The answer to one statement, charged before it is computed; docs/sql.md has the language.

        Privacy: the sensitivity of every measure follows from the plan and the bounds that the engine
        enforces (docs/proofs/sql.md). A statement that was answered before on the same version of its
        tables gets the stored answer at no cost.
        """
        from sfumato.curator.statements import answer_statement

        return answer_statement(
            text,
            project=self._project,
            engine=self._engine,
            budget=self._budget,
            report=self.budget,
            open_ledger=self._ledger,
            progress=progress,
        )

    def _measure(
        self, plan: Plan, *, version: str, secret: bytes, progress: Callable[[str], None]
    ) -> tuple[Measurement, ...]:
        """Exact counts in, noisy measurements out. The caller has charged `plan.costs`."""
        marginals = plan.marginals
        try:
            counts = self._engine.count(plan.table, marginals, progress=progress)
            if self._engine.version(plan.table, secret=secret) != version:
                message = f"table {plan.table.name!r}: its source changed while it was read; run it again"
                raise SourceError(message)
        except SfumatoError as error:
            message = f"{error}. The charge is kept, because a refund would tell about the records"
            raise SourceError(message) from None
        true_counts = dict(zip(marginals, counts, strict=True))
        progress("adding noise")
        return tuple(
            Measurement(
                request=request,
                noisy_values=add_noise(
                    true_counts[request.columns].true_values, kind=request.noise, scale=request.scale
                ),
                grid=plan.table.grid,
            )
            for request in plan.requests
        )

    def _plan(self, recipe: Recipe | Path | str, *, epsilon: object, delta: object) -> Plan:
        if isinstance(recipe, (str, Path)):
            file = read_recipe(recipe)
            recipe = file.recipe
            epsilon = file.epsilons if epsilon is None else epsilon
            delta = file.delta if delta is None else delta
        if epsilon is None:
            message = "say how much to spend: epsilon in the recipe file, or as an argument"
            raise RecipeError(message)
        table: Table = self._project.table(recipe.table)
        parsed_delta = parse_delta(0 if delta is None else delta)
        if parsed_delta > 0 and self._project.delta == 0:
            message = "delta above zero needs [budget] delta above zero in the project file"
            raise RecipeError(message)
        plan = recipe.plan(table, epsilons=parse_epsilons(epsilon), delta=parsed_delta)
        refuse_large_answers(plan)
        return plan

    def _ledger(self) -> Ledger:
        return Ledger(self.ledger_path, self._budget)


def open_project(path: Path | str = "sfumato.toml") -> Curator:
    """The curator of the project file at `path`. Reads no record and spends nothing."""
    return Curator(read_project(path))


def describe_source(source: str, *, folder: Path) -> dict[str, str]:
    """The names of the stored columns and their kinds, from headers and footers alone."""
    found = find_files(source, folder=folder, table=Path(source).stem)
    return {name: stored.kind for name, stored in found.columns.items()}
