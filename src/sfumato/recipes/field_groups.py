"""Rows from one noisy histogram per group of columns, groups independent of each other: for wide tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sfumato.accounting import max_mu, mu_to_pure
from sfumato.core.cost.curves import SMOOTHING, sqrt_up
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_positive, round_up
from sfumato.core.questions.counts import Marginal, OccupiedCells
from sfumato.core.questions.measurement import Measurement, Request, in_records, request_sensitivity
from sfumato.inference.domain import Columns
from sfumato.inference.model import draw_codes
from sfumato.recipes.base import Conversation, Plan, Product, Progress, is_column_list, released_names
from sfumato.recipes.shared.counts import Noise, check_noise, finish_counts, request_laplace
from sfumato.recipes.shared.repair import draw_obeying, turn_seed
from sfumato.recipes.shared.rows import RowOptions, build_rows, choose_columns, describe_bins
from sfumato.tables.arrays import Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

LARGEST_LISTED = 2**16
"""Histograms up to this size are released whole; of larger ones, only what passes the cut."""

_LARGEST_GROUP = 2**63 - 1
_MOST_EMPTY = 2**22  # cells that noise alone lifts over the cut, and that are kept
_MOST_ROWS = 10**8  # that noise may ask for
_VAGUE = 10**7  # deviation of the number of records from which on it says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldGroups(RowOptions):
    """Synthetic rows of a wide table: a histogram per group of columns, each row drawn group by group.

    Columns that no group names are groups of their own. Every group has its share of epsilon, an equal
    one unless `weights` says otherwise. `noise` is "laplace", "gaussian", which needs delta, or "auto": the
    one with less noise.

    Privacy: one individual adds at most max_records to each histogram, so Laplace noise of scale
    max_records / (epsilon of the group) on every bin of every group is epsilon-DP, with public domains
    and groups. With delta, groups may share the Gaussian privacy of epsilon and delta instead: Gaussian
    noise on bins that can be listed, Laplace noise on others (docs/proofs/field-groups.md). Bins below the
    cut and rows are post-processing.

    >>> FieldGroups(table="people", groups=[["age", "job"]]).kind
    'field-groups'
    """

    kind: ClassVar[str] = "field-groups"

    record_keys: ClassVar[Columns] = (
        "table", "groups", "cut", "seed", "columns", "weights", "rows", "public", "noise",
        "types",
    )  # fmt: skip
    optional: ClassVar[tuple[str, ...]] = ("columns", "weights", "rows", "public")

    groups: Sequence[Sequence[str]] = ()
    columns: Sequence[str] | None = None
    weights: Sequence[Any] | None = None
    cut: Any = "2.3"
    noise: Noise = "auto"

    def __post_init__(self) -> None:
        check_noise(self.noise, kind=self.kind)
        groups = self.groups
        if not isinstance(groups, (list, tuple)) or not all(is_column_list(group) for group in groups):
            raise RecipeError(
                "field-groups: groups must be a list of lists of columns, such as [['age', 'job']]"
            )
        self._keep_columns("columns")
        named = [name for group in groups for name in group]
        if len(set(named)) != len(named):
            twice = next(name for name in named if named.count(name) > 1)
            raise RecipeError(f"field-groups: column {twice!r} is in two groups")
        self._keep(
            groups=tuple(tuple(group) for group in groups),
            cut=parse_positive(self.cut, name="field-groups: cut"),
        )
        if self.weights is not None:
            if not isinstance(self.weights, (list, tuple)) or len(self.weights) != len(groups):
                raise RecipeError("field-groups: weights must list one number for each of the groups")
            weights = tuple(parse_positive(each, name="field-groups: a weight") for each in self.weights)
            self._keep(weights=weights)
        RowOptions.__post_init__(self)
        if self.rows is not None and self.rows > _MOST_ROWS:
            raise RecipeError(f"field-groups: rows must be at most {_MOST_ROWS:,}")

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one request per group and epsilon."""
        groups = self._find_groups(table)
        columns = tuple(name for group in groups for name in group)
        self.refuse_clash(["epsilon", *released_names(table, columns)])
        recipe = self.with_public(table, columns).with_types((table, columns))
        if self.noise == "gaussian":
            self.refuse_no_delta(delta)
        noise = "laplace" if delta == 0 else self.noise
        recipe = replace(recipe, columns=choose_columns(self, self.columns, table), noise=noise)
        labels = [f"epsilon {format_exact(epsilon)}, " if len(epsilons) > 1 else "" for epsilon in epsilons]
        requests = tuple(
            request
            for epsilon, label in zip(epsilons, labels, strict=True)
            for request in self._choose_noise(table, groups, epsilon, delta, label)
        )
        if self.rows is None:
            _refuse_vague_total(table, requests)
        return Plan(recipe=recipe, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return rows for every epsilon, each drawn from the bins that passed the cut, group by group."""
        answers = yield plan.requests
        count = len(plan.requests) // len(plan.epsilons)
        tables, facts = [], []
        for turn, epsilon in enumerate(plan.epsilons):
            progress("drawing rows")
            rows, known = self._draw_rows(plan, answers[turn * count : (turn + 1) * count])
            tables.append(rows)
            facts.append({"epsilon": format_exact(epsilon), **known})
        return Product(table=plan.stack(tables), facts={"groups": facts})

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        groups = self._find_groups(plan.table)
        columns = tuple(name for group in groups for name in group)
        numbers = describe_bins(plan.table, columns, self.within_bins, self.types)
        large = sum(plan.table.cells(group) > LARGEST_LISTED for group in groups)
        gaussian = any(each.noise == "gaussian" for each in plan.requests)
        shares = "equal shares" if self.weights is None else "shares by stated weights"
        split = self.part("gaussian" if gaussian else "laplace", groups=len(groups), shares=shares)
        return {
            "columns": len(columns),
            "groups": len(groups),
            "several": "; ".join(", ".join(group) for group in groups if len(group) > 1) or "none",
            "split": split,
            "sparse": self.part("sparse", large=large, listed=LARGEST_LISTED) if large else "",
            "cut": format_exact(self.cut) + (self.part("cut") if gaussian else " x scale x log10(bins)"),
            "count": "is given" if self.rows is not None else "is the noisy number of records",
            "numbers": numbers and f" {numbers}",
        }

    def _find_groups(self, table: Table) -> tuple[Columns, ...]:
        """Return the groups that are stated, then every other column by itself."""
        names = choose_columns(self, self.columns, table)
        stated = {name for group in self.groups for name in group}
        unknown = sorted(stated - set(names))
        if unknown:
            raise RecipeError(
                f"field-groups: a group names {unknown[0]!r}, which is no column with a domain of table "
                f"{table.name!r}" + ("" if self.columns is None else ", or is not among `columns`")
            )
        groups = (*map(tuple, self.groups), *((name,) for name in names if name not in stated))
        for group in groups:
            if table.cells(group) > _LARGEST_GROUP:
                raise RecipeError(
                    f"field-groups: the group {', '.join(group)} has more than 2^63 bins; split it, or give "
                    "its columns coarser domains"
                )
        return groups

    def _choose_noise(
        self, table: Table, groups: tuple[Columns, ...], epsilon: Fraction, delta: Fraction, label: str
    ) -> list[Request]:
        """Return the requests of all groups for one epsilon, with the noise that is stated or is less."""
        weights = [*(self.weights or ())]
        weights += [Fraction(1)] * (len(groups) - len(weights))
        shares = [weight / sum(weights) for weight in weights]
        named = [(group, label + name) for group, name in zip(groups, _name_groups(groups), strict=True)]

        def ask(*, squared: Fraction | None) -> list[Request]:
            return [
                self._gaussian_request(table, group, squared * share, name=name)
                if squared is not None and table.cells(group) <= LARGEST_LISTED
                else self._request(
                    table,
                    group,
                    epsilon * share if squared is None else mu_to_pure(squared * share),
                    name=name,
                )
                for (group, name), share in zip(named, shares, strict=True)
            ]

        if delta == 0 or self.noise == "laplace":
            return ask(squared=None)
        gaussian = ask(squared=Fraction(max_mu(epsilon, delta)) ** 2)
        if self.noise == "gaussian":
            return gaussian
        return min(gaussian, ask(squared=None), key=lambda each: sum(one.standard_deviation for one in each))

    def _gaussian_request(self, table: Table, group: Columns, squared: Fraction, *, name: str) -> Request:
        """Return the request whose squared Gaussian privacy is at most `squared`."""
        probe = Request(name=name, counted=Marginal(group), noise="gaussian", scale=Fraction(1))
        variance = request_sensitivity(table, probe) ** 2 / squared + SMOOTHING
        return replace(probe, scale=round_up(sqrt_up(variance), places=6))

    def _request(self, table: Table, group: Columns, epsilon: Fraction, *, name: str) -> Request:
        request = request_laplace(table, name, Marginal(group), epsilon)
        if table.cells(group) <= LARGEST_LISTED:
            return request
        sparse = replace(request, counted=OccupiedCells(group), threshold=self._threshold(table, request))
        if table.cells(group) * sparse.passing > _MOST_EMPTY:
            raise RecipeError(
                f"field-groups: about {table.cells(group) * sparse.passing:,.0f} empty bins of "
                f"{', '.join(group)} would pass the cut; raise `cut`, or split the group"
            )
        return sparse

    def _threshold(self, table: Table, request: Request) -> int:
        """Return the least noisy value that is kept, in units of 1 / grid."""
        bins = Fraction(round(math.log10(table.cells(request.columns)) * 10**6), 10**6)
        if request.noise == "gaussian":
            # As likely to be reached by an empty bin as the cut of Laplace noise.
            chance = max(math.exp(-float(self.cut * bins)) / 2, 1e-300)
            return max(1, math.ceil(round(-NormalDist().inv_cdf(chance), 6) * float(request.scale)))
        return max(1, math.ceil(Fraction(self.cut) * request.scale * bins))

    def _draw_rows(self, plan: Plan, answers: tuple[Measurement, ...]) -> tuple[pa.Table, dict[str, Any]]:
        count = self.rows
        if count is None:
            count = min(max(0, round(_estimate_total(answers))), _MOST_ROWS)
        groups = [measurement.request.columns for measurement in answers]
        passed = [self._cut(plan.table, measurement) for measurement in answers]
        empty = [list(group) for group, (_, counts) in zip(groups, passed, strict=True) if not counts.any()]

        def draw(rows: int, turn: int) -> dict[str, Whole]:
            codes: dict[str, Whole] = {}
            seed = turn_seed(self.seed, turn)
            for place, (group, (cells, counts)) in enumerate(zip(groups, passed, strict=True)):
                codes |= _draw_group(plan.table, group, cells, counts, count=rows, seed=seed, turn=place)
            return codes

        columns = tuple(name for group in groups for name in group)
        codes = draw_obeying(plan.table, columns, draw, rows=count, seed=self.seed)
        places: dict[str, int] = {}
        released = 0
        for group in groups:
            places |= {name: released + place for place, name in enumerate(group, start=1)}
            released += len(released_names(plan.table, group))
        table = build_rows(
            plan.table,
            columns,
            codes,
            seed=self.seed,
            places=places,
            public=self.within_bins,
            types=self.types,
        )
        facts = {"rows": count, **({"nothing_passed": empty} if empty else {})}
        names = released_names(plan.table, choose_columns(self, self.columns, plan.table))
        return table.select([*names, *(name for name in table.column_names if name not in names)]), facts

    def _cut(self, table: Table, measurement: Measurement) -> tuple[Whole | None, Whole]:
        """Return the bins of a group, None for all, and their counts after cut and rounding."""
        least = measurement.request.threshold or self._threshold(table, measurement.request)
        return measurement.cells, finish_counts(
            measurement.noisy_values, threshold=Fraction(least), deviation=1.0, grid=measurement.grid
        )


def _draw_group(
    table: Table,
    group: Columns,
    cells: Whole | None,
    counts: Whole,
    *,
    count: int,
    seed: int,
    turn: int,
) -> dict[str, Whole]:
    """Codes for the columns of a group; with no count at all, every column's values have equal chance."""
    sizes = {name: table.column(name).size for name in group}
    if not counts.any() and cells is not None:
        return {
            name: draw_codes(np.ones(size), count, seed=seed, turn=1000 * (turn + 1) + place)
            for place, (name, size) in enumerate(sizes.items())
        }
    drawn = draw_codes(counts.astype(np.float64), count, seed=seed, turn=turn)
    bins = drawn if cells is None else cells[drawn]
    codes: dict[str, Whole] = {}
    for name in reversed(group):
        bins, codes[name] = np.divmod(bins, sizes[name])
    return {name: codes[name] for name in group}


def _name_groups(groups: tuple[Columns, ...]) -> list[str]:
    """Return a name of its own for every group, whatever its columns are called."""
    names = [" x ".join(group) for group in groups]
    return [
        name if names.count(name) == 1 else f"group {number}: {name}"
        for number, name in enumerate(names, start=1)
    ]


def _refuse_vague_total(table: Table, requests: tuple[Request, ...]) -> None:
    """Raises an error if noise alone could ask for more rows than anybody wants."""
    deviation = min(
        math.sqrt(min(table.cells(each.columns), LARGEST_LISTED)) * each.standard_deviation / table.grid
        for each in requests
    )
    if deviation > _VAGUE:
        raise RecipeError(
            f"field-groups: the number of records would be known to within {deviation:,.0f} only; give "
            "`rows`, or spend more epsilon"
        )


def _estimate_total(measurements: Sequence[Measurement]) -> float:
    """Return number of records: the mean of what whole histograms sum up to, the less noisy the weightier.

    Where no histogram was released whole, the largest sum of what passed.
    """
    whole = [each for each in measurements if each.cells is None]
    if not whole:
        return max(float(in_records(each)[0].sum()) for each in measurements)
    sums = np.array([in_records(each)[0].sum() for each in whole])
    weights = np.array([1 / (each.noisy_values.size * in_records(each)[1] ** 2) for each in whole])
    return float((sums * weights).sum() / weights.sum())
