"""Small pictures of many cells: a PNG file of at most 256 colours, with the standard library alone."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def write_png(codes: NDArray[np.integer[Any]], colours: Sequence[str], *, clear: Sequence[int] = ()) -> bytes:
    r"""A PNG file with one pixel per entry of `codes`, coloured by its number in `colours`.

    Colours are #rrggbb; those numbered in `clear` are not drawn at all. The same input gives the same
    bytes.

    >>> write_png(np.array([[0, 1]]), ["#ffffff", "#2f6f8f"])[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    pixels = np.asarray(codes)
    if pixels.ndim != 2 or not pixels.size:
        raise ValueError("a picture needs rows and columns")
    if not 1 <= len(colours) <= 256 or pixels.min() < 0 or pixels.max() >= len(colours):
        raise ValueError("every code needs a colour, and there are at most 256")
    height, width = pixels.shape
    palette = b"".join(bytes.fromhex(colour.removeprefix("#")) for colour in colours)
    lines = np.zeros((height, width + 1), np.uint8)  # every line begins with the number of its filter
    lines[:, 1:] = pixels
    chunks = [
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", palette),
    ]
    if clear:
        chunks.append(_chunk(b"tRNS", bytes(0 if code in clear else 255 for code in range(len(colours)))))
    chunks += [_chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
