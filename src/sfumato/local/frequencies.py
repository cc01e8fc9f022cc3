"""The two calls that most people need: answers on the client, shares on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfumato.errors import RecipeError
from sfumato.exact import parse_positive
from sfumato.local.krr import RandomizedResponse
from sfumato.local.mechanism import FrequencyMechanism
from sfumato.local.records import FREQUENCY, make_mechanism

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.results import Estimate, Projection


def randomized_response(
    values: ArrayLike, *, epsilon: ExactLike, categories: int = 2, default: int | None = None
) -> NDArray[Any]:
    """One answer per value: the truth, or one of the other categories, in the type of the values.

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
    """The shares of the categories behind the responses, with standard errors.

    `mechanism` is a name (krr, oue, sue, olh, hadamard, rappor, coin) or the object that made the
    responses. Epsilon, categories and further parameters must be those of the clients. Shares are unbiased;
    with `project="simplex"` they are the nearest ones that are not negative and sum to 1.

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
    made = make_mechanism(mechanism, **parameters)
    if not isinstance(made, FrequencyMechanism):  # pragma: no cover - the names above are frequencies
        raise TypeError
    return made.estimate(responses, project=project)
