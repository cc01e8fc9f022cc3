"""Above a threshold or not, query by query, paid once: AboveThreshold, the sparse vector technique."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NoReturn

from sfumato.choose.mechanisms import Terms, charge_choice, make_terms, read_number
from sfumato.core.cost.cost import Cost
from sfumato.core.errors import BudgetExceeded, RecipeError
from sfumato.core.exact import ExactLike, parse_exact, parse_whole
from sfumato.core.ledger.chain import Entry
from sfumato.core.ledger.ledger import Ledger
from sfumato.core.noise.laws import make_law
from sfumato.core.noise.samplers import discrete_laplace

if TYPE_CHECKING:
    from sfumato.core.facts.table import Neighbours

Query = ExactLike | Callable[[], ExactLike]

_MOST: Final = 10**6


def split_epsilon(epsilon: Fraction, *, monotone: bool) -> tuple[Fraction, Fraction]:
    """How one run shares epsilon between the noise of the threshold and that of the answers.

    The variance of their difference is least at 1 to 2^(2/3), of which 5 to 8 is a simple neighbour, and at 1
    to 1 if the queries are monotone (Lyu, Su and Li 2017).

    >>> split_epsilon(Fraction(13), monotone=False)
    (Fraction(5, 1), Fraction(8, 1))
    """
    first = epsilon * (Fraction(1, 2) if monotone else Fraction(5, 13))
    return first, epsilon - first


class AboveThreshold:
    """A stream of answers, each whether a query lies above the threshold, until `count` of them were yes.

    Made by `above_threshold`. Ask with `ask`, or iterate over the answers to the queries it was made with.
    It belongs to one process and cannot be copied: two copies would share the noise of their threshold.
    """

    __slots__ = (
        "_grid",
        "_lock",
        "_noisy",
        "_owner",
        "_queries",
        "_scales",
        "_threshold",
        "asked",
        "cost",
        "count",
        "entry",
        "given",
    )

    def __init__(
        self,
        queries: Iterable[Query] | None,
        *,
        threshold: Fraction,
        terms: Terms,
        count: int,
        grid: int,
        cost: Cost,
        entry: Entry | None,
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
        """Whether the query, a number or a function that returns one, lies above the threshold, noisily.

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
            value = read_number(query() if callable(query) else query)
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
    """A stream that says of each query whether it lies above `threshold`, until `count` answers were yes.

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
    terms = make_terms(
        epsilon=epsilon, sensitivity=sensitivity, monotone=monotone, neighbours=neighbours, unit=unit
    )
    count = parse_whole(count, name="count", high=_MOST)
    steps = terms.sensitivity.denominator if grid is None else parse_whole(grid, name="grid")
    edge = parse_exact(threshold, name="threshold")
    for scale in noise_scales(terms, count=count, grid=steps):
        make_law("laplace", scale)  # refuses what cannot be drawn before it is paid for
    cost = Cost(kind="pure", scale=terms.epsilon / count, neighbours=neighbours, unit=unit, count=count)
    facts = {"mechanism": "above-threshold", "threshold": edge, "above": count, "grid": steps}
    entry = charge_choice(ledger, cost, name=name, facts=facts | terms.to_record())
    return AboveThreshold(
        queries, threshold=edge, terms=terms, count=count, grid=steps, cost=cost, entry=entry
    )


def noise_scales(terms: Terms, *, count: int, grid: int) -> tuple[Fraction, Fraction]:
    """The scales of the noise on the threshold and on an answer, in steps of 1 / grid.

    Rounding down moves two values at most ceil(sensitivity * grid) steps apart.

    >>> terms = Terms(epsilon=Fraction(13), sensitivity=Fraction(40))
    >>> noise_scales(terms, count=1, grid=1)
    (Fraction(8, 1), Fraction(10, 1))
    """
    steps = -(-terms.sensitivity * grid // 1)
    first, second = split_epsilon(terms.epsilon / count, monotone=terms.monotone)
    return steps / first, steps * (1 if terms.monotone else 2) / second


def _draw(scale: Fraction) -> int:
    return int(discrete_laplace(scale=scale, size=1)[0])
