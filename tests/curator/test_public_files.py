"""No recipe reads the private records as a public table, whatever they are called."""

import gzip
import hashlib
import os
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import project_text

PROJECT = project_text(
    {
        "place": {"range": [0, 3]},
        "fare": {"bins": [0, 10, 20]},
    },
    source="{source}",
    unit="person",
    epsilon=10,
    delta=1e-06,
    max_records=2,
)
RECIPES = {
    "user-counts": lambda path: sf.recipes.UserCounts(table="t", by=["place"], public=path),
    "a list": lambda path: sf.recipes.UserCounts(table="t", by=["place"], asked=path),
    "field-groups": lambda path: sf.recipes.FieldGroups(table="t", public=path),
    "tree": lambda path: sf.recipes.Tree(table="t", public=path),
    "a guide": lambda path: sf.recipes.Adaptive(table="t", guide=path),
}


@pytest.mark.parametrize("source", ["part-1.parquet", "part-*.parquet"])
@pytest.mark.parametrize("name", RECIPES)
def test_the_records_are_not_public_by_another_name(tmp_path, source, name):
    (tmp_path / "sfumato.toml").write_text(PROJECT.format(source=source))
    records = pa.table({"person": [1, 2], "place": [0, 1], "fare": [3.0, 12.0]})
    pq.write_table(records, tmp_path / "part-1.parquet")
    (tmp_path / "soft.parquet").symlink_to(tmp_path / "part-1.parquet")
    (tmp_path / "hard.parquet").hardlink_to(tmp_path / "part-1.parquet")
    curator = sf.open(tmp_path / "sfumato.toml")
    around = f"../{tmp_path.name}/part-1.parquet"
    for spelling in ("part-1.parquet", around, "soft.parquet", "hard.parquet"):
        with pytest.raises(sf.RecipeError, match="not public"):
            curator.release(RECIPES[name](str(tmp_path / spelling)), epsilon=1, delta=1e-6)
    assert curator.budget().spent == 0
    # A table of the same name elsewhere, such as that of another year, is public.
    (tmp_path / "other").mkdir()
    pq.write_table(records.select(["place", "fare"]), tmp_path / "other" / "part-1.parquet")
    curator.check(RECIPES[name](str(tmp_path / "other" / "part-1.parquet")), epsilon=1, delta=1e-6)


def test_a_guide_packed_in_another_way_is_still_the_records(tmp_path):
    (tmp_path / "sfumato.toml").write_text(PROJECT.format(source="t.csv.gz"))
    records = b"person,place,fare\n" + b"1,0,3.0\n2,1,12.0\n" * 200
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(records, 9))
    (tmp_path / "quick.csv.gz").write_bytes(gzip.compress(records, 1))
    (tmp_path / "plain.csv").write_bytes(records)
    (tmp_path / "other.csv.gz").write_bytes(gzip.compress(records + b"3,2,7.5\n", 9))
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(records, 9)[:-9])
    curator = sf.open(tmp_path / "sfumato.toml")
    for name in ("quick.csv.gz", "plain.csv"):
        with pytest.raises(sf.RecipeError, match="is a copy of the source of table 't'"):
            curator.check(RECIPES["a guide"](str(tmp_path / name)), epsilon=1, delta=1e-6)
    curator.check(RECIPES["a guide"](str(tmp_path / "other.csv.gz")), epsilon=1, delta=1e-6)
    with pytest.raises(sf.SfumatoError, match=r"cut\.csv\.gz"):
        curator.check(RECIPES["a guide"](str(tmp_path / "cut.csv.gz")), epsilon=1, delta=1e-6)


