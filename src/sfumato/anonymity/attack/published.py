"""What is attacked, a release folder or a file, and whose record a row really is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.anonymity.attack.link import Published, read_text
from sfumato.core.engine.arrays import to_numpy
from sfumato.core.errors import AttackError
from sfumato.tables.contents import restore_formulas
from sfumato.tables.read import require_columns

_LARGEST = 2**40


def open_published(
    source: Path | str | pa.Table, *, count: str | None = None, side: str = "release"
) -> Published:
    """The rows of a release folder or of a file, with the numbers of records in the column `count`.

    A folder whose table has a column `count` is one of counts, also without saying so.

    >>> counts = open_published(pa.table({"ward": ["a", "b"], "n": [3, 0]}), count="n")
    >>> counts.table.to_pylist(), counts.records
    ([{'ward': 'a'}], 3)
    """
    folder = not isinstance(source, pa.Table) and Path(source).is_dir()
    if folder:
        from sfumato.release.folder import open_folder

        opened = open_folder(str(source), load=("table.parquet",))
        opened.plan()  # a certificate that could not have been made fails here as it does everywhere
        source = opened.table("table.parquet")
    table = read_text(source, side=side)
    if not isinstance(source, pa.Table) and not str(source).lower().endswith(".parquet"):
        table = restore_formulas(table)
    if folder and count is None and "count" in table.column_names:
        count = "count"
    if folder and "epsilon" in table.column_names and len(pc.unique(table["epsilon"])) > 1:
        raise AttackError(
            f"{side}: holds tables at several epsilons; write the rows of one to a file and give that"
        )
    if count is None:
        return Published(table, np.ones(table.num_rows, np.int64))
    require_columns(table, [count], side=side)
    weights = _whole_numbers(table[count], count, side)
    kept = weights > 0
    return Published(table.filter(pa.array(kept)).drop_columns([count]), weights[kept])


def read_identities(
    release: Published, truth: pa.Table, *, identity: str, key: str | None = None
) -> pa.Array:
    """The identity behind every row of `release`: the row of `truth` at the same place, or of the same `key`.

    >>> from sfumato.anonymity.attack import open_published
    >>> rows = open_published(pa.table({"id": ["2", "1"], "age": ["60+", "20-40"]}))
    >>> truth = pa.table({"id": ["1", "2"], "name": ["Ada", "Bo"]})
    >>> read_identities(rows, truth, identity="name", key="id").to_pylist()
    ['Bo', 'Ada']
    """
    truth = read_text(truth, side="truth")
    require_columns(truth, [identity, *([] if key is None else [key])], side="truth")
    if (release.weights != 1).any():
        raise AttackError("a release of counts has no record to compare; leave the truth out")
    owners = truth[identity]
    if key is None:
        if truth.num_rows != release.table.num_rows:
            raise AttackError(
                "truth and release have different numbers of rows; name a column of both that joins them"
            )
        return owners.combine_chunks()
    require_columns(release.table, [key], side="release")
    names = truth[key].to_pylist()
    known = dict(zip(names, owners.to_pylist(), strict=True))
    if len(known) != len(names):
        raise AttackError(f"truth: column {key!r} has a value twice, so it does not tell rows apart")
    return pa.array([known.get(value) for value in release.table[key].to_pylist()], pa.string())


def _whole_numbers(column: pa.ChunkedArray, name: str, side: str) -> NDArray[np.int64]:
    try:
        numbers = column.combine_chunks().cast(pa.int64())
    except pa.ArrowException:
        numbers = None
    if numbers is None or numbers.null_count or (len(numbers) and pc.max(numbers).as_py() > _LARGEST):
        raise AttackError(f"{side}: column {name!r} must hold whole numbers of records")
    return to_numpy(numbers)
