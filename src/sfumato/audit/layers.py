"""The audit of a recipe or a statement: all layers, on tables made up from the project's public facts.

Layer 0 reads the charges, layer 1 compares neighbours with the noise off, layer 2 tests the law of the noise,
layer 3 is a black-box audit of the worst pair, layer 4 an audit by one run with canaries.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato.audit.blackbox import Sample, certify_samples, summarize
from sfumato.audit.bounds import binomial_tail, chi_square_tail
from sfumato.audit.neighbours import MOST_RECORDS
from sfumato.audit.noise_off import compare_neighbours, log_chances, run_base
from sfumato.audit.one_run import try_canaries
from sfumato.audit.result import Audit, Finding, check_claim
from sfumato.audit.targets import Harness
from sfumato.core.cost.budget import Spent, add_costs
from sfumato.core.cost.curves import mu_to_epsilon, rho_to_epsilon
from sfumato.core.noise.choice import exponential_choice, permute_and_flip, poisson_sample
from sfumato.core.noise.samplers import add_noise
from sfumato.core.noise.sparse import add_sparse_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from sfumato.audit.noise_off import Compared, Difference, NoiseRequest
    from sfumato.audit.targets import Outcome, Target
    from sfumato.core.cost.cost import Cost
    from sfumato.core.facts.project import Project
    from sfumato.core.facts.table import Table
    from sfumato.core.law import Kind
    from sfumato.tables.arrays import Floats, Whole

    Sides = tuple[Floats, Floats]

Effort = Literal["fast", "normal", "thorough"]

_HAIR = 1e-6  # relative: conversions between kinds of cost are rounded
_RARE = 1e-7  # noise that is wrong enough to matter is wrong beyond any doubt after so many draws
_BINS = 24
_MOST_LAWS = 8
_LEAST_EXPECTED = 20.0  # in each cell of a chi-square test, below which its law is not close enough
_FINE_GAUSSIAN = 30.0  # from here on, the discrete Gaussian law is the continuous one to many digits
_MOST_VALUES = 512  # drawn of a pair that differs in more places
_MOST_ROWS = 8
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    thorough: bool
    draws: int
    runs: int
    canaries: int


EFFORTS: dict[Effort, _Settings] = {
    "fast": _Settings(thorough=False, draws=4_000, runs=1_000, canaries=0),
    "normal": _Settings(thorough=False, draws=20_000, runs=10_000, canaries=256),
    "thorough": _Settings(thorough=True, draws=200_000, runs=200_000, canaries=2_000),
}


def audit_target(
    target: Target,
    project: Project,
    *,
    effort: Effort = "normal",
    runs: int | None = None,
    confidence: float = 0.95,
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Returns what all layers say about `target`, on tables made up from the public facts of `project`.

    Layers 0 and 1 leave nothing to chance. The other three share the chance of a false alarm, 1 less
    `confidence`, equally. `effort` sets how many tables, draws, runs and canaries there are, `runs` the runs
    of the worst pair; `progress` is called with a few words at every step.
    """
    settings = EFFORTS[effort]
    miss = (1 - confidence) / 3
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(project, target, Path(folder))
        progress("lint")
        outcome = run_base(harness, crowd=True).outcome
        epsilon, delta = target.claim(outcome)
        check_claim(epsilon=epsilon, delta=delta, confidence=confidence)
        findings = list(_check_charges(harness.table, outcome, epsilon=epsilon, delta=delta))
        compared = compare_neighbours(harness, thorough=settings.thorough, progress=progress)
        epsilon, delta = target.claim(compared.base.outcome)
        findings += compared.findings
        requests = compared.base.noise.requests
        findings += _check_laws(requests, miss=miss, draws=settings.draws, progress=progress)
        findings += _check_seed(harness, requests)
        runs = settings.runs if runs is None else runs
        findings += _draw_worst(compared, epsilon=epsilon, delta=delta, runs=runs, miss=miss)
        if settings.canaries:
            found = try_canaries(
                harness, most=settings.canaries, epsilon=epsilon, delta=delta, miss=miss, progress=progress
            )
            findings += [] if found is None else [found]
        return Audit(
            mechanism=target.name,
            epsilon=epsilon,
            delta=delta,
            findings=tuple(findings),
            confidence=confidence,
            runs=2 * runs,
            pairs=compared.pairs,
            notes=_note_facts(harness.table),
        )


