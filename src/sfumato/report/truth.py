"""Exact counts that a report is compared with, as plain records from outside; with any, it is internal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.report.facts import Facts, estimate_counts
from sfumato.report.fields import Axes, Field
from sfumato.report.geography import AreaMap
from sfumato.report.pages.charts import draw_scatter

if TYPE_CHECKING:
    from sfumato.core.ledger.report import BudgetReport


Record = dict[str, Any]

_MOST_CELLS = 2**20
_MOST_WORST = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrueCounts:
    """Exact counts of the combinations of some columns, by the names of these."""

    tables: Mapping[tuple[str, ...], NDArray[np.float64]] = field(default_factory=dict)

    def count(self, fields: Sequence[Field]) -> NDArray[np.float64] | None:
        """Returns the exact counts of every combination of `fields`, if some table tells them."""
        names = [each.name for each in fields]
        known = min((each for each in self.tables if set(names) <= set(each)), key=len, default=None)
        if known is None:
            return None
        others = tuple(axis for axis, name in enumerate(known) if name not in names)
        left = [name for name in known if name in names]
        return np.transpose(self.tables[known].sum(axis=others), [left.index(name) for name in names])


NO_TRUTH = TrueCounts()
"""What is known of the truth when a report may be published."""


def choose_cells(facts: Facts, axes: Axes) -> tuple[Field, ...]:
    """Returns the columns that are compared cell by cell: all of a table of counts, else place and time."""
    shown = facts.shown
    if facts.weight is not None and math.prod(each.size for each in shown) <= _MOST_CELLS:
        return shown
    drawn = tuple(each for each in (axes.place, axes.time) if each is not None)
    return drawn if math.prod(each.size for each in drawn) <= _MOST_CELLS else drawn[:1]


def read_true_counts(given: Mapping[tuple[str, ...], Any] | None, facts: Facts) -> TrueCounts:
    """Returns counts by the names of columns, each laid out as the release is."""
    tables = {}
    for names, counts in (given or {}).items():
        shape = tuple(each.size for name in names if (each := facts.field(name)) is not None)
        tables[names] = np.asarray(counts, np.float64)
        if tables[names].shape != shape:
            raise RecipeError(
                f"the table of true counts by {', '.join(names)} has the shape {tables[names].shape}, and "
                f"the release {shape}"
            )
    return TrueCounts(tables=tables)


def describe_cells(facts: Facts, axes: Axes, truth: TrueCounts) -> Record | None:
    """Released against true counts, cell by cell, and the cells that are farthest off."""
    fields = choose_cells(facts, axes)
    true = truth.count(fields) if fields else None
    if true is None:
        return None
    released, half = facts.count(fields), estimate_counts(facts, fields).half
    off = released - true
    worst = np.argsort(-np.abs(off).ravel(), kind="stable")[:_MOST_WORST]
    rows = []
    for place in worst.tolist():
        codes = np.unravel_index(place, off.shape)
        labels = [each.labels[int(code)] for each, code in zip(fields, codes, strict=True)]
        rows.append(
            {
                "name": " · ".join(labels),
                "truth": float(true[codes]),
                "release": float(released[codes]),
                "off": float(off[codes]),
                "times": None if not half else abs(float(off[codes])) / half,
            }
        )
    label = "released against true counts of all cells"
    return {
        "columns": [each.name for each in fields],
        "drawing": draw_scatter(true.ravel(), released.ravel(), half, label),
        "rows": rows,
        "cells": int(off.size),
        "half": half,
        "mean": float(np.abs(off).mean()),
        "within": None if half is None else float((np.abs(off) <= half).mean()),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRelease:
    """A comparison with the truth as a plain record, of one epsilon or of the whole release."""

    epsilon: str | None
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportInput:
    """Everything that sections are made of; with `comparisons` or `true` counts the whole report is internal.

    `terse` leaves out what takes most room: names on tiles, long lists of values.
    """

    facts: Facts
    axes: Axes
    ledger: BudgetReport | None = None
    comparisons: tuple[JudgedRelease, ...] = ()
    true: TrueCounts = NO_TRUTH
    area_map: AreaMap | None = None
    terse: bool = False

    @property
    def true_map(self) -> NDArray[np.float64] | None:
        """The exact counts by place and time, as far as there are such columns, if they were given."""
        drawn = [each for each in (self.axes.place, self.axes.time) if each is not None]
        return self.true.count(drawn) if len(set(drawn)) == len(drawn) else None

    @property
    def internal(self) -> bool:
        """Whether anything here comes from the truth."""
        return bool(self.comparisons or self.true.tables)
