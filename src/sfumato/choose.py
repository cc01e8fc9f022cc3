"""Private choices by score: one candidate, the best few, a quantile, or what lies above a threshold.

The mechanisms draw exactly, from scores that are exact numbers, and say what they cost as a `Cost` that a
ledger can be charged with. All of them charge first, if a ledger is given, then compute the scores, then
draw. An error about a score tells neither the score nor whose it is: it was computed from records.
docs/choose.md is the guide, docs/proofs/choice.md has the proofs.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, Final, Generic, Literal, NoReturn, Required, TypedDict, TypeVar, Unpack, get_args

import numpy as np

from sfumato.core.cost.cost import Cost, CostKind
from sfumato.core.errors import BudgetExceeded, RecipeError
from sfumato.core.exact import ExactLike, digest, parse_exact, parse_positive, parse_whole
from sfumato.core.facts.table import Neighbours
from sfumato.core.law import make_law
from sfumato.core.ledger.chain import ChargeEntry
from sfumato.core.ledger.ledger import Ledger
from sfumato.core.noise.choice import (
    exponential_choice,
    exponential_index,
    laplace_max_index,
    permute_and_flip_index,
)
from sfumato.core.noise.samplers import discrete_laplace

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

T = TypeVar("T")

Mechanism = Literal["permute-and-flip", "exponential", "noisy-max"]
MaxNoise = Literal["exponential", "laplace"]

Score = Callable[[T], ExactLike] | Sequence[ExactLike]
"""A function of a candidate, called once for each after the charge; or the scores in their order."""

_MANY: Final = 1000  # more scores than this are drawn at once, if they are whole numbers
_WHOLE: Final = 2**62  # differences of smaller scores fit 64-bit integers
_FINEST: Final = 10**6  # the largest denominator of a quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick(Generic[T]):
    """One candidate, chosen privately: it, its place among the candidates, and what the choice costs.

    `entry` is the charge, if a ledger was given; otherwise `cost` is yet to be charged.
    """

    candidate: T
    index: int
    cost: Cost
    entry: ChargeEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks(Generic[T]):
    """Several candidates, chosen privately one after another, and what they cost together."""

    candidates: tuple[T, ...]
    indices: tuple[int, ...]
    cost: Cost
    entry: ChargeEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a choice spends and what its privacy rests on: public facts.

    `sensitivity` is the most by which any one score differs between neighbouring tables. With `monotone`,
    an individual who is added moves all scores up, or all of them down.
    """

    epsilon: Fraction
    sensitivity: Fraction
    monotone: bool = False
    neighbours: Neighbours = "add-remove"
    unit: str = "row"

    def __post_init__(self) -> None:
        if not isinstance(self.monotone, bool):
            raise RecipeError("monotone must be True or False")
        if self.monotone and self.neighbours == "replace":
            raise RecipeError(
                "monotone scores with neighbours = 'replace': who is replaced is removed and added, which "
                "moves scores both ways; leave monotone out"
            )
        for name in ("epsilon", "sensitivity"):
            object.__setattr__(self, name, parse_positive(getattr(self, name), name=name))

    @property
    def rate(self) -> Fraction:
        """How much, in nats per unit of score, a better score may weigh at this epsilon.

        Without `monotone` one score may rise while another falls, so half as much.
        """
        return self.epsilon / self.sensitivity / (1 if self.monotone else 2)

    def to_record(self) -> dict[str, Any]:
        """Returns the terms as a plain record."""
        return {"epsilon": self.epsilon, "sensitivity": self.sensitivity, "monotone": self.monotone}


class Options(TypedDict, total=False):
    """The keyword arguments of every single choice; `choose` explains them."""

    epsilon: Required[ExactLike]
    sensitivity: Required[ExactLike]
    monotone: bool
    neighbours: Neighbours
    unit: str
    ledger: Ledger | None
    name: str


def choose(
    candidates: Iterable[T],
    score: Score[T],
    *,
    mechanism: Mechanism = "permute-and-flip",
    **options: Unpack[Options],
) -> Pick[T]:
    """Returns the candidate with a high score, chosen privately by `mechanism`.

    `candidates` are public. `score` is a function of a candidate, called after the charge, or a sequence of
    scores; `sensitivity` is the most by which one individual, of the kind that `unit` names, moves any one of
    them. `monotone` may be said of scores that an added individual never moves in different directions, such
    as counts. With a `ledger` the choice is charged under `name`; without, its `cost` is yet to be charged.

    Privacy: pure epsilon under `neighbours`, by the theorem that the mechanism's own function names.

    >>> choose(["tea", "coffee"], {"tea": 2, "coffee": 90}.get, epsilon=1, sensitivity=1).candidate
    'coffee'
    """
    return _pick(candidates, score, mechanism, **options)


