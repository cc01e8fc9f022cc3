"""Moments that lie far off: one record must not decide whether there is an answer, or whether it is free."""

import pyarrow as pa
import pytest

import sfumato as sf
from helpers.projects import write_project

FAR = [2**60, -(2**60), 2**63 - 1, -(2**63) + 1, -(2**63) + 808, -9223372036854775]
MUCH = 10**5


def open_table(folder, unit, values):
    moments = pa.array(values).cast(pa.timestamp(unit))
    rows = pa.table({"p": [str(n) for n in range(len(values))], "at": moments})
    columns = {"day": {"from": "at", "period": "day_of_week"}}
    budget = {"epsilon": 10_000_000, "delta": 0.1}
    return sf.open(write_project(folder, columns, rows=rows, unit="p", max_records=1, **budget))


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize(
    "statement",
    [
        f"DP-SELECT {MUCH} day, COUNT(*) FROM t GROUP BY day",
        f"DP-SELECT {MUCH} DELTA 0.01 at, COUNT(*) FROM t GROUP BY at",
        f"DP-SELECT {MUCH} COUNT(DISTINCT CAST(at AS TEXT)) FROM t",
        f"DP-SELECT {MUCH} COUNT(*) FROM t WHERE at > CAST('2020-01-01' AS TIMESTAMP)",
        f"DP-SELECT {MUCH} COUNT(*) FILTER (WHERE MONTH(at) = 3), COUNT_IF(YEAR(at) = 2020) FROM t",
    ],
)
def test_a_moment_far_off_changes_nothing_for_the_others(tmp_path, unit, statement):
    usual = [1583107200 * {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]] * 20
    rows = {}
    for name, values in (("without", usual), ("with", usual + FAR)):
        (tmp_path / name).mkdir()
        table = open_table(tmp_path / name, unit, values).sql(statement).table
        rows[name] = table.to_pylist()
    counted = [
        sum(
            value
            for key, value in row.items()
            if key.startswith("COUNT") and not key.endswith(("_low", "_high"))
        )
        for row in rows["without"]
    ]
    assert max(counted) >= 1
    assert len(rows["with"]) >= len(rows["without"]) - 1
    if "GROUP BY day" in statement:
        assert max(row["COUNT(*)"] for row in rows["without"]) == 20
        assert sum(row["COUNT(*)"] for row in rows["with"]) <= 20 + len(FAR)
        assert max(row["COUNT(*)"] for row in rows["with"]) >= 20
