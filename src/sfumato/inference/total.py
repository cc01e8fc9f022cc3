"""What the measurements of a release say of its number of records, and whether that may be noise alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from sfumato.core.exact import NORMAL_95
from sfumato.core.facts.table import Table
from sfumato.core.questions.counts import Queries
from sfumato.core.questions.measurement import Answer, Measurement, Request
from sfumato.core.questions.moments import Moments

# How those are added up whose answers are numbers of records or individuals.
_COUNTS = ("cells", "occupied", "capped", "clipped", "individuals")


def total_in_records(table: Table, answers: Iterable[Answer]) -> tuple[float, float] | None:
    """Return the noisy total of all counts, and what the total of an empty table stays below with 97.5 %.

    Of the measurements whose answers add up to all that was counted, the one with the least noise of the
    sum is taken. None if there is no such measurement: queries need not give all cells the same weight.
    """
    found = []
    for measurement in answers:
        if not isinstance(measurement, Measurement):
            continue
        request, values = measurement.request, measurement.noisy_values
        if isinstance(request.counted, Moments):
            if request.counted.link is None:  # the first product is 1 for every record
                counts = (
                    values[:: request.counted.features] if request.counted.centres is not None else values[:1]
                )
                reach = request.law.half_width() * math.sqrt(counts.size)
                found.append((reach / measurement.grid, int(counts.sum(dtype=object)) / measurement.grid))
            continue
        weight = _weight_of_cells(request.queries)
        if weight is None or request.counted.tally not in _COUNTS:
            continue
        if request.threshold is not None:
            width = _reach_of_passing(request, table.cells(request.columns))
        elif values.size == 1:
            width = request.law.half_width()
        else:
            width = NORMAL_95 * request.standard_deviation * math.sqrt(values.size)
        unit = weight * measurement.grid
        found.append((width / unit, int(values.sum(dtype=object)) / unit))
    if not found:
        return None
    reach, total = min(found)
    return total, reach


def note_total(total: float, reach: float, *, of: str) -> str | None:
    """Return what is said of a total that its noise alone may explain; None of any other."""
    if total > reach:
        return None
    return (
        f"the total of this {of}, {total:,.0f}, lies within its noise (+-{reach:,.0f}): it may be noise "
        "alone; if you expected more records, check `source`, formats and domains with `sfumato doctor`"
    )


def _reach_of_passing(request: Request, cells: int) -> float:
    """Return what the sum of the noise that passes the threshold of `request` in empty cells stays below."""
    # Noise that passes is the threshold and more, and how much more has a geometric law.
    step = math.expm1(min(300.0, float(1 / request.scale)))  # its square must not overflow
    mean = (request.threshold or 0) + 1 / step
    square = mean**2 + (1 + step) / step**2
    passing = cells * request.passing
    return passing * mean + NORMAL_95 * math.sqrt(passing * square)


def _weight_of_cells(queries: Queries | None) -> float | None:
    """Return the weight of a cell in the sum of all answers, if it is the same for all cells."""
    if queries is None:
        return 1.0
    sums = np.bincount(queries.members, weights=queries.weights, minlength=queries.cells)
    return float(sums[0]) / queries.grid if sums[0] > 0 and (sums == sums[0]).all() else None
