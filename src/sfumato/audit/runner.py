"""Runs of a mechanism on either side of a pair, in this process or in one that may be stopped."""

from __future__ import annotations

import pickle
import selectors
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sfumato.audit.observe import Observation
from sfumato.audit.worker import read_message, run_once, write_message
from sfumato.errors import AuditError


class Runner(Protocol):
    """Runs a mechanism once on side 0 or 1."""

    def run(self, side: int) -> Observation:
        """What that run showed."""

    def close(self) -> None:
        """Ends what was started."""


@dataclass(frozen=True, slots=True, eq=False)
class RunnerHere:
    """Runs in this process."""

    mechanism: Callable[[Any], Any]
    tables: tuple[Any, Any]

    def run(self, side: int) -> Observation:
        """What one run on that side showed."""
        return run_once(self.mechanism, self.tables[side])

    def close(self) -> None:
        """Nothing to end."""


def pack_job(mechanism: Callable[[Any], Any], tables: tuple[Any, Any]) -> dict[str, Any]:
    """The job of a worker that runs `mechanism` on `tables`; both must be known outside this process."""
    try:
        return {"mechanism": pickle.dumps(mechanism), "tables": pickle.dumps(tables)}
    except Exception:
        raise AuditError(
            "with a time-out the mechanism runs in another process, so it must be a function of a module "
            "and its tables must pickle; leave timeout out, or use `sfumato audit FILE.py:NAME`"
        ) from None


@dataclass(slots=True, eq=False)
class RunnerThere:
    """Runs in a process of its own, started anew when a run takes too long or kills it."""

    job: dict[str, Any]
    timeout: float
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def run(self, side: int) -> Observation:
        """What one run on that side showed; also if it did not end, or ended the process."""
        process = self._ready()
        assert process.stdin is not None
        try:
            write_message(process.stdin, side)
            answer = self._receive(process)
        except (OSError, EOFError, pickle.UnpicklingError):
            answer = None
        if isinstance(answer, Observation):
            return answer
        late = answer == "late"
        self.close()
        return Observation(np.empty(0), words=frozenset({"did not end in time" if late else "died"}))

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _ready(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sfumato.audit.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        write_message(self._process.stdin, self.job)
        answer = self._receive(self._process, patience=max(60.0, self.timeout))
        if not isinstance(answer, dict) or "ready" not in answer:
            self.close()
            told = answer.get("failed") if isinstance(answer, dict) else "it did not start"
            raise AuditError(f"the mechanism cannot be run: {told}")
        return self._process

    def _receive(self, process: subprocess.Popen[bytes], *, patience: float | None = None) -> Any:  # noqa: ANN401
        """The next answer, "late" if there is none in time, None if the process has ended."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self.timeout if patience is None else patience):
                return "late"
        return read_message(process.stdout)
