"""Sparse maps: counts by place, period and kind, where most cells hold few records or none.

What is strong is measured beside the cells: kinds, and every pair of place, period and kind. Every level is
shrunk towards what the one above predicts (`inference/maps.py`), and the whole numbers that are released are
chosen for the pies of the map, or for the counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_whole
from sfumato.core.questions.counts import CappedMarginal, Marginal
from sfumato.core.questions.measurement import Measurement, Request, in_records
from sfumato.core.questions.question import Queries
from sfumato.inference.maps import (
    CELLS,
    DRAWS,
    KINDS,
    PERIOD_KIND,
    PLACE_KIND,
    PLACE_PERIOD,
    MapModel,
    Noisy,
    choose_pies,
    fit_map,
)
from sfumato.recipes.base import (
    Conversation,
    Expected,
    Plan,
    Product,
    Progress,
    cell_columns,
    expect_noise,
    released_names,
)
from sfumato.recipes.capped_counts import BoundedCounts
from sfumato.recipes.shared.budget import sum_groups
from sfumato.recipes.shared.counts import request_laplace
from sfumato.recipes.shared.public import locate_rows, open_public, pack_numbers, parse_public, unpack_numbers
from sfumato.tables.codes import encode_public

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.tables.arrays import Floats

Goal = Literal["pies", "counts"]

_MOST_CELLS = 2**22  # each is drawn `DRAWS` times to choose slices
_MOST_PACKED = 2**26  # bytes of a guide in a plan
_MOST_SEED = 2**32 - 1
_MEASURED = (KINDS, PLACE_PERIOD, PLACE_KIND, PERIOD_KIND, CELLS)
_LEAST, _LARGEST = 50, 950  # of a thousand: what the cells get at least, and at most
_SHARES = 1000  # parts of epsilon are whole thousandths, the same on every machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(BoundedCounts):
    """A map of counts over the columns `by`: those of a place, then a period, then a kind.

    Beside the cells, kinds and all pairs of place, period and kind are measured; cells are shrunk towards
    what these predict, by as much as the noise asks for. `public`, a file about nobody in the table such as
    an earlier year, helps to predict where the noisy counts are likelier with it. With `goal` "pies" the
    whole numbers in `count` are those whose pie of kinds, at every place and period, has the best expected
    score; with "counts", the expected counts, rounded. The expected counts themselves are in `expected`.

    Privacy: as capped-counts, with the histogram divided into five that share its epsilon
    (docs/proofs/map.md).

    >>> Map(table="incidents", by=("district", "month", "kind")).goal
    'pies'
    """

    kind: ClassVar[str] = "map"
    record_keys: ClassVar[tuple[str, ...]] = ("table", "by", "goal", "public", "share", "seed")
    drawn_by: ClassVar[tuple[str, ...]] = ("goal", "public", "seed")

    goal: Goal = "pies"
    public: Any = None
    seed: int = 0

    def __post_init__(self) -> None:
        BoundedCounts.__post_init__(self)
        if len(self.by) < 3:
            raise RecipeError(
                "map: by must list at least three columns: those of a place, then a period, then a kind, "
                "such as ['district', 'month', 'kind']; for fewer use capped-counts"
            )
        if self.goal not in ("pies", "counts"):
            raise RecipeError(f"map: goal must be pies or counts, got {self.goal!r}")
        self._keep(
            public=parse_public(self.public, where="map: public", holds="counts"),
            seed=parse_whole(self.seed, name="map: seed", low=0, high=_MOST_SEED),
        )

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return all of every epsilon, charged before the first question."""
        by = tuple(self.by)
        self.refuse_clash(["epsilon", "count", "expected", *released_names(table, by)])
        cells = table.cells(by)
        for what, size in zip(("place", "period", "kind"), self._shape(table), strict=True):
            if size < 2:
                raise RecipeError(
                    f"map: the described domains of {' x '.join(by)} have one {what} only, so that there is "
                    "nothing to compare it with; use capped-counts or cell-counts without it"
                )
        self.refuse_cells(table, by, _MOST_CELLS, advice="use fewer columns or coarser domains")
        recipe = self
        if isinstance(self.public, str):
            recipe = replace(self, public=_read_guide(self.public, table, by))
        elif self.public is not None:
            _unpack_guide(self.public, cells)
        return recipe.plan_bounded(table, epsilons=epsilons, delta=delta)

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise of all levels under the least and the largest bound; one between is chosen."""
        most = plan.table.unit.max_records
        return [
            replace(expect_noise(plan.table, ask), group=ask.name.removeprefix("counts of "))
            for cap in dict.fromkeys((1, most))
            for ask in self.ask_counts(plan.table, plan.epsilons[0], "", bound=cap)
        ]

    def forecast(self, plan: Plan, records: int | None) -> str | None:
        """Return what the bound leaves out, and what to use for totals of places; nothing without a bound."""
        most = plan.table.unit.max_records
        return self.part("cut", most=most, by='", "'.join(self.by[:-2])) if most > 1 else None

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return every cell with its count, for every epsilon."""
        table = plan.table
        guide = None if self.public is None else _unpack_guide(self.public, table.cells(tuple(self.by)))
        shape = self._shape(table)
        tables, facts = [], []
        for epsilon in plan.epsilons:
            label = plan.label(epsilon)
            bound, records = 1, None
            if table.unit.max_records > 1:
                choice = self.choose_bound(table, epsilon, label)
                bound, records = choice.read((yield (choice.ask,)))
            answers = yield self.ask_counts(table, epsilon, label, bound=bound)
            progress("shrinking noisy counts")
            model = fit_map(
                {
                    level: _read(answer, level, shape)
                    for level, answer in zip(_MEASURED, answers, strict=True)
                },
                records=records,
                most=table.unit.max_records / bound,
                guide=None if guide is None else guide.reshape(shape),
            )
            progress("choosing counts")
            tables.append(self._tabulate(table, model))
            facts.append(
                {
                    "epsilon": format_exact(epsilon),
                    "records": bound,
                    "scaled_by": f"{model.factor:.6f}",
                    "cells_share": format_exact(self._split(table, epsilon)[CELLS]),
                    "guided": [" x ".join(self._columns(level)) for level in model.guided],
                }
            )
        return Product(table=plan.stack(tables), varied=("count",), facts={"levels": facts})

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        table, most = plan.table, plan.table.unit.max_records
        return {
            "columns": ", ".join(self.by),
            "cells": table.cells(tuple(self.by)),
            "levels": "; ".join(" x ".join(self._columns(level)) for level in _MEASURED),
            "most": most,
            "bound": self.part("bound", share=format_exact(self.share), most=most) if most > 1 else "",
            "guide": "" if self.public is None else self.part("guide", **self.public),
            "goal": self.part(self.goal, draws=DRAWS, seed=self.seed),
        }

    def _shape(self, table: Table) -> tuple[int, int, int]:
        """Return how many places, periods and kinds there are."""
        *places, period, kind = self.by
        sizes = tuple(table.cells(names) for names in (tuple(places), (period,), (kind,)))
        return sizes[0], sizes[1], sizes[2]

    def _columns(self, level: tuple[int, ...]) -> tuple[str, ...]:
        """Return the columns of a level of the map."""
        groups = (tuple(self.by[:-2]), (self.by[-2],), (self.by[-1],))
        return tuple(name for axis in level for name in groups[axis])

    def _split(self, table: Table, epsilon: Fraction) -> dict[tuple[int, ...], Fraction]:
        """Return the part of what is left of epsilon that each level gets, from public facts.

        Cells get as much as noise under a bound of one record leaves to be seen of one: 1 / (1 + its
        variance). Of the rest a level gets a part in proportion to the root of its cells, which makes the sum
        of all noise least.
        """
        one = self._ask(table, KINDS, "", bound=1, epsilon=self.left(table, epsilon))
        noise = one.standard_deviation / table.grid
        cells = min(max(round(_SHARES / (1 + noise**2)), _LEAST), _LARGEST)
        roots = {level: math.sqrt(table.cells(self._columns(level))) for level in _MEASURED[:-1]}
        rest = sum(roots.values())
        parts: dict[tuple[int, ...], int] = {
            level: max(1, round((_SHARES - cells) * root / rest)) for level, root in roots.items()
        }
        parts[CELLS] = _SHARES - sum(parts.values())
        return {level: Fraction(part, _SHARES) for level, part in parts.items()}

    def ask_counts(self, table: Table, epsilon: Fraction, label: str, *, bound: int) -> tuple[Request, ...]:
        """Return the requests for the counts of all levels under `bound`, for what is left of epsilon."""
        left, split = self.left(table, epsilon), self._split(table, epsilon)
        return tuple(
            self._ask(table, level, label, bound=bound, epsilon=left * split[level]) for level in _MEASURED
        )

    def weigh_noise(self, table: Table, epsilon: Fraction, *, bound: int) -> float:
        """Return the expected absolute value of discrete Laplace noise, with all that is left for cells."""
        ask = self._ask(table, CELLS, "", bound=bound, epsilon=self.left(table, epsilon))
        return 1 / math.sinh(min(1 / float(ask.scale), 300.0)) / table.grid

    def _ask(
        self, table: Table, level: tuple[int, ...], label: str, *, bound: int, epsilon: Fraction
    ) -> Request:
        """Return the request for the counts of a level, with the noise that `epsilon` asks for."""
        by = tuple(self.by)
        sums = None if level == CELLS else _sum_cells(self._shape(table), level)
        counted = CappedMarginal(by, bound, sums) if table.unit.max_records > 1 else Marginal(by, sums)
        return request_laplace(
            table, f"{label}counts of {' x '.join(self._columns(level))}", counted, epsilon
        )

    def _tabulate(self, table: Table, model: MapModel) -> pa.Table:
        expected = (model.expected * model.factor).reshape(-1)
        if self.goal == "pies":
            counts = choose_pies(model, seed=self.seed).reshape(-1)
        else:
            counts = np.floor(expected + 0.5).astype(np.int64)
        return pa.table(
            {
                **cell_columns(table, tuple(self.by)),
                "count": to_arrow(counts),
                "expected": to_arrow(np.round(expected, 3)),
            }
        )


