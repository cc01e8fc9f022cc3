"""Mechanisms by name: made, read back from records, asked, planned and compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, parse_positive, parse_whole
from sfumato.local.categories import (
    CoinResponse,
    HadamardResponse,
    LocalHashing,
    RandomizedResponse,
    SubsetSelection,
    UnaryEncoding,
)
from sfumato.local.draws import parse_epsilon
from sfumato.local.means import (
    DuchiMean,
    LaplaceMean,
    MeanMechanism,
    PiecewiseMean,
    check_range,
)
from sfumato.local.mechanism import MAX_CATEGORIES, Estimate, FrequencyMechanism, Projection, normal_reach
from sfumato.local.rappor import Rappor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FREQUENCY: Final[Mapping[str, Callable[..., FrequencyMechanism]]] = {
    "krr": RandomizedResponse,
    "oue": UnaryEncoding,
    "subset": SubsetSelection,
    "sue": partial(UnaryEncoding, flips="symmetric"),
    "olh": LocalHashing,
    "hadamard": HadamardResponse,
    "rappor": Rappor,
    "coin": CoinResponse,
}
"""Mechanisms that answer which category, by name."""

MEAN: Final[Mapping[str, Callable[..., MeanMechanism]]] = {
    "laplace": LaplaceMean,
    "duchi": DuchiMean,
    "piecewise": PiecewiseMean,
}
"""Mechanisms that answer with a noisy number, by name."""


def make_mechanism(name: str, **parameters: Any) -> FrequencyMechanism | MeanMechanism:  # noqa: ANN401
    """Returns the mechanism of this name with these parameters.

    >>> make_mechanism("hadamard", epsilon=1, categories=100).bits
    8
    """
    maker = FREQUENCY.get(name) or MEAN.get(name)
    if maker is None:
        raise RecipeError(
            f"no mechanism is called {str(name)[:40]!r}; known: {', '.join([*FREQUENCY, *MEAN])}"
        )
    try:
        return maker(**parameters)
    except TypeError:
        given = ", ".join(sorted(parameters))[:200]
        raise RecipeError(f"{name} does not take these parameters, or needs more than: {given}") from None


def read_mechanism(record: Mapping[str, Any]) -> FrequencyMechanism | MeanMechanism:
    """Returns the mechanism that `to_record` described, refused if the record says anything else.

    >>> from sfumato.local import RandomizedResponse
    >>> mechanism = RandomizedResponse(epsilon="0.5", categories=3)
    >>> read_mechanism(mechanism.to_record()) == mechanism
    True
    """
    parameters = {str(key): value for key, value in record.items() if key != "mechanism"}
    name = record.get("mechanism")
    if name == "coin":
        parameters.pop("categories", None)
    if isinstance(parameters.get("rates"), list):
        parameters["rates"] = tuple(parameters["rates"])
    mechanism = make_mechanism(str(name), **parameters)
    if mechanism.to_record() != dict(record):
        raise RecipeError(
            "the record of a mechanism is not one that this version writes; it may have been edited"
        )
    return mechanism


def randomized_response(
    values: ArrayLike, *, epsilon: ExactLike, categories: int = 2, default: int | None = None
) -> NDArray[Any]:
    """Returns one answer per value: the truth, or one of the other categories, in the type of the values.

    Values are codes 0 to categories - 1, or booleans. Any other value is refused, or taken for the
    category `default`. The randomness is the operating system's; there is no seed.

    Privacy: each answer is epsilon-locally private; the delivered epsilon,
    `RandomizedResponse(...).exact_epsilon`, is never above the one asked for (docs/proofs/local.md).

    >>> randomized_response([0, 1, 1, 0], epsilon=1).shape
    (4,)
    """
    mechanism = RandomizedResponse(epsilon=epsilon, categories=categories)
    return mechanism.respond(values, default=default)


def estimate_frequencies(
    responses: ArrayLike,
    *,
    epsilon: ExactLike | None = None,
    categories: int = 2,
    mechanism: str | FrequencyMechanism = "krr",
    project: Projection = "none",
    **parameters: Any,  # noqa: ANN401
) -> Estimate:
    """Returns the shares of the categories behind the `responses`, with standard errors.

    `mechanism` is a name (krr, oue, sue, subset, olh, hadamard, rappor, coin) or the object that made the
    responses. `epsilon`, the number of `categories` and further parameters must be those of the clients.
    Shares are unbiased; with `project` = "simplex" they are the nearest ones that are not negative and sum to
    1, with "bayes" the likeliest ones.

    >>> estimate_frequencies([0] * 60 + [1] * 40, epsilon=1).frequencies.round(3).tolist()
    [0.716, 0.284]
    """
    if isinstance(mechanism, FrequencyMechanism):
        if epsilon is not None and parse_positive(epsilon, name="epsilon") != mechanism.epsilon:
            raise RecipeError("epsilon differs from that of the mechanism; leave it out")
        if categories not in (2, mechanism.categories) or parameters:
            raise RecipeError("the mechanism has its own parameters; leave them out")
        return mechanism.estimate(responses, project=project)
    if mechanism not in FREQUENCY:
        raise RecipeError(f"mechanism must be one of {', '.join(FREQUENCY)}, or an object of one of them")
    if epsilon is not None:
        parameters["epsilon"] = epsilon
    if mechanism != "coin":
        parameters["categories"] = categories
    made = cast("FrequencyMechanism", make_mechanism(mechanism, **parameters))
    return made.estimate(responses, project=project)


_MOST_PEOPLE: Final = 10**18
_CLOSE: Final = 1.05  # variances so near are alike, and the shorter answer wins


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many people give an estimate of this margin."""

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
    """Plans how many people give an estimate within `margin` of the truth with `confidence`.

    `mechanism` is an object, or a name with its `epsilon`, number of `categories` and further parameters.
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
class Choice:
    """The mechanism to use, and all that were considered, the best first."""

    mechanism: FrequencyMechanism
    candidates: tuple[FrequencyMechanism, ...]


def choose_mechanism(*, epsilon: ExactLike, categories: int, max_bits: int | None = None) -> Choice:
    """Returns the frequency mechanism of least variance whose answers fit `max_bits`.

    Among those within 5 % of the least variance, the one with the shortest answers. Variances are linear in
    the share, so their average over the categories is that at 1 / categories, whatever the shares are.

    >>> choose_mechanism(epsilon=1, categories=4).mechanism.name
    'krr'
    >>> choose_mechanism(epsilon=1, categories=1000).mechanism.name
    'olh'
    >>> choose_mechanism(epsilon=1, categories=1000, max_bits=11).mechanism.name
    'hadamard'
    """
    number = parse_whole(categories, name="categories", low=2, high=MAX_CATEGORIES)
    budget = parse_epsilon(epsilon)
    candidates = []
    for name in ("krr", "subset", "oue", "olh", "hadamard"):
        try:
            made = cast("FrequencyMechanism", make_mechanism(name, epsilon=budget, categories=number))
        except RecipeError:  # too many categories for it, or for 64 bits at this epsilon
            continue
        candidates.append(made)
    if max_bits is not None:
        limit = parse_whole(max_bits, name="max_bits")
        candidates = [each for each in candidates if each.bits <= limit]
    if not candidates:
        raise RecipeError(
            "no mechanism has answers of so few bits; the shortest is that of hadamard, which may take rows"
        )
    least = min(each.variance(1 / number) for each in candidates)

    def rank(mechanism: FrequencyMechanism) -> tuple[bool, int, float]:
        variance = mechanism.variance(1 / number)
        return variance > _CLOSE * least, mechanism.bits, variance

    ranked = sorted(candidates, key=rank)
    return Choice(mechanism=ranked[0], candidates=tuple(ranked))


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
    """Returns the standard errors of an average, such as a salary, in the local and in the central model.

    Values lie between `low` and `high`. Locally each person adds noise of scale (high - low) / `epsilon`; a
    trusted curator adds noise of scale (high - low) / (`people` epsilon) once, to the average: private if one
    person's value is replaced and the number of people is public. Any `mechanism` for means can stand in for
    the local noise, at its worst value.

    >>> result = compare_models(people=10_000, low=0, high=300_000, epsilon=1)
    >>> round(result.local), round(result.central, 1), round(result.ratio)
    (4243, 42.4, 100)
    """
    count = parse_whole(people, name="people", high=_MOST_PEOPLE)
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
