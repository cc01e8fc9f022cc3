"""The rounds of adaptive granularity: what is measured, with which noise, and what its answers flag.

`Rounds` asks, marginal by marginal. `Blocks` are the queries of a marginal: plausible cells one by one, all
others in sums of smaller marginals. `Pool` averages the answers about the same cells. Norms bound
contributions where max_records is far above what most individuals contribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, islice
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.accounting import max_mu, mu_to_pure
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import SMOOTHING, sqrt_up
from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_positive, round_up
from sfumato.core.questions.choices import NormChoice
from sfumato.core.questions.counts import ClippedMarginal, IndividualCounts, Marginal
from sfumato.core.questions.measurement import (
    Measurement,
    Request,
    ask_cost,
    in_records,
    request_sensitivity,
)
from sfumato.core.questions.question import Queries
from sfumato.inference.domain import Columns, Domain, Sparse, estimate_total, merge_measurements
from sfumato.inference.domain import Measurement as Noisy
from sfumato.inference.shrinkage import shrink_counts
from sfumato.recipes.base import Asking, Progress
from sfumato.recipes.shared.budget import sum_groups
from sfumato.tables.arrays import Flags, Floats, Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

Norms = Fraction | Mapping[int, Fraction] | Literal["auto"] | None

GRID = 2**10
"""Weights are whole multiples of 1 / GRID, rounded down; up to four columns that loses 0.2 % at most."""

USUAL_QUANTILE = Fraction(19, 20)
"""The share of individuals that are to be within a chosen norm, if none is stated."""

_CHOICE_SHARE = Fraction(1, 50)  # of the squared Gaussian privacy, for choosing norms
_MOST_SHRUNK = 2**14  # cells of a pair, since the law of more would take long to find
_STIFFEST = 0.3  # of the noise: shrunk counts are no surer than this, so that a fit can still move them
_PLACES = 3  # decimals of a norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Marginals, closed downwards, to be measured at one epsilon: `times` says how often each.

    With a `quantile`, chosen norms hold fewer individuals, and the number of records is asked for as well.
    `span` is a column and the number of its values that an individual has records in, at most: then
    individuals are counted by their number of records in each value.

    Privacy: `costs` are all that will be asked, from public facts alone. A measurement has the ratio of
    sensitivity to noise of the planned `cost`, whatever its queries and its norm, and never more.
    """

    table: Table
    domain: Domain
    times: Mapping[Columns, int]
    threshold: Fraction
    norms: Norms
    epsilon: Fraction
    delta: Fraction
    label: str = ""
    quantile: Fraction | None = None
    span: tuple[str, int] | None = None

    @property
    def choices(self) -> tuple[NormChoice, ...]:
        """Return one choice of a norm for every number of columns, if norms are not stated.

        Each looks at the marginal with the fewest cells, where contributions are most concentrated.
        """
        if self.norms != "auto":
            return ()
        domain, marginals = self.domain, tuple(self.times)
        sizes = sorted({len(columns) for columns in marginals})
        # The exponential mechanism is as private as a pure one with half its epsilon (docs/proofs/choice.md).
        epsilon = 2 * mu_to_pure(_CHOICE_SHARE * self._squared / len(sizes))
        if epsilon <= 0:
            raise RecipeError("epsilon is too small to choose norms privately; state them as numbers")
        return tuple(
            NormChoice(
                name=f"norm of {size} column{'s' if size > 1 else ''}{self.label}",
                columns=min(
                    (columns for columns in marginals if len(columns) == size),
                    key=lambda columns: (domain.cells(columns), columns),
                ),
                norms=_list_norms(self.table.unit.max_records),
                quantile=self.quantile or USUAL_QUANTILE,
                epsilon=epsilon,
            )
            for size in sizes
        )

    @property
    def cost(self) -> Cost:
        """Return the planned cost of each measurement: the exact Gaussian calibration for their number."""
        left = self._squared
        for choice in self.choices:
            left -= ask_cost(self.table, choice).mu_squared or 0
        probe = _probe(tuple(self.domain)[:1])
        squared = self.number * request_sensitivity(self.table, probe) ** 2 / left
        scale = round_up(sqrt_up(squared + SMOOTHING), places=6)
        return ask_cost(self.table, replace(probe, scale=scale))

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Return what is charged beforehand."""
        chosen = [ask_cost(self.table, choice) for choice in self.choices]
        return (*chosen, *[self.cost] * self.number)

    def check_noise(self) -> None:
        """Refuses noise that is too wide to be drawn."""
        norms = {stated_norm(self.norms, len(columns)) for columns in self.times}
        if self.norms == "auto":
            norms = {Fraction(self.table.unit.max_records)}
        for norm in norms:
            self._calibrate(self.cost, _probe(tuple(self.domain)[:1], norm))

    def measure(self, progress: Progress) -> Asking[Pool]:
        """Return the noisy sums of all rounds, from single columns upwards."""
        chosen: dict[int, Fraction] = {}
        blocks, pool = Blocks(self.domain), Pool(self.domain)
        cost = self.cost
        counted = tuple(self._calibrate(cost, request) for request in self._whole)
        counts: tuple[Measurement, ...] = ()
        if self.choices or counted:
            progress("choosing contribution norms")
            given = yield (*self.choices, *counted)
            for choice, answer in zip(self.choices, given, strict=False):
                chosen[len(choice.columns)] = choice.norms[answer.index]
            counts = given[len(self.choices) :]
        mixed: dict[Columns, Fraction] = {}
        sizes = sorted({len(columns) for columns in self.times})
        for size in sizes:
            marginals = [columns for columns in self.times if len(columns) == size]
            progress(f"round {size} of {sizes[-1]}{self.label}: {len(marginals)} marginals")
            built = {columns: blocks.build(columns) for columns in marginals}
            asks: list[Request] = []
            for columns in marginals:
                if chosen:
                    share = _flagged_share(pool, blocks, columns)
                    coarse = [mixed[child] for child in children(columns)]
                    mixed[columns] = mix_norms(share, chosen[size], coarse)
                norm = mixed.get(columns, stated_norm(self.norms, size))
                asks += self._asks(cost, columns, built[columns], norm)
            answers = iter((yield tuple(asks)))
            for columns in marginals:
                for answer in islice(answers, self.times[columns]):
                    noisy, deviation = in_records(answer)
                    pool.add(built[columns], noisy, sigma=deviation)
                values, sigma = pool.average(columns)
                large = values >= float(self.threshold) * sigma
                blocks.flag(columns, large)
                pool.cells, pool.flagged = pool.cells + large.size, pool.flagged + int(large.sum())
            if size == 1:
                singles = merge_measurements(self.domain, pool.measurements())
                pool.total = estimate_total(self.domain, singles)
        pool.note(counts)
        return pool

    @property
    def _whole(self) -> tuple[Request, ...]:
        """What is asked about all records, without noise yet: their number, and how many individuals have."""
        asked: list[Request] = []
        if self.quantile is not None:
            everything = sum_groups(np.zeros(self.domain[self.record_column[0]], np.int64), 1)
            asked.append(_ask(f"records{self.label}", Marginal(self.record_column, everything)))
        if self.span is not None:
            name, most = self.span
            times = list_times(self.table.unit.max_records)
            codes = np.arange(self.domain[name])
            people = IndividualCounts(
                columns=(name,),
                max_cells=min(most, codes.size),
                cells=np.repeat(codes, times.size),
                times=np.tile(times, codes.size),
            )
            asked.append(_ask(f"individuals by {name} and records{self.label}", people))
        return tuple(asked)

    @property
    def record_column(self) -> Columns:
        """Return the column over which records are added up to their number."""
        return (min(self.domain, key=lambda name: (self.domain[name], name)),)

    @property
    def number(self) -> int:
        """Return how many measurements with Gaussian noise there are."""
        return sum(self.times.values()) + (self.quantile is not None) + (self.span is not None)

    @property
    def least_answers(self) -> int:
        """Return how many values are asked for whatever the counts: of single columns, and of individuals."""
        singles = [often * self.domain.cells(each) for each, often in self.times.items() if len(each) == 1]
        people = 0
        if self.span is not None:
            people = self.domain[self.span[0]] * list_times(self.table.unit.max_records).size
        return sum(singles) + people

    @property
    def _squared(self) -> Fraction:
        """Return the squared Gaussian privacy that epsilon and delta allow, a hair less."""
        return Fraction(max_mu(self.epsilon, self.delta)) ** 2

    def _asks(
        self, cost: Cost, columns: Columns, built: tuple[tuple[Block, int], ...], norm: Fraction | None
    ) -> list[Request]:
        """Return the requests for one marginal: the same queries as often as it is measured."""
        place = list(self.times).index(columns) + 1
        first = self._calibrate(
            cost,
            _ask(
                f"{place}: {' x '.join(columns)}{self.label}",
                _count(columns, expand_blocks(self.domain, columns, built), norm),
            ),
        )
        copies = range(2, self.times[columns] + 1)
        return [first, *(replace(first, name=f"{first.name}, copy {number}") for number in copies)]

    def _calibrate(self, cost: Cost, request: Request) -> Request:
        """The request with noise that makes it cost no more than `cost`, in zCDP and in Gaussian privacy."""
        ratio = (request_sensitivity(self.table, request) / cost.sensitivity) ** 2
        zcdp = ratio * cost.scale**2
        gaussian = ratio * (cost.scale**2 - SMOOTHING) + SMOOTHING
        return replace(request, scale=round_up(sqrt_up(max(zcdp, gaussian)), places=6))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Sums of cells of the marginal `columns`, one for each of some cells of the marginal `by`.

    Where these are the same, plausible cells one by one, or those that are not flagged, for marginals above.
    Else for flagged cells of `by`, what of them is not plausible in `columns`, one column more; where nothing
    is plausible with that column, it need not be named.
    """

    by: Columns
    columns: Columns
    starts: Whole
    members: Whole

    @property
    def rows(self) -> int:
        """Return the number of sums."""
        return int(self.starts.size - 1)


