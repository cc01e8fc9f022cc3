"""Every case of the official vectors, to the tolerance their files state."""

import numpy as np
import pytest

from helpers.vectors import cases, entries, holding
from sfumato.metrics import k_marginal, match3, pie_chart, taxi
from sfumato.metrics.columns import total_variation
from sfumato.metrics.k_marginal import bin_census, draw_column_sets
from sfumato.metrics.taxi import Trips, bin_trips, draw_rounds, measure_conjunction

PIE, CENSUS = "deid2_sprint1_pie_chart", "deid2_sprint2_k_marginal"
TAXI, MATCH = "deid2_sprint3_k_marginal_graph_edge_hoc", "nist_2018_match3"
ROUNDED = 1e-9  # some lists in the files are rounded to twelve digits


def near(document):
    return {"rel": 0, "abs": document["tolerance"]}


@pytest.mark.parametrize(("document", "case"), cases(PIE, "cases"))
def test_pie_chart(document, case):
    score = pie_chart(np.array(case["actual"]), np.array(case["predicted"]))
    expected = case["expected"]
    assert score.total == pytest.approx(expected["overall"], **near(document))
    assert score.rows.tolist() == pytest.approx(expected["row_scores"], **near(document))
    for part in ("jsd", "misleading", "bias"):
        given = [row[part] for row in expected["components"]]
        assert getattr(score.components, part).tolist() == pytest.approx(given, **near(document))


@pytest.mark.parametrize(("document", "case"), cases(CENSUS, "cases"))
def test_k_marginal(document, case):
    score = k_marginal(
        case["actual"],
        case["submitted"],
        k=case["k"],
        sets=case["n_permutations"],
        bias_cutoff=case["bias_penalty_cutoff"],
        seed=case["random_seed"],
    )
    expected = case["expected"]
    assert [list(each) for each in score.column_sets] == case["column_sets"]
    assert score.score == pytest.approx(expected["overall"], **near(document))
    places = {place: index for index, place in enumerate(score.places)}
    assert set(places) == {tuple(place) for place in expected["place_time"]}
    order = [places[tuple(place)] for place in expected["place_time"]]
    assert score.distances[order].tolist() == pytest.approx(
        expected["place_time_mean_distance"], **near(document)
    )
    assert score.biased[order].tolist() == expected["bias_penalty"]
    raw = np.array(expected["raw_distance_by_place_time_and_set"])
    assert np.abs(score.raw[order] - raw).max() < ROUNDED


@pytest.mark.parametrize(("document", "name", "entry"), entries(CENSUS, "binning"))
def test_census_intervals(document, name, entry):
    assert bin_census(name, np.array(entry["values"], np.float64)).tolist() == entry["codes"]


@pytest.mark.parametrize(("document", "case"), cases(CENSUS, "group_distance"))
def test_group_distance(document, case):
    release, truth = np.array(case["counts_submitted_then_actual"], np.float64).T
    assert 2 * total_variation(truth, release) == pytest.approx(case["distance"], **near(document))


@pytest.mark.parametrize("document", holding(CENSUS, "official_column_sets"))
def test_the_official_column_sets_are_drawn(document):
    settings = document["official_settings"]
    for case in document["cases"][:1]:
        names = [name for name in case["actual"] if name not in ("PUMA", "YEAR")]
        drawn = draw_column_sets(
            names, k=settings["k"], sets=settings["n_permutations"], seed=settings["random_seed"]
        )
        assert [list(each) for each in drawn] == document["official_column_sets"]


