"""The errors of this package, one tree.

SfumatoError
├── SchemaError          the description of a table is wrong or incomplete          exit 2
├── RecipeError          a recipe or a privacy parameter is invalid                 exit 2
│   └── NoMass           no cell of a model may hold records                        exit 2
├── SourceError          a source of records is missing, unreadable or has changed  exit 1
│   └── ChargeKept       an answer failed after its charge, which is kept           exit 1
├── LedgerError          the ledger is missing, locked, corrupt or was edited       exit 1
│   └── Conflict         another process wrote first; read again                    exit 1
├── BudgetExceeded       the charge does not fit; nothing was spent                 exit 3
│   └── HoldoutSpent     a reusable holdout has given all its answers               exit 3
├── UnsupportedQuery     a statement that is not answered; nothing was spent        exit 2
├── QuestionRefused      a holdout's question without one bounded value per row     exit 2
├── ReleaseError         a release could not be written or read                     exit 1
├── VerificationFailed   a release does not follow from its own measurements        exit 4
├── AnonymityError       a table cannot be made anonymous as asked                  exit 2
├── AttackError          an attack cannot be run as asked                           exit 2
├── AuditError           an audit cannot be made as asked                           exit 2
├── MetricError          two tables cannot be compared                              exit 1
├── AccessDenied         a server does not let this person do it                    exit 1
├── ApprovalNeeded       a steward has to approve it first; nothing was spent       exit 1
└── TooManyRequests      a server is asked too much at once                         exit 1

A message says what is wrong, where, and what to do. It never holds a value that came from a record.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar


class SfumatoError(Exception):
    """Anything this package refuses or fails to do."""

    exit_code: ClassVar[int] = 1


class SchemaError(SfumatoError, ValueError):
    """The description of a table is wrong or incomplete."""

    exit_code = 2


class RecipeError(SfumatoError, ValueError):
    """A recipe or one of its privacy parameters is invalid."""

    exit_code = 2


class NoMass(RecipeError):
    """No cell is left that may hold records, or the potentials are too far apart to compare."""


class SourceError(SfumatoError, OSError):
    """A source of records is missing, unreadable, or changed while it was read."""


class ChargeKept(SourceError):
    """An answer that failed after its charge. A refund would tell about the records, so there is none."""


class LedgerError(SfumatoError):
    """The ledger is missing, locked, corrupt, or was edited."""


class Conflict(LedgerError):
    """A transaction that was undone as a whole, as another came first or before its commit was sent."""


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


class AnonymityError(SfumatoError, ValueError):
    """A table that cannot be made anonymous as asked; the message names the column and the remedy."""

    exit_code = 2


class AttackError(SfumatoError, ValueError):
    """An attack that cannot be run; the message names the file, the column and the remedy."""

    exit_code = 2


class AuditError(SfumatoError, ValueError):
    """An audit that cannot be made as it was asked for."""

    exit_code = 2


class HoldoutSpent(BudgetExceeded):
    """The guard has given all the answers it was planned for; take a fresh holdout."""

    def __init__(self, message: str) -> None:
        super().__init__(message, left=Fraction(0))


class QuestionRefused(SfumatoError, ValueError):
    """A question whose function does not give one bounded value per row."""

    exit_code = 2


class MetricError(SfumatoError, ValueError):
    """Two tables cannot be compared as they are; the message names the side, the column and the remedy."""


class AccessDenied(SfumatoError):
    """A person whose role does not allow what they asked a server for, or who is not known."""


class ApprovalNeeded(SfumatoError):
    """What costs more than a person may decide alone waits for a steward; nothing was spent.

    `number` is that of the request in the list of approvals.
    """

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number


class TooManyRequests(SfumatoError):
    """A person or an address asks a server too often or too much at once; nothing was spent."""


def refuse(reason: str) -> UnsupportedQuery:
    """Return the error for a statement that is not answered."""
    stop = "" if reason.endswith(("?", "...")) else "."
    return UnsupportedQuery(f"not answered: {reason}{stop} Nothing was spent")
