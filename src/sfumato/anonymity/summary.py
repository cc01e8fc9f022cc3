"""What a release kept and what it lost, beside the table it was made of: risk, subsets, accuracy, linkage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sfumato.anonymity.accuracy import measure_accuracy
from sfumato.anonymity.check import NOT_DP
from sfumato.anonymity.risk import measure_risk
from sfumato.anonymity.subsets import find_identifying_subsets
from sfumato.attack.link import link_tables
from sfumato.attack.tables import open_published, read_text, require_columns
from sfumato.errors import AnonymityError, AttackError
from sfumato.tables.arrays import to_arrow

if TYPE_CHECKING:
    from sfumato.anonymity.accuracy import Accuracy
    from sfumato.anonymity.anonymize import Released
    from sfumato.anonymity.check import Anonymity
    from sfumato.anonymity.loss import Loss
    from sfumato.anonymity.plan import Plan
    from sfumato.anonymity.risk import Risk
    from sfumato.anonymity.tables import TableLike
    from sfumato.attack.link import Linkage

INTERNAL = "INTERNAL: tells facts of the original table, not private, do not publish"
MATCHING = (
    "a missing value matches only a missing value, and `*` only `*`; "
    "an adversary may take either for anything"
)

_SHOWN = 12
_UNREADABLE = (
    "some released records fit nobody in the register, as means and names of groups do: "
    "the journalist's risk and the linkage after are too low"
)
_MOST_COLUMNS = 40
"""With more quasi-identifiers than this, only pairs of columns are tried: triples would be too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """How many records some columns single out, as shares of all, in the original table and in the released.

    `unique` records are alone in their class on these columns, `small` are classes below the limit.
    """

    columns: tuple[str, ...]
    unique_before: float
    unique_after: float
    small_before: float
    small_after: float

    def to_record(self) -> dict[str, Any]:
        """The shares for JSON."""
        return {
            "columns": list(self.columns),
            "unique": {"before": self.unique_before, "after": self.unique_after},
            "small": {"before": self.small_before, "after": self.small_after},
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """What was asked and found, and what the release did to risk and use. It holds no value of a record.

    `before` is about the quasi-identifiers of the original table as they are. `small` is the size below
    which `subsets` count a class as small.
    """

    plan: Plan
    found: Anonymity
    records: int
    suppressed: int
    suppressed_cells: float
    before: Risk
    after: Risk
    small: int
    subsets: tuple[Subset, ...]
    loss: Loss
    accuracy: Accuracy | None = None
    linked_before: Linkage | None = None
    linked_after: Linkage | None = None
    notes: tuple[str, ...] = ()

    @property
    def released(self) -> int:
        """The number of released records."""
        return self.records - self.suppressed

    def to_record(self) -> dict[str, Any]:
        """All of it for JSON; docs/anonymity.md explains the keys."""
        linkage = None
        if self.linked_before is not None and self.linked_after is not None:
            linkage = {
                "before": _record_linkage(self.linked_before),
                "after": _record_linkage(self.linked_after),
            }
        return {
            "internal": INTERNAL,
            "model": NOT_DP,
            "matching": MATCHING,
            "asked": record_plan(self.plan),
            "found": self.found.to_record(),
            "records": {
                "original": self.records,
                "released": self.released,
                "suppressed": self.suppressed,
                "suppressed_share": self.suppressed / max(1, self.records),
                "suppressed_cells_share": self.suppressed_cells,
            },
            "risk": {"before": self.before.to_record(), "after": self.after.to_record()},
            "small_class": self.small,
            "subsets": [each.to_record() for each in self.subsets],
            "loss": self.loss.to_record(),
            "accuracy": None if self.accuracy is None else self.accuracy.to_record(),
            "linkage": linkage,
            "notes": list(self.notes),
        }


def summarise(
    released: Released,
    *,
    register: TableLike | None = None,
    survey_weights: pa.ChunkedArray | str | None = None,
    target: str | None = None,
) -> Summary:
    """What `released` kept and lost, beside its original table.

    The journalist's population is the `register` or the `survey_weights`: a column of the original table by
    its name, or its numbers. With a register, both tables are linked with it, too. `target` is the column
    that is predicted from the quasi-identifiers; the first sensitive one by default.

    >>> from sfumato.anonymity.anonymize import release_table
    >>> from sfumato.anonymity.plan import make_plan
    >>> people = {"age": [61, 72, 40, 35], "ill": ["flu", "gout", "flu", "flu"]}
    >>> plan = make_plan(quasi_identifiers=["age"], k=2, sensitive="ill")
    >>> found = summarise(release_table(people, plan))
    >>> found.before.prosecutor.largest, found.after.prosecutor.largest, found.found.k
    (1.0, 0.5, 2)
    """
    plan, names = released.plan, list(released.plan.quasi_identifiers)
    if register is not None and survey_weights is not None:
        raise AnonymityError("give a register or survey weights as the population, not both")
    people = None if register is None else read_register(register, plan)
    original, made = released.original, released.made.table
    before, after, weights = original.select(names), made.select(names), None
    if survey_weights is not None:
        before, after, weights = _weigh(released, before, after, survey_weights)
    small = max(2, plan.k)
    risks = [
        measure_risk(table, quasi_identifiers=names, register=people, weights=weights)
        for table in (before, after)
    ]
    accuracy, notes = _predict(original, made, plan, target)
    if (risks[1].unmatched or 0) > (risks[0].unmatched or 0):
        notes = (*notes, _UNREADABLE)
    linked: tuple[Linkage | None, Linkage | None] = (None, None)
    if people is not None:
        linked = (_link(original, people, plan), _link(made, people, plan))
    return Summary(
        plan=plan,
        found=released.measured,
        records=released.made.records,
        suppressed=released.made.suppressed,
        suppressed_cells=released.made.suppressed_cells,
        before=risks[0],
        after=risks[1],
        small=small,
        subsets=_find_subsets(before, after, names, small),
        loss=released.made.loss,
        accuracy=accuracy,
        linked_before=linked[0],
        linked_after=linked[1],
        notes=notes,
    )


def read_register(register: TableLike, plan: Plan) -> pa.Table:
    """The quasi-identifiers of the people of a register, as text; names are not read further.

    >>> from sfumato.anonymity.plan import make_plan
    >>> plan = make_plan(quasi_identifiers="age", k=2)
    >>> read_register({"name": ["Ada"], "age": [61]}, plan).to_pylist()
    [{'age': '61'}]
    """
    from sfumato.anonymity.tables import read_table

    is_path = isinstance(register, str) or hasattr(register, "__fspath__")
    try:
        people = read_text(register if is_path else read_table(register, side="register"), side="register")
        require_columns(people, plan.quasi_identifiers, side="register")
    except AttackError as error:
        raise AnonymityError(str(error)) from None
    return people.select(list(plan.quasi_identifiers))


def check_target(plan: Plan, target: str | None) -> None:
    """Raises an error if `target` is not a released column beside the quasi-identifiers.

    >>> from sfumato.anonymity.plan import make_plan
    >>> check_target(make_plan(quasi_identifiers="age", k=2, sensitive="ill"), "ill")
    """
    if target is not None and target not in (*plan.sensitive, *plan.keep):
        raise AnonymityError(f"the target {target!r} must be one of the sensitive or the kept columns")


def record_plan(plan: Plan) -> dict[str, Any]:
    """What was asked, for JSON."""
    wanted = plan.wanted
    recursive = None if wanted.recursive is None else {"c": wanted.recursive[0], "l": wanted.recursive[1]}
    return {
        "quasi_identifiers": list(plan.quasi_identifiers),
        "sensitive": list(plan.sensitive),
        "keep": list(plan.keep),
        "individual": plan.individual,
        "method": plan.method,
        "hierarchies": list(plan.hierarchies),
        "k": plan.k,
        "k_map": wanted.k_map is not None,
        "l": wanted.l,
        "entropy_l": wanted.entropy_l,
        "recursive": recursive,
        "t": wanted.t,
        "distance": dict(wanted.distance) if isinstance(wanted.distance, Mapping) else wanted.distance,
        "delta": wanted.delta,
        "weights": dict(plan.weights),
        "max_suppressed": plan.max_suppressed,
        "max_suppressed_cells": plan.max_suppressed_cells,
    }


def _weigh(
    released: Released, before: pa.Table, after: pa.Table, weights: pa.ChunkedArray | str
) -> tuple[pa.Table, pa.Table, str]:
    """Both tables with the weights of their records in a further column, and its name."""
    if isinstance(weights, str):
        if weights not in released.original.column_names:
            raise AnonymityError(f"table: no column {weights!r} of survey weights")
        weights = released.original.column(weights)
    if len(weights) != before.num_rows:
        raise AnonymityError("there must be one survey weight for each record of the original table")
    name = "survey weights"
    while name in before.column_names:
        name += "_"
    # Who made the release knows where a row came from; the file does not tell it.
    theirs = weights.take(to_arrow(released.made.rows))
    return before.append_column(name, weights), after.append_column(name, theirs), name


def _find_subsets(before: pa.Table, after: pa.Table, names: list[str], small: int) -> tuple[Subset, ...]:
    largest = 3 if len(names) <= _MOST_COLUMNS else 2
    found = find_identifying_subsets(before, quasi_identifiers=names, largest=largest, limit=small)
    later = {
        each.columns: each
        for each in find_identifying_subsets(after, quasi_identifiers=names, largest=largest, limit=small)
    }
    return tuple(
        Subset(
            columns=each.columns,
            unique_before=each.unique,
            unique_after=later[each.columns].unique,
            small_before=each.small,
            small_after=later[each.columns].small,
        )
        for each in found[:_SHOWN]
    )


def _predict(
    original: pa.Table, made: pa.Table, plan: Plan, target: str | None
) -> tuple[Accuracy | None, tuple[str, ...]]:
    check_target(plan, target)
    chosen = target or next(iter(plan.sensitive), None)
    if chosen is None:
        return None, ()
    try:
        return measure_accuracy(original, made, features=plan.quasi_identifiers, target=chosen), ()
    except AnonymityError as error:
        if target is not None:
            raise
        # Nobody asked for this one: a column that cannot be predicted is no reason to fail.
        return None, (f"no accuracy was measured: {error}",)


def _link(table: pa.Table, people: pa.Table, plan: Plan) -> Linkage:
    reveal = next(iter(plan.sensitive), None)
    columns = [*plan.quasi_identifiers, *([] if reveal is None else [reveal])]
    try:
        published = open_published(table.select(columns))
        return link_tables(published, people, on=plan.quasi_identifiers, reveal=reveal)
    except AttackError as error:
        raise AnonymityError(str(error)) from None


def _record_linkage(linkage: Linkage) -> dict[str, Any]:
    """The counts alone: the values of linked records are facts about people."""
    revealed = linkage.revealed
    return {
        "records": linkage.records,
        "people": linkage.people,
        "matches": {
            "unique": linkage.unique,
            "few": linkage.few,
            "many": linkage.many,
            "none": linkage.none,
        },
        "limit": linkage.limit,
        "linked": linkage.linked,
        "sensitive": None if revealed is None else revealed.column,
        "certain": None if revealed is None else revealed.certain,
    }
