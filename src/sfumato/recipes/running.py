"""Series that go on: counts and running totals of every period as records arrive, under one charge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sfumato.accounting import calibrate_scale
from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95, format_exact, parse_whole, round_up
from sfumato.core.law import SHAPES
from sfumato.core.questions.measurement import Request, in_records, request_sensitivity
from sfumato.core.questions.series import MOST_PERIODS, SERIES_GRID, RunningSums
from sfumato.inference.models.series import choose_weights, estimate_sums, half_widths
from sfumato.recipes.base import (
    MOST_ANSWERS,
    Conversation,
    Plan,
    Product,
    Progress,
    Recipe,
    cell_columns,
    released_names,
    write_part,
)
from sfumato.recipes.shared.counts import Noise, check_noise, list_kinds
from sfumato.tables.arrays import Floats

if TYPE_CHECKING:
    from sfumato.core.facts.column import Column
    from sfumato.core.facts.table import Table
    from sfumato.core.questions.series import Late

_MOST_WINDOWS = 12
_SLACK = 1e-6  # of a record: what adding up in another order may change


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Recipe):
    """Counts and running totals of every value of `period`, for each combination of `by`, as they arrive.

    The values of `period` in their order are all periods of the series, of which those up to `through` are
    released now; what the table holds of a period counts when that period is first released. `windows` adds
    sums of the last so many periods, `change` the difference to the period before. Records that come `late`
    do not count ("drop") or count in the next period ("carry"). With `noise` "laplace" every period is
    counted by itself, with "gaussian" weighted sums of all arrivals are measured; "auto" takes what errs less
    in the last total.

    Privacy: one charge pays for all periods. One individual counts at most max_records times in all of them,
    whatever becomes of the table, and every period is answered once (docs/proofs/running.md).

    >>> Running(table="incidents", period="month", by=("district",), through="2025-03").kind
    'running'
    """

    kind: ClassVar[str] = "running"
    optional: ClassVar[tuple[str, ...]] = ("through",)
    former: ClassVar[Mapping[str, Any]] = {"noise": "gaussian"}

    period: str
    through: str | int | None = None
    by: Sequence[str] = ()
    windows: Sequence[int] = ()
    change: bool = False
    late: Late = "drop"
    noise: Noise = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.period, str) or not self.period:
            raise RecipeError("running: period must name the column whose values are the periods, in order")
        if isinstance(self.through, bool) or not isinstance(self.through, (str, int, type(None))):
            raise RecipeError(
                "running: through must be the last period to release now, a value of its column"
            )
        self._keep_columns("by", empty=True)
        if self.period in self.by:
            raise RecipeError(f"running: {self.period!r} is the column of the periods, so it is not in by")
        if not isinstance(self.windows, (list, tuple)) or len(self.windows) > _MOST_WINDOWS:
            raise RecipeError(f"running: windows must list at most {_MOST_WINDOWS} numbers of periods")
        windows = [
            parse_whole(each, name="running: windows", low=2, high=MOST_PERIODS) for each in self.windows
        ]
        if len(set(windows)) != len(windows):
            raise RecipeError("running: windows lists a number twice")
        if not isinstance(self.change, bool):
            raise RecipeError("running: change must be true or false")
        if self.late not in ("drop", "carry"):
            raise RecipeError("running: late must be 'drop' or 'carry'")
        check_noise(self.noise, kind=self.kind)
        self._keep(windows=tuple(windows))

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one request for all periods up to `through`, at the cost of the whole horizon."""
        if len(epsilons) != 1:
            raise RecipeError("running: a series has one epsilon, for all periods; make one series for each")
        if table.unit.window is not None:
            raise RecipeError(
                "running: a series is charged once for all its periods, which a window does not read; take "
                "the window away (every period's records then count in their own period only), or release "
                "each window with another recipe"
            )
        column = table.column(self.period)
        if column.size > MOST_PERIODS:
            raise RecipeError(
                f"running: {self.period!r} has {column.size:,} periods, and a series at most {MOST_PERIODS:,}"
            )
        columns = (self.period, *self.by)
        self.refuse_cells(table, columns, MOST_ANSWERS, advice="use fewer columns or fewer periods")
        periods = _place(column, self.through)
        self.refuse_clash([*self._released(), *released_names(table, columns)])
        requests = []
        for kind in list_kinds(self.noise, delta):
            question = RunningSums(
                columns=columns,
                weights=choose_weights(SHAPES[kind].norm, column.size, grid=SERIES_GRID),
                periods=periods,
                late=self.late,
            )
            question.check(table)
            probe = Request(name="weighted sums of arrivals", counted=question, noise=kind, scale=Fraction(1))
            sensitivity = request_sensitivity(table, probe)
            scale = calibrate_scale(kind, sensitivity=sensitivity, epsilon=epsilons[0], delta=delta)
            requests.append(replace(probe, scale=scale))
        best = min(requests, key=_last_total)
        return Plan(self, table, epsilons, delta, requests=(best,), series=True)

    def forecast(self, plan: Plan, records: int | None) -> str:
        """Return what is measured, why, and the error of the last total by that."""
        return self._tell_choice(plan, first="the")

    def _tell_choice(self, plan: Plan, *, first: str) -> str:
        (request,), why = plan.requests, ""
        if self.noise == "auto" and plan.delta == 0:
            why = self.part("without_delta")
        elif self.noise == "auto":
            (other,) = (each for each in list_kinds("auto", plan.delta) if each != request.noise)
            against = replace(self, noise=other).plan(plan.table, epsilons=plan.epsilons, delta=plan.delta)
            why = self.part("why", **_tell_error(against.requests[0], what="other"))
        return self.part("chosen", first=first, why=why, **_tell_error(request, what="this"))

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return every period so far with its counts, totals, windows and changes, and their intervals."""
        (answer,) = yield plan.requests
        question = answer.request.counted
        assert isinstance(question, RunningSums)
        noisy, deviation = in_records(answer)
        sums = noisy.reshape(question.periods, -1)
        weights = np.array(question.weights) / SERIES_GRID
        size, cells = sums.size, sums.shape[1]
        columns = {
            name: labels.slice(0, size) for name, labels in cell_columns(plan.table, question.columns).items()
        }
        facts = {}
        for name, lags in self._answers(question.periods).items():
            found = estimate_sums(sums, weights, deviation, answer=lags)
            half = half_widths(found, deviation, shape=answer.request.law.shape)
            columns |= _tabulate(name, found.values, half, cells)
            facts[f"{name}_95"] = f"{float(half[-1]):.6g}"
        worst = NORMAL_95 * _worst_total(question, deviation)
        alone = NORMAL_95 * deviation * math.sqrt(question.horizon) / _norm(question)
        told = {
            "periods": question.periods,
            "horizon": question.horizon,
            **facts,
            "last_total_95": f"{worst:.6g}",
            "last_total_of_independent_counts_95": f"{alone:.6g}",
        }
        return Product(table=pa.table(columns), varied=tuple(self._released()), facts={"series": told})

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        question = plan.requests[0].counted
        assert isinstance(question, RunningSums)
        unit, noise = plan.table.unit, plan.requests[0].noise
        norm = format_exact(round_up(_norm(question), places=6))
        factor = "2" if plan.requests[0].law.norm == "L1" else "sqrt(2)"
        return {
            "period": self.period,
            "periods": question.periods,
            "horizon": question.horizon,
            "by": f" for every combination of {', '.join(self.by)}" if self.by else "",
            "most": "1 record, itself" if unit.column is None else f"at most {unit.max_records} records",
            "measured": self.part(f"measured_{noise}", norm=norm),
            "spread": self.part(f"spread_{noise}"),
            "chosen": f" {self._tell_choice(plan, first='The')}." if self.noise == "auto" else "",
            "late": self.part(self.late),
            "exchanged": self.part("exchanged", factor=factor) if unit.neighbours == "replace" else "",
        }

    def _released(self) -> list[str]:
        """Return the names of the released numbers."""
        names = ["count", "total", *(f"last_{each}" for each in self.windows)]
        names += ["change"] if self.change else []
        return [f"{name}{end}" for name in names for end in ("", "_low_95", "_high_95")]

    def _answers(self, periods: int) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """By name, the weight of what arrived k periods before, for every k."""
        lags = np.arange(periods)
        answers = {"count": (lags == 0) * 1.0, "total": np.ones(periods)}
        answers |= {f"last_{each}": (lags < each) * 1.0 for each in self.windows}
        if self.change:
            answers["change"] = (lags == 0) * 1.0 - (lags == 1)
        return answers


def _place(column: Column, through: str | int | None) -> int:
    """Return how many periods there are up to `through`."""
    if through is None:
        raise RecipeError(
            "running: say through which period to release now, such as through = '2025-03' or --through; a "
            "period that is released once is never counted again, so release it when its records are there"
        )
    labels = [str(label) for label in column.labels]
    if str(through) not in labels:
        raise RecipeError(
            f"running: {str(through)[:40]!r} is no period of {column.name!r}, which go from {labels[0]!r} to "
            f"{labels[-1]!r}"
        )
    return labels.index(str(through)) + 1


def _norm(question: RunningSums) -> float:
    """Return the L2 norm of the weights of one arrival."""
    return math.sqrt(sum(each * each for each in question.weights)) / SERIES_GRID


def _last_total(request: Request) -> float:
    """Return the standard deviation of the last total of the horizon, in records.

    The totals of independent counts are their sums, those of the square root its rows once more.
    """
    question = request.counted
    assert isinstance(question, RunningSums)
    factor = math.sqrt(question.horizon) if request.law.norm == "L1" else _norm(question)
    return request.standard_deviation / SERIES_GRID * factor


def _tell_error(request: Request, *, what: str) -> dict[str, str]:
    """Return the 95 % error of the last total of the horizon, and what it is measured by."""
    measured = write_part("running", "counts" if request.law.norm == "L1" else "sums")
    return {what: measured, "error": f"{NORMAL_95 * _last_total(request):.4g}"}


def _worst_total(question: RunningSums, deviation: float) -> float:
    """Return the standard deviation of the noise of the last total of the horizon."""
    weights = np.array(question.weights) / SERIES_GRID
    empty = np.zeros((question.horizon, 1))
    return float(estimate_sums(empty, weights, deviation, answer=np.ones(question.horizon)).deviations[-1])


def _tabulate(name: str, values: Floats, half: Floats, cells: int) -> dict[str, pa.Array]:
    """Return one released number with its interval. Counts are not below zero; a change may be."""
    least = -np.inf if name == "change" else 0.0
    half, values = np.repeat(half, cells), values.reshape(-1)
    low, high = (np.maximum(each, least) for each in (values - half, values + half))
    return {
        name: to_arrow(np.rint(np.maximum(values, least)).astype(np.int64)),
        f"{name}_low_95": to_arrow(np.floor(low + _SLACK).astype(np.int64)),
        f"{name}_high_95": to_arrow(np.ceil(high - _SLACK).astype(np.int64)),
    }
