"""A release folder as a report sees it: the certificate, the columns, the table and the measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.exact import NORMAL_95
from sfumato.core.law import SHAPES, Kind, make_law
from sfumato.core.questions.counts import NORM_GRID
from sfumato.core.questions.series import SERIES_GRID
from sfumato.inference.models.series import Estimate as Sums
from sfumato.inference.models.series import choose_weights, estimate_sums, half_widths
from sfumato.release.folder import failing_closed, open_folder, split_values
from sfumato.report.explain.posterior import Total, read_total
from sfumato.report.fields import Field, encode_column, read_fields, read_numbers

About = Literal["cells", "bounded", "sums", "individuals", "large cells", "choice"]


# What the ends of 95 % intervals are called in tables of counts.
_MUCH = 1.05  # times: what a bound cuts may then order places anew
_INTERVALS = (("low", "high"), ("count_low", "count_high"), ("low_95", "high_95"))
_GAUSSIAN = math.sqrt(2 / math.pi)  # the mean of the absolute value of a standard Gaussian
_MOST_COLUMNS = 8
_MOST_CELLS = 2**24  # more are not laid out to be added up
_VERDICTS = ("lost", "weakened", "kept", "unseen")
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
    values: NDArray[np.float64]
    places: NDArray[np.int64]
    totals: tuple[int, float] | None = None

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
        return self.about == "cells" and self.is_full

    @property
    def is_full(self) -> bool:
        """Whether there is one answer for every cell, a count of records, or of some of each individual."""
        return self.about in ("cells", "bounded") and self.answers == self.cells

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
    total: Total

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe as a plain record."""
        return dict(self.certificate["plan"]["recipe"])

    @property
    def kind(self) -> str:
        """The recipe's name."""
        return str(self.recipe["recipe"])

    @property
    def source(self) -> str:
        """The name of the table that was described."""
        return str(next(iter(self.certificate["plan"]["table"])))

    @property
    def unit(self) -> dict[str, Any]:
        """Whom the release protects, as a plain record."""
        return dict(self.certificate["unit"])

    @property
    def over_time(self) -> bool:
        """Whether an individual is what someone did in one period."""
        return isinstance(self.certificate["plan"]["table"][self.source]["unit"], list)

    @property
    def epsilons(self) -> tuple[str, ...]:
        """The epsilons of the plan, as text."""
        return tuple(map(str, self.certificate["plan"]["epsilons"]))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the release says should be known before it is used."""
        return tuple(map(str, self.certificate.get("notes", ())))

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
        return "model.parquet" in self.certificate["files"]

    @property
    def has_epsilon(self) -> bool:
        """Whether the rows of several epsilons are told apart by a column."""
        return "epsilon" in self.table.column_names and "epsilon" not in self.described

    @property
    def shown(self) -> tuple[Field, ...]:
        """The described columns that the table holds."""
        released = set(self.table.column_names)
        return tuple(field for field in self.fields if set(field.released) <= released)

    @property
    def chosen_bound(self) -> dict[str, Any] | None:
        """How many records of one individual count, if that was chosen privately; and the factor."""
        steps = self.certificate.get("postprocessing", {})
        listed = [each for key in ("bounds", "levels") for each in steps.get(key) or ()]
        return next((each for each in listed[::-1] if isinstance(each, dict) and "scaled_by" in each), None)

    def scale_of(self, measured: Measured) -> float:
        """Returns what the noise of a measurement is times in released counts."""
        if measured.about == "individuals":  # each number of people counts for the records they have
            return math.sqrt(sum(int(times) ** 2 for times in self.recipe["times"]))
        return self.scale if measured.about == "bounded" else 1.0

    @property
    def is_reordered(self) -> bool:
        """Whether so many records were cut that the order of places may be another, whatever the noise."""
        return self.scale > _MUCH

    @property
    def scale(self) -> float:
        """What counts are times, to make up for the records that a chosen bound cut."""
        bound = self.chosen_bound
        return 1.0 if bound is None else float(Fraction(str(bound["scaled_by"])))

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
    tables = (opened.table(name) for name in ("table.parquet", "measurements.parquet"))
    with failing_closed("certificate.json does not describe the table and its measurements"):
        facts = build_facts(opened.name, opened.certificate, *tables)
        needed = {"ledger", "plan_sha256", "public", "versions"} - set(facts.certificate)
        if needed:
            raise KeyError(*sorted(needed))
    return facts


def build_facts(name: str, certificate: Mapping[str, Any], table: pa.Table, answers: pa.Table) -> Facts:
    """Returns the release that a certificate describes, of its table and its noisy values."""
    if certificate["plan"]["recipe"]["recipe"] == "hierarchy":
        # Every level counts all records; the last is the finest, and the others are its sums.
        table = table.filter(pc.equal(table["level"], table["level"][table.num_rows - 1]))
    (spec,) = certificate["plan"]["table"].values()
    measured = read_measured(certificate, answers)
    # Of a series, the periods that are released: those to come have no numbers that noise could explain.
    released = {each.columns[0]: each.totals[0] for each in measured if each.totals is not None}
    fields = (each.cut(released.get(each.name)) for each in read_fields(spec["columns"]))
    return Facts(
        name=name,
        certificate=dict(certificate),
        fields=tuple(fields),
        table=table,
        measured=measured,
        total=read_total(certificate["total"]),
    )


def read_measured(certificate: Mapping[str, Any], answers: pa.Table) -> tuple[Measured, ...]:
    """Returns the measurements that a certificate lists, with their noisy values."""
    parts = split_values(answers)
    empty, grid = np.zeros(0, np.int64), int(certificate["unit"]["grid"])
    return tuple(
        _read_one(record, *parts.get(str(record["name"]), (empty, empty)), unit_grid=grid)
        for record in certificate["measurements"]
    )


def _read_one(
    record: Mapping[str, Any], values: NDArray[np.int64], places: NDArray[np.int64], *, unit_grid: int
) -> Measured:
    name, noise = str(record["name"]), str(record["kind"])
    found = _EPSILON.search(name)
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
            _count_arrivals(record, found_values, deviation, lags=lags) for lags in (1, periods)
        )
        widths = (half_widths(each, deviation, shape=law.shape) for each in (counts, summed))
        half, total = (float(each[-1]) for each in widths)
        # Sums are told 1.96 deviations wide, which few Laplace draws exceed.
        found_values, totals = counts.values.reshape(-1), (periods, total / NORMAL_95)
        deviation = float(counts.deviations[-1])
    columns, cells = tuple(map(str, record.get("columns", ()))), int(record.get("cells") or 0)
    marginal = tuple(name.rpartition("counts of ")[2].split(" x "))
    if about == "sums" and record.get("records") is not None and {*marginal} <= {*columns}:
        # The sums of a map are whole marginals, which their names tell.
        columns, cells, about = marginal, int(record["queries"]["rows"]), "bounded"
    return Measured(
        name=name,
        columns=columns,
        about=about,
        cells=cells or int(record.get("candidates") or 0),
        noise=noise,
        deviation=deviation,
        half=half,
        epsilon=found[1] if found else None,
        values=found_values,
        places=places,
        totals=totals,
    )


def _count_arrivals(
    record: Mapping[str, Any], sums: NDArray[np.float64], deviation: float, *, lags: int
) -> Sums:
    """Sums the last `lags` periods, for every period of a series; the last has most noise."""
    periods, horizon = int(record["series"]["periods"]), int(record["series"]["horizon"])
    norm = SHAPES[cast("Kind", record["kind"])].norm
    weights = np.array(choose_weights(norm, horizon, grid=SERIES_GRID)) / SERIES_GRID
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """Counts of every combination of some columns.

    `halves` are half the widths of their 95 % intervals, where their noise is known.
    """

    values: NDArray[np.float64]
    source: Literal["measurements", "table"]
    halves: NDArray[np.float64] | None = None

    @property
    def half(self) -> float | None:
        """The half of the widest interval."""
        return None if self.halves is None or not self.halves.size else float(self.halves.max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The noise that is to be expected in a marginal: of one answer, and as a share of all records."""

    columns: tuple[str, ...]
    answers: int
    half: float
    share: float


