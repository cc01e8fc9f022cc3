"""Queries: what counts as a partition, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError
from sfumato.core.questions.question import Queries

FIELDS = ("cells", "grid", "starts", "members", "weights")


def unchecked(rows, *, cells, weight=1, grid=1):
    """Queries as they would be if nothing had been checked when they were made."""
    made = object.__new__(Queries)
    starts = np.cumsum([0, *(len(row) for row in rows)])
    members = np.array([cell for row in rows for cell in row], np.int32)
    weights = np.full(members.size, weight, np.int32)
    for name, value in zip(FIELDS, (cells, grid, starts, members, weights), strict=True):
        object.__setattr__(made, name, value)
    return made


def build(rows, *, cells, weights=None, grid=1):
    members = [cell for row in rows for cell in row]
    return Queries(
        cells=cells,
        grid=grid,
        starts=np.cumsum([0, *(len(row) for row in rows)]),
        members=np.array(members, np.int64),
        weights=np.array([grid] * len(members) if weights is None else weights, np.int64),
    )


ROWS = st.lists(st.sets(st.integers(0, 5), max_size=6).map(sorted), min_size=1, max_size=5)


@given(ROWS)
def test_overlapping_sums_are_no_partition_and_have_the_larger_norm(rows):
    matrix = np.zeros((len(rows), 6))
    for place, row in enumerate(rows):
        matrix[place, row] = 1
    overlap = matrix.sum(axis=0).max(initial=0) > 1
    assert unchecked(rows, cells=6).is_partition == (not overlap)
    if overlap:  # a column of norm sqrt(2) at least: the noise of a partition would not cover it
        assert np.linalg.norm(matrix, axis=0).max() >= np.sqrt(2)
        with pytest.raises(RecipeError, match="L2 norm above 1"):
            build(rows, cells=6)
    else:
        made = build(rows, cells=6)
        assert made.is_partition
        counts = np.arange(6) ** 2
        assert made.apply(counts).tolist() == (matrix @ counts).astype(int).tolist()


@pytest.mark.parametrize(
    ("rows", "weights", "grid"),
    [
        ([[0, 1], [1, 2]], [10, 7, 7, 10], 10),  # 0.7^2 + 0.7^2 < 1
        ([[0, 1], [2]], [10, 9, 10], 10),
        ([[0, 1], [2]], [1, -1, 1], 1),
        ([[0, 1], [1]], [1, 1, 0], 1),
        ([[0, 1], [2]], [2, 2, 2], 2),  # all 1, but in another unit than the counts
    ],
)
def test_weighted_sums_are_no_partition(rows, weights, grid):
    assert not build(rows, cells=3, weights=weights, grid=grid).is_partition


@pytest.mark.parametrize("records", [2**22 - 1, 2**23, 2**40])
def test_sums_of_weights_never_wrap(records):
    """One record more would move a sum that wraps from one end of the numbers to the other."""
    queries = Queries(
        cells=2, grid=2**20, starts=np.array([0, 2]), members=np.array([0, 1]), weights=np.array([2**20, 0])
    )
    true_counts = np.array([records * 2**20, 7], np.int64)
    assert queries.apply(true_counts).tolist() == [min(records * 2**40, 2**62)]
