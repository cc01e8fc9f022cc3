"""Released linear and logistic models: predictions from the codes of new data, from model.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Label
from sfumato.inference.models.design import number_values
from sfumato.inference.models.document import Family

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegressionModel:
    """A table of effects per column, by code, and a constant; of numbers also their `slopes`.

    A linear model predicts a number, held to the public `bounds` of its target; a logistic one the
    probability of the last of its two `classes`. A value that is unknown, of code -1, has the effect of the
    middle of the bounds, or of the label that was left out.
    """

    family: Family
    constant: float
    effects: Mapping[str, Floats]
    unknown: Mapping[str, float]
    slopes: Mapping[str, float]
    bounds: tuple[float, float] | None = None
    classes: tuple[Label, ...] = ()

    def predictors(self, codes: Mapping[str, NDArray[np.int64]], rows: int) -> Floats:
        """Return the constant and the effects of all columns, added up in their order."""
        found = np.full(rows, self.constant)
        for name, effects in self.effects.items():
            code = codes[name]
            found += np.where(code >= 0, effects[np.maximum(code, 0)], self.unknown[name])
        return found

    def numbers(self, codes: Mapping[str, NDArray[np.int64]], rows: int) -> Floats:
        """Return the number that is expected for every row."""
        assert self.bounds is not None
        return np.asarray(np.clip(self.predictors(codes, rows), *self.bounds))

    def probabilities(self, codes: Mapping[str, NDArray[np.int64]], rows: int) -> Floats:
        """Return the probability of both classes, one row for every row of new data."""
        held = np.clip(self.predictors(codes, rows), -30.0, 30.0)
        chances = 1.0 / (1.0 + np.exp(-held))
        return np.column_stack([1.0 - chances, chances])


def read_regression(document: Mapping[str, Any], columns: Mapping[str, Column]) -> RegressionModel:
    """Return the model that a model.json describes; `columns` are those of its inputs.

    >>> from sfumato.core.facts.column import parse_column
    >>> columns = {"sex": parse_column("sex", {"values": ["m", "f"]})}
    >>> terms = [{"column": None, "coefficient": 1.0}, {"column": "sex", "label": "f", "coefficient": 0.5}]
    >>> document = {"recipe": "linear", "bounds": ["0", "9"], "terms": terms}
    >>> read_regression(document, columns).numbers({"sex": np.array([0, 1, -1])}, 3).tolist()
    [1.0, 1.5, 1.0]
    """
    constant = 0.0
    effects = {name: np.zeros(column.size) for name, column in columns.items()}
    unknown = dict.fromkeys(columns, 0.0)
    slopes: dict[str, float] = {}
    for term in document["terms"]:
        name, coefficient = term["column"], float(term["coefficient"])
        if name is None:
            constant = coefficient
        elif "label" in term:
            place = columns[name].labels.index(term["label"])
            effects[name][place] += coefficient
        else:
            values = number_values(columns[name]) or []
            numbers = np.array([float(each) for each in values])
            slopes[name] = coefficient
            effects[name][: numbers.size] += coefficient * numbers
            middle = float(Fraction(term["low"]) + Fraction(term["high"])) / 2
            effects[name][numbers.size :] += coefficient * middle
            unknown[name] = coefficient * middle
    ends = document.get("bounds")
    return RegressionModel(
        family="classification" if ends is None else "regression",
        constant=constant,
        effects=effects,
        unknown=unknown,
        slopes=slopes,
        bounds=None if ends is None else (float(Fraction(ends[0])), float(Fraction(ends[1]))),
        classes=tuple(document.get("classes", ())),
    )
