"""The private room: the only package that reads people's records."""

from typing import TYPE_CHECKING

from sfumato._lazy import lend_names

if TYPE_CHECKING:
    from sfumato.engines.base import TrueCounts
    from sfumato.engines.duckdb import DuckDBEngine
    from sfumato.engines.project import Engine, open_engine
    from sfumato.engines.source import find_files

__all__ = ["DuckDBEngine", "Engine", "TrueCounts", "find_files", "open_engine"]

__getattr__, __dir__ = lend_names(__name__)
