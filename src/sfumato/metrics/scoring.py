"""A release scored from files: which records, which columns, which metric, which epsilons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sfumato.errors import MetricError, SchemaError
from sfumato.metrics.compare import INTERNAL, compare_pair
from sfumato.metrics.encode import encode_pair
from sfumato.metrics.grid import score_grid
from sfumato.metrics.marginals import RELEASE
from sfumato.metrics.official import score_records
from sfumato.metrics.released import EPSILON, Released, open_release, split_epsilons
from sfumato.metrics.stored import stored_names
from sfumato.metrics.tables import read_table
from sfumato.metrics.wide import ROW, encode_wide
from sfumato.schema import IntegerRange, read_project

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from sfumato.schema import Table

_COUNT = "count"

MetricName = Literal["general", "pie-chart", "k-marginal", "taxi", "match3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to score: a release, the records to compare with, the metric and its options."""

    release: Path
    truth: Path | None = None
    project: Path | None = None
    table: str | None = None
    metric: str = "general"
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

    metric: str
    results: tuple[tuple[float | None, dict[str, Any]], ...]
    overall: dict[str, float] | None

    def to_record(self) -> dict[str, Any]:
        """The scores as a plain record."""
        return {
            "internal": INTERNAL,
            "metric": self.metric,
            "results": [{"epsilon": epsilon} | record for epsilon, record in self.results],
            "overall": self.overall,
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Opened:
    """A release with its records found."""

    released: Released
    truth: Path
    described: Table | None
    stored: list[str]


def score_release(request: Request, *, progress: Callable[[str], None] = lambda _: None) -> Scores:
    """The scores that `request` asks for, one per epsilon of the release.

    >>> score_release(Request(release=Path("nowhere"), truth=Path("nothing.csv")))
    Traceback (most recent call last):
        ...
    sfumato.errors.MetricError: release: there is no file 'nowhere'
    """
    progress("reading the release")
    opened = _open(request)
    parts = (
        split_epsilons(opened.released.table)
        if EPSILON not in opened.stored
        else [(None, opened.released.table)]
    )
    results = []
    for epsilon, part in parts:
        match request.metric:
            case "general":
                record = _score_general(request, opened, part, progress)
            case "pie-chart":
                progress("counting")
                record = _score_pie(request, opened, part)
            case _:
                progress("scoring")
                record = _score_records(request, opened, part)
        results.append((epsilon, record))
    return Scores(request.metric, tuple(results), _add_up(request.metric, [record for _, record in results]))


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
        stored = stored_names(truth, table=described, side="truth")
    else:
        stored = list(read_table(truth, side="truth").column_names)
    return _Opened(released, truth, described, stored)


def _score_general(
    request: Request, opened: _Opened, part: pa.Table, progress: Callable[[str], None]
) -> dict[str, Any]:
    progress("reading the records")
    pair = encode_pair(
        opened.truth,
        part,
        table=opened.described,
        columns=request.columns or opened.released.columns or None,
        weight=_weight(request, opened, part),
        unit=_unit(request, opened),
    )
    compared = compare_pair(pair, target=request.target, seed=request.seed, progress=progress)
    return compared.to_record()


def _score_pie(request: Request, opened: _Opened, part: pa.Table) -> dict[str, Any]:
    by = opened.released.columns
    kind = request.kind or (by[-1] if by else None)
    rows = (*request.place, *request.time) or tuple(name for name in by if name != kind)
    if kind is None or not rows:
        raise SchemaError("name the columns of the pie charts: --kind, and --place or --time")
    if not opened.released.columns and kind not in part.column_names:
        truth = read_table(opened.truth, side="truth")
        pair = encode_wide(truth, part, rows=rows, kind=kind, unit=_unit(request, opened))
        rows = (ROW,)
    else:
        pair = encode_pair(
            opened.truth,
            part,
            table=opened.described,
            columns=[*rows, kind],
            weight=_weight(request, opened, part),
            unit=_unit(request, opened),
            cut=False,
        )
    scored = score_grid(pair, rows=rows, kind=kind, seed=request.seed)
    references = [{"name": name} | each.to_record() for name, each in scored.items()]
    return scored[RELEASE].to_record() | {"references": references}


def _score_records(request: Request, opened: _Opened, part: pa.Table) -> dict[str, Any]:
    truth = read_table(opened.truth, side="truth")
    options: dict[str, Any] = {}
    match request.metric:
        case "k-marginal":
            places = (*request.place, *request.time)
            options = {"place": places} if places else {}
            if request.bias_cutoff is not None:
                options["bias_cutoff"] = request.bias_cutoff or None
        case "taxi":
            options = {
                "bias_cutoff": request.bias_cutoff or None,
                "official_alignment": request.official_alignment,
            }
        case "match3":
            has_income = all(name in truth.column_names for name in ("SEX", "CITY", "INCWAGE"))
            options = {"seed": request.seed, "largest": _largest(opened.described)}
            options |= {} if has_income else {"income": None}
        case _:
            raise MetricError(f"no metric {request.metric!r}")
    scored = score_records(
        request.metric,
        truth,
        part,
        unit=request.unit,
        seed=request.seed,
        options=options,
    )
    references = [{"name": name} | record for name, record in scored.items()]
    return scored[RELEASE] | {"references": references}


def _largest(described: Table | None) -> dict[str, int]:
    """The largest value of every described range; listed values and others are taken from the truth."""
    columns = {} if described is None else described.columns
    return {n: column.domain.high for n, column in columns.items() if isinstance(column.domain, IntegerRange)}


def _weight(request: Request, opened: _Opened, part: pa.Table) -> str | None:
    if request.weight is not None:
        return request.weight
    known = opened.described is not None and _COUNT in opened.described.columns
    return _COUNT if _COUNT in part.column_names and _COUNT not in opened.stored and not known else None


def _unit(request: Request, opened: _Opened) -> str | None:
    if request.unit is not None or opened.described is None:
        return request.unit
    unit = opened.described.unit.column
    return unit if unit in opened.stored else None


def _add_up(metric: str, records: list[dict[str, Any]]) -> dict[str, float] | None:
    """What a contest makes of several epsilons: the sum of row scores, or the mean of scores."""
    if metric == "general" or len(records) < 2:
        return None
    if metric == "pie-chart":
        total = sum(float(record["total"]) for record in records)
        return {"total": total, "mean": total / sum(int(record["rows"]) for record in records)}
    return {"score": sum(float(record["score"]) for record in records) / len(records)}
