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
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.door import Bill, Records, answer_under_charge
from sfumato.core.errors import RecipeError
from sfumato.core.exact import digest, format_exact, parse_positive
from sfumato.core.facts.project import Project
from sfumato.core.facts.table import Table, table_spec
from sfumato.core.ledger.ledger import Ledger
from sfumato.core.questions.choices import measure_distance
from sfumato.core.questions.measurement import Measurement, Request, ask_cost, request_sensitivity
from sfumato.core.questions.question import Question, Stated
from sfumato.metrics.pie import pie_chart
from sfumato.metrics.released import code_released, open_release, split_epsilons

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.core.law import NoiseSource, Norm
    from sfumato.servers.project import Engine

SCORE_GRID = 2**20
"""The score of a row is rounded to a multiple of 1 / SCORE_GRID, so that sums are exact."""

_LARGEST = 2**40
_LARGEST_SCORE = 2**62
_METRICS = ("pie-chart", "l1")


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


@dataclass(frozen=True, slots=True, eq=False)
class _Score(Question):
    """What is compared with the `released` counts, and how far one individual moves it: public facts.

    `epsilon` is that of the release.
    """

    stated: ClassVar = Stated(bounding="records", tally="scores", norms=("L1",), signed=True, sampled=False)
    queries: ClassVar[None] = None  # type: ignore[misc]

    metric: str
    table: Table
    columns: tuple[str, ...]
    epsilon: float | None
    released: NDArray[np.int64]

    def grid(self, table: Table) -> int:
        """The denominator of a score."""
        return SCORE_GRID if self.metric == "pie-chart" else table.grid

    def size(self, table: Table) -> int:
        """The number of answers."""
        return 1

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """How far one individual moves a score, in units of 1 / grid.

        Privacy: with `truncate`, an individual has at most max_records records, so it is in at most that
        many rows, and a row's score moves by at most 1. An L1 distance to a public table moves by at
        most the L1 distance of the counts (docs/proofs/scores.md).
        """
        most = min(table.unit.max_records, self.rows) * SCORE_GRID
        return Fraction(most if self.metric == "pie-chart" else table.contribution)

    def check(self, table: Table) -> None:
        """Raises an error if `table` has not its columns."""
        table.cells(self.columns)

    @property
    def rows(self) -> int:
        return self.table.cells(self.columns[:-1]) if len(self.columns) > 1 else 1

    def to_record(self) -> dict[str, Any]:
        return {"score": self.metric, "released": digest({"counts": self.released.tolist()})}

    def evaluate(self, true_values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The exact score, in units of 1 / grid; the door alone calls this."""
        if self.metric == "l1":
            distance = measure_distance(true_values, self.released * self.table.grid)
            return np.array([min(distance, _LARGEST_SCORE)], np.int64)
        # Held where the metric would refuse: no error may depend on a count.
        kinds = self.table.column(self.columns[-1]).size
        held = np.minimum(true_values, _LARGEST // kinds).reshape(-1, kinds)
        rows = pie_chart(held, self.released.reshape(-1, kinds)).rows
        return np.array([np.rint(rows * SCORE_GRID).astype(np.int64).sum()], np.int64)

    def finish(self, noisy: int, half: float) -> dict[str, Any]:
        """The score with its interval, for people."""
        divisor = self.grid(self.table) * (self.rows if self.metric == "pie-chart" else 1)
        top = 1.0 if self.metric == "pie-chart" else math.inf
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
    scores = _read_scores(folder, metric=metric, columns=columns, project=project)
    table, names = scores[0].table, scores[0].columns
    # They share epsilon in equal parts.
    probe = Request(name="score", counted=scores[0], noise="laplace", scale=Fraction(1))
    scale = request_sensitivity(table, probe) * len(scores) / exact
    requests = tuple(
        replace(probe, name=f"score {place}", counted=each, scale=scale)
        for place, each in enumerate(scores, start=1)
    )
    record = {
        "score": metric,
        "columns": list(names),
        "table": {table.name: table_spec(table, names)},
        "releases": [each.to_record()["released"] for each in scores],
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
        scores=tuple(score.finish(value, half) for score, value in zip(scores, noisy, strict=True)),
        spent=exact if charged else Fraction(0),
        repeated=not charged,
    )


def _read_scores(
    folder: Path | str, *, metric: str, columns: tuple[str, ...] | None, project: Project
) -> tuple[_Score, ...]:
    """The scores of all tables of a release."""
    if metric not in _METRICS:
        raise RecipeError(
            f"no noisy score: the sensitivity of {metric!r} is not known, since its shares or its places and "
            f"times depend on the records; {' and '.join(_METRICS)} can be published. Nothing was spent"
        )
    released = open_release(folder)
    if released.described is None:
        raise RecipeError("a noisy score needs a release folder, whose certificate names its table")
    table = project.table(released.described.name)
    names = tuple(released.columns) if columns is None else columns
    if metric == "pie-chart" and (table.bounding == "weight" or len(names) < 2):
        raise RecipeError(
            "a noisy pie-chart score needs at least two columns, the last one the slices, and bounding = "
            '"truncate": under weights an individual may be in any number of rows'
        )
    parts = split_epsilons(released.table)
    return tuple(
        _Score(metric, table, names, each, _count_released(part, table, names)) for each, part in parts
    )


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
    if not 0 <= counts.min() <= counts.max() < _LARGEST // table.column(columns[-1]).size:
        raise RecipeError("the counts of the release are negative or too large to be scored")
    return counts
