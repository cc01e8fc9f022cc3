"""Second tests of what bounds an individual in a statement: each fails for one of tests/mutants."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.drawn import watch_draws
from helpers.projects import open_rows

COLUMNS = {"k": {"values": list("abcdef")}, "x": {"bounds": [0, 100]}}
MANY = {"person": ["many"] * 6 + ["one"], "k": list("abcdefa"), "x": [100.0] * 7}
MORE = """
[tables.names]
public = true
source = "names.parquet"
[tables.homes]
source = "homes.parquet"
unit = "person"
max_records = 1
"""


@pytest.fixture
def ask(tmp_path):
    """Asks a statement about a person with six records, of which two count, and one with one record."""
    pq.write_table(pa.table({"k": list("abcdef")}), tmp_path / "names.parquet")
    pq.write_table(pa.table({"person": ["many", "one"], "size": [1, 2]}), tmp_path / "homes.parquet")

    def ask(statement, *, rows=MANY, **facts):
        curator = open_rows(tmp_path, COLUMNS, rows, **{"max_records": 2, "more": MORE, **facts})
        with watch_draws() as charges:
            answer = curator.sql(statement)
        (charge,) = charges
        return charge, answer

    return ask


def list_values(asked):
    return [draw.true_values.tolist() for draw in asked[0].draws]


@pytest.mark.parametrize("where", ["", " WHERE x > 50", " WHERE k <> 'a' AND x = 100"])
def test_of_one_persons_records_two_are_counted_where_nothing_is_grouped(ask, where):
    beside = 0 if "<>" in where else 1
    assert list_values(ask(f"DP-SELECT 1 COUNT(*) FROM t{where}")) == [[2 + beside]]


@pytest.mark.parametrize("other", ["names n ON t.k = n.k", "homes n ON t.person = n.person"])
def test_of_one_persons_records_two_enter_a_join_whatever_is_asked_of_it(ask, other):
    found = [list_values(ask(f"DP-SELECT 1 COUNT(*) FROM t JOIN {other} WHERE t.k = '{k}'")) for k in "bcdef"]
    assert sum(value for ((value,),) in found) <= 2


@pytest.mark.parametrize("aggregate", ["SUM(t.x)", "COUNT(t.x)"])
def test_of_six_records_in_six_joined_groups_two_are_aggregated(ask, aggregate):
    by_key = [
        list_values(ask(f"DP-SELECT 1 {aggregate} FROM t JOIN names n ON t.k = n.k WHERE n.k = '{key}'"))
        for key in "bcdef"
    ]
    assert sum(value > 0 for ((value,),) in by_key) <= 2


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("counted", ["COUNT(*)", "COUNT(DISTINCT person)", "SUM(x)"])
def test_one_person_is_in_as_many_groups_as_the_statement_says(ask, counted, most):
    option = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups = {most})"
    alone = {name: values[:6] for name, values in MANY.items()}
    ((*groups,),) = list_values(ask(f"{option} k, {counted} FROM t GROUP BY k", rows=alone, max_records=6))
    assert np.count_nonzero(groups) == most


def test_a_group_of_fewer_than_k_stays_as_unseen_as_a_single_individual_does(ask):
    """Without noise, the smallest group that is shown has k - 2 individuals more than for k = 2."""
    sizes = range(1, 40)
    people = [f"{size}-{number}" for size in sizes for number in range(size)]
    rows = {"person": people, "k": ["a"] * len(people), "x": [0.0] * len(people)}
    rows["note"] = [each.partition("-")[0] for each in people]
    options = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 20, delta = 1e-3, {}) note, COUNT(*) FROM t"
    )
    least = {}
    for k in (2, 3, 9, 20):
        statement = f"{options.format(f'min_individuals = {k}')} GROUP BY note"
        shown = ask(statement, rows=rows, max_records=1, delta=1e-2)[1].to_arrow()["note"].to_pylist()
        least[k] = min(map(int, shown))
    assert {k: each - least[2] for k, each in least.items()} == {2: 0, 3: 1, 9: 7, 20: 18}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_records_that_go_from_one_end_to_the_other_move_a_centred_sum_by_no_more_than_it_costs(
    tmp_path, neighbours
):
    """With so many averages that the noise is Gaussian, which is where it matters who is opposite to whom."""
    names = [f"c{number}" for number in range(40)]
    columns = {name: {"bounds": [0, 100]} for name in names}
    statement = f"DP-SELECT 1 DELTA 1e-3 {', '.join(f'AVG({name})' for name in names)} FROM t"
    sums = []
    for end in (0.0, 100.0):
        rows = {"person": ["p"] * 2, **{name: [end] * 2 for name in names}}
        curator = open_rows(tmp_path, columns, rows, max_records=2, delta=1e-2, neighbours=neighbours)
        with watch_draws() as charges:
            curator.sql(statement.replace("SELECT", "SELECT FRESH"))
        sums.append([draw.true_values for draw in charges[0].draws])
    moved = [float(np.linalg.norm(one - other)) for one, other in zip(*sums, strict=True)]
    assert {draw.kind for draw in charges[0].draws} == {"gaussian"}
    costs = [cost for cost in charges[0].costs for _ in range(cost.count)]
    reached = [distance / float(cost.sensitivity) for distance, cost in zip(moved, costs, strict=True)]
    # Where individuals come and go, each of the two is one.
    assert max(reached) == pytest.approx(1 if neighbours == "replace" else 2)
