"""A summary in about ten lines, for a person at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.anonymity.check import NOT_DP
from sfumato.anonymity.summary import MATCHING
from sfumato.pages.words import percent, short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfumato.anonymity.summary import Summary

_WIDTH = 12
_NOT = ""


def describe_summary(summary: Summary) -> str:
    """What was asked and found, what was lost, and who can still be found.

    >>> from sfumato.anonymity.anonymize import release_table
    >>> from sfumato.anonymity.plan import make_plan
    >>> from sfumato.anonymity.summary import summarise
    >>> people = {"age": [61, 72, 40, 35]}
    >>> found = summarise(release_table(people, make_plan(quasi_identifiers=["age"], k=2)))
    >>> print(describe_summary(found).splitlines()[0])
    found        k = 2 (asked 2)
    """
    models = [
        f"{name} {value} ({f'asked {asked}' if asked else 'not asked'})"
        for name, value, asked in list_models(summary)
    ]
    lines = [
        ("found", ", ".join(models)),
        (
            "records",
            f"{summary.released:,} of {summary.records:,} in {summary.found.classes:,} classes, "
            f"{summary.suppressed:,} left out, {percent(summary.suppressed_cells)} of the cells *",
        ),
        *_tell_risk(summary),
        (
            "loss",
            f"NCP {percent(summary.loss.ncp)}, entropy {percent(summary.loss.entropy)}, "
            f"average class / k {short(summary.loss.average_class)}, "
            f"discernibility {summary.loss.discernibility:,}",
        ),
        *_tell_subset(summary),
        *_tell_rest(summary),
        *(("note", each) for each in summary.notes),
        ("matching", MATCHING),
    ]
    told = [f"{name:{_WIDTH}s} {text}" for name, text in lines]
    return "\n".join([*told, f"This is {NOT_DP}: who knows more than these columns may still find people."])


def list_models(summary: Summary) -> tuple[tuple[str, str, str], ...]:
    """Name, value found and value asked of every model, and of l and t also where nothing was asked.

    Recursive diversity holds or does not, and a file in which it does not is never handed over.

    >>> from sfumato.anonymity.anonymize import release_table
    >>> from sfumato.anonymity.plan import make_plan
    >>> from sfumato.anonymity.summary import summarise
    >>> people = {"age": [61, 72, 40, 35], "ill": ["a", "b", "a", "b"]}
    >>> plan = make_plan(quasi_identifiers=["age"], k=2, sensitive="ill", l=2)
    >>> list_models(summarise(release_table(people, plan)))
    (('k =', '2', '2'), ('l =', '2', '2'), ('t =', '0', ''))
    """
    found, plan, wanted = summary.found, summary.plan, summary.plan.wanted
    models: list[tuple[str, str, str]] = []
    if wanted.k_map is not None:
        models.append(("k-map =", f"{found.k_map}", f"{wanted.k_map}"))
        models.append(("k =", f"{found.k}", "1"))
    elif plan.individual is not None:
        models.append(("k =", f"{found.k} records", f"{plan.k} people, checked before writing"))
    else:
        models.append(("k =", f"{found.k}", f"{wanted.k}"))
    if found.l is not None:
        models.append(("l =", f"{found.l}", _NOT if wanted.l is None else f"{wanted.l}"))
    if wanted.entropy_l is not None:
        models.append(("entropy l =", short(found.entropy_l), f"{wanted.entropy_l:g}"))
    if wanted.recursive is not None:
        c, number = wanted.recursive
        models.append((f"recursive ({c:g}, {number})", "holds", "yes"))
    if found.t is not None:
        models.append(("t =", short(found.t), _NOT if wanted.t is None else f"at most {wanted.t:g}"))
    if wanted.delta is not None:
        models.append(("delta =", short(found.delta_disclosure), f"below {wanted.delta:g}"))
    return tuple(models)


def _tell_risk(summary: Summary) -> Iterator[tuple[str, str]]:
    before, after = summary.before, summary.after
    yield (
        "prosecutor",
        f"largest risk {percent(before.prosecutor.largest)} -> {percent(after.prosecutor.largest)}, "
        f"unique records {percent(before.unique)} -> {percent(after.unique)}",
    )
    basis = {"register": "the register", "weights": "survey weights", "table": "no population given"}
    yield (
        "journalist",
        f"largest risk {percent(before.journalist.largest)} -> {percent(after.journalist.largest)} "
        f"({basis[after.basis]})",
    )
    yield (
        "marketer",
        f"expects {percent(before.marketer)} -> {percent(after.marketer)} of the records",
    )


def _tell_subset(summary: Summary) -> Iterator[tuple[str, str]]:
    if summary.subsets:
        worst = summary.subsets[0]
        yield (
            "identifying",
            f"{', '.join(worst.columns)}: {percent(worst.unique_before)} of the records alone before, "
            f"{percent(worst.unique_after)} after",
        )


def _tell_rest(summary: Summary) -> Iterator[tuple[str, str]]:
    accuracy = summary.accuracy
    if accuracy is not None:
        yield (
            "accuracy",
            f"{accuracy.target} predicted right {percent(accuracy.before)} -> {percent(accuracy.after)} "
            f"(without looking {percent(accuracy.baseline_before)} -> {percent(accuracy.baseline_after)})",
        )
    before, after = summary.linked_before, summary.linked_after
    if before is not None and after is not None:
        told = f"{before.linked:,} -> {after.linked:,} of {after.people:,} people in the register"
        if before.revealed is not None and after.revealed is not None:
            told += (
                f"; {after.revealed.column} certain of {before.revealed.certain:,} -> "
                f"{after.revealed.certain:,}"
            )
        yield "linked", told
