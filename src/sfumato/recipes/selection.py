"""What recipes share that choose privately which marginals they measure.

`Selection` is their base: it charges all that (epsilon, delta) admits of Gaussian privacy beforehand, lets a
recipe ask until `RemainingBudget` is spent, and draws rows from the model of all answers. `Fitting` is that
model, over columns whose rare values are joined by `Compression`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.cost.cost import SMOOTHING, Cost
from sfumato.core.cost.curves import max_mu, mu_to_pure
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, round_up
from sfumato.core.questions.choices import Candidate
from sfumato.core.questions.counts import Counted, Marginal, Queries
from sfumato.core.questions.measurement import (
    Answer,
    Ask,
    Measurement,
    Request,
    ask_cost,
    in_records,
    request_grid,
    request_sensitivity,
)
from sfumato.inference.domain import Columns, Domain, Sparse, estimate_total, merge_measurements
from sfumato.inference.domain import Measurement as Noisy
from sfumato.inference.estimation import LARGEST_TREE, fit_model, order_mask
from sfumato.inference.files import pack_model, quantise
from sfumato.inference.model import Model, draw_codes
from sfumato.inference.tree import Tree, build_tree
from sfumato.recipes.base import (
    Conversation,
    Plan,
    Product,
    is_column_list,
    label_epsilon,
    refuse_clash,
    refuse_no_delta,
    released_names,
    stack_epsilons,
    to_plain,
)
from sfumato.recipes.contrasts import take_contrasts
from sfumato.recipes.guide import TESTING, follow_guide, read_guide, unpack_guide
from sfumato.recipes.private_bins import describe_grids, join_cells, parse_bins
from sfumato.recipes.public import parse_public
from sfumato.recipes.repair import draw_obeying, turn_seed
from sfumato.recipes.rows import RowOptions, build_rows, describe_bins, model_domain
from sfumato.recipes.rules import find_zeros

if TYPE_CHECKING:
    from sfumato.core.facts.column import Column
    from sfumato.core.facts.table import Table

Asking = Generator[tuple[Ask, ...], tuple[Answer, ...], "Fitting"]

CHOICE = Fraction(1, 10)  # of the budget of a round, for choosing

_FINE = 64  # numbers of shares are whole multiples of 1 / _FINE, the same on every machine
_GRAIN = 10**12  # allowances are whole multiples of 1 / _GRAIN
_LEAST = Fraction(1, 10**5)
_ROOM = Fraction(1, 10**13)  # of the squared privacy of a run, for what rounding adds to its costs
_MOST_COUNTED = 2**27
_MOST_ROWS = 2**24  # that noise may ask for; a recipe may state more
_WHOLE = 2**21  # cells up to which a model is released over the full domain
_TURNS = 2**20  # of draws, for each group of joined values of a column
_RARE = 3.0  # standard deviations of a count's noise, below which a value is rare
_EFFORT = 4 * 10**7  # cells that a fit between two rounds may touch


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(RowOptions):
    """The base of recipes with private selection: `columns` are those of the rows, by default all.

    A recipe states which marginals may be counted and how it measures, and what its write-up says.
    """

    texts: ClassVar[Mapping[str, str]]
    """The paragraphs idea, preprocessing and privatisation of the write-up."""

    columns: Sequence[str] | None = None
    guide: Any = None
    bins: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            if not is_column_list(self.columns):
                raise RecipeError(f"{self.kind}: columns must list columns of the table, none twice")
            self._keep(columns=tuple(self.columns))
        self._keep(bins=parse_bins(self.bins, kind=self.kind))
        self._keep(guide=parse_public(self.guide, where=f"{self.kind}: guide", holds="codes"))
        RowOptions.__post_init__(self)

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record; what is not given is left out."""
        given = {"guide": self.guide, "bins": self.bins}
        added = {key: to_plain(value) for key, value in given.items() if value is not None}
        return {**RowOptions.to_record(self), **added}

    def list_counted(self, domain: Domain) -> tuple[Columns, ...]:
        """All marginals that may be counted."""
        raise NotImplementedError

    def measure(
        self, budget: RemainingBudget, domain: Domain, label: str, progress: Callable[[str], None]
    ) -> Asking:
        """The model of what was chosen and measured with `budget`; names of questions begin with `label`."""
        raise NotImplementedError

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """One allowance per epsilon: all that (epsilon, delta) admits of Gaussian privacy."""
        table = describe_grids(table, self.bins, kind=self.kind)
        columns = self._find_columns(table)
        if not set(self.bins or ()) <= set(columns):
            raise RecipeError(f"{self.kind}: bins names a column that the rows do not have")
        _refuse_names(self.kind, columns)
        domain = model_domain(table, columns)
        counted = self.list_counted(domain)
        recipe = self.with_public(table, columns).with_types((table, columns))
        if isinstance(self.guide, str):
            recipe = replace(recipe, guide=read_guide(self.guide, table, columns))
        if recipe.guide is not None:
            unpack_guide(recipe.guide, domain)  # what cannot be read is refused before a charge
        refuse_no_delta(self.kind, delta)
        cells = sum(domain.cells(columns) for columns in counted)
        if cells > _MOST_COUNTED:
            raise RecipeError(
                f"{self.kind}: the marginals that may be chosen have {cells:,} cells together, more than "
                f"{_MOST_COUNTED:,}; state a smaller workload, fewer columns or coarser domains"
            )
        return Plan(
            recipe=recipe,
            table=table,
            requests=(),
            epsilons=epsilons,
            delta=delta,
            allowance=tuple(allow_gaussian(table, epsilon, delta) for epsilon in epsilons),
            counted=counted,
        )

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """The rows of a model of what was chosen and measured, for one epsilon after the other."""
        columns = self._find_columns(plan.table)
        domain = model_domain(plan.table, columns)
        models: dict[str, Model] = {}
        tables, facts = [], []
        for epsilon, cost in zip(plan.epsilons, plan.costs, strict=True):
            assert cost.mu_squared is not None
            budget = RemainingBudget(plan.table, mu_squared=cost.mu_squared, room=_ROOM)
            label = label_epsilon(plan.epsilons, epsilon)
            fitting = yield from self.measure(budget, domain, label, progress)
            assert fitting.model is not None
            whole = fitting.compression.expand_model(fitting.model, limit=_WHOLE)
            model = quantise(fitting.model if whole is None else whole)
            model.seed = self.seed
            models[format_exact(epsilon)] = model
            count = min(round(model.total), _MOST_ROWS) if self.rows is None else self.rows
            compression = fitting.compression if whole is None else None
            codes = self._draw(plan.table, columns, model, compression, rows=count)
            within = self.within_bins
            tables.append(
                build_rows(plan.table, columns, codes, seed=self.seed, public=within, types=self.types)
            )
            sizes = fitting.domain
            facts.append(
                {
                    "epsilon": format_exact(epsilon),
                    "rows": tables[-1].num_rows,
                    "cliques": [list(clique) for clique in model.tree.cliques],
                    "compressed_to": {name: sizes[name] for name in columns if sizes[name] != domain[name]},
                    **({} if self.guide is None else {"guided": [list(each) for each in fitting.guided]}),
                }
            )
        return Product(
            table=stack_epsilons(plan.epsilons, tables),
            files={"model.parquet": pack_model(models)},
            facts={"models": facts},
        )

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up that are this recipe's own."""
        columns = self._find_columns(plan.table)
        bins = describe_bins(plan.table, columns, self.within_bins, self.types)
        facts = {"columns": ", ".join(columns), "bins": bins}
        texts = {**self.texts, "postprocessing": _POSTPROCESSING}
        told = {key: text.format(**facts) for key, text in texts.items()}
        if self.bins:
            told["postprocessing"] = _BINS.format(", ".join(self.bins)) + told["postprocessing"]
        if self.guide is not None:
            told["preprocessing"] += f" {_GUIDE_READ}"
            told["privatisation"] += f" {_GUIDE_ASKED}"
        return told

    def split_guide(self, budget: RemainingBudget) -> RemainingBudget:
        """The part of `budget` for asking whether the guide holds; nothing without a guide."""
        return budget.split(Fraction(0) if self.guide is None else TESTING)

    def follow_guide(
        self, testing: RemainingBudget, fitting: Fitting, label: str, *, most_cells: int
    ) -> Generator[tuple[Ask, ...], tuple[Answer, ...], None]:
        """Lets fits begin at the guide, if there is one, as far as what `testing` pays for bears it out."""
        if self.guide is not None:
            allowed = self.list_counted(fitting.compression.full)
            yield from follow_guide(self.guide, testing, fitting, allowed, label=label, most_cells=most_cells)

    def _draw(
        self, table: Table, columns: Columns, model: Model, compression: Compression | None, *, rows: int
    ) -> dict[str, NDArray[np.int64]]:
        """The codes of rows that obey the rules; `compression` is that of a model over joined values."""

        def draw(count: int, turn: int) -> dict[str, NDArray[np.int64]]:
            seed = turn_seed(self.seed, turn)
            codes = model.sample(count, seed=seed)
            return codes if compression is None else compression.expand(codes, seed=seed)

        return draw_obeying(table, columns, draw, rows=rows, seed=self.seed)

    def _find_columns(self, table: Table) -> Columns:
        """The columns of the rows: those that are listed, or all that have a domain."""
        if self.columns is not None:
            names = tuple(self.columns)
        else:
            names = tuple(name for name, column in table.columns.items() if column.domain is not None)
        if not names:
            raise RecipeError(f"{self.kind}: table {table.name!r} describes no column with a domain")
        for name in names:
            table.column(name)
        refuse_clash(self.kind, ["epsilon", *released_names(table, names)])
        return names


