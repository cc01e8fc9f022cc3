"""Sums of gradients, individual by individual: each computed alone, rounded, and then held to its norm.

No individual's gradient is computed together with another's, as one product of matrices would do: there the
last bits of one may depend on who else is in it. Proof: docs/proofs/network.md.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN202
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sfumato.core.exact import Withheld
from sfumato.core.questions.gradients import GRADIENT_GRID, INPUT_GRID, WEIGHT_GRID

if TYPE_CHECKING:
    from sfumato.core.questions.gradients import Gradients

_SHRUNK = 1 - 2.0**-40  # so that nothing is over the norm because a square root was rounded


class TrueRecords(Withheld):
    """The codes of all records that have every one of some columns, each individual's together.

    Never leaves the private room.
    """

    def __init__(self, codes: Mapping[str, NDArray[Any]], numbers: NDArray[Any] | None) -> None:
        self._columns = tuple(codes)
        rows = len(next(iter(codes.values())))
        # How wide codes are stored follows from the domains, not from the records.
        narrow = all(each.dtype.itemsize == 1 for each in codes.values())
        self._codes = np.empty((rows, len(codes)), np.int16 if narrow else np.int32)
        for place, each in enumerate(codes.values()):
            self._codes[:, place] = each
        self._starts = np.arange(rows + 1)
        if numbers is not None:
            order = np.argsort(numbers, kind="stable")
            self._codes = self._codes[order]
            changes = np.flatnonzero(np.diff(numbers[order])) + 1
            self._starts = np.concatenate(([0], changes, [rows])) if rows else np.zeros(1, np.int64)

    @property
    def individuals(self) -> int:
        """How many individuals have a record here."""
        return self._starts.size - 1

    def sum_gradients(self, question: Gradients, drawn: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The sum of the gradients of the individuals that are `drawn`.

        Privacy: an individual adds a vector of whole numbers of at most GRADIENT_GRID in L2, which follows
        from its own records and from the question alone, or nothing if it is not drawn.
        """
        assert question.columns == self._columns
        assert drawn.size == self.individuals
        sums = np.zeros(question.layers.weights, np.int64)
        _add_gradients(
            self._codes,
            self._starts,
            np.flatnonzero(drawn),
            np.cumsum([0, *(each.size for each in question.places[:-1])]),
            np.concatenate(question.places),
            np.concatenate(question.values) / INPUT_GRID,
            question.targets,
            np.array(question.layers.sizes),
            question.weights / WEIGHT_GRID,
            GRADIENT_GRID / float(question.clip),
            GRADIENT_GRID,
            question.classes,
            sums,
        )
        return sums


@njit(cache=True, nogil=True)
def _add_gradients(
    codes, starts, drawn, firsts, places, values, targets, sizes, weights, unit, limit, classes, sums
):
    """Adds to `sums` the gradient of everybody drawn, in whole numbers, each of at most `limit` in L2."""
    inputs, outputs, width = sizes[0], sizes[-1], sizes[1]
    units = np.zeros(sizes[1:].sum())  # of all layers but the inputs, one after the other
    errors = np.zeros(units.size)
    gradient = np.zeros(weights.size)
    touched = np.zeros(inputs, np.bool_)
    listed = np.empty(inputs, np.int64)
    for individual in drawn:
        count = 0
        for row in range(starts[individual], starts[individual + 1]):
            record = codes[row]
            _forward(record, firsts, places, values, sizes, weights, units)
            top = units.size - outputs
            if classes:
                _soften(units[top:], errors[top:])
                errors[top + targets[record[-1]]] -= 1.0
            else:
                errors[top] = units[top] - targets[record[-1]] / INPUT_GRID
            _backward(sizes, weights, units, errors, gradient)
            for column in range(firsts.size):
                code = firsts[column] + record[column]
                place = places[code]
                if place < 0:
                    continue
                if not touched[place]:
                    touched[place] = True
                    listed[count] = place
                    count += 1
                for unit_of in range(width):
                    gradient[place * width + unit_of] += values[code] * errors[unit_of]
            for unit_of in range(width):
                gradient[inputs * width + unit_of] += errors[unit_of]
        _clip_and_add(gradient, listed[:count], inputs, width, unit, limit, sums)
        touched[listed[:count]] = False


