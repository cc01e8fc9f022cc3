"""The gallery of notebooks runs from top to bottom."""

import importlib.util
from pathlib import Path

import pytest

from sfumato.curator import frame

GALLERY = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(GALLERY.glob("*.ipynb"))


def load_runner():
    spec = importlib.util.spec_from_file_location("run", GALLERY / "run.py")
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    return runner


def test_there_are_five():
    assert len(NOTEBOOKS) == 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:rows are known again")  # two of them protect rows
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_cards(path, monkeypatch):
    monkeypatch.setattr(frame, "_opened", [])  # as in a kernel of its own
    notebook = load_runner().run_notebook(path)
    shown = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert any("text/html" in output.get("data", {}) for output in shown)
    assert notebook["nbformat"] == 4
