"""How many people an answer takes, which mechanism takes fewest, and what not trusting a curator costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, cast

from sfumato.errors import RecipeError
from sfumato.local.checks import check_count
from sfumato.local.mechanism import FrequencyMechanism, MeanMechanism
from sfumato.local.numbers import check_range
from sfumato.local.records import FREQUENCY, MEAN, make_mechanism
from sfumato.local.results import normal_reach
from sfumato.local.thresholds import parse_epsilon

if TYPE_CHECKING:
    from sfumato.exact import ExactLike

_MOST_PEOPLE: Final = 10**18
_CLOSE: Final = 1.05
_UNARY: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many people give an estimate of the wanted margin."""

    mechanism: str
    epsilon: Fraction
    margin: float
    confidence: float
    people: int
    standard_error: float
    bits: int


def plan(
    mechanism: str | FrequencyMechanism | MeanMechanism,
    *,
    epsilon: ExactLike | None = None,
    categories: int | None = None,
    margin: float = 0.01,
    confidence: float = 0.95,
    share: float | None = None,
    **parameters: Any,  # noqa: ANN401
) -> Plan:
    """The number of people for which an estimate lies within `margin` of the truth with this confidence.

    For a frequency the margin is a share, and the worst share counts unless `share` is stated; for a
    mean it is in the unit of the values (give `low` and `high`), and the worst place counts.

    >>> plan("krr", epsilon=1, categories=2).people
    35368
    """
    chosen = _take(mechanism, epsilon=epsilon, categories=categories, **parameters)
    if not isinstance(margin, int | float) or not 0 < margin < math.inf:
        raise RecipeError(f"margin must be a number above zero, got {str(margin)[:40]!r}")
    if share is not None and not 0 <= share <= 1:
        raise RecipeError(f"share must lie between 0 and 1, got {str(share)[:40]!r}")
    places = (0.0, 0.5, 1.0) if share is None else (share,)
    variance = max(chosen.variance(place) for place in places)
    if isinstance(chosen, MeanMechanism):
        variance *= float(chosen.high - chosen.low) ** 2
    needed = variance * (normal_reach(confidence) / margin) ** 2
    if needed > _MOST_PEOPLE:
        raise RecipeError("no population is large enough for this margin at this epsilon; widen one of them")
    people = max(1, math.ceil(needed))
    return Plan(
        mechanism=chosen.name,
        epsilon=chosen.epsilon,
        margin=float(margin),
        confidence=confidence,
        people=people,
        standard_error=math.sqrt(variance / people),
        bits=chosen.bits,
    )


def _take(
    mechanism: str | FrequencyMechanism | MeanMechanism,
    **parameters: Any,  # noqa: ANN401
) -> FrequencyMechanism | MeanMechanism:
    given = {name: value for name, value in parameters.items() if value is not None}
    if isinstance(mechanism, str):
        if mechanism in FREQUENCY and mechanism != "coin":
            given.setdefault("categories", 2)
        return make_mechanism(mechanism, **given)
    if given:
        raise RecipeError(
            "a mechanism that is made already has its parameters; give its name, or no parameters"
        )
    return mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mechanism that was considered: its variance per person, averaged over equal shares, and its size."""

    mechanism: FrequencyMechanism
    variance: float
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The mechanism to use, and all that were considered, the best first."""

    mechanism: FrequencyMechanism
    candidates: tuple[Candidate, ...]


def choose_mechanism(*, epsilon: ExactLike, categories: int, max_bits: int | None = None) -> Choice:
    """The frequency mechanism of least variance whose answers fit `max_bits`.

    Among those within 5 % of the least variance, the one with the shortest answers. Variances are linear in
    the share, so their average over the categories is that at 1 / categories, whatever the shares are.

    >>> choose_mechanism(epsilon=1, categories=4).mechanism.name
    'krr'
    >>> choose_mechanism(epsilon=1, categories=1000).mechanism.name
    'olh'
    >>> choose_mechanism(epsilon=1, categories=1000, max_bits=11).mechanism.name
    'hadamard'
    """
    number = check_count(categories, name="categories")
    budget = parse_epsilon(epsilon)
    names = [name for name in ("krr", "oue", "olh", "hadamard") if name != "oue" or number <= _UNARY]
    candidates = []
    for name in names:
        try:
            made = cast("FrequencyMechanism", make_mechanism(name, epsilon=budget, categories=number))
        except RecipeError:  # 64 bits cannot deliver this epsilon for so many answers
            continue
        candidates.append(Candidate(mechanism=made, variance=made.variance(1 / number), bits=made.bits))
    if max_bits is not None:
        limit = check_count(max_bits, name="max_bits", least=1)
        candidates = [each for each in candidates if each.bits <= limit]
    if not candidates:
        raise RecipeError(
            "no mechanism has answers of so few bits; the shortest is that of hadamard, which may take rows"
        )
    least = min(each.variance for each in candidates)
    ranked = sorted(candidates, key=lambda each: (each.variance > _CLOSE * least, each.bits, each.variance))
    return Choice(mechanism=ranked[0].mechanism, candidates=tuple(ranked))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The standard error of a mean, asked locally and computed by a trusted curator."""

    people: int
    epsilon: Fraction
    mechanism: str
    local: float
    central: float

    @property
    def ratio(self) -> float:
        """How many times larger the local error is; with Laplace noise the root of the number of people."""
        return self.local / self.central


def compare_models(
    *, people: int, low: ExactLike, high: ExactLike, epsilon: ExactLike, mechanism: str = "laplace"
) -> Comparison:
    """The standard errors of an average, such as a salary, in the local and in the central model.

    Locally each person adds noise of scale (high - low) / epsilon; a trusted curator adds noise of scale
    (high - low) / (people epsilon) once, to the average: private if one person's value is replaced and the
    number of people is public. Any mechanism for means can stand in for the local noise, at its worst value.

    >>> result = compare_models(people=10_000, low=0, high=300_000, epsilon=1)
    >>> round(result.local), round(result.central, 1), round(result.ratio)
    (4243, 42.4, 100)
    """
    count = check_count(people, name="people", least=1, most=_MOST_PEOPLE)
    ends = check_range(low, high)
    if mechanism not in MEAN:
        raise RecipeError(f"mechanism must be one for means: {', '.join(MEAN)}")
    chosen = make_mechanism(mechanism, epsilon=epsilon, low=ends[0], high=ends[1])
    width = float(ends[1] - ends[0])
    worst = max(chosen.variance(place) for place in (0.0, 0.5, 1.0))
    return Comparison(
        people=count,
        epsilon=chosen.epsilon,
        mechanism=chosen.name,
        local=width * math.sqrt(worst / count),
        central=math.sqrt(2) * width / (count * float(chosen.epsilon)),
    )
