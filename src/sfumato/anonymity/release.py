"""The whole way: a table goes in; it is encoded, divided, labelled, written, read again and judged."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.anonymity.check import Anonymity, find_shortfalls, measure_anonymity
from sfumato.anonymity.divide import divide_tuples
from sfumato.anonymity.encode import (
    Partition,
    Quasi,
    Tuples,
    build_space,
    collapse_rows,
    encode_quasi_identifier,
    encode_values,
    value_type,
)
from sfumato.anonymity.labels import (
    Labels,
    Loss,
    label_centres,
    label_partition,
    measure_loss,
    refuse_bars,
    suppress_classes,
)
from sfumato.anonymity.options import Method, Options
from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import AnonymityError, ReleaseError, SfumatoError, VerificationFailed
from sfumato.tables.draft import PERSON_NAMES, repeats_as_names
from sfumato.tables.read import TableLike, give_back, is_text, read_table, require_columns

_FORMATS = (".parquet", ".csv", ".csv.gz")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Anonymized:
    """The released rows, what was lost, and the share of their cells that are `*`.

    `rows` says which original row each released one comes from: it stays inside. `tried` are the methods
    that made classes, each with the NCP of its table, first the one whose classes are released.
    """

    table: pa.Table
    rows: NDArray[np.int64]
    loss: Loss
    suppressed_cells: float
    tried: Mapping[str, float]


def _make_release(
    table: pa.Table,
    options: Options,
    *,
    register: pa.Table | None,
    by_class: bool,
    progress: Callable[[str], None],
) -> Anonymized:
    """Makes the table that the options require, in its order or, `by_class`, that of its cells.

    In the order of its cells, nothing shows where a row stood before.
    """
    if options.k > table.num_rows and not options.k_map:
        raise AnonymityError(f"k is {options.k}, but the table has {table.num_rows} records; ask for less")
    progress("reading quasi-identifiers")
    columns, tuples, people = _collapse(table, options, register)
    space = build_space(columns, options.weights)
    label = label_centres if options.method == "microaggregate" else label_partition

    def divide(method: Method) -> tuple[Method, Partition, tuple[Labels, ...], float, Loss]:
        chosen = replace(options, method=method)
        partition = divide_tuples(chosen, table, columns, tuples, people, space, progress=progress)
        progress("writing labels")
        labels = label(columns, tuples, space, partition)
        partition, starred = suppress_classes(chosen, partition, labels)
        loss = measure_loss(columns, tuples, partition, labels, k=options.k)
        return method, partition, labels, starred, loss

    found = [divide(options.method)]
    if options.method == "local" and not options.needs_sensitive and options.individual is None:
        with suppress(AnonymityError):  # more stars than are allowed
            found.append(divide("cuts"))  # which lose less on some tables at large k, and take little time
    weights = options.weights
    found.sort(
        key=lambda each: sum(weights.get(name, 1) * lost for name, lost in each[-1].ncp_by_column.items())
    )
    tried: dict[str, float] = {method: loss.ncp for method, *_, loss in found}
    _, partition, labels, starred, loss = found[0]
    class_of_row = _deal(tuples, partition)
    rows = np.flatnonzero(class_of_row >= 0)
    if by_class:
        rows = _sort_rows(table, options, labels, class_of_row, rows)
    return Anonymized(_gather(table, options, labels, class_of_row[rows], rows), rows, loss, starred, tried)


def _collapse(
    table: pa.Table, options: Options, register: pa.Table | None
) -> tuple[tuple[Quasi, ...], Tuples, NDArray[np.int64]]:
    """Returns the encoded columns, the tuples with their rows, and the people k counts in each."""

    def encode(name: str) -> Quasi:
        column = table.column(name)
        if register is not None:
            column = _append(name, column, register.column(name))
        quasi = encode_quasi_identifier(name, column, hierarchy=options.hierarchies.get(name))
        refuse_bars(quasi)
        return quasi

    with ThreadPoolExecutor() as pool:
        columns = list(pool.map(encode, options.quasi_identifiers))
    tuples = collapse_rows([column.codes for column in columns], [column.size for column in columns])
    if register is None:
        return tuple(columns), tuples, tuples.rows
    # The register's rows follow the table's: they are people to be taken for, and lose nothing.
    own = np.bincount(tuples.tuple_of_row[: table.num_rows], minlength=tuples.size).astype(np.int64)
    people = tuples.rows - own
    if people.sum() < options.k:
        raise AnonymityError(f"k is {options.k}, but the register has {people.sum()} rows; ask for less")
    return tuple(columns), type(tuples)(tuples.codes, own, tuples.tuple_of_row[: table.num_rows]), people


def _append(name: str, column: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = value_type(column)
    try:
        return pa.chunked_array([*column.cast(kind).chunks, *other.cast(kind).chunks], type=kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise AnonymityError(
            f"column {name!r} of the register holds other kinds of values than the table's"
        ) from None


def _deal(tuples: Tuples, partition: Partition) -> NDArray[np.int32]:
    """Returns the class of every row; the rows of a tuple are dealt to its entries in their order."""
    if partition.tuple_of_entry.size == tuples.size:
        class_of_tuple = np.empty(tuples.size, np.int32)
        class_of_tuple[partition.tuple_of_entry] = partition.classes
        return class_of_tuple[tuples.tuple_of_row]
    entries = np.argsort(partition.tuple_of_entry, kind="stable")
    class_of_row = np.empty(tuples.tuple_of_row.size, np.int32)
    dealt = np.repeat(partition.classes[entries], partition.weights[entries])
    class_of_row[np.argsort(tuples.tuple_of_row, kind="stable")] = dealt
    return class_of_row


def _sort_rows(
    table: pa.Table,
    options: Options,
    labels: Sequence[Labels],
    class_of_row: NDArray[np.int32],
    rows: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Returns the rows in the order of their released cells, so that no row's place shows where it was."""
    cells = np.stack([each.of_class for each in labels])
    place = np.empty(cells.shape[1], np.int32)
    place[np.lexsort(cells[::-1])] = np.arange(place.size, dtype=np.int32)
    keys = [place[class_of_row[rows]]]
    keys += [encode_values(name, table.column(name))[0][rows] for name in (*options.sensitive, *options.keep)]
    # numpy sorts 16-bit numbers by counting, which is several times as fast: codes are sorted by halves.
    halves = [half.astype(np.uint16) for key in keys for half in (key >> 16, key & 0xFFFF) if half.any()]
    return rows[np.lexsort(halves[::-1])] if halves else rows


