"""Sources of words for tests: seeded or scripted, and so unfit for any release."""

import numpy as np
import pytest


class SeededSource:
    def __init__(self, seed):
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def fill(self, out):
        out[:] = self._generator.integers(0, 1 << 64, size=out.size, dtype=np.uint64)


class ScriptedSource:
    """Gives the listed words in turn, and fails when they run out."""

    def __init__(self, words):
        self._words = list(words)

    def fill(self, out):
        assert out.size <= len(self._words), "the script ran out of words"
        out[:] = np.array(self._words[: out.size], dtype=np.uint64)
        del self._words[: out.size]

    @property
    def left(self):
        return len(self._words)


@pytest.fixture
def seeded():
    return SeededSource


@pytest.fixture
def scripted():
    return ScriptedSource
