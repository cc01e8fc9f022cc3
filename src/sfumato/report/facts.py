"""A release folder as a report sees it: the certificate, the columns, the table and the measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.exact import NORMAL_95
from sfumato.core.law import SHAPES, make_law
from sfumato.core.questions.counts import NORM_GRID
from sfumato.core.questions.series import SERIES_GRID
from sfumato.inference.models.series import Estimate, estimate_sums, root_weights
from sfumato.release.folder import failing_closed, open_folder
from sfumato.report.explain.posterior import Total, read_total
from sfumato.report.fields import Field, encode_column, read_fields, read_numbers

About = Literal["cells", "bounded", "sums", "individuals", "large cells", "choice"]

_UNKNOWN_UNIT = {"column": "row", "max_records": 1, "neighbours": "unknown", "bounding": "unknown"}
# What the ends of 95 % intervals are called in tables of counts.
_INTERVALS = (("low", "high"), ("count_low", "count_high"), ("low_95", "high_95"))
_EPSILON = re.compile(r"\bepsilon ([0-9][0-9./e-]*[0-9]|[0-9])")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """One measurement or choice: what it is about, its noise in records, its noisy values in records.

    `about` tells what an answer is: the count of one cell, a weighted sum of cells, a count of
    individuals, the count of a cell that reached a threshold, or a choice. `epsilon` is the one that
    its name states. Of a series, `totals` are the number of periods and the deviation of a cell's total.
    """

    name: str
    columns: tuple[str, ...]
    about: About
    cells: int
    noise: str
    deviation: float
    half: float
    epsilon: str | None
    cost: Mapping[str, str | None]
    values: NDArray[np.float64]
    places: NDArray[np.int64]
    totals: tuple[int, float] | None = None

    def size_of(self, field: Field) -> int:
        """Returns the number of values of a column that have answers: of a series, the periods up to now."""
        is_period = self.totals is not None and field.name == self.columns[0]
        return self.totals[0] if self.totals is not None and is_period else field.size

    def deviation_of(self, columns: Collection[str], cells: int) -> float:
        """Gives the deviation of the noise of a sum over all columns but `columns`, which have `cells` cells.

        In a series the noise of periods is not independent, so that totals over all of them have little.
        """
        if self.totals is None or self.columns[0] in columns:
            return self.deviation * math.sqrt(self.cells / cells)
        periods, deviation = self.totals
        return deviation * math.sqrt(self.cells / periods / cells)

    @property
    def answers(self) -> int:
        """The number of noisy values."""
        return int(self.values.size)

    @property
    def is_plain(self) -> bool:
        """Whether there is one answer for every cell, a count of records."""
        return self.about == "cells" and self.answers == self.cells

    @property
    def near_zero(self) -> float:
        """The share of answers that noise alone could explain: zero lies in their interval."""
        return float((np.abs(self.values) <= self.half).mean()) if self.answers else math.nan

    @property
    def mean_noise(self) -> float:
        """The expected size of the noise, E|z|, in records."""
        shape = SHAPES.get(self.noise)  # type: ignore[call-overload]  # of a choice it is not asked
        return self.deviation * (shape.mean_size if shape is not None else math.nan)


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """Everything a report is made of when the truth is not known."""

    name: str
    certificate: dict[str, Any]
    fields: tuple[Field, ...]
    table: pa.Table
    measured: tuple[Measured, ...]
    files: tuple[str, ...]

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe as a plain record."""
        return dict(self.certificate.get("plan", {}).get("recipe") or {})

    @property
    def kind(self) -> str:
        """The recipe's name."""
        return str(self.recipe.get("recipe", "unknown"))

    @property
    def source(self) -> str:
        """The name of the table that was described."""
        return str(next(iter(self.certificate.get("plan", {}).get("table") or {}), "table"))

    @property
    def unit(self) -> dict[str, Any]:
        """Whom the release protects, as a plain record."""
        return {**_UNKNOWN_UNIT, **(self.certificate.get("unit") or {})}

    @property
    def over_time(self) -> bool:
        """Whether an individual is what someone did in one period."""
        described = (self.certificate.get("plan", {}).get("table") or {}).get(self.source) or {}
        return isinstance(described.get("unit"), list)

    @cached_property
    def total(self) -> Total:
        """What the release spent."""
        return read_total(self.certificate.get("total") or {})

    @property
    def delta(self) -> str:
        """The delta of the plan, as text."""
        return str(self.certificate.get("plan", {}).get("delta", "0"))

    @property
    def epsilons(self) -> tuple[str, ...]:
        """The epsilons of the plan, as text."""
        return tuple(str(each) for each in self.certificate.get("plan", {}).get("epsilons") or ())

    @property
    def notes(self) -> tuple[str, ...]:
        """What the release says should be known before it is used."""
        notes = self.certificate.get("notes")
        return tuple(map(str, notes)) if isinstance(notes, list) else ()

    @property
    def best(self) -> str | None:
        """The largest epsilon of a release of several; None if there is one only."""
        if len(self.epsilons) < 2:
            return None
        return max(self.epsilons, key=read_epsilon)

    @property
    def described(self) -> frozenset[str]:
        """The released columns that the schema describes."""
        return frozenset(name for field in self.fields for name in field.released)

    @property
    def weight(self) -> str | None:
        """The column of counts, if the table has one row per cell: expected ones where they are told.

        Beside those of a map, whole counts are chosen to show its pies, and add up to too few records.
        """
        undescribed = [name for name in self.table.column_names if name not in self.described]
        return next(
            (name for name in ("expected", "count") if name in undescribed and "count" in undescribed), None
        )

    @property
    def adds_up(self) -> bool:
        """Whether released counts were made to agree with what was measured of their sums."""
        return self.kind == "hierarchy"

    @property
    def has_model(self) -> bool:
        """Whether a model was fitted to the measurements."""
        return "model.parquet" in self.files

    @property
    def has_epsilon(self) -> bool:
        """Whether the rows of several epsilons are told apart by a column."""
        return "epsilon" in self.table.column_names and "epsilon" not in self.described

    @property
    def shown(self) -> tuple[Field, ...]:
        """The described columns that the table holds."""
        released = set(self.table.column_names)
        return tuple(field for field in self.fields if set(field.released) <= released)

    def field(self, name: str) -> Field | None:
        """Returns the described column `name`, if there is one."""
        return next((field for field in self.fields if field.name == name), None)

    @cached_property
    def _codes(self) -> dict[str, NDArray[np.int64]]:
        return {}

    @cached_property
    def _rows(self) -> tuple[NDArray[np.bool_] | None, NDArray[np.float64] | None]:
        """Which rows are of the best epsilon, and what each counts for; None for all and for one."""
        mine = None
        if self.has_epsilon and self.best is not None:
            values = to_numpy(self.table["epsilon"])
            mine = np.isclose(values, read_epsilon(self.best), rtol=1e-12)
        weights = None
        if self.weight is not None:
            weights = read_numbers(self.table[self.weight])
        return mine, weights

    def count(self, fields: tuple[Field, ...]) -> NDArray[np.float64]:
        """Returns the released records in every combination of `fields`, at the best epsilon."""
        shape = tuple(field.size for field in fields)
        mine, weights = self._rows
        place = np.zeros(self.table.num_rows, np.int64)
        known = np.ones(self.table.num_rows, np.bool_) if mine is None else mine.copy()
        for field in fields:
            if field.name not in self._codes:
                self._codes[field.name] = encode_column(field, self.table)
            codes = self._codes[field.name]
            known &= codes >= 0
            place = place * field.size + codes
        counted = np.bincount(
            place[known],
            weights=None if weights is None else weights[known],
            minlength=int(np.prod(shape)),
        )
        return counted.reshape(shape).astype(np.float64)

    def stated_halves(self, fields: tuple[Field, ...]) -> NDArray[np.float64] | None:
        """Half the intervals that the table states for combinations of `fields`, if each is a row of it."""
        names = next((pair for pair in _INTERVALS if set(pair) <= set(self.table.column_names)), None)
        if self.weight is None or names is None or {*fields} != {*self.shown} or self.described & {*names}:
            return None
        low, high = (read_numbers(self.table[name]) for name in names)
        counts = read_numbers(self.table[self.weight])
        mine, _ = self._rows
        halves = np.zeros(tuple(field.size for field in fields))
        codes = [encode_column(field, self.table) for field in fields]
        known = np.logical_and.reduce([each >= 0 for each in codes])
        known &= np.isfinite(low) & np.isfinite(high) & (True if mine is None else mine)
        place = tuple(each[known] for each in codes)
        np.maximum.at(halves, place, np.maximum(high - counts, counts - low)[known])
        return halves

    @cached_property
    def size(self) -> float:
        """The number of released records, at the best epsilon."""
        mine, weights = self._rows
        if weights is None:
            return float(self.table.num_rows if mine is None else mine.sum())
        return float((weights if mine is None else weights[mine]).sum())


