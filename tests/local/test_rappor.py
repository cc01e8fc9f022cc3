"""RAPPOR: what is kept, what is drawn anew, cohorts and regression."""

import numpy as np
import pytest

from helpers.cases import read_cases
from sfumato.core.errors import RecipeError, SchemaError
from sfumato.local import Rappor, RapporMemory, read_mechanism
from sfumato.local.rappor import _design, _places


def basic(**changes):
    return Rappor(**({"epsilon": 4, "report_epsilon": 2, "categories": 5} | changes))


def filtered(**changes):
    return Rappor(
        **(
            {"epsilon": 8, "report_epsilon": 6, "categories": 20, "bloom": 16, "hashes": 2, "cohorts": 8}
            | changes
        )
    )


def test_a_permanent_response_is_drawn_once_per_client_and_value():
    mechanism = basic()
    memory = RapporMemory(mechanism)
    clients, values = np.array([3, 1, 3, 3]), np.array([4, 0, 4, 2])
    mechanism.respond(values, clients=clients, memory=memory)
    kept = memory._permanent.copy()
    assert repr(memory) == "RapporMemory(2 clients, 3 permanent responses, values withheld)"
    for _ in range(5):
        mechanism.respond(values, clients=clients, memory=memory)
    assert np.array_equal(memory._permanent, kept)
    mechanism.respond([1], clients=[0], memory=memory)
    cohorts, permanent = memory.recall(mechanism, clients, values, None)  # draws nothing, needs no source
    assert np.array_equal(permanent[0], permanent[2])
    assert cohorts.tolist() == [0] * 4


def test_many_reports_show_the_permanent_response_and_no_more():
    mechanism = basic()
    memory = RapporMemory(mechanism)
    reports = mechanism.respond(np.zeros(40_000, int), clients=np.zeros(40_000, int), memory=memory)
    rates = reports["bits"].mean(axis=0)
    on, off = mechanism.on_if_on / 2**64, mechanism.on_if_off / 2**64
    expected = np.where(memory._permanent[0], on, off)
    assert np.all(np.abs(rates - expected) < 8 * np.sqrt(0.25 / 40_000))


def test_a_memory_survives_being_stored():
    mechanism = filtered()
    memory = RapporMemory(mechanism)
    clients, values = np.arange(50), np.arange(50) % 20
    mechanism.respond(values, clients=clients, memory=memory)
    again = RapporMemory.from_bytes(memory.to_bytes(), mechanism)
    assert np.array_equal(again._permanent, memory._permanent)
    first = memory.recall(mechanism, clients, values, None)
    second = again.recall(mechanism, clients, values, None)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RecipeError, match="another mechanism"):
        RapporMemory.from_bytes(memory.to_bytes(), filtered(epsilon=9))
    with pytest.raises(SchemaError, match="no memory"):
        RapporMemory.from_bytes(b"nonsense", mechanism)


def test_memory_and_clients_go_together():
    mechanism = basic()
    with pytest.raises(RecipeError, match="go together"):
        mechanism.respond([1], clients=[1])
    with pytest.raises(RecipeError, match="go together"):
        mechanism.respond([1], memory=RapporMemory(mechanism))
    with pytest.raises(RecipeError, match="another mechanism"):
        mechanism.respond([1], clients=[1], memory=RapporMemory(basic(epsilon=5)))
    for clients in ([1, 2], ["a"], [-1], [1 << 50], [[1]]):
        with pytest.raises(SchemaError, match="clients"):
            mechanism.respond([1], clients=clients, memory=RapporMemory(mechanism))


@pytest.mark.parametrize(("changes", "told"), read_cases(__file__, "test_impossible_parameters_are_refused"))
def test_impossible_parameters_are_refused(changes, told):
    with pytest.raises(RecipeError, match=told):
        basic(**changes)


@pytest.mark.parametrize("rates", [(0, 0, 1), (1, 0, 1), (0.5, 0.7, 0.2), (0.5, 0.5, 0.5), (0.5, 0, 2)])
def test_impossible_rates_are_refused(rates):
    with pytest.raises(RecipeError, match="rates"):
        Rappor(categories=3, rates=rates)


def test_each_category_sets_the_bits_of_its_hashes():
    mechanism = filtered()
    cohorts = np.array([0, 3, 7], np.uint16)
    codes = np.array([0, 19, 4])
    bits = mechanism.filter_bits(cohorts, codes)
    places = _places(20, 16, 2, 8)
    for row, cohort, code in zip(bits, cohorts, codes, strict=True):
        assert set(np.flatnonzero(row)) == set(places[cohort, code].tolist())
    design = _design(20, 16, 2, 8)
    assert design.shape == (8, 16, 20)
    assert np.array_equal(design[3][:, 19].astype(bool), bits[1])
    assert bits.sum(axis=1).max() <= 2


@pytest.mark.parametrize("make", [basic, filtered])
def test_shares_come_back(make):
    mechanism = make()
    values = np.repeat(np.arange(mechanism.categories), 1000 * (1 + np.arange(mechanism.categories) % 3))
    estimate = mechanism.estimate(mechanism.respond(values))
    truth = np.bincount(values) / values.size
    assert np.all(np.abs(estimate.frequencies - truth) < 8 * estimate.standard_errors)
    assert estimate.standard_errors.max() < 0.1
    assert read_mechanism(mechanism.to_record()) == mechanism


def test_rates_travel_with_the_record():
    mechanism = Rappor(categories=3, rates=("1/3", "1/2", "3/4"))
    assert read_mechanism(mechanism.to_record()) == mechanism


def test_a_cohort_without_reports_is_left_out_or_refused():
    mechanism = filtered()
    reports = mechanism.respond(np.arange(40_000) % 20)
    some = reports[reports["cohort"] != 3]
    assert np.all(np.isfinite(mechanism.estimate(some).frequencies))
    with pytest.raises(SchemaError, match="collect more"):
        mechanism.estimate(reports[reports["cohort"] == 0])


def test_foreign_reports_are_refused():
    mechanism = filtered()
    reports = mechanism.respond(np.arange(100) % 20)
    late = reports.copy()
    late["cohort"] = 8
    for wrong in (reports["bits"], reports["cohort"], late, reports.reshape(10, 10), [1, 2], [[1], [2, 3]]):
        with pytest.raises(SchemaError):
            mechanism.estimate(wrong)
    with pytest.raises(SchemaError, match="rows of"):
        filtered(bloom=17).estimate(reports)


def test_plans_know_the_noise_of_a_filter():
    assert filtered().variance(0.1) > basic().variance(0.1) / 10
