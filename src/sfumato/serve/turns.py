"""Threads that people share: who has least at work goes first, and nobody has all of them."""

from __future__ import annotations

import contextvars
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from sfumato.core.errors import TooManyRequests

Done = TypeVar("Done")
Line = TypeVar("Line")

_MOST_WAITING = 1000  # of one person; clients that leave do not take back what they asked


class Turns:
    """So many `threads`, of which one person has at most `each` at a time; the rest of their work waits."""

    def __init__(self, threads: int, *, each: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        self._each = each
        self._guard = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._busy: Counter[str] = Counter()

    def submit(self, person: str, work: Callable[[], Done]) -> Future[Done]:
        """Begins `work` when it is the turn of `person`, and returns what it will give.

        >>> turns = Turns(2, each=1, name="example")
        >>> turns.submit("ana", lambda: 6 * 7).result()
        42
        """
        future: Future[Done] = Future()
        context = contextvars.copy_context()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(context.run(work))
                except BaseException as error:
                    future.set_exception(error)

        with self._guard:
            queue = self._waiting.setdefault(person, deque())
            if len(queue) >= _MOST_WAITING:
                raise TooManyRequests("too many of your requests are waiting; ask again when some are done")
            queue.append(run)
            self._begin()
        return future

    @property
    def waiting(self) -> int:
        """How much waits for its turn."""
        with self._guard:
            return sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Lets nothing new begin; does not wait for what is at work."""
        with self._guard:
            self._waiting.clear()
        self._pool.shutdown(wait=False)

    def _begin(self) -> None:
        """Begins what may be at work now, of whoever has least at work, then of who waits longest."""
        while self._free:
            ready = [person for person in self._waiting if self._busy[person] < self._each]
            if not ready:
                return
            person = min(ready, key=self._busy.__getitem__)
            queue = self._waiting.pop(person)
            run = queue.popleft()
            if queue:
                self._waiting[person] = queue  # behind the others
            self._free -= 1
            self._busy[person] += 1
            self._pool.submit(self._work, person, run)

    def _work(self, person: str, run: Callable[[], None]) -> None:
        run()
        with self._guard:
            self._free += 1
            self._busy[person] -= 1
            self._busy += Counter()  # forgets people with nothing at work
            self._begin()


def choose_silent(waiting: Mapping[Line, str]) -> Line | None:
    """Returns whom to let go of those who connected and ask nothing, the longest waiting first.

    It is the first of the address that has most of them, so that one address cannot fill all places.

    >>> choose_silent({"first": "192.0.2.1", "second": "192.0.2.7", "third": "192.0.2.7"})
    'second'
    """
    each = Counter(waiting.values())
    return max(waiting, key=lambda line: each[waiting[line]], default=None)
