"""Audits of functions: many runs on neighbouring tables, in this process or in one that may be stopped."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.audit.blackbox import (
    Observation,
    Sample,
    certify_samples,
    observe,
    observe_error,
    stack_observations,
)
from sfumato.audit.result import Audit, Finding, check_claim
from sfumato.core.errors import AuditError
from sfumato.core.exact import parse_whole
from sfumato.tables.read import read_table

MOST_RUNS = 20_000
LEAST_RUNS = 100

_SLOW_RUNS = 30  # at least, if a run takes a second or more
_FEWEST = 8  # runs on each side that may be asked for
_SECONDS = 20.0  # that the runs of an audit may take, if their number is not given
_PILOT = 3  # runs that are timed to plan the others
_BITS = 4  # outputs with bits that the other side lacks, below which it may be chance


def audit_callable(
    mechanism: Callable[[Any], Any],
    *,
    neighbours: Any,  # noqa: ANN401 - a pair of tables of any kind, or a list of pairs
    timeout: float | None,
    **options: Any,  # noqa: ANN401 - those of `audit_runners`
) -> Audit:
    """Runs `mechanism` many times on `neighbours`; with a `timeout`, in a process of its own."""
    pairs = list_pairs(neighbours)
    runners: list[Runner] = [
        LocalRunner(mechanism, pair)
        if timeout is None
        else ProcessRunner(_pack_job(mechanism, pair), timeout)
        for pair in pairs
    ]
    equal = all(_equal(*pair) for pair in pairs)
    name = str(getattr(mechanism, "__name__", type(mechanism).__name__))
    notes = ("the neighbours are equal: nothing can be refuted",) if equal else ()
    return audit_runners(runners, name=name, notes=notes, **options)


def audit_runners(
    runners: Sequence[Runner],
    *,
    name: str,
    epsilon: float,
    delta: float,
    runs: int | None,
    confidence: float,
    notes: tuple[str, ...] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Gives what many runs of all `runners`, one for each pair, say about the claim of `epsilon` and `delta`.

    A false alarm of all together is as rare as `confidence` says. `name` is what the report calls the
    mechanism; `notes` stand in it first. `runs` are those on each side, planned by time if None; `progress`
    is called with a few words now and then.
    """
    check_claim(epsilon=epsilon, delta=delta, confidence=confidence)
    if runs is not None:
        runs = parse_whole(runs, name="runs", low=_FEWEST, error=AuditError)
    findings: list[Finding] = []
    remarks = list(notes)
    total = 0
    for index, runner in enumerate(runners):
        which = f"pair {index + 1}: " if len(runners) > 1 else ""
        try:
            count = runs or _plan_runs(runner, len(runners))
            samples = _run_both(runner, count, progress)
        finally:
            runner.close()
        total += 2 * count
        grid = _compare_grids(*samples)
        if grid:
            findings.append(Finding(layer=2, text=which + grid))
        found = certify_samples(*samples, delta=delta, miss=(1 - confidence) / len(runners))
        findings.append(
            Finding(layer=3, text=which + str(found), violated=found.epsilon > epsilon, epsilon=found.epsilon)
        )
        if found.most <= epsilon:
            remarks.append(
                f"{which}{count:,} runs on each side prove no epsilon above {found.most:.3g}, so they "
                f"cannot refute {epsilon:.6g}"
            )
        if all((each.summaries == each.summaries[0]).all() and _constant(each) for each in samples):
            remarks.append(f"{which}every run on a side gives the same output: no noise, or a fixed seed")
    return Audit(
        mechanism=name,
        epsilon=float(epsilon),
        delta=float(delta),
        findings=tuple(findings),
        confidence=confidence,
        runs=total,
        pairs=len(runners),
        notes=tuple(remarks),
    )


