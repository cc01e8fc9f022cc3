"""A release scored from files, beside references: which records, which columns, which metric and epsilons."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from sfumato.core.errors import MetricError, SchemaError
from sfumato.core.facts.domain import IntegerRange
from sfumato.core.facts.project import read_project
from sfumato.core.facts.table import Table
from sfumato.metrics.columns import code_column, draw_people, pack_codes, read_side
from sfumato.metrics.compare import HALF, INTERNAL, RELEASE, UNIFORM, ZEROS, compare_pair, sample_truth
from sfumato.metrics.encode import ROW, CodedPair, Side, encode_pair, encode_wide, stored_names
from sfumato.metrics.k_marginal import KMarginal, k_marginal
from sfumato.metrics.match3 import Match3, match3
from sfumato.metrics.pie import PieChart, pie_chart
from sfumato.metrics.released import EPSILON, Released, open_release, split_epsilons
from sfumato.metrics.taxi import Taxi, taxi
from sfumato.tables.arrays import Whole
from sfumato.tables.read import require_columns

MetricName = Literal["general", "pie-chart", "k-marginal", "taxi", "match3"]
RecordMetric = Literal["k-marginal", "taxi", "match3"]

_COUNT = "count"  # what recipes call the column of counts
_LARGEST = 2**27  # cells of all pie charts together: about a gigabyte of counts
_METRICS: dict[RecordMetric, Callable[..., KMarginal | Taxi | Match3]] = {
    "k-marginal": k_marginal,
    "taxi": taxi,
    "match3": match3,
}
_UNITS: dict[RecordMetric, str | None] = {"k-marginal": None, "taxi": "taxi_id", "match3": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to score: a release, the records to compare with, the metric and its options."""

    release: Path
    truth: Path | None = None
    project: Path | None = None
    table: str | None = None
    metric: MetricName = "general"
    columns: tuple[str, ...] | None = None
    weight: str | None = None
    unit: str | None = None
    target: str | None = None
    place: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    kind: str | None = None
    bias_cutoff: int | None = None
    official_alignment: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scores:
    """The scores of every epsilon of a release, in its order, and what they come to together."""

    metric: MetricName
    results: tuple[tuple[float | None, dict[str, Any]], ...]
    overall: dict[str, float] | None

    def to_record(self) -> dict[str, Any]:
        """Returns the scores as a plain record."""
        return {
            "internal": INTERNAL,
            "metric": self.metric,
            "results": [{"epsilon": epsilon} | record for epsilon, record in self.results],
            "overall": self.overall,
        }


