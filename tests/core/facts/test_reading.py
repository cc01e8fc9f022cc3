import gzip
import os
import zlib

import pytest

from sfumato.core.errors import SourceError
from sfumato.core.files import read_regular
from sfumato.recipes.shared.public import inflate
from sfumato.tables.read import MOST_HEADER, split_header, unpack_gzip


def test_only_regular_files_of_the_expected_size_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert read_regular(tmp_path / "a", most=3) == b"abc"
    with pytest.raises(SourceError, match="larger than 2 bytes"):
        read_regular(tmp_path / "a", most=2)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero", "."):
        with pytest.raises(SourceError, match="not a regular file"):
            read_regular(tmp_path / name, most=2**30)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "gone", most=1)


def test_packed_bytes_unpack_to_what_is_expected_or_not_at_all():
    packed = gzip.compress(b"a" * 1000) + gzip.compress(b"b")
    assert unpack_gzip(packed, most=1001) == b"a" * 1000 + b"b"
    with pytest.raises(SourceError, match="more than 1,000 bytes"):
        unpack_gzip(packed, most=1000)
    with pytest.raises(EOFError):
        unpack_gzip(packed[:20], most=1000)
    for content in (zlib.compress(b"a" * 1001), zlib.compress(b"a" * 1000)[:-1], zlib.compress(b"a") + b"b"):
        with pytest.raises(SourceError, match="cut short, or unpacks"):
            inflate(content, most=1000)


def test_a_header_line_has_a_limit():
    assert split_header(b"\xef\xbb\xbfa,b") == "a,b"
    assert split_header(b"a" * MOST_HEADER) == "a" * MOST_HEADER
    with pytest.raises(SourceError, match="first line"):
        split_header(b"a" * (MOST_HEADER + 1))