def _gather(
    table: pa.Table,
    options: Options,
    labels: Sequence[Labels],
    classes: NDArray[np.int32],
    rows: NDArray[np.int64],
) -> pa.Table:
    """Returns the released columns of these rows; text is numbered until somebody reads it."""
    released: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, cells in zip(options.quasi_identifiers, labels, strict=True):
        released[name] = _take_labels(cells, classes)
    inorder = rows.size == table.num_rows and bool((rows[1:] > rows[:-1]).all())
    for name in (*options.sensitive, *options.keep):
        column = table.column(name)
        released[name] = column if inorder else column.take(to_arrow(rows))
    return pa.table(released)


def _take_labels(cells: Labels, classes: NDArray[np.int32]) -> pa.Array:
    texts = [text for text in cells.texts if text is not None]
    indices = _mask_missing(cells.of_class[classes], len(texts))
    if cells.values is not None:
        return cells.values.take(indices)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _mask_missing(codes: NDArray[np.int32], missing: int) -> pa.Array:
    """Returns the codes as an array in which that of a missing value is null."""
    lacking = codes == missing
    return pa.array(codes, mask=lacking) if lacking.any() else to_arrow(codes)


def judge_table(table: TableLike, options: Options, *, register: pa.Table | None = None) -> Anonymity:
    """Judges the table as it stands; VerificationFailed if it lacks what the options require.

    Nothing of how it was made is used: `table` may be a path, and what is read there is what counts.
    """
    measured = measure_anonymity(
        table,
        quasi_identifiers=options.quasi_identifiers,
        sensitive=options.sensitive or None,
        register=register if options.k_map else None,
        distance=options.distance,
    )
    shortfalls = find_shortfalls(measured, options)
    if shortfalls:
        raise VerificationFailed(
            f"the released table is not what was asked, and is not handed over: {'; '.join(shortfalls)}"
        )
    return measured


def refuse_target(out: Path | str, *, force: bool, apart: tuple[TableLike, ...] = ()) -> Path:
    """Returns the path to write to, never one of the tables `apart`; an error if it cannot be."""
    path = Path(out)
    if not path.name.lower().endswith(_FORMATS):
        raise AnonymityError(f"{path.name!r} must end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}")
    for source in apart:
        given = isinstance(source, (str, Path)) and path.exists() and Path(source).exists()
        if given and path.samefile(source):
            raise ReleaseError(f"{path.name!r} is what is read; choose another name for what is written")
    if path.exists() and not force:
        raise ReleaseError(f"{path.name!r} exists; choose another name, or say to overwrite it (force)")
    if not path.absolute().parent.is_dir():
        raise ReleaseError(f"the folder of {path.name!r} does not exist; create it first")
    return path


