"""The private room: the only package that reads people's records."""

from sfumato.engines.base import Engine, TrueCounts
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.engines.router import open_engine
from sfumato.engines.source import find_files

__all__ = ["DuckDBEngine", "Engine", "TrueCounts", "find_files", "open_engine"]
