"""A curator of made-up tables: the project's public facts, a folder of its own, a ledger of its own.

The private records are never opened: of a source only the names and kinds of its columns are read, as
`sfumato init` reads them, and of a missing source not even these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from sfumato.accounting import Cost
from sfumato.audit.fields import list_fields
from sfumato.audit.people import Record, list_crowd, make_table
from sfumato.curator import Curator, describe_source
from sfumato.errors import SfumatoError, SourceError

if TYPE_CHECKING:
    from sfumato.audit.fields import Field
    from sfumato.audit.people import Person
    from sfumato.audit.watch import Watch
    from sfumato.schema import Project, Table

SOMEBODY = 10**6

_BUDGET = Fraction(10**6)
_TEXT_FILES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Answered:
    """What came of one run: everything that can be seen from outside, and what was charged."""

    seen: Mapping[str, object] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    error: str | None = None
    charged: tuple[Cost, ...] = ()
    declared: tuple[Cost, ...] = ()


class Subject(Protocol):
    """What is audited: a recipe or a statement."""

    @property
    def name(self) -> str:
        """What a report calls it."""

    @property
    def table(self) -> str:
        """The table whose individuals are made up."""

    def ask(self, curator: Curator, *, progress: Any) -> tuple[Mapping[str, object], tuple[Cost, ...]]:  # noqa: ANN401
        """What the curator answers, as it can be seen, and the cost declared for each answer, if it is."""


class Desk:
    """Runs a subject on made-up tables in a folder of its own."""

    def __init__(self, project: Project, subject: Subject, folder: Path) -> None:
        self._subject, self._folder = subject, folder
        self._turn = 0
        self._fields: dict[str, tuple[Field, ...]] = {}
        self._unit_kinds: dict[str, str] = {}
        tables: dict[str, Table] = {}
        for name, table in project.tables.items():
            kinds = _stored_kinds(project, table)
            self._fields[name] = list_fields(table, kinds)
            self._unit_kinds[name] = kinds.get(table.unit.column or "", "text")
            suffix = ".csv" if table.source.lower().endswith(_TEXT_FILES) else ".parquet"
            tables[name] = replace(table, source=f"table {len(tables)}{suffix}")
        public = {
            name: replace(each, source=str((project.folder / each.source).resolve()))
            for name, each in project.public.items()
        }
        self._project = replace(project, folder=folder, epsilon=_BUDGET, tables=tables, public=public)

    @property
    def table(self) -> Table:
        """The table that the subject is about."""
        return self._project.table(self._subject.table)

    @property
    def project(self) -> Project:
        """The project of made-up tables."""
        return self._project

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the subject's table."""
        return self._fields[self._subject.table]

    def run(
        self,
        people: Sequence[Person],
        watch: Watch | None,
        *,
        crowd: bool = True,
        backwards: bool = False,
    ) -> Answered:
        """What comes of a run on a table of a crowd, or of nobody, and of `people`.

        With several private tables, the people have records in each of them.
        """
        for name, table in self._project.tables.items():
            fields = self._fields[name]
            own = name == self._subject.table
            rows: list[tuple[object, Sequence[Record]]] = []
            if crowd:
                rows += list(enumerate(list_crowd(fields, table)))
            for number, person in enumerate(people):
                records = person.records if own else _records_elsewhere(fields, len(person.records))
                rows.append((SOMEBODY + number if person.named else None, records))
            if backwards:
                rows = [(who, tuple(reversed(records))) for who, records in reversed(rows)]
            made = make_table(fields, rows, unit=table.unit.column, unit_kind=self._unit_kinds[name])
            path = self._folder / table.source
            if path.suffix == ".csv":
                pa_csv.write_csv(made, path)
            else:
                pq.write_table(made, path)
        self._turn += 1
        project = replace(self._project, ledger=f"ledger {self._turn}.db")
        curator = Curator(project, noise=watch)
        answered = self._ask(curator)
        for left in self._folder.glob(f"ledger {self._turn}.db*"):
            left.unlink()
        return answered

    def _ask(self, curator: Curator) -> Answered:
        stages: list[str] = []
        seen: Mapping[str, object] = {}
        declared: tuple[Cost, ...] = ()
        error = None
        try:
            seen, declared = self._subject.ask(curator, progress=stages.append)
        except SfumatoError as failure:
            error = f"{type(failure).__name__}: {failure}"
        except Exception as failure:  # a fault of the code under audit is something to see, too
            error = f"{type(failure).__name__}: {str(failure)[:200]}"
        charged = tuple(cost for entry in curator.budget().entries for cost in entry.costs)
        return Answered(
            seen=seen, stages=tuple(stages), error=error, charged=charged, declared=declared or charged
        )


def _stored_kinds(project: Project, table: Table) -> dict[str, str]:
    try:
        return describe_source(table.source, folder=project.folder)
    except SourceError:
        return {}


def _records_elsewhere(fields: Sequence[Field], count: int) -> tuple[Record, ...]:
    """Records of the same individual in another table."""
    return (tuple(each.usual[0] for each in fields),) * count
