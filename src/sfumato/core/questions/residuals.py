"""What records leave of a model: sums of residuals that it is fitted to, and how it does on others.

The model is given as whole numbers in lookup tables, its link too. So every engine computes the same
residual of a record, exactly, and clips it before it is added up, and puts a record into the same cell of
score and outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.questions.question import (
    BOTH,
    Codes,
    Question,
    Stated,
    add_records,
    check_cells,
    count_answers,
    count_grid,
    digest_numbers,
    tell_queries,
)

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.law import Norm
    from sfumato.core.questions.question import Queries

MOST_TERMS = 4096
LARGEST_CLIP = 2**20
_LARGEST_SCORE = 2**40
_LARGEST_TERM = 2**20
CONFIDENCE = 2**12
"""Where several scores compete, the share of the largest is in units of 1 / CONFIDENCE."""
_MOST_CELLS = 2**22


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
    size, grid = count_answers, count_grid

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
        # As terms of a model have one column or two.
        if len(self.columns) > 2 or len(set(self.columns)) != len(self.columns):
            raise RecipeError("residuals are added up by no column, one or two")
        if len(self.terms) > MOST_TERMS or abs(self.intercept) > _LARGEST_SCORE:
            raise RecipeError(f"a model has at most {MOST_TERMS:,} terms, and scores of at most 2^40")
        used = {self.target, *self.columns, *(name for term in self.terms for name in term.columns)}
        if len(set(self.known)) != len(self.known) or not used <= set(self.known):
            raise RecipeError("residuals use columns that their records need not have")

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        return self.clip * add_records(self, table, norm)

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns: its clip, and the digest of the model."""
        record: dict[str, Any] = {"clip": self.clip, "terms": len(self.terms), "sha256": self.digest}
        if self.absolute:
            record["absolute"] = True
        return {"residuals": record, **tell_queries(self)}

    @property
    def digest(self) -> str:
        """The SHA-256 of the model and its target, whole numbers all."""
        about: list[object] = [
            (self.target, self.intercept, self.known),
            *(each.columns for each in self.terms),
        ]
        parts = [self.targets, *(term.scores for term in self.terms)]
        if self.link is not None:
            about.append(self.link.low)
            parts.append(self.link.values)
        return digest_numbers(*parts, about=about)

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scorer:
    """A score: an intercept and the scores of all terms."""

    intercept: int
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcomes(Question):
    """The number of bounded records by group, by place of the prediction among `edges`, and by outcome.

    A prediction is the `link` of the one of `scorers`, without a link its score itself. It is in the place
    that the number of smaller edges gives. The outcome is targets[code of the target], 0 or 1; with
    `residual_edges` it is the place of the target less the prediction among these.

    With several scorers, one for each class, the class of the largest is predicted, of equal ones the first.
    Then the prediction is its part of the sum of all links, in units of 1 / CONFIDENCE, and the outcome is
    whether targets[code of the target] is that class.

    Only records with a code in every one of `columns` count. With `queries`, sums over the cells are
    answered.

    Privacy: as a marginal: one individual adds at most `table.contribution`, in both norms, since each of its
    records falls into one cell, whatever the model is; and no more to the answers of queries, whose columns
    have an L2 norm of at most 1. Proof: docs/proofs/parallel.md.
    """

    stated: ClassVar = Stated(bounding="records", tally="streamed", norms=BOTH, signed=False, sampled=False)
    grid, contribution = count_grid, add_records

    columns: tuple[str, ...]
    target: str
    targets: NDArray[np.int64]
    scorers: tuple[Scorer, ...]
    edges: NDArray[np.int64]
    link: Link | None = None
    residual_edges: NDArray[np.int64] | None = None
    group: str | None = None
    queries: Queries | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", freeze(self.targets, "the targets of outcomes"))
        for name in ("edges", "residual_edges"):
            given = getattr(self, name)
            if given is not None:
                edges = freeze(given, "edges") if np.asarray(given).size else np.empty(0, np.int64)
                if (np.diff(edges) <= 0).any():
                    raise RecipeError("the edges of outcomes must ascend")
                object.__setattr__(self, name, edges)
        terms = [term for scorer in self.scorers for term in scorer.terms]
        used = {self.target, *(name for term in terms for name in term.columns)}
        used |= set() if self.group is None else {self.group}
        if len(set(self.columns)) != len(self.columns) or not used <= set(self.columns):
            raise RecipeError("outcomes use columns that their records need not have")
        if not self.scorers or len(terms) > MOST_TERMS or len(self.scorers) > 1 > self.link_size:
            raise RecipeError(
                f"outcomes need a score, several of them a link, and at most {MOST_TERMS} terms"
            )
        if len(self.scorers) > 1 and self.residual_edges is not None and self.residual_edges.size:
            raise RecipeError("several scores are of classes, which have no residuals")
        if self.residual_edges is None and not 0 <= self.targets.min() <= self.targets.max() <= self.most:
            raise RecipeError("the outcomes of classes are 0 and 1, or the number of a class")

    @property
    def link_size(self) -> int:
        """The number of entries of the link."""
        return 0 if self.link is None else self.link.values.size

    @property
    def most(self) -> int:
        """The largest outcome that a record may have in `targets`, where these are classes."""
        return max(1, len(self.scorers) - 1)

    def shape(self, table: Table) -> tuple[int, int, int]:
        """The numbers of groups, of places of the prediction, and of outcomes."""
        groups = 1 if self.group is None else table.column(self.group).size
        outcomes = 2 if self.residual_edges is None else self.residual_edges.size + 1
        return groups, self.edges.size + 1, outcomes

    def cells(self, table: Table) -> int:
        """The number of cells."""
        return math.prod(self.shape(table))

    def size(self, table: Table) -> int:
        """The number of answers."""
        return self.cells(table) if self.queries is None else self.queries.rows

    def start(self, table: Table) -> OutcomeTally:
        """What counts the records that stream by."""
        return OutcomeTally(table, self)

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns: its cells and the digest of the model."""
        record: dict[str, Any] = {"scores": self.edges.size + 1, "sha256": self.digest}
        outcomes = record if self.group is None else {**record, "group": self.group}
        return {"outcomes": outcomes, **tell_queries(self)}

    @property
    def digest(self) -> str:
        """The SHA-256 of the model, its target and the edges, whole numbers all."""
        about: list[object] = [(self.target, self.columns, self.group)]
        parts = [self.targets, self.edges]
        if self.residual_edges is not None:
            parts.append(self.residual_edges)
        if self.link is not None:
            parts += [np.array([self.link.low]), self.link.values]
        for scorer in self.scorers:
            about.append((scorer.intercept, [term.columns for term in scorer.terms]))
            parts += [term.scores for term in scorer.terms]
        return digest_numbers(*parts, about=about)

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        if self.targets.size != table.column(self.target).size:
            raise RecipeError("outcomes need a number for every code of the target")
        for scorer in self.scorers:
            for term in scorer.terms:
                if term.scores.size != table.cells(term.columns):
                    raise RecipeError(f"the term of {' x '.join(term.columns)} needs a score for every cell")
        cells = self.cells(table)
        if self.queries is not None and self.queries.cells != cells:
            raise RecipeError(f"queries are over {self.queries.cells:,} cells, and outcomes have {cells:,}")
        if cells > _MOST_CELLS:
            raise RecipeError(
                f"outcomes are counted in at most {_MOST_CELLS:,} cells; groups has too many values"
            )


class OutcomeTally:
    """The running counts of one question.

    Privacy: a record adds its weight to one cell, which its own codes and the public model decide.
    """

    def __init__(self, table: Table, question: Outcomes) -> None:
        self._question = question
        self._sizes = {name: table.column(name).size for name in question.columns}
        self._shape = question.shape(table)
        self._grid = table.grid
        self._counts = np.zeros(question.cells(table), np.int64)

    def add(self, codes: Codes, weights: NDArray[np.int64] | None, *, rows: int) -> None:
        """Counts one batch: every record whole, or for its weight in units of 1 / grid."""
        question = self._question
        scores = [self._score(scorer, codes, rows) for scorer in question.scorers]
        targets = question.targets[codes[question.target]]
        if len(scores) > 1:
            predicted, outcomes = self._compete(scores, targets)
        else:
            predicted = scores[0] if question.link is None else question.link.apply(scores[0])
            outcomes = targets
        if question.residual_edges is not None:
            outcomes = np.searchsorted(question.residual_edges, targets - predicted)
        _, places, kinds = self._shape
        cells = np.searchsorted(question.edges, predicted) * kinds + outcomes
        if question.group is not None:
            cells = cells + codes[question.group].astype(np.int64) * (places * kinds)
        if weights is None:
            self._counts += np.bincount(cells, minlength=self._counts.size) * self._grid
        else:
            np.add.at(self._counts, cells, weights)  # in whole numbers, where bincount would add floats

    def finish(self) -> NDArray[np.int64]:
        """The counts of all cells, or with queries their answers."""
        queries = self._question.queries
        return self._counts if queries is None else queries.apply(self._counts)

    def _score(self, scorer: Scorer, codes: Codes, rows: int) -> NDArray[np.int64]:
        scores = np.full(rows, scorer.intercept, np.int64)
        for term in scorer.terms:
            cells = np.zeros(rows, np.int64)
            for name in term.columns:
                cells = cells * self._sizes[name] + codes[name]
            scores += term.scores[cells]
        return scores

    def _compete(
        self, scores: list[NDArray[np.int64]], targets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The part of the largest score of all, and whether its class is the right one."""
        link = self._question.link
        assert link is not None
        together = np.stack([link.apply(each) for each in scores])
        # Of the scores, not of the links, which may be flat where scores differ.
        best = np.argmax(np.stack(scores), axis=0)
        largest = np.take_along_axis(together, best[None], axis=0)[0]
        shares = largest * CONFIDENCE // np.maximum(together.sum(axis=0), 1)
        return shares, (targets == best).astype(np.int64)


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
