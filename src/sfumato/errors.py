"""The errors of this package, one tree.

SfumatoError
├── SchemaError          the description of a table is wrong or incomplete          exit 2
├── RecipeError          a recipe or a privacy parameter is invalid                 exit 2
├── SourceError          a source of records is missing, unreadable or has changed  exit 1
├── LedgerError          the ledger is missing, locked, corrupt or was edited       exit 1
├── BudgetExceeded       the charge does not fit; nothing was spent                 exit 3
├── UnsupportedQuery     a statement that is not answered; nothing was spent           exit 2
├── ReleaseError         a release could not be written or read                     exit 1
└── VerificationFailed   a release does not follow from its own measurements        exit 4

A message says what is wrong, where, and what to do. It never holds a value that came from a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = [
    "BudgetExceeded",
    "LedgerError",
    "RecipeError",
    "ReleaseError",
    "SchemaError",
    "SfumatoError",
    "SourceError",
    "UnsupportedQuery",
    "VerificationFailed",
]


class SfumatoError(Exception):
    """Anything this package refuses or fails to do."""

    exit_code: ClassVar[int] = 1


class SchemaError(SfumatoError, ValueError):
    """The description of a table is wrong or incomplete."""

    exit_code = 2


class RecipeError(SfumatoError, ValueError):
    """A recipe or one of its privacy parameters is invalid."""

    exit_code = 2


class SourceError(SfumatoError, OSError):
    """A source of records is missing, unreadable, or changed while it was read."""


class LedgerError(SfumatoError):
    """The ledger is missing, locked, corrupt, or was edited."""


class BudgetExceeded(SfumatoError):
    """The charge does not fit into what is left; nothing was spent."""

    exit_code = 3

    def __init__(self, message: str, *, left: Fraction) -> None:
        super().__init__(message)
        self.left = left


class UnsupportedQuery(SfumatoError, ValueError):
    """A statement that is not answered, with the reason and a hint; nothing was spent."""

    exit_code = 2


class ReleaseError(SfumatoError):
    """A release could not be written or read."""


class VerificationFailed(SfumatoError):
    """A release does not follow from its own measurements, or its privacy total is wrong."""

    exit_code = 4
