"""Pictures of their own read in every viewer: plain colours, light and dark, and a curve of errors."""

import re
import shutil
import struct
import subprocess
import zlib

import numpy as np
import pytest

from sfumato.report.explain.guarantee import Guarantee, explain_guarantee
from sfumato.report.explain.picture import draw_explanation
from sfumato.report.pages.answers import ErrorPoint, draw_errors
from sfumato.report.pages.charts import draw_matrix, draw_scatter, draw_series, has_uneven_bins
from sfumato.report.pages.words import MINUS


def explain():
    return draw_explanation(explain_guarantee(Guarantee(kind="epsilon", amount=1)))


def errors():
    points = [ErrorPoint(epsilon=each, least=3 / each, most=60 / each) for each in (0.1, 0.5, 1.0, 5.0)]
    return draw_errors(points, chosen=[0.5], left=2.0, title="What more epsilon buys", shown="counts")


@pytest.mark.parametrize("draw", [explain, errors])
def test_colours_are_plain_and_dark_ones_follow_the_screen(draw):
    drawn = draw()
    assert "var(" not in drawn
    light, dark = re.search(
        r"<style>(.*)@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", drawn
    ).groups()
    assert ".paper{fill:#fbfaf6}" in light
    assert ".paper{fill:#14191a}" in dark
    assert re.sub(r"#\w{6}", "#", light) == re.sub(r"#\w{6}", "#", dark)


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
@pytest.mark.parametrize("draw", [explain, errors])
def test_librsvg_draws_paper_ink_and_curves(draw, tmp_path):
    (tmp_path / "drawn.svg").write_text(draw())
    done = subprocess.run(
        ["rsvg-convert", "--width", "320", "--format", "png", tmp_path / "drawn.svg"],
        capture_output=True,
        check=True,
    )
    colours = count_colours(done.stdout)
    assert colours[0xFB, 0xFA, 0xF6] > 0.3  # paper
    assert colours[0x1F, 0x5F, 0x7F] > 0  # blue curves
    assert sum(share for colour, share in colours.items() if max(colour) < 16) < 0.01


def count_colours(png):
    """The share of every colour in a PNG file of eight bits a channel."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    channels = {2: 3, 6: 4}[kind]
    data = b""
    place = 8
    while place < len(png):
        (size,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + size]
        place += 12 + size
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    pixels = unfilter(lines, channels).reshape(-1, channels)[:, :3]
    found, counts = np.unique(pixels, axis=0, return_counts=True)
    shares = {
        tuple(map(int, colour)): count / len(pixels) for colour, count in zip(found, counts, strict=True)
    }
    return {**dict.fromkeys([(0xFB, 0xFA, 0xF6), (0x1F, 0x5F, 0x7F)], 0.0), **shares}


def unfilter(lines, channels):
    """The rows of a PNG image, whose filters take differences from left and above."""
    rows = np.zeros((len(lines), lines.shape[1] - 1), np.int64)
    above = np.zeros(lines.shape[1] - 1, np.int64)
    for number, (kind, *values) in enumerate(lines.tolist()):
        row = rows[number]
        for place, value in enumerate(values):
            a = row[place - channels] if place >= channels else 0
            b, c = above[place], above[place - channels] if place >= channels else 0
            if kind == 4:
                near = a + b - c
                guess = min((a, b, c), key=lambda each: abs(near - each))
            else:
                guess = (0, a, b, (a + b) // 2)[kind]
            row[place] = (value + guess) % 256
        above = row
    return rows.astype(np.uint8)


def test_the_curve_of_errors_marks_what_was_chosen_and_what_is_left():
    drawn = errors()
    assert "epsilon 0.5: ±120" in drawn
    assert "left: 2" in drawn
    assert "nothing was read, nothing was spent" in drawn


def test_bins_too_thin_to_see_are_drawn_alike():
    assert has_uneven_bins([0, 1, 3], width=270)
    assert not has_uneven_bins([0, 1, 100_000], width=270)


def test_matrices_name_rows_and_columns():
    drawn = draw_matrix(np.eye(3), ["one", "two", "three"], "m", limit=1.0)
    assert all(drawn.count(f">{name}</text>") == 2 for name in ("one", "two", "three"))


def test_series_and_scatters_hold_values_below_zero_and_many():
    values = np.array([-5.0, 3, 9])
    drawn = draw_series(values, np.ones(3), ["1", "2", "3"], "s", truth=np.array([1.0, 2, 3]))
    assert f"{MINUS}5\xa0±\xa01, truth 1" in drawn
    assert drawn.count('class="level"') == 1
    assert len(draw_scatter(np.arange(100_000.0), np.arange(100_000.0), 5.0, "s")) < 60_000
