"""The budget, what was spent of it, and whether a charge still fits.

`admits` is the whole of the rule that a ledger follows; the part of it that uses delta is in `filter`. The
proof is docs/proofs/ledger.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import mu_to_epsilon, rho_to_epsilon
from sfumato.core.cost.filter import (
    Limits,
    Trail,
    admits_trail,
    choose_limits,
    find_whole_limits,
    guess_pure,
)
from sfumato.core.errors import BudgetExceeded, RecipeError
from sfumato.core.exact import ExactLike, format_exact, format_short, parse_exact, parse_positive

MANY = 10**6
"""Nobody counts further than this."""

_GRAIN = 10**6
_STEPS = 1000
_SELECTION = Fraction(1, 20)  # of delta; benchmarks/premium.py measures what it costs
_BITS = 2048


class Amount(Fraction):
    """An exact amount of privacy that prints as what it is.

    >>> Amount("0.1") * 3 == Amount("0.3"), Amount(1, 3), f"{Amount(1, 4)} left"
    (True, 1/3, '0.25 left')
    """

    __slots__ = ()

    def __str__(self) -> str:
        return format_exact(self)

    def __repr__(self) -> str:
        return format_exact(self)

    def __format__(self, spec: str) -> str:
        """The amount as `str` has it; with a number's format, such as ".3f", rounded as that says.

        >>> f"{Amount(1, 3)} {Amount(1, 4):>6} {Amount(1, 3):.2f}"
        '1/3   0.25 0.33'
        """
        if spec and spec[-1] in "eEfFgG%":
            return format(Fraction(self), spec) if sys.version_info >= (3, 12) else format(float(self), spec)
        return format(str(self), spec)


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """The privacy budget, the whole that may be spent: (epsilon, delta).

    A delta of zero leaves pure epsilon as the only currency. `selection` is the part of delta that
    is kept for mechanisms that may fail, such as the selection of groups; sums are converted at what
    is left of delta. By default it is a twentieth of delta.

    >>> Budget("0.5", "0.01")
    Budget(epsilon=Fraction(1, 2), delta=Fraction(1, 100), selection=Fraction(1, 2000))
    """

    epsilon: Fraction
    delta: Fraction
    selection: Fraction

    def __init__(
        self,
        epsilon: ExactLike,
        delta: ExactLike = 0,
        *,
        selection: ExactLike | None = None,
    ) -> None:
        epsilon = Fraction(parse_positive(epsilon, name="epsilon"))
        delta = Fraction(parse_exact(delta, name="delta"))
        if not Fraction(1, 10**9) <= epsilon <= 10**9:
            raise RecipeError("the epsilon of a budget must lie between 1e-9 and 1e9")
        if not 0 <= delta < 1:
            raise RecipeError(f"delta must lie in [0, 1), got {format_exact(delta)}")
        if selection is None:
            selection = delta * _SELECTION
        selection = Fraction(parse_exact(selection, name="selection"))
        if not 0 <= selection <= delta or selection == delta > 0:
            raise RecipeError(
                f"selection must be at least 0 and less than delta = {format_exact(delta)}, "
                f"got {format_exact(selection)}"
            )
        if any(number.denominator.bit_length() > _BITS for number in (epsilon, delta, selection)):
            raise RecipeError(f"epsilon, delta and selection of a budget may have at most {_BITS} bits")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "selection", selection)

    @property
    def conversion_delta(self) -> Fraction:
        """The delta at which sums are converted: what the part for selection leaves."""
        return self.delta - self.selection

    def describe(self) -> str:
        """The budget in one line."""
        if self.delta == 0:
            return f"epsilon {format_exact(self.epsilon)}"
        delta = format_exact(self.delta)
        if self.selection > 0:
            delta += f", of which {format_exact(self.selection)} for selection"
        return f"epsilon {format_exact(self.epsilon)} at delta {delta}"

    def to_record(self) -> dict[str, str]:
        """The budget as plain text."""
        return {
            "delta": format_exact(self.delta),
            "epsilon": format_exact(self.epsilon),
            "selection": format_exact(self.selection),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Budget:
        """The budget that `to_record` wrote."""
        if set(record) != {each.name for each in fields(cls)}:
            raise RecipeError("a recorded budget holds exactly the fields delta, epsilon and selection")
        budget = cls(**record)  # type: ignore[arg-type]  # every field is checked when it is made
        if budget.to_record() != dict(record):
            raise RecipeError("the recorded budget is not in its canonical spelling")
        return budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Exact sums over all charges; None where some charge has no finite amount of that kind.

    `delta` is the sum of the probabilities with which they may fail; `trail` has the charges one by one,
    for the rules that need more than these sums.
    """

    epsilon: Fraction | None = Fraction(0)
    rho: Fraction = Fraction(0)
    mu_squared: Fraction | None = Fraction(0)
    delta: Fraction = Fraction(0)
    trail: Trail | None = field(default=None, compare=False, repr=False)

    def keep(self, budget: Budget) -> dict[str, Any]:
        """All that `restore` needs to admit further charges under `budget`, as plain text and numbers."""
        sums = {name: _spell(getattr(self, name)) for name in _SUMS}
        return sums | {"trail": self.trail and self.trail.keep(_limits(budget, self)[0])}

    @classmethod
    def restore(cls, kept: Mapping[str, Any]) -> Spent:
        """The sums that were kept; what they leave of another budget cannot be told."""
        trail = None if kept["trail"] is None else Trail.restore(kept["trail"])
        return cls(**{name: _read(kept[name]) for name in _SUMS}, trail=trail)


