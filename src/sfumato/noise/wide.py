"""Exact draws at scales too wide for one table: a block from a table, a place in it at random.

A magnitude is block * 2^shift + offset. The block is drawn with the weight of its first place,
the offset uniformly, and the pair is kept with probability exp(-loss), loss being how far the
weight of the place lies below that of the block's first. Since blocks are narrow against the
scale, nearly every pair is kept, and nearly every decision needs no exponential.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.noise.entropy import draw_word
from sfumato.noise.fixed_point import loss_floor
from sfumato.noise.law import Law
from sfumato.noise.narrow import CHUNK, Buffers, apply_signs, draw_magnitudes
from sfumato.noise.table import WORD_BITS, Table, build_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.noise.entropy import BitSource

BLOCK_BITS: Final = 11
"""At most 2^11 to 2^12 blocks to the scale, so that about one pair in 4000 is not kept."""


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """How a wide law is drawn.

    A second word gives the offset from its `shift` low bits and the decision from its
    `keep_bits` high bits. A decision of at least `sure` keeps any pair whose block is in the table,
    one of at least `sure_by_block[block]` any pair of that block.
    """

    law: Law
    blocks: Table
    shift: int
    keep_bits: int
    sure: int
    sure_by_block: NDArray[np.uint64]

    def loss(self, block: int, offset: int) -> Fraction:
        """The loss of one pair, exactly."""
        first = block << self.shift
        return self.law.exponent(first + offset) - self.law.exponent(first)


@lru_cache(maxsize=32)
def _make_plan(law: Law, bits: int, block_bits: int) -> _Plan:
    shift = int(law.scale).bit_length() - 1 - block_bits
    if shift < 0:
        raise ValueError(f"a scale below {1 << block_bits} has no blocks; draw it from one table")
    blocks = build_table(Law(law.kind, law.scale / (1 << shift)), folded=False, bits=bits)
    keep_bits = min(64 - shift, bits)
    worst = _worst_losses(law, shift, len(blocks.thresholds), keep_bits)
    sure_by_block = np.array(worst, np.uint64)
    sure_by_block.flags.writeable = False
    return _Plan(law, blocks, shift, keep_bits, max(worst), sure_by_block)


def _worst_losses(law: Law, shift: int, blocks: int, bits: int) -> list[int]:
    """For every block an upper bound of 2^bits (1 - exp(-loss)), rounded up.

    1 - exp(-x) <= x, and the loss of a place is below that of the next block's first place, which is
    E(m) for Laplace and (2 block + 1) E(m) for Gaussian noise, m being the width of a block.
    """
    step = law.exponent(1 << shift)
    top, bottom = step.numerator << bits, step.denominator
    steps = (1 for _ in range(blocks)) if law.kind == "laplace" else range(1, 2 * blocks, 2)
    return [min(-(-top * count // bottom), 1 << bits) for count in steps]


def draw_wide(
    law: Law,
    out: NDArray[np.int64],
    source: BitSource,
    *,
    bits: int = WORD_BITS,
    block_bits: int | None = None,
) -> None:
    """Fill `out` with draws from `law`, in blocks.

    Many blocks make a draw cheap and their table dear, so few draws take few. The law is the same.

    A negative zero is drawn again, like a pair that is not kept: otherwise zero, which has two
    signs, would come up twice as often as its weight allows.
    """
    plan = _make_plan(law, bits, _choose_bits(out.size) if block_bits is None else block_bits)
    refused = _draw_once(plan, out, source)
    while refused.size:
        again = np.empty(refused.size, np.int64)
        refused_again = _draw_once(plan, again, source)
        out[refused] = again
        refused = refused[refused_again]


def _choose_bits(draws: int) -> int:
    if draws < 1 << 14:
        return 5
    return 8 if draws < 1 << 20 else BLOCK_BITS


def _draw_once(plan: _Plan, out: NDArray[np.int64], source: BitSource) -> NDArray[np.intp]:
    """Positions to draw again; the other positions of `out` hold draws."""
    refused: list[NDArray[np.intp]] = []
    buffers = Buffers.allocate(min(out.size, CHUNK))
    seconds = np.empty(min(out.size, CHUNK), np.uint64)
    for start in range(0, out.size, CHUNK):
        piece = out[start : start + CHUNK]
        part, second = buffers.head(piece.size), seconds[: piece.size]
        source.fill(part.words)
        source.fill(second)
        resolved = draw_magnitudes(plan.blocks, part, source)

        np.right_shift(second, np.uint64(64 - plan.keep_bits), out=part.scratch)
        doubtful = np.flatnonzero(part.scratch < np.uint64(plan.sure))
        if resolved.size:  # a block from beyond the table, where `sure` proves nothing
            if (part.magnitudes[resolved].astype(np.int64) >> (62 - plan.shift)).any():
                raise OverflowError("a draw of noise does not fit 64-bit integers; its chance is exp(-4096)")
            doubtful = np.union1d(doubtful, resolved)
        decisions = part.scratch[doubtful]

        np.bitwise_and(second, np.uint64((1 << plan.shift) - 1), out=second)
        offsets = second.view(np.int64)
        np.left_shift(part.magnitudes, np.int64(plan.shift), out=piece)
        np.bitwise_or(piece, offsets, out=piece)
        zeros = np.flatnonzero(piece == 0)
        negative = zeros[(part.words[zeros] & np.uint64(1)).astype(bool)]
        if doubtful.size:
            pairs = part.magnitudes[doubtful].astype(np.int64), offsets[doubtful]
            lost = doubtful[~_keep(plan, *pairs, decisions, source)]
            refused.append(np.union1d(lost, negative) + start)
        elif negative.size:
            refused.append(negative + start)
        apply_signs(part, piece, piece)
    return np.concatenate(refused) if refused else np.empty(0, np.intp)


def _keep(
    plan: _Plan,
    block: NDArray[np.int64],
    offset: NDArray[np.int64],
    decisions: NDArray[np.uint64],
    source: BitSource,
) -> NDArray[np.bool_]:
    """Which pairs are kept: those whose decision, read as a fraction, is 1 - exp(-loss) or more.

    A bound per block settles most pairs; the rest are settled exactly, one by one.
    """
    known = np.minimum(block, plan.sure_by_block.size - 1)
    kept: NDArray[np.bool_] = decisions >= plan.sure_by_block[known]
    kept &= known == block
    for place in np.flatnonzero(~kept).tolist():
        exact = plan.loss(int(block[place]), int(offset[place]))
        kept[place] = _keep_one(exact, int(decisions[place]), plan.keep_bits, source)
    return kept


def _keep_one(loss: Fraction, decision: int, bits: int, source: BitSource) -> bool:
    """Whether one pair is kept, from as many more bits as it takes."""
    if loss == 0:
        return True
    # x - x^2/2 <= 1 - exp(-x) <= x, in whole numbers: most pairs need no exponential.
    most = -(-(loss.numerator << bits) // loss.denominator)
    if decision >= most:
        return True
    if decision + 2 <= most - (most * most >> bits + 1) - 1:
        return False
    while True:
        floor = loss_floor(loss, bits)
        if decision != floor:
            return decision > floor
        decision = decision << 64 | draw_word(source)
        bits += 64
