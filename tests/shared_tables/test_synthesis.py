"""Synthetic rows of real tables: `tree` on all of them, `adaptive` on the coded Adult table."""

import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.core.facts.domain import Bins, IntegerRange, Values
from sfumato.core.facts.project import read_project
from sfumato.recipes import Adaptive, Tree

pytestmark = [pytest.mark.shared, pytest.mark.slow, pytest.mark.usefixtures("seeded_noise")]

WIDE = (
    *("age", "education", "marital_status", "major_industry", "major_occupation", "race"),
    *("sex", "tax_filer_status", "detailed_household_summary", "citizenship"),
    *("weeks_worked_in_year", "income_class"),
)
COMMUNITY = (
    *("PUMA", "AGEP", "SEX", "MSP", "HISP", "RAC1P", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT", "INDP_CAT"),
    *("EDU", "PINCP_DECILE", "DVET", "DREM", "DPHY", "DEYE", "DEAR"),
)


BUDGET = {"delta": 1e-6}


def code_columns(sizes, leave_out=()):
    return {name: {"range": [0, size - 1]} for name, size in sizes.items() if name not in leave_out}


def lay_out_adult(shared, folder):
    data = shared / "data" / "coded_benchmarks"
    sizes = json.loads((data / "adult-domain.json").read_text())
    return write_project(folder, code_columns(sizes), source=data / "adult.csv.gz", **BUDGET)


def lay_out_fire(shared, folder):
    data = shared / "data" / "sf_fire"
    sizes = json.loads((data / "domain.json").read_text())
    few = {name: size for name, size in sizes.items() if size <= 50}
    return write_project(folder, code_columns(few), source=data / "fire.parquet", **BUDGET)


def lay_out_community(shared, folder):
    data = shared / "data" / "diverse_communities"
    schema = json.loads((data / "national2019_schema.json").read_text())["schema"]
    columns = {}
    for name in COMMUNITY:
        facts = schema[name]
        columns[name] = (
            {"values": facts["values"]} if "values" in facts else {"range": [facts["min"], facts["max"]]}
        )
    return write_project(folder, columns, source=data / "national2019.csv.gz", **BUDGET)


def lay_out_census(shared, folder):
    data = shared / "data" / "census_income_kdd"
    schema = json.loads((data / "schema.json").read_text())
    columns = {}
    for name in WIDE:
        facts = schema[name]
        whole = facts["dtype"] == "int64"
        if "values" in facts:
            columns[name] = {"values": sorted(map(int, facts["values"])) if whole else facts["values"]}
        else:
            columns[name] = {"bins": [0, 10, 20, 30, 40, 50, 60, 70, 80, 91]}
    return write_project(folder, columns, source=data / "census_income_test.parquet", **BUDGET)


def lay_out_taxi(shared, folder):
    example = Path(__file__).resolve().parents[2] / "examples" / "taxi" / "sfumato.toml"
    shutil.copy(shared / "data" / "chicago_taxi" / "trips.parquet", folder)
    file = folder / "sfumato.toml"
    file.write_text(example.read_text())
    return file


TABLES = {
    "adult": (lay_out_adult, 48_842, ("relationship", "marital-status")),
    "sf_fire": (lay_out_fire, 305_119, ("Battalion", "Fire Prevention District")),
    "diverse_communities": (lay_out_community, 27_253, ("PINCP_DECILE", "INDP_CAT")),
    "census_income_kdd": (lay_out_census, 99_762, ("major_industry", "major_occupation")),
    "chicago_taxi": (lay_out_taxi, None, ("fare", "trip_total")),
}


def check_rows(project, rows, names=None):
    """Every value lies in the domain of its column."""
    (table,) = read_project(project).tables.values()
    names = list(table.columns if names is None else names)
    assert rows.column_names == names
    for name in names:
        column = table.column(name)
        found = set(pc.unique(rows[name]).to_pylist())
        match column.domain:
            case Bins(edges):
                assert edges[0] <= min(found) <= max(found) <= edges[-1], name
            case IntegerRange(first, last):
                assert first <= min(found) <= max(found) <= last, name
            case Values(values):
                assert found <= set(values), name
            case other:
                raise AssertionError(other)


def depart(rows, pair):
    """The L1 distance between the frequencies of a pair and those of independent columns."""
    counts = rows.group_by(list(pair)).aggregate([([], "count_all")]).to_pydict()
    total = rows.num_rows
    singles = [
        {each["values"]: each["counts"] / total for each in pc.value_counts(rows[name]).to_pylist()}
        for name in pair
    ]
    joint = zip(counts[pair[0]], counts[pair[1]], counts["count_all"], strict=True)
    shares = {(one, two): count / total for one, two, count in joint}
    return sum(
        abs(shares.get((one, two), 0) - singles[0][one] * singles[1][two])
        for one in singles[0]
        for two in singles[1]
    )


@pytest.mark.parametrize("name", TABLES)
def test_a_tree_of_a_real_table_verifies(shared, tmp_path, name):
    lay_out, records, pair = TABLES[name]
    project = lay_out(shared, tmp_path)
    (table,) = read_project(project).tables
    out = tmp_path / "out"
    release = sf.open(project).release(Tree(table=table), epsilon=1, delta=1e-6, out=out)
    check_rows(project, release.table)
    if records is not None:
        assert abs(release.table.num_rows / records - 1) < 0.02
    assert depart(release.table, pair) > 0.4, "columns that go together still do"
    assert release.certificate["total"]["epsilon_at_delta"]["1e-6"] == "1"
    sf.verify(out, ledger=tmp_path / "ledger.db")


def test_adaptive_rows_of_adult_verify(shared, tmp_path):
    project = lay_out_adult(shared, tmp_path)
    out = tmp_path / "out"
    few = tuple(name for name, column in read_project(project).table("t").columns.items() if column.size < 40)
    recipe = Adaptive(table="t", columns=few, workload=2)
    release = sf.open(project).release(recipe, epsilon=1, delta=1e-6, out=out)
    check_rows(project, release.table, few)
    assert abs(release.table.num_rows / 48_842 - 1) < 0.02
    assert depart(release.table, TABLES["adult"][2]) > 0.4
    sf.verify(out, ledger=tmp_path / "ledger.db")
