"""Kinds of questions are a closed list: whoever makes another states its sensitivity, and is refused."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from helpers.asking import Stub
from helpers.fitted_recipe import Fitted
from sfumato.core.door import Bill, Charged, Records
from sfumato.core.errors import ChargeKept, RecipeError
from sfumato.core.questions import measurement
from sfumato.core.questions.choices import Candidate, Choice, NormChoice
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Request, ask_cost
from sfumato.core.questions.question import Queries, Question, Stated

QUERIES = {"cells": 12, "grid": 1, "starts": np.array([0, 12]), "members": np.arange(12)}


@dataclass(frozen=True, slots=True)
class Small(Marginal):
    """A marginal of which an individual is said to add next to nothing."""

    stated = Stated(bounding="records", tally="cells", norms=("L1", "L2"), signed=False, sampled=False)
    columns: tuple[str, ...]
    queries: None = None
    size, grid, check, to_record = Marginal.size, Marginal.grid, Marginal.check, Marginal.to_record

    def contribution(self, table, norm):
        return Fraction(1, 1000)


class Wide(Queries):
    __slots__ = ()

    def apply(self, counts):
        return Queries.apply(self, counts) * 1000


class Loud(Candidate):
    def score(self, true_values):
        return Candidate.score(self, true_values) * 1000


class Eager(NormChoice):
    def rate(self, table):
        return Fraction(1000)


class Told(Request):
    pass


def request(counted, kind=Request):
    return kind(name="n", counted=counted, noise="laplace", scale=Fraction(4))


def choose(candidate):
    competing = candidate(columns=("month",), estimate=lambda: np.zeros(12, np.int64))
    return Choice(name="c", candidates=(competing,), epsilon=Fraction(1))


NORMS = {"norms": (Fraction(1),), "quantile": Fraction(1, 2), "epsilon": Fraction(1)}
FORGED = {
    "kind": lambda: request(Small(("month",))),
    "queries": lambda: request(Marginal(("month",), Wide(**QUERIES, weights=np.ones(12, int)))),
    "request": lambda: request(Marginal(("month",)), Told),
    "candidate": lambda: choose(Loud),
    "choice": lambda: Eager(name="e", columns=("month",), **NORMS),
}


@pytest.fixture
def unread(project):
    """A charge that would pay, and records that must not be read."""
    curator = sf.open(project)
    table = curator.project.table("t")
    costs = (ask_cost(table, request(Marginal(("month",)))), ask_cost(table, choose(Candidate))) * 2
    bill = Bill(digest="d", description={}, tables="t", costs=costs, version=lambda _: "v", table=table)
    return Charged(bill, Stub("v", costs), ledger=Stub("v"), noise=None), Records(
        table, engine=None, progress=print
    )


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_refused_unread(unread, name, monkeypatch):
    with monkeypatch.context() as patch:
        # A request cannot even be made; what is made in another way is refused at the door all the same.
        patch.setattr(measurement, "check_kind", lambda question: None)
        forged = FORGED[name]()
    charge, records = unread
    with pytest.raises(ChargeKept, match=r"no kind of question|neither a request|no candidates"):
        charge.ask((forged,), records)
    assert not charge.drawn


class Forging(Fitted):
    def request(self, table, name, columns, epsilon):
        return request(Small(columns))


def test_a_recipe_with_a_kind_of_its_own_is_refused_and_nothing_is_spent(project):
    curator = sf.open(project)
    with pytest.raises(RecipeError, match="Small is no kind of question"):
        curator.release(Forging(table="t", columns=("month",), marginals=(("month",),)), epsilon=1, delta=0)
    assert curator.budget().spent == 0


def test_all_kinds_of_the_core_are_listed():
    kinds = {each for each in Question.__subclasses__() if each.__module__.startswith("sfumato.")}
    assert {each.__qualname__ for each in kinds} == {
        each.__qualname__ for each in (*measurement.COUNTS, *measurement.SUMS)
    }
