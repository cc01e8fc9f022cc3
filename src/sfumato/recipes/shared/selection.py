"""What recipes share that choose privately which marginals they measure.

`Selection` is their base: it charges all that (epsilon, delta) admits of Gaussian privacy beforehand, lets a
recipe ask until `RemainingBudget` is spent, and draws rows from the model of all answers. `Fitting` is that
model, over columns whose rare values are joined by `Compression`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_whole
from sfumato.core.facts.column import NULL
from sfumato.core.facts.domain import Bins, Calendar, Values, list_dates
from sfumato.core.questions.choices import Candidate, Choice
from sfumato.core.questions.measurement import Measurement, in_records
from sfumato.core.questions.question import Queries
from sfumato.inference.domain import Columns, Domain, estimate_total, merge_measurements
from sfumato.inference.domain import Measurement as Noisy
from sfumato.inference.estimation import LARGEST_TREE, fit_model, order_mask
from sfumato.inference.files import pack_model, quantise
from sfumato.inference.model import Model, number_cells
from sfumato.inference.tree import Growth, build_tree
from sfumato.recipes.base import Asking, Conversation, Plan, Product, Progress, released_names, write_part
from sfumato.recipes.shared.budget import RemainingBudget, allow_gaussian
from sfumato.recipes.shared.compression import Compression, take_contrasts
from sfumato.recipes.shared.public import open_public, pack_numbers, parse_public, unpack_numbers
from sfumato.recipes.shared.repair import draw_obeying, turn_seed
from sfumato.recipes.shared.rows import RowOptions, build_rows, choose_columns, describe_bins, model_domain
from sfumato.recipes.shared.rules import find_zeros
from sfumato.tables.arrays import Floats, Whole
from sfumato.tables.codes import encode_public

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


CHOICE = Fraction(1, 10)  # of the budget of a round, for choosing
_FINE = 64  # numbers of shares are whole multiples of 1 / _FINE, the same on every machine
_EFFORT = 4 * 10**7  # cells that a fit between two rounds may touch


class Fitting:
    """The measurements so far, over compressed columns, and the model of them."""

    def __init__(
        self,
        table: Table,
        domain: Domain,
        singles: Iterable[Measurement],
        progress: Progress,
        *,
        bins: Mapping[str, int] | None = None,
        known: Mapping[str, tuple[Floats, float]] | None = None,
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

    def look_again(self, singles: Iterable[Measurement]) -> Fitting:
        """Return a fitting of these and all earlier measurements of single columns."""
        full = self.compression.full
        return Fitting(self._table, full, singles, self.progress, bins=self._bins, known=self.known)

    def add(self, answers: Iterable[Measurement]) -> None:
        """Adds measurements of marginals, summed as the compression asks, or of differences."""
        for answer in answers:
            values, sigma = in_records(answer)
            columns, asked = answer.request.columns, answer.request.queries
            signed = take_contrasts(self.compression, columns) if asked and asked.is_signed else None
            queries = None if signed is None else signed.fitted
            self.noisy.append(Noisy(columns=columns, values=values, sigma=sigma, queries=queries))

    def refine(self, singles: Iterable[Measurement]) -> None:
        """Adds measurements of full single columns; which values are joined stays as it is."""
        self._average(singles)
        fresh = [self.compression.single(name, *single) for name, single in self.known.items()]
        self.noisy[: len(fresh)] = fresh
        self.compression.share_out(self.known)

    def _average(self, singles: Iterable[Measurement]) -> None:
        for answer in singles:
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


def _average(one: tuple[Floats, float], other: tuple[Floats, float]) -> tuple[Floats, float]:
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
    progress: Progress,
    bins: Mapping[str, int] | None = None,
) -> Asking[Fitting]:
    """Return a fitting of every single column of `domain`, measured for `mu_squared` of `budget` in all.

    Names of measurements begin with `label`; `progress` is called with each stage of the fit. `bins` are
    those that the records choose.
    """
    share = mu_squared / len(domain)
    answers = yield tuple(budget.count(f"{label}{name}", (name,), share) for name in domain)
    return Fitting(budget.table, domain, answers, progress, bins=bins)


def choose_marginal(
    budget: RemainingBudget, name: str, candidates: tuple[Candidate, ...], mu_squared: Fraction
) -> Asking[Columns]:
    """Return the columns of the candidate that a private choice for `mu_squared` takes."""
    epsilon = budget.calibrate_choice(mu_squared)
    (chosen,) = yield (budget.spend(Choice(name=name, candidates=candidates, epsilon=epsilon)),)
    columns: Columns = candidates[chosen.index].columns
    return columns


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


_ROOM = Fraction(1, 10**13)  # of the squared privacy of a run, for what rounding adds to its costs
_MOST_COUNTED = 2**27  # cells of all marginals that may be asked about; so many counts fit into memory
_MOST_ROWS = 2**24  # that noise may ask for; a recipe may state more
_WHOLE = 2**21  # cells up to which a model is released over the full domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(RowOptions):
    """The base of recipes with private selection: `columns` are those of the rows, by default all.

    A recipe states which marginals may be counted and how it measures, and what its write-up says.
    """

    optional: ClassVar[tuple[str, ...]] = ("guide", "bins")

    columns: Sequence[str] | None = None
    guide: Any = None
    bins: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        self._keep_columns("columns")
        self._keep(bins=parse_bins(self.bins, kind=self.kind))
        self._keep(guide=parse_public(self.guide, where=f"{self.kind}: guide", holds="codes"))
        RowOptions.__post_init__(self)

    def list_counted(self, domain: Domain) -> tuple[Columns, ...]:
        """Return all marginals that may be counted."""
        raise NotImplementedError

    def measure(
        self, budget: RemainingBudget, domain: Domain, label: str, progress: Progress
    ) -> Asking[Fitting]:
        """The model of what was chosen and measured with `budget`; names of questions begin with `label`."""
        raise NotImplementedError

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one allowance per epsilon: all that (epsilon, delta) admits of Gaussian privacy."""
        bins = self._find_bins(table)
        dates = {name: table.columns[name].dates for name in bins or () if name in table.columns}
        table = describe_grids(table, bins, kind=self.kind)
        columns = self._find_columns(table)
        if not set(bins or ()) <= set(columns):
            raise RecipeError(f"{self.kind}: bins names a column that the rows do not have")
        _refuse_names(self.kind, columns)
        domain = model_domain(table, columns)
        counted = self.list_counted(domain)
        dated = {name: "date {} {}".format(*ends) for name, ends in dates.items() if ends is not None}
        recipe = (
            replace(self, bins=bins).with_public(table, columns).with_types((table, columns), dated=dated)
        )
        if isinstance(self.guide, str):
            recipe = replace(recipe, guide=read_guide(self.guide, table, columns))
        if recipe.guide is not None:
            unpack_guide(recipe.guide, domain)  # what cannot be read is refused before a charge
        self.refuse_no_delta(delta)
        cells = sum(domain.cells(columns) for columns in counted)
        if cells > _MOST_COUNTED:
            raise RecipeError(
                f"{self.kind}: the marginals that may be chosen have {cells:,} cells together, more than "
                f"{_MOST_COUNTED:,}; state a smaller workload, fewer columns or coarser domains"
            )
        allowance = tuple(allow_gaussian(table, epsilon, delta) for epsilon in epsilons)
        return Plan(recipe, table, epsilons, delta, allowance=allowance, counted=counted)

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return the rows of a model of what was chosen and measured, for one epsilon after the other."""
        columns = self._find_columns(plan.table)
        domain = model_domain(plan.table, columns)
        models: dict[str, Model] = {}
        tables, facts = [], []
        for epsilon, cost in zip(plan.epsilons, plan.costs, strict=True):
            assert cost.mu_squared is not None
            budget = RemainingBudget(plan.table, mu_squared=cost.mu_squared, room=_ROOM)
            label = plan.label(epsilon)
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
            table=plan.stack(tables), files={"model.parquet": pack_model(models)}, facts={"models": facts}
        )

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        columns = self._find_columns(plan.table)
        guided = self.guide is not None
        return {
            "columns": ", ".join(columns),
            "binned": write_part("selection", "binned", bins=", ".join(self.bins)) if self.bins else "",
            "bins": describe_bins(plan.table, columns, self.within_bins, self.types),
            "guide_read": write_part("selection", "guide_read") if guided else "",
            "guide_asked": write_part("selection", "guide_asked") if guided else "",
        }

    def split_guide(self, budget: RemainingBudget) -> RemainingBudget:
        """Return the part of `budget` for asking whether the guide holds; nothing without a guide."""
        return budget.split(Fraction(0) if self.guide is None else TESTING)

    def follow_guide(
        self, testing: RemainingBudget, fitting: Fitting, label: str, *, most_cells: int
    ) -> Asking[None]:
        """Lets fits begin at the guide, if there is one, as far as what `testing` pays for bears it out."""
        if self.guide is not None:
            allowed = self.list_counted(fitting.compression.full)
            yield from follow_guide(self.guide, testing, fitting, allowed, label=label, most_cells=most_cells)

    def _draw(
        self, table: Table, columns: Columns, model: Model, compression: Compression | None, *, rows: int
    ) -> dict[str, Whole]:
        """Return codes of rows that obey the rules; `compression` is that of a model over joined values."""

        def draw(count: int, turn: int) -> dict[str, Whole]:
            seed = turn_seed(self.seed, turn)
            codes = model.sample(count, seed=seed)
            return codes if compression is None else compression.expand(codes, seed=seed)

        return draw_obeying(table, columns, draw, rows=rows, seed=self.seed)

    def _find_bins(self, table: Table) -> Mapping[str, int] | None:
        """Return the most bins of every column without a domain that takes part: as stated, or as usual."""
        stored = {name for each in table.columns.values() if each.domain is not None for name in each.stored}
        usual = {
            name: _USUAL_BINS
            for name, column in table.columns.items()
            if column.domain is None
            and (column.bounds is not None or column.dates is not None)
            and name != table.unit.period
            and (name in self.columns if self.columns is not None else column.stored[0] not in stored)
        }
        return {**usual, **(self.bins or {})} or None

    def _find_columns(self, table: Table) -> Columns:
        """Return the columns of the rows: those that are listed, or all that have a domain."""
        names = choose_columns(self, self.columns, table)
        self.refuse_clash(["epsilon", *released_names(table, names)])
        return names


def _refuse_names(kind: str, columns: Columns) -> None:
    """Refuses columns that are called like a question about others, which need names of their own."""
    for name in columns:
        joins = " x " in name and set(name.split(" x ")) <= set(columns)
        if joins or re.fullmatch(r"(choice|round|pair) \d+(: .*)?|(again|at last|guide): .*", name):
            raise RecipeError(
                f"{kind}: column {name!r} is called like a question that is asked of other columns; describe "
                "it under another name, with `from`"
            )


# A public table as guide gives a model: single columns and pairs that stand out, joined to the cliques of a
# junction tree. Fits begin there, so that of all models that explain the noisy answers the one nearest to
# the public table is found, and rounds look for what it gets wrong. Pairs that the records contradict are
# left out before: for each one sum of counts is measured that tells which of two models is right, the guided
# one or that of independent columns.

TESTING = Fraction(1, 40)  # of the whole budget, for asking whether the records are like the public table

_GUIDE_ROWS = 2**16  # kept in the plan; more tell pairs no better than noise lets them be used
_CHANCE = 2.0  # times what chance makes of independent columns, from which a pair stands out

Codes = dict[str, Whole]


def read_guide(path: str, table: Table, columns: Sequence[str]) -> dict[str, Any]:
    """Return what a plan keeps of the public table at `path`: the codes of its rows, by column, packed.

    Columns that it does not have are left out; of many rows, evenly spaced ones are kept.
    """
    rows, record = open_public(path)
    shared = [name for name in columns if set(table.column(name).stored) <= set(rows.column_names)]
    if len(shared) < 2:
        raise RecipeError(
            f"guide {record['file']!r} has fewer than two of the columns of table {table.name!r}, so that "
            "it cannot tell how they depend on each other; name a public table with columns of these names"
        )
    if rows.num_rows > _GUIDE_ROWS:
        rows = rows.take(np.arange(_GUIDE_ROWS) * rows.num_rows // _GUIDE_ROWS)
    codes = {name: encode_public(table.column(name), rows) for name in shared}
    known = [name for name in shared if (codes[name] >= 0).any()]
    if len(known) < 2:
        raise RecipeError(
            f"guide {record['file']!r} has no value of the domains of table {table.name!r} in two columns; "
            "its values must be spelled as in the project file"
        )
    record["codes"] = {name: pack_numbers(codes[name], "<i4") for name in known}
    return record


def unpack_guide(record: Mapping[str, Any], domain: Domain) -> Codes:
    """Return the codes of public rows by column, -1 where a row has no value of the domain."""
    packed = record["codes"] if isinstance(record["codes"], Mapping) else {}
    found = {name: unpack_numbers(packed, name, "<i4", most=4 * _GUIDE_ROWS) for name in packed}
    codes = {name: each for name, each in found.items() if each is not None}
    sizes = {each.size for each in codes.values()}
    shared = [name for name in codes if name in domain]
    if len(codes) != len(packed) or len(sizes) != 1 or 0 in sizes or len(shared) < 2:
        raise RecipeError("the rows of the guide cannot be read; plan the recipe from its file again")
    for name, each in codes.items():
        if name in domain and not -1 <= int(each.min()) <= int(each.max()) < domain[name]:
            raise RecipeError("the rows of the guide are not of this table; plan the recipe again")
    return {name: codes[name] for name in domain if name in codes}


def follow_guide(
    record: Mapping[str, Any],
    budget: RemainingBudget,
    fitting: Fitting,
    allowed: Collection[Columns],
    *,
    label: str,
    most_cells: int,
) -> Asking[None]:
    """Sets where fits of `fitting`, of single columns so far, begin: at the guide, as far as it holds.

    `budget` is spent on asking, `allowed` are marginals that may be asked about, names of questions begin
    with `label`. The guided model has at most `most_cells`, and no more than the guide has rows.

    Privacy: sums of counts with signs, each cell in one sum at most once, with Gaussian noise
    (docs/proofs/adaptive.md).
    """
    plain = fitting.fit()
    full = unpack_guide(record, fitting.compression.full)
    codes = {
        name: np.where(each >= 0, fitting.compression.maps[name][each], -1)
        if name in fitting.compression.maps
        else each
        for name, each in full.items()
    }
    fitting.compression.expected = {name: _count(full, fitting.compression.full, (name,)) for name in codes}
    fitting.compression.share_out(fitting.known)
    rows = next(iter(codes.values())).size
    zeros = [columns for columns, _ in fitting.zeros]
    edges = _find_edges(codes, fitting.domain, allowed, most_cells=min(most_cells, rows), held=zeros)
    if not edges:
        return
    fitting.begin(_build_model(codes, fitting.domain, edges, total=plain.total))
    guided = fitting.fit()
    share = budget.left / len(edges)
    asks, levels, gaps = [], [], []
    for columns in edges:
        before, after = plain.flat_marginal(columns), guided.flat_marginal(columns)
        signs = np.sign(np.where(np.abs(after - before) > 1e-6 * plain.total, after - before, 0.0))
        queries = _spread_signs(signs.astype(np.int64), columns, fitting)
        asks.append(budget.count(f"{label}guide: {' x '.join(columns)}", columns, share, queries=queries))
        levels.append(float(signs @ before))
        gaps.append(float(signs @ (after - before)))
    answers = yield tuple(asks)
    trust = _weigh_trust(answers, np.array(levels), np.array(gaps))
    kept = [columns for columns, part in zip(edges, trust, strict=True) if part > 0.5]
    fitting.progress(f"guide: {len(kept)} of {len(edges)} pairs of columns are as in the public table")
    fitting.begin(_build_model(codes, fitting.domain, kept, total=plain.total) if kept else None)


def _find_edges(
    codes: Codes,
    domain: Domain,
    allowed: Collection[Columns],
    *,
    most_cells: int,
    held: Sequence[Columns] = (),
) -> list[Columns]:
    """Return pairs of columns that stand out in the public rows, as many as make a model of so many cells.

    The cells are those beside what a model needs that holds the marginals `held`.
    """
    found: list[tuple[float, Columns]] = []
    known = set(allowed)
    for pair in combinations(codes, 2):
        if pair not in known or min(domain.shape(pair)) < 2:
            continue
        counts = _count(codes, domain, pair).reshape(domain.shape(pair))
        rows = counts.sum()
        if rows == 0:
            continue
        left, right = counts.sum(axis=1) / rows, counts.sum(axis=0) / rows
        distance = float(np.abs(counts / rows - np.outer(left, right)).sum())
        # The mean of the distance for independent columns: that of a normal law in every cell.
        chance = math.sqrt(2 / (math.pi * rows)) * float(np.sqrt(left).sum() * np.sqrt(right).sum())
        if distance > _CHANCE * chance:
            found.append((distance - chance, pair))
    edges: list[Columns] = []
    first = build_tree(domain, held)
    growth, most_cells = Growth(first), most_cells + first.cells
    for _, edge in sorted(found, key=lambda each: (-each[0], each[1])):
        if growth.cells(edge) <= most_cells:
            edges.append(edge)
            if edge not in growth.joined:
                growth = Growth(build_tree(domain, [*held, *edges]))
    return edges


def _build_model(codes: Codes, domain: Domain, edges: Sequence[Columns], *, total: float) -> Model:
    """Return the model of the public rows on the tree of `edges`, with `total` records.

    What a clique has not shown yet is expected to be as much as it has shown once (Good 1953), and is spread
    as over independent columns.
    """
    tree = build_tree(domain, edges)
    tables = []
    for clique in tree.cliques:
        counts = np.ones(1)
        if set(clique) <= set(codes):
            counts = _count(codes, domain, clique)
        if counts.sum() == 0 or counts.size == 1:
            tables.append(np.full(domain.cells(clique), total / domain.cells(clique)))
            continue
        rows = counts.sum()
        unseen = (1 + float((counts == 1).sum())) / (1 + rows)
        shaped = counts.reshape(domain.shape(clique))
        spread = np.ones(1)
        for axis in range(len(clique)):
            single = shaped.sum(axis=tuple(other for other in range(len(clique)) if other != axis))
            spread = np.outer(spread, (single + 0.5) / (single + 0.5).sum()).reshape(-1)
        tables.append(total * ((1 - unseen) * counts / rows + unseen * spread))
    return Model(tree, np.concatenate(tables), total=total, loss=0.0)


def _count(codes: Codes, domain: Domain, columns: Columns) -> Floats:
    """Return the public rows in every cell of `columns`; rows that lack a value are left out."""
    known = np.min(np.stack([codes[name] for name in columns]), axis=0) >= 0
    cells = number_cells({name: codes[name][known] for name in columns}, columns, domain)
    return np.bincount(cells, minlength=domain.cells(columns)).astype(np.float64)


def _spread_signs(signs: Whole, columns: Columns, fitting: Fitting) -> Queries:
    """One query over the full marginal of `columns`: every cell with the sign of its compressed cell."""
    compression = fitting.compression
    shaped = signs.reshape(fitting.domain.shape(columns))
    for axis, name in enumerate(columns):
        if name in compression.maps:
            shaped = np.take(shaped, compression.maps[name], axis=axis)
    weights = shaped.reshape(-1)
    members = np.flatnonzero(weights)
    return Queries(
        cells=weights.size,
        grid=1,
        starts=np.array([0, members.size]),
        members=members,
        weights=weights[members],
    )


def _weigh_trust(answers: Sequence[Measurement], levels: Floats, gaps: Floats) -> Floats:
    """Return how much of what the guide says of each pair holds: 0 as for independent columns, 1 as it says.

    Every pair has an estimate with a known error. What pairs differ by beyond it is estimated by moments
    (DerSimonian and Laird 1986), and estimates are drawn to their mean accordingly.
    """
    measured = [in_records(answer) for answer in answers]
    values = np.array([float(value[0]) for value, _ in measured])
    weights = (np.maximum(gaps, 1e-9) / np.array([sigma for _, sigma in measured])) ** 2
    trust = (values - levels) / np.maximum(gaps, 1e-9)
    mean = float(weights @ trust / weights.sum())
    excess = float(weights @ (trust - mean) ** 2) - (trust.size - 1)
    spread = weights.sum() - float((weights**2).sum() / weights.sum())
    between = max(0.0, excess / spread) if trust.size > 1 else 0.0
    part = between / (between + 1 / weights)
    return np.asarray(mean + part * (trust - mean))


# Columns with bounds and without a domain are counted over a public grid between their bounds, fine at both
# scales: steps of equal width, and steps that grow with the distance from zero, or from the nearer end. Those
# with a range of dates are counted over its days, weeks or months. Once its noisy counts are there,
# neighbouring cells are joined to bins of about equal counts, and marginals are measured over these. So bins
# are noisy quantiles, and cost nothing beyond the measurement of a column.

_CELLS = 128  # of equal width, and as many that grow
_REACH = 2.0**14  # the widest growing cell beside the narrowest
_USUAL_BINS = 16
_MOST_PERIODS = 400  # of a range of dates: the days of a year, the weeks of seven, or else its months
_MOST_BINS = 100  # each needs a count that stands out of its noise


def parse_bins(value: object, *, kind: str) -> dict[str, int] | None:
    """Return how many bins a recipe asks for, by column."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise RecipeError(f"{kind}: bins must name columns with bounds or dates, such as {{income = 16}}")
    return {
        str(name): parse_whole(count, name=f"{kind}: bins of {name}", low=2, high=_MOST_BINS)
        for name, count in value.items()
    }