def read_facts(folder: Path | str) -> Facts:
    """Gives the release in `folder`, with every file compared with the digest that the certificate states."""
    opened = open_folder(folder, load=("table.parquet", "measurements.parquet"))
    certificate = dict(opened.certificate)
    table = opened.table("table.parquet")
    with failing_closed("certificate.json does not describe the table and its measurements"):
        if (certificate["plan"].get("recipe") or {}).get("recipe") == "hierarchy":
            # Every level counts all records; the last is the finest, and the others are its sums.
            table = table.filter(pc.equal(table["level"], table["level"][table.num_rows - 1]))
        spec: dict[str, Any] = next(iter((certificate["plan"].get("table") or {}).values()), {})
        fields = read_fields(spec.get("columns") or {}, certificate.get("public") or {})
        measured = read_measured(certificate, opened.table("measurements.parquet"))
    return Facts(
        name=opened.name,
        certificate=certificate,
        fields=fields,
        table=table,
        measured=measured,
        files=("certificate.json", *sorted(certificate["files"])),
    )


def read_measured(certificate: Mapping[str, Any], answers: pa.Table) -> tuple[Measured, ...]:
    """Returns the measurements that a certificate lists, with their noisy values."""
    parts = {name: (values, places) for name, values, places in _cut(answers)}
    empty = np.zeros(0, np.int64)
    unit_grid = int((certificate.get("unit") or {}).get("grid", 1))
    measured = []
    for record in certificate.get("measurements") or ():
        values, places = parts.get(str(record.get("name")), (empty, empty))
        measured.append(_read_one(record, values, places, unit_grid=unit_grid))
    return tuple(measured)


