"""The project file of a server that runs: read again, and added to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.core.facts.project import parse_project, parse_toml
from sfumato.core.files import write_file
from sfumato.serve.facts import make_catalog
from sfumato.serve.settings import Settings, read_mounted

if TYPE_CHECKING:
    from sfumato.curator import Curator
    from sfumato.serve.catalog import Catalog


def read_again(curator: Curator, settings: Settings) -> tuple[Curator, Settings, Catalog]:
    """Returns the project and its settings as the file has them now, all but how the server listens."""
    fresh = curator.reopen()
    fresh.budget()
    changed = replace(read_mounted(fresh.project, settings), releases=settings.releases)
    return fresh, changed, make_catalog(fresh)


def add_part(path: Path, part: str) -> Callable[[], None]:
    """Adds a `part` to the project file at `path`, and returns what takes it out again."""
    before, mode = path.read_bytes(), path.stat().st_mode
    whole = before.rstrip() + b"\n\n" + part.encode()
    # Refuses a table that is there already, before the file is touched.
    parse_project(parse_toml(whole.decode(), what="the project file"), folder=path.parent)

    def write(content: bytes) -> None:
        write_file(path, content, force=True)
        path.chmod(mode)

    write(whole)
    return lambda: write(before)
