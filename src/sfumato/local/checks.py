"""What a client may answer about and what a server may take for answers.

An error never quotes a value: on the client it is the person's own, on the server somebody's answer.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.errors import RecipeError, SchemaError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MAX_CATEGORIES: Final = 1 << 24
_DEVIATIONS: Final = 8.0
_SLACK: Final = 22.0
_PIECE: Final = 1 << 16


def check_count(value: object, *, name: str, least: int = 2, most: int = MAX_CATEGORIES) -> int:
    """The whole number that `value` is, refused outside least .. most.

    >>> check_count(4, name="categories")
    4
    """
    try:
        number = -1 if isinstance(value, bool | np.bool_) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not least <= number <= most:
        hint = "; with one category there is nothing to ask" if least == 2 and number == 1 else ""
        raise RecipeError(
            f"{name} must be a whole number from {least} to {most:,}, got {str(value)[:40]!r}{hint}"
        )
    return number


def check_codes(values: ArrayLike, categories: int, *, default: int | None) -> NDArray[Any]:
    """The values as an array of codes 0 .. categories - 1, others replaced by `default` or refused.

    Its type is that of the values if it can hold every code, else 64-bit integers.

    >>> check_codes([0, 2, 7], 3, default=0).tolist()
    [0, 2, 0]
    """
    codes = as_array(values, "the values")
    if codes.size == 0 and codes.ndim == 1:
        return np.empty(0, codes.dtype if codes.dtype.kind in "iub" else np.int64)
    if codes.ndim != 1 or codes.dtype.kind not in "iub":
        raise SchemaError(
            "the values must be a one-dimensional array of whole numbers, the codes of the categories"
        )
    if default is not None:
        default = check_count(default, name="default", least=0, most=categories - 1)
    if not _within(codes, categories):
        if default is None:
            raise SchemaError(
                f"a value lies outside the {categories} categories 0 to {categories - 1}; correct it, "
                "or state a default for such values"
            )
        inside = (codes >= 0) & (codes < categories)
        codes = np.where(inside, codes.astype(np.int64), default).astype(_wide_enough(codes, categories))
    return codes.astype(_wide_enough(codes, categories), copy=False)


def check_answers(responses: ArrayLike, bound: int) -> NDArray[Any]:
    """The responses as whole numbers below `bound`, or an error that says what is wrong with them.

    >>> check_answers([0, 1, 1], 2).tolist()
    [0, 1, 1]
    """
    answers = as_array(responses, "the responses")
    if answers.ndim != 1:
        raise SchemaError(f"these responses have {answers.ndim} dimensions; the mechanism's have one")
    if answers.size == 0:
        raise SchemaError("there are no responses; nothing can be estimated")
    if answers.dtype.kind not in "iu" and not (answers.dtype.kind == "b" and bound == 2):
        raise SchemaError(f"responses of this mechanism are whole numbers, got an array of {answers.dtype}")
    if not _within(answers, bound):
        raise SchemaError(
            f"a response lies outside 0 to {bound - 1}: not an answer of this mechanism as declared"
        )
    return answers


def count_answers(answers: NDArray[Any], bound: int) -> NDArray[np.int64]:
    """How often each whole number below `bound` occurs, for answers that were checked."""
    if answers.dtype.kind == "b":
        yes = int(np.count_nonzero(answers))
        return np.array([answers.size - yes, yes], np.int64)
    if answers.dtype == np.int64 or bound > _PIECE:
        return np.bincount(answers.astype(np.int64, copy=False), minlength=bound)
    total = np.zeros(bound, np.int64)
    for start in range(0, answers.size, _PIECE):  # widened piece by piece, within the caches
        total += np.bincount(answers[start : start + _PIECE].astype(np.int64), minlength=bound)
    return total


def refuse_impossible(counts: NDArray[Any], people: int, *, least: float, most: float) -> None:
    """Raises an error if a count is one that the mechanism does not give.

    Whatever the true values, each count is a sum of `people` independent events with probabilities
    from `least` to `most`. By Bernstein's inequality it leaves that range by 8 standard deviations
    and 22 with a chance below e^-32.
    """

    def room(share: float) -> float:
        return _DEVIATIONS * math.sqrt(max(0.0, people * share * (1 - share))) + _SLACK

    if counts.min() < people * least - room(least) or counts.max() > people * most + room(most):
        raise SchemaError(
            "these responses were not given by this mechanism with these parameters: "
            "an answer is far rarer or more frequent than it allows, whatever the truth"
        )


def as_array(values: ArrayLike, what: str) -> NDArray[Any]:
    """`values` as an array, or an error of ours; numpy's own could quote them."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise SchemaError(f"{what} are not an array of numbers") from None


def _wide_enough(codes: NDArray[Any], categories: int) -> np.dtype[Any]:
    largest = 1 if codes.dtype.kind == "b" else int(np.iinfo(codes.dtype).max)
    return codes.dtype if largest >= categories - 1 else np.dtype(np.int64)


def _within(codes: NDArray[Any], bound: int) -> bool:
    if codes.dtype.kind == "b":
        return bound >= 2
    return codes.size == 0 or (int(codes.min()) >= 0 and int(codes.max()) < bound)
