"""The k, l and t that a table has, counted from the table alone.

Two records are in one class if all their quasi-identifiers are written the same; a missing value is the
same as a missing value only, `*` as `*` only. What made the table has no part in this: a file is judged as
whoever gets it reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.anonymity.measures import Distance, Diversity, measure_spread
from sfumato.anonymity.tally import check_names, tally_rows
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.anonymity.tables import TableLike

NOT_DP = "k-anonymity, not differential privacy"

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T].*)?", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymity:
    """How anonymous a table is: the worst class decides each measure.

    `k` is the size of the smallest class, in records or, if `individual` names the column of people, in
    different people. `k_map` is the smallest number of people of a register who fit a class. Measures
    of sensitive columns are None without one, and the worst of several, which `by_column` has one by one.
    A table without records has no class and protects nobody: its k, l and entropy_l are 0.
    """

    quasi_identifiers: tuple[str, ...]
    records: int
    classes: int
    k: int
    individual: str | None = None
    k_map: int | None = None
    by_column: Mapping[str, Diversity]

    @property
    def l(self) -> int | None:  # noqa: E743 - the field's word
        """Distinct l-diversity: the smallest number of different sensitive values in a class."""
        return min((each.l for each in self.by_column.values()), default=None)

    @property
    def entropy_l(self) -> float | None:
        """Entropy l-diversity: exp of the smallest entropy of the sensitive values of a class."""
        return min((each.entropy_l for each in self.by_column.values()), default=None)

    @property
    def t(self) -> float | None:
        """t-closeness: the largest distance between a class's sensitive values and the table's."""
        return max((each.t for each in self.by_column.values()), default=None)

    @property
    def delta_disclosure(self) -> float | None:
        """Delta-disclosure: the largest |log(share in a class / share in the table)| of a sensitive value.

        Infinite where a class lacks a value that the table has.
        """
        return max((each.delta_disclosure for each in self.by_column.values()), default=None)

    def recursive(self, c: float, l: int) -> bool:  # noqa: E741 - the field's word
        """Whether it is recursively (c, l)-diverse in every sensitive column.

        That is, in every class the most frequent value is rarer than `c` times all values from the l-th
        most frequent on.
        """
        if not self.by_column:
            raise AnonymityError("name a sensitive column to ask for its diversity")
        return all(each.is_recursive(c, l) for each in self.by_column.values())

    def to_record(self) -> dict[str, Any]:
        """The measures for JSON, in which an infinite one is None; it has no value of a record."""
        delta = self.delta_disclosure
        return {
            "model": NOT_DP,
            "quasi_identifiers": list(self.quasi_identifiers),
            "records": self.records,
            "classes": self.classes,
            "k": self.k,
            "individual": self.individual,
            "k_map": self.k_map,
            "l": self.l,
            "entropy_l": self.entropy_l,
            "t": self.t,
            "delta_disclosure": delta if delta is not None and math.isfinite(delta) else None,
            "by_column": [each.to_record() for each in self.by_column.values()],
        }

    def __str__(self) -> str:
        whom = "records" if self.individual is None else "people"
        lines = [
            f"k = {self.k}: at least {self.k} {whom} in each of {self.classes:,} classes "
            f"({self.records:,} records; {', '.join(self.quasi_identifiers)})"
        ]
        if self.k_map is not None:
            lines.append(f"k-map = {self.k_map}: at least so many people of the register fit a class")
        lines += [
            f"{each.column}: l = {each.l} (entropy {each.entropy_l:.3g}), "
            f"t = {each.t:.3g} ({each.distance} distance), delta = {each.delta_disclosure:.3g}"
            for each in self.by_column.values()
        ]
        return "\n".join([*lines, NOT_DP])


def measure_anonymity(
    table: TableLike,
    *,
    quasi_identifiers: Sequence[str] | str,
    sensitive: str | Sequence[str] | None = None,
    register: TableLike | None = None,
    individual: str | None = None,
    distance: Distance | Mapping[str, Distance] = "equal",
    order: Mapping[str, Sequence[Any]] | None = None,
) -> Anonymity:
    """How anonymous `table` is: an Arrow table, a frame, a mapping of columns, or the path of a file.

    A missing sensitive value is a value of its own. `distance`, for all sensitive columns or by column, is
    that of t: `equal` is the total variation distance, `ordered` the earth mover's distance over the
    values in order. Numbers and dates have an order; for text, `order` lists the values of a column from
    the lowest to the highest. A missing value comes after all others.

    `register` names people with the same quasi-identifiers as they are, for k-map. `individual` names the
    column of people in a table that has several records of each.

    >>> rows = {"age": ["60+", "60+", "60+", "20-60", "20-60"], "ill": ["flu", "gout", "flu", "flu", "gout"]}
    >>> found = measure_anonymity(rows, quasi_identifiers=["age"], sensitive="ill")
    >>> found.k, found.l, round(found.t, 3)
    (2, 2, 0.1)
    >>> print(found)
    k = 2: at least 2 records in each of 2 classes (5 records; age)
    ill: l = 2 (entropy 1.89), t = 0.1 (equal distance), delta = 0.223
    k-anonymity, not differential privacy
    """
    columns = [sensitive] if isinstance(sensitive, str) else list(sensitive or ())
    if isinstance(quasi_identifiers, str):
        quasi_identifiers = [quasi_identifiers]
    check_names(quasi_identifiers, [*columns, *([] if individual is None else [individual])])
    distances = _choose_distances(columns, distance)
    tally = tally_rows(table, [*quasi_identifiers, *columns], side="table")
    classes = tally.classes(quasi_identifiers)
    sizes = np.bincount(classes, tally.counts).astype(np.int64)
    k = int(sizes.min(initial=tally.records))
    if individual is not None:
        k = _count_people(table, quasi_identifiers, individual)
    fitting = None
    if register is not None:
        from sfumato.anonymity.matching import match_register

        fitting = match_register(tally, quasi_identifiers, classes, register)
    spreads = {}
    for place, name in enumerate(columns, start=len(quasi_identifiers)):
        codes = tally.codes[place]
        if distances[name] == "ordered":
            codes = _put_in_order(name, tally.values[place], (order or {}).get(name))[codes]
        spreads[name] = measure_spread(name, classes, codes, tally.counts, distance=distances[name])
    return Anonymity(
        quasi_identifiers=tuple(quasi_identifiers),
        records=tally.records,
        classes=sizes.size,
        k=k,
        individual=individual,
        k_map=None if fitting is None else int(fitting.min()) if fitting.size else 0,
        by_column=spreads,
    )


def _count_people(table: TableLike, quasi_identifiers: Sequence[str], individual: str) -> int:
    """The smallest number of different people in a class; all without a name count as one."""
    pairs = tally_rows(table, [*quasi_identifiers, individual], side="table")
    people = np.bincount(pairs.classes(quasi_identifiers))
    return int(people.min()) if people.size else 0


def _choose_distances(
    columns: Sequence[str], distance: Distance | Mapping[str, Distance]
) -> dict[str, Distance]:
    chosen = dict(distance) if isinstance(distance, Mapping) else dict.fromkeys(columns, distance)
    unknown = [name for name in chosen if name not in columns]
    if unknown:
        raise AnonymityError(
            f"a distance is given for column {unknown[0]!r}, which is not sensitive; name it so"
        )
    if any(each not in ("equal", "ordered") for each in chosen.values()):
        raise AnonymityError("the distance of t is 'equal' or 'ordered'")
    return {name: chosen.get(name, "equal") for name in columns}


def _put_in_order(name: str, values: pa.Array, listed: Sequence[Any] | None) -> NDArray[np.int64]:
    """The place of each of the sorted values in the order of the column; a missing one is the last."""
    known = values.drop_null()
    if listed is not None:
        places = {str(value): place for place, value in enumerate(listed)}
        texts = [str(value) for value in known.to_pylist()]
        if len(places) != len(listed) or not places.keys() >= set(texts):
            raise AnonymityError(f"the order of column {name!r} must list each of its values once")
        ranks = np.array([places[text] for text in texts], np.int64)
    elif pa.types.is_string(known.type) and len(known):
        texts = known.to_pylist()
        if all(_DAY.fullmatch(text) for text in texts):
            ranks = np.arange(len(known))  # days and moments are written in their order
        elif not all(_NUMBER.fullmatch(text) for text in texts):
            raise AnonymityError(
                f"column {name!r} is text, which has no order to measure a distance by; "
                "give its `order`, or ask for the equal distance"
            )
        else:
            ranks = np.asarray(pc.cast(known, pa.float64()).to_numpy(zero_copy_only=False))
    else:
        ranks = np.arange(len(known))
    # Two spellings of one number share a place; a listed value that no record has takes none.
    found = np.unique(ranks, return_inverse=True)[1].reshape(-1)
    return np.append(found, found.max(initial=-1) + 1).astype(np.int64)
