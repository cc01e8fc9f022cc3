"""The k, l and t that a table has, counted from the table alone, and what it lacks of what is required.

Two records are in one equivalence class if all their quasi-identifiers are written the same; a missing value
is the same as a missing value only, `*` as `*` only. What made the table has no part in this: a file is
judged as whoever gets it reads it. A Parquet file is counted piece by piece, and a CSV file is read as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.anonymity.attack.matching import MOST_NUMBERS, build_classes, join_classes, number_rows
from sfumato.core.engine.arrays import to_numpy
from sfumato.core.errors import AnonymityError
from sfumato.core.exact import parse_whole
from sfumato.tables.read import TableLike, is_text, read_pieces, read_table, spell_table


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tally:
    """The different rows of a table, sorted by codes: a code per column, and the number of records.

    A code is a place in the column's sorted `values`, in which a missing value comes last. `weights` is
    the sum of the records' weights, if a column of them was named.
    """

    columns: tuple[str, ...]
    codes: tuple[NDArray[np.int64], ...]
    values: tuple[pa.Array, ...]
    counts: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.counts.sum())

    def classes(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Returns the class of each row on `columns`, numbered from 0 without gaps."""
        places = [self.columns.index(name) for name in columns]
        return number_rows([self.codes[at] for at in places], [len(self.values[at]) for at in places])


def tally_rows(source: TableLike, columns: Sequence[str], *, side: str, weights: str | None = None) -> Tally:
    """Returns the different rows of `source` on `columns`, which are named once each; `side` is for messages.

    >>> rows = {"age": ["60+", "20-60", "60+"], "ill": ["flu", None, "flu"]}
    >>> found = tally_rows(rows, ["age", "ill"], side="table")
    >>> found.counts.tolist(), [values.to_pylist() for values in found.values]
    ([1, 2], [['20-60', '60+'], ['flu', None]])
    """
    used = [*columns, *([] if weights is None else [weights])]
    pieces = read_pieces(source, side=side, columns=used)
    return _merge([_tally_piece(piece, columns, weights, side) for piece in pieces])


def check_names(quasi_identifiers: Sequence[str], others: Sequence[str] = ()) -> None:
    """Raises an error if no quasi-identifier is named or a column is named twice.

    >>> check_names(["age", "sex"], ["age"])
    Traceback (most recent call last):
        ...
    sfumato.core.errors.AnonymityError: column 'age' is named twice; give it one role
    """
    if isinstance(quasi_identifiers, str) or not quasi_identifiers:
        raise AnonymityError("name the quasi-identifiers as a list of columns, at least one")
    names = [*quasi_identifiers, *others]
    for name in names:
        if names.count(name) > 1:
            raise AnonymityError(f"column {name!r} is named twice; give it one role")


def match_register(
    tally: Tally, quasi_identifiers: Sequence[str], classes: NDArray[np.int64], register: TableLike
) -> NDArray[np.int64]:
    """For each class of a tally's rows the number of people in `register` whom its labels fit.

    `180-190` fits 185, `1*` fits 1001, `*` and a missing cell fit everybody. A missing cell of the
    register may be anything, too.

    >>> rows = tally_rows({"age": ["60+", "20-40", "60+"]}, ["age"], side="table")
    >>> match_register(rows, ["age"], rows.classes(["age"]), {"age": [61, 72, 33]}).tolist()
    [1, 2]
    """
    first = np.unique(classes, return_index=True)[1]
    places = [tally.columns.index(name) for name in quasi_identifiers]
    labels = pa.table(
        {tally.columns[at]: tally.values[at].take(pa.array(tally.codes[at][first])) for at in places}
    )
    people = spell_table(read_table(register, side="register", columns=quasi_identifiers), side="register")
    mine = build_classes(spell_table(labels, side="table"), quasi_identifiers)
    theirs = build_classes(people, quasi_identifiers)
    fitting = np.zeros(mine.weights.size, np.int64)
    if people.num_rows and labels.num_rows:
        for left, right in join_classes(mine, theirs):
            fitting += np.bincount(left, theirs.weights[right], minlength=fitting.size).astype(np.int64)
    return fitting[mine.of_row]


