"""Exact draws from a threshold table: one word each, more bits only where it leaves a choice."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.noise.entropy import draw_word
from sfumato.noise.table import WORD_BITS, build_table, build_thresholds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.noise.entropy import BitSource
    from sfumato.noise.law import Law
    from sfumato.noise.table import Table

CHUNK: Final = 1 << 13
"""Draws made at once: their buffers stay in the processor's nearest caches."""


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """Room for one chunk of draws."""

    words: NDArray[np.uint64]
    scratch: NDArray[np.uint64]
    magnitudes: NDArray[np.int32]

    @classmethod
    def allocate(cls, size: int) -> Buffers:
        """Buffers for chunks of `size` draws."""
        return cls(np.empty(size, np.uint64), np.empty(size, np.uint64), np.empty(size, np.int32))

    def head(self, size: int) -> Buffers:
        """The same buffers, cut to `size` draws."""
        return Buffers(self.words[:size], self.scratch[:size], self.magnitudes[:size])


def draw_narrow(law: Law, out: NDArray[np.int64], source: BitSource, *, bits: int = WORD_BITS) -> None:
    """Fill `out` with draws from `law` by one table over all magnitudes.

    The low bit of a word is the sign, its `bits` leading bits choose the magnitude.
    """
    table = build_table(law, folded=True, bits=bits)
    buffers = Buffers.allocate(min(out.size, CHUNK))
    for start in range(0, out.size, CHUNK):
        piece = out[start : start + CHUNK]
        part = buffers.head(piece.size)
        source.fill(part.words)
        draw_magnitudes(table, part, source)
        apply_signs(part, part.magnitudes, piece)


def draw_magnitudes(table: Table, part: Buffers, source: BitSource) -> NDArray[np.intp]:
    """Positions that needed more bits; `part.magnitudes` receives the magnitude of each word."""
    words, magnitudes = part.words, part.magnitudes
    np.right_shift(words, np.uint64(64 - table.guide_bits), out=part.scratch)
    np.take(table.guide, part.scratch.view(np.int64), out=magnitudes, mode="clip")
    pending = np.flatnonzero(magnitudes < 0)
    if pending.size == 0:
        return pending
    values = words[pending] >> np.uint64(64 - table.bits)
    chosen = ~magnitudes[pending]
    # Most open buckets hold one threshold, so one comparison settles most of them.
    chosen += values > table.thresholds[chosen]
    many = np.flatnonzero(values >= table.thresholds[chosen])
    undecided = many
    if many.size:
        found = np.searchsorted(table.thresholds, values[many], side="left")
        chosen[many] = found
        undecided = many[table.thresholds[found] == values[many]]
        for place in undecided.tolist():
            chosen[place] = _resolve(table, int(values[place]), source)
    magnitudes[pending] = chosen
    resolved: NDArray[np.intp] = pending[undecided]
    return resolved


def apply_signs(
    part: Buffers, magnitudes: NDArray[np.int32] | NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    """Write the magnitudes to `out`, negated where the low bit of their word is set."""
    np.bitwise_and(part.words, np.uint64(1), out=part.scratch)
    mask = part.scratch.view(np.int64)
    np.negative(mask, out=mask)
    np.bitwise_xor(magnitudes, mask, out=out)  # x ^ -1 = -x - 1
    np.subtract(out, mask, out=out)


def _resolve(table: Table, value: int, source: BitSource) -> int:
    """The magnitude of a word that equals a threshold, from as many more bits as it takes."""
    bits = table.bits
    while True:
        bits += 64
        value = value << 64 | draw_word(source)
        thresholds = build_thresholds(table.law, folded=table.folded, bits=bits)
        found = bisect_left(thresholds, value)
        following = thresholds[found] if found < len(thresholds) else (1 << bits) - 1
        if value != following:
            return found
