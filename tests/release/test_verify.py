import hashlib
import io
import json
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.recipes.base import Product
from sfumato.release.certificate import pack_json
from sfumato.release.folder import pack_measurements

RECIPE = sf.recipes.CellCounts(table="t", by=("region", "month"))


@pytest.fixture
def out(project):
    folder = project.parent / "out"
    sf.open(project).release(RECIPE, epsilon=[1, 2], out=folder)
    return folder


def edit_certificate(folder, change):
    path = folder / "certificate.json"
    certificate = json.loads(path.read_text())
    change(certificate)
    path.write_bytes(pack_json(certificate))


def rewrite(folder, name, content):
    """Replaces a file and its digest in the certificate, as a careful forger would."""
    (folder / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit_certificate(folder, lambda certificate: certificate["files"].update({name: digest}))


def test_a_release_verifies_with_its_ledger(out):
    result = sf.verify(out, ledger=out.parent / "ledger.db")
    assert any("ledger" in line for line in result.checked)
    assert any("byte for byte" in line for line in result.checked)
    assert result.total["epsilon"] == "3"
    assert not result.unchecked
    assert result.verdict.startswith("verified against the ledger, which holds the charge and the answer")


def test_without_a_ledger_nothing_is_called_verified(out):
    result = sf.verify(out)
    assert result.verdict.startswith("consistent, not verified: the files follow from the measurements")
    assert "no ledger was given" in result.verdict
    assert "may be invented" in result.verdict


def test_an_edited_table_is_found(out):
    table = pq.read_table(out / "table.parquet")
    counts = pa.array([value + 1 for value in table["count"].to_pylist()])
    sink = io.BytesIO()
    pq.write_table(table.set_column(table.num_columns - 1, "count", counts), sink)
    rewrite(out, "table.parquet", sink.getvalue())
    with pytest.raises(sf.VerificationFailed, match=r"table\.parquet"):
        sf.verify(out)


def test_another_writer_of_the_same_rows_is_accepted(out):
    sink = io.BytesIO()
    pq.write_table(pq.read_table(out / "table.parquet"), sink, compression="gzip", store_schema=False)
    rewrite(out, "table.parquet", sink.getvalue())
    assert any("row for row" in line for line in sf.verify(out).checked)


def test_a_file_the_certificate_does_not_name_is_found(out):
    edit_certificate(out, lambda certificate: certificate["files"].update({"table.csv": "0" * 64}))
    with pytest.raises(sf.VerificationFailed, match=r"table\.csv"):
        sf.verify(out)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["total"].update(epsilon="0.1"),
        lambda c: c["measurements"][0].update(sensitivity="1"),
        lambda c: c["measurements"][0].update(scale="1"),
        lambda c: c["unit"].update(max_records=1),
        lambda c: c["plan"]["table"]["t"].update(max_records=1),
        lambda c: c["plan"].update(epsilons=["0.5", "2"]),
        lambda c: c["plan"]["requests"][0].update(scale="1"),
        lambda c: c["plan"]["recipe"].update(by=["region"]),
        lambda c: c["plan"]["table"]["t"]["columns"]["month"].update(range=[1, 13]),
        lambda c: c.update(plan_sha256="0" * 64),
        lambda c: c["plan"].pop("delta"),
        lambda c: c.update(format="other"),
        lambda c: c.update(note="trust me"),
        lambda c: c["public"]["region"].update(drafted_from_data=True),
        lambda c: c["versions"].clear(),
        lambda c: c["versions"].update(numpy="a story about Jane Doe"),
        lambda c: c["unit"].update(max_records=3.0),
        lambda c: c["unit"].update(grid=True),
        lambda c: c.update(plan=[]),
    ],
)
def test_an_edited_certificate_is_found(out, change):
    edit_certificate(out, change)
    with pytest.raises(sf.VerificationFailed):
        sf.verify(out)


def test_a_second_total_in_the_certificate_is_found(out):
    path = out / "certificate.json"
    path.write_text(path.read_text().replace("{", '{"total": {"epsilon": "0.001"},', 1))
    with pytest.raises(sf.VerificationFailed, match="form"):
        sf.verify(out)


def test_notes_in_the_parquet_footer_are_found(out):
    table = pq.read_table(out / "table.parquet").replace_schema_metadata({"true counts": "1, 2, 3"})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    rewrite(out, "table.parquet", sink.getvalue())
    with pytest.raises(sf.VerificationFailed, match=r"table\.parquet"):
        sf.verify(out)


def test_a_file_too_many_is_found(out):
    (out / "exact.csv").write_text("secret\n")
    with pytest.raises(sf.VerificationFailed, match=r"exact\.csv"):
        sf.verify(out)


def test_every_delta_is_written_exactly(project):
    project.write_text(project.read_text().replace("delta = 1e-9", "delta = 0.01"))
    recipe = sf.recipes.CellCounts(table="t", by=("region",), noise="gaussian")
    release = sf.open(project).release(recipe, epsilon=1, delta="0.0000012349")
    readings = release.certificate["total"]["epsilon_at_delta"]
    assert list(readings) == ["1.2349e-6", "1e-6", "1e-9", "1e-12"]
    with pytest.raises(sf.RecipeError, match="as good as 0"):
        sf.open(project).release(recipe, epsilon=1, delta="1e-350")