@njit(cache=True, nogil=True)
def _forward(record, firsts, places, values, sizes, weights, units):
    """Sets `units` to what the network makes of one record, outputs as they are."""
    width = sizes[1]
    units[:width] = weights[sizes[0] * width : (sizes[0] + 1) * width]
    for column in range(firsts.size):
        code = firsts[column] + record[column]
        if places[code] >= 0:
            begin = places[code] * width
            for unit_of in range(width):
                units[unit_of] += values[code] * weights[begin + unit_of]
    before, begin = 0, (sizes[0] + 1) * width
    for layer in range(1, sizes.size - 1):
        size, after = sizes[layer], sizes[layer + 1]
        here = before + size
        units[before:here] = np.tanh(units[before:here])
        units[here : here + after] = weights[begin + size * after : begin + (size + 1) * after]
        for one in range(size):
            for other in range(after):
                units[here + other] += units[before + one] * weights[begin + one * after + other]
        before, begin = here, begin + (size + 1) * after


@njit(cache=True, nogil=True)
def _soften(scores, out):
    """Sets `out` to the probabilities that `scores` stand for."""
    out[:] = np.exp(scores - scores.max())
    out /= out.sum()


@njit(cache=True, nogil=True)
def _backward(sizes, weights, units, errors, gradient):
    """Carries `errors` of the outputs back, adding to `gradient` all but what the inputs weigh."""
    end, here = weights.size, units.size - sizes[-1]
    for layer in range(sizes.size - 2, 0, -1):
        size, after = sizes[layer], sizes[layer + 1]
        begin, before = end - (size + 1) * after, here - size
        for other in range(after):
            gradient[begin + size * after + other] += errors[here + other]
        for one in range(size):
            total = 0.0
            for other in range(after):
                total += errors[here + other] * weights[begin + one * after + other]
                gradient[begin + one * after + other] += errors[here + other] * units[before + one]
            errors[before + one] = total * (1.0 - units[before + one] ** 2)
        end, here = begin, before


@njit(cache=True, nogil=True)
def _clip_and_add(gradient, listed, inputs, width, unit, limit, sums):
    """Scales, rounds and holds one gradient to the limit, adds it to `sums`, and sets it to zero again.

    Whether it is within the limit is decided by the whole numbers that are added. If rounding took them
    beyond it, they are rounded towards zero instead, and if even that is beyond, nothing is added.
    """
    rest = inputs * width
    total = 0.0
    for place in listed:
        for one in range(place * width, (place + 1) * width):
            total += gradient[one] ** 2
    for one in range(rest, gradient.size):
        total += gradient[one] ** 2
    norm = np.sqrt(total) * unit
    factor = unit if norm <= limit else unit * (limit / norm) * _SHRUNK
    for towards_zero in (False, True):
        square = np.int64(0)
        for place in listed:
            for one in range(place * width, (place + 1) * width):
                square += _rounded(gradient[one] * factor, towards_zero) ** 2
        for one in range(rest, gradient.size):
            square += _rounded(gradient[one] * factor, towards_zero) ** 2
        if square <= limit * limit:
            for place in listed:
                for one in range(place * width, (place + 1) * width):
                    sums[one] += _rounded(gradient[one] * factor, towards_zero)
            for one in range(rest, gradient.size):
                sums[one] += _rounded(gradient[one] * factor, towards_zero)
            break
    for place in listed:
        gradient[place * width : (place + 1) * width] = 0.0
    gradient[rest:] = 0.0


@njit(cache=True, nogil=True)
def _rounded(value, towards_zero):
    return np.int64(np.trunc(value) if towards_zero else np.rint(value))
