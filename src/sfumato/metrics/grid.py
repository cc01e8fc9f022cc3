"""Counts laid out for the pie chart metric, and the tables to compare a score with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import MetricError
from sfumato.metrics.cells import pack_codes
from sfumato.metrics.ladder import deal_truth
from sfumato.metrics.marginals import HALF, RELEASE, UNIFORM, ZEROS
from sfumato.metrics.pie import PieChart, pie_chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.metrics.pair import CodedPair, Side

_LARGEST = 2**27


def lay_out(pair: CodedPair, side: Side, *, rows: Sequence[str], kind: str) -> NDArray[np.int64]:
    """The counts of a side: one row per combination of the columns `rows`, one column per `kind`."""
    names = [*rows, kind]
    sizes = [pair.sizes[name] for name in names]
    cells = math.prod(sizes)
    if cells > _LARGEST:
        raise MetricError(f"{' x '.join(names)} has {cells:,} cells, more than can be scored")
    keys = pack_codes([side.codes[name] for name in names], sizes)
    counts = np.bincount(keys, side.weights, minlength=cells)
    return np.rint(counts).astype(np.int64).reshape(-1, sizes[-1])


def score_grid(pair: CodedPair, *, rows: Sequence[str], kind: str, seed: int = 0) -> dict[str, PieChart]:
    """The pie chart scores of the references and, last, of the release itself, by name."""
    truth = lay_out(pair, pair.truth, rows=rows, kind=kind)
    even = max(1, round(float(truth.mean())))
    half = deal_truth(pair, seed=seed).sample(0.5)
    tables = {
        ZEROS: np.zeros_like(truth),
        UNIFORM: np.full_like(truth, even),
        HALF: lay_out(pair, half, rows=rows, kind=kind),
        RELEASE: lay_out(pair, pair.release, rows=rows, kind=kind),
    }
    return {name: pie_chart(truth, table) for name, table in tables.items()}
