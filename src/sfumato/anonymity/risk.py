"""The risk that a record is traced to its person, for three attackers, and the columns that are enough.

The prosecutor knows that somebody is in the table and looks for their record. The journalist wants to show
that anybody can be found, in a population of which the table is a part. The marketer tries everybody and
counts successes. Each picks at random among those who fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymity.attack.matching import number_rows
from sfumato.anonymity.check import NOT_DP, check_names, match_register, tally_rows
from sfumato.core.errors import AnonymityError

if TYPE_CHECKING:
    from sfumato.tables.read import TableLike

Basis = Literal["register", "weights", "table"]

_EDGES = (1, 2, 3, 5, 10, 20, 50, 100, 1000)
_MOST = 20_000  # subsets of columns
_DENSE = 4  # keys below so many times the rows are counted in an array, which beats sorting them


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacker:
    """Chances to name a record's person: largest, average, and the share of records above the threshold."""

    largest: float
    average: float
    above_threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBin:
    """The classes of a size, such as 1, 3-4 or 1000+, and how many records they hold."""

    size: str
    classes: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """The risk of re-identification by three attackers, and the sizes of classes.

    `population` is what the journalist and the marketer take for it. `marketer` is the expected
    share of records that are re-identified, `unique` the share that is alone in its class, and `unmatched`
    the share of records that nobody in the register fits, to which no risk is given there.
    """

    quasi_identifiers: tuple[str, ...]
    records: int
    classes: int
    threshold: float
    population: Basis
    prosecutor: Attacker
    journalist: Attacker
    marketer: float
    unique: float
    unmatched: float | None = None
    class_sizes: tuple[SizeBin, ...]

    def to_record(self) -> dict[str, Any]:
        """Returns the risks for JSON; it has no value of a record."""
        return {"model": NOT_DP, **asdict(self)}


def measure_risk(
    table: TableLike,
    *,
    quasi_identifiers: Sequence[str],
    register: TableLike | None = None,
    weights: str | None = None,
    threshold: float = 0.2,
) -> Risk:
    """Returns the risk that records of `table` are traced to people by their `quasi_identifiers`.

    Risks above the `threshold`, from 0 to 1, are counted. The population is that of the `register`, in which
    labels fit by what they mean, or the sums of the survey `weights`, a column of the table; a class counts
    at least as many people there as here. Without either, the table is the population.

    >>> rows = {"age": ["60+", "60+", "60+", "20-60", "20-60"]}
    >>> found = measure_risk(rows, quasi_identifiers=["age"], threshold=0.4)
    >>> found.prosecutor, found.marketer
    (Attacker(largest=0.5, average=0.4, above_threshold=0.4), 0.4)
    >>> [(each.size, each.classes) for each in found.class_sizes if each.classes]
    [('2', 1), ('3-4', 1)]
    """
    check_names(quasi_identifiers, [] if weights is None else [weights])
    if not 0 < threshold <= 1:
        raise AnonymityError("the threshold of a risk must be above 0 and at most 1")
    if register is not None and weights is not None:
        raise AnonymityError("give a register or weights as the population, not both")
    tally = tally_rows(table, quasi_identifiers, side="table", weights=weights)
    classes = tally.classes(quasi_identifiers)
    sizes = np.bincount(classes, tally.counts).astype(np.int64)
    people = sizes.astype(np.float64)
    matched = np.ones(sizes.size, bool)
    if register is not None:
        fitting = match_register(tally, quasi_identifiers, classes, register)
        matched = fitting > 0
        people = np.maximum(people, fitting)  # who is in the table is in the population, listed or not
    elif tally.weights is not None:
        people = np.maximum(people, np.bincount(classes, tally.weights))
    journalist = _attack(sizes, np.where(matched, 1 / people, 0.0), threshold)
    unmatched = int(sizes[~matched].sum()) / max(1, tally.records)
    return Risk(
        quasi_identifiers=tuple(quasi_identifiers),
        records=tally.records,
        classes=sizes.size,
        threshold=threshold,
        population="register" if register is not None else "table" if weights is None else "weights",
        prosecutor=_attack(sizes, 1 / sizes, threshold),
        journalist=journalist,
        marketer=journalist.average,
        unique=int((sizes == 1).sum()) / max(1, tally.records),
        unmatched=None if register is None else unmatched,
        class_sizes=_count_sizes(sizes),
    )


