"""Exact noise: integers from the discrete Laplace and discrete Gaussian laws, and exact choices.

`thresholds` certifies thresholds for what `core/law.py` says is drawn, `samplers` turns random words from
`entropy` into draws, `choice` draws an index in proportion to the exponential of its score, `sparse` noises
histograms too large to list. Nothing here takes a seed. The proof that the laws are exact is
docs/proofs/noise.md.
"""

from sfumato.core.law import Kind, Law, NoiseSource, make_law
from sfumato.core.noise.choice import (
    exponential_choice,
    exponential_index,
    laplace_max_index,
    permute_and_flip,
    permute_and_flip_index,
    poisson_sample,
)
from sfumato.core.noise.samplers import add_noise, discrete_gaussian, discrete_laplace
from sfumato.core.noise.sparse import add_sparse_noise

__all__ = [
    "Kind",
    "Law",
    "NoiseSource",
    "add_noise",
    "add_sparse_noise",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential_choice",
    "exponential_index",
    "laplace_max_index",
    "make_law",
    "permute_and_flip",
    "permute_and_flip_index",
    "poisson_sample",
]
