"""Privacy models that every equivalence class must satisfy beside k-anonymity: l-diversity, t-closeness, ...

A missing sensitive value is a value of its own. What is compared is exact: whole numbers wherever there
are fractions, and logarithms with a margin far below the 1e-9 that is allowed when a release is judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymity.encode import number_rows
from sfumato.core.errors import AnonymityError

_MARGIN = 1e-12  # more than the rounding of logarithms: who passes here is not refused when judged
_FINEST = 10**6  # c of recursive diversity is a fraction over at most this, rounded down


ModelKind = Literal["distinct", "entropy", "recursive", "equal", "ordered", "delta"]


@dataclass(frozen=True, slots=True)
class Model:
    """What every class must have of one sensitive column.

    distinct   l-diversity: at least `limit` different values
    entropy    l-diversity: an entropy of at least that of `limit` equally frequent values
    recursive  (c, l)-diversity: the most frequent value has less than `limit` times the rows of the `l`-th
               and those after
    equal      t-closeness: distributed as in the whole table, up to `limit`, half the sum of all differences
    ordered    the same by what must be moved how far in the order of the values, where end to end is 1
    delta      delta-disclosure privacy: each value's share is the table's up to a factor of e^limit; a value
               that a class lacks differs by more than any factor
    """

    kind: ModelKind
    column: str
    limit: float
    l: int = 1  # noqa: E741 - the field's word


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sensitive:
    """How often each tuple has which values of one column: tuple i's are at starts[i] to starts[i + 1]."""

    name: str
    size: int
    starts: NDArray[np.int64]
    codes: NDArray[np.int32]
    counts: NDArray[np.int64]

    def restrict(self, kept: NDArray[np.bool_]) -> Sensitive:
        """Returns the same of these tuples only; values that no longer occur are gone."""
        lengths = np.diff(self.starts)
        chosen = np.repeat(kept, lengths)
        values, codes = np.unique(self.codes[chosen], return_inverse=True)
        starts = np.concatenate([[0], np.cumsum(np.where(kept, lengths, 0))]).astype(np.int64)
        return Sensitive(self.name, values.size, starts, codes.astype(np.int32), self.counts[chosen])


def count_values(
    name: str, tuple_of_row: NDArray[np.int32], codes: NDArray[np.int32], *, tuples: int
) -> Sensitive:
    """Gives the values that each of `tuples` tuples has, from every row's tuple and code; codes are in order.

    >>> each = count_values("job", np.array([0, 1, 0]), np.array([5, 7, 5], np.int32), tuples=2)
    >>> each.size, each.starts.tolist(), each.codes.tolist(), each.counts.tolist()
    (2, [0, 1, 2], [0, 1], [2, 1])
    """
    room = int(codes.max(initial=0)) + 1
    numbers, first = number_rows([tuple_of_row.astype(np.int32), codes], [max(1, tuples), room])
    owners, found = tuple_of_row[first], codes[first]
    order = np.lexsort((found, owners))
    values, dense = np.unique(found[order], return_inverse=True)
    counts = np.bincount(numbers, minlength=first.size)[order]
    starts = np.searchsorted(owners[order], np.arange(tuples + 1)).astype(np.int64)
    return Sensitive(name, values.size, starts, dense.astype(np.int32), counts.astype(np.int64))


class ModelArrays(NamedTuple):
    """Models and sensitive columns as compiled loops read them.

    kinds, columns  of every model: which it is, and the number of its sensitive column
    limits          of every model: its limit as a float, for entropy, closeness and disclosure
    wholes          of every model: its limits as whole numbers: l, then c as numerator and denominator
    starts, codes   the values of tuple i in a column are codes[starts[column, i]:starts[column, i + 1]]
    counts          how often it has each of them
    offsets         where each column begins in the three arrays that follow
    totals          how often the whole table has each value
    cumulated       the same of all values up to each
    areas           the sums of `cumulated` before each value; one longer per column, with a last sum
    """

    kinds: NDArray[np.int64]
    columns: NDArray[np.int64]
    limits: NDArray[np.float64]
    wholes: NDArray[np.int64]
    starts: NDArray[np.int64]
    codes: NDArray[np.int32]
    counts: NDArray[Any]
    offsets: NDArray[np.int64]
    totals: NDArray[Any]
    cumulated: NDArray[Any]
    areas: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Models:
    """The models that every class must satisfy, with the sensitive columns they are about.

    An error if the whole table does not satisfy one: then no grouping of it does.

    >>> jobs = count_values("job", np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1], np.int32), tuples=2)
    >>> models = Models((Model("distinct", "job", 2),), (jobs,))
    >>> models.find_satisfied(np.array([0, 1], np.int32), 2).tolist()
    [True, False]
    """

    models: tuple[Model, ...]
    sensitives: tuple[Sensitive, ...]
    arrays: ModelArrays = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", _pack(self.models, self.sensitives))
        for model in self.models:
            about = next(each for each in self.sensitives if each.name == model.column)
            everybody = np.zeros(about.starts.size - 1, np.int32)
            if not _find_satisfied(everybody, 1, _pack((model,), (about,))).all():
                raise AnonymityError(_refusal(model, about))

    def __bool__(self) -> bool:
        return bool(self.models)

    @property
    def monotone(self) -> bool:
        """Whether a class that satisfies them still does when any other records join it."""
        return all(model.kind == "distinct" for model in self.models)

    @property
    def relative(self) -> bool:
        """Whether a class is compared with the whole table."""
        return any(model.kind in ("equal", "ordered", "delta") for model in self.models)

    def find_satisfied(self, class_of: NDArray[np.int32], count: int) -> NDArray[np.bool_]:
        """For each of `count` classes of tuples, whether it satisfies every model; -1 is none of them."""
        return _find_satisfied(class_of, count, self.arrays)

    def restrict(self, kept: NDArray[np.bool_]) -> Models:
        """Returns the same models for these tuples alone, whose distribution t compares with."""
        return Models(self.models, tuple(each.restrict(kept) for each in self.sensitives))


