"""Synthetic rows without hand-picked marginals: what is measured next is chosen privately."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from sfumato.accounting import Cost, max_mu
from sfumato.errors import RecipeError
from sfumato.exact import format_exact
from sfumato.inference import LARGEST_TREE, Domain, Model
from sfumato.inference.files import pack_model, quantise
from sfumato.questions import Choice, Chosen
from sfumato.recipes.adapt import (
    Asking,
    Fitting,
    Limits,
    Purse,
    all_subsets,
    close_downwards,
    measure_adaptively,
    measure_singles,
    noise_distance,
    offer_gap,
)
from sfumato.recipes.base import Conversation, Plan, Product, Recipe, refuse_clash, refuse_no_delta
from sfumato.recipes.public import parse_public, public_values, read_public
from sfumato.recipes.rows import WithinBins, build_rows, mark_epsilon, model_domain, name_rows, tell_bins

if TYPE_CHECKING:
    from sfumato.schema import Table


Columns = tuple[str, ...]

_GRAIN = 10**12
_LEAST = Fraction(1, 10**5)
_MOST_COUNTED = 2**27
_MOST_ROWS = 2**24  # that noise may ask for; a recipe may state more
_WHOLE = 2**21  # cells up to which a model is released over the full domain


class Selecting(Protocol):
    """The options that recipes with private selection share."""

    @property
    def kind(self) -> str:
        """The recipe's name in a recipe file."""

    @property
    def columns(self) -> Sequence[str] | None:
        """The columns of the rows; None for all that have a domain."""

    @property
    def public(self) -> Any:  # noqa: ANN401 - a file's name, or what was read of it
        """A public table for values within bins."""

    @property
    def seed(self) -> int:
        """The public seed of rows."""

    @property
    def rows(self) -> int | None:
        """The number of rows, by default the estimated one."""


