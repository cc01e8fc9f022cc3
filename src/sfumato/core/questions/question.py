"""What every kind of question states: all that the core must know of it, and nothing by default.

Adding a kind means one record with these members, one function of the engine that answers it, and one proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.law import Norm

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.questions.counts import Queries

Bounding = Literal["records", "cap", "norm", "cells", "gradient", "arrivals"]
# `CountingEngine.count` has a branch for each that it answers.
_Counts = Literal["cells", "occupied", "capped", "clipped", "individuals", "within", "lost"]
_Sums = Literal["streamed", "residuals", "gradients", "arrivals", "scores"]
Tally = Literal[_Counts, _Sums]

BOTH: Final[tuple[Norm, ...]] = ("L1", "L2")
L2: Final[tuple[Norm, ...]] = ("L2",)
MEMBERS = ("columns", "queries", "stated", "size", "grid", "contribution", "check", "to_record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What holds for all questions of a kind: what each individual is held to, and how answers may move then.

    An engine enforces the `bounding` and adds up by `tally`. The contribution is known in the `norms`; one
    individual may lower an answer if they are `signed`, and is read by chance if they are `sampled`.
    """

    bounding: Bounding
    tally: Tally
    norms: tuple[Norm, ...]
    signed: bool
    sampled: bool


Codes = dict[str, NDArray[np.int64]]


class Adder(Protocol):
    """The running sums of one question that is streamed: it is shown the codes of bounded records."""

    def add(self, codes: Codes, weights: NDArray[np.int64] | None, *, rows: int) -> None:
        """Adds one batch: every record whole, or for its weight in units of 1 / table.grid."""

    def finish(self) -> NDArray[np.int64]:
        """The exact answers."""


class Question:
    """A kind of question about the cells of `columns`, or about sums of them by `queries`.

    Privacy: a class that leaves out a member cannot be made, so that nothing fails open.
    """

    __slots__ = ()

    stated: ClassVar[Stated]
    columns: tuple[str, ...]
    queries: Queries | None

    def __init_subclass__(cls) -> None:
        # Of the class alone: what it inherits was stated for another kind. Slots make the class anew, which
        # asks again and finds the same.
        known = {*vars(cls), *vars(cls).get("__annotations__", {})}
        streamed = getattr(vars(cls).get("stated"), "tally", None) == "streamed"
        missing = [name for name in (*MEMBERS, *(("start",) if streamed else ())) if name not in known]
        if missing:
            raise TypeError(f"question {cls.__name__} does not state {', '.join(missing)}")

    @property
    def tally(self) -> Tally:
        """How an engine adds it up."""
        return self.stated.tally

    def size(self, table: Table) -> int:
        """The number of answers."""
        raise NotImplementedError

    def grid(self, table: Table) -> int:
        """The denominator of the answers: they are whole multiples of 1 / grid."""
        raise NotImplementedError

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        raise NotImplementedError

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        raise NotImplementedError

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns; queries by their number and their digest."""
        raise NotImplementedError

    def start(self, table: Table) -> Adder:
        """What adds up its answers, if it is streamed."""
        raise NotImplementedError


def count_answers(self: Question, table: Table) -> int:
    """The number of answers: of cells, or of queries over them."""
    return table.cells(self.columns) if self.queries is None else self.queries.rows


def check_cells(self: Question, table: Table) -> None:
    """Raises an error if queries are over another number of cells than the columns have."""
    cells, queries = table.cells(self.columns), self.queries
    if queries is not None and queries.cells != cells:
        shown = " x ".join(self.columns)
        raise RecipeError(f"queries are over {queries.cells:,} cells, and {shown} has {cells:,}")
