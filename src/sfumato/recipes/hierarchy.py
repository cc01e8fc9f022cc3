"""Levels that add up: counts of a tree of places or kinds, crossed with other columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.accounting import discrete_gaussian_sigma
from sfumato.core.cost.curves import SMOOTHING
from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_positive, parse_whole, round_up
from sfumato.core.law import SHAPES, Kind
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Request, in_records, request_sensitivity
from sfumato.core.questions.question import Queries
from sfumato.inference.models.hierarchy import Fitted, Level, fit_levels
from sfumato.recipes.base import (
    Conversation,
    Plan,
    Product,
    Progress,
    Recipe,
    column_labels,
    is_column_list,
    released_names,
)
from sfumato.recipes.shared.budget import sum_groups
from sfumato.recipes.shared.counts import Noise, check_noise, list_kinds
from sfumato.recipes.shared.public import open_public, pack_numbers, parse_public, unpack_numbers
from sfumato.tables.arrays import Floats, Whole, label_array

if TYPE_CHECKING:
    from sfumato.core.facts.column import Column
    from sfumato.core.facts.domain import Label
    from sfumato.core.facts.table import Table

TOTAL = "total"
"""The level of one node, the count of everything."""

_MOST_LINES = 10_000  # of a tree that a certificate lists line by line
_TIMES = " x "
_DIVIDED = ("balanced", "equal")
# Times the noise of the finest level alone is the most that it has with balanced shares. Whole counts show
# little noise by less than it is, so that more of it shows by more: errors are then up to 1.3 times as large.
_LEAVES = 1.15
_PARTS = 10**6  # shares are whole multiples of one of so many, the same on every machine
_RELEASED = ("level", "count", "low_95", "high_95")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy(Recipe):
    """Counts at every level of a tree over `column`, crossed with the columns `by`, that add up exactly.

    `tree` is a public table (a file, or its rows with a header) whose first column has the values of `column`
    and the others what they are parts of, finest first. `levels` are what is measured, from the coarsest to
    `column` crossed with all of `by`, such as ["total", "county", "county x month", "tract x month"]; each
    refines the one before. `shares` divides the budget among them: "balanced" by their sizes (`_balance`),
    "equal", or a number for each; or `errors` states the error that each may have. `known` are counts of
    whole levels that are public anyhow and are met exactly.

    Privacy: every level is a histogram of the same bounded records with noise of its own, and the costs add
    up to epsilon; all that makes levels agree is post-processing. What is `known` is not protected
    (docs/proofs/hierarchy.md).

    >>> Hierarchy(table="incidents", column="tract", tree=[["tract", "county"], ["t1", "c1"]]).kind
    'hierarchy'
    """

    kind: ClassVar[str] = "hierarchy"
    optional: ClassVar[tuple[str, ...]] = ("tree", "levels", "errors", "known")
    former: ClassVar[Mapping[str, Any]] = {"shares": "equal"}

    column: str
    tree: Any = None
    by: Sequence[str] = ()
    levels: Sequence[str] | None = None
    shares: Mapping[str, Any] | str | None = "balanced"
    errors: Mapping[str, Any] | None = None
    known: Mapping[str, Any] | None = None
    noise: Noise = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise RecipeError("hierarchy: column must name the column of the finest places or kinds")
        self._keep_columns("by", empty=True)
        if self.column in self.by:
            raise RecipeError(f"hierarchy: {self.column!r} is the column of the tree, so it is not in by")
        if self.levels is not None and not is_column_list(self.levels):
            raise RecipeError("hierarchy: levels must list what is measured, such as ['total', 'county']")
        shares = "balanced" if self.shares is None else self.shares
        if self.errors is not None:
            if not isinstance(shares, str):
                raise RecipeError("hierarchy: shares and errors both divide the budget; give one of them")
            shares = "equal"  # what certificates do not state
        if isinstance(shares, str) and shares not in _DIVIDED:
            raise RecipeError("hierarchy: shares must be balanced, equal, or a number for every level")
        check_noise(self.noise, kind=self.kind)
        self._keep(
            levels=None if self.levels is None else tuple(self.levels),
            tree=_parse_tree(self.tree),
            known=_parse_known(self.known),
            shares=shares if isinstance(shares, str) else _parse_amounts(shares, key="shares"),
            errors=_parse_amounts(self.errors, key="errors"),
        )

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one request per level that is not known."""
        if len(epsilons) != 1:
            raise RecipeError("hierarchy: levels are divided one epsilon; make one release for each")
        recipe = self
        if isinstance(self.tree, str):
            rows, record = open_public(self.tree)
            if rows.num_rows > _MOST_LINES:
                tree = _build_tree(self, table.column(self.column), rows.column_names, rows.columns)
                recipe = replace(self, tree={**record, **_pack_tree(tree)})
            else:
                lists = [rows.column_names, *(list(row.values()) for row in rows.to_pylist())]
                recipe = replace(self, tree={**record, "rows": lists})
        shape = _Shape.of(recipe, table)
        requests = min(
            (
                shape.list_requests(table, kind, epsilons[0], delta)
                for kind in list_kinds(recipe.noise, delta)
            ),
            key=lambda found: found[-1].standard_deviation,
        )
        recipe._check_errors(table, shape, requests)
        return Plan(recipe=recipe, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return every level with whole counts that add up, and with intervals."""
        answers = yield plan.requests
        shape = _Shape.of(self, plan.table)
        noisy: dict[str, tuple[Floats, float]] = {}
        for answer in answers:
            noisy[answer.request.name] = in_records(answer)
        levels = []
        for place, name in enumerate(shape.names):
            if name in shape.known:
                values, variance = shape.known[name].astype(np.float64), 0.0
            else:
                values, deviation = noisy[f"counts of {name}"]
                variance = deviation**2
            levels.append(Level(values=values, variance=variance, parents=shape.parents(place)))
        progress("making levels agree")
        fitted = fit_levels(levels)
        reach = plan.requests[0].law.shape.reach
        tables = [
            shape.tabulate(plan.table, name, found, reach=reach)
            for name, found in zip(shape.names, fitted, strict=True)
        ]
        facts = [
            {
                "level": name,
                "nodes": found.counts.size,
                "known": name in shape.known,
                "alone_95": f"{reach * math.sqrt(level.variance):.6g}",
                "fitted_95": f"{reach * math.sqrt(float(found.variances.max())):.6g}",
            }
            for name, level, found in zip(shape.names, levels, fitted, strict=True)
        ]
        released = pa.concat_tables(tables).unify_dictionaries()
        return Product(table=released, varied=("count", "low_95", "high_95"), facts={"levels": facts})

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        shape = _Shape.of(self, plan.table)
        known = ", ".join(f"`{name}`" for name in shape.names if name in shape.known)
        return {
            "levels": ", ".join(f"{name} ({shape.size(name):,})" for name in shape.names),
            "measured": len(plan.requests),
            "known": self.part("known", levels=known) if known else "",
            "divided": self.part("balanced") if self.shares == "balanced" else "",
        }

    def forecast(self, plan: Plan, records: int | None) -> str:
        """Return how far counts of the finest level may be off, and how far they would be alone."""
        shape, request = _Shape.of(self, plan.table), plan.requests[-1]
        alone = shape.list_requests(plan.table, request.noise, plan.epsilons[0], plan.delta, alone=True)[0]
        grid = request.counted.grid(plan.table)
        own, best = (each.law.half_width() / grid for each in (request, alone))
        return (
            f"{shape.measured[-1]!r} will be off by up to {own:.4g} in 95 % before levels are made to agree; "
            f"measured alone, by {best:.4g}"
        )

    def _check_errors(self, table: Table, shape: _Shape, requests: tuple[Request, ...]) -> None:
        """Raises an error if a level would err by more than was stated, before anything is charged."""
        for name, request in zip(shape.measured, requests, strict=True):
            wanted = None if self.errors is None else self.errors[name]
            found = request.law.half_width() / request.counted.grid(table)
            if wanted is not None and found > wanted:
                raise RecipeError(
                    f"hierarchy: with this epsilon {name!r} errs by up to {found:.4g} in 95 %, and errors "
                    f"allows {float(wanted):.4g}; epsilon must be about {found / float(wanted):.3g} times as "
                    "large, or the errors"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tree:
    """Columns above the leaves, coarsest first, and for each the place of every leaf and the labels."""

    names: tuple[str, ...]
    places: tuple[Whole, ...]
    labels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shape:
    """The levels of a recipe over a table: their nodes, and what each is a part of."""

    recipe: Hierarchy
    tree: _Tree
    above: tuple[Whole, ...]
    """By depth of the tree, 0 for the total and the last for the leaves: the node over every leaf."""
    nodes: tuple[int, ...]
    sizes: Mapping[str, int]
    names: tuple[str, ...]
    columns: Mapping[str, tuple[int, tuple[str, ...]]]
    """By level: the depth of the tree, and columns of `by`."""
    known: Mapping[str, Whole]

    @classmethod
    def of(cls, recipe: Hierarchy, table: Table) -> _Shape:
        by = tuple(recipe.by)
        table.cells((recipe.column, *by))
        leaf = table.column(recipe.column)
        tree = _read_tree(recipe, leaf)
        clash = set(tree.names) & {*table.columns, TOTAL}
        if clash:
            raise RecipeError(
                f"hierarchy: the tree has a level {min(clash)!r}, which is a column of the table, or taken; "
                "give it another name"
            )
        names = recipe.levels
        if names is None:
            names = (TOTAL, *(_TIMES.join((each, *by)) for each in (*tree.names, recipe.column)))
        columns = {name: _read_level(name, recipe.column, tree, by) for name in names}
        shape = cls(
            recipe=recipe,
            tree=tree,
            above=(np.zeros(leaf.size, np.int64), *tree.places, np.arange(leaf.size)),
            nodes=(1, *map(len, tree.labels), leaf.size),
            sizes={name: table.column(name).size for name in by},
            names=tuple(names),
            columns=columns,
            known={},
        )
        shape._check_chain()
        released = released_names(table, (recipe.column, *by))
        recipe.refuse_clash([*_RELEASED, *tree.names, *released])
        return replace(shape, known=shape._read_known(table))

    @property
    def measured(self) -> tuple[str, ...]:
        """Return the levels that are not known."""
        return tuple(name for name in self.names if name not in self.known)

    def size(self, name: str) -> int:
        """Return the number of nodes of a level."""
        depth, crossed = self.columns[name]
        return self.nodes[depth] * math.prod(self.sizes[each] for each in crossed)

    def _check_chain(self) -> None:
        for one, other in pairwise(self.names):
            (depth, crossed), (finer, more) = self.columns[one], self.columns[other]
            if depth > finer or not set(crossed) <= set(more):
                raise RecipeError(
                    f"hierarchy: levels go from coarse to fine, and {other!r} does not refine {one!r}; a "
                    "level keeps all columns of the one before, or finer ones of the tree"
                )
        by = tuple(self.recipe.by)
        if self.columns[self.names[-1]] != (len(self.nodes) - 1, by):
            finest = _TIMES.join((self.recipe.column, *by))
            raise RecipeError(f"hierarchy: the last of levels is the finest, {finest!r}")

    def parents(self, place: int) -> Whole | None:
        """Return for every node of a level, its parent in the level above; None for the first level."""
        if place == 0:
            return None
        (depth, crossed), (finer, more) = (self.columns[self.names[each]] for each in (place - 1, place))
        found = np.zeros(self.nodes[finer], np.int64)
        found[self.above[finer]] = self.above[depth]
        return self._cross(found, more, crossed)

    def queries(self, name: str) -> Queries | None:
        """Return the sums of cells that are the nodes of a level; None for the finest."""
        depth, crossed = self.columns[name]
        if name == self.names[-1]:
            return None
        return sum_groups(self._cross(self.above[depth], self.recipe.by, crossed), self.size(name))

    def _cross(self, found: Whole, names: Sequence[str], crossed: tuple[str, ...]) -> Whole:
        """Return the places of nodes for all values of the columns `names`, where they are `crossed`."""
        for each in names:
            size = self.sizes[each]
            inner = np.arange(size) if each in crossed else np.zeros(size, np.int64)
            found = (found[:, None] * (size if each in crossed else 1) + inner).reshape(-1)
        return found

    def list_requests(
        self, table: Table, noise: Kind, epsilon: Fraction, delta: Fraction, *, alone: bool = False
    ) -> tuple[Request, ...]:
        """Return one request for every level that is measured, each with its share of the budget.

        With `alone`, one for the finest of them, with all of it.
        """
        columns = (self.recipe.column, *self.recipe.by)
        probe = Request(name="level", counted=Marginal(columns), noise=noise, scale=Fraction(1))
        sensitivity = request_sensitivity(table, probe)

        def scale(share: Fraction) -> Fraction:
            if SHAPES[noise].norm == "L1":
                return sensitivity / (epsilon * share)
            alone = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
            # mu squared is s^2 / (sigma^2 - 4), and a level has its share of it.
            return round_up(math.sqrt((alone**2 - SMOOTHING) / float(share) + SMOOTHING), places=6)

        shares = {self.measured[-1]: Fraction(1)} if alone else self._shares(noise)
        return tuple(
            Request(
                name=f"counts of {name}",
                counted=Marginal(columns, self.queries(name)),
                noise=noise,
                scale=scale(shares[name]),
            )
            for name in shares
        )

    def _shares(self, noise: Kind) -> dict[str, Fraction]:
        """Return the share of the budget that each measured level has: of epsilon, or of the square of mu."""
        recipe, measured = self.recipe, self.measured
        if not measured:
            raise RecipeError("hierarchy: all levels are known, so there is nothing to measure")
        given = recipe.shares if recipe.errors is None else recipe.errors
        power = SHAPES[noise].power
        if given == "equal":
            return dict.fromkeys(measured, Fraction(1, len(measured)))
        if given is None or isinstance(given, str):
            return _balance({name: self.size(name) for name in measured}, power)
        key = "shares" if recipe.errors is None else "errors"
        odd = sorted(set(given) ^ set(measured))
        if odd:
            raise RecipeError(
                f"hierarchy: {key} must name every level that is measured and no other; see {odd[0]!r}"
            )
        amounts = {
            name: given[name] if recipe.errors is None else 1 / given[name] ** power for name in measured
        }
        total = sum(amounts.values())
        return {name: amount / total for name, amount in amounts.items()}

    def _read_known(self, table: Table) -> dict[str, Whole]:
        """Return counts of the levels that are known, node by node, which must add up among each other."""
        known: dict[str, Whole] = {}
        for name, given in (self.recipe.known or {}).items():
            if name not in self.names:
                raise RecipeError(f"hierarchy: known names {name!r}, which is none of the levels")
            known[name] = np.array([given]) if isinstance(given, int) else self._match(name, given, table)
            if known[name].size != self.size(name):
                raise RecipeError(f"hierarchy: known must list every node of {name!r} with its count")
        for place, name in enumerate(self.names):
            if name in known and not self._adds_up(place, known):
                raise RecipeError(
                    f"hierarchy: the known counts of {name!r} do not add up to those known above"
                )
        return known

    def _adds_up(self, place: int, known: Mapping[str, Whole]) -> bool:
        """Return whether the known counts of a level add up to those of the next known level above it."""
        counts = known[self.names[place]]
        while place > 0:
            parents = self.parents(place)
            assert parents is not None
            place -= 1
            counts = np.bincount(parents, counts, self.size(self.names[place])).astype(np.int64)
            if self.names[place] in known:
                return bool((counts == known[self.names[place]]).all())
        return True

    def _match(self, name: str, rows: list[list[Any]], table: Table) -> Whole:
        """Return the known counts of a level in the order of its nodes; every node must be listed once."""
        keys = self._labels(name, table)
        found: dict[tuple[str, ...], int] = {}
        for row in rows:
            key = tuple(str(label) for label in row[:-1])
            if key in found:
                raise RecipeError(f"hierarchy: known lists a node of {name!r} twice")
            found[key] = row[-1]
        lacking = next((key for key in keys if key not in found), None)
        if lacking is not None or len(found) != len(keys):
            raise RecipeError(
                f"hierarchy: known must list every node of {name!r} once, as its labels and its count"
                + ("" if lacking is None else f"; it lacks {_TIMES.join(lacking)!r}")
            )
        return np.array([found[key] for key in keys], np.int64)

    def _labels(self, name: str, table: Table) -> list[tuple[str, ...]]:
        """Return the labels of every node of a level, one for the tree and one for each crossed column."""
        depth, crossed = self.columns[name]
        labels = (*self.tree.labels, table.column(self.recipe.column).labels)
        found: list[tuple[str, ...]] = [()]
        if depth:
            found = [(str(label),) for label in labels[depth - 1]]
        for each in crossed:
            found = [(*before, str(label)) for before in found for label in table.column(each).labels]
        if len(set(found)) != len(found):
            raise RecipeError(f"hierarchy: labels of {name!r} occur twice, so known cannot tell its nodes")
        return found

    def tabulate(self, table: Table, name: str, found: Fitted, *, reach: float) -> pa.Table:
        """Return one level as rows: what its nodes are, their counts and their intervals."""
        depth, crossed = self.columns[name]
        size, nodes = self.size(name), self.nodes[depth]
        inner = size // nodes
        places = np.repeat(np.arange(nodes), inner)
        columns: dict[str, pa.Array] = {"level": label_array(np.zeros(size, np.int32), (name,))}
        for above, (label_name, labels) in enumerate(zip(self.tree.names, self.tree.labels, strict=True), 1):
            first = np.zeros(nodes, np.int64)
            first[self.above[depth]] = self.above[above]
            columns[label_name] = _label(first[places] if depth >= above else None, labels, size)
        codes = {self.recipe.column: places if depth == len(self.nodes) - 1 else None}
        for each in self.recipe.by:
            codes[each] = None
            if each in crossed:
                inner //= self.sizes[each]
                codes[each] = (np.arange(size) // inner) % self.sizes[each]
        for each, which in codes.items():
            columns |= {
                label_name: _label(which, labels, size)
                for label_name, labels in column_labels(table.column(each)).items()
            }
        half = reach * np.sqrt(found.variances)
        low = np.floor(np.maximum(found.estimates - half, 0.0) + _SLACK).astype(np.int64)
        high = np.ceil(np.maximum(found.estimates + half, 0.0) - _SLACK).astype(np.int64)
        counts = found.counts
        columns["count"] = to_arrow(counts)
        columns["low_95"] = to_arrow(np.minimum(low, counts))
        columns["high_95"] = to_arrow(np.maximum(high, counts))
        return pa.table(columns)


# Whole numbers are rounded to from floats, which another order of adding up may change in the last places.
_SLACK = 1e-6


def _label(codes: Whole | None, labels: tuple[Label, ...], size: int) -> pa.Array:
    """Return the labels behind codes, or as many nulls where a level does not tell the column."""
    if codes is not None:
        return label_array(codes.astype(np.int32), labels)
    return pa.nulls(size, label_array(np.zeros(0, np.int32), labels[:1]).type)


def _read_level(name: str, leaf: str, tree: _Tree, by: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Return what a level is made of: a depth of the tree, 0 for none, and columns of `by` in their order."""
    depths = {each: depth for depth, each in enumerate((*tree.names, leaf), 1)}
    parts = [] if name == TOTAL else name.split(_TIMES)
    nodes = [depths[part] for part in parts if part in depths]
    crossed = tuple(part for part in by if part in parts)
    if len(nodes) > 1 or len(nodes) + len(crossed) != len(parts):
        known = ", ".join((TOTAL, *depths, *by))
        raise RecipeError(
            f"hierarchy: level {name!r} is not 'total', nor columns joined by ' x ', of the tree at most one "
            f"(there are: {known})"
        )
    return sum(nodes), crossed


def _read_tree(recipe: Hierarchy, leaf: Column) -> _Tree:
    """Return the tree over the values of `leaf`, every one of which must be in it."""
    if isinstance(recipe.tree, Mapping) and "places" in recipe.tree:
        return _unpack_tree(recipe.tree, leaf)
    rows = recipe.tree["rows"] if isinstance(recipe.tree, Mapping) else recipe.tree
    if rows is None:
        return _Tree(names=(), places=(), labels=())
    header, *lines = rows
    columns = [pa.chunked_array([list(map(str, each))], pa.string()) for each in zip(*lines, strict=True)]
    return _build_tree(recipe, leaf, header, columns)


def _build_tree(
    recipe: Hierarchy, leaf: Column, header: Sequence[str], columns: Sequence[pa.ChunkedArray]
) -> _Tree:
    if not header or header[0] != leaf.name:
        raise RecipeError(
            f"hierarchy: the first column of the tree must be {leaf.name!r}, the others what it is a part of"
        )
    names = tuple(str(each) for each in reversed(header[1:]))
    recipe.refuse_clash([leaf.name, *names])
    # What is missing or other is in no place, so it has a branch of its own at every level.
    extras = pa.array([str(label) for label in leaf.extras], pa.string())
    known = (pc.fill_null(each.cast(pa.string()), "None") for each in columns)
    ids, *above_ids = (pa.chunked_array([*each.chunks, extras]).combine_chunks() for each in known)
    first = pc.index_in(ids, value_set=ids)
    twice = np.flatnonzero(to_numpy(first) != np.arange(len(ids)))
    for line in twice[twice < len(ids) - len(extras)].tolist():
        if any(each[first[line].as_py()] != each[line] for each in above_ids):
            raise RecipeError(f"hierarchy: the tree has {ids[line].as_py()!r} in two places")
    labels_of = pa.array([str(label) for label in leaf.labels], pa.string())
    order = pc.index_in(labels_of, value_set=ids)
    if order.null_count:
        lacking = labels_of.filter(order.is_null()).to_pylist()
        some = ", ".join(repr(label) for label in lacking[:3])
        raise RecipeError(
            f"hierarchy: the tree lacks {len(lacking):,} values of {leaf.name!r}, such as {some}"
        )
    places, labels, above = [], [], np.zeros(leaf.size, np.int64)
    for column in reversed(above_ids):
        own = column.take(order).dictionary_encode()
        # Nodes of one label under two parents are two, numbered as leaves first show them.
        nodes = pa.array(above * len(own.dictionary) + to_numpy(own.indices)).dictionary_encode()
        above = to_numpy(nodes.indices).astype(np.int64)
        places.append(above)
        shown = to_numpy(nodes.dictionary) % len(own.dictionary)
        labels.append(tuple(own.dictionary.take(pa.array(shown)).to_pylist()))
    return _Tree(names=names, places=tuple(places), labels=tuple(labels))


def _pack_tree(tree: _Tree) -> dict[str, Any]:
    """Return a large tree as a record that holds each label above the leaves once, and no leaf."""
    places = pack_numbers(np.concatenate([*tree.places, np.zeros(0, np.int64)]), "<i4")
    return {"names": list(tree.names), "labels": [list(each) for each in tree.labels], "places": places}


def _unpack_tree(record: Mapping[str, Any], leaf: Column) -> _Tree:
    names, labels = tuple(record["names"]), tuple(map(tuple, record["labels"]))
    places = unpack_numbers(record, "places", "<i4", most=4 * leaf.size * len(names))
    if places is not None and places.size == leaf.size * len(names) and len(names) == len(labels):
        found = tuple(places.reshape(len(names), leaf.size))
        if all(0 <= each.min() <= each.max() < len(own) for each, own in zip(found, labels, strict=True)):
            return _Tree(names=names, places=found, labels=labels)
    raise RecipeError("hierarchy: the places of the tree cannot be read; plan it from its file again")


def _parse_tree(value: object) -> Any:  # noqa: ANN401 - a file's name, a record, or rows
    if isinstance(value, (str, Mapping)):
        packed = isinstance(value, Mapping) and "places" in value
        return parse_public(value, where="hierarchy: tree", holds="places" if packed else "rows")
    if value is None:
        return None
    listed = value if isinstance(value, (list, tuple)) else []
    rows = [list(row) if isinstance(row, (list, tuple)) else [] for row in listed]
    widths = {len(row) for row in rows}
    if len(rows) < 2 or len(widths) != 1 or min(widths) < 1:
        raise RecipeError(
            "hierarchy: tree must name a CSV or Parquet file, or list rows of one length, the first being "
            "the names: [['tract', 'county'], ['t1', 'c1'], ...]"
        )
    if not all(isinstance(each, (str, int)) for row in rows for each in row):
        raise RecipeError("hierarchy: the rows of tree hold text or whole numbers")
    return rows


def _parse_known(value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise RecipeError("hierarchy: known gives levels their public counts: {total = 1200}")
    known: dict[str, Any] = {}
    for name, given in value.items():
        if not isinstance(given, (list, tuple, Mapping)):
            known[name] = parse_whole(given, name=f"hierarchy: known {name}", low=0)
            continue
        rows = [[label, count] for label, count in given.items()] if isinstance(given, Mapping) else given
        lists = [list(row) if isinstance(row, (list, tuple)) else [] for row in rows]
        if any(len(row) < 2 for row in lists):
            raise RecipeError(f"hierarchy: known {name!r} must list rows of labels and a count")
        for row in lists:
            row[-1] = parse_whole(row[-1], name=f"hierarchy: known {name}", low=0)
        known[name] = lists
    return known


def _balance(sizes: Mapping[str, int], power: int) -> dict[str, Fraction]:
    """Return shares of levels of these sizes, coarse to fine, by the relative error that each has by itself.

    A node of a level is the sum of some nodes of the finest. The sum over levels of their own variances, each
    relative to that of such sums, is least; and upper levels get less where the finest would have too little.
    """
    *upper, finest = sizes.values()
    parts = [(size / finest) ** (power / (power + 2)) for size in upper]
    scale = min(1.0, (_LEAVES**power - 1) / sum(parts)) if parts else 1.0
    whole = [*(max(1, round(part * scale * _PARTS)) for part in parts), _PARTS]
    return {name: Fraction(each, sum(whole)) for name, each in zip(sizes, whole, strict=True)}


def _parse_amounts(value: object, *, key: str) -> dict[str, Fraction] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise RecipeError(f"hierarchy: {key} gives every level a number, such as {{total = 0.1, ...}}")
    return {str(name): parse_positive(each, name=f"hierarchy: {key} {name}") for name, each in value.items()}
