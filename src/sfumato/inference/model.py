"""A fitted model: exact marginals of its cliques, any other by elimination, likelihoods and rows.

Rows are dealt clique after clique: values are used as often as the model expects, rounded, and given out at
random among the rows that agree on what the cliques share. All random numbers that recipes need for rows are
drawn here too, from public seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.inference.kernels import find_steps, marginalise, rearrange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sfumato.inference.domain import Columns, Domain
    from sfumato.inference.tree import Tree
    from sfumato.tables.arrays import Floats, Whole

    _Schedule = tuple[Columns, list[tuple[int, Columns, set[str]]]]

_LARGEST = 2**27
_REMEMBERED = 2**15  # cells of a table that is kept for the next question
_LARGE = 2**20  # cells from which it pays to look for a better root


@dataclass(slots=True, eq=False, repr=False)
class Model:
    """Calibrated tables of a tree's cliques, which sum to `total` records each.

    `loss` is half the weighted squared distance to the measurements it was fitted to, `path_length` how
    far the fit went from the uniform model, `seed` the default seed of rows.
    """

    tree: Tree
    values: Floats
    _: KW_ONLY
    total: float
    loss: float = 0.0
    evaluations: int = 0
    path_length: float = 0.0
    seed: int = 0
    _ends: list[int] = field(init=False)
    _elimination: Elimination | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        domain = self.tree.domain
        self._ends = np.cumsum([0, *(domain.cells(clique) for clique in self.tree.cliques)]).tolist()
        if self._ends[-1] != self.values.size:
            raise RecipeError(
                f"the tables of the model have {self.values.size:,} cells, its tree {self._ends[-1]:,}"
            )

    def __repr__(self) -> str:
        return (
            f"Model({len(self.tree.cliques)} cliques, {self.values.size:,} cells, {self.total:,.0f} records)"
        )

    @property
    def domain(self) -> Domain:
        """Return the columns of the model."""
        return self.tree.domain

    def table(self, place: int) -> Floats:
        """Return the flat marginal of one clique."""
        return self.values[self._ends[place] : self._ends[place + 1]]

    def marginal(self, columns: Columns) -> Floats:
        """Return expected counts of every combination of `columns`, shaped by their sizes in that order."""
        columns = tuple(columns)
        ordered = self.domain.order(columns)
        if len(ordered) != len(columns):
            unknown = [name for name in columns if name not in self.domain]
            raise RecipeError(
                f"the model has no column {unknown[0]!r}" if unknown else "a column is named twice"
            )
        flat = self.flat_marginal(ordered)
        shaped = flat.reshape(self.domain.shape(ordered))
        return shaped.transpose([ordered.index(name) for name in columns])

    def flat_marginal(self, columns: Columns) -> Floats:
        """Return the expected counts of `columns`, which are in the order of the domain, as a flat array."""
        if not columns:
            return np.array([self.total])
        home = self.tree.home(columns)
        if home is not None:
            steps = find_steps(self.domain, self.tree.cliques[home], columns)
            return marginalise(self.table(home), steps)
        if self._elimination is None:
            self._elimination = Elimination(self.tree, self.table)
        return self._elimination.marginal(columns)

    def sample(self, rows: int | None = None, *, seed: int | None = None) -> dict[str, Whole]:
        """Return `rows` rows, by default as many as the model has records, as codes by column.

        The marginals of cliques agree with the model to within rounding; columns that no clique joins
        are independent given what separates them. The same seed gives the same rows.
        """
        count = round(self.total) if rows is None else rows
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise RecipeError("the number of rows must be a whole number of at least 0")
        generator = np.random.Generator(np.random.PCG64(self.seed if seed is None else seed))
        tree, domain = self.tree, self.domain
        columns: dict[str, Whole] = {}
        rank = np.zeros(count, np.int64)  # where a row stands among all rows, by the columns it has
        for place, clique in enumerate(tree.cliques):
            separator = tree.separators[place]
            # Sums over the first columns are rounded best, so those that others depend on come first.
            later = [set(each) for each in tree.separators[place + 1 :]]
            new = tuple(
                sorted(
                    (name for name in clique if name not in separator),
                    key=lambda name: (-sum(name in each for each in later), name),
                )
            )
            if not new:
                continue
            sizes = domain.shape(clique)
            axes = [clique.index(name) for name in (*separator, *new)]
            table = self.table(place).reshape(sizes).transpose(axes)
            weights = np.ascontiguousarray(table).reshape(domain.cells(separator), domain.cells(new))
            group = number_cells(columns, separator, domain) if separator else np.zeros(count, np.int64)
            codes = _deal(weights, group, rank, generator)
            for name in reversed(new):
                columns[name] = codes % domain[name]
                codes = codes // domain[name]
            rank = _rerank(rank, [columns[name] for name in new], [domain[name] for name in new])
        return {name: columns[name] for name in domain}


def number_cells(codes: Mapping[str, Whole], columns: Sequence[str], sizes: Mapping[str, int]) -> Whole:
    """Return the cell of every row in the marginal of `columns`, in row-major order, from their codes."""
    cells = np.zeros(len(codes[columns[0]]), np.int64)
    for name in columns:
        cells = cells * sizes[name] + codes[name]
    return cells


class Elimination:
    """Answers for one calibrated tree; what single columns pass on is remembered.

    Towards any root, a clique hands over p(separator, query columns beyond it). The receiver divides
    by p(separator), multiplies its own table and sums out what nobody needs any more.
    """

    def __init__(self, tree: Tree, table: Callable[[int], Floats]) -> None:
        self._tree = tree
        self._table = table
        self._near, self._component = tree.connect()
        self._known: dict[tuple[int, int, Columns], tuple[Columns, Floats]] = {}
        self._schedules: dict[tuple[int, int, Columns], _Schedule] = {}
        self._sides: dict[tuple[int, int], set[str]] = {}
        self._projected: dict[tuple[int, Columns], Floats] = {}
        self._cells = max(map(tree.domain.cells, tree.cliques))

    def marginal(self, columns: Columns) -> Floats:
        """Return the counts of `columns`, in the order of the domain, as a flat array."""
        groups: dict[int, list[str]] = {}
        for name in columns:
            groups.setdefault(self._component[name], []).append(name)
        names: Columns = ()
        values = np.ones(1)
        for group in groups.values():
            # What shares nothing is independent.
            part = self._connected(tuple(group))
            total = part.sum()
            values = np.multiply.outer(values, part / total if names else part).reshape(-1)
            names += tuple(group)
        return rearrange(values, names, columns, self._tree.domain.shape(names))

    def _connected(self, columns: Columns) -> Floats:
        """Return the same for columns of one component."""
        query = set(columns)
        cliques = self._tree.cliques
        shared = Counter(place for name in columns for place in self._tree.holding[name])
        best = max(shared.values())
        roots = [place for place, count in shared.items() if count == best]
        root = min(roots, key=lambda place: (self._distance(place, query), place))
        # A table on the way has columns of a clique and of the query, no others.
        if self._cells * self._tree.domain.cells(columns) > _LARGE and self._peak(root, -1, columns) > _LARGE:
            component = self._component[columns[0]]
            inside = [
                place for place in range(len(cliques)) if self._component[cliques[place][0]] == component
            ]
            root = min(inside, key=lambda place: (self._peak(place, -1, columns), place))
        names, values = self._collect(root, -1, columns)
        return rearrange(values, names, columns, self._tree.domain.shape(names))

    def _distance(self, root: int, query: set[str]) -> int:
        """Return how many other cliques must speak when `root` collects."""
        return sum(
            1
            for place in self._near[root]
            if (query & self._beyond(place, root)) - set(self._tree.cliques[root])
        )

    def _beyond(self, place: int, sender: int) -> set[str]:
        """Return the columns on the far side of the edge from `sender` to `place`."""
        if (place, sender) not in self._sides:
            found = set(self._tree.cliques[place])
            for other in self._near[place]:
                if other != sender:
                    found |= self._beyond(other, place)
            self._sides[place, sender] = found
        return self._sides[place, sender]

    def _collect(self, place: int, towards: int, query: Columns) -> tuple[Columns, Floats]:
        """p(separator towards the asker, query columns from here on), as names and a flat array."""
        key = (place, towards, query)
        if key in self._known:
            return self._known[key]
        names, turns = self._schedule(place, towards, query)
        values = self._project(place, names)
        for other, there, needed in turns:
            below, table = self._collect(other, place, there)
            separator = self._near[place][other]
            names, values = self._join(names, values, below, table, separator, needed)
        if len(query) == 1 and towards >= 0 and values.size <= _REMEMBERED:
            self._known[key] = (names, values)
        return names, values

    def _schedule(self, place: int, towards: int, query: Columns) -> _Schedule:
        """What a clique keeps of its own, and which neighbours speak in turn: of what, and what stays."""
        key = (place, towards, query)
        if key in self._schedules:
            return self._schedules[key]
        domain, own, near = self._tree.domain, set(self._tree.cliques[place]), self._near[place]
        final = set(near.get(towards, ())) | set(query)
        keep, left = final & own, set(query) - own
        asked: list[tuple[int, Columns]] = []
        for other, separator in near.items():
            there = () if other == towards else domain.order(left & self._beyond(other, place))
            if there:
                left -= set(there)
                asked.append((other, there))
                keep |= set(separator)
        names = kept = domain.order(keep)
        turns: list[tuple[int, Columns, set[str]]] = []
        while asked:
            # Whoever leaves the smallest table speaks first.
            options = []
            for which, (other, there) in enumerate(asked):
                needed = final.union(*(near[each] for each, _ in asked if each != other))
                after = (*(name for name in kept if name in needed or name not in near[other]), *there)
                options.append((domain.cells(after), which, after, needed))
            _, which, kept, needed = min(options, key=lambda option: option[:2])
            turns.append((*asked.pop(which), needed))
        self._schedules[key] = (names, turns)
        return names, turns

    def _peak(self, place: int, towards: int, query: Columns) -> int:
        """Return the cells of the largest table on the way when the clique at `place` collects."""
        domain = self._tree.domain
        names, turns = self._schedule(place, towards, query)
        peak = domain.cells(names)
        for other, there, needed in turns:
            names = (
                *(name for name in names if name in needed or name not in self._near[place][other]),
                *there,
            )
            peak = max(peak, domain.cells(names), self._peak(other, place, there))
        return peak

    def _project(self, place: int, names: Columns) -> Floats:
        key = (place, names)
        if key in self._projected:
            return self._projected[key]
        steps = find_steps(self._tree.domain, self._tree.cliques[place], names)
        projected = marginalise(self._table(place), steps)
        if projected.size <= _REMEMBERED:
            self._projected[key] = projected
        return projected

    def _join(
        self,
        names: Columns,
        values: Floats,
        below: Columns,
        table: Floats,
        separator: Columns,
        needed: set[str],
    ) -> tuple[Columns, Floats]:
        """Return both tables joined over `separator`, of which only what is needed is kept."""
        domain = self._tree.domain
        batch = tuple(name for name in separator if name in needed)
        summed = tuple(name for name in separator if name not in needed)
        left = tuple(name for name in names if name not in separator)
        right = tuple(name for name in below if name not in separator)
        sizes = [math.prod(domain.shape(each)) for each in (batch, left, summed, right)]
        if sizes[0] * sizes[1] * sizes[3] > _LARGEST:
            raise RecipeError(f"the marginal over {' x '.join((*batch, *left, *right))} is too large")
        first = rearrange(values, names, (*batch, *left, *summed), domain.shape(names))
        second = rearrange(table, below, (*batch, *summed, *right), domain.shape(below))
        second = second.reshape(sizes[0], sizes[2], sizes[3])
        mass = second.sum(axis=2, keepdims=True)
        shares = np.divide(second, mass, out=np.zeros_like(second), where=mass > 0)
        product = np.matmul(first.reshape(sizes[0], sizes[1], sizes[2]), shares)
        return (*batch, *left, *right), product.reshape(-1)


def draw_places(count: int, *, seed: int, turn: int) -> Floats:
    """Return `count` numbers in [0, 1), evenly spread; every `turn` has numbers of its own.

    >>> draw_places(3, seed=0, turn=1).size
    3
    """
    return _generator(seed, turn).random(count)


def draw_scattered(count: int, *, seed: int, turn: int) -> Floats:
    """As `draw_places`, but any sixteen neighbours have one number in each sixteenth.

    >>> sorted((draw_scattered(16, seed=0, turn=1) * 16).astype(int).tolist()) == list(range(16))
    True
    """
    return _scatter(count, _generator(seed, turn)) / 2.0**32


def draw_codes(shares: Floats, count: int, *, seed: int, turn: int) -> Whole:
    """Return `count` places in `shares`, in these proportions to within rounding, in random order.

    >>> sorted(draw_codes(np.array([1.0, 3.0]), 4, seed=0, turn=1).tolist())
    [0, 1, 1, 1]
    """
    generator = _generator(seed, 2**16 + turn)
    total = float(shares.sum())
    running = np.cumsum(shares) / total if total > 0 else np.arange(1, shares.size + 1) / shares.size
    ends = np.floor(running * count + generator.random())
    ends[-1] = count
    uses = np.diff(np.minimum(ends, count), prepend=0).astype(np.int64)
    return generator.permutation(np.repeat(np.arange(shares.size), uses))


def assign_identifiers(
    groups: Whole,
    *,
    most: int,
    seed: int,
    public: tuple[Whole, Whole] | None = None,
) -> Whole:
    """Return an identifier for every row, none on more than `most` rows.

    `public` gives the group and the identifier, at least 0, of the rows of a public table. Within a group
    they are shuffled, repeated as often as needed, and paired with the shuffled rows. A row whose group
    has no public row, or whose identifier has `most` rows already, gets a new one of its own. Without
    `public` new identifiers are dealt to shuffled rows, `most` rows each.

    >>> assign_identifiers(np.zeros(4, np.int64), most=2, seed=0).tolist().count(0)
    2
    """
    if most < 1:
        raise RecipeError("an identifier needs at least one row")
    rows = groups.size
    generator = _generator(seed, 0)
    shuffled = generator.permutation(rows)
    result = np.empty(rows, np.int64)
    if public is None:
        result[shuffled] = np.arange(rows) // most
        return result
    order = shuffled[np.argsort(groups[shuffled], kind="stable")]
    public_groups, public_identifiers = public
    stirred = generator.permutation(public_groups.size)
    stirred = stirred[np.argsort(public_groups[stirred], kind="stable")]
    sorted_groups = groups[order]
    first = np.searchsorted(public_groups[stirred], sorted_groups, side="left")
    offered = np.searchsorted(public_groups[stirred], sorted_groups, side="right") - first
    place = np.arange(rows) - np.searchsorted(sorted_groups, sorted_groups, side="left")
    found = offered > 0
    given = np.full(rows, -1, np.int64)
    given[found] = public_identifiers[stirred[(first + place % np.maximum(offered, 1))[found]]]
    # Which rows an identifier keeps is decided by chance, not by their group.
    stirred_rows = generator.permutation(rows)
    by_identifier = stirred_rows[np.argsort(given[stirred_rows], kind="stable")]
    sorted_given = given[by_identifier]
    turn = np.arange(rows) - np.searchsorted(sorted_given, sorted_given, side="left")
    new = np.empty(rows, np.bool_)
    new[by_identifier] = (turn >= most) | (sorted_given < 0)
    next_free = int(public_identifiers.max(initial=-1)) + 1
    given[new] = next_free + np.arange(int(new.sum()))
    result[order] = given
    return result


def assign_runs(codes: Whole, shares: Floats, *, span: int, most: int, seed: int) -> Whole:
    """Return an identifier for every row, whose rows have less than `span` between their `codes`.

    An identifier has as many rows as `span` draws of 1, 2, ... in the proportions `shares` add up to, and
    `most` at most; the last one what is left.

    >>> runs = assign_runs(np.array([0, 9, 0, 9]), np.array([0.0, 1.0]), span=1, most=2, seed=0)
    >>> bool(runs[0] == runs[2] != runs[1] == runs[3])
    True
    """
    generator = _generator(seed, 0)
    order = np.argsort(codes + span * generator.random(codes.size), kind="stable")
    # No identifier has less than one row, so that these are enough.
    draws = generator.choice(shares.size, (codes.size, span), p=shares / shares.sum()) + 1
    ends = np.cumsum(np.minimum(draws.sum(axis=1), most))
    result = np.empty(codes.size, np.int64)
    result[order] = np.searchsorted(ends, np.arange(codes.size), side="right")
    return result


def _generator(seed: int, turn: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, turn))))


def _deal(
    weights: Floats,
    group: Whole,
    rank: Whole,
    generator: np.random.Generator,
) -> Whole:
    """Return a value for every row: group g gets value v in proportion to weights[g, v]."""
    groups, values = weights.shape
    members = np.bincount(group, minlength=groups)
    order = np.argsort(group * (rank.max(initial=0) + 1) + rank, kind="stable")
    starts = np.concatenate(([0], np.cumsum(members)[:-1]))
    # A value is used as often as running sums of its group pass a whole number, so that every run of
    # values is used its expected number of times, rounded.
    filled = np.flatnonzero(members)
    dealt = np.empty(group.size, np.int64)
    block = max(1, 2**22 // values)
    for first in range(0, filled.size, block):
        some = filled[first : first + block]
        running = np.cumsum(weights[some], axis=1)
        mass = running[:, -1:]
        even = np.arange(1, values + 1) / values
        running = np.divide(running, mass, out=np.broadcast_to(even, running.shape).copy(), where=mass > 0)
        ends = np.floor(running * members[some][:, None] + generator.random((some.size, 1)))
        ends[:, -1] = members[some]
        ends = np.minimum(ends, members[some][:, None]).astype(np.int64)
        uses = np.diff(ends, axis=1, prepend=0)
        listed = np.repeat(np.tile(np.arange(values), some.size), uses.reshape(-1))
        begin = starts[some[0]]
        dealt[begin : begin + listed.size] = listed
    # The k-th place of the sequence in a group takes the entry of its list at the sequence's own rank.
    places = np.argsort((group[order] << 32) + _scatter(group.size, generator), kind="stable")
    result = np.empty(group.size, np.int64)
    result[order[places]] = dealt
    return result


def _scatter(count: int, generator: np.random.Generator) -> Whole:
    """Return random numbers below 2^32, of which every block of sixteen has one in each sixteenth."""
    blocks = -(-count // 16)
    strata = np.argsort(generator.integers(2**32, size=(blocks, 16)), axis=1).reshape(-1)[:count]
    return strata * 2**28 + generator.integers(2**28, size=count)


def _rerank(rank: Whole, columns: list[Whole], sizes: list[int]) -> Whole:
    for codes, size in zip(columns, sizes, strict=True):
        rank = rank * size + codes
        if int(rank.max(initial=0)) > 2**31:
            rank = np.unique(rank, return_inverse=True)[1].astype(np.int64)
    return np.unique(rank, return_inverse=True)[1].astype(np.int64)
