"""Rows of a model by controlled rounding.

Columns are filled clique by clique. Within a group of rows that agree on the separator, the values of
the new columns are dealt in the numbers the model asks for, rounded so that running sums stay within
one. Who gets which value is drawn at random, but evenly along the rows sorted by all columns they already
have: every stretch of similar rows gets the values in nearly the right proportion, and new columns are
independent of old ones given the separator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.inference.model import Model

Columns = tuple[str, ...]


def sample_rows(model: Model, rows: int, *, seed: int) -> dict[str, NDArray[np.int64]]:
    """`rows` rows of `model`, as codes by column in the order of its domain."""
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise RecipeError("the number of rows must be a whole number of at least 0")
    generator = np.random.Generator(np.random.PCG64(seed))
    tree, domain = model.tree, model.domain
    columns: dict[str, NDArray[np.int64]] = {}
    rank = np.zeros(rows, np.int64)  # where a row stands among all rows, by the columns it has
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
        table = model.table(place).reshape(sizes).transpose(axes)
        weights = np.ascontiguousarray(table).reshape(domain.cells(separator), domain.cells(new))
        group = np.zeros(rows, np.int64)
        for name in separator:
            group = group * domain[name] + columns[name]
        codes = _deal(weights, group, rank, generator)
        for name in reversed(new):
            columns[name] = codes % domain[name]
            codes = codes // domain[name]
        rank = _rerank(rank, [columns[name] for name in new], [domain[name] for name in new])
    return {name: columns[name] for name in domain}


def _deal(
    weights: NDArray[np.float64],
    group: NDArray[np.int64],
    rank: NDArray[np.int64],
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """A value for every row: group g gets value v in proportion to weights[g, v]."""
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


def _scatter(count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Random numbers below 2^32, of which every block of sixteen has one in each sixteenth."""
    blocks = -(-count // 16)
    strata = np.argsort(generator.integers(2**32, size=(blocks, 16)), axis=1).reshape(-1)[:count]
    return strata * 2**28 + generator.integers(2**28, size=count)


def _rerank(rank: NDArray[np.int64], columns: list[NDArray[np.int64]], sizes: list[int]) -> NDArray[np.int64]:
    for codes, size in zip(columns, sizes, strict=True):
        rank = rank * size + codes
        if int(rank.max(initial=0)) > 2**31:
            rank = np.unique(rank, return_inverse=True)[1].astype(np.int64)
    return np.unique(rank, return_inverse=True)[1].astype(np.int64)
