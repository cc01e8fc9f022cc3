"""A contest's score beside those of the tables to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from sfumato.metrics.codes import number_column
from sfumato.metrics.k_marginal import KMarginal, k_marginal
from sfumato.metrics.marginals import HALF, RELEASE, UNIFORM, ZEROS
from sfumato.metrics.match3 import Match3, match3
from sfumato.metrics.tables import require_columns
from sfumato.metrics.taxi import Taxi, taxi

if TYPE_CHECKING:
    from collections.abc import Mapping

RecordMetric = Literal["k-marginal", "taxi", "match3"]

_UNITS: dict[RecordMetric, str | None] = {"k-marginal": None, "taxi": "taxi_id", "match3": None}


def score_records(
    metric: RecordMetric,
    truth: pa.Table,
    release: pa.Table,
    *,
    unit: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """The scores of the references and, last, of the release itself, as plain records by name.

    The uniform release has as many records as the truth, every value of every column drawn with equal
    chance among those that occur; the half has half of the individuals (`unit`, by default taxis or
    records). Both are drawn from `seed`. An all-zero release has no record: it scores nothing but what
    a metric gives for shares that are zero on both sides.
    """
    chosen = dict(options or {})
    generator = np.random.default_rng([seed, 8])
    if _UNITS[metric] is not None and unit is None:
        require_columns(truth, (_UNITS[metric] or "",), side="truth")
    half = _half(truth, unit or _UNITS[metric], generator)
    uniform = _uniform(truth, unit or _UNITS[metric], generator)
    scored = {
        UNIFORM: _score(metric, truth, uniform, chosen),
        HALF: _score(metric, truth, half, chosen),
        RELEASE: _score(metric, truth, release, chosen),
    }
    return {ZEROS: _zeros(scored[RELEASE])} | {name: each.to_record() for name, each in scored.items()}


def _score(
    metric: RecordMetric, truth: pa.Table, release: pa.Table, options: dict[str, Any]
) -> KMarginal | Taxi | Match3:
    match metric:
        case "k-marginal":
            return k_marginal(truth, release, **options)
        case "taxi":
            return taxi(truth, release, **options)
        case "match3":
            return match3(truth, release, **options)


def _zeros(scored: KMarginal | Taxi | Match3) -> dict[str, Any]:
    """The score of no records at all, from what was measured of the truth."""
    match scored:
        case KMarginal():
            return scored.to_record() | {"score": 0.0, "biased": 0}
        case Taxi():
            conjunction = 1 - float(scored.shares[:, 0].mean())
            parts = {"k_marginal": 0.0, "graph_edge": 0.0, "conjunction": conjunction}
            return scored.to_record() | parts | {"score": 1000 * conjunction / 3}
        case Match3():
            return scored.of_no_records().to_record()


def _half(truth: pa.Table, unit: str | None, generator: np.random.Generator) -> pa.Table:
    people = np.arange(truth.num_rows) if unit is None else number_column(truth, unit)
    count = int(people.max()) + 1
    kept = np.zeros(count, np.bool_)
    kept[generator.permutation(count)[: max(1, round(count / 2))]] = True
    return truth.take(np.flatnonzero(kept[people]))


def _uniform(truth: pa.Table, unit: str | None, generator: np.random.Generator) -> pa.Table:
    columns = {}
    for name in truth.column_names:
        if name == unit:
            columns[name] = truth.column(name)
            continue
        values = truth.column(name).unique().drop_null()
        columns[name] = values.take(generator.integers(0, max(1, len(values)), size=truth.num_rows))
    return pa.table(columns)
