"""What an attacker sees of one run: numbers, and words such as keys, sizes, types and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_WORDS = 2000
_MOST_NAMES = 4096
_MOST_ELEMENTS = 2**25
_LONGEST = 200
_NO_BIT = 5000.0
_DEEPEST = 6


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One output, taken apart: `numbers` with the `names` of their places (none: by position), and `words`.

    Statistics of all numbers are made while they are at hand: their number, sum, largest, smallest, and
    the exponent of the lowest bit that is set in any of them.
    """

    numbers: NDArray[np.float64]
    names: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    summary: tuple[float, float, float, float, float] = (0.0, 0.0, math.nan, math.nan, _NO_BIT)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Many runs on one table: a row for each, a column for each number, and which rows have which word."""

    runs: int
    numbers: NDArray[np.float64]
    names: tuple[str, ...]
    summaries: NDArray[np.float64]
    words: Mapping[str, NDArray[np.bool_]]


def observe(output: object) -> Observation:
    """What there is to see in `output`: an array, a number, text, a mapping, a table, or a mixture.

    >>> observe({"north": 2.5, "south": 1}).names
    ('.north', '.south')
    >>> sorted(observe("yes").words)
    ["='yes'", 'type str']
    """
    parts = _Parts()
    try:
        parts.take(output, "", depth=0)
    except Exception as error:  # an output may refuse to be looked at
        return observe_error(error)
    return parts.finish()


def observe_error(error: BaseException) -> Observation:
    """What there is to see in a run that failed: the kind of the error and its text.

    >>> sorted(observe_error(ValueError("no")).words)
    ['error', 'error ValueError', 'error ValueError: no']
    """
    name = type(error).__name__
    try:
        text = str(error)[:_LONGEST]
    except Exception:  # an error may fail to be told
        text = "?"
    return Observation(np.empty(0), words=frozenset({"error", f"error {name}", f"error {name}: {text}"}))


def lowest_bits(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each number the exponent of its lowest set bit; one beyond all for zero and what is not finite.

    >>> lowest_bits(np.array([1.0, 0.75, 6.0, 0.0])).tolist()
    [0.0, -2.0, 1.0, 5000.0]
    """
    bits = np.ascontiguousarray(numbers, np.float64).view(np.uint64)
    exponent = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
    fraction = bits & np.uint64((1 << 52) - 1)
    fraction = np.where(exponent > 0, fraction | np.uint64(1 << 52), fraction)
    lowest = fraction & (~fraction + np.uint64(1))
    place = np.log2(np.maximum(lowest, np.uint64(1)).astype(np.float64))
    result = np.maximum(exponent, 1) - 1075 + place
    return np.where((fraction == 0) | (exponent == 0x7FF), _NO_BIT, result)


