"""The noise that is added is one draw of the stated law for each value, no more and no less."""

import math
from fractions import Fraction

import numpy as np
import pytest

from helpers.sources import seed_noise
from sfumato.core.noise import add_noise, discrete_gaussian, discrete_laplace

SIZE = 40_000
LAWS = [("laplace", 3), ("laplace", 50_000), ("gaussian", 3), ("gaussian", 50_000)]


def draw(kind, scale):
    if kind == "laplace":
        return discrete_laplace(scale=scale, size=SIZE)
    return discrete_gaussian(sigma=scale, size=SIZE)


@pytest.mark.parametrize(("kind", "scale"), LAWS)
def test_what_is_added_is_a_draw_of_the_law(kind, scale):
    with seed_noise():
        expected = draw(kind, scale)
    with seed_noise():
        added = add_noise(np.full(SIZE, 7), kind=kind, scale=Fraction(scale)) - 7
    assert added.tolist() == expected.tolist()


@pytest.mark.parametrize(("kind", "scale"), LAWS)
def test_the_noise_has_the_deviation_of_its_scale(seeded_noise, kind, scale):
    added = add_noise(np.zeros(SIZE, np.int64), kind=kind, scale=Fraction(scale)).astype(float)
    deviation = scale * (math.sqrt(2) if kind == "laplace" else 1)
    assert abs(added.std() / deviation - 1) < 0.05
    assert abs(added.mean()) < 0.05 * deviation
