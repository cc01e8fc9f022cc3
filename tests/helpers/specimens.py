"""Mechanisms that promise more than they keep, each with its claim and the truth, for audits to catch.

None is fit for anything else. They draw from the package's own entropy; what is wrong with each is not its
randomness but what it does with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from sfumato.core.noise.choice import exponential_choice
from sfumato.core.noise.entropy import KeyStream
from sfumato.core.noise.samplers import add_noise, discrete_laplace

SPECIMENS: list[Specimen] = []

_CELLS = 20
_CANDIDATES = 3
_Mechanism = TypeVar("_Mechanism", bound=Callable[[Any], Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A mechanism, neighbouring tables that show its fault, what it claims and what is true.

    `truth` is the least epsilon that holds for all tables with a person's records as in `neighbours`.
    """

    name: str
    mechanism: Callable[[Any], Any]
    neighbours: tuple[Any, Any]
    claim: float = 1.0
    truth: float
    fault: str


def _specimen(name: str, **facts: Any) -> Callable[[_Mechanism], _Mechanism]:
    """Puts the decorated mechanism on the list of specimens."""

    def register(mechanism: _Mechanism) -> _Mechanism:
        SPECIMENS.append(Specimen(name=name, mechanism=mechanism, **facts))
        return mechanism

    return register


def _draw_uniform() -> float:
    """Returns a multiple of 2^-53 in [0, 1), as floating-point generators give it."""
    word = np.empty(1, np.uint64)
    KeyStream().fill(word)
    return float(word[0] >> np.uint64(11)) * 2.0**-53


@_specimen(
    "SynCity as written",
    neighbours=(list(range(_CELLS)), []),
    truth=20.0,
    fault="noise for one cell, a person in 20",
)
def syncity_as_written(cells: Sequence[int]) -> np.ndarray[Any, Any]:
    """Returns counts of records in 20 cells with noise of scale 1, as if a person were in one cell only."""
    counts = np.bincount(np.array(cells, np.int64), minlength=_CELLS).astype(np.int64)
    return add_noise(counts, kind="laplace", scale=1)


@_specimen(
    "half the scale",
    neighbours=([1, 2, 3], [1, 2]),
    truth=2.0,
    fault="Laplace noise with half the scale needed",
)
def half_scale(table: Sequence[Any]) -> int:
    """Returns the number of records with half of the noise that epsilon 1 needs."""
    return len(table) + int(discrete_laplace(scale=Fraction(1, 2), size=1)[0])


@_specimen(
    "exponential mechanism without the 2",
    neighbours=([(1, 2)] * 3 + [(0, 1)], [(1, 2)] * 3),
    truth=2.0,
    fault="no factor 2 on scores that move both ways",
)
def exponential_without_two(votes: Sequence[tuple[int, int]]) -> int:
    """Chooses a candidate by votes for and against at rate epsilon: its range is twice that.

    Each vote raises one score and lowers another, so scores move by 1 in both directions.
    """
    scores = np.zeros((1, _CANDIDATES), np.int64)
    for liked, disliked in votes:
        scores[0, liked] += 1
        scores[0, disliked] -= 1
    return int(exponential_choice(scores, rate=1)[0])


@_specimen(
    "Laplace noise in floating point",
    neighbours=([1], []),
    truth=math.inf,
    fault="the last bits tell what the noise was added to",
)
def float_laplace(table: Sequence[Any]) -> float:
    """Returns the number of records plus Laplace noise in floating point, by the formula that numpy uses."""
    uniform = _draw_uniform()
    if uniform >= 0.5:
        return len(table) - math.log(2.0 - uniform - uniform)
    return len(table) + math.log(uniform + uniform)


@_specimen(
    "unbounded contribution",
    neighbours=([("ana", 10)] * 8 + [("ben", 4)], [("ben", 4)]),
    truth=8.0,
    fault="a person's records are not bounded",
)
def unbounded_sum(records: Sequence[tuple[str, int]]) -> int:
    """Returns the sum of amounts with noise for one record of 10 at most, though a person may have many."""
    total = sum(min(max(amount, 0), 10) for _, amount in records)
    return total + int(discrete_laplace(scale=10, size=1)[0])


@_specimen(
    "error that tells",
    neighbours=([30, 40, 200], [30, 40]),
    truth=math.inf,
    fault="an error message depends on a record",
)
def leaking_error(ages: Sequence[int]) -> int:
    """Returns a noisy count that fails, with a message, on a record it does not understand."""
    for place, age in enumerate(ages):
        if age > 120:
            raise ValueError(f"age {age} of record {place} is out of range")
    return len(ages) + int(discrete_laplace(scale=1, size=1)[0])


@_specimen(
    "RAPPOR client that never switches off",
    neighbours=([3], [5]),
    claim=2.0,
    truth=math.inf,
    fault="a true bit is always reported",
)
def sticky_bit(values: Sequence[int]) -> tuple[int, ...]:
    """Returns the report of a RAPPOR client that switches other bits on, but never its own bit off."""
    one_in_four = [_draw_uniform() < 0.25 for _ in range(8)]
    return tuple(int(place == values[0] or on) for place, on in enumerate(one_in_four))


@_specimen(
    "domain from the data",
    neighbours=(["yes", "no", "rare"], ["yes", "no"]),
    truth=math.inf,
    fault="the keys are those that occur",
)
def sampled_domain(words: Sequence[str]) -> dict[str, int]:
    """Noisy counts of the words that occur, as if the list of words were public."""
    return {
        word: words.count(word) + int(discrete_laplace(scale=1, size=1)[0]) for word in sorted(set(words))
    }


@_specimen(
    "average by a private size",
    neighbours=([1, 1, 1, 1], [1]),
    truth=math.inf,
    fault="the scale of the noise depends on the records",
)
def average_by_private_size(values: Sequence[int]) -> int:
    """Gives the sum with noise for its average's sensitivity, which depends on how many records there are."""
    size = max(1, len(values))
    noise = discrete_laplace(scale=Fraction(1000, size), size=1)[0]
    return 1000 * sum(values) // size + int(noise)
