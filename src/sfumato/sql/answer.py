"""An answer: noisy values with their intervals, and what they cost."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.errors import LedgerError, ReleaseError
from sfumato.sql.finish import NoisyAggregates
from sfumato.tables.arrays import read_parquet, to_arrow

if TYPE_CHECKING:
    from sfumato.sql.plan import QueryPlan

_MOST_GROUPS = 2**24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The answer to a statement.

    Aggregates have their 95 % interval beside them, in `<name>_low` and `<name>_high`. `scales` names
    the noise behind each column, `spent` what was charged now: nothing for a repeated statement, `notes`
    what should be known of the answer before it is used.
    """

    table: pa.Table
    spent: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    repeated: bool = False
    synthetic: bool = False
    public: bool = False
    scales: Mapping[str, str] = field(default_factory=dict)
    explanation: str | None = None
    notes: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        """The answer as an Arrow table."""
        return self.table

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not a dependency
        """The answer as a pandas frame; pandas must be installed."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:  # noqa: ANN401 - polars is not a dependency
        """The answer as a polars frame; polars must be installed."""
        try:
            import polars  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise ReleaseError("polars is not installed; install it, or use to_arrow()") from None
        return polars.from_arrow(self.table)

    def __repr__(self) -> str:
        return self.explanation or f"Answer({self.table.num_rows} rows: {', '.join(self.table.column_names)})"


def pack_noisy(noisy: NoisyAggregates) -> bytes:
    """Noisy aggregates as bytes for the ledger; holds no exact value."""
    columns = {
        f"{index}/{part}": to_arrow(row)
        for index, values in enumerate(noisy.values)
        for part, row in enumerate(np.atleast_2d(values))
    }
    if noisy.keys is not None:
        columns["keys"] = pa.array([json.dumps(key) for key in noisy.keys], pa.string())
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def unpack_noisy(payload: bytes, plan: QueryPlan) -> NoisyAggregates:
    """The noisy aggregates of a stored answer to `plan`."""
    try:
        table = read_parquet(payload, rows=_MOST_GROUPS)
        values = []
        for index, noise in enumerate(plan.noises):
            stored = sum(name.startswith(f"{index}/") for name in table.column_names)
            rows = [np.asarray(table[f"{index}/{part}"].combine_chunks()) for part in range(max(1, stored))]
            values.append(np.stack(rows) if noise.kind == "exponential" else rows[0])
        keys = None
        if plan.selection is not None:
            keys = tuple(tuple(json.loads(text)) for text in table["keys"].to_pylist())
    except (pa.ArrowException, KeyError, OSError, ValueError):
        raise LedgerError("a stored answer cannot be read; verify the ledger") from None
    return NoisyAggregates(values=tuple(values), keys=keys)
