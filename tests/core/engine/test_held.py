"""What individuals add is held to a norm: the numbers that arrays give are those of exact integers."""

import math
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.algebra.measures import MOST_STEPS, NORMS, Clip
from sfumato.core.engine.bounded import divide, find_starts, hold_to_norm, sort_places

amounts = st.integers(-MOST_STEPS, MOST_STEPS) | st.integers(-20, 20)
shares = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), amounts), min_size=1, max_size=30)
bounds = st.integers(1, 40) | st.integers(1, MOST_STEPS)


def hold(made, clip, *, groups):
    """The same with numbers of Python."""
    people = defaultdict(dict)
    for person, cell, amount in made:
        people[person][cell] = amount
    sums, norms = [0] * groups, []
    for cells in people.values():
        norm = sum(map(abs, cells.values()))
        if clip.norm == "L2" and groups > 1:
            root = math.isqrt(sum(each * each for each in cells.values()))
            norm = range(root, root + 3 + root // 2**49)
        norms.append(norm)
        for cell, amount in cells.items():
            sums[cell] += amount
    return sums, norms


@given(shares, bounds, st.sampled_from(["L1", "L2"]))
@settings(max_examples=200)
def test_everybody_is_held_to_the_norm_and_nobody_within_it_is_changed(made, bound, norm):
    made = sorted({(person, cell): amount for person, cell, amount in made}.items())
    made = [(person, cell, amount) for (person, cell), amount in made]
    clip, groups = Clip(norm=norm, bound=bound), 3
    for person in {person for person, _, _ in made}:
        mine = [each for each in made if each[0] == person]
        cells = np.array([cell for _, cell, _ in mine])
        given = np.array([amount for _, _, amount in mine])
        found = hold_to_norm(given, clip, firsts=np.array([0]), cells=cells, groups=groups)
        size = (
            sum(abs(int(each)) for each in found)
            if norm == "L1"
            else math.isqrt(sum(int(each) ** 2 for each in found))
        )
        assert size <= bound
        (exact,) = hold(mine, clip, groups=groups)[1]
        if (exact if norm == "L1" else max(exact)) <= bound:
            assert found[cells].tolist() == given.tolist()
        elif norm == "L1":
            scaled = [(amount > 0 or -1) * (abs(amount) * bound // exact) for _, _, amount in mine]
            assert found[cells].tolist() == scaled
    # All together are the sum of each alone, so that nobody's part depends on who else is there.
    firsts = np.array([k for k, each in enumerate(made) if k == 0 or made[k - 1][0] != each[0]], np.int64)
    cells = np.array([cell for _, cell, _ in made], np.int64)
    given = np.array([amount for _, _, amount in made], np.int64)
    total = hold_to_norm(given, clip, firsts=firsts, cells=cells, groups=groups)
    alone = np.zeros(groups, np.int64)
    for start, end in zip(firsts, [*firsts[1:], len(made)], strict=True):
        alone += hold_to_norm(
            given[start:end], clip, firsts=np.array([0]), cells=cells[start:end], groups=groups
        )
    assert total.tolist() == alone.tolist()
    counted = hold_to_norm(given, Clip(norm=norm), firsts=firsts, cells=cells, groups=groups)
    assert len(counted) == len(NORMS)
    assert counted.sum() == sum(1 for each in hold(made, clip, groups=groups)[1] if each != 0)


@given(st.lists(st.tuples(st.integers(0, MOST_STEPS), st.integers(0, 2**62)), min_size=1), bounds)
def test_scaling_down_is_exact(made, bound):
    given = np.array([amount for amount, _ in made])
    norms = np.array([bound + 1 + more for _, more in made])
    expected = [amount * bound // (bound + 1 + more) for amount, more in made]
    assert divide(given, bound, norms).tolist() == expected


@given(st.lists(st.integers(0, 2**61) | st.integers(0, 50)))
def test_places_are_in_the_order_of_the_numbers(numbers):
    pairs = np.array(numbers, np.int64)
    ordered, places = sort_places(pairs)
    assert ordered.tolist() == pairs[places].tolist() == sorted(numbers)
    assert find_starts(ordered).tolist() == [sorted(numbers).index(each) for each in sorted({*numbers})]
