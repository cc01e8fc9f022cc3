import importlib
import inspect
import pkgutil
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import sfumato.core.noise
from sfumato.core.errors import RecipeError
from sfumato.core.law import MAX_SCALE, Law, make_law
from sfumato.core.noise import add_noise, discrete_gaussian, discrete_laplace, samplers

LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def laplace(scale, size):
    return discrete_laplace(scale=scale, size=size)


def gaussian(scale, size):
    return discrete_gaussian(sigma=scale, size=size)


both = pytest.mark.parametrize("draw", [laplace, gaussian])


@both
@pytest.mark.parametrize(
    "scale", [1, 0.25, "20", "1/3", Decimal("2.5"), Fraction(7, 2), np.float64(3.5), 5000, 10**12]
)
def test_scales_of_every_kind_are_read(draw, scale):
    drawn = draw(scale, 100)
    assert drawn.dtype == np.int64
    assert drawn.shape == (100,)


@both
@pytest.mark.parametrize(
    "scale",
    [0, -1, 0.0, -2.5, float("nan"), float("inf"), "wide", "", "1/0", None, True, [1], MAX_SCALE + 1],
)
def test_bad_scales_are_refused(draw, scale):
    with pytest.raises(RecipeError):
        draw(scale, 1)


def test_messages_name_the_parameter_and_the_limit():
    with pytest.raises(RecipeError, match=r"sigma must be at most 2\^50"):
        discrete_gaussian(sigma=2**51, size=1)
    with pytest.raises(RecipeError, match="scale must be above zero"):
        discrete_laplace(scale=0, size=1)


@both
@pytest.mark.parametrize("size", [-1, 1.0, "3", None, True, np.int64(-1), (2, 2), np.bool_(True)])
def test_bad_sizes_are_refused(draw, size):
    with pytest.raises(RecipeError, match="size must be"):
        draw(1, size)


@both
@pytest.mark.parametrize("scale", ["1e-3", "1e-6", "1e-300"])
def test_a_tiny_scale_gives_zeros(draw, scale):
    assert not draw(scale, 1000).any()


@both
def test_the_widest_scale_fits(draw):
    drawn = draw(MAX_SCALE, 1000)
    assert np.abs(drawn).max() < 2**57
    assert np.abs(drawn).max() > 2**50


@both
@pytest.mark.parametrize("scale", [40, 10**6])
def test_both_signs_and_every_low_digit_occur(draw, scale):
    drawn = draw(scale, 4000)
    assert 1500 < np.count_nonzero(drawn > 0) < 2500
    assert np.unique(drawn % 8).size == 8


def test_a_law_is_read_exactly():
    assert make_law("laplace", 0.1) == Law("laplace", Fraction(1, 10))
    assert make_law("gaussian", 3).exponent(2) == Fraction(2, 9)
    with pytest.raises(RecipeError, match="kind of noise"):
        make_law("cauchy", 1)
    with pytest.raises(RecipeError, match="above zero"):
        Law("laplace", Fraction(-1))


def test_nothing_takes_a_seed():
    for found in pkgutil.iter_modules(sfumato.core.noise.__path__):
        module = importlib.import_module(f"sfumato.core.noise.{found.name}")
        for _, member in inspect.getmembers(module, inspect.isroutine):
            if getattr(member, "__module__", "").startswith("sfumato.core.noise"):
                names = inspect.signature(member).parameters
                assert not [name for name in names if "seed" in name or name == "rng"]
    assert not inspect.signature(sfumato.core.noise.entropy.KeyStream).parameters


@pytest.mark.parametrize("function", [discrete_laplace, discrete_gaussian, add_noise])
def test_the_public_surface_takes_no_source(function):
    assert set(inspect.signature(function).parameters) <= {"scale", "sigma", "size", "values", "kind"}


int64s = st.one_of(st.integers(LOW, HIGH), st.sampled_from([LOW, LOW + 1, -1, 0, 1, HIGH - 1, HIGH]))


@given(st_numpy.arrays(np.int64, 20, elements=int64s), st_numpy.arrays(np.int64, 20, elements=int64s))
def test_sums_are_held_at_the_ends(left, right):
    total = samplers._add_saturating(left, right)
    expected = [min(max(a + b, LOW), HIGH) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert total.tolist() == expected
    assert total.dtype == np.int64


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_noise_is_added_and_shapes_stay(kind):
    values = np.arange(12, dtype=np.int64).reshape(3, 4)
    before = values.copy()
    noisy = add_noise(values, kind=kind, scale=10**6)
    assert noisy.shape == (3, 4)
    assert (values == before).all()
    assert np.abs(noisy).max() > 1000
    assert (add_noise(values, kind=kind, scale="1e-9") == values).all()


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_noise_at_the_ends_neither_raises_nor_wraps(kind):
    high = add_noise(np.full(2000, HIGH), kind=kind, scale=2**40)
    low = add_noise(np.full(2000, LOW), kind=kind, scale=2**40)
    assert (high > 0).all()
    assert (low < 0).all()
    assert 800 < np.count_nonzero(high == HIGH) < 1200
    assert 800 < np.count_nonzero(low == LOW) < 1200


@pytest.mark.parametrize("values", [[1, 2], np.array([1.0]), np.array([1], np.int32), 3])
def test_only_64_bit_integers_take_noise(values):
    with pytest.raises(RecipeError, match="64-bit integers"):
        add_noise(values, kind="laplace", scale=1)
