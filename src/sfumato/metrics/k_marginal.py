"""The k-marginal metric: marginals of drawn columns, within every place and year."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import MetricError
from sfumato.metrics.columns import (
    SIDES,
    Label,
    align_counts,
    code_pair,
    finite_numbers,
    pack_codes,
    read_sides,
    renumber,
)
from sfumato.tables.arrays import Flags, Floats, Whole
from sfumato.tables.read import TableLike, require_columns

if TYPE_CHECKING:
    import pyarrow as pa

FARTHEST = 2.0

# The contest's intervals of census columns, open on the left, as (start, stop, step) of their upper ends.
_STEPS = {
    "AGE": (20, 101, 5),
    **dict.fromkeys(("INCTOT", "INCWAGE", "INCWELFR", "INCINVST", "INCEARN"), (0, 100_001, 5000)),
    **dict.fromkeys(("POVERTY", "HHWT", "PERWT"), (0, 501, 20)),
}
_CLOCK = tuple(100 * hour + minute for hour in range(24) for minute in (0, 15, 30, 45))
_EDGES = {name: tuple(range(*steps)) for name, steps in _STEPS.items()} | {
    "DEPARTS": _CLOCK,
    "ARRIVES": _CLOCK,
}


@dataclass(frozen=True, slots=True, eq=False)
class KMarginal:
    """Distances (0 to 2) per place and time, and the score (0 to 1000) they give.

    `distances` are means over the column sets, 2 where the bias rule struck (`biased`); `raw` holds
    the distance of every place and time in every set, before that rule.
    """

    places: tuple[tuple[Label, ...], ...]
    distances: Floats
    biased: Flags
    raw: Floats
    column_sets: tuple[tuple[str, ...], ...]

    @property
    def score(self) -> float:
        """1000 for equal marginals everywhere, 0 for marginals without anything in common."""
        return 1000 * (FARTHEST - float(self.distances.mean())) / FARTHEST

    @property
    def place_scores(self) -> Floats:
        """The same scale for every place and time alone."""
        return np.asarray(1000 * (FARTHEST - self.distances) / FARTHEST)

    def __repr__(self) -> str:
        return f"KMarginal(score={self.score:.6g}, places={len(self.places)}, sets={len(self.column_sets)})"

    def to_record(self) -> dict[str, Any]:
        """Returns the score as a plain record."""
        return {"score": self.score, "places": len(self.places), "biased": int(self.biased.sum())}


def k_marginal(
    truth: TableLike,
    release: TableLike,
    *,
    k: int = 2,
    sets: int = 50,
    bias_cutoff: int | None = 250,
    seed: int = 123456,
    place: Sequence[str] = ("PUMA", "YEAR"),
    column_sets: Sequence[Sequence[str]] | None = None,
) -> KMarginal:
    """Gives the k-marginal score of `release`: `sets` drawn sets of `k` columns, within every place and time.

    The defaults are those of the contest's second sprint. `place` names the columns of place and
    time; the sets are drawn from all other columns of `truth` by the public `seed`, or given as
    `column_sets`. Ages, incomes, weights and
    clock times under their census names are put into the official intervals, all else is compared as
    it is. `bias_cutoff` None leaves the rule about numbers of records out.

    >>> people = {"PUMA": [1, 1], "YEAR": [2019, 2019], "SEX": [1, 2], "AGE": [30, 52]}
    >>> k_marginal(people, people, sets=3).score
    1000.0
    """
    ours, theirs = read_sides(truth, release)
    require_columns(ours, place, side="truth")
    if column_sets is None:
        names = [name for name in ours.column_names if name not in place]
        column_sets = draw_column_sets(names, k=k, sets=sets, seed=seed)
    chosen = tuple(tuple(each) for each in column_sets)
    used = sorted({name for each in chosen for name in each})
    if not used:
        raise MetricError("k-marginal needs at least one set of columns")
    require_records(ours, theirs, (*place, *used))
    coded = {
        name: code_column_pair(ours, theirs, name, cut=bin_census if name in _EDGES else None)
        for name in used
    }
    return measure_places(
        ours, theirs, place=place, columns=coded, column_sets=chosen, bias_cutoff=bias_cutoff
    )


def draw_column_sets(
    names: Sequence[str], *, k: int = 2, sets: int = 50, seed: int = 123456
) -> tuple[tuple[str, ...], ...]:
    """Returns `sets` sets of `k` different names, drawn as the contest draws them.

    >>> draw_column_sets(("SEX", "AGE", "RACE"), sets=2)
    (('SEX', 'AGE'), ('AGE', 'RACE'))
    """
    ordered = sorted(names, key=lambda name: name.encode())
    if not 1 <= k <= len(ordered):
        raise MetricError(f"cannot draw {k} of {len(ordered)} columns")
    generator = np.random.RandomState(seed)  # the contest's own generator
    return tuple(
        tuple(str(name) for name in generator.choice(ordered, size=k, replace=False)) for _ in range(sets)
    )


def bin_census(name: str, values: NDArray[Any]) -> Whole:
    """Returns the official intervals of the column `name`, open on the left, as codes.

    >>> bin_census("AGE", np.array([20, 21, 101])).tolist()
    [0, 1, 17]
    """
    return np.searchsorted(np.array(_EDGES[name], np.float64), values, side="left").astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coded:
    """A column as codes of truth and release, in half of the usual memory, and the number of codes."""

    truth: NDArray[np.int32]
    release: NDArray[np.int32]
    size: int


def code_column_pair(
    truth: pa.Table,
    release: pa.Table,
    name: str,
    *,
    cut: Callable[[str, NDArray[Any]], Whole] | None,
) -> Coded:
    """Returns the column `name` of both sides: `cut` into a contest's intervals, or value by value."""
    if cut is not None:
        first = cut(name, finite_numbers(truth, name, side="truth"))
        second = cut(name, finite_numbers(release, name, side="release"))
        size = 1 + int(cut(name, np.array([np.inf]))[0])
    else:
        first, second, labels = code_pair(truth, release, name)
        size = len(labels)
    return Coded(first.astype(np.int32), second.astype(np.int32), size)


