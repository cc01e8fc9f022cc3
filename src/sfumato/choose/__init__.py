"""Private choices by score: one candidate, the best few, a quantile, or what lies above a threshold.

The mechanisms draw exactly, from scores that are exact numbers, and say what they cost as a `Cost` that a
ledger can be charged with. docs/choose.md is the guide, docs/proofs/choice.md has the proofs.
"""

from sfumato.choose.mechanisms import (
    Mechanism,
    Pick,
    Picks,
    choose,
    exponential,
    noisy_max,
    permute_and_flip,
    quantile,
    top,
)
from sfumato.choose.threshold import AboveThreshold, above_threshold

__all__ = [
    "AboveThreshold",
    "Mechanism",
    "Pick",
    "Picks",
    "above_threshold",
    "choose",
    "exponential",
    "noisy_max",
    "permute_and_flip",
    "quantile",
    "top",
]