def _read_one(
    record: Mapping[str, Any], values: NDArray[np.int64], places: NDArray[np.int64], *, unit_grid: int
) -> Measured:
    name = str(record.get("name"))
    found = _EPSILON.search(name)
    columns = tuple(str(each) for each in record.get("columns") or ())
    noise = str(record.get("kind"))
    cost = {key: record.get(key) for key in ("epsilon", "rho", "mu")}
    deviation, half, grid = math.nan, math.nan, 1
    about = _about(record)
    if about != "choice":
        grid = _grid(record, unit_grid)
        law = make_law(noise, str(record["scale"]))  # type: ignore[arg-type]
        deviation, half = law.deviation / grid, law.half_width() / grid
    found_values, totals = values / grid, None
    if record.get("series") is not None:
        # What was measured are weighted sums of arrivals; the counts that follow from them are what is drawn.
        periods = int(record["series"]["periods"])
        counts, summed = (
            _count_arrivals(record["series"], found_values, deviation, lags=lags) for lags in (1, periods)
        )
        deviation, totals = float(counts.deviations[-1]), (periods, float(summed.deviations[-1]))
        found_values, half = counts.values.reshape(-1), NORMAL_95 * deviation
    return Measured(
        name=name,
        columns=columns,
        about=about,
        cells=int(record.get("cells") or record.get("candidates") or 0),
        noise=noise,
        deviation=deviation,
        half=half,
        epsilon=found[1] if found else None,
        cost=cost,
        values=found_values,
        places=places,
        totals=totals,
    )


def _count_arrivals(
    series: Mapping[str, Any], sums: NDArray[np.float64], deviation: float, *, lags: int
) -> Estimate:
    """Sums the last `lags` periods, for every period of a series; the last has most noise."""
    periods, horizon = int(series["periods"]), int(series["horizon"])
    weights = np.array(root_weights(horizon, grid=SERIES_GRID)) / SERIES_GRID
    answer = (np.arange(periods) < lags).astype(np.float64)
    return estimate_sums(sums.reshape(periods, -1), weights, deviation, answer=answer)


def _about(record: Mapping[str, Any]) -> About:
    if record.get("kind") not in SHAPES or not record.get("columns"):
        return "choice"
    if record.get("queries") is not None:
        return "sums"
    if record.get("individuals") is not None:
        return "individuals"
    if record.get("records") is not None:
        return "bounded"
    return "cells" if record.get("threshold") is None else "large cells"


def _grid(record: Mapping[str, Any], unit_grid: int) -> int:
    """Returns the denominator of the answers, as sfumato.core.questions.measurement.request_grid has it."""
    if record.get("individuals") is not None:
        return 1
    if record.get("series") is not None:
        return SERIES_GRID
    grid = unit_grid if record.get("contribution_norm") is None else NORM_GRID
    queries = record.get("queries")
    return grid * int(queries["grid"]) if isinstance(queries, dict) else grid


def _cut(answers: pa.Table) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """Yields the rows of every measurement, which follow each other."""
    named = answers["measurement"].combine_chunks()
    codes = named.dictionary_encode() if not hasattr(named, "indices") else named
    if hasattr(codes, "chunks"):
        codes = codes.unify_dictionaries().combine_chunks()
    names = codes.dictionary.to_pylist()
    which = to_numpy(codes.indices)
    values = to_numpy(answers["noisy_value"])
    places = to_numpy(answers["cell"])
    starts = np.flatnonzero(np.append(True, which[1:] != which[:-1])) if which.size else np.zeros(0, int)
    for start, stop in zip(starts, [*starts[1:], which.size], strict=False):
        yield str(names[which[start]]), values[start:stop], places[start:stop]


def read_epsilon(text: str) -> float:
    """Returns the number that an epsilon of a certificate stands for, 0 if it is none.

    >>> read_epsilon("0.5"), read_epsilon("1/4")
    (0.5, 0.25)
    """
    try:
        top, _, bottom = text.partition("/")
        return float(top) / float(bottom or 1)
    except (ValueError, ZeroDivisionError):
        return 0.0
