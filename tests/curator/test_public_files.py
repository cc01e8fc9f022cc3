"""No recipe reads the private records as a public table, whatever they are called."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf

PROJECT = """
[budget]
epsilon = 10
delta = 1e-6
[tables.t]
source = "{source}"
unit = "person"
max_records = 2
[tables.t.columns.place]
range = [0, 3]
[tables.t.columns.fare]
bins = [0, 10, 20]
"""
RECIPES = {
    "user-counts": lambda path: sf.recipes.UserCounts(table="t", by=["place"], public=path),
    "a list": lambda path: sf.recipes.UserCounts(table="t", by=["place"], asked=path),
    "field-groups": lambda path: sf.recipes.FieldGroups(table="t", public=path),
    "tree": lambda path: sf.recipes.Tree(table="t", public=path),
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
