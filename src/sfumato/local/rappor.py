"""RAPPOR: a permanent noisy copy of a value's bits, kept for good, and fresh noise on it for each report."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.exact import ExactLike, format_exact, parse_exact, parse_whole
from sfumato.core.noise.entropy import BitSource, KeyStream
from sfumato.local.categories import check_bits, count_bits
from sfumato.local.draws import WORDS, draw_events, lie_threshold, log_above, parse_epsilon
from sfumato.local.mechanism import FrequencyMechanism, as_array, check_codes

_MAX_WIDTH: Final = 1 << 12
_MOST_CLIENTS: Final = 1 << 40

Rates = tuple[Fraction, Fraction, Fraction]


@dataclass(frozen=True, slots=True, init=False)
class Rappor(FrequencyMechanism):
    """Basic RAPPOR (Erlingsson, Pihur, Korolova 2014).

    A client flips each bit of its value once, of which there is one per category, with chance `flip` / 2^64
    and keeps the result (permanent response); each report is drawn anew from it: a bit is on with chance
    `on_if_on` or `on_if_off` / 2^64. `rates` gives the paper's (f, p, q) in place of the two epsilons.
    `report_likelihood_ratio` is the largest ratio of a report's chances under two values, exactly.

    Privacy: `epsilon` for everything a client ever reports about one value, `report_epsilon` for a single
    report. A value that changes costs `epsilon` for each value it takes (docs/proofs/local.md).

    >>> mechanism = Rappor(epsilon=4, report_epsilon=1, categories=3)
    >>> mechanism.respond([0, 2]).shape
    (2, 3)
    >>> float(Rappor(categories=3, rates=("1/2", "1/2", "3/4")).epsilon)  # 2 ln 3
    2.1972245773362196
    """

    name: ClassVar[str] = "rappor"

    report_epsilon: Fraction
    rates: Rates | None
    flip: int
    on_if_off: int
    on_if_on: int
    report_likelihood_ratio: Fraction = field(repr=False)

    def __init__(
        self,
        *,
        epsilon: ExactLike | None = None,
        report_epsilon: ExactLike | None = None,
        categories: int = 2,
        rates: tuple[ExactLike, ExactLike, ExactLike] | None = None,
    ) -> None:
        number = parse_whole(categories, name="categories", low=2, high=_MAX_WIDTH)
        self._set(categories=number, bits=number)
        if rates is None:
            self._set_epsilons(epsilon, report_epsilon)
        elif epsilon is None and report_epsilon is None:
            self._set_rates(rates)
        else:
            raise RecipeError("give epsilons or rates, not both: each follows from the other")

    def _set_epsilons(self, epsilon: ExactLike | None, report_epsilon: ExactLike | None) -> None:
        whole = parse_epsilon(epsilon)
        single = whole / 2 if report_epsilon is None else parse_epsilon(report_epsilon, name="report_epsilon")
        if single >= whole:
            raise RecipeError("report_epsilon must be below epsilon, which covers all reports about a value")
        flip = lie_threshold(whole / 2, 1)
        # A bit is wrong in a report with chance f (1 - u) + (1 - f) u; u is rounded up to reach this goal.
        goal = Fraction(lie_threshold(single / 2, 1), WORDS)
        kept = Fraction(flip, WORDS)
        fresh = int(-((kept - goal) / (1 - 2 * kept) * WORDS // 1))
        self._set(epsilon=whole, report_epsilon=single, rates=None)
        self._set(flip=flip, on_if_off=fresh, on_if_on=WORDS - fresh)
        self._state_law()

    def _set_rates(self, rates: tuple[ExactLike, ExactLike, ExactLike]) -> None:
        permanent, off, on = (
            parse_exact(rate, name=f"rate {name}") for rate, name in zip(rates, "fpq", strict=True)
        )
        self._set(
            rates=(permanent, off, on),
            flip=-int(-permanent / 2 * WORDS // 1),
            on_if_off=-int(-off * WORDS // 1),
            on_if_on=int(on * WORDS // 1),
        )
        if not (0 < 2 * self.flip < WORDS and 0 <= self.on_if_off < self.on_if_on <= WORDS):
            raise RecipeError("rates (f, p, q) need 0 < f < 1 and 0 <= p < q <= 1")
        self._state_law()
        self._set(
            epsilon=log_above(self.likelihood_ratio), report_epsilon=log_above(self.report_likelihood_ratio)
        )

    def _state_law(self) -> None:
        kept = Fraction(self.flip, WORDS)
        hit = ((1 - kept) * self.on_if_on + kept * self.on_if_off) / WORDS
        miss = ((1 - kept) * self.on_if_off + kept * self.on_if_on) / WORDS
        if hit <= miss:
            raise RecipeError("report_epsilon is too small for 64-bit words")
        self._set(hit=hit, miss=miss, likelihood_ratio=((1 - kept) / kept) ** 2)
        self._set(report_likelihood_ratio=hit * (1 - miss) / (miss * (1 - hit)))

    @property
    def exact_report_epsilon(self) -> Fraction:
        """The epsilon that one report delivers, never above the claimed one; `exact_epsilon` covers all."""
        return min(log_above(self.report_likelihood_ratio), self.report_epsilon)

    def to_record(self) -> dict[str, Any]:
        """Returns what the server must know, as a plain record."""
        record: dict[str, Any] = {"mechanism": self.name, "categories": self.categories}
        if self.rates is None:
            record["epsilon"] = format_exact(self.epsilon)
            record["report_epsilon"] = format_exact(self.report_epsilon)
        else:
            record["rates"] = [format_exact(rate) for rate in self.rates]
        return record

    def respond(
        self,
        values: ArrayLike,
        *,
        clients: ArrayLike | None = None,
        memory: RapporMemory | None = None,
        default: int | None = None,
    ) -> NDArray[Any]:
        """Returns one report per value, a row of bits.

        With `memory`, a client that reports the same value again starts from the permanent response it
        has kept; `clients` are the whole numbers that tell clients apart. Without it every value is
        that of a new client, and each further report costs another `report_epsilon`.
        """
        codes = check_codes(values, self.categories, default=default).astype(np.int64)
        if (memory is None) != (clients is None):
            raise RecipeError(
                "clients and memory go together: the memory keeps each client's permanent responses"
            )
        source = KeyStream()
        if memory is None or clients is None:
            return self._draw(codes, source)
        return self._report(memory.recall(self, clients, codes, source), source)

    def _draw(self, codes: NDArray[np.int64], source: BitSource) -> NDArray[np.bool_]:
        return self._report(self._draw_permanent(codes, source), source)

    def _draw_permanent(self, codes: NDArray[np.int64], source: BitSource) -> NDArray[np.bool_]:
        shape = codes.size, self.categories
        bits = draw_events(self.flip, codes.size * self.categories, source).reshape(shape)
        bits[np.arange(codes.size), codes] ^= True
        return bits

    def _report(self, permanent: NDArray[np.bool_], source: BitSource) -> NDArray[np.bool_]:
        shape = permanent.shape
        if self.on_if_off + self.on_if_on == WORDS:  # both kinds of bit are flipped alike
            return permanent ^ draw_events(self.on_if_off, permanent.size, source).reshape(shape)
        off = draw_events(self.on_if_off, permanent.size, source).reshape(shape)
        on = draw_events(self.on_if_on, permanent.size, source).reshape(shape)
        return np.where(permanent, on, off)

    def _count(self, responses: ArrayLike) -> tuple[int, NDArray[np.int64]]:
        bits = check_bits(responses, self.categories)
        return len(bits), count_bits(bits)

    @property
    def _odds(self) -> Fraction:
        return self.report_likelihood_ratio


class RapporMemory:
    """The permanent response of each client to each value it has had.

    It lives with the clients and is as secret as their values. On a device it is that of one client;
    in a simulation that of all of them. It belongs to one mechanism.

    >>> from sfumato.local import Rappor
    >>> mechanism = Rappor(epsilon=4, report_epsilon=1, categories=3)
    >>> memory = RapporMemory(mechanism)
    >>> _ = mechanism.respond([2, 2], clients=[7, 7], memory=memory)
    >>> memory
    RapporMemory(1 permanent responses, values withheld)
    """

    __slots__ = ("_keys", "_mechanism", "_permanent")

    def __init__(self, mechanism: Rappor) -> None:
        self._mechanism = mechanism
        self._keys = np.empty(0, np.int64)
        self._permanent = np.empty((0, mechanism.categories), np.bool_)

    def __repr__(self) -> str:
        return f"RapporMemory({self._keys.size} permanent responses, values withheld)"

    def recall(
        self, mechanism: Rappor, clients: ArrayLike, codes: NDArray[np.int64], source: BitSource
    ) -> NDArray[np.bool_]:
        """Returns the permanent responses of clients to values; new ones are drawn and kept."""
        if mechanism != self._mechanism:
            raise RecipeError("this memory belongs to another mechanism; a client keeps one memory for each")
        keys = _check_clients(clients, codes.size) * mechanism.categories + codes
        new = np.setdiff1d(keys, self._keys)
        if new.size:
            drawn = mechanism._draw_permanent(new % mechanism.categories, source)
            every = np.concatenate([self._keys, new])
            order = np.argsort(every)
            self._permanent = np.concatenate([self._permanent, drawn])[order]
            self._keys = every[order]
        return self._permanent[np.searchsorted(self._keys, keys)]

    def to_bytes(self) -> bytes:
        """Returns the memory as bytes, to be kept where only the client can read them."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            mechanism=np.frombuffer(json.dumps(self._mechanism.to_record()).encode(), np.uint8),
            keys=self._keys,
            permanent=np.packbits(self._permanent, axis=1),
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, mechanism: Rappor) -> RapporMemory:
        """Returns the memory that `to_bytes` wrote, refused if it belongs to another mechanism."""
        memory = cls(mechanism)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                stored: dict[str, NDArray[Any]] = {name: arrays[name] for name in arrays.files}
            record = json.loads(stored["mechanism"].tobytes())
            bits = np.unpackbits(stored["permanent"], axis=1, count=mechanism.categories)
        except (ValueError, KeyError, OSError):
            raise SchemaError("these bytes are no memory of permanent responses") from None
        if record != mechanism.to_record():
            raise RecipeError("this memory belongs to another mechanism; a client keeps one memory for each")
        memory._keys, memory._permanent = stored["keys"], bits.astype(np.bool_)
        return memory


def _check_clients(clients: ArrayLike, size: int) -> NDArray[np.int64]:
    numbers = as_array(clients, "the clients")
    if numbers.shape != (size,) or (size and numbers.dtype.kind not in "iu"):
        raise SchemaError("clients must be whole numbers, one for each value")
    if size and (int(numbers.min()) < 0 or int(numbers.max()) >= _MOST_CLIENTS):
        raise SchemaError("the numbers of clients must lie between 0 and 2^40")
    return numbers.astype(np.int64)
