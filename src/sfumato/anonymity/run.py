"""From a table and a plan to a released table: encode, collapse, divide, label, gather."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.anonymity.collapse import collapse_rows
from sfumato.anonymity.divide import divide_tuples
from sfumato.anonymity.encode import encode_quasi_identifier, encode_values
from sfumato.anonymity.labels import Labels, label_partition, refuse_bars
from sfumato.anonymity.loss import Loss, measure_loss
from sfumato.anonymity.space import build_space
from sfumato.anonymity.suppress import suppress_classes
from sfumato.errors import AnonymityError
from sfumato.tables.arrays import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.encode import Quasi
    from sfumato.anonymity.models import Partition
    from sfumato.anonymity.plan import Plan
    from sfumato.anonymity.space import Space


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Anonymized:
    """The released rows, what was lost, and how many records were left out.

    `rows` says which original row each released one comes from: it stays inside.
    """

    table: pa.Table
    rows: NDArray[np.int64]
    loss: Loss
    records: int
    suppressed: int
    suppressed_cells: float
    classes: int


def run_plan(
    table: pa.Table,
    plan: Plan,
    *,
    register: pa.Table | None = None,
    by_class: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Anonymized:
    """The table as the plan wants it, in the order of its rows or, `by_class`, of what it says.

    In the order of what it says, nothing tells where a row stood before.
    """
    if plan.k > table.num_rows and plan.wanted.k_map is None:
        raise AnonymityError(f"k is {plan.k}, but the table has {table.num_rows} records; ask for less")
    tell("reading quasi-identifiers")
    columns, tuples, people = _collapse(table, plan, register)
    space = build_space(columns, plan.weights)
    partition = divide_tuples(plan, table, columns, tuples, people, space, tell=tell)
    tell("writing labels")
    labels = _label(plan, columns, tuples, space, partition)
    partition, starred = suppress_classes(plan, partition, labels)
    loss = measure_loss(columns, tuples, partition, labels, k=plan.k)
    class_of_row = _deal(tuples, partition, table.num_rows)
    rows = np.flatnonzero(class_of_row >= 0)
    if by_class:
        rows = _sort_rows(table, plan, labels, class_of_row, rows)
    released = _gather(table, plan, labels, class_of_row[rows], rows)
    used = np.unique(partition.classes[partition.classes >= 0]).size
    return Anonymized(released, rows, loss, table.num_rows, table.num_rows - rows.size, starred, int(used))


def _collapse(
    table: pa.Table, plan: Plan, register: pa.Table | None
) -> tuple[tuple[Quasi, ...], Tuples, NDArray[np.int64]]:
    """The encoded columns, the different tuples with their rows, and how many people k counts in each."""

    def encode(name: str) -> Quasi:
        column = table.column(name)
        if register is not None:
            column = _append(name, column, register.column(name))
        quasi = encode_quasi_identifier(name, column, hierarchy=plan.hierarchies.get(name))
        refuse_bars(quasi)
        return quasi

    with ThreadPoolExecutor() as pool:
        columns = list(pool.map(encode, plan.quasi_identifiers))
    tuples = collapse_rows([column.codes for column in columns], [column.size for column in columns])
    if register is None:
        return tuple(columns), tuples, tuples.rows
    # The register's rows follow the table's: they are people to be taken for, and lose nothing.
    own = np.bincount(tuples.tuple_of_row[: table.num_rows], minlength=tuples.size).astype(np.int64)
    people = tuples.rows - own
    if people.sum() < plan.k:
        raise AnonymityError(f"k is {plan.k}, but the register has {people.sum()} rows; ask for less")
    return tuple(columns), type(tuples)(tuples.codes, own, tuples.tuple_of_row[: table.num_rows]), people


def _append(name: str, column: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    try:
        return pa.chunked_array([*column.cast(kind).chunks, *other.cast(kind).chunks], type=kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise AnonymityError(
            f"column {name!r} of the register holds other kinds of values than the table's"
        ) from None


def _label(
    plan: Plan,
    columns: tuple[Quasi, ...],
    tuples: Tuples,
    space: Space,
    partition: Partition,
) -> tuple[Labels, ...]:
    if plan.method != "microaggregate":
        return label_partition(columns, tuples, space, partition)
    from sfumato.anonymity.centres import label_centres

    return label_centres(columns, tuples, space, partition)


def _deal(tuples: Tuples, partition: Partition, rows: int) -> NDArray[np.int32]:
    """The class of every row."""
    if partition.tuple_of_entry.size == tuples.size:
        class_of_tuple = np.empty(tuples.size, np.int32)
        class_of_tuple[partition.tuple_of_entry] = partition.classes
        return class_of_tuple[tuples.tuple_of_row]
    from sfumato.anonymity.kernels.collapse import deal_rows

    dealt: NDArray[np.int32] = deal_rows(
        tuples.tuple_of_row, partition.tuple_of_entry, partition.weights, partition.classes, tuples.size
    )
    assert dealt.size == rows
    return dealt


def _sort_rows(
    table: pa.Table,
    plan: Plan,
    labels: Sequence[Labels],
    class_of_row: NDArray[np.int32],
    rows: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The rows in the order of their released cells, so that no row's place tells where it was."""
    from sfumato.anonymity.kernels.collapse import sort_by_code

    for name in reversed((*plan.sensitive, *plan.keep)):
        codes, values = encode_values(name, table.column(name))
        rows = sort_by_code(rows, codes, len(values))
    cells = np.stack([each.of_class for each in labels])
    place = np.empty(cells.shape[1], np.int32)
    place[np.lexsort(cells[::-1])] = np.arange(place.size, dtype=np.int32)
    rank = np.append(place, 0)[class_of_row]
    ordered: NDArray[np.int64] = sort_by_code(rows, rank, place.size)
    return ordered


def _gather(
    table: pa.Table,
    plan: Plan,
    labels: Sequence[Labels],
    classes: NDArray[np.int32],
    rows: NDArray[np.int64],
) -> pa.Table:
    """The released columns of these rows; text is numbered until somebody reads it."""
    released: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, cells in zip(plan.quasi_identifiers, labels, strict=True):
        released[name] = _take_labels(cells, classes)
    inorder = rows.size == table.num_rows and bool((rows[1:] > rows[:-1]).all())
    for name in (*plan.sensitive, *plan.keep):
        column = table.column(name)
        released[name] = column if inorder else column.take(to_arrow(rows))
    return pa.table(released)


def _take_labels(cells: Labels, classes: NDArray[np.int32]) -> pa.Array:
    texts = list(cells.texts)
    codes = cells.of_class[classes]
    if texts and texts[-1] is None:
        texts.pop()
        indices = pa.array(codes, mask=codes == len(texts))
    else:
        indices = to_arrow(codes)
    if cells.values is not None:
        return cells.values.take(indices)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
