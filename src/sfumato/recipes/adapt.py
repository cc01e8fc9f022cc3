"""Adaptive selection: measure what the model gets most wrong, with noise that shrinks as it must.

The manner is that of AIM (McKenna, Mullins, Sheldon and Miklau 2022): every round chooses a marginal by
the exponential mechanism on its expected improvement over the model so far, measures it with Gaussian
noise, and fits the model anew. When a measurement changes the model by no more than its noise would, the
noise of later rounds is halved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.exact import round_up
from sfumato.inference import (
    Domain,
    Model,
    build_tree,
    estimate_total,
    fit_parts,
    merge_measurements,
    tree_cells,
)
from sfumato.inference import Measurement as Noisy
from sfumato.measurement import (
    Answer,
    Ask,
    Choice,
    Chosen,
    Gap,
    Measurement,
    Request,
    ask_cost,
    request_grid,
    request_sensitivity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from sfumato.schema import Table

__all__ = ["Limits", "Purse", "Workload", "all_subsets", "close_downwards", "measure_adaptively", "to_noisy"]

Columns = tuple[str, ...]
Workload = dict[Columns, int]
Asking = Generator[tuple[Ask, ...], tuple[Answer, ...], Model]

_SELECTION = Fraction(1, 10)  # of the budget of a round
_ROUNDS = 12  # per column; fewer are needed, because the noise shrinks
_LAST = 16  # rounds that the noise of late rounds leaves budget for
_EFFORT = 10**8  # cells that a fit between two rounds may touch
_ABSOLUTE = math.sqrt(2 / math.pi)  # the mean of |x| for standard normal x


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a model and its selection may grow to, in cells."""

    model: int
    marginal: int


class Purse:
    """What is left of a charge in squared Gaussian privacy, and how much noise a part of it buys."""

    def __init__(self, table: Table, *, squared: Fraction) -> None:
        self.table = table
        self.squared = squared
        self.left = squared

    def pay(self, ask: Ask) -> Ask:
        """The ask, deducted."""
        cost = ask_cost(self.table, ask).mu_squared
        if cost is None or cost > self.left:
            message = f"{ask.name!r} costs more than is left of the recipe's budget"
            raise RecipeError(message)
        self.left -= cost
        return ask

    def buy_request(self, name: str, columns: Columns, squared: Fraction) -> Request:
        """A request for the counts of a marginal that costs at most `squared`."""
        probe = Request(name=name, columns=columns, noise="gaussian", scale=Fraction(1))
        sensitivity = float(request_sensitivity(self.table, probe))
        sigma = math.sqrt(sensitivity**2 / float(squared) + 4)
        scale = round_up(Fraction(sigma * (1 + 1e-9)), places=6)
        return Request(name=name, columns=columns, noise="gaussian", scale=scale)

    def buy_epsilon(self, squared: Fraction) -> Fraction:
        """The epsilon of a choice that costs at most `squared`."""
        goal = float(squared)
        low, high = 0.0, 4 * math.sqrt(goal) + 1e-9
        for _ in range(60):
            middle = (low + high) / 2
            # mu = 2 * Phi^-1(sigmoid(epsilon / 2 / 2 * 2)), by the error function.
            low, high = (middle, high) if _choice_mu(middle) ** 2 <= goal else (low, middle)
        return Fraction(math.floor(low * (1 - 1e-9) * 10**9), 10**9)


def _choice_mu(epsilon: float) -> float:
    """The Gaussian privacy of an exponential choice at `epsilon`, nearly."""
    from statistics import NormalDist

    return 2 * NormalDist().inv_cdf(1 / (1 + math.exp(-epsilon / 2)))


def all_subsets(columns: Columns, size: int) -> Workload:
    """Every combination of `size` columns, each with weight 1."""
    return dict.fromkeys(combinations(columns, min(size, len(columns))), 1)


def close_downwards(domain: Domain, workload: Mapping[Columns, int]) -> dict[Columns, int]:
    """All parts of the workload's marginals, weighted by how much of the workload they share."""
    parts: dict[Columns, None] = {}
    for columns in workload:
        for size in range(1, len(columns) + 1):
            parts.update(dict.fromkeys(combinations(domain.order(columns), size)))
    shares = {name: 0 for name in domain}
    for columns, weight in workload.items():
        for name in columns:
            shares[name] += weight
    return {columns: sum(shares[name] for name in columns) for columns in parts}