def add_costs(spent: Spent, costs: Iterable[Cost]) -> Spent:
    """What is spent once `costs`, one charge, are added to `spent`.

    >>> add_costs(Spent(), [Cost(kind="pure", scale=Fraction(1, 10))] * 10).epsilon
    Fraction(1, 1)
    """
    charge = tuple(costs)
    if not charge:
        return spent
    epsilon, rho, mu_squared, delta = spent.epsilon, spent.rho, spent.mu_squared, spent.delta
    for cost in charge:
        epsilon = _sum(epsilon, cost.epsilon)
        rho += cost.rho
        mu_squared = _sum(mu_squared, cost.mu_squared)
        delta += cost.failure
    trail = Trail(charge, spent.trail)
    return Spent(epsilon=epsilon, rho=rho, mu_squared=mu_squared, delta=delta, trail=trail)


def admits(budget: Budget, spent: Spent, costs: Iterable[Cost] = ()) -> bool:
    """Whether `costs` may be charged after `spent`.

    *Privacy:* everything charged under this rule, each cost chosen on seeing all earlier answers,
    is (epsilon, delta)-private together: the probabilities of failure add up to at most the part of
    delta for selection, and either the pure epsilons add up to at most epsilon, or one of the rules
    that use delta converts to at most epsilon at its part of the rest. Proofs: docs/proofs/ledger.md,
    docs/proofs/filter.md.

    >>> tenth = Cost(kind="pure", scale=Fraction(1, 10))
    >>> admits(Budget(1), Spent(), [tenth] * 10), admits(Budget(1), Spent(), [tenth] * 11)
    (True, False)
    """
    total = add_costs(spent, costs)
    limits, selection = _limits(budget, total)
    if total.delta > selection:
        return False
    if total.epsilon is not None and total.epsilon <= budget.epsilon:
        return True
    if budget.delta == 0:
        return False
    return limits is not None and total.trail is not None and admits_trail(limits, total.trail)


def left(budget: Budget, spent: Spent) -> Amount:
    """The largest pure epsilon that still fits, at most the budget's own.

    Exact where pure epsilons are added up; rounded down to a millionth where delta is used.

    >>> left(Budget(1), add_costs(Spent(), [Cost(kind="pure", scale=Fraction(1, 10))]))
    0.9
    """
    limits, selection = _limits(budget, spent)
    if spent.delta > selection:
        return Amount(0)
    plain = Fraction(0) if spent.epsilon is None else budget.epsilon - spent.epsilon
    if plain >= budget.epsilon or budget.delta == 0:
        return Amount(max(Fraction(0), plain))
    assert limits is not None  # something was spent, and there is delta
    assert spent.trail is not None
    guess = Fraction(guess_pure(limits, spent.trail, most=float(budget.epsilon)))

    # Asking the filter itself keeps the promise even if an inverse were a little off.
    def fits(units: int) -> bool:
        return admits(budget, spent, [Cost(kind="pure", scale=Fraction(units, _GRAIN))])

    units, step = math.floor(min(guess, budget.epsilon) * _GRAIN), 1
    while units > plain * _GRAIN and not fits(units):
        units, step = units - step, 2 * step
    return Amount(max(Fraction(0), plain, Fraction(units, _GRAIN)))


