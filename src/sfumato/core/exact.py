"""Exact numbers: privacy parameters are rationals from the moment they are read.

A float such as ``0.1`` is taken as the decimal its author wrote (one tenth), not as the nearest
binary fraction, so that ten charges of 0.1 are exactly one.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, NoReturn

from sfumato.core.errors import RecipeError, SfumatoError

_PLAIN = re.compile(r"\s*[+-]?[0-9.eE+-]{1,400}(/[0-9]{1,400})?\s*", re.ASCII)

_LEAST_DELTA, _LARGEST_DELTA = Fraction(1, 10**100), Fraction(1, 10)

NORMAL_95 = 1.959964
"""Half the width, in standard deviations, of the interval that holds 95 % of normal noise."""

ExactLike = int | float | str | Decimal | Fraction


class Withheld:
    """What holds exact values of records: it cannot be pickled or copied, and its `repr` shows none."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(values withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} contains what nobody may look at; it cannot be pickled")


def parse_exact(value: object, *, name: str) -> Fraction:
    """The rational that `value` stands for; `name` is what an error calls it.

    >>> parse_exact(0.1, name="epsilon")
    Fraction(1, 10)
    >>> parse_exact("1/3", name="epsilon")
    Fraction(1, 3)
    """
    given = str(value)[:40]
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, float):
        value = repr(float(value))  # float() first: numpy's scalars print their type
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        value = None
    try:
        if isinstance(value, str) and "/" in value:
            return Fraction(value)
        if isinstance(value, (str, Decimal)):
            decimal = Decimal(value)
            if decimal.is_finite() and abs(decimal.adjusted()) <= 400:
                return Fraction(decimal)
    except (InvalidOperation, ValueError, ZeroDivisionError):
        pass
    raise RecipeError(f"{name} must be a finite number, got {given!r}")


def parse_positive(value: object, *, name: str) -> Fraction:
    """The rational above zero that `value` stands for."""
    number = parse_exact(value, name=name)
    if number <= 0:
        raise RecipeError(f"{name} must be above zero, got {format_exact(number)}")
    return number


def parse_whole(
    value: object,
    *,
    name: str,
    low: int = 1,
    high: int | None = None,
    error: type[SfumatoError] = RecipeError,
) -> int:
    """The whole number that `value` is, not below `low` nor above `high`; `name` is what an error calls it.

    Integers of numpy are whole numbers; booleans, floats and text are not.

    >>> parse_whole(4, name="categories", low=2)
    4
    """
    # Before numpy 2.3 its booleans pass for indices, so they are known by their type.
    boolean = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
    try:
        number = None if boolean else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < low or (high is not None and number > high):
        limits = f"of at least {low:,}" if high is None else f"from {low:,} to {high:,}"
        raise error(f"{name} must be a whole number {limits}, got {str(value)[:40]!r}")
    return number


def check_option(
    value: object, options: Sequence[object], *, name: str, error: type[SfumatoError] = RecipeError
) -> None:
    """Raises an error unless `value` is one of `options`; `name` is what it calls the value.

    >>> check_option("mean", ("sum", "count"), name="measure")
    Traceback (most recent call last):
        ...
    sfumato.core.errors.RecipeError: measure must be 'sum' or 'count', got 'mean'
    """
    if value not in options:
        *most, last = map(repr, options)
        known = f"{', '.join(most)} or {last}" if most else last
        raise error(f"{name} must be {known}, got {str(value)[:40]!r}")


def parse_delta(value: object) -> Fraction:
    """The delta that `value` stands for: 0 for pure privacy, otherwise above it and below 0.1.

    With probability delta the guarantee may fail altogether, so that a tenth is no guarantee any more.
    """
    delta = parse_exact(value, name="delta")
    if not 0 <= delta < _LARGEST_DELTA:
        raise RecipeError(
            f"delta must be 0, or above it and below 0.1, got {format_exact(delta)}: so often may the "
            "guarantee fail. It should be far below one in the number of individuals"
        )
    if 0 < delta < _LEAST_DELTA:
        raise RecipeError("delta below 1e-100 is as good as 0; write 0")
    return delta


def format_exact(number: Fraction) -> str:
    """`number` as text that reads back exactly: a decimal where one exists, else p/q.

    >>> format_exact(Fraction(1, 8)), format_exact(Fraction(1, 3)), format_exact(Fraction(20))
    ('0.125', '1/3', '20')
    """
    twos = fives = 0
    rest = number.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return f"{number.numerator}/{number.denominator}"
    places = max(twos, fives)
    digits = str(abs(number.numerator) * 10**places // number.denominator).rjust(places + 1, "0")
    sign = "-" if number < 0 else ""
    if places == 0:
        return sign + digits
    if places > 30:
        return f"{number.numerator}/{number.denominator}"
    return f"{sign}{digits[:-places]}.{digits[-places:]}"


def format_short(number: Fraction) -> str:
    """`number` for people: exact if that is short, else six digits, or what tells it from a whole number.

    >>> format_short(Fraction("0.25")), format_short(Fraction(1, 3)), format_short(Fraction("0.9999999999"))
    ('0.25', '0.333333', '0.9999999999')
    >>> format_short(1 - Fraction(1, 3**20))
    '0.9999999997'
    """
    text = format_exact(number)
    if len(text) <= 12 and "/" not in text:
        return text
    for digits in range(6, 18):
        text = f"{float(number):.{digits}g}"
        if Fraction(text).denominator > 1 or number.denominator == 1:
            return text
    return format_exact(number)


def round_up(number: Fraction | float, *, places: int) -> Fraction:
    """The least decimal with `places` places that is not below `number`.

    >>> round_up(Fraction(1, 3), places=2)
    Fraction(17, 50)
    """
    unit = 10**places
    return Fraction(-((-Fraction(number) * unit) // 1), unit)


def canonical_json(description: Any) -> bytes:  # noqa: ANN401 - any tree of plain records
    """`description` as UTF-8 JSON with sorted keys and no spare space.

    Rationals become exact text. Floats are refused: two machines may print them differently.

    >>> canonical_json({"b": Fraction(1, 2), "a": [1, None]})
    b'{"a":[1,null],"b":"0.5"}'
    """
    return json.dumps(_plain(description), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(description: Any) -> str:  # noqa: ANN401 - any tree of plain records
    """The SHA-256 of the canonical spelling, in hexadecimal."""
    return hashlib.sha256(canonical_json(description)).hexdigest()


def _plain(node: Any) -> Any:  # noqa: ANN401 - walks any tree
    if node is None or isinstance(node, (str, bool, int)):
        return node
    if isinstance(node, Fraction):
        return format_exact(node)
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return list(node) if set(map(type, node)) <= {str, int} else [_plain(value) for value in node]
    raise TypeError(f"a canonical description cannot hold a {type(node).__name__}")
