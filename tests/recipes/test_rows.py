"""Rows from codes: labels, numbers within bins, identifiers."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.facts.table import parse_table, table_spec
from sfumato.inference.model import assign_identifiers
from sfumato.recipes.base import released_names
from sfumato.recipes.shared.public import public_identifiers, public_values, read_public
from sfumato.recipes.shared.rows import build_rows, model_domain

COLUMNS = {
    "place": {"values": ["n", "s"]},
    "when": {"from": ["year", "month"], "values": [[2020, 1], [2020, 2], [2021, 1]]},
    "age": {"range": [10, 14]},
    "hour": {"from": "at", "period": "hour"},
    "fare": {"bins": [-1, 0, 10, 20, 1000]},
    "share": {"bins": [0, 0.25, 1]},
    "odd": {"bins": [0, 5, 10], "outside": "other"},
}


def table(**changes):
    spec = {"source": "t.parquet", "unit": "person", "max_records": 3, "columns": COLUMNS}
    return parse_table("t", {**spec, **changes})


def draw(count=1000, **options):
    described = table()
    generator = np.random.default_rng(0)
    domain = model_domain(described, COLUMNS)
    codes = {name: generator.integers(0, size, count) for name, size in domain.items()}
    return codes, build_rows(described, tuple(COLUMNS), codes, seed=7, **options)


def test_codes_become_values_of_their_columns():
    codes, rows = draw()
    assert rows.column_names == released_names(table(), tuple(COLUMNS))
    assert rows.column_names == ["place", "year", "month", "age", "hour", "fare", "share", "odd"]
    assert rows["place"].to_pylist() == [["n", "s"][code] for code in codes["place"]]
    assert rows["month"].to_pylist() == [[1, 2, 1][code] for code in codes["when"]]
    assert rows["age"].to_pylist() == (codes["age"] + 10).tolist()
    assert rows["hour"].to_pylist() == codes["hour"].tolist()
    assert set(rows["odd"].to_pylist()) == {"[0, 5)", "[5, 10]", "other"}
    assert rows.column("fare").null_count == 0


def test_numbers_lie_in_their_bin_and_whole_bins_give_whole_numbers():
    codes, rows = draw(20_000)
    fare = rows["fare"].to_numpy()
    assert rows["fare"].type == pa.int64()
    assert (np.minimum(np.searchsorted([-1, 0, 10, 20], fare, side="right") - 1, 3) == codes["fare"]).all()
    assert set(fare[codes["fare"] == 1]) == set(range(10))
    assert set(fare[codes["fare"] == 3]) == set(range(20, 30)), "a wide last bin is drawn near its neighbour"
    share = rows["share"].to_numpy()
    assert ((share >= 0.25) == (codes["share"] == 1)).all()
    assert share.max() <= 1
    assert np.mean(share[codes["share"] == 0]) == pytest.approx(0.125, abs=0.01)


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    codes, rows = draw()
    assert rows.equals(build_rows(table(), tuple(COLUMNS), codes, seed=7))
    assert not rows.equals(build_rows(table(), tuple(COLUMNS), codes, seed=8))


def test_no_rows_are_rows_too():
    _, rows = draw(0)
    assert rows.num_rows == 0


def test_values_within_bins_follow_a_public_table(tmp_path):
    fares = [3.7] * 30 + [12.0, 12.5, 999.0, -50.0, 5000.0]
    public = pa.table({"fare": fares, "share": [0.1] * len(fares), "other": ["x"] * len(fares)})
    pa.csv.write_csv(public, tmp_path / "public.csv")
    record = read_public(str(tmp_path / "public.csv"), table(), tuple(COLUMNS), groups=None)
    assert record["file"] == "public.csv"
    assert len(record["sha256"]) == 64
    assert record["values"]["fare"][1:] == [[3] * 30, [12, 12], [999]]
    codes, rows = draw(public=public_values(record))
    fare = rows["fare"].to_numpy()
    assert set(fare[codes["fare"] == 1]) == {3}
    assert set(fare[codes["fare"] == 3]) == {999}
    assert set(fare[codes["fare"] == 0]) == {-1}, "a bin without a public value is drawn as always"
    assert set(rows["share"].to_numpy()[codes["share"] == 0]) == {0.1}


def test_public_tables_that_do_not_fit_are_refused(tmp_path):
    pa.csv.write_csv(pa.table({"nothing": [1]}), tmp_path / "public.csv")
    with pytest.raises(RecipeError, match="no value for a binned column"):
        read_public(str(tmp_path / "public.csv"), table(), tuple(COLUMNS), groups=None)
    with pytest.raises(RecipeError, match="no column 'person'"):
        read_public(str(tmp_path / "public.csv"), table(), tuple(COLUMNS), groups=("place",))
    with pytest.raises(RecipeError, match="cannot be read"):
        read_public(str(tmp_path / "absent.csv"), table(), tuple(COLUMNS), groups=None)
    (tmp_path / "text.csv").write_text("fare\nmuch\n")
    with pytest.raises(RecipeError, match="does not hold numbers"):
        read_public(str(tmp_path / "text.csv"), table(), tuple(COLUMNS), groups=None)


def test_public_identifiers_keep_their_groups(tmp_path):
    public = pa.table({"person": ["a", "a", "b", None, "c"], "place": ["n", "s", "s", "n", "?"]})
    pa.parquet.write_table(public, tmp_path / "public.parquet")
    record = read_public(str(tmp_path / "public.parquet"), table(), tuple(COLUMNS), groups=("place",))
    groups, identifiers = public_identifiers(record)
    assert sorted(zip(groups.tolist(), identifiers.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1)]
    with pytest.raises(RecipeError, match="cannot be read"):
        public_identifiers({**record, "identifiers": "!!"})


@given(
    st.lists(st.integers(0, 4), max_size=60),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=10),
    st.integers(1, 5),
)
def test_no_identifier_has_more_rows_than_it_may(groups, public, most):
    groups = np.array(groups, np.int64)
    known = {group: {who for other, who in public if other == group} for group in range(5)}
    pairs = np.array(public, np.int64).reshape(-1, 2).T
    for given_public in (None, (pairs[0], pairs[1])):
        found = assign_identifiers(groups, most=most, seed=3, public=given_public)
        assert found.size == groups.size
        assert np.bincount(found, minlength=1).max(initial=0) <= most
    new = max((who for _, who in public), default=-1)
    for group, who in zip(groups.tolist(), found.tolist(), strict=True):
        assert who in known[group] or who > new
        if not known[group]:
            assert found.tolist().count(who) == 1


def test_public_rows_are_repeated_evenly():
    public = (np.zeros(4, np.int64), np.arange(4))
    found = assign_identifiers(np.zeros(40, np.int64), most=20, seed=0, public=public)
    assert np.bincount(found).tolist() == [10, 10, 10, 10]


def test_many_rows_are_quick():
    groups = np.random.default_rng(0).integers(0, 1600, 10**6)
    public = (groups[:100_000], np.arange(100_000) // 20)
    found = assign_identifiers(groups, most=20, seed=0, public=public)
    assert np.bincount(found).max() <= 20


def binned(edges, density, **more):
    columns = {"x": {"bins": edges, "density": density, **more}}
    return parse_table("t", {"source": "t.csv", "unit": "row", "columns": columns})


def spread(edges, counts, density="smooth", **more):
    codes = np.repeat(np.arange(len(counts)), counts)
    numbers = build_rows(binned(edges, density, **more), ("x",), {"x": codes}, seed=5)["x"].to_numpy()
    return codes, numbers


def test_a_smooth_density_keeps_counts_and_follows_its_neighbours():
    edges, counts = [0, 0.5, 1, 1.5, 2.25], [40_000, 30_000, 20_000, 15_000]
    codes, numbers = spread(edges, counts)
    assert (np.minimum(np.searchsorted(edges, numbers, side="right") - 1, 3) == codes).all()
    # Densities are 80, 60, 40 and 20 thousand. That of the second bin falls by 20 within it, a sixth to each
    # side of its middle; a line with the tilt a has its mean at 1/2 + a/6 of the bin.
    second = numbers[codes == 1]
    assert np.mean((second - 0.5) / 0.5) == pytest.approx(1 / 2 - 1 / 36, abs=0.01)
    _, even = spread(edges, counts, "even")
    assert np.mean((even[codes == 1] - 0.5) / 0.5) == pytest.approx(1 / 2, abs=0.01)


def test_no_bump_appears_that_the_counts_do_not_have():
    for counts in ([10_000, 30_000, 10_000], [30_000, 10_000, 30_000], [20_000, 20_000, 20_000]):
        codes, numbers = spread([0, 0.5, 1, 1.5], counts)
        assert np.mean((numbers[codes == 1] - 0.5) / 0.5) == pytest.approx(1 / 2, abs=0.015)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6))
def test_a_smooth_density_stays_in_its_bins_whatever_the_counts(counts):
    edges = [0, 1, 4, 6, 20, 21, 50][: len(counts) + 1]
    codes, numbers = spread(edges, counts)
    assert (np.minimum(np.searchsorted(edges, numbers, side="right") - 1, len(counts) - 1) == codes).all()


def test_a_smooth_density_is_nearer_to_one_that_falls():
    truth = np.floor(np.random.default_rng(1).exponential(10, 50_000))  # whole, as numbers of whole bins are
    edges = [0, 5, 10, 20, 40]  # of the last one only a part is used
    truth = truth[truth <= 40]
    counts = np.bincount(np.minimum(np.searchsorted(edges, truth, side="right") - 1, 3))
    levels = (np.arange(500) + 0.5) / 500
    away = {
        density: np.abs(
            np.quantile(spread(edges, counts, density)[1], levels) - np.quantile(truth, levels)
        ).mean()
        for density in ("even", "smooth")
    }
    assert away["smooth"] < 0.85 * away["even"]


def test_an_outer_bin_that_is_used_in_part_stays_even():
    codes, numbers = spread([0, 0.5, 1, 9], [40_000, 30_000, 20_000])
    assert np.mean((numbers[codes == 2] - 1) / 0.5) == pytest.approx(1 / 2, abs=0.015)


def test_a_density_is_about_bins_alone():
    with pytest.raises(SchemaError, match="within bins"):
        parse_table(
            "t", {"source": "t", "unit": "row", "columns": {"x": {"range": [0, 3], "density": "smooth"}}}
        )
    with pytest.raises(SchemaError, match="'even' or 'smooth'"):
        binned([0, 1], "round")
    table = binned([0, 1, 2], "smooth")
    assert parse_table("t", table_spec(table, ("x",))).columns == table.columns
