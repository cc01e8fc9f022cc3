"""What the codes of all quasi-identifiers mean, as the flat arrays that compiled loops read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sfumato.anonymity.encode import Quasi

_KINDS = {"number": 0, "category": 1, "tree": 2}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Space:
    """Kinds, sizes and losses of all columns; `arrays` is the tuple that kernels take."""

    kinds: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    places: NDArray[np.float64]
    tree_offsets: NDArray[np.int64]
    nodes: NDArray[np.int32]
    losses: NDArray[np.float64]
    units: NDArray[np.float64]
    levels: NDArray[np.int64]

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What kernels take as a space."""
        return (
            self.kinds,
            self.sizes,
            self.offsets,
            self.places,
            self.tree_offsets,
            self.nodes,
            self.losses,
            self.units,
        )

    @property
    def words(self) -> NDArray[np.int64]:
        """Where each set-valued column begins in the words that hold a class's values as bits."""
        sets = np.where(self.kinds == _KINDS["category"], (self.sizes + 63) // 64, 0)
        return np.concatenate([[0], np.cumsum(sets)]).astype(np.int64)

    def scratch(self) -> tuple[Any, ...]:
        """Room in which cuts are scored: the largest column decides how much."""
        most = int(self.sizes.max())
        return (
            np.zeros((10, most)),
            np.zeros((4, most), np.int64),
            np.zeros(most, np.int64),
            np.zeros(most, np.int64),
            np.zeros((64, most), np.int64),
            np.zeros(1, np.int64),
            np.zeros(most, np.int64),
            np.zeros(most, np.int64),
        )

    def room(self) -> tuple[Any, ...]:
        """Room for all cuts of one part: scores, columns, codes, kinds."""
        most = int(2 * self.sizes.sum())
        return np.zeros(most), np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)


def build_space(columns: Sequence[Quasi], weights: Mapping[str, float] | None = None) -> Space:
    """The space of the columns; `weights` says which columns' losses count for more than 1."""
    given = weights or {}
    return Space(
        kinds=np.array([_KINDS[column.kind] for column in columns], np.int64),
        sizes=np.array([column.size for column in columns], np.int64),
        offsets=_starts([column.size for column in columns]),
        places=np.concatenate([column.places for column in columns]),
        tree_offsets=_starts([column.nodes.size for column in columns]),
        nodes=np.concatenate([column.nodes.ravel() for column in columns]),
        losses=np.concatenate([column.losses.ravel() for column in columns]),
        units=np.array([float(given.get(column.name, 1.0)) for column in columns]),
        levels=np.array([len(column.nodes) for column in columns], np.int64),
    )


def _starts(sizes: list[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *sizes[:-1]], dtype=np.int64)
