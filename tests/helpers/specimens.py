"""Mechanisms that promise more than they keep, each with its claim and the truth, for audits to catch.

They draw from the package's own entropy: not their randomness is wrong, but what they do with it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.core.noise.choice import exponential_choice
from sfumato.core.noise.entropy import KeyStream
from sfumato.core.noise.samplers import add_noise, discrete_laplace

CELLS = 20


@dataclass(frozen=True)
class Specimen:
    """A mechanism, neighbouring tables that show its fault, the least epsilon that holds, and its claim."""

    name: str
    mechanism: Callable[[Any], Any]
    neighbours: tuple[Any, Any]
    truth: float
    fault: str
    claim: float = 1.0


def draw_laplace(scale):
    return int(discrete_laplace(scale=scale, size=1)[0])


def draw_uniform():
    """A multiple of 2^-53 in [0, 1), as floating-point generators give it."""
    word = np.empty(1, np.uint64)
    KeyStream().fill(word)
    return float(word[0] >> np.uint64(11)) * 2.0**-53


def syncity_as_written(cells):
    counts = np.bincount(np.array(cells, np.int64), minlength=CELLS).astype(np.int64)
    return add_noise(counts, kind="laplace", scale=1)


def half_scale(table):
    return len(table) + draw_laplace(Fraction(1, 2))


def exponential_without_two(votes):
    scores = np.zeros((1, 3), np.int64)
    for liked, disliked in votes:  # each moves a score up and another down
        scores[0, liked] += 1
        scores[0, disliked] -= 1
    return int(exponential_choice(scores, rate=1)[0])


def float_laplace(table):
    """Noise by the formula that numpy uses."""
    uniform = draw_uniform()
    if uniform >= 0.5:
        return len(table) - math.log(2.0 - uniform - uniform)
    return len(table) + math.log(uniform + uniform)


def unbounded_sum(records):
    return sum(min(max(amount, 0), 10) for _, amount in records) + draw_laplace(10)


def leaking_error(ages):
    for place, age in enumerate(ages):
        if age > 120:
            raise ValueError(f"age {age} of record {place} is out of range")
    return len(ages) + draw_laplace(1)


def sticky_bit(values):
    one_in_four = [draw_uniform() < 0.25 for _ in range(8)]
    return tuple(int(place == values[0] or on) for place, on in enumerate(one_in_four))


def sampled_domain(words):
    return {word: words.count(word) + draw_laplace(1) for word in sorted(set(words))}


def average_by_private_size(values):
    size = max(1, len(values))
    return 1000 * sum(values) // size + draw_laplace(Fraction(1000, size))


VOTES, ANA, BEN = [(1, 2)] * 3, [("ana", 10)] * 8, [("ben", 4)]
WORDS, NO = ["yes", "no"], math.inf
SPECIMENS = [
    Specimen(*each)
    for each in (
        ("SynCity as written", syncity_as_written, (list(range(CELLS)), []), 20.0, "a person in 20 cells"),
        ("half the scale", half_scale, ([1, 2, 3], [1, 2]), 2.0, "half the scale needed"),
        (
            *("exponential mechanism without the 2", exponential_without_two, ([*VOTES, (0, 1)], VOTES)),
            *(2.0, "no factor 2 on scores that move both ways"),
        ),
        ("Laplace noise in floating point", float_laplace, ([1], []), NO, "the last bits tell"),
        ("unbounded contribution", unbounded_sum, (ANA + BEN, BEN), 8.0, "records are not bounded"),
        ("error that tells", leaking_error, ([30, 40, 200], [30, 40]), NO, "a message depends on a record"),
        ("RAPPOR client that never switches off", sticky_bit, ([3], [5]), NO, "a true bit is reported", 2.0),
        (
            "domain from the data",
            sampled_domain,
            ([*WORDS, "rare"], WORDS),
            NO,
            "the keys are those that occur",
        ),
        ("average by a private size", average_by_private_size, ([1] * 4, [1]), NO, "the scale is private"),
    )
]
