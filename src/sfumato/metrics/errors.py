"""The error of this package: tables that cannot be scored."""

from __future__ import annotations

from sfumato.errors import SfumatoError


class MetricError(SfumatoError, ValueError):
    """Two tables cannot be compared as they are; the message names the side, the column and the remedy."""
