"""Decisions of a client: uniform words against integer thresholds, never a float.

Every function takes the source of its words; `respond` of a mechanism makes a fresh `KeyStream`,
so nothing a client does can be seeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.local.thresholds import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sfumato.noise.entropy import BitSource

CHUNK: Final = 1 << 14
"""Answers made at once: their words stay in the processor's nearest caches."""

_LOW_BYTES: Final = (1 << 56) - 1


def chunks(size: int) -> Iterator[slice]:
    """Slices that cut `size` answers into chunks."""
    return (slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK))


def draw_words(size: int, source: BitSource) -> NDArray[np.uint64]:
    """`size` uniform words."""
    words = np.empty(size, np.uint64)
    source.fill(words)
    return words


def draw_events(threshold: int, size: int, source: BitSource) -> NDArray[np.bool_]:
    """`size` independent events, each true with probability threshold / 2^64 exactly.

    A byte decides unless it equals the threshold's leading byte; then 56 more bits do. This is the
    comparison of a whole word, read lazily.
    """
    events = np.empty(size, np.bool_)
    if not 0 < threshold < WORDS:
        events[:] = threshold > 0
        return events
    top, rest = np.uint8(threshold >> 56), np.uint64(threshold & _LOW_BYTES)
    buffer = np.empty(1 << 13, np.uint64)
    step = buffer.nbytes
    for start in range(0, size, step):
        piece = events[start : start + step]
        words = buffer[: -(-piece.size // 8)]
        source.fill(words)
        leading = words.view(np.uint8)[: piece.size]
        np.less(leading, top, out=piece)
        open_places = np.flatnonzero(leading == top)
        if open_places.size:
            piece[open_places] = draw_words(open_places.size, source) >> np.uint64(8) < rest
    return events


def draw_fair(size: int, source: BitSource) -> NDArray[np.bool_]:
    """`size` fair and independent bits.

    >>> from sfumato.noise.entropy import KeyStream
    >>> draw_fair(3, KeyStream()).shape
    (3,)
    """
    words = draw_words(-(-size // 64), source)
    return np.unpackbits(words.view(np.uint8), count=size).view(np.bool_)


def draw_uniform(count: int, size: int, source: BitSource) -> NDArray[np.uint64]:
    """`size` independent whole numbers, each of 0 .. count - 1 exactly alike likely.

    A word beyond the last full share is drawn again, which is decided by the noise alone.
    """
    if count < 1:
        raise ValueError("a uniform draw needs at least one outcome")
    words = draw_words(size, source)
    if count & (count - 1) == 0:  # a power of two: the leading bits
        bits = count.bit_length() - 1
        return words >> np.uint64(64 - bits) if bits else np.zeros(size, np.uint64)
    share = WORDS // count
    drawn: NDArray[np.uint64] = words // np.uint64(share)
    late = np.flatnonzero(drawn >= count)
    while late.size:
        drawn[late] = draw_words(late.size, source) // np.uint64(share)
        late = late[drawn[late] >= count]
    return drawn
