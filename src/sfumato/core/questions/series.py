"""Weighted sums of what arrived so far, asked once for every period of a series that goes on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from sfumato.core.cost.curves import sqrt_up
from sfumato.core.errors import RecipeError
from sfumato.core.exact import check_option
from sfumato.core.questions.question import BOTH, Question, Stated

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.law import Norm

MOST_PERIODS = 10_000
SERIES_GRID = 2**20

Late = Literal["drop", "carry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSums(Question):
    """For each of the first `periods` periods and every cell, a weighted sum of all arrivals up to it.

    `columns` are that of the period and those of the cells. What arrived k periods before counts with
    weights[k] / SERIES_GRID; there is a weight for every period of the horizon. A record arrives in its own
    period, and what comes later does not count (`late` is "drop"), or in the period that is answered next
    ("carry"). The answers are in the order of periods, the cells of each together.

    Privacy: an individual has at most max_records arrivals in all periods together, whatever its table held
    when each was answered. One arrival adds weights[0], weights[1], ... to the sums of its cell, so that all
    sums of the horizon move by at most max_records times the norm of the weights, in L1 as in L2. Proof:
    docs/proofs/running.md.

    >>> RunningSums(columns=("month",), weights=(2**20, 2**19), periods=1).horizon
    2
    """

    stated: ClassVar = Stated(bounding="arrivals", tally="arrivals", norms=BOTH, signed=False, sampled=False)
    queries: ClassVar[None] = None  # type: ignore[misc]

    columns: tuple[str, ...]
    weights: tuple[int, ...]
    periods: int
    late: Late = "drop"

    def __post_init__(self) -> None:
        if not 1 <= len(self.weights) <= MOST_PERIODS:
            raise RecipeError(f"a series has from 1 to {MOST_PERIODS:,} periods, got {len(self.weights):,}")
        whole = all(isinstance(each, int) and 0 <= each <= SERIES_GRID for each in self.weights)
        if not whole or self.weights[0] == 0:
            raise RecipeError("the weights of a series are whole numbers from 0 to 2^20, the first above 0")
        if not 1 <= self.periods <= len(self.weights):
            raise RecipeError("a series is answered for at least one period, and none beyond its last")
        check_option(self.late, get_args(Late), name="late")

    @property
    def horizon(self) -> int:
        """The number of all periods, answered or still to come."""
        return len(self.weights)

    def cells(self, table: Table) -> int:
        """The number of cells of one period."""
        return table.cells(self.columns) // self.horizon

    def grid(self, table: Table) -> int:
        """The denominator of the answers."""
        return SERIES_GRID

    def size(self, table: Table) -> int:
        """The number of answers."""
        return self.periods * self.cells(table)

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds to all sums of the horizon, in units of 1 / grid."""
        # Every arrival is taken for one in the first period, whose weights go on the longest.
        if norm == "L1":
            return Fraction(table.unit.max_records * sum(self.weights))
        squares = sum(each * each for each in self.weights)
        return table.unit.max_records * sqrt_up(Fraction(squares))

    def check(self, table: Table) -> None:
        """Raises an error if the table cannot be asked for a series."""
        period = table.column(self.columns[0])
        if period.extras or period.size != self.horizon:
            raise RecipeError(
                f"column {period.name!r} counts periods in their order, and nothing else: remove "
                "missing_label and outside = 'other'"
            )
        if table.bounding != "truncate":
            raise RecipeError(
                f"table {table.name!r}: records to come are not known, so none can be weighted by their "
                "number; use bounding = 'truncate' for a series"
            )
        if table.unit.private_records:
            raise RecipeError(f"table {table.name!r}: a series needs a stated max_records, for all periods")
        if table.unit.column is None and self.late == "carry":
            raise RecipeError(
                "late = 'carry' needs a unit column: rows without a name cannot be told from those counted"
            )

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns."""
        return {
            "series": {
                "periods": self.periods,
                "horizon": self.horizon,
                "late": self.late,
                "weights_sha256": _digest_weights(self.weights),
            }
        }


@lru_cache(maxsize=8)  # it is told with every one of thousands of periods
def _digest_weights(weights: tuple[int, ...]) -> str:
    return hashlib.sha256(",".join(map(str, weights)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Period:
    """A period of a series: its name, the hashes of the charges of all periods so far, a key for digests."""

    stream: str
    entries: tuple[str, ...]
    secret: bytes
