"""Sums of residuals, by numpy over codes that are at hand; servers add them up by SQL.

Both compute with whole numbers only, so that all engines give the same sums. Proof: docs/proofs/additive.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.engine.base import TrueCounts
from sfumato.core.exact import Withheld

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.questions.residuals import Residuals, Term


class BoundedCodes(Withheld):
    """The codes of bounded records, and their weights in units of 1 / grid where these are not all one.

    It keeps the scores of the last model that was asked about: the next one differs from it in a term or
    two. Never leaves the private room.
    """

    def __init__(self, codes: Mapping[str, NDArray[Any]], weights: NDArray[np.int64] | None) -> None:
        self._codes = codes
        self._weights = weights
        self._rows = len(next(iter(codes.values()))) if codes else 0
        self._scores = np.zeros(self._rows, np.int64)
        self._terms: dict[tuple[str, ...], Term] = {}

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return sum(each.nbytes for each in self._codes.values()) + 2 * self._scores.nbytes

    def add(self, sums: NDArray[np.int64], question: Residuals, table: Table) -> None:
        """Adds the clipped residuals of all records to `sums`, each to the cell of its record.

        Privacy: what a record adds is at most clip times its weight, whatever the model and the record are.
        """
        scores = self._score(question, table) + question.intercept
        predicted = scores if question.link is None else question.link.apply(scores)
        residuals = question.targets[self._codes[question.target]] - predicted
        if question.absolute:
            residuals = np.abs(residuals)
        residuals = np.clip(residuals, -question.clip, question.clip)
        residuals = residuals * (table.grid if self._weights is None else self._weights)
        if not question.columns:
            sums[0] += residuals.sum()
            return
        cells = self._cells(question.columns, table)
        # Sums below 2^53 are exact in the floats of bincount.
        if question.clip * table.contribution < 2**53 // max(1, self._rows):
            sums += np.bincount(cells, weights=residuals, minlength=sums.size).astype(np.int64)
        else:
            np.add.at(sums, cells, residuals)

    def _score(self, question: Residuals, table: Table) -> NDArray[np.int64]:
        wanted = {term.columns: term for term in question.terms}
        if len(wanted) != len(question.terms):  # two terms of the same columns
            self._terms, self._scores = {}, np.zeros(self._rows, np.int64)
            return sum(
                (term.scores[self._cells(term.columns, table)] for term in question.terms), self._scores
            )
        for columns in {**self._terms, **wanted}:
            old, new = self._terms.get(columns), wanted.get(columns)
            if old is new or (old is not None and new is not None and old.scores is new.scores):
                continue
            size = table.cells(columns)
            change = np.zeros(size, np.int64) if new is None else new.scores
            change = change if old is None else change - old.scores
            if change.any():
                self._scores = self._scores + change[self._cells(columns, table)]
        self._terms = wanted
        return self._scores

    def _cells(self, columns: tuple[str, ...], table: Table) -> NDArray[Any]:
        if len(columns) == 1:
            return self._codes[columns[0]]
        first, second = columns
        cells = self._codes[first].astype(np.int64) * table.column(second).size
        return np.asarray(cells + self._codes[second])


def sum_residuals(question: Residuals, table: Table, parts: Iterable[BoundedCodes]) -> TrueCounts:
    """The sums of all parts, or the answers of queries over them."""
    sums = np.zeros(table.cells(question.columns), np.int64)
    for part in parts:
        part.add(sums, question, table)
    return finish_sums(question, sums)


def finish_sums(question: Residuals, sums: NDArray[np.int64]) -> TrueCounts:
    """The sums, or with queries their answers."""
    if question.queries is not None:
        sums = question.queries.apply(sums)
    return TrueCounts(question.columns, sums)
