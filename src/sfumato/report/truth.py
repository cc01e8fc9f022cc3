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
from sfumato.report.pages.series import draw_scatter

if TYPE_CHECKING:
    from sfumato.core.ledger.report import BudgetReport


Record = dict[str, Any]

_MOST_CELLS = 2**20
_MOST_WORST = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrueCounts:
    """The exact counts by place and time, of single columns, and of the cells of the release."""

    map: NDArray[np.float64] | None = None
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    cells: tuple[tuple[Field, ...], NDArray[np.float64]] | None = None

    def count(self, fields: Sequence[Field]) -> NDArray[np.float64] | None:
        """Returns the exact counts of every combination of `fields`, if the cells tell them."""
        if self.cells is None or not set(fields) <= set(self.cells[0]):
            return None
        known, counts = self.cells
        others = tuple(axis for axis, each in enumerate(known) if each not in fields)
        left = [each for each in known if each in fields]
        return np.transpose(counts.sum(axis=others), [left.index(each) for each in fields])


NO_TRUTH = TrueCounts()
"""What is known of the truth when a report may be published."""


def choose_cells(facts: Facts, axes: Axes) -> tuple[Field, ...]:
    """Returns the columns that are compared cell by cell: all of a table of counts, else place and time."""
    shown = facts.shown
    if facts.weight is not None and math.prod(each.size for each in shown) <= _MOST_CELLS:
        return shown
    drawn = tuple(each for each in (axes.place, axes.time) if each is not None)
    return drawn if math.prod(each.size for each in drawn) <= _MOST_CELLS else drawn[:1]


def read_true_counts(given: Mapping[str, Any] | None, facts: Facts, axes: Axes) -> TrueCounts:
    """Returns the counts of a plain record, laid out as the release is.

    `truth` is by place and time (places alone without a time), `columns` has a list for each of some columns,
    `cells` names columns and has a flat list of their combinations. Each may be missing.
    """
    if given is None:
        return TrueCounts()
    placed = None
    if given.get("truth") is not None:
        if axes.place is None:
            raise RecipeError("a map of the truth needs a column of places")
        drawn = [axes.place] if axes.time is None else [axes.place, axes.time]
        placed = _lay_out(given["truth"], drawn, "map of the truth")
    columns = {}
    for name, counts in (given.get("columns") or {}).items():
        found = facts.field(name)
        if found is not None:
            columns[name] = _lay_out(counts, [found], f"true column {name!r}")
    cells = None
    if given.get("cells") is not None:
        fields = [facts.field(name) for name in given["cells"]["columns"]]
        known = tuple(each for each in fields if each is not None)
        if len(known) == len(fields):
            flat = np.asarray(given["cells"]["truth"], np.float64)
            shape = tuple(each.size for each in known)
            cells = (
                known,
                _lay_out(flat.reshape(shape) if flat.size == math.prod(shape) else flat, known, "true cells"),
            )
    return TrueCounts(map=placed, columns=columns, cells=cells)


def _lay_out(given: object, fields: Sequence[Field], name: str) -> NDArray[np.float64]:
    counts = np.asarray(given, np.float64)
    shape = tuple(each.size for each in fields)
    if counts.shape != shape:
        raise RecipeError(f"the {name} has the shape {counts.shape}, and the release {shape}")
    return counts


def describe_cells(facts: Facts, truth: TrueCounts) -> Record | None:
    """Released against true counts, cell by cell, and the cells that are farthest off."""
    if truth.cells is None:
        return None
    fields, true = truth.cells
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
        """The exact counts by place and time, if they were given."""
        return self.true.map

    @property
    def internal(self) -> bool:
        """Whether anything here comes from the truth."""
        true = self.true
        return bool(self.comparisons or true.columns) or true.map is not None or true.cells is not None
