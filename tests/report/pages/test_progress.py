"""Stages in a notebook: shown while something runs, gone at the end, never in the way."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

import sfumato as sf
from sfumato.report.pages.notebook import show_stages


class Handle:
    """What IPython hands out for something shown that may change."""

    def __init__(self, shown):
        self.shown = shown

    def update(self, content, *, raw):
        assert raw
        self.shown.append(content)


@pytest.fixture
def kernel(monkeypatch):
    """A stand-in for a kernel; the list of all that it was given to show."""
    shown = []

    def display(content, *, raw, display_id):
        assert raw
        assert display_id
        shown.append(content)
        return Handle(shown)

    package, room = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())
    room.display = display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", room)
    return SimpleNamespace(shown=shown, package=package, room=room)


def test_a_release_shows_its_stages_and_leaves_nothing(kernel, tmp_path):
    rows, columns = {"region": ["a", "b"] * 20}, {"region": ["a", "b"]}
    curator = sf.from_frame(rows, unit="row", columns=columns, epsilon=2, ledger=tmp_path / "ledger.db")
    curator.release(sf.recipes.CellCounts(table="t", by=("region",)), epsilon=1)
    stages = [each["text/plain"] for each in kernel.shown]
    assert "adding noise" in stages
    assert all("<progress" in each["text/html"] for each in kernel.shown[:-1])
    assert kernel.shown[-1] == {"text/html": "", "text/plain": ""}
    before = len(kernel.shown)
    curator.sql("DP-SELECT 0.5 COUNT(*) FROM t")
    assert len(kernel.shown) > before + 1


def test_whoever_gives_a_function_gets_the_stages(kernel):
    stages = []
    with show_stages(stages.append) as stage:
        stage("counting")
    assert stages == ["counting"]
    assert not kernel.shown


def test_labels_cannot_become_markup(kernel):
    with show_stages() as stage:
        stage("<script>")
    assert "&lt;script&gt;" in kernel.shown[0]["text/html"]


def test_what_cannot_be_shown_stops_nothing(kernel):
    kernel.room.display = lambda *_, **__: 1 / 0
    with show_stages() as stage:
        stage("counting")
    assert not kernel.shown


@pytest.mark.parametrize("shell", [None, SimpleNamespace(), SimpleNamespace(kernel=None)])
def test_nothing_is_shown_outside_of_a_notebook(kernel, shell):
    kernel.package.get_ipython = lambda: shell
    with show_stages() as stage:
        stage("counting")
    assert not kernel.shown


def test_an_error_passes_and_the_line_is_gone(kernel):
    def fail():
        with show_stages() as stage:
            stage("counting")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert kernel.shown[-1]["text/html"] == ""