class RemainingBudget:
    """What is left of a charge in squared Gaussian privacy, mu^2, and how much noise a part of it buys."""

    def __init__(self, table: Table, *, mu_squared: Fraction, room: Fraction = Fraction(0)) -> None:
        self.table = table
        self.total = self.left = mu_squared - room
        self._room = room

    def split(self, part: Fraction) -> RemainingBudget:
        """A budget of its own with this part of the whole, which is deducted here."""
        amount = self.total * part
        self.total -= amount
        self.left -= amount
        self._room /= 2
        return RemainingBudget(self.table, mu_squared=amount + self._room, room=self._room)

    def spend(self, ask: Ask) -> Ask:
        """The question, its cost deducted."""
        cost = ask_cost(self.table, ask).mu_squared
        if cost is None or cost > self.left + self._room:
            raise RecipeError(f"{ask.name!r} costs more than is left of the recipe's budget")
        # Costs are rounded up, by which small ones may exceed what they were calibrated for.
        beyond = max(cost - self.left, Fraction(0))
        self._room -= beyond
        self.left -= cost - beyond
        return ask

    def calibrate_request(
        self, name: str, columns: Columns, mu_squared: Fraction, *, queries: Queries | None = None
    ) -> Request:
        """A request for the counts of a marginal, or for sums of them, that costs at most `mu_squared`."""
        return self.calibrate(name, Marginal(columns, queries), mu_squared)

    def calibrate(self, name: str, counted: Counted, mu_squared: Fraction) -> Request:
        """A request for whatever is counted, with the Gaussian noise that `mu_squared` buys."""
        return calibrate(self.table, name, counted, mu_squared)

    def calibrate_choice(self, mu_squared: Fraction) -> Fraction:
        """The epsilon of a choice that costs at most `mu_squared`."""
        # The exponential mechanism is as private as a pure one with half its epsilon (docs/proofs/choice.md).
        return 2 * mu_to_pure(mu_squared)

    def noise_deviation(self, mu_squared: Fraction) -> float:
        """The standard deviation, in records, of the noise that `mu_squared` buys for counts."""
        probe = self.calibrate_request("probe", (next(iter(self.table.columns)),), mu_squared)
        return float(probe.scale) / request_grid(self.table, probe)


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
        """The number of records, as all measurements together tell it."""
        return estimate_total(self.domain, merge_measurements(self.domain, self.noisy))

    def look_again(self, singles: Iterable[Answer]) -> Fitting:
        """A fitting of these and all earlier measurements of single columns."""
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
        """The model of all measurements, from the last one on."""
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


