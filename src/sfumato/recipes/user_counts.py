"""Counts of individuals by cell and by how many records they have there, added up to counts of records.

The manner is that of SynCity in a contest about incidents in a city, with noise for what one individual
really moves: not one answer, but one in every cell it is counted in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_whole
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Tuples, Values
from sfumato.core.facts.table import Table
from sfumato.core.questions.counts import IndividualCounts
from sfumato.core.questions.measurement import Measurement, Request
from sfumato.recipes.base import MOST_ANSWERS, Plan
from sfumato.recipes.shared.counts import (
    CountOptions,
    Noise,
    check_noise,
    describe_threshold,
    finish_counts,
    request_counts,
)
from sfumato.recipes.shared.public import (
    locate_rows,
    number_individuals,
    open_public,
    pack_numbers,
    parse_public,
    unpack_numbers,
)
from sfumato.tables.arrays import Whole
from sfumato.tables.codes import encode_public

if TYPE_CHECKING:
    import pyarrow as pa


Rounding = Literal["after", "before"]

MOST_TIMES = 2**20 - 1

# A pair is held as one number, cell * _PAIR + times; times 0 stands for the cell alone.
_PAIR = MOST_TIMES + 1
_MOST_PACKED = 2**30  # bytes, 2^27 pairs: more questions than a release may have answers
_REACH = 3  # neighbouring periods on either side, by default
_MOST_REACH = 10**6
_MOST_CELLS = 10**9  # of the table; codes of cells have 64 bits
_LARGEST_SUM = 2**62  # of noisy counts times records, which are added up in 64 bits
_FAR = 128  # no noise is so many scales away from 0, but with a chance of e^-128


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCounts(CountOptions):
    """A histogram of records over the columns `by`, made of noisy counts of individuals.

    Individuals are counted by cell and by how many records they have there; each number of individuals,
    times the records they have, is added back to its cell. `times` are asked about in every cell that is
    asked about: those of the list `asked`, those of the table `public` (with the numbers of records that
    occur there), or all. `period` is a column of `by` along which cells up to `reach` codes away are asked
    about too. `rounding` says whether numbers below zero become 0 after adding up or before.

    Privacy: an individual is counted in at most `max_cells` cells, chosen by its own records, and once in
    each: max_cells in L1, its square root in L2 (docs/proofs/user-counts.md).

    >>> UserCounts(table="incidents", by=("district", "month"), max_cells=3).times
    (1, 2)
    """

    kind: ClassVar[str] = "user-counts"
    own_bound: ClassVar[str] = "max_cells"

    max_cells: int | None = None
    noise: Noise = "auto"
    times: Sequence[int] = (1, 2)
    public: Any = None
    asked: Any = None
    period: str | None = None
    reach: int | None = None
    rounding: Rounding = "after"
    threshold: Any = 0

    def __post_init__(self) -> None:
        CountOptions.__post_init__(self)
        check_noise(self.noise, kind=self.kind)
        if self.max_cells is not None:
            self._keep(max_cells=parse_whole(self.max_cells, name="user-counts: max_cells", high=_MOST_CELLS))
        self._keep(
            public=parse_public(self.public, where="user-counts: public", holds="pairs"),
            asked=parse_public(self.asked, where="user-counts: asked", holds="pairs"),
        )
        if self.public is not None and self.asked is not None:
            raise RecipeError("user-counts: cells are asked about by public or by asked, not by both")
        self._set_times()
        self._set_reach()
        if self.rounding not in ("after", "before"):
            raise RecipeError(f"user-counts: rounding must be after or before, got {self.rounding!r}")

    def _set_times(self) -> None:
        if not isinstance(self.times, (list, tuple)):
            raise RecipeError("user-counts: times must be a list of numbers of records, such as [1, 2]")
        times = {parse_whole(each, name="user-counts: times", high=MOST_TIMES) for each in self.times}
        if len(times) != len(self.times) or not (times or self.public is not None):
            raise RecipeError("user-counts: times must list at least one number of records, and none twice")
        self._keep(times=tuple(sorted(times)))

    def _set_reach(self) -> None:
        if self.period is None:
            if self.reach is not None:
                raise RecipeError(
                    "user-counts: reach needs period, the column of by whose neighbouring codes it means"
                )
            return
        if self.period not in self.by:
            raise RecipeError(f"user-counts: period must be a column of by, got {self.period!r}")
        if self.public is None and self.asked is None:
            raise RecipeError(
                "user-counts: period widens what public or asked names; without them every cell is asked"
            )
        reach = _REACH if self.reach is None else self.reach
        self._keep(reach=parse_whole(reach, name="user-counts: reach", low=0, high=_MOST_REACH))

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one request per epsilon, all with the same questions."""
        by = tuple(self.by)
        self.check_names(table)
        self._refuse_large(table.cells(by) * len(epsilons))
        recipe = self
        if isinstance(self.public, str):
            recipe = replace(self, public=read_occurring(self.public, table, by))
        elif isinstance(self.asked, str):
            recipe = replace(self, asked=read_asked(self.asked, table, by))
        asked_cells = recipe._list_asked(table)
        self._refuse_large(asked_cells.rows * len(epsilons))
        requests = tuple(
            request_counts(
                table,
                f"individuals at epsilon {format_exact(epsilon)}",
                asked_cells,
                noise=self.noise,
                epsilon=epsilon,
                delta=delta,
            )
            for epsilon in epsilons
        )
        _refuse_large_sums(requests, asked_cells)
        return Plan(recipe=recipe, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        asked_cells = plan.requests[0].counted
        assert isinstance(asked_cells, IndividualCounts)
        table, unit = plan.table, plan.table.unit
        facts = {"unit": unit.column, "most": asked_cells.max_cells}
        return {
            "sizes": ", ".join(f"{name} ({table.column(name).size})" for name in self.by),
            "cells": table.cells(tuple(self.by)),
            "questions": asked_cells.rows,
            "asked": _starts(asked_cells).size,
            "laid_out": self._describe_asked(),
            "order": self.part(self.rounding),
            "threshold": describe_threshold(self.threshold),
            "held": self.part("held_row" if unit.column is None else "held_unit", **facts),
            "moved": self.part("moved", **facts),
            "exchanged": self.part("exchanged") if unit.neighbours == "replace" else "",
        }

    def _describe_asked(self) -> str:
        times = ", ".join(str(each) for each in self.times)
        if self.public is None and self.asked is None:
            return f"Every cell of the described domains is asked about, for {times} records."
        file = self.asked if self.public is None else self.public
        name = f"`{file['file']}` (sha256 {file['sha256']}), which is about nobody in the table"
        if self.public is None:
            text = f"The cells asked about are those of the public list {name}."
        else:
            text = f"Asked about are the numbers of records by cell that occur in {name}."
        if self.period is not None and self.reach:
            text += f" The same is asked up to {self.reach} codes of `{self.period}` away."
        return text + (f" Every cell so named is asked about for {times} records." if times else "")

    def _list_asked(self, table: Table) -> IndividualCounts:
        if self.public is None and self.asked is None:
            self._refuse_large(table.cells(tuple(self.by)) * len(self.times))
        cells, times = list_questions(
            table,
            tuple(self.by),
            times=tuple(self.times),
            record=self.asked if self.public is None else self.public,
            period=self.period,
            reach=self.reach or 0,
        )
        # Nobody is in more cells than are asked about, and a row is in one.
        most = 1 if table.unit.column is None else self.max_cells or table.unit.max_records
        distinct = 1 + int(np.count_nonzero(np.diff(cells)))
        return IndividualCounts(
            columns=tuple(self.by), max_cells=min(most, distinct), cells=cells, times=times
        )

    def _refuse_large(self, size: int) -> None:
        if size > MOST_ANSWERS:
            raise RecipeError(
                f"user-counts: the release would have {size:,} cells or questions, more than "
                f"{MOST_ANSWERS:,}; use fewer columns, coarser domains, fewer times or fewer epsilons"
            )

    def finish(self, table: Table, measurement: Measurement) -> Whole:
        """Return the sum of individuals times records of every cell, 0 where it was not asked about."""
        asked_cells = measurement.request.counted
        assert isinstance(asked_cells, IndividualCounts)
        values = measurement.noisy_values
        if self.rounding == "before":
            values = np.maximum(values, 0)
        starts = _starts(asked_cells)
        sums = np.add.reduceat(asked_cells.times * values, starts)
        squares = np.add.reduceat(asked_cells.times.astype(np.float64) ** 2, starts)
        counts = np.zeros(table.cells(tuple(self.by)), np.int64)
        counts[asked_cells.cells[starts]] = finish_counts(
            sums,
            threshold=self.threshold,
            deviation=np.sqrt(squares) * measurement.request.standard_deviation,
        )
        return counts


def read_occurring(path: str, table: Table, by: tuple[str, ...]) -> dict[str, Any]:
    """Return the pairs of a cell and a number of records that an individual of a public table has there.

    Without the unit's column in the public table, every row is an individual of its own.
    """
    rows, record = open_public(path)
    cells = locate_rows(table, by, [encode_public(table.column(name), rows) for name in by])
    unit = table.unit.column
    if unit is None or unit not in rows.column_names:
        pairs = cells[cells >= 0] * _PAIR + 1
    else:
        people = number_individuals(rows, unit)
        known = (cells >= 0) & (people >= 0)
        size = table.cells(by)
        met, times = np.unique(people[known] * size + cells[known], return_counts=True)
        pairs = met % size * _PAIR + np.minimum(times, MOST_TIMES)
    if not pairs.size:
        raise RecipeError(f"public table {record['file']!r} has no row in the domains of {' x '.join(by)}")
    return {**record, "pairs": _pack(np.unique(pairs))}


def read_asked(path: str, table: Table, by: tuple[str, ...]) -> dict[str, Any]:
    """Return the cells that a public list names, in the labels of a release or as the table stores them."""
    rows, record = open_public(path)
    codes = [_read_labels(table.column(name), rows) for name in by]
    for name, each in zip(by, codes, strict=True):
        outside = np.flatnonzero(each < 0)
        if outside.size:
            raise RecipeError(
                f"asked = {record['file']!r}: row {int(outside[0]) + 1} has no value of column {name!r} "
                "that is in its domain"
            )
    if not rows.num_rows:
        raise RecipeError(f"asked = {record['file']!r} lists no cell")
    return {**record, "pairs": _pack(np.unique(locate_rows(table, by, codes) * _PAIR))}


def list_questions(
    table: Table,
    by: tuple[str, ...],
    *,
    times: tuple[int, ...],
    record: Mapping[str, Any] | None,
    period: str | None,
    reach: int,
) -> tuple[Whole, Whole]:
    """Return the cells and times of all questions about `table`, ascending by cell, then by times.

    Without a `record` every cell is asked for all `times`. With one, its pairs are asked in their own
    cell and in those up to `reach` codes of `period` away, and each cell so named for all `times`.
    """
    size = table.cells(by)
    if record is None:
        cells = np.arange(size, dtype=np.int64)
        return np.repeat(cells, len(times)), np.tile(np.array(times, np.int64), size)
    pairs = _unpack(record, size)
    if period is not None:
        pairs = _spread(pairs, table, by, period=period, reach=reach)
    cells = np.unique(pairs // _PAIR) * _PAIR
    pairs = np.unique(np.concatenate([pairs[pairs % _PAIR > 0], *(cells + each for each in times)]))
    return pairs // _PAIR, pairs % _PAIR


def _read_labels(column: Column, rows: pa.Table) -> Whole:
    """Return the codes of the rows of a list, which names a column as a release does or as the table does."""
    released = not isinstance(column.domain, Tuples) or column.outside == "other"
    if released and column.name in rows.column_names:
        labels = replace(
            column, stored=(column.name,), domain=Values(column.labels), outside="drop", missing_label=None
        )
        codes = encode_public(labels, rows)
        if (codes >= 0).any() or not set(column.stored) <= set(rows.column_names):
            return codes
    return encode_public(column, rows)


def _spread(pairs: Whole, table: Table, by: tuple[str, ...], *, period: str, reach: int) -> Whole:
    """`pairs`, and the same up to `reach` codes of `period` away; the code of `other` has no neighbours."""
    place = by.index(period)
    domain = table.column(period).domain
    assert domain is not None
    size, inner = table.column(period).size, table.cells(by[place + 1 :]) if by[place + 1 :] else 1
    done = 0
    while done < min(reach, size):
        # What reaches `done` codes and is moved by up to one more has no gap, not even next to an end.
        step = min(reach - done, done + 1)
        codes = pairs // _PAIR // inner % size
        moved = [
            pairs[(codes < domain.size) & (codes + by_codes >= 0) & (codes + by_codes < domain.size)]
            + by_codes * inner * _PAIR
            for by_codes in (-step, step)
        ]
        pairs = np.unique(np.concatenate([pairs, *moved]))
        done += step
    return pairs


def _pack(pairs: Whole) -> str:
    """Return ascending pairs as text: their differences, which pack well."""
    return pack_numbers(np.diff(pairs, prepend=0), "<i8")


def _unpack(record: Mapping[str, Any], size: int) -> Whole:
    steps = unpack_numbers(record, "pairs", "<i8", most=_MOST_PACKED)
    if steps is None:
        steps = np.empty(0, np.int64)
    pairs = np.cumsum(steps)
    wrong = not steps.size or (steps[1:] < 1).any()
    if wrong or pairs[0] < 0 or pairs[-1] >= size * _PAIR:
        raise RecipeError("the cells of the public file cannot be read; plan the recipe from its file again")
    return pairs


def _starts(asked_cells: IndividualCounts) -> Whole:
    """Return the first question of every cell that is asked about."""
    return np.flatnonzero(np.diff(asked_cells.cells, prepend=-1))


def _refuse_large_sums(requests: tuple[Request, ...], asked_cells: IndividualCounts) -> None:
    """Raises an error if noise times records, added up in a cell, may leave 64 bits."""
    largest = float(np.add.reduceat(asked_cells.times.astype(np.float64), _starts(asked_cells)).max())
    if max(float(request.scale) for request in requests) * largest * _FAR > _LARGEST_SUM:
        raise RecipeError(
            "user-counts: the noise of a cell would go beyond 2^62; spend more epsilon or ask fewer times"
        )
