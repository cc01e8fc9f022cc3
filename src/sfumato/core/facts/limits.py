"""Files from outside, read with a limit: regular files only, and no more bytes than a caller expects."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from pathlib import Path

from sfumato.core.errors import SourceError

MOST_TEXT = 2**28
"""Bytes of a file that is read whole into Python: a list of values, a certificate."""

MOST_HEADER = 2**20
"""Bytes of a header line."""

_STEP = 2**24


def read_regular(path: Path, *, most: int) -> bytes:
    """The bytes of the regular file at `path`; anything else, or more than `most`, is refused unread."""
    # A pipe would otherwise wait for a writer before it can be told from a file.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{path.name!r} is not a regular file")
        if status.st_size > most:
            raise SourceError(f"{path.name!r} is larger than {most:,} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(status.st_size + 1)
    finally:
        os.close(descriptor)
    if len(content) != status.st_size:
        raise SourceError(f"{path.name!r} changed while it was read")
    return content


def unpack_gzip(content: bytes, *, most: int) -> bytes:
    """What a .gz file holds, refused beyond `most` bytes.

    >>> unpack_gzip(gzip.compress(b"a,b"), most=3)
    b'a,b'
    """
    parts, size = [], 0
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        while part := file.read(_STEP):
            size += len(part)
            if size > most:
                raise SourceError(f"it unpacks to more than {most:,} bytes")
            parts.append(part)
    return b"".join(parts)


def inflate(content: bytes, *, most: int) -> bytes:
    """What zlib packed, refused beyond `most` bytes.

    >>> inflate(zlib.compress(b"abc"), most=3)
    b'abc'
    """
    packed = zlib.decompressobj()
    inflated = packed.decompress(content, most + 1)
    if len(inflated) > most or not packed.eof or packed.unused_data:
        raise SourceError(f"it is cut short, or unpacks to more than {most:,} bytes")
    return inflated


def split_header(content: bytes) -> str:
    r"""The header line of a text file, refused beyond `MOST_HEADER` bytes.

    >>> split_header(b"a,b\r\n1,2\n")
    'a,b'
    """
    end = content.find(b"\n", 0, MOST_HEADER)
    if end < 0 and len(content) > MOST_HEADER:
        raise SourceError(f"its first line is longer than {MOST_HEADER:,} bytes")
    return content[: end if end >= 0 else None].decode("utf-8-sig").rstrip("\r")
