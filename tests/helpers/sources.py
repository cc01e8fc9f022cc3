"""Sources of random words that tests can steer, and so unfit for any release; and a test of a law."""

from contextlib import contextmanager
from unittest import mock

import numpy as np
from scipy.special import chdtrc

from sfumato.core.noise.entropy import KeyStream


class SeededSource:
    """Words of a public generator, so that a test gives one verdict for ever."""

    def __init__(self, seed):
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def fill(self, out):
        out[:] = self._generator.integers(0, 1 << 64, size=out.size, dtype=np.uint64)


class ScriptedSource:
    """Gives the listed words in turn, and fails when they run out."""

    def __init__(self, words):
        self._words = [int(word) for word in words]

    def fill(self, out):
        assert out.size <= len(self._words), "the script ran out of words"
        out[:] = np.array(self._words[: out.size], dtype=np.uint64)
        del self._words[: out.size]

    @property
    def left(self):
        return len(self._words)


@contextmanager
def seed_noise(seed=7):
    """Within, every key stream of this process gives words of one public generator."""
    source = SeededSource(seed)
    with mock.patch.object(KeyStream, "fill", lambda _, out: source.fill(out)):
        yield


def chi_square_tail(statistic, freedom):
    """P(chi-square >= statistic) with that many degrees of freedom."""
    return float(chdtrc(freedom, statistic))
