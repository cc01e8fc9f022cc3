"""What is audited through a curator, a recipe or a statement, and runs of it on made-up tables.

The private records are never opened: of a source only the names and kinds of its columns are read, as
`sfumato init` reads them, and of a missing source not even these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from sqlglot import exp

from sfumato.audit.neighbours import FilledColumns, Individual, Record, list_crowd, list_fields, make_table
from sfumato.core.cost.cost import Cost
from sfumato.core.engine.opening import TEXT_FILES
from sfumato.core.errors import AuditError, SfumatoError, SourceError
from sfumato.core.questions.measurement import Measurement
from sfumato.curator import Curator, describe_source
from sfumato.recipes.base import Recipe
from sfumato.sql.statement import read_statement

if TYPE_CHECKING:
    from sfumato.core.facts.project import Project
    from sfumato.core.facts.table import Table
    from sfumato.core.law import NoiseSource

SOMEBODY = 10**6  # the first number of an individual beside the crowd

_BUDGET = Fraction(10**6)  # of every run's own ledger: nothing that is audited is refused for its price
_COST_KEYS = ("count", "delta", "kind", "neighbours", "norm", "sampling", "scale", "sensitivity", "unit")

Progress = Callable[[str], None]
Seen = tuple[Mapping[str, object], tuple[Cost, ...]]
"""What a curator answers as it can be seen from outside, and the cost declared for each answer, if it is."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecipeTarget:
    """A recipe with its privacy parameters. `claimed` stands in for the costs that it declares."""

    recipe: Recipe
    epsilons: tuple[Fraction, ...]
    delta: Fraction
    claimed: Callable[[Table], tuple[Cost, ...]] | None = None

    @property
    def name(self) -> str:
        """The kind of the recipe."""
        return f"recipe {self.recipe.kind}"

    @property
    def table(self) -> str:
        """The table it is about."""
        return self.recipe.table

    def ask(self, curator: Curator, *, progress: Progress) -> Seen:
        """Returns the release as it can be seen: its files, its certificate without times, its answers."""
        release = curator.release(
            self.recipe, epsilon=list(self.epsilons), delta=self.delta, progress=progress
        )
        # These have the time of the release in them, or digests of what has.
        timed = {"ledger", "files", "certificate.json", "writeup.md"}
        certificate = {key: value for key, value in release.certificate.items() if key not in timed}
        files = {name: content for name, content in release.files.items() if name not in timed}
        seen: dict[str, object] = {"certificate": repr(certificate), **files, "rows": release.table.num_rows}
        for answer in release.answers:
            shown = answer.noisy_values.tobytes() if isinstance(answer, Measurement) else answer.index
            seen[f"answer {answer.ask.name}"] = shown
        if self.claimed is not None:
            return seen, self.claimed(curator.project.table(self.table))
        declared = tuple(
            Cost.from_record({key: entry[key] for key in _COST_KEYS if key in entry})
            for entry in release.certificate["measurements"]
        )
        return seen, declared

    def claim(self, _: Outcome) -> tuple[float, float]:
        """Returns the sum over the epsilons that were asked for."""
        return float(sum(self.epsilons)), float(self.delta * len(self.epsilons))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StatementTarget:
    """A DP-SELECT statement about a table of the project."""

    text: str
    table: str
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)

    @property
    def name(self) -> str:
        """The statement itself."""
        return self.text

    def ask(self, curator: Curator, *, progress: Progress) -> Seen:
        """Returns the answer as it can be seen; its costs are those that were charged."""
        answer = curator.sql(self.text, progress=progress)
        seen = {
            "answer": repr(answer.table.to_pydict()),
            "types": str(answer.table.schema),
            "spent": answer.spent,
            "notes": answer.notes,
        }
        return seen, ()

    def claim(self, outcome: Outcome) -> tuple[float, float]:
        """Returns the epsilon of the statement; with WITHIN, what it spends on the made-up crowd."""
        spent = outcome.seen.get("spent", Fraction(0))
        assert isinstance(spent, Fraction)
        return float(self.epsilon or spent), float(self.delta)


Target = RecipeTarget | StatementTarget


