"""Names of a package that are imported when they are first asked for: a command loads only what it needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_IMPORT = re.compile(r"^    from (\S+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)


def lend_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package that imports its names under TYPE_CHECKING.

    What a type checker reads there is imported when it is first asked for, from the module that it names.
    No module may have the name of something that its package lends.

    >>> find, _ = lend_names("sfumato.schema")
    >>> find("read_toml").__module__
    'sfumato.core.facts.project'
    """
    text = sys.modules[package].__loader__.get_source(package)  # type: ignore[union-attr]
    home_of = {
        name: home for home, *names in _IMPORT.findall(text) for name in re.findall(r"\w+", "".join(names))
    }

    def find(name: str) -> Any:  # noqa: ANN401 - any public name
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return find, lambda: sorted(home_of)
