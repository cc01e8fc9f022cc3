"""Answers that follow from earlier ones, alone or together with what was just measured.

Post-processing: functions of plans and of noisy values that were paid for. docs/proofs/reuse.md has the
argument.

Least squares between levels are here, too: what is known of sums of groups improves the groups, and they add
up to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.core.exact import round_up
from sfumato.sql.laws import NoisePart
from sfumato.sql.links import Link, link_measures, link_sources
from sfumato.sql.plan import (
    AnyNoise,
    Noise,
    NoisyAggregates,
    PrivateChoice,
    QueryPlan,
    group_widths,
    half_width,
)
from sfumato.sql.question import Question

_MOST_COMBINED = 16
_MOST_COMPARED = 4096
# What is not narrower by so much is not worth saying that it was combined.
_WORTH = 0.98
_SURE = 1e-6
_Numbers = NDArray[np.float64]

_MOST_GROUPS = 400
"""So many groups, and sums of groups, are fitted at most."""

# They are fitted with so many different laws of their noise at most.
_MOST_PARTS = 64
_MOST_LAWS = 200
# Weights closer than this are taken for equal, the larger one; smaller ones than the second are none.
_CLOSE = 1e-6
_NOTHING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Earlier:
    """An earlier answer: its entry in the ledger, its plan, what it asked, and how to load its values.

    Values are in units of 1 / `grid`, and each has the noise of `repeats` draws. `rule` says how individuals
    were held to a bound where that is otherwise than a statement does: it is used on request only.
    """

    entry: int
    plan: QueryPlan
    question: Question
    load: Callable[[], NoisyAggregates]
    grid: int = 1
    repeats: int = 1
    rule: str = ""
    _links: dict[bool, tuple[QueryPlan, dict[int, Link]]] = field(default_factory=dict, repr=False)

    def link(self, plan: QueryPlan, question: Question, *, finer: bool = False) -> dict[int, Link]:
        """Return how measures of `plan` follow from this, or with `finer` this from `plan`; keep the last."""
        kept = self._links.get(finer)
        if kept is None or kept[0] is not plan:
            sides = (plan, question, self.plan, self.question)
            kept = self._links[finer] = plan, link_measures(*(sides[2:] + sides[:2] if finer else sides))
        return kept[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Derived:
    """An answer that follows from earlier ones: a plan that states its noise, the values, and the entries.

    `bounded` has the entries whose bounds hold over all their groups, which a note says; `max_groups` is the
    least number of groups that an individual was held to there, None if to no fewer than records. `rules` say
    how individuals were held to other bounds than those of a statement.
    """

    plan: QueryPlan
    noisy: NoisyAggregates
    entries: tuple[int, ...]
    bounded: tuple[int, ...] = ()
    max_groups: int | None = None
    rules: tuple[str, ...] = ()

    def describe(self) -> str:
        """Say how wide the confidence intervals are, and from which entries they follow."""
        widths = sorted({f"+-{half_width(noise) / noise.measure.grid:.4g}" for noise in self.plan.added})
        within = f"within {', '.join(widths)} " if widths else ""
        return f"{within}from {_list_entries(self.entries)} of the ledger"

    def notes(self, entry: int | None = None) -> tuple[str, ...]:
        """List what a reader should know; with `entry`, that it includes what this charge measured."""
        named = _list_entries(self.entries)
        if entry is not None:
            first = f"combined with {named} of the ledger, which measured the same"
        else:
            first = f"follows from {named} of the ledger; nothing was spent"
        others = tuple(f"{rule}, which a statement would not do" for rule in self.rules)
        if not self.bounded:
            return (first, *others)
        bounds = f"at most {self.plan.unit.max_records} records of one individual"
        if self.max_groups is not None:
            bounds += f", in at most {self.max_groups} groups,"
        held = _list_entries(self.bounded)
        alone = f"{bounds} are in it over all groups of {held} together, not of this statement alone"
        return (first, *others, alone)

    def is_as_narrow(self, plan: QueryPlan) -> bool:
        """Return whether no confidence interval is wider than the noise of `plan` makes it.

        What holds individuals to few groups cuts more than a statement of its own, and is never as good; nor
        is what holds them to other bounds.
        """
        return (
            not self.rules
            and self.max_groups is None
            and all(
                _is_as_narrow(mine, fresh) for mine, fresh in zip(self.plan.noises, plan.noises, strict=True)
            )
        )


def _list_entries(entries: tuple[int, ...]) -> str:
    named = ", ".join(map(str, entries))
    return f"entry {named}" if len(entries) == 1 else f"entries {named}"


def _is_as_narrow(mine: AnyNoise, fresh: AnyNoise) -> bool:
    if isinstance(mine, PrivateChoice) or isinstance(fresh, PrivateChoice):
        return (
            isinstance(mine, PrivateChoice)
            and isinstance(fresh, PrivateChoice)
            and mine.distance <= fresh.distance
        )
    return bool(np.max(group_widths(mine), initial=0.0) <= group_widths(fresh))


def derive_answer(
    plan: QueryPlan, question: Question, known: Sequence[Earlier], *, fresh: NoisyAggregates | None = None
) -> Derived | None:
    """Return the answer to `plan` that follows from what is `known` with the least noise, None if none does.

    With `fresh`, what was just measured for `plan`, what measures the same quantity is combined with it.
    What is chosen, and with which weights, depends on scales and public labels, never on noisy values. What
    holds individuals to other bounds than a statement is taken only where nothing else answers.
    """
    plain = [each for each in known if not each.rule]
    found = _derive(plan, question, plain, fresh)
    return found or (
        _derive(plan, question, known, None) if fresh is None and len(plain) < len(known) else None
    )


def _derive(
    plan: QueryPlan, question: Question, known: Sequence[Earlier], fresh: NoisyAggregates | None
) -> Derived | None:
    linked = [(each, each.link(plan, question)) for each in known]
    linked = [(each, links) for each, links in linked if links]
    if plan.selection is not None:
        return None if fresh is not None else _derive_open(plan, question, linked)
    coarser = _list_coarser(plan, question, known)
    noises, values, used, bounded, limits = [], [], set(), set(), []
    rules: dict[str, None] = {}
    for number, noise in enumerate(plan.noises):
        options = [_Option(noise, each, links[number], plan) for each, links in linked if number in links]
        sums = [each for each in coarser.get(number, ()) if each.entry not in {o.entry for o in options}]
        chosen = _choose(noise, options, sums, None if fresh is None else fresh.values[number])
        if chosen is None:
            return None
        noises.append(chosen[0])
        values.append(chosen[1])
        used |= {option.entry for option in chosen[2]}
        bounded |= {option.entry for option in chosen[2] if not option.same and not option.rule}
        rules |= {option.rule: None for option in chosen[2] if option.rule}
        limits += [option.max_groups for option in chosen[2] if option.max_groups is not None]
    return Derived(
        plan=replace(plan, noises=tuple(noises)),
        noisy=NoisyAggregates(values=tuple(values)),
        entries=tuple(sorted(used)),
        bounded=tuple(sorted(bounded)),
        max_groups=min(limits, default=None),
        rules=tuple(rules),
    )


class _Option:
    """One measure of one earlier answer, added up to the groups of a new plan."""

    def __init__(self, noise: AnyNoise, earlier: Earlier, link: Link, plan: QueryPlan) -> None:
        self.entry, self.noise, self.rule = earlier.entry, earlier.plan.noises[link.measure], earlier.rule
        self.same = link.same and not earlier.rule
        self._earlier, self._link = earlier, link
        held = earlier.plan.keys and earlier.plan.max_groups < earlier.plan.unit.max_records
        self.max_groups = earlier.plan.max_groups if held and not link.same else None
        groups = np.bincount(link.target[link.target >= 0], minlength=plan.groups)
        self.counts = groups * earlier.repeats
        found = link_sources(noise, link, earlier.plan)
        self.sources = [(source, factor) for source, factor in found if isinstance(source, Noise)]

    def add_up(self, measure: int) -> NDArray[np.int64]:
        """Return the noisy values of a measure of the earlier answer, added up to the new groups."""
        target = self._link.target
        taken = np.flatnonzero(target >= 0)
        noisy = self._earlier.load().values[measure][..., taken]
        sums = np.zeros((*noisy.shape[:-1], self.counts.size), np.int64)
        np.add.at(sums.T, target[taken], noisy.T)
        return sums

    @property
    def sums(self) -> NDArray[np.int64]:
        """Return the noisy values of all groups."""
        found = self.add_up(self._link.measure)
        if self._earlier.grid > 1:
            return np.rint(found / self._earlier.grid).astype(np.int64)
        if self._link.counted is None:
            return found
        (_, one), (_, other) = self.sources
        return np.rint(one * found + other * self.add_up(self._link.counted)).astype(np.int64)

    @property
    def slack(self) -> float:
        """Return what rounding adds: a unit for each record that may be there, where sums are moved."""
        if self._earlier.grid > 1:
            return 1.0  # a half, and a step of the noise
        if self._link.counted is None:
            return 0.0
        counted, (source, _) = self.add_up(self._link.counted), self.sources[1]
        reach = half_width(_sum_noise(source, [(source, 1.0)], self.counts), _SURE)
        return (1 + self.sources[0][1]) / 2 * float(max(0.0, counted.max(initial=0) + reach)) + 0.5

    @property
    def variances(self) -> NDArray[np.float64]:
        """Return the variance of the noise of every group."""
        single = sum(source.deviation**2 * factor**2 for source, factor in self.sources)
        return np.asarray(self.counts * single, np.float64)

    @property
    def worst(self) -> float:
        """Return the largest variance; of a private choice, how far it is from the best."""
        if isinstance(self.noise, PrivateChoice):
            return float(self.noise.distance)
        return float(self.variances.max(initial=0.0))


class _Coarser:
    """One measure of an earlier answer whose groups are sums of those of a new plan, the same quantity."""

    same, rule, max_groups = True, "", None

    def __init__(self, earlier: Earlier, measure: int, link: Link) -> None:
        self.entry, self._earlier, self._measure, self._link = earlier.entry, earlier, measure, link

    @property
    def sums(self) -> Sums:
        """Return what was measured of the sums."""
        values = self._earlier.load().values[self._measure]
        noise = self._earlier.plan.noises[self._measure]
        assert isinstance(noise, Noise)
        return Sums(target=self._link.target, values=values, noise=noise)


def _list_coarser(plan: QueryPlan, question: Question, known: Sequence[Earlier]) -> dict[int, list[_Coarser]]:
    """List, for each measure of `plan`, the earlier answers whose groups its own groups add up to."""
    found: dict[int, list[_Coarser]] = {}
    for each in known if plan.groups <= _MOST_GROUPS else ():
        fits = not each.rule and each.grid == 1 and each.repeats == 1 and each.plan.groups < plan.groups
        if not fits or each.plan.selection is not None:
            continue
        for measure, link in each.link(plan, question, finer=True).items():
            added = isinstance(each.plan.noises[measure], Noise) and link.counted is None
            if link.same and added:
                found.setdefault(link.measure, []).append(_Coarser(each, measure, link))
    return found


def _choose(
    noise: AnyNoise, options: list[_Option], coarser: list[_Coarser], fresh: NDArray[np.int64] | None
) -> tuple[AnyNoise, NDArray[np.int64], Sequence[_Option | _Coarser]] | None:
    """Return the noise and the values of one measure, and what they were taken from."""
    options = sorted(options, key=lambda option: (option.worst, option.entry))
    if isinstance(noise, PrivateChoice):
        if fresh is not None:
            return noise, fresh, []
        best = [option for option in options if isinstance(option.noise, PrivateChoice)][:1]
        return (replace(best[0].noise, measure=noise.measure), best[0].sums, best) if best else None
    options = [option for option in options if isinstance(option.noise, Noise)]
    # A sum that is moved is rounded by itself, and is not combined.
    plain = [option for option in options if option.same and len(option.sources) == 1]
    same = plain[:_MOST_COMBINED]
    fitted = _fit(noise, same, coarser, fresh)
    if fresh is not None:
        combined = _combine(noise, same, fresh)
        if fitted is not None and _widest(fitted[0]) < _WORTH * _widest(combined[0]):
            return fitted
        narrower = _widest(combined[0]) < _WORTH * _widest(noise)
        return (*combined, same) if narrower else (noise, fresh, [])
    others = [option for option in options if option not in plain][:1]
    if same:
        found: tuple[Noise, NDArray[np.int64], Sequence[_Option | _Coarser]]
        found = (*_combine(noise, same, None), same)
        if fitted is not None and _widest(fitted[0]) < _WORTH * _widest(found[0]):
            found = fitted
        if not others or _widest(found[0]) <= _widest(_combine(noise, others, None)[0]):
            return found
    return (*_combine(noise, others, None), others) if others else None


def _widest(noise: Noise) -> float:
    return float(np.max(group_widths(noise), initial=0.0))


def _fit(
    noise: Noise, options: list[_Option], coarser: list[_Coarser], fresh: NDArray[np.int64] | None
) -> tuple[Noise, NDArray[np.int64], Sequence[_Option | _Coarser]] | None:
    """Fit the groups to several measurements of them and of sums of them, by least squares."""
    if not coarser or not (options or fresh is not None):
        return None
    sums, sources = _list_sources(noise, options, fresh)
    weights, _ = _weigh(sources)
    mean = np.sum([weight * each for weight, each in zip(weights, sums, strict=True)], axis=0)
    listed = [
        Source(noise=source, draws=draws, weights=row)
        for (source, draws), row in zip(sources, weights, strict=True)
    ]
    found = fit_levels(noise, mean, listed, [each.sums for each in coarser])
    return None if found is None else (_plain_normal(found[0]), found[1], [*options, *coarser])


def _list_sources(
    noise: Noise, options: list[_Option], fresh: NDArray[np.int64] | None
) -> tuple[list[NDArray[np.int64]], list[tuple[Noise, NDArray[np.int64]]]]:
    """List the values of all groups by each option and `fresh`, whose noise is `noise`, and their draws."""
    sums = [option.sums for option in options]
    sources = [(each.noise, each.counts) for each in options if isinstance(each.noise, Noise)]
    if fresh is not None:
        sums.append(fresh)
        sources.append((noise, np.ones(fresh.size, np.int64)))
    return sums, sources


def _weigh(sources: list[tuple[Noise, NDArray[np.int64]]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weight of each source in the mean of every group, by its precision, and its variance."""
    variances = np.stack([counts * each.deviation**2 for each, counts in sources])
    # A group without cells is known to be empty; it has no noise, and all weight.
    exact = variances == 0
    precisions = np.where(exact.any(axis=0), exact.astype(float), 1 / np.where(exact, 1.0, variances))
    return precisions / precisions.sum(axis=0), variances


