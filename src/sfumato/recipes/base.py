"""What a recipe is: a plan made of public facts, and a pure function from measurements to tables."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from sfumato.canonical import digest
from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_exact, parse_positive
from sfumato.measurement import Request, request_cost
from sfumato.schema import Table, table_spec

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.accounting import Cost
    from sfumato.measurement import Measurement

_MOST_CELLS = 2**27
_LEAST_DELTA = Fraction(1, 10**100)

__all__ = ["Plan", "Recipe", "parse_delta", "parse_epsilons", "refuse_large_answers"]


class Recipe(Protocol):
    """An algorithm that asks for measurements and makes a release of them."""

    @property
    def kind(self) -> str:
        """The recipe's name in a recipe file."""

    @property
    def table(self) -> str:
        """The table it is about."""

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record that reads back as the same recipe."""

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """What will be asked of `table`, from public facts alone."""

    def finish(self, plan: Plan, measurements: tuple[Measurement, ...]) -> pa.Table:
        """The released table: a pure function of public facts and noisy values."""

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up: idea, preprocessing, privatisation, postprocessing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recipe applied to a described table: every request, before a record is read."""

    recipe: Recipe
    table: Table
    requests: tuple[Request, ...]
    epsilons: tuple[Fraction, ...]
    delta: Fraction

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """Every combination of columns that is counted, once."""
        return tuple(dict.fromkeys(request.columns for request in self.requests))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is asked for, once."""
        return tuple(dict.fromkeys(name for request in self.requests for name in request.columns))

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What every request costs, derived from the table's description."""
        return tuple(request_cost(self.table, request) for request in self.requests)

    def to_record(self) -> dict[str, Any]:
        """The plan as a plain record."""
        return {
            "recipe": self.recipe.to_record(),
            "table": {self.table.name: table_spec(self.table, self.columns)},
            "epsilons": list(self.epsilons),
            "delta": self.delta,
            "requests": [request.to_record() for request in self.requests],
        }

    @property
    def digest(self) -> str:
        """The SHA-256 of the plan's record: equal plans have equal digests."""
        return digest(self.to_record())


def refuse_large_answers(plan: Plan) -> None:
    """Nothing, or an error if the answers of a plan are too many to be kept in a ledger."""
    cells = sum(plan.table.cells(request.columns) for request in plan.requests)
    if cells > _MOST_CELLS:
        message = (
            f"the release would have {cells:,} cells, more than {_MOST_CELLS:,}; "
            "use fewer columns, coarser domains or fewer epsilons"
        )
        raise RecipeError(message)


def parse_epsilons(value: object) -> tuple[Fraction, ...]:
    """The epsilons that `value`, one number or a list, stands for.

    >>> parse_epsilons([1, 0.5])
    (Fraction(1, 1), Fraction(1, 2))
    """
    entries = value if isinstance(value, (list, tuple)) else [value]
    epsilons = tuple(parse_positive(entry, name="epsilon") for entry in entries)
    if not epsilons:
        message = "epsilon is an empty list"
        raise RecipeError(message)
    if len(set(epsilons)) != len(epsilons):
        message = "an epsilon is listed twice"
        raise RecipeError(message)
    return epsilons


def parse_delta(value: object) -> Fraction:
    """The delta that `value` stands for: 0 for pure privacy, otherwise inside (0, 1)."""
    delta = parse_exact(value, name="delta")
    if not 0 <= delta < 1:
        message = f"delta must be 0 or lie between 0 and 1, got {format_exact(delta)}"
        raise RecipeError(message)
    if 0 < delta < _LEAST_DELTA:
        message = "delta below 1e-100 is as good as 0; write 0"
        raise RecipeError(message)
    return delta
