"""Layer 4 for what the curator answers: canaries in cells of their own, guessed from the noisy answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.audit.differences import add_losses, measure_move
from sfumato.audit.one_run import guess_members, throw_coins
from sfumato.audit.people import Person, Record, record_cap
from sfumato.audit.result import Finding
from sfumato.audit.watch import Watch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.audit.desk import Desk

_FEWEST = 8
_MOST_RECORDS = 20_000


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where one canary shows: a request, a place of its vector, and by how much."""

    turn: int
    place: int
    amount: int
    without: int
    scale: float


def try_canaries(
    desk: Desk, *, most: int, epsilon: float, delta: float, miss: float, progress: Callable[[str], None]
) -> Finding | None:
    """What one run of the whole way through the curator, noise and all, tells about canaries.

    None if the table has too few cells for canaries of their own.
    """
    replaces = desk.table.unit.neighbours == "replace"
    best: tuple[float, list[tuple[Record, ...]]] | None = None
    base = Watch()
    for owned in _list_designs(desk, most):
        parked = _Party(owned, replaces=replaces)
        base = Watch()
        desk.run(parked.people([False] * len(owned)), base)
        other = Watch(answers=base.given)
        desk.run(parked.people([True] + [False] * (len(owned) - 1)), other)
        if [each.terms for each in base.asked] != [each.terms for each in other.asked]:
            return None
        moves = [measure_move(one, two) for one, two in zip(base.asked, other.asked, strict=True)]
        shown = add_losses(base.asked, moves, delta=delta)
        if best is None or shown > best[0] * 1.01:
            best = shown, owned
    if best is None:
        return None
    party = _Party(best[1], replaces=replaces)
    marks = _find_marks(desk, party, progress)
    if marks is None:
        return None
    inside = throw_coins(len(best[1]))
    progress("one run: noise on")
    watch = Watch(mode="on")
    desk.run(party.people(inside.tolist()), watch)
    bound, text = guess_members(_score(marks, watch), inside, delta=delta, miss=miss, signed=True)
    return Finding(layer=4, text=text, violated=bound > epsilon, epsilon=bound)


@dataclass(frozen=True, slots=True)
class _Party:
    """Canaries by the records they own; under replacement, one that is out has other records."""

    owned: list[tuple[Record, ...]]
    replaces: bool

    def people(self, inside: Sequence[bool]) -> list[Person]:
        parking = self.owned[-1]
        people = []
        for here, records in zip(inside, self.owned, strict=True):
            if here:
                people.append(Person("canary", records))
            elif self.replaces:
                people.append(Person("parked", parking))
            else:
                people.append(Person("out", ()))
        return people


def _list_designs(desk: Desk, most: int) -> list[list[tuple[Record, ...]]]:
    """Canaries with all records in one cell each, and canaries with every record in another cell."""
    telling, cap = _find_telling(desk), record_cap(desk.table)
    cells = math.prod(len(desk.fields[place].usual) for place in telling)
    designs = []
    count = min(most, cells, _MOST_RECORDS // cap)
    if count >= _FEWEST:
        designs.append([(_cell(desk, telling, number),) * cap for number in range(count)])
    blocks = min(most, cells // cap, _MOST_RECORDS // cap)
    if cap > 1 and blocks >= _FEWEST:
        designs.append(
            [
                tuple(_cell(desk, telling, number * cap + step) for step in range(cap))
                for number in range(blocks)
            ]
        )
    return designs


def _find_telling(desk: Desk) -> list[int]:
    """The fields whose values the answers depend on: only by these can canaries be told apart."""
    first = tuple(field.usual[0] for field in desk.fields)
    base = Watch()
    desk.run((Person("probe", (first,)),), base)
    telling = []
    for place, field in enumerate(desk.fields):
        watch = Watch(answers=base.given)
        other = (*first[:place], field.usual[-1], *first[place + 1 :])
        desk.run((Person("probe", (other,)),), watch)
        same = len(watch.asked) == len(base.asked) and all(
            np.array_equal(one.true_values, two.true_values)
            for one, two in zip(base.asked, watch.asked, strict=True)
        )
        if not same:
            telling.append(place)
    return telling


def _cell(desk: Desk, telling: list[int], number: int) -> Record:
    record = [field.usual[0] for field in desk.fields]
    for place in telling:
        usual = desk.fields[place].usual
        number, chosen = divmod(number, len(usual))
        record[place] = usual[chosen]
    return tuple(record)


def _find_marks(desk: Desk, party: _Party, progress: Callable[[str], None]) -> list[list[_Mark]] | None:
    """Which values of the answers only one canary moves, by as many runs as its number has digits, twice."""
    count = len(party.owned)
    base = Watch()
    desk.run(party.people([False] * count), base)
    digits = max(1, (count - 1).bit_length())
    codes: dict[tuple[int, int], list[int]] = {}
    for digit in range(digits):
        for wanted in (0, 1):
            progress(f"one run: looking for canaries, {digit + 1} of {digits}")
            inside = [(number >> digit) & 1 == wanted for number in range(count)]
            watch = Watch(answers=base.given)
            desk.run(party.people(inside), watch)
            if [each.terms for each in watch.asked] != [each.terms for each in base.asked]:
                return None
            for turn, (one, two) in enumerate(zip(base.asked, watch.asked, strict=True)):
                if one.kind in ("choice", "sparse"):
                    continue
                moved = measure_move(one, two)
                for place, amount in zip(moved.places.tolist(), moved.amounts, strict=True):
                    codes.setdefault((turn, place), [0] * (2 * digits))[2 * digit + wanted] = amount
    marks: list[list[_Mark]] = [[] for _ in range(count)]
    for (turn, place), amounts in codes.items():
        pairs = [amounts[2 * digit : 2 * digit + 2] for digit in range(digits)]
        alone = all((pair[0] == 0) != (pair[1] == 0) for pair in pairs)
        if not alone or len({pair[0] + pair[1] for pair in pairs}) != 1:
            continue
        number = sum((pair[1] != 0) << digit for digit, pair in enumerate(pairs))
        asked = base.asked[turn]
        marks[number].append(
            _Mark(
                turn,
                place,
                pairs[0][0] + pairs[0][1],
                int(asked.true_values.ravel()[place]),
                float(asked.scale),
            )
        )
    return marks


def _score(marks: list[list[_Mark]], watch: Watch) -> NDArray[np.float64]:
    """For every canary how much its marks look as if it were in."""
    scores = np.zeros(len(marks))
    for number, own in enumerate(marks):
        for mark in own:
            if mark.turn >= len(watch.given) or mark.place >= watch.given[mark.turn][0].size:
                continue
            noisy = int(watch.given[mark.turn][0].ravel()[mark.place])
            half = abs(mark.amount) / 2
            held = min(max((noisy - mark.without) * np.sign(mark.amount) - half, -half), half)
            scores[number] += held / mark.scale
    return scores
