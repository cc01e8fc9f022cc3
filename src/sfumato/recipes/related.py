"""Recipe `related`: synthetic parents and their children, or sequences of records by person.

One graphical model has the columns of a parent, the number of its children, and the columns of a child and of
the child before it. Parents are drawn from it, then each child given its parent and the one before, so that
keys fit by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact
from sfumato.core.facts.family import relate_tables
from sfumato.core.facts.table import Family, Table
from sfumato.inference.conditional import Conditional
from sfumato.inference.files import quantise
from sfumato.inference.model import draw_places, number_cells
from sfumato.recipes.adaptive import Adaptive
from sfumato.recipes.base import Conversation, Expected, Plan, Product, Progress, released_names
from sfumato.recipes.shared.budget import RemainingBudget, allow_gaussian
from sfumato.recipes.shared.rows import RowOptions, build_rows, choose_columns, describe_bins, model_domain
from sfumato.tables.arrays import Whole
from sfumato.tables.read import table_to_csv, table_to_parquet

if TYPE_CHECKING:
    from sfumato.inference.model import Model
    from sfumato.recipes.shared.compression import Compression

_PLACE = "place"
_MODEL_CELLS = 2**18  # every child is drawn from slices of the model's tables
_MOST_COUNTED = 2**27
_MOST_ROWS = 2**24  # of either table

# How children are drawn anew until they agree with the model; none of it touches what is charged.
_COMPARED = 2**14  # children that are drawn to be compared
_TURNS = 5  # of correction of what is drawn, which settles by then
_STEP = 0.5  # of the correction in logarithms: half, so that two columns do not overshoot together
_PRIOR = 1.0  # parents, added to both sides so that rare cells are left as they are
_MOST_FACTOR = 4.0  # by which one turn corrects a count


@dataclass(frozen=True, slots=True, kw_only=True)
class Related(RowOptions):
    """Synthetic rows of a table of children and of the table of their parents, which it refers to.

    `table` names the children. Of a table without references, rows are sequences of records of one
    individual. `columns` are those of the children, `parent_columns` those of the parents, by default all
    that have a domain. `order` names the column by which siblings follow each other. `rows` is the number of
    parents.

    Privacy: an individual with n records of a parent and a child counts 1 / n in each, so it adds at most one
    record to any marginal; all choices and measurements together cost at most the Gaussian privacy that
    (epsilon, delta) admits, charged before the first of them (docs/proofs/related.md).

    >>> Related(table="visits", order="date").kind
    'related'
    """

    kind: ClassVar[str] = "related"
    record_keys: ClassVar[tuple[str, ...]] = (
        "table", "columns", "parent_columns", "order", "public", "seed", "rows", "types"
    )  # fmt: skip

    columns: Sequence[str] | None = None
    parent_columns: Sequence[str] | None = None
    order: str | None = None

    def __post_init__(self) -> None:
        self._keep_columns("columns")
        self._keep_columns("parent_columns", empty=True)
        if self.order is not None and (not isinstance(self.order, str) or not self.order):
            raise RecipeError("related: order must name a column of the table of children")
        RowOptions.__post_init__(self)

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one allowance per epsilon: all that (epsilon, delta) admits of Gaussian privacy."""
        family = self._find_family(table)
        records = relate_tables(family)
        domain = model_domain(records, tuple(records.columns))
        counted = self._model(family).list_counted(domain)
        self.refuse_no_delta(delta)
        cells = sum(domain.cells(columns) for columns in counted)
        if cells > _MOST_COUNTED:
            raise RecipeError(
                f"related: the marginals that may be chosen have {cells:,} cells together, more than "
                f"{_MOST_COUNTED:,}; use fewer columns or coarser domains"
            )
        recipe = self.with_public(table, family.columns)._with_types(family)
        allowance = tuple(allow_gaussian(records, epsilon, delta) for epsilon in epsilons)
        return Plan(recipe, records, epsilons, delta, allowance=allowance, counted=counted)

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise of single columns, and of pairs as far as the number of records tells it."""
        assert plan.table.family is not None
        return self._model(plan.table.family).expect(plan, records)

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return parents and children of a model of what was measured, for one epsilon after the other."""
        family = plan.table.family
        assert family is not None
        domain = model_domain(plan.table, tuple(plan.table.columns))
        children: list[pa.Table] = []
        parents: list[pa.Table] = []
        facts = []
        for epsilon, cost in zip(plan.epsilons, plan.costs, strict=True):
            assert cost.mu_squared is not None
            budget = RemainingBudget(plan.table, mu_squared=cost.mu_squared)
            label = plan.label(epsilon)
            fitting = yield from self._model(family).measure(budget, domain, label, progress)
            assert fitting.model is not None
            model = quantise(fitting.model)
            progress("drawing children")
            measured = tuple(dict.fromkeys(noisy.columns for noisy in fitting.noisy))
            above, below = self._draw(_Drawing(family, model, fitting.compression, measured))
            parents.append(above)
            children.append(below)
            facts.append(
                {
                    "epsilon": format_exact(epsilon),
                    "parents": above.num_rows,
                    "rows": below.num_rows,
                    "cliques": [list(clique) for clique in model.tree.cliques],
                }
            )
        files = {}
        reference = family.child.reference
        if reference is not None:
            stacked = plan.stack(parents)
            varied = (reference.key,)
            files = {
                "parents.csv": table_to_csv(stacked),
                "parents.parquet": table_to_parquet(stacked, varied=varied),
            }
        return Product(table=plan.stack(children), files=files, facts={"models": facts})

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        family, unit = plan.table.family, plan.table.unit
        assert family is not None
        return {
            "child": family.child.name,
            "parent": "individual" if family.parent is None else f"row of `{family.parent.name}`",
            "unit": unit.column,
            "most": family.child.unit.max_records,
            "order": "a digest of their own codes" if family.order is None else f"`{family.order}`",
            "grid": plan.table.grid,
            "orphans": self.part("orphans") if family.parent is not None else "",
            "bins": describe_bins(family.child, family.columns, self.within_bins, self.types),
            "exchanged": self.part("exchanged") if unit.neighbours == "replace" else "",
        }

    def _find_family(self, table: Table) -> Family:
        child = table if table.family is None else table.family.child
        parent = None if child.reference is None else child.reference.table
        if parent is None and self.parent_columns:
            raise RecipeError(
                f"related: table {child.name!r} refers to no table of parents, so there are no "
                'parent_columns; declare references = {column = "parents.key"} in the project file'
            )
        columns = choose_columns(self, self.columns, child)
        above = () if parent is None else choose_columns(self, self.parent_columns, parent, least=0)
        key = child.unit.column if child.reference is None else child.reference.column
        assert key is not None or child.unit.column is None
        place = [] if self.order is None else [_PLACE]
        self.refuse_clash(["epsilon", str(key), *place, *released_names(child, columns)])
        if parent is not None and child.reference is not None:
            self.refuse_clash(["epsilon", child.reference.key, *released_names(parent, above)])
        return Family(child=child, columns=columns, parent_columns=above, order=self.order)

    def _with_types(self, family: Family) -> Self:
        if self.order is not None and self.order in (self.types or {}):
            raise RecipeError(
                f"related: types: a date drawn for {self.order!r} could contradict the order of siblings; "
                "leave it out"
            )
        child, reference = family.child, family.child.reference
        keys = [child.unit.column if reference is None else reference.column, self.order, _PLACE]
        described = [(child, family.columns)]
        if reference is not None:
            keys.append(reference.key)
            described.append((reference.table, family.parent_columns))
        return self.with_types(*described, taken=[key for key in keys if key is not None])

    def _model(self, family: Family) -> Adaptive:
        """Return recipe for the model: pairs of what is drawn with what is known, and among what is drawn."""
        above = [*map(family.of_parent, family.parent_columns), family.number]
        own = [family.of_child(name) for name in family.columns]
        before = [family.of_previous(name) for name in family.columns]
        wanted: list[tuple[str, ...]] = [*combinations(above, 2), *product(above, own)]
        wanted += [*combinations(own, 2), *product(own, before)]
        wanted += [(family.number, family.later, name) for name in own]
        if family.order in family.columns and family.order is not None:
            ordered = family.of_previous(family.order), family.of_child(family.order)
            wanted.append((family.number, *ordered))
        workload = [{"columns": list(columns)} for columns in wanted]
        return Adaptive(table=family.child.name, workload=workload, model_cells=_MODEL_CELLS)

    def _draw(self, drawing: _Drawing) -> tuple[pa.Table, pa.Table]:
        """Return both tables: parents, and their children with keys that fit."""
        family, model = drawing.family, drawing.model
        count = min(round(model.total), _MOST_ROWS) if self.rows is None else self.rows
        codes = drawing.compression.expand(model.sample(count, seed=self.seed), seed=self.seed)
        numbers = _draw_numbers(family, codes[family.number], seed=self.seed)
        ends = np.cumsum(numbers)
        kept = int(np.searchsorted(ends, _MOST_ROWS, side="right"))
        above = [*map(family.of_parent, family.parent_columns), family.number]
        codes = {name: codes[name][:kept] for name in above}
        numbers, ends = numbers[:kept], ends[:kept]
        drawn = drawing.draw_children(codes, numbers, seed=self.seed)
        keys = np.arange(1, kept + 1)
        child, reference = family.child, family.child.reference
        rows = build_rows(
            child,
            family.columns,
            {name: drawn[family.of_child(name)] for name in family.columns},
            seed=self.seed,
            public=self.within_bins,
            types=self.types,
        )
        if family.order is not None:
            place = np.arange(int(numbers.sum())) - np.repeat(ends - numbers, numbers) + 1
            rows = rows.add_column(0, _PLACE, to_arrow(place))
        key = str(child.unit.column if reference is None else reference.column)
        rows = rows.add_column(0, key, to_arrow(np.repeat(keys, numbers)))
        if reference is None:
            return pa.table({key: to_arrow(keys)}), rows
        heads = {reference.key: to_arrow(keys)}
        if family.parent_columns:
            built = build_rows(
                reference.table,
                family.parent_columns,
                {name: codes[family.of_parent(name)] for name in family.parent_columns},
                seed=self.seed,
                places={
                    name: place
                    for place, name in enumerate(family.parent_columns, start=len(family.columns) + 1)
                },
                types=self.types,
            )
            heads |= {name: built[name] for name in built.column_names}
        return pa.table(heads), rows


