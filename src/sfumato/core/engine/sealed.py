"""Sealed tables: a source read once, every record made plain by itself, and kept for whatever is asked next.

A sealed table is a set of Arrow columns in memory, or in a file without a name where they are many: cleaned
values, codes of described columns, and a number for every individual. Records of individuals within their
bound stand in one part, those of the others, the crowd, in another. Arrow columns have no statistics, and
DuckDB scans them as they are.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.engine.encode import connect, create_list_type, encode_column, quote_name, value_column
from sfumato.core.exact import Withheld
from sfumato.core.facts.table import UNIT, code_name

if TYPE_CHECKING:
    import duckdb

    from sfumato.core.engine.encode import Stored
    from sfumato.core.facts.table import Table


UNSTORED = frozenset(["nan", "inf", "-inf", "-0.0"])
"""How DuckDB writes the numbers that no cleaned column holds."""

FIRST_MOMENT, LAST_MOMENT = -60_000_000_000_000_000, 250_000_000_000_000_000
"""The moments that are read, in microseconds before and after 1970."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_MILLISECONDS = 86_400_000
_ENDLESS_DAYS = 2**31 - 2
_DIGEST = "sha256 "

NUMBER = "number of sfumato"
"""The individual of a record as a number below `Sealed.individuals`."""
BATCH_ROWS = 2**17

_IN_MEMORY = 2**29  # columns of more bytes than this are kept in a file
_MOST_ORDERS = 4
_ABOUT = b"sfumato"


def clean_type(kind: pa.DataType) -> pa.DataType:
    """The type of a cleaned column.

    >>> clean_type(pa.timestamp("ns", tz="UTC"))
    TimestampType(timestamp[us])
    """
    if pa.types.is_dictionary(kind):
        return clean_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else pa.float64()
    return pa.float32() if pa.types.is_float16(kind) else kind


def clean_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of cleaned batches."""
    return pa.schema([(each.name, clean_type(each.type)) for each in schema])


def clean_batch(batch: pa.RecordBatch, schema: pa.Schema, table: Table) -> pa.RecordBatch:
    """A batch with every column made plain; `schema` is its clean one."""
    columns = [
        clean_column(column, limit=table.text_limit, keep_apart=name == table.unit.column)
        for name, column in zip(schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def clean_column(column: pa.Array, *, limit: int, keep_apart: bool = False) -> pa.Array:
    """The column with every value made plain; texts have at most `limit` characters.

    With `keep_apart`, for columns that name individuals, a text that would be changed becomes a digest of its
    bytes instead: two that differ stay two.

    >>> clean_column(pa.array([1.5, float("nan"), None, float("-inf")]), limit=9).to_pylist()
    [1.5, None, None, -1.7976931348623157e+308]
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        # The values of a dictionary are those of records, too, and as odd.
        return clean_column(column.dictionary, limit=limit, keep_apart=keep_apart).take(column.indices)
    wanted = clean_type(kind)
    if pa.types.is_string(wanted) or pa.types.is_large_string(wanted):
        return _clean_text(column, wanted, limit=limit, keep_apart=keep_apart)
    if pa.types.is_timestamp(kind):
        return _clean_moments(column)
    if pa.types.is_date(kind):
        return _clean_dates(column)
    if pa.types.is_decimal(kind):
        column = _clean_decimals(column).cast(wanted, safe=False)
    return _clean_numbers(column.cast(wanted)) if pa.types.is_floating(wanted) else column


