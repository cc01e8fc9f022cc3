"""The columns of a model and the number of values of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from sfumato.errors import RecipeError


class Domain(Mapping[str, int]):
    """Columns by name, each with its number of values, in a fixed order.

    >>> domain = Domain({"a": 10, "b": 2})
    >>> domain.shape(("b", "a")), domain.cells(("a", "b"))
    ((2, 10), 20)
    """

    __slots__ = ("_sizes",)

    def __init__(self, sizes: Mapping[str, int]) -> None:
        if not sizes:
            raise RecipeError("a domain needs at least one column")
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise RecipeError(f"column {name!r} needs a whole number of values, at least 1")
        self._sizes = dict(sizes)

    def __getitem__(self, name: str) -> int:
        if name not in self._sizes:
            raise RecipeError(f"the domain has no column {name!r} (it has: {', '.join(self._sizes)})")
        return self._sizes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"Domain({self._sizes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        return hash(tuple(self._sizes.items()))

    def __contains__(self, name: Any) -> bool:  # noqa: ANN401 - as Mapping has it
        return name in self._sizes

    def shape(self, columns: tuple[str, ...]) -> tuple[int, ...]:
        """The sizes of `columns`, in their order."""
        return tuple(self[name] for name in columns)

    def cells(self, columns: tuple[str, ...]) -> int:
        """The number of combinations of `columns`."""
        return math.prod(self.shape(columns))

    def order(self, columns: tuple[str, ...] | frozenset[str] | set[str]) -> tuple[str, ...]:
        """`columns` in the order of the domain."""
        wanted = set(columns)
        return tuple(name for name in self._sizes if name in wanted)
