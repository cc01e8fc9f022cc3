import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError
from sfumato.recipes.grouping.groups import Noise, find_groups, spread_counts


def planted(rows=20_000, seed=3):
    """Two blocks of three columns, each led by a hidden one, and three columns on their own."""
    generator = np.random.default_rng(seed)
    codes = {}
    for block in "ab":
        hidden = generator.integers(0, 4, rows)
        for turn in range(3):
            noisy = generator.random(rows) < 0.15
            codes[f"{block}{turn}"] = np.where(noisy, generator.integers(0, 4, rows), hidden)
    for turn in range(3):
        codes[f"alone{turn}"] = generator.integers(0, 5, rows)
    order = sorted(codes, key=lambda name: name[::-1])
    return {name: codes[name] for name in order}


def sizes_of(codes):
    return {name: int(each.max()) + 1 for name, each in codes.items()}


def names(found):
    return [set(group.columns) for group in found.groups]


def test_planted_blocks_are_found_and_independent_columns_stay_apart():
    codes = planted()
    found = find_groups(codes, sizes_of(codes))
    assert names(found)[:2] == [{"a0", "a1", "a2"}, {"b0", "b1", "b2"}]
    assert sorted(map(len, names(found))) == [1, 1, 1, 3, 3]
    assert [group.cells for group in found.groups] == [64, 64, 5, 5, 5]
    assert found.groups[0].association > 0.4
    assert found.groups[-1].association is None
    assert found.error < found.error_alone
    assert found.apart == ()


def test_columns_are_in_the_order_of_the_table():
    codes = planted()
    found = find_groups(codes, sizes_of(codes))
    assert found.columns == tuple(codes)
    place = {name: index for index, name in enumerate(codes)}
    for group in found.groups:
        assert list(group.columns) == sorted(group.columns, key=place.get)
    assert found.association.shape == (9, 9)


def test_the_same_table_gives_the_same_groups():
    codes = planted(2000)
    first, second = (find_groups(codes, sizes_of(codes)) for _ in range(2))
    assert first.groups == second.groups
    assert (first.association == second.association).all()


def test_many_cells_keep_a_strong_pair_apart_and_it_is_said_why():
    codes = planted()
    found = find_groups(codes, sizes_of(codes), max_cells=16)
    assert max(map(len, names(found))) == 2
    assert {pair.reason for pair in found.apart} == {"too many cells"}
    found = find_groups(codes, sizes_of(codes), max_columns=2)
    assert max(map(len, names(found))) == 2
    assert {pair.reason for pair in found.apart} == {"too many columns"}


def test_a_small_budget_joins_less_than_a_large_one():
    generator = np.random.default_rng(4)
    first = generator.integers(0, 40, 3000)
    moved = np.where(generator.random(3000) < 0.3, generator.integers(0, 40, 3000), first)
    codes = {"a": first, "b": moved, **{f"c{turn}": generator.integers(0, 2, 3000) for turn in range(6)}}
    sizes = sizes_of(codes)
    poor, rich = find_groups(codes, sizes, epsilon=0.3), find_groups(codes, sizes, epsilon=100)
    assert {"a", "b"} not in names(poor)
    assert {"a", "b"} in names(rich)
    assert poor.apart[0].reason == "too few records per cell"
    # As many records per cell as epsilon would give noise less.
    assert {"a", "b"} in names(find_groups(codes, sizes, epsilon=0.3, records=3_000_000))
    assert {"a", "b"} not in names(find_groups(codes, sizes, epsilon=100, sensitivity=500))


def test_domains_beyond_machine_numbers_are_exact():
    codes = {"a": np.arange(1000) % 2, "b": np.arange(1000) % 2}
    sizes = {"a": 2**62, "b": 2}
    assert find_groups(codes, sizes, max_cells=2**63 - 1, epsilon=1e6).groups[0].cells == 2**62
    joined = find_groups(codes, sizes, max_cells=2**63, epsilon=1e6).groups
    assert [group.cells for group in joined] == [2**63]


