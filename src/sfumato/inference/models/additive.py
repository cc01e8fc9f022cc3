"""A released additive model: lookup tables of whole numbers, from codes to scores to predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from sfumato.core.exact import format_exact, parse_exact
from sfumato.inference.models.document import Family
from sfumato.tables.arrays import Floats, Whole

SCORE_UNITS = 256
"""Scores under a link are whole multiples of 1 / SCORE_UNITS."""
_FAR = 8  # log odds beyond which a chance is as good as certain


def logistic_table(scale: int) -> tuple[int, Whole]:
    """Return the lowest score, and the probability of a class from it on, in units of 1 / scale.

    >>> low, values = logistic_table(4096)
    >>> low, int(values[-low]), int(values[0]), values.size
    (-2048, 2048, 1, 4097)
    """
    scores = np.arange(-_FAR * SCORE_UNITS, _FAR * SCORE_UNITS + 1)
    return int(scores[0]), np.rint(scale / (1 + np.exp(-scores / SCORE_UNITS))).astype(np.int64)


def weight_table(scale: int) -> tuple[int, Whole]:
    """As `logistic_table`, p (1 - p) in place of p."""
    low, values = logistic_table(scale)
    shares = values / scale
    return low, np.rint(scale * shares * (1 - shares)).astype(np.int64)


def exponential_table(scale: float, *, least: float, most: float) -> tuple[int, Whole]:
    """The lowest score, and the expected number from it on, from `least` to `most`, in units of 1 / scale."""
    low, high = (int(np.floor(np.log(each) * SCORE_UNITS)) for each in (least, most))
    scores = np.arange(low, max(high, low + 1) + 1)
    return low, np.rint(scale * np.exp(scores / SCORE_UNITS)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """What one term adds to a score, by cell of its columns, and the standard deviation of that.

    Both are whole multiples of the model's unit of scores.
    """

    columns: tuple[str, ...]
    scores: Whole
    deviations: Whole


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Score:
    """An intercept and the shapes that are added to it; of one class where there are several."""

    intercept: int
    shapes: tuple[Shape, ...]

    def apply(self, codes: Mapping[str, Whole], sizes: Mapping[str, int], rows: int) -> Whole:
        """Return scores of `rows` records; a code below zero, for a value that is not known, adds nothing."""
        total = np.full(rows, self.intercept, np.int64)
        for shape in self.shapes:
            cells = np.zeros(rows, np.int64)
            known = np.ones(rows, np.bool_)
            for name in shape.columns:
                cells = cells * sizes[name] + codes[name]
                known &= codes[name] >= 0
            total += np.where(known, shape.scores[np.where(known, cells, 0)], 0)
        return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdditiveModel:
    """An additive model as it is released.

    `sizes` is the number of codes of every column. Of a classification `classes` are the labels, and there is
    a score for the second of two classes, or one for each of more. Of others the prediction is low + unit *
    score, or its exponential times one under the log link of counts, held between low and high.
    """

    family: Family
    sizes: Mapping[str, int]
    scores: tuple[Score, ...]
    classes: tuple[int | str, ...] = ()
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)
    unit: Fraction = Fraction(1, SCORE_UNITS)

    def probabilities(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Return the probability of every class, one row for every record."""
        found = [
            1 / (1 + np.exp(-np.clip(each.apply(codes, self.sizes, rows) * float(self.unit), -30, 30)))
            for each in self.scores
        ]
        if len(found) == 1:
            return np.stack([1 - found[0], found[0]], axis=1)
        together = np.stack(found, axis=1)
        return np.asarray(together / together.sum(axis=1, keepdims=True))

    def numbers(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Return the number that is expected for every record."""
        (score,) = self.scores
        scores = score.apply(codes, self.sizes, rows) * float(self.unit)
        numbers = np.exp(np.clip(scores, -700, 700)) if self.family == "counts" else float(self.low) + scores
        return np.asarray(np.clip(numbers, float(self.low), float(self.high)))

    def to_record(self) -> dict[str, Any]:
        """Return the model as plain data that reads back, beside its family, as the same model."""
        return {
            "unit": format_exact(self.unit),
            **({"classes": list(self.classes)} if self.classes else {}),
            **({} if self.classes else {"low": format_exact(self.low), "high": format_exact(self.high)}),
            "scores": [
                {
                    "intercept": each.intercept,
                    "terms": [
                        {
                            "columns": list(shape.columns),
                            "scores": shape.scores.tolist(),
                            "deviations": shape.deviations.tolist(),
                        }
                        for shape in each.shapes
                    ],
                }
                for each in self.scores
            ],
        }


def label_cells(labels: Sequence[Sequence[int | str]]) -> list[str]:
    """Return the labels of all cells of one column or two.

    >>> label_cells([["a", "b"], [1, 2]])
    ['a, 1', 'a, 2', 'b, 1', 'b, 2']
    """
    return [", ".join(map(str, cell)) for cell in product(*labels)]


def read_model(record: Mapping[str, Any], sizes: Mapping[str, int]) -> AdditiveModel:
    """Return the model that `record` describes, over columns of these `sizes`."""
    scores = tuple(
        Score(
            intercept=int(each["intercept"]),
            shapes=tuple(
                Shape(
                    columns=tuple(term["columns"]),
                    scores=np.array(term["scores"], np.int64),
                    deviations=np.array(term["deviations"], np.int64),
                )
                for term in each["terms"]
            ),
        )
        for each in record["scores"]
    )
    numbers = (
        {}
        if "classes" in record
        else {key: Fraction(parse_exact(record[key], name=key)) for key in ("low", "high")}
    )
    return AdditiveModel(
        family=record["family"],
        sizes=sizes,
        scores=scores,
        classes=tuple(record.get("classes", ())),
        unit=Fraction(parse_exact(record["unit"], name="unit")),
        **numbers,
    )
