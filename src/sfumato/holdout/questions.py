"""Rows that nobody may look at, and questions about them, run so that nothing true about the rows gets out.

On public rows a question's fault is explained in full; on holdout rows every fault is the same refusal.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Generic, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import QuestionRefused, SchemaError
from sfumato.core.exact import Withheld

T = TypeVar("T")

GRID: Final = 1 << 24
"""Steps between the values 0 and 1 of one row; sums of rows are whole numbers of steps."""

_PROBES: Final = 64  # rows that are asked about again, to find functions that mix rows
_SINGLE: Final = 6  # of these, about so many one by one
_NEAR: Final = 2.0**-12  # of the range: smaller differences may be rounding
_ODD: Final = 0.02  # the share of rows that may lie on an edge, where rounding decides


class Guarded(Withheld):
    """What spends a budget of answers: its copies are itself, so that no copy has a budget of its own."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled: a copy would have a budget of its own. Keep it in one "
            "process, for scikit-learn with n_jobs=1 or joblib's threads"
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self


class Sealed(Withheld, Generic[T]):
    """One true value that must not leave the guard.

    Frames of this package that an exception of the user can pass through hold true values in such boxes
    only, so that a traceback printed with its local variables shows none.

    >>> Sealed(0.71)
    Sealed(value withheld)
    """

    __slots__ = ("_true_value",)

    def __init__(self, true_value: T) -> None:
        self._true_value = true_value

    def open(self) -> T:
        """Returns the true value, for arithmetic that cannot fail."""
        return self._true_value

    def __repr__(self) -> str:
        return "Sealed(value withheld)"


class RowSet(Withheld):
    """The rows of one data set: an array, a table, a mapping of columns, or a tuple of those.

    Tables are anything with `iloc` (pandas), with `column_names` (Arrow) or with a shape and rows taken by
    an array of places (numpy, sparse matrices, polars). The parts of a tuple, such as (X, y), have their
    rows in the same order. With `own`, the rows are copied, so that later changes of the data are not seen.

    >>> rows = RowSet((np.zeros((4, 2)), [0, 1, 1, 0]), name="train")
    >>> rows
    RowSet(rows=4, values withheld)
    >>> [part.shape for part in rows.take(np.array([2])).arguments()]
    [(1, 2), (1,)]
    """

    __slots__ = ("_parts", "_rows", "name")

    def __init__(self, data: object, *, name: str, own: bool = False) -> None:
        self.name = name
        given = data if isinstance(data, tuple) else (data,)
        self._parts = tuple(_keep(part, name=name, own=own) for part in given)
        counts = {_count_rows(part) for part in self._parts}
        if len(counts) != 1:
            raise SchemaError(f"all parts of {name} must have the same number of rows, at least one part")
        (self._rows,) = counts
        if self._rows < 1:
            raise SchemaError(f"{name} must have at least one row")

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"RowSet(rows={self._rows}, values withheld)"

    @property
    def parts(self) -> int:
        """How many arguments a question gets."""
        return len(self._parts)

    @property
    def columns(self) -> tuple[object, ...]:
        """What is public about the columns: names, or shapes and kinds of values."""
        return tuple(_describe(part) for part in self._parts)

    def arguments(self) -> tuple[Any, ...]:
        """Returns the parts to call a question with; what is done to them does not change these rows."""
        return tuple(_hand_out(part) for part in self._parts)

    def take(self, places: NDArray[np.intp]) -> RowSet:
        """Returns the rows at these places, in this order."""
        taken = tuple(_take(part, places) for part in self._parts)
        return RowSet(taken, name=self.name)


def check_same_columns(train: RowSet, holdout: RowSet) -> None:
    """Raises an error that names what differs between the columns of two data sets."""
    pair = f"{train.name} and {holdout.name}"
    if train.parts != holdout.parts:
        raise SchemaError(
            f"{pair} have {train.parts} and {holdout.parts} parts; give both as (X, y), or both alone"
        )
    for place, (ours, theirs) in enumerate(zip(train.columns, holdout.columns, strict=True), start=1):
        if ours != theirs:
            part = f"part {place} of " if train.parts > 1 else ""
            raise SchemaError(f"{part}{pair} must have the same columns: {_difference(ours, theirs)}")


def _difference(ours: object, theirs: object) -> str:
    if isinstance(ours, frozenset) and isinstance(theirs, frozenset):
        names = sorted(str(name)[:40] for name in ours ^ theirs)
        return f"{', '.join(map(repr, names[:5]))} in one of them only"
    if isinstance(ours, tuple) and isinstance(theirs, tuple) and set(ours) == set(theirs):
        return "they are in another order"
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return _difference(frozenset(ours), frozenset(theirs))
    spelled = [each if isinstance(each, str) else "named columns" for each in (ours, theirs)]
    return f"one has {spelled[0]}, the other {spelled[1]}"


