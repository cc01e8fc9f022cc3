"""What one use of a mechanism costs, kept as the mechanism's description and never as a bare number.

`Cost` is the record that a ledger keeps. Its readings are pure epsilon, the rate of zero-concentrated privacy
(zCDP) and the parameter of Gaussian privacy, each by a function here. All are rational and rounded up. The
proofs are in docs/proofs/accounting.md and docs/proofs/partition-selection.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, get_args

from sfumato.core.cost.curves import (
    LARGEST,
    PLACES,
    SMOOTHING,
    discrete_laplace_rho,
    exponential_mu,
    exponential_rho,
    pure_to_mu,
    pure_to_rho,
    sqrt_up,
)
from sfumato.core.errors import RecipeError
from sfumato.core.exact import check_option, format_exact, parse_exact, parse_positive, parse_whole, round_up
from sfumato.core.facts.table import Neighbours

CostKind = Literal[
    "laplace", "gaussian", "sampled", "exponential", "permute-and-flip", "pure", "selection", "filter"
]
Norm = Literal["L1", "L2", "none"]


_NORMS: dict[str, Norm] = {"laplace": "L1", "gaussian": "L2", "sampled": "L2", "selection": "L1"}
_BITS = 1024
_MOST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One mechanism, used `count` times, with all that its privacy depends on.

    `scale` is b for Laplace and sigma for Gaussian noise, and the most that all steps of a "filter"
    may cost together, as a Gaussian-DP parameter; for the other kinds it is the pure epsilon they
    were calibrated to. `sensitivity` is in the same steps as `scale`: the L1 norm for
    Laplace, the L2 norm for Gaussian, 1 for the other kinds. A step is that of the grid on which
    the noise is drawn, or anything coarser.

    "selection" is the choice of groups by Laplace noise of scale b on their numbers of individuals
    and a threshold: `sensitivity` is the most groups of one individual, a whole number, and `delta`
    the probability with which one use may fail.

    "sampled" is a run of `count` Gaussian mechanisms, each on a sample that every individual is drawn
    into with the probability `sampling`, independently. Its `delta`, too, is the probability of failure
    that one step is charged with, and may be 0: then sampling gains nothing. The run is paid as a whole:
    its parameter is that of all steps together. All other kinds never fail, and their delta is 0.

    "filter" is a sequence of mechanisms that never fail, each chosen on seeing the earlier answers,
    which stops before the sum of their mu_squared exceeds scale^2.

    *Privacy:* `epsilon`, `rho` and `mu` hold for every choice of later queries, under
    `neighbours`; for a selection and for a sampled run they hold unless it fails. Proofs:
    docs/proofs/accounting.md, docs/proofs/partition-selection.md, docs/proofs/network.md.

    >>> cost = Cost(kind="laplace", scale=Fraction(20), sensitivity=Fraction(2), unit="resident")
    >>> cost.epsilon, cost.norm, float(cost.rho) < 0.1**2 / 2
    (Fraction(1, 10), 'L1', True)
    """

    kind: CostKind
    scale: Fraction
    sensitivity: Fraction = Fraction(1)
    norm: Norm | None = None
    neighbours: Neighbours = "add-remove"
    unit: str = "row"
    count: int = 1
    delta: Fraction = Fraction(0)
    sampling: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.kind not in get_args(CostKind):
            raise RecipeError(f"unknown kind of cost {str(self.kind)[:40]!r}; known: {get_args(CostKind)}")
        for name in ("scale", "sensitivity"):
            object.__setattr__(self, name, _bounded(getattr(self, name), name=name))
        norm = _NORMS.get(self.kind, "none")
        if self.norm not in (None, norm):
            raise RecipeError(f"the sensitivity of kind {self.kind} is in norm {norm}, not {self.norm!r}")
        object.__setattr__(self, "norm", norm)
        if norm == "none" and self.sensitivity != 1:
            raise RecipeError(
                f"the scale of kind {self.kind} says all of its cost, so its sensitivity must be 1"
            )
        check_option(self.neighbours, get_args(Neighbours), name="neighbours")
        if not isinstance(self.unit, str) or not self.unit:
            raise RecipeError("unit must name what is protected, such as 'resident' or 'row'")
        object.__setattr__(self, "count", parse_whole(self.count, name="count", high=_MOST))
        object.__setattr__(self, "delta", Fraction(parse_exact(self.delta, name="delta")))
        object.__setattr__(self, "sampling", Fraction(parse_exact(self.sampling, name="sampling")))
        _check_delta(self)
        _check_sampling(self)

    @property
    def epsilon(self) -> Fraction | None:
        """The exact pure epsilon of all repetitions; None for Gaussian noise and filters, without one."""
        if self.kind in ("gaussian", "sampled", "filter"):
            return None
        return self.count * (self.sensitivity / self.scale if self.norm == "L1" else self.scale)

    @property
    def rho(self) -> Fraction:
        """The zCDP rate of all repetitions, rounded up."""
        if self.kind == "sampled":
            squared, plain = self.mu_squared, replace(self, delta=Fraction(0)).mu_squared
            if squared != plain and squared is not None:
                return round_up(
                    squared / 2, places=PLACES
                )  # where it does not fail, like all that sampling gains
            return replace(self, kind="gaussian", sampling=Fraction(1), delta=Fraction(0)).rho
        return round_up(self.count * _rho(self.kind, self.scale, self.sensitivity), places=PLACES)

    @property
    def mu_squared(self) -> Fraction | None:
        """The square of `mu`, which adds up over charges."""
        if self.kind == "sampled":
            return _sampled_mu_squared(self)
        once = _mu_squared(self.kind, self.scale, self.sensitivity)
        return None if once is None else round_up(self.count * once, places=PLACES)

    @property
    def mu(self) -> Fraction | None:
        """The Gaussian-DP parameter of all repetitions, rounded up.

        For Gaussian noise it is sqrt(count) * sensitivity / sqrt(sigma^2 - 4), which is certain
        for the discrete noise that is drawn; None for sigma of two grid steps or fewer, where no
        bound is known.
        """
        squared = self.mu_squared
        return None if squared is None else sqrt_up(squared)

    @property
    def uses(self) -> int:
        """In how many parts it is paid: one by one, but a sampled run as a whole."""
        return 1 if self.kind == "sampled" else self.count

    @property
    def failure(self) -> Fraction:
        """The exact bound on the probability that any of all repetitions fails."""
        return self.count * self.delta

    def to_record(self) -> dict[str, str | int]:
        """The cost as plain text and whole numbers."""
        record: dict[str, str | int] = {
            "count": self.count,
            "delta": format_exact(self.delta),
            "kind": self.kind,
            "neighbours": self.neighbours,
            "norm": str(self.norm),
            "scale": format_exact(self.scale),
            "sensitivity": format_exact(self.sensitivity),
            "unit": self.unit,
        }
        return {**record, "sampling": format_exact(self.sampling)} if self.kind == "sampled" else record

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Cost:
        """The cost that `to_record` wrote; anything more, less or unknown is refused."""
        expected = {field.name for field in fields(cls)}
        if record.get("kind") != "sampled":
            expected.remove("sampling")
        if set(record) != expected:
            raise RecipeError(f"a recorded cost holds exactly the fields {sorted(expected)}")
        cost = cls(**record)  # type: ignore[arg-type]  # every field is checked when it is made
        if cost.to_record() != dict(record):
            raise RecipeError(f"the recorded cost of kind {cost.kind} is not in its canonical spelling")
        return cost