class Compression:
    """For every column with rare values, a smaller one in which they are the last value together.

    Made of noisy counts only, so it costs nothing. `shares` keeps in which proportion joined values were
    seen, for rows to be spread over them again. Columns in `whole` stay as they are. Of the cells of `grids`
    neighbours are joined to so many bins.
    """

    def __init__(
        self,
        domain: Domain,
        singles: Mapping[str, tuple[NDArray[np.float64], float]],
        *,
        whole: Collection[str] = (),
        grids: Mapping[str, tuple[int, Column]] | None = None,
    ) -> None:
        self.full = domain
        self.maps: dict[str, NDArray[np.int64]] = {}
        self.shares: dict[str, list[tuple[int, NDArray[np.int64], NDArray[np.float64]]]] = {}
        sizes: dict[str, int] = {}
        self._queries: dict[Columns, Queries | None] = {}
        for name, size in domain.items():
            sizes[name] = size
            values, sigma = singles[name]
            if grids and name in grids:
                count, column = grids[name]
                cells = size - len(column.extras)
                self.maps[name] = join_cells(values, sigma, bins=count, cells=cells)
                sizes[name] = int(self.maps[name].max()) + 1
                continue
            rare = np.flatnonzero(values < _RARE * sigma)
            if rare.size < 2 or name in whole:
                continue
            kept = np.flatnonzero(values >= _RARE * sigma)
            codes = np.full(size, kept.size, np.int64)
            codes[kept] = np.arange(kept.size)
            self.maps[name] = codes
            sizes[name] = int(kept.size) + 1
        self.domain = Domain(sizes)
        self._grids = set(grids or ())
        self.expected: dict[str, NDArray[np.float64]] = {}
        self.share_out(singles)

    def share_out(self, singles: Mapping[str, tuple[NDArray[np.float64], float]]) -> None:
        """Takes the proportions of joined values from measurements of single columns."""
        for name, codes in self.maps.items():
            values, sigma = singles[name]
            self.shares[name] = []
            for code in np.flatnonzero(np.bincount(codes) > 1).tolist():
                joined = np.flatnonzero(codes == code)
                seen = values[joined]
                if name in self._grids or name in self.expected:
                    expected = self.expected.get(name)
                    seen = _shrink(seen, sigma, None if expected is None else expected[joined])
                self.shares[name].append((code, joined, np.maximum(seen, 0.0)))

    def queries(self, columns: Columns) -> Queries | None:
        """The sums over the marginal of `columns` that are the compressed one; None if they are equal."""
        if columns not in self._queries:
            self._queries[columns] = self._sum_joined(columns)
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
            back = np.empty(self.domain[name], np.int64)
            back[self.maps[name][::-1]] = np.arange(self.full[name])[::-1]  # the first value of each
            values = back[column]
            for place, (code, joined, shares) in enumerate(self.shares[name]):
                rows = np.flatnonzero(column == code)
                drawn = draw_codes(shares, rows.size, seed=seed, turn=turn + _TURNS * place)
                values[rows] = joined[drawn]
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
        return replace(model, tree=whole, values=np.concatenate(tables))

    def _parts(self, name: str) -> NDArray[np.float64]:
        """For every value of the full column, its part of the value it became."""
        parts = np.ones(self.full[name])
        for _, joined, shares in self.shares[name]:
            total = float(shares.sum())
            parts[joined] = shares / total if total > 0 else 1 / joined.size
        return parts

    def _sum_joined(self, columns: Columns) -> Queries | None:
        if not any(name in self.maps for name in columns):
            return None
        # For every cell of the full marginal, its cell of the compressed one.
        places = np.zeros(1, np.int64)
        for name in columns:
            codes = self.maps.get(name, np.arange(self.full[name]))
            places = np.add.outer(places * self.domain[name], codes).reshape(-1)
        rows = self.domain.cells(columns)
        starts = np.concatenate(([0], np.cumsum(np.bincount(places, minlength=rows))))
        members = np.argsort(places, kind="stable")
        weights = np.ones(members.size, np.int64)
        return Queries(cells=places.size, grid=1, starts=starts, members=members, weights=weights)


