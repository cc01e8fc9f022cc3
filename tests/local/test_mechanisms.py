"""Every mechanism: what it takes, what it refuses, and what it estimates from known answers."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato.local as local
from helpers.cases import read_cases
from sfumato.core.errors import RecipeError, SchemaError
from sfumato.local import (
    LocalHashing,
    estimate_frequencies,
    make_mechanism,
    project_shares,
    randomized_response,
    read_mechanism,
)
from sfumato.local.categories import _count_supports, transform_walsh
from sfumato.local.mechanism import update_shares

NAMES = ["krr", "oue", "sue", "subset", "olh", "hadamard", "rappor"]
MEANS = ["laplace", "duchi", "piecewise"]
SECRET = 987654321


def make(name, *, epsilon=1, categories=4):
    if name in MEANS:
        return make_mechanism(name, epsilon=epsilon, low=0, high=10)
    if name == "coin":
        return make_mechanism(name)
    return make_mechanism(name, epsilon=epsilon, categories=categories)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", ["1e-6", "0.5", "50"])
@pytest.mark.parametrize("categories", [2, 3, 33])
def test_round_trips_at_every_epsilon(name, epsilon, categories):
    mechanism = make(name, epsilon=epsilon, categories=categories)
    values = np.arange(5000) % categories
    estimate = mechanism.estimate(mechanism.respond(values))
    assert estimate.people == 5000
    assert estimate.frequencies.shape == estimate.standard_errors.shape == (categories,)
    truth = np.bincount(values, minlength=categories) / 5000
    # Ten standard errors and 30 people (Bernstein): false alarms are rarer than one in 10^15.
    assert np.all(np.abs(estimate.frequencies - truth) <= 10 * estimate.standard_errors + 30 / 5000)
    assert np.all(estimate.population_errors >= estimate.standard_errors)
    assert np.allclose(estimate.counts, 5000 * estimate.frequencies)
    assert read_mechanism(mechanism.to_record()) == mechanism


@pytest.mark.parametrize("name", [*NAMES, "coin", *MEANS])
def test_nothing_in_nothing_out(name):
    mechanism = make(name)
    for empty in ([], np.empty(0, np.int64), np.empty(0)):
        answers = mechanism.respond(empty)
        assert len(answers) == 0
        with pytest.raises(SchemaError, match=r"no responses|not|rows of"):
            mechanism.estimate(answers)
    with pytest.raises(SchemaError, match="no responses"):
        mechanism.estimate(mechanism.respond([]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("categories", [1, 0, -3, True, 2.0, "4", None, 1 << 30])
def test_impossible_numbers_of_categories_are_refused(name, categories):
    with pytest.raises(RecipeError, match="categories"):
        make(name, categories=categories)


@pytest.mark.parametrize("name", [*NAMES, *MEANS])
@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "x", None, 1e-15, 2000])
def test_impossible_epsilons_are_refused(name, epsilon):
    with pytest.raises(RecipeError, match="epsilon"):
        make(name, epsilon=epsilon)


@pytest.mark.parametrize("name", [*NAMES, "coin"])
@pytest.mark.parametrize(
    "values",
    [
        [0, SECRET],
        [-1, 0],
        [0.0, 1.0],
        ["a", "b"],
        [None, 1],
        [[0, 1], [1, 0]],
        5,
        [[0], [1, 2]],
        [2**70],
        [np.nan],
    ],
)
def test_values_outside_are_refused_without_being_told(name, values):
    with pytest.raises(SchemaError) as caught:
        make(name).respond(values)
    assert str(SECRET) not in str(caught.value)
    assert str(2**70) not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", [*NAMES, "coin"])
def test_a_stated_default_takes_values_outside(name):
    mechanism = make(name)
    assert len(mechanism.respond([0, SECRET, -5, 1], default=1)) == 4
    with pytest.raises(RecipeError, match="default"):
        mechanism.respond([0], default=99)


def test_the_default_is_what_is_answered():
    answers = randomized_response(np.array([7, 255, 0], np.uint8), epsilon=50, categories=3, default=2)
    assert answers.tolist() == [2, 2, 0]


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8])
def test_answers_are_not_cut_to_a_type_that_cannot_hold_them(dtype):
    values = np.ones(20_000, dtype)
    answers = randomized_response(values, epsilon="0.1", categories=300)
    assert answers.dtype == np.int64
    assert len(set(answers.tolist())) == 300
    answers = randomized_response(np.array([5, -1], np.int8), epsilon=44, categories=300, default=299)
    assert answers.tolist() == [5, 299]


@pytest.mark.parametrize("name", ["krr", "olh", "hadamard", "coin"])
@pytest.mark.parametrize(
    "responses",
    [[0.0, 1.0], [-1, 0], ["0"], [[0, 1]], [10**6], [None], [[0], [1, 2]], np.zeros((2, 4), bool)],
)
def test_foreign_answers_are_refused(name, responses):
    with pytest.raises(SchemaError):
        make(name).estimate(responses)


@pytest.mark.parametrize("name", ["oue", "sue"])
@pytest.mark.parametrize(
    "responses",
    [
        [0, 1],
        np.zeros((5, 3), bool),
        np.full((5, 4), 2),
        np.full((5, 4), 0.5),
        np.full((5, 4), -1),
        [[0, 1], [1]],
        np.zeros((0, 4), bool),
    ],
)
def test_foreign_bits_are_refused(name, responses):
    with pytest.raises(SchemaError):
        make(name).estimate(responses)


@pytest.mark.parametrize("name", NAMES)
def test_answers_that_no_truth_explains_are_refused(name):
    made = make(name, categories=8)
    forged = np.zeros((10000, 8), bool) if name in ("oue", "sue", "rappor") else np.zeros(10000, np.int64)
    if name == "subset":
        forged = np.tile(np.arange(8) < made.subset_size, (10000, 1))
    with pytest.raises(SchemaError, match="not given by this mechanism"):
        made.estimate(forged)


def test_answers_over_fewer_categories_than_declared_are_refused():
    answers = randomized_response(np.arange(100_000) % 4, epsilon=1, categories=4)
    with pytest.raises(SchemaError, match="not given by this mechanism"):
        estimate_frequencies(answers, epsilon=1, categories=8)
    with pytest.raises(SchemaError, match="outside 0 to 2"):
        estimate_frequencies(answers, epsilon=1, categories=3)


@pytest.mark.parametrize("people", [1, 2, 5])
@pytest.mark.parametrize("name", NAMES)
def test_few_answers_are_never_taken_for_forged(name, people):
    made = make(name, epsilon=3, categories=50)
    for _ in range(50):
        assert np.all(np.isfinite(made.estimate(made.respond([49] * people)).frequencies))


@pytest.mark.parametrize("name", ["krr", "oue", "sue", "olh", "hadamard"])
@pytest.mark.parametrize("epsilon", [0.2, 1, 3])
def test_variances_are_those_of_the_literature(name, epsilon):
    made = make(name, epsilon=epsilon, categories=16)
    e, k = np.exp(epsilon), 16
    half = np.exp(epsilon / 2)
    expected = {
        "krr": (e + k - 2) / (e - 1) ** 2,
        "oue": 4 * e / (e - 1) ** 2,
        "sue": half / (half - 1) ** 2,
        "olh": None,
        "hadamard": ((e + 1) / (e - 1)) ** 2,
    }[name]
    if name == "olh":
        g = made.hash_size
        expected = (e + g - 1) ** 2 / ((e - 1) ** 2 * (g - 1))
        assert expected < 1.2 * 4 * e / (e - 1) ** 2
    assert made.variance(0.0) == pytest.approx(expected)


@pytest.mark.parametrize(("size", "categories"), [(2, 9), (3, 20), (5, 5), (7, 50)])
def test_two_categories_collide_under_one_hash_in_g(size, categories):
    mechanism = LocalHashing(epsilon=1, categories=categories, hash_size=size)
    members = np.arange(mechanism.members)
    hashes = np.array([mechanism.hash(members, np.full_like(members, v)) for v in range(categories)])
    for v, w in product(range(categories), repeat=2):
        expected = mechanism.members if v == w else mechanism.members // size
        assert np.count_nonzero(hashes[v] == hashes[w]) == expected


@pytest.mark.parametrize(("size", "categories"), [(2, 6), (3, 20), (5, 4), (11, 100)])
def test_the_transform_counts_what_hashing_each_category_counts(size, categories):
    mechanism = LocalHashing(epsilon=1, categories=categories, hash_size=size)
    cells = mechanism.members * size
    table = np.random.default_rng(5).integers(0, 1000, cells)
    shaped = table.reshape(*[size] * mechanism.digits, size)
    found = _count_supports(shaped)
    members, answers = np.divmod(np.arange(cells), size)
    for v in range(categories):
        supports = mechanism.hash(members, np.full_like(members, v)) == answers
        assert found[v] == table[supports].sum()


@pytest.mark.parametrize("size", [4, 9, 1, 1000, 2.0])
def test_a_hash_size_must_be_prime(size):
    with pytest.raises(RecipeError, match="hash_size"):
        LocalHashing(epsilon=1, categories=10, hash_size=size)
    with pytest.raises(RecipeError, match="too large"):
        LocalHashing(epsilon=1, categories=1 << 20, hash_size=251)


def test_hash_sizes_follow_epsilon():
    sizes = [LocalHashing(epsilon=e, categories=1000).hash_size for e in ("0.1", "1", "2", "3", "50")]
    assert sizes == [2, 3, 7, 23, 251]
    assert LocalHashing(epsilon=10, categories=4).hash_size <= 5


def test_the_walsh_transform_is_the_matrix_product():
    rows = np.arange(16)
    matrix = 1 - 2 * (np.bitwise_count(rows[:, None] & rows) & 1).astype(np.int64)
    values = np.random.default_rng(1).integers(-50, 50, 16)
    assert transform_walsh(values).tolist() == (matrix @ values).tolist()


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_projections(shares):
    given_shares = np.array(shares)
    simplex = project_shares(given_shares, project="simplex")
    assert simplex.min() >= 0
    assert simplex.sum() == pytest.approx(1)
    corner = np.zeros(len(shares))
    corner[0] = 1  # any point of the simplex: the projection is never farther from it
    assert np.linalg.norm(simplex - corner) <= np.linalg.norm(given_shares - corner) + 1e-9
    assert project_shares(given_shares, project="sum").sum() == pytest.approx(1)
    assert project_shares(given_shares, project="clip").min() >= 0
    assert np.array_equal(project_shares(given_shares, project="none"), given_shares)


def test_estimates_are_projected_by_name():
    values = np.zeros(2000, int)
    answers = randomized_response(values, epsilon="0.5", categories=30)
    plain = estimate_frequencies(answers, epsilon="0.5", categories=30)
    projected = estimate_frequencies(answers, epsilon="0.5", categories=30, project="simplex")
    assert plain.frequencies.min() < 0
    assert projected.frequencies.min() >= 0
    assert (plain.project, projected.project) == ("none", "simplex")
    assert np.array_equal(plain.standard_errors, projected.standard_errors)
    with pytest.raises(RecipeError, match="project"):
        estimate_frequencies(answers, epsilon="0.5", categories=30, project="softmax")


def test_intervals_and_records():
    estimate = estimate_frequencies([0, 1] * 5000, epsilon=1)
    low, high = estimate.interval(confidence=0.95)[1]
    assert (high - low) / 2 == pytest.approx(1.959964 * estimate.standard_errors[1])
    wide = estimate.interval(confidence=0.95, population=True)[1]
    assert wide[1] > high
    assert estimate.to_record()["people"] == 10_000
    with pytest.raises(RecipeError, match="confidence"):
        estimate.interval(confidence=1.5)


@pytest.mark.parametrize("name", ["krr", "oue", "olh", "hadamard", "sue"])
def test_estimate_frequencies_by_name_and_by_object(name):
    made = make(name)
    answers = made.respond(np.arange(1000) % 4)
    by_name = estimate_frequencies(answers, epsilon=1, categories=4, mechanism=name)
    by_object = estimate_frequencies(answers, mechanism=made)
    assert np.array_equal(by_name.frequencies, by_object.frequencies)
    with pytest.raises(RecipeError, match="epsilon differs"):
        estimate_frequencies(answers, epsilon=2, mechanism=made)
    with pytest.raises(RecipeError, match="own parameters"):
        estimate_frequencies(answers, categories=5, mechanism=made)


@pytest.mark.parametrize("mechanism", ["laplace", "nonsense", ""])
def test_only_frequency_mechanisms_estimate_frequencies(mechanism):
    with pytest.raises(RecipeError, match="mechanism must be one of"):
        estimate_frequencies([0], epsilon=1, mechanism=mechanism)


@pytest.mark.parametrize("record", read_cases(__file__, "test_records_that_were_edited_are_refused"))
def test_records_that_were_edited_are_refused(record):
    with pytest.raises(RecipeError):
        read_mechanism(record)


def test_no_answer_repeats_and_none_can_be_seeded():
    values = np.zeros(256, np.int64)
    for name in NAMES:
        made = make(name)
        assert made.respond(values).tobytes() != made.respond(values).tobytes()
    for name in dir(local):
        code = getattr(getattr(local, name), "__init__", None)
        names = getattr(getattr(code, "__code__", None), "co_varnames", ())
        assert not any("seed" in each for each in names)


@pytest.mark.parametrize("name", [*NAMES, "coin"])
def test_the_likeliest_shares_are_a_fixed_point_and_nearer(name):
    categories = 2 if name == "coin" else 12
    mechanism = make(name, epsilon=2, categories=categories)
    values = np.minimum(np.random.default_rng(3).geometric(0.5, 4000) - 1, categories - 1)
    truth = np.bincount(values, minlength=categories) / values.size
    errors = []
    for _ in range(12):
        answers = mechanism.respond(values)
        plain, likeliest = (mechanism.estimate(answers, project=each) for each in ("none", "bayes"))
        assert likeliest.frequencies.min() >= 0
        assert likeliest.frequencies.sum() == pytest.approx(1)
        assert (likeliest.standard_errors == plain.standard_errors).all()
        errors.append([float(((each.frequencies - truth) ** 2).sum()) for each in (plain, likeliest)])
    plain, likeliest = np.mean(errors, axis=0)
    assert likeliest < (1.0001 if name == "coin" else 0.9) * plain


def test_the_update_is_bayes_rule():
    support, weights = np.array([[True, False], [False, True]]), np.array([70, 30])
    start = np.array([0.5, 0.5])
    # The likelihood of randomised response with ratio 3 is greatest where its unbiased estimate is.
    assert update_shares(support, weights, ratio=3.0, start=start) == pytest.approx([0.9, 0.1], abs=1e-3)


def test_a_set_of_another_size_is_refused():
    mechanism = make_mechanism("subset", epsilon=1, categories=9)
    rows = mechanism.respond(np.zeros(5, int))
    rows[0, np.flatnonzero(~rows[0])[0]] = True
    with pytest.raises(SchemaError, match="another is among these"):
        mechanism.estimate(rows)
    with pytest.raises(RecipeError):
        make_mechanism("subset", epsilon=1, categories=9, subset_size=9)


@pytest.mark.parametrize("categories", [4, 8, 32, 100])
def test_sets_have_the_least_variance_where_categories_are_some(categories):
    found = {name: make(name, categories=categories).variance(1 / categories) for name in NAMES}
    assert found["subset"] == min(found.values())
