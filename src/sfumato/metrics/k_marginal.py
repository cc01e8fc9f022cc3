"""The k-marginal metric: marginals of drawn columns, within every place and year."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import MetricError
from sfumato.metrics.codes import Label, number_pair
from sfumato.metrics.places import FARTHEST, Coded, hold_codes, measure_places, number_places
from sfumato.metrics.tables import TableLike, measure, read_table, require_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

_STEPS = {
    **dict.fromkeys(("AGE",), (20, 101, 5)),
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
    distances: NDArray[np.float64]
    biased: NDArray[np.bool_]
    raw: NDArray[np.float64]
    column_sets: tuple[tuple[str, ...], ...]

    @property
    def score(self) -> float:
        """1000 for equal marginals everywhere, 0 for marginals without anything in common."""
        return 1000 * (FARTHEST - float(self.distances.mean())) / FARTHEST

    @property
    def place_scores(self) -> NDArray[np.float64]:
        """The same scale for every place and time alone."""
        return np.asarray(1000 * (FARTHEST - self.distances) / FARTHEST)

    def __repr__(self) -> str:
        return f"KMarginal(score={self.score:.6g}, places={len(self.places)}, sets={len(self.column_sets)})"

    def to_record(self) -> dict[str, Any]:
        """The score as a plain record."""
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
    """The k-marginal score of `release`: `sets` drawn sets of `k` columns, within every place and time.

    The defaults are those of the contest's second sprint. `place` names the columns of place and
    time; the sets are drawn from all other columns of the truth, or given. Ages, incomes, weights and
    clock times under their census names are put into the official intervals, all else is compared as
    it is. `bias_cutoff` None leaves the rule about numbers of records out.

    >>> people = {"PUMA": [1, 1], "YEAR": [2019, 2019], "SEX": [1, 2], "AGE": [30, 52]}
    >>> k_marginal(people, people, sets=3).score
    1000.0
    """
    ours, theirs = read_table(truth, side="truth"), read_table(release, side="release")
    require_columns(ours, place, side="truth")
    names = [name for name in ours.column_names if name not in place]
    if column_sets is None:
        column_sets = draw_column_sets(names, k=k, sets=sets, seed=seed)
    chosen = tuple(tuple(each) for each in column_sets)
    used = sorted({name for each in chosen for name in each})
    if not used:
        raise MetricError("k-marginal needs at least one set of columns")
    for table, side in ((ours, "truth"), (theirs, "release")):
        require_columns(table, (*place, *used), side=side)
        if table.num_rows == 0:
            raise MetricError(f"{side} has no records")
    places = number_places(ours, theirs, place)
    raw = measure_places(places, {name: _code(ours, theirs, name) for name in used}, chosen)
    distances = raw.mean(axis=1)
    biased = np.zeros(distances.size, np.bool_)
    if bias_cutoff is not None:
        biased = np.abs(places.truth - places.release) >= bias_cutoff
        distances = np.where(biased, FARTHEST, distances)
    return KMarginal(places.values, distances, biased, raw, chosen)


def draw_column_sets(
    names: Sequence[str], *, k: int = 2, sets: int = 50, seed: int = 123456
) -> tuple[tuple[str, ...], ...]:
    """`sets` sets of `k` different names, drawn as the contest draws them.

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


def bin_census(name: str, values: NDArray[Any]) -> NDArray[np.int64] | None:
    """The official intervals of the column `name`, open on the left, as codes; None if it has none.

    >>> bin_census("AGE", np.array([20, 21, 101])).tolist()
    [0, 1, 17]
    """
    if name not in _EDGES:
        return None
    return np.searchsorted(np.array(_EDGES[name], np.float64), values, side="left").astype(np.int64)


def _code(truth: pa.Table, release: pa.Table, name: str) -> Coded:
    if name in _EDGES:
        first = bin_census(name, measure(truth, name, side="truth"))
        second = bin_census(name, measure(release, name, side="release"))
        assert first is not None
        assert second is not None
        return hold_codes(first, second, len(_EDGES[name]) + 1)
    ours, theirs, labels = number_pair(truth, release, name)
    return hold_codes(ours, theirs, len(labels))
