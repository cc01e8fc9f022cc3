"""Tables in and out: what is given as a frame comes back as a frame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.anonymity.values import is_text
from sfumato.errors import AnonymityError, SourceError
from sfumato.tables import read_table as read_any

if TYPE_CHECKING:
    from collections.abc import Iterable

TableLike = Any
"""An Arrow table, a pandas or polars frame, a mapping of columns, or the path of a Parquet or CSV file."""


_TEXT_FILES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


def read_table(source: TableLike, *, side: str, columns: Iterable[str] | None = None) -> pa.Table:
    """`source` as an Arrow table, of its `columns` only if they are given; `side` is what messages call it.

    >>> read_table({"age": [61, 72], "name": ["a", "b"]}, side="table", columns=["age"]).to_pylist()
    [{'age': 61}, {'age': 72}]
    """
    wanted = None if columns is None else list(dict.fromkeys(columns))
    if isinstance(source, (str, Path)) and not Path(source).is_file():
        raise SourceError(f"{side}: {Path(source).name!r} does not exist")
    try:
        if isinstance(source, (str, Path)) and str(source).lower().endswith(".parquet"):
            table = _read_parquet(Path(source), side, wanted)
        else:
            table = read_any(source, side=side, typed=True)
    except SourceError as error:
        raise AnonymityError(str(error)) from None
    if wanted is None:
        return table
    # A text file without a header line would show its first record as names.
    require_columns(table, wanted, side=side, tell=not str(source).lower().endswith(_TEXT_FILES))
    return table.select(wanted)


def require_columns(table: pa.Table, names: Iterable[str], *, side: str, tell: bool = True) -> None:
    """Raises an error that names the columns that `table` lacks, and with `tell` those it has."""
    missing = [name for name in names if name not in table.column_names]
    if missing:
        known = f" (it has: {', '.join(table.column_names)})" if tell else "; is there a line with names?"
        raise AnonymityError(f"{side}: no column {', '.join(repr(name) for name in missing)}{known}")


def give_back(table: pa.Table, *, like: TableLike) -> TableLike:
    """`table` as the kind that `like` is: a pandas or polars frame, a mapping of columns, or an Arrow table.

    >>> give_back(pa.table({"age": ["60+"]}), like={"age": [61]})
    {'age': ['60+']}
    """
    module = type(like).__module__.split(".")[0]
    if isinstance(like, dict):
        return table.to_pydict()
    if module == "pandas":
        return _to_pandas(table)
    if module == "polars":
        import polars  # only who gave one gets one

        return polars.from_arrow(table)
    return table


def _to_pandas(table: pa.Table) -> TableLike:
    """The frame; whole numbers with missing ones stay whole, which as floats some would not."""
    frame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and column.null_count:
            frame[name] = column.to_pandas(integer_object_nulls=True).astype(
                str(column.type).title().replace("Ui", "UI")
            )
    return frame


def _read_parquet(path: Path, side: str, columns: list[str] | None) -> pa.Table:
    try:
        schema = pq.read_schema(path)
        if len(set(schema.names)) != len(schema.names):
            raise AnonymityError(f"{side}: two columns have the same name; rename one")
        kept = schema.names if columns is None else [name for name in schema.names if name in set(columns)]
        words = [name for name in kept if is_text(schema.field(name).type)]
        # Text stays numbered as the file has it: most columns have few different values.
        return pq.read_table(path, columns=kept, read_dictionary=words)
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"{side}: {path.name!r} cannot be read as Parquet ({type(error).__name__})"
        ) from None
