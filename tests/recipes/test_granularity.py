"""Query matrices: norms, and equality with matrices built the plain way, by Kronecker products."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError
from sfumato.core.questions.question import Queries
from sfumato.inference import Domain
from sfumato.recipes.shared.granularity import GRID, Blocks, Pool, expand_blocks


def parts(domain):
    return [part for size in range(1, len(domain) + 1) for part in combinations(tuple(domain), size)]


def dense(queries):
    matrix = np.zeros((queries.rows, queries.cells))
    for row in range(queries.rows):
        place = slice(queries.starts[row], queries.starts[row + 1])
        matrix[row, queries.members[place]] += queries.weights[place] / queries.grid
    return matrix


def summing(domain, part, columns):
    """The matrix that takes the cells of `columns` to those of `part`."""
    matrix = np.ones((1, 1))
    for name in columns:
        matrix = np.kron(matrix, np.eye(domain[name]) if name in part else np.ones((1, domain[name])))
    return matrix


def reference(domain, flags):
    """Every marginal's matrix as the mechanism describes it, all rows of all children, nothing merged."""
    matrices = {}
    for columns in parts(domain):
        children = list(combinations(columns, len(columns) - 1)) if len(columns) > 1 else []
        plausible = np.ones(domain.cells(columns), bool)
        for child in children:
            plausible &= (flags[child] @ summing(domain, child, columns)).astype(bool)
        rows = [np.eye(plausible.size)[plausible]]
        for child in children:
            coarse = matrices[child] @ summing(domain, child, columns) / math.sqrt(len(children))
            coarse[:, plausible] = 0
            rows.append(coarse[np.abs(coarse).sum(axis=1) > 0])
        matrices[columns] = np.concatenate(rows)
    return matrices


@st.composite
def flagged(draw):
    """A domain of up to four columns, and a source of random flags."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    domain = Domain({f"c{index}": size for index, size in enumerate(sizes)})
    return domain, draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0]))


def follow(domain, seed, share):
    """Blocks and queries of every marginal, with random flags."""
    generator = np.random.default_rng(seed)
    blocks = Blocks(domain)
    built, queries = {}, {}
    for columns in parts(domain):
        built[columns] = blocks.build(columns)
        queries[columns] = expand_blocks(domain, columns, built[columns])
        blocks.flag(columns, generator.random(int(blocks.plausible[columns].sum())) < share)
    return blocks, built, queries


@given(flagged())
def test_every_column_has_norm_one_but_for_rounding(case):
    _, _, made = follow(*case)
    for queries in made.values():
        squares = np.bincount(queries.members, queries.weights.astype(float) ** 2, minlength=queries.cells)
        assert squares.max() <= GRID**2
        assert squares.min() >= GRID**2 * 0.99
        assert (np.diff(queries.starts) > 0).all()


@given(flagged())
def test_merged_rows_tell_as_much_as_all_rows_of_all_children(case):
    # With noise of one width, the information about the cells is the Gram matrix of the queries.
    domain, *_ = case
    blocks, _, made = follow(*case)
    plain = reference(domain, {columns: flags.astype(float) for columns, flags in blocks.flags.items()})
    for columns, queries in made.items():
        matrix = dense(queries)
        np.testing.assert_allclose((plain[columns] ** 2).sum(axis=0), 1)
        np.testing.assert_allclose(matrix.T @ matrix, plain[columns].T @ plain[columns], atol=0.005)


@given(flagged())
def test_pooled_sums_are_those_of_the_cells(case):
    domain, *_ = case
    _, built, made = follow(*case)
    generator = np.random.default_rng(1)
    counts = generator.integers(0, 50, domain.cells(tuple(domain)))
    pool = Pool(domain)
    for columns, queries in made.items():
        exact = queries.apply((summing(domain, columns, tuple(domain)) @ counts).astype(np.int64))
        pool.add(built[columns], exact / GRID, sigma=2.0)
    told = 0
    for noisy in pool.measurements():
        cells = summing(domain, noisy.columns, tuple(domain)) @ counts
        if noisy.queries is not None:
            spread = noisy.queries.weights * cells[noisy.queries.members]
            cells = np.add.reduceat(spread, noisy.queries.starts[:-1])
        np.testing.assert_allclose(noisy.values, cells, rtol=1e-9, atol=1e-6)
        told += noisy.values.size
    assert told <= sum(queries.rows for queries in made.values())


def test_sums_that_are_not_scaled_down_are_refused():
    domain = Domain({"a": 3, "b": 3})
    blocks = Blocks(domain)
    for name in domain:
        blocks.build((name,))
        blocks.flag((name,), np.zeros(3, bool))
    coarse = blocks.build(("a", "b"))
    assert [weight for _, weight in coarse] == [724, 724]
    with pytest.raises(RecipeError, match="norm above 1"):
        expand_blocks(domain, ("a", "b"), [(block, weight + 1) for block, weight in coarse])


def test_copies_count_by_their_precision():
    domain = Domain({"a": 2})
    blocks, pool = Blocks(domain), Pool(domain)
    built = blocks.build(("a",))
    for value in (10.0, 14.0):
        pool.add(built, np.array([value, 0.0]), sigma=3.0)
    values, sigma = pool.average(("a",))
    assert values.tolist() == [12.0, 0.0]
    assert sigma == pytest.approx([3 / math.sqrt(2)] * 2)


def test_a_large_marginal_takes_little_room():
    domain = Domain({"p": 78, "s": 21, "d": 78, "f": 11})
    _, _, made = follow(domain, 0, 0.4)
    queries = made[tuple(domain)]
    assert queries.cells == 78 * 21 * 78 * 11
    assert queries.members.size <= 12 * queries.cells
    assert queries.members.itemsize == queries.weights.itemsize == 4


@pytest.mark.parametrize("members", [[0, 1, 0], [1, 0, 1], [2, 2, 1]])
def test_a_cell_named_twice_in_a_row_is_refused(members):
    with pytest.raises(RecipeError, match="twice"):
        Queries(
            cells=3, grid=4, starts=np.array([0, 0, 3, 3]), members=np.array(members), weights=np.ones(3, int)
        )
