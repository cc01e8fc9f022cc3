from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.noise.laws import exp_bounds, loss_floor

positive = st.fractions(min_value=0, max_value=400).filter(bool)


def decimal_exp(exponent, bits):
    """2^bits * exp(-exponent) to about 400 digits."""
    with localcontext(prec=400):
        power = Decimal(exponent.numerator) / Decimal(exponent.denominator)
        return (-power).exp() * (1 << bits)


@given(exponent=positive, bits=st.integers(4, 500))
def test_bounds_hold_and_are_narrow(exponent, bits):
    low, high = exp_bounds(exponent, bits)
    assert low <= decimal_exp(exponent, bits) <= high
    assert high - low <= 2


@given(exponent=positive, bits=st.integers(1, 300))
def test_loss_floor_is_the_floor(exponent, bits):
    with localcontext(prec=400):
        expected = int((1 << bits) - decimal_exp(exponent, bits))
    # Past 400 digits the reference rounds the loss to one, which it never reaches.
    assert loss_floor(exponent, bits) == min(expected, (1 << bits) - 1)


def test_ends():
    assert exp_bounds(Fraction(0), 20) == (1 << 20, 1 << 20)
    assert exp_bounds(Fraction(10**400), 200) == (0, 1)
    assert loss_floor(Fraction(10**400), 200) == (1 << 200) - 1
    assert loss_floor(Fraction(1, 10**400), 200) == 0
    with pytest.raises(ValueError, match="negative"):
        exp_bounds(Fraction(-1), 10)
