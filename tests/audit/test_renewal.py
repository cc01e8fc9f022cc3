"""Budgets that renew: over a schedule of windows, the records of one period never pay more than the budget.

Exact answers are compared with and without one pair of person and period; each release whose answer moves
counts with its whole epsilon. Planted faults are noticed: a filter left out, overlaps that are not seen.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.cost.parallel import SpentByPeriod
from sfumato.core.engine import sealed
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.questions.counts import CappedMarginal, IndividualCounts, Marginal, OccupiedCells
from sfumato.recipes import CellCounts

PROJECT = """
[budget]
epsilon = 1
[tables.t]
source = "t.parquet"
unit = ["p", "month"]
window = [{first}, {last}]
max_records = 2
bounding = "{bounding}"
[tables.t.columns.month]
range = [{start}, {end}]
[tables.t.columns.ward]
values = ["a", "b"]
"""
SCHEDULE = [(1, 3), (2, 4), (3, 3), (4, 5), (5, 6), (2, 2), (6, 6), (1, 6)]
CROWD = [(f"c{place}", place % 7, "ab"[place % 2]) for place in range(70)]
EVE = [("eve", month, "ab"[place % 2]) for month in range(1, 7) for place in range(3)]


def write_rows(path, rows):
    kinds = (pa.string(), pa.int64(), pa.string())
    arrays = [pa.array(each, kind) for each, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(arrays, ["p", "month", "ward"]), path)


def lay_out(folder, first, last, *, start=1, end=6, bounding="truncate"):
    facts = {"first": first, "last": last, "start": start, "end": end, "bounding": bounding}
    (folder / "sfumato.toml").write_text(PROJECT.format(**facts))
    return sf.open(folder / "sfumato.toml")


def count(folder, table, source, *questions):
    found = StatementEngine(folder).count(
        replace(table, source=source), questions or (Marginal(("ward",)),), progress=lambda _: None
    )
    return [each.true_values.tolist() for each in found]


def play(folder):
    """What one person's records of each month paid in truth over the schedule, and how much was refused."""
    write_rows(folder / "t.parquet", CROWD)
    for month in range(1, 7):
        write_rows(folder / f"{month}.parquet", CROWD + [row for row in EVE if row[1] == month])
    paid = dict.fromkeys(range(1, 7), Fraction(0))
    refused = 0
    for first, last in SCHEDULE:
        # The list of periods grows as time goes on: labels stay what they are.
        curator = lay_out(folder, first, last, start=1 - first % 2, end=6 + last)
        try:
            curator.release(CellCounts(table="t", by=("ward",)), epsilon="0.5")
        except sf.BudgetExceeded:
            refused += 1
            continue
        table = curator.project.table("t")
        base = count(folder, table, "t.parquet")
        for month in paid:
            paid[month] += Fraction(1, 2) * (count(folder, table, f"{month}.parquet") != base)
    return paid, refused


def test_no_month_of_a_person_pays_more_than_the_budget_over_any_schedule(tmp_path):
    paid, refused = play(tmp_path)
    assert max(paid.values()) == 1
    assert refused > 0
    for month, amount in paid.items():
        curator = lay_out(tmp_path, month, month)
        assert curator.budget().spent == amount


def test_a_ledger_that_takes_overlapping_windows_for_disjoint_is_noticed(tmp_path, monkeypatch):
    find = SpentByPeriod.find

    def find_equal(self, periods):
        exact = [spent for names, spent in self.groups if names == periods]
        return tuple(exact) or (self.others,) if periods is not None else find(self, periods)[-1:]

    monkeypatch.setattr(SpentByPeriod, "find", find_equal)
    paid, _ = play(tmp_path)
    assert max(paid.values()) > 1


def test_an_engine_that_reads_beyond_its_window_is_noticed(tmp_path, monkeypatch):
    query = sealed._encoding_query
    kept = '"p" IS NOT NULL'
    monkeypatch.setattr(
        sealed, "_encoding_query", lambda *given: query(*given).partition(f" {kept} AND")[0] + " " + kept
    )
    paid, _ = play(tmp_path)
    assert max(paid.values()) > 1


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_no_exact_answer_depends_on_records_outside_the_window(tmp_path, bounding):
    """Whatever is asked, with or without the period among its columns."""
    questions = [Marginal(("ward",)), Marginal(("month", "ward")), OccupiedCells(("ward",))]
    if bounding == "truncate":
        questions += [
            CappedMarginal(columns=("ward",), max_records=1),
            IndividualCounts(columns=("ward",), max_cells=2, cells=np.arange(2), times=np.array([1, 1])),
        ]
    table = lay_out(tmp_path, 3, 4, bounding=bounding).project.table("t")
    outside = [row for row in EVE if not 3 <= row[1] <= 4]
    answers = []
    for rows in (
        CROWD,
        [*CROWD, *outside, ("eve", None, "a"), ("eve", 99, "b"), ("c3", 2, "a")],
        [row for row in CROWD if 3 <= row[1] <= 4],
    ):
        write_rows(tmp_path / "t.parquet", rows)
        answers.append(count(tmp_path, table, "t.parquet", *questions))
    assert answers[0] == answers[1] == answers[2]
    assert min(answers[0][0]) > 0
