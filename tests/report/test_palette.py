"""Colours can be read: text on its ground has a contrast of 4.5 at least, steps rise in lightness."""

import re

import pytest
from sfumato.report.palette import COLOURS, DIVERGING, SEQUENTIAL, STEPS, colour_rules


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
