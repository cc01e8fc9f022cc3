"""Wide tables end to end: census, health and household records, and the 98 fields of the 1940 census."""

import csv
import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.core.facts.column import parse_ranges
from sfumato.core.facts.domain import Bins
from sfumato.recipes import FieldGroups

pytestmark = [pytest.mark.shared, pytest.mark.usefixtures("seeded_noise")]

FEW = 60  # values that are listed; of more, bins are declared

# What the README of the 1940 schema gives for re-creating the contest's set-up.
SPECIAL = {
    "SUPDIST": [[10, 630, 10]],
    "MIGSEA5": [[1, 502], 990, 991, 997],
    "INCWAGE": [[0, 5000], 999998],
    "VALUEH": [[0, 30000], 9999998, 9999999],
    "EDSCOR50": [[0, 1000], 9999],
    "ERSCOR50": [[0, 1000], 9999],
    "NPBOSS50": [[0, 1000], 9999],
    "MIGMET5": [[0, 9600, 20], 9999],
    "MIGCOUNTY": [[0, 8000, 10], 9997, 9999],
    "IND": [[0, 231], 995, 998, 999],
}


def find_outside(table, rows):
    """The columns of `rows` that hold a value outside the domain of the column."""
    found = []
    for name, column in table.columns.items():
        values = set(rows[name].to_pylist())
        if isinstance(column.domain, Bins) and column.outside != "other":
            edges = column.domain.edges
            inside = all(edges[0] <= value <= edges[-1] for value in values)
        else:
            inside = values <= set(column.labels)
        if not inside:
            found.append(name)
    return found


def release(file, recipe, epsilon, *, width):
    curator, out = sf.open(file), file.parent / "out"
    made = curator.release(recipe, epsilon=epsilon, out=out)
    assert made.table.column_names == list(curator.project.table("t").columns)
    assert made.table.num_columns == width
    assert find_outside(curator.project.table("t"), made.table) == []
    assert not sf.verify(out, ledger=curator.ledger_path).unchecked
    assert curator.budget().sums.epsilon == epsilon
    return made


def shares(rows, name):
    values, counts = np.unique(np.asarray(rows[name].to_pylist()).astype(str), return_counts=True)
    return dict(zip(values.tolist(), (counts / counts.sum()).tolist(), strict=True))


def test_census_income(shared, tmp_path):
    data = shared / "data" / "census_income_kdd"
    schema = json.loads((data / "schema.json").read_text())
    columns = {}
    for name, facts in schema.items():
        whole = facts["dtype"] == "int64"
        if name == "instance_weight":
            continue
        if "values" in facts:
            listed = sorted(map(int, facts["values"])) if whole else facts["values"]
            columns[name] = {"values": listed, "outside": "other"}
        else:
            step = (facts["max"] + 1) / 20
            columns[name] = {"bins": [round(step * place) for place in range(21)], "outside": "clamp"}
    file = write_project(tmp_path, columns, source=data / "census_income_test.parquet")
    recipe = FieldGroups(
        table="t",
        groups=[
            ["education", "major_occupation", "income_class", "sex"],
            ["detailed_industry", "major_industry", "class_of_worker"],
            ["country_birth_father", "country_birth_mother", "country_birth_self", "citizenship"],
        ],
        rows=4000,
    )
    made = release(file, recipe, 8, width=41)
    assert [each.cells is not None for each in made.measurements[:3]] == [False, False, True]
    assert made.measurements[2].cells.size < 2000
    expected = shares(pq.read_table(data / "census_income_test.parquet", columns=["sex"]), "sex")
    found = shares(made.table, "sex")
    assert all(abs(found[value] - share) < 0.1 for value, share in expected.items())


