import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.recipes.grouping.association import (
    count_joint,
    join_partitions,
    make_partition,
    measure_association,
)


def associate(*columns):
    return measure_association([make_partition(np.asarray(each)) for each in columns])


def test_independent_columns_are_near_zero_whatever_their_domains():
    generator = np.random.default_rng(5)
    skewed = np.minimum(generator.zipf(1.5, 4000), 5000)
    columns = [
        generator.integers(0, 5000, 4000),
        generator.integers(0, 5000, 4000),
        generator.integers(0, 700, 4000),
        generator.integers(0, 20, 4000),
        generator.integers(0, 2, 4000),
        skewed,
        (generator.random(4000) < 0.001).astype(int),
    ]
    matrix = associate(*columns)
    assert matrix[np.triu_indices(len(columns), 1)].max() < 0.04


def test_an_identifier_tells_nothing():
    generator = np.random.default_rng(6)
    values = generator.integers(0, 9, 3000)
    nearly = np.arange(3000)
    nearly[:20] = 0
    matrix = associate(np.arange(3000), nearly, values)
    assert matrix[0, 1] == matrix[0, 2] == matrix[1, 2] == 0


@pytest.mark.parametrize("distinct", [2, 30, 800])
def test_a_column_that_follows_from_another_is_fully_associated(distinct):
    first = np.random.default_rng(7).integers(0, distinct, 4000)
    matrix = associate(first, (first * 7919) % 100_003, first // 2 if distinct > 2 else first)
    assert matrix[0, 1] == pytest.approx(1)
    assert matrix[0, 2] == pytest.approx(1)


def test_the_stronger_the_link_the_larger_the_figure():
    generator = np.random.default_rng(8)
    first = generator.integers(0, 10, 20_000)
    found = [
        associate(
            first, np.where(generator.random(20_000) < share, first, generator.integers(0, 10, 20_000))
        )[0, 1]
        for share in (0, 0.2, 0.5, 0.8, 1)
    ]
    assert found == sorted(found)
    assert found[0] < 0.001
    assert found[-1] == pytest.approx(1)


def test_a_few_odd_rows_make_no_strong_pair():
    generator = np.random.default_rng(9)
    first, second = generator.integers(0, 6, 5000), generator.integers(0, 6, 5000)
    first[:3] = second[:3] = 6
    assert associate(first, second)[0, 1] < 0.02


def test_rows_without_a_value_in_both_are_left_out():
    generator = np.random.default_rng(10)
    first = generator.integers(0, 5, 4000)
    second = first.copy()
    second[2000:] = -1
    other = generator.integers(0, 5, 4000)
    other[:2500] = -1
    nowhere = np.full(4000, -1)
    matrix = associate(first, second, other, nowhere)
    assert matrix[0, 1] == pytest.approx(1)
    assert matrix[0, 2] < 0.02
    assert matrix[1, 2] == 0  # no row has both
    assert (matrix[3, :3] == 0).all()


def test_a_column_with_one_value_has_no_association():
    assert associate(np.zeros(50, int), np.arange(50) % 5)[0, 1] == 0


def test_the_figures_are_the_same_again_and_symmetric():
    generator = np.random.default_rng(11)
    columns = [generator.integers(0, 9, 1000) for _ in range(5)]
    matrix = associate(*columns)
    assert (matrix == associate(*columns)).all()
    assert (matrix == matrix.T).all()
    assert (np.diag(matrix) == 1).all()


codes = st.lists(st.tuples(st.integers(-1, 6), st.integers(-1, 2**40)), min_size=1, max_size=60)


@given(codes)
def test_the_figure_lies_between_zero_and_one(rows):
    first, second = (np.array(each, np.int64) for each in zip(*rows, strict=True))
    assert 0 <= associate(first, second)[0, 1] <= 1


@given(codes)
def test_joint_counts_are_those_of_the_pairs(rows):
    first, second = (make_partition(np.array(each, np.int64)) for each in zip(*rows, strict=True))
    known = [row for row in rows if min(row) >= 0]
    expected = sorted(known.count(pair) for pair in set(known))
    assert sorted(join_partitions(first, second).count().tolist()) == expected
    both = (first.labels >= 0) & (second.labels >= 0)
    if both.any():
        counts = count_joint(first.labels[both], second.labels[both], shape=(first.distinct, second.distinct))
        assert sorted(counts.tolist()) == expected
        wide = count_joint(first.labels[both], second.labels[both], shape=(first.distinct, 2**30))
        assert sorted(wide.tolist()) == expected
