"""What the tests of guards share: invented rows, and a noise source that records what is asked of it."""

import numpy as np
import pytest

from sfumato.holdout import guard


class Recorder:
    def __init__(self):
        self.drawn = []
        self.value = 0

    def laplace(self, *, scale, size):
        self.drawn.append(("laplace", scale))
        return np.full(size, self.value)

    def gaussian(self, *, sigma, size):
        self.drawn.append(("gaussian", sigma))
        return np.full(size, self.value)


@pytest.fixture
def noise(monkeypatch):
    """All noise is zero, or the one value that a test sets, and every draw is recorded."""
    recorder = Recorder()
    monkeypatch.setattr(guard, "discrete_laplace", recorder.laplace)
    monkeypatch.setattr(guard, "discrete_gaussian", recorder.gaussian)
    return recorder


@pytest.fixture
def pair():
    """((X, y) of 400 training rows, (X, y) of 900 holdout rows), labels independent of the features."""
    generator = np.random.default_rng(3)

    def make(rows):
        return generator.normal(size=(rows, 3)), generator.integers(0, 2, rows)

    return make(400), make(900)
