"""Draws of noise: the public ones, and the two ways in which a law is drawn exactly.

A law of small scale is drawn from one table over all magnitudes, by one random word (`draw_narrow`). A wide
one is drawn as a block of magnitudes and an offset within it, kept with the probability that its weight asks
for (`draw_wide`). The proof that both are exact is docs/proofs/noise.md.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, parse_whole
from sfumato.core.law import Kind, Law, make_law
from sfumato.core.noise.entropy import BitSource, KeyStream, draw_word
from sfumato.core.noise.thresholds import WORD_BITS, Table, build_table, build_thresholds, loss_floor

WIDE_SCALE: Final = 2048
"""From here on a table over all magnitudes costs more to build than blocks cost to draw."""

BLOCK_BITS: Final = 11
"""At most 2^11 to 2^12 blocks to the scale, so that about one pair in 4000 is not kept."""

CHUNK: Final = 1 << 13
"""Draws made at once: their buffers stay in the processor's nearest caches."""


def discrete_laplace(*, scale: ExactLike, size: int) -> NDArray[np.int64]:
    """`size` independent integers x, each with probability proportional to exp(-|x| / scale).

    The law is exact (docs/proofs/noise.md), for any rational scale up to 2^50.

    Privacy: added to an integer answer of L1 sensitivity D, noise of scale D / epsilon makes it
    epsilon-differentially private (Ghosh, Roughgarden, Sundararajan 2009).

    >>> discrete_laplace(scale=20, size=3).shape
    (3,)
    """
    return draw(make_law("laplace", scale), parse_whole(size, name="size", low=0), KeyStream())


def discrete_gaussian(*, sigma: ExactLike, size: int) -> NDArray[np.int64]:
    """`size` independent integers x, each with probability proportional to exp(-x^2 / (2 sigma^2)).

    The law is exact (docs/proofs/noise.md), for any rational sigma up to 2^50.

    Privacy: added to integer answers of joint L2 sensitivity D, noise of this sigma makes them
    rho-zero-concentrated differentially private, rho = D^2 / (2 sigma^2) (Canonne, Kamath,
    Steinke 2020).

    >>> discrete_gaussian(sigma="895.42", size=3).dtype
    dtype('int64')
    """
    return draw(make_law("gaussian", sigma), parse_whole(size, name="size", low=0), KeyStream())


def add_noise(values: NDArray[np.int64], *, kind: Kind, scale: ExactLike) -> NDArray[np.int64]:
    """`values` plus independent noise, each sum clamped to the ends of the 64-bit integers.

    Holding the exact sum at fixed ends is post-processing, so it costs no privacy; an error or
    a wrapped sum would tell whether a value lay near an end.

    Privacy: that of `discrete_laplace` or `discrete_gaussian` at the same scale.

    >>> add_noise(np.array([7, 7]), kind="laplace", scale="1e-9")
    array([7, 7])
    """
    law = make_law(kind, scale)
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise RecipeError("noise is added to an array of 64-bit integers; convert the values first")
    noise = draw(law, values.size, KeyStream()).reshape(values.shape)
    return _add_saturating(values, noise)


def draw(law: Law, size: int, source: BitSource) -> NDArray[np.int64]:
    """`size` draws of `law` from the words of `source`, in the cheaper of the two ways."""
    out = np.empty(size, dtype=np.int64)
    if law.scale < WIDE_SCALE:
        draw_narrow(law, out, source)
    else:
        draw_wide(law, out, source)
    return out


def draw_narrow(law: Law, out: NDArray[np.int64], source: BitSource, *, bits: int = WORD_BITS) -> None:
    """Fill `out` with draws from `law` by one table over all magnitudes.

    The low bit of a word is the sign, its `bits` leading bits choose the magnitude.
    """
    table = build_table(law, folded=True, bits=bits)
    buffers = _Buffers.allocate(min(out.size, CHUNK))
    for start in range(0, out.size, CHUNK):
        piece = out[start : start + CHUNK]
        part = buffers.head(piece.size)
        source.fill(part.words)
        _draw_magnitudes(table, part, source)
        _apply_signs(part, part.magnitudes, piece)


