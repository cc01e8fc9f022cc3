"""Bins that the records choose: columns with bounds become columns of rows, at no further price."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.core.facts.column import parse_column
from sfumato.core.facts.project import read_project
from sfumato.core.questions.measurement import ask_cost
from sfumato.metrics.released import code_released
from sfumato.recipes import Adaptive, Tree
from sfumato.recipes.files import parse_record
from sfumato.recipes.shared.compression import join_cells
from sfumato.recipes.shared.selection import fine_edges
from sfumato.report.fields import encode_column, read_fields

BOTH = pytest.mark.parametrize("recipe", [Adaptive, Tree], ids=["adaptive", "tree"])
COLUMNS = """
[tables.t.columns]
group = { values = ["low", "high"] }
income = { bounds = [0, 1000000] }
share = { bounds = [-0.5, 0.5] }
binned = { bins = [0, 10, 20], bounds = [0, 20] }
unknown = { bounds = "private" }
"""
RANDOM = np.random.default_rng(6)
GROUP = RANDOM.integers(0, 2, 6000)
INCOME = np.round(RANDOM.lognormal(9 + 2 * GROUP, 0.5))
SHARE = np.where(RANDOM.random(6000) < 0.2, np.nan, RANDOM.normal(0, 0.1, 6000).clip(-0.5, 0.5))
ROWS = pa.table(
    {
        "group": np.array(["low", "high"])[GROUP],
        "income": INCOME,
        "share": pa.array(SHARE, from_pandas=True),
        "binned": RANDOM.uniform(0, 20, 6000),
        "unknown": RANDOM.uniform(0, 20, 6000),
    }
)


@pytest.mark.slow
@BOTH
@pytest.mark.usefixtures("seeded_noise")
def test_a_column_with_bounds_takes_part_in_rows(lay_out, recipe):
    project = lay_out(ROWS, columns=COLUMNS)
    out = project.parent / "out"
    asked = recipe(table="t", bins={"income": 16, "share": 8})
    release = sf.open(project).release(asked, epsilon=3, delta=1e-6, out=out)
    assert release.table.column_names == ["group", "income", "share", "binned"]
    column = release.table["income"]
    assert pa.types.is_integer(column.type), "whole, as its bounds are"
    assert column.null_count < 100, "none is missing, which noise may hide"
    income, there = column.drop_null().to_numpy(), column.is_valid().to_numpy()
    assert income.min() >= 0
    assert income.max() <= 1_000_000
    for part in (0.1, 0.5, 0.9):
        assert np.quantile(income, part) == pytest.approx(np.quantile(INCOME, part), rel=0.15)
    high = release.table["group"].to_numpy(zero_copy_only=False)[there] == "high"
    assert np.median(income[high]) > 4 * np.median(income[~high]), "and depends on others as it does"
    share = release.table["share"]
    assert share.null_count == pytest.approx(1200, rel=0.2)
    assert np.abs(share.drop_null().to_numpy()).max() <= 0.5
    assert not sf.verify(out, ledger=project.parent / "ledger.db").unchecked
    (facts,) = release.certificate["postprocessing"]["models"]
    assert facts["compressed_to"]["income"] <= 16 + 1, "with the missing value"
    again = sf.open(project).release(
        recipe(table="t", bins={"income": 16, "share": 8}, seed=3, rows=10), epsilon=3, delta=1e-6
    )
    assert again.repeated, "other rows are free"


@BOTH
def test_it_is_charged_as_without(lay_out, recipe):
    project = lay_out(ROWS, columns=COLUMNS)
    curator = sf.open(project)
    plain = curator.release(recipe(table="t", columns=["group", "binned"]), epsilon=1, delta=1e-6)
    assert plain.table.column_names == ["group", "binned"]
    binned = curator.release(recipe(table="t", bins={"income": 4}), epsilon=1, delta=1e-6)
    assert binned.table.column_names == ["group", "income", "share", "binned"], "no column is left out"
    assert plain.certificate["plan"]["allowance"] == binned.certificate["plan"]["allowance"]
    charged = Fraction(binned.certificate["plan"]["allowance"][0]["scale"]) ** 2
    table = read_project(project).table("t")
    asked = sum(ask_cost(table, answer.ask).mu_squared for answer in binned.answers)
    assert Fraction(99, 100) * charged < asked <= charged
    assert "bins" not in recipe(table="t").to_record()
    record = binned.certificate["plan"]["recipe"]
    assert record["bins"] == {"income": 4, "share": 16}
    assert parse_record(record).to_record() == record
    assert "noisy quantiles" in binned.files["writeup.md"].decode()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": {"income": 1}}, "bins of income"),
        ({"bins": {"income": 1000}}, "bins of income"),
        ({"bins": {"income": "many"}}, "bins of income"),
        ({"bins": {}}, "name columns with bounds or dates"),
        ({"bins": 16}, "name columns with bounds or dates"),
        ({"bins": {"binned": 4}}, "has a domain"),
        ({"bins": {"group": 4}}, "needs bounds"),
        ({"bins": {"unknown": 4}}, "needs bounds"),
        ({"bins": {"zebra": 4}}, "zebra"),
        ({"bins": {"income": 4}, "columns": ["group"]}, "rows do not have"),
    ],
)
def test_what_cannot_be_binned_is_refused_before_a_charge(lay_out, options, message):
    project = lay_out(ROWS, columns=COLUMNS)
    with pytest.raises(sf.SfumatoError, match=message):
        sf.open(project).release(Adaptive(table="t", **options), epsilon=1, delta=1e-6)
    assert sf.open(project).budget().spent == 0


def test_nothing_but_noise_is_one_bin(lay_out):
    project = lay_out(ROWS.slice(0, 5), columns=COLUMNS)
    release = sf.open(project).release(
        Adaptive(table="t", bins={"income": 16}, rows=20), epsilon="0.01", delta=1e-6
    )
    (facts,) = release.certificate["postprocessing"]["models"]
    assert facts["compressed_to"]["income"] == 1 + 1, "with the missing value"
    assert release.table.num_rows == 20


@given(low=st.integers(-(10**9), 10**9), width=st.integers(1, 10**9), scale=st.sampled_from([1, 7, 1000]))
def test_a_grid_has_increasing_edges_between_its_bounds(low, width, scale):
    bounds = Fraction(low, scale), Fraction(low + width, scale)
    edges = fine_edges(*bounds)
    assert (edges[0], edges[-1]) == bounds
    assert all(one < other for one, other in pairwise(edges))
    assert len(edges) <= 400
    if scale == 1:
        assert all(edge.denominator == 1 for edge in edges)


def test_bins_have_about_equal_counts_and_none_is_drowned():
    counts = np.random.default_rng(1).poisson(200 * np.exp(-np.arange(100) / 20)).astype(float)
    codes = join_cells(np.append(counts, 7.0), 1.0, bins=8, cells=100)
    assert (np.diff(codes) >= 0).all()
    assert codes[-1] == codes[:-1].max() + 1, "a missing value stays by itself"
    sums = np.bincount(codes[:-1], weights=counts)
    assert sums.size == 8
    assert sums.max() < 2 * sums.min()
    noisy = join_cells(counts, 60.0, bins=8, cells=100)
    assert noisy.max() + 1 < 8
    assert join_cells(-counts, 1.0, bins=8, cells=100).max() == 0


DATED = """
[tables.t.columns]
group = { values = ["early", "late"] }
seen = { range = ["%s", "%s"] }
opened = { range = ["2024-01-01", "2024-03-31"], period = "day" }
"""


@pytest.mark.parametrize(
    ("first", "last", "periods"),
    [("2024-01-03", "2024-12-30", 363), ("2024-01-03", "2026-12-30", 157), ("2012-01-03", "2026-12-30", 180)],
    ids=["days", "weeks", "months"],
)
@BOTH
@pytest.mark.usefixtures("seeded_noise")
def test_a_range_of_dates_takes_part_and_comes_back_as_dates(lay_out, recipe, first, last, periods):
    begin, end = np.datetime64(first), np.datetime64(last)
    length = int((end - begin).astype(int)) + 1
    late = RANDOM.integers(0, 2, 6000)
    days = begin + ((late + RANDOM.random(6000)) / 2 * length).astype(np.int64)
    days[:300] = end + 40  # beyond the range: these people count in the other columns
    rows = pa.table(
        {
            "group": np.array(["early", "late"])[late],
            "seen": pa.array(days, mask=np.arange(6000) >= 5700),
            "opened": np.datetime64("2024-01-01") + RANDOM.integers(0, 91, 6000),
        }
    )
    project = lay_out(rows, columns=DATED % (first, last))
    out = project.parent / "out"
    release = sf.open(project).release(recipe(table="t"), epsilon=3, delta=1e-6, out=out)
    assert not sf.verify(out, ledger=project.parent / "ledger.db").unchecked
    assert release.table.schema.field("seen").type == release.table.schema.field("opened").type == pa.date32()
    assert release.table.num_rows == pytest.approx(6000, abs=300), "nobody is left out"
    seen = release.table["seen"]
    assert seen.null_count == pytest.approx(600, abs=250), "missing, or beyond the range"
    there = seen.is_valid().to_numpy()
    dates = seen.drop_null().to_numpy()
    assert dates.min() >= begin
    assert dates.max() <= end
    halves = (release.table["group"].to_numpy(zero_copy_only=False)[there] == "late") == (
        dates >= begin + length // 2
    )
    assert halves.mean() > 0.85, "and depends on others as it does"
    table = release.certificate["plan"]["table"]["t"]["columns"]["seen"]
    assert parse_column("seen", table).domain.size == periods
    fields = {each.name: each for each in read_fields(release.certificate["plan"]["table"]["t"]["columns"])}
    coded = encode_column(fields["seen"], release.table)
    assert (coded[~there] == fields["seen"].missing).all()
    labels = np.array(fields["seen"].labels)[coded[there]]
    assert (np.array(labels, "datetime64[D]") <= dates).all()
    assert (code_released(release.table, parse_column("seen", table)) == coded).all()


def test_dates_may_stay_texts(lay_out):
    rows = pa.table({"group": ["early"] * 9, "seen": ["2024-01-05"] * 9, "opened": ["2024-01-05"] * 9})
    project = lay_out(rows, columns=DATED % ("2024-01-01", "2024-12-31"))
    release = sf.open(project).release(Tree(table="t", types={}), epsilon=1, delta=1e-6)
    assert [str(each.value_type) for each in release.table.schema.types] == ["string"] * 3
    for wrong in ("date 2024-01-01", "date soon later", "day"):
        with pytest.raises(sf.SfumatoError, match="types must name"):
            Tree(table="t", types={"seen": wrong})
