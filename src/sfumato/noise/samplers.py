"""The public draws of noise, exact and fed by the operating system's entropy only."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.errors import RecipeError
from sfumato.noise.entropy import KeyStream
from sfumato.noise.law import make_law
from sfumato.noise.narrow import draw_narrow
from sfumato.noise.wide import draw_wide

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.exact import ExactLike
    from sfumato.noise.entropy import BitSource
    from sfumato.noise.law import Kind, Law

WIDE_SCALE: Final = 2048
"""From here on a table over all magnitudes costs more to build than blocks cost to draw."""


def discrete_laplace(*, scale: ExactLike, size: int) -> NDArray[np.int64]:
    """`size` independent integers x, each with probability proportional to exp(-|x| / scale).

    The law is exact (docs/proofs/noise.md), for any rational scale up to 2^50.

    Privacy: added to an integer answer of L1 sensitivity D, noise of scale D / epsilon makes it
    epsilon-differentially private (Ghosh, Roughgarden, Sundararajan 2009).

    >>> discrete_laplace(scale=20, size=3).shape
    (3,)
    """
    return _draw(make_law("laplace", scale), _parse_size(size), KeyStream())


def discrete_gaussian(*, sigma: ExactLike, size: int) -> NDArray[np.int64]:
    """`size` independent integers x, each with probability proportional to exp(-x^2 / (2 sigma^2)).

    The law is exact (docs/proofs/noise.md), for any rational sigma up to 2^50.

    Privacy: added to integer answers of joint L2 sensitivity D, noise of this sigma makes them
    rho-zero-concentrated differentially private, rho = D^2 / (2 sigma^2) (Canonne, Kamath,
    Steinke 2020).

    >>> discrete_gaussian(sigma="895.42", size=3).dtype
    dtype('int64')
    """
    return _draw(make_law("gaussian", sigma), _parse_size(size), KeyStream())


def add_noise(values: NDArray[np.int64], *, kind: Kind, scale: ExactLike) -> NDArray[np.int64]:
    """`values` plus independent noise, each sum held at the ends of the 64-bit integers.

    Holding the exact sum at fixed ends is post-processing, so it costs no privacy; an error or
    a wrapped sum would tell whether a value lay near an end.

    Privacy: that of `discrete_laplace` or `discrete_gaussian` at the same scale.

    >>> add_noise(np.array([7, 7]), kind="laplace", scale="1e-9")
    array([7, 7])
    """
    law = make_law(kind, scale)
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise RecipeError("noise is added to an array of 64-bit integers; convert the values first")
    noise = _draw(law, values.size, KeyStream()).reshape(values.shape)
    return _add_saturating(values, noise)


def _draw(law: Law, size: int, source: BitSource) -> NDArray[np.int64]:
    out = np.empty(size, dtype=np.int64)
    if law.scale < WIDE_SCALE:
        draw_narrow(law, out, source)
    else:
        draw_wide(law, out, source)
    return out


def _add_saturating(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    total = left + right  # wraps; a sum overflowed iff its sign differs from both its terms'
    overflowed = ((left ^ total) & (right ^ total)) < 0
    return np.where(overflowed, np.where(left < 0, limits.min, limits.max), total)


def _parse_size(size: object) -> int:
    try:
        number = -1 if isinstance(size, bool | np.bool_) else operator.index(size)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise RecipeError(f"size must be a whole number, zero or more, got {str(size)[:40]!r}")
    return number
