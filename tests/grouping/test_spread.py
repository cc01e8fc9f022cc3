"""The expected error against histograms that get noise and cut."""

import math

import numpy as np
import pytest

from sfumato.grouping.groups import Noise, spread_counts


@pytest.mark.parametrize(("cells", "groups"), [(30, 5), (300, 5), (300, 40), (20_000, 2)])
def test_the_expected_error_is_close_to_that_of_simulated_releases(cells, groups):
    generator = np.random.default_rng(1)
    weights = generator.pareto(1.2, min(cells, 2000)) + 0.1
    counts = generator.multinomial(20_000, weights / weights.sum())
    counts = np.concatenate([counts, np.zeros(cells - counts.size, int)])
    noise = Noise(epsilon=1, sensitivity=1, records=20_000, rows=20_000, cut=2.3)
    expected = noise.expect_error(spread_counts(counts), cells=cells, groups=groups)
    distances = []
    for _ in range(20):
        noisy = counts + generator.laplace(0, groups, cells)
        kept = np.where(noisy >= 2.3 * groups * math.log10(cells), noisy, 0)
        distances.append(np.abs(kept / kept.sum() - counts / counts.sum()).sum() / 2)
    assert expected == pytest.approx(np.mean(distances), rel=0.35, abs=0.004)


def test_more_groups_more_cells_and_fewer_records_err_more():
    spread = spread_counts(np.full(50, 100))

    def error(*, cells=100, groups=5, records=5000.0):
        noise = Noise(epsilon=1, sensitivity=1, records=records, rows=5000, cut=2.3)
        return noise.expect_error(spread, cells=cells, groups=groups)

    assert error() < error(groups=20) < error(groups=1000) <= 1
    assert error() < error(cells=10**6)
    assert error() < error(records=500)


def test_rows_without_a_value_are_lost():
    noise = Noise(epsilon=1e9, sensitivity=1, records=100, rows=100, cut=2.3)
    assert noise.expect_error(spread_counts(np.array([40, 30])), cells=2, groups=1) == pytest.approx(0.3)
    assert noise.expect_error(spread_counts(np.array([70])), cells=1, groups=1) == pytest.approx(0.3)
