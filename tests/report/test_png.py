"""The PNG writer, read back by its own standard."""

import struct
import zlib

import numpy as np
import pytest
from sfumato.report.png import write_png


def read_png(content):
    """The chunks of a PNG file, with their checksums checked."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, start = {}, 8
    while start < len(content):
        (size,) = struct.unpack(">I", content[start : start + 4])
        kind, data = content[start + 4 : start + 8], content[start + 8 : start + 8 + size]
        (check,) = struct.unpack(">I", content[start + 8 + size : start + 12 + size])
        assert check == zlib.crc32(kind + data)
        chunks[kind.decode()] = data
        start += 12 + size
    return chunks


def test_pixels_and_colours_come_back():
    codes = np.arange(6).reshape(2, 3) % 3
    chunks = read_png(write_png(codes, ["#010203", "#ffffff", "#2f6f8f"]))
    assert list(chunks) == ["IHDR", "PLTE", "IDAT", "IEND"]
    assert struct.unpack(">IIBBBBB", chunks["IHDR"]) == (3, 2, 8, 3, 0, 0, 0)
    assert chunks["PLTE"] == bytes([1, 2, 3, 255, 255, 255, 0x2F, 0x6F, 0x8F])
    lines = np.frombuffer(zlib.decompress(chunks["IDAT"]), np.uint8).reshape(2, 4)
    assert lines[:, 0].tolist() == [0, 0]
    assert lines[:, 1:].tolist() == codes.tolist()


def test_clear_colours_are_not_drawn():
    assert read_png(write_png(np.array([[0, 1]]), ["#000000"] * 2, clear=(1,)))["tRNS"] == b"\xff\x00"


def test_the_same_pixels_give_the_same_bytes():
    codes = np.arange(10_000).reshape(100, 100) % 9
    first, second = (write_png(codes, ["#123456"] * 9) for _ in range(2))
    assert first == second
    assert len(first) < 3000


@pytest.mark.parametrize(
    ("codes", "colours"),
    [(np.zeros((0, 3), int), ["#000000"]), (np.zeros(3, int), ["#000000"]), (np.array([[1]]), ["#000000"]),
     (np.array([[-1]]), ["#000000"]), (np.array([[0]]), [])],
)  # fmt: skip
def test_what_is_no_picture_is_refused(codes, colours):
    with pytest.raises(ValueError, match=r"picture needs|code needs"):
        write_png(codes, colours)
