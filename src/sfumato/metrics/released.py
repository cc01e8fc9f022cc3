"""A release as it lies on disk: its table, and what its certificate says of the columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from sfumato.metrics.tables import measure, read_table
from sfumato.release.folder import open_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.schema import Table

EPSILON = "epsilon"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Released:
    """A released table; with a certificate, also the description of its columns and their order."""

    table: pa.Table
    described: Table | None = None
    columns: tuple[str, ...] = ()


def open_release(path: Path | str) -> Released:
    """The release in the folder `path`, or the table in the file `path`.

    >>> open_release("nowhere")
    Traceback (most recent call last):
        ...
    sfumato.errors.MetricError: release: there is no file 'nowhere'
    """
    path = Path(path)
    if not path.is_dir():
        return Released(read_table(path, side="release"))
    opened = open_folder(path, wanted=("table.parquet",))
    plan = opened.plan()
    return Released(opened.table("table.parquet"), plan.table, tuple(plan.columns))


def split_epsilons(released: pa.Table) -> list[tuple[float | None, pa.Table]]:
    """(epsilon, table) for every epsilon of a release of several, in their order; else (None, table).

    >>> both = read_table({"epsilon": [1.0, 2.0], "a": [1, 2]}, side="release")
    >>> [(epsilon, part.column_names) for epsilon, part in split_epsilons(both)]
    [(1.0, ['a']), (2.0, ['a'])]
    """
    if EPSILON not in released.column_names:
        return [(None, released)]
    values = measure(released, EPSILON, side="release")
    _, first = np.unique(values, return_index=True)
    rest = released.drop_columns([EPSILON])
    column = released.column(EPSILON)
    return [(float(values[at]), rest.filter(pc.equal(column, column[int(at)]))) for at in np.sort(first)]