def count_more(budget: Budget, spent: Spent, costs: Sequence[Cost]) -> int:
    """How many more charges like `costs` fit after `spent`, at most `MANY`.

    >>> count_more(Budget(1), Spent(), [Cost(kind="pure", scale=Fraction(1, 3))])
    3
    """

    def fits(times: int) -> bool:
        try:
            more = [replace(cost, count=cost.count * times) for cost in costs]
        except RecipeError:  # more repetitions than a cost can hold
            return False
        return admits(budget, spent, more)

    return _largest(fits, MANY)


def largest_like(budget: Budget, spent: Spent, costs: Sequence[Cost]) -> tuple[Cost, ...] | None:
    """The costs of the same kind that fit after `spent`, all with more noise; None if none fit.

    Found to a thousandth: epsilon, or the ratio of sensitivity and noise, is scaled.
    """

    def fits(part: int) -> bool:
        return admits(budget, spent, [_scale(cost, Fraction(part, _STEPS)) for cost in costs])

    part = _largest(fits, _STEPS)
    return tuple(_scale(cost, Fraction(part, _STEPS)) for cost in costs) if part else None


def read_epsilon(costs: Sequence[Cost], delta: Fraction) -> Fraction | None:
    """The epsilon of one charge: exact if it is pure, else the least that is known at `delta`."""
    total = add_costs(Spent(), costs)
    if total.epsilon is not None:
        return total.epsilon
    rest = delta - total.delta  # what may fail takes its part
    if rest <= 0:
        return None
    readings = [rho_to_epsilon(total.rho, rest)]
    if total.mu_squared is not None:
        readings.append(mu_to_epsilon(math.sqrt(total.mu_squared), rest))
    return Fraction(min(readings))


def describe_costs(costs: Sequence[Cost], delta: Fraction) -> str:
    """One charge in the words of a budget with `delta`.

    >>> describe_costs([Cost(kind="laplace", scale=Fraction(10))], Fraction(0))
    'epsilon 0.1'
    >>> describe_costs([Cost(kind="filter", scale=Fraction(1, 5))], Fraction(1, 10**6))
    'epsilon 0.834 at delta 0.000001'
    """
    epsilon = read_epsilon(costs, delta)
    if epsilon is None:
        return f"rho {format_short(add_costs(Spent(), costs).rho)}"
    if all(cost.epsilon is not None for cost in costs):
        return f"epsilon {format_short(epsilon)}"
    return f"epsilon {_few_digits(epsilon)} at delta {format_exact(delta)}"


def describe_charge(budget: Budget, costs: Sequence[Cost]) -> str:
    """One charge in the words of `budget`: the least epsilon at which an empty ledger would admit it.

    >>> many = [Cost(kind="pure", scale=Fraction(1, 20))] * 92
    >>> describe_charge(Budget(1), many), describe_charge(Budget(1, "1e-6"), many)
    ('epsilon 4.6', 'epsilon 2.19 at delta 0.000001')
    """
    known = read_epsilon(costs, budget.delta)
    if known is None or budget.delta == 0 or sum(cost.uses for cost in costs) == 1:
        return describe_costs(costs, budget.delta)
    most = min(Fraction(float(known)), Fraction(10**9))

    def fits(less: int) -> bool:
        epsilon = max(Fraction(1, 10**9), most * (_STEPS - less) / _STEPS)
        return admits(replace(budget, epsilon=epsilon), Spent(), costs)

    less = _largest(fits, _STEPS - 1)
    if less == 0:
        return describe_costs(costs, budget.delta)
    epsilon = _few_digits(most * (_STEPS - less) / _STEPS, up=True)
    return f"epsilon {epsilon} at delta {format_exact(budget.delta)}"


