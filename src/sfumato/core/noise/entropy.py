"""Random bits: AES-256 in counter mode, keyed by the operating system.

The only module of this package that draws randomness. A stream cannot be seeded, copied or
pickled: two holders of one key would add the same noise, and their difference would be the data.
"""

from __future__ import annotations

import os
from typing import ClassVar, Final, NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

REKEY_BYTES: Final = 1 << 36
_PIECE_WORDS: Final = 1 << 14


class BitSource(Protocol):
    """Anything that fills an array with independent uniform 64-bit words."""

    def fill(self, out: NDArray[np.uint64]) -> None:
        """Overwrite every word of `out`, a contiguous array."""


class KeyStream:
    """A stream of uniform words under a key that only this object, in this process, holds.

    The key is exchanged after a fork, and after `REKEY_BYTES` of output: a counter-mode stream
    is indistinguishable from uniform bits only while it is short against 2^64 blocks.
    One stream belongs to one thread; streams are cheap, so make one where it is needed.

    >>> words = np.zeros(4, dtype=np.uint64)
    >>> KeyStream().fill(words)
    >>> bool(words.any())
    True
    """

    __slots__ = ("_encryptor", "_left", "_owner")

    _forks: ClassVar[int] = 0

    def __init__(self) -> None:
        self._rekey()

    def fill(self, out: NDArray[np.uint64]) -> None:
        """Overwrite every word of `out`, a contiguous array."""
        for start in range(0, out.size, _PIECE_WORDS):
            piece = out[start : start + _PIECE_WORDS]
            self._left -= piece.nbytes
            if self._left < 0 or self._owner != self._process():
                self._rekey()
                self._left -= piece.nbytes
            self._encryptor.update_into(_ZEROS[: piece.nbytes], piece.view(np.uint8).data)

    def _rekey(self) -> None:
        self._owner = self._process()
        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))
        self._encryptor = cipher.encryptor()
        self._left = REKEY_BYTES

    @classmethod
    def _process(cls) -> tuple[int, int]:
        # The process id misses a grandchild that was given an ancestor's id, the counter misses
        # a fork made below Python; together they miss neither.
        return os.getpid(), cls._forks

    @classmethod
    def _count_fork(cls) -> None:
        cls._forks += 1

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key stream cannot be copied or pickled: its copy would repeat its noise")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=KeyStream._count_fork)

_ZEROS: Final = memoryview(bytes(8 * _PIECE_WORDS))


def draw_word(source: BitSource) -> int:
    """The next 64 bits of `source` as a Python integer."""
    word = np.empty(1, dtype=np.uint64)
    source.fill(word)
    return int(word[0])