def _average(
    one: tuple[NDArray[np.float64], float], other: tuple[NDArray[np.float64], float]
) -> tuple[NDArray[np.float64], float]:
    """Two measurements of the same counts, with their standard deviations, as one."""
    variances = one[1] ** 2, other[1] ** 2
    both = 1 / (1 / variances[0] + 1 / variances[1])
    return one[0] * (both / variances[0]) + other[0] * (both / variances[1]), math.sqrt(both)


def _shrink(
    values: NDArray[np.float64], sigma: float, expected: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Noisy values, drawn to their centre by the part of their variance that is noise.

    The centre is their mean or, if that is nearer, their sum in the proportions that are `expected`.
    """
    centre: NDArray[np.float64] | float = float(values.mean())
    distance = float(((values - centre) ** 2).sum())
    if expected is not None and expected.sum() > 0:
        other = expected * (max(0.0, float(values.sum())) / expected.sum())
        if float(((values - other) ** 2).sum()) < distance:
            centre, distance = other, float(((values - other) ** 2).sum())
    variance = distance / max(1, values.size - 1)
    part = max(0.0, 1 - sigma**2 / variance) if variance > 0 else 0.0
    return np.asarray(centre + part * (values - centre))


def measure_singles(
    budget: RemainingBudget,
    domain: Domain,
    mu_squared: Fraction,
    *,
    label: str,
    progress: Callable[[str], None],
    bins: Mapping[str, int] | None = None,
) -> Asking:
    """A fitting of every single column of `domain`, measured for `mu_squared` of `budget` in all.

    Names of measurements begin with `label`; `progress` is called with each stage of the fit. `bins` are
    those that the records choose.
    """
    share = mu_squared / len(domain)
    asks = [budget.calibrate_request(f"{label}{name}", (name,), share) for name in domain]
    answers = yield tuple(budget.spend(ask) for ask in asks)
    return Fitting(budget.table, domain, answers, progress, bins=bins)


def noise_distance(sigma: float, cells: float) -> float:
    """The L1 distance that noise of `sigma` in each of `cells` adds on average."""
    return sigma * cells * math.sqrt(2 / math.pi)


def count_rounds(budget: RemainingBudget, mu_squared: Fraction, cells: float, total: float) -> float:
    """How many marginals of so many cells are worth their noise if they share `mu_squared`.

    Let n be the noise of one of them, over the `total` of records, if it had all. The k-th best of k, each
    with a k-th, has noise n * sqrt(k); taking gaps to fall as 1 / k, it is worth its noise and the half of it
    that others would gain by its share while 1 / k > 1.5 * n * sqrt(k). So there are (1.5 * n)^(-2/3).
    """
    noise = noise_distance(budget.noise_deviation(mu_squared), 1) * cells / total
    return float((1.5 * noise) ** (-2 / 3))


def round_part(number: float) -> Fraction:
    """A part of a budget as a multiple of 1 / 64, the same on every machine."""
    return Fraction(round(number * _FINE), _FINE)


def offer_marginal(
    fitting: Fitting, columns: Columns, *, grid: int, weight: int, penalty: float
) -> Candidate:
    """A candidate of a choice: `columns`, scored by their distance from the model of `fitting`.

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


def calibrate(table: Table, name: str, counted: Counted, mu_squared: Fraction) -> Request:
    """A request with Gaussian noise that costs at most `mu_squared`."""
    probe = Request(name=name, counted=counted, noise="gaussian", scale=Fraction(1))
    sensitivity = float(request_sensitivity(table, probe))
    sigma = math.sqrt(sensitivity**2 / float(mu_squared) + SMOOTHING)
    return replace(probe, scale=round_up(Fraction(sigma * (1 + 1e-9)), places=6))


def allow_gaussian(table: Table, epsilon: Fraction, delta: Fraction) -> Cost:
    """What is charged for one epsilon."""
    # A hair less than all, so that no rounding of sums exceeds epsilon.
    scale = Fraction(int(max_mu(epsilon, delta) * (1 - 1e-9) * _GRAIN), _GRAIN)
    if scale < _LEAST:
        raise RecipeError(
            f"epsilon {format_exact(epsilon)} at this delta buys less than can be measured; spend more"
        )
    return Cost(kind="filter", scale=scale, neighbours=table.unit.neighbours, unit=table.unit.name)


def _refuse_names(kind: str, columns: Columns) -> None:
    """Refuses columns that are called like a question about others, which need names of their own."""
    for name in columns:
        joins = " x " in name and set(name.split(" x ")) <= set(columns)
        if joins or re.fullmatch(r"(choice|round|pair) \d+(: .*)?|(again|at last|guide): .*", name):
            raise RecipeError(
                f"{kind}: column {name!r} is called like a question that is asked of other columns; describe "
                "it under another name, with `from`"
            )


_POSTPROCESSING = (
    "Values too rare to be told from noise are joined, and rows are spread over them again in the "
    "proportions that their noisy counts have. Rows are drawn from the model from a public seed. {bins} All "
    "of it uses noisy answers and public facts only, so it costs nothing."
)
_BINS = (
    "Columns without a domain ({}) are measured on a public grid between their bounds; neighbouring cells "
    "are joined to bins between noisy quantiles, over which marginals are measured. "
)
_GUIDE_READ = (
    "A public table, the guide, is read before any record: it tells which pairs of columns depend on each "
    "other, and how."
)
_GUIDE_ASKED = (
    "A fortieth of the budget goes to the guide: for each of its pairs one sum of counts, with signs, is "
    "measured with Gaussian noise once single columns are. It tells whether the records are rather as the "
    "guide says or as independent columns would be. Fits begin at the model of the pairs that hold."
)
