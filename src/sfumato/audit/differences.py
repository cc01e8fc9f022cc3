"""How far the vectors of neighbouring tables are apart, and what that makes of the noise on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.accounting import mu_to_epsilon

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.accounting import Cost
    from sfumato.audit.watch import Asked


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Moved:
    """By how much one request differs from that of a base table, where it does: places and amounts."""

    places: NDArray[np.int64]
    amounts: tuple[int, ...]

    def minus(self, other: Moved) -> Moved:
        """By how much two tables differ that were both compared with one base."""
        moved = dict(zip(self.places.tolist(), self.amounts, strict=True))
        for place, amount in zip(other.places.tolist(), other.amounts, strict=True):
            moved[place] = moved.get(place, 0) - amount
        kept = sorted((place, amount) for place, amount in moved.items() if amount)
        places = np.array([place for place, _ in kept], np.int64)
        return Moved(places=places, amounts=tuple(amount for _, amount in kept))

    @property
    def first(self) -> int:
        """The L1 norm."""
        return sum(abs(amount) for amount in self.amounts)

    @property
    def square(self) -> int:
        """The square of the L2 norm."""
        return sum(amount * amount for amount in self.amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one pair of tables shows of one request: pure epsilon, or the square of a Gaussian parameter."""

    epsilon: float = 0.0
    mu_squared: float = 0.0


def measure_move(base: Asked, other: Asked) -> Moved:
    """By how much `other` differs from `base`; both have the same terms.

    The groups of a selection have no names here, so vectors of different length are compared in order of
    size, which is the least they can differ by.
    """
    one, two = base.true_values, other.true_values
    if base.cells is not None and other.cells is not None:
        known = dict(zip(base.cells.tolist(), one.tolist(), strict=True))
        there = dict(zip(other.cells.tolist(), two.tolist(), strict=True))
        moved = {cell: there.get(cell, 0) - known.get(cell, 0) for cell in {*known, *there}}
        kept = sorted((cell, amount) for cell, amount in moved.items() if amount)
        places = np.array([cell for cell, _ in kept], np.int64)
        return Moved(places=places, amounts=tuple(amount for _, amount in kept))
    if one.shape != two.shape:
        size = max(one.size, two.size)
        one, two = (
            np.sort(np.concatenate([each, np.zeros(size - each.size, np.int64)])) for each in (one, two)
        )
    one, two = one.ravel(), two.ravel()
    places = np.flatnonzero(one != two)
    amounts = tuple(int(b) - int(a) for a, b in zip(one[places], two[places], strict=True))
    return Moved(places=places.astype(np.int64), amounts=amounts)


def measure_choice(scores: NDArray[np.int64], moved: Moved, rate: Fraction) -> tuple[Fraction, float]:
    """How much a choice tells two tables apart: the bound by the range of moved scores, and exactly."""
    candidates = scores.shape[1]
    bound, exact = Fraction(0), 0.0
    by_row: dict[int, dict[int, int]] = {}
    for place, amount in zip(moved.places.tolist(), moved.amounts, strict=True):
        by_row.setdefault(place // candidates, {})[place % candidates] = amount
    for row, amounts in by_row.items():
        all_moved = len(amounts) == candidates
        low = min(amounts.values()) if all_moved else min(0, *amounts.values(), 0)
        high = max(amounts.values()) if all_moved else max(0, *amounts.values(), 0)
        bound += rate * (high - low)
        base = [int(each) for each in scores[row]]
        other = [each + amounts.get(index, 0) for index, each in enumerate(base)]
        logs = [_log_chances(each, rate) for each in (base, other)]
        exact += float(np.abs(logs[0] - logs[1]).max())
    return bound, exact


def find_excess(asked: Asked, moved: Moved, cost: Cost) -> str | None:
    """How a request breaks what its cost declares, or None; in exact arithmetic."""
    if asked.kind == "choice":
        bound, _ = measure_choice(asked.true_values, moved, asked.scale)
        if bound > cost.scale:
            return f"scores move by epsilon {float(bound):.6g}, declared {float(cost.scale):.6g}"
        return None
    if cost.norm == "L2":
        if moved.square > cost.sensitivity**2:
            return f"L2 distance {math.sqrt(moved.square):.6g}, declared {float(cost.sensitivity):.6g}"
    elif moved.first > cost.sensitivity:
        return f"L1 distance {moved.first}, declared {float(cost.sensitivity):.6g}"
    return None


def loss_of(asked: Asked, moved: Moved) -> Loss:
    """The privacy loss that a request shows on a pair."""
    if asked.kind == "choice":
        return Loss(epsilon=measure_choice(asked.true_values, moved, asked.scale)[1])
    if asked.kind == "gaussian":
        return Loss(mu_squared=float(Fraction(moved.square) / asked.scale**2))
    return Loss(epsilon=float(moved.first / asked.scale))


def add_losses(asked: Sequence[Asked], moved: Sequence[Moved], *, delta: float, pure: bool = True) -> float:
    """The epsilon that all requests together show on a pair, from below.

    Pure losses add up. Gaussian ones add up in squares and are read at `delta`; without delta there is no
    finite epsilon. Of a mixture, the larger of the two counts. Where the claim rests on delta for pure
    losses too, their plain sum proves nothing and is left out (`pure` is False).
    """
    losses = [loss_of(request, move) for request, move in zip(asked, moved, strict=True)]
    plain = sum(each.epsilon for each in losses) if pure else 0.0
    squares = sum(each.mu_squared for each in losses)
    if squares == 0:
        return plain
    return max(plain, mu_to_epsilon(math.sqrt(squares), delta) if delta > 0 else math.inf)


def _log_chances(scores: list[int], rate: Fraction) -> NDArray[np.float64]:
    most = max(scores)
    below = np.array([float(most - each) for each in scores])
    logs = -np.minimum(float(rate) * below, 1e6)
    return np.asarray(logs - np.log(np.exp(logs).sum()))
