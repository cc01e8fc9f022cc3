"""Tables in memory: the same answers, one budget, and no trace of records outside a private folder."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.curator.frame import _keep_records

MUCH = 10**6  # at which the noise is zero but for one draw in more than 10**1000
ROWS = {
    "person": [1, 1, 1, 2, 3, None],
    "region": ["a", "b", "b", "a", None, "a"],
    "fare": [1.5, 2.0, None, 90.0, 400.0, 7.0],
    "month": [1, 2, 2, 12, 13, 1],
}
COLUMNS = {"region": ["a", "b"], "fare": (0, 100), "month": range(1, 13)}


def open_rows(frame=None, **changes):
    facts = {"unit": "person", "max_records": 2, "columns": COLUMNS, "epsilon": 3 * MUCH, **changes}
    return sf.from_frame(pd.DataFrame(ROWS) if frame is None else frame, **facts)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_every_kind_of_table_is_counted_alike(make):
    curator = open_rows(make(ROWS), ledger=None, name=f"made_by_{make.__name__}")
    answer = curator.sql(
        f"DP-SELECT {MUCH} region, COUNT(*) AS n FROM made_by_{make.__name__} GROUP BY region"
    )
    # Two of the first person's three records count, those of nobody do not.
    assert sum(answer.to_pandas()["n"]) == 3


def test_individuals_that_pandas_made_floats_of_stay_apart():
    people = [1.0, 1.0, -0.0, 0.0, 2.5, float("nan"), None]
    frame = pl.DataFrame({"person": people, "region": ["a"] * 7})
    curator = open_rows(frame, columns={"region": ["a"]}, max_records=1)
    assert curator.sql(f"DP-SELECT {MUCH} COUNT(*) AS n FROM t").to_arrow()["n"].to_pylist() == [3]


def test_bounds_and_ranges_are_those_of_the_description():
    table = open_rows().project.table("t")
    assert (table.columns["month"].size, table.columns["region"].size) == (12, 2)
    assert [float(end) for end in table.columns["fare"].bounds] == [0, 100]
    described = sf.from_frame(
        ROWS, unit="row", epsilon=1, columns={"fare": {"bins": [0, 10, 100]}, "month": np.arange(1, 4)}
    ).project.table("t")
    assert described.columns["fare"].size == 2
    assert described.columns["month"].size == 3


def test_the_same_records_share_one_budget_and_its_answers():
    statement = f"DP-SELECT {MUCH} COUNT(*) AS n FROM t"
    frame = pd.DataFrame(ROWS).assign(month=7)  # records that no other test opens
    first = open_rows(frame)
    assert not first.sql(statement).repeated
    again = open_rows(frame.copy())
    assert again.sql(statement).repeated
    assert again.budget().spent == MUCH
    assert open_rows(frame.assign(month=8)).budget().spent == 0


def test_a_ledger_on_disk_knows_the_records_in_another_process(tmp_path):
    script = f"""
import sfumato as sf
curator = sf.from_frame({ROWS!r}, unit="person", max_records=2, columns={{"region": ["a", "b"]}}, epsilon=2,
                        ledger={str(tmp_path / "ledger.db")!r})
print(curator.sql("DP-SELECT 1 region, COUNT(*) FROM t GROUP BY region").repeated, curator.budget().spent)
"""
    told = [
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert told == ["False 1\n", "True 1\n"]


def test_no_digest_of_the_records_leaves_and_only_their_owner_reads_them():
    curator = open_rows()
    release = curator.release(sf.recipes.CellCounts(table="t", by=("region",)), epsilon=1)
    folder = curator.project.folder
    released = b"".join(release.files.values()) + json.dumps(release.certificate, default=str).encode()
    assert folder.name.removeprefix("sha256-").encode() not in released
    assert folder.parent.stat().st_mode & 0o077 == 0
    shown = repr(curator) + curator._repr_html_() + repr(release)
    assert folder.name not in shown
    assert folder == _keep_records(pd.DataFrame(ROWS), unit="person")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frame": "t.parquet"}, "table in memory"),
        ({"frame": 3}, "not a table"),
        ({"max_records": None}, "max_records"),
        ({"columns": {"fare": (0, 1, 2)}}, r"\(low, high\)"),
        ({"columns": {"month": range(1, 13, 2)}}, "goes up by one"),
        ({"columns": {"month": range(0)}}, "goes up by one"),
        ({"columns": {"region": "ab"}}, "list of values"),
        ({"columns": {"region": 7}}, "list of values"),
        ({"neighbors": "replace"}, "neighbors"),
        ({"epsilon": "much"}, "epsilon"),
    ],
)
def test_a_wrong_description_is_refused_before_anything_is_read(changes, message):
    with pytest.raises(sf.SfumatoError, match=message):
        open_rows(**changes)


def test_records_go_with_the_process():
    script = f"""
import sfumato as sf
print(sf.from_frame({ROWS!r}, unit="row", columns={{"region": ["a"]}}, epsilon=1).project.folder)
"""
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.strip()
    assert not Path(found.stdout.strip()).exists()


def test_a_column_that_is_not_there_is_noticed_at_once():
    with pytest.raises(sf.SchemaError, match="no plain column 'clinics'; did you mean 'clinic'"):
        sf.from_frame({"clinic": ["a"]}, unit="row", columns={"clinics": ["a"]}, epsilon=1)
