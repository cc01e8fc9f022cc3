"""sfumato: publish the picture, not the people.

>>> import sfumato as sf
>>> sf.recipes.CellCounts(table="incidents", by=("district",)).by
('district',)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sfumato import servers as _servers  # noqa: F401 - lets ledgers be in PostgreSQL
from sfumato import tables as _tables  # noqa: F401 - lets project files state rules
from sfumato.core import __version__
from sfumato.core.errors import (
    BudgetExceeded,
    LedgerError,
    RecipeError,
    ReleaseError,
    SchemaError,
    SfumatoError,
    SourceError,
    UnsupportedQuery,
    VerificationFailed,
)

if TYPE_CHECKING:
    from sfumato import learn, recipes
    from sfumato.curator import Curator
    from sfumato.curator import open_project as open  # noqa: A004 - the name users type
    from sfumato.curator.frame import from_frame
    from sfumato.release.ask import open_model as open_release
    from sfumato.release.release import Release
    from sfumato.release.verification import verify

__all__ = [
    "BudgetExceeded",
    "Curator",
    "LedgerError",
    "RecipeError",
    "Release",
    "ReleaseError",
    "SchemaError",
    "SfumatoError",
    "SourceError",
    "UnsupportedQuery",
    "VerificationFailed",
    "__version__",
    "from_frame",
    "learn",
    "open",
    "open_release",
    "recipes",
    "verify",
]

# Heavy parts are imported when they are first named, so that `import sfumato` costs little.
_HOMES = {
    "Curator": ("sfumato.curator", "Curator"),
    "Release": ("sfumato.release.release", "Release"),
    "from_frame": ("sfumato.curator.frame", "from_frame"),
    "learn": ("sfumato.learn", None),
    "open": ("sfumato.curator", "open_project"),
    "open_release": ("sfumato.release.ask", "open_model"),
    "recipes": ("sfumato.recipes", None),
    "verify": ("sfumato.release.verification", "verify"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _HOMES:
        raise AttributeError(f"module 'sfumato' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    home = import_module(module)
    found: Any = home if attribute is None else getattr(home, attribute)
    if name in ("open", "open_release"):
        found.__qualname__ = name  # a complaint about arguments names what was typed
    return found


def _show_error(error: SfumatoError) -> list[str]:
    """Returns what a notebook shows of an error: the reader's own line, and the message."""
    from itertools import takewhile
    from traceback import extract_tb

    frames = extract_tb(error.__traceback__)
    asked = list(takewhile(lambda each: not each.filename.startswith(__path__[0]), frames))
    return [*(f"line {each.lineno}: {each.line}" for each in asked[-1:]), f"{type(error).__name__}: {error}"]


SfumatoError._render_traceback_ = _show_error  # type: ignore[attr-defined]  # the core draws no pages


def __dir__() -> list[str]:
    return list(__all__)
