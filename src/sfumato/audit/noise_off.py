"""Layer 1: neighbouring tables with the noise off. What is about to be noised is compared, vector by vector.

A noise source records every request for noise. The base table's answers are given to every other table, so
that a recipe that asks by what it has seen takes the same course. Then neighbours must ask for the same
noise, show the same output, and differ in every vector by no more than its cost declares. Nothing here is
left to chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato.audit.neighbours import Individual, list_individuals
from sfumato.audit.result import Finding
from sfumato.core.cost.budget import Spent, add_costs
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import mu_to_epsilon
from sfumato.core.errors import AuditError
from sfumato.core.exact import ExactLike, parse_positive
from sfumato.core.law import SHAPES, Kind
from sfumato.core.noise.choice import exponential_choice, permute_and_flip, poisson_sample
from sfumato.core.noise.samplers import add_noise
from sfumato.core.noise.sparse import add_sparse_noise
from sfumato.tables.arrays import Flags, Floats, Whole

if TYPE_CHECKING:
    from sfumato.audit.targets import Harness, Outcome

Mode = Literal["off", "on"]
Answer = tuple[Whole, "Whole | None"]
"""Noisy values, and the cells they stand in if they are sparse."""

# Groups that only the records know: those of one individual are never released, all others always.
_SURE = 2**40
_MOST_FINDINGS = 6
_TRIES = 4  # runs with noise, if post-processing fails on exact answers
_PURE_HAIR, _GAUSSIAN_HAIR = 1e-9, 1e-3  # relative, see compare_neighbours


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoiseRequest:
    """One request for noise: exact values on their way to it. Never leaves the audit."""

    kind: Kind | Literal["sparse", "choice", "flip"]
    scale: Fraction
    true_values: Whole
    cells: Whole | None = None
    size: int = 0
    threshold: int = 0
    sampling: Fraction = Fraction(1)

    @property
    def terms(self) -> tuple[object, ...]:
        """What neighbours must have in common."""
        shape = () if self.cells is not None else self.true_values.shape
        return (self.kind, self.scale, shape, self.size, self.threshold, self.sampling)


@dataclass(slots=True, eq=False)
class RecordingNoise:
    """A noise source for made-up tables, which records what was about to be noised and what was answered.

    With `replay`, it gives these answers in their order, so that a conversation takes the course it took
    before. Otherwise it adds nothing (`off`) or draws as the package does (`on`). `selections` are the turns
    on which groups are chosen by their number of individuals.
    """

    mode: Mode = "off"
    replay: Sequence[Answer] = ()
    selections: frozenset[int] = frozenset()
    requests: list[NoiseRequest] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    sampling: Fraction = Fraction(1)
    """The rate of the sample that was drawn last, whose sum is noised next."""

    def add_noise(self, values: Whole, *, kind: Kind, scale: ExactLike) -> Whole:
        """Returns `values` with noise, without, or what was answered before."""
        selects = len(self.requests) in self.selections
        exact = parse_positive(scale, name="scale")
        # The groups of a selection come in any order, and without their names.
        true_values = np.sort(values) if selects else values.copy()
        request = NoiseRequest(kind=kind, scale=exact, true_values=true_values, sampling=self.sampling)
        self.sampling = Fraction(1)
        if selects and self.mode == "off":
            return self._answer(request, (np.where(values >= 2, _SURE, -_SURE), None), None)[0]
        return self._answer(
            request, (values, None), lambda: (add_noise(values, kind=kind, scale=scale), None)
        )[0]

    def add_sparse_noise(
        self,
        cells: Whole,
        values: Whole,
        *,
        size: int,
        scale: ExactLike,
        threshold: int,
    ) -> tuple[Whole, Whole]:
        """Returns the cells that reach the `threshold` with noise, without, or that did before.

        `cells` are the occupied ones of `size`, `values` their counts; `scale` is that of the Laplace noise.
        """
        request = NoiseRequest(
            kind="sparse",
            scale=parse_positive(scale, name="scale"),
            true_values=values.copy(),
            cells=cells.copy(),
            size=size,
            threshold=threshold,
        )

        def draw() -> Answer:
            return add_sparse_noise(cells, values, size=size, scale=scale, threshold=threshold)[::-1]

        reached = values >= threshold
        amounts, found = self._answer(request, (values[reached], cells[reached]), draw)
        assert found is not None
        return found, amounts

    def exponential_choice(self, scores: Whole, *, rate: ExactLike) -> Whole:
        """Returns an index for every row: drawn, the best, or what was answered before."""
        return self._choose("choice", exponential_choice, scores, rate)

    def permute_and_flip(self, scores: Whole, *, rate: ExactLike) -> Whole:
        """Returns an index for every row: drawn, the best, or what was answered before."""
        return self._choose("flip", permute_and_flip, scores, rate)

    def _choose(
        self,
        kind: Literal["choice", "flip"],
        draw: Callable[..., Whole],
        scores: Whole,
        rate: ExactLike,
    ) -> Whole:
        exact = parse_positive(rate, name="rate")
        request = NoiseRequest(kind=kind, scale=exact, true_values=scores.copy())
        best = scores.argmax(axis=1)
        return self._answer(request, (best, None), lambda: (draw(scores, rate=rate), None))[0]

    def poisson_sample(self, *, size: int, rate: ExactLike) -> Flags:
        """Returns who is drawn: with noise, by chance; without, everybody, so that nobody can hide."""
        self.sampling = Fraction(parse_positive(rate, name="rate"))
        return poisson_sample(size=size, rate=rate) if self.mode == "on" else np.ones(size, np.bool_)

    def _answer(self, request: NoiseRequest, exact: Answer, draw: Callable[[], Answer] | None) -> Answer:
        """Records the request and its answer: `exact` without a `draw`, else replayed if it can be."""
        turn = len(self.requests)
        self.requests.append(request)
        answer = exact
        if draw is not None:
            before = self.replay[turn] if turn < len(self.replay) else None
            sparse = exact[1] is not None  # of any shape
            if (
                before is not None
                and sparse == (before[1] is not None)
                and (sparse or before[0].shape == exact[0].shape)
            ):
                answer = before
            elif self.mode == "on":
                answer = draw()
        self.answers.append(_copy(answer))
        return _copy(answer)


def _copy(answer: Answer) -> Answer:
    return answer[0].copy(), None if answer[1] is None else answer[1].copy()


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """By how much one request differs from that of a base table, where it does: amount by place."""

    amounts: dict[int, int]

    def minus(self, other: Difference) -> Difference:
        """By how much two tables differ that were both compared with one base."""
        places = sorted({*self.amounts, *other.amounts})
        moved = {place: self.amounts.get(place, 0) - other.amounts.get(place, 0) for place in places}
        return Difference({place: amount for place, amount in moved.items() if amount})

    @property
    def l1(self) -> int:
        """The L1 norm."""
        return sum(map(abs, self.amounts.values()))

    @property
    def l2_squared(self) -> int:
        """The square of the L2 norm."""
        return sum(amount * amount for amount in self.amounts.values())


def measure_difference(base: NoiseRequest, other: NoiseRequest) -> Difference:
    """By how much `other` differs from `base`; both have the same terms.

    The groups of a selection have no names here, so vectors of different length are compared in order of
    size, which is the least they can differ by.
    """
    one, two = base.true_values, other.true_values
    if base.cells is not None and other.cells is not None:
        before = Difference(dict(zip(base.cells.tolist(), one.tolist(), strict=True)))
        return Difference(dict(zip(other.cells.tolist(), two.tolist(), strict=True))).minus(before)
    if one.shape != two.shape:
        size = max(one.size, two.size)
        one, two = (
            np.sort(np.concatenate([each, np.zeros(size - each.size, np.int64)])) for each in (one, two)
        )
    one, two = one.ravel(), two.ravel()
    places = np.flatnonzero(one != two)
    # In Python's whole numbers: the difference of two of 64 bits may need more.
    moved = zip(places.tolist(), one[places].tolist(), two[places].tolist(), strict=True)
    return Difference({place: after - before for place, before, after in moved})


def measure_choice(request: NoiseRequest, difference: Difference) -> tuple[Fraction, float]:
    """Measures the loss of a choice on two tables: by the range of moved scores, and exactly."""
    scores, rate = request.true_values, request.scale
    candidates = scores.shape[1]
    bound, exact = Fraction(0), 0.0
    by_row: dict[int, dict[int, int]] = {}
    for place, amount in difference.amounts.items():
        by_row.setdefault(place // candidates, {})[place % candidates] = amount
    for row, amounts in by_row.items():
        moved = [amounts.get(candidate, 0) for candidate in range(candidates)]
        bound += rate * (max(moved) - min(moved))
        base = [int(score) for score in scores[row]]
        other = [score + amount for score, amount in zip(base, moved, strict=True)]
        one, two = (log_chances(each, rate, kind=request.kind) for each in (base, other))
        exact += float(np.abs(one - two).max())
    return bound, exact


def log_chances(scores: list[int], rate: Fraction, *, kind: str) -> Floats:
    """Returns the logarithms of the chances of all candidates, by the exponential mechanism or by flips.

    Of permute-and-flip: if candidates come at times that are uniform in [0, 1], the one chosen shows heads,
    and whoever came before tails. Its chance is heads * integral of the product of 1 - t * heads of others.

    >>> np.exp(log_chances([0, 0, -1], Fraction(1), kind="flip")).round(6)
    array([0.438687, 0.438687, 0.122626])
    """
    most = max(scores)
    below = np.array([float(most - each) for each in scores])
    logs = -np.minimum(float(rate) * below, 1e6)
    heads = np.exp(logs)
    if kind == "choice":
        return np.asarray(logs - np.log(heads.sum()))
    values, places, counts = np.unique(heads, return_inverse=True, return_counts=True)
    # The product falls as exp(-t * sum of heads) does, so panels begin there and double up to 1.
    panels = math.ceil(math.log2(heads.sum())) + 3
    edges = np.concatenate([[0.0], 2.0 ** np.arange(-panels, 1)])
    nodes, weights = np.polynomial.legendre.leggauss(32)
    half = np.diff(edges)[:, None] / 2
    times = (edges[:-1, None] + half * (1 + nodes)).ravel()
    tails = -np.outer(times, values)
    products = np.exp(np.log1p(tails) @ counts) * (half * weights).ravel()
    return np.asarray(logs + np.log(products @ (1 / (1 + tails)))[places])


def find_excess(request: NoiseRequest, difference: Difference, cost: Cost) -> str | None:
    """Returns how a request breaks what its cost declares, or None; in exact arithmetic."""
    if request.kind in ("choice", "flip"):
        bound, _ = measure_choice(request, difference)
        if bound > cost.scale:
            return f"scores move by epsilon {float(bound):.6g}, declared {float(cost.scale):.6g}"
    elif cost.norm == "L2":
        if difference.l2_squared > cost.sensitivity**2:
            distance = math.sqrt(difference.l2_squared)
            return f"L2 distance {distance:.6g}, declared {float(cost.sensitivity):.6g}"
    elif difference.l1 > cost.sensitivity:
        return f"L1 distance {difference.l1}, declared {float(cost.sensitivity):.6g}"
    return None


def add_losses(
    requests: Sequence[NoiseRequest], differences: Sequence[Difference], *, delta: float, pure: bool = True
) -> float:
    """Returns the epsilon that all requests together show on a pair, from below.

    Pure losses add up. Gaussian ones add up in squares and are read at `delta`; without delta there is no
    finite epsilon. Of a mixture, the larger of the two counts. Sums over samples are left out: what they show
    together is no sum, and their norms are compared with what is declared. Where the claim rests on delta
    for pure losses too, their plain sum proves nothing and is left out (`pure` is False).
    """
    plain = squares = 0.0
    for request, difference in zip(requests, differences, strict=True):
        match request.kind:
            case "gaussian" if request.sampling < 1:
                continue
            case "gaussian":
                squares += float(Fraction(difference.l2_squared) / request.scale**2)
            case "choice" | "flip":
                plain += measure_choice(request, difference)[1]
            case _:
                plain += float(difference.l1 / request.scale)
    if not pure:
        plain = 0.0
    if squares == 0:
        return plain
    return max(plain, mu_to_epsilon(math.sqrt(squares), delta) if delta > 0 else math.inf)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BaseRun:
    """A run on a table without the individual: what it asked, what it was answered, what it showed."""

    crowd: bool
    noise: RecordingNoise
    outcome: Outcome


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Compared:
    """What comparing pairs of neighbours gave; the worst pair, for layers that draw noise."""

    findings: tuple[Finding, ...]
    pairs: int
    worst_differences: tuple[Difference, ...]
    base: BaseRun


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Trial:
    """A run with one individual more than its base: how its vectors differ, and what is wrong with it."""

    what: str
    outcome: Outcome
    requests: tuple[NoiseRequest, ...]
    differences: tuple[Difference, ...] | None
    fault: str | None


def run_base(harness: Harness, *, crowd: bool, mode: Mode = "off") -> BaseRun:
    """Returns a run on the table of the crowd, or of nobody, by default with the noise off."""
    noise = RecordingNoise(mode=mode)
    outcome = harness.run((), noise, crowd=crowd)
    for _ in range(_TRIES if outcome.error is not None and outcome.charged else 0):
        # Exact answers may be more than post-processing was made for. Any course of answers will do.
        noise = RecordingNoise(mode="on")
        outcome = harness.run((), noise, crowd=crowd)
        if outcome.error is None:
            break
    if crowd and outcome.error is not None:
        raise AuditError(f"this cannot be audited, it is not answered: {outcome.error}")
    selections = frozenset(turn for turn, cost in enumerate(outcome.declared) if cost.kind == "selection")
    if selections:  # drawn groups would differ from run to run, and no vectors could be compared
        noise = RecordingNoise(selections=selections)
        outcome = harness.run((), noise, crowd=crowd)
    return BaseRun(crowd=crowd, noise=noise, outcome=outcome)


def compare_neighbours(
    harness: Harness,
    *,
    thorough: bool,
    progress: Callable[[str], None],
    people: Sequence[Individual] | None = None,
) -> Compared:
    """Returns all pairs that the table's description gives, and what is wrong between any of them.

    A statement that goes on until its answer is good enough claims what it spends on the way, so the
    claim is asked for every base table.
    """
    replaces = harness.table.unit.neighbours == "replace"
    faults: dict[str, str] = {}
    worst, worst_pair, broken = -1.0, "", False
    worst_differences: tuple[Difference, ...] = ()
    pairs = 0
    first_base = kept_base = run_base(harness, crowd=True)
    if people is None:
        people = list_individuals(harness.fields, harness.table, thorough=thorough)
    bases = [first_base, run_base(harness, crowd=False)]
    if thorough and not first_base.noise.selections:
        bases.append(run_base(harness, crowd=True, mode="on"))
    for base in bases:
        epsilon, delta = harness.target.claim(base.outcome)
        # Or the plain sum of what was charged is already what is claimed.
        spent = add_costs(Spent(), base.outcome.charged).epsilon
        pure = delta == 0 or (spent is not None and spent <= epsilon * (1 + _PURE_HAIR))
        # The conversion of a Gaussian parameter to epsilon is rounded, sums of pure losses are nearly exact.
        gaussian = any(each.kind == "gaussian" for each in base.noise.requests)
        hair = _GAUSSIAN_HAIR if gaussian else _PURE_HAIR
        trials = _run_trials(harness, base, people, thorough=thorough, progress=progress)
        for what, trial, differences in _list_pairs(trials, replaces=replaces):
            pairs += 1
            fault = trial.fault or _find_fault(trial, differences)
            if fault is not None:
                faults.setdefault(fault, what)
            if differences is not None:
                shown = add_losses(trial.requests, differences, delta=delta, pure=pure)
                broken |= shown > epsilon * (1 + hair) + 1e-12
                if shown > worst:
                    worst, worst_differences, worst_pair, kept_base = shown, differences, what, base
    findings = [
        Finding(layer=1, text=f"{fault} ({what})", violated=True, epsilon=_certain(fault), exact=True)
        for fault, what in list(faults.items())[:_MOST_FINDINGS]
    ]
    shown = max(worst, 0.0)
    findings.append(
        Finding(
            layer=1,
            text=(
                f"{pairs:,} pairs, {len(first_base.noise.requests):,} noisy answers each: the worst pair "
                f"shows epsilon {shown:.6g}" + (f" ({worst_pair})" if worst_pair else "")
            ),
            violated=broken,
            epsilon=shown,
            exact=True,
        )
    )
    return Compared(
        findings=tuple(findings), pairs=pairs, worst_differences=worst_differences, base=kept_base
    )


def _run_trials(
    harness: Harness,
    base: BaseRun,
    people: Sequence[Individual],
    *,
    thorough: bool,
    progress: Callable[[str], None],
) -> list[_Trial]:
    """Gives a trial for every individual beside the base, for some also with the records in reverse order."""
    # Alone, an individual shows what depends on there being others; few kinds of them will do.
    chosen = people if base.crowd or thorough else people[1::3] or people
    trials = []
    for number, person in enumerate(chosen):
        progress(f"noise off: {person.what}")
        trials.append(_try_person(harness, base, person))
        if number == len(chosen) - 1 or (thorough and number % 4 == 0):
            trials.append(_try_person(harness, base, person, backwards=True))
    return trials


def _try_person(harness: Harness, base: BaseRun, person: Individual, *, backwards: bool = False) -> _Trial:
    noise = RecordingNoise(replay=base.noise.answers, selections=base.noise.selections)
    outcome = harness.run((person,), noise, crowd=base.crowd, backwards=backwards)
    fault = _compare_runs(base, noise, outcome)
    differences = None
    if len(noise.requests) == len(base.noise.requests) and not _differing(base, noise):
        both = zip(base.noise.requests, noise.requests, strict=True)
        differences = tuple(measure_difference(one, two) for one, two in both)
    place = "in a crowd" if base.crowd else "alone"
    what = f"{person.what}, {place}{', in reverse order' if backwards else ''}"
    return _Trial(
        what=what, outcome=outcome, requests=tuple(base.noise.requests), differences=differences, fault=fault
    )


def _list_pairs(
    trials: list[_Trial], *, replaces: bool
) -> Iterator[tuple[str, _Trial, tuple[Difference, ...] | None]]:
    if not replaces:
        for trial in trials:
            yield trial.what, trial, trial.differences
        return
    for number, one in enumerate(trials):
        for two in trials[number + 1 :]:
            differences = None
            if one.differences is not None and two.differences is not None:
                differences = tuple(a.minus(b) for a, b in zip(one.differences, two.differences, strict=True))
            yield f"{one.what} / {two.what}", two if one.fault is None else one, differences


def _compare_runs(base: BaseRun, noise: RecordingNoise, outcome: Outcome) -> str | None:
    """Returns what an outsider sees differ though every noisy answer was the same, or None."""
    first = base.outcome
    if outcome.error != first.error:
        return "an error depends on the records"
    if outcome.charged != first.charged:
        return "neighbours are charged differently"
    if len(noise.requests) != len(base.noise.requests):
        return "neighbours ask for noise a different number of times"
    if differing := _differing(base, noise):
        return f"neighbours ask for different noise, answer {differing[0] + 1}"
    if outcome.stages != first.stages:
        return "the progress messages depend on the records"
    for name in sorted({*first.seen, *outcome.seen}):
        if first.seen.get(name) != outcome.seen.get(name):
            return f"the output depends on more than the noisy answers: {name}"
    return None


def _differing(base: BaseRun, noise: RecordingNoise) -> list[int]:
    """Finds the turns on which neighbours ask for different noise, selections apart."""
    return [
        turn
        for turn, (one, two) in enumerate(zip(base.noise.requests, noise.requests, strict=False))
        if one.terms[:2] != two.terms[:2] or (turn not in base.noise.selections and one.terms != two.terms)
    ]


def _find_fault(trial: _Trial, differences: tuple[Difference, ...] | None) -> str | None:
    """Returns how vectors break what was declared for them, or None."""
    declared = trial.outcome.declared
    if differences is None or trial.outcome.error is not None:
        return None
    # One cost for several answers with noise of its kind: the periods of a series, one long vector.
    together = len(declared) == 1 < len(trial.requests) and all(
        each.kind == declared[0].kind in SHAPES for each in trial.requests
    )
    if together:
        declared *= len(trial.requests)
    if len(declared) != len(trial.requests):
        return f"{len(trial.requests)} noisy answers, but costs of {len(declared)} were declared"
    for turn, (request, difference, cost) in enumerate(
        zip(trial.requests, differences, declared, strict=True), start=1
    ):
        fault = _find_other_noise(request, cost)
        if fault is None and not together:
            fault = find_excess(request, difference, cost)
        if fault is not None:
            return f"answer {turn}: {fault}"
    distance = float(sum(each.l1 for each in differences))
    if together and declared[0].norm == "L2":
        distance = math.sqrt(sum(each.l2_squared for each in differences))
    if together and distance > declared[0].sensitivity:
        return (
            f"{declared[0].norm} distance {distance:.6g} over {len(differences)} answers, declared "
            f"{float(declared[0].sensitivity):.6g}"
        )
    return None


def _find_other_noise(request: NoiseRequest, cost: Cost) -> str | None:
    kinds = {
        "sparse": ("laplace",),
        "laplace": ("laplace", "selection"),
        "choice": ("exponential",),
        "flip": ("permute-and-flip",),
    }
    if request.sampling < 1:
        kinds["gaussian"] = ("sampled",)
    if request.sampling != cost.sampling:
        return f"a sample of {float(request.sampling):.6g}, declared {float(cost.sampling):.6g}"
    if cost.kind not in kinds.get(request.kind, (request.kind,)):
        return f"noise of kind {request.kind}, declared {cost.kind}"
    if request.kind not in ("choice", "flip") and request.scale != cost.scale:
        return f"noise of scale {float(request.scale):.6g}, declared {float(cost.scale):.6g}"
    return None


def _certain(fault: str) -> float | None:
    """Infinity for what no epsilon bounds: neighbours that differ visibly without noise."""
    visible = ("an error depends", "the output depends", "the progress messages", "neighbours are charged")
    return math.inf if fault.startswith(visible) else None
