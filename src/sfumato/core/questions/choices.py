"""What may be chosen privately: a marginal, the norm of a contribution, a bound on records.

Each kind of choice scores its candidates from exact counts and states the rate at which the exponential
mechanism may be driven: epsilon over twice the most that one individual moves a score. Scores are clamped
to 64 bits, which moves neighbouring ones no further apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_positive
from sfumato.core.questions.counts import Marginal, find_sensitivity, refuse_no_norm
from sfumato.core.questions.question import BOTH, Queries, Question, Stated

if TYPE_CHECKING:
    from sfumato.core.facts.part import Part
    from sfumato.core.facts.table import Table

_LARGEST_ESTIMATE = 2.0**60
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A marginal that competes in a choice by how far its counts are from a public estimate of them.

    The score is weight * (L1 distance between counts and estimate) - penalty, all in whole units of
    1 / grid of the table. `estimate` is called when the score is needed, so that estimates of many
    marginals need not lie in memory together. With `queries`, which must be plain sums of different
    cells, sums and their estimates are compared in place of cells.
    """

    columns: tuple[str, ...]
    estimate: Callable[[], NDArray[np.int64]]
    weight: int = 1
    penalty: int = 0
    queries: Queries | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.weight, int) or not isinstance(self.penalty, int) or self.weight < 1:
            # A score of a fraction would move by a whole step where less was priced.
            raise RecipeError("the weight of a candidate must be a whole number of at least 1")
        # Sums of different cells move by no more than the cells, in L1.
        if self.queries is not None and not self.queries.is_partition:
            raise RecipeError("the queries of a candidate must be sums of different cells with weight 1")

    def read_estimate(self, size: int) -> NDArray[np.int64]:
        """The public estimate of its counts, of which there are `size`."""
        estimate = self.estimate()
        if not isinstance(estimate, np.ndarray) or estimate.dtype != np.int64 or estimate.shape != (size,):
            raise RecipeError(
                f"the estimate of {' x '.join(self.columns)} must be {size:,} whole numbers of 64 bits"
            )
        # Beyond it a distance from a count could leave 64 bits, and would be taken for a small one.
        if np.abs(estimate.astype(np.float64)).max() > _LARGEST_ESTIMATE:
            raise RecipeError(f"the estimate of {' x '.join(self.columns)} holds a number beyond 2^60")
        return estimate

    def score(self, true_values: NDArray[np.int64]) -> int:
        """The score, from its exact counts or sums."""
        distance = measure_distance(true_values, self.read_estimate(true_values.size))
        return _clamp(self.weight * distance - self.penalty)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Marginals of which one is to be chosen, the farther from its estimate the more likely.

    Privacy: one individual moves each score by at most the largest weight times its contribution, so
    the exponential mechanism at `epsilon` has the cost of kind "exponential" (docs/proofs/choice.md).
    """

    name: str
    candidates: tuple[Candidate, ...]
    epsilon: Fraction
    part: Part | None = None

    def __post_init__(self) -> None:
        parse_positive(self.epsilon, name=f"the epsilon of {self.name!r}")
        if not self.candidates:
            raise RecipeError(f"choice {self.name!r} has no candidate")

    @property
    def options(self) -> int:
        """The number of candidates."""
        return len(self.candidates)

    def rate(self, table: Table) -> Fraction:
        """The rate of the exponential mechanism: epsilon over twice the sensitivity of a score."""
        # The same for all candidates: sums of different cells move by no more than the cells.
        sensitivity = find_sensitivity(table, Marginal(self.candidates[0].columns), norm="L1")
        return self.epsilon / (2 * max(each.weight for each in self.candidates) * sensitivity)

    def score(self, true_values: Iterable[NDArray[np.int64]]) -> list[int]:
        """The scores of the candidates, from their exact counts or sums."""
        return [each.score(counts) for each, counts in zip(self.candidates, true_values, strict=True)]

    def check(self, table: Table) -> None:
        """Raises an error about public facts if a candidate does not fit `table`."""
        for each in self.candidates:
            table.cells(each.columns)

    def to_record(self) -> dict[str, Any]:
        """The choice as a plain record, without its estimates."""
        return {
            "name": self.name,
            "candidates": [list(each.columns) for each in self.candidates],
            "epsilon": self.epsilon,
            **({} if self.part is None else {"part": self.part.name}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NormChoice:
    """L2 norms, ascending, of which one is to be chosen: about `quantile` of all individuals are within it.

    An individual is within a norm if its contribution to the marginal of `columns` is.

    Privacy: with quantile = a / b, a norm scores -|(b - a) * (individuals within) - a * (the others)|,
    which one individual moves by at most max(a, b - a), or b if it is replaced (docs/proofs/choice.md).
    """

    stated: ClassVar[Stated] = Stated(bounding="norm", tally="within", norms=BOTH, signed=True, sampled=False)

    name: str
    columns: tuple[str, ...]
    norms: tuple[Fraction, ...]
    quantile: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        parse_positive(self.epsilon, name=f"the epsilon of {self.name!r}")
        if not self.norms or list(self.norms) != sorted(set(self.norms)) or self.norms[0] <= 0:
            raise RecipeError(f"choice {self.name!r} needs norms above zero, ascending")
        if not 0 < self.quantile < 1:
            raise RecipeError(f"the quantile of {self.name!r} must lie between 0 and 1")

    @property
    def options(self) -> int:
        """The number of candidates."""
        return len(self.norms)

    def rate(self, table: Table) -> Fraction:
        """The rate of the exponential mechanism: epsilon over twice the sensitivity of a score.

        With quantile a / b, one individual more adds 1 to the number of all and 0 or 1 to that within, which
        moves a score by at most max(a, b - a); one in place of another, by b.
        """
        a, b = self.quantile.numerator, self.quantile.denominator
        return self.epsilon / (2 * (b if table.unit.neighbours == "replace" else max(a, b - a)))

    def score(self, true_within: NDArray[np.int64]) -> list[int]:
        """The scores of the norms, from the numbers of individuals within each, then that of all."""
        a, b = self.quantile.numerator, self.quantile.denominator
        *within, everybody = true_within.tolist()
        assert len(within) == len(self.norms)
        return [_clamp(-abs(b * each - a * everybody)) for each in within]

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        refuse_no_norm(table)
        table.cells(self.columns)

    def to_record(self) -> dict[str, Any]:
        """The choice as a plain record."""
        return {
            "name": self.name,
            "columns": list(self.columns),
            "norms": list(self.norms),
            "quantile": self.quantile,
            "epsilon": self.epsilon,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A choice and the index of the candidate that was drawn."""

    choice: Choice | NormChoice
    index: int

    @property
    def ask(self) -> Choice | NormChoice:
        """What this is the answer to."""
        return self.choice


AnyChoice = Choice | NormChoice
AnyQuestion = Question | NormChoice
"""What an engine answers exactly; a choice among marginals needs the counts of these."""


def measure_distance(true_counts: NDArray[np.int64], estimate: NDArray[np.int64]) -> int:
    """The L1 distance, exactly: the halves of 2^27 words of 64 bits add up below 2^63."""
    # The least number has no absolute value, but read without a sign it is the right one.
    gaps = np.abs(true_counts - estimate).view(np.uint64)
    low = int((gaps & np.uint64(2**32 - 1)).sum())
    return (int((gaps >> np.uint64(32)).sum()) << 32) + low


def _clamp(score: int) -> int:
    return min(max(score, _LEAST), _MOST)