@dataclass(frozen=True, repr=False, eq=False)
class Sealed(Withheld):
    """A sealed table in two parts: `inside`, those with at most `most` records each, and the `crowd`.

    `names` are the columns that were asked for, in lower case. Both parts have them, and NUMBER; UNIT, the
    individual as it is stored, is in the crowd, and inside where it was asked for. Without a unit column
    every record is an individual, all are inside, and there is no NUMBER.

    Never leaves the private room.
    """

    names: frozenset[str]
    most: int
    inside: pa.Table
    crowd: pa.Table
    individuals: int
    orders: dict[tuple[str, ...], pa.Table] = field(default_factory=dict)

    def order_crowd(self, names: frozenset[str]) -> pa.Table:
        """The columns `names` of the crowd, each individual's records together, by a hash of what they hold.

        Records that are equal in these columns are interchangeable, and no other individual's records enter
        the order of one. What else was asked before does not enter it either.
        """
        held = sorted(name for name in self.crowd.column_names if name.lower() in names and name != UNIT)
        known = self.orders.get(tuple(held))
        if known is None:
            known = _order_crowd(self.crowd.select([*held, UNIT, NUMBER]), held)
            if len(self.orders) >= _MOST_ORDERS:
                self.orders.pop(next(iter(self.orders)))
            self.orders[tuple(held)] = known
        return known

    @property
    def everything(self) -> pa.Table:
        """Both parts; UNIT must have been asked for, or be none's concern."""
        return pa.concat_tables([self.inside, self.crowd.select(self.inside.column_names)])


def needed_columns(table: Table, names: frozenset[str], stored: Iterable[str]) -> frozenset[str]:
    """The stored columns that must be read for what `names` asks."""
    described = {
        part
        for name, column in table.columns.items()
        if name.lower() in names or code_name(name).lower() in names
        for part in column.stored
    }
    unit = {table.unit.column} if table.unit.column is not None else set()
    if table.unit.period is not None:
        unit |= set(table.columns[table.unit.period].stored)
    return frozenset(name for name in stored if name in described | unit or name.lower() in names)


def seal_table(
    table: Table,
    stored: Mapping[str, Stored],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    names: frozenset[str],
    rows: bool = True,
) -> Sealed:
    """Reads all batches of `table` once, and seals what `names` asks for.

    `schema` is that of the batches, `stored` has the kinds of all stored columns. A name is, in lower case,
    that of a stored or described column, of the code of a described one, or UNIT. Records of nobody are
    left out. Without `rows` there are no batches.
    """
    cleaned = clean_schema(schema)
    store = _Store()
    failures: list[BaseException] = []
    with connect(plainly=True) as connection:
        stream = _clean(batches, cleaned, table, failures)
        connection.register("stored", pa.RecordBatchReader.from_batches(cleaned, stream))
        query = _encoding_query(
            lambda *of: create_list_type(connection, *of, rows=rows), table, stored, names
        )
        try:
            encoded = connection.sql(query).to_arrow_reader(BATCH_ROWS)
            for batch in encoded:
                store.add(batch)
        except Exception:
            if failures:
                # What stopped the stream is told as it was, not as the database heard of it.
                raise failures[0] from None
            raise
        records = store.finish(encoded.schema)
    if table.unit.column is None:
        return Sealed(names, 0, records, records.slice(0, 0), records.num_rows)
    return divide_records(records, names=names, most=table.unit.max_records)


def divide_records(records: pa.Table, *, names: frozenset[str], most: int) -> Sealed:
    """Encoded records with UNIT in two parts: of individuals with at most `most` records, and the others.

    `names` are the columns that were asked for.
    """
    numbers, individuals = _number_values(records[UNIT])
    crowded = np.bincount(numbers, minlength=individuals) > most
    inside, crowd = _Store(), _Store()
    start = 0
    for batch in records.to_batches():
        part = numbers[start : start + batch.num_rows]
        start += batch.num_rows
        batch = batch.append_column(NUMBER, to_arrow(part))
        chosen = crowded[part]
        if chosen.any():
            crowd.add(batch.take(to_arrow(np.flatnonzero(chosen))))
            batch = batch.take(to_arrow(np.flatnonzero(~chosen)))
        inside.add(batch if UNIT in names else batch.drop_columns([UNIT]))
    whole = records.schema.append(pa.field(NUMBER, to_arrow(numbers[:0]).type))
    part_of = whole if UNIT in names else whole.remove(whole.get_field_index(UNIT))
    return Sealed(names, most, inside.finish(part_of), crowd.finish(whole), individuals)


