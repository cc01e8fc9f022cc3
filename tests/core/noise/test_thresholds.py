"""Certified numbers: exponentials, floors and thresholds against plain sums of many digits."""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import SfumatoError
from sfumato.core.law import Law
from sfumato.core.noise import thresholds
from sfumato.core.noise.thresholds import build_table, build_thresholds, exp_bounds, loss_floor

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


SCALES = [
    ("laplace", "1/3"),
    ("laplace", "1"),
    ("laplace", "20"),
    ("laplace", "60.25"),
    ("gaussian", "1/3"),
    ("gaussian", "1"),
    ("gaussian", "20"),
    ("gaussian", "150.42"),
]


@cache
def reference_weights(law):
    """Weights of 0, 1, 2, ... to 120 decimal digits, each from its own exponential."""
    with localcontext(prec=120):
        scale = Decimal(law.scale.numerator) / Decimal(law.scale.denominator)
        weights = [Decimal(1)]
        while weights[-1] > Decimal(10) ** -80:
            k = len(weights)
            power = k / scale if law.kind == "laplace" else k * k / (2 * scale * scale)
            weights.append((-power).exp())
    return weights


def reference(law, *, folded, bits):
    """Thresholds by plain summation, without closed form or recurrence."""
    with localcontext(prec=120):
        first, *others = reference_weights(law)
        weights = [first, *((2 if folded else 1) * weight for weight in others)]
        whole = sum(weights)
        partial, thresholds = Decimal(0), []
        for weight in weights:
            partial += weight
            threshold = int(partial / whole * (1 << bits))
            if threshold >= (1 << bits) - 1:
                break
            thresholds.append(threshold)
    return tuple(thresholds)


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize(("kind", "scale"), SCALES)
def test_thresholds_equal_an_independent_reference(kind, scale, folded):
    law = Law(kind, Fraction(scale))
    for bits in (8, 63, 127):
        assert build_thresholds(law, folded=folded, bits=bits) == reference(law, folded=folded, bits=bits)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_wider_thresholds_begin_with_the_narrow_ones(kind):
    law = Law(kind, Fraction(50))
    narrow = build_thresholds(law, folded=True, bits=63)
    wide = build_thresholds(law, folded=True, bits=127)
    assert tuple(threshold >> 64 for threshold in wide[: len(narrow)]) == narrow
    assert all(threshold >> 64 == (1 << 63) - 1 for threshold in wide[len(narrow) :])


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", ["1e-3", "1e-6", "1e-400"])
def test_tiny_scales_have_no_threshold_short_of_the_tail(kind, scale):
    law = Law(kind, Fraction(scale))
    assert build_thresholds(law, folded=True, bits=63) == ()
    table = build_table(law, folded=True)
    assert table.thresholds.tolist() == [(1 << 63) - 1]
    assert not table.guide[:-1].any()


@pytest.mark.parametrize("bits", [8, 16, 20, 63])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_guide_agrees_with_the_thresholds(kind, bits):
    table = build_table(Law(kind, Fraction(20)), folded=True, bits=bits)
    generator = np.random.Generator(np.random.PCG64(5))
    values = generator.integers(0, 1 << bits, size=20_000, dtype=np.uint64)
    entries = table.guide[(values >> np.uint64(bits - table.guide_bits)).astype(np.int64)]
    true = np.searchsorted(table.thresholds, values)
    decided = entries >= 0
    assert (entries[decided] == true[decided]).all()
    assert not np.isin(values[decided], table.thresholds).any()
    assert (~entries[~decided] <= true[~decided]).all()


def test_tables_are_read_only_and_shared():
    law = Law("laplace", Fraction(3))
    table = build_table(law, folded=True)
    assert build_table(Law("laplace", Fraction("3.0")), folded=True) is table
    for array in (table.thresholds, table.guide):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_too_little_precision_is_noticed_not_used(kind, monkeypatch):
    law = Law(kind, Fraction(37))
    expected = thresholds._thresholds(law, folded=True, bits=63)
    monkeypatch.setattr(thresholds, "_GUARDS", (8, 12, 200))
    assert thresholds._thresholds(law, folded=True, bits=63) == expected
    monkeypatch.setattr(thresholds, "_GUARDS", (8, 12))
    with pytest.raises(SfumatoError, match="cannot be certified"):
        thresholds._thresholds(law, folded=True, bits=63)