def to_noisy(measurement: Measurement, domain: Domain) -> Noisy:
    """The measurement in records, for inference."""
    del domain
    request, grid = measurement.request, measurement.grid
    return Noisy(
        columns=request.columns,
        values=measurement.noisy_values / grid,
        sigma=request.standard_deviation / grid,
    )


class _Fitting:
    """The measurements so far and the model of them."""

    def __init__(self, domain: Domain, progress: Callable[[str], None]) -> None:
        self.domain = domain
        self.noisy: list[Noisy] = []
        self.model: Model | None = None
        self.progress = progress

    def add(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            assert isinstance(answer, Measurement)
            self.noisy.append(to_noisy(answer, self.domain))

    def fit(self, *, effort: int = 1) -> Model:
        parts = merge_measurements(self.domain, self.noisy)
        tree = build_tree(self.domain, [part.columns for part in parts])
        total = estimate_total(self.domain, parts)
        self.model = fit_parts(
            tree,
            parts,
            total=total,
            start=self.model,
            evaluations=effort * max(25, _EFFORT // tree.cells),
            progress=self.progress,
        )
        return self.model


def measure_adaptively(
    purse: Purse,
    domain: Domain,
    workload: Mapping[Columns, int],
    *,
    limits: Limits,
    label: str,
    progress: Callable[[str], None],
) -> Asking:
    """The model of what was chosen and measured until the purse is empty."""
    table = purse.table
    candidates = {
        columns: weight
        for columns, weight in close_downwards(domain, workload).items()
        if domain.cells(columns) <= limits.marginal
    }
    fitting = _Fitting(domain, progress)
    share = purse.squared / (_ROUNDS * len(domain))
    asks = [
        purse.buy_request(f"{label}{name}", (name,), share * (1 - _SELECTION)) for name in domain
    ]
    answers = yield tuple(purse.pay(ask) for ask in asks)
    fitting.add(answers)
    model = fitting.fit()
    done, turn = False, 0
    while not done:
        turn += 1
        if purse.left < 2 * share:
            share, done = purse.left, True
        probe = purse.buy_request("probe", tuple(domain)[:1], share * (1 - _SELECTION))
        sigma = float(probe.scale) / request_grid(table, probe)
        used = 1 - float(purse.left / purse.squared)
        fitting_size = max(limits.model * max(used, 0.02), _cells(model))
        choice = _offer(
            f"{label}choice {turn}",
            purse,
            model,
            candidates,
            sigma=sigma,
            most=fitting_size,
            epsilon=purse.buy_epsilon(share * _SELECTION),
        )
        (chosen,) = yield (purse.pay(choice),)
        assert isinstance(chosen, Chosen)
        columns = choice.candidates[chosen.index].columns
        ask = purse.buy_request(
            f"{label}round {turn}: {' x '.join(columns)}",
            columns,
            purse.left if done else share * (1 - _SELECTION),
        )
        answers = yield (purse.pay(ask),)
        before = model.flat_marginal(columns)
        fitting.add(answers)
        model = fitting.fit(effort=4 if done else 1)
        moved = float(np.abs(model.flat_marginal(columns) - before).sum())
        progress(f"round {turn}: {' x '.join(columns)}, {float(purse.left / purse.squared):.0%} left")
        if moved <= sigma * _ABSOLUTE * domain.cells(columns):
            share = min(4 * share, max(share, purse.left / _LAST))
    return model


def _offer(
    name: str,
    purse: Purse,
    model: Model,
    candidates: Mapping[Columns, int],
    *,
    sigma: float,
    most: float,
    epsilon: Fraction,
) -> Choice:
    grid, domain = purse.table.grid, model.domain
    gaps = []
    for columns, weight in candidates.items():
        penalty = sigma * _ABSOLUTE * domain.cells(columns)
        # Noise that would outweigh all records cannot improve anything: no need to score it.
        if len(columns) > 1 and penalty > model.total:
            continue
        if model.tree.home(columns) is None and _grown(model, columns) > most:
            continue
        gaps.append(
            Gap(
                columns=columns,
                estimate=_rounded(model, columns, grid),
                weight=weight,
                penalty=round(weight * penalty * grid),
            )
        )
    return Choice(name=name, candidates=tuple(gaps), epsilon=epsilon)


def _rounded(model: Model, columns: Columns, grid: int) -> Callable[[], NDArray[np.int64]]:
    return lambda: np.rint(model.flat_marginal(columns) * grid).astype(np.int64)


def _cells(model: Model) -> int:
    return model.tree.cells


def _grown(model: Model, columns: Columns) -> int:
    return tree_cells(model.domain, [*model.tree.cliques, columns])