def _combine(
    noise: Noise, options: list[_Option], fresh: NDArray[np.int64] | None
) -> tuple[Noise, NDArray[np.int64]]:
    """Average several measurements by their precision; return the noise of the mean and the mean.

    The noise of `noise` is that of `fresh`.
    """
    sums, sources = _list_sources(noise, options, fresh)
    if len(sums) == 1 and options:
        return _sum_noise(noise, options[0].sources, options[0].counts, slack=options[0].slack), sums[0]
    if len(sums) == 1:
        return noise, sums[0]
    return _average(noise, sums, sources)


def _average(
    noise: Noise, sums: Sequence[NDArray[np.int64]], sources: list[tuple[Noise, NDArray[np.int64]]]
) -> tuple[Noise, NDArray[np.int64]]:
    """Return the noise of the mean of values, weighted by the precision of their sources, and the mean."""
    weights, variances = _weigh(sources)
    mean = sum(weight * each for weight, each in zip(weights, sums, strict=True))
    parts = _weigh_parts(sources, weights)
    if len(parts) > _MOST_PARTS:
        best = int(np.argmin(variances.max(axis=1)))
        source, counts = sources[best]
        return _sum_noise(noise, [(source, 1.0)], counts), sums[best]
    # Each lattice of noise adds at most its weight, rounding at most a half.
    combined = replace(noise, parts=parts, slack=1.5)
    return _plain_normal(combined), np.rint(mean).astype(np.int64)


