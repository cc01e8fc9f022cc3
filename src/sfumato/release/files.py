"""Noisy tables as bytes: the same content gives the same bytes."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sfumato.arrays import label_array, to_arrow, to_numpy
from sfumato.errors import ReleaseError
from sfumato.measurement import Measurement, Request

if TYPE_CHECKING:
    from sfumato.schema import Table

_SPECIAL = frozenset('",\r\n')

__all__ = ["pack_measurements", "table_to_csv", "table_to_parquet", "unpack_measurements"]


def pack_measurements(measurements: tuple[Measurement, ...]) -> bytes:
    """All measurements as one Parquet file: noisy, unclipped, with the scale of their noise.

    Value and scale are in units of 1 / grid; the certificate states the grid.
    """
    names = tuple(measurement.request.name for measurement in measurements)
    sizes = [measurement.noisy_values.size for measurement in measurements]
    scales = np.array([float(measurement.request.scale) for measurement in measurements])
    which = np.repeat(np.arange(len(names), dtype=np.int32), sizes)
    cells = [np.arange(size, dtype=np.int64) for size in sizes]
    table = pa.table(
        {
            "measurement": label_array(which, names),
            "cell": to_arrow(np.concatenate(cells)),
            "noisy_value": to_arrow(np.concatenate([each.noisy_values for each in measurements])),
            "noise_scale": to_arrow(scales[which]),
        }
    )
    return table_to_parquet(table, varied=("cell", "noisy_value"), statistics=False)


def unpack_measurements(
    payload: bytes, requests: tuple[Request, ...], table: Table
) -> tuple[Measurement, ...]:
    """The measurements of a packed file, which must answer exactly `requests`, in order."""
    try:
        packed = pq.read_table(io.BytesIO(payload))
        sizes = [table.cells(request.columns) for request in requests]
        if packed.num_rows != sum(sizes):
            message = f"measurements.parquet has {packed.num_rows:,} cells, its plan {sum(sizes):,}"
            raise ReleaseError(message)
        measurements, start = [], 0
        for request, size in zip(requests, sizes, strict=True):
            measurements.append(_unpack(packed.slice(start, size), request, table.grid))
            start += size
    except (pa.ArrowInvalid, KeyError, OSError) as error:
        message = f"measurements.parquet cannot be read ({type(error).__name__})"
        raise ReleaseError(message) from None
    return tuple(measurements)


def table_to_parquet(table: pa.Table, *, varied: tuple[str, ...], statistics: bool = True) -> bytes:
    """`table` as a Parquet file; `varied` names the whole-number columns whose values rarely repeat."""
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in varied],
        column_encoding=dict.fromkeys(varied, "DELTA_BINARY_PACKED"),
        write_statistics=statistics,
        store_schema=False,
    )
    return sink.getvalue()


def table_to_csv(table: pa.Table) -> bytes:
    """`table` as CSV with a header line, text quoted only if some of it must be."""
    quoting = "needed" if _needs_quotes(table) else "none"
    rows = max(1, -(-table.num_rows // (os.cpu_count() or 1)))
    slices = [table.slice(start, rows) for start in range(0, max(1, table.num_rows), rows)]

    def write(part: pa.Table, *, header: bool) -> bytes:
        sink = io.BytesIO()
        options = pyarrow.csv.WriteOptions(
            include_header=header, batch_size=65536, quoting_style=quoting, quoting_header=quoting
        )
        pyarrow.csv.write_csv(part, sink, options)
        return sink.getvalue()

    with ThreadPoolExecutor(len(slices)) as pool:
        return b"".join(pool.map(lambda item: write(item[1], header=item[0] == 0), enumerate(slices)))


def _needs_quotes(table: pa.Table) -> bool:
    texts = list(table.column_names)
    for column in table.columns:
        if pa.types.is_dictionary(column.type) and column.num_chunks:
            texts += column.chunk(0).dictionary.to_pylist()
    # An empty text must not look like a missing value.
    return any(not text or not _SPECIAL.isdisjoint(text) for text in texts)


def _unpack(part: pa.Table, request: Request, grid: int) -> Measurement:
    for name, expected in (
        ("measurement", request.name),
        ("noise_scale", float(request.scale)),
    ):
        if pc.unique(part[name]).to_pylist() != [expected]:
            message = f"measurements.parquet: {request.name!r} states another {name} than its plan"
            raise ReleaseError(message)
    values = part["noisy_value"].combine_chunks()
    if values.type != pa.int64() or values.null_count:
        message = f"measurements.parquet: {request.name!r} holds values that are not whole numbers"
        raise ReleaseError(message)
    return Measurement(request=request, noisy_values=to_numpy(values), grid=grid)
