"""Exact noise: integers from the discrete Laplace and discrete Gaussian laws, and exact choices.

`law` says what is drawn, `table` turns it into certified thresholds with `fixed_point`, `narrow`
and `wide` turn random words from `entropy` into draws, `samplers` is the public surface. `choice`
draws an index in proportion to the exponential of its score, `flips` makes single choices among scores of any
size, `sparse` noises histograms too large to list.
The proof that the laws are exact is docs/proofs/noise.md.
"""

from sfumato.noise.choice import (
    bernoulli_exp,
    exponential_choice,
    exponential_index,
    laplace_max_index,
    permute_and_flip_index,
)
from sfumato.noise.laws import Kind, Law, make_law
from sfumato.noise.samplers import NoiseSource, add_noise, discrete_gaussian, discrete_laplace
from sfumato.noise.sparse import add_sparse_noise

__all__ = [
    "Kind",
    "Law",
    "NoiseSource",
    "add_noise",
    "add_sparse_noise",
    "bernoulli_exp",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential_choice",
    "exponential_index",
    "laplace_max_index",
    "make_law",
    "permute_and_flip_index",
]