def _weigh_parts(
    sources: list[tuple[Noise, NDArray[np.int64]]], weights: NDArray[np.float64]
) -> tuple[NoisePart, ...]:
    """List the parts of a mean: one for each source and each weight that it has in some groups."""
    parts = []
    for (source, counts), row in zip(sources, weights, strict=True):
        for weight in np.unique(row[row > 0]):
            there = np.where(row == weight, counts, 0)
            if there.any():
                scale = float(source.scale) * float(weight)
                parts.append(NoisePart(source.shape, scale, tuple(there.tolist())))
    return tuple(parts)


def _sum_noise(
    noise: Noise, sources: list[tuple[Noise, float]], counts: NDArray[np.int64], *, slack: float = 0.0
) -> Noise:
    """Return the noise of sums of so many noisy values each, of one source or of several with factors.

    `slack` is what rounding adds.
    """
    (source, _), several = sources[0], len(sources) > 1
    if (counts == 1).all() and not several and not slack:
        return replace(source, measure=noise.measure)
    parts = tuple(
        NoisePart(each.shape, float(each.scale) * abs(factor), tuple(counts.tolist()))
        for each, factor in sources
    )
    if several:
        # Each lattice of noise adds at most its step.
        steps = sum(abs(factor) for _, factor in sources)
        widest = max(parts, key=lambda part: part.scale)
        scale = Fraction(widest.scale).limit_denominator(10**9)
        facts = {"kind": widest.shape.kind, "scale": scale, "parts": parts, "slack": steps + slack}
        return replace(source, measure=noise.measure, **facts)  # type: ignore[arg-type]
    return _plain_normal(replace(source, measure=noise.measure, parts=parts, slack=slack))


