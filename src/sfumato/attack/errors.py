"""The error of this package: files that cannot be attacked as they are."""

from __future__ import annotations

from sfumato.errors import SfumatoError


class AttackError(SfumatoError, ValueError):
    """An attack that cannot be run; the message names the file, the column and the remedy."""

    exit_code = 2
