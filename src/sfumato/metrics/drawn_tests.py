"""Tests of the 2018 match, drawn from a public seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sfumato.errors import MetricError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_TRIPLES = 100
_BASE_ROWS = 300
_KEPT = 0.1
_BATCH = 1024


class Condition(NamedTuple):
    """A column and the values that pass."""

    column: str
    allowed: NDArray[np.int64]


def draw_triples(names: Sequence[str], *, seed: int, count: int = _TRIPLES) -> list[tuple[str, ...]]:
    """`count` triples of different columns; the last column is never drawn, as in the contest.

    >>> draw_triples(("a", "b", "c", "d"), seed=0, count=1)
    [('c', 'a', 'b')]
    """
    if len(names) < 4:
        raise MetricError("truth needs at least four columns to draw triples from all but the last")
    generator = np.random.default_rng([seed, 1])
    return [
        tuple(names[place] for place in generator.permutation(len(names) - 1)[:3].tolist())
        for _ in range(count)
    ]


def draw_conjunctions(
    truth: Mapping[str, NDArray[np.int64]], sizes: Mapping[str, int], *, seed: int, rows: int = _BASE_ROWS
) -> list[tuple[Condition, ...]]:
    """One test per distinct base row: some columns, each with the row's value and further drawn ones.

    A column enters with probability 0.1. Values are added to its allowed set until one is drawn that
    the set has already.
    """
    generator = np.random.default_rng([seed, 2])
    records = next(iter(truth.values())).size
    base = np.unique(generator.integers(0, records, size=rows))
    return [
        tuple(
            Condition(name, _draw_allowed(int(codes[row]), sizes[name], generator))
            for name, codes in truth.items()
            if generator.random() < _KEPT
        )
        for row in base.tolist()
    ]


def _draw_allowed(value: int, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
    drawn = np.array([value], np.int64)
    while True:
        drawn = np.concatenate([drawn, generator.integers(0, size, size=_BATCH)])
        _, first = np.unique(drawn, return_index=True)
        if first.size < drawn.size:  # cut before the first value that was drawn a second time
            repeated = np.ones(drawn.size, np.bool_)
            repeated[first] = False
            return drawn[: int(np.argmax(repeated))]
