"""The one-run audit (layer 4): canaries, each in the table by the throw of a coin, and guesses who is in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.audit.bounds import one_run_epsilon
from sfumato.audit.neighbours import Individual, Record, record_cap, walk_cell
from sfumato.audit.noise_off import RecordingNoise, add_losses, measure_difference
from sfumato.audit.result import Audit, Finding, check_claim
from sfumato.core.errors import AuditError
from sfumato.core.noise.entropy import KeyStream
from sfumato.tables.arrays import Flags, Floats

if TYPE_CHECKING:
    from sfumato.audit.targets import Harness

_SHARES = (1, 4, 16)  # of the canaries, one in so many is guessed
_FEWEST = 8  # canaries: fewer prove next to nothing
_MOST_RECORDS = 20_000  # of all canaries together

Owned = tuple[Record, ...]
"""The records that one canary owns."""


def audit_one_run(
    run: Callable[[Flags], Any],
    *,
    canaries: int,
    epsilon: float,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> Audit:
    """Returns what a single run with `canaries` says about the claim of `epsilon` at `delta`.

    It is for mechanisms too expensive to run often. `run` gets a truth value for every canary, puts those
    that are True into a table, runs the mechanism once, and returns a score for every canary: the larger,
    the likelier it is in. `confidence`, from 0.5 to below 1, is that of the bound.

    >>> import numpy as np
    >>> audit_one_run(lambda inside: inside + 0.0, canaries=100, epsilon=1.0).verdict
    'VIOLATED'
    """
    check_claim(epsilon=epsilon, delta=delta, confidence=confidence)
    if canaries < 1:
        raise AuditError("an audit by one run needs canaries")
    inside = throw_coins(canaries)
    scores = np.asarray(run(inside.copy()), np.float64)
    if scores.shape != (canaries,):
        raise AuditError(f"run must return {canaries} scores, one for every canary")
    bound, text = guess_members(scores, inside, delta=delta, miss=1 - confidence)
    finding = Finding(layer=4, text=text, violated=bound > epsilon, epsilon=bound)
    return Audit(
        mechanism=getattr(run, "__name__", "run"),
        epsilon=float(epsilon),
        delta=float(delta),
        findings=(finding,),
        confidence=confidence,
        runs=1,
    )


def throw_coins(count: int) -> Flags:
    """So many fair coins, from the operating system."""
    words = np.empty(count, np.uint64)
    KeyStream().fill(words)
    return np.asarray(words & np.uint64(1), np.bool_)


def guess_members(
    scores: Floats,
    inside: Flags,
    *,
    delta: float,
    miss: float,
    signed: bool = False,
) -> tuple[float, str]:
    """Returns the bound on epsilon at `delta` that guesses by `scores` prove, and how they went.

    `inside` says which canaries were in. The bound is wrong with a chance of `miss` at most.

    The highest scores are guessed to be in, the lowest to be out, the others are not guessed. If scores
    are `signed`, those above zero are guessed to be in, and those nearest to zero are not guessed. How
    many are guessed is tried in three ways, each at a third of `miss`.
    """
    scores = np.nan_to_num(scores)
    if not signed:
        # The rank of a score, from the middle.
        ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
        scores = ranks.astype(np.float64) - (scores.size - 1) / 2
    order = np.argsort(-np.abs(scores), kind="stable")
    right = (scores > 0) == inside
    best, text = -1.0, ""
    for share in _SHARES:
        guesses = max(1, scores.size // share)
        correct = int(right[order[:guesses]].sum())
        bound = one_run_epsilon(correct, guesses, canaries=scores.size, delta=delta, miss=miss / len(_SHARES))
        if bound > best:
            best = bound
            text = f"one run, {scores.size:,} canaries: {correct:,} of {guesses:,} guesses are right"
    return max(best, 0.0), text


def try_canaries(
    harness: Harness,
    *,
    most: int,
    epsilon: float,
    delta: float,
    miss: float,
    progress: Callable[[str], None],
) -> Finding | None:
    """Shows what one run of the curator, noise and all, tells of at `most` so many canaries.

    `epsilon` and `delta` are claimed; `miss` is the chance of a false alarm; `progress` is called with a few
    words at every step. None if the table has too few cells for canaries of their own.
    """
    best: tuple[float, list[Owned]] | None = None
    for owned in _list_designs(harness, most):
        base = _run(harness, owned, [False] * len(owned), RecordingNoise())
        replay = RecordingNoise(replay=base.answers)
        other = _run(harness, owned, [True] + [False] * (len(owned) - 1), replay)
        if not _same_terms(base, other):
            return None
        differences = [measure_difference(*both) for both in zip(base.requests, other.requests, strict=True)]
        shown = add_losses(base.requests, differences, delta=delta)
        if best is None or shown > best[0] * 1.01:  # of about equal designs, the one with more canaries
            best = shown, owned
    if best is None or (marks := _find_marks(harness, best[1], progress)) is None:
        return None
    inside = throw_coins(len(best[1]))
    progress("one run: noise on")
    noise = _run(harness, best[1], inside.tolist(), RecordingNoise(mode="on"))
    bound, text = guess_members(_score(marks, noise), inside, delta=delta, miss=miss, signed=True)
    return Finding(layer=4, text=text, violated=bound > epsilon, epsilon=bound)


def _run(
    harness: Harness, owned: Sequence[Owned], inside: Sequence[bool], noise: RecordingNoise
) -> RecordingNoise:
    """Returns the `noise` after a run with the canaries that are `inside`: it has the requests and answers.

    Under replacement, a canary that is out has the records of the last one.
    """
    replaces = harness.table.unit.neighbours == "replace"
    people = []
    for here, records in zip(inside, owned, strict=True):
        if here:
            people.append(Individual("canary", records))
        else:
            people.append(Individual("out", owned[-1] if replaces else ()))
    harness.run(people, noise)
    return noise


def _same_terms(one: RecordingNoise, two: RecordingNoise) -> bool:
    return [each.terms for each in one.requests] == [each.terms for each in two.requests]


def _list_designs(harness: Harness, most: int) -> list[list[Owned]]:
    """Canaries with all records in one cell each, and canaries with every record in another cell."""
    visible, cap = _find_visible(harness), record_cap(harness.table)
    cells = math.prod(len(harness.fields[place].usual) for place in visible)
    designs = []
    count = min(most, cells, _MOST_RECORDS // cap)
    if count >= _FEWEST:
        designs.append([(_cell(harness, visible, number),) * cap for number in range(count)])
    blocks = min(most, cells // cap, _MOST_RECORDS // cap)
    if cap > 1 and blocks >= _FEWEST:
        designs.append(
            [
                tuple(_cell(harness, visible, number * cap + step) for step in range(cap))
                for number in range(blocks)
            ]
        )
    return designs


def _find_visible(harness: Harness) -> list[int]:
    """Returns the fields whose values the answers depend on: only by these can canaries be told apart."""
    first = tuple(field.usual[0] for field in harness.fields)
    base = RecordingNoise()
    harness.run((Individual("probe", (first,)),), base)
    visible = []
    for place, field in enumerate(harness.fields):
        noise = RecordingNoise(replay=base.answers)
        other = (*first[:place], field.usual[-1], *first[place + 1 :])
        harness.run((Individual("probe", (other,)),), noise)
        same = len(noise.requests) == len(base.requests) and all(
            np.array_equal(one.true_values, two.true_values)
            for one, two in zip(base.requests, noise.requests, strict=True)
        )
        if not same:
            visible.append(place)
    return visible


def _cell(harness: Harness, visible: list[int], number: int) -> Record:
    record = [field.usual[0] for field in harness.fields]
    values = walk_cell([harness.fields[place] for place in visible], number)
    for place, value in zip(visible, values, strict=True):
        record[place] = value
    return tuple(record)


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where one canary shows: a request, a place of its vector, by how much, from which value, its scale."""

    turn: int
    place: int
    amount: int
    without: int
    scale: float


