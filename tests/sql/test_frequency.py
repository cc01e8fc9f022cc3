"""Open groups with a least number of individuals: the threshold is raised, stated, and holds."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.errors import UnsupportedQuery

PROJECT = """
[budget]
epsilon = 1000000000
delta = 1e-4
[tables.t]
source = "t.parquet"
unit = "person"
max_records = 1
[tables.t.columns.clinic]
values = ["a", "b"]
"""
SIZES = {"one": 1, "nine": 9, "ten": 10, "many": 400}


@pytest.fixture
def curator(tmp_path):
    wards = [name for name, size in SIZES.items() for _ in range(size)]
    columns = {"person": list(range(len(wards))), "ward": wards, "clinic": ["a"] * len(wards)}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    (tmp_path / "sfumato.toml").write_text(PROJECT)
    return sf.open(tmp_path / "sfumato.toml")


def ask(options, key="ward"):
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) {key}, COUNT(*) AS n FROM t GROUP BY {key}"


@pytest.mark.parametrize(("least", "seen"), [(1, 3), (2, 3), (9, 3), (10, 2), (11, 1), (402, 0)])
def test_groups_of_fewer_individuals_stay_unseen(curator, least, seen):
    # Without noise the threshold is 2 for one individual, and one more for each that is demanded beyond two.
    answer = curator.sql(ask(f"epsilon = 1000000, delta = 1e-6, min_individuals = {least}"))
    assert answer.table.num_rows == seen
    *_, note = answer.notes
    assert f"at least {2 + max(0, least - 2)};" in note
    assert ("one individual" if least <= 2 else f"fewer than {least} individuals") in note


def test_the_demand_is_free_and_said_beforehand(curator):
    plain, more = (
        curator.sql("EXPLAIN " + ask(f"epsilon = 1, delta = 1e-6{each}"))
        for each in ("", ", min_individuals = 50")
    )
    assert "for 50 individuals or more" in more.explanation
    costs = [
        next(line for line in each.explanation.splitlines() if line.startswith("  cost"))
        for each in (plain, more)
    ]
    assert costs[0] == costs[1]
    thresholds = [int(each.explanation.split("at or above ")[1].split(",")[0]) for each in (plain, more)]
    assert thresholds[1] == thresholds[0] + 48


@pytest.mark.parametrize(
    "options", ["epsilon = 1, min_individuals = 5", "epsilon = 1, delta = 1e-6, min_individuals = 5"]
)
def test_public_groups_are_all_answered(curator, options):
    with pytest.raises(UnsupportedQuery, match="HAVING COUNT"):
        curator.sql(ask(options, key="clinic"))
    having = "DP-SELECT 100000 clinic, COUNT(DISTINCT person) AS n FROM t GROUP BY clinic HAVING n >= 20"
    assert curator.sql(having).table["clinic"].to_pylist() == ["a"]
