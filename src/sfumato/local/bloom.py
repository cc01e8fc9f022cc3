"""Bloom filters of RAPPOR: which bits a category sets in a cohort, and the regression that reads them back.

The hash family is public: bit number BLAKE2b("cohort hash category") modulo the width. Privacy does not
depend on it, as each value sets at most `hashes` bits; only the estimate needs categories to differ.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.errors import RecipeError, SchemaError
from sfumato.local.checks import refuse_impossible
from sfumato.local.results import check_projection, make_estimate, project_shares
from sfumato.local.unary import count_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.local.rappor import Rappor
    from sfumato.local.results import Estimate, Projection

_MAX_DESIGN: Final = 1 << 24


@lru_cache(maxsize=8)
def _places(categories: int, bloom: int, hashes: int, cohorts: int) -> NDArray[np.int64]:
    """The bits of each category in each cohort: an array of cohort, category, hash."""
    places = np.empty((cohorts, categories, hashes), np.int64)
    for cohort in range(cohorts):
        for category in range(categories):
            for index in range(hashes):
                digest = blake2b(f"{cohort} {index} {category}".encode(), digest_size=8).digest()
                places[cohort, category, index] = int.from_bytes(digest) % bloom
    places.setflags(write=False)
    return places


@lru_cache(maxsize=4)
def _design(categories: int, bloom: int, hashes: int, cohorts: int) -> NDArray[np.float64]:
    """The regression's matrix: cohort, bit, category; 1 where the category sets the bit."""
    places = _places(categories, bloom, hashes, cohorts)
    design = np.zeros((cohorts, bloom, categories))
    cohort, category, _ = np.indices(places.shape)
    design[cohort, places, category] = 1.0
    design.setflags(write=False)
    return design


@lru_cache(maxsize=4)
def _inverse(
    categories: int, bloom: int, hashes: int, cohorts: int, present: tuple[int, ...]
) -> NDArray[np.float64]:
    """The least-squares inverse over the cohorts that are present: category, cohort, bit."""
    design = _design(categories, bloom, hashes, cohorts)[list(present)]
    flat = design.reshape(-1, categories)
    if flat.shape[0] < categories or np.linalg.matrix_rank(flat) < categories:
        raise RecipeError(
            "these bits and cohorts cannot tell the categories apart; give more bloom bits or cohorts"
        )
    return np.asarray(np.linalg.pinv(flat), np.float64).reshape(categories, len(present), bloom)


def check_filter(categories: int, bloom: int, hashes: int, cohorts: int) -> None:
    """Raises an error if the filter is too large or cannot tell the categories apart."""
    if categories * bloom * cohorts > _MAX_DESIGN:
        raise RecipeError(
            "categories times bloom bits times cohorts is too large for the regression (at most 2^24)"
        )
    _inverse(categories, bloom, hashes, cohorts, tuple(range(cohorts)))


def filter_bits(
    mechanism: Rappor, cohorts: NDArray[np.uint16], codes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """The Bloom filter of each code in its cohort, one row each."""
    places = _places(*_shape(mechanism))[cohorts, codes]
    bits = np.zeros((codes.size, mechanism.width), np.bool_)
    np.put_along_axis(bits, places, values=True, axis=1)
    return bits


def unit_variance(mechanism: Rappor) -> float:
    """The mean over categories of the variance that noise gives to one person's part in the estimate."""
    inverse = _inverse(*_shape(mechanism), tuple(range(mechanism.cohorts)))
    noise = float(mechanism.miss * (1 - mechanism.miss) / (mechanism.hit - mechanism.miss) ** 2)
    return mechanism.cohorts * noise * float((inverse**2).sum()) / mechanism.categories


def estimate_filter(
    mechanism: Rappor, cohorts: NDArray[np.int64], bits: NDArray[np.bool_], *, project: Projection
) -> Estimate:
    """The shares by least squares on the bit rates of all cohorts, with errors propagated through it."""
    projection = check_projection(project)
    sizes = np.bincount(cohorts, minlength=mechanism.cohorts)
    present = np.flatnonzero(sizes)
    counts = np.empty((present.size, mechanism.width))
    hit, miss = float(mechanism.hit), float(mechanism.miss)
    for row, cohort in enumerate(present.tolist()):
        chosen = np.ascontiguousarray(bits[cohorts == cohort])
        counts[row] = count_bits(chosen)
        refuse_impossible(counts[row], len(chosen), least=miss, most=hit)
    try:
        inverse = _inverse(*_shape(mechanism), tuple(present.tolist()))
    except RecipeError:
        raise SchemaError(
            "the cohorts that reported cannot tell the categories apart; collect more reports"
        ) from None
    rates = (counts / sizes[present, None] - miss) / float(mechanism.hit - mechanism.miss)
    shares = np.einsum("kcb,cb->k", inverse, rates)
    variances = _propagate(mechanism, inverse, shares, sizes[present], present)
    inside = np.clip(shares, 0, 1)
    return make_estimate(
        mechanism=mechanism.name,
        epsilon=mechanism.exact_epsilon,
        people=len(bits),
        frequencies=shares,
        variances=np.maximum(len(bits) * variances - inside * (1 - inside), 0.0),
        project=projection,
    )


def _propagate(
    mechanism: Rappor,
    inverse: NDArray[np.float64],
    shares: NDArray[np.float64],
    sizes: NDArray[np.int64],
    present: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The variance of each share, people being drawn at random, at the nearest possible shares.

    In a cohort with matrix X and inverse part G, a person's unbiased bits have covariance
    X diag(f) X' - (X f)(X f)' plus the noise of each bit.
    """
    design = _design(*_shape(mechanism))[present]
    likely = project_shares(shares, project="simplex")
    own = float(mechanism.hit * (1 - mechanism.hit))
    other = float(mechanism.miss * (1 - mechanism.miss))
    gap = float(mechanism.hit - mechanism.miss) ** 2
    total = np.zeros(mechanism.categories)
    for row in range(present.size):
        part = inverse[:, row]
        on = design[row] @ likely
        noise = (on * own + (1 - on) * other) / gap
        reach = part @ design[row]
        spread = (reach**2) @ likely - (reach @ likely) ** 2
        total += (spread + (part**2) @ noise) / sizes[row]
    return total


def _shape(mechanism: Rappor) -> tuple[int, int, int, int]:
    return mechanism.categories, mechanism.width, mechanism.hashes, mechanism.cohorts