def test_health_survey(shared, tmp_path):
    data = shared / "data" / "nhanes"
    schema = json.loads((data / "schema.json").read_text())
    rows = pq.read_table(data / "nhanes_2009_2012.parquet")
    columns = {}
    for name, facts in schema.items():
        if name == "ID":
            continue
        if "values" in facts:
            whole = facts["dtype"].startswith("Int")
            listed = sorted(map(int, facts["values"])) if whole else facts["values"]
            if facts["dtype"] != "float64":
                columns[name] = {"values": listed, "outside": "other"}
                continue
        numbers = rows[name].drop_null().to_numpy()
        low, high = int(np.floor(numbers.min())), int(np.ceil(numbers.max())) + 1
        edges = sorted({low + (high - low) * place // 12 for place in range(13)})
        columns[name] = {"bins": edges, "outside": "other"}
    assert len(columns) == 77
    file = write_project(
        tmp_path, columns, source=data / "nhanes_2009_2012.parquet", unit="ID", max_records=1
    )
    groups = [["BPSysAve", "BPSys1", "BPSys2", "BPSys3", "BPDiaAve"], ["Weight", "Height", "BMI"]]
    made = release(file, FieldGroups(table="t", groups=groups, rows=3000), 10, width=77)
    assert made.measurements[0].cells is not None
    # Whoever has no first reading has mostly no average: the group keeps it.
    first, average = (np.asarray(made.table[name].to_pylist()) == "other" for name in ("BPSys1", "BPSysAve"))
    assert (first == average).mean() > 0.7


def test_households_with_blanks(shared, tmp_path):
    data = shared / "data" / "acs_pums_oregon_households"
    schema = json.loads((data / "schema.json").read_text())
    with gzip.open(data / "households.csv.gz", "rt", newline="") as lines:
        rows = list(csv.DictReader(lines))
    columns = {}
    for name, facts in schema.items():
        if name == "SERIALNO":
            continue
        listed = sorted({row[name] for row in rows} - {""}) or ["1"]
        if facts["distinct"] <= FEW:
            columns[name] = {"values": listed, "outside": "other"}
        else:
            high = max(map(float, listed)) + 1
            low = min(0.0, *map(float, listed))
            edges = sorted({round(low + (high - low) * place / 10) for place in range(11)})
            columns[name] = {"bins": edges, "outside": "other"}
    assert len(columns) == 108
    file = write_project(tmp_path, columns, source=data / "households.csv.gz", unit="SERIALNO", max_records=1)
    groups = [["TEN", "RNTP", "MRGP", "BLD", "BDS"], ["NP", "HHT", "NOC", "NPF", "R18", "R60"]]
    made = release(file, FieldGroups(table="t", groups=groups), 16, width=108)
    # Blanks are a value: they have their share in the rows.
    for name in ("TAXP", "MHP", "AGS"):
        blank = sum(row[name] == "" for row in rows) / len(rows)
        assert 0 < blank < 1
        assert abs(shares(made.table, name).get("other", 0) - blank) < 0.1
    assert abs(made.table.num_rows - len(rows)) < 0.2 * len(rows)


def describe_1940(fields):
    """The domains of the contest: special bins, listed codes with the largest, or 0 to the largest."""
    columns = {}
    for name, facts in fields.items():
        most = facts["maxval"]
        codes = facts.get("codes") or facts.get("code_list") or []
        if name in SPECIAL:
            columns[name] = {"ranges": SPECIAL[name]}
        elif codes:
            columns[name] = {"values": sorted({int(code) for code in codes} | {most})}
        else:
            columns[name] = {"range": [0, most]}
    return columns


def numbers_of(keys):
    if "ranges" in keys:
        return np.array(parse_ranges(keys["ranges"]))
    return np.array(keys["values"]) if "values" in keys else np.arange(keys["range"][0], keys["range"][1] + 1)


def test_all_fields_of_the_1940_census(shared, tmp_path):
    fields = json.loads((shared / "data" / "census1940_schema" / "fields.json").read_text())["fields"]
    columns = describe_1940(fields)
    assert len(columns) == 98
    random, count = np.random.default_rng(1940), 20_000
    hidden = random.beta(0.7, 2, count)  # what the fields of one record have in common
    stored = {}
    for name, keys in columns.items():
        known = numbers_of(keys)
        place = np.minimum(hidden * random.beta(4, 1, count), 0.9999) * known.size
        stored[name] = known[place.astype(np.int64)]
    # Some records hold what no codebook knows.
    for name in ("SEX", "INCWAGE", "IND"):
        stored[name] = np.where(random.random(count) < 0.01, 7_777_777, stored[name])
    pq.write_table(
        pa.table({name: pa.array(values) for name, values in stored.items()}), tmp_path / "t.parquet"
    )
    for keys in columns.values():
        keys["outside"] = "other"
    file = write_project(tmp_path, columns)
    groups = [
        ["VALUEH", "RENT", "OWNERSHP"],
        ["INCWAGE", "CLASSWKR", "EMPSTAT"],
        ["SEX", "AGE", "MARST", "RACE"],
        ["BPL", "MBPL", "FBPL", "NATIVITY", "CITIZEN"],
        ["MIGMET5", "MIGSEA5", "MIGCOUNTY", "SAMEPLAC"],
        ["EDSCOR50", "ERSCOR50", "NPBOSS50"],
    ]
    made = release(file, FieldGroups(table="t", groups=groups, rows=2000), 8, width=98)
    assert sum(each.cells is not None for each in made.measurements) >= 5
    written = made.certificate["plan"]["table"]["t"]["columns"]
    assert {name: written[name]["ranges"] for name in SPECIAL if name != "SUPDIST"} == {
        name: ranges for name, ranges in SPECIAL.items() if name != "SUPDIST"
    }
    # Fields that stand alone keep their distribution.
    for name in ("URBAN", "OWNERSHPD", "WKSWORK2", "VETPER"):
        expected, found = shares(pa.table({name: stored[name]}), name), shares(made.table, name)
        assert all(abs(found.get(value, 0) - share) < 0.05 for value, share in expected.items())
