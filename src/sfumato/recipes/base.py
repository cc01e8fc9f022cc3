"""What a recipe is: a plan made of public facts, then questions and what is made of their noisy answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from sfumato.errors import RecipeError
from sfumato.exact import digest, parse_positive
from sfumato.measurement import Answer, Ask, Request, is_dense, request_cost, request_size
from sfumato.schema import Table, table_spec

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.accounting import Cost

EXTRA_FILES = ("model.parquet",)
MOST_ANSWERS = 2**27


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """What a recipe makes of its answers: the table, and what else belongs into the release.

    `files` are further files of the release, of EXTRA_FILES. `varied` names the whole-number columns of
    the table whose values rarely repeat. `facts` are public facts about the post-processing, plain
    enough for JSON, which the certificate tells.
    """

    table: pa.Table
    files: Mapping[str, bytes] = field(default_factory=dict)
    varied: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.files) - set(EXTRA_FILES))
        if unknown:
            raise RecipeError(
                f"a release has no file {unknown[0]!r}; a recipe may add {', '.join(EXTRA_FILES)}"
            )


Conversation = Generator[tuple[Ask, ...], tuple[Answer, ...], Product]


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

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """The product: a pure function of public facts and of the answers to what it asks on the way.

        Every batch of questions it yields is answered by a tuple in the same order: a Measurement for
        a Request, a Chosen for a choice. Names are unique within a run.
        """

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up: idea, preprocessing, privatisation, postprocessing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recipe applied to a described table: what may be asked and its cost, before a record is read.

    A recipe that knows all its requests lists them. One that asks by what it has seen lists what it
    knows, and states the costs to be charged up front as its `allowance`; `counted` are then all
    marginals whose counts it may ask about, `clipped` those it may ask about with a norm, or a bound on
    records, of its own only.
    """

    recipe: Recipe
    table: Table
    requests: tuple[Request, ...]
    epsilons: tuple[Fraction, ...]
    delta: Fraction

    allowance: tuple[Cost, ...] | None = None
    counted: tuple[tuple[str, ...], ...] | None = None
    clipped: tuple[tuple[str, ...], ...] = ()

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """Every combination of columns that is counted, once."""
        if self.counted is not None:
            return self.counted
        return tuple(dict.fromkeys(request.columns for request in self.requests if is_dense(request)))

    @property
    def occupied(self) -> tuple[tuple[str, ...], ...]:
        """Every combination of columns that is counted where records are, once."""
        return tuple(dict.fromkeys(each.columns for each in self.requests if each.threshold is not None))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that may be asked for, once."""
        asked = (*self.marginals, *self.clipped, *(request.columns for request in self.requests))
        return tuple(dict.fromkeys(name for columns in asked for name in columns))

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What is charged up front: the allowance, or the cost of every request."""
        if self.allowance is not None:
            return self.allowance
        return tuple(request_cost(self.table, request) for request in self.requests)

    def to_record(self) -> dict[str, Any]:
        """The plan as a plain record; what may be counted follows from recipe and table."""
        record = {
            "recipe": self.recipe.to_record(),
            "table": {self.table.name: table_spec(self.table, self.columns)},
            "epsilons": list(self.epsilons),
            "delta": self.delta,
            "requests": [request.to_record() for request in self.requests],
        }
        if self.allowance is not None:
            record["allowance"] = [cost.to_record() for cost in self.allowance]
        return record

    @property
    def digest(self) -> str:
        """The SHA-256 of the plan's record: equal plans have equal digests."""
        return digest(self.to_record())


def refuse_large_answers(plan: Plan) -> None:
    """Raises an error if the answers of a plan are too many to be kept in a ledger."""
    cells = sum(request_size(plan.table, request) for request in plan.requests)
    if cells > MOST_ANSWERS:
        raise RecipeError(
            f"the release would have {cells:,} cells, more than {MOST_ANSWERS:,}; "
            "use fewer columns, coarser domains or fewer epsilons"
        )


def refuse_no_delta(kind: str, delta: Fraction) -> None:
    """Raises an error if there is no delta for a recipe that adds Gaussian noise."""
    if delta == 0:
        raise RecipeError(
            f"{kind} adds Gaussian noise, which needs delta above zero: set delta in the recipe, and "
            "[budget] delta in the project file"
        )


def parse_epsilons(value: object) -> tuple[Fraction, ...]:
    """The epsilons that `value`, one number or a list, stands for.

    >>> parse_epsilons([1, 0.5])
    (Fraction(1, 1), Fraction(1, 2))
    """
    entries = value if isinstance(value, (list, tuple)) else [value]
    epsilons = tuple(parse_positive(entry, name="epsilon") for entry in entries)
    if not epsilons:
        raise RecipeError("epsilon is an empty list")
    if len(set(epsilons)) != len(epsilons):
        raise RecipeError("an epsilon is listed twice")
    return epsilons
