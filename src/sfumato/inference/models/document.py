"""model.json: what its header says of every model, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

FORMAT = "sfumato model 1"
Family = Literal["classification", "regression", "counts"]
LINKS: Mapping[str, str] = {"classification": "logistic", "regression": "identity", "counts": "log"}
"""What turns the score of a family into what is expected."""


def pack_model(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a model.json.

    >>> pack_model({"format": FORMAT, "low": 0.5}).decode().strip()
    '{"format":"sfumato model 1","low":0.5}'
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (text + "\n").encode()
