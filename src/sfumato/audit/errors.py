"""What an audit refuses."""

from __future__ import annotations

from sfumato.errors import SfumatoError


class AuditError(SfumatoError, ValueError):
    """An audit that cannot be made as it was asked for."""

    exit_code = 2
