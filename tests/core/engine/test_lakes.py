"""Tables of Delta and Iceberg: the rows of one snapshot, whichever format has them."""

import json
import shutil
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.sources import seed_noise
from sfumato.core.errors import SchemaError, SourceError
from sfumato.core.facts.project import list_files, parse_project
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import Marginal
from sfumato.servers.lake import find_snapshot, find_source
from sfumato.servers.project import open_engine

COLUMNS = {"zone": {"values": ["a", "b", "c"]}, "fare": {"bounds": [0, 100]}, "size": {"range": [0, 9]}}
ASKED = "DP-SELECT 0.5 zone, COUNT(*), SUM(fare) FROM t WHERE day >= DATE '2024-01-03' GROUP BY zone"


def make_rows(count=300, seed=3):
    generator = np.random.default_rng(seed)
    zones = [["a", "b", "c", None][each] for each in generator.integers(0, 4, count)]
    days = np.datetime64("2024-01-01T00:00:00") + generator.integers(0, 5 * 86400, count)
    return pa.table(
        {
            "person": [f"p{each}" for each in generator.integers(0, 90, count)],
            "zone": zones,
            "fare": generator.uniform(0, 100, count),
            "size": pa.array(generator.integers(0, 10, count), pa.int32()),
            "day": pa.array(days.astype("datetime64[us]")),
        }
    )


def write_parquet(folder, *pieces, name="t"):
    pq.write_table(pa.concat_tables(pieces, promote_options="default"), folder / f"{name}.parquet")
    return f"{name}.parquet"


def write_delta(folder, *pieces, name="t", **options):
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    for piece in pieces:
        deltalake.write_deltalake(
            str(folder / "delta" / name), piece, mode="append", schema_mode="merge", **options
        )
    return f"delta:delta/{name}"


@pytest.fixture
def catalog(tmp_path):
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from pyiceberg.catalog.sql import SqlCatalog

    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path / "warehouse")}
    catalog = SqlCatalog("lake", **place)
    catalog.create_namespace("city")
    yield catalog
    catalog.engine.dispose()


def write_iceberg(catalog, *pieces, name="t", **options):
    table = catalog.create_table(f"city.{name}", schema=pieces[0].schema, **options)
    for piece in pieces:
        with table.update_schema() as update:
            update.union_by_name(piece.schema)
        table.append(piece)
    return table


def make_project(folder, source, **more):
    spec = {"source": source, "unit": "person", "max_records": 2, "columns": COLUMNS, **more}
    return parse_project({"budget": {"epsilon": 20, "delta": "1e-6"}, "tables": {"t": spec}}, folder=folder)


def open_curator(folder, source, **more):
    return sf.Curator(make_project(folder, source, **more))


def count(folder, source, *columns, **more):
    table = parse_table("t", {"source": source, "unit": "row", "columns": COLUMNS, **more})
    engine = open_engine(folder)
    engine.check(table, (columns,))
    (counts,) = engine.count(table, (Marginal(columns=columns),), progress=lambda stage: None)
    return counts.true_values.tolist()


def find(folder, source):
    return find_source(parse_table("t", {"source": source, "unit": "row"}), folder=folder)


def refuse(folder, source, match, **more):
    """Asserts that a statement is refused in such words, that they tell no value, and nothing was spent."""
    curator = open_curator(folder, source, **more)
    with pytest.raises(SourceError, match=match) as refused:
        curator.sql(ASKED)
    assert "secret" not in str(refused.value)
    assert curator.budget().spent == 0


def release_bytes(folder, source):
    """What is released of a source under one seed, without where it is."""
    (folder / "ledger.db").unlink(missing_ok=True)
    curator = open_curator(folder, source)
    recipe = sf.recipes.CellCounts(table="t", by=("zone", "size"))
    with seed_noise():
        answer = curator.sql(ASKED).to_arrow()
        curator.release(recipe, epsilon=1, out=folder / "out", force=True)
    files = {each.name: each.read_bytes() for each in sorted((folder / "out").glob("*.csv"))}
    assert files
    return answer, files


def test_a_release_of_delta_is_that_of_the_same_rows_in_parquet(tmp_path):
    rows = make_rows()
    source = write_delta(tmp_path, rows[:100], rows[100:], partition_by=["zone"])
    assert release_bytes(tmp_path, source) == release_bytes(tmp_path, write_parquet(tmp_path, rows))


def test_a_release_of_iceberg_is_that_of_the_same_rows_in_parquet(tmp_path, catalog):
    rows = make_rows()
    write_iceberg(catalog, rows[:100], rows[100:])
    found = release_bytes(tmp_path, "iceberg:warehouse/city/t")
    assert found == release_bytes(tmp_path, write_parquet(tmp_path, rows))