def _tally_piece(piece: pa.Table, columns: Sequence[str], weights: str | None, side: str) -> Tally:
    encoded = [_encode(piece.column(name), name, side) for name in columns]
    return _group(
        tuple(columns),
        [codes for codes, _ in encoded],
        [values for _, values in encoded],
        None,
        None if weights is None else _read_weights(piece.column(weights), weights, side),
    )


def _merge(pieces: Sequence[Tally]) -> Tally:
    """Returns the tally of all records; codes of a piece become codes of the values of all pieces."""
    if len(pieces) == 1:
        return pieces[0]
    codes, values = [], []
    for place in range(len(pieces[0].columns)):
        kind = pieces[-1].values[place].type
        words = pa.concat_arrays([piece.values[place].cast(kind) for piece in pieces])
        places, found = _sort_values(words)
        starts = np.cumsum([0, *(len(piece.values[place]) for piece in pieces)])
        shifted = [piece.codes[place] + start for piece, start in zip(pieces, starts.tolist(), strict=False)]
        codes.append(places[np.concatenate(shifted)])
        values.append(found)
    weights = [piece.weights for piece in pieces if piece.weights is not None]
    counts = np.concatenate([piece.counts for piece in pieces])
    return _group(pieces[0].columns, codes, values, counts, np.concatenate(weights) if weights else None)


def _group(
    columns: tuple[str, ...],
    codes: Sequence[NDArray[np.int64]],
    values: Sequence[pa.Array],
    counts: NDArray[np.int64] | None,
    weights: NDArray[np.float64] | None,
) -> Tally:
    """Returns the tally of rows with these codes, each of which is so many records, or one."""
    sizes = [max(1, len(each)) for each in values]
    # Where one number can hold all codes of a row, a single sort counts and sorts at once.
    if counts is None and weights is None and math.prod(sizes) < MOST_NUMBERS:
        keys = np.zeros(codes[0].size, np.int64)
        for code, size in zip(codes, sizes, strict=True):
            keys *= size
            keys += code
        found, counts = np.unique(keys, return_counts=True)
        parts = [part.astype(np.int64) for part in np.unravel_index(found, sizes)]
        return Tally(columns, tuple(parts), tuple(values), counts.astype(np.int64))
    rows = number_rows(codes, sizes)
    first = np.unique(rows, return_index=True)[1]
    counts = np.bincount(rows, counts).astype(np.int64)
    return Tally(
        columns,
        tuple(code[first] for code in codes),
        tuple(values),
        counts,
        None if weights is None else np.bincount(rows, weights).astype(np.float64),
    )


def _encode(column: pa.ChunkedArray, name: str, side: str) -> tuple[NDArray[np.int64], pa.Array]:
    """Gives the code of each cell, and the values that occur in order, of which a missing one is the last."""
    try:
        column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        if encoded.num_chunks:
            encoded = encoded.unify_dictionaries().combine_chunks()
        else:  # not every kind of numbered cells can be made from an empty list
            kind = encoded.type
            nothing = (pa.array([], each) for each in (kind.index_type, kind.value_type))
            encoded = pa.DictionaryArray.from_arrays(*nothing)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = pa.concat_arrays(encoded.chunks)
        # A missing cell is a place after the values; so may be a missing value among them.
        words = _plain_values(encoded.dictionary)
        words = pa.concat_arrays([words, pa.nulls(1, words.type)])
        codes = to_numpy(encoded.indices.cast(pa.int64()).fill_null(len(words) - 1))
        occurs = np.flatnonzero(np.bincount(codes, minlength=len(words)))
        places, values = _sort_values(words.take(pa.array(occurs)))
    except (pa.ArrowException, TypeError, NotImplementedError):
        raise AnonymityError(
            f"{side}: column {name!r} has a nested or binary type; leave it out or turn it into text"
        ) from None
    new = np.zeros(len(words), np.int64)
    new[occurs] = places
    return new[codes], values