def _plain_normal(noise: Noise) -> Noise:
    """Return the same noise as one normal law, where it is that and the same for all groups."""
    if not all(part.shape.normal for part in noise.parts):
        widest = max(noise.parts, key=lambda part: part.scale)
        return replace(noise, kind=widest.shape.kind, scale=Fraction(widest.scale).limit_denominator(10**9))
    variances = sum(part.variances for part in noise.parts)
    if np.ptp(variances) > 1e-12 * np.max(variances):
        return replace(noise, scale=round_up(float(np.sqrt(np.max(variances))), places=6))
    rounding = 1 / 12 if noise.slack else 0.0
    spread = math.sqrt(float(variances[0]) + rounding)  # type: ignore[index]
    return replace(noise, scale=round_up(spread, places=6), parts=(), slack=0.0)


def _derive_open(
    plan: QueryPlan, question: Question, linked: list[tuple[Earlier, dict[int, Link]]]
) -> Derived | None:
    """Return the groups that one earlier answer selected, with its values."""
    whole = [(each, links) for each, links in linked if len(links) == len(plan.noises)]
    if not whole:
        return None
    earlier, links = min(
        whole, key=lambda pair: max(pair[0].plan.noises[link.measure].law[1] for link in pair[1].values())
    )
    order = [earlier.question.keys.index(text) for text in question.keys]
    noisy = earlier.load()
    keys = [tuple(key[place] for place in order) for key in noisy.keys or ()]
    rows = sorted(range(len(keys)), key=lambda row: [str(part) for part in keys[row]])
    places = [links[number].measure for number in range(len(plan.noises))]
    noises = tuple(
        replace(earlier.plan.noises[place], measure=noise.measure)
        for place, noise in zip(places, plan.noises, strict=True)
    )
    values = tuple(noisy.values[place][rows] for place in places)
    return Derived(
        plan=replace(plan, noises=noises, selection=earlier.plan.selection),
        noisy=NoisyAggregates(values=values, keys=tuple(keys[row] for row in rows)),
        entries=(earlier.entry,),
    )


