"""Tables with one column of counts per kind, as contests lay them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sfumato.errors import MetricError
from sfumato.metrics.encode import encode_pair
from sfumato.metrics.tables import require_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.metrics.pair import CodedPair

ROW = "row of the table"
_COUNT = "count of the cell"
_SEPARATOR = "\x1f"


def encode_wide(
    truth: pa.Table, release: pa.Table, *, rows: Sequence[str], kind: str, unit: str | None = None
) -> CodedPair:
    """Records, and a release with a column of counts for every kind, in the same codes.

    The columns `rows` together become the column ROW: the rows to score are those that occur, which are
    all rows of the release.

    >>> records = pa.table({"month": [1, 1], "kind": [7, 8]})
    >>> pair = encode_wide(records, pa.table({"month": [1], "7": [3], "8": [0]}), rows=["month"], kind="kind")
    >>> pair.sizes, pair.release.total
    ({'row of the table': 1, 'kind': 2}, 3.0)
    """
    require_columns(truth, (*rows, kind, *([] if unit is None else [unit])), side="truth")
    require_columns(release, rows, side="release")
    counted = [name for name in release.column_names if name not in rows]
    if not counted:
        raise MetricError("release: no column of counts beside those of place and time")
    row = _fuse(release, rows)
    parts = [
        pa.table(
            {ROW: row, kind: pa.array([name] * release.num_rows, pa.string()), _COUNT: release.column(name)}
        )
        for name in counted
    ]
    kept = {} if unit is None else {unit: truth.column(unit)}
    records = pa.table({ROW: _fuse(truth, rows), kind: truth.column(kind)} | kept)
    try:
        long = pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException:
        raise MetricError("release: every column beside those of place and time must hold counts") from None
    return encode_pair(records, long, columns=[ROW, kind], weight=_COUNT, unit=unit, cut=False)


def _fuse(table: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    texts = [table.column(name).cast(pa.string()) for name in names]
    return pc.binary_join_element_wise(*texts, _SEPARATOR, null_handling="replace")
