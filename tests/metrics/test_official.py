"""k-marginal, taxi and match 3: invariants, what they refuse, and their references."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from helpers.cases import read_cases
from sfumato.core.errors import SfumatoError
from sfumato.metrics import k_marginal, match3, taxi
from sfumato.metrics.match3 import draw_conjunctions, draw_triples, measure_cities
from sfumato.metrics.scoring import score_records


def census(rows, seed):
    generator = np.random.default_rng(seed)
    return pa.table(
        {
            "PUMA": np.array(["17-1", "17-2", "39-1"])[generator.integers(0, 3, rows)],
            "YEAR": generator.integers(2012, 2014, rows),
            "SEX": generator.integers(1, 3, rows),
            "AGE": generator.integers(0, 100, rows),
            "INCTOT": generator.integers(-5000, 150_000, rows).astype(np.float64),
            "RACE": generator.integers(0, 4, rows),
        }
    )


def trips(rows, seed, taxis=40):
    generator = np.random.default_rng(seed)
    areas = np.array([-1, *range(1, 78)])
    return pa.table(
        {
            "taxi_id": 1_000_000 + generator.integers(0, taxis, rows),
            "shift": generator.integers(0, 21, rows),
            "company_id": generator.integers(0, 5, rows),
            "pickup_community_area": areas[generator.integers(0, 12, rows)],
            "dropoff_community_area": areas[generator.integers(0, 78, rows)],
            "payment_type": generator.integers(-1, 4, rows),
            **{
                name: generator.integers(-1, 120, rows)
                for name in ("fare", "tips", "trip_total", "trip_miles")
            },
            "trip_seconds": generator.integers(-1, 3000, rows),
        }
    )


def people(rows, seed):
    generator = np.random.default_rng(seed)
    return pa.table(
        {
            "SEX": generator.integers(1, 3, rows),
            "CITY": generator.integers(0, 5, rows),
            "INCWAGE": generator.integers(0, 5000, rows),
            "AGE": generator.integers(0, 10, rows),
            "URBAN": generator.integers(0, 3, rows),
            "EDUC": generator.integers(0, 6, rows),
        }
    )


def slow_k_marginal(truth, release, sets, cutoff):
    ours, theirs = truth.to_pylist(), release.to_pylist()

    def code(row, name):
        if name == "AGE":
            return sum(row[name] > edge for edge in range(20, 101, 5))
        if name == "INCTOT":
            return sum(row[name] > edge for edge in range(0, 100_001, 5000))
        return row[name]

    distances = []
    for place in {(row["PUMA"], row["YEAR"]) for row in [*ours, *theirs]}:
        sides = [[row for row in rows if (row["PUMA"], row["YEAR"]) == place] for rows in (ours, theirs)]
        of_sets = []
        for names in sets:
            keys = [[tuple(code(row, name) for name in names) for row in side] for side in sides]
            if not keys[0] or not keys[1]:
                of_sets.append(2.0)
                continue
            of_sets.append(
                sum(
                    abs(keys[0].count(cell) / len(keys[0]) - keys[1].count(cell) / len(keys[1]))
                    for cell in {*keys[0], *keys[1]}
                )
            )
        struck = abs(len(sides[0]) - len(sides[1])) >= cutoff
        distances.append(2.0 if struck else sum(of_sets) / len(of_sets))
    return 1000 * (2 - sum(distances) / len(distances)) / 2


@pytest.mark.parametrize("cutoff", [3, 250])
def test_k_marginal_is_what_the_specification_says(cutoff):
    truth, release = census(60, 1), census(45, 2)
    score = k_marginal(truth, release, sets=6, bias_cutoff=cutoff)
    expected = slow_k_marginal(truth, release, score.column_sets, cutoff)
    assert score.score == pytest.approx(expected, abs=1e-9)
    assert score.place_scores.mean() == pytest.approx(score.score)
    assert 0 < score.score < 1000


def test_sparse_and_dense_counting_agree(monkeypatch):
    truth, release = census(300, 3), census(280, 4)
    dense = k_marginal(truth, release, k=3)
    monkeypatch.setattr("sfumato.metrics.columns._DENSE", -1)
    monkeypatch.setattr("sfumato.metrics.columns._PER_ROW", 0)
    assert np.allclose(k_marginal(truth, release, k=3).raw, dense.raw, rtol=0, atol=1e-12)


def test_tables_come_from_anywhere(tmp_path):
    truth, release = census(50, 5), census(50, 6)
    expected = k_marginal(truth, release, sets=5).score
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pq.write_table(release, tmp_path / "release.parquet")
    pyarrow.csv.write_csv(release, tmp_path / "release.csv")
    with pa.CompressedOutputStream(str(tmp_path / "release.csv.gz"), "gzip") as sink:
        pyarrow.csv.write_csv(release, sink)
    coded = release.set_column(0, "PUMA", release["PUMA"].dictionary_encode())
    for each in (
        release.to_pydict(),
        pandas.DataFrame(release.to_pydict()),
        polars.DataFrame(release.to_pydict()),
        release.to_batches()[0],
        coded,
        str(tmp_path / "release.parquet"),
        tmp_path / "release.csv",
        tmp_path / "release.csv.gz",
    ):
        assert k_marginal(truth, each, sets=5).score == pytest.approx(expected, abs=1e-12)


def test_a_csv_column_has_one_kind_for_all_its_lines(tmp_path):
    (tmp_path / "a.csv").write_text("PUMA,YEAR,SEX,CODE\n" + "01,2019,1,5\n" * 3 + "1,2019,2,N\n")
    from sfumato.metrics.columns import read_side

    table = read_side(tmp_path / "a.csv", side="truth")
    assert table["PUMA"].to_pylist() == ["01", "01", "01", "1"]
    assert table["CODE"].to_pylist() == ["5", "5", "5", "N"]
    assert table["SEX"].to_pylist() == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns(["AGE"]), "no column 'AGE'"),
        (lambda t: t.drop_columns(["PUMA"]), "no column 'PUMA'"),
        (lambda t: t.slice(0, 0), "release has no records"),
        (lambda t: t.set_column(3, "AGE", pa.array([None, *t["AGE"].to_pylist()[1:]])), "missing"),
        (lambda t: t.set_column(4, "INCTOT", pa.array([float("nan")] * t.num_rows)), "missing"),
        (lambda t: t.set_column(2, "SEX", pa.array([None] * t.num_rows, pa.int64())), "missing"),
        (lambda t: t.set_column(3, "AGE", pa.array(["4711"] * t.num_rows)), "numbers"),
        (lambda t: t.set_column(2, "SEX", pa.array([[1]] * t.num_rows)), "nested"),
        (lambda _: "gone.parquet", "no file"),
        (lambda _: __file__, "must end in"),
        (lambda _: {"a": [1], "b": [1, 2]}, "not a table"),
    ],
)
def test_what_cannot_be_scored_is_refused_without_a_value(change, words):
    truth = census(30, 7)
    with pytest.raises(SfumatoError, match=words) as caught:
        k_marginal(truth, change(truth))
    assert "4711" not in str(caught.value)


def test_sets_that_cannot_be_drawn_are_refused():
    truth = census(30, 7)
    with pytest.raises(SfumatoError, match="cannot draw 9 of 4"):
        k_marginal(truth, truth, k=9)
    with pytest.raises(SfumatoError, match="at least one set"):
        k_marginal(truth, truth, column_sets=[])


def test_taxi_knows_perfect_and_lost_tables():
    truth = trips(900, 1)
    assert taxi(truth, truth).score == 1000
    assert taxi(truth, truth, official_alignment=True, bias_cutoff=250).score == 1000
    shuffled = truth.take(np.random.default_rng(2).permutation(900))
    assert taxi(truth, shuffled).score == pytest.approx(1000)
    other = trips(300, 3, taxis=4)
    score = taxi(truth, other)
    assert 0 < score.k_marginal < 0.5
    assert 0.5 < score.conjunction < 1
    assert taxi(truth, other, bias_cutoff=1).k_marginal < score.k_marginal
    with pytest.raises(SfumatoError, match="no column 'tips'"):
        taxi(truth, other.drop_columns(["tips"]))


def test_many_taxis_are_counted_in_parts(monkeypatch):
    truth, release = trips(3000, 4, taxis=700), trips(2500, 5, taxis=650)
    whole = taxi(truth, release).shares
    monkeypatch.setattr(sys.modules[taxi.__module__], "_CHUNK", 100)
    assert taxi(truth, release).shares.tolist() == whole.tolist()


def test_match3_draws_its_tests_from_the_seed():
    truth, release = people(400, 1), people(400, 2)
    first, again = match3(truth, release, seed=1), match3(truth, release, seed=1)
    assert first.to_record() == again.to_record()
    assert match3(truth, release, seed=2).triples.tolist() != first.triples.tolist()
    assert len(first.triples) == 100
    assert 200 < len(first.shares) <= 300
    assert (first.shares[:, 0] > 0).all()
    assert match3(truth, truth).score == pytest.approx(1e6)
    assert match3(truth, release.drop_columns(["CITY"])).income == 0
    assert match3(truth, release, income=None).income is None


def test_drawn_tests_have_the_shape_of_the_contest():
    truth = {name: people(500, 3)[name].to_numpy() for name in ("SEX", "AGE", "EDUC", "URBAN")}
    sizes = {"SEX": 3, "AGE": 1000, "EDUC": 6, "URBAN": 3}
    assert all(
        "URBAN" not in triple and len(set(triple)) == 3 for triple in draw_triples(tuple(truth), seed=0)
    )
    tests = draw_conjunctions(truth, sizes, seed=0, rows=2000)
    share = np.mean([len(test) for test in tests]) / len(truth)
    assert 0.06 < share < 0.14
    drawn = [condition for test in tests for condition in test]
    for condition in drawn:
        assert len(set(condition.allowed.tolist())) == condition.allowed.size
        assert 0 <= condition.allowed.min() <= condition.allowed.max() < sizes[condition.column]
    ages = [condition.allowed.size for condition in drawn if condition.column == "AGE"]
    assert 30 < np.mean(ages) < 50  # about the root of 500 pi


def test_foreign_values_of_a_release_sit_in_one_cell():
    truth = {"a": [0, 1], "b": [0, 1], "c": [0, 1], "d": [0, 0]}
    release = {"a": [0.0, 99.0], "b": ["0", "x"], "c": [0, None], "d": [0, 0]}
    score = match3(
        truth, release, marginal_tests=[("a", "b", "c")], conjunction_tests=[[("a", [0])]], income=None
    )
    assert score.triples.tolist() == [0.5]
    assert score.shares.tolist() == [[0.5, 0.5]]


def test_cities_by_hand():
    sex = np.array([1, 2, 1, 2, 1, 1])
    city = np.array([9, 9, 3, 3, 3, 7])
    wage = np.array([100, 100, 10, 30, 999_998, 999_999])
    cities = measure_cities(sex, city, wage)
    assert list(cities) == [9, 3, 7]
    assert cities[9].gini == pytest.approx(1 - 2 * 300 / (2 * 200))
    assert cities[3].pay_gap == -20
    assert (cities[7].gini, cities[7].pay_gap) == (1, 0)


@pytest.mark.parametrize(
    ("truth", "release", "options", "words"), read_cases(__file__, "test_match3_refuses")
)
def test_match3_refuses(truth, release, options, words):
    with pytest.raises(SfumatoError, match=words):
        match3(truth, release, **options)


@pytest.mark.parametrize(
    ("metric", "truth", "release", "highest"),
    [
        ("k-marginal", census(3000, 1), census(3000, 2), 1000),
        ("taxi", trips(3000, 1), trips(3000, 2), 1000),
        ("match3", people(3000, 1), people(3000, 2), 1e6),
    ],
)
def test_references_stand_in_their_order(metric, truth, release, highest):
    options = {"bias_cutoff": None} if metric == "k-marginal" else {}
    scores = score_records(metric, truth, release, options=options)
    zeros, uniform, half, ours = (scores[name]["score"] for name in scores)
    assert list(scores) == ["all-zero release", "uniform release", "half of the individuals", "this release"]
    assert 0 <= zeros < uniform
    assert half > ours > 0
    assert highest > half
    assert scores == score_records(metric, truth, release, options=options)