def expect_noise(
    plan: QueryPlan, question: Question, measured: Sequence[tuple[QueryPlan, Question]]
) -> QueryPlan | None:
    """Return the plan with the least noise of an answer that follows from what is `measured`, or None."""
    linked = [(each, link_measures(plan, question, each, asked)) for each, asked in measured]
    noises: list[AnyNoise] = []
    for number, noise in enumerate(plan.noises):
        options: list[AnyNoise] = []
        for each, links in linked:
            if number not in links:
                continue
            sources, target = link_sources(noise, links[number], each), links[number].target
            counts = np.bincount(target[target >= 0], minlength=plan.groups)
            added = [(source, factor) for source, factor in sources if isinstance(source, Noise)]
            if isinstance(noise, PrivateChoice):
                options.append(replace(sources[0][0], measure=noise.measure))
            else:
                options.append(_sum_noise(noise, added, counts))
        if not options:
            return None
        noises.append(min(options, key=spread_of_noise))
    return replace(plan, noises=tuple(noises))


def spread_of_noise(noise: AnyNoise) -> float:
    """Return the mean variance of noise over groups; of a choice, the inverse square of its epsilon."""
    if isinstance(noise, PrivateChoice):
        return float(noise.epsilon) ** -2
    if noise.parts:
        return float(np.mean(sum(part.variances for part in noise.parts)))
    # Of the continuous law, which scales: that on the integers vanishes faster than epsilon grows.
    return noise.shape.variance * float(noise.scale) ** 2


