"""Two tables compared: marginals, associations, groups, samples of the truth, references, classifiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import MetricError
from sfumato.metrics.classifiers import Downstream, Propensity, measure_downstream, measure_propensity
from sfumato.metrics.columns import Label, align_counts, pack_codes, renumber, total_variation
from sfumato.metrics.encode import CodedPair, Side, encode_pair
from sfumato.tables.arrays import Floats, Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.tables.read import TableLike

INTERNAL = "INTERNAL: compares with the private records, not private, do not publish"
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
ZEROS, UNIFORM = "all-zero release", "uniform release"
HALF, RELEASE = "half of the individuals", "this release"

# How much of each list a record holds.
_LISTED_MARGINALS, _LISTED_ASSOCIATIONS, _LISTED_GROUPS = 200, 50, 100
# What is measured of tables with very many columns or values.
_MOST_TRIPLES = 1000
_MOST_PAIRS = 500
_MOST_VALUES = 50
_MOST_RECORDS = 50_000
_FEWEST_RECORDS = 2000
_MOST_PRODUCTS = 30_000_000  # records times squared columns that a regression sees
_DENSE = 2**18  # cells that are counted in an array over all of them
_FEW_CLASSES = 6
_TARGETS = 3


@dataclass(frozen=True, slots=True)
class Marginal:
    """Columns, and the total variation distance of their joint distribution."""

    columns: tuple[str, ...]
    tvd: float


@dataclass(frozen=True, slots=True)
class Reference:
    """A table to compare with, and its mean distance over marginals of one, two and three columns."""

    name: str
    tvd: tuple[float | None, ...]

    def to_record(self) -> dict[str, Any]:
        """Returns the reference as a plain record."""
        return {"name": self.name, **{f"tvd{order}": mean for order, mean in enumerate(self.tvd, start=1)}}


@dataclass(frozen=True, slots=True)
class Marginals:
    """All distances, worst first, with the number of marginals there are of each order."""

    marginals: tuple[Marginal, ...]
    possible: tuple[int, ...]
    references: tuple[Reference, ...]

    def of_order(self, order: int) -> tuple[Marginal, ...]:
        """Returns the marginals of so many columns, worst first."""
        return tuple(each for each in self.marginals if len(each.columns) == order)

    def to_record(self) -> dict[str, Any]:
        """Returns the distances as a plain record: a summary per order, and the worst."""
        record: dict[str, Any] = {}
        for order, possible in enumerate(self.possible, start=1):
            distances = [each.tvd for each in self.of_order(order)]
            record[str(order)] = {
                "mean": _mean(distances),
                "worst": max(distances, default=None),
                "count": len(distances),
                "of": possible,
            }
        worst = self.marginals[:_LISTED_MARGINALS]
        return record | {"list": [{"columns": list(each.columns), "tvd": each.tvd} for each in worst]}


@dataclass(frozen=True, slots=True, eq=False)
class Associations:
    """Cramer's V of every pair of columns, from 0 (independent) to 1, as two symmetric matrices."""

    columns: tuple[str, ...]
    truth: Floats
    release: Floats

    def worst(self) -> list[tuple[str, str, float, float]]:
        """Pairs of columns with their association in truth and release, most changed first."""
        pairs = [
            (self.columns[i], self.columns[j], float(self.truth[i, j]), float(self.release[i, j]))
            for i, j in combinations(range(len(self.columns)), 2)
        ]
        return sorted(pairs, key=lambda each: -abs(each[2] - each[3]))

    def to_record(self) -> dict[str, Any]:
        """Returns the matrices and the pairs that changed most, as a plain record."""
        return {
            "columns": list(self.columns),
            "truth": self.truth.tolist(),
            "release": self.release.tolist(),
            "worst": [
                {"columns": [first, second], "truth": ours, "release": theirs}
                for first, second, ours, theirs in self.worst()[:_LISTED_ASSOCIATIONS]
            ],
        }


