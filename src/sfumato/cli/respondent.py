"""Who answers the statements of `sfumato sql`: the curator of a project, or the model of a release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sfumato.cli.output import note, open_curator, progress
from sfumato.core.cost.budget import MANY
from sfumato.core.errors import UnsupportedQuery
from sfumato.core.exact import format_short
from sfumato.core.facts.column import suggest_name

if TYPE_CHECKING:
    from sfumato.sql.finish import Answer


_MOST_VALUES = 1000  # of one column that are completed


class Respondent(Protocol):
    """Answers statements, and tells what there is to ask."""

    welcome: str
    history: Path | None

    def run(self, text: str, *, quiet: bool, agree: Callable[[str], bool]) -> Answer | None:
        """Gives the answer to a statement; None if it was not bought because a warning was not agreed to."""

    def tables(self) -> Answer:
        """Returns the tables that can be asked."""

    def schema(self, table: str) -> Answer:
        """Returns the columns of a table."""

    def budget(self) -> str:
        """Returns what is left, in a sentence."""

    def facts(self) -> dict[str, Any]:
        """Returns what JSON says beside an answer."""

    def vocabulary(self) -> Vocabulary:
        """Returns the public names to complete."""


class Curated:
    """Statements answered by the project's curator, who charges the ledger."""

    welcome = (
        "DP-SELECT epsilon ... FROM table;  EXPLAIN ... spends nothing;  "
        ".tables  .schema  .budget  .help  .quit"
    )

    def __init__(self, project: str) -> None:
        self._curator = open_curator(project)
        self.history: Path | None = self._curator.project.folder / ".sfumato_history"
        self._vocabulary: Vocabulary | None = None

    def run(self, text: str, *, quiet: bool, agree: Callable[[str], bool]) -> Answer | None:
        """Returns the answer to a statement; None if it was not bought because of a warning."""
        warning = self._announce(text)
        if warning and not agree(warning):
            return None
        with progress(quiet=quiet) as stage:
            answer = self._curator.sql(text, progress=stage)
        for each in answer.notes:
            note(each)
        if not quiet:
            note(self._describe(answer))
        return answer

    def tables(self) -> Answer:
        """Returns the tables that can be asked."""
        return self._curator.sql("SHOW TABLES")

    def schema(self, table: str) -> Answer:
        """Returns the columns of a table."""
        quoted = table.strip('"').replace('"', '""')
        return self._curator.sql(f'DESCRIBE "{quoted}"')

    def budget(self) -> str:
        """Returns what is left, in a sentence."""
        return self._curator.budget().describe_left()

    def facts(self) -> dict[str, Any]:
        """Returns what JSON says beside an answer."""
        return {"left": str(self._curator.budget().left)}

    def vocabulary(self) -> Vocabulary:
        """Returns the public names to complete."""
        if self._vocabulary is None:
            project = self._curator.project
            names = [*project.tables, *project.public]
            values = {
                column.name: tuple(map(str, column.labels))
                for table in project.tables.values()
                for column in table.columns.values()
                if column.domain is not None
                and column.size <= _MOST_VALUES
                and (column.accepted or not column.drafted)
            }
            tables = {name: tuple(self.schema(name).table["column"].to_pylist()) for name in names}
            self._vocabulary = Vocabulary(tables=tables, values=values)
        return self._vocabulary

    def _announce(self, text: str) -> str:
        """Says what WITHIN will spend; gives the warning that an answer would be noise, if it would."""
        from sfumato.sql.listing import read_listing
        from sfumato.sql.statement import read_statement

        statement = None if read_listing(text) is not None else read_statement(text)
        if statement is None or statement.explain:
            return ""
        within = statement.within
        if within is None and not self._curator.has_ledger():
            return ""  # nothing was released, so that nothing is known
        explained = self._curator.sql(f"EXPLAIN {text}")
        plan = explained.explanation or ""
        if within is not None:
            cost = next(
                (line.split(None, 1)[1] for line in plan.splitlines() if line.startswith("  cost")), ""
            )
            note(
                f"WITHIN a share of the answer: begins with {cost}, and doubles until it is reached"
                if within.relative
                else f"WITHIN needs {cost}"
            )
        price = explained.price
        return "" if price is None or price.stored else "; ".join(explained.notes)

    def _describe(self, answer: Answer) -> str:
        report = self._curator.budget()
        left = f"epsilon {report.left} left"
        if answer.explanation is not None or answer.public:
            return f"nothing spent; {left}"
        kind = "synthetic rows, no record is among them; " if answer.synthetic else ""
        if answer.repeated:
            return f"{kind}answered before: nothing spent; {left}"
        delta = f", delta {format_short(answer.delta)}" if answer.delta else ""
        spent = f"{kind}spent epsilon {format_short(answer.spent)}{delta}; {left}"
        more = report.more_like_last
        if more is None or answer.synthetic:
            return spent  # rows may be charged in several parts, of which the last is one
        if more == 0:
            return f"{spent}, none like this fits any more"
        times = f"about {more:,}" if more < MANY else f"more than {MANY:,}"
        return f"{spent}, {times} more like this"


class Modelled:
    """Statements answered from the model of a release, which is public: there is nothing to charge."""

    welcome = "SELECT ... FROM table;  spends nothing;  .tables  .schema  .help  .quit"
    history: Path | None = None

    def __init__(self, folder: str, epsilon: str | None, *, population: bool = False) -> None:
        from sfumato.release.ask import open_model

        self._model = open_model(folder, epsilon=epsilon)
        self._population = population

    def run(self, text: str, *, quiet: bool, agree: Callable[[str], bool]) -> Answer | None:
        """Returns the answer to a statement; None if it was not bought because of a warning."""
        answer = self._model.sql(text, population=self._population)
        # What an answer rests on is said to whoever reads it, also beside JSON.
        for each in answer.notes:
            note(each)
        if not quiet:
            note(f"from the model at epsilon {self._model.epsilon}: nothing spent")
        return answer

    def tables(self) -> Answer:
        """Returns the tables that can be asked."""
        return _list({"name": [self._model.table.name], "columns": [", ".join(self._model.columns)]})

    def schema(self, table: str) -> Answer:
        """Returns the columns of a table."""
        name = self._model.table.name
        if table.strip('"').lower() != name.lower():
            raise UnsupportedQuery(f"no table {table!r}{suggest_name(table, [name])}")
        return _list({"column": list(self._model.columns)})

    def budget(self) -> str:
        """Returns what is left, in a sentence."""
        return "a released model costs nothing to ask"

    def facts(self) -> dict[str, Any]:
        """Returns what JSON says beside an answer."""
        return {}

    def vocabulary(self) -> Vocabulary:
        """Returns the public names to complete."""
        return Vocabulary(tables={self._model.table.name: tuple(self._model.columns)})


def _list(columns: dict[str, list[str]]) -> Answer:
    import pyarrow as pa

    from sfumato.sql.finish import Answer

    return Answer(table=pa.table(columns), public=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The public names: tables with their columns, and the public values of columns."""

    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
