"""Elements are escaped by construction, colours can be read, and PNG images are what their standard says."""

import re
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from sfumato.report.pages.svg import (
    COLOURS,
    DIVERGING,
    SEQUENTIAL,
    STEPS,
    as_markup,
    colour_rules,
    element,
    write_png,
)
from sfumato.report.pages.words import clip_text


@pytest.mark.parametrize("text", ["<b>", "a & b", "\"'", "</script><img src=x onerror=alert(1)>"])
def test_text_and_attributes_are_escaped(text):
    drawn = element("p", text, title=text)
    assert "<" not in drawn.removeprefix('<p title="').removesuffix("</p>").replace(">", "", 1)
    assert text not in drawn


def test_markup_is_not_escaped_twice():
    assert element("p", element("b", "a<b"), Markup("<br>")) == "<p><b>a&lt;b</b><br></p>"


def test_attributes_that_are_nothing_are_left_out_and_names_are_spelled():
    assert element("path", d="M0 0", class_=None, stroke_width=1.5) == '<path d="M0 0" stroke-width="1.5"/>'
    assert element("img", alt="", hidden=None) == '<img alt="">'
    assert element("code", "") == "<code></code>"
    assert element("p", None, "a") == "<p>a</p>"


@pytest.mark.parametrize("sign", ["\x00", "\x1b", "\u202e", "\u200b", "\ud800", "\u2028"])
def test_what_cannot_be_seen_is_replaced(sign):
    assert element("p", f"a{sign}b") == "<p>a\ufffdb</p>"
    assert clip_text(f"a{sign}b") == "a\ufffdb"


@given(st.text(max_size=60))
def test_no_text_opens_an_element(text):
    inner = as_markup(text)
    assert not set(inner) & set("<>\"'")
    assert "\n" in inner or "\r" not in inner


def lightness(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((lightness(one), lightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "soft", "blue"])
@pytest.mark.parametrize("ground", ["paper", "panel", "wash"])
def test_text_on_its_ground(mode, ink, ground):
    assert contrast(COLOURS[mode][ink], COLOURS[mode][ground]) >= 4.5


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_notice_of_an_internal_report(mode):
    assert contrast(COLOURS[mode]["alarm"], COLOURS[mode]["onalarm"]) >= 7


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_labels_on_tiles(mode):
    named = dict(re.findall(r"--(\w+):(#\w+);", colour_rules(mode)))
    for step in range(STEPS):
        assert contrast(named[f"x{step}"], named[f"s{step}"]) >= 4.5, step
        assert contrast(named[f"x{abs(2 * step - STEPS + 1)}"], named[f"d{step}"]) >= 4.5, step


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_steps_differ_in_lightness_so_that_colour_vision_does_not_matter(mode):
    rising = [lightness(colour) for colour in SEQUENTIAL[mode]]
    assert rising == sorted(rising, reverse=mode == "light")
    ends = [lightness(colour) for colour in DIVERGING[mode]]
    half = STEPS // 2
    for side in (ends[half:], ends[half::-1]):
        assert side == sorted(side, reverse=mode == "light")


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


@pytest.mark.parametrize(
    ("codes", "colours"),
    [(np.zeros((0, 3), int), ["#000000"]), (np.zeros(3, int), ["#000000"]), (np.array([[1]]), ["#000000"]),
     (np.array([[-1]]), ["#000000"]), (np.array([[0]]), [])],
)  # fmt: skip
def test_what_is_no_picture_is_refused(codes, colours):
    with pytest.raises(ValueError, match=r"picture needs|code needs"):
        write_png(codes, colours)