def _keep(part: object, *, name: str, own: bool) -> Any:  # noqa: ANN401  # any table a user may have
    if isinstance(part, Mapping):
        kept = {key: _keep(column, name=name, own=own) for key, column in part.items()}
        if len({_count_rows(column) for column in kept.values()}) != 1:
            raise SchemaError(f"the columns of {name} must have the same number of rows, at least one column")
        return kept
    if isinstance(part, list) or (hasattr(part, "__array__") and not hasattr(part, "shape")):
        part = np.asarray(part)
    if getattr(part, "shape", None) == ():
        raise SchemaError(f"{name} must be a data set with rows, not one value")
    if isinstance(part, np.ndarray):
        kept_array = part.copy(order="K") if own else part.view()
        kept_array.flags.writeable = False
        return kept_array
    if not (hasattr(part, "iloc") or hasattr(part, "column_names") or hasattr(part, "shape")):
        raise SchemaError(
            f"{name} must be an array, a table, a mapping of columns or a tuple of those, "
            f"not {type(part).__name__}"
        )
    return part.copy() if own and hasattr(part, "copy") else part


def _count_rows(part: Any) -> int:  # noqa: ANN401
    if isinstance(part, dict):
        return _count_rows(next(iter(part.values())))
    if hasattr(part, "num_rows"):
        return int(part.num_rows)
    return int(part.shape[0])


def _take(part: Any, places: NDArray[np.intp]) -> Any:  # noqa: ANN401
    if isinstance(part, dict):
        return {key: _take(column, places) for key, column in part.items()}
    if hasattr(part, "iloc"):
        return part.iloc[places]
    if hasattr(part, "column_names"):
        return part.take(places)
    return part[places]


def _hand_out(part: Any) -> Any:  # noqa: ANN401
    if isinstance(part, dict):
        return {key: _hand_out(column) for key, column in part.items()}
    if isinstance(part, np.ndarray):
        return part.view()  # read-only, as what it is a view of
    return part.copy() if hasattr(part, "copy") else part


