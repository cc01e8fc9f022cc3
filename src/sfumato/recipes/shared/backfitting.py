"""How an additive model is fitted: questions about residuals, one group of terms after the other.

Everything here is post-processing and planning of questions: it sees noisy answers and public facts only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from sfumato.core.facts.domain import Tuples, Values
from sfumato.core.facts.table import Table
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Measurement, in_records
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import Residuals, Term
from sfumato.inference.models.additive import Score, Shape
from sfumato.inference.models.terms import (
    Basis,
    Evidence,
    Fitted,
    build_basis,
    cross_bases,
    join_codes,
    mix_evidence,
    shrink,
)
from sfumato.recipes.base import Asking, Progress
from sfumato.recipes.shared.budget import RemainingBudget, sum_groups, weigh_cells
from sfumato.recipes.shared.responses import COUNTED, Counted, Digits, Response, suffice
from sfumato.tables.arrays import Floats

Columns = tuple[str, ...]
Part = tuple[Columns, ...]
"""The columns of terms that are fitted together."""

# Shares of the budget, and the numbers below, were set by hand; they move accuracy, never what is charged.
_NUMBERS = Fraction(6, 100)  # at least, for intercepts, weights and spreads, in all sweeps
_MOST_NUMBERS = Fraction(1, 3)
_JOINT = Fraction(20, 100)  # for how terms that are fitted together go together
_TOGETHER = 4  # terms that are asked about at once and fitted each by itself
_DAMPED = 0.6  # of their steps
_MOST_JOINT = 32  # directions of terms that are fitted together
_JOINT_SWEEPS = 6  # terms that are fitted together settle sooner
_JOINT_NEWEST = 0.5  # the least weight of the newest of several noisy sums of these
_SWEEPS = 8  # more divide the budget further than they settle the terms
_CLIP = 1.25  # residuals are clipped at so many standard deviations, or more with less noise
_CLIP_GROWTH = 0.1  # power of the people by which clips widen
_MOST_CLIP = 3.0  # beyond which hardly a residual lies
_TOO_FEW = 12.0  # people for the noise of a term, below which the budget is for the constant alone
_EVIDENT = 0.0  # the least log odds of a term that is kept
_ASKED = {"intercept": Fraction(8, 10), "weight": Fraction(2, 10), "spread": Fraction(2, 10)}  # in parts
_DRIFT = 0.02  # of the variance of the target, by which its constant may change in the first sweep
_FAR = 3.0  # standard deviations beyond which a constant is seen to have changed
_LEAST = 3.0  # standard deviations of a count's noise that a group must hold
_FINEST = 256  # no group needs to hold more than this part of the records
_LARGEST_PAIR = 2**16  # cells of a pair of inputs
_PAIRS = Fraction(25, 100)  # for terms of pairs, if there are any
_USUAL_PAIRS = 5  # as many as were of use where tried
_CLEAR = 250.0  # people for the noise of a term, from which on pairs were no worse, where tried
_CHOICE = Fraction(30, 100)  # of that, for the choice of them
_OFFERED = 3  # pairs for every one that is wanted
_PAIR_SWEEPS = 2  # the last ones, in which pairs are fitted as well
_PAIR_GROUPS = 16  # of each column, about
_PAIR_RANK = 3  # directions of each column
_PAIR_EVIDENT = 1.0  # the least log odds of a pair that is chosen
_MOST_JOINT_CODES = 128  # of all inputs together, beyond the first of each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """One score to fit: what it is fitted to, and with what share of which budget."""

    budget: RemainingBudget
    known: Columns
    target: str
    counted: Counted
    digits: Digits
    response: Response
    share: Fraction
    pairs: int | None
    label: str
    progress: Progress

    @property
    def inputs(self) -> Part:
        """List the inputs, each as the columns of a term."""
        return tuple((name,) for name in self.known[:-1])

    @property
    def people(self) -> float:
        """Return how many people there are for the noise of a term.

        The more there are, the rarer residuals may be to count.
        """
        people = self.counted.total / self.budget.table.unit.max_records
        return people * math.sqrt(self.share / (len(self.known) - 1))


@dataclass(slots=True, eq=False)
class _State:
    """What is known of the term of some columns; nothing but its basis before its sums are asked."""

    basis: Basis
    term: Term | None = None
    coefficients: Floats | None = None
    covariance: Floats | None = None
    log_odds: float = 0.0
    balance: float = 0.0

    @property
    def effects(self) -> Floats:
        """Return what each group adds to the score."""
        assert self.coefficients is not None
        return self.basis.directions @ self.coefficients


@dataclass(slots=True, eq=False)
class _Constant:
    """The intercept, its variance by its own sums, and how far off it may be while terms change."""

    value: float
    doubt: float
    off: float


@dataclass(slots=True, eq=False)
class _Residual:
    """How residuals are clipped, in all and in standard deviations, their variance and their weight."""

    clip: float
    wide: float
    spread: float
    weight: float = 1.0


@dataclass(slots=True, eq=False)
class _Drift:
    """How far sums have moved from sweep to sweep, in all, in units of their noise; and how many."""

    moved: float = 1.0
    seen: float = 1.0


class Fitting:
    """One score under way: the intercept, and for every input what is known of its term."""

    def __init__(self, task: Task) -> None:
        self.task, self.budget, self.response = task, task.budget, task.response
        response = task.response
        wide = min(max(_CLIP * (task.people / 30) ** _CLIP_GROWTH, _CLIP), _MOST_CLIP)
        self.numbers = suffice(task.budget, task.counted.total, _NUMBERS, _MOST_NUMBERS)
        self.states = {each: _State(self._build_basis(*each, finest=_FINEST)) for each in task.inputs}
        self.joint = self._find_joint()
        # Inputs that are fitted together are many that go together: what pairs add is in them already.
        usual = _USUAL_PAIRS if task.people >= _CLEAR and not self.joint else 0
        self.pairs = usual if task.pairs is None else task.pairs
        self.evidence: dict[Part, Evidence] = {}
        self.moments = np.zeros((0, 0))
        doubt = max(response.prior / 10, response.doubt**2)
        self.constant = _Constant(response.intercept, doubt, doubt)
        self.residual = _Residual(min(wide * response.size, 1.0), wide, response.spread)
        if response.link is not None:
            self.residual.weight = float(self._slopes(np.array([self.constant.value]))[0])
        self.drift = _Drift()

    def run(self) -> Asking[Score]:
        """Return the score, after all sweeps."""
        if self.task.people < _TOO_FEW:
            # A clip that bends the sum of a skewed target would be most of the error of a constant.
            self.residual.wide = _MOST_CLIP
            self.residual.clip = min(self.residual.wide * self.response.size, 1.0)
            for turn in range(2):
                yield from self._ask_numbers(turn, self.task.share / 2)
            return self._finish()
        block, sweeps = self.joint, _SWEEPS
        share = self.task.share * (1 - self.numbers - (_PAIRS if self.pairs else 0))
        if block:
            sweeps = _JOINT_SWEEPS
            share -= self.task.share * _JOINT
        inputs = max(1, len([each for each in self.task.inputs if self._rank(each)]))
        part = share / (sweeps * inputs)
        for_pair = self.task.share * _PAIRS * (1 - _CHOICE) / max(1, self.pairs)
        kept: list[Columns] = []
        for sweep in range(sweeps):
            # The first constant carries all others, so half of what numbers may cost is for it.
            numbers = self.task.share * self.numbers / 2 / (1 if sweep == 0 else sweeps - 1)
            self.drift.moved, self.drift.seen = (
                self.drift.moved / 4,
                self.drift.seen / 4,
            )  # the latest count most
            yield from self._ask_numbers(sweep, numbers)
            if block and sweep % 2 == 0 and (sweep == 0 or self.response.weights is not None):
                times = 1 if self.response.weights is None else (sweeps + 1) // 2
                yield from self._ask_moments(block, sweep, self.task.share * _JOINT / times)
            if self.pairs and sweep == sweeps - _PAIR_SWEEPS:
                kept = yield from self._choose_pairs(sweep, for_pair / (_PAIR_SWEEPS + 1))
                # What pairs do not need is for the terms of single inputs.
                part += for_pair * (self.pairs - len(kept)) / (_PAIR_SWEEPS * inputs)
            for each in [block] if block else self._list_batches(sweep):
                yield from self._update(each, sweep, part, together=bool(block))
            for pair in kept:
                yield from self._update((pair,), sweep, for_pair / (_PAIR_SWEEPS + 1))
            self.task.progress(f"{self.task.label}sweep {sweep + 1} of {sweeps}")
        return self._finish()

    @property
    def _curvature(self) -> float:
        """Return the weight of all records together."""
        return self.task.counted.total * self.residual.weight

    def _finish(self) -> Score:
        return Score(
            intercept=round(self.constant.value * self.response.score_grid) + self.response.offset,
            shapes=tuple(self._shape(each) for each in self.states),
        )

    def _choose_pairs(self, sweep: int, share: Fraction) -> Asking[list[Columns]]:
        """Adds terms of pairs of inputs: of those offered, the ones that explain their noisy sums best.

        Offered are pairs of the inputs that move predictions most. All are asked about at once. Those that
        are kept are counted, for `share` each.
        """
        offered = self._offer_pairs()
        self.states |= {pair: _State(self._cross(pair, None)) for pair in offered}
        if offered:
            yield from self._update(
                tuple(offered), sweep, self.task.share * _PAIRS * _CHOICE / len(offered), label="choice"
            )
        best = sorted(offered, key=lambda pair: -round(self.states[pair].log_odds, 6))[: self.pairs]
        kept = [pair for pair in best if self.states[pair].log_odds > _PAIR_EVIDENT]
        for pair in offered:
            # Terms wait for the counts, without which they may be far too large.
            self.states[pair].term = self.states[pair].coefficients = None
            if pair not in kept:
                del self.states[pair]
        ones = np.full(self.response.targets.size, round(self.response.scale), np.int64)
        plain = self._ask((), targets=ones, link=None, clip=1.0)
        asks = []
        for pair in kept:
            groups = self.states[pair].basis.groups
            counted = replace(
                plain, columns=pair, intercept=0, terms=(), queries=sum_groups(groups, int(groups.max()) + 1)
            )
            asks.append(self.budget.ask(f"{self.task.label}counts of {_name(pair)}", counted, share))
        if asks:
            answers = yield tuple(asks)
            for pair, answer in zip(kept, answers, strict=True):
                counts, deviation = self._read(answer)
                self.states[pair].basis = self._cross(pair, np.maximum(counts, deviation))
                self._recount(pair)
        return kept

    def _recount(self, pair: Columns) -> None:
        """What the sums of a pair say, now that it is counted: its term was nothing when they were asked."""
        older = self.evidence[pair,]
        slopes, sampling, constant = self._find_slopes((pair,))
        self.evidence[pair,] = replace(
            older,
            sums=older.sums + (constant - older.constant) * self.constant.value,
            slopes=slopes,
            sampling=sampling - np.outer(constant, constant) / self._curvature,
            constant=constant,
        )

    def _offer_pairs(self) -> list[Columns]:
        """Return pairs of the inputs whose terms move predictions most; few more than are wanted."""
        reach = {}
        for each in self.task.inputs:
            if self.states[each].term is not None and self._rank(each):
                basis, effects = self.states[each].basis, self.states[each].effects
                reach[each] = round(float(effects**2 @ basis.counts / basis.counts.sum()), 9)
        order = sorted(reach, key=lambda each: -reach[each])
        pairs: list[Columns] = [one + two for place, two in enumerate(order) for one in order[:place]]
        pairs = [pair for pair in pairs if self.budget.table.cells(pair) <= _LARGEST_PAIR]
        return pairs[: _OFFERED * self.pairs]

    def _cross(self, pair: Columns, counts: Floats | None) -> Basis:
        one, two = (self._build_basis(name, finest=_PAIR_GROUPS) for name in pair)
        return cross_bases(one, two, counts=counts, rank=_PAIR_RANK)

    def _list_batches(self, sweep: int) -> list[Part]:
        """Return the inputs in the groups that are asked about at once, other ones in every sweep."""
        terms = [each for each in self.task.inputs if self._rank(each)]
        number = math.ceil(len(terms) / _TOGETHER)
        # Steps of another width bring together other inputs.
        order = [terms[place] for place in _stride(len(terms), sweep)]
        return [tuple(order[start::number]) for start in range(number)]

    def _rank(self, columns: Columns) -> int:
        return self.states[columns].basis.rank if self.states[columns].basis.counts.size > 1 else 0

    def _find_joint(self) -> Part:
        """Return all inputs that have a term, if they have few directions in all; else none."""
        block = tuple(each for each in self.task.inputs if self._rank(each))
        few = sum(map(self._rank, block)) <= _MOST_JOINT
        return block if len(block) > 1 and few and may_join(self.budget.table, self.task.known[:-1]) else ()

    def _ask_moments(self, block: Part, sweep: int, share: Fraction) -> Asking[None]:
        """How the directions of all terms go together: noisy sums of their products, weighted by the link."""
        response = self.response
        pairs = list(combinations(block, 2))
        zero = np.zeros(response.targets.size, np.int64)
        asks = []
        for one, two in pairs:
            coarser = 2 ** (self.task.digits.basis - self.task.digits.product)
            queries = _multiply(self.states[one].basis, self.states[two].basis, coarser=coarser)
            counted: Marginal | Residuals = Marginal(one + two, queries)
            if response.weights is not None:
                most = float(response.weights.values.max()) / response.scale
                counted = self._ask(
                    one + two, targets=zero, link=response.weights, clip=most, queries=queries
                )
            name = f"{self.task.label}moments {sweep + 1}: {_name(one + two)}"
            asks.append(self.budget.ask(name, counted, share / len(pairs)))
        answers = yield tuple(asks)
        found: dict[Part, Floats] = {}
        deviation = 0.0
        for pair, answer in zip(pairs, answers, strict=True):
            values, deviation = in_records(answer)
            if response.weights is not None:
                values, deviation = -values / response.scale, deviation / response.scale
            found[pair] = values.reshape(self._rank(pair[0]), self._rank(pair[1]))
        moments = np.block([[self._product(one, two, found) for two in block] for one in block])
        # Noise makes small directions smaller, or negative: none is less than noise alone.
        values, vectors = np.linalg.eigh((moments + moments.T) / 2)
        values = np.maximum(values, deviation * math.sqrt(len(moments)))
        self.moments = (vectors * values) @ vectors.T

    def _product(self, one: Columns, two: Columns, found: Mapping[Part, Floats]) -> Floats:
        if one == two:
            return self.states[one].basis.slopes(self._weights(one))[1]
        return found[one, two] if (one, two) in found else found[two, one].T

    def _ask(self, columns: Columns, **options: Any) -> Residuals:  # noqa: ANN401 - options of Residuals
        response = self.response
        clip = max(1, round(options.pop("clip", self.residual.clip) * response.scale))
        return Residuals(
            columns=columns,
            known=self.task.known,
            target=self.task.target,
            clip=min(clip, 2**20),
            intercept=round(self.constant.value * response.score_grid),
            terms=tuple(each.term for each in self.states.values() if each.term is not None),
            **{"targets": response.targets, "link": response.link, **options},
        )

    def _ask_numbers(self, sweep: int, share: Fraction) -> Asking[None]:
        """The sum of all residuals, and their weight or their spread: three numbers at most, in one batch."""
        response, label = self.response, f"{self.task.label}sweep {sweep + 1}: "
        # A first constant that may be far off is looked for from afar.
        wide = min(self.residual.clip + 3 * response.doubt, 1.0) if sweep == 0 else self.residual.clip
        asks = {"intercept": self._ask((), clip=wide)}
        if response.weights is not None:
            zero = np.zeros(response.targets.size, np.int64)
            most = float(response.weights.values.max()) / response.scale
            asks["weight"] = self._ask((), targets=zero, link=response.weights, clip=most)
        if response.link is None:
            asks["spread"] = self._ask((), absolute=True)
        answers = yield tuple(
            self.budget.ask(label + name, counted, share * _ASKED[name]) for name, counted in asks.items()
        )
        values = {name: self._read(answer) for name, answer in zip(asks, answers, strict=True)}
        if "weight" in values:
            value, deviation = values["weight"]
            measured = -float(value[0]) / self.task.counted.total
            # A measured weight that its noise may explain is not trusted.
            if measured > 3 * deviation / self.task.counted.total:
                self.residual.weight = measured
        if "spread" in values:
            value, deviation = values["spread"]
            mean = float(value[0]) / self.task.counted.total
            if mean > 3 * deviation / self.task.counted.total:
                size = 1.4 * mean
                self.residual.spread = min(size**2, self.response.spread)
                self.residual.clip = min(
                    self.residual.clip, max(self.residual.wide * size, 4 / response.scale)
                )
        value, deviation = values["intercept"]
        noise = (deviation / self._curvature) ** 2
        step = float(value[0]) / self._curvature
        # What is known of the constant is kept, unless it is seen to have changed as the terms did.
        moved = max(0.0, step**2 - _FAR**2 * (self.constant.doubt + noise)) if sweep else 0.0
        gain = (self.constant.doubt + moved) / (self.constant.doubt + moved + noise)
        self.constant.doubt = (self.constant.doubt + moved) * (1 - gain)
        self.constant.off = self.constant.doubt + (moved / 2 if sweep else _DRIFT * response.prior)
        step *= gain
        self.constant.value += min(max(step, -1.0), 1.0)

    def _update(
        self, block: Part, sweep: int, share: Fraction, *, together: bool = False, label: str = "sweep"
    ) -> Asking[None]:
        """Asks what the model so far leaves by the columns of `block`, and fits their terms anew."""
        bases = [self.states[columns].basis for columns in block]
        answers = yield tuple(
            self.budget.ask(
                f"{self.task.label}{label} {sweep + 1}: {_name(columns)}",
                self._ask(columns, queries=weigh_cells(basis.weights[basis.groups].T, grid=basis.grid)),
                share,
            )
            for columns, basis in zip(block, bases, strict=True)
        )
        read = [self._read(answer) for answer in answers]
        sums = np.concatenate([values for values, _ in read])
        parts = [block] if together else [(columns,) for columns in block]
        start = 0
        for part in parts:
            rank = sum(map(self._rank, part))
            fitted = self._fit(part, sums[start : start + rank], read[0][1] ** 2, sweep)
            start += rank
            place = 0
            for columns in part:
                state = self.states[columns]
                cut = slice(place, place + state.basis.rank)
                place += state.basis.rank
                # Terms that are asked at once see the same residuals, and would correct them together twice.
                before = np.zeros(state.basis.rank) if state.coefficients is None else state.coefficients
                step = _DAMPED if len(parts) > 1 else 1.0
                state.coefficients = before + step * (fitted.coefficients[cut] - before)
                state.log_odds, state.covariance = fitted.log_odds, fitted.covariance[cut, cut]
        for columns in block:
            state = self.states[columns]
            values = state.effects
            self.constant.value += self._balance(state, values)
            scores = np.rint(values * self.response.score_grid).astype(np.int64)
            state.term = Term(columns=columns, scores=scores[state.basis.groups])

    def _balance(self, state: _State, effects: Floats) -> float:
        """What the intercept must change as a term does, so that predictions remain the same on average.

        Under a link, effects that are zero on average change the average prediction. By how much they do
        alone is known: the share of every group is.
        """
        if self.response.link is None:
            return 0.0
        counts = state.basis.counts / state.basis.counts.sum()
        found = 0.0
        if self.response.numbers:
            found = -math.log(float(counts @ np.exp(np.clip(effects, -30, 30))))
        else:
            share = 1 / (1 + math.exp(-self.response.intercept))
            for _ in range(30):
                chances = 1 / (1 + np.exp(-np.clip(self.response.intercept + found + effects, -30, 30)))
                gap, slope = share - float(counts @ chances), float(counts @ (chances * (1 - chances)))
                found += min(max(gap / max(slope, 1e-6), -1.0), 1.0)
        change, state.balance = found - state.balance, found
        return change

    def _fit(self, part: Part, sums: Floats, variance: float, sweep: int) -> Fitted:
        """What is expected of the coefficients of terms that are fitted together, given all sums so far."""
        slopes, sampling, constant = self._find_slopes(part)
        before = [
            each.coefficients for each in map(self.states.get, part) if each and each.coefficients is not None
        ]
        if before:
            sums = sums + slopes @ np.concatenate(before)
        newest = Evidence(
            # As sums of other sweeps, which had other intercepts: with what the intercept took from them.
            sums=sums + constant * self.constant.value,
            slopes=slopes,
            # Residuals of all sum to nothing, so what all have in common does not vary.
            sampling=sampling - np.outer(constant, constant) / self._curvature,
            constant=constant,
            variance=variance,
        )
        mixed = mix_evidence(self.evidence.get(part), newest, weight=self._weigh(part, newest, sweep))
        self.evidence[part] = mixed
        return shrink(
            replace(mixed, sums=mixed.sums - mixed.constant * self.constant.value),
            spread=self.residual.spread,
            doubt=self.constant.off,
            prior=self.response.prior,
        )

    def _weigh(self, part: Part, newest: Evidence, sweep: int) -> float:
        """The weight of the newest sums: the more, the further they are from older ones beyond their noise.

        Sums change from sweep to sweep because other terms do. By how much is seen in all terms together.
        """
        older = self.evidence.get(part)
        if older is None:
            return 1.0
        if len(part) > 1:
            return max(1 / (sweep + 1), _JOINT_NEWEST)
        gap, chance = newest.sums - older.sums, newest.variance + older.variance
        self.drift.moved += float(gap @ gap) / chance
        self.drift.seen += gap.size
        drift = max(0.0, self.drift.moved / self.drift.seen - 1 - 2 * math.sqrt(2 / self.drift.seen)) * chance
        return (older.variance + drift) / (chance + drift)

    def _find_slopes(self, part: Part) -> tuple[Floats, Floats, Floats]:
        """Return how sums of terms that are fitted together change: see `Basis.slopes`."""
        found = [self.states[each].basis.slopes(self._weights(each)) for each in part]
        if len(part) == 1:
            return found[0]
        constant = np.concatenate([each[2] for each in found])
        linked = [self.states[each].basis.express() for each in part]
        rows = np.zeros((constant.size, constant.size))
        start = 0
        for each in linked:
            end = start + each.shape[1]
            rows[start:end, start:end] = each[1:]
            start = end
        slopes = self.moments @ rows + np.outer(constant, np.concatenate([each[0] for each in linked]))
        return slopes, self.moments, constant

    def _weights(self, columns: Columns) -> Floats:
        """The weight of a record of every group: on average that of all, more where predictions vary more."""
        basis = self.states[columns].basis
        if self.response.link is None:
            return np.ones(basis.counts.size)
        scores = np.full(basis.counts.size, self.constant.value)
        if self.states[columns].coefficients is not None:
            scores = scores + self.states[columns].effects
        relative = self._slopes(scores)
        average = float((relative * basis.counts).sum() / basis.counts.sum())
        return np.clip(relative / average, 0.2, 5.0) * self.residual.weight

    def _slopes(self, scores: Floats) -> Floats:
        response = self.response
        assert response.weights is not None
        places = np.rint(scores * response.score_grid).astype(np.int64)
        return np.maximum(response.weights.apply(places), 1) / response.scale

    def _shape(self, columns: Columns) -> Shape:
        state = self.states[columns]
        basis, size = state.basis, state.basis.groups.size
        # A term that its noise explains is left out, and all are if noise explains the number of records.
        kept = state.log_odds >= _EVIDENT and self.task.counted.populated
        if state.term is None or state.covariance is None or not kept:
            return Shape(
                columns=columns, scores=np.zeros(size, np.int64), deviations=np.zeros(size, np.int64)
            )
        rows = basis.directions
        variances = np.einsum("gi,ij,gj->g", rows, state.covariance, rows)
        deviations = np.ceil(np.round(np.sqrt(np.maximum(variances, 0)) * self.response.score_grid, 6))
        return Shape(
            columns=columns, scores=state.term.scores, deviations=deviations.astype(np.int64)[basis.groups]
        )

    def _read(self, answer: Measurement) -> tuple[Floats, float]:
        """Return noisy sums in ones of the target, and the standard deviation of their noise."""
        values, deviation = in_records(answer)
        return values / self.response.scale, deviation / self.response.scale

    def _build_basis(self, name: str, *, finest: int) -> Basis:
        column = self.budget.table.column(name)
        counts = self.task.counted.inputs[name]
        ordered = 0
        numeric = isinstance(column.domain, Values) and column.domain.runs
        if numeric or not isinstance(column.domain, (Values, Tuples)):
            ordered = column.size - len(column.extras)
        least = max(_LEAST * self.task.counted.deviations[name], self.task.counted.total / finest)
        groups = join_codes(counts, ordered=ordered, least=least)
        return build_basis(counts, groups, ordered=ordered, grid=2**self.task.digits.basis)


def _stride(size: int, turn: int) -> list[int]:
    """Return the numbers below `size` in an order that differs from turn to turn.

    >>> _stride(5, 0), _stride(5, 1)
    ([0, 1, 2, 3, 4], [0, 2, 4, 1, 3])
    """
    steps = [step for step in range(1, max(2, size)) if math.gcd(step, size) == 1]
    step = steps[turn % len(steps)] if steps else 1
    return [place * step % size for place in range(size)]


def _multiply(one: Basis, two: Basis, *, coarser: int) -> Queries:
    """Return the products of all directions of two bases, as weighted sums over the cells of both columns.

    Each is cut towards zero to a grid that is `coarser` times as wide, so that no row grows.
    """
    first, second = (np.trunc(each.weights / coarser).astype(np.int64)[each.groups] for each in (one, two))
    weights = np.einsum("ai,bj->ijab", first, second).reshape(one.rank * two.rank, -1)
    return weigh_cells(weights, grid=(one.grid // coarser) * (two.grid // coarser))


def list_needed(table: Table, mu_squared: Fraction, *, inputs: int) -> tuple[float, float]:
    """Return about how many records it takes to fit terms of single inputs, and of pairs."""
    of_one = table.unit.max_records / math.sqrt(mu_squared * (1 - COUNTED) / inputs)
    return _TOO_FEW * of_one, _CLEAR * of_one


def may_join(table: Table, inputs: Columns) -> bool:
    """Return whether the terms of `inputs` may be fitted together, by the sizes of their columns."""
    pairs = (table.cells(pair) for pair in combinations(inputs, 2))
    codes = sum(table.column(name).size - 1 for name in inputs)
    return codes <= _MOST_JOINT_CODES and all(cells <= _LARGEST_PAIR for cells in pairs)


def _name(columns: Columns) -> str:
    """What a question about the columns is called; a column may have the name of one of the numbers."""
    return " x ".join(f"column {name}" if name in _ASKED else name for name in columns)
