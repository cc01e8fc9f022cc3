"""Mechanisms by name, and from the record that travels with their answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sfumato.errors import RecipeError
from sfumato.local.coin import CoinResponse
from sfumato.local.hadamard import HadamardResponse
from sfumato.local.hashing import LocalHashing
from sfumato.local.krr import RandomizedResponse
from sfumato.local.means import DuchiMean, LaplaceMean
from sfumato.local.mechanism import FrequencyMechanism, MeanMechanism
from sfumato.local.piecewise import HybridMean, PiecewiseMean
from sfumato.local.rappor import Rappor
from sfumato.local.unary import UnaryEncoding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FREQUENCY: Final[Mapping[str, Callable[..., FrequencyMechanism]]] = {
    "krr": RandomizedResponse,
    "oue": UnaryEncoding,
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
    "hybrid": HybridMean,
}
"""Mechanisms that answer with a noisy number, by name."""


def make_mechanism(name: str, **parameters: Any) -> FrequencyMechanism | MeanMechanism:  # noqa: ANN401
    """The mechanism of this name with these parameters.

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
    """The mechanism that `to_record` described, refused if the record says anything else.

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
