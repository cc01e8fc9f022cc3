"""Answers about the tables of one project, each charged to its ledger before it is computed.

`conversation` asks the questions of a recipe at the door, `statements` those of DP-SELECT, `scores` scores.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.accounting import Ledger
from sfumato.core.cost.budget import Budget, Spent
from sfumato.core.errors import RecipeError, ReleaseError
from sfumato.core.exact import parse_delta, parse_positive
from sfumato.core.facts.project import Project, read_project, refuse_private_file
from sfumato.core.facts.table import PrivacyUnit, Table, find_lake, find_place
from sfumato.core.ledger.report import BudgetReport
from sfumato.core.ledger.store import find_store, locate_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    import pyarrow as pa

    from sfumato.core.door import Bill, Charged
    from sfumato.core.facts.part import Window
    from sfumato.core.law import NoiseSource
    from sfumato.core.ledger.chain import ChargeEntry
    from sfumato.curator.check import Check
    from sfumato.curator.reuse import StoredQuestions
    from sfumato.curator.scores import PublishedScore
    from sfumato.curator.statements import Desk
    from sfumato.curator.workload import Workload
    from sfumato.learn import Model
    from sfumato.recipes.base import Plan, Recipe
    from sfumato.release.release import Release
    from sfumato.servers.project import Engine
    from sfumato.sql.finish import Answer
    from sfumato.sql.settle import Description

__all__ = ["Curator", "describe_source", "open_project"]


def _show_budget(report: BudgetReport) -> str:
    from sfumato.report.pages.notebook import render_budget

    return render_budget(report)


BudgetReport._repr_html_ = _show_budget  # type: ignore[attr-defined]  # the core draws no pages


class Curator:
    """Answers about the tables of one project, each charged to its ledger before it is computed."""

    def __init__(
        self, project: Project, *, file: str = "sfumato.toml", noise: NoiseSource | None = None
    ) -> None:
        self._project = project
        self._noise = noise  # a stand-in, for audits of tables they made up
        self._file = file
        self._store = find_store(self.ledger_path)
        self._budget = Budget(project.epsilon, project.delta, selection=project.selection_delta)
        self._opened: Ledger | None = None
        self._stored: StoredQuestions | None = None
        self._views: dict[str | None, dict[str, str]] = {}

    def __repr__(self) -> str:
        return f"Curator({', '.join(self._project.tables)}; {self.budget().describe_left()})"

    def _repr_html_(self) -> str:
        from sfumato.report.pages.notebook import render_card

        report = self.budget()
        rows = [
            (name, table.unit.describe(), ", ".join(table.columns))
            for name, table in self._project.tables.items()
        ]
        return render_card(
            "Curator",
            facts={"left": report.describe_left()},
            used=float(report.spent / report.total),
            columns=("table", "protects one individual", "described columns"),
            rows=rows,
            count=len(rows),
        )

    @property
    def project(self) -> Project:
        """The project file, as read."""
        return self._project

    @property
    def _pinned(self) -> Project:
        """The project, its tables on a lake pinned to the snapshots that are now the latest."""
        project = self._project
        if not any(find_lake(table.source) for table in project.tables.values()):
            return project
        from sfumato.servers.lake import pin_table

        tables = {name: pin_table(each, folder=project.folder) for name, each in project.tables.items()}
        return replace(project, tables=tables)

    @property
    def path(self) -> Path:
        """Where the project file is."""
        return self._project.folder / self._file

    def reopen(self) -> Curator:
        """A curator of the project file as it is now."""
        return open_project(self.path)

    @cached_property
    def _engine(self) -> Engine:
        from sfumato.servers.project import open_engine

        return open_engine(self._project.folder)

    @property
    def ledger_path(self) -> Path | str:
        """Where the ledger is, or will be when the first charge is made: a path, or a URL."""
        return locate_ledger(self._project.ledger, folder=self._project.folder)

    @property
    def ledger_name(self) -> str:
        """What messages call the ledger; it holds no credentials."""
        return self._store.name

    def has_ledger(self) -> bool:
        """Whether the ledger is there already; asks the server if it is kept on one."""
        return self._store.exists(timeout=30.0)

    def take_turn(self, name: str) -> AbstractContextManager[None]:
        """Waits until nobody else who uses the ledger, on any server, has the turn that is called `name`."""
        return self._ledger().exclusively(plan_digest=name)

    def budget(self) -> BudgetReport:
        """What the project may spend, what it has spent, and what is left. Spends nothing.

        Where its table has a window, of the periods in it: of the one that has least left.
        """
        # A ledger that was there and is gone is an error, not a budget of which nothing is spent.
        if self._opened is None and not self.has_ledger():
            return BudgetReport(budget=self._budget, sums=Spent())
        return self._ledger().report(self._window)

    def accept_budget(self) -> BudgetReport:
        """Enters the project file's budget into the ledger in place of the one it was opened with."""
        ledger = Ledger(self.ledger_path)
        if ledger.budget != self._budget:
            ledger.change_budget(self._budget)
        return ledger.report(self._window)

    def set_share(self, person: str, epsilon: object) -> None:
        """Lets `person` spend at most `epsilon` of the budget, or with None as much as there is."""
        self._ledger().set_share(person, None if epsilon is None else parse_positive(epsilon, name="share"))

    def share(self, person: str) -> BudgetReport | None:
        """What `person` may spend, has spent and has left of their share; None if they have none."""
        return self._ledger().report_share(person, self._window) if self.has_ledger() else None

    def check(
        self,
        recipe: Recipe | Path | str,
        *,
        epsilon: object = None,
        delta: object = None,
        through: str | int | None = None,
        records: int | None = None,
    ) -> Check:
        """What a release would ask, cost and err. Reads no record and spends nothing.

        `epsilon`, `delta` and `through` are those of `release`. With `records`, about how many the table has,
        or where a noisy count of them was paid for, it also forecasts what noise leaves.
        """
        from sfumato.curator.check import Check
        from sfumato.curator.conversation import find_series

        plan = self._plan(recipe, epsilon=epsilon, delta=delta, through=through)
        self._check_plan(plan)
        report = self.budget()
        answered = begun = False
        if self.has_ledger() and plan.series:
            answered, begun = find_series(plan, self._ledger())
        elif self.has_ledger():
            ledger = self._ledger()
            answered = self._find_kept(plan, ledger.find_answer) is not None
            begun = self._find_kept(plan, ledger.find_progress) is not None
        admitted = answered or begun or report.admits(plan.costs)
        if records is None and any(each.purpose == "statement" for each in report.list_last(100)):
            from sfumato.curator.explain import find_released_size  # which reads SQL, as few commands do

            records = find_released_size(report, self._ledger(), plan.table.name)
        return Check(
            plan=plan, admitted=admitted, left=report.left, answered=answered, begun=begun, records=records
        )

    def release(
        self,
        recipe: Recipe | Path | str,
        *,
        epsilon: object = None,
        delta: object = None,
        out: Path | str | None = None,
        through: str | int | None = None,
        force: bool = False,
        asked_by: str | None = None,
        at_most: Fraction | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Release:
        """The release of `recipe`, written to the folder `out` if one is given.

        `epsilon` (a number or several) and `delta` take the place of those in a recipe file, and so does
        `through`, the last period of a series to release. With `force`, a release in `out` is replaced.
        `asked_by` and `at_most` are as for `sql`; `progress` is called with each stage, which by default a
        notebook shows.

        Privacy: every measurement is charged before a record is read, and the noise covers the
        sensitivity that follows from the table's description. The same plan on an unchanged table
        returns the stored measurements at no cost, and one that asks as it goes and was interrupted is
        finished under the charge it made.

        >>> import sfumato
        >>> curator = sfumato.open("sfumato.toml")  # doctest: +SKIP
        >>> curator.release("monthly.toml", epsilon=1.0, out="out/")  # doctest: +SKIP
        """
        from sfumato.curator.check import list_notes

        plan = self._plan(recipe, epsilon=epsilon, delta=delta, through=through)
        bill = replace(self._bill(plan), asked_by=asked_by, at_most=at_most)
        with _show_stages(progress) as stage:
            release = self._release(
                plan, bill, out=None if out is None else Path(out), force=force, progress=stage
            )
        return replace(release, notes=list_notes(plan))

    def learn(
        self,
        recipe: Recipe | Path | str,
        *,
        epsilon: object = None,
        delta: object = None,
        out: Path | str | None = None,
        force: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> Model:
        """The model that `recipe` fits privately, ready to predict with; as `release`, and at the same cost.

        `delta` is by default that of the project's budget. The other arguments are those of `release`.
        """
        from sfumato.learn import parse_model

        if delta is None and not isinstance(recipe, (str, Path)):
            delta = self._project.delta
        release = self.release(recipe, epsilon=epsilon, delta=delta, out=out, force=force, progress=progress)
        if "model.json" not in release.files:
            raise RecipeError("this recipe releases no model; use `release`, or a recipe of sfumato.learn")
        return parse_model(release.files["model.json"])

    def resume(self, out: Path | str, *, progress: Callable[[str], None] | None = None) -> Release:
        """The release that was begun in the folder `out`, finished under its charge. Spends nothing.

        Privacy: what was kept is used as it is; only what nobody has seen yet is drawn anew
        (docs/proofs/ledger.md).
        """
        plan = self._begun(Path(out))
        with _show_stages(progress) as stage:
            return self._release(
                plan, self._bill(plan), out=Path(out), force=True, charge=False, progress=stage
            )

    def kept(self, out: Path | str) -> int | None:
        """The number of answers kept of the release begun in `out`; None if it cannot be resumed."""
        from sfumato.release.folder import PackedAnswers, split_answers

        try:
            plan = self._begun(Path(out))
        except ReleaseError:
            return None
        ledger = self._ledger()
        found = self._find_kept(plan, ledger.find_answer, ledger.find_progress)
        if found is None:
            return None
        return len(PackedAnswers(split_answers(found[1]), plan.table).names) if found[1] else 0

    def sql(
        self,
        text: str,
        *,
        epsilon: object = None,
        parameters: Sequence[object] = (),
        asked_by: str | None = None,
        at_most: Fraction | None = None,
        progress: Callable[[str], None] | None = None,
        pace: Callable[[], None] = lambda: None,
        most_values: int | None = None,
        intervals: bool = True,
    ) -> Answer:
        """The answer to one statement, charged before it is computed; docs/sql.md has the language.

        `epsilon` is what a plain SELECT of private tables may spend, which without it is refused;
        `parameters` are the values of `$1`, `$2`, ...; they are bound to the parsed statement, never to text.
        `asked_by` is who asks, recorded with the charge and held to their share; `at_most` is the most
        epsilon that it may cost; `progress` is called with each stage. `pace` is called when a reading has
        ended, and returns when that may be seen: nothing of its answer is stored or told before. An answer of
        public groups with more than `most_values` numbers is refused. Without `intervals` it has no columns
        for their ends.

        Privacy: the sensitivity of every measure follows from the plan and the bounds that the engine
        enforces (docs/proofs/sql.md). A statement that was answered before on the same version of its
        tables gets the stored answer at no cost.
        """
        desk = replace(
            self._desk(asked_by=asked_by, at_most=at_most, pace=pace, most_values=most_values),
            intervals=intervals,
        )
        price = None if epsilon is None else parse_positive(epsilon, name="epsilon")
        with _show_stages(progress) as stage:
            return desk.answer(text, epsilon=price, parameters=parameters, progress=stage)

    def sql_workload(
        self,
        statements: Sequence[str],
        *,
        epsilon: object,
        delta: object = 0,
        asked_by: str | None = None,
        progress: Callable[[str], None] = lambda _: None,
        pace: Callable[[], None] = lambda: None,
        most_values: int | None = None,
    ) -> Workload:
        """Plain SELECT statements planned together; `buy()` of what is returned pays and answers them.

        What is measured, and how `epsilon` is divided, is chosen so that the mean squared error of the
        statements, each relative to asking it alone with an equal share, is least (docs/sql-reuse.md). With
        `delta`, noise may be Gaussian. `asked_by` is who asks, `progress` is called with each stage;
        `pace` and `most_values` are as for `sql`.

        Privacy: planning reads nothing. What is bought are statements, each charged as any other.
        """
        from sfumato.curator.workload import plan_workload

        return plan_workload(
            statements,
            desk=self._desk(asked_by=asked_by, pace=pace, most_values=most_values),
            epsilon=parse_positive(epsilon, name="epsilon"),
            delta=parse_delta(delta),
            progress=progress,
        )

    def describe(
        self,
        text: str,
        *,
        epsilon: object = None,
        parameter_types: Sequence[pa.DataType | None] = (),
        intervals: bool = True,
    ) -> Description:
        """Names and types of the columns of the answer to `text`, and the types of `$1`, `$2`, ...

        Free: it reads no record, opens no ledger and charges nothing. `epsilon` and `intervals` are those of
        `sql`; of a parameter whose type is None or not given, the type is found out.
        """
        # Opens no ledger.
        desk = replace(self._desk(), find_budget=lambda: self._budget, intervals=intervals)
        price = None if epsilon is None else parse_positive(epsilon, name="epsilon")
        return desk.describe(text, epsilon=price, types=parameter_types)

    def describe_table(self, table: str) -> dict[str, str]:
        """The names of the stored columns of `table` and their kinds, from its header; reads no record."""
        public = self._project.public.get(table)
        return dict(self._engine.describe(public or self._project.table(table)))

    def examine(self, table: str) -> dict[str, Any]:
        """How well the description of `table` fits its records. INTERNAL: exact counts, for its steward.

        `table` may also be a recipe file: then it tells how many records count in all columns that this asks
        about. Nothing is charged, and nothing of it may be published: it is not private.
        """
        from sfumato.recipes.files import read_recipe
        from sfumato.tables.examine import examine_source

        if table in self._project.tables or not table.endswith(".toml"):
            described = self._project.table(table)
            asked = [name for name, column in described.columns.items() if column.domain is not None]
        else:
            file = read_recipe(table)
            epsilon = 1 if file.epsilons is None else file.epsilons
            plan = self._plan(file.recipe, epsilon=epsilon, delta=file.delta or self._project.delta)
            described, asked = plan.table, [name for name in plan.columns if name in plan.table.columns]
        return examine_source(self._engine.here, described, asked).to_record()

    def publish_score(
        self,
        folder: Path | str,
        *,
        epsilon: object,
        metric: str = "pie-chart",
        columns: tuple[str, ...] | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> PublishedScore:
        """A noisy score of the release in `folder` that may be published, charged before it is computed.

        `metric` is "pie-chart" or "l1", over `columns`, by default those of the release; with a pie
        chart the last column is that of the slices. What has no known sensitivity is refused. `epsilon` is
        what all scores of the release cost together; `progress` is called with each stage.

        Privacy: docs/proofs/scores.md.
        """
        from sfumato.curator.scores import publish_score

        return publish_score(
            folder,
            metric=metric,
            epsilon=epsilon,
            columns=columns,
            project=self._pinned,
            engine=self._engine,
            open_ledger=self._ledger,
            progress=progress,
            noise=self._noise,
        )

    def _desk(
        self,
        *,
        asked_by: str | None = None,
        at_most: Fraction | None = None,
        pace: Callable[[], None] = lambda: None,
        most_values: int | None = None,
    ) -> Desk:
        """Where statements about the project are answered."""
        from sfumato.curator.reuse import StoredQuestions
        from sfumato.curator.statements import Desk

        if self._stored is None:
            self._stored = StoredQuestions()
        return Desk(
            project=self._pinned,
            engine=self._engine,
            find_budget=lambda: self._ledger().budget if self.has_ledger() else self._budget,
            report=self.budget,
            open_ledger=self._ledger,
            noise=self._noise,
            asked_by=asked_by,
            at_most=at_most,
            pace=pace,
            most_values=most_values,
            stored=self._stored,
            views=self._views.setdefault(asked_by, {}),
        )

    def _release(
        self,
        plan: Plan,
        bill: Bill,
        *,
        out: Path | None,
        force: bool,
        charge: bool = True,
        progress: Callable[[str], None],
    ) -> Release:
        """The release of `plan`: stored, finished or new; new only if it may `charge`."""
        from sfumato.core.door import open_charge  # slow to load, and not needed to look at a budget
        from sfumato.release.folder import check_folder

        # All of it on the same records. A server that cannot be reached is noticed before the charge.
        with self._engine.snapshot(plan.table):
            self._check_plan(plan)
            if out is not None:
                folder = self._project.folder
                # What is not in a file cannot be in the folder either; a URL is then a name for nothing.
                keep = (folder / self._project.ledger, folder, folder / plan.table.source)
                check_folder(out, force=force, keep=keep)
            if plan.stepwise or plan.series:
                release = self._answer_parts(plan, bill, progress=progress)
            else:
                with open_charge(
                    bill, ledger=self._ledger(bill), noise=self._noise, may_charge=charge, progress=progress
                ) as charged:
                    release = self._answer(plan, charged, out=out, force=force, progress=progress)
        if out is not None:
            progress("writing the release")
            release.write(out, force=force)
            release = replace(release, folder=out)
        return release

    def _bill(self, plan: Plan) -> Bill:
        from sfumato.core.door import Bill

        return Bill(
            digest=plan.asked_digest,
            purpose="release",
            subject=_name_recipe(plan.recipe),
            description=plan.to_record(),
            tables=plan.table.name,
            costs=plan.costs,
            window=plan.table.window,
            version=lambda secret: self._engine.version(plan.table, secret=secret),
            packed=lambda: self._engine.packed(plan.table),
            table=plan.table,
            parts=plan.parts,
        )

    def _answer(
        self, plan: Plan, charged: Charged, *, out: Path | None, force: bool, progress: Callable[[str], None]
    ) -> Release:
        """The release under a charge: as it was stored, or asked from where it was interrupted."""
        from sfumato.curator.conversation import Conversation
        from sfumato.release.certificate import describe_entry
        from sfumato.release.folder import write_note
        from sfumato.release.release import build_release, repeat_release

        entry = describe_entry(charged.entry)
        if charged.answer is not None:
            release = repeat_release(plan, charged.answer, ledger=entry, progress=progress)
            return replace(release, repeated=True)
        if out is not None and plan.allowance is not None:
            write_note(out, plan, project=self._file, force=force)
        with Conversation(plan, charged, engine=self._engine, progress=progress) as conversation:
            answers, product = conversation.run()
            # Storing waits for the disk, deriving for the processor.
            release = build_release(plan, answers, product, ledger=entry, packed=conversation.packed)
            return replace(release, resumed=charged.resumed)

    def _answer_parts(self, plan: Plan, bill: Bill, *, progress: Callable[[str], None]) -> Release:
        """The release of a plan in steps or of a series: each part found again, finished, or answered now."""
        from sfumato.curator.conversation import Series, Steps
        from sfumato.release.certificate import describe_entries, describe_entry
        from sfumato.release.folder import pack_measurements
        from sfumato.release.release import build_release

        parts = (Steps if plan.stepwise else Series)(
            plan,
            bill,
            ledger=self._ledger(
                None if plan.stepwise else bill
            ),  # the steps refuse the most that they may cost
            noise=self._noise,
            engine=self._engine,
            progress=progress,
        )
        answers, product = parts.run()
        # A series has one charge for all of its periods.
        entry = describe_entries(parts.entries) if plan.stepwise else describe_entry(parts.entries[0])
        release = build_release(
            plan, answers, product, ledger=entry, packed=lambda: pack_measurements(answers)
        )
        return replace(release, repeated=not parts.charged, resumed=parts.resumed)

    def _check_plan(self, plan: Plan) -> None:
        for request in plan.requests:
            request.check(plan.table)
        counted = {name for columns in plan.marginals for name in columns}
        others = tuple((name,) for name in plan.columns if name not in counted)
        self._engine.check(plan.table, (*plan.marginals, *others))

    def _begun(self, out: Path) -> Plan:
        from sfumato.release.folder import read_note

        begun = read_note(out)
        return self._plan(begun.recipe, epsilon=begun.epsilons, delta=begun.delta)

    def _plan(
        self, recipe: Recipe | Path | str, *, epsilon: object, delta: object, through: str | int | None = None
    ) -> Plan:
        from sfumato.recipes.base import FILE_KEYS, parse_epsilons, refuse_large_answers, refuse_unbounded
        from sfumato.recipes.files import read_recipe

        if isinstance(recipe, (str, Path)):
            file = read_recipe(recipe)
            recipe = file.recipe
            epsilon = file.epsilons if epsilon is None else epsilon
            delta = file.delta if delta is None else delta
        if through is not None:
            from sfumato.recipes.running import Running

            if not isinstance(recipe, Running):
                raise RecipeError(f"recipe {recipe.kind!r} is no series, so it has no period to end with")
            recipe = replace(recipe, through=through)
        if epsilon is None:
            raise RecipeError("say how much to spend: epsilon in the recipe file, or as an argument")
        table: Table = self._pinned.table(recipe.table)
        for key in FILE_KEYS:
            # A file that a recipe is about to read as public must not be the records under another name.
            named = getattr(recipe, key, None)
            if isinstance(named, str):
                refuse_private_file(named, self._project)
        parsed_delta = parse_delta(0 if delta is None else delta)
        if parsed_delta > 0 and self._project.delta == 0:
            raise RecipeError("delta above zero needs [budget] delta above zero in the project file")
        refuse_unbounded(recipe, table)
        plan = recipe.plan(table, epsilons=parse_epsilons(epsilon), delta=parsed_delta)
        refuse_large_answers(plan)
        return plan

    def _find_kept(
        self, plan: Plan, *finds: Callable[..., tuple[ChargeEntry, bytes] | None]
    ) -> tuple[ChargeEntry, bytes] | None:
        """What one of `finds` finds of the answers to `plan`, of the table as it is.

        To tell how that is, files are read once: not for what nobody asked.
        """
        ledger, name = self._ledger(), plan.asked_digest
        if not ledger.knows(name):
            return None
        version = self._engine.version(plan.table, secret=ledger.secret)
        found = (find(plan_digest=name, table_version=version) for find in finds)
        return next(filter(None, found), None)

    @property
    def _window(self) -> Window | None:
        """The window of the project's table; one that has a window is alone in its project."""
        return next((table.window for table in self._project.tables.values()), None)

    def _ledger(self, bill: Bill | None = None, prepare: Callable[[], None] = lambda: None) -> Ledger:
        """Return the ledger, opened once and kept; where there is none, none is made for a refused `bill`."""
        if self._opened is None:
            if bill is not None and not self.has_ledger():
                from sfumato.core.door import refuse_first

                prepare()
                refuse_first(bill, self._budget, name=self.ledger_name)
            self._opened = Ledger(self.ledger_path, self._budget)
        return self._opened


def _show_stages(given: Callable[[str], None] | None) -> AbstractContextManager[Callable[[str], None]]:
    """Lend the function that is called with each stage: the `given` one, a notebook's, or one for nobody."""
    if given is None and "IPython" in sys.modules:
        from sfumato.report.pages.notebook import show_stages

        return show_stages()
    return nullcontext(given or (lambda _: None))


def _name_recipe(recipe: Recipe) -> str:
    """Return what the ledger calls a recipe: its kind, and the columns that it groups by."""
    by = recipe.to_record().get("by")
    return f"{recipe.kind} by {', '.join(map(str, by))}" if isinstance(by, list) else recipe.kind


def open_project(path: Path | str = "sfumato.toml") -> Curator:
    """The curator of the project file at `path`. Reads no record and spends nothing."""
    return Curator(read_project(path), file=Path(path).name)


def describe_source(source: str, *, folder: Path) -> dict[str, str]:
    """The names of the stored columns and their kinds, from headers, footers and catalogues alone."""
    if find_place(source) == "file" and find_lake(source) is None:
        from sfumato.core.engine.source import find_files

        found = find_files(source, folder=folder, table=Path(source).stem)
        return {name: stored.kind for name, stored in found.columns.items()}
    from sfumato.servers.project import open_engine

    table = Table(name="source", source=source, unit=PrivacyUnit(column=None, max_records=1))
    return open_engine(folder).describe(table)
