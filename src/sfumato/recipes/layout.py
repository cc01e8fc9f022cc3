"""The columns of a dense table: what every cell of a marginal stands for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.schema import Label, Tuples
from sfumato.tables.arrays import label_array

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.schema import Column, Table


def cell_columns(table: Table, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """One array per released column, with a label for every cell in row-major order."""
    sizes = [table.column(name).size for name in names]
    columns: dict[str, pa.Array] = {}
    for index, name in enumerate(names):
        inner, outer = math.prod(sizes[index + 1 :]), math.prod(sizes[:index])
        codes = np.tile(np.repeat(np.arange(sizes[index], dtype=np.int32), inner), outer)
        for label_name, labels in column_labels(table.column(name)).items():
            columns[label_name] = label_array(codes, labels)
    return columns


def released_names(table: Table, names: tuple[str, ...]) -> list[str]:
    """The names under which the columns are released."""
    columns = [table.column(name) for name in names]
    return [name for each in columns for name in (each.stored if _is_parted(each) else (each.name,))]


def refuse_clash(kind: str, names: list[str]) -> None:
    """Raises an error if two released columns would have one name."""
    clash = next((name for name in names if names.count(name) > 1), None)
    if clash is not None:
        raise RecipeError(
            f"{kind}: two released columns would be named {clash!r}; describe one by another name"
        )


def column_labels(column: Column) -> dict[str, tuple[Label, ...]]:
    """The released columns that `column` becomes, each with a label for every code."""
    if isinstance(column.domain, Tuples) and _is_parted(column):
        parts = zip(*column.domain.values, strict=True)
        return {name: tuple(part) for name, part in zip(column.stored, parts, strict=True)}
    return {column.name: column.labels}


def _is_parted(column: Column) -> bool:
    """Whether a combination is released as the columns it is made of."""
    return isinstance(column.domain, Tuples) and column.outside != "other"
