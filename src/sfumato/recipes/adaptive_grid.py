"""Synthetic rows from marginals measured as finely as their counts allow: Adaptive Granularity.

The manner is that of the Minutemen (McKenna, Miklau and Sheldon) in a contest about taxi trips: stated
marginals with all their parts, measured from single columns upwards with Gaussian noise. Cells that may be
large, by what lower marginals showed, are measured one by one; all others in sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_positive, parse_whole
from sfumato.inference.conditional import Conditional
from sfumato.inference.domain import Columns, Domain
from sfumato.inference.estimation import LARGEST_TREE, estimate
from sfumato.inference.files import pack_model, quantise
from sfumato.inference.model import Model, assign_identifiers, assign_runs, draw_codes, number_cells
from sfumato.inference.tree import build_tree
from sfumato.recipes.base import (
    MOST_ANSWERS,
    Conversation,
    Plan,
    Product,
    Progress,
    is_column_list,
    released_names,
)
from sfumato.recipes.shared.granularity import (
    USUAL_QUANTILE,
    Pool,
    Rounds,
    parse_norms,
    spread_people,
    stated_norm,
)
from sfumato.recipes.shared.public import public_identifiers
from sfumato.recipes.shared.repair import draw_obeying, turn_seed
from sfumato.recipes.shared.rows import RowOptions, build_rows, describe_bins, model_domain
from sfumato.recipes.shared.rules import find_zeros
from sfumato.tables.arrays import Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

# Queries over the cells of a marginal take up to a hundred bytes for each.
_MOST_CELLS = 2**23
_MOST_COLUMNS = 8
_MOST_VALUES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveGrid(RowOptions):
    """Synthetic rows from the marginals `outer` with all their parts, each as fine as its counts allow.

    `copies` lists marginals that are measured more than once, with the number of extra `times`. A cell is
    flagged if its answer, averaged over copies, is at least `threshold` standard deviations. `norms` holds
    contributions to L2 norms instead of max_records: one number, numbers by number of columns, or
    "auto". `public` names a table from which numbers within bins are taken, and with `identifiers` a list
    of columns, identifiers too; with `identifiers` true they are new. `rows` is their number, by default the
    estimated one.

    `quantile` is the share of individuals that norms chosen by "auto" are to hold, 0.95 if it is not stated.
    `credible` names columns: no row lies in a cell of them where less than one record is expected, and
    noisy counts of single columns are first drawn to what they are on average, counts of pairs towards
    independence, and rows of a cell are drawn evenly. `identifiers` such as
    {column = "shift", values = 2} go to rows that are less than so many values apart, to as many rows as
    individuals have by noisy counts of them.

    Privacy: every measurement has queries whose columns have norm 1 at most, so one individual moves its
    answers by its contribution at most; all have the same ratio of noise to sensitivity, that
    of the exact Gaussian calibration for their number (docs/proofs/adaptive-grid.md).

    >>> AdaptiveGrid(table="trips", outer=[["area", "hour"], ["area", "fare"]]).marginals
    (('area',), ('hour',), ('fare',), ('area', 'hour'), ('area', 'fare'))
    """

    kind: ClassVar[str] = "adaptive-grid"
    unforeseen: ClassVar[str] = "which cells are counted, and how fine, is chosen by the records"
    own_bound: ClassVar[str] = "norms"

    record_keys: ClassVar[Columns] = (
        "table", "outer", "copies", "threshold", "norms", "public", "identifiers", "seed", "rows",
        "quantile", "credible", "types",
    )  # fmt: skip
    optional: ClassVar[tuple[str, ...]] = ("quantile", "credible")
    drawn_by: ClassVar[tuple[str, ...]] = (*RowOptions.drawn_by, "credible")

    outer: Sequence[Sequence[str]]
    copies: Sequence[Mapping[str, Any]] = ()
    threshold: Any = 5
    norms: Any = None
    identifiers: bool | Sequence[str] | Mapping[str, Any] = False
    quantile: Any = None
    credible: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self._keep(outer=tuple(_parse_columns(each, "outer") for each in _parse_list(self.outer, "outer")))
        if not self.outer:
            raise RecipeError(
                "adaptive-grid: outer must list at least one marginal, such as [['area', 'hour']]"
            )
        if max(len(columns) for columns in self.outer) > _MOST_COLUMNS:
            raise RecipeError(f"adaptive-grid: an outer marginal has more than {_MOST_COLUMNS} columns")
        self._keep(
            copies=tuple(self._parse_copies(each) for each in _parse_list(self.copies, "copies")),
            threshold=parse_positive(self.threshold, name="adaptive-grid: threshold"),
            norms=parse_norms(self.norms, where="adaptive-grid: norms"),
        )
        if len({self._order(each["columns"]) for each in self.copies}) != len(self.copies):
            raise RecipeError("adaptive-grid: copies lists a marginal twice")
        RowOptions.__post_init__(self)
        if self.quantile is not None:
            self._keep(quantile=parse_positive(self.quantile, name="adaptive-grid: quantile"))
            if self.quantile >= 1 or self.norms != "auto":
                raise RecipeError("adaptive-grid: quantile must be below 1, and needs norms = 'auto'")
        if self.credible is not None:
            self._keep(credible=_parse_columns(self.credible, "credible"))
            if not any(set(self.credible) <= set(columns) for columns in self.outer):
                raise RecipeError("adaptive-grid: credible needs columns of one outer marginal")
        if isinstance(self.identifiers, Mapping):
            self._keep(identifiers=self._parse_span(self.identifiers))
        elif not isinstance(self.identifiers, bool):
            groups = _parse_columns(self.identifiers, "identifiers")
            if self.public is None or not set(groups) <= set(self.columns):
                raise RecipeError(
                    "adaptive-grid: identifiers by columns needs columns of outer and a public table"
                )
            self._keep(identifiers=groups)

    def _parse_copies(self, value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping) or set(value) != {"columns", "times"}:
            raise RecipeError(
                "adaptive-grid: copies must list entries such as {columns = ['a', 'b'], times = 7}"
            )
        columns = _parse_columns(value["columns"], "copies")
        if self._order(columns) not in self.marginals:
            raise RecipeError(
                f"adaptive-grid: copies of {' x '.join(columns)}, which is no part of an outer marginal"
            )
        times = parse_whole(value["times"], name="adaptive-grid: times of copies")
        return {"columns": list(columns), "times": times}

    def _parse_span(self, value: Mapping[str, Any]) -> dict[str, Any]:
        if set(value) != {"column", "values"} or value["column"] not in self.columns:
            raise RecipeError(
                "adaptive-grid: identifiers need a column of outer and how many of its values an individual "
                "has records in, such as {column = 'shift', values = 2}"
            )
        values = parse_whole(value["values"], name="adaptive-grid: values of identifiers", high=_MOST_VALUES)
        return {"column": value["column"], "values": values}

    @property
    def columns(self) -> Columns:
        """Return every column of an outer marginal, once."""
        return tuple(dict.fromkeys(name for columns in self.outer for name in columns))

    @property
    def marginals(self) -> tuple[Columns, ...]:
        """Return the outer marginals with all their parts, each once, from single columns upwards."""
        parts = {
            self._order(part)
            for columns in self.outer
            for size in range(1, len(columns) + 1)
            for part in combinations(columns, size)
        }
        place = {name: index for index, name in enumerate(self.columns)}
        return tuple(sorted(parts, key=lambda part: (len(part), [place[name] for name in part])))

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one cost per measurement and per choice of a norm, all known beforehand."""
        domain = model_domain(table, self.columns)
        self._check(table, domain, delta)
        groups = None if isinstance(self.identifiers, (bool, Mapping)) else self.identifiers
        recipe = self.with_public(table, self.columns, identifiers_by=groups).with_types(
            (table, self.columns), taken=[] if self.identifiers is False else [table.unit.column or ""]
        )
        rounds = [recipe._rounds(table, epsilon, delta, several=len(epsilons) > 1) for epsilon in epsilons]
        answers = sum(each.least_answers for each in rounds)
        if answers > MOST_ANSWERS:
            raise RecipeError(
                f"adaptive-grid: at least {answers:,} values are asked for, more than the {MOST_ANSWERS:,} "
                "that are kept; use coarser domains, fewer epsilons, or identifiers = true"
            )
        for each in rounds:
            each.check_noise()
        clipped = tuple(
            columns
            for columns in self.marginals
            if self.norms == "auto" or stated_norm(self.norms, len(columns)) is not None
        )
        allowance = tuple(cost for each in rounds for cost in each.costs)
        whole = () if self.quantile is None else (rounds[0].record_column,)
        counted = tuple(each for each in self.marginals if each not in clipped or each in whole)
        return Plan(recipe, table, epsilons, delta, allowance=allowance, counted=counted, clipped=clipped)

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return the rows of a model of all measurements, for one epsilon after the other."""
        several = len(plan.epsilons) > 1
        pools: list[Pool] = []
        for epsilon in plan.epsilons:
            rounds = self._rounds(plan.table, epsilon, plan.delta, several=several)
            pools.append((yield from rounds.measure(progress)))
        models: dict[str, Model] = {}
        tables, facts = [], []
        for epsilon, pool in zip(plan.epsilons, pools, strict=True):
            model = self._fit(plan.table, pool, progress)
            models[format_exact(epsilon)] = model
            progress("drawing rows")
            tables.append(self._draw(plan.table, model, pool))
            facts.append(
                {
                    "epsilon": format_exact(epsilon),
                    "rows": tables[-1].num_rows,
                    "cells_measured_one_by_one": pool.cells,
                    "cells_flagged": pool.flagged,
                    "evaluations": model.evaluations,
                }
            )
        return Product(
            table=plan.stack(tables),
            files={"model.parquet": pack_model(models)},
            varied=() if self.identifiers is False else (plan.table.unit.column or "",),
            facts={"models": facts},
        )

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        norms = "" if self.norms is None else self.part("norms")
        if self.norms == "auto":
            share = format_exact(100 * (self.quantile or USUAL_QUANTILE))
            norms += self.part("chosen_norms", share=share)
        norms += "" if self.quantile is None else self.part("records")
        credible = " x ".join(self.credible or ())
        return {
            "marginals": len(self.marginals),
            "measured": len(self.marginals) + sum(int(each["times"]) for each in self.copies),
            "noised": self._rounds(plan.table, plan.epsilons[0], plan.delta, several=False).number,
            "outer": "; ".join(" x ".join(columns) for columns in self.outer),
            "threshold": format_exact(self.threshold),
            "norms": norms + ("" if self._span is None else self.part("people")),
            "credible": self.part("credible", cells=credible) if credible else "",
            "bins": describe_bins(plan.table, self.columns, self.within_bins, self.types),
            "identifiers": self._describe_identifiers(),
        }

    def _order(self, columns: Sequence[str]) -> Columns:
        return tuple(name for name in self.columns if name in columns)

    def _rounds(self, table: Table, epsilon: Fraction, delta: Fraction, *, several: bool) -> Rounds:
        extra = {self._order(each["columns"]): each["times"] for each in self.copies}
        return Rounds(
            table=table,
            domain=model_domain(table, self.columns),
            times={columns: 1 + extra.get(columns, 0) for columns in self.marginals},
            threshold=self.threshold,
            norms=self.norms,
            epsilon=epsilon,
            delta=delta,
            label=f" at epsilon {format_exact(epsilon)}" if several else "",
            quantile=self.quantile,
            span=self._span,
        )

    @property
    def _span(self) -> tuple[str, int] | None:
        if not isinstance(self.identifiers, Mapping):
            return None
        return self.identifiers["column"], self.identifiers["values"]

    def _check(self, table: Table, domain: Domain, delta: Fraction) -> None:
        """Refuses what would fail after the charge."""
        self.refuse_no_delta(delta)
        if table.unit.column is None and (self.norms is not None or self.identifiers is not False):
            key = "identifiers" if self.norms is None else "norms"
            raise RecipeError(
                f"adaptive-grid: table {table.name!r} has unit = 'row', every row is an individual of its "
                f"own; leave {key} out, or name a unit column"
            )
        names = ["epsilon", *released_names(table, self.columns)]
        names += [] if self.identifiers is False else [table.unit.column or ""]
        self.refuse_clash(names)
        large = max(self.marginals, key=domain.cells)
        self.refuse_cells(table, large, _MOST_CELLS, advice="use coarser domains or fewer columns")
        zeros = find_zeros(table, self.columns, held=self.marginals)
        build_tree(domain, [*self.marginals, *(names for names, _ in zeros)], limit=LARGEST_TREE)

    def _fit(self, table: Table, pool: Pool, progress: Progress) -> Model:
        domain = model_domain(table, self.columns)
        zeros = find_zeros(table, self.columns, held=self.marginals)
        noisy = pool.measurements(shrunk=self.credible is not None)
        total = pool.total * pool.factor
        return quantise(estimate(domain, noisy, total=total, seed=self.seed, zeros=zeros, progress=progress))

    def _draw(self, table: Table, model: Model, pool: Pool) -> pa.Table:
        codes = draw_obeying(
            table,
            self.columns,
            self._draw_credible(model)
            if self.credible is not None
            else lambda count, turn: model.sample(count, seed=turn_seed(self.seed, turn)),
            rows=int(model.total) if self.rows is None else self.rows,
            seed=self.seed,
        )
        within = self.within_bins
        rows = build_rows(table, self.columns, codes, seed=self.seed, public=within, types=self.types)
        if self.identifiers is False:
            return rows
        most, name = table.unit.max_records, table.unit.column or ""
        if isinstance(self.identifiers, Mapping):
            assert pool.people is not None
            column, span = self.identifiers["column"], self.identifiers["values"]
            shares = spread_people(pool.people, most)
            identifiers = assign_runs(codes[column], shares, span=span, most=most, seed=self.seed)
            return rows.add_column(0, name, to_arrow(identifiers))
        group, public = np.zeros(rows.num_rows, np.int64), None
        if not isinstance(self.identifiers, bool):
            group = number_cells(codes, self.identifiers, model.domain)
            public = public_identifiers(self.public)
        identifiers = assign_identifiers(group, most=most, seed=self.seed, public=public)
        return rows.add_column(0, name, to_arrow(identifiers))

    def _draw_credible(self, model: Model) -> Callable[[int, int], dict[str, Whole]]:
        """Draws rows in the cells of `credible` where records are likely, all other columns given these."""
        names = model.domain.order(self.credible or ())
        expected = model.marginal(names).reshape(-1)
        shares = np.where(expected >= min(1.0, float(expected.max())), expected, 0.0)
        others = Conditional(model, names)

        def draw(count: int, turn: int) -> dict[str, Whole]:
            seed = turn_seed(self.seed, turn)
            cells = draw_codes(shares, count, seed=seed, turn=0)
            # Rows next to each other are drawn evenly, so that those of a cell stand together meanwhile.
            order = np.argsort(cells, kind="stable")
            places = np.unravel_index(cells[order], model.domain.shape(names))
            known = {name: np.asarray(place, np.int64) for name, place in zip(names, places, strict=True)}
            drawn = known | others.sample(known, seed=seed)
            return {name: drawn[name][np.argsort(order)] for name in self.columns}

        return draw

    def _describe_identifiers(self) -> str:
        if isinstance(self.identifiers, Mapping):
            return self.part("runs", **self.identifiers)
        if isinstance(self.identifiers, bool):
            return self.part("new_identifiers") if self.identifiers else ""
        return self.part("public_identifiers", groups=" x ".join(self.identifiers))


def _parse_list(value: object, key: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise RecipeError(f"adaptive-grid: {key} must be a list")
    return value


def _parse_columns(value: object, key: str) -> Columns:
    if not is_column_list(value):
        raise RecipeError(
            f"adaptive-grid: {key} needs lists of columns, none empty and no column twice in one"
        )
    return tuple(value)