def exponential(candidates: Iterable[T], score: Score[T], **options: Unpack[Options]) -> Pick[T]:
    """Returns a candidate, drawn in proportion to exp(epsilon * score / (2 * sensitivity)).

    Without the 2 if the scores are `monotone`. The keyword arguments are those of `choose`.

    Privacy: pure epsilon (McSherry and Talwar 2007). The logarithm of any likelihood ratio lies in an
    interval of length epsilon, so the cost is of kind "exponential": epsilon^2 / 8 in zCDP.

    >>> pick = exponential(range(3), [0, 500, 0], epsilon=1, sensitivity=1)
    >>> pick.candidate, pick.cost.kind, pick.cost.rho
    (1, 'exponential', Fraction(1, 8))
    """
    return _pick(candidates, score, "exponential", **options)


def permute_and_flip(candidates: Iterable[T], score: Score[T], **options: Unpack[Options]) -> Pick[T]:
    """Returns a candidate, by permute-and-flip: in random order, the first whose coin shows heads.

    The coin shows heads with probability exp(-epsilon * (best score - score) / (2 * sensitivity)), without
    the 2 if the scores are `monotone`. Its expected score is never below that of `exponential`. The keyword
    arguments are those of `choose`.

    Privacy: pure epsilon (McKenna and Sheldon 2020), and nothing better than any pure mechanism in zCDP.

    >>> permute_and_flip(range(3), [0, 500, 0], epsilon=1, sensitivity=1).candidate
    1
    """
    return _pick(candidates, score, "permute-and-flip", **options)


def noisy_max(
    candidates: Iterable[T],
    score: Score[T],
    *,
    noise: MaxNoise = "exponential",
    **options: Unpack[Options],
) -> Pick[T]:
    """Returns the candidate of the largest noisy score; noise and noisy scores are not released.

    `exponential` noise of mean 2 * sensitivity / epsilon (half of it if `monotone`) has exactly the law of
    permute-and-flip (Ding, Kifer, Saghaian, Steinke, Wang, Xiao and Zhang 2021), and is drawn that way.
    `laplace` is discrete Laplace noise of that scale on scores rounded down to steps in which the sensitivity
    is whole, ties broken at random: the mechanism of the textbooks, with more noise for the same epsilon.
    The other keyword arguments are those of `choose`.

    Privacy: pure epsilon (Dwork and Roth 2014, theorem 3.9).

    >>> noisy_max(range(3), [0, 500, 0], epsilon=1, sensitivity=1, noise="laplace").candidate
    1
    """
    if noise not in get_args(MaxNoise):
        raise RecipeError(f"noise must be one of {get_args(MaxNoise)}, got {str(noise)[:40]!r}")
    return _pick(candidates, score, "noisy-max", noise=noise, **options)


def top(
    candidates: Iterable[T],
    score: Score[T],
    k: int,
    *,
    mechanism: Mechanism = "permute-and-flip",
    **options: Unpack[Options],
) -> Picks[T]:
    """Returns `k` different candidates with high scores, in the order in which they were chosen.

    One is chosen, taken out, and the next is chosen among the rest, each at epsilon / k. Scores are
    computed once. By the exponential mechanism that is the same as adding Gumbel noise to all scores once
    and taking the k largest (Durfee and Rogers 2019). The keyword arguments are those of `choose`.

    Privacy: pure epsilon, by adaptive composition of k choices; their cost is that of one, `k` times.

    >>> picks = top("abcd", [900, 0, 700, 500], 3, epsilon=3, sensitivity=1)
    >>> picks.candidates, picks.cost.epsilon
    (('a', 'c', 'd'), Fraction(3, 1))
    """
    options.setdefault("name", "top choice")
    return _select(candidates, score, mechanism, k=k, **options)


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
    """Gives the candidate, of public ascending `candidates`, nearest in rank to the quantile `q` of `values`.

    `values`, or what they return if they are a function, are read after the charge. What is not a number does
    not count. No individual may have more than `max_records` of them: see to that before. `epsilon`,
    `mechanism`, `neighbours`, `unit`, `ledger` and `name` are those of `choose`.

    Privacy: pure epsilon. For q = a/b a candidate is scored by how far the rank a/b lies from the values
    below it and up to it, in steps of 1/b, which one value moves by at most max(a, b - a), and by b if
    it is exchanged.

    >>> quantile(range(1000), [0, 250, 500, 750, 1000], "1/2", epsilon=1).candidate
    500
    """
    share = parse_exact(q, name="q")
    if not 0 <= share <= 1 or share.denominator > _FINEST:
        raise RecipeError(f"q must lie between 0 and 1 and be a multiple of 1/b with b at most {_FINEST:,}")
    records = parse_whole(max_records, name="max_records")
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
        sensitivity=step * records,
        mechanism=mechanism,
        neighbours=neighbours,
        unit=unit,
        ledger=ledger,
        name=name,
    )
    return Pick(candidate=listed[pick.index], index=pick.index, cost=pick.cost, entry=pick.entry)