def matches(measured: Measured, epsilon: str | None) -> bool:
    """Returns whether `measured` belongs to `epsilon`; all do if there is one only."""
    return epsilon is None or measured.epsilon is None or measured.epsilon == epsilon


def estimate_counts(facts: Facts, fields: tuple[Field, ...]) -> Estimate:
    """Returns the counts of every combination of `fields`, at the best epsilon.

    A table of counts is clipped at zero, which lifts every sum. So sums are taken of the measurements
    where one holds all cells, and of the table else; where that states the interval of every cell, it is
    the cell's. Rows are counted as they are, with intervals if just that was measured.
    Levels that were made to agree are told as they were released,
    with the noise that their sums would have without it, which is no less; so are counts of fewer records of
    an individual, times one factor.
    """
    names = tuple(field.name for field in fields)
    best: tuple[float, Measured] | None = None
    for measured in facts.measured:
        holds = set(names) <= set(measured.columns) and (
            facts.weight is not None or len(names) == len(measured.columns)
        )
        people = measured.about == "individuals" and facts.weight is not None
        asked = measured.cells * len(facts.recipe.get("times", ())) if people else None
        if holds and (measured.is_full or measured.answers == asked) and matches(measured, facts.best):
            cells = math.prod(field.size for field in fields)
            deviation = measured.deviation_of(names, cells) * facts.scale_of(measured)
            if best is None or deviation < best[0]:
                best = deviation, measured
    if best is None:
        return Estimate(values=facts.count(fields), source="table", halves=facts.stated_halves(fields))
    deviation, measured = best
    known = [field for name in measured.columns if (field := facts.field(name)) is not None]
    sizes = [field.size for field in known]
    if len(known) < len(measured.columns) or math.prod(sizes) != measured.cells:
        return Estimate(values=facts.count(fields), source="table")
    others = tuple(axis for axis, name in enumerate(measured.columns) if name not in names)
    scale = facts.scale_of(measured)
    alone = not others and measured.about != "individuals"
    half = measured.half * scale if alone else NORMAL_95 * deviation
    if facts.adds_up or not measured.is_plain:
        halves = facts.stated_halves(fields)
        halves = np.full(tuple(field.size for field in fields), half) if halves is None else halves
        return Estimate(values=facts.count(fields), source="table", halves=halves)
    summed = measured.values.reshape(sizes).sum(axis=others)
    left = [name for name in measured.columns if name in names]
    values = np.transpose(summed, [left.index(name) for name in names])
    if facts.weight is None:
        # A model moved the rows away from what was measured; the interval holds both.
        rows = facts.count(fields)
        return Estimate(values=rows, source="table", halves=half + np.abs(rows - values))
    return Estimate(values=values, source="measurements", halves=np.full(values.shape, half))


