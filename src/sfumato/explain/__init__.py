"""A public room: what an adversary can learn from a privacy guarantee, in numbers, words and a picture."""

from typing import TYPE_CHECKING

from sfumato._lazy import lend_names

if TYPE_CHECKING:
    from sfumato.explain.composition import (
        Composition,
        compare_compositions,
        compose_optimal,
        describe_compositions,
    )
    from sfumato.explain.explanation import Explanation, Finding, describe_explanation, explain_guarantee
    from sfumato.explain.guarantee import (
        Guarantee,
        Reading,
        belief_bounds,
        best_guess,
        largest_detection,
        least_missed,
        posterior_after,
        randomised_epsilon,
        randomised_posterior,
        randomised_rate,
        read_epsilon,
    )
    from sfumato.explain.picture import draw_explanation

__all__ = [
    "Composition",
    "Explanation",
    "Finding",
    "Guarantee",
    "Reading",
    "belief_bounds",
    "best_guess",
    "compare_compositions",
    "compose_optimal",
    "describe_compositions",
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

__getattr__, __dir__ = lend_names(__name__)