def score_release(request: Request, *, progress: Callable[[str], None] = lambda _: None) -> Scores:
    """Returns the scores that `request` asks for, one per epsilon of the release.

    >>> score_release(Request(release=Path("nowhere"), truth=Path("nothing.csv")))
    Traceback (most recent call last):
        ...
    sfumato.core.errors.SourceError: release: there is no file 'nowhere'
    """
    progress("reading the release")
    opened = _open(request)
    table = opened.released.table
    results = []
    for epsilon, part in [(None, table)] if EPSILON in opened.stored else split_epsilons(table):
        match request.metric:
            case "general":
                progress("reading the records")
                columns = request.columns or opened.released.columns or None
                pair = opened.encode(part, columns)
                compared = compare_pair(pair, target=request.target, seed=request.seed, progress=progress)
                record = compared.to_record()
            case "pie-chart":
                progress("counting")
                record = _score_pie(opened, part)
            case "k-marginal" | "taxi" | "match3" as metric:
                progress("scoring")
                record = _score_records(opened, part, metric)
            case _:
                raise MetricError(f"no metric {request.metric!r}")
        results.append((epsilon, record))
    return Scores(request.metric, tuple(results), _add_up(request.metric, [record for _, record in results]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Opened:
    """A request whose release is read and whose records are found: what of them is `stored`."""

    request: Request
    released: Released
    truth: Path
    described: Table | None
    stored: list[str]

    def encode(self, part: pa.Table, columns: Sequence[str] | None, *, cut: bool = True) -> CodedPair:
        """Returns the truth and a part of the release in the same codes."""
        weight = self.request.weight
        if weight is None and _COUNT in part.column_names and _COUNT not in self.stored:
            known = self.described is not None and _COUNT in self.described.columns
            weight = None if known else _COUNT
        return encode_pair(
            self.truth,
            part,
            table=self.described,
            columns=columns,
            weight=weight,
            unit=self.unit,
            cut=cut,
        )

    @property
    def unit(self) -> str | None:
        """The column of the truth that tells individuals apart: as requested, or as described."""
        if self.request.unit is not None or self.described is None:
            return self.request.unit
        unit = self.described.unit.column
        return unit if unit in self.stored else None


def _open(request: Request) -> _Opened:
    released = open_release(request.release)
    described, truth = released.described, request.truth
    if request.project is not None:
        project = read_project(request.project)
        name = request.table or (described.name if described is not None else None)
        if name is None and len(project.tables) > 1:
            raise SchemaError("the project describes several tables; name one with --table")
        table = project.table(name or next(iter(project.tables)))
        truth = truth or project.folder / table.source
        # What the certificate says of the columns is what was released; the project may have changed.
        described = described or table
    if truth is None:
        raise SchemaError("no records to compare with; give --truth or --project")
    if described is not None:
        stored = stored_names(truth, table=described)
    else:
        stored = list(read_side(truth, side="truth").column_names)
    return _Opened(request, released, truth, described, stored)


def _score_pie(opened: _Opened, part: pa.Table) -> dict[str, Any]:
    request, by = opened.request, opened.released.columns
    kind = request.kind or (by[-1] if by else None)
    rows = (*request.place, *request.time) or tuple(name for name in by if name != kind)
    if kind is None or not rows:
        raise SchemaError("name the columns of the pie charts: --kind, and --place or --time")
    if not by and kind not in part.column_names:
        truth = read_side(opened.truth, side="truth")
        pair = encode_wide(truth, part, rows=rows, kind=kind, unit=opened.unit)
        rows = (ROW,)
    else:
        pair = opened.encode(part, [*rows, kind], cut=False)
    scored = score_pies(pair, rows=rows, kind=kind, seed=request.seed)
    references = [{"name": name} | each.to_record() for name, each in scored.items()]
    return scored[RELEASE].to_record() | {"references": references}


def score_pies(pair: CodedPair, *, rows: Sequence[str], kind: str, seed: int = 0) -> dict[str, PieChart]:
    """Returns the pie chart scores of the references and, last, of the release itself, by name.

    One pie is scored for each combination of the columns `rows`, with one slice for each `kind`.
    """
    names = [*rows, kind]
    sizes = [pair.sizes[name] for name in names]
    cells = math.prod(sizes)
    if cells > _LARGEST:
        raise MetricError(f"{' x '.join(names)} has {cells:,} cells, more than can be scored")

    def count(side: Side) -> Whole:
        keys = pack_codes([side.codes[name] for name in names], sizes)
        counts = np.bincount(keys, side.weights, minlength=cells)
        return np.rint(counts).astype(np.int64).reshape(-1, sizes[-1])

    truth = count(pair.truth)
    tables = {
        ZEROS: np.zeros_like(truth),
        UNIFORM: np.full_like(truth, max(1, round(float(truth.mean())))),
        HALF: count(sample_truth(pair, seed=seed).of_share(0.5)),
        RELEASE: count(pair.release),
    }
    return {name: pie_chart(truth, table) for name, table in tables.items()}


def _score_records(opened: _Opened, part: pa.Table, metric: RecordMetric) -> dict[str, Any]:
    request = opened.request
    truth = read_side(opened.truth, side="truth")
    options: dict[str, Any] = {}
    match metric:
        case "k-marginal":
            places = (*request.place, *request.time)
            options = {"place": places} if places else {}
            if request.bias_cutoff is not None:
                options["bias_cutoff"] = request.bias_cutoff or None  # 0 turns the rule off
        case "taxi":
            options = {
                "bias_cutoff": request.bias_cutoff or None,
                "official_alignment": request.official_alignment,
            }
        case "match3":
            has_income = all(name in truth.column_names for name in ("SEX", "CITY", "INCWAGE"))
            options = {"seed": request.seed, "largest": _largest(opened.described)}
            options |= {} if has_income else {"income": None}
    scored = score_records(metric, truth, part, unit=request.unit, seed=request.seed, options=options)
    references = [{"name": name} | record for name, record in scored.items()]
    return scored[RELEASE] | {"references": references}


def _largest(described: Table | None) -> dict[str, int]:
    """Gives the largest value of every described range; listed values and others are taken from the truth."""
    columns = {} if described is None else described.columns
    return {n: column.domain.high for n, column in columns.items() if isinstance(column.domain, IntegerRange)}


def score_records(
    metric: RecordMetric,
    truth: pa.Table,
    release: pa.Table,
    *,
    unit: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """Scores the references and, last, `release` itself by `metric`, as plain records.

    All are compared with the records `truth`. The uniform release has as many records, every value of every
    column drawn with equal chance among those that occur; the half has half of the individuals (`unit`, by
    default taxis or records). Both are drawn from `seed`. An all-zero release has no record: it scores only
    what a metric gives for shares that are zero on both sides. `options` are those of the metric.
    """
    unit = unit or _UNITS[metric]
    if unit is not None:
        require_columns(truth, [unit], side="truth")
    generator = np.random.default_rng([seed, 8])  # the second number keeps the draws of one seed apart
    people = np.arange(truth.num_rows) if unit is None else code_column(truth, unit)
    half = truth.take(np.flatnonzero(draw_people(people, 0.5, generator)))
    tables = {UNIFORM: _draw_uniform(truth, unit, generator), HALF: half, RELEASE: release}
    scored = {name: _METRICS[metric](truth, table, **(options or {})) for name, table in tables.items()}
    zeros = _score_nothing(scored[RELEASE])
    return {ZEROS: zeros} | {name: each.to_record() for name, each in scored.items()}


def _score_nothing(scored: KMarginal | Taxi | Match3) -> dict[str, Any]:
    """Returns the score of no records at all, from what was measured of the truth."""
    match scored:
        case KMarginal():
            return scored.to_record() | {"score": 0.0, "biased": 0}
        case Taxi():
            conjunction = 1 - float(scored.shares[:, 0].mean())
            parts = {"k_marginal": 0.0, "graph_edge": 0.0, "conjunction": conjunction}
            return scored.to_record() | parts | {"score": 1000 * conjunction / 3}
        case Match3():
            return scored.of_no_records().to_record()


def _draw_uniform(truth: pa.Table, unit: str | None, generator: np.random.Generator) -> pa.Table:
    columns = {}
    for name in truth.column_names:
        if name == unit:
            columns[name] = truth.column(name)
            continue
        values = truth.column(name).unique().drop_null()
        columns[name] = values.take(generator.integers(0, max(1, len(values)), size=truth.num_rows))
    return pa.table(columns)


def _add_up(metric: MetricName, records: list[dict[str, Any]]) -> dict[str, float] | None:
    """Returns what a contest makes of several epsilons: the sum of row scores, or the mean of scores."""
    if metric == "general" or len(records) < 2:
        return None
    if metric == "pie-chart":
        total = sum(float(record["total"]) for record in records)
        return {"total": total, "mean": total / sum(int(record["rows"]) for record in records)}
    return {"score": sum(float(record["score"]) for record in records) / len(records)}