def _find_marks(
    harness: Harness, owned: Sequence[Owned], progress: Callable[[str], None]
) -> list[list[_Mark]] | None:
    """Returns which values of the answers only one canary moves; None if canaries change what is asked.

    Canaries are numbered, and for every binary digit there are two runs: with those whose number has it, and
    with the others. A value that one canary moves alone is moved in one of the two runs of each digit, always
    by the same amount, and these runs spell the canary's number.
    """
    count = len(owned)
    base = _run(harness, owned, [False] * count, RecordingNoise())
    digits = max(1, (count - 1).bit_length())
    moved: dict[tuple[int, int], list[list[int]]] = {}
    for digit in range(digits):
        for bit in (0, 1):
            progress(f"one run: looking for canaries, {digit + 1} of {digits}")
            inside = [(number >> digit) & 1 == bit for number in range(count)]
            noise = _run(harness, owned, inside, RecordingNoise(replay=base.answers))
            if not _same_terms(noise, base):
                return None
            for turn, (one, two) in enumerate(zip(base.requests, noise.requests, strict=True)):
                if one.kind in ("choice", "flip", "sparse"):
                    continue
                for place, amount in measure_difference(one, two).amounts.items():
                    amounts = moved.setdefault((turn, place), [[0, 0] for _ in range(digits)])
                    amounts[digit][bit] = amount
    marks: list[list[_Mark]] = [[] for _ in range(count)]
    for (turn, place), pairs in moved.items():
        alone = all((out == 0) != (with_bit == 0) for out, with_bit in pairs)
        if not alone or len({sum(pair) for pair in pairs}) != 1:
            continue
        number = sum((with_bit != 0) << digit for digit, (_, with_bit) in enumerate(pairs))
        request = base.requests[turn]
        without = int(request.true_values.ravel()[place])
        marks[number].append(_Mark(turn, place, sum(pairs[0]), without, float(request.scale)))
    return marks


def _score(marks: list[list[_Mark]], noise: RecordingNoise) -> Floats:
    """For every canary how much its marks look as if it were in."""
    scores = np.zeros(len(marks))
    for number, own in enumerate(marks):
        for mark in own:
            if mark.turn >= len(noise.answers) or mark.place >= noise.answers[mark.turn][0].size:
                continue
            noisy = int(noise.answers[mark.turn][0].ravel()[mark.place])
            # Half the log-likelihood ratio under Laplace noise. It is bounded: no wild draw decides alone.
            half = abs(mark.amount) / 2
            clipped = min(max((noisy - mark.without) * np.sign(mark.amount) - half, -half), half)
            scores[number] += clipped / mark.scale
    return scores
