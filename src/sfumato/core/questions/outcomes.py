"""How a model does on records that it was not fitted to: their number by score and by outcome.

As for residuals, the model is given as whole numbers in lookup tables, so that every engine puts a record
into the same cell.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.questions.question import BOTH, Question, Stated
from sfumato.core.questions.residuals import MOST_TERMS, Link, Term, freeze

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.law import Norm
    from sfumato.core.questions.counts import Queries

CONFIDENCE = 2**12
"""Where several scores compete, the share of the largest is in units of 1 / CONFIDENCE."""
_MOST_CELLS = 2**22


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

    def grid(self, table: Table) -> int:
        """The denominator of the answers."""
        return table.grid * (1 if self.queries is None else self.queries.grid)

    def cells(self, table: Table) -> int:
        """The number of cells."""
        return math.prod(self.shape(table))

    def size(self, table: Table) -> int:
        """The number of answers."""
        return self.cells(table) if self.queries is None else self.queries.rows

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        return Fraction(table.contribution * (1 if self.queries is None else self.queries.grid))

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns: its cells and the digest of the model."""
        record: dict[str, Any] = {"scores": self.edges.size + 1, "sha256": self.digest}
        queries = {} if self.queries is None else {"queries": self.queries.to_record()}
        return {"outcomes": record if self.group is None else {**record, "group": self.group}, **queries}

    @property
    def digest(self) -> str:
        """The SHA-256 of the model, its target and the edges, whole numbers all."""
        content = hashlib.sha256(repr((self.target, self.columns, self.group)).encode())
        parts = [self.targets, self.edges]
        if self.residual_edges is not None:
            parts.append(self.residual_edges)
        if self.link is not None:
            parts += [np.array([self.link.low]), self.link.values]
        for scorer in self.scorers:
            content.update(repr((scorer.intercept, [term.columns for term in scorer.terms])).encode())
            parts += [term.scores for term in scorer.terms]
        for part in parts:
            content.update(part.astype("<i8").tobytes())
        return content.hexdigest()

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