def _check_charges(table: Table, outcome: Outcome, *, epsilon: float, delta: float) -> tuple[Finding, ...]:
    """Returns whom the claim is about, and whether what is charged and declared is what is claimed."""
    unit = table.unit.describe()
    findings = [Finding(layer=0, text=f"protects one individual: {unit}; bounding by {table.bounding}")]
    neighbours = {cost.neighbours for cost in (*outcome.charged, *outcome.declared)}
    norms = {cost.norm for cost in outcome.declared if cost.kind in ("laplace", "gaussian")}
    if neighbours - {table.unit.neighbours} or None in norms:
        text = "a cost is declared for other neighbours, or without a norm"
        findings.append(Finding(layer=0, text=text, violated=True))
    charged = _read_epsilon(outcome.charged, delta=delta)
    failure = float(sum(cost.failure for cost in outcome.charged))
    over = charged > epsilon * (1 + _HAIR) or failure > delta * (1 + _HAIR)
    text = f"the charges come to epsilon {charged:.6g}" + (f" at delta {delta:.6g}" if delta else "")
    findings.append(Finding(layer=0, text=f"{text}; the claim is {epsilon:.6g}", violated=over))
    # Steps of a sampled run are charged together, so they are counted and not added up.
    plain = [
        [cost for cost in costs if cost.kind != "sampled"] for costs in (outcome.declared, outcome.charged)
    ]
    declared, allowed = (add_costs(Spent(), costs) for costs in plain)
    steps, runs = (
        sum(cost.count for cost in costs if cost.kind == "sampled")
        for costs in (outcome.declared, outcome.charged)
    )
    if declared.rho > allowed.rho * (1 + 10**-9) or steps > runs:
        text = "the answers are declared to cost more than is charged"
        findings.append(Finding(layer=0, text=text, violated=True))
    return tuple(findings)


def _note_facts(table: Table) -> tuple[str, ...]:
    """Returns what a reader should know about the description that everything rests on."""
    notes = []
    drafted = sorted(name for name, column in table.columns.items() if column.drafted)
    if drafted:
        notes.append(
            f"not public: the domains of {', '.join(drafted)} were drafted from the data, which no audit of "
            "what follows can make private"
        )
    if table.unit.max_records > MOST_RECORDS:
        notes.append(
            f"made-up individuals have {MOST_RECORDS:,} records at most, fewer than max_records: their "
            "epsilon is a part of what one individual may cause"
        )
    return tuple(notes)


def _read_epsilon(costs: tuple[Cost, ...], *, delta: float) -> float:
    """Returns the least epsilon that the costs prove at `delta`, as the ledger reads them."""
    if not costs:
        return 0.0
    spent = add_costs(Spent(), costs)
    readings = [] if spent.epsilon is None else [float(spent.epsilon)]
    rest = delta - float(spent.delta)
    if rest > 0:
        readings.append(rho_to_epsilon(spent.rho, rest))
        if spent.mu_squared is not None:
            readings.append(mu_to_epsilon(math.sqrt(spent.mu_squared), rest))
    return min(readings, default=math.inf)


def _check_laws(
    requests: Sequence[NoiseRequest], *, miss: float, draws: int, progress: Callable[[str], None]
) -> tuple[Finding, ...]:
    """Gives whether draws fit every kind and scale of noise that was asked for; false alarms below `miss`."""
    tests: list[tuple[str, float]] = []
    laws = list(
        dict.fromkeys((each.kind, each.scale) for each in requests if each.kind in ("laplace", "gaussian"))
    )
    for kind, scale in laws[:_MOST_LAWS]:
        progress(f"noise law: {kind}")
        drawn = add_noise(np.zeros(draws, np.int64), kind=kind, scale=scale)
        tests += [(f"{kind} of scale {float(scale):.6g}", each) for each in fit_law(drawn, kind, scale)]
    for each in [each for each in requests if each.kind in ("choice", "flip")][:_MOST_LAWS]:
        progress("noise law: choices")
        tests.append((f"{each.kind} at rate {float(each.scale):.6g}", _fit_choice(each, draws)))
    for each in [each for each in requests if each.kind == "sparse"][:_MOST_LAWS]:
        progress("noise law: occupied cells")
        tests += [("noise on occupied cells", chance) for chance in _fit_sparse(each)]
    if not tests:
        return ()
    name, least = min(tests, key=lambda test: test[1])
    wrong = least < min(miss, _RARE) / len(tests)
    text = f"{len(tests)} tests of {draws:,} draws: " + (
        f"{name} does not have its law (chance {least:.2g})" if wrong else f"least chance {least:.2g}"
    )
    return (Finding(layer=2, text=text, violated=wrong),)


