"""Models: every answer is that of the definition, written out in fractions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.diversity import holds
from sfumato.anonymity.models import (
    Model,
    Models,
    Sensitive,
    count_values,
)
from sfumato.core.errors import AnonymityError

MODELS = st.one_of(
    st.builds(Model, st.just("distinct"), st.just("s"), st.integers(1, 4)),
    st.builds(Model, st.just("entropy"), st.just("s"), st.sampled_from([1, 1.5, 2, 2.5, 3])),
    st.builds(
        Model,
        st.just("recursive"),
        st.just("s"),
        st.sampled_from([0.1, 0.5, 1, 1.5, 3]),
        st.integers(1, 4),
    ),
    st.builds(
        Model,
        st.sampled_from(["equal", "ordered"]),
        st.just("s"),
        st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.3, 0.5, 1.0]),
    ),
    st.builds(Model, st.just("delta"), st.just("s"), st.sampled_from([0.3, 1.0, 3.0])),
)
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=40)


def sensitive(rows):
    return count_values(
        "s",
        np.array([tuple_ for tuple_, _ in rows], np.int32),
        np.array([3 * value for _, value in rows], np.int32),
        tuples=6,
    )


@given(rows=ROWS, model=MODELS, classes=st.lists(st.integers(-1, 2), min_size=6, max_size=6))
def test_every_class_is_judged_as_by_definition(rows, model, classes):
    table = [value for _, value in rows]
    if not holds(model, table, table):
        with pytest.raises(AnonymityError, match=r"column 's': the whole table has .* so no grouping can"):
            Models((model,), (sensitive(rows),))
        return
    models = Models((model,), (sensitive(rows),))
    judged = models.find_satisfied(np.array(classes, np.int32), 3)
    for each in range(3):
        values = [value for tuple_, value in rows if classes[tuple_] == each]
        expected = not values or holds(model, values, table)
        assert judged[each] == expected


@given(rows=ROWS, model=MODELS, kept=st.lists(st.booleans(), min_size=6, max_size=6))
def test_what_is_left_out_no_longer_counts(rows, model, kept):
    left = [(tuple_, value) for tuple_, value in rows if kept[tuple_]]
    table = [value for _, value in left]
    if (
        not left
        or not holds(model, table, table)
        or not holds(model, [v for _, v in rows], [v for _, v in rows])
    ):
        return
    models = Models((model,), (sensitive(rows),)).restrict(np.array(kept))
    judged = models.find_satisfied(np.arange(6, dtype=np.int32), 6)
    for each in {tuple_ for tuple_, _ in left}:
        values = [value for tuple_, value in left if tuple_ == each]
        assert judged[each] == holds(model, values, table)


def test_ties_hold():
    rows = np.array([0, 0, 1, 1, 1, 1, 1, 1, 1, 1], np.int32)
    values = np.array([0, 1, 0, 0, 0, 0, 1, 1, 1, 1], np.int32)
    column = count_values("s", rows, values, tuples=2)
    exact = (
        Model("entropy", "s", 2),
        Model("equal", "s", 0.0),
        Model("ordered", "s", 0.0),
        Model("distinct", "s", 2),
    )
    assert Models(exact, (column,)).find_satisfied(np.array([0, 1], np.int32), 2).all()


def test_the_most_frequent_value_must_be_strictly_less_frequent():
    rows = np.zeros(4, np.int32)
    column = count_values("s", rows, np.array([0, 0, 0, 1], np.int32), tuples=1)
    Models((Model("recursive", "s", 3.1, 2),), (column,))
    with pytest.raises(AnonymityError, match="too frequent"):
        Models((Model("recursive", "s", 3.0, 2),), (column,))


@pytest.mark.slow
def test_tables_of_billions_of_rows_do_not_overflow():
    big = 3_000_000_000
    column = Sensitive(
        "s",
        3,
        np.array([0, 2, 4]),
        np.array([0, 1, 1, 2], np.int32),
        np.array([big, big, big, big]),
    )
    for distance, apart in (("equal", 0.25), ("ordered", 0.25)):
        near = Models((Model(distance, "s", apart + 1e-6),), (column,))
        assert near.find_satisfied(np.array([0, 1], np.int32), 2).all()
        far = Models((Model(distance, "s", apart - 1e-6),), (column,))
        assert not far.find_satisfied(np.array([0, 1], np.int32), 2).any()
    models = Models((Model("entropy", "s", 2), Model("recursive", "s", 1.5, 2)), (column,))
    assert models.find_satisfied(np.array([0, -1], np.int32), 1).all()


def test_a_model_of_another_column_is_refused():
    with pytest.raises(AnonymityError, match="not among"):
        Models((Model("distinct", "other", 2),), ())


def test_messages_hold_no_value():
    column = count_values("s", np.zeros(3, np.int32), np.array([7, 7, 7], np.int32), tuples=1)
    for model in (Model("distinct", "s", 2), Model("entropy", "s", 2), Model("recursive", "s", 2, 2)):
        with pytest.raises(AnonymityError) as caught:
            Models((model,), (column,))
        assert "7" not in str(caught.value)
