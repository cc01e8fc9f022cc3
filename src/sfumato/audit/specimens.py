"""A recipe that promises more than it keeps, for audits to catch; it refuses to be planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sfumato.core.cost.cost import Cost
from sfumato.core.errors import RecipeError
from sfumato.core.questions.counts import IndividualCounts
from sfumato.core.questions.measurement import Request
from sfumato.recipes.user_counts import list_questions

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCountsAsWritten:
    """Counts of individuals with the noise of the contest's write-up: Laplace of scale 1 / epsilon.

    Each single question counts an individual once, and the write-up takes 1 for the sensitivity of all of
    them together. An individual with records in max_records cells moves as many answers.

    Privacy: none of what it claims. With records bounded it is max_records x epsilon-DP, under replacement
    twice that; the bound is assumed and not enforced, and without it the factor is the number of cells that
    an individual is in (docs/proofs/user-counts.md).

    >>> UserCountsAsWritten(table="incidents", by=("district",)).kind
    'user-counts-as-written'
    """

    kind: ClassVar[str] = "user-counts-as-written"

    table: str
    by: Sequence[str]
    times: Sequence[int] = (1, 2)

    def to_record(self) -> dict[str, Any]:
        """Returns the specimen as a plain record; no recipe file can name it."""
        return {"recipe": self.kind, "table": self.table, "by": list(self.by), "times": list(self.times)}

    def specimen_request(self, table: Table, epsilon: Fraction) -> Request:
        """Returns what the write-up asks and the noise it adds, for an audit to look at.

        Its bound on cells is what the write-up assumes of everybody, so that `ask_cost` tells what
        the request really costs those who keep to it.
        """
        cells, times = list_questions(
            table, tuple(self.by), times=tuple(self.times), record=None, period=None, reach=0
        )
        return Request(
            name=f"individuals as written, at epsilon {epsilon}",
            counted=IndividualCounts(
                columns=tuple(self.by), max_cells=table.unit.max_records, cells=cells, times=times
            ),
            noise="laplace",
            scale=1 / epsilon,
        )

    def specimen_cost(self, table: Table, epsilon: Fraction) -> Cost:
        """Returns what the write-up says it costs: sensitivity 1, and so epsilon."""
        return Cost(
            kind="laplace",
            scale=1 / epsilon,
            sensitivity=Fraction(1),
            norm="L1",
            neighbours=table.unit.neighbours,
            unit=table.unit.column or "row",
        )

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> NoReturn:
        """Never a plan, so that nothing is charged or released: a refusal that says why."""
        factor = table.unit.max_records * (2 if table.unit.neighbours == "replace" else 1)
        raise RecipeError(
            f"{self.kind} is a specimen for audits and releases nothing: its real epsilon is {factor} times "
            "what it claims, and more for individuals in more cells; use user-counts"
        )
