"""What all sections of a report are told: the release, and what else was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.accounting import BudgetReport
    from sfumato.report.axes import Axes
    from sfumato.report.facts import Facts

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison with the truth as a plain record, of one epsilon or of the whole release."""

    epsilon: str | None
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Story:
    """Everything that is told; with `comparisons` or `true_map` the whole report is internal.

    `terse` leaves out what takes most room: names on tiles, long lists of values.
    """

    facts: Facts
    axes: Axes
    ledger: BudgetReport | None = None
    comparisons: tuple[Comparison, ...] = ()
    true_map: NDArray[np.float64] | None = None
    terse: bool = False

    @property
    def internal(self) -> bool:
        """Whether anything here comes from the truth."""
        return bool(self.comparisons) or self.true_map is not None


def read_comparisons(given: Record | Sequence[Record] | None) -> tuple[Comparison, ...]:
    """The comparisons that were given: one record, or one per epsilon; the best epsilon comes last."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return (Comparison(epsilon=None, record=given),)
    told = []
    for entry in given:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("comparison"), Mapping):
            raise RecipeError("a list of comparisons holds {'epsilon': ..., 'comparison': {...}} entries")
        told.append(Comparison(epsilon=str(entry.get("epsilon")), record=entry["comparison"]))
    return tuple(sorted(told, key=lambda each: _number(each.epsilon)))


def read_maps(given: Record | None, axes: Axes) -> NDArray[np.float64] | None:
    """The exact counts by place and time (places alone without a time), laid out as the axes are."""
    if given is None:
        return None
    if axes.place is None:
        raise RecipeError("a map of the truth needs a column of places")
    counts = np.asarray(given["truth"], np.float64)
    shape = (axes.place.size,) if axes.time is None else (axes.place.size, axes.time.size)
    if counts.shape != shape:
        raise RecipeError(f"the map of the truth has the shape {counts.shape}, and the release {shape}")
    return counts


def _number(text: str | None) -> Fraction:
    try:
        return Fraction(text or 0)
    except (ValueError, ZeroDivisionError):
        return Fraction(0)
