"""The command line."""

from typing import TYPE_CHECKING, Any

from sfumato.cli.main import build_app, main

if TYPE_CHECKING:
    import typer

    app: typer.Typer

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the command line with all its commands
    if name != "app":
        raise AttributeError(f"module 'sfumato.cli' has no attribute {name!r}")
    return globals().setdefault("app", build_app())
