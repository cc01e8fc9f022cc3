"""The private room: the only package that reads people's records."""

from sfumato.engines.base import TrueCounts
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.engines.project import open_engine
from sfumato.engines.source import find_files

Engine = DuckDBEngine
"""What `open_engine` gives: counts of all tables of a project, statements, and public tables as they are."""

__all__ = ["DuckDBEngine", "Engine", "TrueCounts", "find_files", "open_engine"]
