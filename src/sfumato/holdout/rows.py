"""Data sets as a guard keeps them: rows that can be counted, taken and handed out, and print nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sfumato.errors import SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RowSet:
    """The rows of one data set: an array, a table, a mapping of columns, or a tuple of those.

    Tables are anything with `iloc` (pandas), with `column_names` (Arrow) or with a shape and rows taken by
    an array of places (numpy, sparse matrices, polars). The parts of a tuple, such as (X, y), have their
    rows in the same order. With `own`, the rows are copied, so that later changes of the data are not seen.

    >>> rows = RowSet((np.zeros((4, 2)), [0, 1, 1, 0]), name="train")
    >>> rows
    RowSet(rows=4, values withheld)
    >>> [part.shape for part in rows.take(np.array([2])).arguments()]
    [(1, 2), (1,)]
    """

    __slots__ = ("_parts", "_rows", "name")

    def __init__(self, data: object, *, name: str, own: bool = False) -> None:
        self.name = name
        given = data if isinstance(data, tuple) else (data,)
        self._parts = tuple(_keep(part, name=name, own=own) for part in given)
        counts = {_count(part) for part in self._parts}
        if len(counts) != 1:
            raise SchemaError(f"all parts of {name} must have the same number of rows, at least one part")
        (self._rows,) = counts
        if self._rows < 1:
            raise SchemaError(f"{name} must have at least one row")

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"RowSet(rows={self._rows}, values withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the rows of a guard cannot be pickled")

    @property
    def parts(self) -> int:
        """How many arguments a question gets."""
        return len(self._parts)

    @property
    def columns(self) -> tuple[object, ...]:
        """What is public about the columns: names, or shapes and kinds of values."""
        return tuple(_describe(part) for part in self._parts)

    def arguments(self) -> tuple[Any, ...]:
        """The parts to call a question with; what is done to them does not change these rows."""
        return tuple(_hand_out(part) for part in self._parts)

    def take(self, places: NDArray[np.intp]) -> RowSet:
        """The rows at these places, in this order."""
        taken = tuple(_take(part, places) for part in self._parts)
        return RowSet(taken, name=self.name)


def check_same_columns(train: RowSet, holdout: RowSet) -> None:
    """Raises an error that names what differs between the columns of two data sets."""
    pair = f"{train.name} and {holdout.name}"
    if train.parts != holdout.parts:
        raise SchemaError(
            f"{pair} have {train.parts} and {holdout.parts} parts; give both as (X, y), or both alone"
        )
    for place, (ours, theirs) in enumerate(zip(train.columns, holdout.columns, strict=True), start=1):
        if ours != theirs:
            part = f"part {place} of " if train.parts > 1 else ""
            raise SchemaError(f"{part}{pair} must have the same columns: {_difference(ours, theirs)}")


def _difference(ours: object, theirs: object) -> str:
    if isinstance(ours, frozenset) and isinstance(theirs, frozenset):
        names = sorted(str(name)[:40] for name in ours ^ theirs)
        return f"{', '.join(map(repr, names[:5]))} in one of them only"
    if isinstance(ours, tuple) and isinstance(theirs, tuple) and set(ours) == set(theirs):
        return "they are in another order"
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return _difference(frozenset(ours), frozenset(theirs))
    return f"one has {_spell(ours)}, the other {_spell(theirs)}"


def _spell(columns: object) -> str:
    return columns if isinstance(columns, str) else "named columns"


def _keep(part: object, *, name: str, own: bool) -> Any:  # noqa: ANN401  # any table a user may have
    if isinstance(part, Mapping):
        kept = {key: _keep(column, name=name, own=own) for key, column in part.items()}
        if len({_count(column) for column in kept.values()}) != 1:
            raise SchemaError(f"the columns of {name} must have the same number of rows, at least one column")
        return kept
    if isinstance(part, list) or (hasattr(part, "__array__") and not hasattr(part, "shape")):
        part = np.asarray(part)
    if getattr(part, "shape", None) == ():
        raise SchemaError(f"{name} must be a data set with rows, not one value")
    if isinstance(part, np.ndarray):
        kept_array = part.copy(order="K") if own else part.view()
        kept_array.flags.writeable = False
        return kept_array
    if not (hasattr(part, "iloc") or hasattr(part, "column_names") or hasattr(part, "shape")):
        raise SchemaError(
            f"{name} must be an array, a table, a mapping of columns or a tuple of those, "
            f"not {type(part).__name__}"
        )
    return part.copy() if own and hasattr(part, "copy") else part


def _count(part: Any) -> int:  # noqa: ANN401
    if isinstance(part, dict):
        return _count(next(iter(part.values())))
    if hasattr(part, "num_rows"):
        return int(part.num_rows)
    return int(part.shape[0])


def _take(part: Any, places: NDArray[np.intp]) -> Any:  # noqa: ANN401
    if isinstance(part, dict):
        return {key: _take(column, places) for key, column in part.items()}
    if hasattr(part, "iloc"):
        return part.iloc[places]
    if hasattr(part, "column_names"):
        return part.take(places)
    return part[places]


def _hand_out(part: Any) -> Any:  # noqa: ANN401
    if isinstance(part, dict):
        return {key: _hand_out(column) for key, column in part.items()}
    if isinstance(part, np.ndarray):
        return part.view()  # read-only, as what it is a view of
    return part.copy() if hasattr(part, "copy") else part


def _describe(part: Any) -> object:  # noqa: ANN401
    if isinstance(part, dict):
        return frozenset(part)
    for attribute in ("column_names", "columns"):
        if hasattr(part, attribute):
            return tuple(map(str, getattr(part, attribute)))
    shape = " x ".join(str(size) for size in part.shape[1:]) or "1"
    kind = getattr(getattr(part, "dtype", None), "kind", "O")
    values = {"b": "numbers", "i": "numbers", "u": "numbers", "f": "numbers"}.get(kind, "other values")
    return f"{shape} column{'s' if shape != '1' else ''} of {values}"
