"""Layer 2: whether the noise that is drawn has the law it is declared to have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sfumato.audit.bounds import binomial_tail, chi_square_tail
from sfumato.audit.result import Finding
from sfumato.noise import add_noise, add_sparse_noise, exponential_choice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from sfumato.audit.watch import Asked

DRAWS = 20_000

_RARE = 1e-7  # noise that is wrong enough to matter is wrong beyond any doubt after so many draws
_BINS = 24
_MOST_LAWS = 8
_LEAST_EXPECTED = 20.0
_FINE_GAUSSIAN = 30.0


def check_laws(
    asked: Sequence[Asked], *, miss: float, draws: int = DRAWS, progress: Callable[[str], None]
) -> tuple[Finding, ...]:
    """Whether draws fit every kind and scale of noise that was asked for; false alarms below `miss`."""
    tests: list[tuple[str, float]] = []
    laws = list(
        dict.fromkeys((each.kind, each.scale) for each in asked if each.kind in ("laplace", "gaussian"))
    )
    for kind, scale in laws[:_MOST_LAWS]:
        progress(f"noise law: {kind}")
        drawn = add_noise(np.zeros(draws, np.int64), kind=kind, scale=scale)
        tests += [(f"{kind} of scale {float(scale):.6g}", each) for each in fit_law(drawn, kind, scale)]
    for each in [each for each in asked if each.kind == "choice"][:_MOST_LAWS]:
        progress("noise law: choices")
        tests.append((f"choice at rate {float(each.scale):.6g}", _fit_choice(each, draws)))
    for each in [each for each in asked if each.kind == "sparse"][:_MOST_LAWS]:
        progress("noise law: occupied cells")
        tests += [("noise on occupied cells", chance) for chance in _fit_sparse(each)]
    if not tests:
        return ()
    name, least = min(tests, key=lambda test: test[1])
    wrong = least < min(miss, _RARE) / len(tests)
    text = f"{len(tests)} tests of {draws:,} draws: " + (
        f"{name} does not have its law (chance {least:.2g})" if wrong else f"least chance {least:.2g}"
    )
    return (Finding(layer=2, text=text, violated=wrong),)


def fit_law(drawn: NDArray[np.int64], kind: str, scale: Fraction | float) -> tuple[float, ...]:
    """The chances, under the law of this kind and scale, of a fit as bad as that of `drawn`.

    First by its shape, then by whether draws are even.

    >>> from sfumato.noise import discrete_laplace
    >>> min(fit_law(discrete_laplace(scale=3, size=2000), "laplace", 6.0)) < 1e-9
    True
    """
    width = float(scale)
    reach = _quantile(kind, width, 1 - 0.5 / _BINS)
    edges = np.unique([_quantile(kind, width, share / _BINS) for share in range(1, _BINS)])
    edges = edges[(edges >= -reach) & (edges <= reach)]
    below = np.array([_chance_below(kind, width, int(edge)) for edge in edges])
    expected = np.diff(below, prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(edges, drawn, side="left"), minlength=edges.size + 1)
    chances = [_chi_square(counts, expected)]
    even = int((drawn % 2 == 0).sum())
    share = _chance_even(kind, width)
    chances.append(_chi_square(np.array([even, drawn.size - even]), np.array([share, 1 - share])))
    return tuple(chances)


def _chi_square(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """The chance of a fit as bad; cells of small expectation are put together."""
    total = int(counts.sum())
    means = expected * total
    merged: list[tuple[float, float]] = []
    seen, mean = 0.0, 0.0
    for count, each in zip(counts.tolist(), means.tolist(), strict=True):
        seen, mean = seen + count, mean + each
        if mean >= _LEAST_EXPECTED:
            merged.append((seen, mean))
            seen, mean = 0.0, 0.0
    if merged and mean > 0:
        merged[-1] = (merged[-1][0] + seen, merged[-1][1] + mean)
    if len(merged) < 2:
        return 1.0
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in merged)
    return chi_square_tail(statistic, len(merged) - 1)


def _chance_below(kind: str, scale: float, number: int) -> float:
    """P(X <= number)."""
    if kind == "laplace":
        q = math.exp(-1 / scale)
        return 1 - q ** (number + 1) / (1 + q) if number >= 0 else q**-number / (1 + q)
    if scale >= _FINE_GAUSSIAN:
        return math.erfc(-(number + 0.5) / scale / math.sqrt(2)) / 2
    reach = math.ceil(12 * scale) + 10
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * scale**2))
    return float(weights[values <= number].sum() / weights.sum())


def _chance_even(kind: str, scale: float) -> float:
    if kind == "laplace":
        q = math.exp(-1 / scale)
        return (1 + q * q) / (1 + q) ** 2
    if scale >= _FINE_GAUSSIAN:
        return 0.5
    reach = math.ceil(12 * scale) + 10
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * scale**2))
    return float(weights[values % 2 == 0].sum() / weights.sum())


def _quantile(kind: str, scale: float, share: float) -> int:
    """The least whole number that X stays at or below with this chance."""
    low = high = 1
    while _chance_below(kind, scale, high) < share:
        high *= 2
    while _chance_below(kind, scale, -low) >= share:
        low *= 2
    low, high = -low, high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _chance_below(kind, scale, middle) >= share else (middle, high)
    return high


def _fit_choice(asked: Asked, draws: int) -> float:
    row = asked.true_values[0]
    rate = float(asked.scale)
    below = np.array([float(int(row.max()) - int(score)) for score in row])
    weights = np.exp(-np.minimum(rate * below, 700.0))
    count = max(1, min(draws, 2**22 // row.size))
    drawn = exponential_choice(np.tile(row, (count, 1)), rate=asked.scale)
    order = np.argsort(-weights, kind="stable")
    counts = np.bincount(drawn, minlength=row.size)[order]
    return _chi_square(counts, (weights / weights.sum())[order])


def _fit_sparse(asked: Asked) -> tuple[float, ...]:
    """How many empty cells pass the threshold, and how far above it they are."""
    nothing = np.empty(0, np.int64)
    q = math.exp(-1 / float(asked.scale))
    passing = q**asked.threshold / (1 + q)
    size = min(asked.size, int(min(4000 / max(passing, 1e-300), 2**62)))
    cells, amounts = add_sparse_noise(
        nothing, nothing, size=size, scale=asked.scale, threshold=asked.threshold
    )
    mean = size * passing
    if size < 10**9:
        tail = min(binomial_tail(cells.size, size, passing), 1 - binomial_tail(cells.size + 1, size, passing))
    else:  # the binomial is Poisson by now, and its tail is that of a chi-square variable
        less = chi_square_tail(2 * mean, 2 * cells.size + 2)
        more = 1 - chi_square_tail(2 * mean, 2 * cells.size) if cells.size else 1.0
        tail = min(less, more)
    excess = amounts - asked.threshold
    edges = np.arange(_BINS)
    counts = np.bincount(
        np.minimum(excess // max(1, int(float(asked.scale) / 6)), _BINS - 1), minlength=_BINS
    )
    step = max(1, int(float(asked.scale) / 6))
    chances: NDArray[np.float64] = np.asarray(q ** (edges * step) * (1 - q**step), np.float64)
    chances[-1] = q ** (edges[-1] * step)
    return min(1.0, 2 * tail), _chi_square(counts, chances) if excess.size else 1.0
