"""An engine whose server runs all of the portable queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.engine.base import TrueCounts
from sfumato.core.engine.counts import (
    PortableEngine,
    bounded_query,
    fill_counts,
    individuals_query,
    list_pairs,
)
from sfumato.core.engine.outcomes import make_tally
from sfumato.core.engine.residuals import finish_sums, list_tables, residuals_query
from sfumato.core.questions.counts import IndividualCounts
from sfumato.core.questions.moments import Moments
from sfumato.core.questions.outcomes import Outcomes
from sfumato.core.questions.residuals import Residuals

if TYPE_CHECKING:
    from sfumato.core.engine.base import Fetched
    from sfumato.core.facts.table import Table
    from sfumato.servers.push.plan import PushedPlan
    from sfumato.sql.plan import QueryPlan
    from sfumato.statements.execute import TrueAggregates


class ServerEngine(PortableEngine):
    """An engine whose server runs all of the portable queries."""

    @abstractmethod
    def fetch(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """The wanted columns of a table for statements; they are read when asked for."""

    def push(self, table: Table, plan: QueryPlan) -> PushedPlan | None:
        """The plan as the server runs it, None if its columns are fetched; public facts decide."""
        return None

    def aggregate(
        self, table: Table, pushed: PushedPlan, wanted: frozenset[str]
    ) -> tuple[TrueAggregates, Fetched | None]:
        """The aggregates of all individuals within their bound, and the wanted columns of the others."""
        raise NotImplementedError

    def _add_moments(
        self, table: Table, questions: tuple[Moments | Outcomes, ...], progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        columns = questions[0].columns
        tallies = [make_tally(table, question) for question in questions]
        with self._ask(table, columns) as ask:
            progress("bounding contributions")
            progress("counting")
            for part in ask(bounded_query(table, columns), {}):
                *arrays, weights = part
                codes = dict(zip(columns, arrays, strict=True))
                for tally in tallies:
                    tally.add(codes, weights, rows=weights.size)
        return tuple(tally.finish() for tally in tallies)

    def _count_individuals(
        self, table: Table, question: IndividualCounts, progress: Callable[[str], None]
    ) -> TrueCounts:
        with self._ask(table, question.columns) as ask:
            progress("counting individuals")
            parts = ask(individuals_query(table, question), {"questions": list_pairs(question)})
            return fill_counts(question.columns, question.rows, parts)

    def _sum_residuals(
        self, table: Table, question: Residuals, progress: Callable[[str], None]
    ) -> TrueCounts:
        with self._ask(table, question.known) as ask:
            progress("adding up residuals")
            query = residuals_query(table, question, bounded_query(table, question.known))
            parts = ask(query, list_tables(question))
            sums = fill_counts(question.columns, table.cells(question.columns), parts)
            return finish_sums(question, np.array(sums.true_values))