def _bounded(value: object, *, name: str) -> Fraction:
    number = parse_positive(value, name=name)
    if not Fraction(1, LARGEST) <= number <= LARGEST:
        raise RecipeError(f"{name} must lie between 1e-30 and 1e30")
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _BITS:
        raise RecipeError(f"{name} has more than {_BITS} bits; round it up to fewer digits")
    return Fraction(number)


def _check_sampling(cost: Cost) -> None:
    if cost.kind != "sampled":
        if cost.sampling != 1:
            raise RecipeError(f"kind {cost.kind} is about all individuals, so its sampling must be 1")
        return
    if not Fraction(1, 1000) <= cost.sampling < 1 or cost.sampling.denominator.bit_length() > 64:
        raise RecipeError("sampling must lie between 1/1000 and below 1, with a denominator below 2^64")
    if cost.neighbours != "add-remove":
        raise RecipeError(
            "what sampling gains is proved where an individual is added or removed; use all individuals"
        )
    if not 0 <= cost.delta < 1 or cost.delta.denominator.bit_length() > _BITS:
        raise RecipeError(f"delta of a sampled run must lie in [0, 1) and have at most {_BITS} bits")
    if cost.count > 10**5:
        raise RecipeError("a sampled run has at most 100,000 steps")


def _check_delta(cost: Cost) -> None:
    if cost.kind == "sampled":
        return
    if cost.kind != "selection":
        if cost.delta != 0:
            raise RecipeError(f"kind {cost.kind} never fails, so its delta must be 0")
        return
    if cost.sensitivity.denominator != 1:
        raise RecipeError(
            "the sensitivity of a selection is the most groups of one individual, a whole number"
        )
    if not 0 < cost.delta < 1:
        raise RecipeError(
            "a selection needs the probability with which it may fail, delta above 0 and below 1"
        )
    if cost.delta.denominator.bit_length() > _BITS:
        raise RecipeError(f"delta has more than {_BITS} bits; round it up to fewer digits")


# A ledger recomputes all its sums at every charge, mostly from costs it has seen before.
@lru_cache(maxsize=4096)
def _rho(kind: CostKind, scale: Fraction, sensitivity: Fraction) -> Fraction:
    match kind:
        case "gaussian":
            return sensitivity**2 / (2 * scale**2)
        case "laplace" | "selection":
            return discrete_laplace_rho(sensitivity, scale)
        case "exponential":
            # mu-Gaussian privacy implies mu^2 / 2; it is the smaller of the two above epsilon 9.6.
            return min(exponential_rho(scale), exponential_mu(scale) ** 2 / 2)
        case "permute-and-flip" | "pure":
            return pure_to_rho(scale)
        case "filter":
            return scale**2 / 2
    raise ValueError(kind)


def _sampled_mu_squared(cost: Cost) -> Fraction | None:
    """What all steps together cost; never more than without sampling."""
    from sfumato.core.cost.sampling import sampled_mu

    variance = (cost.scale**2 - SMOOTHING) / cost.sensitivity**2
    if variance <= 0:
        return None
    plain = round_up(cost.count / variance, places=PLACES)
    if cost.delta == 0:
        return plain
    return min(
        plain, round_up(sampled_mu(variance, cost.sampling, cost.count, cost.failure) ** 2, places=PLACES)
    )


@lru_cache(maxsize=4096)
def _mu_squared(kind: CostKind, scale: Fraction, sensitivity: Fraction) -> Fraction | None:
    match kind:
        case "gaussian":
            variance = scale**2 - SMOOTHING
            return sensitivity**2 / variance if variance > 0 else None
        case "laplace" | "selection":
            return pure_to_mu(sensitivity / scale) ** 2
        case "exponential":
            return exponential_mu(scale) ** 2
        case "permute-and-flip" | "pure":
            return pure_to_mu(scale) ** 2
        case "filter":
            return scale**2
    raise ValueError(kind)
