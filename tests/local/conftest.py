"""Sources of words that tests can steer."""

import numpy as np
import pytest


class SeededSource:
    """Words of a public generator, so that a test gives one verdict for ever."""

    def __init__(self, seed):
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def fill(self, out):
        out[:] = self._generator.integers(0, 1 << 64, size=out.size, dtype=np.uint64)


class ScriptedSource:
    """The words of a list, in order; it is an error to ask for more."""

    def __init__(self, words):
        self.words = [int(word) for word in words]

    def fill(self, out):
        taken, self.words = self.words[: out.size], self.words[out.size :]
        assert len(taken) == out.size, "the script has too few words"
        out[:] = np.array(taken, np.uint64)


@pytest.fixture
def seeded():
    return SeededSource


@pytest.fixture
def scripted():
    return ScriptedSource
