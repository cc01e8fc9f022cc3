"""Rows of many columns: a model of all pairs, paid for before a record is read, at the stated price."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.sources import seed_noise
from sfumato.accounting import gaussian_delta
from sfumato.core.facts.table import parse_table
from sfumato.sql import rows
from sfumato.sql.relation import Source
from sfumato.sql.rows import plan_rows
from sfumato.sql.statement import read_statement

SIZES = {"a": 8, "b": 6, "c": 10, "d": 12}
RECORDS = 6000


def make_codes():
    """Columns of which a and d go together, and b and d; neighbours hardly do."""
    random = np.random.default_rng(3)
    a, b, c = (random.integers(0, SIZES[name], RECORDS) for name in "abc")
    d = (a + 2 * (b > 2) + random.integers(0, 2, RECORDS)) % 12
    return {"a": a, "b": b, "c": c, "d": d}


def write_project(folder, *, epsilon=1000, delta=1e-6, unit='unit = "row"', codes=None, sizes=SIZES):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(make_codes() if codes is None else codes), folder / "t.parquet")
    columns = "".join(f"[tables.t.columns.{name}]\nrange = [0, {size - 1}]\n" for name, size in sizes.items())
    (folder / "sfumato.toml").write_text(
        f'[budget]\nepsilon = {epsilon}\ndelta = {delta}\n[tables.t]\nsource = "t.parquet"\n{unit}\n{columns}'
    )
    return sf.open(folder / "sfumato.toml")


def count_pairs(table, one, other):
    cells = np.asarray(table[one]) * SIZES[other] + np.asarray(table[other])
    return np.bincount(cells, minlength=SIZES[one] * SIZES[other])


def plan(text, *, epsilon, sizes=SIZES, unit="row", max_records=1):
    """The plan of a statement about a table of columns of such sizes."""
    columns = {name: {"range": [0, size - 1]} for name, size in sizes.items()}
    spec = {"source": "t.parquet", "unit": unit, "max_records": max_records, "columns": columns}
    stored = dict.fromkeys(sizes, "integer") | ({} if unit == "row" else {unit: "integer"})
    catalog = {"t": Source(name="t", stored=stored, table=parse_table("t", spec))}
    return plan_rows(read_statement(text), catalog, epsilon=Fraction(epsilon))


def test_rows_keep_every_pair_and_obey_the_condition(tmp_path):
    curator, codes = write_project(tmp_path), make_codes()
    answer = curator.sql("DP-SELECT 900 * FROM t WHERE c < 7")
    kept = {name: code[codes["c"] < 7] for name, code in codes.items()}
    assert answer.synthetic
    assert answer.spent == 900
    assert answer.table.num_rows == pytest.approx(kept["a"].size, abs=2)
    rows = {name: np.array(answer.table[name].to_pylist()) for name in SIZES}
    assert rows["c"].max() < 7
    for one, other in combinations(SIZES, 2):
        distance = np.abs(count_pairs(rows, one, other) - count_pairs(kept, one, other)).sum()
        assert distance < 0.03 * kept["a"].size, (one, other)
    again = curator.sql("DP-SELECT 900 * FROM t WHERE c < 7")
    assert again.repeated
    assert again.table.equals(answer.table)


def test_a_model_is_closer_to_the_records_than_a_chain(tmp_path, monkeypatch):
    codes = make_codes()

    def measure(folder):
        table = write_project(folder).sql("DP-SELECT 4 a, b, c, d FROM t").table
        rows = {name: np.array(table[name].to_pylist()) for name in SIZES}
        apart = [
            np.abs(count_pairs(rows, *pair) / len(rows["a"]) - count_pairs(codes, *pair) / RECORDS).sum()
            for pair in combinations(SIZES, 2)
        ]
        return np.mean(apart)

    with seed_noise():
        modelled = measure(tmp_path / "model")
        monkeypatch.setattr(rows, "_MOST_PAIRS", 0)
        assert modelled < 0.6 * measure(tmp_path / "chain")


def test_all_pairs_together_cost_what_is_stated():
    pure = plan("DP-SELECT 2 * FROM t", epsilon=2)
    assert pure.modelled
    assert len(pure.parts) == 6
    costs = [cost for part in pure.parts for cost in part.costs]
    assert sum(cost.sensitivity / cost.scale for cost in costs) == 2
    assert all(cost.kind == "laplace" for cost in costs)
    gaussian = plan("DP-SELECT 1 DELTA 0.001 * FROM t", epsilon=1)
    costs = [cost for part in gaussian.parts for cost in part.costs]
    (scale,) = {cost.scale for cost in costs}
    assert {(cost.kind, cost.sensitivity) for cost in costs} == {("gaussian", 1)}
    assert len(costs) == 6
    assert gaussian_delta(epsilon=1, sigma=float(scale), sensitivity=1, count=6) <= 0.001
    assert gaussian_delta(epsilon=1, sigma=0.9 * float(scale), sensitivity=1, count=6) > 0.001


def test_an_individual_counts_with_all_its_records():
    found = plan("DP-SELECT 2 a, b, c, d FROM t", epsilon=2, unit="p", max_records=3)
    assert {cost.sensitivity for part in found.parts for cost in part.costs} == {3}
    assert {cost.scale for part in found.parts for cost in part.costs} == {Fraction(3 * 6, 2)}


def test_nothing_is_spent_where_not_all_pairs_fit(tmp_path):
    curator = write_project(tmp_path, epsilon=1, delta=0)
    with pytest.raises(sf.BudgetExceeded, match="nothing was spent"):
        curator.sql("DP-SELECT 1.1 * FROM t")
    assert curator.budget().entries == ()
    answer = curator.sql("DP-SELECT 1 * FROM t")
    assert answer.spent == 1
    # Nothing is left, and what was paid for is given again.
    again = curator.sql("DP-SELECT 1 * FROM t")
    assert again.repeated
    assert again.table.equals(answer.table)


def test_nothing_but_noise_gives_rows_all_the_same(tmp_path):
    curator = write_project(tmp_path, codes={name: code[:0] for name, code in make_codes().items()})
    table = curator.sql("DP-SELECT 0.01 * FROM t LIMIT 50").table
    assert table.num_rows <= 50
    assert table.column_names == list(SIZES)


def test_few_combinations_are_one_histogram_and_many_columns_a_chain():
    sizes = dict.fromkeys([f"x{place}" for place in range(13)], 3)
    names = ", ".join([*sizes][:12])
    for text, parts in (("x0, x1, x2", 1), ("*", 12), (names, 66)):
        assert len(plan(f"DP-SELECT 1 {text} FROM t", epsilon=1, sizes=sizes).parts) == parts


def test_a_share_that_is_too_small_for_all_pairs_is_refused_before_the_first(tmp_path):
    curator = write_project(tmp_path, epsilon=4)
    curator.set_share("alice", 1)
    before = curator.budget().left
    with pytest.raises(sf.BudgetExceeded, match="nothing was spent"):
        curator.sql("DP-SELECT 2.0 a, b, c, d FROM t", asked_by="alice")
    assert curator.budget().left == before
    assert curator.sql("DP-SELECT 0.9 a, b, c, d FROM t", asked_by="alice").spent == Fraction(9, 10)


def test_rows_tell_the_delta_that_they_were_charged(tmp_path):
    sizes = {f"c{place}": 4 for place in range(12)}
    codes = {name: np.arange(500) % 4 for name in sizes}
    curator = write_project(tmp_path, epsilon=4, codes=codes, sizes=sizes)
    statement = f"DP-SELECT 1.0 DELTA 1e-7 {', '.join(sizes)} FROM t"
    answer = curator.sql(statement)
    assert 0 < answer.delta <= Fraction(1, 10**7)
    assert curator.sql(statement).delta == 0, "what is given again costs nothing"