def test_a_table_of_iceberg_is_found_by_its_name_in_a_catalog(tmp_path, catalog, monkeypatch):
    rows = make_rows(40)
    write_iceberg(catalog, rows)
    import pyiceberg.utils.config  # what it is configured with is read once

    for key in ("uri", "warehouse"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", catalog.properties[key])
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", pyiceberg.utils.config.Config())
    found = count(tmp_path, "iceberg:lake.city.t", "zone")
    assert found == count(tmp_path, write_parquet(tmp_path, rows), "zone")
    refuse(tmp_path, "iceberg:lake.city.other", "cannot be opened by pyiceberg")


def check_pinned(folder, source, append):
    """An answer is about the snapshot that it was asked of, and another one is a new question."""
    curator = open_curator(folder, source)
    curator.release(sf.recipes.CellCounts(table="t", by=("zone",)), epsilon=1, out=folder / "out")
    curator.sql(ASKED)
    first = curator.release(
        sf.recipes.CellCounts(table="t", by=("zone",)), epsilon=1, out=folder / "out", force=True
    )
    assert first.repeated
    certificate = json.loads((folder / "out" / "certificate.json").read_text())
    number = certificate["plan"]["table"]["t"]["snapshot"]
    assert sf.verify(folder / "out", ledger=folder / "ledger.db").unchecked == ()
    append()
    pinned = open_curator(folder, source, snapshot=number)
    assert pinned.sql(ASKED).repeated
    assert not curator.sql(ASKED).repeated
    assert curator.budget().spent == 2
    version = pinned._engine.version(pinned.project.table("t"), secret=b"one")
    assert version != curator._engine.version(curator.project.table("t"), secret=b"one")


def test_an_answer_is_about_a_snapshot_of_delta(tmp_path):
    rows = make_rows()
    source = write_delta(tmp_path, rows)
    check_pinned(tmp_path, source, lambda: write_delta(tmp_path, rows[:10]))
    # A copy is the same content; one that was changed since is another, of the same number.
    shutil.copytree(tmp_path / "delta" / "t", tmp_path / "delta" / "copy")
    versions = [find(tmp_path, each).version for each in (source, "delta:delta/copy")]
    assert versions[0] == versions[1]
    write_delta(tmp_path, rows[:20])
    write_delta(tmp_path, rows[:20], name="copy")
    versions = [find(tmp_path, each).version for each in (source, "delta:delta/copy")]
    assert versions[0] != versions[1]


def test_an_answer_is_about_a_snapshot_of_iceberg(tmp_path, catalog):
    rows = make_rows()
    table = write_iceberg(catalog, rows)
    check_pinned(tmp_path, "iceberg:warehouse/city/t", lambda: table.append(rows[:10]))


def test_a_series_pays_once_for_its_periods_whatever_snapshot_they_are_read_from(tmp_path):
    columns = {"zone": COLUMNS["zone"]}
    columns["month"] = {"from": "day", "period": "month", "range": ["2024-01-01", "2024-12-31"]}
    spent = []
    for month in (1, 2):
        day = pa.array([np.datetime64(f"2024-0{month}-03T00:00:00", "us")] * 50)
        source = write_delta(tmp_path, make_rows(50).set_column(4, "day", day))
        curator = open_curator(tmp_path, source, columns=columns)
        recipe = sf.recipes.Running(table="t", period="month", by=("zone",), through=f"2024-0{month}")
        curator.release(recipe, epsilon=1, delta=1e-9)
        spent.append(curator.budget().spent)
    assert 0 < spent[0] == spent[1]


def test_a_question_names_the_snapshots_of_all_its_tables(tmp_path):
    rows = make_rows(40)
    visits = rows.select(["person"]).append_column("id", pa.array(range(40)))
    items = rows.select(["zone"]).append_column("visit", pa.array(range(40)))
    tables = {
        "visits": {
            "source": write_delta(tmp_path, visits, name="visits"),
            "unit": "person",
            "max_records": 9,
        },
        "items": {
            "source": write_delta(tmp_path, items, items, name="items"),
            "references": {"visit": "visits.id"},
            "max_records": 9,
            "columns": {"zone": COLUMNS["zone"]},
        },
    }
    project = parse_project({"budget": {"epsilon": 9}, "tables": tables}, folder=tmp_path)
    release = sf.Curator(project).release(sf.recipes.CellCounts(table="items", by=("zone",)), epsilon=1)
    told = release.certificate["plan"]["table"]["items"]
    assert (told["snapshot"], told["references"]["visit"]["snapshot"]) == (1, 0)
    write_delta(tmp_path, visits[:1], name="visits")
    assert (
        not sf.Curator(project)
        .release(sf.recipes.CellCounts(table="items", by=("zone",)), epsilon=1)
        .repeated
    )


def test_columns_that_were_added_later_are_missing_in_earlier_files(tmp_path, catalog):
    rows = make_rows(40)
    early, late = rows.drop_columns(["size"]), rows[:15]
    described = {"zone": COLUMNS["zone"], "size": {"range": [0, 9], "missing_label": "none"}}
    sources = [write_parquet(tmp_path, early, late), write_delta(tmp_path, early, late)]
    write_iceberg(catalog, early, late)
    found = [
        count(tmp_path, each, "size", columns=described) for each in (*sources, "iceberg:warehouse/city/t")
    ]
    assert found[0] == found[1] == found[2]
    assert found[0][-1] == 40


def test_a_renamed_column_of_iceberg_keeps_its_values(tmp_path, catalog):
    rows = make_rows(40)
    table = write_iceberg(catalog, rows.rename_columns(["person", "area", "fare", "size", "day"]))
    with table.update_schema() as update:
        update.rename_column("area", "zone")
    table.append(rows[:5])  # a snapshot has the names that were valid when it was made
    expected = count(tmp_path, write_parquet(tmp_path, rows, rows[:5]), "zone")
    assert count(tmp_path, f"iceberg:{table.metadata_location.removeprefix('file://')}", "zone") == expected


def test_rows_that_were_deleted_are_not_read(tmp_path, catalog):
    rows = make_rows(60)
    kept = rows.filter(pa.compute.not_equal(rows["zone"], "a").fill_null(fill_value=True))
    expected = count(tmp_path, write_parquet(tmp_path, kept), "zone", "size")
    source = write_delta(tmp_path, rows)
    from deltalake import DeltaTable

    DeltaTable(str(tmp_path / "delta" / "t")).delete("zone = 'a'")
    write_iceberg(catalog, rows).delete("zone = 'a'")
    assert count(tmp_path, source, "zone", "size") == expected
    assert count(tmp_path, "iceberg:warehouse/city/t", "zone", "size") == expected
    assert count(tmp_path, source, "zone", "size", snapshot=0) == count(
        tmp_path, write_parquet(tmp_path, rows, name="all"), "zone", "size"
    )


def encode_vector(rows):
    """A deletion vector as the log of Delta holds it: roaring bitmaps, spelled in Z85."""
    roaring = pytest.importorskip("pyroaring").BitMap(rows).serialize()
    data = struct.pack("<IQI", 1681511377, 1, 0) + roaring
    data += bytes(-len(data) % 4)
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = [int.from_bytes(data[each : each + 4], "big") for each in range(0, len(data), 4)]
    spelled = "".join(letters[word // 85**place % 85] for word in words for place in range(4, -1, -1))
    return {
        "storageType": "i",
        "pathOrInlineDv": spelled,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def write_log(folder, number, *actions):
    text = "\n".join(json.dumps(each) for each in actions)
    (folder / "_delta_log" / f"{number:020}.json").write_text(text)


def read_log(folder, number):
    lines = (folder / "_delta_log" / f"{number:020}.json").read_text().splitlines()
    return {key: value for each in lines for key, value in json.loads(each).items()}


def test_deletion_vectors_of_delta_hide_rows(tmp_path):
    rows = make_rows(60)
    source = write_delta(tmp_path, rows)
    folder, gone = tmp_path / "delta" / "t", [0, 7, 31]
    add = read_log(folder, 0)["add"]
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {key: ["deletionVectors", "timestampNtz"] for key in ("readerFeatures", "writerFeatures")}
    removed = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    write_log(
        folder,
        1,
        {"protocol": features},
        {"remove": removed},
        {"add": {**add, "deletionVector": encode_vector(gone)}},
    )
    kept = rows.take([each for each in range(60) if each not in gone])
    assert count(tmp_path, source, "zone", "size") == count(
        tmp_path, write_parquet(tmp_path, kept), "zone", "size"
    )
    removed["deletionVector"] = encode_vector(gone)
    write_log(folder, 2, {"remove": removed}, {"add": {**add, "deletionVector": encode_vector([5])}})
    versions = [find_snapshot("delta", folder, each, name="t").version.split("|")[-1] for each in (1, 2)]
    assert versions[0] != versions[1]


def test_what_is_not_read_of_delta_is_refused_by_its_name(tmp_path):
    source = write_delta(tmp_path, make_rows(9).drop_columns(["day"]))
    folder = tmp_path / "delta" / "t"
    meta = read_log(folder, 0)["metaData"]
    schema = json.loads(meta["schemaString"])
    for number, field in enumerate(schema["fields"], start=1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    write_log(
        folder,
        1,
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": {**meta, "configuration": mapped, "schemaString": json.dumps(schema)}},
    )
    refuse(tmp_path, source, "is not read of Delta: column mapping")


def test_a_file_of_other_types_is_refused_before_a_charge(tmp_path):
    source = write_delta(tmp_path, make_rows(9))
    (file,) = (tmp_path / "delta" / "t").glob("*.parquet")
    rows = pq.read_table(file)
    pq.write_table(rows.set_column(2, "fare", rows["fare"].cast(pa.string())), file)
    add = read_log(tmp_path / "delta" / "t", 0)["add"]
    write_log(tmp_path / "delta" / "t", 1, {"add": {**add, "size": file.stat().st_size}})
    refuse(tmp_path, source, "column 'fare' is string in a file and double in the table")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_what_is_gone_is_told_before_a_charge(tmp_path, kind, request):
    rows = make_rows(30)
    rows = rows.set_column(1, "zone", pa.array(["secret"] * 30))
    if kind == "delta":
        source = write_delta(tmp_path, rows, partition_by=["zone"])
    else:
        write_iceberg(request.getfixturevalue("catalog"), rows)
        source = "iceberg:warehouse/city/t"
    refuse(tmp_path, source, "snapshot 77 ?", snapshot=77)
    refuse(tmp_path, f"{kind}:nowhere", "there is no folder")
    for each in list_files(source, tmp_path):
        if each.suffix == ".parquet":
            each.unlink()
    refuse(tmp_path, source, "data files of snapshot .* are missing or")


def test_a_damaged_file_is_told_before_a_charge(tmp_path):
    source = write_delta(tmp_path, make_rows(5000))
    (file,) = (tmp_path / "delta" / "t").glob("*.parquet")
    held = bytearray(file.read_bytes())
    held[40:400] = bytes(360)
    file.write_bytes(held)
    refuse(tmp_path, source, "damaged")
    pq.write_table(make_rows(5), file)
    refuse(tmp_path, source, "missing or were changed")


def test_values_by_which_a_table_is_divided_are_read_as_they_are(tmp_path, catalog):
    values = ["x y", "50%", "a/b", "é=è", None]
    rows = make_rows(40).set_column(1, "zone", pa.array([values[each % 5] for each in range(40)]))
    source = write_delta(tmp_path, rows, partition_by=["zone"])
    table = catalog.create_table("city.t", schema=rows.schema)
    with table.update_spec() as update:
        update.add_identity("zone")
    table.append(rows)
    described = {"columns": {"zone": {"values": values[:4], "missing_label": "none"}}}
    for each in (source, "iceberg:warehouse/city/t", write_parquet(tmp_path, rows)):
        assert count(tmp_path, each, "zone", **described) == [8, 8, 8, 8, 8]


def test_a_table_of_many_files_is_read(tmp_path):
    source = write_delta(tmp_path, make_rows(8))
    folder, rows = tmp_path / "delta" / "t", make_rows(1000)
    add = read_log(folder, 0)["add"]
    for each in range(1000):
        pq.write_table(rows[each : each + 1], folder / f"part-{each}.parquet")
    added = [
        {
            "add": {
                **add,
                "path": f"part-{each}.parquet",
                "size": (folder / f"part-{each}.parquet").stat().st_size,
            }
        }
        for each in range(1000)
    ]
    write_log(
        folder, 1, {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}, *added
    )
    assert len(find(tmp_path, source).paths) == 1000
    assert count(tmp_path, source, "zone", "size") == count(
        tmp_path, write_parquet(tmp_path, rows), "zone", "size"
    )


def test_files_of_a_lake_are_no_public_tables(tmp_path):
    source = write_delta(tmp_path, make_rows(9))
    (file,) = (tmp_path / "delta" / "t").glob("*.parquet")
    spec = {
        "t": {"source": source, "unit": "person", "max_records": 2},
        "p": {"source": str(file.relative_to(tmp_path)), "public": True},
    }
    with pytest.raises(SchemaError, match="is the source of table 't' itself"):
        parse_project({"budget": {"epsilon": 1}, "tables": spec}, folder=tmp_path)


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    import sys

    for kind, package in (("delta", "deltalake"), ("iceberg", "pyiceberg.expressions")):
        monkeypatch.setitem(sys.modules, package, None)
        for each in ("_delta_log", "metadata"):
            (tmp_path / kind / each).mkdir(parents=True)
        (tmp_path / kind / "metadata" / "v1.metadata.json").touch()
        refuse(tmp_path, f"{kind}:{kind}", r"pip install 'sfumato\[lake\]'")


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"source": "t.parquet", "snapshot": 3}, "snapshot is a number"),
        ({"source": "delta:t", "snapshot": -1}, "snapshot is a number"),
        ({"source": "delta:t", "snapshot": "3"}, "snapshot is a number"),
        ({"source": "delta:"}, "must name one table, by its folder"),
        ({"source": "iceberg:s3://bucket/t"}, "must name one table, by its folder"),
    ],
)
def test_a_source_that_is_misspelt_is_refused(more, match):
    with pytest.raises(SchemaError, match=match):
        parse_table("t", {"unit": "row", **more})
