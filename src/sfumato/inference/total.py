"""The number of records, from measurements that sum to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.inference.kernels import apply_rows, spread_rows

if TYPE_CHECKING:
    from sfumato.inference.domain import Domain
    from sfumato.inference.measured import Part, Sparse


def estimate_total(domain: Domain, parts: list[Part]) -> float:
    """The average of what every part says of the total, by precision; at least one record.

    Queries speak of the total if some combination of them adds up to the sum of all cells.
    """
    weights, weighted = 0.0, 0.0
    for part in parts:
        if part.queries is None:
            value, variance = float(part.values.sum()), part.variance * part.values.size
        else:
            combination = _sum_of_all(part.queries, domain.cells(part.columns))
            if combination is None:
                continue
            value = float(np.dot(combination, part.values))
            variance = part.variance * float(np.dot(combination, combination))
        weights += 1 / variance
        weighted += value / variance
    if weights == 0:
        raise RecipeError("no measurement adds up to the number of records; give the total")
    return max(1.0, weighted / weights)


def _sum_of_all(queries: Sparse, cells: int) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """The shortest combination of queries that is the sum of all cells, by conjugate gradients."""
    rows = (queries.starts, queries.members, queries.weights)
    combination = np.zeros(queries.rows)
    left = np.ones(cells)
    residual = np.empty(queries.rows)
    apply_rows(*rows, left, residual)
    direction, norm = residual.copy(), float(np.dot(residual, residual))
    for _ in range(200):
        if norm <= 1e-24 * cells:
            break
        image = np.zeros(cells)
        spread_rows(*rows, direction, image)
        step = norm / float(np.dot(image, image))
        combination += step * direction
        left -= step * image
        apply_rows(*rows, left, residual)
        last, norm = norm, float(np.dot(residual, residual))
        direction = residual + (norm / last) * direction
    return combination if float(np.abs(left).max()) < 1e-6 else None
