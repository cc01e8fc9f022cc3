"""A noise source that watches: what was about to be noised, with which noise, and what was answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato.exact import parse_positive
from sfumato.noise import add_noise, add_sparse_noise, exponential_choice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.exact import ExactLike
    from sfumato.noise import Kind

Mode = Literal["off", "on"]

# Groups that only the records know: those of one individual are never told, all others always.
_TOLD = 2**40


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Asked:
    """One request for noise: exact values on their way to it. Never leaves the audit."""

    kind: Literal["laplace", "gaussian", "sparse", "choice"]
    scale: Fraction
    true_values: NDArray[np.int64]
    cells: NDArray[np.int64] | None = None
    size: int = 0
    threshold: int = 0

    @property
    def terms(self) -> tuple[object, ...]:
        """What neighbours must have in common."""
        shape = () if self.cells is not None else self.true_values.shape
        return (self.kind, self.scale, shape, self.size, self.threshold)


Given = tuple["NDArray[np.int64]", "NDArray[np.int64] | None"]


@dataclass(slots=True, eq=False)
class Watch:
    """A noise source for made-up tables.

    With `answers`, it gives these in their order, so that a conversation takes the course it took before.
    Otherwise it adds nothing (`off`) or draws as the package does (`on`). `selections` are the turns on
    which groups are chosen by their number of individuals.
    """

    mode: Mode = "off"
    answers: Sequence[Given] | None = None
    selections: frozenset[int] = frozenset()
    asked: list[Asked] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)

    def add_noise(self, values: NDArray[np.int64], *, kind: Kind, scale: ExactLike) -> NDArray[np.int64]:
        """`values` with noise, without, or what was answered before."""
        turn = len(self.asked)
        exact = parse_positive(scale, name="scale")
        # The groups of a selection come in any order, and without their names.
        true_values = np.sort(values) if turn in self.selections else values.copy()
        self.asked.append(Asked(kind=kind, scale=exact, true_values=true_values))
        if turn in self.selections and self.mode == "off":
            answer = np.where(values >= 2, _TOLD, -_TOLD)
        else:
            kept = self._kept(turn)
            if kept is not None and kept[1] is None and kept[0].shape == values.shape:
                answer = kept[0].copy()
            elif self.mode == "on":
                answer = add_noise(values, kind=kind, scale=scale)
            else:
                answer = values.copy()
        self.given.append((answer.copy(), None))
        return answer

    def add_sparse_noise(
        self,
        cells: NDArray[np.int64],
        values: NDArray[np.int64],
        *,
        size: int,
        scale: ExactLike,
        threshold: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cells that reach the threshold with noise, without, or that did before."""
        turn = len(self.asked)
        exact = parse_positive(scale, name="scale")
        self.asked.append(
            Asked(
                kind="sparse",
                scale=exact,
                true_values=values.copy(),
                cells=cells.copy(),
                size=size,
                threshold=threshold,
            )
        )
        kept = self._kept(turn)
        if kept is not None and kept[1] is not None:
            found, amounts = kept[1], kept[0]
        elif self.mode == "on":
            found, amounts = add_sparse_noise(cells, values, size=size, scale=scale, threshold=threshold)
        else:
            found, amounts = cells[values >= threshold], values[values >= threshold]
        self.given.append((amounts.copy(), found.copy()))
        return found.copy(), amounts.copy()

    def exponential_choice(self, scores: NDArray[np.int64], *, rate: ExactLike) -> NDArray[np.int64]:
        """An index for every row: drawn, the best, or what was answered before."""
        turn = len(self.asked)
        self.asked.append(
            Asked(kind="choice", scale=parse_positive(rate, name="rate"), true_values=scores.copy())
        )
        kept = self._kept(turn)
        if kept is not None and kept[1] is None and kept[0].shape == scores.shape[:1]:
            answer = kept[0].copy()
        elif self.mode == "on":
            answer = exponential_choice(scores, rate=rate)
        else:
            answer = scores.argmax(axis=1)
        self.given.append((answer.copy(), None))
        return answer

    def _kept(self, turn: int) -> Given | None:
        return self.answers[turn] if self.answers is not None and turn < len(self.answers) else None
