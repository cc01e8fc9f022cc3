"""Adaptive selection: measure what the model gets most wrong, with noise that shrinks as it must.

The manner is that of AIM (McKenna, Mullins, Sheldon and Miklau 2022): every round chooses a marginal by
the exponential mechanism on its expected improvement over the model so far, measures it with Gaussian
noise, and fits the model anew. When a measurement changes the model by no more than its noise would, later
rounds get a larger share of the budget: up to four times as much, which halves their noise, as long as
enough is left for a number of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from sfumato.accounting import mu_to_pure
from sfumato.accounting.cost import SMOOTHING
from sfumato.errors import RecipeError
from sfumato.exact import round_up
from sfumato.inference import (
    LARGEST_TREE,
    Domain,
    Model,
    Sparse,
    Tree,
    build_tree,
    estimate_total,
    fit_parts,
    merge_measurements,
    order_mask,
    tree_cells,
)
from sfumato.inference import Measurement as Noisy
from sfumato.inference.model import draw_codes
from sfumato.questions import (
    Answer,
    Ask,
    Candidate,
    Choice,
    Chosen,
    Marginal,
    Measurement,
    Queries,
    Request,
    ask_cost,
    in_records,
    request_grid,
    request_sensitivity,
)
from sfumato.recipes.rows import find_zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.schema import Table


Columns = tuple[str, ...]

_RARE = 3.0  # standard deviations of a count's noise


class Compression:
    """For every column with rare values, a smaller one in which they are the last value together.

    Made of noisy counts only, so it costs nothing. `shares` keeps in which proportion rare values were
    seen, for rows to be spread over them again. Columns in `whole` stay as they are.
    """

    def __init__(
        self,
        domain: Domain,
        singles: Mapping[str, tuple[NDArray[np.float64], float]],
        *,
        whole: Collection[str] = (),
    ) -> None:
        self.full = domain
        self.maps: dict[str, NDArray[np.int64]] = {}
        self.shares: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        sizes: dict[str, int] = {}
        self._queries: dict[Columns, Queries | None] = {}
        for name, size in domain.items():
            sizes[name] = size
            values, sigma = singles[name]
            rare = np.flatnonzero(values < _RARE * sigma)
            if rare.size < 2 or name in whole:
                continue
            kept = np.flatnonzero(values >= _RARE * sigma)
            codes = np.full(size, kept.size, np.int64)
            codes[kept] = np.arange(kept.size)
            self.maps[name] = codes
            self.shares[name] = (rare, np.maximum(values[rare], 0.0))
            sizes[name] = int(kept.size) + 1
        self.domain = Domain(sizes)

    def queries(self, columns: Columns) -> Queries | None:
        """The sums over the marginal of `columns` that are the compressed one; None if they are equal."""
        if columns not in self._queries:
            self._queries[columns] = self._build(columns)
        return self._queries[columns]

    def single(self, name: str, values: NDArray[np.float64], sigma: float) -> Noisy:
        """The measurement of one full column as one of the compressed column.

        The sum of r rare counts has r times the noise of one, so it is stated divided by the root of r.
        """
        if name not in self.maps:
            return Noisy(columns=(name,), values=values, sigma=sigma)
        codes = self.maps[name]
        sums = np.bincount(codes, weights=values, minlength=self.domain[name])
        weights = 1 / np.sqrt(np.bincount(codes, minlength=self.domain[name]).astype(np.float64))
        places = np.arange(self.domain[name])
        queries = Sparse(starts=np.arange(self.domain[name] + 1), members=places, weights=weights)
        return Noisy(columns=(name,), values=sums * weights, sigma=sigma, queries=queries)

    def expand(self, codes: Mapping[str, NDArray[np.int64]], *, seed: int) -> dict[str, NDArray[np.int64]]:
        """Codes of the full domain: rare values are drawn in the proportions they were seen in."""
        expanded = {}
        for turn, (name, column) in enumerate(codes.items()):
            if name not in self.maps:
                expanded[name] = column
                continue
            rare, shares = self.shares[name]
            back = np.full(self.domain[name], -1, np.int64)
            kept = np.flatnonzero(self.maps[name] < self.domain[name] - 1)
            back[self.maps[name][kept]] = kept
            values = back[column]
            missing = np.flatnonzero(values < 0)
            values[missing] = rare[draw_codes(shares, missing.size, seed=seed, turn=turn)]
            expanded[name] = values
        return expanded

    def expand_model(self, model: Model, *, limit: int) -> Model | None:
        """The model over the full domain, if it has at most `limit` cells: joined values by their shares."""
        tree = model.tree
        if sum(self.full.cells(clique) for clique in tree.cliques) > limit:
            return None
        tables = []
        for place, clique in enumerate(tree.cliques):
            table = model.table(place).reshape(self.domain.shape(clique))
            for axis, name in enumerate(clique):
                if name in self.maps:
                    part = self._parts(name).reshape(
                        [-1 if each == axis else 1 for each in range(len(clique))]
                    )
                    table = np.take(table, self.maps[name], axis=axis) * part
            tables.append(table.reshape(-1))
        whole = Tree(domain=self.full, cliques=tree.cliques, parents=tree.parents, separators=tree.separators)
        return Model(
            whole,
            np.concatenate(tables),
            total=model.total,
            loss=model.loss,
            evaluations=model.evaluations,
            seed=model.seed,
        )

    def _parts(self, name: str) -> NDArray[np.float64]:
        """For every value of the full column, its part of the value it became."""
        rare, shares = self.shares[name]
        parts = np.ones(self.full[name])
        total = float(shares.sum())
        parts[rare] = shares / total if total > 0 else 1 / rare.size
        return parts

    def _places(self, columns: Columns) -> NDArray[np.int64]:
        """For every cell of the full marginal, its cell of the compressed one."""
        places = np.zeros(1, np.int64)
        for name in columns:
            codes = self.maps.get(name, np.arange(self.full[name]))
            places = np.add.outer(places * self.domain[name], codes).reshape(-1)
        return places

    def _build(self, columns: Columns) -> Queries | None:
        if not any(name in self.maps for name in columns):
            return None
        places = self._places(columns)
        rows = math.prod(self.domain[name] for name in columns)
        starts = np.concatenate(([0], np.cumsum(np.bincount(places, minlength=rows))))
        members = np.argsort(places, kind="stable")
        weights = np.ones(members.size, np.int64)
        return Queries(cells=places.size, grid=1, starts=starts, members=members, weights=weights)


Workload = dict[Columns, int]
Asking = Generator[tuple[Ask, ...], tuple[Answer, ...], "Fitting"]

_SELECTION = Fraction(1, 10)  # of the budget of a round
_ROUNDS = 12  # per column; fewer are needed, because the noise shrinks
_LAST = 16  # rounds that the noise of late rounds leaves budget for
_EFFORT = 4 * 10**7  # cells that a fit between two rounds may touch


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
            raise RecipeError(f"{ask.name!r} costs more than is left of the recipe's budget")
        self.left -= cost
        return ask

    def buy_request(
        self, name: str, columns: Columns, squared: Fraction, *, queries: Queries | None = None
    ) -> Request:
        """A request for the counts of a marginal, or for sums of them, that costs at most `squared`."""
        probe = Request(name=name, counted=Marginal(columns, queries), noise="gaussian", scale=Fraction(1))
        sensitivity = float(request_sensitivity(self.table, probe))
        sigma = math.sqrt(sensitivity**2 / float(squared) + SMOOTHING)
        scale = round_up(Fraction(sigma * (1 + 1e-9)), places=6)
        return replace(probe, scale=scale)

    def buy_epsilon(self, squared: Fraction) -> Fraction:
        """The epsilon of a choice that costs at most `squared`."""
        # The exponential mechanism is as private as a pure one with half its epsilon.
        return 2 * mu_to_pure(squared)

    def noise(self, squared: Fraction) -> float:
        """The standard deviation, in records, of the noise that `squared` buys for counts."""
        probe = self.buy_request("probe", (next(iter(self.table.columns)),), squared)
        return float(probe.scale) / request_grid(self.table, probe)


def noise_distance(sigma: float, cells: int) -> float:
    """The L1 distance that noise of `sigma` in each of `cells` adds on average."""
    return sigma * cells * math.sqrt(2 / math.pi)


def all_subsets(columns: Columns, size: int) -> Workload:
    """Every combination of `size` columns, each with weight 1."""
    return dict.fromkeys(combinations(columns, min(size, len(columns))), 1)


def close_downwards(domain: Domain, workload: Mapping[Columns, int]) -> dict[Columns, int]:
    """All parts of the workload's marginals, weighted by how much of the workload they share."""
    parts: dict[Columns, None] = {}
    for columns in workload:
        for size in range(1, len(columns) + 1):
            parts.update(dict.fromkeys(combinations(domain.order(columns), size)))
    shares = dict.fromkeys(domain, 0)
    for columns, weight in workload.items():
        for name in columns:
            shares[name] += weight
    return {columns: sum(shares[name] for name in columns) for columns in parts}


