"""The model of what was measured so far, over compressed columns, and how the next marginal is offered."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.questions.choices import Candidate, Choice, Chosen
from sfumato.core.questions.measurement import Answer, Ask, Measurement, in_records
from sfumato.inference.domain import Columns, Domain, estimate_total, merge_measurements
from sfumato.inference.domain import Measurement as Noisy
from sfumato.inference.estimation import LARGEST_TREE, fit_model, order_mask
from sfumato.inference.model import Model
from sfumato.inference.tree import build_tree
from sfumato.recipes.shared.budget import RemainingBudget
from sfumato.recipes.shared.compression import Compression, take_contrasts
from sfumato.recipes.shared.rules import find_zeros

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


Asking = Generator[tuple[Ask, ...], tuple[Answer, ...], "Fitting"]
CHOICE = Fraction(1, 10)  # of the budget of a round, for choosing
_FINE = 64  # numbers of shares are whole multiples of 1 / _FINE, the same on every machine
_EFFORT = 4 * 10**7  # cells that a fit between two rounds may touch


class Fitting:
    """The measurements so far, over compressed columns, and the model of them."""

    def __init__(
        self,
        table: Table,
        domain: Domain,
        singles: Iterable[Answer],
        progress: Callable[[str], None],
        *,
        bins: Mapping[str, int] | None = None,
        known: Mapping[str, tuple[NDArray[np.float64], float]] | None = None,
    ) -> None:
        self.known = dict(known or {})
        self._average(singles)
        self._table, self._bins = table, bins
        self.zeros = [
            (domain.order(columns), order_mask(domain, columns, mask))
            for columns, mask in find_zeros(table, tuple(domain))
        ]
        whole = {name for columns, _ in self.zeros for name in columns}
        grids = {name: (count, table.column(name)) for name, count in (bins or {}).items()}
        self.compression = Compression(domain, self.known, whole=whole, grids=grids)
        self.domain = self.compression.domain
        self.noisy = [self.compression.single(name, *self.known[name]) for name in domain]
        self.model: Model | None = None
        self.guided: tuple[Columns, ...] = ()
        self.progress = progress

    @property
    def total(self) -> float:
        """Return the number of records, as all measurements together tell it."""
        return estimate_total(self.domain, merge_measurements(self.domain, self.noisy))

    def look_again(self, singles: Iterable[Answer]) -> Fitting:
        """Return a fitting of these and all earlier measurements of single columns."""
        full = self.compression.full
        return Fitting(self._table, full, singles, self.progress, bins=self._bins, known=self.known)

    def add(self, answers: Iterable[Answer]) -> None:
        """Adds measurements of marginals, summed as the compression asks, or of differences."""
        for answer in answers:
            assert isinstance(answer, Measurement)
            values, sigma = in_records(answer)
            columns, asked = answer.request.columns, answer.request.queries
            signed = take_contrasts(self.compression, columns) if asked and asked.is_signed else None
            queries = None if signed is None else signed.fitted
            self.noisy.append(Noisy(columns=columns, values=values, sigma=sigma, queries=queries))

    def refine(self, singles: Iterable[Answer]) -> None:
        """Adds measurements of full single columns; which values are joined stays as it is."""
        self._average(singles)
        fresh = [self.compression.single(name, *single) for name, single in self.known.items()]
        self.noisy[: len(fresh)] = fresh
        self.compression.share_out(self.known)

    def _average(self, singles: Iterable[Answer]) -> None:
        for answer in singles:
            assert isinstance(answer, Measurement)
            name, fresh = answer.request.columns[0], in_records(answer)
            self.known[name] = _average(self.known[name], fresh) if name in self.known else fresh

    def begin(self, model: Model | None) -> None:
        """Lets the next fit begin at `model`, whose cliques later models hold; None is the uniform one."""
        self.model, self.guided = model, () if model is None else model.tree.cliques

    def fit(self, *, effort: int = 1, share_sums: bool = False) -> Model:
        """Return the model of all measurements, from the last one on."""
        parts = merge_measurements(self.domain, self.noisy)
        held = [*(part.columns for part in parts), *(columns for columns, _ in self.zeros), *self.guided]
        tree = build_tree(self.domain, held, limit=LARGEST_TREE)
        total = estimate_total(self.domain, parts)
        self.model = fit_model(
            tree,
            parts,
            total=total,
            zeros=self.zeros,
            start=self.model,
            evaluations=effort * max(15, min(200, _EFFORT // tree.cells)),
            share_sums=share_sums,
            progress=self.progress,
        )
        return self.model


def _average(
    one: tuple[NDArray[np.float64], float], other: tuple[NDArray[np.float64], float]
) -> tuple[NDArray[np.float64], float]:
    """Return two measurements of the same counts, with their standard deviations, as one."""
    variances = one[1] ** 2, other[1] ** 2
    both = 1 / (1 / variances[0] + 1 / variances[1])
    return one[0] * (both / variances[0]) + other[0] * (both / variances[1]), math.sqrt(both)


def measure_singles(
    budget: RemainingBudget,
    domain: Domain,
    mu_squared: Fraction,
    *,
    label: str,
    progress: Callable[[str], None],
    bins: Mapping[str, int] | None = None,
) -> Asking:
    """Return a fitting of every single column of `domain`, measured for `mu_squared` of `budget` in all.

    Names of measurements begin with `label`; `progress` is called with each stage of the fit. `bins` are
    those that the records choose.
    """
    share = mu_squared / len(domain)
    asks = [budget.calibrate_request(f"{label}{name}", (name,), share) for name in domain]
    answers = yield tuple(budget.spend(ask) for ask in asks)
    return Fitting(budget.table, domain, answers, progress, bins=bins)


def choose_marginal(
    budget: RemainingBudget, name: str, candidates: tuple[Candidate, ...], mu_squared: Fraction
) -> Generator[tuple[Ask, ...], tuple[Answer, ...], Columns]:
    """Return the columns of the candidate that a private choice for `mu_squared` takes."""
    epsilon = budget.calibrate_choice(mu_squared)
    (chosen,) = yield (budget.spend(Choice(name=name, candidates=candidates, epsilon=epsilon)),)
    assert isinstance(chosen, Chosen)
    return candidates[chosen.index].columns


def noise_distance(sigma: float, cells: float) -> float:
    """Return the L1 distance that noise of `sigma` in each of `cells` adds on average."""
    return sigma * cells * math.sqrt(2 / math.pi)


def count_rounds(budget: RemainingBudget, mu_squared: Fraction, cells: float, total: float) -> float:
    """Return how many marginals of so many cells are worth their noise if they share `mu_squared`.

    Let n be the noise of one of them, over the `total` of records, if it had all. The k-th best of k, each
    with a k-th, has noise n * sqrt(k); taking gaps to fall as 1 / k, it is worth its noise and the half of it
    that others would gain by its share while 1 / k > 1.5 * n * sqrt(k). So there are (1.5 * n)^(-2/3).
    """
    noise = noise_distance(budget.noise_deviation(mu_squared), 1) * cells / total
    return float((1.5 * noise) ** (-2 / 3))


def round_part(number: float) -> Fraction:
    """Return a part of a budget as a multiple of 1 / 64, the same on every machine."""
    return Fraction(round(number * _FINE), _FINE)


def offer_marginal(
    fitting: Fitting, columns: Columns, *, grid: int, weight: int, penalty: float
) -> Candidate:
    """Return a candidate of a choice: `columns`, scored by their distance from the model of `fitting`.

    The score counts `weight` times, less `penalty`, what noise would add to the distance, in records; the
    estimate is in units of 1 / `grid`.
    """
    model = fitting.model
    assert model is not None
    return Candidate(
        columns=columns,
        estimate=lambda: np.rint(model.flat_marginal(columns) * grid).astype(np.int64),
        weight=weight,
        penalty=round(weight * penalty * grid),
        queries=fitting.compression.queries(columns),
    )
