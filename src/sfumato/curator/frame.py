"""A table in memory as a project of its own: described in Python, answered as any other."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sfumato.curator import Curator
from sfumato.errors import SchemaError
from sfumato.schema import parse_project, suggest_name
from sfumato.tables import TableLike, read_table

_FILE = "frame.parquet"


def open_frame(
    frame: TableLike,
    *,
    unit: str,
    columns: Mapping[str, object],
    epsilon: object,
    delta: object = 0,
    max_records: int | str | None = None,
    name: str = "t",
    ledger: Path | str | None = None,
    **options: object,
) -> Curator:
    """The curator of a table in memory: a pandas or polars frame, an Arrow table, a mapping of columns.

    Args:
        frame: The records. A copy of them is kept in a folder that only this user can enter, and goes with
            this process.
        unit: The column that names the individual, or "row".
        columns: What each column may hold, known without looking at the records: a list of values, a pair
            (low, high) of bounds, a `range` of whole numbers, or the keys of the project file as a mapping.
        epsilon: The most that may ever be spent on these records.
        delta: The delta of that budget; zero leaves pure epsilon.
        max_records: The most records of one individual that count.
        name: What statements and recipes call the table.
        ledger: Where the budget is kept. Without one it lives as long as this process: the same records
            opened again share it, and a process that starts anew is a second budget for the same people.
        **options: Further keys of a table in the project file, such as `neighbours`.

    Spends nothing.

    >>> import sfumato as sf
    >>> visits = {"person": [1, 1, 2], "clinic": ["North", "South", "North"]}
    >>> curator = sf.from_frame(
    ...     visits, unit="person", max_records=2, columns={"clinic": ["North", "South"]}, epsilon=1.0
    ... )
    >>> curator.describe("DP-SELECT 0.5 COUNT(*) AS visits FROM t").columns[0][0]
    'visits'
    >>> curator.budget().left
    1

    """
    if isinstance(frame, (str, Path)):
        raise SchemaError("from_frame takes a table in memory; describe a file in sfumato.toml and open that")
    description: dict[str, Any] = {
        "source": _FILE,
        "unit": unit,
        **({} if max_records is None else {"max_records": max_records}),
        **options,
        "columns": {str(key): _describe_column(key, each) for key, each in columns.items()},
    }
    folder = _keep_records(frame, unit=unit)
    budget = {"epsilon": epsilon, "delta": delta}
    if ledger is not None:
        place = str(ledger)
        budget["ledger"] = place if "://" in place else str(Path(place).absolute())
    document = {"budget": budget, "tables": {name: description}}
    curator = Curator(parse_project(document, folder=folder), file="sf.from_frame")
    stored = curator.describe_table(name)
    described = curator.project.table(name).columns.values()
    missing = [(each.name, part) for each in described for part in each.stored if part not in stored]
    if missing:
        column, part = missing[0]
        raise SchemaError(
            f"column {column!r}: the table has no plain column {part!r}{suggest_name(part, stored)}"
        )
    return curator


def _describe_column(name: str, given: object) -> dict[str, Any]:
    """The keys of the project file for a column that is described in Python's own words."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, range):
        if given.step != 1 or not given:
            raise SchemaError(f"column {name!r}: a range of whole numbers goes up by one; list other values")
        return {"range": [given.start, given.stop - 1]}
    if isinstance(given, tuple):
        if len(given) != 2:
            raise SchemaError(f"column {name!r}: a pair is (low, high); values stand in a list")
        return {"bounds": [_plain(end) for end in given]}
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise SchemaError(
            f"column {name!r}: give a list of values, a pair of bounds, a range, or a mapping such as "
            '{"bins": [0, 10, 50]}'
        )
    return {"values": [_plain(each) for each in _iterate(given)]}


def _iterate(given: Any) -> Iterator[object]:  # noqa: ANN401 - whatever has elements
    yield from given


def _plain(value: Any) -> object:  # noqa: ANN401 - a scalar of Python or numpy
    return value.item() if hasattr(value, "item") else value


def _keep_records(frame: TableLike, *, unit: str) -> Path:
    """The folder with the records as a file; equal records have one folder, and so one ledger."""
    records = read_table(frame, side="frame").replace_schema_metadata()
    if unit in records.column_names and pa.types.is_floating(records[unit].type):
        # pandas makes floats of whole numbers where one is missing. As texts they can be told apart.
        numbers = pc.add(records[unit], 0.0)  # one zero, not two
        names = pc.if_else(pc.is_nan(numbers), None, numbers.cast(pa.string()))
        records = records.set_column(records.column_names.index(unit), unit, names)
    root = Path(_make_folder().name)
    with tempfile.TemporaryDirectory(dir=root) as draft:
        path = Path(draft) / _FILE
        pq.write_table(records, path, compression="lz4", write_statistics=False)
        with path.open("rb") as written:
            folder = root / f"sha256-{hashlib.file_digest(written, 'sha256').hexdigest()}"
        if not (folder / _FILE).exists():
            folder.mkdir(exist_ok=True)
            path.rename(folder / _FILE)
    return folder


@cache
def _make_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that only this user may enter, removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="sfumato-")
