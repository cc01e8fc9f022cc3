"""Private k-means: noisy counts and sums of records by the nearest of public places, twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95, parse_whole
from sfumato.core.questions.measurement import Measurement
from sfumato.core.questions.moments import SCORE_GRID, Moments
from sfumato.inference.models.clusters import Clusters as Found
from sfumato.inference.models.clusters import (
    choose_centres,
    judge_clusters,
    locate,
    scale_column,
    spread_places,
)
from sfumato.inference.models.design import bound_columns, number_term, number_values
from sfumato.inference.models.document import pack_model
from sfumato.recipes.base import (
    Conversation,
    Expected,
    Plan,
    Product,
    Progress,
    Recipe,
    expect_noise,
    is_column_list,
)
from sfumato.recipes.linear import round_number
from sfumato.recipes.shared.budget import allow_gaussian, calibrate
from sfumato.recipes.shared.model import describe_model
from sfumato.tables.arrays import Floats, Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

_SPREAD = Fraction(1, 20)  # of the budget, for the number of records and their squares
_MOST_CLUSTERS = 64  # each must stand out of the noise
_MOST_PLACES = 256  # to begin with; more would each hold noise alone
_MOST_CODES = 2**20  # of a column
_CROWD = 8  # deviations of the noise that the records of a place should be, if all have as many
_LARGE = 1.0  # deviations from which on a place is a point to find clusters among
_RELEASED = ("cluster", "size", "size_low_95", "size_high_95")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters(Recipe):
    """Up to `clusters` centres of records in the space of `columns`, with their sizes: private k-means.

    Columns are numbers with public bounds, by which they are scaled. Records are counted and added up by the
    nearest of many public places; centres are found among these noisy means, and then measured once more.

    Privacy: a record adds its features to the sums of one place, so that one individual moves all sums of a
    question by at most max_records sqrt(1 + d) in L2 (docs/proofs/clusters.md). All questions together cost
    the Gaussian privacy that (epsilon, delta) admits, charged before the first.

    >>> Clusters(table="people", columns=["age", "income"], clusters=4).kind
    'clusters'
    """

    kind: ClassVar[str] = "clusters"

    columns: Sequence[str]
    clusters: int

    def __post_init__(self) -> None:
        if not is_column_list(self.columns):
            raise RecipeError("clusters: columns must list columns of numbers, none twice")
        most = parse_whole(self.clusters, name="clusters: clusters", low=2, high=_MOST_CLUSTERS)
        self._keep(columns=tuple(self.columns), clusters=most)

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return all that (epsilon, delta) admits of Gaussian privacy, charged before the first question."""
        if len(epsilons) != 1:
            raise RecipeError("clusters: one epsilon; make one release for each")
        self.refuse_no_delta(delta)
        columns = tuple(self.columns)
        self.refuse_clash([*_RELEASED, *columns])
        table = bound_columns(table, columns)
        self._ask(table)
        allowance = (allow_gaussian(table, epsilons[0], delta),)
        return Plan(self, table, epsilons, delta, allowance=allowance, counted=(), clipped=(columns,))

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise of a cluster's size and, if the number of records is known, of its centre."""
        asked = calibrate(plan.table, "size of a cluster", self._ask(plan.table), self._rest(plan))
        noise = replace(expect_noise(plan.table, asked), cells=self.clusters)
        return [noise, *(self._expect_centres(plan, noise, records) if records else ())]

    def _expect_centres(self, plan: Plan, noise: Expected, records: int) -> Iterator[Expected]:
        for name in self.columns:
            half = float(number_term(plan.table.column(name)).half) * self.clusters / records
            yield Expected(
                name=f"centre in {name}",
                cells=None,
                deviation=noise.deviation * half,
                half_width=noise.half_width * half,
            )

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return centres: from sums around many places, then from new sums around what was found there."""
        table = plan.table
        rest = self._rest(plan)
        (answer,) = yield (
            calibrate(table, "squares", self._ask(table, squared=True), plan.mu_squared * _SPREAD),
        )
        counts, squares, _ = _read(answer)
        probe = calibrate(table, "probe", self._ask(table), rest)
        sigma = probe.standard_deviation / probe.counted.grid(table)
        places = min(max(int(float(counts[0]) / (_CROWD * sigma)), 2 * self.clusters), _MOST_PLACES)
        around = spread_places(places, len(self.columns))
        (answer,) = yield (calibrate(table, f"sums around {places} places", self._ask(table, around), rest),)
        points, weights = locate(*_read(answer)[:2], least=_LARGE * sigma)
        centres = choose_centres(points, weights, self.clusters)
        if not len(centres):
            centres = np.zeros((1, len(self.columns)))
        progress("centres")
        (answer,) = yield (calibrate(table, "sums around centres", self._ask(table, centres), rest),)
        found = judge_clusters(*_read(answer)[:2], sigma=sigma)
        total = float(squares[0].sum()) - float(counts[0]) * float((found.middle**2).sum())
        return self._finish(plan, found, sigma=sigma, total=total)

    def _rest(self, plan: Plan) -> Fraction:
        return plan.mu_squared * (1 - _SPREAD) / 2

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        columns = ", ".join(f"`{name}`" for name in self.columns)
        return {"columns": columns, "most": self.clusters}

    def _ask(self, table: Table, centres: Floats | None = None, *, squared: bool = False) -> Moments:
        """Return number of records and the sums of their features, or of squares, by the nearest centre."""
        scores = [self._scale(table, name) for name in self.columns]
        if squared:
            scores = [each**2 // SCORE_GRID for each in scores]
        places = None if centres is None else np.rint(centres * SCORE_GRID).astype(np.int64)
        return Moments(columns=tuple(self.columns), scores=tuple(scores), order=1, centres=places)

    def _scale(self, table: Table, name: str) -> Whole:
        column = table.column(name)
        if column.size > _MOST_CODES:
            raise RecipeError(f"clusters: {name!r} has more than {_MOST_CODES:,} values; declare bins")
        if number_values(column) is None or column.extras:
            raise RecipeError(
                f"clusters: {name!r} must be a number for every record that counts; declare range, bins or "
                "bounds, and neither missing_label nor outside = 'other'"
            )
        return scale_column(column, grid=SCORE_GRID)

    def _finish(self, plan: Plan, found: Found, *, sigma: float, total: float) -> Product:
        terms = [number_term(plan.table.column(name)) for name in self.columns]
        middles = np.array([float(term.middle) for term in terms])
        halves = np.array([float(term.half) for term in terms])
        centres = found.centres * halves + middles
        reach = NORMAL_95 * sigma * (1 if found.found else math.sqrt(self.clusters))
        sizes = [max(0, round(each)) for each in found.sizes.tolist()]
        columns: dict[str, pa.Array] = {
            "cluster": pa.array(range(1, len(sizes) + 1), pa.int64()),
            "size": pa.array(sizes, pa.int64()),
            "size_low_95": pa.array(
                [max(0, round(each - reach)) for each in found.sizes.tolist()], pa.int64()
            ),
            "size_high_95": pa.array(
                [max(0, round(each + reach)) for each in found.sizes.tolist()], pa.int64()
            ),
        }
        for place, name in enumerate(self.columns):
            columns[name] = pa.array(
                [round_number(each) for each in centres[:, place].tolist()], pa.float64()
            )
        explained = min(max(found.gain / total, 0.0), 1.0) if found.found and total > 0 else None
        note = None
        if not found.found:
            of = (
                "of all records"
                if found.sizes[0] > 0
                else "of the bounds, as their number is within its noise"
            )
            note = f"no clusters found beyond the noise; the one centre is that {of}"
        facts = {
            "asked": self.clusters,
            "found": len(sizes) if found.found else 0,
            "gain_over_one_cluster": round_number(found.gain),
            "noise_of_gain": round_number(found.error),
            "explained": None if explained is None else round_number(explained),
            "note": note,
        }
        model = {
            **describe_model(plan, target="cluster", inputs=self.columns, family="clusters"),
            "places": np.rint(found.centres * SCORE_GRID).astype(np.int64).tolist(),
            "centres": [
                [columns[name][place].as_py() for name in self.columns] for place in range(len(sizes))
            ],
            "sizes": sizes,
            "noise_of_size": round_number(reach),
            **facts,
        }
        return Product(
            table=pa.table(columns), files={"model.json": pack_model(model)}, facts={"clusters": facts}
        )


def _read(answer: Measurement) -> tuple[Floats, Floats, float]:
    """Return the counts and the sums of all groups, in records, and the deviation of their noise."""
    question = answer.request.counted
    assert isinstance(question, Moments)
    values = (answer.noisy_values / answer.grid).reshape(question.groups, question.features)
    return values[:, 0], values[:, 1:], answer.request.standard_deviation / answer.grid
