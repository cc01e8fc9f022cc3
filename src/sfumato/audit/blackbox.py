"""Layer 3: many runs on both sides; an event learned on one half of them is certified on the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.audit.bounds import epsilon_bound, largest_bound
from sfumato.audit.events import learn_event, take_rows

if TYPE_CHECKING:
    from sfumato.audit.observe import Sample

_FARTHEST = 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """A lower bound on epsilon, the event behind it, and how often each side showed it."""

    epsilon: float
    event: str
    hits: tuple[int, int]
    runs: tuple[int, int]
    most: float

    def __str__(self) -> str:
        counts = ", ".join(f"{hits:,} of {runs:,}" for hits, runs in zip(self.hits, self.runs, strict=True))
        return f"{self.event}: {counts} runs"


def certify_samples(first: Sample, second: Sample, *, delta: float, miss: float) -> Certified:
    """The bound on epsilon that two samples prove, wrong with a chance of at most `miss`.

    One event is chosen from the first half of each sample; the counts that enter the bound are those of
    the other half, which had no part in the choice, so that no correction for many events is due.
    """
    halves = [each.runs // 2 for each in (first, second)]
    learned = [
        take_rows(sample, slice(0, half)) for sample, half in zip((first, second), halves, strict=True)
    ]
    rest = [
        take_rows(sample, slice(half, None)) for sample, half in zip((first, second), halves, strict=True)
    ]
    runs = (rest[0].runs, rest[1].runs)
    most = largest_bound(min(runs), delta=delta, miss=miss) if min(runs) else 0.0
    event = None
    if min(halves):
        # Among many events the luckiest is not the best: what looks good must look good from afar.
        afar = max(_deviations(miss / 2), min(_FARTHEST, math.sqrt(min(halves)) / 3))
        event = learn_event(*learned, delta=delta, deviations=afar)
    if event is None:
        return Certified(
            epsilon=0.0, event="no event tells the sides apart", hits=(0, 0), runs=runs, most=most
        )
    hits = tuple(int(event.holds(sample).sum()) for sample in rest)
    often, seldom = event.more, 1 - event.more
    bound = epsilon_bound(hits[often], runs[often], hits[seldom], runs[seldom], delta=delta, miss=miss)
    return Certified(epsilon=bound, event=str(event), hits=(hits[0], hits[1]), runs=runs, most=most)


def _deviations(miss: float) -> float:
    """Nearly the number of standard deviations that a normal variable exceeds with this chance."""
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle / math.sqrt(2)) / 2 > miss else (low, middle)
    return low