def expect_noise(facts: Facts) -> list[Expected]:
    """Returns what noise is to be expected in the marginals that were measured, the noisiest first.

    Of a table of counts, all combinations of up to three of its columns; of rows, what was measured.
    `share` is half the sum of the expected noise over all answers, as a share of all records: how many
    records noise alone would seem to move.
    """
    plain = [each for each in facts.measured if each.is_plain and matches(each, facts.best)]
    sets: dict[tuple[str, ...], None] = {}
    if facts.weight is not None:
        for each in plain:
            if len(each.columns) <= _MOST_COLUMNS:
                for size in (1, 2, 3):
                    sets |= dict.fromkeys(combinations(each.columns, size))
    else:
        sets = {each.columns: None for each in plain}
    total = max(count_records(facts), 1.0)
    found = [one for columns in sets if (one := _expect(facts, columns, plain, total)) is not None]
    for each in facts.measured:
        told = each.about in ("sums", "bounded") and matches(each, facts.best) and each.columns not in sets
        if told and each.answers:
            scale = facts.scale_of(each)
            share = scale * each.answers * each.mean_noise / (2 * total)
            half = scale * each.half
            found.append(Expected(columns=each.columns, answers=each.answers, half=half, share=share))
    return sorted(_least(found), key=lambda each: (-each.share, each.columns))


def _least(found: list[Expected]) -> list[Expected]:
    """Of several measurements of the same columns, the one with the least noise."""
    best: dict[tuple[str, ...], Expected] = {}
    for each in found:
        if each.columns not in best or each.share < best[each.columns].share:
            best[each.columns] = each
    return list(best.values())


def _expect(facts: Facts, columns: tuple[str, ...], plain: list[Measured], total: float) -> Expected | None:
    known = [field for name in columns if (field := facts.field(name)) is not None]
    holding = [each for each in plain if set(columns) <= set(each.columns)]
    if not holding or len(known) < len(columns):
        return None
    cells = math.prod(field.size for field in known)
    if cells > _MOST_CELLS:
        return None
    deviation = _combine([each.deviation_of(columns, cells) for each in holding])
    single = holding[0].mean_noise / holding[0].deviation if holding[0].deviation else _GAUSSIAN
    alone = len(holding) == 1 and holding[0].cells == cells
    mean = deviation * (single if alone else _GAUSSIAN)
    half = holding[0].half if alone else NORMAL_95 * deviation
    return Expected(columns=columns, answers=cells, half=half, share=cells * mean / (2 * total))