def _describe(part: Any) -> object:  # noqa: ANN401
    if isinstance(part, dict):
        return frozenset(part)
    for attribute in ("column_names", "columns"):
        if hasattr(part, attribute):
            return tuple(map(str, getattr(part, attribute)))
    shape = " x ".join(str(size) for size in part.shape[1:]) or "1"
    kind = getattr(getattr(part, "dtype", None), "kind", "O")
    values = "numbers" if kind in "biuf" else "other values"
    return f"{shape} column{'s' if shape != '1' else ''} of {values}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A bounded statistic: a value per row, and what is made of the values of all rows.

    `public` gives the statistic, in [0, 1], of rows that are not protected. `private` gives `weight` times
    the statistic of the holdout, in steps of 1 / (rows * GRID); replacing one row moves it by GRID steps at
    most. A row that cannot be evaluated on its own counts as `neutral`.
    """

    name: str
    function: Callable[..., object]
    read: Callable[[object, int], NDArray[Any]]
    public: Callable[[NDArray[Any], RowSet], Fraction]
    private: Callable[[NDArray[Any], RowSet], Any]
    weight: Fraction = Fraction(1)
    neutral: float = 0


def ask_about_mean(function: object, *, name: str) -> Question:
    """Returns the question for the mean of `function` over rows, whose values lie in [0, 1]."""
    if not callable(function):
        raise QuestionRefused("a question is a function of rows that returns one value in [0, 1] per row")
    return Question(
        name=name,
        function=function,
        read=read_values,
        public=lambda values, rows: Fraction(int(values.sum()), len(rows) * GRID),
        private=lambda values, rows: int(values.sum()),
    )


def read_values(returned: object, rows: int) -> NDArray[np.int64]:
    """Returns what a question returned, one value in [0, 1] per row, in whole steps of 1 / GRID."""
    numbers = read_scores(returned, rows)
    if not ((numbers >= 0) & (numbers <= 1)).all():
        raise QuestionRefused("it returned values outside [0, 1]; scale or clamp them inside the function")
    return np.rint(numbers * GRID).astype(np.int64)


def read_scores(returned: object, rows: int) -> NDArray[np.float64]:
    """Returns what a question returned, one finite number per row."""
    array = np.asarray(returned)
    if array.shape != (rows,):
        got = "one number" if array.ndim == 0 else f"an array of shape {array.shape}"
        raise QuestionRefused(f"it returned {got} for {rows} rows; it must return one value per row")
    try:
        numbers = array.astype(np.float64) if array.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError):
        numbers = None
    if numbers is None:
        raise QuestionRefused("it returned values that are not numbers")
    if not np.isfinite(numbers).all():
        raise QuestionRefused("it returned values that are not finite")
    return numbers


def measure_public(question: Question, rows: RowSet, *, timeout: float | None) -> NDArray[Any]:
    """Returns the values of rows that are not protected; a fault is explained in full, with its cause."""
    where = f"question {question.name!r} failed on {rows.name}"
    try:
        returned = _call(question.function, rows.arguments(), timeout)
        return question.read(returned, len(rows))
    except QuestionRefused as error:
        raise QuestionRefused(f"{where}: {error}") from None
    except Exception as error:
        raise QuestionRefused(
            f"{where}: the function raised {type(error).__name__}; nothing was spent"
        ) from error


def measure_sealed(
    question: Question, rows: RowSet, *, single: bool, timeout: float | None
) -> Sealed[Any] | None:
    """Returns the statistic of holdout rows in a sealed box, or None for a fault of any kind.

    The exception of a fault is dropped here together with its frames, whose variables hold rows. An
    interrupt of the user goes on as a new one. Warnings are silenced, as they would tell about the rows.
    """
    try:
        seal = _seal_singly if single else _seal_together
        with _silence():
            sealed: Sealed[Any] = _call(seal, (question, rows), timeout)
    except KeyboardInterrupt:
        pass
    except BaseException:  # a question may raise anything, and must not end the process
        return None
    else:
        return sealed
    raise KeyboardInterrupt  # a new one, without the frames of the question


def check_row_by_row(
    question: Question,
    values: NDArray[Any],
    rows: RowSet,
    probes: RowSet,
    *,
    timeout: float | None,
) -> None:
    """Raises QuestionRefused if the value of a public row depends on the rows around it.

    `values` are those of the `question` on `rows`. Its `probes`, the rows at `probe_places`, are evaluated
    again, all together and some alone, for at most `timeout` seconds each. Values that differ by rounding
    pass, and so do one in fifty that lie on an edge.
    """
    expected = values[probe_places(len(rows))].astype(np.float64)
    some = range(0, expected.size, max(1, expected.size // _SINGLE))
    alone = [measure_public(question, probes.take(np.array([place])), timeout=timeout) for place in some]
    together = measure_public(question, probes, timeout=timeout)
    found = ((together, expected), (np.concatenate(alone), expected[list(some)]))
    scale = float(np.ptp(values)) or 1.0
    if question.read is read_values:
        scale = GRID
    for again, before in found:
        odd = np.abs(again - before) > _NEAR * scale
        if odd.sum() > _ODD * before.size:
            raise QuestionRefused(
                f"question {question.name!r} gives a row of {rows.name} another value when other rows are "
                f"beside it; the value of a row must depend on that row alone, or one row of the holdout "
                f"could move the answer by more than 1 / rows"
            )


def probe_places(rows: int) -> NDArray[np.intp]:
    """Up to 64 places spread over the rows, last first."""
    count = min(rows, _PROBES)
    return np.unique(np.linspace(0, rows - 1, count).astype(np.intp))[::-1]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    # The filters of warnings belong to the whole process, so other threads leave them alone.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def match_labels(labels: object, predictions: object) -> object:
    """Returns whether each prediction equals its label."""
    return np.asarray(labels) == np.asarray(predictions)


def _seal_together(question: Question, rows: RowSet) -> Sealed[Any]:
    true_values = question.read(question.function(*rows.arguments()), len(rows))
    return Sealed(question.private(true_values, rows))


def _seal_singly(question: Question, rows: RowSet) -> Sealed[Any]:
    first = question.read is read_values
    true_values = np.full(len(rows), question.neutral, dtype=np.int64 if first else np.float64)
    for place in range(len(rows)):
        try:
            returned = question.function(*rows.take(np.array([place])).arguments())
            true_values[place] = question.read(returned, 1)[0]
        except KeyboardInterrupt:
            raise
        except BaseException:  # whatever one row does, it does to itself alone
            continue
    return Sealed(question.private(true_values, rows))


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], timeout: float | None) -> Any:  # noqa: ANN401
    """Gives what the function returns or raises; after `timeout` seconds it is given up in its own thread."""
    if timeout is None:
        return function(*arguments)
    box: list[Any] = []

    def work() -> None:
        try:
            box.append((True, function(*arguments)))
        except BaseException as error:  # raised again below, in the thread that waits
            box.append((False, error))

    thread = threading.Thread(target=work, name="holdout question", daemon=True)
    thread.start()
    thread.join(timeout)
    if not box:
        raise QuestionRefused(f"it did not return within {timeout:g} seconds")
    returned, value = box[0]
    if returned:
        return value
    raise value