def _charge_choice(
    ledger: Ledger | None, cost: Cost, *, name: str, facts: dict[str, Any]
) -> ChargeEntry | None:
    """Returns the charge of a choice, on disk when this returns; None without a ledger."""
    if not isinstance(name, str) or not name:
        raise RecipeError("name must say in words what is chosen")
    if ledger is None:
        return None
    described = {"choice": name, **facts}
    return ledger.charge(
        description=described, plan_digest=digest(described), table=name, table_version="", costs=(cost,)
    )


def _read_number(value: object) -> Fraction | None:
    """Reads `value` as a rational, a float as the decimal it prints as; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return Fraction(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        pass
    try:
        return parse_exact(value, name="score")
    except RecipeError:
        return None


def _pick(
    candidates: Iterable[T],
    score: Score[T],
    mechanism: Mechanism,
    *,
    noise: MaxNoise = "exponential",
    **options: Unpack[Options],
) -> Pick[T]:
    picks = _select(candidates, score, mechanism, noise=noise, **options)
    return Pick(candidate=picks.candidates[0], index=picks.indices[0], cost=picks.cost, entry=picks.entry)


def _select(
    candidates: Iterable[T],
    score: Score[T],
    mechanism: Mechanism,
    *,
    k: int | None = None,
    noise: MaxNoise = "exponential",
    ledger: Ledger | None = None,
    name: str = "choice",
    **terms: Any,  # noqa: ANN401  # the rest of `Options`, which `Terms` reads
) -> Picks[T]:
    """Charges, then scores, then draws: the one way of every choice; without `k` it is a single one."""
    if mechanism not in get_args(Mechanism):
        raise RecipeError(f"mechanism must be one of {get_args(Mechanism)}, got {str(mechanism)[:40]!r}")
    whole = Terms(**terms)
    listed = _list_candidates(candidates, score)
    chosen = 1 if k is None else parse_whole(k, name="k", high=len(listed))
    each = replace(whole, epsilon=whole.epsilon / chosen)
    kind: CostKind = "permute-and-flip"
    if mechanism == "exponential":
        kind = "exponential"
    elif mechanism == "noisy-max" and noise == "laplace":
        kind = "pure"
        make_law("laplace", _laplace_scale(each))  # refuses what cannot be drawn before it is paid for
    cost = Cost(kind=kind, scale=each.epsilon, neighbours=each.neighbours, unit=each.unit, count=chosen)
    facts = {"mechanism": mechanism, "candidates": len(listed)} | ({} if k is None else {"chosen": chosen})
    entry = _charge_choice(ledger, cost, name=name, facts=facts | whole.to_record())
    scores = _read_scores(listed, score)
    rest, indices = list(range(len(listed))), []
    for _ in range(chosen):
        place = _draw_index([scores[index] for index in rest], each, mechanism, noise)
        indices.append(rest.pop(place))
    return Picks(
        candidates=tuple(listed[index] for index in indices), indices=tuple(indices), cost=cost, entry=entry
    )


def _draw_index(scores: list[Fraction], terms: Terms, mechanism: Mechanism, noise: MaxNoise) -> int:
    """Returns the index that `mechanism` draws on these terms. The caller has charged."""
    if mechanism == "exponential":
        # Many scores that fit 64-bit integers are drawn at once, by the same law.
        if len(scores) > _MANY and all(each.denominator == 1 and abs(each) < _WHOLE for each in scores):
            row = np.array([[int(each) for each in scores]], np.int64)
            return int(exponential_choice(row, rate=terms.rate)[0])
        return exponential_index(scores, rate=terms.rate)
    if mechanism == "noisy-max" and noise == "laplace":
        grid = terms.sensitivity.denominator
        return laplace_max_index([int(each * grid // 1) for each in scores], scale=_laplace_scale(terms))
    return permute_and_flip_index(scores, rate=terms.rate)


def _laplace_scale(terms: Terms) -> Fraction:
    """Returns the scale of the noise in steps of the grid on which the sensitivity is whole."""
    return terms.sensitivity.denominator / terms.rate


def _list_candidates(candidates: Iterable[T], score: Score[T]) -> tuple[T, ...]:
    """Returns the candidates, at least one, with as many scores if those are listed."""
    listed = tuple(candidates)
    if not listed:
        raise RecipeError("there is no candidate to choose among")
    if callable(score):
        return listed
    if isinstance(score, (str, bytes, Mapping, Set)) or not hasattr(score, "__len__"):
        raise RecipeError(
            "score must be a function of a candidate, such as counts.get, or a list with one score for each"
        )
    if len(score) != len(listed):
        raise RecipeError(
            f"{len(listed)} candidates and {len(score)} scores; give one score for each candidate"
        )
    return listed


def _read_scores(candidates: tuple[T, ...], score: Score[T]) -> list[Fraction]:
    """Returns the exact score of every candidate. The caller has charged."""
    values = [score(each) for each in candidates] if callable(score) else list(score)
    exact = [number for number in map(_read_number, values) if number is not None]
    if len(exact) != len(values):
        raise RecipeError(
            "a score is not a finite number. Scores are whole numbers, fractions, decimals or finite floats, "
            "for every table there can be. A charge that was made is kept"
        )
    return exact


def _score_ranks(values: Iterable[object], edges: list[Fraction], share: Fraction) -> list[int]:
    """Minus the distance of the rank asked for from the ranks that each candidate covers."""
    under, upto = [0] * (len(edges) + 1), [0] * (len(edges) + 1)
    for value in values:
        infinite = isinstance(value, float) and math.isinf(value)
        number: Any = value if infinite else _read_number(value)
        if number is not None:
            under[bisect_right(edges, number)] += 1
            upto[bisect_left(edges, number)] += 1
    rank = share.numerator * sum(under)
    return [
        -max(0, share.denominator * low - rank, rank - share.denominator * high)
        for low, high in zip(accumulate(under[:-1]), accumulate(upto[:-1]), strict=True)
    ]


Query = ExactLike | Callable[[], ExactLike]

_MOST_ANSWERS: Final = 10**6


def split_epsilon(epsilon: Fraction, *, monotone: bool) -> tuple[Fraction, Fraction]:
    """Returns how one run shares epsilon between the noise of the threshold and that of the answers.

    The variance of their difference is least at 1 to 2^(2/3), of which 5 to 8 is a simple neighbour, and at 1
    to 1 if the queries are monotone (Lyu, Su and Li 2017).
    """
    first = epsilon * (Fraction(1, 2) if monotone else Fraction(5, 13))
    return first, epsilon - first


class AboveThreshold:
    """A stream of answers, each whether a query lies above the threshold, until `count` of them were yes.

    Made by `above_threshold`. Ask with `ask`, or iterate over the answers to the queries it was made with.
    It belongs to one process and cannot be copied: two copies would share the noise of their threshold.
    """

    def __init__(
        self,
        queries: Iterable[Query] | None,
        *,
        threshold: Fraction,
        terms: Terms,
        count: int,
        grid: int,
        cost: Cost,
        entry: ChargeEntry | None,
    ) -> None:
        self._queries: Iterator[Query] = iter(() if queries is None else queries)
        self._grid = grid
        self._threshold = -int(-threshold * grid // 1)
        self._scales = noise_scales(terms, count=count, grid=grid)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._noisy = self._threshold + _draw(self._scales[0])
        self.count, self.cost, self.entry = count, cost, entry
        self.asked = self.given = 0

    @property
    def is_done(self) -> bool:
        """Whether all answers "above" were given, so that nothing more is answered."""
        return self.given >= self.count

    def ask(self, query: Query) -> bool:
        """Returns whether the query, a number or a function, lies above the threshold, noisily.

        Raises BudgetExceeded once `count` answers were yes; the query is not evaluated then.
        """
        if self._owner != os.getpid():
            raise RecipeError(
                "this stream belongs to another process; open one in each, each at its own charge"
            )
        with self._lock:
            if self.is_done:
                raise BudgetExceeded(
                    f"all {self.count} answers 'above' were given, and no more are paid for; "
                    "make another above_threshold, at its own charge",
                    left=Fraction(0),
                )
            value = _read_number(query() if callable(query) else query)
            if value is None:
                raise RecipeError(
                    "a query did not give a finite number; it must for every table there can be"
                )
            above = int(value * self._grid // 1) + _draw(self._scales[1]) >= self._noisy
            self.asked += 1
            if above:
                self.given += 1
                if not self.is_done:
                    self._noisy = self._threshold + _draw(self._scales[0])
            return above

    def __iter__(self) -> AboveThreshold:
        return self

    def __next__(self) -> bool:
        if self.is_done:
            raise StopIteration
        return self.ask(next(self._queries))

    def __repr__(self) -> str:
        return f"AboveThreshold({self.given} of {self.count} given, {self.asked} asked)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AboveThreshold cannot be copied or pickled: its copy would share its noise")


def above_threshold(
    queries: Iterable[Query] | None,
    threshold: ExactLike,
    epsilon: ExactLike,
    sensitivity: ExactLike,
    *,
    count: int = 1,
    monotone: bool = False,
    grid: int | None = None,
    neighbours: Neighbours = "add-remove",
    unit: str = "row",
    ledger: Ledger | None = None,
    name: str = "above threshold",
) -> AboveThreshold:
    """Opens a stream: whether each query lies above `threshold`, until `count` answers were yes.

    Queries are numbers or functions without arguments, each moved by one individual by at most
    `sensitivity`; they may depend on earlier answers. Of `queries`, one at a time is taken, after the charge;
    None if all are asked by `ask`. Answers no are free, however many. `monotone` may be said of queries that
    an added individual never moves in different directions.

    Values are rounded down to multiples of 1 / `grid`, by default to those on which the sensitivity is whole.
    The `ledger`, if there is one, is charged under `name`; `neighbours` and `unit` say who is protected.

    Privacy: pure `epsilon`. Each of `count` runs spends epsilon / count = e1 + e2 (`split_epsilon`). With D
    the sensitivity, the threshold gets discrete Laplace noise of scale D / e1, drawn anew after each yes, and
    every answer fresh noise of scale 2 D / e2, or D / e2 if monotone (Dwork and Roth 2014, with the constants
    of Lyu, Su and Li 2017; docs/proofs/choice.md).

    >>> stream = above_threshold([3, 5, 900, 900], 450, epsilon=1, sensitivity=1)
    >>> list(stream), stream.is_done
    ([False, False, True], True)
    """
    terms = Terms(
        epsilon=parse_positive(epsilon, name="epsilon"),
        sensitivity=parse_positive(sensitivity, name="sensitivity"),
        monotone=monotone,
        neighbours=neighbours,
        unit=unit,
    )
    count = parse_whole(count, name="count", high=_MOST_ANSWERS)
    steps = terms.sensitivity.denominator if grid is None else parse_whole(grid, name="grid")
    edge = parse_exact(threshold, name="threshold")
    for scale in noise_scales(terms, count=count, grid=steps):
        make_law("laplace", scale)  # refuses what cannot be drawn before it is paid for
    cost = Cost(kind="pure", scale=terms.epsilon / count, neighbours=neighbours, unit=unit, count=count)
    facts = {"mechanism": "above-threshold", "threshold": edge, "above": count, "grid": steps}
    entry = _charge_choice(ledger, cost, name=name, facts=facts | terms.to_record())
    return AboveThreshold(
        queries, threshold=edge, terms=terms, count=count, grid=steps, cost=cost, entry=entry
    )


def noise_scales(terms: Terms, *, count: int, grid: int) -> tuple[Fraction, Fraction]:
    """Returns the scales of the noise on the threshold and on an answer, in steps of 1 / grid.

    Rounding down moves two values at most ceil(sensitivity * grid) steps apart.
    """
    steps = -(-terms.sensitivity * grid // 1)
    first, second = split_epsilon(terms.epsilon / count, monotone=terms.monotone)
    return steps / first, steps * (1 if terms.monotone else 2) / second


def _draw(scale: Fraction) -> int:
    return int(discrete_laplace(scale=scale, size=1)[0])
