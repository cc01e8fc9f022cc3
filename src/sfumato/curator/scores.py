"""Scores with noise: how good a release is, published at a price.

Part of the curator. A score compares a release with the records, so by itself it is not private. Two
have a sensitivity that is known, and are answered with noise; the others are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.door import Bill, Records, answer_under_charge
from sfumato.core.errors import RecipeError
from sfumato.core.exact import digest, format_exact, parse_positive
from sfumato.core.facts.project import Project
from sfumato.core.facts.table import Table, table_spec
from sfumato.core.ledger.ledger import Ledger
from sfumato.core.questions.measurement import (
    Measurement,
    Request,
    ask_cost,
    check_asks,
    request_sensitivity,
)
from sfumato.core.questions.scores import METRICS, ReleaseScore
from sfumato.metrics.released import code_released, open_release, split_epsilons

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.core.law import NoiseSource
    from sfumato.servers.project import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedScore:
    """Noisy scores that may be published, one for each epsilon of the release, with 95 % intervals.

    `pie-chart` is the mean score of a row, from 0 to 1; `l1` the sum over all cells of how far the released
    count is from the count of bounded records.
    """

    metric: str
    columns: tuple[str, ...]
    scores: tuple[dict[str, Any], ...]
    spent: Fraction
    repeated: bool

    def to_record(self) -> dict[str, Any]:
        """The scores as a plain record."""
        return {
            "metric": self.metric,
            "columns": list(self.columns),
            "scores": [dict(score) for score in self.scores],
            "spent": format_exact(self.spent),
            "repeated": self.repeated,
        }


@dataclass(frozen=True, slots=True)
class _Scored:
    """One table of a release: its `epsilon` if it has one, and its score."""

    epsilon: float | None
    score: ReleaseScore

    def finish(self, table: Table, noisy: int, half: float) -> dict[str, Any]:
        """The score with its interval, for people."""
        pie = self.score.metric == "pie-chart"
        divisor = self.score.grid(table) * (self.score.count_rows(table) if pie else 1)
        top = 1.0 if pie else math.inf
        ends = {"score": noisy, "low": noisy - half, "high": noisy + half}
        shown = {} if self.epsilon is None else {"epsilon": self.epsilon}
        return {**shown, **{name: min(max(value / divisor, 0.0), top) for name, value in ends.items()}}


def publish_score(
    folder: Path | str,
    *,
    metric: str,
    epsilon: object,
    columns: tuple[str, ...] | None,
    project: Project,
    engine: Engine,
    open_ledger: Callable[[Bill], Ledger],
    progress: Callable[[str], None],
    noise: NoiseSource | None = None,
) -> PublishedScore:
    """The noisy score of the release in `folder` against the records of its project, charged before.

    `metric`, `epsilon`, `columns` and `progress` are those of `Curator.publish_score`; `engine` counts the
    records of `project`, `open_ledger` opens what is charged, `noise` is another source of it for audits.

    Privacy: exact scores of known sensitivity in whole numbers, plus Laplace noise; docs/proofs/scores.md.
    """
    exact = parse_positive(epsilon, name="epsilon")
    table, parts = _read_scores(folder, metric=metric, columns=columns, project=project)
    names = parts[0].score.columns
    # They share epsilon in equal parts.
    probe = Request(name="score", counted=parts[0].score, noise="laplace", scale=Fraction(1))
    scale = request_sensitivity(table, probe) * len(parts) / exact
    requests = tuple(
        replace(probe, name=f"score {place}", counted=each.score, scale=scale)
        for place, each in enumerate(parts, start=1)
    )
    check_asks(table, requests, parts=())
    record = {
        "score": metric,
        "columns": list(names),
        "table": {table.name: table_spec(table, names)},
        "releases": [each.score.to_record()["released"] for each in parts],
        "epsilon": exact,
    }
    with engine.snapshot(table):
        engine.check(table, (names,))
        bill = Bill(
            digest=digest(record),
            description=record,
            tables=table.name,
            costs=tuple(ask_cost(table, each) for each in requests),
            window=table.window,
            version=lambda secret: engine.version(table, secret=secret),
            packed=lambda: engine.packed(table),
            table=table,
        )
        records = Records(table, engine=engine, progress=progress)
        noisy, charged = answer_under_charge(
            bill,
            ledger=open_ledger(bill),
            noise=noise,
            measure=lambda charge: [
                int(each.noisy_values[0])
                for each in charge.ask(requests, records)
                if isinstance(each, Measurement)
            ],
            pack=lambda scores: json.dumps(scores).encode(),
            unpack=json.loads,
            progress=progress,
        )
    half = math.log(20) * float(scale)
    return PublishedScore(
        metric=metric,
        columns=names,
        scores=tuple(each.finish(table, value, half) for each, value in zip(parts, noisy, strict=True)),
        spent=exact if charged else Fraction(0),
        repeated=not charged,
    )


def _read_scores(
    folder: Path | str, *, metric: str, columns: tuple[str, ...] | None, project: Project
) -> tuple[Table, list[_Scored]]:
    """The table of a release, and the scores of its parts."""
    if metric not in METRICS:
        raise RecipeError(
            f"no noisy score: the sensitivity of {metric!r} is not known, since its shares or its places and "
            f"times depend on the records; {' and '.join(METRICS)} can be published. Nothing was spent"
        )
    released = open_release(folder)
    if released.described is None:
        raise RecipeError("a noisy score needs a release folder, whose certificate names its table")
    table = project.table(released.described.name)
    names = tuple(released.columns) if columns is None else columns
    parts = split_epsilons(released.table)
    return table, [
        _Scored(each, ReleaseScore(metric, names, _count_released(part, table, names)))
        for each, part in parts
    ]


def _count_released(released: pa.Table, table: Table, columns: tuple[str, ...]) -> NDArray[np.int64]:
    """The counts of the released table in every cell."""
    cells = np.zeros(released.num_rows, np.int64)
    for name in columns:
        codes = code_released(released, table.column(name))
        if codes is None:
            raise RecipeError(f"the release has no column {name!r}; name columns that it has")
        cells = cells * table.column(name).size + codes
    weights = np.ones(released.num_rows, np.int64)
    if "count" in released.column_names and "count" not in columns:
        weights = np.asarray(released["count"].to_numpy(), np.int64)
    counts = np.zeros(table.cells(columns), np.int64)
    np.add.at(counts, cells, weights)
    return counts
