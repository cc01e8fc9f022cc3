"""What a private choice gives back, and the terms on which it is made."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from sfumato.accounting import Cost
from sfumato.errors import RecipeError
from sfumato.exact import digest, parse_positive
from sfumato.schema.table import Neighbours

if TYPE_CHECKING:
    from sfumato.accounting import Entry, Ledger

T = TypeVar("T")

Mechanism = Literal["permute-and-flip", "exponential", "noisy-max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick(Generic[T]):
    """One candidate, chosen privately: it, its place among the candidates, and what the choice costs.

    `entry` is the charge, if a ledger was given; otherwise `cost` is yet to be charged.
    """

    candidate: T
    index: int
    cost: Cost
    entry: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks(Generic[T]):
    """Several candidates, chosen privately one after another, and what they cost together."""

    candidates: tuple[T, ...]
    indices: tuple[int, ...]
    cost: Cost
    entry: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a choice spends and what its privacy rests on: public facts.

    `sensitivity` is the most by which any one score differs between neighbouring tables. With `monotone`,
    an individual who is added moves all scores up, or all of them down.
    """

    epsilon: Fraction
    sensitivity: Fraction
    monotone: bool = False
    neighbours: Neighbours = "add-remove"
    unit: str = "row"

    @property
    def rate(self) -> Fraction:
        """How much, in nats per unit of score, a better score may weigh at this epsilon.

        Without `monotone` one score may rise while another falls, so half as much.
        """
        return self.epsilon / self.sensitivity / (1 if self.monotone else 2)

    def to_record(self) -> dict[str, Any]:
        """The terms as a plain record."""
        return {"epsilon": self.epsilon, "sensitivity": self.sensitivity, "monotone": self.monotone}


def make_terms(
    *, epsilon: object, sensitivity: object, monotone: object, neighbours: Neighbours, unit: str
) -> Terms:
    """The terms, their numbers read exactly, or an error about what cannot be promised.

    >>> make_terms(epsilon=0.1, sensitivity=2, monotone=False, neighbours="replace", unit="row").rate
    Fraction(1, 40)
    """
    if not isinstance(monotone, bool):
        raise RecipeError("monotone must be True or False")
    if monotone and neighbours == "replace":
        raise RecipeError(
            "monotone scores with neighbours = 'replace': who is replaced is removed and added, which moves "
            "scores both ways; leave monotone out"
        )
    return Terms(
        epsilon=parse_positive(epsilon, name="epsilon"),
        sensitivity=parse_positive(sensitivity, name="sensitivity"),
        monotone=monotone,
        neighbours=neighbours,
        unit=unit,
    )


def charge_choice(
    ledger: Ledger | None, cost: Cost, *, name: str, description: dict[str, Any]
) -> Entry | None:
    """The charge of a choice, on disk when this returns; None without a ledger."""
    if not isinstance(name, str) or not name:
        raise RecipeError("name must say in words what is chosen")
    if ledger is None:
        return None
    described = {"choice": name, **description}
    return ledger.charge(
        description=described, plan_digest=digest(described), table=name, table_version="", costs=(cost,)
    )
