"""The error of this package: tables and wishes that cannot be met as they are."""

from __future__ import annotations

from sfumato.errors import SfumatoError


class AnonymityError(SfumatoError, ValueError):
    """A table that cannot be made anonymous as asked; the message names the column and the remedy."""

    exit_code = 2
