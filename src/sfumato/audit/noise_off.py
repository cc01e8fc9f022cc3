"""Layer 1: neighbouring tables with the noise off. What is about to be noised is compared, vector by vector.

The base table's answers are given to every other table, so that a recipe that asks by what it has seen
takes the same course. Then neighbours must ask for the same noise, show the same output, and differ in
every vector by no more than its cost declares. Nothing here is left to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.accounting import Spent, add_costs
from sfumato.audit.differences import Moved, add_losses, find_excess, measure_move
from sfumato.audit.people import list_people
from sfumato.audit.result import Finding
from sfumato.audit.watch import Mode, Watch
from sfumato.errors import AuditError

if TYPE_CHECKING:
    from sfumato.accounting import Cost
    from sfumato.audit.desk import Answered, Desk
    from sfumato.audit.people import Person
    from sfumato.audit.watch import Asked

Claim = Callable[["Answered"], tuple[float, float]]
"""Epsilon and delta that are claimed, once it is known what was charged."""

_MOST_FINDINGS = 6
_TRIES = 4
_PURE_HAIR, _GAUSSIAN_HAIR = 1e-9, 1e-3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Base:
    """A run on a table without the individual: what it asked, what it was given, what it showed."""

    crowd: bool
    watch: Watch
    answered: Answered
    selections: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Compared:
    """What comparing pairs of neighbours gave; the worst pair, for layers that draw noise."""

    findings: tuple[Finding, ...]
    pairs: int
    worst: float
    worst_moves: tuple[Moved, ...]
    base: Base


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Trial:
    what: str
    answered: Answered
    asked: tuple[Asked, ...]
    moves: tuple[Moved, ...] | None
    fault: str | None


def run_base(desk: Desk, *, crowd: bool, mode: Mode = "off") -> Base:
    """A run on the table of the crowd, or of nobody, by default with the noise off."""
    watch = Watch(mode=mode)
    answered = desk.run((), watch, crowd=crowd)
    for _ in range(_TRIES if answered.error is not None and answered.charged else 0):
        # Exact answers may be more than post-processing was made for. Any course of answers will do.
        watch = Watch(mode="on")
        answered = desk.run((), watch, crowd=crowd)
        if answered.error is None:
            break
    if crowd and answered.error is not None:
        raise AuditError(f"this cannot be audited, it is not answered: {answered.error}")
    selections = frozenset(turn for turn, cost in enumerate(answered.declared) if cost.kind == "selection")
    if selections:  # drawn groups would differ from run to run, and no vectors could be compared
        watch = Watch(selections=selections)
        answered = desk.run((), watch, crowd=crowd)
    return Base(crowd=crowd, watch=watch, answered=answered, selections=selections)


def compare_neighbours(
    desk: Desk,
    *,
    claim: Claim,
    thorough: bool,
    progress: Callable[[str], None],
    people: Sequence[Person] | None = None,
) -> Compared:
    """All pairs that the table's description gives, and what is wrong between any of them.

    A statement that goes on until its answer is good enough claims what it spends on the way, so the
    claim is asked for every base table.
    """
    replaces = desk.table.unit.neighbours == "replace"
    faults: dict[str, str] = {}
    worst, worst_pair, broken = -1.0, "", False
    worst_moves: tuple[Moved, ...] = ()
    pairs = 0
    first_base = kept_base = run_base(desk, crowd=True)
    if people is None:
        people = list_people(desk.fields, desk.table, thorough=thorough)
    bases = [first_base, run_base(desk, crowd=False)]
    if thorough and not first_base.selections:
        bases.append(run_base(desk, crowd=True, mode="on"))
    for base in bases:
        trials = []
        epsilon, delta = claim(base.answered)
        pure = delta == 0 or _is_pure(base.answered, epsilon)
        hair = _GAUSSIAN_HAIR if any(each.kind == "gaussian" for each in base.watch.asked) else _PURE_HAIR
        # Alone, an individual shows what depends on there being others; few kinds of them will do.
        chosen = people if base.crowd or thorough else people[1::3] or people
        for number, person in enumerate(chosen):
            progress(f"noise off: {person.what}")
            trials.append(_try_person(desk, base, person))
            if number == len(chosen) - 1 or (thorough and number % 4 == 0):
                trials.append(_try_person(desk, base, person, backwards=True))
        for what, trial, moves in _list_pairs(base, trials, replaces=replaces):
            pairs += 1
            fault = trial.fault or _find_fault(trial, moves)
            if fault is not None:
                faults.setdefault(fault, what)
            if moves is not None:
                shown = add_losses(trial.asked, moves, delta=delta, pure=pure)
                broken |= shown > epsilon * (1 + hair) + 1e-12
                if shown > worst:
                    worst, worst_moves, worst_pair, kept_base = shown, moves, what, base
    findings = [
        Finding(layer=1, text=f"{fault} ({what})", violated=True, epsilon=_certain(fault), exact=True)
        for fault, what in list(faults.items())[:_MOST_FINDINGS]
    ]
    shown = max(worst, 0.0)
    findings.append(
        Finding(
            layer=1,
            text=(
                f"{pairs:,} pairs, {len(first_base.watch.asked):,} noisy answers each: the worst pair "
                f"shows epsilon {shown:.6g}" + (f" ({worst_pair})" if worst_pair else "")
            ),
            violated=broken,
            epsilon=shown,
            exact=True,
        )
    )
    return Compared(
        findings=tuple(findings), pairs=pairs, worst=shown, worst_moves=tuple(worst_moves), base=kept_base
    )


def _is_pure(answered: Answered, epsilon: float) -> bool:
    """Whether the plain sum of what was charged is already what is claimed."""
    spent = add_costs(Spent(), answered.charged).epsilon
    return spent is not None and spent <= epsilon * (1 + _PURE_HAIR)


def _try_person(desk: Desk, base: Base, person: Person, *, backwards: bool = False) -> _Trial:
    watch = Watch(answers=base.watch.given, selections=base.selections)
    answered = desk.run((person,), watch, crowd=base.crowd, backwards=backwards)
    fault = _compare_runs(base, watch, answered)
    moves = None
    if len(watch.asked) == len(base.watch.asked) and not _differing(base, watch):
        moves = tuple(measure_move(one, two) for one, two in zip(base.watch.asked, watch.asked, strict=True))
    place = "in a crowd" if base.crowd else "alone"
    what = f"{person.what}, {place}{', in reverse order' if backwards else ''}"
    return _Trial(what=what, answered=answered, asked=tuple(base.watch.asked), moves=moves, fault=fault)


def _list_pairs(
    base: Base, trials: list[_Trial], *, replaces: bool
) -> Iterator[tuple[str, _Trial, tuple[Moved, ...] | None]]:
    if not replaces:
        for trial in trials:
            yield trial.what, trial, trial.moves
        return
    for number, one in enumerate(trials):
        for two in trials[number + 1 :]:
            moves = None
            if one.moves is not None and two.moves is not None:
                moves = tuple(a.minus(b) for a, b in zip(one.moves, two.moves, strict=True))
            yield f"{one.what} / {two.what}", two if one.fault is None else one, moves


def _compare_runs(base: Base, watch: Watch, answered: Answered) -> str | None:
    """What an outsider sees differ though every noisy answer was the same, or None."""
    first = base.answered
    if answered.error != first.error:
        return "an error depends on the records"
    if answered.charged != first.charged:
        return "neighbours are charged differently"
    if len(watch.asked) != len(base.watch.asked):
        return "neighbours ask for noise a different number of times"
    differing = _differing(base, watch)
    if differing:
        return f"neighbours ask for different noise, answer {differing[0] + 1}"
    if answered.stages != first.stages:
        return "what is told on the way depends on the records"
    for name in {*first.seen, *answered.seen}:
        if first.seen.get(name) != answered.seen.get(name):
            return f"the output depends on more than the noisy answers: {name}"
    return None


def _differing(base: Base, watch: Watch) -> list[int]:
    return [
        turn
        for turn, (one, two) in enumerate(zip(base.watch.asked, watch.asked, strict=False))
        if (one.terms[:2] if turn in base.selections else one.terms)
        != (two.terms[:2] if turn in base.selections else two.terms)
    ]


def _find_fault(trial: _Trial, moves: tuple[Moved, ...] | None) -> str | None:
    """How vectors break what was declared for them, or None."""
    declared = trial.answered.declared
    if moves is None or trial.answered.error is not None:
        return None
    if len(declared) != len(trial.asked):
        return f"{len(trial.asked)} noisy answers, but costs of {len(declared)} were declared"
    for turn, (asked, moved, cost) in enumerate(zip(trial.asked, moves, declared, strict=True)):
        told = _find_other_noise(asked, cost) or find_excess(asked, moved, cost)
        if told is not None:
            return f"answer {turn + 1}: {told}"
    return None


def _find_other_noise(asked: Asked, cost: Cost) -> str | None:
    kinds = {"sparse": ("laplace",), "laplace": ("laplace", "selection"), "choice": ("exponential",)}
    if cost.kind not in kinds.get(asked.kind, (asked.kind,)):
        return f"noise of kind {asked.kind}, declared {cost.kind}"
    if asked.kind != "choice" and asked.scale != cost.scale:
        return f"noise of scale {float(asked.scale):.6g}, declared {float(cost.scale):.6g}"
    return None


def _certain(fault: str) -> float | None:
    """What cannot be bounded by any epsilon: neighbours that are told apart without noise."""
    told_apart = ("an error depends", "the output depends", "what is told", "neighbours are charged")
    return float("inf") if fault.startswith(told_apart) else None
