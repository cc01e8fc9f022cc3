"""The official vectors: every case of every file in the folder that SFUMATO_VECTORS names."""

import json
import os
from pathlib import Path

import pytest

FOLDER = Path(
    os.environ.get("SFUMATO_VECTORS") or Path(__file__).resolve().parents[3] / "shared" / "metrics-vectors"
)


def documents(metric):
    """The files of the folder that hold vectors of `metric`."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    return [each for each in found if each.get("metric") == metric]


def cases(metric, key):
    """One parameter per case under `key`, with its file; a skip that says why if there is none."""
    held = [
        pytest.param(document, case, id=str(case.get("id", index)))
        for document in documents(metric)
        for index, case in enumerate(document.get(key, []))
    ]
    reason = f"no vectors of {metric} ({key}) in the folder SFUMATO_VECTORS or ../shared/metrics-vectors"
    return held or [pytest.param(None, None, marks=pytest.mark.skip(reason=reason), id="absent")]


def entries(metric, key):
    """One parameter per named entry of the mapping `key`."""
    held = [
        pytest.param(document, name, entry, id=name)
        for document in documents(metric)
        for name, entry in document.get(key, {}).items()
    ]
    reason = f"no vectors of {metric} ({key}) in the folder SFUMATO_VECTORS or ../shared/metrics-vectors"
    return held or [pytest.param(None, None, None, marks=pytest.mark.skip(reason=reason), id="absent")]


def holding(metric, key):
    """One parameter per file of `metric` that has `key`."""
    held = [
        pytest.param(each, id=f"{metric}-{index}")
        for index, each in enumerate(documents(metric))
        if key in each
    ]
    reason = f"no vectors of {metric} ({key}) in the folder SFUMATO_VECTORS or ../shared/metrics-vectors"
    return held or [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="absent")]
