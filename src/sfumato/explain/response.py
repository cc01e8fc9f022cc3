"""Randomised response: what a flipped answer tells about one person, and about all of them.

Everybody tells the truth with probability 1 - p and its opposite with probability p. Two coins (truth on
heads, else whatever the second coin says) are p = 1/4. The odds of the truth move by (1 - p) / p, so the
answer is ln((1 - p) / p)-private for p up to one half.
"""

from __future__ import annotations

import math

from sfumato.errors import RecipeError


def randomised_posterior(prior: float, *, p: float, answer: bool = True) -> float:
    """The belief that the truth is yes, after a flipped `answer`, for a `prior` belief that it is yes.

    By Bayes' rule: prior (1 - p) / (prior (1 - p) + (1 - prior) p) after a yes, and p and 1 - p
    change places after a no.

    >>> randomised_posterior(0.5, p=0.25)
    0.75
    >>> [round(randomised_posterior(0.01, p=0.25, answer=answer), 4) for answer in (True, False)]
    [0.0294, 0.0034]
    """
    _check(prior, "prior")
    _check(p, "p")
    likely, unlikely = (1 - p, p) if answer else (p, 1 - p)
    total = prior * likely + (1 - prior) * unlikely
    if total == 0:
        raise RecipeError(
            "this answer cannot come up for this prior and p; there is nothing to believe after it"
        )
    return prior * likely / total


def randomised_rate(observed: float, *, p: float) -> float:
    """The true rate of yes behind a rate `observed` among flipped answers: (observed - p) / (1 - 2 p).

    It is not held to 0 .. 1, so that means of several groups stay right.

    >>> randomised_rate(0.4, p=0.25) == 2 * 0.4 - 0.5
    True
    """
    _check(observed, "observed")
    _check(p, "p")
    if p == 0.5:
        raise RecipeError("with p of one half, answers are coins and tell nothing about the rate")
    return (observed - p) / (1 - 2 * p)


def randomised_epsilon(p: float) -> float:
    """The pure epsilon of one flipped answer, |ln((1 - p) / p)|; infinite for p of 0 or 1.

    >>> round(randomised_epsilon(0.25), 4)
    1.0986
    """
    _check(p, "p")
    if p in (0, 1):
        return math.inf
    return abs(math.log1p(-p) - math.log(p))


def _check(value: float, name: str) -> None:
    if not 0 <= value <= 1:
        raise RecipeError(f"{name} must lie between 0 and 1")
