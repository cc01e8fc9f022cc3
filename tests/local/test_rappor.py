"""RAPPOR: what is kept, and what is drawn anew."""

import numpy as np
import pytest

from helpers.cases import read_cases
from sfumato.core.errors import RecipeError, SchemaError
from sfumato.local import Rappor, RapporMemory, read_mechanism


def basic(**changes):
    return Rappor(**({"epsilon": 4, "report_epsilon": 2, "categories": 5} | changes))


def test_a_permanent_response_is_drawn_once_per_client_and_value():
    mechanism = basic()
    memory = RapporMemory(mechanism)
    clients, values = np.array([3, 1, 3, 3]), np.array([4, 0, 4, 2])
    mechanism.respond(values, clients=clients, memory=memory)
    kept = memory._permanent.copy()
    assert repr(memory) == "RapporMemory(3 permanent responses, values withheld)"
    for _ in range(5):
        mechanism.respond(values, clients=clients, memory=memory)
    assert np.array_equal(memory._permanent, kept)
    mechanism.respond([1], clients=[0], memory=memory)
    permanent = memory.recall(mechanism, clients, values, None)  # draws nothing, needs no source
    assert np.array_equal(permanent[0], permanent[2])


def test_many_reports_show_the_permanent_response_and_no_more():
    mechanism = basic()
    memory = RapporMemory(mechanism)
    reports = mechanism.respond(np.zeros(40_000, int), clients=np.zeros(40_000, int), memory=memory)
    rates = reports.mean(axis=0)
    on, off = mechanism.on_if_on / 2**64, mechanism.on_if_off / 2**64
    expected = np.where(memory._permanent[0], on, off)
    assert np.all(np.abs(rates - expected) < 8 * np.sqrt(0.25 / 40_000))


def test_a_memory_survives_being_stored():
    mechanism = basic()
    memory = RapporMemory(mechanism)
    clients, values = np.arange(50), np.arange(50) % 5
    mechanism.respond(values, clients=clients, memory=memory)
    again = RapporMemory.from_bytes(memory.to_bytes(), mechanism)
    assert np.array_equal(again._permanent, memory._permanent)
    first = memory.recall(mechanism, clients, values, None)
    second = again.recall(mechanism, clients, values, None)
    assert np.array_equal(first, second)
    with pytest.raises(RecipeError, match="another mechanism"):
        RapporMemory.from_bytes(memory.to_bytes(), basic(epsilon=9))
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


def test_shares_come_back():
    mechanism = basic()
    values = np.repeat(np.arange(mechanism.categories), 1000 * (1 + np.arange(mechanism.categories) % 3))
    estimate = mechanism.estimate(mechanism.respond(values))
    truth = np.bincount(values) / values.size
    assert np.all(np.abs(estimate.frequencies - truth) < 8 * estimate.standard_errors)
    assert estimate.standard_errors.max() < 0.1
    assert read_mechanism(mechanism.to_record()) == mechanism


def test_rates_travel_with_the_record():
    mechanism = Rappor(categories=3, rates=("1/3", "1/2", "3/4"))
    assert read_mechanism(mechanism.to_record()) == mechanism


def test_foreign_reports_are_refused():
    reports = basic().respond(np.arange(100) % 5)
    for wrong in (reports[0], reports.reshape(10, 10, 5), reports[:, :4], [1, 2], [[1], [2, 3]]):
        with pytest.raises(SchemaError):
            basic().estimate(wrong)
