"""Additive models in use: scores from lookup tables, links, bounds, and records that read back."""

from fractions import Fraction

import numpy as np
import pytest

from sfumato.inference.models.additive import SCORE_UNITS, AdditiveModel, Score, Shape, read_model

SIZES = {"a": 3, "b": 2}


def shape(columns, scores):
    values = np.array(scores, np.int64)
    return Shape(columns=columns, scores=values, deviations=np.abs(values))


def score(intercept=10):
    return Score(
        intercept=intercept,
        shapes=(
            shape(("a",), [1, 2, 3]),
            shape(("b",), [0, 100]),
            shape(("a", "b"), [0, 1000, 2000, 3000, 4000, 5000]),
        ),
    )


def codes(**columns):
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def test_scores_add_up_over_columns_and_pairs_of_them():
    found = score().apply(codes(a=[0, 1, 2], b=[1, 0, 1]), SIZES, 3)
    assert found.tolist() == [10 + 1 + 100 + 1000, 10 + 2 + 0 + 2000, 10 + 3 + 100 + 5000]


def test_a_value_that_is_not_known_adds_nothing_anywhere():
    found = score().apply(codes(a=[-1, 2], b=[1, -1]), SIZES, 2)
    assert found.tolist() == [10 + 100, 10 + 3]


def test_two_classes_have_one_score_and_several_have_one_each():
    given = codes(a=[0, 2], b=[0, 1])
    two = AdditiveModel(family="classification", sizes=SIZES, scores=(score(0),), classes=("n", "y"))
    chances = two.probabilities(given, 2)
    assert np.allclose(chances[:, 1], 1 / (1 + np.exp(-np.array([1, 5103]) / SCORE_UNITS)))
    three = AdditiveModel(
        family="classification", sizes=SIZES, scores=(score(), score(), score(-5000)), classes=(1, 2, 3)
    )
    chances = three.probabilities(given, 2)
    assert np.allclose(chances.sum(axis=1), 1)
    assert np.allclose(chances[:, 0], chances[:, 1])


@pytest.mark.parametrize("family", ["regression", "counts"])
def test_numbers_stay_within_their_bounds(family):
    model = AdditiveModel(
        family=family,
        sizes=SIZES,
        scores=(score(),),
        low=Fraction(2),
        high=Fraction(30),
        unit=Fraction(1, 100),
    )
    found = model.numbers(codes(a=[0, 2, -1], b=[0, 1, -1]), 3)
    assert found.min() >= 2
    assert found.max() == 30
    if family == "regression":
        assert np.allclose(found[[0, 2]], [2.11, 2.10])


@pytest.mark.parametrize("classes", [(), ("no", "yes")])
def test_a_model_reads_back_as_itself(classes):
    family = "classification" if classes else "regression"
    model = AdditiveModel(family=family, sizes=SIZES, scores=(score(),), classes=classes, high=Fraction(7, 3))
    again = read_model({"family": family, **model.to_record()}, SIZES)
    assert again.to_record() == model.to_record()
    given = codes(a=[0, 1], b=[1, 1])
    assert again.scores[0].apply(given, SIZES, 2).tolist() == model.scores[0].apply(given, SIZES, 2).tolist()
