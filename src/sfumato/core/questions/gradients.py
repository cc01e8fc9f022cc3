"""Sums of gradients of a small neural network, each individual held to a norm: what it is trained with.

The network is given as whole numbers. What one individual adds is computed in floating point, rounded to
whole numbers, and only then held to the norm, in whole numbers: the bound is certain, whatever floats do.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_positive
from sfumato.core.questions.question import L2, Question, Stated, digest_numbers
from sfumato.core.questions.residuals import freeze

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.law import Norm

GRADIENT_GRID = 2**20
"""The most that one individual adds, in L2, as a whole number: gradients are counted in parts of the clip."""
WEIGHT_GRID = 2**16
"""Weights of a network are whole multiples of 1 / WEIGHT_GRID."""
INPUT_GRID = 2**10
"""Inputs and targets are whole multiples of 1 / INPUT_GRID."""

MOST_WEIGHTS = 2**17
LARGEST_WEIGHT = 2**26  # in units of 1 / WEIGHT_GRID
_LARGEST_VALUE = 2**20
_TABLES = "the tables of gradients"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layers:
    """A network: `inputs`, then `hidden` units with tanh, then `outputs`; every unit has a constant, too.

    The outputs see the last hidden units. Weights are listed layer by layer; within one, unit by unit of
    the layer before, then the constants.

    >>> Layers(inputs=3, hidden=(4,), outputs=2).weights
    26
    """

    inputs: int
    hidden: tuple[int, ...]
    outputs: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of units from the inputs to the outputs."""
        return (self.inputs, *self.hidden, self.outputs)

    @property
    def weights(self) -> int:
        """The number of weights."""
        return sum((before + 1) * after for before, after in pairwise(self.sizes))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradients(Question):
    """The sum over individuals drawn of their gradients at `weights`, each held to the norm GRADIENT_GRID.

    `columns` are the inputs and, last, the target. A code of an input sets the input number `places` has for
    it to what `values` has, or none where the place is -1. `targets` has for every code of the target the
    class, or without `classes` the number to predict. The gradient of an individual is the sum over its
    records of the gradient of the loss, in units of `clip` / GRADIENT_GRID: cross-entropy of classes, half
    the squared error of numbers. Every individual is drawn with the probability `sampling`, independently.

    Privacy: one individual adds nothing if it is not drawn, and a vector of at most GRADIENT_GRID in L2 if it
    is, whatever its records are; proof in docs/proofs/network.md.
    """

    stated: ClassVar = Stated(bounding="gradient", tally="gradients", norms=L2, signed=True, sampled=True)
    queries: ClassVar[None] = None  # type: ignore[misc]

    columns: tuple[str, ...]
    places: tuple[NDArray[np.int64], ...]
    values: tuple[NDArray[np.int64], ...]
    targets: NDArray[np.int64]
    layers: Layers
    weights: NDArray[np.int64]
    clip: Fraction
    sampling: Fraction = Fraction(1)
    classes: bool = True

    def __post_init__(self) -> None:
        if len(self.columns) < 2 or len(set(self.columns)) != len(self.columns):
            raise RecipeError("gradients need an input and a target, none twice")
        if not len(self.places) == len(self.values) == len(self.columns) - 1:
            raise RecipeError("gradients need a table for every input")
        for name in ("places", "values"):
            most = self.layers.inputs - 1 if name == "places" else INPUT_GRID
            tables = tuple(
                freeze(each, _TABLES, least=-max(1, most), most=most) for each in getattr(self, name)
            )
            object.__setattr__(self, name, tables)
        if any(one.size != two.size for one, two in zip(self.places, self.values, strict=True)):
            raise RecipeError("gradients need a value for every code of an input")
        if any((each < -1).any() for each in self.places):
            raise RecipeError("the place of an input is -1 or one of its numbers")
        most = self.layers.outputs - 1 if self.classes else _LARGEST_VALUE
        least = 0 if self.classes else -_LARGEST_VALUE
        object.__setattr__(self, "targets", freeze(self.targets, _TABLES, least=least, most=most))
        weights = freeze(self.weights, _TABLES, most=LARGEST_WEIGHT)
        object.__setattr__(self, "weights", weights)
        if weights.size != self.layers.weights or weights.size > MOST_WEIGHTS:
            raise RecipeError(f"a network has a weight for every pair of units, {MOST_WEIGHTS:,} at most")
        object.__setattr__(self, "clip", Fraction(parse_positive(self.clip, name="clip")))
        rate = Fraction(parse_positive(self.sampling, name="sampling"))
        object.__setattr__(self, "sampling", rate)
        if not Fraction(1, 1000) <= rate <= 1:
            raise RecipeError("individuals are drawn with a probability from 1/1000 to 1")

    def grid(self, table: Table) -> int:
        """The denominator of the answers, which are in units of `clip`."""
        return GRADIENT_GRID

    def size(self, table: Table) -> int:
        """The number of answers."""
        return self.layers.weights

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        # Whatever the clip is: gradients are counted in parts of it.
        return Fraction(GRADIENT_GRID)

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        sizes = [table.column(name).size for name in self.columns]
        if [*(each.size for each in self.places), self.targets.size] != sizes:
            raise RecipeError("gradients need an entry for every code of a column")
        if self.sampling < 1 and table.unit.neighbours != "add-remove":
            raise RecipeError("what sampling gains is proved where an individual is added or removed")

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns: the network's size, and the digest of its numbers."""
        numbers = (*self.places, *self.values, self.targets, self.weights)
        return {
            "gradients": {
                "layers": list(self.layers.sizes),
                "clip": str(self.clip),
                "sampling": str(self.sampling),
                "sha256": digest_numbers(*numbers, about=[(self.layers.sizes, self.classes)]),
            }
        }
