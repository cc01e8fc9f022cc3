"""What a hierarchy is, and what all share: one text for a value, nested levels, one kind of refusal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Final, Protocol, runtime_checkable

from sfumato.errors import AnonymityError

TOP: Final = "*"
"""The label that stands for everything; the last level of every hierarchy has no other."""

Levels = tuple[tuple[str, ...], ...]
"""For each level, finest first, one label for each value."""

_DECIMAL = re.compile(r"-?(?:0|[1-9]\d*)\.\d+", re.ASCII)


@runtime_checkable
class Hierarchy(Protocol):
    """Coarser and coarser labels for the values of a column."""

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """The labels of `values` at every level above the value itself; the last level is all `*`.

        `values` are the distinct values of the column, none of them missing; `column` is named in errors.
        """


def check_nested(levels: Sequence[Sequence[str]], *, column: str) -> Levels:
    """The levels as they are, or an error if they are not nested or do not end in `*`.

    Nested means: values with one label at a level have one label at every later level.

    >>> check_nested([["1*", "1*", "6*"], ["*", "*", "*"]], column="postcode")
    (('1*', '1*', '6*'), ('*', '*', '*'))
    >>> check_nested([["a", "a"], ["b", "c"], ["*", "*"]], column="job")
    Traceback (most recent call last):
        ...
    sfumato.errors.AnonymityError: column 'job': the hierarchy is ambiguous: 1 label of level 1 ...
    """
    if not levels or any(label != TOP for label in levels[-1]):
        raise AnonymityError(
            f"column {column!r}: the last level of the hierarchy must be {TOP!r} for every value"
        )
    if any(len(level) != len(levels[0]) for level in levels):
        raise AnonymityError(
            f"column {column!r}: every level of the hierarchy must have one label for each value"
        )
    if any(not label.strip() for level in levels for label in set(level)):
        raise AnonymityError(
            f"column {column!r}: the hierarchy has an empty label; an empty cell reads as missing"
        )
    for number, (finer, coarser) in enumerate(pairwise(levels), start=1):
        above: dict[str, str] = {}
        split = {
            below
            for below, label in zip(finer, coarser, strict=True)
            if above.setdefault(below, label) != label
        }
        if split:
            raise AnonymityError(
                f"column {column!r}: the hierarchy is ambiguous: {_count(len(split), 'label')} of level "
                f"{number} {'has' if len(split) == 1 else 'have'} more than one label at level {number + 1}; "
                "give every label one that it belongs to"
            )
    return tuple(tuple(level) for level in levels)


def write_value(value: object) -> str:
    """The text of a value as it would stand in a file: the number 180.0 as 180, a text as it is.

    >>> [write_value(value) for value in (180.0, Decimal("2.50"), "2.50", " Private ", True)]
    ['180', '2.5', '2.50', 'Private', 'true']
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (float, Decimal)) and math.isfinite(value):
        return trim_zeros(format(Decimal(float.__repr__(value)) if isinstance(value, float) else value, "f"))
    return str(value)


def trim_zeros(text: str) -> str:
    """The text without zeros that say nothing, if it is a decimal number.

    >>> trim_zeros("2.50"), trim_zeros("180.0"), trim_zeros("-0.0"), trim_zeros("100"), trim_zeros("a.0")
    ('2.5', '180', '0', '100', 'a.0')
    """
    plain = text.rstrip("0").rstrip(".") if _DECIMAL.fullmatch(text) else text
    return "0" if plain == "-0" else plain


def as_tuple(given: object) -> tuple[object, ...]:
    """The members of a list, or what was given as the only one.

    >>> as_tuple([3, 2]), as_tuple(3), as_tuple("year")
    ((3, 2), (3,), ('year',))
    """
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)):
        return tuple(given)
    return (given,)


def refuse(count: int, total: int, *, column: str, what: str, remedy: str) -> None:
    """Nothing if `count` is 0, or an error: so many of the values of `column` are `what`, and the remedy.

    >>> refuse(2, 9, column="age", what="above 60", remedy="set open_above")
    Traceback (most recent call last):
        ...
    sfumato.errors.AnonymityError: column 'age': 2 of its 9 different values are above 60; set ...
    """
    if count:
        verb = "is" if count == 1 else "are"
        raise AnonymityError(
            f"column {column!r}: {count} of its {_count(total, 'different value')} {verb} {what}; {remedy}"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
