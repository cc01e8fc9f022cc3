"""The threshold of partition selection: how many individuals, with noise, let a group be named.

A group that only one individual is in passes with probability P(1 + X >= t), X being discrete
Laplace noise of scale b. For t >= 1 that is q^(t-1) / (1 + q) with q = exp(-1/b). Both functions
evaluate it in decimal arithmetic whose exponentials and logarithms are correctly rounded, with far more
digits than the result needs. Proof: docs/proofs/partition-selection.md.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_exact, parse_positive

if TYPE_CHECKING:
    from sfumato.exact import ExactLike

_DIGITS = 160
_MARGIN = Fraction(1, 10**40)
_LARGEST = 10**30
_LEAST = Fraction(1, 10**400)


def selection_threshold(*, scale: ExactLike, sensitivity: ExactLike, delta: ExactLike) -> int:
    """The least whole t >= 1 such that sensitivity * P(1 + X >= t) <= delta, X of this scale.

    *Privacy:* releasing the groups whose number of individuals plus noise is at least t, where one
    individual is in at most `sensitivity` groups, costs what Cost(kind="selection") states. If
    neighbours replace an individual, pass twice as many groups.

    >>> selection_threshold(scale=1, sensitivity=1, delta="1e-6")
    15
    """
    exact_scale, groups = _parse(scale, sensitivity)
    target = parse_positive(delta, name="delta")
    if target >= 1:
        raise RecipeError(f"delta must lie below one, got {format_exact(target)}")
    digits = _DIGITS
    while True:
        # q^(t-1) <= delta (1 + q) / g  if and only if  t - 1 >= b ln(g / (delta (1 + q))).
        with localcontext(_context(digits)):
            q = (-_decimal(1 / exact_scale)).exp()
            least = Fraction(_decimal(exact_scale) * (_decimal(groups / target) / (1 + q)).ln())
        # The bound is no whole number, because q is transcendental: some precision settles its
        # ceiling, and the first one does unless it lies within 1e-40 of a whole number.
        margin = _MARGIN ** (digits // _DIGITS)
        if math.ceil(least - margin) == math.ceil(least + margin):
            return 1 + max(0, math.ceil(least))
        digits *= 2


def selection_delta_of(threshold: int, scale: ExactLike, sensitivity: ExactLike) -> Fraction:
    """The probability sensitivity * P(1 + X >= threshold), rounded up to 30 digits; at least 1e-400.

    >>> float(selection_delta_of(14, 1, 1)), float(selection_delta_of(15, 1, 1))
    (1.6524332035031714e-06, 6.078962034778829e-07)
    """
    exact_scale, groups = _parse(scale, sensitivity)
    if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 1:
        raise RecipeError("threshold must be a whole number of at least 1")
    with localcontext(_context(_DIGITS)):
        q = (-_decimal(1 / exact_scale)).exp()
        value = _decimal(groups) * (-_decimal((threshold - 1) / exact_scale)).exp() / (1 + q)
        value *= 1 + _decimal(_MARGIN)
    rounded = Context(prec=30, rounding=ROUND_CEILING, Emin=-(10**9), Emax=10**9).plus(value)
    return max(_LEAST, Fraction(rounded)) if rounded.adjusted() > -500 else _LEAST


def _parse(scale: ExactLike, sensitivity: ExactLike) -> tuple[Fraction, Fraction]:
    exact = parse_positive(scale, name="scale")
    groups = parse_exact(sensitivity, name="sensitivity")
    if not Fraction(1, _LARGEST) <= exact <= _LARGEST:
        raise RecipeError("scale must lie between 1e-30 and 1e30")
    if groups.denominator != 1 or not 1 <= groups <= _LARGEST:
        raise RecipeError(
            "sensitivity must be the most groups of one individual, a whole number from 1 to 1e30"
        )
    return exact, groups


def _context(digits: int) -> Context:
    return Context(prec=digits, Emin=-(10**9), Emax=10**9)


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)