class _Drawing:
    """Children given their parents, drawn from a model of both, and drawn anew until they agree with it.

    The model does not know how what is known hangs together: a parent's columns with those of the child
    before, or these among each other. What several of them say is then counted several times. So children are
    drawn, their marginals compared with the model's, and what comes too often made rarer.
    """

    def __init__(
        self, family: Family, model: Model, compression: Compression, measured: tuple[tuple[str, ...], ...]
    ) -> None:
        self.family, self.model, self.compression = family, model, compression
        self._own = [family.of_child(name) for name in family.columns]
        self._before = [family.of_previous(name) for name in family.columns]
        sizes = [family.child.column(name).size for name in family.columns]
        self._sizes = dict(zip(self._own, sizes, strict=True))
        known = {*model.domain} - {*self._own}
        absent = zip(self._own, sizes, strict=True) if family.parent is not None else ()
        before = zip(self._before, sizes, strict=True)
        self._absent = {name: _alone(compression, name, size) for name, size in absent}
        self._conditional = Conditional(
            model,
            model.domain.order(known),
            excluded=self._absent,
            void={name: _alone(compression, name, size) for name, size in before},
        )
        self._compared = [columns for columns in measured if set(columns) & {*self._own}]

    def draw_children(self, codes: Mapping[str, Whole], numbers: Whole, *, seed: int) -> dict[str, Whole]:
        """Return the codes of all children, those of one parent together and in their order.

        `codes` are those of the parents and of their `numbers` of children.
        """
        every = max(1, -(-int(numbers.sum()) // _COMPARED))
        some = {name: column[::every] for name, column in codes.items()}
        for _ in range(_TURNS):
            self._adjust(some, numbers[::every], self._draw(some, numbers[::every], seed=seed))
        return self._draw(codes, numbers, seed=seed)

    def _draw(self, codes: Mapping[str, Whole], numbers: Whole, *, seed: int) -> dict[str, Whole]:
        """Return the first child of every parent that has one, then the second, and so on."""
        known = {name: self._compress(name, column) for name, column in codes.items()}
        starts = np.cumsum(numbers) - numbers
        drawn = {name: np.empty(int(numbers.sum()), np.int64) for name in self._own}
        later = self.family.later
        for place in range(int(numbers.max(initial=0))):
            some = np.flatnonzero(numbers > place)
            given = {name: column[some] for name, column in known.items()}
            given[later] = self._compress(later, np.full(some.size, min(place, 1)))
            for earlier, name in zip(self._before, self._own, strict=True):
                # The last code of the column stands for none before.
                size = self._sizes[name]
                last = drawn[name][starts[some] + place - 1] if place else np.full(some.size, size)
                given[earlier] = self._compress(earlier, last)
            turn = (seed << 16) + place + 1
            fresh = self.compression.expand(self._conditional.sample(given, seed=turn), seed=turn)
            for number, name in enumerate(self._own):
                column = fresh[name]
                odd = np.flatnonzero(
                    column >= self._sizes[name]
                )  # joined with what is rare, and drawn from it
                even = draw_places(odd.size, seed=turn, turn=2**17 + number)
                column[odd] = np.floor(even * self._sizes[name]).astype(np.int64)
                drawn[name][starts[some] + place] = column
        return drawn

    def _adjust(
        self,
        codes: Mapping[str, Whole],
        numbers: Whole,
        drawn: Mapping[str, Whole],
    ) -> None:
        """Makes likelier what was drawn more rarely than the model has it, and the reverse."""
        domain = self.model.domain
        first = np.zeros(int(numbers.sum()), np.bool_)
        first[(np.cumsum(numbers) - numbers)[numbers > 0]] = True
        rows = {name: self._compress(name, np.repeat(column, numbers)) for name, column in codes.items()}
        rows[self.family.later] = self._compress(self.family.later, (~first).astype(np.int64))
        for earlier, name in zip(self._before, self._own, strict=True):
            rows[name] = self._compress(name, drawn[name])
            shifted = np.where(first, self._sizes[name], np.roll(drawn[name], 1))
            rows[earlier] = self._compress(earlier, shifted)
        weights = np.repeat(1.0 / np.maximum(numbers, 1), numbers)  # as records were counted
        scale = float((numbers > 0).sum())
        for columns in self._compared:
            cells = number_cells(rows, columns, domain)
            found = np.bincount(cells, weights=weights, minlength=domain.cells(columns))
            wanted = self.model.marginal(columns).copy()
            for axis, name in enumerate(columns):
                if name in self._absent:
                    np.moveaxis(wanted, axis, 0)[self._absent[name]] = 0.0
            mass = float(wanted.sum())
            if mass > 0:
                ratio = (wanted * (scale / mass) + _PRIOR) / (found.reshape(wanted.shape) + _PRIOR)
                factors = np.clip(ratio, 1 / _MOST_FACTOR, _MOST_FACTOR) ** _STEP
                self._conditional.weigh(columns, factors)
                # The next marginal is compared as if children had been drawn so already.
                weights = weights * factors.reshape(-1)[cells]

    def _compress(self, name: str, codes: Whole) -> Whole:
        maps = self.compression.maps
        return maps[name][codes] if name in maps else codes


def _draw_numbers(family: Family, codes: Whole, *, seed: int) -> Whole:
    """Return the number of children of every parent: any of its bin with equal chance."""
    steps = np.array([*family.steps, family.child.unit.max_records + 1])
    places = draw_places(codes.size, seed=seed, turn=2**18)
    return np.asarray(steps[codes] + np.floor(places * np.diff(steps)[codes]), np.int64)


def _alone(compression: Compression, name: str, code: int) -> Whole:
    """Return the code that a value has in the model, if no other value shares it."""
    if name not in compression.maps:
        return np.array([code])
    codes = compression.maps[name]
    return codes[[code]] if int((codes == codes[code]).sum()) == 1 else np.empty(0, np.int64)
