"""Verification says which field differs, and takes last bits for what they are."""

import hashlib
import io
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import project_text
from sfumato.release.certificate import pack_json
from sfumato.release.verification import count_units, describe_differences, describe_lines, find_differences
from sfumato.tables.read import table_to_parquet

PROJECT = project_text(
    {
        "a": {"range": [1, 4]},
        "b": {"range": [1, 3]},
    },
    source="t.csv",
    epsilon=100,
    delta=0.001,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("differences")
    (folder / "t.csv").write_text("a,b\n" + "".join(f"{1 + n % 4},{1 + n % 3}\n" for n in range(900)))
    (folder / "sfumato.toml").write_text(PROJECT)
    sf.open(folder / "sfumato.toml").release(
        sf.recipes.Tree(table="t"), epsilon=2, delta="1e-6", out=folder / "out"
    )
    return folder / "out"


@pytest.fixture
def out(made, tmp_path):
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def rewrite(folder, name, content):
    (folder / name).write_bytes(content)
    path = folder / "certificate.json"
    certificate = json.loads(path.read_text())
    certificate["files"][name] = hashlib.sha256(content).hexdigest()
    path.write_bytes(pack_json(certificate))


def change_model(folder, *, loss=lambda x: x, value=lambda x: x, describe=json.dumps):
    model = pq.read_table(folder / "model.parquet")
    about = model["about"].to_pylist()
    facts = json.loads(about[0])
    facts["loss"] = loss(facts["loss"])
    about[0] = describe(facts)
    numbers = value(np.array(model["value"]))
    changed = model.set_column(3, "about", pa.array(about, pa.string())).set_column(
        model.column_names.index("value"), "value", pa.array(numbers)
    )
    rewrite(folder, "model.parquet", table_to_parquet(changed, varied=()))


def test_another_layout_of_the_same_model_is_accepted(out):
    change_model(out)
    assert any("model.parquet" in line and "row for row" in line for line in sf.verify(out).checked)


def test_last_bits_are_told_and_accepted(out):
    change_model(out, loss=lambda x: float(np.nextafter(np.nextafter(x, math.inf), math.inf)))
    (line,) = [line for line in sf.verify(out).checked if "model.parquet" in line]
    assert "'loss' of a model differs by 2 units in the last place" in line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"loss": lambda x: x * (1 + 1e-9)},
            r"'loss' of a model differs by [\d,]{7,} units in the last place",
        ),
        ({"loss": lambda x: 3}, "'loss' of a model differs"),
        ({"value": lambda x: x * x.dtype.type(1.25)}, r"column 'value' differs by [\d,]{7,} units"),
        ({"value": lambda x: x * x.dtype.type(np.nan)}, "column 'value' differs"),
        ({"describe": lambda facts: json.dumps(facts, indent=1)}, "column 'about' differs"),
        ({"describe": lambda facts: json.dumps({**facts, "more": 1})}, "column 'about' differs"),
        ({"describe": lambda facts: "{"}, "column 'about' differs"),
    ],
)
def test_other_differences_are_named_and_refused(out, change, words):
    change_model(out, **change)
    with pytest.raises(sf.VerificationFailed, match=rf"model\.parquet .*{words}"):
        sf.verify(out)


def test_a_note_in_the_file_is_refused(out):
    model = pq.read_table(out / "model.parquet").replace_schema_metadata({"a": "b"})
    sink = io.BytesIO()
    pq.write_table(model, sink)
    rewrite(out, "model.parquet", sink.getvalue())
    with pytest.raises(sf.VerificationFailed, match=r"model\.parquet .* form differs"):
        sf.verify(out)


def test_lines_are_counted(out):
    lines = (out / "table.csv").read_bytes().split(b"\n")
    lines[4] = b"4,3" if lines[4] != b"4,3" else b"4,2"
    rewrite(out, "table.csv", b"\n".join(lines))
    with pytest.raises(
        sf.VerificationFailed, match=r"table\.csv .* 1 of [\d,]+ lines differ, the first is line 5"
    ):
        sf.verify(out)
    assert describe_lines(b"a\nb\n", b"a\n") == "it has 2 lines in place of 1"


def test_rows_of_the_table_are_counted(out):
    table = pq.read_table(out / "table.parquet")
    values = table["a"].to_pylist()
    values[0] = 1 + values[0] % 4
    changed = table.set_column(0, "a", pa.array(values, table["a"].type))
    rewrite(out, "table.parquet", table_to_parquet(changed, varied=()))
    with pytest.raises(sf.VerificationFailed, match=r"column 'a' in 1 of [\d,]+ rows differs"):
        sf.verify(out)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_units_in_the_last_place(kind):
    tiny = np.finfo(kind).smallest_subnormal
    first = np.array([1, -1, 0, tiny, -tiny, np.nan, np.nan, np.inf], kind)
    second = np.array([1, np.nextafter(kind(-1), kind(0)), -0.0, -tiny, 0, np.nan, 1, np.inf], kind)
    assert count_units(first, second).tolist() == [0, 1, 0, 2, 1, 0, math.inf, 0]


def test_nothing_is_found_between_equals():
    sink = table_to_parquet(pa.table({"a": [1.5], "about": [None]}), varied=())
    assert find_differences(sink, sink) == ()
    other = table_to_parquet(pa.table({"a": [1.5, 2], "about": [None, None]}), varied=())
    assert describe_differences(find_differences(sink, other)) == "its form differs"
