"""Moments: which products are asked, and that no record adds more than the stated norm."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import Request, request_sensitivity
from sfumato.core.questions.moments import SCORE_GRID, LinkWeights, Moments

ENDS = np.array([[-SCORE_GRID], [0], [SCORE_GRID]])
LABELS = np.eye(3, dtype=np.int64)[:, 1:] * SCORE_GRID
SPEC = {"a": {"range": [0, 2]}, "b": {"values": ["x", "y", "z"]}, "c": {"range": [0, 2]}}


def describe(**facts):
    return parse_table("t", {"source": "t.parquet", "unit": "row", "columns": SPEC, **facts})


def answers_of(question, codes):
    """What one record adds, by the definition."""
    rows = [scores[code] for scores, code in zip(question.scores, codes, strict=True)]
    features = [SCORE_GRID, *np.concatenate(rows).tolist()]
    weight = 1
    if question.link is not None:
        link = question.link
        place = sum(int(offsets[code]) for offsets, code in zip(link.offsets, codes, strict=True))
        half = link.weights.shape[1] // 2
        level = min(max(place >> link.shift, -half), half - 1) + half
        weight = int(link.weights[link.branches[codes[-1]], level])
    if question.order == 1:
        return [weight * each for each in features]
    return [weight * features[one] * features[other] for one, other in question.pairs]


def test_products_that_say_nothing_are_not_asked():
    question = Moments(columns=("a", "b"), scores=(ENDS, LABELS))
    assert question.features == 4
    # No square of a label, which is its own sum, and no product of two labels of one column.
    assert question.pairs == ((0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3))


@given(
    scores=st.lists(
        st.lists(
            st.lists(st.integers(-SCORE_GRID, SCORE_GRID), min_size=2, max_size=2), min_size=1, max_size=3
        ),
        min_size=1,
        max_size=3,
    ),
    order=st.sampled_from([1, 2]),
)
def test_no_record_adds_more_than_the_norm(scores, order):
    columns = tuple(f"c{place}" for place in range(len(scores)))
    question = Moments(columns=columns, scores=tuple(map(np.array, scores)), order=order)
    for codes in itertools.product(*(range(len(each)) for each in scores)):
        assert sum(each**2 for each in answers_of(question, codes)) <= question.most_of_record


def test_the_norm_is_reached():
    question = Moments(columns=("a", "b", "c"), scores=(ENDS, LABELS, ENDS))
    most = max(
        sum(each**2 for each in answers_of(question, codes))
        for codes in itertools.product(range(3), repeat=3)
    )
    assert most == question.most_of_record
    # Constant, two numbers and a label: all ten products but the square of the label.
    assert most == 9 * SCORE_GRID**4


def test_weights_of_a_link_enter_the_norm():
    link = LinkWeights(
        offsets=(np.array([0, 5, -5]), np.zeros(3, np.int64)),
        branches=np.array([0, 1, 1]),
        weights=np.array([[1, 2], [-700, 3]]),
        shift=0,
    )
    question = Moments(columns=("a", "c"), scores=(ENDS, np.zeros((3, 0), np.int64)), link=link)
    assert question.most_of_record == 700**2 * 3 * SCORE_GRID**4
    assert max(abs(each) for each in answers_of(question, (2, 1))) == 700 * SCORE_GRID**2


@pytest.mark.parametrize(
    ("facts", "factor"),
    [
        ({}, 1),
        ({"neighbours": "replace"}, 2),
        ({"unit": "p", "max_records": 5}, 5),
        ({"unit": "p", "max_records": 5, "bounding": "weight"}, 5 * 2**10),
    ],
)
def test_an_individual_counts_for_all_its_records(facts, factor):
    question = Moments(columns=("a", "c"), scores=(ENDS, ENDS))
    request = Request(name="m", counted=question, noise="gaussian", scale=Fraction(1))
    found = float(request_sensitivity(describe(**facts), request))
    assert math.isclose(found, factor * math.sqrt(6) * SCORE_GRID**2, rel_tol=1e-12)


@pytest.mark.parametrize(
    "scores",
    [
        (ENDS * 2,),
        (ENDS / 2,),
        (ENDS, ENDS),
        (np.zeros((3, 2000), np.int64),),
        (np.zeros((0, 1), np.int64),),
    ],
)
def test_tables_beyond_their_bounds_are_refused(scores):
    with pytest.raises(RecipeError):
        Moments(columns=("a",), scores=scores)


def test_laplace_noise_is_refused():
    question = Moments(columns=("a",), scores=(ENDS,))
    with pytest.raises(RecipeError, match="gaussian"):
        Request(name="m", counted=question, noise="laplace", scale=Fraction(1))