def describe_grids(table: Table, bins: Mapping[str, int] | None, *, kind: str) -> Table:
    """Return the table whose columns in `bins` have the public grid between their bounds for a domain.

    That of a range of dates are its days, weeks or months, the finest of which there are not too many.
    """
    if not bins:
        return table
    columns = dict(table.columns)
    for name in bins:
        column = table.columns[name] if name in table.columns else table.column(name)
        if column.calendar is not None:
            continue
        if column.dates is not None:
            # A date beyond the range counts in the other columns, and is no date in the rows.
            calendar, domain = _fit_calendar(*column.dates)
            columns[name] = replace(
                column, domain=domain, calendar=calendar, dates=None, outside="other", missing_label=NULL
            )
            continue
        if column.bounds is None:
            raise RecipeError(
                f"{kind}: bins: column {name!r} needs bounds = [low, high] or a range of dates in the "
                "project file, and no domain"
            )
        grid = Bins(fine_edges(*column.bounds))
        # In a plan that reads back from its record the grid is there already.
        if column.domain not in (None, grid):
            raise RecipeError(f"{kind}: bins: column {name!r} has a domain; its bins are those")
        # A missing value is one of its own, because a record without it counts in other columns.
        columns[name] = replace(column, domain=grid, outside="clamp", nullable=True, missing_label=NULL)
    return replace(table, columns=columns)


