"""RAPPOR: a permanent noisy copy of a value's bits, kept for good, and fresh noise on it for each report."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from sfumato.errors import RecipeError, SchemaError
from sfumato.exact import format_exact, parse_exact
from sfumato.local.bloom import check_filter, estimate_filter, filter_bits, unit_variance
from sfumato.local.checks import as_array, check_codes, check_count
from sfumato.local.draws import draw_events, draw_uniform
from sfumato.local.mechanism import delivered_epsilon, estimate_supports, support_variance
from sfumato.local.thresholds import WORDS, lie_threshold, log_above, parse_epsilon
from sfumato.local.unary import check_bits, count_bits
from sfumato.noise.entropy import KeyStream

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.memory import RapporMemory
    from sfumato.local.results import Estimate, Projection
    from sfumato.noise.entropy import BitSource

_MAX_WIDTH: Final = 1 << 12
_MAX_HASHES: Final = 8
_MAX_COHORTS: Final = 1 << 12

Rates = tuple[Fraction, Fraction, Fraction]


@dataclass(frozen=True, slots=True, init=False)
class Rappor:
    """RAPPOR (Erlingsson, Pihur, Korolova 2014), basic or with a Bloom filter.

    A client flips each bit of its value once with chance `flip` / 2^64 and keeps the result (permanent
    response); each report is drawn anew from it: a bit is on with chance `on_if_on` or `on_if_off` / 2^64.
    Without `bloom` there is one bit per category. With it, a value sets `hashes` of `bloom` bits, chosen
    by the client's cohort. `rates` gives the paper's (f, p, q) in place of the two epsilons.

    Privacy: `epsilon` for everything a client ever reports about one value, `report_epsilon` for a single
    report. A value that changes costs `epsilon` for each value it takes (docs/proofs/local.md).

    >>> mechanism = Rappor(epsilon=4, report_epsilon=1, categories=3)
    >>> mechanism.respond([0, 2])["bits"].shape
    (2, 3)
    >>> float(Rappor(categories=3, rates=("1/2", "1/2", "3/4")).epsilon)  # 2 ln 3
    2.1972245773362196
    """

    name: ClassVar[str] = "rappor"

    epsilon: Fraction
    report_epsilon: Fraction
    categories: int
    bloom: int | None
    hashes: int
    cohorts: int
    rates: Rates | None
    flip: int
    on_if_off: int
    on_if_on: int

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
        put = object.__setattr__
        most = _MAX_WIDTH if bloom is None else 1 << 16
        put(self, "categories", check_count(categories, name="categories", most=most))
        if bloom is None and (hashes, cohorts) != (1, 1):
            raise RecipeError("hashes and cohorts belong to a Bloom filter; give its number of bits as bloom")
        put(self, "bloom", None if bloom is None else check_count(bloom, name="bloom", most=_MAX_WIDTH))
        put(self, "hashes", check_count(hashes, name="hashes", least=1, most=_MAX_HASHES))
        put(self, "cohorts", check_count(cohorts, name="cohorts", least=1, most=_MAX_COHORTS))
        if self.bloom is not None:
            check_filter(self.categories, self.bloom, self.hashes, self.cohorts)
        if rates is None:
            self._set_epsilons(epsilon, report_epsilon)
        elif epsilon is None and report_epsilon is None:
            self._set_rates(rates)
        else:
            raise RecipeError("give epsilons or rates, not both: each follows from the other")

    def _set_epsilons(self, epsilon: ExactLike | None, report_epsilon: ExactLike | None) -> None:
        put = object.__setattr__
        whole = parse_epsilon(epsilon)
        single = whole / 2 if report_epsilon is None else parse_epsilon(report_epsilon, name="report_epsilon")
        if single >= whole:
            raise RecipeError("report_epsilon must be below epsilon, which covers all reports about a value")
        flip = lie_threshold(whole / (2 * self.hashes), 1)
        # A bit is wrong in a report with chance f (1 - u) + (1 - f) u; u is rounded up to reach this goal.
        goal = Fraction(lie_threshold(single / (2 * self.hashes), 1), WORDS)
        kept = Fraction(flip, WORDS)
        fresh = -((kept - goal) / (1 - 2 * kept) * WORDS // 1)
        for name, value in (
            ("epsilon", whole),
            ("report_epsilon", single),
            ("rates", None),
            ("flip", flip),
            ("on_if_off", int(fresh)),
            ("on_if_on", WORDS - int(fresh)),
        ):
            put(self, name, value)
        if self.hit <= self.miss:
            raise RecipeError("report_epsilon is too small for 64-bit words")

    def _set_rates(self, rates: tuple[ExactLike, ExactLike, ExactLike]) -> None:
        put = object.__setattr__
        permanent, off, on = (
            parse_exact(rate, name=f"rate {name}") for rate, name in zip(rates, "fpq", strict=True)
        )
        put(self, "rates", (permanent, off, on))
        put(self, "flip", -int(-permanent / 2 * WORDS // 1))
        put(self, "on_if_off", -int(-off * WORDS // 1))
        put(self, "on_if_on", int(on * WORDS // 1))
        if not (0 < 2 * self.flip < WORDS and 0 <= self.on_if_off < self.on_if_on <= WORDS):
            raise RecipeError("rates (f, p, q) need 0 < f < 1 and 0 <= p < q <= 1")
        put(self, "epsilon", log_above(self.likelihood_ratio))
        put(self, "report_epsilon", log_above(self.report_likelihood_ratio))

    @property
    def width(self) -> int:
        """The number of bits of a report."""
        return self.categories if self.bloom is None else self.bloom

    @property
    def hit(self) -> Fraction:
        """The chance that a bit of the value is on in a report."""
        kept = Fraction(self.flip, WORDS)
        return ((1 - kept) * self.on_if_on + kept * self.on_if_off) / WORDS

    @property
    def miss(self) -> Fraction:
        """The chance that any other bit is on in a report."""
        kept = Fraction(self.flip, WORDS)
        return ((1 - kept) * self.on_if_off + kept * self.on_if_on) / WORDS

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of a permanent response under two values, exactly."""
        return Fraction(WORDS - self.flip, self.flip) ** (2 * self.hashes)

    @property
    def report_likelihood_ratio(self) -> Fraction:
        """The largest ratio of the chances of one report under two values, exactly."""
        return (self.hit * (1 - self.miss) / (self.miss * (1 - self.hit))) ** self.hashes

    @property
    def exact_epsilon(self) -> Fraction:
        """The epsilon that all reports about one value deliver, never above the claimed one."""
        return delivered_epsilon(self.likelihood_ratio, self.epsilon)

    @property
    def exact_report_epsilon(self) -> Fraction:
        """The epsilon that one report delivers, never above the claimed one."""
        return delivered_epsilon(self.report_likelihood_ratio, self.report_epsilon)

    @property
    def bits(self) -> int:
        """The size of one report in bits, the cohort included."""
        return self.width + (self.cohorts - 1).bit_length()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a report: `cohort` and `bits`."""
        return np.dtype([("cohort", np.uint16), ("bits", np.bool_, (self.width,))])

    def to_record(self) -> dict[str, Any]:
        """What the server must know, as a plain record."""
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
        """The variance of the estimate of a category with this share, times the number of people.

        With a Bloom filter it is that of a person's noise alone, averaged over the categories.
        """
        if self.bloom is None:
            return support_variance(share, hit=self.hit, miss=self.miss)
        return unit_variance(self)

    def respond(
        self,
        values: ArrayLike,
        *,
        clients: ArrayLike | None = None,
        memory: RapporMemory | None = None,
        default: int | None = None,
    ) -> NDArray[Any]:
        """One report per value, an array with the fields `cohort` and `bits`.

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
        return bits ^ filter_bits(self, cohorts, codes)

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

    def estimate(self, responses: ArrayLike, *, project: Projection = "none") -> Estimate:
        """The shares of the categories: from counts of bits, or by regression over cohorts."""
        reports = as_array(responses, "the reports")
        if reports.dtype.names != ("cohort", "bits") or reports.ndim != 1:
            raise SchemaError("reports of RAPPOR are a one-dimensional array with the fields cohort and bits")
        bits = check_bits(reports["bits"], self.width)
        cohorts = reports["cohort"]
        if cohorts.dtype.kind not in "iu" or int(cohorts.min()) < 0 or int(cohorts.max()) >= self.cohorts:
            raise SchemaError(f"a report's cohort is none of the {self.cohorts} of this mechanism")
        if self.bloom is not None:
            return estimate_filter(self, cohorts.astype(np.int64), bits, project=project)
        return estimate_supports(
            count_bits(np.ascontiguousarray(bits)),
            people=len(bits),
            hit=self.hit,
            miss=self.miss,
            mechanism=self,
            project=project,
        )