def list_pairs(neighbours: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 - see audit_callable
    """Returns the pairs that `neighbours` stands for: one pair, or a list of pairs."""
    if isinstance(neighbours, tuple) and len(neighbours) == 2:
        return [neighbours]
    if isinstance(neighbours, list) and neighbours:
        if all(isinstance(each, tuple) and len(each) == 2 for each in neighbours):
            return list(neighbours)
        if len(neighbours) == 2:
            return [(neighbours[0], neighbours[1])]
    raise AuditError("neighbours must be a pair of tables (with, without), or a list of such pairs")


def _plan_runs(runner: Runner, pairs: int) -> int:
    """As many runs as fit a patience, from a few that enter no count."""
    seen, times = [], []
    for _ in range(_PILOT):
        start = time.perf_counter()
        seen += [runner.run(side) for side in (0, 1)]
        times.append(time.perf_counter() - start)
    if all("did not end in time" in each.words for each in seen):
        raise AuditError("no run ended in time; raise the time-out")
    each = max(min(times), 1e-6)  # the first runs load what the later ones find loaded
    least = LEAST_RUNS if each < 1 else _SLOW_RUNS
    return int(min(MOST_RUNS, max(least, _SECONDS / pairs / each)))


def _run_both(runner: Runner, runs: int, progress: Callable[[str], None]) -> tuple[Sample, Sample]:
    seen: tuple[list[Observation], list[Observation]] = ([], [])
    step = max(1, runs // 100)
    for turn in range(runs):
        if turn % step == 0:
            progress(f"runs on both sides: {100 * turn // runs} %")
        # The sides take turns, so that what changes over time does not tell them apart.
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            seen[side].append(runner.run(side))
    return stack_observations(seen[0]), stack_observations(seen[1])


def _compare_grids(first: Sample, second: Sample) -> str | None:
    """Returns a suspicion if one side shows bits that the other never reaches."""
    lowest = []
    for sample in (first, second):
        bits = sample.summaries[:, 4]
        lowest.append(bits[bits < 2000])
    if min(each.size for each in lowest) < _BITS or max(each.min() for each in lowest) >= 0:
        return None
    for one, two in (lowest, lowest[::-1]):
        beyond = int((one < two.min()).sum())
        if beyond >= max(_BITS, one.size / 50):
            return (
                f"suspect: {beyond:,} of {one.size:,} outputs on one side have bits below 2^{two.min():.0f}, "
                "which the other side never has; floating-point noise tells tables apart by its last bits"
            )
    return None


def _constant(sample: Sample) -> bool:
    same = np.array_equal(
        sample.numbers, np.broadcast_to(sample.numbers[0], sample.numbers.shape), equal_nan=True
    )
    return same and all(shown.all() for shown in sample.words.values())


def _equal(one: Any, two: Any) -> bool:  # noqa: ANN401 - tables of any kind
    try:
        same = one.equals(two) if hasattr(one, "equals") else one == two
        return bool(np.all(same)) and np.shape(one) == np.shape(two)
    except Exception:  # tables that cannot be compared are not known to be equal
        return False


@dataclass(frozen=True, slots=True, eq=False)
class LocalRunner:
    """Runs in this process."""

    mechanism: Callable[[Any], Any]
    tables: tuple[Any, Any]

    def run(self, side: int) -> Observation:
        """Returns what one run on that side showed."""
        return _run_once(self.mechanism, self.tables[side])

    def close(self) -> None:
        """Does nothing."""


@dataclass(slots=True, eq=False)
class ProcessRunner:
    """Runs in a process of its own, started anew when a run takes too long or kills it.

    The `job` says what the worker runs; a run may take `timeout` seconds.
    """

    job: dict[str, Any]
    timeout: float
    _worker: tuple[subprocess.Popen[bytes], Connection] | None = field(default=None, init=False)

    def run(self, side: int) -> Observation:
        """Returns what one run on that side showed; also if it did not end, or ended the process."""
        connection = self._ready()
        try:
            connection.send(side)
            answer = connection.recv() if connection.poll(self.timeout) else "late"
        except (OSError, EOFError, pickle.UnpicklingError):
            answer = None
        if isinstance(answer, Observation):
            return answer
        self.close()
        word = "did not end in time" if answer == "late" else "died"
        return Observation(np.empty(0), words=frozenset({word}))

    def close(self) -> None:
        """Ends the process."""
        worker, self._worker = self._worker, None
        if worker is not None:
            process, connection = worker
            connection.close()
            process.kill()
            process.wait()

    def _ready(self) -> Connection:
        if self._worker is not None:
            return self._worker[1]
        ours, theirs = Pipe()
        # What a mechanism prints goes nowhere, and it has nothing to read.
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from {__name__} import serve_parent; serve_parent({theirs.fileno()})",
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._worker = process, ours
        failed = "it did not start"
        try:
            ours.send(self.job)
            if ours.poll(max(60.0, self.timeout)):
                failed = ours.recv()
        except (OSError, EOFError):
            pass
        if failed:
            self.close()
            raise AuditError(f"the mechanism cannot be run: {failed}")
        return ours


Runner = LocalRunner | ProcessRunner
"""Runs a mechanism once on side 0 or 1."""


def _pack_job(mechanism: Callable[[Any], Any], tables: tuple[Any, Any]) -> dict[str, Any]:
    """Packs the job of a worker; `mechanism` and `tables` must be known outside this process."""
    try:
        return {"mechanism": pickle.dumps(mechanism), "tables": pickle.dumps(tables)}
    except Exception:
        raise AuditError(
            "with a time-out the mechanism runs in another process, so it must be a function of a module "
            "and its tables must pickle; leave timeout out, or use `sfumato audit FILE.py:NAME`"
        ) from None


def _run_once(mechanism: Callable[[Any], Any], table: Any) -> Observation:  # noqa: ANN401 - any table
    """Runs the mechanism once, and returns what that shows: its output, or the error it raised."""
    try:
        output = mechanism(table)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: an exit is something to see
        return observe_error(error)
    return observe(output)


def serve_parent(handle: int) -> None:
    """Runs a job for the process that started this one, and talks to it by the file of this number."""
    with Connection(handle) as connection:
        try:
            mechanism, tables = _unpack_job(connection.recv())
        except BaseException as error:
            connection.send(f"{type(error).__name__}: {str(error)[:500]}")
            return
        connection.send("")
        while True:
            try:
                side = connection.recv()
            except EOFError:
                return
            connection.send(_run_once(mechanism, tables[side]))


def _unpack_job(job: dict[str, Any]) -> tuple[Callable[[Any], Any], Sequence[Any]]:
    """Returns the mechanism and the two tables of a job, which may name files to load them from."""
    if job.get("memory") is not None:
        import resource

        most = job["memory"] << 20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    mechanism = load_name(job["where"]) if "where" in job else pickle.loads(job["mechanism"])
    if "neighbours" in job:
        pair = load_name(job["neighbours"])
        tables = pair() if callable(pair) else pair
    elif "files" in job:
        tables = tuple(convert_table(path, job["kind"]) for path in job["files"])
    else:
        tables = pickle.loads(job["tables"])
    if not callable(mechanism) or len(tables) != 2:
        raise AuditError("a mechanism must be callable, and neighbours must be two tables")
    return mechanism, tables


def load_name(where: str) -> Any:  # noqa: ANN401 - whatever the file holds under the name
    """Returns what the file and name of `where`, such as "release.py:noisy_count", stand for."""
    file, _, name = where.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or not path.is_file():
        raise AuditError(f"{where!r} must be FILE.py:NAME of a Python file that exists")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"audited_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise AuditError(f"{path.name!r} cannot be loaded; give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AuditError(
            f"{path.name!r} cannot be loaded: {type(error).__name__}: {str(error)[:200]}"
        ) from None
    if not hasattr(module, name):
        raise AuditError(f"{path.name!r} has no {name!r}")
    return getattr(module, name)


def convert_table(path: str, kind: str) -> Any:  # noqa: ANN401 - as the mechanism wants it
    """Returns the table in the file at `path`, as `kind`: "arrow", "rows", "pandas", "polars" or "path"."""
    if kind == "path":
        return path
    table = read_table(path, side="table", typed=True)
    if kind == "rows":
        return table.to_pylist()
    if kind == "arrow":
        return table
    try:
        if kind == "pandas":
            return table.to_pandas()
        return importlib.import_module("polars").from_arrow(table)
    except ImportError:
        raise AuditError(f"tables as {kind} need {kind} to be installed") from None
