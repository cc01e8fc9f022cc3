"""Small neural networks in whole numbers: how they start, how noisy gradients move them, what they predict.

Training is elementwise arithmetic in one order: the same noisy sums give the same weights, bit by bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Label
from sfumato.inference.models.design import Design, design_columns, number_values
from sfumato.inference.models.document import Family
from sfumato.tables.arrays import Floats, Whole

_MOMENTUM = 0.9  # the usual one; it averages the noise of about ten steps
_WIDE = 1000  # from the least to the largest number of a column


def design_inputs(columns: Mapping[str, Column], *, categorical: Sequence[str], grid: int) -> Design:
    """The features of `columns`; numbers that may lie far apart, and not below 0, on a scale of logarithms.

    Amounts of money are mostly small against their bounds, and would all look alike to a network.
    """
    design = design_columns(columns, categorical=categorical, grid=grid)
    wide = {term.column for term in design.terms if term.is_number and 0 <= term.low <= term.high - _WIDE}
    scores = []
    for name, plain in zip(design.columns, design.scores, strict=True):
        numbers = number_values(columns[name])
        if name in wide and numbers is not None:
            amounts = np.array([float(each) for each in numbers])
            logs = np.log1p(amounts - amounts.min())
            plain[: logs.size, 0] = np.rint((2.0 * logs / logs.max() - 1.0) * grid)
        scores.append(plain)
    return replace(design, scores=tuple(scores))


def list_inputs(design: Design) -> tuple[tuple[Whole, ...], tuple[Whole, ...]]:
    """For every column, by code, the input that it sets (-1 if none) and what to: one input at most."""
    places, values, first = [], [], 0
    for scores in design.scores:
        used = scores != 0
        assert used.sum(axis=1).max(initial=0) <= 1
        place = np.where(used.any(axis=1), first + used.argmax(axis=1), -1) if scores.shape[1] else None
        places.append(np.full(scores.shape[0], -1) if place is None else place)
        values.append(scores.sum(axis=1))
        first += scores.shape[1]
    return tuple(places), tuple(values)


def first_weights(sizes: Sequence[int], *, columns: int, constants: Whole, grid: int, seed: int) -> Whole:
    """Return the weights before the first step: hidden ones spread evenly, of the outputs only `constants`.

    Hidden units begin with about the variance 1 where every column sets an input to 1 or -1. The spread comes
    from a digest of the public `seed`, which every platform computes alike.

    >>> first_weights((2, 1), columns=2, constants=np.array([5]), grid=8, seed=0).tolist()
    [0, 0, 5]
    """
    layers = []
    for place, (before, after) in enumerate(pairwise(sizes)):
        count = (before + 1) * after
        if place == len(sizes) - 2:
            layers.append(np.concatenate([np.zeros(before * after, np.int64), constants]))
            continue
        text = hashlib.shake_128(f"sfumato network {seed} {place}".encode()).digest(4 * count)
        words = np.frombuffer(text, "<u4").astype(np.float64)
        reach = np.sqrt(3.0 / ((columns if place == 0 else before) + 1)) * grid
        layers.append(np.rint((words / 2.0**31 - 1.0) * reach).astype(np.int64))
    return np.concatenate(layers)


class Descent:
    """Gradient descent with momentum; the model is the average of the weights of its later steps.

    `weights` are whole multiples of 1 / `grid` and stay within `most`. `pace` is what one step moves a weight
    by for a mean gradient of one clip, once momentum has gathered.
    """

    def __init__(self, weights: Whole, *, grid: int, pace: float, most: int) -> None:
        self.weights = weights
        self._factor = pace * (1.0 - _MOMENTUM) * grid
        self._most = most
        self._exact = weights.astype(np.float64)
        self._speed = np.zeros(weights.size)
        self._sum = np.zeros(weights.size, np.int64)
        self._summed = 0

    def step(self, gradient: Floats, *, averaged: bool) -> None:
        """Moves against the noisy mean `gradient`, in units of the clip."""
        self._speed = self._speed * _MOMENTUM + gradient
        self._exact = np.clip(self._exact - self._speed * self._factor, -self._most, self._most)
        self.weights = np.rint(self._exact).astype(np.int64)
        if averaged:
            self._sum = self._sum + self.weights
            self._summed += 1

    def average(self) -> Whole:
        """Return the mean weights of the steps that were averaged."""
        return np.rint(self._sum / max(self._summed, 1)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkModel:
    """A network with its weights: by layer a matrix whose last row are the constants.

    An unknown value, of code -1, sets no input: a number counts as the middle of its bounds, a label as the
    one that was left out. A number is predicted in [-1, 1] and stretched to the `bounds` of the target.
    """

    family: Family
    columns: tuple[str, ...]
    places: tuple[Whole, ...]
    values: tuple[Floats, ...]
    layers: tuple[Floats, ...]
    classes: tuple[Label, ...] = ()
    bounds: tuple[float, float] | None = None

    def outputs(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Return what the last layer gives for every row."""
        first = self.layers[0]
        units = np.tile(first[-1], (rows, 1))
        for name, places, values in zip(self.columns, self.places, self.values, strict=True):
            # A last entry for unknown values: code -1 finds it.
            place, value = np.append(places, -1)[codes[name]], np.append(values, 0.0)[codes[name]]
            units += np.where(place >= 0, value, 0.0)[:, None] * first[np.maximum(place, 0)]
        for layer in self.layers[1:]:
            units = np.tanh(units) @ layer[:-1] + layer[-1]
        return np.asarray(units)

    def numbers(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Return the number that is expected for every row."""
        assert self.bounds is not None
        low, high = self.bounds
        found = (low + high) / 2 + self.outputs(codes, rows)[:, 0] * (high - low) / 2
        return np.asarray(np.clip(found, low, high))

    def probabilities(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Return the probability of every class, one row for every row of new data."""
        scores = self.outputs(codes, rows)
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def read_network(document: Mapping[str, Any], columns: Mapping[str, Column]) -> NetworkModel:
    """Return the network that a model.json describes; `columns` are those of its inputs."""
    grid = int(document["weight_grid"])
    design = design_inputs(columns, categorical=document["categorical"], grid=int(document["input_grid"]))
    places, values = list_inputs(design)
    layers = tuple(np.array(each, np.float64) / grid for each in document["layers"])
    ends = document.get("bounds")
    classes = tuple(document.get("classes", ()))
    sizes = [sum(each.shape[1] for each in design.scores), *(each.shape[1] for each in layers)]
    if [each.shape[0] - 1 for each in layers] != sizes[:-1] or sizes[-1] != (len(classes) or 1):
        raise ValueError("layers that do not fit each other")
    return NetworkModel(
        family="regression" if ends else "classification",
        columns=tuple(columns),
        places=places,
        values=tuple(each / int(document["input_grid"]) for each in values),
        layers=layers,
        classes=classes,
        bounds=None if ends is None else (float(Fraction(ends[0])), float(Fraction(ends[1]))),
    )