@lru_cache(maxsize=8)
def _sum_cells(shape: tuple[int, int, int], level: tuple[int, ...]) -> Queries:
    """Return the sums of cells that a level consists of."""
    sizes = [size if axis in level else 1 for axis, size in enumerate(shape)]
    rows = math.prod(sizes)
    return sum_groups(np.broadcast_to(np.arange(rows).reshape(sizes), shape).reshape(-1), rows)


def _read(answer: Measurement, level: tuple[int, ...], shape: tuple[int, int, int]) -> Noisy:
    """Return the noisy counts of a level in records, and the scale of their noise."""
    values, _ = in_records(answer)
    sizes = tuple(shape[axis] for axis in level)
    return values.reshape(sizes), float(answer.request.scale / answer.grid)


def _read_guide(path: str, table: Table, by: tuple[str, ...]) -> dict[str, Any]:
    """Return the cells of a public table that have records, and how many."""
    rows, record = open_public(path)
    cells = locate_rows(table, by, [encode_public(table.column(name), rows) for name in by])
    found, times = np.unique(cells[cells >= 0], return_counts=True)
    if not found.size:
        raise RecipeError(f"public table {record['file']!r} has no row in the domains of {' x '.join(by)}")
    return {**record, "counts": pack_numbers(np.stack([np.diff(found, prepend=0), times]), "<i8")}


def _unpack_guide(record: Mapping[str, Any], size: int) -> Floats:
    """Return the count of every cell in the public table."""
    pairs = unpack_numbers(record, "counts", "<i8", most=_MOST_PACKED)
    if pairs is None or pairs.size == 0 or pairs.size % 2:
        raise RecipeError("the counts of the public file cannot be read; plan the recipe from its file again")
    steps, times = pairs.reshape(2, -1)
    cells = np.cumsum(steps)
    if (steps[1:] < 1).any() or cells[0] < 0 or cells[-1] >= size or times.min() < 1 or times.max() > 2**40:
        raise RecipeError(
            "the counts of the public file do not fit the map; plan the recipe from its file again"
        )
    counts = np.zeros(size)
    counts[cells] = times
    return counts
