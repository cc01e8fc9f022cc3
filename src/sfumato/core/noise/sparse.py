"""Noise for histograms with more cells than can be listed: only what passes a threshold is drawn.

An empty cell passes if its noise does, which happens independently from cell to cell and with one
probability p. So the number of empty cells before the next that passes is geometric: bit k of such a
number is 1 with probability r^(2^k) / (1 + r^(2^k)), where r = 1 - p, independently of all other bits.
Each bit is decided by comparing random words with certified thresholds, so the law is exact, and the
work is that of the cells that pass. The proof is docs/proofs/noise.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError, SfumatoError
from sfumato.core.law import SPARSE_KIND, Law, make_law
from sfumato.core.noise.entropy import BitSource, KeyStream, draw_word
from sfumato.core.noise.samplers import add_noise, discrete_laplace
from sfumato.core.noise.thresholds import exp_bounds

if TYPE_CHECKING:
    from sfumato.core.exact import ExactLike

LARGEST_DOMAIN: Final = 2**63 - 1
_WORD: Final = 64
_CHUNK: Final = 1 << 15
_GUARDS: Final = (64, 192, 448, 960, 1984, 4032, 8128)


def add_sparse_noise(
    cells: NDArray[np.int64], values: NDArray[np.int64], *, size: int, scale: ExactLike, threshold: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cells, ascending, whose noisy value is at least `threshold`, and these values.

    `values` are those of the occupied `cells` of a histogram of `size` cells, ascending; all others are
    0. The result has the law of: discrete Laplace noise of this `scale` on every one of the `size` cells,
    then the cells below the threshold left out.

    Privacy: that of `discrete_laplace` at this scale on the whole histogram; leaving out by noisy
    value is post-processing.

    >>> add_sparse_noise(np.array([5]), np.array([900]), size=2**60, scale=1, threshold=500)[0]
    array([5])
    """
    law = make_law(SPARSE_KIND, scale)
    if not 1 <= size <= LARGEST_DOMAIN or threshold < 1:
        raise RecipeError("noise on occupied cells needs 1 to 2^63 - 1 cells and a threshold of at least 1")
    if cells.size and not (cells[0] >= 0 and cells[-1] < size and (cells[1:] > cells[:-1]).all()):
        raise RecipeError("occupied cells must ascend within the histogram")
    noisy = add_noise(values, kind=SPARSE_KIND, scale=scale)
    kept = noisy >= threshold
    passing = draw_passing(law, threshold, size=size, source=KeyStream())
    # An occupied cell has noise of its own.
    places = np.searchsorted(cells, passing)
    taken = places < cells.size
    taken[taken] = cells[places[taken]] == passing[taken]
    passing = passing[~taken]
    found = np.concatenate([cells[kept], passing])
    amounts = np.concatenate([noisy[kept], threshold + _draw_rest(law, passing.size)])
    order = np.argsort(found, kind="stable")
    return found[order], amounts[order]


def draw_passing(law: Law, threshold: int, *, size: int, source: BitSource) -> NDArray[np.int64]:
    """The positions below `size`, ascending, of independent draws of `law` that are >= `threshold`."""
    bits = _gap_bits(law, threshold, count=size.bit_length())
    parts: list[NDArray[np.int64]] = []
    start = 0
    while True:
        gaps, ended = _draw_gaps(bits, _batch(law, threshold, size - start), source)
        # Sums beyond the end are cut before they are exact, with room for the error of floats.
        near = np.cumsum(gaps.astype(np.float64) + 1) < 1.25 * (size - start) + 2
        ended |= not near.all()
        positions = np.cumsum(gaps[near] + np.uint64(1)) + np.uint64(start) - np.uint64(1)
        inside = positions < np.uint64(size)
        ended |= not inside.all()
        parts.append(positions[inside].astype(np.int64))
        start = int(parts[-1][-1]) + 1 if parts[-1].size else start
        if ended or start >= size:
            return np.concatenate(parts)