def _write_judged(
    table: pa.Table,
    path: Path,
    options: Options,
    *,
    register: pa.Table | None,
    force: bool,
    before: Callable[[Anonymity], None],
) -> Anonymity:
    """Writes `table` to `path`, reads it again, and measures how anonymous it is.

    It is written under another name first and gets its own after `before` was called with what was found, so
    that a file that lacks what the `options` require is never there; `force` replaces one that is.
    """
    ending = next(each for each in _FORMATS if path.name.lower().endswith(each))
    if ending != ".parquet" and table.num_columns == 1 and table.column(0).null_count:
        raise AnonymityError(
            "a text file of one column cannot show a missing value; write Parquet, or keep another column"
        )
    # In the same folder, so that renaming is one step; thread and process keep two writers apart.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}{ending}")
    try:
        _write(table, draft, ending)
        measured = judge_table(draft, options, register=register)
        if measured.records != table.num_rows:
            raise VerificationFailed(
                "the written file has not the records that were written, and is not handed over"
            )
        before(measured)
        _hand_over(draft, path, force=force)
    except SfumatoError:
        raise
    except pa.ArrowException as error:
        raise ReleaseError(
            f"{path.name!r} cannot hold a column of this kind ({type(error).__name__}); try Parquet or CSV"
        ) from None
    except FileExistsError:
        raise ReleaseError(
            f"{path.name!r} exists; choose another name, or say to overwrite it (force)"
        ) from None
    except OSError as error:
        raise ReleaseError(
            f"{path.name!r} could not be written ({type(error).__name__}); check the folder and the disk"
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return measured


def _hand_over(draft: Path, path: Path, *, force: bool) -> None:
    if not force:
        # A link is refused where a file has appeared in the meantime.
        with suppress(NotImplementedError, PermissionError):
            os.link(draft, path)
            return
    draft.replace(path)


def _write(table: pa.Table, path: Path, ending: str) -> None:
    with path.open("xb") as file:
        if ending == ".parquet":
            # Without the stored Arrow schema, numbered text is read as the text it is.
            pq.write_table(_compact_text(table), file, store_schema=False, compression="zstd")
        else:
            plain = decode_text(table)
            if ending == ".csv":
                pa_csv.write_csv(plain, file)
            else:
                with pa.CompressedOutputStream(file, "gzip") as packed:
                    pa_csv.write_csv(plain, packed)
        if not file.closed:
            file.flush()
            os.fsync(file.fileno())


def _compact_text(table: pa.Table) -> pa.Table:
    """Returns the table with numbered text that knows only the texts of its rows, in their order.

    A file keeps the list of texts as it is given: it would disclose the text of a record that was left out.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns[name] = column
        kind = value_type(column)
        if is_text(kind):
            codes, values = encode_values(name, column)
            known = [value for value in values if value is not None]
            columns[name] = pa.DictionaryArray.from_arrays(
                _mask_missing(codes, len(known)), pa.array(known, pa.string())
            )
        elif pa.types.is_dictionary(column.type):
            columns[name] = column.cast(kind)
    return pa.table(columns)


def decode_text(table: pa.Table) -> pa.Table:
    """Returns the table with numbered text as plain text."""
    columns = {
        name: column.cast(value_type(column))
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Released:
    """A finished release: the original columns, the released ones, and how anonymous they were found.

    `people` are the fewest individuals of a class, if k counts them; `notes` say what may be wrong with k.
    """

    options: Options
    original: pa.Table
    made: Anonymized
    measured: Anonymity
    people: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def suppressed(self) -> int:
        """The number of records that were left out."""
        return int(self.original.num_rows - self.made.table.num_rows)


def anonymize(
    table: TableLike,
    *,
    quasi_identifiers: Sequence[str] | str,
    k: int,
    sensitive: Sequence[str] | str | None = None,
    register: TableLike | None = None,
    out: Path | str | None = None,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
    **options: Any,  # noqa: ANN401 - fields of Options, which checks them
) -> TableLike:
    """Returns the table with quasi-identifiers so coarse that every record is one of k that look the same.

    It is the kind of table it was given, in the order of its rows; with `out` it is the path of a file,
    whose rows are in the order of what they say. Only the named columns come out. This is not differential
    privacy: whoever knows more than the quasi-identifiers may still find people.

    table                 an Arrow table, a frame, a mapping of columns, or the path of a file
    quasi_identifiers, k  the columns that are made coarser, and how many records must look the same
    sensitive             columns that are released as they are, and that l, t and the like are about
    register              a table of the population: k then counts its people, not records (k-map)
    out, force            the file to write (.parquet, .csv or .csv.gz), and whether to replace one
    progress              is called with a few words at every step
    options               any other field of `Options`: keep, identifiers, individual, rows_are_people,
                          hierarchies, method, l, entropy_l, recursive, t, distance, delta, weights,
                          max_suppressed and max_suppressed_cells

    Warns where a column that is left out seems to name people with several records: k counts records then.

    >>> people = {"age": [61, 72, 40, 35], "postcode": ["1001", "1001", "6732", "6910"]}
    >>> anonymize(people, quasi_identifiers=["age", "postcode"], k=2)
    {'age': ['61-72', '61-72', '35-40', '35-40'], 'postcode': ['1001', '1001', '6732|6910', '6732|6910']}
    """
    k_map = register is not None
    chosen = Options(
        quasi_identifiers=quasi_identifiers, k=k, sensitive=sensitive or (), k_map=k_map, **options
    )
    released = release_table(table, chosen, register=register, out=out, force=force, progress=progress)
    for each in released.notes:
        warnings.warn(each, stacklevel=2)
    if out is not None:
        return str(out) if isinstance(table, str) else Path(out)
    return give_back(decode_text(released.made.table), like=table)


def release_table(
    source: TableLike,
    options: Options,
    *,
    register: TableLike | None = None,
    out: Path | str | None = None,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
    before: Callable[[Released], None] = lambda _: None,
) -> Released:
    """Releases the table `source` by `options`, judged; with `out`, as the written file.

    A `register` is needed where `options.k_map` says that k counts its people. `before` is called with what
    was judged before the file gets its name: if it fails, there is no file. `force` replaces a file at `out`;
    `progress` is called with a few words at every step. Raises VerificationFailed if it is less than asked.
    """
    report = progress or (lambda _: None)
    path = None if out is None else refuse_target(out, force=force, apart=(source, register))
    report("reading the table")
    needed = (*options.needed, *options.identifiers)
    stated = options.individual is not None or options.rows_are_people
    table = read_table(source, side="table", columns=needed if stated else None, typed=True, numbered=True)
    shown = not isinstance(source, (str, Path)) or str(source).lower().endswith(".parquet")
    require_columns(table, needed, side="table", show=shown)
    notes = () if stated else _find_people(table, options)
    table = table.select(list(dict.fromkeys(needed)))
    people = None
    if register is not None:
        people = read_table(
            register, side="register", columns=options.quasi_identifiers, typed=True, numbered=True
        )
    made = _make_release(table, options, register=people, by_class=path is not None, progress=report)
    fewest = _judge_individuals(table, options, made)
    report("checking what was written")

    def finish(measured: Anonymity) -> None:
        before(Released(options, table, made, measured, fewest, notes))

    if path is None:
        measured = judge_table(made.table, options, register=people)
        finish(measured)
    else:
        measured = _write_judged(made.table, path, options, register=people, force=force, before=finish)
    return Released(options, table, made, measured, fewest, notes)


def _find_people(table: pa.Table, options: Options) -> tuple[str, ...]:
    """Asks about columns left out that may name people of whom some have several records."""
    found: dict[str, tuple[bool, int]] = {}
    for name in table.column_names:
        kind = value_type(table.column(name))
        if name in options.released or not (is_text(kind) or pa.types.is_integer(kind)):
            continue
        column = table.column(name).cast(pa.large_string() if is_text(kind) else kind)
        records, values = len(column) - column.null_count, pc.count_distinct(column).as_py()
        named = name in options.identifiers or PERSON_NAMES.search(name) is not None
        if repeats_as_names(name, records, values, named=named):
            found[name] = (named, values)
    if not found:
        return ()
    name = max(found, key=lambda each: found[each])
    return (
        f"column {name!r} is left out and repeats, as names of people with several records do: then k counts "
        f"records, and a class may be one person. Say individual = {name!r} (--individual {name}) to count "
        "people, or rows_are_people = True (--rows-are-people) if nobody has several records",
    )


def _judge_individuals(table: pa.Table, options: Options, made: Anonymized) -> int | None:
    """Counts the fewest individuals of a class: the file does not say who is behind a row."""
    if options.individual is None:
        return None
    owners = table.column(options.individual).take(made.rows)
    named: Any = made.table.append_column(options.individual, owners)
    measured = measure_anonymity(
        named, quasi_identifiers=options.quasi_identifiers, individual=options.individual
    )
    if measured.k < options.k:
        raise VerificationFailed(
            f"the released table is not what was asked, and is not handed over: a class has {measured.k} "
            f"individuals, asked {options.k}"
        )
    return measured.k