def test_a_column_above_the_limit_stays_alone():
    codes = {"a": np.arange(2000) % 50, "b": np.arange(2000) % 50 // 10}
    found = find_groups(codes, {"a": 50, "b": 5}, max_cells=20)
    assert [(group.columns, group.cells) for group in found.groups] == [(("a",), 50), (("b",), 5)]
    assert found.apart[0].reason == "too many cells"


def test_one_column_constant_columns_and_columns_without_values():
    assert find_groups({"a": np.arange(5)}, {"a": 5}).groups[0].columns == ("a",)
    codes = {"same": np.zeros(400, int), "none": np.full(400, -1), "a": np.arange(400) % 2}
    found = find_groups(codes, {"same": 1, "none": 9, "a": 2})
    assert sorted(map(len, names(found))) == [1, 1, 1]
    errors = {group.columns[0]: group.error for group in found.groups}
    assert errors["same"] == 0
    assert errors["none"] == 1


def test_of_many_rows_some_are_looked_at(monkeypatch):
    monkeypatch.setattr("sfumato.recipes.grouping.groups.MOST_ROWS", 5000)
    codes = planted()
    found = find_groups(codes, sizes_of(codes))
    assert found.rows == 20_000
    assert names(found)[:2] == [{"a0", "a1", "a2"}, {"b0", "b1", "b2"}]


@pytest.mark.parametrize("key", ["records", "max_cells", "max_columns", "least"])
def test_options_that_mean_nothing_are_refused(key):
    with pytest.raises(RecipeError):
        find_groups({"a": np.array([0])}, {"a": 1}, **{key: 1.1 if key == "least" else 0})


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 40))
    columns = draw(st.integers(1, 6))
    seed = draw(st.integers(0, 2**32))
    generator = np.random.default_rng(seed)
    hidden = generator.integers(0, 3, rows)
    codes, sizes = {}, {}
    for turn in range(columns):
        width = draw(st.sampled_from([1, 2, 3, 10]))
        values = hidden % width if draw(st.booleans()) else generator.integers(0, width, rows)
        codes[f"c{turn}"] = np.where(generator.random(rows) < draw(st.sampled_from([0, 0.3])), -1, values)
        sizes[f"c{turn}"] = width * draw(st.sampled_from([1, 5, 2**40]))
    return codes, sizes


@given(
    tables(),
    st.sampled_from([1, 7, 100, 2**41, 2**90]),
    st.one_of(st.none(), st.integers(1, 4)),
    st.sampled_from([0.0, 0.1, 0.9]),
    st.sampled_from([0.01, 1.0, 1e4]),
)
def test_limits_hold_and_every_column_is_in_one_group(table, max_cells, max_columns, least, epsilon):
    codes, sizes = table
    found = find_groups(
        codes, sizes, max_cells=max_cells, max_columns=max_columns, least=least, epsilon=epsilon
    )
    assert sorted(name for group in found.groups for name in group.columns) == sorted(codes)
    for group in found.groups:
        assert group.cells == math.prod(sizes[name] for name in group.columns)
        assert 0 <= group.error <= 1
        if len(group.columns) > 1:
            assert group.cells <= max_cells
            assert max_columns is None or len(group.columns) <= max_columns
            assert 0 <= group.association <= 1
    assert 0 <= found.error <= found.error_alone + 1e-9 <= 1 + 1e-9


@pytest.mark.parametrize(("cells", "groups"), [(30, 5), (300, 5), (300, 40), (20_000, 2)])
def test_the_expected_error_is_close_to_that_of_simulated_releases(cells, groups):
    generator = np.random.default_rng(1)
    weights = generator.pareto(1.2, min(cells, 2000)) + 0.1
    counts = generator.multinomial(20_000, weights / weights.sum())
    counts = np.concatenate([counts, np.zeros(cells - counts.size, int)])
    noise = Noise(epsilon=1, sensitivity=1, records=20_000, rows=20_000)
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
        noise = Noise(epsilon=1, sensitivity=1, records=records, rows=5000)
        return noise.expect_error(spread, cells=cells, groups=groups)

    assert error() < error(groups=20) < error(groups=1000) <= 1
    assert error() < error(cells=10**6)
    assert error() < error(records=500)


def test_rows_without_a_value_are_lost():
    noise = Noise(epsilon=1e9, sensitivity=1, records=100, rows=100)
    assert noise.expect_error(spread_counts(np.array([40, 30])), cells=2, groups=1) == pytest.approx(0.3)
    assert noise.expect_error(spread_counts(np.array([70])), cells=1, groups=1) == pytest.approx(0.3)