def explain_refusal(
    budget: Budget, spent: Spent, costs: tuple[Cost, ...], *, name: str, window: bool = False
) -> BudgetExceeded:
    """The error that says why `costs` do not fit after `spent` in the ledger `name`, of a `window` or all."""
    remaining = left(budget, spent)
    where = f"ledger {name!r}" + (
        " for a period of the window; `sfumato budget` lists them" if window else ""
    )
    return BudgetExceeded(
        _explain_failures(budget, spent, costs, where=where)
        or (
            f"the charge asks for {describe_charge(budget, costs)}; epsilon {remaining} of "
            f"{budget.describe()} is left in {where}{_explain_kind(budget, spent, costs)}. Nothing "
            "was spent; ask for less or with more noise"
        ),
        left=remaining,
    )


def _limits(budget: Budget, total: Spent) -> tuple[Limits | None, Fraction]:
    """What the rules that use delta allow, and the part of delta for failures.

    The first charge, which is made before any answer, chooses among the rules.
    """
    if budget.delta == 0 or total.trail is None:
        return None, budget.selection
    first = total.trail.first
    if sum((cost.failure for cost in first.list_costs()), Fraction(0)) <= budget.selection:
        limits = choose_limits(budget.epsilon, budget.conversion_delta, first)
        if limits is not None:
            return limits, budget.selection
    return find_whole_limits(budget.epsilon, budget.delta), Fraction(0)


_SUMS = ("epsilon", "rho", "mu_squared", "delta")


def _spell(amount: Fraction | None) -> str | None:
    # Python limits how many decimal digits it reads, and sums of many fractions have many.
    return None if amount is None else f"{amount.numerator:x}/{amount.denominator:x}"


def _read(text: str | None) -> Any:  # noqa: ANN401 - None where the sum may be None
    return None if text is None else Fraction(*(int(part, 16) for part in text.split("/")))


def _sum(total: Fraction | None, amount: Fraction | None) -> Fraction | None:
    return None if total is None or amount is None else total + amount


def _scale(cost: Cost, part: Fraction) -> Cost:
    """`cost` with `part` of its epsilon, or of its Gaussian parameter."""
    noisy = cost.norm != "none"
    return replace(cost, scale=cost.scale / part if noisy else cost.scale * part)


def _few_digits(number: Fraction, *, up: bool = False) -> str:
    """`number` rounded down to three digits, so that what is said to fit does, or `up`."""
    power = 2 - math.floor(math.log10(number)) if number > 0 else 0
    unit = Fraction(10) ** power
    return format_exact((math.ceil if up else math.floor)(number * unit) / unit)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest whole number up to `most` that fits; whatever is below one that fits does, too."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _explain_kind(budget: Budget, spent: Spent, costs: tuple[Cost, ...]) -> str:
    """The most of this kind of charge that would fit, where that is not the pure epsilon that is left."""
    if len(costs) == 1 and costs[0].kind == "pure" and costs[0].count == 1:
        return ""
    if budget.delta == 0:
        pure = all(cost.epsilon is not None for cost in costs)
        return "" if pure else ", and without delta in the budget no charge of this kind fits"
    fitting = largest_like(budget, spent, costs)
    if fitting is None:
        return ", and nothing of this kind fits"
    return f", and of this kind {describe_charge(budget, fitting)} would fit"


def _explain_failures(budget: Budget, spent: Spent, costs: tuple[Cost, ...], *, where: str) -> str:
    """Why the part of delta for selection refuses `costs`, or nothing if it does not."""
    asked = add_costs(Spent(), costs).delta
    rest = budget.selection - spent.delta
    if asked <= rest:
        return ""
    return (
        f"the charge may fail with probability {format_exact(asked)}; {format_exact(rest)} of the "
        f"{format_exact(budget.selection)} that {budget.describe()} keeps for selection is left in "
        f"{where}. Nothing was spent; select with a smaller delta, or raise `[budget] selection_delta` "
        "(below delta) and run `sfumato budget --accept`"
    )
