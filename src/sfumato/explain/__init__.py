"""A public room: what an adversary can learn from a privacy guarantee, in numbers, words and a picture."""

from sfumato.explain.belief import Reading, belief_bounds, best_guess, posterior_after, read_epsilon
from sfumato.explain.explanation import Explanation, Finding, explain_guarantee
from sfumato.explain.guarantee import Guarantee
from sfumato.explain.picture import draw_explanation
from sfumato.explain.response import randomised_epsilon, randomised_posterior, randomised_rate
from sfumato.explain.tradeoff import largest_detection, least_missed
from sfumato.explain.words import describe_explanation

__all__ = [
    "Explanation",
    "Finding",
    "Guarantee",
    "Reading",
    "belief_bounds",
    "best_guess",
    "describe_explanation",
    "draw_explanation",
    "explain_guarantee",
    "largest_detection",
    "least_missed",
    "posterior_after",
    "randomised_epsilon",
    "randomised_posterior",
    "randomised_rate",
    "read_epsilon",
]