def test_other_measurements_are_found(out, project):
    other = sf.open(project).release(RECIPE, epsilon=[2, 3])
    rewrite(out, "measurements.parquet", pack_measurements(other.measurements))
    with pytest.raises(sf.VerificationFailed):
        sf.verify(out)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"{}"])
def test_a_broken_measurement_file_is_found(out, content):
    (out / "measurements.parquet").write_bytes(content)
    with pytest.raises(sf.VerificationFailed):
        sf.verify(out)


def test_a_missing_file_is_named(out):
    (out / "writeup.md").unlink()
    with pytest.raises(sf.VerificationFailed, match=r"writeup\.md"):
        sf.verify(out)
    with pytest.raises(sf.ReleaseError, match="not a release"):
        sf.verify(out.parent)


def test_a_charge_missing_from_the_ledger_is_found(out, tmp_path_factory, project):
    other = tmp_path_factory.mktemp("other")
    for name in ("sfumato.toml", "t.parquet"):
        (other / name).write_bytes((project.parent / name).read_bytes())
    sf.open(other / "sfumato.toml").release(RECIPE, epsilon=1)
    with pytest.raises(sf.VerificationFailed, match="no charge"):
        sf.verify(out, ledger=other / "ledger.db")


def test_invented_measurements_are_not_the_recorded_answer(out, project):
    from dataclasses import replace

    import numpy as np

    from sfumato.release.release import repeat_release

    curator = sf.open(project)
    honest = curator.release(RECIPE, epsilon=[1, 2])
    invented = tuple(replace(each, noisy_values=np.full(36, 99)) for each in honest.measurements)
    plan = curator.check(RECIPE, epsilon=[1, 2]).plan
    forged = repeat_release(plan, pack_measurements(invented), ledger=honest.certificate["ledger"])
    forged.write(out, force=True)
    sf.verify(out)
    with pytest.raises(sf.VerificationFailed, match="not the answer"):
        sf.verify(out, ledger=out.parent / "ledger.db")


@pytest.mark.parametrize("field", ["recorded_at", "previous", "sequence", "hash"])
def test_another_charge_than_the_ledgers_is_found(out, field):
    edit_certificate(out, lambda c: c["ledger"].update({field: 7 if field == "sequence" else "0" * 64}))
    with pytest.raises(sf.VerificationFailed):
        sf.verify(out, ledger=out.parent / "ledger.db")


def test_edited_history_is_found(out):
    ledger = out.parent / "ledger.db"
    with sqlite3.connect(ledger) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        assert "entries" in tables
        connection.execute("UPDATE entries SET hash = '00' WHERE sequence = 1")
    connection.close()
    with pytest.raises(sf.VerificationFailed, match="ledger"):
        sf.verify(out, ledger=ledger)


def test_measurements_are_unclipped_and_carry_their_noise(out):
    table = pq.read_table(out / "measurements.parquet")
    assert table.num_rows == 2 * 36
    assert min(table["noisy_value"].to_pylist()) < 0
    assert set(table["noise_scale"].to_pylist()) == {3.0, 1.5}


def test_labels_that_need_quotes_are_quoted(tmp_path):
    labels = ['a,"b"', "x\ny"]
    file = write_project(tmp_path, {"c": {"values": [*labels, ""]}}, rows=pa.table({"c": labels}))
    sf.open(file).release(sf.recipes.CellCounts(table="t", by=("c",)), epsilon=1, out=tmp_path / "out")
    import csv

    with (tmp_path / "out" / "table.csv").open(newline="") as lines:
        rows = list(csv.reader(lines))
    assert [row[0] for row in rows] == ["c", 'a,"b"', "x\ny", ""]
    sf.verify(tmp_path / "out")


@pytest.fixture
def adaptive(project, probe):
    """The folder of a release whose recipe asked by what it had seen."""
    folder = project.parent / "adaptive"
    sf.open(project).release(probe.Probe(table="t"), epsilon=1, out=folder)
    return folder


def edit_rows(folder, change):
    """Changes the rows of the measurements, as a careful forger would."""
    rows = pq.read_table(folder / "measurements.parquet").to_pylist()
    change(rows)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    rewrite(folder, "measurements.parquet", sink.getvalue())


def find_row(rows, start):
    return next(row for row in rows if row["measurement"].startswith(start))


def flip(rows):
    row = find_row(rows, "choice 0")
    row["noisy_value"] = 1 - row["noisy_value"]


def test_an_adaptive_release_verifies(adaptive):
    assert sf.verify(adaptive, ledger=adaptive.parent / "ledger.db").total["epsilon"] == "1"
    edit_rows(adaptive, lambda rows: None)
    sf.verify(adaptive)
    with pytest.raises(sf.VerificationFailed, match="not the answer"):
        sf.verify(adaptive, ledger=adaptive.parent / "ledger.db")


