"""Predictions from model.json: the numbers of the formula, and something sensible for what is unknown."""

import json

import numpy as np
import pytest

from sfumato.core.facts.column import parse_column
from sfumato.inference.models.linear import read_regression

COLUMNS = {
    "age": parse_column("age", {"range": [20, 60], "missing_label": "unknown"}),
    "sex": parse_column("sex", {"values": ["m", "f"]}),
}
TERMS = [
    {"column": None, "coefficient": -2.0},
    {"column": "age", "low": "20", "high": "60", "coefficient": 0.1},
    {"column": "age", "label": "unknown", "coefficient": 0.7},
    {"column": "sex", "label": "f", "coefficient": -0.5},
]


def model(**facts):
    return read_regression(json.loads(json.dumps({"terms": TERMS, **facts})), COLUMNS)


def test_numbers_follow_the_formula():
    linear = model(recipe="linear", bounds=["-1", "10"])
    codes = {"age": np.array([0, 40, 41, -1]), "sex": np.array([0, 1, 0, -1])}
    # 20 years and male; 60 and female; missing, which is the middle and its own effect; both unknown.
    assert linear.predictors(codes, 4).tolist() == pytest.approx([0.0, 3.5, 2.7, 2.0])
    assert linear.numbers({"age": np.array([0]), "sex": np.array([1])}, 1).tolist() == pytest.approx([-0.5])


def test_probabilities_are_those_of_the_link():
    logistic = model(recipe="logistic", classes=["no", "yes"])
    chances = logistic.probabilities({"age": np.array([0, 40]), "sex": np.array([0, 1])}, 2)
    assert chances.sum(axis=1).tolist() == pytest.approx([1, 1])
    assert chances[:, 1].tolist() == pytest.approx([0.5, 1 / (1 + np.exp(-3.5))])
