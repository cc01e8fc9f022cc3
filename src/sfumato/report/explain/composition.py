"""What many queries cost together, by every rule of composition: an epsilon at one delta, side by side.

Each query is (epsilon, delta)-private and may be chosen on seeing the answers before it. Every epsilon here
is an upper bound, rounded up; docs/proofs/composition.md has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from sfumato.core.cost.budget import Budget, Spent, admits
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import bisect_floats, mu_to_epsilon, rho_to_epsilon, sqrt_up, to_decimal
from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, format_exact
from sfumato.report.explain.guarantee import Guarantee, parse_probability

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Rule = Literal["basic", "advanced", "optimal", "zero-concentrated", "Gaussian", "ledger", "numerical"]

SOURCES: dict[Rule, str] = {
    "basic": "sums of epsilon and delta (Dwork, McSherry, Nissim and Smith 2006)",
    "advanced": "Dwork, Rothblum and Vadhan 2010",
    "optimal": "the least that holds for all such queries (Kairouz, Oh and Viswanath 2015)",
    "zero-concentrated": "rho adds up (Bun and Steinke 2016)",
    "Gaussian": "mu^2 adds up (Dong, Roth and Su 2022)",
    "ledger": "the least budget of a ledger that admits them, chosen one after another",
    "numerical": "the law of the loss, if every query is one number with (continuous) Laplace noise",
}
"""Where each rule comes from."""

_CONTEXT = Context(prec=80, Emin=-(10**9), Emax=10**9)
_ETA = Decimal("1e-50")  # far above 10^5 roundings in the 80th digit
_MOST_OPTIMAL = 10**5  # its sum has as many terms
_MOST_NUMERICAL = 2000  # its convolutions grow with the square
_POINTS = 8192  # of the privacy loss of all queries together, where it is computed as a histogram
_UP = 1 + 1e-9  # above what the floats of one sum can lose


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """What a rule makes of many queries; `epsilon` is None where it has no bound at this delta."""

    rule: Rule
    epsilon: float | None

    def to_record(self) -> dict[str, Any]:
        """Returns the line as plain values for JSON."""
        return {"rule": self.rule, "epsilon": self.epsilon, "source": SOURCES[self.rule]}


def compare_compositions(guarantee: Guarantee, *, delta: ExactLike) -> tuple[Composition, ...]:
    """Returns the epsilon at `delta` of all queries of `guarantee`, by every rule.

    >>> many = Guarantee(kind="epsilon", amount="0.1", times=100)
    >>> for line in compare_compositions(many, delta=1e-6):
    ...     print(f"{line.rule:17} {line.epsilon:.3f}")
    basic             10.000
    advanced          6.308
    optimal           4.775
    zero-concentrated 5.219
    Gaussian          6.330
    ledger            4.941
    numerical         4.693
    """
    if guarantee.kind != "epsilon":
        raise RecipeError(
            f"rules of composition are compared for queries with an epsilon; {guarantee.kind} adds up "
            "by itself, which `explain_guarantee` tells"
        )
    at = parse_probability(delta, name="delta")
    if at == 1:
        raise RecipeError("delta must lie below 1: at 1 nothing is promised")
    left = at - guarantee.total.failure
    found: dict[Rule, float | None] = {
        "basic": None if left < 0 else float(guarantee.total.epsilon or 0),
        "advanced": compose_advanced(guarantee, delta=at),
        "optimal": compose_optimal(guarantee, delta=at) if guarantee.times <= _MOST_OPTIMAL else None,
        "zero-concentrated": _convert(left, lambda: rho_to_epsilon(guarantee.total.rho or 0, left)),
        "Gaussian": _convert(
            left, lambda: mu_to_epsilon(sqrt_up(guarantee.total.mu_squared or Fraction(0)), left)
        ),
        "ledger": compose_in_ledger(guarantee, delta=at),
        "numerical": compose_laplace(guarantee, delta=at) if guarantee.times <= _MOST_NUMERICAL else None,
    }
    return tuple(Composition(rule=rule, epsilon=epsilon) for rule, epsilon in found.items())


def describe_compositions(lines: Sequence[Composition], *, delta: ExactLike) -> str:
    """Returns the comparison as text, a line per rule."""
    at = format_exact(parse_probability(delta, name="delta"))
    texts = [f"together, as an epsilon at delta {at}:"]
    for line in lines:
        shown = "no bound" if line.epsilon is None else f"{math.ceil(line.epsilon * 1e4) / 1e4:.4f}"
        texts.append(f"  {line.rule:18s}{shown:>12s}   {SOURCES[line.rule]}")
    return "\n".join(texts)


def compose_advanced(guarantee: Guarantee, *, delta: Fraction) -> float | None:
    """Returns the advanced composition theorem: eps sqrt(2 k ln(1 / slack)) + k eps (e^eps - 1).

    The slack is what is left of `delta` beside the k deltas of the queries.
    """
    slack = delta - guarantee.total.failure
    if slack <= 0:
        return None
    epsilon, times = float(guarantee.amount), guarantee.times
    if epsilon > 700:
        return None
    log = math.log(slack.denominator) - math.log(slack.numerator)
    return (epsilon * math.sqrt(2 * times * log) + times * epsilon * math.expm1(epsilon)) * _UP


def compose_optimal(guarantee: Guarantee, *, delta: Fraction) -> float | None:
    """Returns the least epsilon that holds at `delta` for every k queries with this guarantee, rounded up.

    Of k randomised responses, let A_L and B_L be the chances of the L + 1 most telling outcomes under the two
    hypotheses. It is the largest ln((A_L - t) / B_L), or 0, for t = 1 - (1 - delta) / (1 - delta_0)^k.

    >>> compose_optimal(Guarantee(kind="epsilon", amount=1, times=5), delta=Fraction(0))
    5.0
    """
    times = guarantee.times
    target = 1 - (1 - delta) / (1 - guarantee.delta) ** times
    if target < 0:
        return None
    with localcontext(_CONTEXT):
        t = to_decimal(target) * (1 - _ETA)
        odds = to_decimal(guarantee.amount).exp()
        likely = (odds / (1 + odds)) ** times
        unlikely = (1 / (1 + odds)) ** times
        high, low, best = Decimal(0), Decimal(0), Decimal(1)
        for outcome in range(times // 2 + 1):
            high, low = high + likely, low + unlikely
            best = max(best, (high * (1 + _ETA) - t) / (low * (1 - _ETA)))
            step = Decimal(times - outcome) / (outcome + 1)
            likely, unlikely = likely * step / odds, unlikely * step * odds
        exact = Fraction(best.ln() + _ETA) if best > 1 else Fraction(0)
    return min(_round_up(exact), float(guarantee.total.epsilon or 0))


def compose_in_ledger(guarantee: Guarantee, *, delta: Fraction) -> float | None:
    """Returns the least epsilon of a budget that admits the queries as one charge, with `delta`."""
    failing = guarantee.delta > 0
    if delta < guarantee.total.failure or (failing and delta == guarantee.total.failure):
        return None
    cost = Cost(
        kind="selection" if failing else "pure",
        scale=1 / guarantee.amount if failing else guarantee.amount,
        count=guarantee.times,
        delta=guarantee.delta,
    )
    most = float(guarantee.total.epsilon or 0)

    def fits(epsilon: float) -> bool:
        return admits(Budget(epsilon=Fraction(epsilon), delta=delta), Spent(), (cost,))

    low, high = 0.0, most
    while high - low > 1e-5 * most:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def compose_laplace(guarantee: Guarantee, *, delta: Fraction) -> float | None:
    """Returns the epsilon of k numbers with Laplace noise, by the law of their privacy loss.

    The loss of one is put on a grid that dominates it (Doroshenko and others 2022), and convolved without
    subtractions, so that rounding is bounded by a factor.
    """
    import numpy as np

    slack = delta - guarantee.total.failure
    if slack < 0 or guarantee.amount > 50:
        return None
    if slack == 0:
        return float(guarantee.total.epsilon or 0)
    epsilon, times = float(guarantee.amount), guarantee.times
    steps = max(2, _POINTS // (2 * times))
    width = epsilon / steps
    law = _compose(_laplace_losses(epsilon, steps), times)
    losses = (np.arange(law.size) - steps * times) * width
    target = float(slack) * (1 - 1e-9)

    def holds(bound: float) -> bool:
        above = losses > bound
        return math.fsum((law[above] * -np.expm1(bound - losses[above])).tolist()) * _UP <= target

    if holds(0.0):
        return 0.0
    return min(bisect_floats(holds, 0.0, epsilon * times)[1] * _UP, epsilon * times)


def _laplace_losses(epsilon: float, steps: int) -> NDArray[np.float64]:
    """Chances of the privacy losses -epsilon, ..., epsilon of a grid that dominates that of Laplace noise.

    At odds e^x two tests differ by 1 - e^((x - epsilon) / 2) at most. A line between neighbouring points of
    the grid, in the odds, lies above that, and is the curve of the law whose chances these are.
    """
    import numpy as np

    grid = np.arange(-steps, steps + 1) * (epsilon / steps)
    law = np.exp((grid - epsilon) / 2) * math.tanh(epsilon / steps / 4)
    law[-1] = 1 / (1 + math.exp(-epsilon / steps / 2))
    law[0] = law[-1] * math.exp(-epsilon)
    return np.asarray(law)


def _compose(law: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    """Returns the law of the sum of `times` losses, by doubling."""
    import numpy as np

    total = np.ones(1)
    while times:
        if times & 1:
            total = np.convolve(total, law)
        times >>= 1
        if times:
            law = np.convolve(law, law)
    return total


def _convert(left: Fraction, convert: Callable[[], float]) -> float | None:
    return convert() if 0 < left < 1 else None


def _round_up(number: Fraction) -> float:
    near = float(number)
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)
