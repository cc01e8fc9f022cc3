"""The command line."""

from sfumato.cli.main import app, main

__all__ = ["app", "main"]
