"""A client's memory of its permanent responses, without which repeated reports average the noise away."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.errors import RecipeError, SchemaError
from sfumato.local.checks import as_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.local.rappor import Rappor
    from sfumato.noise.entropy import BitSource

_MOST_CLIENTS: Final = 1 << 40


class RapporMemory:
    """The permanent response of each client to each value it has held, and each client's cohort.

    It lives with the clients and is as secret as their values. On a device it holds one client; in a
    simulation it may hold all of them. It belongs to one mechanism.

    >>> from sfumato.local import Rappor
    >>> mechanism = Rappor(epsilon=4, report_epsilon=1, categories=3)
    >>> memory = RapporMemory(mechanism)
    >>> _ = mechanism.respond([2, 2], clients=[7, 7], memory=memory)
    >>> memory
    RapporMemory(1 clients, 1 permanent responses, values withheld)
    """

    __slots__ = ("_clients", "_cohorts", "_keys", "_mechanism", "_permanent")

    def __init__(self, mechanism: Rappor) -> None:
        self._mechanism = mechanism
        self._clients = np.empty(0, np.int64)
        self._cohorts = np.empty(0, np.uint16)
        self._keys = np.empty(0, np.int64)
        self._permanent = np.empty((0, mechanism.width), np.bool_)

    def __repr__(self) -> str:
        held = f"{self._clients.size} clients, {self._keys.size} permanent responses"
        return f"RapporMemory({held}, values withheld)"

    def recall(
        self, mechanism: Rappor, clients: ArrayLike, codes: NDArray[np.int64], source: BitSource
    ) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """(cohorts, permanent responses) of clients and values; those that are new are drawn and kept."""
        if mechanism != self._mechanism:
            raise RecipeError("this memory belongs to another mechanism; a client keeps one memory for each")
        numbers = _check_clients(clients, codes.size)
        self._meet(np.unique(numbers), source)
        keys = numbers * mechanism.categories + codes
        self._remember(np.unique(keys), source)
        cohorts = self._cohorts[np.searchsorted(self._clients, numbers)]
        return cohorts, self._permanent[np.searchsorted(self._keys, keys)]

    def _meet(self, clients: NDArray[np.int64], source: BitSource) -> None:
        new = np.setdiff1d(clients, self._clients, assume_unique=True)
        if new.size:
            everybody = np.concatenate([self._clients, new])
            cohorts = np.concatenate([self._cohorts, self._mechanism._draw_cohorts(new.size, source)])
            order = np.argsort(everybody)
            self._clients, self._cohorts = everybody[order], cohorts[order]

    def _remember(self, keys: NDArray[np.int64], source: BitSource) -> None:
        new = np.setdiff1d(keys, self._keys, assume_unique=True)
        if new.size:
            clients, codes = np.divmod(new, self._mechanism.categories)
            cohorts = self._cohorts[np.searchsorted(self._clients, clients)]
            drawn = self._mechanism._draw_permanent(cohorts, codes, source)
            every = np.concatenate([self._keys, new])
            order = np.argsort(every)
            self._permanent = np.concatenate([self._permanent, drawn])[order]
            self._keys = every[order]

    def to_bytes(self) -> bytes:
        """The memory as bytes, to be kept where only the client can read them."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            mechanism=np.frombuffer(json.dumps(self._mechanism.to_record()).encode(), np.uint8),
            clients=self._clients,
            cohorts=self._cohorts,
            keys=self._keys,
            permanent=np.packbits(self._permanent, axis=1),
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, mechanism: Rappor) -> RapporMemory:
        """The memory that `to_bytes` wrote, refused if it belongs to another mechanism."""
        memory = cls(mechanism)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                held: dict[str, NDArray[Any]] = {name: arrays[name] for name in arrays.files}
            record = json.loads(held["mechanism"].tobytes())
            bits = np.unpackbits(held["permanent"], axis=1, count=mechanism.width)
        except (ValueError, KeyError, OSError):
            raise SchemaError("these bytes are no memory of permanent responses") from None
        if record != mechanism.to_record():
            raise RecipeError("this memory belongs to another mechanism; a client keeps one memory for each")
        memory._clients, memory._cohorts = held["clients"], held["cohorts"]
        memory._keys, memory._permanent = held["keys"], bits.astype(np.bool_)
        return memory


def _check_clients(clients: ArrayLike, size: int) -> NDArray[np.int64]:
    numbers = as_array(clients, "the clients")
    if numbers.shape != (size,) or (size and numbers.dtype.kind not in "iu"):
        raise SchemaError("clients must be whole numbers, one for each value")
    if size and (int(numbers.min()) < 0 or int(numbers.max()) >= _MOST_CLIENTS):
        raise SchemaError("the numbers of clients must lie between 0 and 2^40")
    return numbers.astype(np.int64)