def _batch(law: Law, threshold: int, left: int) -> int:
    """How many gaps to draw at once: about as many as there will be."""
    expected = left * np.exp(-float(threshold / law.scale)) / (1 + np.exp(-float(1 / law.scale)))
    return int(min(_CHUNK, expected + 4 * np.sqrt(expected) + 4))


def _draw_rest(law: Law, count: int) -> NDArray[np.int64]:
    """How far values that reach a threshold lie above it: X given X >= 0, whatever the threshold."""
    rest = np.empty(count, np.int64)
    open_places = np.arange(count)
    while open_places.size:
        draws = discrete_laplace(scale=law.scale, size=open_places.size)
        rest[open_places] = draws
        open_places = open_places[draws < 0]
    return rest


@dataclass(frozen=True, slots=True, eq=False)
class _GapBits:
    """The chance of each bit of a gap to be 1, and that a gap needs more bits: floors of 2^64 times it."""

    law: Law
    threshold: int
    count: int
    floors: NDArray[np.uint64]


@lru_cache(maxsize=64)
def _gap_bits(law: Law, threshold: int, *, count: int) -> _GapBits:
    floors = np.array(_floors(law, threshold, count=count, width=_WORD), np.uint64)
    floors.flags.writeable = False
    return _GapBits(law, threshold, count, floors)


@lru_cache(maxsize=256)
def _floors(law: Law, threshold: int, *, count: int, width: int) -> tuple[int, ...]:
    """The floors of 2^width times the chances: those of `count` bits, then that of a longer gap."""
    for guard in _GUARDS:
        floors = _certify(law, threshold, count=count, width=width, precision=width + count + guard)
        if floors is not None:
            return floors
    raise SfumatoError(
        f"the chances of a threshold under {law} cannot be certified; use a scale with fewer digits"
    )


def _certify(law: Law, threshold: int, *, count: int, width: int, precision: int) -> tuple[int, ...] | None:
    """The floors, or None if this precision leaves one open. P(X >= t) = q^t / (1 + q)."""
    one = 1 << precision
    top = (1 << width) - 1
    q_low, q_high = exp_bounds(law.exponent(1), precision)
    t_low, t_high = exp_bounds(law.exponent(threshold), precision)
    low = one - -(-(t_high << precision) // (one + q_low))
    high = one - (t_low << precision) // (one + q_high)
    drop = precision - width
    floors = []
    for _ in range(count):
        # x / (1 + x) rises with x. Every chance is below 1, whatever its upper bound says.
        chances = (low << precision) // (one + low), -(-(high << precision) // (one + high))
        floors.append((chances[0] >> drop, min(chances[1] >> drop, top)))
        low, high = low * low >> precision, -(-high * high >> precision)
    floors.append((low >> drop, min(high >> drop, top)))
    if any(first != last for first, last in floors):
        return None
    return tuple(first for first, _ in floors)


def _draw_gaps(bits: _GapBits, count: int, source: BitSource) -> tuple[NDArray[np.uint64], bool]:
    """At most `count` gaps, up to the first that passes every domain, and whether there was one."""
    words = np.empty((bits.count + 1, count), np.uint64)
    for row in words:
        source.fill(row)
    floors = bits.floors[:, None]
    ones = words < floors
    for row, column in zip(*np.nonzero(words == floors), strict=True):
        ones[row, column] = _decide(bits, int(row), int(words[row, column]), source)
    gaps = np.zeros(count, np.uint64)
    for power in range(bits.count):
        gaps |= ones[power].astype(np.uint64) << np.uint64(power)
    beyond = np.flatnonzero(ones[bits.count])
    if beyond.size:
        return gaps[: beyond[0]], True
    return gaps, False


def _decide(bits: _GapBits, place: int, word: int, source: BitSource) -> bool:
    """One bit whose word is equal to its floor, from as many more bits as it takes."""
    width = _WORD
    while True:
        word = word << _WORD | draw_word(source)
        width += _WORD
        floor = _floors(bits.law, bits.threshold, count=bits.count, width=width)[place]
        if word != floor:
            return word < floor