def fit_law(drawn: Whole, kind: str, scale: Fraction | float) -> tuple[float, ...]:
    """Returns the chances, under the law of this kind and scale, of a fit as bad as that of `drawn`.

    First by its shape, then by whether draws are even.
    """
    width = float(scale)
    # Bins of about equal chance: cut at the quantiles of the continuous law, which need not be exact.
    shares = np.arange(1, _BINS) / _BINS
    if kind == "laplace":
        quantiles = -np.sign(shares - 0.5) * np.log(2 * np.minimum(shares, 1 - shares))
    else:
        quantiles = np.array([NormalDist().inv_cdf(share) for share in shares])
    edges = np.unique(np.rint(width * quantiles).astype(np.int64))
    below, share = _expect_law(kind, width, edges)
    expected = np.diff(below, prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(edges, drawn, side="left"), minlength=edges.size + 1)
    # Bins may be wide: what is wrong with the lowest bit shows only here.
    even = int((drawn % 2 == 0).sum())
    parity = _chi_square(np.array([even, drawn.size - even]), np.array([share, 1 - share]))
    return _chi_square(counts, expected), parity


def _chi_square(counts: Whole, expected: Floats) -> float:
    """Returns the chance of a fit as bad; cells of small expectation are put together."""
    total = int(counts.sum())
    means = expected * total
    merged: list[tuple[float, float]] = []
    seen, mean = 0.0, 0.0
    for count, each in zip(counts.tolist(), means.tolist(), strict=True):
        seen, mean = seen + count, mean + each
        if mean >= _LEAST_EXPECTED:
            merged.append((seen, mean))
            seen, mean = 0.0, 0.0
    if merged and mean > 0:
        merged[-1] = (merged[-1][0] + seen, merged[-1][1] + mean)
    if len(merged) < 2:
        return 1.0
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in merged)
    return chi_square_tail(statistic, len(merged) - 1)


def _expect_law(kind: str, scale: float, edges: Whole) -> tuple[Floats, float]:
    """The chance under a law of a number up to each of `edges`, and that of an even one."""
    if kind == "laplace":
        q = math.exp(-1 / scale)
        tails = q ** np.where(edges >= 0, edges + 1, -edges) / (1 + q)
        return np.where(edges >= 0, 1 - tails, tails), (1 + q * q) / (1 + q) ** 2
    if scale >= _FINE_GAUSSIAN:
        ends = ((edges + 0.5) / scale / math.sqrt(2)).tolist()
        return np.array([math.erfc(-end) / 2 for end in ends]), 0.5
    reach = math.ceil(12 * scale) + 10
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * scale**2))
    chances = weights / weights.sum()
    return np.cumsum(chances)[edges + reach], float(chances[values % 2 == 0].sum())


