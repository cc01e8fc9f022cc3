"""The general metrics against plain computations and known tables."""

import itertools
import json
import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.errors import SfumatoError
from sfumato.metrics import INTERNAL, compare_tables, encode_pair
from sfumato.metrics.classifiers import area_under_curve, fit_logistic, predict
from sfumato.metrics.columns import pack_codes
from sfumato.metrics.compare import SHARES, Ladder, cramers_v, sample_truth
from sfumato.metrics.encode import Side, draw_records


def invent(rows, seed, *, strength=0.8):
    """A table whose columns hang together."""
    generator = np.random.default_rng(seed)
    age = generator.integers(0, 6, rows)
    kept = generator.random(rows) < strength
    return pa.table(
        {
            "age": age,
            "job": np.where(kept, age // 2, generator.integers(0, 3, rows)),
            "area": np.array(["n", "s", "w"])[generator.integers(0, 3, rows)],
            "rich": np.where(generator.random(rows) < strength, age >= 3, generator.random(rows) < 0.5),
        }
    )


def shuffle(table, seed=0):
    generator = np.random.default_rng(seed)
    return pa.table({n: table[n].take(generator.permutation(table.num_rows)) for n in table.column_names})


def slow_tvd(truth, release, names):
    counts = [Counter(zip(*(side[name] for name in names), strict=True)) for side in (truth, release)]
    totals = [sum(count.values()) for count in counts]
    cells = {*counts[0], *counts[1]}
    return sum(abs(counts[0][cell] / totals[0] - counts[1][cell] / totals[1]) for cell in cells) / 2


@settings(max_examples=25)
@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=30),
    st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=30),
)
def test_every_distance_is_that_of_the_definition(ours, theirs):
    truth, release = (dict(zip("abc", zip(*rows, strict=True), strict=True)) for rows in (ours, theirs))
    comparison = compare_tables(truth, release)
    found = {each.columns: each.tvd for each in comparison.marginals.marginals}
    for order in (1, 2, 3):
        for names in itertools.combinations("abc", order):
            assert found.pop(names) == pytest.approx(slow_tvd(truth, release, names), abs=1e-12)
    assert not found


def test_the_record_has_these_keys_and_is_plain():
    truth = invent(800, 1)
    record = compare_tables(truth, invent(500, 2)).to_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert list(record) == [
        "internal",
        "rows",
        "columns",
        "marginals",
        "associations",
        "propensity",
        "downstream",
        "groups",
        "ladder",
        "references",
        "seconds",
    ]
    assert record["internal"] == INTERNAL
    assert record["rows"] == {"truth": 800, "release": 500}
    assert list(record["marginals"]) == ["1", "2", "3", "list"]
    assert [record["marginals"][order]["count"] for order in "123"] == [4, 6, 4]
    assert set(record["associations"]) == {"columns", "truth", "release", "worst"}
    assert set(record["propensity"]) == {"pmse", "expected", "ratio", "auc"}
    assert set(record["downstream"][0]) == {"target", "trained_on_release", "trained_on_truth", "majority"}
    assert set(record["groups"][0]) == {"column", "value", "truth", "release", "tvd"}
    assert set(record["ladder"]) == {"release", "rungs", "share"}
    assert [rung["share"] for rung in record["ladder"]["rungs"]] == list(SHARES)
    assert [each["name"] for each in record["references"]] == [
        "all-zero release",
        "uniform release",
        "half of the individuals",
        "this release",
    ]
    listed = [each["tvd"] for each in record["marginals"]["list"]]
    assert listed == sorted(listed, reverse=True)
    tvds = [each["tvd"] for each in record["groups"]]
    assert tvds == sorted(tvds, reverse=True)


def test_the_truth_itself_is_perfect():
    truth = invent(2000, 3)
    record = compare_tables(truth, truth).to_record()
    assert record["marginals"]["3"]["worst"] == 0
    assert record["ladder"]["share"] == 1
    assert {group["tvd"] for group in record["groups"]} == {0}
    assert record["propensity"]["pmse"] == pytest.approx(0, abs=1e-9)
    assert record["propensity"]["auc"] <= 0.5
    assert record["associations"]["truth"] == record["associations"]["release"]


def test_a_good_release_beats_a_shuffled_one_everywhere():
    truth = invent(6000, 4)
    good = compare_tables(truth, invent(6000, 5), target="rich").to_record()
    bad = compare_tables(truth, shuffle(truth), target="rich").to_record()
    assert good["marginals"]["2"]["mean"] < bad["marginals"]["2"]["mean"]
    assert good["ladder"]["share"] > 0.15
    assert bad["ladder"]["share"] is None  # farther than a sample of 1 %
    assert good["downstream"][0]["trained_on_release"] == pytest.approx(
        good["downstream"][0]["trained_on_truth"], abs=0.02
    )
    assert bad["downstream"][0]["trained_on_release"] < bad["downstream"][0]["trained_on_truth"] - 0.2
    assert bad["associations"]["worst"][0]["columns"][0] == "age"
    assert bad["associations"]["worst"][0]["truth"] > 0.6 > 0.1 > bad["associations"]["worst"][0]["release"]
    assert bad["references"][3]["tvd1"] == pytest.approx(0, abs=1e-12)
    zeros, uniform, half, ours = good["references"]
    assert zeros["tvd2"] == 1
    assert half["tvd2"] < uniform["tvd2"] < 1
    assert ours["tvd2"] == good["marginals"]["2"]["mean"] == pytest.approx(good["ladder"]["release"])