def _plain_values(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise pa.ArrowTypeError(kind)
    if pa.types.is_boolean(kind) or is_text(kind):
        return values.cast(pa.string())
    if pa.types.is_floating(kind):
        values = pc.add(values.cast(pa.float64()), 0.0)  # the two zeros are one
        return pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    return values


def _sort_values(words: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Returns the place of each word among the different ones in order, and these."""
    encoded = words.dictionary_encode()
    order = to_numpy(pc.sort_indices(encoded.dictionary)).astype(np.int64)
    places = np.empty(order.size + 1, np.int64)
    places[order] = np.arange(order.size)
    places[-1] = order.size
    values = encoded.dictionary.take(pa.array(order))
    if words.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    return places[to_numpy(encoded.indices.cast(pa.int64()).fill_null(order.size))], values


def _read_weights(column: pa.ChunkedArray, name: str, side: str) -> NDArray[np.float64]:
    try:
        kind = column.type
        plain = column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
        numbers = np.asarray(plain.cast(pa.float64()).combine_chunks().to_numpy(zero_copy_only=False))
    except pa.ArrowException:
        numbers = np.array([math.nan])
    if not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise AnonymityError(
            f"{side}: column {name!r} must hold weights: numbers of at least 0, none missing"
        )
    return numbers


Distance = Literal["equal", "ordered"]
"""Equal: all values are as far apart. Ordered: neighbours are near, and the ends are 1 apart."""

NOT_DP = "k-anonymity, not differential privacy"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T].*)?", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?", re.ASCII)
_LARGEST_C = 1000  # of recursive diversity: a larger one asks for next to nothing
_RECORDED = ("records", "classes", "k", "individual", "k_map", "l", "entropy_l", "t")
_ROUNDING = 1e-9  # entropies and distances are sums of floats: a smaller shortfall is one of rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """What equivalence classes tell of one sensitive column; a missing value is a value of its own.

    - `values`: the number of different values in the whole table;
    - `l`: the smallest number of different values in a class;
    - `entropy_l`: exp of the smallest entropy of a class;
    - `t`: the largest distance between the shares of a class and those of the table;
    - `delta_disclosure`: the largest |log(share in a class / share in the table)| over all values of the
      table, infinite where a class lacks one of them;
    - `dominance`: for each number from 1 to `l`, the largest ratio of a class's most frequent value to all
      its values from the so many-th on.
    """

    column: str
    values: int = 0
    l: int = 0  # noqa: E741 - the field's word
    entropy_l: float = 0.0
    t: float = 0.0
    distance: Distance
    delta_disclosure: float = 0.0
    dominance: tuple[float, ...] = field(default=(), repr=False)

    def is_recursive(self, c: float, l: int) -> bool:  # noqa: E741 - the field's word
        """Returns whether in all classes the most frequent value is rarer than `c` times the l-th on."""
        return 1 <= l <= len(self.dominance) and self.dominance[l - 1] < c

    def to_record(self) -> dict[str, Any]:
        """Returns the measures for JSON, in which an infinite one is None."""
        record = asdict(self)
        del record["dominance"]
        return record | {"delta_disclosure": _finite(self.delta_disclosure)}


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _measure_spread(
    column: str,
    classes: NDArray[np.int64],
    codes: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    distance: Distance = "equal",
) -> Diversity:
    """Returns the measures of a sensitive column from tallied rows: their classes, ordered codes, records."""
    values = int(codes.max(initial=-1)) + 1
    if not values:
        return Diversity(column=column, distance=distance)
    # Different rows may share class and value: they differ in other columns.
    keys, place = np.unique(classes * values + codes, return_inverse=True)
    found = np.bincount(place.reshape(-1), counts).astype(np.int64)
    of_class, of_value = np.divmod(keys, values)
    sizes = np.bincount(of_class, found)
    different = np.bincount(of_class)
    table = np.bincount(of_value, found, minlength=values) / found.sum()
    shares = found / sizes[of_class]
    entropies = np.bincount(of_class, -shares * np.log(shares))
    if distance == "ordered":
        apart = _measure_order(of_class, of_value, found, sizes, table)
    else:  # the total variation distance: only a value that a class has can be too frequent
        apart = np.minimum(np.bincount(of_class, np.maximum(shares - table[of_value], 0)), 1.0)
    full = bool((different == values).all())
    ratios = np.abs(np.log(shares / table[of_value]))
    return Diversity(
        column=column,
        values=values,
        l=int(different.min()),
        entropy_l=math.exp(float(entropies.min())),
        t=float(apart.max()),
        distance=distance,
        delta_disclosure=float(ratios.max()) if full else math.inf,
        dominance=_find_dominance(of_class, found, int(different.min())),
    )


def _measure_order(
    of_class: NDArray[np.int64],
    of_value: NDArray[np.int64],
    found: NDArray[np.int64],
    sizes: NDArray[Any],
    table: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns the earth mover's distance of each class, neighbours being 1 / (values - 1) apart.

    It is the sum, over all values, of how far the share of records up to that value is from the table's.
    Between two values that a class has, its own share stays the same and the table's grows: they cross at
    one place, and sums on both sides of it come from sums of the table's shares.
    """
    values = table.size
    if values == 1:
        return np.zeros(sizes.size)
    below = np.cumsum(table)
    sums = np.concatenate([[0.0], np.cumsum(below)])
    first = np.flatnonzero(np.diff(of_class, prepend=-1))
    running = np.cumsum(found)
    before = np.repeat(running[first] - found[first], np.diff(np.append(first, found.size)))
    share = (running - before) / sizes[of_class]
    # A share stays from its value to the class's next one, or to the end.
    stop = np.append(of_value[1:], values)
    stop[np.append(first[1:], found.size) - 1] = values
    cross = np.clip(np.searchsorted(below, share), of_value, stop)
    lower = share * (cross - of_value) - (sums[cross] - sums[of_value])
    upper = (sums[stop] - sums[cross]) - share * (stop - cross)
    total = np.bincount(of_class, lower + upper) + sums[of_value[first]]
    return np.asarray(np.clip(total / (values - 1), 0.0, 1.0))


def _find_dominance(of_class: NDArray[np.int64], found: NDArray[np.int64], most: int) -> tuple[float, ...]:
    """For each l up to `most`, the largest ratio of the highest count of a class to those from l on."""
    order = np.lexsort((-found, of_class))
    counts, groups = found[order], of_class[order]
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    lengths = np.diff(np.append(first, counts.size))
    rank = np.arange(counts.size) - np.repeat(first, lengths)
    running = np.cumsum(counts)
    total = np.repeat(running[first + lengths - 1], lengths)
    rest = total - running + counts
    highest = np.repeat(counts[first], lengths)
    chosen = rank < most
    worst = np.zeros(most)
    np.maximum.at(worst, rank[chosen], highest[chosen] / rest[chosen])
    return tuple(worst.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymity:
    """How anonymous a table is: the worst class decides each measure.

    `k` is the size of the smallest class, in records or, if `individual` names the column of people, in
    different people. `k_map` is the smallest number of people of a register who fit a class. Measures
    of sensitive columns are None without one, and the worst of several, which `by_column` has one by one.
    A table without records has no class and protects nobody: its k, l and entropy_l are 0.
    """

    quasi_identifiers: tuple[str, ...]
    records: int
    classes: int
    k: int
    individual: str | None = None
    k_map: int | None = None
    by_column: Mapping[str, Diversity]

    @property
    def l(self) -> int | None:  # noqa: E743 - the field's word
        """Distinct l-diversity: the smallest number of different sensitive values in a class."""
        return min((each.l for each in self.by_column.values()), default=None)

    @property
    def entropy_l(self) -> float | None:
        """Entropy l-diversity: exp of the smallest entropy of the sensitive values of a class."""
        return min((each.entropy_l for each in self.by_column.values()), default=None)

    @property
    def t(self) -> float | None:
        """t-closeness: the largest distance between a class's sensitive values and the table's."""
        return max((each.t for each in self.by_column.values()), default=None)

    @property
    def delta_disclosure(self) -> float | None:
        """Delta-disclosure: the largest |log(share in a class / share in the table)| of a sensitive value.

        Infinite where a class lacks a value that the table has.
        """
        return max((each.delta_disclosure for each in self.by_column.values()), default=None)

    def recursive(self, c: float, l: int) -> bool:  # noqa: E741 - the field's word
        """Returns whether it is recursively (c, l)-diverse in every sensitive column.

        That is, in every class the most frequent value is rarer than `c` times all values from the l-th
        most frequent on.
        """
        if not self.by_column:
            raise AnonymityError("name a sensitive column to ask for its diversity")
        return all(each.is_recursive(c, l) for each in self.by_column.values())

    def to_record(self) -> dict[str, Any]:
        """Returns the measures for JSON, in which an infinite one is None; it has no value of a record."""
        return {
            "model": NOT_DP,
            "quasi_identifiers": list(self.quasi_identifiers),
            **{key: getattr(self, key) for key in _RECORDED},
            "delta_disclosure": _finite(self.delta_disclosure),
            "by_column": [each.to_record() for each in self.by_column.values()],
        }

    def __str__(self) -> str:
        whom = "records" if self.individual is None else "people"
        lines = [
            f"k = {self.k}: at least {self.k} {whom} in each of {self.classes:,} classes "
            f"({self.records:,} records; {', '.join(self.quasi_identifiers)})"
        ]
        if self.k_map is not None:
            lines.append(f"k-map = {self.k_map}: at least so many people of the register fit a class")
        lines += [
            f"{each.column}: l = {each.l} (entropy {each.entropy_l:.3g}), "
            f"t = {each.t:.3g} ({each.distance} distance), delta = {each.delta_disclosure:.3g}"
            for each in self.by_column.values()
        ]
        return "\n".join([*lines, NOT_DP])


def measure_anonymity(
    table: TableLike,
    *,
    quasi_identifiers: Sequence[str] | str,
    sensitive: str | Sequence[str] | None = None,
    register: TableLike | None = None,
    individual: str | None = None,
    distance: Distance | Mapping[str, Distance] = "equal",
) -> Anonymity:
    """Returns how anonymous `table` is: an Arrow table, a frame, a mapping of columns, or the path of a file.

    Records whose `quasi_identifiers` are written the same are a class; `sensitive` names one column or more,
    in which a missing value is a value of its own. `distance`, for all sensitive columns or by column, is
    that of t: `equal` is the total variation distance, `ordered` the earth mover's distance over the
    values in order: numbers and dates have one. A missing value comes after all others.

    `register` names people with the same quasi-identifiers as they are, for k-map. `individual` names the
    column of people in a table that has several records of each.

    >>> rows = {"age": ["60+", "60+", "60+", "20-60", "20-60"], "ill": ["flu", "gout", "flu", "flu", "gout"]}
    >>> found = measure_anonymity(rows, quasi_identifiers=["age"], sensitive="ill")
    >>> found.k, found.l, round(found.t, 3)
    (2, 2, 0.1)
    >>> print(found)
    k = 2: at least 2 records in each of 2 classes (5 records; age)
    ill: l = 2 (entropy 1.89), t = 0.1 (equal distance), delta = 0.223
    k-anonymity, not differential privacy
    """
    columns = [sensitive] if isinstance(sensitive, str) else list(sensitive or ())
    if isinstance(quasi_identifiers, str):
        quasi_identifiers = [quasi_identifiers]
    check_names(quasi_identifiers, [*columns, *([] if individual is None else [individual])])
    distances = _choose_distances(columns, distance)
    tally = tally_rows(table, [*quasi_identifiers, *columns], side="table")
    classes = tally.classes(quasi_identifiers)
    sizes = np.bincount(classes, tally.counts).astype(np.int64)
    k = int(sizes.min(initial=tally.records))
    if individual is not None:
        k = _count_people(table, quasi_identifiers, individual)
    fitting = None
    if register is not None:
        fitting = match_register(tally, quasi_identifiers, classes, register)
    spreads = {}
    for place, name in enumerate(columns, start=len(quasi_identifiers)):
        codes = tally.codes[place]
        if distances[name] == "ordered":
            codes = _put_in_order(name, tally.values[place])[codes]
        spreads[name] = _measure_spread(name, classes, codes, tally.counts, distance=distances[name])
    return Anonymity(
        quasi_identifiers=tuple(quasi_identifiers),
        records=tally.records,
        classes=sizes.size,
        k=k,
        individual=individual,
        k_map=None if fitting is None else int(fitting.min()) if fitting.size else 0,
        by_column=spreads,
    )


def _count_people(table: TableLike, quasi_identifiers: Sequence[str], individual: str) -> int:
    """Returns the smallest number of different people in a class; all without a name count as one."""
    pairs = tally_rows(table, [*quasi_identifiers, individual], side="table")
    people = np.bincount(pairs.classes(quasi_identifiers))
    return int(people.min()) if people.size else 0


def _choose_distances(
    columns: Sequence[str], distance: Distance | Mapping[str, Distance]
) -> dict[str, Distance]:
    chosen = dict(distance) if isinstance(distance, Mapping) else dict.fromkeys(columns, distance)
    unknown = [name for name in chosen if name not in columns]
    if unknown:
        raise AnonymityError(
            f"a distance is given for column {unknown[0]!r}, which is not sensitive; name it so"
        )
    _check_distances(chosen.values())
    return {name: chosen.get(name, "equal") for name in columns}


def _check_distances(distances: Iterable[str]) -> None:
    known = all(each in get_args(Distance) for each in distances)
    _require(known, "the distance of t is 'equal' or 'ordered'")


def _put_in_order(name: str, values: pa.Array) -> NDArray[np.int64]:
    """Gives the place of each of the sorted values in the order of the column; a missing one is the last."""
    known = values.drop_null()
    ranks = np.arange(len(known))  # of text, days and moments are written in their order
    texts = known.to_pylist() if pa.types.is_string(known.type) else []
    if not all(_DAY.fullmatch(text) for text in texts):
        if not all(_NUMBER.fullmatch(text) for text in texts):
            raise AnonymityError(
                f"column {name!r} is text, which has no order to measure a distance by; "
                "ask for the equal distance, or number its values in their order"
            )
        ranks = np.asarray(pc.cast(known, pa.float64()).to_numpy(zero_copy_only=False))
    # Two spellings of one number share a place.
    found = np.unique(ranks, return_inverse=True)[1].reshape(-1)
    return np.append(found, found.max(initial=-1) + 1).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The least that a table must have; what is None is not required.

    k                the size of the smallest equivalence class, or, with `k_map`, the number of people of a
                     register who fit it
    l, entropy_l     distinct and entropy l-diversity, in every class and sensitive column
    recursive        recursive (c, l)-diversity, as the pair (c, l)
    t, distance      t-closeness by the `equal` or the `ordered` distance, for all columns or by column
    delta            delta-disclosure, below which it must stay
    """

    k: int
    l: int | None = None  # noqa: E741 - the field's word
    entropy_l: float | None = None
    recursive: tuple[float, int] | None = None
    t: float | None = None
    distance: Distance | Mapping[str, Distance] = "equal"
    delta: float | None = None
    k_map: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", parse_whole(self.k, name="k", error=AnonymityError))
        if self.l is not None:
            object.__setattr__(self, "l", parse_whole(self.l, name="l", error=AnonymityError))
        _require(self.entropy_l is None or 1 <= self.entropy_l < math.inf, "entropy l must be at least 1")
        _require(self.t is None or 0 <= self.t <= 1, "t must be from 0 to 1")
        _require(self.delta is None or 0 < self.delta < math.inf, "delta must be above 0")
        _check_distances([self.distance] if isinstance(self.distance, str) else self.distance.values())
        if self.recursive is not None:
            c, number = self.recursive
            _require(0 < c <= _LARGEST_C, "c of recursive diversity must be above 0 and at most 1000")
            number = parse_whole(number, name="l of recursive diversity", error=AnonymityError)
            object.__setattr__(self, "recursive", (c, number))

    @property
    def needs_sensitive(self) -> bool:
        """Whether anything is required of sensitive columns."""
        return any(each is not None for each in (self.l, self.entropy_l, self.recursive, self.t, self.delta))

    def distance_of(self, column: str) -> Distance:
        """Returns the distance by which t of a sensitive column is measured."""
        return self.distance.get(column, "equal") if isinstance(self.distance, Mapping) else self.distance


def find_shortfalls(measured: Anonymity, required: Requirements) -> tuple[str, ...]:
    """Returns what `measured` lacks of what is `required`, in words; empty if nothing.

    A table without records lacks everything.

    >>> found = measure_anonymity({"age": [61, 61, 33]}, quasi_identifiers=["age"])
    >>> find_shortfalls(found, Requirements(k=2))
    ('k is 1, asked 2',)
    """
    if required.needs_sensitive and not measured.by_column:
        raise AnonymityError(
            "diversity or closeness is asked for, but no sensitive column was measured; name one"
        )
    if required.k_map and measured.k_map is None:
        raise AnonymityError("k-map is asked for, but no register was measured with; give one")
    if not measured.records:
        return ("the table has no records",)
    found = []
    if not required.k_map and measured.k < required.k:
        found.append(f"k is {measured.k}, asked {required.k}")
    if required.k_map and measured.k_map is not None and measured.k_map < required.k:
        hint = " (labels that the register cannot be matched with? groups can be `spelled`)"
        found.append(f"k-map is {measured.k_map}, asked {required.k}{'' if measured.k_map else hint}")
    for each in measured.by_column.values():
        found += [f"{fault} (column {each.column!r})" for fault in _find_faults(each, required)]
    return tuple(found)


def _find_faults(measured: Diversity, required: Requirements) -> Iterator[str]:
    if required.l is not None and measured.l < required.l:
        yield f"l is {measured.l}, asked {required.l}"
    if required.entropy_l is not None and measured.entropy_l < required.entropy_l * (1 - _ROUNDING):
        yield f"entropy l is {measured.entropy_l:.6g}, asked {required.entropy_l:g}"
    if required.recursive is not None and not measured.is_recursive(*required.recursive):
        yield "recursive ({:g}, {})-diversity does not hold".format(*required.recursive)
    if required.t is not None:
        asked = required.distance_of(measured.column)
        message = f"t of column {measured.column!r} is asked by the {asked} distance, but measured by another"
        _require(asked == measured.distance, message)
        if measured.t > required.t + _ROUNDING:
            yield f"t is {measured.t:.6g}, asked {required.t:g}"
    if required.delta is not None and measured.delta_disclosure >= required.delta:
        yield f"delta is {measured.delta_disclosure:.6g}, asked below {required.delta:g}"


def _require(fine: bool, message: str) -> None:  # noqa: FBT001 - read as a sentence
    if not fine:
        raise AnonymityError(message)
