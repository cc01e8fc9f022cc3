"""Chi-square tests of sparse noise, at a false-alarm rate of one in a million each.

What passes must have the law of noise on every cell, cut afterwards. All draw from a seeded generator, so
that they give one verdict for ever; negative controls show that the same tests find small faults.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from helpers.sources import SeededSource, chi_square_tail
from sfumato.core.law import Law
from sfumato.core.noise import add_noise, add_sparse_noise, samplers, sparse
from sfumato.core.noise.sparse import draw_passing

pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
SIZE = 400_000


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    """Every key stream is a seeded source of its own."""
    seeds = itertools.count(7)
    for module in (samplers, sparse):
        monkeypatch.setattr(module, "KeyStream", lambda: SeededSource(next(seeds)))


def p_value(counts, probabilities):
    """How surprising `counts` are; classes expected fewer than 20 times are joined to the next."""
    total = sum(counts)
    merged, room = [], [0.0, 0]
    for count, probability in zip(counts, probabilities, strict=True):
        room = [room[0] + probability, room[1] + count]
        if room[0] * total >= 20:
            merged.append(room)
            room = [0.0, 0]
    merged[-1] = [merged[-1][0] + room[0], merged[-1][1] + room[1]]
    if len(merged) < 2:
        pytest.fail("one class tests nothing")
    statistic = sum((count - p * total) ** 2 / (p * total) for p, count in merged)
    return chi_square_tail(statistic, len(merged) - 1)


def reach(scale, threshold):
    """P(X >= threshold) for discrete Laplace noise, of any sign."""
    q = math.exp(-1 / float(scale))
    if threshold >= 1:
        return math.exp(-threshold / float(scale)) / (1 + q)
    return 1 - math.exp((threshold - 1) / float(scale)) / (1 + q)


def scale_for(chance, threshold):
    """The scale at which an empty cell reaches `threshold` with this chance."""
    low, high = 0.01, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if reach(middle, threshold) < chance else (low, middle)
    return Fraction(low).limit_denominator(10**9)


def patterns(passing, width, rows):
    """How often each set of `width` neighbouring cells passes, in `rows` rows."""
    mask = np.zeros(width * rows, np.int64)
    mask[passing] = 1
    keys = mask.reshape(rows, width) @ (1 << np.arange(width))
    return np.bincount(keys, minlength=1 << width)


def pattern_chances(chances):
    """The probability of every set of passing cells, given that of each cell."""
    width = len(chances)
    return [
        math.prod(p if key >> place & 1 else 1 - p for place, p in enumerate(chances))
        for key in range(1 << width)
    ]


def pattern_p_value(scale, threshold, *, against=None, rows=SIZE // 6, seed=1):
    law = Law("laplace", Fraction(scale))
    passing = draw_passing(law, threshold, size=6 * rows, source=SeededSource(seed))
    chance = reach(against or scale, threshold)
    return p_value(patterns(passing, 6, rows), pattern_chances([chance] * 6))


LAWS = [(1, 1), (3, 2), ("1/2", 1), (40, 60), (2047, 3000), (2048, 1), (5000, 9000), (10**6, 10**6)]


@pytest.mark.parametrize(("scale", "threshold"), LAWS)
def test_which_cells_pass(scale, threshold):
    assert pattern_p_value(Fraction(scale), threshold) > FALSE_ALARM


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_which_cells_of_a_small_domain_pass(size):
    law, source, runs = Law("laplace", Fraction(2)), SeededSource(3), 4000
    counts = np.zeros(1 << size, np.int64)
    for _ in range(runs):
        counts[int((1 << draw_passing(law, 2, size=size, source=source)).sum())] += 1
    assert p_value(counts, pattern_chances([reach(2, 2)] * size)) > FALSE_ALARM


@pytest.mark.parametrize("chunk", [1, 5])
def test_which_cells_pass_when_batches_are_short(monkeypatch, chunk):
    monkeypatch.setattr(sparse, "_CHUNK", chunk)
    assert pattern_p_value(2, 2, rows=2500) > FALSE_ALARM


@pytest.mark.parametrize(("scale", "threshold"), [(2, 5), (2500, 9000)])
def test_the_number_of_passing_cells_is_binomial(scale, threshold):
    width, rows = 30, 15_000
    law, chance = Law("laplace", Fraction(scale)), reach(scale, threshold)
    passing = draw_passing(law, threshold, size=width * rows, source=SeededSource(5))
    numbers = np.bincount(np.bincount(passing // width, minlength=rows), minlength=width + 1)
    expected = [math.comb(width, k) * chance**k * (1 - chance) ** (width - k) for k in range(width + 1)]
    assert p_value(numbers, expected) > FALSE_ALARM


def test_gaps_in_the_largest_domain_are_geometric():
    """Positions over 2^63 cells, some 15,000 of them: gaps are exponential to within 1e-14."""
    law, threshold = Law("laplace", Fraction(1)), 34
    size = 2**63 - 1
    passing = draw_passing(law, threshold, size=size, source=SeededSource(11))
    chance = reach(1, threshold)
    assert abs(passing.size - size * chance) < 5 * math.sqrt(size * chance)
    shares = 1 - np.exp(-chance * np.diff(passing, prepend=-1).astype(float))
    counts = np.histogram(shares, bins=40, range=(0, 1))[0]
    assert p_value(counts, [1 / 40] * 40) > FALSE_ALARM


@pytest.mark.parametrize("place", [1, 7, 20])
def test_bits_of_gaps_in_the_largest_domain_are_independent(place):
    bits = sparse._gap_bits(Law("laplace", Fraction(1)), 30, count=63)
    gaps, _ = sparse._draw_gaps(bits, 30_000, SeededSource(2))
    assert gaps.size > 25_000
    low, high = (gaps >> np.uint64(place)) & np.uint64(1), (gaps >> np.uint64(place + 15)) & np.uint64(1)
    counts = np.bincount((low + 2 * high).astype(np.int64), minlength=4)
    chance = reach(1, 30)
    first, second = (1 / (1 + math.exp(-(2.0**k) * math.log1p(-chance))) for k in (place, place + 15))
    expected = [(1 - first) * (1 - second), first * (1 - second), (1 - first) * second, first * second]
    assert p_value(counts, expected) > FALSE_ALARM


def classes(values, scale, threshold, true_value):
    """Values above the threshold in near-equal steps, with the first class for what did not pass."""
    step = max(1, int(scale) // 3)
    edges = threshold + step * np.arange(60)
    tails = np.array([reach(scale, int(edge) - true_value) for edge in edges])
    probabilities = np.concatenate([[1 - tails[0]], tails[:-1] - tails[1:], [tails[-1]]])
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=probabilities.size)
    return counts, probabilities


def value_p_values(scale, threshold, true_value, *, release=add_sparse_noise, size=SIZE):
    """P-values of empty and of occupied cells; every second cell holds `true_value`."""
    cells = np.arange(0, size, 2)
    found, noisy = release(
        cells, np.full(cells.size, true_value), size=size, scale=scale, threshold=threshold
    )
    results = []
    for parity, true in ((1, 0), (0, true_value)):
        values = noisy[found % 2 == parity]
        counts, probabilities = classes(values, float(Fraction(scale)), threshold, true)
        counts[0] = size // 2 - values.size
        results.append(p_value(counts, probabilities))
    return results


@pytest.mark.parametrize(
    ("scale", "threshold", "true_value"),
    [
        (1, 1, 0),
        (2, 3, 3),
        ("9/2", 10, 4),
        (40, 100, 500),
        (2047, 4000, 100),
        (2048, 5000, 9000),
        (10**5, 150_000, 10**5),
    ],
)
def test_values_of_empty_and_occupied_cells(scale, threshold, true_value):
    assert min(value_p_values(scale, threshold, true_value)) > FALSE_ALARM


def joint_p_value(release, *, runs=3000):
    """Which of five cells pass, two of them occupied, over whole calls."""
    cells, values, counts = np.array([1, 3]), np.array([3, 1]), np.zeros(32, np.int64)
    for _ in range(runs):
        found, _ = release(cells, values, size=5, scale=2, threshold=2)
        counts[int((1 << np.unique(found)).sum())] += 1
    return p_value(counts, pattern_chances([reach(2, 2 - true) for true in (0, 3, 0, 1, 0)]))


def test_occupied_and_empty_cells_pass_independently():
    assert joint_p_value(add_sparse_noise) > FALSE_ALARM


def test_sparse_and_dense_noise_have_one_law():
    """The same statistic of dense noise, cut: the tests themselves are right."""

    def dense(cells, values, *, size, scale, threshold):
        counts = np.zeros(size, np.int64)
        counts[cells] = values
        noisy = add_noise(counts, kind="laplace", scale=scale)
        kept = np.flatnonzero(noisy >= threshold)
        return kept, noisy[kept]

    assert joint_p_value(dense) > FALSE_ALARM
    assert min(value_p_values(2, 3, 3, release=dense)) > FALSE_ALARM


@pytest.mark.parametrize("fault", [0.97, 1.03])
@pytest.mark.parametrize("threshold", [2, 5000])
def test_control_a_chance_three_per_cent_off_is_found(fault, threshold):
    scale = scale_for(0.2, threshold)
    wrong = scale_for(0.2 * fault, threshold)
    assert pattern_p_value(wrong, threshold, against=scale) < FALSE_ALARM


@pytest.mark.parametrize("fault", [1, -1])
def test_control_gaps_off_by_one_are_found(monkeypatch, fault):
    original = sparse._draw_gaps

    def off(bits, count, source):
        gaps, ended = original(bits, count, source)
        return np.maximum(gaps.astype(np.int64) + fault, 0).astype(np.uint64), ended

    monkeypatch.setattr(sparse, "_draw_gaps", off)
    assert pattern_p_value(2, 2, rows=5000) < FALSE_ALARM


def test_control_a_bit_that_is_never_set_is_found(monkeypatch):
    original = sparse._draw_gaps

    def cut(bits, count, source):
        gaps, ended = original(bits, count, source)
        return gaps & ~np.uint64(4), ended

    monkeypatch.setattr(sparse, "_draw_gaps", cut)
    assert pattern_p_value(2, 2, rows=5000) < FALSE_ALARM


def twice(cells, values, *, size, scale, threshold):
    """A faulty release: an occupied cell passes by its own noise, or by that of an empty one."""
    noisy = add_noise(values, kind="laplace", scale=scale)
    passing = draw_passing(Law("laplace", Fraction(scale)), threshold, size=size, source=sparse.KeyStream())
    found = np.concatenate([cells[noisy >= threshold], passing])
    amounts = np.concatenate([noisy[noisy >= threshold], np.full(passing.size, threshold)])
    order = np.argsort(found, kind="stable")
    return found[order], amounts[order]


def test_control_occupied_cells_that_pass_twice_are_found():
    cells = np.arange(0, 200, 2)
    found, _ = twice(cells, np.full(100, 3), size=200, scale=2, threshold=2)
    assert (np.diff(found) == 0).any()
    assert joint_p_value(twice) < FALSE_ALARM


def test_control_values_above_the_threshold_off_by_one_are_found(monkeypatch):
    original = sparse._draw_rest
    monkeypatch.setattr(sparse, "_draw_rest", lambda law, count: original(law, count) + 1)
    empty, occupied = value_p_values(2, 3, 3)
    assert empty < FALSE_ALARM < occupied


def test_control_noise_of_half_the_scale_on_occupied_cells_is_found(monkeypatch):
    def half(values, *, kind, scale):
        return add_noise(values, kind=kind, scale=Fraction(scale) / 2)

    monkeypatch.setattr(sparse, "add_noise", half)
    empty, occupied = value_p_values(2, 3, 3)
    assert occupied < FALSE_ALARM < empty
