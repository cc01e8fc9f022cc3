"""Synthetic rows from a private spanning tree of pairs: the fast default for wide tables.

The manner is that of MST (McKenna, Miklau and Sheldon 2021): single columns first, then the pairs that
are farthest from independent, chosen privately so that they form a forest, then those pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.measurement import Choice, Chosen
from sfumato.recipes.adapt import measure_singles, noise_distance, offer_gap
from sfumato.recipes.rows import model_domain
from sfumato.recipes.selected import (
    check_options,
    find_columns,
    plan_selection,
    read_values,
    run_selection,
    tell_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.inference import Domain
    from sfumato.recipes.adapt import Asking, Fitting, Purse
    from sfumato.recipes.base import Conversation, Plan
    from sfumato.schema import Table

Columns = tuple[str, ...]

_SINGLES = Fraction(15, 100)
_SELECTION = Fraction(15, 100)
_LARGEST_PAIR = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Synthetic rows of a model of single columns and of a private forest of pairs.

    `columns` are those of the rows, by default all that have a domain; `public` names a table for
    values within bins.

    Privacy: all choices and measurements together cost at most the Gaussian privacy that (epsilon,
    delta) admits, charged before the first of them (docs/proofs/tree.md).

    >>> Tree(table="people").kind
    'tree'
    """

    kind: ClassVar[str] = "tree"

    table: str
    columns: Sequence[str] | None = None
    public: Any = None
    seed: int = 0
    rows: int | None = None

    def __post_init__(self) -> None:
        for key, value in check_options(self).items():
            object.__setattr__(self, key, value)

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record."""
        return {
            "recipe": self.kind,
            "table": self.table,
            "columns": None if self.columns is None else list(self.columns),
            "public": self.public,
            "seed": self.seed,
            "rows": self.rows,
        }

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """One allowance per epsilon; all pairs that are not too large are counted."""
        domain = model_domain(table, find_columns(self, table))
        recipe = replace(self, public=read_values(self, table))
        counted = (*((name,) for name in domain), *_pairs(domain))
        return plan_selection(recipe, table, epsilons=epsilons, delta=delta, counted=counted)

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """The rows of a model of single columns and chosen pairs, for one epsilon after the other."""
        return run_selection(
            self,
            plan,
            measure=lambda purse, domain, label: _measure_tree(purse, domain, label, progress),
        )

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up that are this recipe's own."""
        columns = find_columns(self, plan.table)
        return {
            "idea": (
                f"The release is a table of synthetic rows with the columns {', '.join(columns)}. A "
                "graphical model is fitted to noisy counts of single columns and of pairs of columns "
                "that form a "
                "forest; the pairs are chosen privately, those that are farthest from independent."
            ),
            "preprocessing": "The columns are stated. No record is touched, so the step costs nothing.",
            "privatisation": (
                "Every single column is measured with Gaussian noise. Then pairs are chosen one after the "
                "other by the exponential mechanism, among those that join what no earlier pair "
                "joins: the score "
                "of a pair is the L1 distance between its counts and those of independent columns, less what "
                "noise alone would add. At last the chosen pairs are measured with Gaussian noise."
            ),
            "postprocessing": tell_rows(self, plan),
        }


def _pairs(domain: Domain) -> list[Columns]:
    return [pair for pair in combinations(domain, 2) if domain.cells(pair) <= _LARGEST_PAIR]


def _measure_tree(purse: Purse, domain: Domain, label: str, progress: Callable[[str], None]) -> Asking:
    """A fitting of single columns and of a private forest of pairs."""
    fitting = yield from measure_singles(
        purse, domain, purse.squared * _SINGLES, label=label, progress=progress
    )
    fitting.fit()
    edges = yield from _choose_pairs(purse, fitting, domain, label, progress)
    # Where no pair is worth its noise, single columns are measured once more.
    wanted = edges or [(name,) for name in domain]
    asks = [
        purse.buy_request(
            f"{label}{'' if edges else 'again: '}{' x '.join(columns)}",
            columns,
            purse.left / len(wanted),
            queries=fitting.compression.queries(columns),
        )
        for columns in wanted
    ]
    answers = yield tuple(purse.pay(ask) for ask in asks)
    fitting.add(answers)
    fitting.fit(effort=4)
    return fitting


def _choose_pairs(
    purse: Purse, fitting: Fitting, domain: Domain, label: str, progress: Callable[[str], None]
) -> Any:  # noqa: ANN401 - a generator that returns pairs
    turns = len(domain) - 1
    if turns == 0:
        return []
    epsilon = purse.buy_epsilon(purse.squared * _SELECTION / turns)
    sigma = purse.noise(purse.squared * (1 - _SINGLES - _SELECTION) / turns)
    assert fitting.model is not None
    tree_of = {name: name for name in domain}
    noise = {pair: noise_distance(sigma, fitting.domain.cells(pair)) for pair in _pairs(domain)}
    edges: list[Columns] = []
    for turn in range(1, turns + 1):
        # Noise that would outweigh all records cannot improve anything.
        open_pairs = [
            pair
            for pair, added in noise.items()
            if tree_of[pair[0]] != tree_of[pair[1]] and added <= fitting.model.total
        ]
        if not open_pairs:
            break
        gaps = tuple(offer_gap(purse, fitting, pair, weight=1, penalty=noise[pair]) for pair in open_pairs)
        choice = Choice(name=f"{label}choice {turn}", candidates=gaps, epsilon=epsilon)
        (chosen,) = yield (purse.pay(choice),)
        assert isinstance(chosen, Chosen)
        pair = gaps[chosen.index].columns
        progress(f"chosen: {' x '.join(pair)}")
        edges.append(pair)
        joined, kept = tree_of[pair[1]], tree_of[pair[0]]
        tree_of = {name: kept if root == joined else root for name, root in tree_of.items()}
    return edges