def save_sealed(sealed: Sealed, folder: Path, *, facts: str) -> None:
    """Keeps a sealed table in a folder that only its owner may enter, in place of one that was there.

    Both files state what they are, and that they belong together: whoever reads while another writes finds
    out if they do not.
    """
    draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=make_private(folder.parent)))
    about = {
        "facts": facts,
        "names": sorted(sealed.names),
        "most": sealed.most,
        "individuals": sealed.individuals,
        "together": draft.name,  # a name that no other draft has
    }
    try:
        for name, part in (("inside", sealed.inside), ("crowd", sealed.crowd)):
            stated = part.replace_schema_metadata({_ABOUT: json.dumps(about).encode()})
            with pa.ipc.new_file(str(draft / f"{name}.arrow"), stated.schema) as writer:
                writer.write_table(stated, max_chunksize=BATCH_ROWS)
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def load_sealed(folder: Path, *, facts: str) -> Sealed | None:
    """The sealed table that is kept in a folder, mapped into memory; None if it is of other facts."""
    try:
        paths = [folder / f"{name}.arrow" for name in ("inside", "crowd")]
        parts = [pa.ipc.open_file(pa.memory_map(str(path))) for path in paths]
        stated = {part.schema.metadata[_ABOUT] for part in parts}
        about = json.loads(stated.pop())
        if stated or about["facts"] != facts:
            return None
        inside, crowd = (part.read_all().replace_schema_metadata() for part in parts)
        return Sealed(frozenset(about["names"]), about["most"], inside, crowd, about["individuals"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def register_columns(connection: duckdb.DuckDBPyConnection, name: str, columns: pa.Table) -> None:
    """Makes the columns a relation of the database, in parts that its threads share."""
    batches = columns.to_batches(max_chunksize=BATCH_ROWS)
    connection.register(name, pa.Table.from_batches(batches, columns.schema))


def _clean_numbers(column: pa.Array) -> pa.Array:
    values = _values(column, np.float32 if column.type.bit_width == 32 else np.float64)
    most = np.finfo(values.dtype).max
    odd = np.isnan(values)
    # Adding zero turns the negative zero into zero.
    return _masked(np.clip(values, -most, most) + values.dtype.type(0), column, odd)


def _clean_decimals(column: pa.Array) -> pa.Array:
    """Numbers of more digits than the type has, which DuckDB would take for others, are missing."""
    kind = column.type
    least, most = (pa.scalar(Decimal((sign, (9,) * kind.precision, -kind.scale)), kind) for sign in (1, 0))
    fits = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, most))
    return pc.if_else(fits, column, pa.scalar(None, kind))


