"""A privacy guarantee as a record: what one query costs, and how often it is asked.

Amounts add up over queries: pure epsilons, rates rho and squares of mu, and the probabilities delta with
which a query may fail. An (epsilon, delta) guarantee is as good as pure epsilon unless it fails, and then
it may tell everything: no mechanism with that guarantee tells more than the one that does just this
(Kairouz, Oh and Viswanath 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, get_args

from sfumato.accounting import pure_to_mu, pure_to_rho
from sfumato.errors import RecipeError
from sfumato.exact import ExactLike, format_exact, parse_exact, parse_positive
from sfumato.report.posterior import Total

Kind = Literal["epsilon", "rho", "mu"]

_LEAST, _MOST = Fraction(1, 10**12), Fraction(10**6)
_MOST_TIMES = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The guarantee of one query, asked `times` times: pure, zero-concentrated (rho) or Gaussian (mu).

    `delta` goes with epsilon only.

    >>> Guarantee(kind="epsilon", amount="0.1", times=10).total.epsilon
    Fraction(1, 1)
    """

    kind: Kind
    amount: Fraction
    delta: Fraction = Fraction(0)
    times: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise RecipeError(
                f"a guarantee is one of {', '.join(get_args(Kind))}, got {str(self.kind)[:40]!r}"
            )
        object.__setattr__(self, "amount", _parse_amount(self.amount, self.kind))
        object.__setattr__(self, "delta", _parse_delta(self.delta, self.kind))
        if isinstance(self.times, bool) or not isinstance(self.times, int):
            raise RecipeError("times must be a whole number")
        if not 1 <= self.times <= _MOST_TIMES:
            raise RecipeError(f"times must lie between 1 and {_MOST_TIMES:,}, got {self.times}")

    def repeat(self, times: int) -> Guarantee:
        """The guarantee of the same query asked `times` times in place of once.

        >>> Guarantee(kind="rho", amount=0.5).repeat(4).total.rho
        Fraction(2, 1)
        """
        return replace(self, times=times)

    @property
    def failure(self) -> Fraction:
        """The probability with which any of all queries may fail, at most."""
        return min(Fraction(1), self.times * self.delta)

    @property
    def total(self) -> Total:
        """What all queries cost together, unless one fails.

        Pure privacy is zero-concentrated and Gaussian too, which is less for many queries. Gaussian
        privacy is zero-concentrated, with half the square of mu.
        """
        times = self.times
        if self.kind == "rho":
            return Total(epsilon=None, rho=times * self.amount, mu_squared=None, at_delta={})
        if self.kind == "mu":
            squared = times * self.amount**2
            return Total(epsilon=None, rho=squared / 2, mu_squared=squared, at_delta={})
        return Total(
            epsilon=times * self.amount,
            rho=times * pure_to_rho(self.amount),
            mu_squared=times * pure_to_mu(self.amount) ** 2,
            at_delta={},
        )

    def describe(self) -> str:
        """The guarantee of one query in a few words.

        >>> Guarantee(kind="epsilon", amount=1, delta="1e-6").describe()
        'epsilon 1, delta 0.000001'
        """
        kinds = {"epsilon": "pure", "rho": "zero-concentrated", "mu": "Gaussian"}
        if self.delta:
            return f"epsilon {format_exact(self.amount)}, delta {format_exact(self.delta)}"
        return f"{self.kind} {format_exact(self.amount)} ({kinds[self.kind]})"


def parse_probability(value: ExactLike, *, name: str) -> Fraction:
    """The probability from 0 to 1 that `value` stands for.

    >>> parse_probability("0.5", name="prior")
    Fraction(1, 2)
    """
    number = parse_exact(value, name=name)
    if not 0 <= number <= 1:
        raise RecipeError(f"{name} must lie between 0 and 1, got {str(value)[:40]!r}")
    return number


def _parse_amount(value: ExactLike, kind: Kind) -> Fraction:
    number = parse_positive(value, name=kind)
    if not _LEAST <= number <= _MOST:
        raise RecipeError(f"{kind} must lie between 1e-12 and 1e6 to be explained")
    return number


def _parse_delta(value: ExactLike, kind: Kind) -> Fraction:
    number = parse_exact(value, name="delta")
    if not 0 <= number < 1:
        raise RecipeError("delta must be 0 or more, and below one")
    if number and kind != "epsilon":
        raise RecipeError(f"{kind} has no delta of its own; state at which delta to read it as an epsilon")
    return number