def read_target(text: str, project: Project) -> StatementTarget:
    """Returns the statement `text`, with the first private table that it names."""
    statement = read_statement(text)
    if statement.mode != "private" or statement.explain:
        raise AuditError("only a DP-SELECT statement can be audited: EXPLAIN and public SELECT spend nothing")
    known = {name.lower(): name for name in project.tables}
    named = [each.name.lower() for each in statement.query.find_all(exp.Table) if each.name.lower() in known]
    if not named:
        raise AuditError(
            f"the statement names no table of the project; it has {', '.join(sorted(project.tables))}"
        )
    return StatementTarget(text=text, table=known[named[0]], epsilon=statement.epsilon, delta=statement.delta)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outcome:
    """What came of one run: everything that can be seen from outside, and what was charged."""

    seen: Mapping[str, object] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    error: str | None = None
    charged: tuple[Cost, ...] = ()
    declared: tuple[Cost, ...] = ()


class Harness:
    """Runs a target on made-up tables: the project's public facts, a folder and ledgers of its own."""

    def __init__(self, project: Project, target: Target, folder: Path) -> None:
        self.target, self._folder = target, folder
        self._turn = 0
        self._fields: dict[str, tuple[FilledColumns, ...]] = {}
        self._unit_kinds: dict[str, str] = {}
        tables: dict[str, Table] = {}
        for name, table in project.tables.items():
            if table.unit.period is not None:
                raise AuditError(
                    f"table {name!r} protects {table.unit.name}, and audits make up whole individuals; audit "
                    "the same recipe with the unit column alone"
                )
            kinds: dict[str, str] = {}
            with suppress(SourceError):
                kinds = describe_source(table.source, folder=project.folder)
            self._fields[name] = list_fields(table, kinds)
            self._unit_kinds[name] = kinds.get(table.unit.column or "", "text")
            suffix = ".csv" if table.source.lower().endswith(TEXT_FILES) else ".parquet"
            # Made-up records name their individual themselves: references lead to it before what is audited.
            tables[name] = replace(
                table, source=f"table {len(tables)}{suffix}", reference=None, snapshot=None
            )
        public = {
            name: replace(each, source=str((project.folder / each.source).resolve()))
            for name, each in project.public.items()
        }
        self.project = replace(project, folder=folder, epsilon=_BUDGET, tables=tables, public=public)

    @property
    def table(self) -> Table:
        """The table that the target is about."""
        return self.project.table(self.target.table)

    @property
    def fields(self) -> tuple[FilledColumns, ...]:
        """The fields of the target's table."""
        return self._fields[self.target.table]

    def run(
        self,
        people: Sequence[Individual],
        noise: NoiseSource | None,
        *,
        crowd: bool = True,
        backwards: bool = False,
    ) -> Outcome:
        """Returns what comes of a run on a table of a crowd, or of nobody, and of `people`.

        With several private tables, the people have records in each of them. `noise` stands in for the
        curator's own; `backwards` stores the records in reverse order.
        """
        for name, table in self.project.tables.items():
            fields = self._fields[name]
            rows: list[tuple[int | None, Sequence[Record]]] = []
            if crowd:
                rows += list(enumerate(list_crowd(fields, table)))
            for number, person in enumerate(people):
                records = person.records
                if name != self.target.table:
                    records = (tuple(each.usual[0] for each in fields),) * len(records)
                rows.append((SOMEBODY + number if person.named else None, records))
            if backwards:
                rows = [(who, tuple(reversed(records))) for who, records in reversed(rows)]
            made = make_table(fields, rows, unit=table.unit.column, unit_kind=self._unit_kinds[name])
            write = pa_csv.write_csv if table.source.endswith(".csv") else pq.write_table
            write(made, self._folder / table.source)
        self._turn += 1
        ledger = f"ledger {self._turn}.db"
        outcome = self._ask(Curator(replace(self.project, ledger=ledger), noise=noise))
        for left in self._folder.glob(f"{ledger}*"):
            left.unlink()
        return outcome

    def _ask(self, curator: Curator) -> Outcome:
        stages: list[str] = []
        seen: Mapping[str, object] = {}
        declared: tuple[Cost, ...] = ()
        error = None
        try:
            seen, declared = self.target.ask(curator, progress=stages.append)
        except SfumatoError as failure:
            error = f"{type(failure).__name__}: {failure}"
        except Exception as failure:  # a fault of the code under audit is something to see, too
            error = f"{type(failure).__name__}: {str(failure)[:200]}"
        charged = tuple(cost for entry in curator.budget().charges for cost in entry.costs)
        return Outcome(
            seen=seen, stages=tuple(stages), error=error, charged=charged, declared=declared or charged
        )
