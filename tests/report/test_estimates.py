"""Figures about accuracy follow from the certificate and the noisy values, by hand."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.report.facts import count_records, estimate_counts, expect_noise, read_facts
from sfumato.report.fields import choose_axes


@pytest.fixture
def counts(folders, tmp_path):
    return read_facts(folders.write_counts(tmp_path / "out", places=12, months=4))


def test_noise_of_a_measurement(counts):
    (measured,) = counts.measured
    rate = math.exp(-1 / 20)
    assert measured.deviation == pytest.approx(math.sqrt(2 * rate) / (1 - rate))
    assert measured.half == 60, "the least that 95 % of the noise does not exceed"
    assert measured.near_zero == np.mean(np.abs(measured.values) <= measured.half)
    assert measured.is_plain


def test_sums_are_taken_of_unclipped_values(counts):
    place = counts.field("place")
    noisy = counts.measured[0].values.reshape(12, 4)
    estimate = estimate_counts(counts, (place,))
    assert estimate.values.tolist() == noisy.sum(axis=1).tolist()
    assert estimate.half == pytest.approx(1.959964 * counts.measured[0].deviation * 2)
    assert counts.count((place,)).sum() > estimate.values.sum() == count_records(counts)


def test_axes_come_in_the_order_that_was_asked_for(counts):
    place, month = counts.fields
    one, other = estimate_counts(counts, (place, month)), estimate_counts(counts, (month, place))
    assert np.array_equal(one.values, other.values.T)
    assert one.half == counts.measured[0].half


def test_expected_noise_by_hand(counts):
    told = {each.columns: each for each in expect_noise(counts)}
    measured, total = counts.measured[0], counts.measured[0].values.sum()
    cells = told["place", "month"]
    assert cells.share == pytest.approx(48 * measured.deviation * math.sqrt(0.5) / 2 / total)
    months = told[("month",)]
    deviation = measured.deviation * math.sqrt(12)
    assert months.share == pytest.approx(4 * deviation * math.sqrt(2 / math.pi) / 2 / total)
    assert [each.share for each in expect_noise(counts)] == sorted(
        (e.share for e in told.values()), reverse=True
    )


def test_several_measurements_of_rows_are_weighted_by_precision(folders, tmp_path):
    record = {"kind": "gaussian", "scale": "30"}
    first = folders.measure("a", ("a",), 2, **record)
    again = folders.measure("again", ("a",), 2, **{**record, "scale": "40"})
    folder = folders.write_release(
        tmp_path / "out",
        table=pa.table({"a": ["x", "y", "y"]}),
        columns={"a": folders.column(values=["x", "y"])},
        measured=[(first, [1, 2]), (again, [1, 2])],
    )
    (expected,) = expect_noise(read_facts(folder))
    assert expected.half == pytest.approx(1.959964 * 24)


def test_units_of_every_kind_of_answer(folders, tmp_path):
    gaussian = {"kind": "gaussian", "scale": "2097152"}
    records = [
        folders.measure("plain", ("a",), 2, **gaussian),
        folders.measure("sums", ("a",), 2, **gaussian, queries={"rows": 2, "cells": 2, "grid": 1024}),
        folders.measure("normed", ("a",), 2, **gaussian, contribution_norm="2"),
        folders.measure("heads", ("a",), 2, **gaussian, individuals={"rows": 2}),
        folders.measure("large", ("a",), 2, scale="20", threshold=100),
        {"name": "choice 1", "candidates": 3, "kind": "exponential", "scale": "0.1", "epsilon": "0.1"},
    ]
    folder = folders.write_release(
        tmp_path / "out",
        table=pa.table({"a": ["x", "y"]}),
        columns={"a": folders.column(values=["x", "y"])},
        measured=[(record, [2**21, 0]) for record in records],
        unit={
            "column": "person",
            "max_records": 2,
            "grid": 2**20,
            "bounding": "weight",
            "neighbours": "replace",
        },
    )
    plain, sums, normed, heads, large, choice = read_facts(folder).measured
    assert (plain.deviation, plain.values[0], plain.is_plain) == (2.0, 2.0, True)
    assert (sums.deviation, sums.about, sums.is_plain) == (2 / 1024, "sums", False)
    assert (normed.deviation, normed.about) == (2.0, "cells")
    assert (heads.deviation, heads.about) == (2**21, "individuals")
    assert large.about == "large cells"
    assert choice.about == "choice"
    assert math.isnan(choice.deviation)


def test_places_and_times_are_found(folders, tmp_path, counts):
    axes = choose_axes(counts.shown)
    assert (axes.place.name, axes.time.name) == ("place", "month")
    swapped = choose_axes(counts.shown, place="month", time="place")
    assert (swapped.place.name, swapped.time.name) == ("month", "place")
    columns = {
        "hours-per-week": folders.column(range=[1, 99]),
        "pay": folders.column(bins=["0", "1", "2"]),
        "shift": folders.column(range=[0, 20]),
        "kind": folders.column(range=[0, 50]),
        "homeState": folders.column(range=[0, 9]),
    }
    table = pa.table({name: [1] for name in columns})
    axes = choose_axes(
        read_facts(folders.write_release(tmp_path / "other", table=table, columns=columns)).shown
    )
    assert (axes.place.name, axes.time.name) == ("homeState", "shift")


def lay_out_wards(folder, rows, budget, *, wards):
    """A project of people with a month and a ward each."""
    arrays = [pa.array(each) for each in zip(*rows, strict=True)]
    pq.write_table(pa.table(arrays, ["p", "month", "ward"]), folder / "t.parquet")
    (folder / "sfumato.toml").write_text(f"""