def _fit_choice(request: NoiseRequest, draws: int) -> float:
    row = request.true_values[0]
    chances = np.exp(log_chances(row.tolist(), request.scale, kind=request.kind))
    count = max(1, min(draws, 2**22 // row.size))
    draw = exponential_choice if request.kind == "choice" else permute_and_flip
    drawn = draw(np.tile(row, (count, 1)), rate=request.scale)
    order = np.argsort(-chances, kind="stable")
    return _chi_square(np.bincount(drawn, minlength=row.size)[order], chances[order])


def _fit_sparse(request: NoiseRequest) -> tuple[float, ...]:
    """Returns how many empty cells pass the threshold, and how far above it they are."""
    nothing = np.empty(0, np.int64)
    q = math.exp(-1 / float(request.scale))
    passing = q**request.threshold / (1 + q)
    size = min(request.size, int(min(4000 / max(passing, 1e-300), 2**62)))  # about 4000 cells pass
    cells, amounts = add_sparse_noise(
        nothing, nothing, size=size, scale=request.scale, threshold=request.threshold
    )
    mean = size * passing
    if size < 10**9:
        tail = min(binomial_tail(cells.size, size, passing), 1 - binomial_tail(cells.size + 1, size, passing))
    else:  # the binomial is Poisson by now, and its tail is that of a chi-square variable
        less = chi_square_tail(2 * mean, 2 * cells.size + 2)
        more = 1 - chi_square_tail(2 * mean, 2 * cells.size) if cells.size else 1.0
        tail = min(less, more)
    excess = amounts - request.threshold
    step = max(1, int(float(request.scale) / 6))
    edges = np.arange(_BINS)
    counts = np.bincount(np.minimum(excess // step, _BINS - 1), minlength=_BINS)
    chances: Floats = np.asarray(q ** (edges * step) * (1 - q**step), np.float64)
    chances[-1] = q ** (edges[-1] * step)
    return min(1.0, 2 * tail), _chi_square(counts, chances) if excess.size else 1.0


def _check_seed(harness: Harness, requests: Sequence[NoiseRequest]) -> list[Finding]:
    """Returns two runs as a release makes them: the same noise twice would be a seed."""
    plenty = sum(
        each.true_values.size for each in requests if each.kind in ("laplace", "gaussian") and each.scale >= 4
    )
    if plenty < 20:  # equal by chance too often
        return []
    seen = [harness.run((), None).seen for _ in range(2)]
    answers = [{k: v for k, v in each.items() if k.startswith("answer")} for each in seen]
    if answers[0] != answers[1]:
        return []
    return [Finding(layer=2, text="two runs had the same noise: it comes from a seed", violated=True)]


def _draw_worst(compared: Compared, *, epsilon: float, delta: float, runs: int, miss: float) -> list[Finding]:
    """Returns a black-box audit of the worst pair of layer 1, with noise drawn on it many times."""
    differences = compared.worst_differences
    if not runs or not any(each.amounts for each in differences):
        return []
    samples = _draw_sides(compared.base.noise.requests, differences, runs=runs)
    found = certify_samples(*samples, delta=delta, miss=miss)
    text = f"the worst pair with noise: {found}"
    return [Finding(layer=3, text=text, violated=found.epsilon > epsilon, epsilon=found.epsilon)]


def _draw_sides(
    requests: Sequence[NoiseRequest], differences: Sequence[Difference], *, runs: int
) -> tuple[Sample, Sample]:
    """Samples of `runs` noisy answers without and with the individual.

    Only the values that differ between the tables are drawn: the others have the same law on both sides.
    """
    columns: list[Sides] = []
    left = _MOST_VALUES
    for request, difference in zip(requests, differences, strict=True):
        if not difference.amounts or left <= 0:
            continue
        if request.kind in ("choice", "flip"):
            drawn = _draw_choices(request, difference, runs)
        else:
            drawn = _draw_values(request, difference, runs, most=left)
        left -= drawn[0].shape[1]
        columns.append(drawn)
    samples = []
    for parts in zip(*columns, strict=True):
        numbers = np.concatenate(parts, axis=1)
        names = tuple(f"[{place}]" for place in range(numbers.shape[1]))
        samples.append(Sample(runs, numbers, names, summarize(numbers), {}))
    return samples[0], samples[1]


def _draw_values(request: NoiseRequest, difference: Difference, runs: int, *, most: int) -> Sides:
    """Noisy values of the places that differ most, `runs` times on either side."""
    amounts = difference.amounts
    places = sorted(amounts, key=lambda place: -abs(amounts[place]))[:most]
    if request.cells is not None:
        known = dict(zip(request.cells.tolist(), request.true_values.tolist(), strict=True))
        without = [known.get(place, 0) for place in places]
    elif max(places) < request.true_values.size:
        without = request.true_values.ravel()[places].tolist()
    else:  # groups that only one side has
        without = [0] * len(places)
    with_person = [
        min(max(value + amounts[place], _LEAST), _MOST) for value, place in zip(without, places, strict=True)
    ]
    kind: Kind = "gaussian" if request.kind == "gaussian" else "laplace"
    sides = []
    for values in (without, with_person):
        tiled = np.tile(np.array(values, np.int64), (runs, 1))
        if values is with_person and request.sampling < 1:  # not in every sample
            absent = ~poisson_sample(size=runs, rate=request.sampling)
            tiled[absent] = np.array(without, np.int64)
        sides.append(add_noise(tiled, kind=kind, scale=request.scale).astype(np.float64))
    return sides[0], sides[1]


def _draw_choices(request: NoiseRequest, difference: Difference, runs: int) -> Sides:
    """Chosen candidates of the first rows that differ, `runs` times on either side."""
    candidates = request.true_values.shape[1]
    with_person = request.true_values.copy()
    for place, amount in difference.amounts.items():
        at = divmod(place, candidates)
        with_person[at] = min(max(int(with_person[at]) + amount, _LEAST), _MOST)
    rows = sorted({place // candidates for place in difference.amounts})[:_MOST_ROWS]
    at_once = max(1, 2**22 // candidates)
    draw = exponential_choice if request.kind == "choice" else permute_and_flip
    sides = []
    for scores in (request.true_values, with_person):
        columns = []
        for row in rows:
            parts = [
                draw(np.tile(scores[row], (min(at_once, runs - start), 1)), rate=request.scale)
                for start in range(0, runs, at_once)
            ]
            columns.append(np.concatenate(parts).astype(np.float64))
        sides.append(np.stack(columns, axis=1))
    return sides[0], sides[1]
