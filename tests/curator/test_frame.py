"""Tables in memory: the same answers, one budget, and no trace of records outside a private folder."""

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.curator import frame as frames

MUCH = 10**6  # at which the noise is zero but for one draw in more than 10**1000
ROWS = {
    "person": [1, 1, 1, 2, 3, None],
    "region": ["a", "b", "b", "a", None, "a"],
    "fare": [1.5, 2.0, None, 90.0, 400.0, 7.0],
    "month": [1, 2, 2, 12, 13, 1],
}
COLUMNS = {"region": ["a", "b"], "fare": (0, 100), "month": range(1, 13)}


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(frames, "_opened", [])
        monkeypatch.setattr(frames, "_make_folder", lambda: SimpleNamespace(name=folder))
        yield


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
    columns = {"fare": {"bins": [0, 10, 100]}, "month": np.arange(1, 4)}
    described = open_rows(columns=columns).project.table("t")
    assert described.columns["fare"].size == 2
    assert described.columns["month"].size == 3


def test_the_same_records_share_one_budget_and_its_answers():
    statement = f"DP-SELECT {MUCH} COUNT(*) AS n FROM t"
    first = open_rows()
    assert not first.sql(statement).repeated
    again = open_rows(pd.DataFrame(ROWS))
    assert again.sql(statement).repeated
    assert again.budget().spent == MUCH


FRAME = pl.DataFrame(ROWS)
REGIONS = {"region": ["a", "b"]}
STRANGERS = FRAME.with_columns(pl.col("person") + 100)
SAME_PEOPLE = {
    "another order": FRAME.reverse(),
    "an added column": FRAME.to_pandas().assign(year=2025),
    "a column less": FRAME.drop("month").to_arrow(),
    "added records": pl.concat([STRANGERS, FRAME.head(1)]),
    "one of them": FRAME.head(1).to_dict(as_series=False),
    "text": FRAME.with_columns(pl.col("person").cast(pl.String)),
    "floats": FRAME.with_columns(pl.col("person").cast(pl.Float32), month=3).to_pandas(),
    "floats as text": FRAME.with_columns(pl.col("person").cast(pl.Float64).cast(pl.String)).to_arrow(),
    "decimals": FRAME.to_arrow().set_column(
        0, "person", FRAME["person"].to_arrow().cast(pa.decimal128(30, 2))
    ),
    "leading zeros": FRAME.with_columns(pl.format("00{}", "person")),
    "categories": FRAME.with_columns(pl.col("person").cast(pl.String).cast(pl.Categorical)).to_pandas(),
}


@pytest.mark.parametrize("frame", SAME_PEOPLE.values(), ids=SAME_PEOPLE)
def test_the_same_people_share_one_budget_whatever_else_changed(frame):
    open_rows(columns=REGIONS).sql(f"DP-SELECT {MUCH} COUNT(*) FROM t")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some have rows that no other table had
        again = open_rows(frame, columns=REGIONS)
    assert again.budget().spent == MUCH
    again.sql(f"DP-SELECT {MUCH} COUNT(*) FROM t WHERE region = 'a'")
    assert open_rows(columns=REGIONS).budget().spent == 2 * MUCH


def test_whoever_came_later_is_known_too_and_others_have_their_own():
    first = open_rows()
    first.sql(f"DP-SELECT {MUCH} COUNT(*) FROM t")
    assert open_rows(STRANGERS.tail(3)).budget().spent == 0
    with pytest.warns(UserWarning, match=r"one budget is for both.*ledger="):
        open_rows(pl.concat([FRAME, STRANGERS.with_columns(pl.col("person") + 100)]))
    # Rows and people that are known, so without a warning.
    assert open_rows(STRANGERS.with_columns(pl.col("person") + 100)).budget().spent == MUCH
    with pytest.raises(sf.SchemaError, match=r"opened apart.*ledger="):
        open_rows(pl.concat([FRAME, STRANGERS]))


def test_people_who_are_only_numbered_are_known_by_what_stands_beside_them():
    people = np.arange(40)
    facts = {"columns": {"region": ["a", "b"]}, "epsilon": 3 * MUCH}
    one = pd.DataFrame({"person": people, "region": ["a", "b"] * 20, "fare": people % 7})
    open_rows(one, **facts).sql(f"DP-SELECT {MUCH} COUNT(*) FROM t")
    more = pd.concat([one.iloc[::-1], one.tail(3).assign(person=[41, 42, 43])]).assign(year=1)
    with pytest.warns(UserWarning, match="one budget is for both"):
        assert open_rows(more, **facts).budget().spent == MUCH
    others = pd.DataFrame({"person": people, "region": ["b", "a"] * 20, "fare": people % 7 + 7})
    assert open_rows(others, **{**facts, "epsilon": 1}).budget().left == 1


def test_another_budget_for_the_same_people_needs_a_ledger(tmp_path):
    open_rows()
    with pytest.raises(sf.SchemaError, match=r"with a budget of epsilon 3000000 and delta 0.*ledger="):
        open_rows(epsilon=1)
    assert open_rows(epsilon=1, ledger=tmp_path / "ledger.db").budget().left == 1
    with pytest.raises(sf.SchemaError, match="no plain column"):
        open_rows(STRANGERS, columns={"regions": ["a"]})  # refused, and so no budget of theirs
    assert open_rows(STRANGERS, epsilon=1).budget().left == 1


def test_rows_are_known_by_what_stands_in_them():
    rows = {"unit": "row", "max_records": None, "columns": REGIONS}
    frame = FRAME.drop("person")
    with pytest.warns(UserWarning, match=r"not people.*ledger="):
        open_rows(frame, **rows).sql(f"DP-SELECT {MUCH} COUNT(*) FROM t")
    changed = frame.reverse().with_columns(pl.col("month").cast(pl.Float64))
    more = pl.DataFrame({"region": ["b"], "fare": [3.25], "month": [1e300]})
    assert open_rows(changed, **rows).budget().spent == MUCH
    with pytest.warns(UserWarning, match="one budget is for both"):
        assert open_rows(pl.concat([changed, more]), **rows).budget().spent == MUCH
    assert open_rows(more, **rows).budget().spent == MUCH
    with pytest.warns(UserWarning, match="not people"):
        assert open_rows(frame.drop("fare"), **rows).budget().spent == 0


def test_the_same_records_are_one_budget_whoever_is_protected():
    frame = FRAME.drop_nulls("person").to_pandas()
    open_rows(frame, columns=REGIONS).sql(f"DP-SELECT {MUCH} COUNT(*) FROM t")
    rows = open_rows(frame, unit="row", max_records=None, columns=REGIONS)
    assert rows.budget().spent == MUCH


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
    assert folder == frames._keep_records(pd.DataFrame(ROWS), unit="person")[0]


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
