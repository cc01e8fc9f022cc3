"""The distribution of a column: its cumulative counts, and with them all quantiles at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sfumato.accounting import calibrate_scale
from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95, format_exact
from sfumato.core.facts.domain import Bins
from sfumato.core.law import Kind
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Request, in_records, request_sensitivity
from sfumato.core.questions.question import Queries
from sfumato.inference.models.cumulative import Cumulative, choose_widths, estimate_cumulative
from sfumato.inference.models.design import bound_columns, code_ends, code_values
from sfumato.inference.models.document import pack_model
from sfumato.recipes.base import (
    Conversation,
    Expected,
    Plan,
    Product,
    Progress,
    Recipe,
    cell_columns,
    released_names,
)
from sfumato.recipes.shared.counts import Noise, check_noise, list_kinds
from sfumato.recipes.shared.model import describe_model

if TYPE_CHECKING:
    from sfumato.core.facts.column import Column
    from sfumato.core.facts.table import Table

STEPS = 1024
"""Equal steps between the bounds of a column that has bounds and no domain."""

_MOST_STEPS = 2**16  # cells of the column: the noise of more is wider than they are
_MOST_CELLS = 2**18  # of column and groups together
_PLACES = 6  # of shares that are released: what libraries add up in another order is beyond them
_RELEASED = ("count", "share", "low_95", "high_95")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles(Recipe):
    """The cumulative distribution of `column`, whole or for every label of a public column `by`.

    Counts of intervals of several widths, each level with its part of the budget, are made consistent and
    monotone. Any quantile is then read off, at no further cost.

    Privacy: one individual adds at most max_records to every level, in L1 and in L2, so that levels with
    Laplace noise cost epsilon together, or with Gaussian noise what (epsilon, delta) admits
    (docs/proofs/quantiles.md). With delta above zero the noise with the smaller error is taken, unless
    `noise` names one.

    >>> Quantiles(table="people", column="income", by="region").kind
    'quantiles'
    """

    kind: ClassVar[str] = "quantiles"

    column: str
    by: str | None = None
    noise: Noise = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise RecipeError("quantiles: column must name the column whose distribution is released")
        if self.by is not None and (not isinstance(self.by, str) or self.by == self.column):
            raise RecipeError("quantiles: by must name one other column, whose labels are the groups")
        check_noise(self.noise, kind=self.kind)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that are counted."""
        return (self.column,) if self.by is None else (self.by, self.column)

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one request per level of the tree that promises the least error."""
        if len(epsilons) != 1:
            raise RecipeError("quantiles: a distribution has one epsilon; make one release for each")
        table = bound_columns(table, self.columns, steps=STEPS)
        size = _check_order(table.column(self.column))
        advice = f"declare bins for {self.column!r}, or group by fewer labels"
        self.refuse_cells(table, self.columns, _MOST_CELLS, advice=advice)
        self.refuse_clash([*_RELEASED, self.column, *released_names(table, self.columns[:-1])])
        _, requests = self._choose_requests(table, size, epsilons[0], delta)
        return Plan(recipe=self, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise of the number of records up to a value, of all levels together."""
        size = _check_order(plan.table.column(self.column))
        error, _ = self._choose_requests(plan.table, size, plan.epsilons[0], plan.delta)
        groups = 1 if self.by is None else plan.table.column(self.by).size
        name = f"records up to a value of {self.column}"
        return [Expected(name=name, cells=groups, deviation=error, half_width=NORMAL_95 * error)]

    def _choose_requests(
        self, table: Table, size: int, epsilon: Fraction, delta: Fraction
    ) -> tuple[float, tuple[Request, ...]]:
        kinds = list_kinds(self.noise, delta)
        found = (_list_requests(table, self.columns, size, kind, epsilon, delta) for kind in kinds)
        return min(found, key=lambda each: each[0])

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return the cumulative counts of every group, from noisy counts of all levels."""
        answers = yield plan.requests
        groups = 1 if self.by is None else plan.table.column(self.by).size
        column = plan.table.column(self.column)
        size = _check_order(column)
        values, widths, variances = [], [], []
        for answer in answers:
            counts, deviation = in_records(answer)
            values.append(counts.reshape(groups, -1))
            widths.append(int(answer.request.name.rpartition(" ")[2]))
            variances.append(deviation**2)
        reach = plan.requests[0].law.shape.reach
        found = estimate_cumulative(values, widths, variances, reach=reach)
        table = self._tabulate(plan, column, size, found)
        unknown = int(np.isnan(found.shares[:, 0]).sum())
        model = {
            **describe_model(plan, target=self.column, inputs=self.columns[:-1], family="distribution"),
            "ends": _list_ends(column),
            "whole": not isinstance(column.domain, Bins),
            "low": format_exact(code_ends(column.domain)[0]),
            **{name: table[name].to_pylist() for name in _RELEASED},
        }
        facts = {"levels": widths, "groups": groups, "groups_within_noise": unknown}
        return Product(table=table, files={"model.json": pack_model(model)}, facts=facts, varied=("count",))

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        return {
            "column": self.column,
            "groups": "" if self.by is None else f", for every label of `{self.by}`",
            "size": plan.table.column(self.column).size,
            "levels": len(plan.requests),
        }

    def _tabulate(self, plan: Plan, column: Column, size: int, found: Cumulative) -> pa.Table:
        """Return a row for every cell of every group: its upper end, and what is counted up to it."""
        groups = found.counts.shape[0]
        columns: dict[str, pa.Array] = {}
        if self.by is not None:
            for name, labels in cell_columns(plan.table, (self.by,)).items():
                columns[name] = labels.take(pa.array(np.repeat(np.arange(groups), size)))
        columns[self.column] = pa.array(_list_ends(column) * groups)
        columns["count"] = pa.array(np.rint(found.counts).astype(np.int64).reshape(-1))
        for name, shares in (("share", found.shares), ("low_95", found.low), ("high_95", found.high)):
            rounded = np.round(shares, _PLACES).reshape(-1) + 0.0
            columns[name] = pa.array(rounded, pa.float64(), mask=np.isnan(rounded))
        return pa.table(columns)


def _check_order(column: Column) -> int:
    """Return the number of cells in their order; raises an error if they have none."""
    if column.size > _MOST_STEPS:
        raise RecipeError(
            f"quantiles: {column.name!r} has {column.size:,} values, more than {_MOST_STEPS:,}; declare bins"
        )
    values = code_values(column.domain)
    if values is None or any(one >= two for one, two in pairwise(values)):
        raise RecipeError(
            f"quantiles: the values of {column.name!r} have no order; declare range, bins or bounds, or list "
            "whole numbers in ascending order"
        )
    return len(values)


def _list_ends(column: Column) -> list[int] | list[float]:
    """Return the upper end of every cell: the number itself, or of a bin its upper edge."""
    if isinstance(column.domain, Bins):
        return [float(edge) for edge in column.domain.edges[1:]]
    values = code_values(column.domain)
    assert values is not None
    return [int(each) for each in values]


def _list_requests(
    table: Table, columns: tuple[str, ...], size: int, noise: Kind, epsilon: Fraction, delta: Fraction
) -> tuple[float, tuple[Request, ...]]:
    """Return the error to be expected of the best tree with this noise, and the requests for its levels."""
    probe = Request(name="level", counted=Marginal(columns), noise=noise, scale=Fraction(1))
    sensitivity = request_sensitivity(table, probe)

    def scale(levels: int) -> Fraction:
        return calibrate_scale(noise, epsilon=epsilon, delta=delta, sensitivity=sensitivity, count=levels)

    def ask(width: int, levels: int) -> Request:
        queries = _sum_intervals(table, columns, size, width)
        name = f"counts of intervals of {width}"
        return Request(name=name, counted=Marginal(columns, queries), noise=noise, scale=scale(levels))

    def deviation(levels: int) -> float:
        return Request(
            name="level", counted=Marginal(columns), noise=noise, scale=scale(levels)
        ).standard_deviation

    widths, error = choose_widths(size, deviation=deviation)
    return error, tuple(ask(width, len(widths)) for width in widths)


def _sum_intervals(table: Table, columns: tuple[str, ...], size: int, width: int) -> Queries | None:
    """Sums over intervals of `width` cells in every group; missing and other values are in none of them."""
    stride = table.column(columns[-1]).size
    cells = table.cells(columns)
    if width == 1 and stride == size:
        return None
    groups = cells // stride
    members = (np.arange(groups)[:, None] * stride + np.arange(size)[None, :]).reshape(-1)
    inner = np.arange(0, size, width)
    starts = np.append((np.arange(groups)[:, None] * size + inner[None, :]).reshape(-1), members.size)
    weights = np.ones(members.size, np.int64)
    return Queries(cells=cells, grid=1, starts=starts, members=members, weights=weights)