@pytest.mark.parametrize(("document", "case"), cases(TAXI, "cases"))
def test_taxi(document, case):
    expected = case["expected"]
    score = taxi(case["actual"], case["submitted"], official_alignment=True, seed=case["random_seed"])
    assert score.k_marginal == pytest.approx(expected["k_marginal"], **near(document))
    assert score.graph_edge == pytest.approx(expected["pickup_dropoff"], **near(document))
    assert score.conjunction == pytest.approx(expected["higher_order_conjunction"], **near(document))
    assert score.score == pytest.approx(expected["overall"], abs=1000 * document["tolerance"])
    distances = dict(zip(score.places, score.distances.tolist(), strict=True))
    for area, shift, distance in expected["some_place_time_distances"]:
        assert distances[area, shift] == pytest.approx(distance, abs=ROUNDED)
    older = taxi(
        case["actual"],
        case["submitted"],
        official_alignment=True,
        seed=case["random_seed"],
        bias_cutoff=case["bias_penalty_cutoff"],
    )
    assert older.k_marginal == pytest.approx(expected["k_marginal_with_bias_penalty"], **near(document))
    assert older.score == pytest.approx(
        expected["overall_with_bias_penalty"], abs=1000 * document["tolerance"]
    )


@pytest.mark.parametrize(("document", "name", "entry"), entries(TAXI, "binning"))
def test_trip_intervals(document, name, entry):
    assert bin_trips(name, np.array(entry["values"], np.float64)).tolist() == entry["codes"]


@pytest.mark.parametrize("document", holding(TAXI, "conjunction_random_stream"))
def test_the_stream_of_the_conjunction_part(document):
    stream = document["conjunction_random_stream"]
    given = stream["first_draws"]
    drawn = draw_rounds(stream["ground_truth_taxis"], rounds=len(given), seed=stream["seed"])
    assert [{"row": row, "first_five_limits": limits[:5].tolist()} for row, limits in drawn] == given


@pytest.mark.parametrize(("document", "case"), cases(TAXI, "conjunction_only_cases"))
def test_conjunction_alone(document, case):
    sides = [
        Trips(*(np.array(column) for column in zip(*case[side], strict=True)))
        for side in ("actual_counts", "submitted_counts")
    ]
    options = {"rounds": case["iterations"], "seed": case["random_seed"]}
    expected = case["expected"]
    official = measure_conjunction(*sides, **options, official_alignment=True)
    assert 1 - np.abs(np.diff(official)).mean() == pytest.approx(expected["official"], **near(document))
    clean = measure_conjunction(*sides, **options)
    assert 1 - np.abs(np.diff(clean)).mean() == pytest.approx(expected["clean_alignment"], **near(document))
    given = np.array(expected["first_five_proportions_clean"])
    assert np.abs(clean[: len(given)] - given).max() < document["tolerance"]


@pytest.mark.parametrize(("document", "case"), cases(MATCH, "cases"))
def test_match3(document, case):
    truth = columns(case["header"], case["truth"])
    score = match3(
        truth,
        columns(case["synthetic_header"], case["synthetic"]),
        largest=case["maxval"],
        marginal_tests=case["marginal_tests"],
        conjunction_tests=case["conjunction_tests"],
    )
    expected = case["expected"]
    assert score.marginals == pytest.approx(expected["score1"], **near(document))
    assert score.conjunctions == pytest.approx(expected["score2"], **near(document))
    assert score.income == pytest.approx(expected["score3"], **near(document))
    assert score.score == pytest.approx(expected["overall"], **near(document))
    given = [test["density"] for test in case["conjunction_tests"]]
    assert score.shares[:, 0].tolist() == pytest.approx(given, **near(document))
    cities = {code: (gini, gap) for code, gini, gap in case["city_gini_paygap"]}
    assert {city.code for city in score.cities} == set(cities)
    for city in score.cities:
        assert (city.gini, city.pay_gap) == pytest.approx(cities[city.code], **near(document))


def columns(header, rows):
    """The columns of a file that is listed by rows; a field that is no number makes its column text."""
    read = {}
    for place, name in enumerate(header):
        fields = [None if row[place] in ("", None) else row[place] for row in rows]
        if any(isinstance(field, str) for field in fields):
            fields = [None if field is None else str(field) for field in fields]
        read[name] = fields
    return read
