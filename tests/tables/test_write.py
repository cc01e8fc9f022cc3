"""Files are whole under their name or not there; nothing half-written stays."""

import os
from pathlib import Path

import pytest

from sfumato.core.errors import ReleaseError
from sfumato.core.files import write_file
from sfumato.release.folder import write_folder


def test_a_file_is_replaced_only_with_force(tmp_path):
    path = tmp_path / "a.txt"
    write_file(path, b"one")
    with pytest.raises(ReleaseError, match="exists already"):
        write_file(path, b"two")
    write_file(path, b"two", force=True)
    assert path.read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_what_is_written_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
    )
    write_file(tmp_path / "a.txt", b"one")
    write_folder(tmp_path / "out", {"b.txt": b"two"})
    names = [path.name for path in synced]
    assert names[0].startswith(".a.txt.")
    assert "b.txt" in names
    assert synced[-1] == tmp_path


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ReleaseError, match="No space left"):
        write_file(tmp_path / "a.txt", b"one")
    with pytest.raises(ReleaseError, match="No space left"):
        write_folder(tmp_path / "out", {"b.txt": b"two"})
    assert not list(tmp_path.iterdir())