def draw_wide(
    law: Law,
    out: NDArray[np.int64],
    source: BitSource,
    *,
    bits: int = WORD_BITS,
    block_bits: int | None = None,
) -> None:
    """Fills `out` with draws from `law`, in blocks, from the words of `source`.

    The scale is about 2^`block_bits` blocks long. Many blocks make a draw cheap and their table dear, so few
    draws take few. The table's thresholds have `bits` bits. The law is the same.

    A negative zero is drawn again, like a pair that is not kept: otherwise zero, which has two
    signs, would come up twice as often as its weight allows.
    """
    if block_bits is None:
        block_bits = 5 if out.size < 1 << 14 else 8 if out.size < 1 << 20 else BLOCK_BITS
    plan = _make_plan(law, bits, block_bits)
    refused = _draw_once(plan, out, source)
    while refused.size:
        again = np.empty(refused.size, np.int64)
        refused_again = _draw_once(plan, again, source)
        out[refused] = again
        refused = refused[refused_again]


@dataclass(frozen=True, slots=True, eq=False)
class _Buffers:
    """Room for one chunk of draws."""

    words: NDArray[np.uint64]
    scratch: NDArray[np.uint64]
    magnitudes: NDArray[np.int32]

    @classmethod
    def allocate(cls, size: int) -> _Buffers:
        """Buffers for chunks of `size` draws."""
        return cls(np.empty(size, np.uint64), np.empty(size, np.uint64), np.empty(size, np.int32))

    def head(self, size: int) -> _Buffers:
        """The same buffers, cut to `size` draws."""
        return _Buffers(self.words[:size], self.scratch[:size], self.magnitudes[:size])


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
    # An upper bound of 2^keep_bits (1 - exp(-loss)) for every block, rounded up: 1 - exp(-x) <= x, and the
    # loss of a place is below that of the next block's first place, which is ((block + 1)^p - block^p) E(m)
    # for noise of power p, m being the width of a block.
    step, power = law.exponent(1 << shift), law.shape.power
    top, bottom, count = step.numerator << keep_bits, step.denominator, len(blocks.thresholds)
    steps = ((block + 1) ** power - block**power for block in range(count))
    worst = [min(-(-top * each // bottom), 1 << keep_bits) for each in steps]
    sure_by_block = np.array(worst, np.uint64)
    sure_by_block.flags.writeable = False
    return _Plan(law, blocks, shift, keep_bits, max(worst), sure_by_block)


def _draw_once(plan: _Plan, out: NDArray[np.int64], source: BitSource) -> NDArray[np.intp]:
    """Positions to draw again; the other positions of `out` hold draws."""
    refused: list[NDArray[np.intp]] = []
    buffers = _Buffers.allocate(min(out.size, CHUNK))
    seconds = np.empty(min(out.size, CHUNK), np.uint64)
    for start in range(0, out.size, CHUNK):
        piece = out[start : start + CHUNK]
        part, second = buffers.head(piece.size), seconds[: piece.size]
        source.fill(part.words)
        source.fill(second)
        resolved = _draw_magnitudes(plan.blocks, part, source)

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
        _apply_signs(part, piece, piece)
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


def _draw_magnitudes(table: Table, part: _Buffers, source: BitSource) -> NDArray[np.intp]:
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


def _apply_signs(
    part: _Buffers, magnitudes: NDArray[np.int32] | NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    """Write the magnitudes to `out`, negated where the low bit of their word is set."""
    np.bitwise_and(part.words, np.uint64(1), out=part.scratch)
    mask = part.scratch.view(np.int64)
    np.negative(mask, out=mask)
    np.bitwise_xor(magnitudes, mask, out=out)  # x ^ -1 = -x - 1
    np.subtract(out, mask, out=out)


def _add_saturating(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    total = left + right  # wraps; a sum overflowed iff its sign differs from both its terms'
    overflowed = ((left ^ total) & (right ^ total)) < 0
    return np.where(overflowed, np.where(left < 0, limits.min, limits.max), total)
