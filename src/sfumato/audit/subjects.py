"""What can be audited at the curator's door: a recipe, a specimen of one, or a statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from sqlglot import exp

from sfumato.accounting import Cost
from sfumato.errors import AuditError
from sfumato.questions import Measurement
from sfumato.recipes import Plan, Product
from sfumato.sql import read_statement

if TYPE_CHECKING:
    from sfumato.curator import Curator
    from sfumato.recipes import Recipe
    from sfumato.recipes.base import Conversation
    from sfumato.schema import Project, Table

_COST_KEYS = ("count", "delta", "kind", "neighbours", "norm", "scale", "sensitivity", "unit")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecipeSubject:
    """A recipe with its privacy parameters. `claimed` stands in for the declared costs of a specimen."""

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

    def ask(
        self, curator: Curator, *, progress: Callable[[str], None]
    ) -> tuple[Mapping[str, object], tuple[Cost, ...]]:
        """The release as it can be seen: its files, its certificate without times, its answers."""
        release = curator.release(
            self.recipe, epsilon=list(self.epsilons), delta=self.delta, progress=progress
        )
        certificate = {
            key: value for key, value in release.certificate.items() if key not in ("ledger", "files")
        }
        files = {
            name: content
            for name, content in release.files.items()
            if name not in ("certificate.json", "writeup.md")
        }
        seen: dict[str, object] = {"certificate": repr(certificate), **files, "rows": release.table.num_rows}
        for answer in release.answers:
            shown = answer.noisy_values.tobytes() if isinstance(answer, Measurement) else answer.index
            seen[f"answer {answer.ask.name}"] = shown
        if self.claimed is not None:
            return seen, self.claimed(curator.project.table(self.table))
        declared = tuple(
            Cost.from_record({key: told[key] for key in _COST_KEYS})
            for told in release.certificate["measurements"]
        )
        return seen, declared


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StatementSubject:
    """A DP-SELECT statement about a table of the project."""

    text: str
    table: str
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)

    @property
    def name(self) -> str:
        """The statement itself."""
        return self.text

    def ask(
        self, curator: Curator, *, progress: Callable[[str], None]
    ) -> tuple[Mapping[str, object], tuple[Cost, ...]]:
        """The answer as it can be seen; its costs are those that were charged."""
        answer = curator.sql(self.text, progress=progress)
        seen = {
            "answer": repr(answer.table.to_pydict()),
            "types": str(answer.table.schema),
            "spent": answer.spent,
            "notes": answer.notes,
        }
        return seen, ()


def read_subject(text: str, project: Project) -> StatementSubject:
    """The statement `text`, with the first private table that it names."""
    statement = read_statement(text)
    if statement.mode != "private" or statement.explain:
        raise AuditError("only a DP-SELECT statement can be audited: EXPLAIN and public SELECT spend nothing")
    known = {name.lower(): name for name in project.tables}
    named = [each.name.lower() for each in statement.query.find_all(exp.Table) if each.name.lower() in known]
    if not named:
        raise AuditError(
            f"the statement names no table of the project; it has {', '.join(sorted(project.tables))}"
        )
    return StatementSubject(
        text=text, table=known[named[0]], epsilon=statement.epsilon, delta=statement.delta
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Shown:
    """A recipe that asks what a specimen would ask, for made-up tables only."""

    specimen: Any
    kind: ClassVar[str] = "specimen"

    @property
    def table(self) -> str:
        return str(self.specimen.table)

    def to_record(self) -> dict[str, Any]:
        return dict(self.specimen.to_record())

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        requests = tuple(self.specimen.specimen_request(table, each) for each in epsilons)
        return Plan(recipe=self, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        progress("asking")
        answers = yield plan.requests
        return Product(table=pa.table({"answers": [len(answers)]}))

    def describe(self, plan: Plan) -> dict[str, str]:
        told = f"A specimen for audits, with {len(plan.requests)} requests."
        keys = ("idea", "preprocessing", "bounding", "sensitivity", "privatisation", "postprocessing")
        return dict.fromkeys(keys, told)


def show_specimen(
    specimen: Any,  # noqa: ANN401 - any of sfumato.recipes.specimens
    *,
    epsilons: tuple[Fraction, ...],
    delta: Fraction,
) -> RecipeSubject:
    """The specimen as a subject: what it asks, against what it says that costs."""

    def claimed(table: Table) -> tuple[Cost, ...]:
        return tuple(specimen.specimen_cost(table, each) for each in epsilons)

    return RecipeSubject(recipe=_Shown(specimen=specimen), epsilons=epsilons, delta=delta, claimed=claimed)