class _Parts:
    """Collects numbers and words from an output of any make."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[np.float64]] = []
        self.names: list[str] = []
        self.words: set[str] = set()

    def say(self, word: str) -> None:
        if len(self.words) < _MOST_WORDS:
            self.words.add(word[:_LONGEST])

    def take(self, value: Any, path: str, *, depth: int) -> None:  # noqa: ANN401 - whatever a mechanism returns
        self.say(f"type {type(value).__name__}{_at(path)}" if depth <= 1 else "deep")
        if isinstance(value, (bool, np.bool_)):
            self.add(np.array([float(value)]), path)
        elif isinstance(value, (int, float, np.integer, np.floating, Fraction, Decimal)):
            self.add(np.array([_to_float(value)]), path)
        elif isinstance(value, np.ndarray):
            self.take_array(value, path, depth=depth)
        elif value is None or isinstance(value, (str, bytes)):
            self.say(f"{path}={value!r}")
        elif isinstance(value, Mapping):
            self.take_mapping(value, path, depth=depth)
        elif isinstance(value, (set, frozenset)):
            self.say(f"size {len(value)}{_at(path)}")
            for item in value:
                self.say(f"has {item!r}{_at(path)}")
        elif isinstance(value, Sequence) and depth < _DEEPEST:
            self.take_sequence(value, path, depth=depth)
        else:
            self.take_other(value, path, depth=depth)

    def take_array(self, value: NDArray[Any], path: str, *, depth: int) -> None:
        self.say(f"shape {value.shape}{_at(path)}")
        self.say(f"dtype {value.dtype}{_at(path)}")
        if value.dtype.kind in "biuf":
            self.add(value.astype(np.float64).ravel(), path)
        elif value.dtype.kind == "c":
            self.add(np.concatenate([value.real.ravel(), value.imag.ravel()]).astype(np.float64), path)
        elif depth < _DEEPEST:
            self.take(value.ravel().tolist()[:_MOST_NAMES], path, depth=depth + 1)

    def take_mapping(self, value: Mapping[Any, Any], path: str, *, depth: int) -> None:
        self.say(f"size {len(value)}{_at(path)}")
        for key in sorted(value, key=repr)[:_MOST_NAMES]:
            place = f"{path}.{key if isinstance(key, str) else repr(key)}"
            self.say(f"has {place}")
            if depth < _DEEPEST:
                self.take(value[key], place, depth=depth + 1)

    def take_sequence(self, value: Sequence[Any], path: str, *, depth: int) -> None:
        self.say(f"size {len(value)}{_at(path)}")
        if all(isinstance(item, (int, float, np.integer, np.floating)) for item in value):
            self.add(np.array([_to_float(item) for item in value]), path)
            return
        for index, item in enumerate(value[:_MOST_NAMES]):
            self.take(item, f"{path}[{index}]", depth=depth + 1)

    def take_other(self, value: Any, path: str, *, depth: int) -> None:  # noqa: ANN401 - as above
        table = _as_columns(value)
        if table is None or depth >= _DEEPEST:
            self.say(f"{path}={_tell(value)}")
            return
        rows = 0
        for name, column in table.items():
            rows = len(column)
            self.say(f"has {path}.{name}")
            if all(item is None or isinstance(item, (int, float)) for item in column):
                self.add(np.array([math.nan if item is None else _to_float(item) for item in column]), path)
            else:
                for item in set(map(_tell, column)):
                    self.say(f"{path}.{name} has {item}")
        self.say(f"rows {rows}{_at(path)}")

    def add(self, numbers: NDArray[np.float64], path: str) -> None:
        self.arrays.append(numbers)
        if len(self.names) < _MOST_NAMES:
            one = numbers.size == 1
            self.names += [path if one else f"{path}[{i}]" for i in range(min(numbers.size, _MOST_NAMES))]

    def finish(self) -> Observation:
        numbers = np.concatenate(self.arrays) if self.arrays else np.empty(0)
        plain = len(self.arrays) == 1 and self.names[:1] in ([""], ["[0]"], [])
        if not numbers.size:
            summary = (0.0, 0.0, math.nan, math.nan, _NO_BIT)
        else:
            with np.errstate(all="ignore"):
                summary = (
                    float(numbers.size),
                    float(numbers.sum()),
                    float(numbers.max()),
                    float(numbers.min()),
                    float(lowest_bits(numbers).min()),
                )
            if np.isnan(numbers).any():
                self.say("not a number")
        few = 0 < numbers.size <= 8 and bool(np.isfinite(numbers).all())
        if few and not (numbers % 1).any():
            self.say(f"whole {numbers.tolist()}")
        return Observation(numbers, () if plain else tuple(self.names), frozenset(self.words), summary)


def stack_observations(
    observations: Sequence[Observation], *, progress: Callable[[str], None] = lambda _: None
) -> Sample:
    """All runs side by side; a number that a run does not have is not a number there."""
    progress("looking at the outputs")
    runs = len(observations)
    words: dict[str, NDArray[np.bool_]] = {}
    for row, each in enumerate(observations):
        for word in each.words:
            if word in words or len(words) < 20 * _MOST_WORDS:
                words.setdefault(word, np.zeros(runs, np.bool_))[row] = True
    if any(each.names for each in observations):
        names = list(dict.fromkeys(name for each in observations for name in each.names))[:_MOST_NAMES]
    else:
        longest = max((each.numbers.size for each in observations), default=0)
        names = [f"[{index}]" for index in range(min(longest, _MOST_ELEMENTS // max(1, runs)))]
    places = {name: index for index, name in enumerate(names)}
    numbers = np.full((runs, len(names)), np.nan)
    for row, each in enumerate(observations):
        if each.names:
            for name, number in zip(each.names, each.numbers, strict=False):
                if name in places:
                    numbers[row, places[name]] = number
        else:
            kept = min(each.numbers.size, len(names))
            numbers[row, :kept] = each.numbers[:kept]
    summaries = np.array([each.summary for each in observations]).reshape(runs, 5)
    return Sample(runs, numbers, tuple(names), summaries, words)


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _to_float(value: Any) -> float:  # noqa: ANN401 - any kind of number
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _tell(value: object) -> str:
    """The value as text without the address of an object."""
    if value is None or isinstance(value, (str, bytes, int, float, bool)):
        return repr(value)[:_LONGEST]
    text = repr(value)[:_LONGEST]
    return type(value).__name__ if " at 0x" in text else text


def _as_columns(value: Any) -> dict[str, list[Any]] | None:  # noqa: ANN401 - any kind of table
    """The columns of a table or frame, or None if it is none."""
    for method in ("to_arrow", "to_pydict", "to_dict"):
        turn = getattr(value, method, None)
        if turn is None:
            continue
        turned = turn(orient="list") if method == "to_dict" else turn()
        if method == "to_arrow":
            turned = turned.to_pydict()
        if isinstance(turned, dict) and all(isinstance(each, list) for each in turned.values()):
            return {str(name): column for name, column in turned.items()}
    return None
