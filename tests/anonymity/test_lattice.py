"""The lattice: its optimum is the one that trying every node finds."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.diversity import holds
from sfumato.anonymity.divide import find_optimum
from sfumato.anonymity.encode import Quasi, collapse_rows
from sfumato.anonymity.models import Model, Models, count_values

NONE = Models((), ())


def make_column(name, codes, parents):
    """A column whose levels are given as, by level, the group of each group before."""
    size = len(parents[0]) if parents else max(codes) + 1
    levels = [np.arange(size)]
    for groups in parents:
        levels.append(np.array(groups)[levels[-1]])
    levels.append(np.zeros(size, int))
    nodes = np.stack([np.unique(level, return_inverse=True)[1] for level in levels]).astype(np.int32)
    sizes = np.stack([np.bincount(level)[level] for level in nodes])
    names = tuple(tuple(map(str, level)) for level in nodes.tolist())
    return Quasi(
        name,
        "tree",
        np.array(codes, np.int32),
        tuple(range(size)),
        np.arange(size, dtype=np.float64),
        nodes,
        (sizes - 1) / (size - 1),
        names,
    )


@st.composite
def tables(draw):
    rows = draw(st.integers(4, 30))
    columns = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        size = draw(st.integers(2, 6))
        depth = draw(st.integers(0, 2))
        groups = st.lists(st.integers(0, size - 1), min_size=size, max_size=size)
        parents = [draw(groups) for _ in range(depth)] or [list(range(size))]
        codes = draw(st.lists(st.integers(0, size - 1), min_size=rows, max_size=rows))
        columns.append(make_column(name, codes, parents))
    values = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
    return columns, values


def try_every_node(columns, values, k, models, limit, units):
    """The lowest loss of all nodes, summed over rows."""
    rows = range(len(values))
    best = math.inf
    for levels in itertools.product(*(range(len(column.nodes)) for column in columns)):
        classes = {}
        for row in rows:
            key = tuple(c.nodes[level][c.codes[row]] for c, level in zip(columns, levels, strict=True))
            classes.setdefault(key, []).append(row)
        kept = [
            members
            for members in classes.values()
            if len(members) >= k
            and all(holds(model, [values[row] for row in members], values) for model in models)
        ]
        left = [row for members in kept for row in members]
        if len(values) - len(left) > limit:
            continue
        table = [values[row] for row in left]
        if not all(
            holds(model, [values[row] for row in members], table) for members in kept for model in models
        ):
            continue
        loss = sum(units) * (len(values) - len(left))
        for row in left:
            for column, level, unit in zip(columns, levels, units, strict=True):
                loss += unit * column.losses[level][column.codes[row]]
        best = min(best, loss)
    return best


def measure(columns, tuples, found, units):
    loss = 0.0
    for number, weight, each in zip(found.tuple_of_entry, found.weights, found.classes, strict=True):
        if each < 0:
            loss += sum(units) * weight
            continue
        for place, column in enumerate(columns):
            loss += units[place] * weight * column.losses[found.levels[place]][tuples.codes[number, place]]
    return loss


def collapse(columns, values):
    tuples = collapse_rows([column.codes for column in columns], [column.size for column in columns])
    counted = count_values("s", tuples.tuple_of_row, np.array(values, np.int32), tuples=tuples.size)
    return tuples, counted


MODELS = st.sampled_from(
    [
        (),
        (Model("distinct", "s", 2),),
        (Model("entropy", "s", 1.5),),
        (Model("recursive", "s", 2.5, 2),),
        (Model("equal", "s", 0.25),),
        (Model("distinct", "s", 2), Model("equal", "s", 0.3)),
    ]
)


@pytest.mark.slow
@given(
    table=tables(),
    k=st.integers(1, 4),
    models=MODELS,
    share=st.sampled_from([0.0, 0.1, 0.29, 0.5, 1.0]),
    weighted=st.booleans(),
)
def test_no_node_is_better(table, k, models, share, weighted):
    columns, values = table
    units = [1.0, 0.5, 2.0, 1.0][: len(columns)] if weighted else [1.0] * len(columns)
    if not all(holds(model, values, values) for model in models):
        return
    tuples, counted = collapse(columns, values)
    found = find_optimum(tuples, tuples.rows, columns, k, Models(models, (counted,)), share, np.array(units))
    limit = math.floor(Fraction(str(share)) * len(values))
    best = try_every_node(columns, values, k, models, limit, units)
    assert measure(columns, tuples, found, units) == pytest.approx(best, abs=1e-9)
    assert found.weights[found.classes < 0].sum() <= limit
    # Classes are those of the levels, and hold.
    class_of_row = found.classes[tuples.tuple_of_row]
    labels = {}
    for row, each in enumerate(class_of_row):
        label = tuple(c.nodes[level][c.codes[row]] for c, level in zip(columns, found.levels, strict=True))
        assert labels.setdefault(label, each) == each
    for each in range(found.count):
        members = np.flatnonzero(class_of_row == each)
        assert len(members) >= k
        assert all(holds(model, [values[row] for row in members], values) for model in models)
    assert len({each for each in labels.values() if each >= 0}) == found.count


def test_a_suppression_limit_is_rounded_down_exactly():
    # 0.29 * 100 is 28.999... in binary; 29 rows may go.
    codes = [*range(29), *([29] * 71)]
    column = make_column("a", codes, [list(range(30))])
    tuples, _ = collapse([column], [0] * 100)
    found = find_optimum(tuples, tuples.rows, [column], 2, NONE, 0.29)
    assert found.levels == (0,)
    assert found.weights[found.classes < 0].sum() == 29
    assert find_optimum(tuples, tuples.rows, [column], 2, NONE, 0.28).levels == (2,)


def test_a_finer_level_may_satisfy_where_a_coarser_one_does_not():
    # Groups 0 and 1 together are too uneven; apart, only the small one must go.
    codes = [0] * 6 + [1] * 3 + [2] * 11
    values = [0, 1] * 3 + [0] * 3 + [0] * 5 + [1] * 6
    column = make_column("a", codes, [[0, 0, 1]])
    tuples, counted = collapse([column], values)
    models = Models((Model("entropy", "s", 1.9),), (counted,))
    found = find_optimum(tuples, tuples.rows, [column], 2, models, 0.15)
    assert found.levels == (0,)
    assert found.classes.tolist() == [0, -1, 1]


def test_what_is_left_is_compared_with_what_is_left():
    # Class b is all ones, and is suppressed; without it the shares of the others' values are other ones.
    codes = [0] * 10 + [1] * 10 + [2] * 4
    values = [0] * 5 + [1] * 5 + [0] * 5 + [1] * 5 + [1] * 4
    column = make_column("a", codes, [[0, 1, 2]])
    tuples, counted = collapse([column], values)
    model = (Model("equal", "s", 0.1),)
    found = find_optimum(tuples, tuples.rows, [column], 2, Models(model, (counted,)), 0.2)
    assert found.classes.tolist() == [0, 1, -1]
    left = [value for value, code in zip(values, codes, strict=True) if code < 2]
    assert holds(model[0], left[:10], left)


def test_k_may_count_people_of_a_register():
    column = make_column("a", [0, 1, 2, 3], [[0, 0, 1, 1]])
    tuples, _ = collapse([column], [0] * 4)
    people = np.array([5, 0, 3, 3])
    assert find_optimum(tuples, people, [column], 5, NONE, 0.0).levels == (1,)
    assert find_optimum(tuples, people, [column], 3, NONE, 0.25).classes.tolist() == [0, -1, 1, 2]


def test_more_columns_than_a_key_holds():
    rows = 40
    columns = [
        make_column(f"c{place}", [(row * (place + 3)) % 11 for row in range(rows)], [[0] * 5 + [1] * 6])
        for place in range(6)
    ]
    tuples, _ = collapse(columns, [0] * rows)
    found = find_optimum(tuples, tuples.rows, columns, 2, NONE, 0.1)
    best = try_every_node(columns, [0] * rows, 2, (), 4, [1.0] * 6)
    assert measure(columns, tuples, found, [1.0] * 6) == pytest.approx(best)
