"""Two real cities, St. Louis and Baltimore, through levels that add up and through a series of months."""

import re
from dataclasses import replace

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sfumato as sf

pytestmark = [pytest.mark.shared, pytest.mark.usefixtures("seeded_noise")]

PROJECT = """
[budget]
epsilon = 8.0
delta = 1e-6
[tables.t]
source = "t.parquet"
unit = "sim_resident"
max_records = 20
[tables.t.columns.neighborhood]
range = [0, {last}]
[tables.t.columns.month]
from = ["year", "month"]
values = {months}
"""
CITIES = {
    "stlouis": ("incidents", 88, 2015, 2019),
    "baltimore": ("crime_reports", 277, 2014, 2020),
}


@pytest.fixture(params=CITIES)
def city(request, shared, tmp_path):
    """The folder of a project, and the records of the city."""
    file, last, first, final = CITIES[request.param]
    months = [[year, month] for year in range(first, final + 1) for month in range(1, 13)]
    records = pq.read_table(shared / "data" / request.param / f"{file}.parquet")
    (tmp_path / "sfumato.toml").write_text(PROJECT.format(last=last, months=months))
    # The cities' own districts are not in the files: neighbourhoods by tens stand for them.
    lines = [f"{place},d{place // 10},{'west' if place < last / 2 else 'east'}" for place in range(last + 1)]
    (tmp_path / "places.csv").write_text("neighborhood,district,side\n" + "\n".join(lines))
    return tmp_path, records, months


def test_levels_add_up_to_each_other_and_are_near_the_truth(city):
    folder, records, _ = city
    pq.write_table(records, folder / "t.parquet")
    curator = sf.open(folder / "sfumato.toml")
    recipe = sf.recipes.Hierarchy(
        table="t",
        column="neighborhood",
        tree=str(folder / "places.csv"),
        by=("month",),
        levels=("total", "side", "side x month", "district x month", "neighborhood x month"),
    )
    release = curator.release(recipe, epsilon=4, delta=1e-6, out=folder / "out")
    assert not sf.verify(folder / "out", ledger=curator.ledger_path).unchecked
    rows = release.table
    sums = duckdb.sql("SELECT level, sum(count) AS n FROM rows GROUP BY level").fetchall()
    assert len(sums) == 5
    assert len({n for _, n in sums}) == 1
    odd = duckdb.sql(
        "SELECT count(*) FROM (SELECT side, year, month, "
        "sum(count) FILTER (WHERE level = 'side x month') AS one, "
        "sum(count) FILTER (WHERE level = 'district x month') AS two, "
        "sum(count) FILTER (WHERE level = 'neighborhood x month') AS three FROM rows WHERE month IS NOT NULL "
        "GROUP BY ALL) WHERE one <> two OR two <> three"
    ).fetchall()
    assert odd == [(0,)]
    stated = {each["level"]: each for each in release.certificate["postprocessing"]["levels"]}
    (total,) = pc.filter(rows["count"], pc.equal(rows["level"].cast("string"), "total")).to_pylist()
    assert abs(total - records.num_rows) < 4 * float(stated["total"]["alone_95"])
    covered = duckdb.sql(
        "SELECT avg((coalesce(n, 0) BETWEEN low_95 AND high_95)::INT) FROM rows LEFT JOIN "
        "(SELECT neighborhood, year, month, count(*) AS n FROM records GROUP BY ALL) "
        "USING (neighborhood, year, month) WHERE level = 'neighborhood x month'"
    ).fetchall()[0][0]
    assert covered > 0.93


def test_months_are_released_one_after_the_other(city):
    folder, records, months = city
    place = pc.add(pc.multiply(records["year"].cast("int64"), 12), records["month"].cast("int64"))
    spent, earlier = set(), None
    for number in (1, 2, 13, len(months)):
        year, month = months[number - 1]
        pq.write_table(records.filter(pc.less_equal(place, year * 12 + month)), folder / "t.parquet")
        curator = sf.open(folder / "sfumato.toml")
        recipe = sf.recipes.Running(
            table="t", period="month", by=("neighborhood",), through=f"{year}-{month}", windows=[12]
        )
        out = folder / f"out{number}"
        release = curator.release(recipe, epsilon=4, delta=1e-6, out=out)
        spent.add(curator.budget().spent)
        assert not sf.verify(out, ledger=curator.ledger_path, earlier=earlier).unchecked
        earlier = out
    assert len(spent) == 1
    told = release.certificate["postprocessing"]["series"]
    # Of both ways to measure the one whose last total errs less, as check says before the charge.
    recipes = (replace(recipe, noise=noise) for noise in ("laplace", "gaussian"))
    forecasts = [curator.check(each, epsilon=4, delta=1e-6).notes[-1] for each in recipes]
    errors = [float(re.search(r"off by up to ([0-9.]+)", each)[1]) for each in forecasts]
    assert float(told["last_total_95"]) == pytest.approx(min(errors), rel=1e-3)
    connection = duckdb.connect()
    connection.register("released", release.table)
    connection.register("records", records)
    last = connection.sql(
        "SELECT sum(total), avg((coalesce(n, 0) BETWEEN total_low_95 AND total_high_95)::INT) "
        "FROM released LEFT JOIN "
        "(SELECT neighborhood, count(*) AS n FROM records GROUP BY ALL) USING (neighborhood) "
        f"WHERE year = {months[-1][0]} AND month = 12"
    ).fetchall()[0]
    assert abs(last[0] - records.num_rows) < 0.05 * records.num_rows
    assert last[1] > 0.85
