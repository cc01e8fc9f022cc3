"""Files as text: a release, a register or a truth, every cell as it would be read."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sfumato.tables.arrays import to_numpy
from sfumato.errors import AttackError, SourceError
from sfumato.tables.write import restore_formulas
from sfumato.release.opening import open_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_TEXT_FILES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_DELIMITERS = ",;\t"
_LARGEST = 2**40


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Published:
    """A published table as text, and how many records each row stands for; rows of none are left out."""

    table: pa.Table
    weights: NDArray[np.int64]

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.weights.sum())


def read_text(source: Path | str | pa.Table, *, side: str) -> pa.Table:
    """The table in a Parquet or CSV file, or an Arrow table, with all cells as text; `side` names it.

    >>> read_text(pa.table({"age": [61, None], "height": [1.5, 2.0]}), side="register").to_pylist()
    [{'age': '61', 'height': '1.5'}, {'age': None, 'height': '2'}]
    """
    table = source if isinstance(source, pa.Table) else _read_file(Path(source), side)
    if len(set(table.column_names)) != len(table.column_names):
        raise AttackError(f"{side}: two columns have the same name; rename one")
    return pa.table({name: _as_text(table[name], name, side) for name in table.column_names})


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
        opened = open_folder(str(source), wanted=("table.parquet",))
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


def require_columns(table: pa.Table, names: Iterable[str], *, side: str) -> None:
    """Raises an error that names the columns of `names` that `table` lacks.

    >>> require_columns(pa.table({"age": ["61"]}), ["age", "sex"], side="register")
    Traceback (most recent call last):
        ...
    sfumato.errors.AttackError: register: no column 'sex'
    """
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise AttackError(f"{side}: no column {', '.join(repr(name) for name in missing)}")


def _read_file(path: Path, side: str) -> pa.Table:
    name = path.name.lower()
    if not path.is_file():
        raise SourceError(f"{side}: there is no file {path.name!r}")
    try:
        if name.endswith(".parquet"):
            return pq.read_table(path)
        if name.endswith(_TEXT_FILES):
            return _read_csv(path)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise SourceError(
            f"{side}: {path.name!r} cannot be read ({type(error).__name__})"
        ) from None  # what is wrong may be told with a value of a record
    raise AttackError(f"{side}: {path.name!r} must end in .parquet, .csv or .csv.gz")


def _read_csv(path: Path) -> pa.Table:
    with pa.input_stream(str(path)) as stream:
        header = bytes(stream.read(2**16)).split(b"\n", 1)[0].decode("utf-8-sig").rstrip("\r")
    delimiter = max(_DELIMITERS, key=header.count)
    names = next(csv.reader([header], delimiter=delimiter), [])
    return pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )


def _as_text(column: pa.ChunkedArray, name: str, side: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_decimal(kind):
        # Decimals are exact, and a float of one may not be: 597.675 would lie beyond an edge of 597.675.
        text = pc.replace_substring_regex(column.cast(pa.string()), r"(\.\d*?)0+$", r"\1")
        return pc.replace_substring_regex(text, r"\.$", "")
    if pa.types.is_floating(kind):
        plain = column.cast(pa.float64())
        whole = pc.and_(pc.equal(plain, pc.floor(plain)), pc.less(pc.abs(plain), 2.0**53))
        numbers = pc.if_else(whole, plain, pa.scalar(None, pa.float64())).cast(pa.int64())
        return pc.if_else(whole, numbers.cast(pa.string()), plain.cast(pa.string()))
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise AttackError(f"{side}: column {name!r} has a nested or binary type; leave it out") from None


def _whole_numbers(column: pa.ChunkedArray, name: str, side: str) -> NDArray[np.int64]:
    try:
        numbers = column.combine_chunks().cast(pa.int64())
    except pa.ArrowException:
        numbers = None
    if numbers is None or numbers.null_count or (len(numbers) and pc.max(numbers).as_py() > _LARGEST):
        raise AttackError(f"{side}: column {name!r} must hold whole numbers of records")
    return to_numpy(numbers)
