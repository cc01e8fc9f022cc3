"""Sums of residuals as questions: what is refused, what an individual adds, what is told."""

from fractions import Fraction

import numpy as np
import pytest

from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import Request, request_sensitivity
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import Link, Residuals, Term


def describe(neighbours="add-remove", bounding="truncate", most=3):
    columns = {"a": {"range": [0, 3]}, "y": {"values": ["no", "yes"]}}
    spec = {"source": "t.parquet", "unit": "p", "max_records": most, "neighbours": neighbours}
    return parse_table("t", {**spec, "bounding": bounding, "columns": columns})


def ask(**options):
    facts = {"columns": ("a",), "known": ("a", "y"), "target": "y", "targets": np.array([0, 50]), "clip": 40}
    return Residuals(**{**facts, **options})


def weights(*rows, grid=10):
    dense = np.array(rows)
    size = dense.shape[1]
    return Queries(
        cells=size,
        grid=grid,
        starts=np.arange(len(rows) + 1) * size,
        members=np.tile(np.arange(size), len(rows)),
        weights=dense.reshape(-1),
    )


@pytest.mark.parametrize(
    ("neighbours", "factor"), [("add-remove", 1), ("replace", 2)], ids=["added", "replaced"]
)
def test_the_sensitivity_is_records_times_clip_times_the_norm(neighbours, factor):
    table = describe(neighbours)
    plain = Request(name="r", counted=ask(), noise="laplace", scale=Fraction(1))
    assert request_sensitivity(table, plain) == factor * 3 * 40
    queries = weights([6, 6, 6, 6], [8, -8, 8, -8])
    based = Request(name="r", counted=ask(queries=queries), noise="gaussian", scale=Fraction(1))
    # Residuals have signs, so that two individuals in L2 may be opposite to each other.
    assert request_sensitivity(table, based) == factor * 3 * 40 * 10


def test_weighted_records_are_bounded_by_their_weights():
    table = describe(bounding="weight")
    assert ask().contribution(table, "L2") == 3 * 40 * table.grid
    assert ask().grid(table) == table.grid


def test_a_basis_longer_than_one_is_refused():
    with pytest.raises(RecipeError, match="L2 norm above 1"):
        weights([8, 8, 8, 8], [8, 8, 8, 8])


def test_queries_that_overlap_need_gaussian_noise():
    with pytest.raises(RecipeError, match="gaussian"):
        Request(name="r", counted=ask(queries=weights([6, 6, 6, 6])), noise="laplace", scale=Fraction(1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clip": 0}, "clipped"),
        ({"clip": 2**21}, "clipped"),
        ({"targets": np.array([0.5, 1.0])}, "whole numbers"),
        ({"targets": np.array([0, 2**41])}, "must lie from"),
        ({"known": ("a",)}, "need not have"),
        ({"columns": ("a", "a")}, "by no column"),
        ({"intercept": 2**41}, "at most"),
    ],
)
def test_what_cannot_be_asked_is_refused(options, words):
    with pytest.raises(RecipeError, match=words):
        ask(**options)


def test_a_term_has_one_column_or_two():
    with pytest.raises(RecipeError, match="one column or two"):
        Term(columns=("a", "b", "c"), scores=np.array([1]))


@pytest.mark.parametrize(
    "options",
    [
        {"targets": np.array([0, 1, 2])},
        {"terms": (Term(columns=("a",), scores=np.arange(3)),)},
        {"queries": weights([1, 1, 1])},
    ],
    ids=["targets", "scores", "queries"],
)
def test_tables_of_another_size_are_refused(options):
    with pytest.raises(RecipeError):
        ask(**options).check(describe())


def test_the_model_is_told_by_its_digest():
    one = ask(terms=(Term(columns=("a",), scores=np.arange(4)),)).to_record()["residuals"]
    two = ask(terms=(Term(columns=("a",), scores=np.array([0, 1, 2, 4])),)).to_record()["residuals"]
    link = ask(link=Link(low=0, values=np.arange(9))).to_record()["residuals"]
    assert len({each["sha256"] for each in (one, two, link)}) == 3
    assert one["clip"] == 40
    assert one["terms"] == 1


def test_what_was_given_may_still_be_written_to():
    scores = np.arange(4)
    term = Term(columns=("a",), scores=scores)
    scores[0] = 99
    assert term.scores.tolist() == [0, 1, 2, 3]
    assert not term.scores.flags.writeable