def _clean_moments(column: pa.Array) -> pa.Array:
    counted = _values(column, np.int64)
    per_second = _PER_SECOND[column.type.unit]
    if per_second == 10**9:
        moments, odd = counted // 1000, np.zeros(len(column), np.bool_)
    else:
        step = 10**6 // per_second
        odd = (counted < FIRST_MOMENT // step) | (counted > LAST_MOMENT // step)
        moments = np.where(odd, 0, counted) * step
    return _masked(moments, column, odd).view(pa.timestamp("us"))


def _clean_dates(column: pa.Array) -> pa.Array:
    if pa.types.is_date64(column.type):
        days = _values(column, np.int64) // _DAY_MILLISECONDS
    else:
        days = _values(column, np.int32).astype(np.int64)
    odd = np.abs(days) > _ENDLESS_DAYS
    return _masked(np.where(odd, 0, days).astype(np.int32), column, odd).view(pa.date32())


def _values(column: pa.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """The stored numbers of a column; where a value is missing, whatever lies there."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column)]


def _masked(values: NDArray[Any], column: pa.Array, odd: NDArray[np.bool_]) -> pa.Array:
    if column.null_count:
        odd = odd | column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, mask=odd) if odd.any() else pa.array(values)


def _clean_text(column: pa.Array, wanted: pa.DataType, *, limit: int, keep_apart: bool) -> pa.Array:
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_binary())
    # Taken for text as it is: what is no text is found next.
    column = pa.Array.from_buffers(wanted, len(column), column.buffers(), column.null_count, column.offset)
    # A scalar of a Python number would load pandas, where that is installed.
    strange = pc.greater(pc.binary_length(column), to_arrow(np.array([limit]))[0])
    if keep_apart:
        # What already reads as a digest gets one, too, so that nobody can be taken for another.
        strange = pc.or_(strange, pc.starts_with(column, _DIGEST))
    odd = np.append(to_numpy(pc.indices_nonzero(strange)).astype(np.int64), _find_invalid(column))
    if not odd.size:
        return column
    odd = np.unique(odd)
    raw = pa.Array.from_buffers(
        pa.large_binary() if pa.types.is_large_string(wanted) else pa.binary(),
        len(column),
        column.buffers(),
        column.null_count,
        column.offset,
    ).take(pa.array(odd))
    mended = [_mend_text(value.as_buffer().to_pybytes(), limit, keep_apart=keep_apart) for value in raw]
    chosen = np.zeros(len(column), np.bool_)
    chosen[odd] = True
    return pc.replace_with_mask(column, pa.array(chosen), pa.array(mended, wanted))


def _mend_text(value: bytes, limit: int, *, keep_apart: bool) -> str:
    return (
        _DIGEST + hashlib.sha256(value).hexdigest()
        if keep_apart
        else value.decode("utf-8", errors="replace")[:limit]
    )


def _find_invalid(column: pa.Array, start: int = 0) -> NDArray[np.int64]:
    """The places of values that are not UTF-8, found by halving."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return np.array([start], np.int64)
        half = len(column) // 2
        left, right = column.slice(0, half), column.slice(half)
        return np.concatenate((_find_invalid(left, start), _find_invalid(right, start + half)))
    return np.empty(0, np.int64)


def make_private(folder: Path) -> Path:
    """The folder, made if it is not there, which only its owner may enter and nobody commits."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")  # records are never to be committed
    return folder


def _clean(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, table: Table, failures: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            yield clean_batch(batch, schema, table)
    except BaseException as error:
        failures.append(error)
        raise


def _encoding_query(
    create: Callable[..., None], table: Table, stored: Mapping[str, Stored], names: frozenset[str]
) -> str:
    columns = {
        name.lower(): f"{quote_name(name)} AS {quote_name(name)}"
        for name, each in stored.items()
        if each.kind != "other" and name.lower() in names and not _is_inner(name)
    }
    for index, (name, column) in enumerate(table.columns.items()):
        if not all(part in stored and stored[part].kind != "other" for part in column.stored):
            continue
        if name.lower() in names:
            columns[name.lower()] = f"{value_column(column, stored)} AS {quote_name(name)}"
        if column.domain is not None and code_name(name).lower() in names:
            create(column, f"list{index}")
            code = encode_column(column, stored, list_type=f"list{index}")
            columns[code_name(name)] = f"{code} AS {quote_name(code_name(name))}"
    selected = list(columns.values())
    if table.unit.column is None:
        return f"SELECT {', '.join(selected) or '1::UTINYINT AS one'} FROM stored"
    unit = quote_name(table.unit.column)
    individual, code = unit, ""
    if table.unit.period is not None:
        # Who, and the code of when: whatever is asked sees each of these pairs as an individual. A code has
        # no U+001F, so that the last one separates them.
        when = table.columns[table.unit.period]
        create(when, "unit_list")
        code = encode_column(when, stored, list_type="unit_list")
        individual = f"concat(CAST({unit} AS VARCHAR), chr(31), coalesce(CAST({code} AS VARCHAR), ''))"
    selected.append(f"{individual} AS {quote_name(UNIT)}")
    within = ""
    if table.unit.window is not None:
        # Here, where records become what is asked: nothing of another period is ever kept or counted.
        within = f" AND {code} IS NOT NULL"
    return f"SELECT {', '.join(selected)} FROM stored WHERE {unit} IS NOT NULL{within}"


def _is_inner(name: str) -> bool:
    """Whether a stored column has a name that is kept for ours; then nobody can ask for it."""
    return name.lower().startswith(code_name("")) or name.lower().endswith(" of sfumato")


def _number_values(values: pa.ChunkedArray) -> tuple[NDArray[Any], int]:
    """A number from zero on for every value, equal for equal ones, and how many numbers there are."""
    if pa.types.is_integer(values.type) and len(values):
        ends = pc.min_max(values).as_py()
        span = ends["max"] - ends["min"] + 1
        if span <= 2 * len(values) + BATCH_ROWS and ends["max"] < 2**63:
            # Nearly dense already: values are places, and nothing has to be looked up.
            kind = np.int32 if span < 2**31 else np.int64
            # Differences below `span` fit into the type of the values, but for the narrowest types.
            stored = [to_numpy(part) for part in values.chunks]
            wide = [part if part.itemsize >= 4 else part.astype(np.int32) for part in stored]
            parts = [(part - part.dtype.type(ends["min"])).astype(kind, copy=False) for part in wide]
            return np.concatenate(parts), span
    encoded = values.dictionary_encode()
    parts = [to_numpy(part.indices) for part in encoded.chunks]
    count = len(encoded.chunk(0).dictionary) if parts else 0
    return np.concatenate(parts) if parts else np.empty(0, np.int32), count


def _order_crowd(crowd: pa.Table, columns: list[str]) -> pa.Table:
    held = [quote_name(name) for name in columns]
    with connect() as connection:
        row = to_arrow(np.arange(crowd.num_rows))
        register_columns(connection, "crowd", crowd.append_column("row of sfumato", row))
        # The individual as stored: its number changes with who else is there.
        hashed = f"hash({', '.join([quote_name(UNIT), *held])})"
        found = connection.sql(f'SELECT "row of sfumato", {hashed} FROM crowd').to_arrow_table()
        rows, hashes = (to_numpy(column.combine_chunks()) for column in found.columns)
        order, keys = _sort_hashes(crowd, rows, hashes)
        equal = keys[1:] == keys[:-1]
        if held and equal.any():
            # The key has as many bits of the hash as individuals and places leave free, so ties go by all of
            # its bits first: how many individuals there are decides nothing. Then by what the records hold.
            tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
            table = crowd.take(pa.array(order[tied])).append_column("key of sfumato", to_arrow(keys[tied]))
            table = table.append_column("row of sfumato", to_arrow(order[tied]))
            register_columns(connection, "tied", table)
            again = connection.sql(
                f'SELECT "row of sfumato" FROM tied ORDER BY "key of sfumato", {hashed}, {", ".join(held)}'
            ).to_arrow_table()
            order[tied] = to_numpy(again.column(0).combine_chunks())
    # One chunk is gathered faster than many.
    return crowd.combine_chunks().take(pa.array(order))


def _sort_hashes(
    crowd: pa.Table, rows: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of records by individual and hash, and the keys of that order, ascending."""
    numbers = np.concatenate([np.empty(0, np.int64), *(to_numpy(part) for part in crowd[NUMBER].chunks)])
    present = np.zeros(int(numbers.max(initial=0)) + 1, np.bool_)
    present[numbers] = True
    numbers = np.cumsum(present)[numbers] - 1
    place_bits, free = crowd.num_rows.bit_length(), 63 - int(numbers.max(initial=0)).bit_length()
    # One number holds individual, hash and place: sorting it is twice as fast as sorting places by a key.
    bits = max(free - place_bits, 1)
    packed = np.empty(crowd.num_rows, np.int64)
    packed[rows] = (hashes >> np.uint64(64 - bits)).astype(np.int64) << place_bits
    packed |= (numbers << (bits + place_bits)) | np.arange(crowd.num_rows)
    packed.sort()
    return packed & (2**place_bits - 1), packed >> place_bits


class _Store:
    """Batches as they come: in memory, or if they are many in a file without a name."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Keeps one batch."""
        if self._writer is not None:
            self._writer.write_batch(batch)
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > _IN_MEMORY:
            # Nobody else can open it, and however this process ends nothing of it is left.
            self._file = tempfile.TemporaryFile(prefix="sfumato-")  # noqa: SIM115 - closed by finish
            self._writer = pa.ipc.new_file(self._file, batch.schema)
            for each in self._batches:
                self._writer.write_batch(each)
            self._batches = []

    def finish(self, schema: pa.Schema) -> pa.Table:
        """All that was kept; a file is mapped into memory, not read."""
        if self._writer is None or self._file is None:
            return pa.Table.from_batches(self._batches, schema)
        self._writer.close()
        self._file.flush()
        with self._file as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()