def require_records(truth: pa.Table, release: pa.Table, names: Sequence[str]) -> None:
    """Raises an error if a side lacks one of the columns `names`, or has no record."""
    for table, side in zip((truth, release), SIDES, strict=True):
        require_columns(table, names, side=side)
        if table.num_rows == 0:
            raise MetricError(f"{side} has no records")


def measure_places(
    truth: pa.Table,
    release: pa.Table,
    *,
    place: Sequence[str],
    columns: Mapping[str, Coded],
    column_sets: tuple[tuple[str, ...], ...],
    bias_cutoff: int | None,
) -> KMarginal:
    """Returns the distances of the marginals of all `column_sets` within every place and time of either side.

    `place` names the columns of place and time of `truth` and `release`, `columns` has the codes of all
    others by name. The distance is the sum of absolute differences of shares, 2 where one side has no
    record. With a `bias_cutoff` it is 2 as well where the numbers of records differ by that much.
    """
    values, code = _code_places(truth, release, place)
    counts = [np.bincount(each, minlength=code.size) for each in (code.truth, code.release)]
    empty = (counts[0] == 0) | (counts[1] == 0)
    scales = [1.0 / np.maximum(count, 1) for count in counts]
    known: dict[tuple[str, ...], Floats] = {}
    raw = np.empty((len(values), len(column_sets)))
    for index, names in enumerate(column_sets):
        same = tuple(sorted(names))  # the order within a set does not matter
        if same not in known:
            known[same] = _measure_set([code, *(columns[name] for name in same)], scales)
            known[same][empty] = FARTHEST
        raw[:, index] = known[same]
    distances = raw.mean(axis=1)
    biased = np.zeros(distances.size, np.bool_)
    if bias_cutoff is not None:
        biased = np.abs(counts[0] - counts[1]) >= bias_cutoff
        distances = np.where(biased, FARTHEST, distances)
    return KMarginal(values, distances, biased, raw, column_sets)


def _code_places(
    truth: pa.Table, release: pa.Table, names: Sequence[str]
) -> tuple[tuple[tuple[Label, ...], ...], Coded]:
    """Numbers every place and time of truth or release, in the order of its values."""
    columns = [code_pair(truth, release, name) for name in names]
    sizes = [len(labels) for _, _, labels in columns]
    found, (first, second) = renumber(
        [
            pack_codes([ours for ours, _, _ in columns], sizes),
            pack_codes([theirs for _, theirs, _ in columns], sizes),
        ]
    )
    parts = np.unravel_index(found, sizes)
    values = tuple(
        tuple(columns[at][2][int(part)] for at, part in enumerate(place))
        for place in zip(*parts, strict=True)
    )
    return values, Coded(first.astype(np.int32), second.astype(np.int32), found.size)


def _measure_set(coded: Sequence[Coded], scales: Sequence[Floats]) -> Floats:
    """Gives the distance of every place, the first of the `coded` columns, in the marginal of the others."""
    sizes = [column.size for column in coded]
    keys = [
        pack_codes([column.truth for column in coded], sizes),
        pack_codes([column.release for column in coded], sizes),
    ]
    inner = math.prod(sizes[1:])
    cells, (ours, theirs) = align_counts(keys, inner * sizes[0])
    place = cells // inner
    difference = np.abs(ours * scales[0][place] - theirs * scales[1][place])
    return np.bincount(place, difference, minlength=sizes[0]).astype(np.float64)
