"""What releases of the same ledger know is not paid for again: their marginals, and estimates of models."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.audit.noise_off import RecordingNoise
from sfumato.core.errors import UnsupportedQuery
from sfumato.core.facts.project import read_project
from sfumato.curator import Curator, released
from sfumato.curator.reuse import StoredQuestions
from sfumato.recipes import Adaptive, CappedCounts, CellCounts, UserCounts
from sfumato.sql.plan import NoisyAggregates

COLUMNS = {
    "clinic": {"values": ["N", "S", "H"]},
    "kept": {"from": "clinic", "values": ["N", "S"], "outside": "other"},
    "full": {"from": "clinic", "values": ["N", "S"], "missing_label": "none", "outside": "other"},
    "month": {"range": [1, 12]},
    "held": {"from": "month", "range": [2, 10], "outside": "clamp", "missing_label": "?"},
    "fee": {"bins": [0, 10, 50, 100]},
}
MUCH = 10**6
STATEMENTS = [
    "COUNT(*) AS n FROM t",
    "kept AS k, COUNT(*) AS n FROM t GROUP BY kept",
    "COUNT(*) AS n FROM t WHERE clinic = 'N'",
    "COUNT(*) AS n FROM t WHERE clinic <> 'N'",
    "COUNT(*) AS n FROM t WHERE clinic IS NULL",
    "COUNT(*) AS n FROM t WHERE kept <> 'N'",
    "month AS k, COUNT(*) AS n FROM t WHERE kept = 'S' GROUP BY month",
    "COUNT(*) AS n FROM t WHERE month BETWEEN 1 AND 6",
    "COUNT(*) AS n FROM t WHERE month <= 6",
    "COUNT_IF(full = 'N') AS n, COUNT(*) AS m FROM t",
    "full AS k, COUNT(*) AS n FROM t WHERE month BETWEEN 1 AND 12 GROUP BY full",
    "CASE WHEN clinic = 'N' THEN 'n' ELSE 'rest' END AS k, COUNT(*) AS n FROM t GROUP BY 1",
    "COUNT(*) AS n FROM t WHERE fee >= 10 AND fee < 50",
    "COUNT(*) AS n FROM t WHERE fee > 20",
    "COUNT(*) AS n FROM t WHERE fee > 100",
    "held AS k, COUNT(*) AS n FROM t GROUP BY held",
]
MARGINALS = [
    ("clinic",),
    ("full",),
    ("kept",),
    ("kept", "month"),
    ("full", "month"),
    ("month",),
    ("fee",),
    ("full", "held"),
    ("held",),
]


def make_rows(count=1500, people=500):
    random = np.random.default_rng(3)
    months = [None, *range(-1, 15)]
    fees = [None, -0.1, 0.0, 9.99, 10.0, 20.0, 49.9, 50.0, 100.0, 100.1, float("nan"), float("inf")]
    return pa.table(
        {
            "p": random.integers(0, people, count),
            "clinic": pa.array(["N", "S", "H", "X", "", None][i] for i in random.integers(0, 6, count)),
            "month": pa.array([months[i] for i in random.integers(0, 17, count)], pa.int32()),
            "fee": pa.array([fees[i] for i in random.integers(0, 12, count)]),
        }
    )


def open_curator(folder, *, noise=None, **facts):
    facts = {"unit": "row", "epsilon": 10**9, "delta": 1e-6, **facts}
    rows = None if (folder / "t.parquet").exists() else make_rows()  # a new file would be a new version
    return Curator(read_project(write_project(folder, COLUMNS, rows=rows, **facts)), noise=noise)


def values_of(answer):
    rows = sorted(answer.table.to_pylist(), key=lambda row: str(row.get("k")))
    return [[row[name] for name in ("n", "m") if name in row] for row in rows]


def charges(curator):
    return sum(entry.kind == "charge" for entry in curator.budget().entries)


def compare(folder, recipes, texts, *, atol=0, **facts):
    """What is wrong with what releases give away: statements whose values differ from asking at much epsilon.

    Also how many were answered, and what was noted of them.
    """
    folder.mkdir(exist_ok=True)
    curator = open_curator(folder, **facts)
    for recipe in recipes:
        curator.release(recipe, epsilon=MUCH, delta=1e-6 if isinstance(recipe, Adaptive) else 0)
    wrong, notes = [], {}
    for text in texts:
        before = charges(curator)
        try:
            given = curator.sql(f"DP-SELECT FREE {text}")
        except UnsupportedQuery:
            continue
        assert charges(curator) == before
        notes[text] = given.notes
        asked = open_curator(folder, ledger=f"{len(notes)}.db", **facts).sql(f"DP-SELECT {MUCH} {text}")
        same = np.allclose(values_of(given), values_of(asked), rtol=0, atol=atol)
        if not same or given.table.column_names != asked.table.column_names:
            wrong.append((text, values_of(given), values_of(asked)))
    return wrong, notes


HISTOGRAMS = [CellCounts(table="t", by=by) for by in MARGINALS]
# They would need records that are in no cell, or divide one.
OPEN = [
    "COUNT(*) AS n FROM t WHERE clinic <> 'N'",
    "COUNT(*) AS n FROM t WHERE clinic IS NULL",
    "COUNT(*) AS n FROM t WHERE month <= 6",
    "COUNT(*) AS n FROM t WHERE kept <> 'N'",
    "COUNT(*) AS n FROM t WHERE fee > 20",
    "COUNT(*) AS n FROM t WHERE fee > 100",
    "CASE WHEN clinic = 'N' THEN 'n' ELSE 'rest' END AS k, COUNT(*) AS n FROM t GROUP BY 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_marginals_of_rows_are_what_would_be_measured(tmp_path, bounding):
    wrong, notes = compare(tmp_path, HISTOGRAMS, STATEMENTS, bounding=bounding)
    assert not wrong
    assert set(STATEMENTS) - set(notes) == set(OPEN)
    assert all(len(each) == 1 for each in notes.values())


def test_what_is_bounded_otherwise_is_said_or_asked_for(tmp_path):
    """Of people with many records, a release may keep others: a note says so, and totals are the same."""
    facts = {"unit": "p", "max_records": 2}
    wrong, notes = compare(tmp_path, [CellCounts(table="t", by=("full",))], STATEMENTS, **facts)
    assert [text for text, _, _ in wrong if len(notes[text]) <= 2] == []
    assert len(notes["COUNT(*) AS n FROM t"]) == 2
    assert (
        "over all groups of entry 2 together" in notes["COUNT_IF(full = 'N') AS n, COUNT(*) AS m FROM t"][1]
    )


def test_other_bounds_are_given_on_request_alone(tmp_path):
    curator = open_curator(tmp_path, unit="p", max_records=2, bounding="weight")
    curator.release(CellCounts(table="t", by=("full",)), epsilon=MUCH)
    curator.release(UserCounts(table="t", by=("full",), max_cells=1), epsilon=MUCH)
    curator.release(CappedCounts(table="t", by=("kept",)), epsilon=MUCH)
    text = "full AS k, COUNT(*) AS n FROM t GROUP BY full"
    price = curator.sql(f"EXPLAIN DP-SELECT 1 {text}")
    assert "but entry 2 (cell-counts) weighs the records of who has more than 2" in str(price)
    assert curator.sql(f"DP-SELECT 1 {text}").spent == 1
    people = curator.sql("DP-SELECT FREE full AS k, COUNT(DISTINCT p) AS n FROM t GROUP BY full")
    assert people.entries == (4,)
    assert "counts an individual in at most 1 groups" in people.notes[1]
    # Everybody is in one of the groups, and nobody in two.
    assert sum(people.table["n"].to_pylist()) == len(set(make_rows()["p"].to_pylist()))
    capped = curator.sql("DP-SELECT FREE kept AS k, COUNT(*) AS n FROM t GROUP BY kept")
    assert capped.entries == (6,)
    assert "(capped-counts) holds everybody to 2 records" in capped.notes[1]
    with pytest.raises(UnsupportedQuery, match="nothing that was paid for"):
        curator.sql("DP-SELECT FREE COUNT(DISTINCT p) AS n FROM t")


def test_records_left_out_for_other_columns_are_told(tmp_path):
    """A recipe counts records that have a code in all of its columns, in those not asked about too."""
    curator = open_curator(tmp_path)
    curator.release(Adaptive(table="t", columns=("full", "month"), workload=1), epsilon=MUCH, delta=1e-6)
    text = "full AS k, COUNT(*) AS n FROM t GROUP BY full"
    given = curator.sql(f"DP-SELECT FREE {text}")
    assert "leaves out records outside of the domain of month" in given.notes[1]
    inside = curator.sql(f"DP-SELECT {MUCH} {text.replace('GROUP', 'WHERE month BETWEEN 1 AND 12 GROUP')}")
    assert np.allclose(values_of(given), values_of(inside), atol=20)
    whole = curator.sql(f"DP-SELECT {MUCH} {text}")
    assert whole.spent > 0
    assert not np.allclose(values_of(given), values_of(whole), atol=20)


def test_columns_that_a_recipe_gave_bins_are_asked_of_the_records_alone(tmp_path):
    rows = {"region": ["a", "b"] * 200, "fee": [1.0, 60.0] * 200}
    facts = {"unit": "row", "columns": {"region": ["a", "b"], "fee": {"bounds": [0, 100]}}}
    curator = sf.from_frame(rows, **facts, epsilon=9, delta=1e-6, ledger=tmp_path / "ledger.db")
    release = curator.release(sf.recipes.Tree(table="t"), epsilon=5, delta=1e-7)
    assert "fee" in release.table.column_names
    assert curator.sql("DP-SELECT FREE region, COUNT(*) AS n FROM t GROUP BY region").spent == 0
    assert "estimate " not in str(curator.sql("EXPLAIN DP-SELECT 1 AVG(fee) FROM t"))
    with pytest.raises(UnsupportedQuery, match="nothing that was paid for"):
        curator.sql("DP-SELECT FREE AVG(fee) AS fee FROM t")


def test_a_model_is_asked_where_nothing_was_measured(tmp_path):
    curator = open_curator(tmp_path)
    curator.release(Adaptive(table="t", columns=("full", "month"), workload=1), epsilon=5, delta=1e-6)
    text = "COUNT(*) AS n FROM t WHERE full = 'N' AND month BETWEEN 1 AND 6"
    price = str(curator.sql(f"EXPLAIN DP-SELECT 1 {text}"))
    assert "estimate     entry 2 (adaptive) has a model whose error is not known" in price
    before = charges(curator)
    answer = curator.sql(f"DP-SELECT FREE {text}")
    assert charges(curator) == before
    assert (answer.spent, answer.entries) == (0, (2,))
    assert "an estimate of the model of entry 2 (adaptive) at epsilon 5" in answer.notes[0]
    truth = sum(
        clinic == "N" and month is not None and 1 <= month <= 6
        for clinic, month in zip(
            *(make_rows()[name].to_pylist() for name in ("clinic", "month")), strict=True
        )
    )
    assert answer.table["n"][0].as_py() == pytest.approx(truth, rel=0.5)
    # It is never taken in place of what is paid for.
    assert curator.sql(f"DP-SELECT 0.001 {text}").spent > 0


@pytest.mark.parametrize(
    "condition",
    [
        "full <> 'N'",  # 'other' and 'none' are labels of a model, and no values of records
        "NOT full = 'N'",
        "full = 'none'",
        "full = 'other'",
        "fee > 20",  # no column of the model
    ],
)
def test_a_model_is_not_asked_what_means_something_else_there(tmp_path, condition):
    curator = open_curator(tmp_path)
    curator.release(Adaptive(table="t", columns=("full", "month"), workload=1), epsilon=5, delta=1e-6)
    text = f"month, COUNT(*) AS n FROM t WHERE {condition} GROUP BY month"
    assert "estimate" not in str(curator.sql(f"EXPLAIN DP-SELECT 1 {text}"))
    with pytest.raises(UnsupportedQuery, match="nothing that was paid for"):
        curator.sql(f"DP-SELECT FREE {text}")


def test_what_measures_the_same_is_combined(tmp_path):
    curator = open_curator(tmp_path)
    curator.release(CellCounts(table="t", by=("full",)), epsilon=[0.01, 0.02])
    answer = curator.sql("DP-SELECT 0.025 full AS k, COUNT(*) AS n FROM t GROUP BY full")
    assert (float(answer.spent), answer.entries) == (0.025, (2, 4))
    assert "combined with entry 2" in answer.notes[0]


def test_another_version_or_project_is_another_question(tmp_path):
    curator = open_curator(tmp_path)
    recipe = CellCounts(table="t", by=("full",))
    curator.release(recipe, epsilon=1)
    text = "DP-SELECT FREE full AS k, COUNT(*) AS n FROM t GROUP BY full"
    assert curator.sql(text).entries == (2,)
    changed = {**COLUMNS, "full": {**COLUMNS["full"], "values": ["N", "H"]}}
    facts = {"unit": "row", "epsilon": 10**9, "delta": 1e-6}
    with pytest.raises(UnsupportedQuery, match="nothing that was paid for"):
        sf.open(write_project(tmp_path, changed, **facts)).sql(text)
    rows = make_rows().slice(1)
    with pytest.raises(UnsupportedQuery, match="nothing that was paid for"):
        sf.open(write_project(tmp_path, COLUMNS, rows=rows, **facts)).sql(text)


def test_neighbours_are_charged_alike_whatever_releases_know(tmp_path):
    told = []
    without = make_rows().filter(pc.not_equal(make_rows()["p"], 7))
    for name, rows in (("with", make_rows()), ("without", without)):
        folder = tmp_path / name
        folder.mkdir()
        facts = {"unit": "p", "max_records": 2, "epsilon": 100, "delta": 1e-6}
        project = read_project(write_project(folder, COLUMNS, rows=rows, **facts))
        curator = Curator(project, noise=RecordingNoise())
        curator.release(CellCounts(table="t", by=("full",)), epsilon=1)
        answers = [curator.sql(f"DP-SELECT 0.5 {text}") for text in STATEMENTS[:6]]
        told.append([(answer.spent, answer.entries, answer.notes) for answer in answers])
    assert told[0] == told[1]


def cover(folder, runs=25):
    """How often the intervals of a free answer hold what is counted without noise."""
    text, held = "full AS k, COUNT(*) AS n FROM t GROUP BY full", 0
    truth = values_of(open_curator(folder, ledger="truth.db").sql(f"DP-SELECT {MUCH} {text}"))
    for run in range(runs):
        curator = open_curator(folder, ledger=f"run{run}.db")
        curator.release(CellCounts(table="t", by=("full",)), epsilon=0.1)
        rows = curator.sql(f"DP-SELECT FREE {text}").table.to_pylist()
        rows = sorted(rows, key=lambda row: str(row["k"]))
        held += sum(row["n_low"] <= n <= row["n_high"] for row, (n,) in zip(rows, truth, strict=True))
    return held / (runs * len(truth))


@pytest.mark.slow
@pytest.mark.usefixtures("seeded_noise")
def test_intervals_hold_and_noise_that_is_said_too_small_is_noticed(tmp_path, monkeypatch):
    assert cover(tmp_path) >= 0.9
    plant(monkeypatch, narrow)
    assert cover(tmp_path) < 0.85


def plant(monkeypatch, change):
    """What is read of a measured marginal is changed."""
    read = released.Released._read

    def read_wrongly(self, request):
        found = read(self, request)
        return None if found is None else change(self, request, found)

    monkeypatch.setattr(released.Released, "_read", read_wrongly)


def narrow(_, __, found):
    (noise,) = found.plan.noises
    return replace(found, plan=replace(found.plan, noises=(replace(noise, scale=noise.scale / 2),)))


def turn(_, __, found):
    return replace(found, load=lambda: NoisyAggregates(values=(found.load().values[0][::-1],)))


def keep_choice(self, request, found):
    _, question = self._plan_marginal(request.columns, heads=False)
    return replace(found, question=question)


@pytest.mark.slow
def test_faults_of_what_is_taken_from_releases_are_noticed(tmp_path, monkeypatch):
    """Rules broken on purpose: the comparison with what would be measured finds each of them."""
    histogram = CellCounts(table="t", by=("full",))
    several = Adaptive(table="t", columns=("full", "month"), workload=1)
    people = {"unit": "p", "max_records": 2}
    texts = ["full AS k, COUNT(*) AS n FROM t GROUP BY full", "COUNT(*) AS n FROM t"]
    faults = {
        "records that were left out are taken for counted": (
            lambda patch: patch.setattr(released.Released, "_is_total", lambda *_: True),
            several,
            {"atol": 20},
        ),
        "whoever is kept is taken for the same": (lambda patch: plant(patch, keep_choice), histogram, people),
        "units of the noise are taken for records": (
            lambda patch: plant(patch, lambda _, __, found: replace(found, grid=1)),
            histogram,
            {"bounding": "weight"},
        ),
        "cells are taken in another order": (lambda patch: plant(patch, turn), histogram, {}),
    }
    for place, (name, (fault, recipe, facts)) in enumerate(faults.items()):
        for planted in (False, True):
            with monkeypatch.context() as patch:
                if planted:
                    fault(patch)
                found, notes = compare(tmp_path / f"{place}{planted}", [recipe], texts, **facts)
            # What is said to be something else may be.
            told = {text: [each for each in notes[text] if "not counted" not in each] for text, _, _ in found}
            silent = [text for text, others in told.items() if len(others) == 1]
            assert bool(silent) == planted, name


def test_an_answer_of_another_version_would_be_noticed(tmp_path, monkeypatch):
    """With the version left out of what is looked for, the test of versions above fails."""
    find = StoredQuestions.find_released

    def find_any(self, ledger, table, *, version, **facts):
        del version
        newest = ledger.report().list_last(1)[0].table_version
        return find(self, ledger, table, version=newest, **facts)

    monkeypatch.setattr(StoredQuestions, "find_released", find_any)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_another_version_or_project_is_another_question(tmp_path)


def test_another_bound_taken_for_that_of_statements_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(released.Released, "_describe_bound", lambda *_: "")
    with pytest.raises(AssertionError):
        test_other_bounds_are_given_on_request_alone(tmp_path)
