"""Which few columns are enough to tell records apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.anonymity.tally import check_names, tally_rows
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from sfumato.anonymity.tables import TableLike

_MOST = 20_000
_DENSE = 4


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

    def to_record(self) -> dict[str, Any]:
        """The shares for JSON."""
        return {
            "columns": list(self.columns),
            "unique": self.unique,
            "small": self.small,
            "classes": self.classes,
        }


def find_identifying_subsets(
    table: TableLike, *, quasi_identifiers: Sequence[str], largest: int = 3, limit: int = 5
) -> tuple[Subset, ...]:
    """All subsets of up to `largest` columns, those that identify most records first.

    They are sorted by the share of unique records, then by that of records in classes below `limit`, then
    the fewer columns first. Records are counted once: after that only different rows cost anything.

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
    for chosen, counts in _count_subsets(tally.codes, tally.counts, largest):
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


def _count_subsets(
    codes: Sequence[NDArray[np.int64]], weights: NDArray[np.int64], largest: int
) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64]]]:
    """The columns of each subset and the sizes of its classes, small subsets first.

    A subset extends one that is smaller by a column, whose classes are numbered already; they are kept
    only for the size at hand.
    """
    sizes = [int(code.max(initial=-1)) + 1 for code in codes]
    known: dict[tuple[int, ...], tuple[NDArray[np.int64], int]] = {}
    for size in range(1, largest + 1):
        grown: dict[tuple[int, ...], tuple[NDArray[np.int64], int]] = {}
        for chosen in combinations(range(len(codes)), size):
            keys, room = codes[chosen[-1]], sizes[chosen[-1]]
            if size > 1:
                before, classes = known[chosen[:-1]]
                keys, room = before * room + keys, classes * room
            counts, numbered = _count(keys, room, weights, numbered=size < largest)
            if numbered is not None:
                grown[chosen] = numbered, counts.size
            yield chosen, counts
        known = grown


def _count(
    keys: NDArray[np.int64], room: int, weights: NDArray[np.int64], *, numbered: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """The records of each key that occurs, and the place of each row's key among these."""
    if room <= _DENSE * keys.size + 1024:
        counts = np.bincount(keys, weights, minlength=room)
        occupied = counts > 0
        places = (np.cumsum(occupied) - 1)[keys] if numbered else None
        return counts[occupied].astype(np.int64), places
    place = np.unique(keys, return_inverse=True)[1].reshape(-1)
    return np.bincount(place, weights).astype(np.int64), place if numbered else None
