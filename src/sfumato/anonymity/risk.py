"""The risk that a record is traced to its person, for three attackers.

The prosecutor knows that somebody is in the table and looks for their record. The journalist wants to show
that anybody can be found, in a population of which the table is a part. The marketer tries everybody and
counts successes. Each picks at random among those who fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sfumato.anonymity.check import NOT_DP
from sfumato.anonymity.tally import check_names, tally_rows
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.anonymity.tables import TableLike

Basis = Literal["register", "weights", "table"]

_EDGES = (1, 2, 3, 5, 10, 20, 50, 100, 1000)
_BASES = {
    "register": "people of the register",
    "weights": "sums of weights",
    "table": "no population given, so as the prosecutor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacker:
    """Chances to name a record's person: largest, average, and the share of records above the threshold."""

    largest: float
    average: float
    above: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBin:
    """The classes of `low` to `high` records, or of `low` and more, and how many records they hold."""

    low: int
    high: int | None
    classes: int
    records: int

    @property
    def label(self) -> str:
        """The sizes in words: 1, 3-4, 1000+."""
        if self.high is None:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """The risk of re-identification by three attackers, and the sizes of classes.

    `basis` says what the journalist and the marketer take for the population. `marketer` is the expected
    share of records that are re-identified, `unique` the share that is alone in its class, and `unmatched`
    the share of records that nobody in the register fits, to which no risk is given there.
    """

    quasi_identifiers: tuple[str, ...]
    records: int
    classes: int
    threshold: float
    basis: Basis
    prosecutor: Attacker
    journalist: Attacker
    marketer: float
    unique: float
    unmatched: float | None = None
    sizes: tuple[SizeBin, ...]

    def to_record(self) -> dict[str, Any]:
        """The risks for JSON; it has no value of a record."""
        attackers = {"prosecutor": self.prosecutor, "journalist": self.journalist}
        return {
            "model": NOT_DP,
            "quasi_identifiers": list(self.quasi_identifiers),
            "records": self.records,
            "classes": self.classes,
            "threshold": self.threshold,
            "population": self.basis,
            **{
                name: {"largest": each.largest, "average": each.average, "above_threshold": each.above}
                for name, each in attackers.items()
            },
            "marketer": self.marketer,
            "unique": self.unique,
            "unmatched": self.unmatched,
            "class_sizes": [
                {"size": each.label, "classes": each.classes, "records": each.records} for each in self.sizes
            ],
        }

    def __str__(self) -> str:
        return "\n".join(
            [
                _describe("prosecutor", self.prosecutor, self.threshold),
                f"{_describe('journalist', self.journalist, self.threshold)} ({_BASES[self.basis]})",
                f"marketer: {self.marketer:.2%} of records expected to be re-identified",
                f"unique: {self.unique:.2%} of {self.records:,} records in {self.classes:,} classes",
                NOT_DP,
            ]
        )


def measure_risk(
    table: TableLike,
    *,
    quasi_identifiers: Sequence[str],
    register: TableLike | None = None,
    weights: str | None = None,
    threshold: float = 0.2,
) -> Risk:
    """The risk that records of `table` are traced to people by their quasi-identifiers.

    The population is that of the `register`, in which labels fit by what they mean, or the sums of the
    survey `weights`, a column of the table; a class counts at least as many people there as here. Without
    either, the table is the population.

    >>> rows = {"age": ["60+", "60+", "60+", "20-60", "20-60"]}
    >>> found = measure_risk(rows, quasi_identifiers=["age"], threshold=0.4)
    >>> found.prosecutor, found.marketer
    (Attacker(largest=0.5, average=0.4, above=0.4), 0.4)
    >>> [(each.label, each.classes) for each in found.sizes if each.classes]
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
        from sfumato.anonymity.matching import match_register

        fitting = match_register(tally, quasi_identifiers, classes, register)
        matched = fitting > 0
        people = np.maximum(people, fitting)
    elif tally.weights is not None:
        people = np.maximum(people, np.bincount(classes, tally.weights))
    journalist = _attack(sizes, np.where(matched, 1 / people, 0.0), threshold)
    unmatched = int(sizes[~matched].sum()) / max(1, tally.records)
    return Risk(
        quasi_identifiers=tuple(quasi_identifiers),
        records=tally.records,
        classes=sizes.size,
        threshold=threshold,
        basis="register" if register is not None else "table" if weights is None else "weights",
        prosecutor=_attack(sizes, 1 / sizes, threshold),
        journalist=journalist,
        marketer=journalist.average,
        unique=int((sizes == 1).sum()) / max(1, tally.records),
        unmatched=None if register is None else unmatched,
        sizes=count_sizes(sizes),
    )


def count_sizes(sizes: NDArray[np.int64]) -> tuple[SizeBin, ...]:
    """The classes of these sizes in bins: 1, 2, 3-4, 5-9, and on to 1000+.

    >>> [each.records for each in count_sizes(np.array([1, 1, 4, 2000]))]
    [2, 0, 4, 0, 0, 0, 0, 0, 2000]
    """
    places = np.searchsorted(_EDGES, sizes, side="right") - 1
    classes = np.bincount(places, minlength=len(_EDGES)).tolist()
    records = np.bincount(places, sizes, minlength=len(_EDGES)).tolist()
    highs = [*(edge - 1 for edge in _EDGES[1:]), None]
    return tuple(
        SizeBin(low=low, high=high, classes=classes[place], records=int(records[place]))
        for place, (low, high) in enumerate(zip(_EDGES, highs, strict=True))
    )


def _attack(sizes: NDArray[np.int64], chances: NDArray[np.float64], threshold: float) -> Attacker:
    """The attacker who names the person of a record of each class with these chances."""
    records = max(1, int(sizes.sum()))
    return Attacker(
        largest=float(chances.max(initial=0.0)),
        average=float(sizes @ chances) / records,
        above=int(sizes[chances > threshold].sum()) / records,
    )


def _describe(name: str, attacker: Attacker, threshold: float) -> str:
    return (
        f"{name}: largest risk {attacker.largest:.2%}, average {attacker.average:.2%}, "
        f"{attacker.above:.2%} of records above {threshold:.0%}"
    )