def average_answers(parts: Sequence[tuple[QueryPlan, NoisyAggregates]]) -> tuple[QueryPlan, NoisyAggregates]:
    """Average answers for public groups by their precision; return a plan with the noise, and the mean."""
    (plan, last) = parts[-1]
    if len(parts) == 1:
        return plan, last
    found = []
    for place, noise in enumerate(plan.added):
        once = np.ones(plan.groups, np.int64)
        sources = [(each.added[place], once) for each, _ in parts]
        found.append(_average(noise, [noisy.values[place] for _, noisy in parts], sources))
    noises, values = zip(*found, strict=True)
    return replace(plan, noises=noises), NoisyAggregates(values=values)


def find_lack(plan: QueryPlan, noisy: NoisyAggregates, share: Fraction, sure: float) -> tuple[float, float]:
    """Return the widest confidence interval as a multiple of a `share` of its value, and as it may be.

    The second is what it would be if the value were further from zero by `sure` deviations of its noise.
    """
    lack = other = 0.0
    for noise, values in zip(plan.added, noisy.values, strict=True):
        wide, deviation = half_width(noise, plan.miss) / float(share), math.sqrt(spread_of_noise(noise))
        least = _find_least(np.abs(values).astype(float), deviation)
        lack = max(lack, wide / least)
        other = max(other, wide / max(least + sure * deviation, 1e-9))
    return lack, other


def _find_least(sizes: _Numbers, deviation: float) -> float:
    """Return about the least true size behind noisy ones, whose own least is too small: noise made it so.

    It is the size with which, taken for all that look smaller, the least noisy one would be as likely above
    as below what it is.
    """
    nearest = np.sort(sizes)[:_MOST_COMPARED]
    seen = float(nearest[0])
    low, high = seen, seen + (8 * deviation if nearest.size > 1 else 0)
    while high - low > 1e-4 * deviation:
        middle = (low + high) / 2
        gaps = (np.maximum(nearest, middle) - seen) / (deviation * math.sqrt(2))
        likely = math.prod(math.erfc(-gap) / 2 for gap in gaps[gaps < 6].tolist())
        low, high = (low, middle) if likely > 0.5 else (middle, high)
    return max(high, 1e-9)