def test_a_histogram_counts_as_its_records_do():
    truth, rows = invent(700, 6), invent(400, 7)
    grouped = (
        rows.group_by(rows.column_names)
        .aggregate([([], "count_all")])
        .rename_columns([*rows.column_names, "count"])
    )
    for plain, weighted in (
        (compare_tables(truth, rows), compare_tables(truth, grouped, weight="count")),
        (compare_tables(rows, truth), compare_tables(grouped, truth, weight="count")),
    ):
        ours, theirs = plain.to_record(), weighted.to_record()
        for part in ("rows", "columns", "associations"):
            assert (
                json.loads(json.dumps(ours[part])) == pytest.approx(theirs[part]) if part == "rows" else True
            )
        assert ours["rows"] == theirs["rows"]
        tvds = [{tuple(m["columns"]): m["tvd"] for m in each["marginals"]["list"]} for each in (ours, theirs)]
        assert tvds[0] == pytest.approx(tvds[1])
        groups = [{(g["column"], g["value"]): g["tvd"] for g in each["groups"]} for each in (ours, theirs)]
        assert groups[0] == pytest.approx(groups[1])
        assert theirs["propensity"]["auc"] == pytest.approx(ours["propensity"]["auc"], abs=0.08)
        assert theirs["ladder"]["rungs"][0]["tvd"] > 3 * theirs["ladder"]["rungs"][-1]["tvd"]


def test_an_empty_release_is_as_far_as_can_be():
    truth = invent(300, 8)
    record = compare_tables(truth, truth.slice(0, 0)).to_record()
    assert record["marginals"]["1"]["mean"] == 1
    assert record["propensity"] is None
    assert record["downstream"] == []
    assert record["ladder"]["share"] is None
    zeros = truth.append_column("count", pa.array([0] * 300))
    assert compare_tables(truth, zeros, weight="count").to_record()["marginals"]["3"]["mean"] == 1


def test_very_many_triples_are_sampled_and_the_record_says_so():
    generator = np.random.default_rng(11)
    wide = {f"c{index}": generator.integers(0, 3, 200) for index in range(20)}
    record = compare_tables(wide, wide, most_triples=50).to_record()["marginals"]
    assert record["3"]["count"] == 50
    assert record["3"]["of"] == 1140
    assert record["2"]["count"] == record["2"]["of"] == 190
    assert len(record["list"]) == 200


def test_wide_domains_are_counted_by_their_keys():
    generator = np.random.default_rng(12)
    truth = {name: [f"v{value}" for value in generator.integers(0, 10**7, 3000)] for name in "abc"}
    release = {name: list(reversed(values)) for name, values in truth.items()}
    comparison = compare_tables(truth, release, columns=["a", "b", "c"])
    found = {each.columns: each.tvd for each in comparison.marginals.marginals}
    assert found["a",] == pytest.approx(0, abs=1e-12)
    assert found["a", "b", "c"] == pytest.approx(0, abs=1e-12)
    assert compare_tables(truth, {name: values[:1500] for name, values in truth.items()}).marginals.marginals[
        0
    ].tvd == pytest.approx(0.5, abs=0.01)