def count_records(facts: Facts) -> float:
    """Returns the number of records, estimated by the measurement whose sum has the least noise."""
    plain = [each for each in facts.measured if each.is_plain and matches(each, facts.best)]
    if facts.weight is None or not plain or facts.adds_up:
        return facts.size
    return float(min(plain, key=lambda each: each.deviation_of((), 1)).values.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """The noisy number of records with half its interval, and the share of answers that noise explains."""

    total: float
    half: float
    near_zero: float
    individuals: bool

    @property
    def is_noise(self) -> bool:
        """Whether the whole release might as well be about nobody."""
        return abs(self.total) <= self.half or self.total < 0


def judge_signal(facts: Facts) -> Signal | None:
    """Gives how far the release stands out from its noise, by the measurement whose sum has the least of it.

    None if no measurement has an answer for every cell.
    """
    full = [
        each
        for each in facts.measured
        if each.about in ("cells", "bounded", "individuals")
        and each.answers == each.cells > 0
        and matches(each, facts.best)
    ]
    if not full:
        return None
    best = min(full, key=lambda each: each.deviation_of((), 1))
    half = best.half if best.cells == 1 else NORMAL_95 * best.deviation_of((), 1)
    return Signal(
        total=float(best.values.sum()),
        half=half,
        near_zero=max(full, key=lambda each: each.cells).near_zero,
        individuals=best.about == "individuals",
    )


def judge_dependences(facts: Facts) -> dict[str, Any] | None:
    """Returns how much of the dependence of every measured pair rows have; None of a table of counts.

    A dependence is what counts of a pair have beyond independence, as a sum of squares. Noise adds its own
    squares, which are taken off; beyond two deviations of what is left, noise hardly goes.
    """
    if facts.weight is not None:
        return None
    pairs: dict[tuple[str, ...], dict[str, Any]] = {}
    for each in sorted(facts.measured, key=lambda each: -each.deviation):
        known = tuple(field for name in each.columns if (field := facts.field(name)) is not None)
        if len(known) != 2 or not each.is_plain or not matches(each, facts.best):
            continue
        sizes = (known[0].size, known[1].size)
        freedom, noise = (sizes[0] - 1) * (sizes[1] - 1), each.deviation**2
        seen = _sum_dependence(each.values.reshape(sizes)) - freedom * noise
        rows = _sum_dependence(facts.count(known))
        reach = 2 * math.sqrt(2 * freedom * noise**2 + 4 * noise * max(seen, 0.0))
        share = math.sqrt(rows / seen) if seen > reach else None
        verdict = "kept" if rows >= seen - reach else "lost" if rows < 0.1 * seen else "weakened"
        pairs[each.columns] = {
            "columns": each.columns,
            "share": share,
            "verdict": "unseen" if share is None else verdict,
        }
    listed = sorted(pairs.values(), key=lambda each: (each["share"] is None, each["share"] or 0.0))
    verdicts = [(name, [each for each in listed if each["verdict"] == name]) for name in _VERDICTS]
    return {"verdicts": verdicts, "pairs": _count_pairs(facts)} if listed else None


def _sum_dependence(counts: NDArray[np.float64]) -> float:
    """Returns the sum of the squares of what counts of a pair have beyond independence of its columns."""
    alone = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(float(counts.sum()), 1.0)
    return float(((counts - alone) ** 2).sum())


def _count_pairs(facts: Facts) -> dict[str, int] | None:
    """Returns how many pairs of columns were measured together; None if that were all, none or not known."""
    names = [field.name for field in facts.shown[:200]]
    measured = [set(each.columns) for each in facts.measured if each.about != "choice"]
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    covered = sum(any({a, b} <= each for each in measured) for a, b in pairs) if len(pairs) <= 4000 else 0
    return {"measured": covered, "all": len(pairs)} if 0 < covered < len(pairs) else None


def _combine(deviations: list[float]) -> float:
    """Returns the standard deviation of the average of measurements of the same, weighted by precision.

    >>> _combine([3, 4])
    2.4
    """
    if any(each == 0 for each in deviations):
        return 0.0
    return 1 / math.sqrt(sum(1 / each**2 for each in deviations))