def check_options(recipe: Selecting) -> dict[str, Any]:
    """The shared options as they are kept, or an error that names the one that is wrong."""
    kind, columns = recipe.kind, recipe.columns
    if columns is not None and (
        not isinstance(columns, (list, tuple))
        or not columns
        or not all(isinstance(name, str) for name in columns)
        or len(set(columns)) != len(columns)
    ):
        raise RecipeError(f"{kind}: columns must list columns of the table, none twice")
    for key, value, least in (("seed", recipe.seed, 0), ("rows", recipe.rows, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise RecipeError(f"{kind}: {key} must be a whole number of at least {least}")
    return {
        "columns": None if columns is None else tuple(columns),
        "public": parse_public(recipe.public, where=f"{kind}: public"),
    }


def find_columns(recipe: Selecting, table: Table) -> Columns:
    """The columns of the rows: those that are listed, or all that have a domain."""
    if recipe.columns is not None:
        names = tuple(recipe.columns)
    else:
        names = tuple(name for name, column in table.columns.items() if column.domain is not None)
    if not names:
        raise RecipeError(f"{recipe.kind}: table {table.name!r} describes no column with a domain")
    for name in names:
        table.column(name)
    refuse_clash(recipe.kind, ["epsilon", *name_rows(table, names)])
    return names


def read_values(recipe: Selecting, table: Table) -> Any:  # noqa: ANN401 - as the recipe keeps it
    """What the recipe's public table tells about values within bins, read if it is still a file."""
    if isinstance(recipe.public, str):
        return read_public(recipe.public, table, find_columns(recipe, table), groups=None)
    return recipe.public


def plan_selection(
    recipe: Recipe,
    table: Table,
    *,
    epsilons: tuple[Fraction, ...],
    delta: Fraction,
    counted: tuple[Columns, ...],
) -> Plan:
    """A plan that charges, for every epsilon, all that (epsilon, delta) admits of Gaussian privacy."""
    refuse_no_delta(recipe.kind, delta)
    domain = model_domain(table, tuple(dict.fromkeys(name for columns in counted for name in columns)))
    cells = sum(domain.cells(columns) for columns in counted)
    if cells > _MOST_COUNTED:
        raise RecipeError(
            f"{recipe.kind}: the marginals that may be chosen have {cells:,} cells together, more than "
            f"{_MOST_COUNTED:,}; state a smaller workload, fewer columns or coarser domains"
        )
    return Plan(
        recipe=recipe,
        table=table,
        requests=(),
        epsilons=epsilons,
        delta=delta,
        allowance=tuple(_allow(table, epsilon, delta) for epsilon in epsilons),
        counted=counted,
    )


def run_selection(
    recipe: Selecting,
    plan: Plan,
    *,
    measure: Callable[[Purse, Domain, str], Asking],
) -> Conversation:
    """The rows of a model for every epsilon; `measure` asks with a purse, a domain and a label for names."""
    several = len(plan.epsilons) > 1
    columns = find_columns(recipe, plan.table)
    domain = model_domain(plan.table, columns)
    models: dict[str, Model] = {}
    tables, facts = [], []
    for epsilon, cost in zip(plan.epsilons, plan.costs, strict=True):
        assert cost.mu_squared is not None
        label = f"epsilon {format_exact(epsilon)}, " if several else ""
        fitting = yield from measure(Purse(plan.table, squared=cost.mu_squared), domain, label)
        assert fitting.model is not None
        whole = fitting.compression.expand_model(fitting.model, limit=_WHOLE)
        model = quantise(fitting.model if whole is None else whole)
        model.seed = recipe.seed
        models[format_exact(epsilon)] = model
        count = min(round(model.total), _MOST_ROWS) if recipe.rows is None else recipe.rows
        codes = model.sample(count, seed=recipe.seed)
        if whole is None:
            codes = fitting.compression.expand(codes, seed=recipe.seed)
        rows = build_rows(plan.table, columns, codes, seed=recipe.seed, public=_told(recipe))
        tables.append(mark_epsilon(rows, epsilon) if several else rows)
        facts.append(
            {
                "epsilon": format_exact(epsilon),
                "rows": rows.num_rows,
                "cliques": [list(clique) for clique in model.tree.cliques],
                "compressed_to": {
                    name: fitting.domain[name] for name in columns if fitting.domain[name] != domain[name]
                },
            }
        )
    return Product(
        table=pa.concat_tables(tables, promote_options="default"),
        files={"model.parquet": pack_model(models)},
        facts={"models": facts},
    )


def tell_rows(recipe: Selecting, plan: Plan) -> str:
    """The paragraph of the write-up on how rows come of the model."""
    columns = find_columns(recipe, plan.table)
    return (
        "Values too rare to be told from noise are joined, and rows are spread over them again in the "
        "proportions that their noisy counts have. Rows are drawn from the model from a public seed. "
        + tell_bins(plan.table, columns, _told(recipe))
        + " All of it uses noisy answers and public facts only, so it costs nothing."
    )


def _told(recipe: Selecting) -> WithinBins | None:
    return public_values(recipe.public if isinstance(recipe.public, Mapping) else None)


def _allow(table: Table, epsilon: Fraction, delta: Fraction) -> Cost:
    # A hair less than all, so that no rounding of sums exceeds epsilon.
    scale = Fraction(int(max_mu(epsilon, delta) * (1 - 1e-9) * _GRAIN), _GRAIN)
    if scale < _LEAST:
        raise RecipeError(
            f"epsilon {format_exact(epsilon)} at this delta buys less than can be measured; spend more"
        )
    return Cost(kind="filter", scale=scale, neighbours=table.unit.neighbours, unit=table.unit.column or "row")


_LARGEST_MARGINAL = 2**18
_COUNTED = 2**25  # cells of all marginals together from which only pairs are the default workload
_MOST_WEIGHT = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Synthetic rows of a graphical model whose marginals are chosen privately, one after the other.

    `workload` says what the rows should be good for: all combinations of so many columns, 1 to 4, or a
    list of {columns = [...], weight = n}. By default it is 3, or 2 where that would be too many cells.
    `model_cells` bounds the model. `public` names a table for values within bins.

    Privacy: all choices and measurements together cost at most the Gaussian privacy that (epsilon,
    delta) admits, charged before the first of them (docs/proofs/adaptive.md).

    >>> Adaptive(table="people", workload=2).kind
    'adaptive'
    """

    kind: ClassVar[str] = "adaptive"

    table: str
    columns: Sequence[str] | None = None
    workload: Any = None
    model_cells: int = 2**21
    public: Any = None
    seed: int = 0
    rows: int | None = None

    def __post_init__(self) -> None:
        for key, value in check_options(self).items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "workload", _parse_workload(self.workload))
        if (
            isinstance(self.model_cells, bool)
            or not isinstance(self.model_cells, int)
            or not 1 <= self.model_cells <= LARGEST_TREE
        ):
            raise RecipeError(f"adaptive: model_cells must be a whole number from 1 to {LARGEST_TREE:,}")

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record."""
        return {
            "recipe": self.kind,
            "table": self.table,
            "columns": None if self.columns is None else list(self.columns),
            "workload": self.workload if not isinstance(self.workload, tuple) else list(self.workload),
            "model_cells": self.model_cells,
            "public": self.public,
            "seed": self.seed,
            "rows": self.rows,
        }

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """One allowance per epsilon; every marginal that may be chosen is counted."""
        domain = model_domain(table, find_columns(self, table))
        counted = self._candidates(domain, self._find_workload(domain))
        recipe = replace(self, public=read_values(self, table))
        return plan_selection(recipe, table, epsilons=epsilons, delta=delta, counted=tuple(counted))

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """The rows of a model of what was chosen and measured, for one epsilon after the other."""
        limits = Limits(model=self.model_cells, marginal=_LARGEST_MARGINAL)
        return run_selection(
            self,
            plan,
            measure=lambda purse, domain, label: measure_adaptively(
                purse, domain, self._find_workload(domain), limits=limits, label=label, progress=progress
            ),
        )

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up that are this recipe's own."""
        columns = find_columns(self, plan.table)
        return {
            "idea": (
                f"The release is a table of synthetic rows with the columns {', '.join(columns)}. A "
                "graphical model is fitted to noisy marginals; which marginals are measured is "
                "chosen privately, each "
                "time one that the model so far gets most wrong."
            ),
            "preprocessing": (
                "What the rows should be good for, the workload, is stated in the recipe. No record is "
                "touched, so the step costs nothing."
            ),
            "privatisation": (
                "First every single column is measured with Gaussian noise. Then, in rounds, a marginal is "
                "chosen by the exponential mechanism: its score is the L1 distance between its counts and "
                "the model's, less what noise alone would add, times its weight in the workload; one "
                "individual moves it by at most its contribution times the weight. The marginal is measured "
                "with Gaussian noise and the model is fitted anew. When a measurement moves the model by no "
                "more than noise would, later rounds get more of the budget. Rounds end when the Gaussian "
                "privacy of all choices and measurements together has used up what was charged."
            ),
            "postprocessing": tell_rows(self, plan),
        }

    def _find_workload(self, domain: Domain) -> dict[Columns, int]:
        columns = tuple(domain)
        if isinstance(self.workload, tuple):
            stated: dict[Columns, int] = {}
            for each in self.workload:
                names = domain.order(tuple(each["columns"]))
                if len(names) != len(each["columns"]):
                    raise RecipeError("adaptive: the workload names a column that the rows do not have")
                stated[names] = stated.get(names, 0) + each["weight"]
            return stated
        if self.workload is not None:
            return all_subsets(columns, self.workload)
        triples = all_subsets(columns, 3)
        cells = sum(domain.cells(each) for each in self._candidates(domain, triples))
        return triples if cells <= _COUNTED else all_subsets(columns, 2)

    def _candidates(self, domain: Domain, workload: Mapping[Columns, int]) -> list[Columns]:
        parts = {(name,): None for name in domain} | dict.fromkeys(close_downwards(domain, workload))
        return [each for each in parts if len(each) == 1 or domain.cells(each) <= _LARGEST_MARGINAL]


def _parse_workload(value: object) -> int | tuple[dict[str, Any], ...] | None:
    if value is None or (not isinstance(value, bool) and isinstance(value, int) and 1 <= value <= 4):
        return value
    message = (
        "adaptive: workload must be a number from 1 to 4, for all combinations of so many columns, or a list "
        "such as [{columns = ['a', 'b'], weight = 2}]"
    )
    if not isinstance(value, (list, tuple)) or not value:
        raise RecipeError(message)
    parsed = []
    for each in value:
        if not isinstance(each, Mapping) or not set(each) <= {"columns", "weight"} or "columns" not in each:
            raise RecipeError(message)
        names, weight = each["columns"], each.get("weight", 1)
        if not isinstance(names, (list, tuple)) or not names or len(set(names)) != len(names):
            raise RecipeError(message)
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= _MOST_WEIGHT:
            raise RecipeError(
                f"adaptive: the weight of a workload must be a whole number from 1 to {_MOST_WEIGHT:,}"
            )
        parsed.append({"columns": list(names), "weight": weight})
    return tuple(parsed)


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
