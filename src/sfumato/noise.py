"""Exact noise: integers from the discrete Laplace and discrete Gaussian laws, and exact choices.

`laws` says what is drawn and certifies thresholds for it, `samplers` turns random words from `entropy` into
draws, `choice` draws an index in proportion to the exponential of its score, `sparse` noises histograms too
large to list. Nothing here takes a seed.
The proof that the laws are exact is docs/proofs/noise.md.
"""

from sfumato.core import noise as _noise
from sfumato.core.noise import *  # noqa: F403 - the names that the core lists are those that people import

__all__ = _noise.__all__
