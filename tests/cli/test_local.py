"""`sfumato respond` and `sfumato estimate`, called as the command line calls them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from helpers.cli import invoke as run

PEOPLE = 6000
LABELS = ["ash", "birch", "cedar"]
SECRET = "willow"


def told(result):
    return str(result.exception) + result.output


@pytest.fixture(params=["parquet", "csv", "csv.gz"])
def source(request, tmp_path):
    """A file of people with a kind of tree, its code, a yes or no, and a height."""
    codes = np.arange(PEOPLE) % 10 // 4
    table = pa.table(
        {
            "tree": [LABELS[code] for code in codes],
            "code": codes,
            "tall": [bool(code) for code in codes],
            "height": np.linspace(10, 30, PEOPLE),
        }
    )
    path = tmp_path / f"people.{request.param}"
    if request.param == "parquet":
        pq.write_table(table, path)
    else:
        with pa.output_stream(str(path)) as stream:  # compressed by its name
            pa.csv.write_csv(table, stream)
    return path


@pytest.mark.parametrize("mechanism", ["krr", "oue", "sue", "olh", "hadamard", "rappor"])
def test_shares_round_trip_with_their_mechanism(source, mechanism):
    out = source.parent / ("answers.csv" if source.suffix == ".parquet" else "answers.parquet")
    options = ["--column", "tree", "--mechanism", mechanism, "--epsilon", 4, "--values", ",".join(LABELS)]
    made = json.loads(run("respond", source, *options, "-o", out, "--json").stdout)
    assert made["mechanism"] == mechanism
    assert made["epsilon"] == "4"
    assert float(eval_fraction(made["exact_epsilon"])) <= 4
    found = json.loads(run("estimate", out, "--json").stdout)
    assert found["people"] == PEOPLE
    assert found["values"] == LABELS
    errors = np.abs(np.array(found["frequencies"]) - [0.4, 0.4, 0.2])
    # Ten standard errors and 30 people: false alarms are rarer than one in 10^15.
    assert np.all(errors < 10 * np.array(found["standard_errors"]) + 0.005)
    assert len(found["intervals"]) == 3
    assert json.loads(run("estimate", out, *options, "--json").stdout) == found


def eval_fraction(text):
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1)


@pytest.mark.parametrize("mechanism", ["laplace", "duchi", "piecewise"])
def test_means_round_trip(source, mechanism):
    out = source.parent / ("answers.csv" if source.suffix == ".parquet" else "answers.parquet")
    options = ["--column", "height", "--mechanism", mechanism, "--epsilon", "2", "--range", "0,50"]
    run("respond", source, *options, "-o", out)
    found = json.loads(run("estimate", out, "--json").stdout)
    assert abs(found["mean"] - 20) < 10 * found["standard_error"]
    assert found["interval"][0] < found["mean"] < found["interval"][1]
    assert json.loads(run("estimate", out, *options, "--json").stdout) == found
    shown = run("estimate", out).stdout
    assert "standard error" in shown
    assert mechanism in shown


def test_codes_coins_and_booleans(source):
    out = source.parent / "answers.parquet"
    run("respond", source, "--column", "code", "--categories", 3, "--epsilon", 2, "-o", out)
    assert json.loads(run("estimate", out, "--json").stdout)["values"] is None
    assert "code" in pq.read_schema(out).names
    named = json.loads(run("estimate", out, "--values", "a,b,c", "--json").stdout)
    assert named["values"] == ["a", "b", "c"]
    assert "in number" in told(run("estimate", out, "--values", "a,b", code=2))
    options = ["--column", "tall", "--mechanism", "coin", "--values", "false,true"]
    run("respond", source, *options, "-o", out, "--force")
    found = json.loads(run("estimate", out, "--json").stdout)
    assert found["mechanism"] == "coin"
    assert abs(found["frequencies"][1] - 0.6) < 10 * found["standard_errors"][1]


def test_a_person_reads_a_table(source):
    out = source.parent / "answers.parquet"
    result = run(
        "respond", source, "--column", "tree", "--values", ",".join(LABELS), "--epsilon", 1, "-o", out
    )
    assert "delivered" in result.stderr
    assert result.stdout == ""
    shown = run("estimate", out).stdout
    for label in LABELS:
        assert label in shown
    assert "krr" in shown


def test_values_outside_are_refused_or_counted_as_stated(tmp_path):
    source, out = tmp_path / "a.csv", tmp_path / "b.parquet"
    source.write_text(f'tree\nash\n{SECRET}\n""\nash\n')
    options = ["--column", "tree", "--values", "ash,birch", "--epsilon", 50]
    result = run("respond", source, *options, "-o", out, code=2)
    assert SECRET not in told(result)
    run("respond", source, *options, "--default", "birch", "-o", out)
    assert pq.read_table(out)["tree"].to_pylist() == [0, 1, 1, 0]
    source.write_text("height\n1.5\n\n2.5\n")
    options = ["--column", "height", "--mechanism", "duchi", "--range", "0,4", "--epsilon", 1]
    run("respond", source, *options, "-o", out, "--force", "--default", "2")


def test_answers_without_a_mechanism_need_options(tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text("x\n" + "0\n1\n" * 500)
    shares = ["--epsilon", 1, "--values", "n,y", "--mechanism"]
    found = json.loads(run("estimate", path, *shares, "krr", "--json").stdout)
    assert found["frequencies"] == pytest.approx([0.5, 0.5])


def test_an_edited_epsilon_is_noticed(tmp_path):
    source, out = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_text("x\n" + "a\nb\n" * 50)
    run("respond", source, "--values", "a,b", "--epsilon", 1, "-o", out)
    beside = tmp_path / "b.csv.json"
    beside.write_text(beside.read_text().replace('"epsilon": "1"', '"epsilon": "2"'))
    assert "damaged" in told(run("estimate", out, code=2))


def test_answers_of_another_shape_are_refused(tmp_path):
    source, out = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_text("x\n" + "a\nb\n" * 50)
    run("respond", source, "--values", "a,b", "--epsilon", 1, "--mechanism", "oue", "-o", out)
    for line in ("zz", "00ff", "ff", '""'):
        out.write_text(f"x\n00\n{line}\n")
        run("estimate", out, code=2)


def test_answers_without_rows_are_refused(tmp_path):
    source, out = tmp_path / "a.csv", tmp_path / "b.parquet"
    source.write_text("x\n")
    for mechanism in ("krr", "oue", "rappor"):
        options = ["--values", "a,b", "--epsilon", 2, "--mechanism", mechanism, "--force"]
        run("respond", source, *options, "-o", out)
        assert "no responses" in told(run("estimate", out, code=2))


@pytest.mark.parametrize(("separator", "ending"), [(";", "csv"), ("|", "csv"), ("\t", "tsv"), (",", "csv")])
def test_any_separator_is_read_and_an_empty_cell_is_missing(tmp_path, separator, ending):
    source, out = tmp_path / f"a.{ending}", tmp_path / "b.parquet"
    rows = [["tree", "code", "height"], ["ash", "07", "1.5"], ["", "", ""], ["birch", "12", " 3"]]
    source.write_text("".join(separator.join(row) + "\n" for row in rows))
    options = ["--epsilon", 44, "-o", out, "--force"]
    trees = ["--column", "tree", "--values", "ash,birch"]
    assert "missing" in told(run("respond", source, *trees, *options, code=2))
    run("respond", source, *trees, "--default", "birch", *options)
    assert pq.read_table(out)["tree"].to_pylist() == [0, 1, 1]
    run("respond", source, "--column", "code", "--values", "07,12", "--default", "12", *options)
    assert pq.read_table(out)["code"].to_pylist() == [0, 1, 1]
    heights = ["--column", "height", "--mechanism", "duchi", "--range", "1.5,3"]
    assert "missing" in told(run("respond", source, *heights, *options, code=2))
    run("respond", source, *heights, "--default", "3", *options)
    assert pq.read_table(out)["height"].to_pylist() == [0, 1, 1]


def test_a_file_without_names_shows_no_record(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text(f"{SECRET},1\nash,2\n")
    options = ["--values", "ash,birch", "--epsilon", 1, "-o", tmp_path / "b.csv"]
    for column in ([], ["--column", "tree"]):
        assert SECRET not in told(run("respond", source, *column, *options, code=2))
