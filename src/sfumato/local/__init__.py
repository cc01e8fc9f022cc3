"""Local privacy: nobody is trusted with the data, so each person answers with noise.

`respond` of a mechanism runs on the client, `estimate` on the server; both hold the same small record. Every
chance of a client is an integer threshold on random words, rounded toward privacy (docs/proofs/local.md).
This is the only room beside `noise/` that draws privacy noise, and it never meets an engine or a curator.
"""

from sfumato.local.coin import CoinResponse, coin_response, estimate_coin, posterior
from sfumato.local.frequencies import estimate_frequencies, randomized_response
from sfumato.local.hadamard import HadamardResponse
from sfumato.local.hashing import LocalHashing
from sfumato.local.krr import RandomizedResponse
from sfumato.local.means import DuchiMean, LaplaceMean
from sfumato.local.mechanism import FrequencyMechanism, MeanMechanism
from sfumato.local.memory import RapporMemory
from sfumato.local.piecewise import HybridMean, PiecewiseMean
from sfumato.local.planning import Choice, Comparison, Plan, choose_mechanism, compare_models, plan
from sfumato.local.rappor import Rappor
from sfumato.local.records import make_mechanism, read_mechanism
from sfumato.local.results import Estimate, MeanEstimate, project_shares
from sfumato.local.unary import UnaryEncoding

__all__ = [
    "Choice",
    "CoinResponse",
    "Comparison",
    "DuchiMean",
    "Estimate",
    "FrequencyMechanism",
    "HadamardResponse",
    "HybridMean",
    "LaplaceMean",
    "LocalHashing",
    "MeanEstimate",
    "MeanMechanism",
    "PiecewiseMean",
    "Plan",
    "RandomizedResponse",
    "Rappor",
    "RapporMemory",
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
