"""Synthetic rows without hand-picked marginals: what is measured next is chosen privately.

`Adaptive` goes the way of AIM (McKenna, Mullins, Sheldon and Miklau 2022): every round chooses a marginal by
the exponential mechanism on its expected improvement over the model so far, measures it with Gaussian noise,
and fits the model anew. When a measurement changes the model by no more than its noise would, later rounds
get a larger share of the budget: up to four times as much, which halves their noise, as long as enough is
left for a number of rounds; if it is not, the rest is soon spent on single columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_whole
from sfumato.core.questions.choices import Candidate
from sfumato.core.questions.measurement import Ask, Request
from sfumato.inference.domain import Columns, Domain
from sfumato.inference.estimation import LARGEST_TREE
from sfumato.inference.tree import Growth, tree_cells
from sfumato.recipes.base import Asking, Expected, Plan, Progress, is_column_list
from sfumato.recipes.shared.budget import RemainingBudget, open_budget
from sfumato.recipes.shared.compression import count_told, take_contrasts
from sfumato.recipes.shared.rows import model_domain
from sfumato.recipes.shared.selection import (
    CHOICE,
    Fitting,
    Selection,
    choose_marginal,
    count_rounds,
    measure_singles,
    noise_distance,
    offer_marginal,
    round_part,
)

# Shares of a budget were set by hand; they move accuracy, never what is charged.
_FIRST = Fraction(1, 12)  # of the whole budget, for a first look at single columns
_MANY = 2**12  # candidates beyond which those compete that the model nearly holds
_LAST = 8  # rounds that the noise of late rounds leaves budget for
_FITTED = 128  # columns up to which the model is fitted after every round
_COMPETING = 2**13  # pairs up to which all compete in every choice
_LARGEST_MARGINAL = 2**18  # cells; a larger marginal is never measured
_COMBINATIONS = 2**14  # triples from which only pairs are the default workload
_ALL_COMBINATIONS = 2**20  # triples, with a target or not, from which they are not even listed
_COUNTED = 2**25  # cells of all marginals together from which only pairs are the default workload
_DENSE_CELLS = 2**17  # of all columns together: the model of all pairs has that many
_DENSE_FITS = 8  # of the model, between rounds
_MOST_WEIGHT = 10**6  # of a marginal; weights multiply scores, which have 64 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive(Selection):
    """Synthetic rows of a graphical model whose marginals are chosen privately, one after the other.

    `workload` says what the rows should be good for: all combinations of so many columns, 1 to 4, a list
    of {columns = [...], weight = n}, or {target = column}, for predicting a column from the others. By
    default it is 3, or 2 where that would be too many cells.
    `model_cells` bounds the model. `public` names a table for values within bins, `guide` one that tells how
    columns depend on each other, and is used as far as the records bear it out. `bins` names columns with
    bounds and without a domain, and how many bins the records choose for each.

    Privacy: all choices and measurements together cost at most the Gaussian privacy that (epsilon,
    delta) admits, charged before the first of them (docs/proofs/adaptive.md).

    >>> Adaptive(table="people", workload=2).kind
    'adaptive'
    """

    kind: ClassVar[str] = "adaptive"
    record_keys: ClassVar[Columns] = (
        "table", "columns", "workload", "model_cells", "public", "seed", "rows", "types", "guide", "bins"
    )  # fmt: skip

    workload: Any = None
    model_cells: int = 2**21

    def __post_init__(self) -> None:
        Selection.__post_init__(self)
        self._keep(workload=_parse_workload(self.workload))
        cells = parse_whole(self.model_cells, name="adaptive: model_cells", high=LARGEST_TREE)
        self._keep(model_cells=cells)

    def list_counted(self, domain: Domain) -> tuple[Columns, ...]:
        """Return single columns, and all parts of the workload that are not too large."""
        return tuple(self._candidates(domain, self._find_workload(domain)))

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise of single columns, and if the number of records is known of pairs."""
        budget, domain = open_budget(plan), model_domain(plan.table, self._find_columns(plan.table))
        self.split_guide(budget)
        first = budget.total * _FIRST / len(domain)
        singles: dict[Columns, Fraction] = dict.fromkeys(((name,) for name in domain), first)
        if records is None:
            return budget.expect_counts(domain, singles)
        parts, rounds, share = _divide_rounds(budget, domain, domain, float(records))
        singles |= {(name,): max(first, part * share) for name, part in parts.items()}
        pairs = [each for each in self.list_counted(domain) if len(each) == 2] if rounds else []
        return budget.expect_counts(domain, {**singles, **dict.fromkeys(pairs, share)})

    def measure(
        self, budget: RemainingBudget, domain: Domain, label: str, progress: Progress
    ) -> Asking[Fitting]:
        """Return the model of what was chosen and measured, round by round, until the budget is spent."""
        testing = self.split_guide(budget)
        candidates = close_downwards(domain, self._find_workload(domain))
        # It tells how many records there are, and how many values of a column stand out.
        first = budget.total * _FIRST
        fitting = yield from measure_singles(
            budget, domain, first, label=label, progress=progress, bins=self.bins
        )
        dense = self._find_dense(budget, fitting, candidates)
        if dense is not None:
            return (yield from _measure_densely(budget, fitting, dense, label, self.model_cells))
        fitting, share = yield from _look_again(budget, fitting, label)
        yield from self.follow_guide(testing, fitting, label, most_cells=self.model_cells // 16)
        model = fitting.fit()
        done, turn, idle = share == 0, 0, 0
        if done:
            fitting.fit(effort=4)
        # A wide table has at least as many rounds as columns, so several are measured for every fit.
        together = -(-len(domain) // _FITTED)
        offered: tuple[Candidate, ...] = ()
        measured: list[Columns] = []
        while not done:
            turn += 1
            if budget.left < 2 * share:
                share, done = budget.left, True
            sigma = budget.noise_deviation(share * (1 - CHOICE))
            # The model may grow in step with what is spent, so that early rounds are fast.
            spent = 1 - float(budget.left / budget.total)
            model_cells = max(round(self.model_cells * max(spent, 0.02)), model.tree.cells)
            held = model.tree.cliques
            offered = offered or _offer_marginals(
                fitting, candidates, turn=turn, grid=budget.table.grid, sigma=sigma, model_cells=model_cells
            )
            name = f"{label}choice {turn}"
            columns = yield from choose_marginal(budget, name, offered, share * CHOICE)
            offered = tuple(each for each in offered if each.columns != columns)
            if not measured or tree_cells(fitting.domain, [*held, *measured, columns]) <= model_cells:
                ask = budget.count(
                    f"{label}round {turn}: {' x '.join(columns)}",
                    columns,
                    budget.left if done else share * (1 - CHOICE),
                    queries=fitting.compression.queries(columns),
                )
                fitting.add((yield (ask,)))
                progress(f"round {turn}: {' x '.join(columns)}, {float(budget.left / budget.total):.0%} left")
                measured.append(columns)
                if offered and len(measured) < together and not done:
                    continue
            before = {each: model.flat_marginal(each) for each in measured}
            model = fitting.fit(effort=4 if done else 1)
            moved = sum(float(np.abs(model.flat_marginal(each) - before[each]).sum()) for each in before)
            noise = noise_distance(sigma, sum(each.size for each in before.values()))
            idle, offered, measured = idle + 1 if moved <= noise else 0, (), []
            if done or not idle:
                continue
            most = budget.left / _LAST
            if idle > 1 and share >= most:
                # More of the same is not worth its noise, and less noise cannot be paid.
                answers = yield _ask_last(budget, domain, fitting, label)
                fitting.refine(answers)
                fitting.fit(effort=4)
                break
            share = min(4 * share, max(share, most))
        return fitting

    def _find_dense(
        self, budget: RemainingBudget, fitting: Fitting, candidates: Mapping[Columns, int]
    ) -> dict[Columns, int] | None:
        """Return triples to choose from where all pairs are wanted alike and worth their noise; else None."""
        alike = self.workload is None or isinstance(self.workload, int)
        if not alike or self.guide is not None or max(map(len, candidates)) not in (2, 3):
            return None
        counted = set(self.list_counted(fitting.compression.full))
        # A column of one value tells nothing of others.
        triples: dict[Columns, int] = {
            columns: weight
            for columns, weight in candidates.items()
            if len(columns) == 3 and columns in counted and min(fitting.domain.shape(columns)) > 1
        }
        dense = _is_dense(budget, fitting, triples, counted=counted, model_cells=self.model_cells)
        return triples if dense else None

    def _find_workload(self, domain: Domain) -> dict[Columns, int]:
        columns, target = tuple(domain), None
        if isinstance(self.workload, Mapping):
            target = self.workload["target"]
            if target not in domain:
                raise RecipeError("adaptive: the workload's target is a column that the rows do not have")
        if isinstance(self.workload, tuple):
            stated: dict[Columns, int] = {}
            for each in self.workload:
                names = domain.order(tuple(each["columns"]))
                if len(names) != len(each["columns"]):
                    raise RecipeError("adaptive: the workload names a column that the rows do not have")
                stated[names] = stated.get(names, 0) + each["weight"]
            return stated
        if isinstance(self.workload, int):
            return all_subsets(columns, self.workload)
        pairs, triples = (
            {each: 1 for each in all_subsets(columns, size) if target is None or target in each}
            if size == 2 or math.comb(len(columns), size) <= _ALL_COMBINATIONS
            else {}
            for size in (2, 3)
        )
        if not triples or len(triples) > _COMBINATIONS:
            return pairs
        cells = sum(domain.cells(each) for each in self._candidates(domain, triples))
        return triples if cells <= _COUNTED else pairs

    def _candidates(self, domain: Domain, workload: Mapping[Columns, int]) -> list[Columns]:
        parts = {(name,): None for name in domain} | dict.fromkeys(close_downwards(domain, workload))
        return [each for each in parts if len(each) == 1 or domain.cells(each) <= _LARGEST_MARGINAL]


def all_subsets(columns: Columns, size: int) -> dict[Columns, int]:
    """Return every combination of `size` columns, each with weight 1."""
    return dict.fromkeys(combinations(columns, min(size, len(columns))), 1)


def close_downwards(domain: Domain, workload: Mapping[Columns, int]) -> dict[Columns, int]:
    """Return all parts of the workload's marginals, weighted by how much of the workload they share."""
    parts: dict[Columns, None] = {}
    for columns in workload:
        for size in range(1, len(columns) + 1):
            parts.update(dict.fromkeys(combinations(domain.order(columns), size)))
    shares = dict.fromkeys(domain, 0)
    for columns, weight in workload.items():
        for name in columns:
            shares[name] += weight
    return {columns: sum(shares[name] for name in columns) for columns in parts}


def _parse_workload(value: object) -> int | tuple[dict[str, Any], ...] | dict[str, str] | None:
    """Return a number of columns, a tuple of marginals with their weights, or the column to predict."""
    if value is None or (not isinstance(value, bool) and isinstance(value, int) and 1 <= value <= 4):
        return value
    if isinstance(value, Mapping) and set(value) == {"target"} and isinstance(value["target"], str):
        return {"target": value["target"]}
    message = (
        "adaptive: workload must be a number from 1 to 4, for all combinations of so many columns, a list "
        "such as [{columns = ['a', 'b'], weight = 2}], or {target = 'a'}, for predicting a column"
    )
    if not isinstance(value, (list, tuple)) or not value:
        raise RecipeError(message)
    parsed = []
    for each in value:
        if not isinstance(each, Mapping) or not set(each) <= {"columns", "weight"} or "columns" not in each:
            raise RecipeError(message)
        names, weight = each["columns"], each.get("weight", 1)
        if not is_column_list(names):
            raise RecipeError(message)
        weight = parse_whole(weight, name="adaptive: the weight of a workload", high=_MOST_WEIGHT)
        parsed.append({"columns": list(names), "weight": weight})
    return tuple(parsed)


def _offer_marginals(
    fitting: Fitting,
    candidates: Mapping[Columns, int],
    *,
    turn: int,
    grid: int,
    sigma: float,
    model_cells: int,
) -> tuple[Candidate, ...]:
    """Return those of the weighted candidates that noise of `sigma` leaves worth measuring.

    Of very many only a part competes at each `turn`, another one at the next. `grid` is that of the table,
    `model_cells` bounds the model that a candidate would lead to.
    """
    model, domain = fitting.model, fitting.domain
    assert model is not None
    offered = []
    growth = Growth(model.tree)
    pairs = sum(len(columns) == 2 for columns in candidates)
    parts = max(1, -(-pairs // _COMPETING))
    for place, (columns, weight) in enumerate(candidates.items()):
        if len(columns) > 1 and place % parts != turn % parts:
            continue
        penalty = noise_distance(sigma, domain.cells(columns))
        if len(columns) > 1:
            # Noise that would outweigh all records cannot improve anything: no need to score it.
            if penalty > model.total or fitting.compression.full.cells(columns) > _LARGEST_MARGINAL:
                continue
            added = tuple(pair for pair in combinations(columns, 2) if pair not in growth.joined)
            # A column of one value tells nothing of others.
            if (
                min(domain.shape(columns)) == 1
                or (len(added) > 1 and len(candidates) > _MANY)
                or growth.cells(columns) > model_cells
            ):
                continue
        offered.append(offer_marginal(fitting, columns, grid=grid, weight=weight, penalty=penalty))
    return tuple(offered)


def _look_again(budget: RemainingBudget, fitting: Fitting, label: str) -> Asking[tuple[Fitting, Fraction]]:
    """A fitting of single columns, measured twice, and the share of a round; zero if no pair is worth one."""
    domain = fitting.compression.full
    first = budget.total * _FIRST / len(domain)
    parts, rounds, share = _divide_rounds(budget, domain, fitting.domain, fitting.total)
    more = {name: part * share - first for name, part in parts.items() if part * share > first}
    left = budget.left - round_part(rounds) / (1 - CHOICE) * share
    if more and left > 0:
        # Columns that the first look gave more than their part leave the others that much less.
        fair = min(Fraction(1), left / sum(more.values()))
        asks = [budget.count(f"{label}again: {name}", (name,), fair * part) for name, part in more.items()]
        fitting = fitting.look_again((yield tuple(asks)))
    return fitting, min(share / (1 - CHOICE), budget.left) if rounds else Fraction(0)


def _divide_rounds(
    budget: RemainingBudget, domain: Domain, joined: Domain, total: float
) -> tuple[dict[str, Fraction], float, Fraction]:
    """Return the parts of single columns, the number of rounds, and what a part costs.

    There are as many rounds as pairs of columns of typical size are worth their noise beside the `total` of
    records, and no fewer than the pairs of a tree of the columns, because these do not stand for each other;
    none if no pair is worth one. Shares of single columns are those that make the sum of noises least: as the
    power 2/3 of their sizes, beside that of a typical pair. Values that do not stand out are `joined` in
    pairs, but single columns tell them apart: the size of a column is the geometric mean of what it has and
    of what stands out.
    """
    wide = [math.log(joined[name]) for name in domain if joined[name] > 1]
    typical = math.exp(2 * sum(wide) / len(wide)) if len(wide) > 1 else 1.0
    rounds = count_rounds(budget, budget.total, typical, total) if len(wide) > 1 else 0.0
    rounds = 0.0 if rounds < 1 else max(rounds, len(wide) - 1)
    parts = _weigh_singles(domain, joined, typical=typical)
    whole = round_part(rounds) / (1 - CHOICE) + sum(parts.values())
    return parts, rounds, budget.total / whole if whole else budget.total


def _weigh_singles(domain: Domain, joined: Domain, *, typical: float = 1.0) -> dict[str, Fraction]:
    """Return the parts of a budget that single columns get, beside a marginal of `typical` size."""
    sizes = {name: math.sqrt(size * joined[name]) for name, size in domain.items() if size > 1}
    return {name: round_part((size / typical) ** (2 / 3)) for name, size in sizes.items()}


def _ask_last(budget: RemainingBudget, domain: Domain, fitting: Fitting, label: str) -> tuple[Ask, ...]:
    """Return requests that spend what is left on single columns."""
    parts = _weigh_singles(domain, fitting.domain)
    share = budget.left / sum(parts.values())
    return tuple(
        budget.count(f"{label}at last: {name}", (name,), part * share) for name, part in parts.items()
    )


# Where records are many for their few columns, all pairs are measured at once, without choosing, and what is
# left goes to triples that are chosen; both in differences, since single columns and pairs are known by then.


def _is_dense(
    budget: RemainingBudget,
    fitting: Fitting,
    triples: Mapping[Columns, int],
    *,
    counted: Collection[Columns],
    model_cells: int,
) -> bool:
    """Whether all pairs of columns are worth their noise, with half of the budget if there are `triples`.

    All pairs must be `counted`, and their model may have at most so many `model_cells`. Where records may be
    replaced, two of them may have opposite contrasts, which then cost as much as counts or more.
    """
    pairs = _find_pairs(fitting.domain)
    if not pairs or budget.table.unit.neighbours == "replace":
        return False
    if not set(pairs) <= set(counted) or not _is_small_model(fitting, model_cells):
        return False
    whole = budget.total / 2 if triples else budget.total
    return count_rounds(budget, whole, _told(fitting, pairs), fitting.total) >= len(pairs)


def _measure_densely(
    budget: RemainingBudget, fitting: Fitting, triples: Mapping[Columns, int], label: str, model_cells: int
) -> Asking[Fitting]:
    """Return a fitting of single columns, of all pairs and of chosen ones of the weighted `triples`.

    Half of the budget is for single columns and pairs, all of it if no triple is worth its noise. Parts of it
    are those that make the sum of noises least: as the power 2/3 of what a marginal tells, times how many of
    the triples have it.
    """
    domain, spent = fitting.domain, budget.total - budget.left
    rounds = 0
    if triples:
        told = _told(fitting, triples)
        rounds = min(int(count_rounds(budget, budget.total / 2, told, fitting.total)), len(triples))
    pairs = _find_pairs(domain)
    parts: dict[Columns, Fraction] = {}
    for columns in [*((name,) for name in domain if domain[name] > 1), *pairs]:
        # Contrasts of pairs do not tell of single columns, which all triples with a column have.
        alone = len(columns) == 1 and count_told(fitting.compression, columns) < domain.cells(columns)
        shared = (len(domain) - 1) / 2 if alone else 1.0
        parts[columns] = round_part(shared ** (2 / 3) * _weigh(fitting, columns))
    whole = budget.total / 2 if rounds else budget.total
    unit = (whole - spent) / sum(parts.values())
    answers = yield tuple(
        budget.count(f"{label}again: {columns[0]}", columns, part * unit)
        for columns, part in parts.items()
        if len(columns) == 1
    )
    again = fitting.look_again(answers)
    if _is_small_model(again, model_cells):
        fitting = again
    else:  # so many values stand out now that the model would be too large
        fitting.refine(answers)
    answers = yield tuple(
        _ask_contrasts(budget, fitting, f"{label}pair {place}: {' x '.join(pair)}", pair, parts[pair] * unit)
        for place, pair in enumerate(pairs, 1)
    )
    fitting.add(answers)
    yield from _choose_triples(budget, fitting, triples, rounds, label)
    fitting.fit(effort=4, share_sums=True)
    return fitting


def _choose_triples(
    budget: RemainingBudget, fitting: Fitting, triples: Mapping[Columns, int], rounds: int, label: str
) -> Asking[None]:
    """Adds so many of the weighted `triples` to `fitting`, chosen one after the other."""
    share = budget.left / max(1, rounds)
    offered = dict.fromkeys(triples)
    candidates: dict[Columns, Candidate] = {}
    for turn in range(1, rounds + 1):
        if (turn - 1) % -(-rounds // _DENSE_FITS) == 0:
            fitting.fit(share_sums=True)
            sigma = budget.noise_deviation(share * (1 - CHOICE))
            candidates = {
                columns: offer_marginal(
                    fitting,
                    columns,
                    grid=budget.table.grid,
                    weight=triples[columns],
                    penalty=noise_distance(sigma, count_told(fitting.compression, columns)),
                )
                for columns in offered
            }
        offer = tuple(candidates.values())
        columns = yield from choose_marginal(budget, f"{label}choice {turn}", offer, share * CHOICE)
        del offered[columns], candidates[columns]
        amount = budget.left if turn == rounds else share * (1 - CHOICE)
        name = f"{label}round {turn}: {' x '.join(columns)}"
        fitting.add((yield (_ask_contrasts(budget, fitting, name, columns, amount),)))
        fitting.progress(f"round {turn} of {rounds}: {' x '.join(columns)}")


def _ask_contrasts(
    budget: RemainingBudget, fitting: Fitting, name: str, columns: Columns, mu_squared: Fraction
) -> Request:
    """Return a request for the differences of a marginal, or for its counts if no column has few values."""
    contrasts = take_contrasts(fitting.compression, columns)
    queries = fitting.compression.queries(columns) if contrasts is None else contrasts.queries
    return budget.count(name, columns, mu_squared, queries=queries)


def _is_small_model(fitting: Fitting, model_cells: int) -> bool:
    return math.prod(fitting.domain.values()) <= min(model_cells, _DENSE_CELLS)


def _find_pairs(domain: Domain) -> list[Columns]:
    return list(combinations([name for name in domain if domain[name] > 1], 2))


def _weigh(fitting: Fitting, columns: Columns) -> float:
    return float(count_told(fitting.compression, columns) ** (2 / 3))


def _told(fitting: Fitting, marginals: Collection[Columns]) -> float:
    """Return how many numbers marginals of one size tell that have the noise of these together."""
    return float((sum(_weigh(fitting, each) for each in marginals) / max(1, len(marginals))) ** 1.5)
