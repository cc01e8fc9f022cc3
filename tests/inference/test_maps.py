"""Maps: the slices chosen are the best by the metric itself, and a guide helps only where it does."""

import numpy as np
import pytest

from sfumato.inference import maps
from sfumato.inference.maps import CELLS, KINDS, PERIOD_KIND, PLACE_KIND, PLACE_PERIOD, choose_slices, fit_map
from sfumato.metrics import pie_chart

LEVELS = (KINDS, PLACE_PERIOD, PLACE_KIND, PERIOD_KIND, CELLS)


def score_on(likely, row):
    """The mean score of a row of counts over draws, by the metric."""
    truth = likely.astype(np.int64)
    return pie_chart(truth, np.broadcast_to(row, truth.shape).copy()).mean


@pytest.mark.parametrize("mean", [0.05, 0.5, 3.0, 40.0, 70.0])
def test_expected_scores_are_those_of_the_metric(mean):
    random = np.random.default_rng(2)
    likely = random.poisson(mean * random.gamma(0.5, 2.0, (1, 1, 9)), (50, 1, 9)).astype(float)
    shares, empty = maps._share_out(likely)
    nothing = maps._score_nothing(shares, empty, likely.sum(axis=2)).mean()
    assert nothing == pytest.approx(score_on(likely[:, 0], np.zeros(9, np.int64)), abs=1e-4)
    row = np.zeros(9, np.int64)
    row[[2, 5, 7]] = 50, 30, 20
    gaps = likely.sum(axis=2) - 100
    ours = maps._score_slices(shares[:, :, [2, 5, 7]], np.array([[0.5, 0.3, 0.2]]), empty, gaps).mean()
    assert ours == pytest.approx(score_on(likely[:, 0], row), abs=1e-4)


def test_chosen_slices_score_no_worse_than_zeros_or_all_expected_counts():
    random = np.random.default_rng(4)
    better = 0
    for _ in range(30):
        means = random.gamma(0.3, random.choice([1.0, 5.0, 30.0]), 8)
        likely = random.poisson(means, (80, 1, 8)).astype(float)
        row = choose_slices(likely, np.array([means.sum()]))[0]
        ours = score_on(likely[:, 0], row)
        zeros, rounded = (score_on(likely[:, 0], each) for each in (0 * row, np.rint(means).astype(np.int64)))
        # Whole numbers are not quite the shares that were chosen.
        assert ours > max(zeros, rounded) - 0.05
        better += ours > max(zeros, rounded) + 0.02
    assert better > 5


def test_rows_that_are_empty_in_all_draws_stay_empty():
    likely = np.zeros((10, 2, 4))
    likely[:, 1, 2] = 5
    assert choose_slices(likely, np.array([0.0, 5.0])).tolist() == [[0, 0, 0, 0], [0, 0, 5, 0]]


def measure(truth, scales, random):
    found = {}
    for level, scale in zip(LEVELS, scales, strict=True):
        sums = maps._sum_to(truth.astype(float), CELLS, level)
        found[level] = (sums + np.rint(random.laplace(scale=scale, size=sums.shape)), scale)
    return found


def make_truth(random, *, spread=0.5):
    places = random.gamma(0.7, 100.0, 30)
    mix = random.gamma(spread, 1.0, (30, 6))
    means = places[:, None, None] * (mix / mix.sum(axis=1, keepdims=True))[:, None, :] / 8
    return random.poisson(np.broadcast_to(means, (30, 8, 6)))


def test_a_map_is_nearer_than_its_noisy_cells():
    random = np.random.default_rng(8)
    truth = make_truth(random)
    measured = measure(truth, (3.0, 4.0, 4.0, 3.0, 4.0), random)
    model = fit_map(measured, records=None, most=1.0, guide=None)
    assert model.factor == 1
    wrong = np.abs(model.expected - truth).sum()
    assert wrong < 0.5 * np.abs(np.maximum(measured[CELLS][0], 0) - truth).sum()
    assert wrong < truth.sum()
    assert abs(model.expected.sum() / truth.sum() - 1) < 0.1


def test_a_good_guide_is_trusted_and_helps_and_a_useless_one_does_no_harm():
    random = np.random.default_rng(9)
    truth = make_truth(random)
    measured = measure(truth, (6.0, 12.0, 12.0, 6.0, 20.0), random)
    guides = {
        "none": None,
        "good": random.poisson(truth + 0.1).astype(float),
        "useless": random.permutation(random.poisson(truth + 0.1).reshape(-1))
        .reshape(truth.shape)
        .astype(float),
    }
    models = {key: fit_map(measured, records=None, most=1.0, guide=guide) for key, guide in guides.items()}
    wrong = {key: np.abs(model.expected - truth).sum() for key, model in models.items()}
    assert PLACE_KIND in models["good"].guided
    assert wrong["good"] < 0.95 * wrong["none"]
    assert wrong["useless"] < 1.05 * wrong["none"]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2.0, 8.0])
def test_a_guide_that_is_wrong_does_no_harm_where_something_can_be_seen(scale):
    """Over eight maps: other places, other kinds, or both; on the same noisy counts."""
    wrong = dict.fromkeys(("none", "places", "kinds", "both"), 0.0)
    for seed in range(8):
        random = np.random.default_rng(seed)
        truth = make_truth(random)
        measured = measure(truth, (scale, 2 * scale, 2 * scale, scale, 3 * scale), random)
        guide = random.poisson(truth + 0.1).astype(float)
        guides = {
            "none": None,
            "places": random.permutation(guide, axis=0),
            "kinds": guide[:, :, ::-1],
            "both": random.permutation(guide, axis=0)[:, :, ::-1],
        }
        for key, each in guides.items():
            model = fit_map(measured, records=None, most=1.0, guide=each)
            wrong[key] += np.abs(model.expected - truth).sum() / truth.sum()
    assert max(wrong.values()) < 1.02 * wrong["none"]


def test_records_that_the_bound_cut_off_are_made_up_for_within_what_can_be():
    random = np.random.default_rng(10)
    measured = measure(make_truth(random), (1.0,) * 5, random)
    plain = fit_map(measured, records=None, most=5.0, guide=None)
    for records, factor in ((2 * plain.total, 2.0), (99 * plain.total, 5.0), (-3.0, 1.0)):
        assert fit_map(measured, records=records, most=5.0, guide=None).factor == pytest.approx(factor)
    doubled = fit_map(measured, records=2 * plain.total, most=5.0, guide=None)
    drawn = np.mean([doubled.draw(np.random.default_rng(seed)).sum() for seed in range(8)])
    assert drawn == pytest.approx(2 * plain.total, rel=0.15)
