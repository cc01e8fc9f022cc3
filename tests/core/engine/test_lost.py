"""Records that bounds cut off: the numbers of plain Python, and one individual's part in them."""

from collections import Counter
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import cap_records, parse_table
from sfumato.core.questions.choices import CapChoice

MAX_RECORDS = 6


def describe(unit="p", **facts):
    spec = {
        "source": "t.parquet",
        "unit": unit,
        "columns": {"c": {"range": [0, 3]}, "d": {"values": ["x", "y"], "outside": "other"}},
        **({} if unit == "row" else {"max_records": MAX_RECORDS}),
        **facts,
    }
    return parse_table("t", spec)


def ask(caps=(1, 2, 4, 6), columns=("c", "d")):
    return CapChoice(
        name="bound", columns=columns, caps=caps, penalties=(0,) * len(caps), epsilon=Fraction(1)
    )


def write(folder, rows):
    table = pa.table(
        {
            "p": pa.array([row[0] for row in rows], pa.string()),
            "c": pa.array([row[1] for row in rows], pa.int64()),
            "d": pa.array([row[2] for row in rows], pa.string()),
        }
    )
    pq.write_table(table, folder / "t.parquet")
    return StatementEngine(folder)


def count(folder, rows, *, choice=None, table=None):
    found = write(folder, rows).count(table or describe(), (choice or ask(),), progress=lambda _: None)[0]
    return found.true_values.tolist()


def lost(rows, caps, *, columns=("c", "d"), most=MAX_RECORDS):
    """In plain Python: records of nobody and outside a dropping domain do not count."""
    numbers = Counter(
        person for person, c, _ in rows if person is not None and ("c" not in columns or c in range(4))
    )
    return [sum(max(0, min(n, most) - cap) for n in numbers.values()) for cap in caps]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["ana", "ben", "cy", "", None]),
        st.sampled_from([0, 1, 3, 9, None]),
        st.sampled_from(["x", "y", "zebra", None]),
    ),
    max_size=60,
)


@pytest.mark.parametrize("caps", [(1, 2), (2, 4), (1, 2, 4, 6)])
def test_the_rate_is_for_what_one_individual_can_lose_also_beyond_the_largest_bound(tmp_path, caps):
    most = [("ana", 0, "x")] * MAX_RECORDS
    moved = count(tmp_path, most, choice=ask(caps), table=describe())
    assert 2 * max(moved) * ask(caps).rate(describe()) == 1


@given(
    rows=ROWS,
    caps=st.sets(st.integers(1, MAX_RECORDS), min_size=2),
    columns=st.sampled_from([("c", "d"), ("d",)]),
)
@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_the_numbers_are_those_of_plain_python(tmp_path, rows, caps, columns):
    caps = tuple(sorted(caps))
    found = count(tmp_path, rows, choice=ask(caps, columns))
    assert found == lost(rows, caps, columns=columns)
    assert found == sorted(found, reverse=True)


def test_counts_print_no_value_and_are_read_only(tmp_path):
    found = write(tmp_path, [("ana", 1, "x")] * 9).count(describe(), (ask(),), progress=lambda _: None)[0]
    assert "withheld" in repr(found)
    with pytest.raises(ValueError, match="read-only"):
        found.true_values[0] = 3


def test_a_table_of_rows_has_no_bound_to_choose(tmp_path):
    engine = write(tmp_path, [("ana", 1, "x")])
    with pytest.raises(RecipeError, match="every row is an individual"):
        engine.count(describe(unit="row"), (ask(),), progress=lambda _: None)[0]


@given(most=st.integers(1, 10**9), bound=st.integers(1, 10**9))
def test_holding_records_never_raises_the_bound(most, bound):
    table = describe(max_records=most)
    capped = cap_records(table, bound)
    assert capped.unit.max_records == min(most, bound)
    assert capped.contribution <= table.contribution
    assert (capped.columns, capped.source, capped.unit.neighbours) == (
        table.columns,
        table.source,
        table.unit.neighbours,
    )
    assert table.unit.max_records == most