def _count_sizes(sizes: NDArray[np.int64]) -> tuple[SizeBin, ...]:
    """Returns the classes of these sizes in bins: 1, 2, 3-4, 5-9, and on to 1000+."""
    places = np.searchsorted(_EDGES, sizes, side="right") - 1
    classes = np.bincount(places, minlength=len(_EDGES)).tolist()
    records = np.bincount(places, sizes, minlength=len(_EDGES)).tolist()
    names = [f"{low}" if low + 1 == high else f"{low}-{high - 1}" for low, high in pairwise(_EDGES)]
    return tuple(
        SizeBin(size=name, classes=classes[place], records=int(records[place]))
        for place, name in enumerate([*names, f"{_EDGES[-1]}+"])
    )


def _attack(sizes: NDArray[np.int64], chances: NDArray[np.float64], threshold: float) -> Attacker:
    """Returns the attacker who names the person of a record of each class with these chances."""
    records = max(1, int(sizes.sum()))
    return Attacker(
        largest=float(chances.max(initial=0.0)),
        average=float(sizes @ chances) / records,
        above_threshold=int(sizes[chances > threshold].sum()) / records,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """How well some columns tell records apart.

    `unique` is the share of records that are alone in their class on these columns, `small` the share in
    classes below the limit, `classes` the number of classes.
    """

    columns: tuple[str, ...]
    unique: float
    small: float
    classes: int


def find_identifying_subsets(
    table: TableLike, *, quasi_identifiers: Sequence[str], largest: int = 3, limit: int = 5
) -> tuple[Subset, ...]:
    """Returns all subsets of up to `largest` columns, those that identify most records first.

    Then come those with most records in classes below `limit`, then those of fewer columns.

    >>> rows = {"age": [61, 61, 33], "sex": ["f", "m", "m"], "town": ["x", "x", "x"]}
    >>> found = find_identifying_subsets(rows, quasi_identifiers=["age", "sex", "town"], largest=2)
    >>> [(each.columns, round(each.unique, 2)) for each in found][:3]
    [(('age', 'sex'), 1.0), (('age',), 0.33), (('sex',), 0.33)]
    """
    check_names(quasi_identifiers)
    names = tuple(quasi_identifiers)
    if largest < 1 or limit < 2:
        raise AnonymityError(
            "subsets have at least 1 column, and a small class is one below 2 records or more"
        )
    largest = min(largest, len(names))
    if sum(math.comb(len(names), size) for size in range(1, largest + 1)) > _MOST:
        raise AnonymityError(f"more than {_MOST:,} subsets of columns; ask for smaller ones or fewer columns")
    tally = tally_rows(table, names, side="table")
    records = max(1, tally.records)
    found = []
    sizes = [max(1, len(each)) for each in tally.values]
    subsets = [combinations(range(len(names)), size) for size in range(1, largest + 1)]
    for chosen in chain.from_iterable(subsets):
        codes = [tally.codes[place] for place in chosen]
        counts = _count_classes(codes, [sizes[place] for place in chosen], tally.counts)
        found.append(
            Subset(
                columns=tuple(names[place] for place in chosen),
                unique=int((counts == 1).sum()) / records,
                small=int(counts[counts < limit].sum()) / records,
                classes=counts.size,
            )
        )
    # Equal ones keep the order in which the columns are named.
    return tuple(sorted(found, key=lambda each: (-each.unique, -each.small, len(each.columns))))


def _count_classes(
    codes: Sequence[NDArray[np.int64]], sizes: Sequence[int], weights: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the records of every class of rows with these codes, each below its size."""
    room = math.prod(sizes)
    if room <= _DENSE * weights.size + 1024:
        keys = np.ravel_multi_index(codes, sizes)
        counts = np.bincount(keys, weights, minlength=room)
        return counts[counts > 0].astype(np.int64)
    return np.bincount(number_rows(codes, sizes), weights).astype(np.int64)
