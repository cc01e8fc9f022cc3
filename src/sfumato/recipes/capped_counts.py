"""Counts of every combination of columns, with the bound on records chosen by the records, privately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_positive
from sfumato.questions import (
    CapChoice,
    CappedMarginal,
    Chosen,
    Marginal,
    Measurement,
    Queries,
    Request,
    ask_cost,
    request_sensitivity,
)
from sfumato.recipes.base import Plan, Product, refuse_clash, released_names
from sfumato.recipes.cell_counts import (
    finish_counts,
    parse_by,
    parse_threshold,
    tabulate_counts,
    tell_threshold,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sfumato.accounting import Cost
    from sfumato.questions import Ask
    from sfumato.recipes.base import Conversation
    from sfumato.schema import Table

_MOST_CAPS = 32
_MOST_CELLS = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedCounts:
    """A histogram over every combination of the columns `by`, held to as few records as serve it best.

    Noise grows with the bound on an individual's records, and a lower bound cuts records off. Half of
    `share` of epsilon chooses the bound, up to max_records, that spoils least in total; half pays for
    the number of records, to which the counts are scaled; the rest for the counts.

    Privacy: the three parts are epsilon-DP together, by sequential composition
    (docs/proofs/capped-counts.md).

    >>> CappedCounts(table="incidents", by=("district", "month")).kind
    'capped-counts'
    """

    kind: ClassVar[str] = "capped-counts"

    table: str
    by: Sequence[str]
    share: object = "0.1"
    threshold: object = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", parse_by(self.by, kind=self.kind))
        object.__setattr__(self, "share", parse_positive(self.share, name="capped-counts: share"))
        object.__setattr__(self, "threshold", parse_threshold(self.threshold, kind=self.kind))
        if _exact(self.share) >= 1:
            raise RecipeError("capped-counts: share is a part of epsilon, below 1")

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record."""
        return {
            "recipe": self.kind,
            "table": self.table,
            "by": list(self.by),
            "share": format_exact(_exact(self.share)),
            "threshold": format_exact(_exact(self.threshold)),
        }

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """All of every epsilon, charged before the first question."""
        by = tuple(self.by)
        refuse_clash(self.kind, ["epsilon", "count", *released_names(table, by)])
        if table.cells(by) > _MOST_CELLS:
            raise RecipeError(
                f"capped-counts: {' x '.join(by)} has {table.cells(by):,} cells, more than {_MOST_CELLS:,}; "
                "use fewer columns or coarser domains"
            )
        if table.unit.max_records == 1:
            raise RecipeError(
                "capped-counts: nobody has more than one record that counts, so there is no bound to choose; "
                "use cell-counts"
            )
        return Plan(
            recipe=self,
            table=table,
            requests=(),
            epsilons=epsilons,
            delta=delta,
            allowance=tuple(cost for epsilon in epsilons for cost in self._costs(table, epsilon)),
            counted=(by,),
        )

    def _costs(self, table: Table, epsilon: Fraction) -> tuple[Cost, ...]:
        """The cost of the first questions, and the most that counts cost under any bound."""
        first = tuple(ask_cost(table, ask) for ask in self._first_asks(table, epsilon, ""))
        counts = (
            ask_cost(table, self._counts(table, epsilon, "", bound=cap))
            for cap in list_caps(table.unit.max_records)
        )
        return (*first, max(counts, key=lambda cost: cost.rho))

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Every cell with its count, for every epsilon."""
        several = len(plan.epsilons) > 1
        tables, facts = [], []
        for epsilon in plan.epsilons:
            label = f"epsilon {format_exact(epsilon)}, " if several else ""
            chosen, total = yield self._first_asks(plan.table, epsilon, label)
            assert isinstance(chosen, Chosen)
            assert isinstance(chosen.choice, CapChoice)
            assert isinstance(total, Measurement)
            bound = chosen.choice.caps[chosen.index]
            (counts,) = yield (self._counts(plan.table, epsilon, label, bound=bound),)
            assert isinstance(counts, Measurement)
            factor = _scale_up(counts, total, most=Fraction(plan.table.unit.max_records, bound))
            tables.append(self._finish(counts, factor))
            facts.append({"epsilon": format_exact(epsilon), "records": bound, "scaled_by": f"{factor:.6f}"})
        return Product(
            table=tabulate_counts(plan, tuple(self.by), tables), varied=("count",), facts={"bounds": facts}
        )

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up that are this recipe's own."""
        cells, most = plan.table.cells(tuple(self.by)), plan.table.unit.max_records
        half = format_exact(_exact(self.share) / 2)
        return {
            "idea": (
                f"The release is a histogram of table `{plan.table.name}` over {', '.join(self.by)}, "
                f"{cells:,} cells. How many records of one individual count, up to {most}, is chosen "
                "privately: few records need little noise, many records lose nothing."
            ),
            "preprocessing": (
                f"An empty histogram with {cells:,} cells is laid out from the described domains alone, "
                "which costs nothing."
            ),
            "privatisation": (
                f"A part of {half} of each epsilon chooses the bound c by the exponential mechanism. Its "
                f"score is minus the number of records cut off by c, of at most {most} per individual, minus "
                "the sum over all cells of the noise to be expected, which is public. An individual moves a "
                f"score by at most {most - 1}. A part of {half} pays for the number of records, at the full "
                f"bound of {most}. The rest pays for the "
                "histogram with every individual held to c records, and noise to match."
            ),
            "postprocessing": (
                "The noisy counts are multiplied by one factor, the noisy number of all records over the sum "
                "of the noisy counts, so that what the bound cut off is made up for in total; then they are "
                f"rounded and set to 0 where they are negative.{tell_threshold(_exact(self.threshold))} "
                "All of it uses noisy counts only, so it costs nothing; `measurements.parquet` keeps the "
                "counts as they were."
            ),
        }

    def _first_asks(self, table: Table, epsilon: Fraction, label: str) -> tuple[Ask, ...]:
        """The choice of the bound, and the number of records."""
        half = epsilon * _exact(self.share) / 2
        caps = list_caps(table.unit.max_records)
        cells = table.cells(tuple(self.by))
        scales = (self._counts(table, epsilon, label, bound=cap).scale / table.grid for cap in caps)
        choice = CapChoice(
            name=f"{label}bound on records",
            columns=tuple(self.by),
            caps=caps,
            penalties=tuple(min(math.ceil(cells * scale), 2**61) for scale in scales),
            epsilon=half,
        )
        total = Request(
            name=f"{label}number of records",
            counted=Marginal(tuple(self.by), _sum_all(cells)),
            noise="laplace",
            scale=Fraction(1),
        )
        return choice, replace(total, scale=request_sensitivity(table, total) / half)

    def _counts(self, table: Table, epsilon: Fraction, label: str, *, bound: int) -> Request:
        def ask(scale: Fraction) -> Request:
            return Request(
                name=f"{label}counts of at most {bound} records",
                counted=CappedMarginal(tuple(self.by), bound),
                noise="laplace",
                scale=scale,
            )

        return ask(request_sensitivity(table, ask(Fraction(1))) / (epsilon * (1 - _exact(self.share))))

    def _finish(self, counts: Measurement, factor: float) -> NDArray[np.int64]:
        kept = finish_counts(
            counts.noisy_values,
            threshold=_exact(self.threshold),
            deviation=counts.request.standard_deviation,
            grid=1,
        )
        return np.asarray(np.floor(kept * (factor / counts.grid) + 0.5), np.int64)


@lru_cache(maxsize=4)
def _sum_all(cells: int) -> Queries:
    """The sum of all cells, as one query."""
    ones = np.ones(cells, np.int32)
    return Queries(cells=cells, grid=1, starts=np.array([0, cells]), members=np.arange(cells), weights=ones)


def list_caps(most: int) -> tuple[int, ...]:
    """The bounds that may be chosen: all up to `most`, or steps of about an eighth where that is many.

    >>> list_caps(4)
    (1, 2, 3, 4)
    """
    if most <= _MOST_CAPS:
        return tuple(range(1, most + 1))
    caps = [1]
    while caps[-1] < most:
        caps.append(min(most, max(caps[-1] + 1, caps[-1] * 9 // 8)))
    return tuple(caps)


def _scale_up(counts: Measurement, total: Measurement, *, most: Fraction) -> float:
    """How many records stand behind one that counted, by noisy sums; at least 1, and no more than can be."""
    kept = int(counts.noisy_values.sum()) / counts.grid
    records = int(total.noisy_values.sum()) / total.grid
    if kept <= 0:
        return 1.0
    return min(max(1.0, records / kept), float(most))


def _exact(value: object) -> Fraction:
    assert isinstance(value, Fraction)
    return value