def reorder_noisy(noisy: NoisyAggregates, held: QueryPlan, plan: QueryPlan) -> NoisyAggregates:
    """Return the values of `held` in the order of the keys and measures of `plan`, which asks the same."""
    # Keys and noises are those of one plan, taken in another order.
    order = [next(i for i, each in enumerate(held.keys) if each is key) for key in plan.keys]
    measures = [next(i for i, each in enumerate(held.noises) if each is noise) for noise in plan.noises]
    values = [noisy.values[place] for place in measures]
    if order == sorted(order):
        return NoisyAggregates(values=tuple(values), keys=noisy.keys)
    if noisy.keys is not None:
        keys = [tuple(key[place] for place in order) for key in noisy.keys]
        rows = sorted(range(len(keys)), key=lambda row: [str(part) for part in keys[row]])
        return NoisyAggregates(
            values=tuple(each[rows] for each in values), keys=tuple(keys[row] for row in rows)
        )
    sizes = [len(key.labels or ()) for key in held.keys]
    turned = []
    for each in values:
        lead = each.ndim - 1
        cube = each.reshape(*each.shape[:lead], *sizes)
        axes = [*range(lead), *(lead + place for place in order)]
        turned.append(cube.transpose(axes).reshape(each.shape))
    return NoisyAggregates(values=tuple(turned))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums:
    """Noisy sums of groups: for each group the sum that it is in, or -1; the values, and their noise."""

    target: NDArray[np.int64]
    values: NDArray[np.int64]
    noise: Noise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Noisy values of all groups: how many draws of a noise each has, and its weight in their mean."""

    noise: Noise
    draws: NDArray[np.int64]
    weights: _Numbers


def fit_levels(
    noise: Noise, mean: _Numbers, sources: Sequence[Source], sums: Sequence[Sums]
) -> tuple[Noise, NDArray[np.int64]] | None:
    """The groups fitted by least squares to their `mean` and to `sums` of them, and the noise that is left.

    `mean` is that of `sources`, by their weights. None where there is nothing to fit, or too much. What is
    done depends on scales and labels, never on noisy values.
    """
    variances = sum(each.weights**2 * each.draws * each.noise.deviation**2 for each in sources)
    members = [each.target == place for each in sums for place in range(each.values.size)]
    filled = [bool(each.any()) for each in members]
    values = np.concatenate([each.values for each in sums]) if sums else np.zeros(0)
    spread = [each.noise.deviation**2 for each in sums for _ in range(each.values.size)]
    if not any(filled) or mean.size > _MOST_GROUPS or sum(filled) > _MOST_GROUPS:
        return None
    held = np.array(members, np.float64)[filled]
    # The gain of Kalman's filter: the groups are known by themselves, then their sums are seen.
    both = held * variances
    gain = np.asarray(np.linalg.solve(np.diag(np.array(spread)[filled]) + both @ held.T, both).T, np.float64)
    own = np.asarray(np.eye(mean.size) - gain @ held, np.float64)
    fitted = own @ mean + gain @ values[filled]
    parts: list[NoisePart] = []
    steps = np.zeros(mean.size)
    for source in sources:
        steps = steps + _add_parts(parts, source.noise, own * source.weights, source.draws)
    first = 0
    for each in sums:
        kept = np.array(filled[first : first + each.values.size])
        before = sum(filled[:first])
        columns = gain[:, before : before + int(kept.sum())]
        steps = steps + _add_parts(parts, each.noise, columns, np.ones(columns.shape[1], np.int64))
        first += each.values.size
    laws = len(set(zip(*(part.counts for part in parts), strict=True)))
    if len(parts) > _MOST_PARTS or laws > _MOST_LAWS:
        return None
    # Each lattice of noise adds at most its step, rounding at most a half.
    slack = float(steps.max()) + 0.5
    return replace(noise, parts=tuple(parts), slack=slack), np.rint(fitted).astype(np.int64)


def _add_parts(parts: list[NoisePart], noise: Noise, weights: _Numbers, draws: NDArray[np.int64]) -> _Numbers:
    """Adds the parts of the noise of every group, by weights of its draws; returns the steps of each."""
    sizes = np.abs(weights)
    there = sizes > _NOTHING
    rounded = np.where(there, np.ceil(np.log(np.where(there, sizes, 1.0)) / _CLOSE), np.nan)
    steps = np.zeros(weights.shape[0])
    for each in np.unique(rounded[there]):
        size = float(np.exp(each * _CLOSE))
        counts = ((rounded == each) * draws).sum(axis=1)
        parts.append(NoisePart(noise.shape, float(noise.scale) * size, tuple(counts.tolist())))
        steps += size * (counts > 0)
    return steps