@pytest.mark.parametrize(
    "change",
    [
        flip,
        lambda rows: find_row(rows, "choice 0").update(noisy_value=2),
        lambda rows: find_row(rows, "choice 0").update(noisy_value=-1),
        lambda rows: find_row(rows, "choice 1").update(noise_scale=1.0),
        lambda rows: find_row(rows, "choice 1").update(cell=1),
        lambda rows: find_row(rows, "choice 1").update(measurement="choice 7"),
        lambda rows: find_row(rows, "by region").update(cell=2),
        lambda rows: find_row(rows, "round 1").update(noise_scale=1.0),
        lambda rows: rows[-1].update(noisy_value=None),
        lambda rows: rows.append(rows[-1]),
        lambda rows: rows.append({**rows[-1], "measurement": "more"}),
        lambda rows: rows.pop(),
        lambda rows: rows.pop(0),
        lambda rows: rows.reverse(),
        lambda rows: rows.clear(),
        lambda rows: [row.update(note="trust me") for row in rows],
    ],
)
def test_an_edited_transcript_is_found(adaptive, change):
    edit_rows(adaptive, change)
    with pytest.raises(sf.VerificationFailed):
        sf.verify(adaptive)


def test_an_edited_value_of_a_transcript_is_found(adaptive):
    def change(rows):
        values = [row for row in rows if row["measurement"] == "by region"]
        values[0]["noisy_value"] += 10**6

    edit_rows(adaptive, change)
    # If the region was measured again, the first measurement of it changes nothing that is released.
    with pytest.raises(sf.VerificationFailed, match=r"not the answer|model\.parquet|follow"):
        sf.verify(adaptive, ledger=adaptive.parent / "ledger.db")


@pytest.mark.parametrize("content", [b"", None, b"another model"])
def test_another_model_is_found(adaptive, content):
    if content is None:
        (adaptive / "model.parquet").unlink()
        edit_certificate(adaptive, lambda certificate: certificate["files"].pop("model.parquet"))
    else:
        rewrite(adaptive, "model.parquet", content)
    with pytest.raises(sf.VerificationFailed, match=r"model\.parquet"):
        sf.verify(adaptive)


def test_a_model_that_the_recipe_does_not_make_is_found(out):
    rewrite(out, "model.parquet", b"a model")
    edit_certificate(
        out, lambda certificate: certificate.update(files=dict(sorted(certificate["files"].items())))
    )
    with pytest.raises(sf.VerificationFailed, match=r"model\.parquet"):
        sf.verify(out)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["postprocessing"].update(rounds=1),
        lambda c: c.pop("postprocessing"),
        lambda c: c["plan"]["allowance"][0].update(scale="0.5"),
        lambda c: c["plan"].pop("allowance"),
        lambda c: c["measurements"][1].update(candidates=3),
        lambda c: c["measurements"].pop(),
    ],
)
def test_an_edited_certificate_of_a_transcript_is_found(adaptive, change):
    edit_certificate(adaptive, change)
    with pytest.raises(sf.VerificationFailed):
        sf.verify(adaptive)


def test_measurements_with_another_column_are_found(out):
    table = pq.read_table(out / "measurements.parquet")
    table = table.append_column("true_value", table["noisy_value"])
    sink = io.BytesIO()
    pq.write_table(table, sink)
    rewrite(out, "measurements.parquet", sink.getvalue())
    with pytest.raises(sf.VerificationFailed, match="no other"):
        sf.verify(out)


def test_a_recipe_adds_only_files_that_a_release_has():
    with pytest.raises(sf.RecipeError, match=r"exact\.csv"):
        Product(table=pa.table({}), files={"exact.csv": b""})


def test_a_label_that_a_spreadsheet_would_run_is_guarded_in_text_files(tmp_path):
    import csv

    from sfumato.anonymity.attack import open_published
    from sfumato.metrics.columns import read_side

    labels = ["=1+1", "-5", "+", "-", "@x", "+a(b)", "-5-3", "\tx", "'=y", "'plain", "a=b", "\uff1dz"]
    file = write_project(tmp_path, {"=c": {"values": labels}}, rows=pa.table({"=c": labels}))
    out = tmp_path / "out"
    sf.open(file).release(sf.recipes.CellCounts(table="t", by=("=c",)), epsilon=1, out=out)
    with (out / "table.csv").open(newline="") as lines:
        rows = list(csv.reader(lines))
    assert rows[0] == ["'=c", "count"]
    assert [row[0] for row in rows[1:]] == [
        "'=1+1",
        "-5",
        "+",
        "-",
        "'@x",
        "'+a(b)",
        "'-5-3",
        "'\tx",
        "''=y",
        "'plain",
        "a=b",
        "'\uff1dz",
    ]
    assert pq.read_table(out / "table.parquet")["=c"].to_pylist() == labels
    sf.verify(out, ledger=tmp_path / "ledger.db")
    # Who reads the text file back has the labels again; the records themselves are read as they are.
    assert read_side(out / "table.csv", side="release")["=c"].to_pylist() == labels
    assert open_published(out / "table.csv").table["=c"].to_pylist() == labels
    assert read_side(out / "table.csv", side="truth")["'=c"].to_pylist()[0] == "'=1+1"
