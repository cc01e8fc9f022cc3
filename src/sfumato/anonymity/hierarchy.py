"""Hierarchies: how the values of a column are made coarser, level by level, up to `*`.

Intervals    180-190, 60+        numbers
Dates        1950-01-*, 1950-*   dates, with or without a time
Prefixes     12*, 1*             codes and texts, redacted from the right
Groups       Government          texts with names for groups, and for groups of groups
Listed       as in the file      any values, one row each, as other tools write them
Suppressed   *                   the value or nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sfumato.anonymity.hierarchy_base import (
    TOP,
    Hierarchy,
    Levels,
    as_tuple,
    check_nested,
    refuse,
    trim_zeros,
    write_value,
)
from sfumato.anonymity.hierarchy_ranges import Dates, Intervals
from sfumato.errors import AnonymityError

__all__ = [
    "Dates",
    "Groups",
    "Hierarchy",
    "Intervals",
    "Levels",
    "Listed",
    "Prefixes",
    "Suppressed",
    "check_nested",
    "write_value",
]


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The value or `*`, with nothing between.

    >>> Suppressed().label_levels(["a", "b"], column="sex")
    (('*', '*'),)
    """

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """One level, all `*`."""
        return check_nested([[TOP] * len(values)], column=column)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The first `keep` characters and a star, most characters first.

    A value shorter than `keep` stays whole at that level: nothing of it is hidden, so it has no star.
    With `pad`, one star stands for each hidden character, and values of different length stay apart.

    >>> Prefixes(keep=[2, 1]).label_levels(["1001", "1243", "6"], column="postcode")
    (('10*', '12*', '6'), ('1*', '1*', '6*'), ('*', '*', '*'))
    >>> Prefixes(keep=[2], pad=True).label_levels(["1001", "10017"], column="postcode")
    (('10**', '10***'), ('*', '*'))
    """

    keep: int | Sequence[int]
    pad: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        given = as_tuple(self.keep)
        keep = tuple(
            each for each in given if isinstance(each, int) and not isinstance(each, bool) and each > 0
        )
        if not keep or keep != given or any(longer <= shorter for longer, shorter in pairwise(keep)):
            raise AnonymityError(
                "prefixes: keep must be whole numbers above 0, the largest first, such as [3, 2, 1]"
            )
        object.__setattr__(self, "keep", keep)

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """The beginnings of `values` at every level, then `*`."""
        texts = [write_value(value) for value in values]
        barred = sum("|" in text for text in texts)
        remedy = "replace it in the source, or list the values with Listed"
        refuse(
            barred,
            len(values),
            column=column,
            what="text with '|', which means 'or' in a label",
            remedy=remedy,
        )
        keep = (self.keep,) if isinstance(self.keep, int) else self.keep
        levels = [[self._shorten(text, length) for text in texts] for length in keep]
        return check_nested([*levels, [TOP] * len(values)], column=column)

    def _shorten(self, text: str, length: int) -> str:
        # What follows a star is hidden already, as in 12* of a table that was generalised before.
        stem = text.partition(TOP)[0]
        kept = stem[:length]
        if self.pad:
            return kept + TOP * (len(text) - len(kept)) or TOP
        return kept if kept == text and len(text) < length and text else kept + TOP


@dataclass(frozen=True, slots=True)
class Groups:
    """Named groups of values, and with several mappings groups of groups, finest first.

    A value that is to stay itself is a group of its own. With `spelled`, a group is written as its values,
    `a|b`, which an attack can read; a name such as Government says nothing to a program.

    >>> jobs = Groups([{"State": ["City", "Court"], "Firm": ["Firm"]}, {"Paid": ["State", "Firm"]}])
    >>> jobs.label_levels(["City", "Firm"], column="job")
    (('State', 'Firm'), ('Paid', 'Paid'), ('*', '*'))
    >>> Groups({"20-60": ["30-40", "40-60"], "60+": ["60+"]}).label_levels(["60+", "30-40"], column="age")
    (('60+', '20-60'), ('*', '*'))
    """

    levels: Mapping[str, Sequence[object]] | Sequence[Mapping[str, Sequence[object]]]
    spelled: bool = field(default=False, kw_only=True)
    _labels: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = as_tuple(self.levels)
        levels = [level for level in given if isinstance(level, Mapping) and level]
        if not levels or len(levels) != len(given):
            raise AnonymityError(
                "groups: give a mapping from the name of a group to its values, or a list of mappings"
            )
        parents = [_invert_groups(level, number) for number, level in enumerate(levels, start=1)]
        for number, (finer, coarser) in enumerate(zip(levels, parents[1:], strict=False), start=2):
            names = {write_value(name) for name in finer}
            if names != set(coarser):
                raise AnonymityError(
                    f"groups: level {number} must hold exactly the groups of level {number - 1}; left out: "
                    f"{_names(names - set(coarser))}; not known: {_names(set(coarser) - names)}"
                )
        labels: dict[str, tuple[str, ...]] = {}
        for value in parents[0]:
            path = [value]
            for parent in parents:
                path.append(write_value(parent[path[-1]]))
            labels[value] = tuple(path[1:])
        object.__setattr__(self, "_labels", _spell(labels) if self.spelled else labels)

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """The groups of `values` at every level, then `*`."""
        return _look_up(self._labels, values, column=column, remedy="put them in a group")


@dataclass(frozen=True, slots=True)
class Listed:
    """Labels from a list: rows of a value and its coarser labels, with or without a last `*`.

    >>> Listed([["Federal", "Government"], ["Private", "Private"]]).label_levels(["Private"], column="job")
    (('Private',), ('*',))
    >>> Listed([["a", "x"], ["b", "x"], ["a", "y"]])
    Traceback (most recent call last):
        ...
    sfumato.errors.AnonymityError: listed: row 3 is ambiguous: its value has other labels ...
    """

    rows: Sequence[Sequence[object]] = field(repr=False)
    _labels: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = [tuple(write_value(cell) for cell in as_tuple(row)) for row in self.rows]
        if not rows or len(rows[0]) < 2:
            raise AnonymityError("listed: give rows of a value and at least one label")
        labels: dict[str, tuple[str, ...]] = {}
        for number, row in enumerate(rows, start=1):
            if len(row) != len(rows[0]):
                raise AnonymityError(
                    f"listed: row {number} has {len(row)} cells and the first {len(rows[0])}; make them equal"
                )
            if not all(row[1:]):
                raise AnonymityError(
                    f"listed: row {number} has an empty label; repeat the label before it, or write *"
                )
            if labels.setdefault(row[0], row[1:]) != row[1:]:
                raise AnonymityError(
                    f"listed: row {number} is ambiguous: its value has other labels in a row before; keep one"
                )
        above: dict[tuple[int, str], str] = {}
        for number, row in enumerate(rows, start=1):
            for place, (finer, coarser) in enumerate(pairwise(row[1:]), start=1):
                if above.setdefault((place, finer), coarser) != coarser:
                    raise AnonymityError(
                        f"listed: row {number} is ambiguous: its label of level {place} has another label of "
                        f"level {place + 1} in a row before; give it one"
                    )
        object.__setattr__(self, "rows", tuple(rows))
        object.__setattr__(self, "_labels", labels)

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """The listed labels of `values` at every level, then `*`."""
        return _look_up(self._labels, values, column=column, remedy="add a row for each")


def _look_up(
    labels: Mapping[str, tuple[str, ...]], values: Sequence[object], *, column: str, remedy: str
) -> Levels:
    texts = [write_value(value) for value in values]
    if not all(isinstance(value, str) for value in values):
        labels = _index_numbers(labels, column)
    unknown = sum(text not in labels for text in texts)
    refuse(unknown, len(values), column=column, what="unknown to the hierarchy", remedy=remedy)
    # The depth is that of the whole list, also for a column without values.
    depth = len(next(iter(labels.values())))
    levels = [[labels[text][place] for text in texts] for place in range(depth)]
    if any(row[-1] != TOP for row in labels.values()):
        levels.append([TOP] * len(texts))
    return check_nested(levels, column=column)


def _index_numbers(labels: Mapping[str, tuple[str, ...]], column: str) -> dict[str, tuple[str, ...]]:
    """The labels by number, so that a listed 1.0 is 1; codes of text such as 250.10 are not numbers."""
    plain: dict[str, tuple[str, ...]] = {}
    for text, row in labels.items():
        if plain.setdefault(trim_zeros(text), row) != row:
            raise AnonymityError(
                f"column {column!r}: the hierarchy is ambiguous: one number is listed twice, as 1 and 1.0"
            )
    return plain


def _invert_groups(level: Mapping[str, Sequence[object]], number: int) -> dict[str, str]:
    """The group of each member; a member of two groups is ambiguous."""
    parents: dict[str, str] = {}
    for name, members in level.items():
        if not isinstance(name, str) or not name.strip():
            raise AnonymityError(f"groups: level {number} has a group without a name")
        if isinstance(members, str) or not isinstance(members, Sequence) or not members:
            raise AnonymityError(
                f"groups: {name!r} must be a list of what belongs to it, such as {name!r}: ['a', 'b']"
            )
        for member in members:
            other = parents.setdefault(write_value(member), name)
            if other != name:
                raise AnonymityError(
                    f"groups: ambiguous: {other!r} and {name!r} share a member; leave it in one of them"
                )
    return parents


def _spell(labels: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The labels with each group written as the values in it."""
    if any("|" in value for value in labels):
        raise AnonymityError(
            "groups: spelled writes values with '|' between, so no value may hold one; use names instead"
        )
    members: dict[tuple[int, str], list[str]] = {}
    for value, path in labels.items():
        for place, label in enumerate(path):
            members.setdefault((place, label), []).append(value)
    return {
        value: tuple(
            TOP if label == TOP else "|".join(members[place, label]) for place, label in enumerate(path)
        )
        for value, path in labels.items()
    }


def _names(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"
