"""What was computed from holdout rows, in a box that prints nothing and cannot be written down."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class Sealed(Generic[T]):
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
        """The true value, for arithmetic that cannot fail."""
        return self._true_value

    def __repr__(self) -> str:
        return "Sealed(value withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("what was computed from a holdout cannot be pickled")
