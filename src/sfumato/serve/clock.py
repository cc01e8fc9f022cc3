"""When a reply leaves: at times fixed beforehand, so that how long a reading took shows only roughly.

Reply times lie on a grid that begins when the work begins and grows by the square root of two: 50 ms, 71,
100, 141 and so on. What one record adds to the work is bounded by public facts and small beside a step;
docs/proofs/serve.md says what remains.
"""

from __future__ import annotations

import math
import time
from collections import deque

_MINUTE = 60.0  # seconds


def next_reply(elapsed: float, *, first: float) -> float:
    """Returns the first reply time, in seconds from the beginning, that is not before `elapsed`.

    >>> [round(next_reply(seconds, first=0.05), 3) for seconds in (0.0, 0.05, 0.06, 0.1, 5.0)]
    [0.05, 0.05, 0.071, 0.1, 6.4]
    """
    if elapsed <= first:
        return first
    step = math.ceil(2 * math.log2(elapsed / first) - 1e-9)
    return max(elapsed, first * 2 ** (step / 2))


def recent_times(times: dict[str, deque[float]], name: str) -> deque[float]:
    """Returns the times of the last minute under `name`; names without any are forgotten."""
    now = time.monotonic()
    if len(times) > 10_000:
        for other in [key for key, each in times.items() if not each or each[-1] < now - _MINUTE]:
            del times[other]
    recent = times.setdefault(name, deque())
    while recent and recent[0] < now - _MINUTE:
        recent.popleft()
    return recent