@dataclass(frozen=True, slots=True)
class Group:
    """One value of one column: its records on both sides, and the mean distance of the other columns."""

    column: str
    value: Label
    truth: float
    release: float
    tvd: float

    def to_record(self) -> dict[str, Any]:
        """Returns the group as a plain record."""
        return asdict(self) | {"truth": _plain(self.truth), "release": _plain(self.release)}


@dataclass(frozen=True, slots=True)
class Ladder:
    """The mean distance of all pairs of columns: of the release, and of samples of the truth."""

    release: float
    rungs: tuple[tuple[float, float], ...]

    @property
    def share(self) -> float | None:
        """The share of the individuals whose sample is as close as the release; None below the ladder.

        >>> Ladder(0.15, ((0.1, 0.2), (0.3, 0.1))).share
        0.2
        """
        steps = [*self.rungs, (1.0, 0.0)]
        if self.release > steps[0][1]:
            return None
        for (low, far), (high, near) in pairwise(steps):
            if near <= self.release <= far:
                part = (far - self.release) / (far - near) if far > near else 1.0
                return round(low + part * (high - low), 12)
        return 1.0

    def to_record(self) -> dict[str, Any]:
        """Returns the ladder as a plain record."""
        rungs = [{"share": share, "tvd": tvd} for share, tvd in self.rungs]
        return {"release": self.release, "rungs": rungs, "share": self.share}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Everything that was compared. Made of the private records: internal, not for publication."""

    rows: tuple[float, float]
    columns: tuple[str, ...]
    marginals: Marginals
    associations: Associations
    propensity: Propensity | None
    downstream: tuple[Downstream, ...]
    groups: tuple[Group, ...]
    ladder: Ladder

    def __repr__(self) -> str:
        return f"Comparison(columns={self.columns}, internal)"

    def to_record(self) -> dict[str, Any]:
        """Returns the comparison as a plain record, ready for JSON."""
        return {
            "internal": INTERNAL,
            "rows": {"truth": int(self.rows[0]), "release": _plain(self.rows[1])},
            "columns": list(self.columns),
            "marginals": self.marginals.to_record(),
            "associations": self.associations.to_record(),
            "propensity": None if self.propensity is None else self.propensity.to_record(),
            "downstream": [asdict(each) for each in self.downstream],
            "groups": [group.to_record() for group in self.groups[:_LISTED_GROUPS]],
            "ladder": self.ladder.to_record(),
            "references": [reference.to_record() for reference in self.marginals.references],
            "seconds": None,
        }


def compare_tables(
    truth: TableLike,
    release: TableLike,
    *,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    target: str | None = None,
    unit: str | None = None,
    table: Table | None = None,
    seed: int = 0,
    most_triples: int = _MOST_TRIPLES,
    most_records: int = _MOST_RECORDS,
) -> Comparison:
    """Returns how `release` differs from `truth`, for any two tables of categories or numbers.

    `columns` are those to compare, by default all that both have. `weight` names the column of a histogram
    that counts records, `unit` the column of the truth that tells individuals apart, `target` a column that
    classifiers are to predict from the others (by default up to three with few values), `table` a description
    whose domains the columns have. All marginals are counted over all records; `most_triples` of three
    columns at most, and classifiers see `most_records` records at most (fewer of tables with many columns),
    drawn from the public `seed`.

    >>> people = {"sex": ["f", "m"] * 50, "area": ["n", "n", "s", "s"] * 25}
    >>> comparison = compare_tables(people, {"sex": ["f"] * 10, "area": ["n", "s"] * 5})
    >>> comparison.marginals.marginals[0].tvd, comparison.marginals.marginals[-1].tvd
    (0.5, 0.0)
    """
    pair = encode_pair(truth, release, table=table, columns=columns, weight=weight, unit=unit)
    return compare_pair(pair, target=target, seed=seed, most_triples=most_triples, most_records=most_records)


def compare_pair(
    pair: CodedPair,
    *,
    target: str | None = None,
    seed: int = 0,
    most_triples: int = _MOST_TRIPLES,
    most_records: int = _MOST_RECORDS,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Returns the comparison of the two sides of `pair`, which are coded already.

    `target`, `seed`, `most_triples` and `most_records` are those of `compare_tables`; `progress` is called
    with a few words at every step.
    """
    if target is not None and target not in pair.columns:
        raise MetricError(f"no column {target!r} to predict from the others")
    # A regression's time grows with the square of the columns.
    affordable = max(_FEWEST_RECORDS, _MOST_PRODUCTS // len(pair.columns) ** 2)
    most_records = min(most_records, affordable)
    domain = [pair.sizes[name] for name in pair.columns]
    pair = pair.compact()
    samples = sample_truth(pair, seed=seed)
    progress("comparing marginals")
    half = samples.of_share(0.5)
    marginals = measure_marginals(pair, half, domain=domain, seed=seed, most_triples=most_triples)
    progress("comparing associations and groups")
    associations = measure_associations(pair)
    groups = measure_groups(pair)
    ladder = measure_ladder(pair, samples, seed=seed)
    progress("training classifiers")
    targets = (target,) if target is not None else _choose_targets(pair, associations)
    return Comparison(
        rows=(pair.truth.total, pair.release.total),
        columns=pair.columns,
        marginals=marginals,
        associations=associations,
        propensity=measure_propensity(pair, seed=seed, most_records=most_records),
        downstream=measure_downstream(pair, targets, seed=seed, most_records=most_records),
        groups=groups,
        ladder=ladder,
    )


def measure_marginals(
    pair: CodedPair, half: Side, *, domain: Sequence[int], seed: int, most_triples: int
) -> Marginals:
    """Gives the distance of every marginal of one to three columns of `pair`, beside those of the references.

    Of three columns, at most `most_triples` are measured, drawn from `seed`. `half` is a half of the
    truth's individuals, `domain` the sizes of the columns' domains.
    """
    sizes = dict(zip(pair.columns, domain, strict=True))
    found: list[Marginal] = []
    means: dict[str, list[float | None]] = {ZEROS: [], UNIFORM: [], HALF: [], RELEASE: []}
    for order in (1, 2, 3):
        distances: dict[str, list[float]] = {name: [] for name in means}
        for columns in _choose_marginals(pair.columns, order, most_triples, seed):
            _, (truth, release, halved) = _count_marginal(pair, columns, (pair.truth, pair.release, half))
            cells = math.prod(sizes[name] for name in columns)
            distances[ZEROS].append(1.0)
            distances[UNIFORM].append(_uniform_distance(truth, cells))
            distances[HALF].append(total_variation(truth, halved))
            distances[RELEASE].append(total_variation(truth, release))
            found.append(Marginal(columns, distances[RELEASE][-1]))
        for name, listed in distances.items():
            means[name].append(_mean(listed))
    return Marginals(
        marginals=tuple(sorted(found, key=lambda each: -each.tvd)),
        possible=tuple(math.comb(len(pair.columns), order) for order in (1, 2, 3)),
        references=tuple(Reference(name, tuple(mean)) for name, mean in means.items()),
    )


def _choose_marginals(columns: tuple[str, ...], order: int, most: int, seed: int) -> list[tuple[str, ...]]:
    count = math.comb(len(columns), order)
    if order < 3 or count <= most:
        return list(combinations(columns, order))
    generator = np.random.default_rng([seed, 3])
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < most:
        chosen.add(tuple(sorted(generator.permutation(len(columns))[:order].tolist())))
    return [tuple(columns[place] for place in places) for places in sorted(chosen)]


def _count_marginal(
    pair: CodedPair, columns: Sequence[str], sides: Sequence[Side]
) -> tuple[Whole, list[Floats]]:
    """Returns (cells, counts of every side): all cells of a small domain, else those that occur."""
    sizes = [pair.sizes[name] for name in columns]
    keys = [pack_codes([side.codes[name] for name in columns], sizes) for side in sides]
    return align_counts(keys, math.prod(sizes), weights=[side.weights for side in sides])


def _uniform_distance(truth: Floats, cells: int) -> float:
    """Returns the distance from the table that has the same count in each of `cells` cells."""
    shares = truth[truth > 0] / truth.sum()
    empty = (cells - int(shares.size)) / cells
    return (float(np.abs(shares - 1 / cells).sum()) + empty) / 2


def measure_associations(pair: CodedPair) -> Associations:
    """Cramer's V of every pair of columns on both sides."""
    width = len(pair.columns)
    matrices = np.stack([np.eye(width), np.eye(width)])
    for (i, first), (j, second) in combinations(enumerate(pair.columns), 2):
        cells, counts = _count_marginal(pair, (first, second), (pair.truth, pair.release))
        rows, columns = np.divmod(cells, pair.sizes[second])
        for side, count in enumerate(counts):
            matrices[side, i, j] = matrices[side, j, i] = cramers_v(rows, columns, count)
    return Associations(pair.columns, matrices[0], matrices[1])


def cramers_v(rows: Whole, columns: Whole, counts: Floats) -> float:
    """Cramer's V of a table given by its cells; 0 if one of the two takes a single value.

    >>> cells = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> cramers_v(*cells, np.array([5.0, 0, 0, 5])), cramers_v(*cells, np.array([1.0, 1, 1, 1]))
    (1.0, 0.0)
    """
    occupied = counts > 0
    rows, columns, counts = rows[occupied], columns[occupied], counts[occupied]
    if not counts.size:
        return 0.0
    row_sums, column_sums = np.bincount(rows, counts), np.bincount(columns, counts)
    freedom = min(np.count_nonzero(row_sums), np.count_nonzero(column_sums)) - 1
    if freedom < 1:
        return 0.0
    # chi^2 / n = sum over cells of n_ij^2 / (n_i n_j), less 1
    fit = float((counts / row_sums[rows] * (counts / column_sums[columns])).sum())
    return math.sqrt(min(1.0, max(0.0, fit - 1) / freedom))


def measure_groups(pair: CodedPair) -> tuple[Group, ...]:
    """Returns every value of every column with at most 50 of them, worst first.

    The distance of a group is the mean, over all other columns, of the total variation distance of
    that column within the group; 1 if one side has no record of the group.
    """
    groups: list[Group] = []
    for name in pair.columns:
        size = pair.sizes[name]
        if size > _MOST_VALUES:
            continue
        ours, theirs = (
            np.bincount(side.codes[name], side.weights, minlength=size).astype(np.float64)
            for side in (pair.truth, pair.release)
        )
        others = [other for other in pair.columns if other != name]
        distance = np.zeros(size)
        for other in others:
            distance += _distance_within(pair, name, other, ours, theirs)
        mean = distance / max(len(others), 1)
        groups += [
            Group(name, pair.labels[name][code], float(ours[code]), float(theirs[code]), float(mean[code]))
            for code in range(size)
            if ours[code] > 0 or theirs[code] > 0
        ]
    return tuple(sorted(groups, key=lambda group: -group.tvd))


def _distance_within(pair: CodedPair, name: str, other: str, ours: Floats, theirs: Floats) -> Floats:
    """Measures the distance of `other` within every value of `name`, of `ours` and `theirs`."""
    cells, (truth, release) = _count_marginal(pair, (name, other), (pair.truth, pair.release))
    group = cells // pair.sizes[other]
    difference = np.abs(truth / np.maximum(ours, 1e-300)[group] - release / np.maximum(theirs, 1e-300)[group])
    distance = np.bincount(group, difference, minlength=ours.size) / 2
    return np.where((ours > 0) & (theirs > 0), np.minimum(distance, 1), 1.0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NestedSamples:
    """Samples of the truth, each within the next: sample j is all rows before the start of part j + 1."""

    side: Side
    starts: NDArray[np.intp]

    def of_share(self, share: float) -> Side:
        """Returns the sample of this share of the individuals."""
        return self.side.take(np.arange(self.starts[SHARES.index(share) + 1]))


def sample_truth(pair: CodedPair, *, seed: int) -> NestedSamples:
    """Samples of all SHARES, of individuals, or of records where none is known, drawn by a public seed."""
    generator = np.random.default_rng([seed, 4])  # the second number keeps the draws of one seed apart
    truth = pair.truth
    if truth.weights is None or pair.unit is not None:
        unit = np.arange(truth.rows) if pair.unit is None else pair.unit
        people = int(unit.max()) + 1
        ends = [max(1, round(share * people)) for share in SHARES]
        part = np.searchsorted(ends, generator.permutation(people), side="right")[unit]
    else:  # a row stands for many records, which go to different parts
        chances = np.diff([0.0, *SHARES, 1.0])
        split = generator.multinomial(np.round(truth.weights).astype(np.int64), chances)
        rows, part = np.nonzero(split)
        truth = replace(truth.take(rows), weights=split[rows, part].astype(np.float64))
    order = np.argsort(part, kind="stable")
    return NestedSamples(truth.take(order), np.searchsorted(part[order], np.arange(len(SHARES) + 2)))


def measure_ladder(pair: CodedPair, samples: NestedSamples, *, seed: int) -> Ladder:
    """Returns the mean distance of pairs of columns, of the release and of samples of growing size.

    Of very many pairs, 500 are drawn from `seed`.
    """
    pairs = list(combinations(pair.columns, min(2, len(pair.columns))))
    if len(pairs) > _MOST_PAIRS:
        generator = np.random.default_rng([seed, 5])
        pairs = [pairs[i] for i in np.sort(generator.choice(len(pairs), size=_MOST_PAIRS, replace=False))]
    distances = np.array([_sample_distances(pair, samples, columns) for columns in pairs])
    *rungs, release = distances.mean(axis=0).tolist()
    return Ladder(release, tuple(zip(SHARES, rungs, strict=True)))


def _sample_distances(pair: CodedPair, samples: NestedSamples, columns: tuple[str, ...]) -> list[float]:
    """Returns the distance of every sample and, last, of the release from the truth, for these columns."""
    sizes = [pair.sizes[name] for name in columns]
    sides = (samples.side, pair.release)
    keys = [pack_codes([side.codes[name] for name in columns], sizes) for side in sides]
    cells = math.prod(sizes)
    if cells > _DENSE:
        found, keys = renumber(keys)
        cells = found.size
    truth, release = (
        np.bincount(key, side.weights, minlength=cells).astype(np.float64)
        for key, side in zip(keys, sides, strict=True)
    )
    weights = samples.side.weights
    sample = np.zeros(cells)
    distances = []
    for start, end in pairwise(samples.starts[:-1].tolist()):
        part = slice(start, end)
        sample += np.bincount(keys[0][part], None if weights is None else weights[part], minlength=cells)
        distances.append(total_variation(truth, sample))
    return [*distances, total_variation(truth, release)]


def _choose_targets(pair: CodedPair, associations: Associations) -> tuple[str, ...]:
    """Up to three columns of two to six values, those most associated with the other columns."""
    strength = (associations.truth.sum(axis=1) - 1).tolist()
    few = [
        (-strength[place], name)
        for place, name in enumerate(pair.columns)
        if 2 <= np.unique(pair.truth.codes[name]).size <= _FEW_CLASSES
    ]
    return tuple(name for _, name in sorted(few)[:_TARGETS])


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _plain(count: float) -> float | int:
    return int(count) if count == int(count) else count
