"""Numbers of records by score and outcome, by numpy as the codes of bounded records stream by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.engine.base import TrueCounts
from sfumato.core.engine.moments import MomentTally
from sfumato.core.questions.moments import Moments
from sfumato.core.questions.outcomes import CONFIDENCE, Outcomes, Scorer

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

Codes = dict[str, NDArray[np.int64]]


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
            np.add.at(self._counts, cells, weights)

    def finish(self) -> TrueCounts:
        """The counts of all cells, or with queries their answers."""
        queries = self._question.queries
        values = self._counts if queries is None else queries.apply(self._counts)
        return TrueCounts(self._question.columns, values)

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
        best = np.argmax(np.stack(scores), axis=0)
        largest = np.take_along_axis(together, best[None], axis=0)[0]
        shares = largest * CONFIDENCE // np.maximum(together.sum(axis=0), 1)
        return shares, (targets == best).astype(np.int64)


def make_tally(table: Table, question: Moments | Outcomes) -> MomentTally | OutcomeTally:
    """The running sums or counts of `question`."""
    return MomentTally(table, question) if isinstance(question, Moments) else OutcomeTally(table, question)
