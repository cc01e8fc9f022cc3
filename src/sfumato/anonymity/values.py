"""How a single value is written, and which kinds of values are text."""

from __future__ import annotations

import pyarrow as pa

from sfumato.anonymity.hierarchy_base import write_value


def format_value(value: object) -> str | None:
    """The text of one value as it is released; None if it is missing.

    >>> format_value(61), format_value(2.0), format_value(" as it is")
    ('61', '2', ' as it is')
    """
    if value is None or isinstance(value, str):
        return value
    return write_value(value)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this kind are text, numbered or not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