class Fitting:
    """The measurements so far, over compressed columns, and the model of them."""

    def __init__(
        self, table: Table, domain: Domain, singles: Iterable[Answer], progress: Callable[[str], None]
    ) -> None:
        known: dict[str, tuple[NDArray[np.float64], float]] = {}
        for answer in singles:
            assert isinstance(answer, Measurement)
            known[answer.request.columns[0]] = in_records(answer)
        self.zeros = [
            (domain.order(columns), order_mask(domain, columns, mask))
            for columns, mask in find_zeros(table, tuple(domain))
        ]
        whole = {name for columns, _ in self.zeros for name in columns}
        self.compression = Compression(domain, known, whole=whole)
        self.domain = self.compression.domain
        self.noisy = [self.compression.single(name, *known[name]) for name in domain]
        self.model: Model | None = None
        self.progress = progress

    def add(self, answers: Iterable[Answer]) -> None:
        """Adds measurements of marginals, summed as the compression asks."""
        for answer in answers:
            assert isinstance(answer, Measurement)
            values, sigma = in_records(answer)
            self.noisy.append(Noisy(columns=answer.request.columns, values=values, sigma=sigma))

    def fit(self, *, effort: int = 1) -> Model:
        """The model of all measurements, from the last one on."""
        parts = merge_measurements(self.domain, self.noisy)
        impossible = [columns for columns, _ in self.zeros]
        tree = build_tree(self.domain, [*(part.columns for part in parts), *impossible], limit=LARGEST_TREE)
        total = estimate_total(self.domain, parts)
        self.model = fit_parts(
            tree,
            parts,
            total=total,
            zeros=self.zeros,
            start=self.model,
            evaluations=effort * max(15, min(200, _EFFORT // tree.cells)),
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
    share = purse.squared / (_ROUNDS * len(domain))
    fitting = yield from measure_singles(
        purse, domain, len(domain) * share * (1 - _SELECTION), label=label, progress=progress
    )
    candidates = close_downwards(domain, workload)
    model = fitting.fit()
    done, turn = False, 0
    while not done:
        turn += 1
        if purse.left < 2 * share:
            share, done = purse.left, True
        sigma = purse.noise(share * (1 - _SELECTION))
        used = 1 - float(purse.left / purse.squared)
        choice = _offer(
            f"{label}choice {turn}",
            purse,
            fitting,
            candidates,
            sigma=sigma,
            limits=Limits(
                model=max(round(limits.model * max(used, 0.02)), model.tree.cells), marginal=limits.marginal
            ),
            epsilon=purse.buy_epsilon(share * _SELECTION),
        )
        (chosen,) = yield (purse.pay(choice),)
        assert isinstance(chosen, Chosen)
        columns = choice.candidates[chosen.index].columns
        ask = purse.buy_request(
            f"{label}round {turn}: {' x '.join(columns)}",
            columns,
            purse.left if done else share * (1 - _SELECTION),
            queries=fitting.compression.queries(columns),
        )
        answers = yield (purse.pay(ask),)
        before = model.flat_marginal(columns)
        fitting.add(answers)
        model = fitting.fit(effort=4 if done else 1)
        moved = float(np.abs(model.flat_marginal(columns) - before).sum())
        progress(f"round {turn}: {' x '.join(columns)}, {float(purse.left / purse.squared):.0%} left")
        if moved <= noise_distance(sigma, before.size):
            share = min(4 * share, max(share, purse.left / _LAST))
    return fitting


def measure_singles(
    purse: Purse, domain: Domain, squared: Fraction, *, label: str, progress: Callable[[str], None]
) -> Asking:
    """A fitting of every single column, measured for `squared` in all."""
    share = squared / len(domain)
    asks = [purse.buy_request(f"{label}{name}", (name,), share) for name in domain]
    answers = yield tuple(purse.pay(ask) for ask in asks)
    return Fitting(purse.table, domain, answers, progress)


def _offer(
    name: str,
    purse: Purse,
    fitting: Fitting,
    candidates: Mapping[Columns, int],
    *,
    sigma: float,
    limits: Limits,
    epsilon: Fraction,
) -> Choice:
    model, domain = fitting.model, fitting.domain
    assert model is not None
    gaps = []
    for columns, weight in candidates.items():
        penalty = noise_distance(sigma, domain.cells(columns))
        if len(columns) > 1:
            # Noise that would outweigh all records cannot improve anything: no need to score it.
            if penalty > model.total or fitting.compression.full.cells(columns) > limits.marginal:
                continue
            grown = model.tree.home(columns) is None and tree_cells(domain, [*model.tree.cliques, columns])
            if grown > limits.model:
                continue
        gaps.append(offer_gap(purse, fitting, columns, weight=weight, penalty=penalty))
    return Choice(name=name, candidates=tuple(gaps), epsilon=epsilon)


def offer_gap(purse: Purse, fitting: Fitting, columns: Columns, *, weight: int, penalty: float) -> Candidate:
    """A candidate by its distance from the model, less what noise would add to it."""
    model, grid = fitting.model, purse.table.grid
    assert model is not None
    return Candidate(
        columns=columns,
        estimate=lambda: np.rint(model.flat_marginal(columns) * grid).astype(np.int64),
        weight=weight,
        penalty=round(weight * penalty * grid),
        queries=fitting.compression.queries(columns),
    )
