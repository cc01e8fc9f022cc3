"""The stage of a long work, as a notebook shows it: no widgets, no scripts, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from markupsafe import escape


@contextmanager
def show_stages(given: Callable[[str], None] | None = None) -> Iterator[Callable[[str], None]]:
    """Yields the function to call with each stage: `given`, or one that shows it in a notebook.

    Stages are named, never measured in records: a row count on a screen is a row count published.

    >>> with show_stages() as stage:
    ...     stage("counting")
    """
    display = _find_display() if given is None else None
    if display is None:
        yield given or (lambda _: None)
        return
    handles: list[Any] = []

    def show(stage: str) -> None:
        bar = "<progress style='vertical-align:middle;width:8em'></progress> " if stage else ""
        content = {"text/html": f"{bar}{escape(stage)}", "text/plain": stage}
        # What cannot be drawn must not stop what is paid for.
        with suppress(Exception):
            if handles:
                handles[0].update(content, raw=True)
            else:
                handles.append(display(content, raw=True, display_id=True))

    try:
        yield show
    finally:
        if handles:
            show("")


def _find_display() -> Callable[..., Any] | None:
    """Returns what shows something in the cell that runs; None outside of a notebook."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    display: Callable[..., Any] = import_module("IPython.display").display
    return display
