"""Chi-square tests of the noise, at a false-alarm rate of one in a million each.

All but the last draw from a seeded generator, so that they give one verdict for ever; the
negative controls show that the same test at the same size finds small faults.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from helpers.sources import SeededSource, chi_square_tail
from sfumato.core.law import Law
from sfumato.core.noise import discrete_gaussian, discrete_laplace, samplers
from sfumato.core.noise.samplers import draw_narrow, draw_wide

pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
SIZE = 1_000_000
KINDS = ["laplace", "gaussian"]


def lower_tails(kind, scale, edges):
    """P(X <= edge) in floats: closed form, plain sum, or for wide scales the normal integral."""
    if kind == "laplace":
        upper = np.exp(-(np.abs(edges) + (edges >= 0)) / scale) / (1 + math.exp(-1 / scale))
        return np.where(edges >= 0, 1 - upper, upper)
    if scale > 3000:
        # Midpoint rule: its relative error is of the order of 1 / (24 scale^2).
        return np.array([0.5 * math.erfc(-(k + 0.5) / scale / math.sqrt(2)) for k in edges])
    reach = int(40 * scale) + 500
    weights = np.exp(-((np.arange(-reach, reach + 1) / scale) ** 2) / 2)
    return np.cumsum(weights)[np.clip(edges + reach, 0, 2 * reach)] / weights.sum()


def p_value(drawn, kind, scale):
    """How surprising the draws are under the law: bins at near-equal steps, none under 20 draws."""
    step = max(1, int(scale / 8))
    # Odd offsets, so that edges fall inside the blocks of a wide sampler too.
    edges = step * np.arange(-200, 200) + step // 3
    lower = np.concatenate([[0.0], lower_tails(kind, scale, edges), [1.0]])
    probabilities = np.diff(lower)
    counts = np.bincount(np.searchsorted(edges, drawn, side="left"), minlength=probabilities.size)
    merged, room = [], [0.0, 0]
    for probability, count in zip(probabilities, counts, strict=True):
        room = [room[0] + probability, room[1] + count]
        if room[0] * drawn.size >= 20:
            merged.append(room)
            room = [0.0, 0]
    merged[-1] = [merged[-1][0] + room[0], merged[-1][1] + room[1]]
    if len(merged) < 2:
        pytest.fail("one bin tests nothing")
    statistic = sum((c - p * drawn.size) ** 2 / (p * drawn.size) for p, c in merged)
    return chi_square_tail(statistic, len(merged) - 1)


def draw(method, kind, scale, *, seed=1, size=SIZE, **options):
    out = np.empty(size, np.int64)
    method(Law(kind, Fraction(str(scale))), out, SeededSource(seed), **options)
    return out


def test_the_chi_square_tail_itself():
    for statistic, freedom, expected in (
        (3.841458820694124, 1, 0.05),
        (7.814727903251179, 3, 0.05),
        (18.307038053275146, 10, 0.05),
        (2.0, 2, math.exp(-1)),
        (40.0, 2, math.exp(-20)),
        (149.44925277903886, 100, 0.001),
    ):
        assert math.isclose(chi_square_tail(statistic, freedom), expected, rel_tol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.3, 1, 20, 700, 2047.9])
def test_narrow_laws(kind, scale):
    assert p_value(draw(draw_narrow, kind, scale), kind, scale) > FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [2048, 2900.5, 5739.36, 10**6, 2**40, 2**50])
def test_wide_laws(kind, scale):
    assert p_value(draw(draw_wide, kind, scale), kind, scale) > FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1, 20])
def test_narrow_laws_with_words_of_eight_bits(kind, scale):
    drawn = draw(draw_narrow, kind, scale, size=200_000, bits=8)
    assert p_value(drawn, kind, scale) > FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_bits", [0, 1, 3])
def test_wide_laws_with_coarse_blocks(kind, block_bits):
    drawn = draw(draw_wide, kind, 37.5, size=100_000, block_bits=block_bits)
    assert p_value(drawn, kind, 37.5) > FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
def test_wide_laws_with_coarse_blocks_and_words_of_eight_bits(kind):
    drawn = draw(draw_wide, kind, 21, size=100_000, block_bits=1, bits=8)
    assert p_value(drawn, kind, 21) > FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [2**11, 2**30])
def test_low_digits_of_wide_laws_are_even(kind, scale):
    counts = np.bincount(draw(draw_wide, kind, scale) % 16, minlength=16)
    statistic = float(((counts - SIZE / 16) ** 2 / (SIZE / 16)).sum())
    assert chi_square_tail(statistic, 15) > FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("method", "scale"), [(draw_narrow, 20), (draw_wide, 5000)])
def test_neighbouring_draws_are_independent(kind, method, scale):
    positive = draw(method, kind, scale) > 0
    far = np.abs(draw(method, kind, scale)) > scale
    for events in (positive, far):
        share = events.mean()
        both = np.mean(events[:-1] & events[1:])
        spread = share * (1 - share) / math.sqrt(SIZE)
        assert abs(both - share**2) < 4.9 * spread


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("method", "scale"), [(draw_narrow, 20), (draw_wide, 5000)])
@pytest.mark.parametrize("fault", ["0.97", "1.03"])
def test_control_a_scale_off_by_three_per_cent_is_found(kind, method, scale, fault):
    drawn = draw(method, kind, Fraction(fault) * scale)
    assert p_value(drawn, kind, scale) < FALSE_ALARM


def test_control_the_other_law_is_found():
    drawn = draw(draw_narrow, "laplace", 20)
    assert p_value(drawn, "gaussian", 20 * math.sqrt(2)) < FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
def test_control_a_wrong_extension_is_found(kind, monkeypatch):
    monkeypatch.setattr(samplers, "_resolve", lambda table, value, source: 0)
    drawn = draw(draw_narrow, kind, 20, size=200_000, bits=8)
    assert p_value(drawn, kind, 20) < FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
def test_control_keeping_every_pair_is_found(kind, monkeypatch):
    monkeypatch.setattr(samplers, "_keep", lambda plan, block, *rest: np.ones(block.size, bool))
    drawn = draw(draw_wide, kind, 37.5, size=100_000, block_bits=1)
    assert p_value(drawn, kind, 37.5) < FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
def test_control_a_double_zero_is_found(kind):
    drawn = draw(draw_narrow, kind, 20)
    zeros = drawn[drawn == 0]
    doubled = np.concatenate([drawn[: SIZE - zeros.size], zeros])
    assert p_value(doubled, kind, 20) < FALSE_ALARM


@pytest.mark.statistical(real=True)
@pytest.mark.parametrize("scale", [20, 5739])
def test_the_real_source(scale):
    # Not repeatable, hence a rarer alarm.
    assert p_value(discrete_laplace(scale=scale, size=SIZE), "laplace", scale) > 1e-9
    assert p_value(discrete_gaussian(sigma=scale, size=SIZE), "gaussian", scale) > 1e-9
