"""One spelling for a description, so that equal descriptions have equal digests."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

from sfumato.exact import format_exact


def canonical_json(description: Any) -> bytes:  # noqa: ANN401 - any tree of plain records
    """`description` as UTF-8 JSON with sorted keys and no spare space.

    Rationals become exact text. Floats are refused: two machines may print them differently.

    >>> canonical_json({"b": Fraction(1, 2), "a": [1, None]})
    b'{"a":[1,null],"b":"0.5"}'
    """
    return json.dumps(_plain(description), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(description: Any) -> str:  # noqa: ANN401 - any tree of plain records
    """The SHA-256 of the canonical spelling, in hexadecimal."""
    return hashlib.sha256(canonical_json(description)).hexdigest()


def _plain(node: Any) -> Any:  # noqa: ANN401 - walks any tree
    if node is None or isinstance(node, (str, bool, int)):
        return node
    if isinstance(node, Fraction):
        return format_exact(node)
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_plain(value) for value in node]
    raise TypeError(f"a canonical description cannot hold a {type(node).__name__}")
