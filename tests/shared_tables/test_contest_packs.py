"""Official schemas of three contests, in packs as they were published, with a few made-up records."""

import json

import pytest

from sfumato.core.errors import SchemaError
from sfumato.metrics.contests import read_pack, run_entry

pytestmark = pytest.mark.shared


def read_json(shared, *parts):
    return json.loads(shared.joinpath("data", *parts).read_text())


def test_the_first_sprint(shared, tmp_path):
    official = read_json(shared, "baltimore", "sprint1_official_schema.json")
    parameters = {"schema": official["schema"], "runs": official["runs_by_year"]["2019"]}
    (tmp_path / "parameters.json").write_text(json.dumps(parameters))
    kinds = [str(each["code"]) for each in official["schema"]["incident_type"]]
    (tmp_path / "submission_format.csv").write_text(
        ",".join(["epsilon", "neighborhood", "year", "month", *kinds])
    )
    rows = [
        f"{number},2019,{1 + number % 12},3,{number % 278},{number % 174},{number % 90}"
        for number in range(500)
    ]
    header = "event_id,year,month,day_of_week,neighborhood,incident_type,sim_resident"
    (tmp_path / "incidents.csv").write_text("\n".join([header, *rows]) + "\n")
    pack = read_pack(tmp_path)
    assert pack.contest == "sprint1"
    assert [each.size for each in pack.columns.values()] == [278, 12, 174]
    assert [(float(run.epsilon), run.max_records) for run in pack.runs] == [(1, 20), (2, 20), (10, 20)]
    done = run_entry(pack, "nmd")
    assert len(done.files["submission.csv"].splitlines()) == 1 + 3 * 278 * 12


@pytest.mark.parametrize(
    ("year", "companies", "bound"), [("public_2019", 57, 200), ("final_2016", 101, 10**6)]
)
def test_the_third_sprint(shared, tmp_path, year, companies, bound):
    official = read_json(shared, "chicago_taxi", "sprint3_official_parameters.json")[year]
    (tmp_path / "parameters.json").write_text(json.dumps(official))
    columns = [name for name in official["schema"] if name not in ("trip_day_of_week", "trip_hour_of_day")]
    (tmp_path / "submission_format.csv").write_text(",".join(["epsilon", *columns]) + "\n")
    (tmp_path / "ground_truth.csv").write_text(
        ",".join(official["schema"]) + "\n" + ",".join("1" for _ in official["schema"]) + "\n"
    )
    pack = read_pack(tmp_path)
    assert (pack.contest, pack.unit) == ("sprint3", "taxi_id")
    sizes = [21, companies, 78, 78, 9, *[11] * 5]
    assert sorted(each.size for each in pack.columns.values()) == sorted(sizes)
    assert {run.max_records for run in pack.runs} == {bound}
    assert {run.max_records for run in read_pack(tmp_path, max_records=200).runs} == {200}


def test_the_census(shared, tmp_path):
    fields = read_json(shared, "census1940_schema", "fields.json")["fields"]
    specs = {name: {"maxval": facts["maxval"]} for name, facts in fields.items()}
    (tmp_path / "colorado-specs.json").write_text(json.dumps(specs))
    listed = {name: facts.get("codes") or facts.get("code_list") or [] for name, facts in fields.items()}
    book = "".join(
        f" {name}\t{fields[name]['label']}\n" + "".join(f"{code}\tmeaning\n" for code in codes)
        for name, codes in listed.items()
        if codes
    )
    (tmp_path / "codebook.cbk").write_text(book)
    (tmp_path / "colorado.csv").write_text(",".join(fields) + "\n" + ",".join("1" for _ in fields) + "\n")
    pack = read_pack(tmp_path)
    assert (pack.contest, len(pack.columns), pack.unit) == ("match3", 98, None)
    for name, codes in listed.items():
        if codes and name not in ("SUPDIST", "IND", "MIGSEA5"):
            # One code more, for values that the codebook does not know.
            assert pack.columns[name].size == len({*map(int, codes), fields[name]["maxval"]}) + 1
    with pytest.raises(SchemaError, match="must have several"):
        read_pack(tmp_path, max_records=5)
