"""Local privacy: nobody is trusted with the data, so each person answers with noise.

`respond` of a mechanism runs on the client, `estimate` on the server; both have the same small record. Every
chance of a client is an integer threshold on random words, rounded toward privacy (docs/proofs/local.md).
This is the only room beside `noise/` that draws privacy noise, and it never meets an engine or a curator.
"""

from sfumato.local.categories import (
    CoinResponse,
    HadamardResponse,
    LocalHashing,
    RandomizedResponse,
    SubsetSelection,
    UnaryEncoding,
    coin_response,
    estimate_coin,
    posterior,
)
from sfumato.local.means import DuchiMean, LaplaceMean, MeanMechanism, PiecewiseMean
from sfumato.local.mechanism import Estimate, FrequencyMechanism, MeanEstimate, project_shares
from sfumato.local.planning import (
    Choice,
    Comparison,
    Plan,
    choose_mechanism,
    compare_models,
    estimate_frequencies,
    make_mechanism,
    plan,
    randomized_response,
    read_mechanism,
)
from sfumato.local.rappor import Rappor, RapporMemory

__all__ = [
    "Choice",
    "CoinResponse",
    "Comparison",
    "DuchiMean",
    "Estimate",
    "FrequencyMechanism",
    "HadamardResponse",
    "LaplaceMean",
    "LocalHashing",
    "MeanEstimate",
    "MeanMechanism",
    "PiecewiseMean",
    "Plan",
    "RandomizedResponse",
    "Rappor",
    "RapporMemory",
    "SubsetSelection",
    "UnaryEncoding",
    "choose_mechanism",
    "coin_response",
    "compare_models",
    "estimate_coin",
    "estimate_frequencies",
    "make_mechanism",
    "plan",
    "posterior",
    "project_shares",
    "randomized_response",
    "read_mechanism",
]