def test_individuals_are_sampled_whole():
    rows = 4000
    truth = invent(rows, 13).append_column("person", pa.array(np.arange(rows) // 40))
    pair = encode_pair(truth, truth, unit="person")
    assert "person" not in pair.columns
    samples = sample_truth(pair, seed=0)
    half = samples.of_share(0.5)
    assert half.rows == rows / 2
    loose = compare_tables(truth.drop_columns(["person"]), truth).ladder
    whole = compare_tables(truth, truth, unit="person").ladder
    assert [share for share, _ in whole.rungs] == [share for share, _ in loose.rungs]
    # A hundred people with forty records each: a sample of 1 % is one person.
    assert samples.of_share(0.01).rows == 40


def test_shares_between_rungs_are_interpolated():
    ladder = Ladder(0.05, ((0.1, 0.2), (0.5, 0.1)))
    assert ladder.share == pytest.approx(0.75)
    assert Ladder(0.3, ladder.rungs).share is None
    assert Ladder(0.2, ladder.rungs).share == 0.1
    assert Ladder(0.0, ladder.rungs).share == 1


def test_cramers_v_of_known_tables():
    rows, columns = (each.ravel() for each in np.indices((3, 3)))
    assert cramers_v(rows, columns, np.eye(3).ravel() * 7) == pytest.approx(1)
    assert cramers_v(rows, columns, np.outer([1, 2, 3], [4, 5, 6]).ravel().astype(float)) == pytest.approx(
        0, abs=1e-7
    )
    assert cramers_v(rows, columns, np.zeros(9)) == 0
    table = np.array([[10, 20, 5], [30, 5, 10]], float)
    rows, columns = (each.ravel() for each in np.indices(table.shape))
    independent = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    chi_squared = ((table - independent) ** 2 / independent).sum()
    assert cramers_v(rows, columns, table.ravel()) == pytest.approx(np.sqrt(chi_squared / table.sum()))


def test_the_regression_finds_the_maximum():
    generator = np.random.default_rng(14)
    features = [generator.integers(0, 3, 500), generator.integers(0, 4, 500)]
    outcome = generator.random(500) < 0.2 + 0.2 * features[0]
    fit = fit_logistic(features, [3, 4], outcome)
    chances = predict(features, [3, 4], fit)
    # At the maximum the residuals of every feature add up to the penalty.
    for offset, feature, size in ((1, features[0], 3), (4, features[1], 4)):
        residuals = np.bincount(feature, outcome - chances, minlength=size)
        assert residuals == pytest.approx(0.01 * fit[offset : offset + size], abs=1e-3)
    assert (outcome - chances).sum() == pytest.approx(0, abs=1e-3)


def test_what_separates_the_sides_perfectly_does_not_break_the_regression():
    truth = {"a": ["x"] * 300, "b": [1, 2, 3] * 100}
    release = {"a": ["y"] * 300, "b": [1, 2, 3] * 100}
    found = compare_tables(truth, release).propensity
    assert found.auc == 1
    assert found.pmse == pytest.approx(0.25, abs=0.01)
    assert found.ratio > 50


def test_propensity_of_equal_laws_is_what_chance_gives():
    ratios = [
        compare_tables(invent(3000, seed), invent(3000, seed + 100)).propensity.ratio for seed in range(8)
    ]
    # Two samples of one law: twice what a release drawn from the truth itself would show.
    assert 1 < np.mean(ratios) < 3.5


def test_area_under_curve_by_pairs():
    generator = np.random.default_rng(15)
    scores, outcome = generator.integers(0, 9, 200) / 9, generator.random(200) < 0.3
    pairs = [(a > b) + (a == b) / 2 for a in scores[outcome] for b in scores[~outcome]]
    assert area_under_curve(scores, outcome) == pytest.approx(np.mean(pairs))
    assert area_under_curve(scores, np.ones(200, bool)) == 0.5


def test_records_are_drawn_from_weights():
    side = Side({"a": np.array([0, 1, 2])}, 3, np.array([5.0, 0.0, 3.0]))
    drawn = draw_records(side, 100, np.random.default_rng(0))
    assert np.bincount(drawn.codes["a"]).tolist() == [5, 0, 3]
    side = Side({"a": np.array([0, 1])}, 2, np.array([2.5, 7.5]))
    drawn = draw_records(side, 4, np.random.default_rng(0))
    assert np.bincount(drawn.codes["a"]).tolist() == [1, 3]
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(side)
    assert repr(side) == "Side(1 columns, values withheld)"


@pytest.mark.parametrize(
    ("truth", "release", "options", "words"),
    [
        ({"a": [1]}, {"b": [1]}, {}, "no column in common"),
        ({"a": [1]}, {"a": [1]}, {"columns": ["q"]}, "truth: no column 'q'"),
        ({"a": []}, {"a": [1]}, {}, "truth has no records"),
        ({"a": [1]}, {"a": [1]}, {"weight": "count"}, "neither table"),
        ({"a": [1]}, {"a": [1], "n": [-3.5]}, {"weight": "n"}, "negative counts"),
        ({"a": [1]}, {"a": [1, 1], "n": [None, 1]}, {"weight": "n"}, "missing"),
        ({"a": [1]}, {"a": [1]}, {"unit": "who"}, "no column 'who'"),
        ({"a": [1, 2] * 9, "b": [1] * 18}, {"a": [1], "b": [1]}, {"target": "q"}, "no column 'q'"),
    ],
)
def test_what_cannot_be_compared_is_refused(truth, release, options, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        compare_tables(truth, release, **options)
    assert "3.5" not in str(caught.value)


def test_columns_without_any_difference_leave_nothing_to_tell():
    constant = {"a": ["x"] * 20}
    record = compare_tables(constant, constant).to_record()
    assert record["propensity"]["ratio"] == 1
    assert record["associations"]["worst"] == []
    assert record["marginals"]["2"] == {"mean": None, "worst": None, "count": 0, "of": 0}
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_more_combinations_than_can_be_numbered_are_refused():
    with pytest.raises(SfumatoError, match="too many combinations"):
        pack_codes([np.zeros(1, np.int64)] * 3, [2**21] * 3)