RECORDS = "person,place\n1,a\n2,b\n3,a\n"
TABLE = project_text(
    {},
    source="{source}",
    unit="person",
    epsilon=10,
    max_records=2,
)
PUBLIC = '[tables.p]\npublic = true\nsource = "{file}"\n'
FILES = {
    "a public table": PUBLIC,
    "values": '[tables.t.columns.place]\nvalues_file = "{file}"\n',
    "parameters": '[tables.u]\nsource = "gone.csv"\nunit = "row"\nparameters = "{file}"\n',
}
SPELLINGS = {
    "itself": "part-1.csv",
    "around": "../{folder}/part-1.csv",
    "a soft link": "soft.csv",
    "a hard link": "hard.csv",
    "a linked folder": "linked/part-1.csv",
    "a copy": "copy.csv",
    "a packed copy": "copy.csv.gz",
    "a copy in an archive": "copy.zip",
}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "people [1]"
    folder.mkdir()
    (folder / "part-1.csv").write_text(RECORDS)
    (folder / "part-2.csv").write_text("person,place\n4,b\n")
    (folder / "soft.csv").symlink_to("part-1.csv")
    (folder / "hard.csv").hardlink_to(folder / "part-1.csv")
    (folder / "linked").symlink_to(folder)
    (folder / "copy.csv").write_text(RECORDS)
    (folder / "copy.csv.gz").write_bytes(gzip.compress(RECORDS.encode(), 1))
    with zipfile.ZipFile(folder / "copy.zip", "w") as archive:
        archive.writestr("part.csv", RECORDS)
    (folder / "other.csv").write_text("place,name\na,Altona\nb,Barmbek\n")
    return folder


@pytest.mark.parametrize("source", ["part-1.csv", "part-*.csv", "spark:./part-*.csv"])
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("what", FILES)
def test_no_file_of_a_project_is_the_records(folder, what, spelling, source):
    file = SPELLINGS[spelling].format(folder=folder.name)
    (folder / "sfumato.toml").write_text(TABLE.format(source=source) + FILES[what].format(file=file))
    with pytest.raises(sf.SchemaError, match="not public"):
        sf.open(folder / "sfumato.toml")


def test_a_pattern_of_public_files_holds_no_records(folder):
    text = TABLE.format(source="part-*.csv") + PUBLIC.format(file="*-2.csv")
    (folder / "sfumato.toml").write_text(text)
    with pytest.raises(sf.SchemaError, match=r"'part-2\.csv' is the source of table 't'"):
        sf.open(folder / "sfumato.toml")


def test_a_folder_of_records_holds_no_public_file(folder):
    text = TABLE.format(source=f"spark:{folder}") + PUBLIC.format(file="other.csv")
    (folder / "sfumato.toml").write_text(text)
    with pytest.raises(sf.SchemaError, match="not public"):
        sf.open(folder / "sfumato.toml")


def test_a_public_table_is_looked_at_before_every_statement(folder):
    text = TABLE.format(source="part-1.csv") + PUBLIC.format(file="public.csv")
    (folder / "sfumato.toml").write_text(text)
    (folder / "public.csv").symlink_to("other.csv")
    curator = sf.open(folder / "sfumato.toml")
    assert curator.sql("SELECT name FROM p ORDER BY name").table["name"].to_pylist() == ["Altona", "Barmbek"]
    (folder / "public.csv").unlink()
    (folder / "public.csv").symlink_to("part-1.csv")
    with pytest.raises(sf.RecipeError, match="not public"):
        curator.sql("SELECT * FROM p")


def test_the_writeup_names_the_public_files_it_rests_on(folder):
    (folder / "places.csv").write_text("a\nb\n")
    text = TABLE.format(source="part-1.csv") + FILES["values"].format(file="places.csv")
    (folder / "sfumato.toml").write_text(text)
    recipe = sf.recipes.CellCounts(table="t", by=["place"])
    release = sf.open(folder / "sfumato.toml").release(recipe, epsilon=1, out=folder / "out")
    digest = hashlib.sha256(b"a\nb\n").hexdigest()
    told = release.files["writeup.md"].decode()
    assert f"Read as public: places.csv (sha256 {digest})." in told
    assert "a copy of the records in another form cannot be recognised" in told
    sf.verify(folder / "out", ledger=folder / "ledger.db")


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "."])
@pytest.mark.parametrize("what", ["values", "parameters"])
def test_what_is_no_file_is_not_read(folder, what, name):
    os.mkfifo(folder / "pipe")
    text = TABLE.format(source="part-1.csv") + FILES[what].format(file=name)
    (folder / "sfumato.toml").write_text(text)
    with pytest.raises(sf.SchemaError, match="cannot be read"):
        sf.open(folder / "sfumato.toml")
