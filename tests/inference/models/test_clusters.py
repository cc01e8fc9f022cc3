"""Centres from weighted points, and the test that refuses to call noise clusters."""

import numpy as np
import pytest

from sfumato.inference.models.clusters import choose_centres, judge_clusters, locate, spread_places


@pytest.mark.parametrize("dimensions", [1, 2, 5, 10])
def test_places_are_spread_evenly(dimensions):
    places = spread_places(128, dimensions)
    assert np.abs(places).max() <= 1
    assert len(np.unique(places.round(9), axis=0)) == 128
    for column in places.T:
        assert np.histogram(column, 4, (-1, 1))[0].min() >= 20


def test_centres_of_clear_groups_are_found_whatever_the_weights():
    random = np.random.default_rng(2)
    truth = np.array([[-0.8, -0.8], [0.8, -0.7], [0.1, 0.9]])
    points = truth[np.arange(90) % 3] + random.normal(size=(90, 2)) * 0.03
    weights = random.uniform(1, 50, 90)
    found = choose_centres(points, weights, 3)
    assert np.abs(found[np.lexsort(found.T)] - truth[np.lexsort(truth.T)]).max() < 0.03


def test_fewer_points_than_clusters_are_centres_themselves():
    points = np.array([[0.0, 0.5], [0.5, 0.0]])
    assert sorted(map(tuple, choose_centres(points, np.array([1.0, 2.0]), 5).tolist())) == [
        (0.0, 0.5),
        (0.5, 0.0),
    ]
    empty, weights = locate(np.array([1.0]), np.zeros((1, 2)), least=5)
    assert choose_centres(empty, weights, 3).shape == (0, 2)


def draw(random, counts, centres, sigma):
    noisy = counts + random.normal(size=len(counts)) * sigma
    return noisy, counts[:, None] * centres + random.normal(size=centres.shape) * sigma


def test_noise_alone_is_called_clusters_for_less_than_one_in_a_hundred():
    """Nobody, everybody in one place, and everybody in one cell: no clusters, in 3,000 draws."""
    random = np.random.default_rng(8)
    wrong = 0
    for turn in range(3000):
        people = (0, 300, 10_000)[turn % 3]
        counts = np.zeros(6)
        counts[0] = people
        centres = random.uniform(-1, 1, (6, 4))
        wrong += judge_clusters(*draw(random, counts, centres, 20.0), sigma=20.0).found
    assert wrong < 30


def test_the_gain_is_that_of_the_records_and_its_error_that_of_the_noise():
    random = np.random.default_rng(9)
    counts, centres = np.array([500.0, 300.0, 200.0]), random.uniform(-0.5, 0.5, (3, 3))
    middle = (counts[:, None] * centres).sum(axis=0) / counts.sum()
    truth = float((counts * ((centres - middle) ** 2).sum(axis=1)).sum())
    found = [judge_clusters(*draw(random, counts, centres, 8.0), sigma=8.0) for _ in range(2000)]
    gains = np.array([each.gain for each in found])
    assert all(each.found for each in found)
    assert gains.mean() == pytest.approx(truth, rel=0.01)
    assert gains.std() == pytest.approx(np.mean([each.error for each in found]), rel=0.2)


def test_a_cluster_within_its_noise_is_left_out():
    counts = np.array([900.0, 20.0, 800.0])
    sums = counts[:, None] * np.array([[0.5, 0.5], [0.0, 0.0], [-0.5, -0.5]])
    found = judge_clusters(counts, sums, sigma=10.0)
    assert found.found
    assert found.sizes.tolist() == [900.0, 800.0]