def _fit_calendar(first: date, last: date) -> tuple[Calendar, Values]:
    """Return the finest calendar of which a range of dates has few enough periods, and these."""
    days = (last - first).days
    calendar: Calendar = "day" if days < _MOST_PERIODS else "week" if days < 7 * _MOST_PERIODS else "month"
    return calendar, list_dates(calendar, first, last)


def fine_edges(low: Fraction, high: Fraction) -> tuple[Fraction, ...]:
    """Return the edges of the grid between two bounds, whole where these are.

    >>> edges = fine_edges(Fraction(0), Fraction(1_000_000))
    >>> [int(edge) for edge in edges[:4]], int(edges[-1]), len(edges)
    ([0, 4, 9, 15], 1000000, 256)
    """
    start = min(max(low, Fraction(0)), high)  # zero, or the end that is nearer to it
    found = {low + (high - low) * Fraction(place, _CELLS) for place in range(_CELLS + 1)}
    for end in (low, high):
        if end != start:
            found |= {start + (end - start) * part for part in _growing(_CELLS)}
    if low.denominator == high.denominator == 1:
        found = {Fraction(round(edge)) for edge in found}
    return tuple(sorted({low, high} | found))


def _growing(cells: int) -> list[Fraction]:
    """Return places from 0 to 1 whose distances grow by one factor, in decimals."""
    factor = math.exp(math.log(_REACH) / (cells - 1))
    places = [(factor**place - 1) / (factor**cells - 1) for place in range(cells + 1)]
    return [Fraction(round(place * 10**9), 10**9) for place in places]
