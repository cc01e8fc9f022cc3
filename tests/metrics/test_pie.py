"""The pie chart metric: its rules, its purity, and what it refuses."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.core.errors import MetricError, SfumatoError, SourceError
from sfumato.core.questions.scores import log2
from sfumato.metrics import pie_chart

counts = arrays(np.int64, (7, 9), elements=st.integers(0, 400))


def slow_row(truth, release):
    """One row as the specification words it."""
    if (truth == release).all():
        return 1.0
    bias = 0.25 if abs(int(truth.sum()) - int(release.sum())) > 500 else 0.0
    shown = []
    for side in (truth, release):
        total = side.sum()
        shares = side / total if total else np.zeros(side.size)
        shown.append(np.where(shares < 0.05, 0, side))
    p, q = ((side + 1e-9) / (side + 1e-9).sum() for side in shown)
    middle = (p + q) / 2
    divergence = (p * np.log2(p / middle)).sum() + (q * np.log2(q / middle)).sum()
    misleading = 0.2 * np.count_nonzero((shown[0] == 0) & (shown[1] > 0))
    return min(1.0, max(0.0, 1 - np.sqrt(max(divergence, 0) / 2) - misleading - bias))


@given(counts, counts)
def test_every_row_is_what_the_specification_says(truth, release):
    score = pie_chart(truth, release)
    expected = [slow_row(*rows) for rows in zip(truth, release, strict=True)]
    # The root of a distance that should be zero shows the rounding of the plain formula.
    assert score.rows.tolist() == pytest.approx(expected, abs=5e-8)
    assert score.total == pytest.approx(sum(expected), abs=5e-7)
    assert 0 <= score.mean <= 1


@given(counts, counts, counts, counts, st.randoms(use_true_random=False))
def test_a_row_has_the_same_bits_whatever_the_other_rows_hold(truth, release, more, further, random):
    alone = np.array([pie_chart(t[None], r[None]).rows[0] for t, r in zip(truth, release, strict=True)])
    together = pie_chart(truth, release)
    assert together.rows.tobytes() == alone.tobytes()
    order = random.sample(range(len(truth)), len(truth))
    mixed = pie_chart(np.concatenate([more, truth[order]]), np.concatenate([further, release[order]]))
    assert mixed.rows[len(more) :].tobytes() == alone[order].tobytes()


def test_a_row_has_the_same_bits_across_chunks_widths_of_numbers_and_layouts_in_memory():
    generator = np.random.default_rng(5)
    truth = generator.poisson(0.7, (3000, 174)) * generator.integers(1, 40, (3000, 1))
    release = np.maximum(truth + generator.integers(-3, 4, truth.shape), 0)
    rows = pie_chart(truth, release).rows
    for start in (1, 1023, 1500):
        assert pie_chart(truth[start:], release[start:]).rows.tobytes() == rows[start:].tobytes()
    small = pie_chart(truth.astype(np.int32), np.asfortranarray(release))
    assert small.rows.tobytes() == rows.tobytes()
    backwards = pie_chart(truth[::-1], release[::-1])
    assert backwards.rows[::-1].tobytes() == rows.tobytes()
    assert backwards.total == pie_chart(truth, release).total


def test_one_changed_row_changes_no_other_score():
    generator = np.random.default_rng(6)
    truth, release = generator.poisson(3, (50, 20)), generator.poisson(3, (50, 20))
    before = pie_chart(truth, release)
    truth[17] = generator.poisson(30, 20)
    after = pie_chart(truth, release)
    changed = before.rows != after.rows
    assert not changed[np.arange(50) != 17].any()
    assert abs(before.total - after.total) <= 1


def test_the_worked_row_of_the_specification():
    score = pie_chart(np.array([[60, 36, 4, 0]]), np.array([[60, 30, 5, 5]]))
    assert score.components.jsd[0] == pytest.approx(0.2306, abs=5e-5)
    assert score.components.misleading[0] == pytest.approx(0.4)
    assert score.rows[0] == pytest.approx(0.3694, abs=5e-5)


def test_our_logarithm_is_right_to_the_last_bits_and_does_not_look_around():
    values = np.exp(np.random.default_rng(1).uniform(-700, 700, 10_001))
    ours = log2(values)
    assert np.abs(ours - np.log2(values)).max() <= 4 * np.spacing(700.0)
    near = np.random.default_rng(2).uniform(0.5, 2, 10_001)
    assert np.abs(log2(near) - np.log2(near)).max() < 5e-16
    for at in (0, 1, 5000, 10_000):
        assert log2(values[at : at + 1]).tobytes() == ours[at : at + 1].tobytes()


def test_tables_are_scored_as_arrays_are():
    truth = {"neighborhood": [1, 2], "year": [2019, 2019], "month": [1, 1], "7": [3, 0], "8": [1, 9]}
    release = truth | {"7": [2, 0], "8": [1, 8]}
    expected = pie_chart(np.array([[3, 1], [0, 9]]), np.array([[2, 1], [0, 8]])).rows
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for make in (dict, pa.table, pandas.DataFrame, polars.DataFrame):
        assert pie_chart(make(truth), make(release)).rows.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("truth", "release", "words"),
    [
        (np.ones((2, 3), int), np.ones((2, 4), int), "same rows and columns"),
        (np.ones((2, 3), int), np.ones((1, 3), int), "same rows and columns"),
        (np.ones(3, int), np.ones(3, int), "rows and columns"),
        (np.ones((0, 3), int), np.ones((0, 3), int), "rows and columns"),
        (np.ones((1, 2), int), np.array([[1, -7]]), "release: counts must not be negative"),
        (np.ones((1, 2), int), np.array([[1, 0.5]]), "release: counts must be whole"),
        (np.ones((1, 2), int), np.array([[1, np.nan]]), "release: counts must be finite"),
        (np.ones((1, 2), int), np.array([[1, np.inf]]), "release: counts must be finite"),
        (np.ones((1, 2), int), np.array([["a", "b"]]), "release: counts must be whole"),
        (np.ones((1, 2), int), np.array([[1, 2**50]]), "too large"),
        (np.ones((1, 2), int), {"a": [1], "b": [1]}, "both"),
        ({"month": [1], "7": [1]}, {"month": [2], "7": [1]}, "differ in 'month'"),
        ({"month": [1], "7": [1]}, {"month": [1], "8": [1]}, "same columns"),
        ({"month": [1], "7": [1]}, {"7": [1]}, "no column 'month'"),
        ({"7": [1, 4]}, {"7": [1, None]}, "missing"),
        ({"7": [1]}, {"7": ["4711"]}, "must hold numbers"),
        ({"month": [1]}, {"month": [1]}, "rows and columns"),
        (17, 18, "not a table"),
    ],
)
def test_what_cannot_be_scored_is_refused_without_a_value(truth, release, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        pie_chart(truth, release)
    assert isinstance(caught.value, (MetricError, SourceError))
    assert "4711" not in str(caught.value)
    assert "-7" not in str(caught.value)
