"""RAPPOR: a permanent noisy copy of a value's bits, kept for good, and fresh noise on it for each report.

With a Bloom filter the server reads the shares back by a regression. The hash family of the filter is
public: bit number BLAKE2b("cohort hash category") modulo the width. Privacy does not depend on it, as each
value sets at most `hashes` bits; only the estimate needs categories to differ.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.exact import ExactLike, format_exact, parse_exact, parse_whole
from sfumato.core.noise.entropy import BitSource, KeyStream
from sfumato.local.categories import check_bits, count_bits
from sfumato.local.draws import WORDS, draw_events, draw_uniform, lie_threshold, log_above, parse_epsilon
from sfumato.local.mechanism import (
    Estimate,
    FrequencyMechanism,
    Projection,
    as_array,
    check_codes,
    project_shares,
    refuse_impossible,
)

_MAX_WIDTH: Final = 1 << 12
_MAX_HASHES: Final = 8
_MAX_COHORTS: Final = 1 << 12
_MAX_DESIGN: Final = 1 << 24  # entries of the matrix that the regression is made of
_MOST_CLIENTS: Final = 1 << 40

Rates = tuple[Fraction, Fraction, Fraction]


@dataclass(frozen=True, slots=True, init=False)
class Rappor(FrequencyMechanism):
    """RAPPOR (Erlingsson, Pihur, Korolova 2014), basic or with a Bloom filter.

    A client flips each bit of its value once with chance `flip` / 2^64 and keeps the result (permanent
    response); each report is drawn anew from it: a bit is on with chance `on_if_on` or `on_if_off` / 2^64.
    Without `bloom` there is one bit per category. With it, a value sets `hashes` of `bloom` bits, chosen
    by the client's cohort. `rates` gives the paper's (f, p, q) in place of the two epsilons. A report has
    `width` bits; `report_likelihood_ratio` is the largest ratio of its chances under two values, exactly.

    Privacy: `epsilon` for everything a client ever reports about one value, `report_epsilon` for a single
    report. A value that changes costs `epsilon` for each value it takes (docs/proofs/local.md).

    >>> mechanism = Rappor(epsilon=4, report_epsilon=1, categories=3)
    >>> mechanism.respond([0, 2])["bits"].shape
    (2, 3)
    >>> float(Rappor(categories=3, rates=("1/2", "1/2", "3/4")).epsilon)  # 2 ln 3
    2.1972245773362196
    """

    name: ClassVar[str] = "rappor"

    report_epsilon: Fraction
    bloom: int | None
    hashes: int
    cohorts: int
    rates: Rates | None
    flip: int
    on_if_off: int
    on_if_on: int
    width: int = field(repr=False)
    report_likelihood_ratio: Fraction = field(repr=False)

    def __init__(
        self,
        *,
        epsilon: ExactLike | None = None,
        report_epsilon: ExactLike | None = None,
        categories: int = 2,
        bloom: int | None = None,
        hashes: int = 1,
        cohorts: int = 1,
        rates: tuple[ExactLike, ExactLike, ExactLike] | None = None,
    ) -> None:
        most = _MAX_WIDTH if bloom is None else 1 << 16
        self._set(categories=parse_whole(categories, name="categories", low=2, high=most))
        if bloom is None and (hashes, cohorts) != (1, 1):
            raise RecipeError("hashes and cohorts belong to a Bloom filter; give its number of bits as bloom")
        self._set(
            bloom=None if bloom is None else parse_whole(bloom, name="bloom", low=2, high=_MAX_WIDTH),
            hashes=parse_whole(hashes, name="hashes", high=_MAX_HASHES),
            cohorts=parse_whole(cohorts, name="cohorts", high=_MAX_COHORTS),
        )
        self._set(width=self.categories if self.bloom is None else self.bloom)
        self._set(bits=self.width + (self.cohorts - 1).bit_length())
        if self.bloom is not None:
            if self.categories * self.bloom * self.cohorts > _MAX_DESIGN:
                raise RecipeError(
                    "categories times bloom bits times cohorts is too large for the regression (at most 2^24)"
                )
            _inverse(*self._shape, tuple(range(self.cohorts)))  # refuses what cannot be estimated
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
        flip = lie_threshold(whole / (2 * self.hashes), 1)
        # A bit is wrong in a report with chance f (1 - u) + (1 - f) u; u is rounded up to reach this goal.
        goal = Fraction(lie_threshold(single / (2 * self.hashes), 1), WORDS)
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
        self._set(hit=hit, miss=miss, likelihood_ratio=((1 - kept) / kept) ** (2 * self.hashes))
        self._set(report_likelihood_ratio=(hit * (1 - miss) / (miss * (1 - hit))) ** self.hashes)

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        """What the tables of a Bloom filter depend on."""
        return self.categories, self.width, self.hashes, self.cohorts

    @property
    def exact_report_epsilon(self) -> Fraction:
        """The epsilon that one report delivers, never above the claimed one; `exact_epsilon` covers all."""
        return min(log_above(self.report_likelihood_ratio), self.report_epsilon)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a report: `cohort` and `bits`."""
        return np.dtype([("cohort", np.uint16), ("bits", np.bool_, (self.width,))])

    def to_record(self) -> dict[str, Any]:
        """Returns what the server must know, as a plain record."""
        record: dict[str, Any] = {"mechanism": self.name, "categories": self.categories}
        if self.rates is None:
            record["epsilon"] = format_exact(self.epsilon)
            record["report_epsilon"] = format_exact(self.report_epsilon)
        else:
            record["rates"] = [format_exact(rate) for rate in self.rates]
        if self.bloom is not None:
            record |= {"bloom": self.bloom, "hashes": self.hashes, "cohorts": self.cohorts}
        return record

    def variance(self, share: float) -> float:
        """Returns the variance of the estimate of a category with this share, times the number of people.

        With a Bloom filter it is that of a person's noise alone, averaged over the categories.
        """
        if self.bloom is None:
            return float(self._variances(share))
        inverse = _inverse(*self._shape, tuple(range(self.cohorts)))
        noise = float(self.miss * (1 - self.miss) / (self.hit - self.miss) ** 2)
        return self.cohorts * noise * float((inverse**2).sum()) / self.categories

    def respond(
        self,
        values: ArrayLike,
        *,
        clients: ArrayLike | None = None,
        memory: RapporMemory | None = None,
        default: int | None = None,
    ) -> NDArray[Any]:
        """Returns one report per value, an array with the fields `cohort` and `bits`.

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
        cohorts, permanent = memory.recall(self, clients, codes, source)
        return self._report(cohorts, permanent, source)

    def _draw(self, codes: NDArray[np.int64], source: BitSource) -> NDArray[Any]:
        cohorts = self._draw_cohorts(codes.size, source)
        return self._report(cohorts, self._draw_permanent(cohorts, codes, source), source)

    def _draw_cohorts(self, size: int, source: BitSource) -> NDArray[np.uint16]:
        return draw_uniform(self.cohorts, size, source).astype(np.uint16)

    def _draw_permanent(
        self, cohorts: NDArray[np.uint16], codes: NDArray[np.int64], source: BitSource
    ) -> NDArray[np.bool_]:
        bits = draw_events(self.flip, codes.size * self.width, source).reshape(codes.size, self.width)
        if self.bloom is None:
            bits[np.arange(codes.size), codes] ^= True
            return bits
        return bits ^ self.filter_bits(cohorts, codes)

    def filter_bits(self, cohorts: NDArray[np.uint16], codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns the Bloom filter of each code in its cohort, one row each."""
        bits = np.zeros((codes.size, self.width), np.bool_)
        np.put_along_axis(bits, _places(*self._shape)[cohorts, codes], values=True, axis=1)
        return bits

    def _report(
        self, cohorts: NDArray[np.uint16], permanent: NDArray[np.bool_], source: BitSource
    ) -> NDArray[Any]:
        shape = permanent.shape
        if self.on_if_off + self.on_if_on == WORDS:  # both kinds of bit are flipped alike
            bits = permanent ^ draw_events(self.on_if_off, permanent.size, source).reshape(shape)
        else:
            off = draw_events(self.on_if_off, permanent.size, source).reshape(shape)
            on = draw_events(self.on_if_on, permanent.size, source).reshape(shape)
            bits = np.where(permanent, on, off)
        reports = np.empty(len(permanent), self.dtype)
        reports["cohort"], reports["bits"] = cohorts, bits
        return reports

    def _check_reports(self, responses: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns (cohorts, bits) of the reports, or an error that says what is wrong with them."""
        reports = as_array(responses, "the reports")
        if reports.dtype.names != ("cohort", "bits") or reports.ndim != 1:
            raise SchemaError("reports of RAPPOR are a one-dimensional array with the fields cohort and bits")
        bits = check_bits(reports["bits"], self.width)
        cohorts = reports["cohort"]
        if cohorts.dtype.kind not in "iu" or int(cohorts.min()) < 0 or int(cohorts.max()) >= self.cohorts:
            raise SchemaError(f"a report's cohort is none of the {self.cohorts} of this mechanism")
        return cohorts.astype(np.int64), np.ascontiguousarray(bits)

    def _count(self, responses: ArrayLike) -> tuple[int, NDArray[np.int64]]:
        _, bits = self._check_reports(responses)
        return len(bits), count_bits(bits)

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """Returns the shares of the categories: from counts of bits, or by least squares over cohorts."""
        if self.bloom is None:
            return FrequencyMechanism.estimate(self, responses, project=project)
        cohorts, bits = self._check_reports(responses)
        sizes = np.bincount(cohorts, minlength=self.cohorts)
        present = np.flatnonzero(sizes)
        counts = np.empty((present.size, self.width))
        hit, miss = float(self.hit), float(self.miss)
        for row, cohort in enumerate(present.tolist()):
            chosen = np.ascontiguousarray(bits[cohorts == cohort])
            counts[row] = count_bits(chosen)
            refuse_impossible(counts[row], len(chosen), least=miss, most=hit)
        try:
            inverse = _inverse(*self._shape, tuple(present.tolist()))
        except RecipeError:
            raise SchemaError(
                "the cohorts that reported cannot tell the categories apart; collect more reports"
            ) from None
        rates = (counts / sizes[present, None] - miss) / float(self.hit - self.miss)
        shares = np.einsum("kcb,cb->k", inverse, rates)
        sampled = len(bits) * self._propagate(inverse, shares, sizes[present], present)
        inside = np.clip(shares, 0, 1)
        # What `_estimate` adds for the sampling of people is in these variances already.
        return self._estimate(shares, np.maximum(sampled - inside * (1 - inside), 0.0), len(bits), project)

    def _propagate(
        self,
        inverse: NDArray[np.float64],
        shares: NDArray[np.float64],
        sizes: NDArray[np.int64],
        present: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Returns the variance of each share, people being drawn at random, at the nearest possible shares.

        In a cohort with matrix X and inverse part G, a person's unbiased bits have covariance
        X diag(f) X' - (X f)(X f)' plus the noise of each bit.
        """
        design = _design(*self._shape)[present]
        likely = project_shares(shares, project="simplex")
        own, other = float(self.hit * (1 - self.hit)), float(self.miss * (1 - self.miss))
        stretch = float(self.hit - self.miss) ** 2
        total = np.zeros(self.categories)
        for row in range(present.size):
            part = inverse[:, row]
            on = design[row] @ likely
            noise = (on * own + (1 - on) * other) / stretch
            reach = part @ design[row]
            spread = (reach**2) @ likely - (reach @ likely) ** 2
            total += (spread + (part**2) @ noise) / sizes[row]
        return total


@lru_cache(maxsize=8)
def _places(categories: int, bloom: int, hashes: int, cohorts: int) -> NDArray[np.int64]:
    """Returns the bits of each category in each cohort: an array of cohort, category, hash."""
    places = np.empty((cohorts, categories, hashes), np.int64)
    for cohort in range(cohorts):
        for category in range(categories):
            for index in range(hashes):
                digest = blake2b(f"{cohort} {index} {category}".encode(), digest_size=8).digest()
                places[cohort, category, index] = int.from_bytes(digest) % bloom
    places.setflags(write=False)
    return places


@lru_cache(maxsize=4)
def _design(categories: int, bloom: int, hashes: int, cohorts: int) -> NDArray[np.float64]:
    """Returns the regression's matrix: cohort, bit, category; 1 where the category sets the bit."""
    places = _places(categories, bloom, hashes, cohorts)
    design = np.zeros((cohorts, bloom, categories))
    cohort, category, _ = np.indices(places.shape)
    design[cohort, places, category] = 1.0
    design.setflags(write=False)
    return design


@lru_cache(maxsize=4)
def _inverse(
    categories: int, bloom: int, hashes: int, cohorts: int, present: tuple[int, ...]
) -> NDArray[np.float64]:
    """Returns the least-squares inverse over the cohorts that are present: category, cohort, bit."""
    design = _design(categories, bloom, hashes, cohorts)[list(present)]
    flat = design.reshape(-1, categories)
    if flat.shape[0] < categories or np.linalg.matrix_rank(flat) < categories:
        raise RecipeError(
            "these bits and cohorts cannot tell the categories apart; give more bloom bits or cohorts"
        )
    return np.asarray(np.linalg.pinv(flat), np.float64).reshape(categories, len(present), bloom)


class RapporMemory:
    """The permanent response of each client to each value it has had, and each client's cohort.

    It lives with the clients and is as secret as their values. On a device it is that of one client;
    in a simulation that of all of them. It belongs to one mechanism.

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
        sizes = f"{self._clients.size} clients, {self._keys.size} permanent responses"
        return f"RapporMemory({sizes}, values withheld)"

    def recall(
        self, mechanism: Rappor, clients: ArrayLike, codes: NDArray[np.int64], source: BitSource
    ) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """Returns (cohorts, permanent responses) of clients and values; new ones are drawn and kept."""
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
        """Returns the memory as bytes, to be kept where only the client can read them."""
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
        """Returns the memory that `to_bytes` wrote, refused if it belongs to another mechanism."""
        memory = cls(mechanism)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                stored: dict[str, NDArray[Any]] = {name: arrays[name] for name in arrays.files}
            record = json.loads(stored["mechanism"].tobytes())
            bits = np.unpackbits(stored["permanent"], axis=1, count=mechanism.width)
        except (ValueError, KeyError, OSError):
            raise SchemaError("these bytes are no memory of permanent responses") from None
        if record != mechanism.to_record():
            raise RecipeError("this memory belongs to another mechanism; a client keeps one memory for each")
        memory._clients, memory._cohorts = stored["clients"], stored["cohorts"]
        memory._keys, memory._permanent = stored["keys"], bits.astype(np.bool_)
        return memory


def _check_clients(clients: ArrayLike, size: int) -> NDArray[np.int64]:
    numbers = as_array(clients, "the clients")
    if numbers.shape != (size,) or (size and numbers.dtype.kind not in "iu"):
        raise SchemaError("clients must be whole numbers, one for each value")
    if size and (int(numbers.min()) < 0 or int(numbers.max()) >= _MOST_CLIENTS):
        raise SchemaError("the numbers of clients must lie between 0 and 2^40")
    return numbers.astype(np.int64)