[budget]
{budget}
[tables.t]
source = "t.parquet"
unit = "p"
max_records = 1
[tables.t.columns.month]
range = [1, 4]
[tables.t.columns.ward]
values = {wards}
""")
    return sf.open(folder / "sfumato.toml")


@pytest.mark.parametrize("through", [2, 4])
def test_a_series_is_drawn_by_the_counts_that_follow_from_it(tmp_path, through):
    rows = [(f"p{n}", n % 4 + 1, "ab"[n % 3 == 0]) for n in range(400)]
    curator = lay_out_wards(tmp_path, rows, "epsilon = 1e7\ndelta = 1e-6", wards=["a", "b"])
    recipe = sf.recipes.Running(table="t", period="month", by=("ward",), through=through)
    release = curator.release(recipe, epsilon=10**5, delta=1e-6, out=tmp_path / "out")
    facts = read_facts(tmp_path / "out")
    month, ward = facts.field("month"), facts.field("ward")
    by_month = estimate_counts(facts, (month,))
    assert by_month.values == pytest.approx([100.0] * through, abs=1)
    by_ward, cells = estimate_counts(facts, (ward,)), estimate_counts(facts, (ward, month))
    truth = [sum(row[2] == each and row[1] <= through for row in rows) for each in "ab"]
    assert by_ward.values == pytest.approx(truth, abs=1)
    assert cells.values.shape == (2, through)  # no word about periods to come
    told = release.certificate["postprocessing"]["series"]
    assert by_ward.half == pytest.approx(float(told["total_95"]), rel=1e-5)
    assert cells.half == pytest.approx(float(told["count_95"]), rel=1e-5)
    assert count_records(facts) == pytest.approx(100 * through, abs=2)
    run_main("report", "out", "--truth", "t.parquet", cwd=tmp_path)


def test_a_map_is_added_up_by_what_is_expected(folders, tmp_path):
    facts = read_facts(folders.write_counts(tmp_path / "out", places=12, months=4))
    columns = facts.table.column_names
    assert facts.weight == "count"
    expected = pa.array(facts.table["count"].to_numpy() + 0.5)
    told = replace(facts, table=facts.table.append_column("expected", expected), measured=())
    assert told.weight == "expected"
    assert told.size == facts.size + facts.table.num_rows / 2
    assert count_records(told) == told.size
    alone = replace(facts, table=told.table.drop_columns(["count"]))
    assert alone.weight is None
    assert "expected" not in columns


def test_levels_that_add_up_are_told_as_they_were_released(tmp_path):
    rows = [(f"p{n}", n % 4 + 1, "abc"[n % 3]) for n in range(300)]
    curator = lay_out_wards(tmp_path, rows, "epsilon = 1", wards=["a", "b", "c"])
    tree = [["ward", "side"], ["a", "n"], ["b", "n"], ["c", "s"]]
    recipe = sf.recipes.Hierarchy(table="t", column="ward", tree=tree, by=("month",))
    release = curator.release(recipe, epsilon=1, out=tmp_path / "out")
    facts = read_facts(tmp_path / "out")
    total = release.table["count"][0].as_py()
    assert count_records(facts) == facts.size == total
    ward, month = facts.field("ward"), facts.field("month")
    by_month = estimate_counts(facts, (month,))
    assert by_month.values.sum() == total
    assert by_month.source == "table"
    measured = max(facts.measured, key=lambda each: each.answers)
    assert by_month.half == pytest.approx(1.959964 * measured.deviation * math.sqrt(3))
    cells = estimate_counts(facts, (ward, month))
    rows = [row for row in release.table.to_pylist() if row["level"] == "ward x month"]
    halves = [max(row["high_95"] - row["count"], row["count"] - row["low_95"]) for row in rows]
    assert cells.halves.reshape(-1).tolist() == halves
