"""Several candidates by score, and a quantile: choices made of the same mechanisms."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar, get_args

from sfumato.accounting import Cost
from sfumato.choose.mechanisms import choose, draw_index, name_cost
from sfumato.choose.records import Mechanism, Pick, Picks, charge_choice, make_terms
from sfumato.choose.scores import list_candidates, read_number, read_scores
from sfumato.errors import RecipeError
from sfumato.exact import ExactLike, parse_exact

if TYPE_CHECKING:
    from sfumato.accounting import Ledger
    from sfumato.choose.scores import Score
    from sfumato.schema.table import Neighbours

T = TypeVar("T")

_FINEST = 10**6


def top(
    candidates: Iterable[T],
    score: Score[T],
    k: int,
    *,
    epsilon: ExactLike,
    sensitivity: ExactLike,
    monotone: bool = False,
    mechanism: Mechanism = "permute-and-flip",
    neighbours: Neighbours = "add-remove",
    unit: str = "row",
    ledger: Ledger | None = None,
    name: str = "top choice",
) -> Picks[T]:
    """`k` different candidates with high scores, in the order in which they were chosen.

    One is chosen, taken out, and the next is chosen among the rest, each at epsilon / k. Scores are
    computed once. By the exponential mechanism that is the same as adding Gumbel noise to all scores once
    and taking the k largest (Durfee and Rogers 2019).

    Privacy: pure epsilon, by adaptive composition of k choices; their cost is that of one, `k` times.

    >>> picks = top("abcd", [900, 0, 700, 500], 3, epsilon=3, sensitivity=1)
    >>> picks.candidates, picks.cost.epsilon
    (('a', 'c', 'd'), Fraction(3, 1))
    """
    if mechanism not in get_args(Mechanism):
        raise RecipeError(f"mechanism must be one of {get_args(Mechanism)}, got {str(mechanism)[:40]!r}")
    listed = list_candidates(candidates, score)
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= len(listed):
        raise RecipeError(f"k must be a whole number from 1 to the number of candidates, {len(listed)}")
    whole = make_terms(
        epsilon=epsilon, sensitivity=sensitivity, monotone=monotone, neighbours=neighbours, unit=unit
    )
    terms = replace(whole, epsilon=whole.epsilon / k)
    cost = Cost(kind=name_cost(mechanism), scale=terms.epsilon, neighbours=neighbours, unit=unit, count=k)
    facts = {"mechanism": mechanism, "candidates": len(listed), "chosen": k, **whole.to_record()}
    entry = charge_choice(ledger, cost, name=name, description=facts)
    scores = read_scores(listed, score)
    rest = list(range(len(listed)))
    indices = []
    for _ in range(k):
        place = draw_index([scores[index] for index in rest], terms, mechanism)
        indices.append(rest.pop(place))
    return Picks(
        candidates=tuple(listed[index] for index in indices), indices=tuple(indices), cost=cost, entry=entry
    )


def quantile(
    values: Iterable[object] | Callable[[], Iterable[object]],
    candidates: Iterable[ExactLike],
    q: ExactLike,
    *,
    epsilon: ExactLike,
    max_records: int = 1,
    mechanism: Mechanism = "permute-and-flip",
    neighbours: Neighbours = "add-remove",
    unit: str = "row",
    ledger: Ledger | None = None,
    name: str = "quantile",
) -> Pick[ExactLike]:
    """The candidate, of a public ascending list, that lies nearest in rank to the quantile `q` of `values`.

    `values`, or what they return if they are a function, are read after the charge. What is not a number does
    not count. No individual may have more than `max_records` of them: see to that before.

    Privacy: pure epsilon. For q = a/b a candidate is scored by how far the rank a/b lies from the values
    below it and up to it, in steps of 1/b, which one value moves by at most max(a, b - a), and by b if
    it is exchanged.

    >>> quantile(range(1000), [0, 250, 500, 750, 1000], "1/2", epsilon=1).candidate
    500
    """
    share = parse_exact(q, name="q")
    if not 0 <= share <= 1 or share.denominator > _FINEST:
        raise RecipeError(f"q must lie between 0 and 1 and be a multiple of 1/b with b at most {_FINEST:,}")
    if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1:
        raise RecipeError("max_records must be a whole number above zero")
    listed = tuple(candidates)
    edges = [parse_exact(each, name="a candidate") for each in listed]
    if edges != sorted(set(edges)):
        raise RecipeError("the candidates of a quantile must ascend, each once")
    above, below = share.numerator, share.denominator - share.numerator
    step = share.denominator if neighbours == "replace" else max(above, below)
    known: list[list[int]] = []

    def score(place: int) -> int:
        if not known:
            known.append(_score_ranks(values() if callable(values) else values, edges, share))
        return known[0][place]

    pick = choose(
        range(len(listed)),
        score,
        epsilon=epsilon,
        sensitivity=step * max_records,
        mechanism=mechanism,
        neighbours=neighbours,
        unit=unit,
        ledger=ledger,
        name=name,
    )
    return Pick(candidate=listed[pick.index], index=pick.index, cost=pick.cost, entry=pick.entry)


def _score_ranks(values: Iterable[object], edges: list[Fraction], share: Fraction) -> list[int]:
    """Minus the distance of the wanted rank from the ranks that each candidate covers."""
    under, upto = [0] * (len(edges) + 1), [0] * (len(edges) + 1)
    total = 0
    for value in values:
        first, last = _locate(value, edges)
        if first is None or last is None:
            continue
        total += 1
        under[last] += 1
        upto[first] += 1
    scores, low, high = [], 0, 0
    wanted = share.numerator * total
    for place in range(len(edges)):
        low, high = low + under[place], high + upto[place]
        scores.append(-max(0, share.denominator * low - wanted, wanted - share.denominator * high))
    return scores


def _locate(value: object, edges: list[Fraction]) -> tuple[int | None, int | None]:
    """The first candidate that is not below the value, and the first that is above it."""
    if isinstance(value, float) and math.isinf(value):
        place = len(edges) if value > 0 else 0
        return place, place
    number = read_number(value)
    if number is None:
        return None, None
    return bisect_left(edges, number), bisect_right(edges, number)
