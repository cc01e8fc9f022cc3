"""Sums of residuals of a model so far: what an additive model is fitted to, term by term.

The model is given as whole numbers in lookup tables, its link too. So every engine computes the same
residual of a record, exactly, and clips it before it is added up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.questions.question import BOTH, Question, Stated, check_cells, count_answers

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.law import Norm
    from sfumato.core.questions.counts import Queries

MOST_TERMS = 4096
LARGEST_CLIP = 2**20
_LARGEST_SCORE = 2**40
_LARGEST_TERM = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """What a model adds to the score of a record, by its cell in one or two `columns`, row-major."""

    columns: tuple[str, ...]
    scores: NDArray[np.int64]

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= 2 or len(set(self.columns)) != len(self.columns):
            raise RecipeError("a term of a model has one column or two")
        object.__setattr__(self, "scores", freeze(self.scores, "the scores of a term"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Link:
    """What is predicted for a score: values[score - low], and the value at the end beyond it.

    >>> Link(low=-1, values=np.array([0, 5, 9])).apply(np.array([-7, 0, 1])).tolist()
    [0, 5, 9]
    """

    low: int
    values: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", freeze(self.values, "the values of a link"))

    def apply(self, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """The predictions for `scores`."""
        places = np.clip(scores - self.low, 0, self.values.size - 1)
        return np.asarray(self.values[places], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residuals(Question):
    """The sum over records, for every cell of `columns`, of what a model leaves of the `target`.

    The residual of a record is targets[code of the target] less the prediction: the link of the intercept
    and the scores of all `terms`, or without a link these themselves. With `absolute` its sign is left out.
    It is clipped to -clip ... clip after all rounding, since it is a whole number. Only records with a code
    in every column of `known` count, and an individual is bounded by its records there. No `columns` give
    one sum of all; with `queries` sums over the cells are answered.

    Privacy: one individual adds at most table.contribution * clip to the cells, in both norms, since each of
    its records adds at most clip times its weight to one cell; and no more to the answers of queries, whose
    columns have an L2 norm of at most 1. Proof: docs/proofs/additive.md.
    """

    stated: ClassVar = Stated(bounding="records", tally="residuals", norms=BOTH, signed=True, sampled=False)
    size = count_answers

    columns: tuple[str, ...]
    known: tuple[str, ...]
    target: str
    targets: NDArray[np.int64]
    clip: int
    intercept: int = 0
    terms: tuple[Term, ...] = ()
    link: Link | None = None
    absolute: bool = False
    queries: Queries | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", freeze(self.targets, "the targets of residuals"))
        if not isinstance(self.clip, int) or not 1 <= self.clip <= LARGEST_CLIP:
            raise RecipeError(f"residuals are clipped to a whole number from 1 to {LARGEST_CLIP:,}")
        if len(self.columns) > 2 or len(set(self.columns)) != len(self.columns):
            raise RecipeError("residuals are added up by no column, one or two")
        if len(self.terms) > MOST_TERMS or abs(self.intercept) > _LARGEST_SCORE:
            raise RecipeError(f"a model has at most {MOST_TERMS:,} terms, and scores of at most 2^40")
        used = {self.target, *self.columns, *(name for term in self.terms for name in term.columns)}
        if len(set(self.known)) != len(self.known) or not used <= set(self.known):
            raise RecipeError("residuals use columns that their records need not have")

    def grid(self, table: Table) -> int:
        """The denominator of the answers, beside the fixed point of the target."""
        return table.grid * (1 if self.queries is None else self.queries.grid)

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        return Fraction(self.clip * table.contribution * (1 if self.queries is None else self.queries.grid))

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns: its clip, and the digest of the model."""
        record: dict[str, Any] = {"clip": self.clip, "terms": len(self.terms), "sha256": self.digest}
        if self.absolute:
            record["absolute"] = True
        return {
            "residuals": record,
            **({} if self.queries is None else {"queries": self.queries.to_record()}),
        }

    @property
    def digest(self) -> str:
        """The SHA-256 of the model and its target, whole numbers all."""
        content = hashlib.sha256(repr((self.target, self.intercept, self.known)).encode())
        for term in self.terms:
            content.update(repr(term.columns).encode())
        parts: Iterable[NDArray[np.int64]] = (self.targets, *(term.scores for term in self.terms))
        if self.link is not None:
            content.update(repr(self.link.low).encode())
            parts = (*parts, self.link.values)
        for part in parts:
            content.update(part.astype("<i8").tobytes())
        return content.hexdigest()

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        sizes = {name: table.column(name).size for name in self.known}
        if self.targets.size != sizes[self.target]:
            raise RecipeError(f"residuals need a number for each of the {sizes[self.target]:,} targets")
        for term in self.terms:
            if term.scores.size != table.cells(term.columns):
                raise RecipeError(f"the term of {' x '.join(term.columns)} needs a score for every cell")
        largest = max(
            table.cells(columns) for columns in ((), self.columns, *(term.columns for term in self.terms))
        )
        check_cells(self, table)
        if largest > _LARGEST_TERM:
            raise RecipeError(f"residuals are added up over at most {_LARGEST_TERM:,} cells")


def freeze(
    values: object,
    what: str,
    *,
    dimensions: int = 1,
    least: int | None = None,
    most: int = _LARGEST_SCORE,
) -> NDArray[np.int64]:
    """Returns a copy of whole numbers from `least`, without one -most, to `most` that nobody can write to."""
    given = np.asarray(values)
    if given.dtype.kind not in "iu" or given.ndim != dimensions or not (given.size or dimensions > 1):
        raise RecipeError(f"{what} must be whole numbers")
    array = given.astype(np.int64)  # a copy: what was given may still be written to
    least = -most if least is None else least
    if array.size and not least <= int(array.min()) <= int(array.max()) <= most:
        raise RecipeError(f"{what} must lie from {least:,} to {most:,}")
    array.flags.writeable = False
    return array
