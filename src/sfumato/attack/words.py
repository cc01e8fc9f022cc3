"""Attacks in plain words, for a person at a terminal; every text begins by saying that it is internal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.attack.link import INTERNAL
from sfumato.exact import format_exact
from sfumato.pages.words import at_least, at_most, percent, short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sfumato.attack.average import AverageAttack
    from sfumato.attack.difference import DifferenceAttack
    from sfumato.attack.link import Linkage

_MOST_VALUES = 12
_WIDTH = 46


def describe_linkage(after: Linkage, *, before: Linkage | None = None) -> str:
    """The counts and shares of a linkage, of two releases beside each other if `before` is given.

    >>> import pyarrow as pa
    >>> from sfumato.attack import link_tables, open_published
    >>> people = pa.table({"name": ["Ada", "Bo"], "age": ["61", "33"]})
    >>> found = link_tables(open_published(people.drop_columns(["name"])), people, on=["age"])
    >>> print(describe_linkage(found).splitlines()[8].strip())
    linked: one record, and it fits nobody else          2 (100 %)
    """
    each = [after] if before is None else [before, after]
    lines = [INTERNAL, f"linkage on {', '.join(after.on)}"]
    if before is not None:
        lines.append(f"{'':{_WIDTH}s}{'before':>18s}{'release':>18s}")

    def row(label: str, cells: Sequence[str]) -> None:
        lines.append(f"  {label:{_WIDTH - 2}s}" + "".join(f"{cell:>18s}" for cell in cells))

    def people(label: str, count: Callable[[Linkage], int]) -> None:
        row(label, [f"{count(one):,} ({percent(count(one) / max(1, one.people))})" for one in each])

    row("records published", [f"{one.records:,}" for one in each])
    row("people in the register", [f"{one.people:,}" for one in each])
    people("one record fits", lambda one: one.unique)
    people(f"2 to {after.limit} records fit", lambda one: one.few)
    people(f"more than {after.limit} fit", lambda one: one.many)
    people("none fits", lambda one: one.none)
    people("linked: one record, and it fits nobody else", lambda one: one.linked)
    row("  as a share of the records", [percent(one.linked / max(1, one.records)) for one in each])
    if after.verdict is not None:
        row("  of these right", [_verdict(one, "true_links") for one in each])
        row("  of these wrong", [_verdict(one, "false_links") for one in each])
    if after.revealed is not None:
        name = after.revealed.column
        people(f"{name} certain: all fitting records agree", lambda one: _certain(one))
        if after.verdict is not None:
            row("  of these right", [_verdict(one, "certain_true") for one in each])
        lines += _list_values(after)
    return "\n".join(lines)


def describe_difference(attack: DifferenceAttack) -> str:
    """The difference attack, told step by step.

    >>> from sfumato.attack import run_difference
    >>> print(describe_difference(run_difference(epsilon=1, budget=2)).splitlines()[5])
      9 - 8 = 1: the secret is out, with two harmless counts
    """
    (everybody, others), (first, second) = attack.conditions, attack.exact
    lines = [
        INTERNAL,
        "difference attack on an invented clinic: does one patient have it?",
        f"  the one question    COUNT(*) WHERE {everybody}",
        f"  the other           COUNT(*) WHERE {others}",
        "plain SQL",
        f"  {first} - {second} = {attack.exact_difference}: the secret is out, with two harmless counts",
        f"DP-SELECT {format_exact(attack.epsilon)}, of a budget of {format_exact(attack.budget)}",
    ]
    for turn, (one, other) in enumerate(attack.rounds, 1):
        low, high = one.low - other.high, one.high - other.low
        lines.append(
            f"  round {turn:<3d} {one.value} - {other.value} = {one.value - other.value}, "
            f"somewhere from {low} to {high}"
        )
    lowest, highest = attack.belief
    lines += [
        "  then the budget is spent, and every further question is refused",
        f"  mean of all rounds {short(attack.estimate)}, standard deviation {short(attack.deviation)}: "
        "0 and 1 cannot be told apart",
        f"  whoever believed 50 % before believes at most {at_most(highest)} after all of it, "
        f"and at least {at_least(lowest)}",
    ]
    return "\n".join(lines)


def describe_average(attack: AverageAttack) -> str:
    """The averaging attack, told step by step.

    >>> from sfumato.attack import run_average
    >>> print(describe_average(run_average(epsilon=1, budget=1, repeats=2)).splitlines()[6])
      asked 2 times: 1 different answer, ...; paid once, 1
    """
    reply = attack.repeats[0]
    asked = len(attack.repeats)
    return "\n".join(
        [
            INTERNAL,
            "averaging attack on an invented clinic: ask one count until its noise is gone",
            f"  the question        COUNT(*) WHERE {attack.condition}",
            "plain SQL",
            f"  {attack.exact}, at once",
            f"DP-SELECT {format_exact(attack.epsilon)}, of a budget of {format_exact(attack.budget)}",
            f"  asked {asked} times: {attack.different} different answer"
            f"{'' if attack.different == 1 else 's'}, {reply.value} (from {reply.low} to {reply.high}); "
            f"paid once, {format_exact(attack.repeats_spent)}",
            f"  reworded {len(attack.reworded)} times, each paid for, then refused: the budget is spent",
            f"  mean of the {attack.paid} that were paid {short(attack.estimate)}, standard deviation "
            f"{short(attack.deviation)}",
            "  with fresh noise for every repeat and no ledger it would be "
            f"{short(attack.careless_deviation)}, and {attack.careless_repeats:,} repeats would give the "
            "exact count",
        ]
    )


def _certain(linkage: Linkage) -> int:
    return 0 if linkage.revealed is None else linkage.revealed.certain


def _verdict(linkage: Linkage, name: str) -> str:
    return "" if linkage.verdict is None else f"{getattr(linkage.verdict, name):,}"


def _list_values(linkage: Linkage) -> list[str]:
    revealed = linkage.revealed
    if revealed is None or not revealed.values:
        return []
    lines = [f"{revealed.column} of the linked people"]
    for value, count in revealed.values[:_MOST_VALUES]:
        shown = "".join(sign if sign.isprintable() else "?" for sign in value)[:30] or "(empty)"
        lines.append(f"  {shown:{_WIDTH - 2}s}{f'{count:,} ({percent(count / linkage.linked)})':>18s}")
    rest = len(revealed.values) - _MOST_VALUES
    return [*lines, f"  and {rest:,} more values"] if rest > 0 else lines
