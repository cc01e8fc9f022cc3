"""How questions are run: on public rows with full errors, on holdout rows with one refusal for all faults."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.errors import QuestionRefused
from sfumato.holdout.sealed import Sealed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.holdout.rows import RowSet

GRID: Final = 1 << 24
"""Steps between the values 0 and 1 of one row; sums of rows are whole numbers of steps."""

_PROBES: Final = 64
_SINGLE: Final = 6
_NEAR: Final = 2.0**-12
_ODD: Final = 0.02


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
    private: Callable[[NDArray[Any], RowSet], int]
    weight: Fraction = Fraction(1)
    neutral: float = 0


def ask_about_mean(function: object, *, name: str) -> Question:
    """The question for the mean of `function` over rows, whose values lie in [0, 1]."""
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
    """What a question returned, one value in [0, 1] per row, in whole steps of 1 / GRID.

    >>> read_values([True, False, 0.5], 3).tolist()
    [16777216, 0, 8388608]
    """
    numbers = _read_numbers(returned, rows)
    if not ((numbers >= 0) & (numbers <= 1)).all():
        raise QuestionRefused("it returned values outside [0, 1]; scale or clamp them inside the function")
    return np.rint(numbers * GRID).astype(np.int64)


def read_scores(returned: object, rows: int) -> NDArray[np.float64]:
    """What a question returned, one finite number per row."""
    return _read_numbers(returned, rows)


def measure_public(question: Question, rows: RowSet, *, timeout: float | None) -> NDArray[Any]:
    """The values of rows that are not protected; a fault is told in full, with its cause."""
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
) -> Sealed[int] | None:
    """The statistic of holdout rows in a sealed box, or None for a fault of any kind.

    The exception of a fault is dropped here together with its frames, whose variables hold rows. An
    interrupt of the user goes on as a new one. Warnings are silenced, as they would tell about the rows.
    """
    try:
        seal = _seal_singly if single else _seal_together
        with _silence():
            sealed: Sealed[int] = _call(seal, (question, rows), timeout)
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
    """Raises a refusal if the value of a public row depends on the rows around it.

    The rows at `probe_places` are evaluated again, together in reverse order and some of them alone. Values
    that differ by rounding pass, and so do one in fifty that lie on an edge.
    """
    places = probe_places(len(rows))
    expected = values[places].astype(np.float64)
    pieces = [measure_public(question, probes, timeout=timeout)]
    chosen = range(0, places.size, max(1, places.size // _SINGLE))
    pieces.append(
        np.concatenate(
            [measure_public(question, probes.take(np.array([place])), timeout=timeout) for place in chosen]
        )
    )
    scale = float(np.ptp(values)) or 1.0
    if question.read is read_values:
        scale = GRID
    for piece, wanted in zip(pieces, (expected, expected[list(chosen)]), strict=True):
        odd = np.abs(piece - wanted) > _NEAR * scale
        if odd.sum() > _ODD * wanted.size:
            raise QuestionRefused(
                f"question {question.name!r} gives a row of {rows.name} another value when other rows are "
                f"beside it; the value of a row must depend on that row alone, or one row of the holdout "
                f"could move the answer by more than 1 / rows"
            )


def probe_places(rows: int) -> NDArray[np.intp]:
    """Up to 64 places spread over the rows, last first.

    >>> probe_places(3).tolist(), probe_places(1000).size
    ([2, 1, 0], 64)
    """
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


def _read_numbers(returned: object, rows: int) -> NDArray[np.float64]:
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


def _seal_together(question: Question, rows: RowSet) -> Sealed[int]:
    true_values = question.read(question.function(*rows.arguments()), len(rows))
    return Sealed(question.private(true_values, rows))


def _seal_singly(question: Question, rows: RowSet) -> Sealed[int]:
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
    """What the function returns or raises; after `timeout` seconds it is given up in its own thread."""
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
