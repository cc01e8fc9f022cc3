"""The reference is what the docstrings say today."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "make_reference.py"


def test_the_reference_is_current():
    spec = importlib.util.spec_from_file_location("make_reference", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.build(), "run `make reference`"