def _find_satisfied(class_of: NDArray[np.int32], count: int, arrays: ModelArrays) -> NDArray[np.bool_]:
    from sfumato.anonymity.kernels.models import judge_classes

    order = np.argsort(class_of, kind="stable")
    starts = np.searchsorted(class_of[order], np.arange(count + 1))
    found: NDArray[np.bool_] = judge_classes(order, starts, arrays)
    return found


def _pack(models: tuple[Model, ...], sensitives: tuple[Sensitive, ...]) -> ModelArrays:
    names = [each.name for each in sensitives]
    kinds, columns = np.zeros(len(models), np.int64), np.zeros(len(models), np.int64)
    limits, wholes = np.zeros(len(models)), np.zeros((len(models), 3), np.int64)
    totals = [
        np.bincount(each.codes, each.counts, minlength=each.size).astype(np.int64) for each in sensitives
    ]
    rows = [int(each.sum()) for each in totals]
    # Beyond these products fractions are compared as floats, with a margin.
    largest = max((max(2, count.size) * size**2 for count, size in zip(totals, rows, strict=True)), default=0)
    kind: type = np.int64 if largest < 2**62 else np.float64
    for number, model in enumerate(models):
        if model.column not in names:
            raise AnonymityError(f"column {model.column!r} is not among the sensitive columns")
        columns[number] = names.index(model.column)
        kinds[number] = get_args(ModelKind).index(model.kind)
        limits[number], wholes[number] = _describe(model)
        if kind is np.float64 and model.kind in ("equal", "ordered"):
            limits[number] -= _MARGIN
    cumulated = [np.cumsum(each) for each in totals]
    begins = np.cumsum([0, *(each.codes.size for each in sensitives)], dtype=np.int64)
    # All columns in one array: a column's places move by what comes before it.
    starts = [each.starts + begin for each, begin in zip(sensitives, begins[:-1], strict=True)]
    return ModelArrays(
        kinds=kinds,
        columns=columns,
        limits=limits,
        wholes=wholes,
        starts=np.array(starts, np.int64) if starts else np.zeros((0, 1), np.int64),
        codes=_join([each.codes for each in sensitives], np.int32),
        counts=_join([each.counts for each in sensitives], kind),
        offsets=np.cumsum([0, *(each.size for each in totals)], dtype=np.int64),
        totals=_join(totals, kind),
        cumulated=_join(cumulated, kind),
        areas=_join([np.append(0, np.cumsum(each.astype(kind))) for each in cumulated], kind),
    )


def _describe(model: Model) -> tuple[float, tuple[int, int, int]]:
    """Returns a model's limit as a float, and its limits as whole numbers."""
    if model.kind == "distinct":
        return 0.0, (int(model.limit), 0, 0)
    if model.kind == "entropy":
        return math.log(model.limit) - _MARGIN, (0, 0, 0)
    if model.kind == "recursive":
        c = Fraction(str(model.limit))  # as it is written: 0.1 is a tenth
        if c.denominator > _FINEST:
            c = Fraction(math.floor(c * _FINEST), _FINEST)
        return 0.0, (model.l, c.numerator, c.denominator)
    return float(model.limit), (0, 0, 0)


def _refusal(model: Model, sensitive: Sensitive) -> str:
    """Returns why no grouping satisfies a model."""
    where = f"column {model.column!r}: the whole table"
    counts = np.bincount(sensitive.codes, sensitive.counts, minlength=sensitive.size)
    if model.kind == "distinct":
        what = f"has {sensitive.size} different values, so no grouping can have {model.limit} in every class"
    elif model.kind == "entropy":
        shares = counts / counts.sum()
        most = math.exp(-float(shares @ np.log(shares)))
        what = f"has the entropy of {most:.3g} equal values, so no grouping can have that of {model.limit}"
    else:
        what = f"has a value too frequent for recursive diversity of c = {model.limit} and l = {model.l}, "
        what += "so no grouping can satisfy it"
    return f"{where} {what}; ask for less, or do not release this column"


def _join(parts: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind)
