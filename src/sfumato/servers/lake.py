"""Tables on a lake: what deltalake and pyiceberg say of one snapshot, and its rows, file by file.

The libraries say which files a snapshot has, which of their rows are deleted, and under which names columns
are stored. No statistics of a file are used, and none is left out for what it holds (docs/proofs/sealed.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sfumato.core.engine.base import name_source
from sfumato.core.engine.source import FileSource, describe_stored, refuse_twins
from sfumato.core.errors import SourceError
from sfumato.core.exact import digest
from sfumato.core.facts.table import PublicTable, find_lake

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from sfumato.core.facts.table import Table

Rows = Callable[["pa.Schema"], "Iterator[pa.RecordBatch]"]

_BATCH_ROWS = 2**17
# What a table of Delta may ask of its readers that is done here; wider types are not, and no mapped columns.
_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot of a table: its number, its columns, its files and their sizes, and how to read them.

    `version` is the same in every copy of the table, and another for every other snapshot.
    """

    number: int
    version: str
    schema: pa.Schema
    sizes: dict[Path, int]
    read: Rows


def find_snapshot(kind: str, path: Path, snapshot: int | None, *, name: str) -> Snapshot:
    """The snapshot of that number, or the latest one; errors call the table `name`."""
    if kind == "iceberg" and not path.exists() and path.name.count(".") > 1:
        ask = _ask_catalog if snapshot is not None else _ask_catalog.__wrapped__
        with _explain(name, kind, snapshot):
            path = ask(path.name)
    log = path / "_delta_log" if kind == "delta" else path.parent if path.is_file() else path / "metadata"
    if not log.is_dir():
        raise SourceError(f"{name} is no table of {kind.capitalize()}: there is no folder {log.name!r}")
    status = log.stat()  # every commit adds a file to this folder
    found = _open(kind, path, snapshot, name, (status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    # A file of a snapshot is never written again: what has another size is none of it.
    if not all(each.is_file() and each.stat().st_size == size for each, size in found.sizes.items()):
        raise SourceError(
            f"{name}: data files of snapshot {found.number} are missing or were changed, as after a vacuum "
            "or an expiry; name a later snapshot, or restore them"
        )
    return found


def find_source(table: Table | PublicTable, *, folder: Path) -> FileSource:
    """The snapshot of a table that its description names, or the latest one, as files to be read."""
    name, lake = name_source(table), find_lake(table.source)
    if lake is None or isinstance(table, PublicTable):
        raise SourceError(f"public {name} must be a file")
    found = find_snapshot(lake[0], folder / lake[1], table.snapshot, name=name)
    described = FileSource(
        paths=tuple(found.sizes),
        format="lake",
        columns={field.name: describe_stored(field.type) for field in found.schema},
        schema=found.schema,
        version=found.version,
        rows=found.read,
    )
    return refuse_twins(described, name)


def pin_table(table: Table, *, folder: Path) -> Table:
    """`table` with the number of the latest snapshot where it names none, and so those it refers to."""
    lake = find_lake(table.source)
    if lake is not None and table.snapshot is None:
        with suppress(SourceError):  # told where the table is asked
            found = find_snapshot(lake[0], folder / lake[1], None, name=f"table {table.name!r}")
            table = replace(table, snapshot=found.number)
    if table.reference is not None:
        parent = pin_table(table.reference.table, folder=folder)
        if parent is not table.reference.table:
            table = replace(table, reference=replace(table.reference, table=parent))
    return table


@lru_cache(maxsize=64)
def _ask_catalog(name: str) -> Path:
    """Where the catalogue that pyiceberg is configured with keeps a table's description."""
    from pyiceberg.catalog import load_catalog

    catalog, _, table = name.partition(".")
    return _local(load_catalog(catalog).load_table(table).metadata_location, name)


@contextmanager
def _explain(name: str, kind: str, snapshot: int | None) -> Iterator[None]:
    # What a library says may hold the path of a file, and that the values by which rows are divided.
    try:
        yield
    except SourceError:
        raise
    except ImportError:
        raise SourceError(f"{name} needs another package: pip install 'sfumato[lake]'") from None
    except Exception as error:
        if "equality delete" in str(error):
            raise SourceError(f"{name} has equality deletes, which are not read; compact the table") from None
        which = "its latest snapshot" if snapshot is None else f"snapshot {snapshot}"
        raise SourceError(
            f"{name}: {which} cannot be opened by {'deltalake' if kind == 'delta' else 'pyiceberg'} "
            f"({type(error).__name__}): it does not exist, has expired, or its description is damaged"
        ) from None


@lru_cache(maxsize=64)
def _open(kind: str, path: Path, snapshot: int | None, name: str, _state: tuple[int, ...]) -> Snapshot:
    with _explain(name, kind, snapshot):
        return (_open_delta if kind == "delta" else _open_iceberg)(path, snapshot, name)


def _open_delta(path: Path, snapshot: int | None, name: str) -> Snapshot:
    import numpy as np
    import pyarrow as pa
    from deltalake import DeltaTable

    table = DeltaTable(str(path), version=snapshot)
    facts = table.metadata()
    refused = {*(table.protocol().reader_features or ())} - _FEATURES
    if facts.configuration.get("delta.columnMapping.mode", "none") != "none":
        refused.add("column mapping")
    if refused:
        raise SourceError(f"{name} uses what is not read of Delta: {', '.join(sorted(refused))}")
    schema = pa.schema(table.schema().to_arrow())
    actions = pa.table(table.get_add_actions(flatten=True))
    plain = [each for each in actions.column_names if each.startswith(("path", "size_bytes", "partition."))]
    listed = sorted(actions.select(plain).to_pylist(), key=lambda each: each["path"])
    files: dict[Path, dict[str, Any]] = {}
    for each in listed:
        parts = {key: each[f"partition.{key}"] for key in facts.partition_columns}
        files[path / _local(unquote(each["path"]), name)] = parts  # written as parts of URLs
    kept: dict[Path, NDArray[np.bool_]] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for file, mask in zip(batch.column(0), batch.column(1), strict=True):
            kept[_local(unquote(file.as_py()), name).resolve()] = mask.values.to_numpy(zero_copy_only=False)
    if not set(kept) <= {each.resolve() for each in files}:
        raise SourceError(f"{name} has deletion vectors of files that it does not list")
    for file in files:
        _check_types(file, schema, name)

    def read(wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        for file, parts in files.items():
            _check_types(file, wanted, name)
            yield from _read_file(file, wanted, parts, kept.get(file.resolve()))

    # Two copies of a table, each changed since, have the same numbers: their files tell them apart.
    content = [(each["path"], each["size_bytes"]) for each in listed]
    masks = [
        "" if (mask := kept.get(each.resolve())) is None else np.packbits(mask).tobytes().hex()
        for each in files
    ]
    version = f"delta|{facts.id}|{table.version()}|{digest([content, masks])}"
    sizes = {file: each["size_bytes"] for file, each in zip(files, listed, strict=True)}
    return Snapshot(number=table.version(), version=version, schema=schema, sizes=sizes, read=read)


def _open_iceberg(path: Path, snapshot: int | None, name: str) -> Snapshot:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(str(_find_metadata(path, name)))
    current = table.current_snapshot() if snapshot is None else table.snapshot_by_id(snapshot)
    if current is None:
        which = "snapshot yet" if snapshot is None else f"snapshot {snapshot}: it never had, or it expired"
        raise SourceError(f"{name} has no {which}")
    number = current.snapshot_id
    scan = table.scan(snapshot_id=number)
    tasks = sorted(scan.plan_files(), key=lambda each: each.file.file_path)
    deletes = [_local(one.file_path, name) for each in tasks for one in each.delete_files]
    if not all(str(each.file.file_format).endswith("PARQUET") for each in tasks):
        raise SourceError(f"{name} has data files that are not Parquet, which are not read")
    if not all(each.is_file() for each in deletes):
        raise SourceError(f"{name}: files of deletes of snapshot {number} are missing; restore them")

    def read(wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        chosen = table.scan(snapshot_id=number, selected_fields=tuple(wanted.names)).projection()
        for task in tasks:
            rows = ArrowScan(table.metadata, table.io, chosen, AlwaysTrue())
            for batch in rows.to_record_batches([task]):
                yield batch.select(wanted.names).cast(wanted)

    return Snapshot(
        number=number,
        version=f"iceberg|{table.metadata.table_uuid}|{number}",
        schema=schema_to_pyarrow(scan.projection(), include_field_ids=False),
        sizes={_local(each.file.file_path, name): each.file.file_size_in_bytes for each in tasks},
        read=read,
    )


def _find_metadata(path: Path, name: str) -> Path:
    """The latest description of a table in its folder; `path` itself if it is one."""
    if path.is_file() or (path / "metadata" / "version-hint.text").is_file():
        return path
    # 00003-UUID.metadata.json or v3.metadata.json
    found: dict[int, list[Path]] = {}
    for each in (path / "metadata").glob("*.metadata.json"):
        number = each.name.removeprefix("v").partition("." if each.name.startswith("v") else "-")[0]
        if number.isdigit():
            found.setdefault(int(number), []).append(each)
    latest = found[max(found)] if found else []
    if len(latest) != 1:
        raise SourceError(
            f"{name} has {len(latest)} latest descriptions; name one: iceberg:.../X.metadata.json"
        )
    return latest[0]


def _local(location: str, name: str) -> Path:
    path = location.removeprefix("file://").removeprefix("file:")
    if "://" in path:
        raise SourceError(f"{name} has files in object storage, which is not read; mount it, or copy them")
    return Path(path)


def _check_types(path: Path, schema: pa.Schema, name: str) -> None:
    """Refuses a file whose values might not fit the table's types: then a record would decide what fails."""
    import pyarrow.parquet as pq

    if not path.is_file():
        return  # told where it is asked
    stored = pq.read_schema(path)
    for field in schema:
        kind = stored.field(field.name).type if field.name in stored.names else field.type
        if not _fits(kind, field.type):
            raise SourceError(
                f"{name}: column {field.name!r} is {kind} in a file and {field.type} in the table"
            )


def _fits(kind: pa.DataType, wanted: pa.DataType) -> Any:  # noqa: ANN401 - Arrow's truth
    from pyarrow import types

    if kind == wanted or types.is_nested(wanted) or types.is_binary(wanted):
        return True
    for alike in (types.is_signed_integer, types.is_floating):
        if alike(kind) and alike(wanted):
            return kind.bit_width <= wanted.bit_width
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    if types.is_string(wanted):
        return any(is_text(kind) for is_text in texts)
    return types.is_timestamp(kind) and types.is_timestamp(wanted)


def _read_file(
    path: Path, wanted: pa.Schema, parts: dict[str, Any], kept: NDArray[np.bool_] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file of Delta that are not deleted; a column that was added later is missing there."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        own = [each for each in wanted.names if each in file.schema_arrow.names and each not in parts]
        read = 0
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=own):
            columns = [
                batch.column(each.name).cast(each.type, safe=False)
                if each.name in own
                else pa.repeat(pa.scalar(parts.get(each.name), each.type), batch.num_rows)
                for each in wanted
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=wanted)
            if kept is not None:
                mask = np.ones(batch.num_rows, bool)  # a vector may end before its file does
                told = kept[read : read + batch.num_rows]
                mask[: told.size] = told
                rows = rows.filter(pa.array(mask))
            read += batch.num_rows
            yield rows
