"""The audit of any Python function from a table to an output."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.audit.blackbox import certify_samples
from sfumato.audit.observe import stack_observations
from sfumato.audit.result import Audit, Finding
from sfumato.audit.runner import RunnerHere, RunnerThere, pack_job
from sfumato.errors import AuditError

if TYPE_CHECKING:
    from sfumato.audit.observe import Observation, Sample
    from sfumato.audit.runner import Runner

MOST_RUNS = 20_000
LEAST_RUNS = 100

_SLOW_RUNS = 30
_FEWEST = 8
_SECONDS = 20.0
_PILOT = 3
_BITS = 4


def audit_callable(
    mechanism: Callable[[Any], Any],
    *,
    neighbours: Any,  # noqa: ANN401 - a pair of tables of any kind, or a list of pairs
    epsilon: float,
    delta: float = 0.0,
    runs: int | None = None,
    confidence: float = 0.95,
    timeout: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """What many runs of `mechanism` on neighbouring tables say about its claim.

    >>> from sfumato.noise import discrete_laplace
    >>> def noisy_count(table): return len(table) + discrete_laplace(scale=1, size=1)[0]
    >>> options = {"epsilon": 1, "runs": 400, "confidence": 0.999999}
    >>> audit_callable(noisy_count, neighbours=([1, 2], [1]), **options).verdict
    'not refuted'
    """
    runners: list[Runner] = []
    for pair in list_pairs(neighbours):
        if timeout is None:
            runners.append(RunnerHere(mechanism, pair))
        else:
            runners.append(RunnerThere(pack_job(mechanism, pair), timeout))
    name = getattr(mechanism, "__name__", type(mechanism).__name__)
    notes = []
    if all(_equal(*pair) for pair in list_pairs(neighbours)):
        notes.append("the neighbours are equal: nothing can be refuted")
    return audit_runners(
        runners,
        name=str(name),
        epsilon=epsilon,
        delta=delta,
        runs=runs,
        confidence=confidence,
        notes=tuple(notes),
        progress=progress,
    )


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
    """What many runs of every runner say; a false alarm of all together is as rare as `confidence` says."""
    check_claim(epsilon=epsilon, delta=delta, confidence=confidence)
    if runs is not None and (isinstance(runs, bool) or not isinstance(runs, int) or runs < _FEWEST):
        raise AuditError(f"runs must be a whole number of at least {_FEWEST}, on each side")
    findings: list[Finding] = []
    told = list(notes)
    total = 0
    for index, runner in enumerate(runners):
        which = f"pair {index + 1}: " if len(runners) > 1 else ""
        try:
            wanted = runs or _plan_runs(runner, len(runners))
            samples = _run_both(runner, wanted, progress)
        finally:
            runner.close()
        total += 2 * wanted
        grid = _compare_grids(*samples)
        if grid:
            findings.append(Finding(layer=2, text=which + grid))
        found = certify_samples(*samples, delta=delta, miss=(1 - confidence) / len(runners))
        findings.append(
            Finding(layer=3, text=which + str(found), violated=found.epsilon > epsilon, epsilon=found.epsilon)
        )
        if found.most <= epsilon:
            told.append(
                f"{which}{wanted:,} runs on each side prove no epsilon above {found.most:.3g}, so they "
                f"cannot refute {epsilon:.6g}"
            )
        if all((each.summaries == each.summaries[0]).all() and _constant(each) for each in samples):
            told.append(f"{which}every run on a side gives the same output: no noise, or a fixed seed")
    return Audit(
        mechanism=name,
        epsilon=float(epsilon),
        delta=float(delta),
        findings=tuple(findings),
        confidence=confidence,
        runs=total,
        pairs=len(runners),
        notes=tuple(told),
    )


def list_pairs(neighbours: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 - see audit_callable
    """The pairs that `neighbours` stands for: one pair, or a list of pairs.

    >>> list_pairs(([1, 2], [1])), len(list_pairs([((1, 2), (1,)), ((), (1,))]))
    ([([1, 2], [1])], 2)
    """
    if isinstance(neighbours, tuple) and len(neighbours) == 2:
        return [neighbours]
    if isinstance(neighbours, list) and neighbours:
        if all(isinstance(each, tuple) and len(each) == 2 for each in neighbours):
            return list(neighbours)
        if len(neighbours) == 2:
            return [(neighbours[0], neighbours[1])]
    raise AuditError("neighbours must be a pair of tables (with, without), or a list of such pairs")


def check_claim(*, epsilon: float, delta: float, confidence: float) -> None:
    """Raises an error about a claim that is none."""
    if isinstance(epsilon, bool) or not 0 <= float(epsilon) < float("inf"):
        raise AuditError("the claimed epsilon must be a number of at least 0")
    if not 0 <= float(delta) < 1:
        raise AuditError("the claimed delta must be at least 0 and below 1")
    if not 0.5 <= confidence < 1:
        raise AuditError("confidence must be at least 0.5 and below 1, such as 0.95")


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
    """A suspicion if one side shows bits that the other never reaches."""
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
    return same and all(held.all() for held in sample.words.values())


def _equal(one: Any, two: Any) -> bool:  # noqa: ANN401 - tables of any kind
    try:
        same = one.equals(two) if hasattr(one, "equals") else one == two
        return bool(np.all(same)) and np.shape(one) == np.shape(two)
    except Exception:  # tables that cannot be compared are not known to be equal
        return False
