"""Bounds on the records of an individual that nobody has declared: chosen for each statement.

Individuals are counted by how many records they have in what the statement reads: each of them once. From the
noisy counts follows which bound loses least, records that are cut and noise together.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.schema.table import MOST_RECORDS

CAPS: tuple[int, ...] = tuple(2**power for power in range(MOST_RECORDS.bit_length()))
"""The bounds among which one is chosen. Individuals of more records than the largest are counted with it."""


def tally_individuals(true_sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many individuals have at most each bound of records, and more than the one before; none without.

    >>> tally_individuals(np.array([0, 1, 1, 3, 5000]))[:3].tolist()
    [2, 0, 1]
    """
    places = np.searchsorted(CAPS, true_sizes[true_sizes > 0])
    return np.bincount(np.minimum(places, len(CAPS) - 1), minlength=len(CAPS)).astype(np.int64)


def choose_cap(noisy_counts: NDArray[np.int64], threshold: float, *, noise: Fraction) -> int:
    """The bound that loses least: records of individuals that are cut, and `noise` for each record allowed.

    Counts below the threshold may be noise alone, and count for nothing.
    """
    counts = np.where(noisy_counts >= threshold, noisy_counts, 0).astype(float)
    # Those between two bounds have about three quarters of the upper one.
    records = np.array([1.0, *(0.75 * cap for cap in CAPS[1:])])
    losses = [float((counts * np.maximum(records - cap, 0)).sum()) + float(noise) * cap for cap in CAPS]
    return CAPS[losses.index(min(losses))]
