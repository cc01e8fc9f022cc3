"""What rows get beyond their codes, drawn from a public seed: numbers within bins, identifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def draw_places(count: int, *, seed: int, turn: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1), evenly spread; every `turn` has numbers of its own.

    >>> draw_places(3, seed=0, turn=1).size
    3
    """
    return _generator(seed, turn).random(count)


def assign_identifiers(
    groups: NDArray[np.int64],
    *,
    most: int,
    seed: int,
    public: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> NDArray[np.int64]:
    """An identifier for every row, none on more than `most` rows.

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
    wanted = groups[order]
    first = np.searchsorted(public_groups[stirred], wanted, side="left")
    offered = np.searchsorted(public_groups[stirred], wanted, side="right") - first
    place = np.arange(rows) - np.searchsorted(wanted, wanted, side="left")
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


def _generator(seed: int, turn: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, turn))))


def draw_codes(shares: NDArray[np.float64], count: int, *, seed: int, turn: int) -> NDArray[np.int64]:
    """`count` places in `shares`, in these proportions to within rounding, in random order.

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
