"""Synthetic rows of a private forest of pairs, the way of MST (McKenna, Miklau and Sheldon 2021)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import ClassVar

from sfumato.core.questions.choices import Candidate
from sfumato.inference.domain import Columns, Domain
from sfumato.inference.estimation import LARGEST_TREE
from sfumato.inference.tree import tree_cells
from sfumato.recipes.base import Asking, Expected, Plan, Progress
from sfumato.recipes.shared.budget import RemainingBudget, open_budget
from sfumato.recipes.shared.rows import model_domain
from sfumato.recipes.shared.selection import (
    Fitting,
    Selection,
    choose_marginal,
    measure_singles,
    noise_distance,
    offer_marginal,
)

_TREE_SINGLES = Fraction(15, 100)  # of a tree's budget, for single columns
_TREE_CHOICES = Fraction(15, 100)  # for choosing pairs
_LARGEST_PAIR = 2**20  # cells; a larger pair is never measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Selection):
    """Synthetic rows of a model of single columns and of a private forest of pairs.

    `columns` are those of the rows, by default all that have a domain; `public` names a table for
    values within bins, `guide` one that tells how columns depend on each other, and is used as far as the
    records bear it out. `bins` names columns with bounds and without a domain, and how many bins the records
    choose for each.

    Privacy: all choices and measurements together cost at most the Gaussian privacy that (epsilon,
    delta) admits, charged before the first of them (docs/proofs/tree.md).

    >>> Tree(table="people").kind
    'tree'
    """

    kind: ClassVar[str] = "tree"
    record_keys: ClassVar[Columns] = (
        "table", "columns", "public", "seed", "rows", "types", "guide", "bins"
    )  # fmt: skip

    def list_counted(self, domain: Domain) -> tuple[Columns, ...]:
        """Return single columns, and all pairs that are not too large."""
        return (*((name,) for name in domain), *_pairs(domain))

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise of single columns, and of each pair of the tree, which any pair may be."""
        budget, domain = open_budget(plan), model_domain(plan.table, self._find_columns(plan.table))
        self.split_guide(budget)
        singles: dict[Columns, Fraction] = {
            (name,): budget.total * _TREE_SINGLES / len(domain) for name in domain
        }
        rest = budget.total * (1 - _TREE_SINGLES - _TREE_CHOICES) / max(len(domain) - 1, 1)
        return budget.expect_counts(domain, {**singles, **dict.fromkeys(_pairs(domain), rest)})

    def measure(
        self, budget: RemainingBudget, domain: Domain, label: str, progress: Progress
    ) -> Asking[Fitting]:
        """Return the model of single columns and of a private forest of pairs."""
        testing = self.split_guide(budget)
        singles = budget.total * _TREE_SINGLES
        fitting = yield from measure_singles(
            budget, domain, singles, label=label, progress=progress, bins=self.bins
        )
        yield from self.follow_guide(testing, fitting, label, most_cells=_LARGEST_PAIR)
        fitting.fit()
        edges = yield from _choose_forest(budget, fitting, domain, label, progress)
        # Where no pair is worth its noise, single columns are measured once more.
        marginals = edges or [(name,) for name in domain]
        share = budget.left / len(marginals)
        answers = yield tuple(
            budget.count(
                f"{label}{'' if edges else 'again: '}{' x '.join(columns)}",
                columns,
                share,
                queries=fitting.compression.queries(columns),
            )
            for columns in marginals
        )
        fitting.add(answers)
        fitting.fit(effort=4)
        return fitting


def _pairs(domain: Domain) -> list[Columns]:
    return [pair for pair in combinations(domain, 2) if domain.cells(pair) <= _LARGEST_PAIR]


def _choose_forest(
    budget: RemainingBudget, fitting: Fitting, domain: Domain, label: str, progress: Progress
) -> Asking[list[Columns]]:
    """Return pairs that form a forest, chosen one after the other."""
    turns = len(domain) - 1
    if turns == 0:
        return []
    share = budget.total * _TREE_CHOICES / turns
    sigma = budget.noise_deviation(budget.total * (1 - _TREE_SINGLES - _TREE_CHOICES) / turns)
    assert fitting.model is not None
    noise = {pair: noise_distance(sigma, fitting.domain.cells(pair)) for pair in _pairs(domain)}
    # The model stays what it is, so that every pair is scored once. Noise that would outweigh all records
    # cannot improve anything.
    forest, grid = _Forest(domain), budget.table.grid
    for pair, added in noise.items():
        if added <= fitting.model.total:
            forest.offer(offer_marginal(fitting, pair, grid=grid, weight=1, penalty=added))
    edges: list[Columns] = []
    for turn in range(1, turns + 1):
        candidates = forest.leaving()
        if not candidates:
            break
        pair = yield from choose_marginal(budget, f"{label}choice {turn}", candidates, share)
        progress(f"chosen: {' x '.join(pair)}")
        edges.append(pair)
        forest.join(pair)
    return _keep_fitting(fitting, edges)


def _keep_fitting(fitting: Fitting, edges: list[Columns]) -> list[Columns]:
    """Return those of `edges` that the largest model holds beside rules and a guide, the first first."""
    domain = fitting.domain
    held = [*((name,) for name in domain), *(columns for columns, _ in fitting.zeros), *fitting.guided]
    if tree_cells(domain, [*held, *edges]) <= LARGEST_TREE:
        return edges
    kept: list[Columns] = []
    for edge in edges:
        if tree_cells(domain, [*held, *kept, edge]) <= LARGEST_TREE:
            kept.append(edge)
    return kept


class _Forest:
    """Trees of columns, each column by itself at first, and the pairs that are offered to join them."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._trees = {name: [name] for name in columns}
        self._offered: dict[str, list[Candidate]] = {name: [] for name in self._trees}

    def offer(self, candidate: Candidate) -> None:
        """Adds a pair that may be chosen."""
        for name in candidate.columns:
            self._offered[name].append(candidate)

    def join(self, pair: Columns) -> None:
        """Makes the trees of both columns one."""
        joined = self._trees[pair[0]] + self._trees[pair[1]]
        self._trees |= dict.fromkeys(joined, joined)

    def leaving(self) -> tuple[Candidate, ...]:
        """Return pairs that lead out of the smallest tree that any lead out of, the first of the smallest.

        The best of them is part of the best forest (Boruvka 1926), and there are few: all choices together
        look at each pair some log2(columns) times, where all pairs compete in every choice of Kruskal's.
        """
        trees = {id(tree): tree for tree in self._trees.values()}
        for tree in sorted(trees.values(), key=len):
            inside = set(tree)
            found = tuple(
                each for name in tree for each in self._offered[name] if not inside.issuperset(each.columns)
            )
            if found:
                return found
        return ()
