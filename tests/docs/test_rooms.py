"""The picture of the rooms is that of the imports, and the glossary names files that are there."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_picture_of_the_rooms_is_current():
    spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "docs" / "draw_rooms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PICTURE.read_text(encoding="utf-8") == module.draw_rooms(), "run: make reference"


def test_the_glossary_points_at_code_that_is_there():
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+/(?:[a-z_/]+\.py)?)`", page))
    assert len(named) > 25
    for name in named:
        assert (ROOT / "src" / "sfumato" / name).exists(), name
