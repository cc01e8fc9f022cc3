"""One of several candidates, chosen privately by score: three mechanisms with one set of terms.

All of them charge first, if a ledger is given, then compute the scores, then draw. Scores are exact
rationals and the laws are exact; docs/proofs/choice.md proves what they cost.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, TypeVar, get_args

import numpy as np

from sfumato.accounting import Cost
from sfumato.choose.records import Mechanism, Pick, Terms, charge_choice, make_terms
from sfumato.choose.scores import list_candidates, read_scores
from sfumato.errors import RecipeError
from sfumato.noise import (
    exponential_choice,
    exponential_index,
    laplace_max_index,
    make_law,
    permute_and_flip_index,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sfumato.accounting import CostKind, Ledger
    from sfumato.choose.scores import Score
    from sfumato.exact import ExactLike
    from sfumato.schema.table import Neighbours

T = TypeVar("T")

MaxNoise = Literal["exponential", "laplace"]

_MANY: Final = 1000
_WHOLE: Final = 2**62


def choose(
    candidates: Iterable[T],
    score: Score[T],
    *,
    epsilon: ExactLike,
    sensitivity: ExactLike,
    monotone: bool = False,
    mechanism: Mechanism = "permute-and-flip",
    neighbours: Neighbours = "add-remove",
    unit: str = "row",
    ledger: Ledger | None = None,
    name: str = "choice",
) -> Pick[T]:
    """The candidate with a high score, chosen privately by `mechanism`.

    `candidates` are public. `score` is a function of a candidate, called after the charge, or a sequence of
    scores; `sensitivity` is the most by which one individual moves any one of them. `monotone` may be said
    of scores that an added individual never moves in different directions, such as counts.

    Privacy: pure epsilon under `neighbours`, by the theorem that the mechanism's own function names.

    >>> choose(["tea", "coffee"], {"tea": 2, "coffee": 90}.get, epsilon=1, sensitivity=1).candidate
    'coffee'
    """
    if mechanism not in get_args(Mechanism):
        raise RecipeError(f"mechanism must be one of {get_args(Mechanism)}, got {str(mechanism)[:40]!r}")
    terms = make_terms(
        epsilon=epsilon, sensitivity=sensitivity, monotone=monotone, neighbours=neighbours, unit=unit
    )
    return _choose(candidates, score, terms, mechanism=mechanism, ledger=ledger, name=name)


def exponential(
    candidates: Iterable[T],
    score: Score[T],
    *,
    epsilon: ExactLike,
    sensitivity: ExactLike,
    monotone: bool = False,
    neighbours: Neighbours = "add-remove",
    unit: str = "row",
    ledger: Ledger | None = None,
    name: str = "choice",
) -> Pick[T]:
    """A candidate, drawn in proportion to exp(epsilon * score / (2 * sensitivity)).

    Without the 2 if the scores are `monotone`.

    Privacy: pure epsilon (McSherry and Talwar 2007). The logarithm of any likelihood ratio lies in an
    interval of length epsilon, so the cost is of kind "exponential": epsilon^2 / 8 in zCDP.

    >>> pick = exponential(range(3), [0, 500, 0], epsilon=1, sensitivity=1)
    >>> pick.candidate, pick.cost.kind, pick.cost.rho
    (1, 'exponential', Fraction(1, 8))
    """
    terms = make_terms(
        epsilon=epsilon, sensitivity=sensitivity, monotone=monotone, neighbours=neighbours, unit=unit
    )
    return _choose(candidates, score, terms, mechanism="exponential", ledger=ledger, name=name)


def permute_and_flip(
    candidates: Iterable[T],
    score: Score[T],
    *,
    epsilon: ExactLike,
    sensitivity: ExactLike,
    monotone: bool = False,
    neighbours: Neighbours = "add-remove",
    unit: str = "row",
    ledger: Ledger | None = None,
    name: str = "choice",
) -> Pick[T]:
    """A candidate, by permute-and-flip: in random order, the first whose coin shows heads.

    The coin shows heads with probability exp(-epsilon * (best score - score) / (2 * sensitivity)), without
    the 2 if the scores are `monotone`. Its expected score is never below that of `exponential`.

    Privacy: pure epsilon (McKenna and Sheldon 2020), and nothing better than any pure mechanism in zCDP.

    >>> permute_and_flip(range(3), [0, 500, 0], epsilon=1, sensitivity=1).candidate
    1
    """
    terms = make_terms(
        epsilon=epsilon, sensitivity=sensitivity, monotone=monotone, neighbours=neighbours, unit=unit
    )
    return _choose(candidates, score, terms, mechanism="permute-and-flip", ledger=ledger, name=name)


def noisy_max(
    candidates: Iterable[T],
    score: Score[T],
    *,
    epsilon: ExactLike,
    sensitivity: ExactLike,
    monotone: bool = False,
    noise: MaxNoise = "exponential",
    neighbours: Neighbours = "add-remove",
    unit: str = "row",
    ledger: Ledger | None = None,
    name: str = "choice",
) -> Pick[T]:
    """The candidate whose score is largest after noise; the noise and the noisy scores are not released.

    `exponential` noise of mean 2 * sensitivity / epsilon (half of it if `monotone`) has exactly the law of
    permute-and-flip (Ding, Kifer, Saghaian, Steinke, Wang, Xiao and Zhang 2021), and is drawn that way.
    `laplace` is discrete Laplace noise of that scale on scores rounded down to steps in which the sensitivity
    is whole, ties broken at random: the mechanism of the textbooks, with more noise for the same epsilon.

    Privacy: pure epsilon (Dwork and Roth 2014, theorem 3.9).

    >>> noisy_max(range(3), [0, 500, 0], epsilon=1, sensitivity=1, noise="laplace").candidate
    1
    """
    if noise not in get_args(MaxNoise):
        raise RecipeError(f"noise must be one of {get_args(MaxNoise)}, got {str(noise)[:40]!r}")
    terms = make_terms(
        epsilon=epsilon, sensitivity=sensitivity, monotone=monotone, neighbours=neighbours, unit=unit
    )
    return _choose(candidates, score, terms, mechanism="noisy-max", noise=noise, ledger=ledger, name=name)


def name_cost(mechanism: Mechanism, noise: MaxNoise = "exponential") -> CostKind:
    """The kind of cost that a mechanism has.

    >>> name_cost("noisy-max"), name_cost("noisy-max", "laplace")
    ('permute-and-flip', 'pure')
    """
    if mechanism == "exponential":
        return "exponential"
    return "pure" if mechanism == "noisy-max" and noise == "laplace" else "permute-and-flip"


def draw_index(
    scores: list[Fraction], terms: Terms, mechanism: Mechanism, noise: MaxNoise = "exponential"
) -> int:
    """The index that `mechanism` draws on these terms. The caller has charged."""
    if mechanism == "exponential":
        if len(scores) > _MANY and all(each.denominator == 1 and abs(each) < _WHOLE for each in scores):
            row = np.array([[int(each) for each in scores]], np.int64)
            return int(exponential_choice(row, rate=terms.rate)[0])
        return exponential_index(scores, rate=terms.rate)
    if mechanism == "noisy-max" and noise == "laplace":
        grid = terms.sensitivity.denominator
        return laplace_max_index([int(each * grid // 1) for each in scores], scale=_laplace_scale(terms))
    return permute_and_flip_index(scores, rate=terms.rate)


def _laplace_scale(terms: Terms) -> Fraction:
    """The scale of the noise in steps of the grid on which the sensitivity is whole."""
    return terms.sensitivity.denominator / terms.rate


def _choose(
    candidates: Iterable[T],
    score: Score[T],
    terms: Terms,
    *,
    mechanism: Mechanism,
    ledger: Ledger | None,
    name: str,
    noise: MaxNoise = "exponential",
) -> Pick[T]:
    listed = list_candidates(candidates, score)
    kind = name_cost(mechanism, noise)
    if kind == "pure":
        make_law("laplace", _laplace_scale(terms))  # refuses what cannot be drawn before it is paid for
    cost = Cost(kind=kind, scale=terms.epsilon, neighbours=terms.neighbours, unit=terms.unit)
    facts = {"mechanism": mechanism, "candidates": len(listed), **terms.to_record()}
    entry = charge_choice(ledger, cost, name=name, description=facts)
    index = draw_index(read_scores(listed, score), terms, mechanism, noise)
    return Pick(candidate=listed[index], index=index, cost=cost, entry=entry)
