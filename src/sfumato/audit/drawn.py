"""Layer 3 for what the curator answers: the worst pair of layer 1, with noise drawn on it many times.

Only the values that differ between the tables are drawn: the others have the same law on both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.audit.observe import Sample, lowest_bits
from sfumato.noise import add_noise, exponential_choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.audit.differences import Moved
    from sfumato.audit.watch import Asked
    from sfumato.noise import Kind

_MOST_VALUES = 512
_LEAST, _MOST = -(2**63), 2**63 - 1


def draw_sides(asked: Sequence[Asked], moves: Sequence[Moved], *, runs: int) -> tuple[Sample, Sample]:
    """Samples of `runs` noisy answers without and with the individual."""
    columns: tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]] = ([], [])
    left = _MOST_VALUES
    for request, moved in zip(asked, moves, strict=True):
        if not moved.amounts or left <= 0:
            continue
        if request.kind == "choice":
            drawn = _draw_choices(request, moved, runs)
        else:
            drawn = _draw_values(request, moved, runs, most=left)
        left -= drawn[0].shape[1]
        for side in (0, 1):
            columns[side].append(drawn[side])
    return _make_sample(columns[0], runs), _make_sample(columns[1], runs)


def _draw_values(
    asked: Asked, moved: Moved, runs: int, *, most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    order = sorted(range(len(moved.amounts)), key=lambda place: -abs(moved.amounts[place]))[:most]
    places = moved.places[order]
    if asked.cells is not None:
        known = dict(zip(asked.cells.tolist(), asked.true_values.tolist(), strict=True))
        without = [known.get(place, 0) for place in places.tolist()]
    elif int(places.max()) < asked.true_values.size:
        without = asked.true_values.ravel()[places].tolist()
    else:
        without = [0] * len(order)
    with_person = [
        min(max(value + moved.amounts[place], _LEAST), _MOST)
        for value, place in zip(without, order, strict=True)
    ]
    kind: Kind = "gaussian" if asked.kind == "gaussian" else "laplace"
    sides = []
    for values in (without, with_person):
        tiled = np.tile(np.array(values, np.int64), (runs, 1))
        sides.append(add_noise(tiled, kind=kind, scale=asked.scale).astype(np.float64))
    return sides[0], sides[1]


def _draw_choices(asked: Asked, moved: Moved, runs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    candidates = asked.true_values.shape[1]
    rows = sorted({place // candidates for place in moved.places.tolist()})[:8]
    with_person = asked.true_values.copy()
    for place, amount in zip(moved.places.tolist(), moved.amounts, strict=True):
        row, candidate = divmod(place, candidates)
        with_person[row, candidate] = min(max(int(with_person[row, candidate]) + amount, _LEAST), _MOST)
    runs_at_once = max(1, 2**22 // candidates)
    sides = []
    for scores in (asked.true_values, with_person):
        columns = []
        for row in rows:
            parts = [
                exponential_choice(
                    np.tile(scores[row], (min(runs_at_once, runs - start), 1)), rate=asked.scale
                )
                for start in range(0, runs, runs_at_once)
            ]
            columns.append(np.concatenate(parts).astype(np.float64))
        sides.append(np.stack(columns, axis=1))
    return sides[0], sides[1]


def _make_sample(columns: list[NDArray[np.float64]], runs: int) -> Sample:
    numbers = np.concatenate(columns, axis=1) if columns else np.zeros((runs, 1))
    summaries = np.stack(
        [
            np.full(runs, float(numbers.shape[1])),
            numbers.sum(axis=1),
            numbers.max(axis=1),
            numbers.min(axis=1),
            lowest_bits(numbers).min(axis=1),
        ],
        axis=1,
    )
    names = tuple(f"[{place}]" for place in range(numbers.shape[1]))
    return Sample(runs, numbers, names, summaries, {})
