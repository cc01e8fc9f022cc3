"""Budgets that renew by a window: what is read, paid and said, and what is refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.cli import invoke

import sfumato as sf
from sfumato.core.facts.project import parse_project
from sfumato.core.facts.table import parse_table, table_spec
from sfumato.metrics import encode_pair
from sfumato.recipes import CellCounts, Running

PROJECT = """
[budget]
epsilon = 1
delta = 1e-6
[tables.t]
source = "t.csv"
unit = ["p", "year"]
window = {window}
max_records = 2
[tables.t.columns.year]
from = "day"
period = "year"
range = [2020, {last}]
[tables.t.columns.ward]
values = ["a", "b"]
"""
COUNTS = CellCounts(table="t", by=("year", "ward"))
SPEC = {
    "source": "t.csv",
    "unit": ["p", "month"],
    "window": ["2025-02", "2025-03"],
    "max_records": 2,
    "columns": {"month": {"values": ["2025-01", "2025-02", "2025-03", "2025-04"]}},
}


def lay_out(folder, window, *, last=2040):
    rows = [f"p{n % 40},{2020 + n % 8}-05-01,{'ab'[n % 2]}" for n in range(400)]
    (folder / "t.csv").write_text("\n".join(["p,day,ward", *rows]))
    (folder / "sfumato.toml").write_text(PROJECT.format(window=window, last=last))
    return sf.open(folder / "sfumato.toml")


def test_the_budget_is_whole_for_new_periods_and_spent_for_old_ones(tmp_path):
    for first in (2020, 2021, 2022):
        curator = lay_out(tmp_path, [first, first + 1], last=2040 + first % 3)
        release = curator.release(COUNTS, epsilon="0.5", out=tmp_path / str(first))
        assert {row["year"] for row in release.table.to_pylist()} == {first, first + 1}
        assert not sf.verify(tmp_path / str(first), ledger=curator.ledger_path).unchecked
    assert curator.budget().left == sf.open(tmp_path / "sfumato.toml").budget().left == 0
    assert lay_out(tmp_path, [2023, 2024]).budget().left == 0.5
    assert lay_out(tmp_path, [2021, 2021]).budget().left == 0
    assert not lay_out(tmp_path, [2021, 2024]).check(COUNTS, epsilon="0.1").admitted
    assert lay_out(tmp_path, [2024, 2030]).check(COUNTS, epsilon=1).admitted
    with pytest.raises(sf.BudgetExceeded, match="for a period of the window"):
        lay_out(tmp_path, [2020, 2021]).release(COUNTS, epsilon="0.1")


def test_a_table_without_its_window_is_paid_for_by_all(tmp_path):
    lay_out(tmp_path, [2020, 2020]).release(COUNTS, epsilon=1)
    whole = (tmp_path / "sfumato.toml").read_text().replace("window = [2020, 2020]\n", "")
    (tmp_path / "sfumato.toml").write_text(whole)
    with pytest.raises(sf.BudgetExceeded):
        sf.open(tmp_path / "sfumato.toml").release(COUNTS, epsilon="0.1")


def test_every_output_tells_the_promise(tmp_path):
    curator = lay_out(tmp_path, [2022, 2023])
    told = curator.check(COUNTS, epsilon=1)
    assert told.to_record()["window"] == ["2022", "2023"]
    assert "read from 2022 to 2023; the budget is for each year" in told._repr_html_()
    curator.release(COUNTS, epsilon=1, out=tmp_path / "out")
    writeup = (tmp_path / "out" / "writeup.md").read_text()
    assert "Only records of `year` from 2022 to 2023 were read" in writeup
    assert "It is no bound on what is told about one `p` over all time" in writeup
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["unit"]["window"] == ["2022", "2023"]
    assert curator.budget().to_record()["periods"] == [["2022", "2023", "0"]]
    shown = invoke("report", str(tmp_path / "out"), "--out", str(tmp_path / "r.html"))
    assert shown.exit_code == 0, shown.output
    page = (tmp_path / "r.html").read_text()
    assert "nothing bounds what is told of someone over all time" in page


def test_a_release_whose_charge_was_for_other_periods_does_not_verify(tmp_path, monkeypatch):
    curator = lay_out(tmp_path, [2022, 2023])
    other = lay_out(tmp_path, [2024, 2024]).project.table("t").window
    bill = type(curator)._bill
    monkeypatch.setattr(type(curator), "_bill", lambda *given: sf.curator.replace(bill(*given), window=other))
    curator.release(COUNTS, epsilon=1, out=tmp_path / "out")
    with pytest.raises(sf.VerificationFailed, match="charges another plan"):
        sf.verify(tmp_path / "out", ledger=curator.ledger_path)


def test_published_scores_are_paid_by_the_periods_they_read(tmp_path):
    curator = lay_out(tmp_path, [2022, 2023])
    curator.release(COUNTS, epsilon="0.5", out=tmp_path / "out")
    curator.publish_score(tmp_path / "out", epsilon="0.25", metric="l1")
    assert curator.budget().left == 0.25
    assert lay_out(tmp_path, [2024, 2024]).budget().left == 1


def test_the_truth_of_a_window_is_what_it_reads(tmp_path):
    curator = lay_out(tmp_path, [2022, 2023])
    release = curator.release(CellCounts(table="t", by=("ward",)), epsilon=1)
    table = curator.project.table("t")
    pair = encode_pair(tmp_path / "t.csv", release.table, table=table, columns=["ward"], weight="count")
    assert pair.truth.codes["ward"].size == 100


def test_lists_of_periods_may_grow_and_what_they_mean_may_not_change():
    window = parse_table("t", SPEC).window
    longer = {"values": ["2024-12", *SPEC["columns"]["month"]["values"], "2025-05"], "names": list("abcdef")}
    assert parse_table("t", {**SPEC, "columns": {"month": longer}}).window == window
    assert window.periods == {"2025-02", "2025-03"}
    for change in ({"from": "day"}, {"missing": ["?"]}):
        other = parse_table("t", {**SPEC, "columns": {"month": {**SPEC["columns"]["month"], **change}}})
        assert other.window.axis != window.axis
    assert parse_table("u", SPEC).window.axis != window.axis
    texts = {"from": ["y", "m"], "values": [["2025", "1"]]}
    whole = {"from": ["y", "m"], "values": [[2025, 1]]}
    made = [
        parse_table("t", {**SPEC, "window": ["2025-1", "2025-1"], "columns": {"month": each}}).window.axis
        for each in (texts, whole)
    ]
    assert made[0] != made[1]


@pytest.mark.parametrize(
    ("month", "window"),
    [
        ({"values": ["a", "b", "c"]}, ["b", "c"]),
        ({"values": [3, 5, 9]}, [3, 5]),
        ({"range": [1, 9]}, [4, 4]),
        ({"from": "day", "period": "month", "range": ["2025-01-01", "2026-12-01"]}, ["2025-11", "2026-01"]),
        ({"from": "day", "period": "year", "range": [2020, 2030]}, [2021, 2022]),
        ({"from": ["y", "m"], "values": [[2025, 1], [2025, 2]]}, ["2025-2", "2025-2"]),
    ],
)
def test_a_window_reads_back_from_its_description(month, window):
    table = parse_table("t", {**SPEC, "window": window, "columns": {"month": month}})
    spec = table_spec(table, ("month",))
    assert spec["window"] == [str(each) for each in window]
    assert parse_table("t", spec) == table
    assert parse_table("t", spec).window == table.window


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": "p"}, "needs a unit over time"),
        ({"window": ["2025-02"]}, "first and the last period"),
        ({"window": "2025-02"}, "first and the last period"),
        ({"window": [True, False]}, "first and the last period"),
        ({"window": ["2025-03", "2025-02"]}, "exchanged"),
        ({"window": ["2025-03", "2026-02"]}, "is no value of 'month', which go from '2025-01' to '2025-04'"),
        ({"neighbours": "replace"}, "needs neighbours = 'add-remove'"),
        ({"columns": {"month": {"range": [1, 9], "outside": "clamp"}}, "window": [1, 2]}, "outside = 'drop'"),
        (
            {"columns": {"month": {"bins": [0, 1, 2, 3]}}, "window": ["[0, 1)", "[1, 2)"]},
            "listed values, a range of whole numbers, or years",
        ),
        ({"columns": {"month": {"range": [1, 10**6]}}, "window": [1, 2]}, "more than 10,000 periods"),
    ],
)
def test_what_is_no_window_is_refused(change, message):
    with pytest.raises(sf.SchemaError, match=message.replace("(", r"\(")):
        parse_table("t", {**SPEC, **change})


def test_a_window_is_alone_in_its_project(tmp_path):
    plain = {"source": "u.csv", "unit": "row"}
    document = {"budget": {"epsilon": 1}, "tables": {"t": SPEC, "u": plain}}
    with pytest.raises(sf.SchemaError, match="a project of its own"):
        parse_project(document, folder=tmp_path)
    public = {"source": "u.csv", "public": True}
    assert parse_project({**document, "tables": {"t": SPEC, "u": public}}, folder=tmp_path).find_window()


def test_a_series_has_no_window(tmp_path):
    curator = lay_out(tmp_path, [2022, 2023])
    with pytest.raises(sf.RecipeError, match="charged once for all its periods"):
        curator.release(Running(table="t", period="year", through=2022), epsilon=1, delta=1e-6)


def store(folder, values, *, column, source="t.parquet"):
    """A project whose periods are told by `column`, described so, over `values` of its type."""
    table = pa.table(
        {"p": pa.array(["a"] * len(values)), "day": values, "ward": pa.array(["a"] * len(values))}
    )
    pq.write_table(table, folder / source)
    (folder / "sfumato.toml").write_text(
        f'[budget]\nepsilon = 1\n[tables.t]\nsource = "{source}"\nunit = ["p", "when"]\nmax_records = 2\n'
        f'window = {column.pop("window")}\n[tables.t.columns.ward]\nvalues = ["a", "b"]\n'
        f'[tables.t.columns.when]\nfrom = "day"\n'
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in column.items())
    )
    return sf.open(folder / "sfumato.toml")


def test_periods_that_follow_from_the_type_of_a_file_are_refused(tmp_path):
    counts = CellCounts(table="t", by=("when", "ward"))
    zoned = pa.array([1_738_384_200], pa.timestamp("s", tz="America/New_York"))
    months = {"window": ["2025-01", "2025-01"], "period": "month", "range": ["2025-01-01", "2025-12-31"]}
    months["window"] = '["2025-01", "2025-02"]'
    with pytest.raises(sf.SourceError, match="without a zone"):
        store(tmp_path, zoned, column=dict(months)).release(counts, epsilon=1)
    listed = {"window": '["2025.0", "2026.0"]', "values": ["2025.0", "2026.0"]}
    with pytest.raises(sf.SourceError, match="text, as its values are"):
        store(tmp_path, pa.array([2025.0]), column=dict(listed)).release(counts, epsilon=1)
    naive = pa.array([1_738_384_200], pa.timestamp("s"))
    assert store(tmp_path, naive, column=dict(months)).release(counts, epsilon=1).table.num_rows == 4


def test_no_two_columns_of_two_tables_are_one_axis():
    column = {"values": ["2025-01", "2025-02"]}
    base = {**SPEC, "window": ["2025-01", "2025-02"]}
    one = parse_table("x of t", {**base, "columns": {"month": {**column, "from": "d"}}})
    other = parse_table(
        "t", {**base, "unit": ["p", "month of x"], "columns": {"month of x": {**column, "from": "d"}}}
    )
    assert one.window.axis != other.window.axis
