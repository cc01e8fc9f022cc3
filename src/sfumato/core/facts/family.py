"""Families: parents, their children in another table, and the records that tell how both belong together.

`relate_tables` describes those records as a table of its own, which no file holds: one record for every
child, with the columns of its parent and of the child before it, and one for every parent without children.
An engine makes them (docs/proofs/related.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sfumato.core.errors import RecipeError
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import IntegerRange, Tuples, Values
from sfumato.core.facts.table import Family, Table, cap_unit

if TYPE_CHECKING:
    from sfumato.core.facts.domain import Label

MOST_CHILDREN = 2**12
"""The most children of one parent that are told apart by their number."""

_MOST_ORDERED = 2**7  # values of a column that orders siblings, up to which no row breaks the order


def relate_tables(family: Family) -> Table:
    """The table of a family's records, of which nobody has more than one in all, by weight.

    Its columns hold codes: those of the parent, of the child and of the child before, and of the number of
    children. The last code of a child's column stands for no child, that of the one before for none before.

    Privacy: an individual with n records has the weight 1 / n in each, rounded down, so that it adds at most
    one record to any marginal, whatever it holds (docs/proofs/related.md).
    """
    child, parent = family.child, family.parent
    _refuse_unfit(family)
    listed: list[Column] = []
    if parent is not None:
        listed += [
            _code_column(family.of_parent(each), parent.column(each)) for each in family.parent_columns
        ]
    for name, size in ((family.number, len(family.steps)), (family.later, 2)):
        listed.append(Column(name=name, stored=(name,), domain=IntegerRange(0, size - 1)))
    # Without a table of parents nobody is known to have no child.
    for name_of, absent in ((family.of_child, int(parent is not None)), (family.of_previous, 1)):
        listed += [_code_column(name_of(each), child.column(each), absent=absent) for each in family.columns]
    columns = {each.name: each for each in listed}
    impossible = [
        {family.of_child(name): labels for name, labels in _code_rule(rule, child).items()}
        for rule in child.impossible
        if set(rule) <= set(family.columns)
    ]
    if parent is not None:
        impossible += [
            {family.of_parent(name): labels for name, labels in _code_rule(rule, parent).items()}
            for rule in parent.impossible
            if set(rule) <= set(family.parent_columns)
        ]
    impossible += _list_unordered(family, columns)
    return replace(
        child,
        unit=cap_unit(child.unit, 1),
        columns=columns,
        bounding="weight",
        impossible=tuple(impossible),
        family=family,
    )


def _list_unordered(family: Family, columns: Mapping[str, Column]) -> list[dict[str, tuple[Label, ...]]]:
    """That no child is before the one it follows, where the column that orders them is asked about.

    True by construction, so it is no knowledge about anybody. Only where codes ascend as values do.
    """
    name = family.order
    if name is None or name not in family.columns:
        return []
    column = family.child.column(name)
    labels = column.labels if isinstance(column.domain, Values) else ()
    ascends = list(labels) == sorted(labels) and not any(isinstance(each, str) for each in labels)
    if column.extras or isinstance(column.domain, Tuples) or not ascends or column.size > _MOST_ORDERED:
        return []
    own, before = (columns[each].labels for each in (family.of_child(name), family.of_previous(name)))
    return [
        {family.of_previous(name): (before[code],), family.of_child(name): own[:code]}
        for code in range(1, column.size)
    ]


def _refuse_unfit(family: Family) -> None:
    child, parent = family.child, family.parent
    where = f"related: table {child.name!r}"
    if child.rules or (parent is not None and parent.rules):
        raise RecipeError(
            f"{where}, or that of its parents, has rules; of rules related keeps impossible combinations of "
            "labels alone: remove the others, or release the tables one by one"
        )
    if child.unit.period is not None:
        raise RecipeError(
            f"{where} protects what an individual did in one period; siblings are all records of one: name "
            "the column of individuals alone as unit"
        )
    if child.unit.column is None:
        raise RecipeError(
            f'{where} has unit = "row", so its records have no parent; declare references = '
            '{column = "parents.key"}, or the column that names the individual as unit'
        )
    if child.unit.max_records > MOST_CHILDREN:
        raise RecipeError(
            f"{where} has max_records = {child.unit.max_records:,}; related tells numbers of children up to "
            f"{MOST_CHILDREN:,} apart: lower it, the first so many children of a parent are kept"
        )
    if parent is None:
        return
    if parent.unit.max_records != 1:
        raise RecipeError(
            f"related: table {parent.name!r} has max_records = {parent.unit.max_records}; a parent is one "
            "individual, with one record there: set max_records = 1, and the key as unit"
        )
    if parent.text_limit != child.text_limit:
        raise RecipeError(
            f"related: tables {parent.name!r} and {child.name!r} have different text_limit, so that the "
            "names of parents could differ; set the same"
        )


def _code_column(name: str, column: Column, *, absent: int = 0) -> Column:
    """A column of the codes of another, and of one more for what is `absent`."""
    listed = column.size + absent - int(column.outside == "other")
    return Column(
        name=name,
        stored=(name,),
        domain=IntegerRange(0, listed - 1),
        outside=column.outside,
        drafted=column.drafted,
        accepted=column.accepted,
        origin=column.origin,
    )


def _code_rule(rule: Mapping[str, tuple[Label, ...]], table: Table) -> dict[str, tuple[Label, ...]]:
    """What no record can be, in the labels of columns of codes."""
    coded: dict[str, tuple[Label, ...]] = {}
    for name, listed in rule.items():
        column = table.column(name)
        labels = _code_column(name, column).labels
        coded[name] = tuple(labels[place] for place, label in enumerate(column.labels) if label in listed)
    return coded
