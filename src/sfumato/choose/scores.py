"""Scores, read exactly.

An error about a score tells neither the score nor whose it is: it was computed from records.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from fractions import Fraction
from typing import TypeVar

from sfumato.errors import RecipeError
from sfumato.exact import ExactLike, parse_exact

T = TypeVar("T")

Score = Callable[[T], ExactLike] | Sequence[ExactLike]
"""A function of a candidate, called once for each after the charge; or the scores in their order."""


def list_candidates(candidates: Iterable[T], score: Score[T]) -> tuple[T, ...]:
    """The candidates, at least one, with as many scores if those are listed.

    >>> list_candidates("ab", [1, 2])
    ('a', 'b')
    """
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


def read_scores(candidates: tuple[T, ...], score: Score[T]) -> list[Fraction]:
    """The exact score of every candidate. The caller has charged.

    >>> read_scores(("a", "bb"), len), read_scores(("a", "bb"), [0.1, "1/3"])
    ([Fraction(1, 1), Fraction(2, 1)], [Fraction(1, 10), Fraction(1, 3)])
    """
    values = [score(each) for each in candidates] if callable(score) else list(score)
    numbers = [read_number(value) for value in values]
    exact = [number for number in numbers if number is not None]
    if len(exact) != len(values):
        raise RecipeError(
            "a score is not a finite number. Scores are whole numbers, fractions, decimals or finite floats, "
            "for every table there can be. A charge that was made is kept"
        )
    return exact


def read_number(value: object) -> Fraction | None:
    """The rational that `value` stands for, a float being the decimal it prints as; None for anything else.

    >>> read_number(0.1), read_number(float("nan")), read_number(True)
    (Fraction(1, 10), None, None)
    """
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
