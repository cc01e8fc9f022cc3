"""Marginalising and spreading tables along their axes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.inference.kernels import add_over, multiply_over, sum_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.inference.domain import Domain

Columns = tuple[str, ...]
Pattern = tuple[int, int, int, int, int, int]

_PAIRS = 3


class Step:
    """One kernel call: from a table to a smaller one, or back."""

    __slots__ = ("cells", "pattern")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.cells = pattern[0] * pattern[2] * pattern[4]


@lru_cache(maxsize=65536)
def _steps(shape: tuple[int, ...], kept: tuple[bool, ...]) -> tuple[Step, ...]:
    groups: list[list[int]] = []  # alternately kept and summed, beginning with kept
    for size, keep in zip(shape, kept, strict=True):
        if size == 1:
            continue
        side = 0 if keep else 1
        if not groups:
            groups = [[1], [1]][: side + 1]
            groups[-1][0] = size
        elif (len(groups) - 1) % 2 == side:
            groups[-1][0] *= size
        else:
            groups.append([size])
    sizes = [group[0] for group in groups]
    if len(sizes) % 2:
        sizes.append(1)
    if len(sizes) <= 2 * _PAIRS:
        padded = [1] * (2 * _PAIRS - len(sizes)) + sizes
        return (Step((padded[0], padded[1], padded[2], padded[3], padded[4], padded[5])),)
    # Too many turns for one call: the last summed axes go first, then the rest.
    last = next(place for place in range(len(shape) - 1, -1, -1) if not kept[place] and shape[place] > 1)
    first = last
    while first > 0 and (not kept[first - 1] or shape[first - 1] == 1):
        first -= 1
    mask = tuple(not first <= place <= last for place in range(len(shape)))
    rest = tuple(place for place in range(len(shape)) if mask[place])
    return (
        *_steps(shape, mask),
        *_steps(tuple(shape[place] for place in rest), tuple(kept[place] for place in rest)),
    )


def find_steps(domain: Domain, columns: Columns, kept: Columns) -> tuple[Step, ...]:
    """The kernel calls from a table over `columns` to its marginal over `kept`, in the same order."""
    wanted = set(kept)
    return _steps(domain.shape(columns), tuple(name in wanted for name in columns))


def marginalise(
    table: NDArray[np.float64], steps: tuple[Step, ...], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The marginal of the flat `table`."""
    for place, step in enumerate(steps):
        final = place == len(steps) - 1
        target = out if final and out is not None else np.empty(step.cells)
        sum_out(table, step.pattern, target)
        table = target
    return table


def spread(small: NDArray[np.float64], steps: tuple[Step, ...], table: NDArray[np.float64]) -> None:
    """Adds the marginal `small` to every cell of `table` that it covers."""
    for place in range(len(steps) - 1, 0, -1):
        wider = np.zeros(steps[place - 1].cells)
        add_over(small, steps[place].pattern, wider)
        small = wider
    add_over(small, steps[0].pattern, table)


def rearrange(values: NDArray[Any], names: Columns, wanted: Columns, shape: tuple[int, ...]) -> NDArray[Any]:
    """The flat table `values` of columns `names`, of this `shape`, with the columns in the order `wanted`."""
    if names == wanted:
        return values
    axes = [names.index(name) for name in wanted]
    return np.ascontiguousarray(values.reshape(shape).transpose(axes)).reshape(-1)


def multiply(small: NDArray[np.float64], steps: tuple[Step, ...], table: NDArray[np.float64]) -> None:
    """Multiplies every cell of `table` by its entry of the marginal `small`."""
    for place in range(len(steps) - 1, 0, -1):
        wider = np.zeros(steps[place - 1].cells)
        add_over(small, steps[place].pattern, wider)
        small = wider
    multiply_over(small, steps[0].pattern, table)