class Blocks:
    """The blocks of all marginals, as plausible cells and flags become known."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.plausible: dict[Columns, Flags] = {}
        self.flags: dict[Columns, Flags] = {}
        self._made: dict[tuple[str, Columns, Columns], tuple[Block, ...]] = {}

    def build(self, columns: Columns) -> tuple[tuple[Block, int], ...]:
        """Return the blocks of one marginal, each with its weight in units of 1 / GRID; none is empty.

        All parts of `columns` must be flagged. The squares of the weights of a cell add up to GRID^2, or
        to less where weights are rounded down.
        """
        if columns not in self.plausible:
            # Those that all marginals with one column less have flagged.
            plausible = np.ones(self.domain.shape(columns), np.bool_)
            for child in children(columns):
                plausible &= _extend(self.domain, self.flags[child], child, columns)
            self.plausible[columns] = plausible.reshape(-1)
        size = len(columns)
        found = [(block, GRID) for block in self._cells("cell", columns)]
        for part in (part for parts in range(1, size) for part in combinations(columns, parts)):
            weight = _weight(1, math.comb(size, len(part)))
            found += ((block, weight) for block in self._cells("slab", part))
            above = len(part) + 1
            chains = math.factorial(size - above) * math.factorial(above - 1)
            weight = _weight(chains, math.factorial(size))
            for name in columns:
                if name not in part:
                    rest = self._rest(part, self.domain.order({*part, name}))
                    found += ((block, weight) for block in rest)
        return tuple((block, weight) for block, weight in found if block.rows)

    def flag(self, columns: Columns, large: Flags) -> None:
        """Notes which of the plausible cells of a marginal are `large`."""
        flags = np.zeros(self.domain.cells(columns), np.bool_)
        flags[np.flatnonzero(self.plausible[columns])[large]] = True
        self.flags[columns] = flags

    def _cells(self, kind: Literal["cell", "slab"], columns: Columns) -> tuple[Block, ...]:
        key = (kind, columns, columns)
        if key not in self._made:
            chosen = self.plausible[columns]
            if kind == "slab":
                chosen = chosen & ~self.flags[columns]
            self._made[key] = (_single(columns, np.flatnonzero(chosen)),)
        return self._made[key]

    def _rest(self, part: Columns, columns: Columns) -> tuple[Block, ...]:
        key = ("rest", part, columns)
        if key not in self._made:
            shape = self.domain.shape(columns)
            flagged = _extend(self.domain, self.flags[part], part, columns)
            hits = flagged & ~self.plausible[columns].reshape(shape)
            (added,) = (axis for axis, name in enumerate(columns) if name not in part)
            hits = np.moveaxis(hits, added, -1)
            counts = np.count_nonzero(hits, axis=-1).reshape(-1)
            whole = counts == shape[added]
            hits = hits & ~whole.reshape(hits.shape[:-1])[..., None]
            members = np.moveaxis(np.arange(hits.size).reshape(shape), added, -1)[hits]
            starts = np.concatenate(([0], np.cumsum(counts[(counts > 0) & ~whole])))
            self._made[key] = (
                _single(part, np.flatnonzero(whole)),
                Block(by=part, columns=columns, starts=starts, members=members),
            )
        return self._made[key]


def children(columns: Columns) -> tuple[Columns, ...]:
    """Return the marginals with one column less, none for a single column."""
    return tuple(combinations(columns, len(columns) - 1)) if len(columns) > 1 else ()


def expand_blocks(domain: Domain, columns: Columns, blocks: Sequence[tuple[Block, int]]) -> Queries:
    """Return the queries of `blocks` over the cells of `columns`: what they do not name is summed over."""
    strides, stride = {}, 1
    for name in reversed(columns):
        strides[name] = stride
        stride *= domain[name]
    expanded = [_expand(domain, columns, block, strides) for block, _ in blocks]
    sizes = np.concatenate([rows for rows, _ in expanded])
    return Queries(
        cells=domain.cells(columns),
        grid=GRID,
        starts=np.concatenate(([0], np.cumsum(sizes))),
        members=np.concatenate([members for _, members in expanded]),
        weights=np.repeat(
            np.array([weight for _, weight in blocks], np.int32), [members.size for _, members in expanded]
        ),
    )


@dataclass(slots=True, eq=False)
class _Sums:
    """What is known of the sums of some rows: their precision, and their values times it."""

    block: Block
    precision: Floats
    weighted: Floats


class Pool:
    """Noisy sums, those of the same cells averaged by their precision.

    `total` is the number of records that single columns show, `cells` how many cells were measured one by
    one, `flagged` how many of them were large. `records` is the number of records without norms, if it was
    asked for, and `people` the answer about how many records individuals have.
    """

    def __init__(self, domain: Domain) -> None:
        self.total, self.cells, self.flagged = 1.0, 0, 0
        self.records: float | None = None
        self.people: Measurement | None = None
        self._domain = domain
        self._sums: dict[tuple[Columns, Columns], _Sums] = {}

    def add(self, blocks: Sequence[tuple[Block, int]], values: Floats, *, sigma: float) -> None:
        """Takes in the answers to the queries of `blocks`, in records.

        The plausible cells of a marginal come first, and the sums of marginals above it later.
        """
        start = 0
        for block, weight in blocks:
            factor = weight / GRID
            answers = values[start : start + block.rows]
            start += block.rows
            key = (block.by, block.columns)
            if key not in self._sums:
                self._sums[key] = _Sums(block, np.zeros(block.rows), np.zeros(block.rows))
            known = self._sums[key]
            place: slice | Whole = slice(None)
            if block.rows < known.block.rows:
                place = np.searchsorted(known.block.members, block.members)
            known.precision[place] += (factor / sigma) ** 2
            known.weighted[place] += answers * (factor / sigma**2)

    def average(self, columns: Columns) -> tuple[Floats, Floats]:
        """Return the average answers for the plausible cells of a marginal, and their standard deviations."""
        known = self._sums.get((columns, columns))
        if known is None:
            return np.empty(0), np.empty(0)
        return known.weighted / known.precision, 1 / np.sqrt(known.precision)

    def note(self, answers: Sequence[Measurement]) -> None:
        """Takes in the answers about all records together."""
        for answer in answers:
            if answer.request.counted.tally == "individuals":
                self.people = answer
            else:
                self.records = float(in_records(answer)[0][0])

    @property
    def factor(self) -> float:
        """Return what makes up for the records that norms cut off: 1 if their number was not asked for."""
        return 1.0 if self.records is None else max(1.0, self.records / self.total)

    def measurements(self, *, shrunk: bool = False) -> Iterator[Noisy]:
        """Return all sums for inference, each over its own small marginal.

        With `shrunk`, counts of single columns are shrunk by what all their counts look like, those of
        pairs towards independence.
        """
        singles: dict[str, Floats] = {}
        for (by, columns), known in self._sums.items():
            values, precision = known.weighted / known.precision, known.precision
            noise = 1 / np.sqrt(precision)
            sure = noise
            if shrunk and len(columns) == 1:
                values, sure = shrink_counts(values, noise)
                values *= self.total / max(float(values.sum()), 1.0)
                singles[columns[0]] = values
            elif shrunk and len(columns) == 2 and by == columns and 0 < values.size <= _MOST_SHRUNK:
                first, second = (singles[name] for name in columns)
                predicted = np.outer(first, second).reshape(-1)[known.block.members] / self.total
                values, sure = shrink_counts(values, noise, predicted)
            if sure is not noise:
                precision = 1 / np.clip(sure, _STIFFEST * noise, noise) ** 2
            most = float(precision.max())
            weights = np.sqrt(precision / most)
            queries = None
            if known.block.rows < self._domain.cells(columns) or weights.min() < 1:
                block = known.block
                spread = np.repeat(weights, np.diff(block.starts))
                queries = Sparse(starts=block.starts, members=block.members, weights=spread)
            yield Noisy(
                columns=columns,
                values=values * weights * self.factor,
                sigma=1 / math.sqrt(most) * self.factor,
                queries=queries,
            )


def list_times(most: int) -> Whole:
    """Numbers of records that individuals are told apart by, from 1 to `most`, each about 5/4 of the last.

    >>> list_times(20).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18]
    """
    times = [1]
    while (after := max(times[-1] + 1, times[-1] * 5 // 4)) <= most:
        times.append(after)
    return np.array(times)


def spread_people(people: Measurement, most: int) -> Floats:
    """Which share of individuals has 1, 2, ... records in a value of a column, by noisy counts of them."""
    times = list_times(most)
    noisy = people.noisy_values.reshape(-1, times.size).sum(axis=0).astype(np.float64)
    deviation = people.request.standard_deviation * math.sqrt(people.noisy_values.size / times.size)
    counts, _ = shrink_counts(noisy, np.full(times.size, deviation))
    widths = np.diff(np.append(times, most + 1))
    shares = np.repeat(counts / widths, widths)
    return shares / shares.sum() if shares.any() else np.full(most, 1 / most)


def parse_norms(value: object, *, where: str) -> Norms:
    """Return the norms that a recipe file states.

    >>> parse_norms({"1": 20, "2": "12.5"}, where="norms")
    {1: Fraction(20, 1), 2: Fraction(25, 2)}
    """
    if value is None:
        return None
    if value == "auto":
        return "auto"
    if isinstance(value, Mapping):
        norms = {}
        for size, norm in value.items():
            if not str(size).isascii() or not str(size).isdigit() or int(size) < 1:
                raise RecipeError(f"{where} by number of columns needs keys such as 1, 2, 3, got {size!r}")
            norms[int(size)] = parse_positive(norm, name=f"{where} of {size} columns")
        return dict(sorted(norms.items()))
    try:
        return parse_positive(value, name=where)
    except RecipeError:
        raise RecipeError(
            f"{where} must be a number above zero, numbers by number of columns, or 'auto'"
        ) from None


def stated_norm(norms: Norms, size: int) -> Fraction | None:
    """Return the norm stated for marginals of `size` columns; None if max_records bounds them."""
    if isinstance(norms, Mapping):
        return norms.get(size)
    return norms if isinstance(norms, Fraction) else None


def mix_norms(share: Fraction, fine: Fraction, coarse: Sequence[Fraction]) -> Fraction:
    """Return norm of answers of which about `share` of all records is counted cell by cell, the rest in sums.

    A sum is one of the smaller marginals, so the rest has about the mean of their squared norms.

    >>> mix_norms(Fraction(1), Fraction(3), [Fraction(5)])
    Fraction(3, 1)
    """
    squared = share * fine**2
    if coarse:
        squared += (1 - share) * sum(norm**2 for norm in coarse) / len(coarse)
    return round_up(sqrt_up(squared), places=_PLACES)


def _flagged_share(pool: Pool, blocks: Blocks, columns: Columns) -> Fraction:
    """About which share of all records lies in plausible cells, by what the children showed."""
    shares = [1.0]
    total = max(1.0, float(pool.average(columns[:1])[0].sum())) if children(columns) else 1.0
    for child in children(columns):
        values, _ = pool.average(child)
        flags = blocks.flags[child][blocks.plausible[child]]
        shares.append(float(values[flags].sum()) / total)
    return Fraction(round(1000 * min(1.0, max(0.0, min(shares)))), 1000)


def _count(columns: Columns, queries: Queries, norm: Fraction | None) -> Marginal | ClippedMarginal:
    return Marginal(columns, queries) if norm is None else ClippedMarginal(columns, norm, queries)


def _ask(name: str, counted: Marginal | ClippedMarginal | IndividualCounts) -> Request:
    """Return a request whose noise is still to be calibrated."""
    return Request(name=name, counted=counted, noise="gaussian", scale=Fraction(1))


def _probe(columns: Columns, norm: Fraction | None = None) -> Request:
    """Return a request with queries on the grid of all queries, to find sensitivities by."""
    one = np.array([0])
    queries = Queries(cells=1, grid=GRID, starts=np.array([0, 1]), members=one, weights=one + GRID)
    return _ask("noise", _count(columns, queries, norm))


def _expand(
    domain: Domain, columns: Columns, block: Block, strides: Mapping[str, int]
) -> tuple[Whole, NDArray[np.int32]]:
    """Return the lengths of the rows of a block over the cells of `columns`, and their members, ascending."""
    (*_, last) = [-1, *(columns.index(name) for name in block.columns if name not in block.by)]
    others = [name for name in columns if name not in block.columns]
    outer = _offsets(domain, [name for name in others if columns.index(name) < last], strides)
    inner = _offsets(domain, [name for name in others if columns.index(name) > last], strides)
    home = _offsets(domain, block.columns, strides)[block.members]
    if outer.size > 1:
        # Every row is repeated for each value of the columns before the one that it sums over.
        lengths = np.diff(block.starts)
        row = np.repeat(np.arange(block.rows), lengths * outer.size)
        turn, place = np.divmod(np.arange(row.size) - block.starts[row] * outer.size, lengths[row])
        home = home[block.starts[row] + place] + outer[turn]
    return np.diff(block.starts) * (outer.size * inner.size), (home[:, None] + inner).reshape(-1)


def _single(columns: Columns, members: Whole) -> Block:
    starts = np.arange(members.size + 1)
    return Block(by=columns, columns=columns, starts=starts, members=members)


def _weight(part: int, whole: int) -> int:
    """GRID * sqrt(part / whole), rounded down."""
    return math.isqrt(GRID**2 * part // whole)


def _extend(domain: Domain, flat: Flags, part: Columns, columns: Columns) -> Flags:
    """Return an array over the cells of `part`, shaped so that it spreads over those of `columns`."""
    return flat.reshape([domain[name] if name in part else 1 for name in columns])


def _offsets(domain: Domain, names: Sequence[str], strides: Mapping[str, int]) -> NDArray[np.int32]:
    """Return the places of all combinations of `names`, where every other column has its first value."""
    places = np.zeros(1, np.int32)
    for name in names:
        places = (places[:, None] + np.arange(domain[name], dtype=np.int32) * strides[name]).reshape(-1)
    return places


def _list_norms(most: int) -> tuple[Fraction, ...]:
    """Return norms from 1 to `most`, each about sqrt(2) times the one before."""
    norms = [Fraction(1)]
    square = 2
    while square < most**2:
        norms.append(round_up(sqrt_up(Fraction(square)), places=_PLACES))
        square *= 2
    return (*norms, Fraction(most)) if most > 1 else tuple(norms)
