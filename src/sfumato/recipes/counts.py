"""What recipes for tables of counts share: the smaller of two noises, and what becomes of noisy counts."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from sfumato.accounting import discrete_gaussian_sigma
from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_exact, round_up
from sfumato.measurement import Request
from sfumato.recipes.layout import cell_columns
from sfumato.tables.arrays import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from sfumato.headcounts import HeadCounts
    from sfumato.recipes.base import Plan

Noise = Literal["auto", "laplace", "gaussian"]

_LARGEST_THRESHOLD = 10**6


def parse_by(value: object, *, kind: str) -> tuple[str, ...]:
    """The columns that `by` lists."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise RecipeError(f"{kind}: by must be a list of columns, such as ['district', 'month']")
    if not value or len(set(value)) != len(value):
        raise RecipeError(f"{kind}: by must list at least one column, and none twice")
    return tuple(value)


def parse_noise(value: object, *, kind: str) -> None:
    """Raises an error if `value` names no noise."""
    if value not in ("auto", "laplace", "gaussian"):
        raise RecipeError(f"{kind}: noise must be auto, laplace or gaussian, got {value!r}")


def parse_threshold(value: object, *, kind: str) -> Fraction:
    """The threshold that `value` stands for, in standard deviations of the noise.

    >>> parse_threshold(2.5, kind="cell-counts")
    Fraction(5, 2)
    """
    threshold = parse_exact(value, name=f"{kind}: threshold")
    if not 0 <= threshold <= _LARGEST_THRESHOLD:
        raise RecipeError(
            f"{kind}: threshold counts standard deviations of the noise, from 0 to {_LARGEST_THRESHOLD}"
        )
    return threshold


def request_counts(
    name: str,
    columns: tuple[str, ...],
    *,
    noise: Noise,
    epsilon: Fraction,
    delta: Fraction,
    sensitivity: Callable[[Request], Fraction],
    heads: HeadCounts | None = None,
) -> Request:
    """The request for counts whose noise, of those allowed, has the smaller standard deviation.

    Privacy: both scales follow from `sensitivity`, which gives that of a request for its noise, and from
    epsilon and delta; the choice compares public figures.
    """

    def ask(kind: Literal["laplace", "gaussian"], scale: Fraction) -> Request:
        return Request(name=name, columns=columns, noise=kind, scale=scale, heads=heads)

    laplace = ask("laplace", sensitivity(ask("laplace", Fraction(1))) / epsilon)
    if delta == 0 or noise == "laplace":
        return laplace
    bound = sensitivity(ask("gaussian", Fraction(1)))
    sigma = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=bound)
    gaussian = ask("gaussian", round_up(sigma, places=6))
    better = gaussian.standard_deviation < laplace.standard_deviation
    return gaussian if better or noise == "gaussian" else laplace


def round_to_records(values: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
    """`values` in units of 1 / grid as the nearest whole records, halves up."""
    return values if grid == 1 else (values + grid // 2) // grid


def finish_counts(
    noisy_values: NDArray[np.int64],
    *,
    threshold: Fraction,
    deviation: float | NDArray[np.float64],
    grid: int = 1,
) -> NDArray[np.int64]:
    """Whole, non-negative counts: rounded halves up, and 0 below `threshold` standard deviations.

    Values and `deviation`, one or one per value, are in units of 1 / grid.

    >>> finish_counts(np.array([-3, 4, 9]), threshold=Fraction(2), deviation=2.5).tolist()
    [0, 0, 9]
    """
    counts = np.maximum(round_to_records(noisy_values, grid), 0)
    if threshold:
        counts[noisy_values < float(threshold) * deviation] = 0
    return counts


def tabulate_counts(plan: Plan, by: tuple[str, ...], counts: Sequence[NDArray[np.int64]]) -> pa.Table:
    """Every cell of `by` with its count; one table for all epsilons, named in a column if several."""
    columns = cell_columns(plan.table, by)
    parts = []
    for epsilon, values in zip(plan.epsilons, counts, strict=True):
        named = {**columns, "count": to_arrow(values)}
        if len(plan.epsilons) > 1:
            named = {"epsilon": to_arrow(np.full(values.size, float(epsilon))), **named}
        parts.append(pa.table(named))
    return pa.concat_tables(parts, promote_options="default")


def tell_threshold(threshold: Fraction) -> str:
    """A sentence about `threshold` for a write-up, or nothing if there is none."""
    if not threshold:
        return ""
    return (
        f" A count below {format_exact(threshold)} standard deviations of its noise is then set to 0: the "
        "table shows fewer counts that are noise alone, and loses small ones that are not."
    )
