"""The colours of a report: one scale that rises and one with a middle, for light and for dark pages.

Both can be told apart with every common colour vision: the first is one hue that changes in lightness,
the second goes from orange to blue.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = 9
EMPTY = STEPS
"""The step of a tile that stands for nothing."""

SEQUENTIAL = {
    "light": (
        "#eef2f1", "#d8e5e9", "#bdd6df", "#9dc3d2", "#79aec3", "#5a99b3", "#34748f", "#225c77", "#124358",
    ),
    "dark": (
        "#20292c", "#23353c", "#27434e", "#2c5362", "#316476", "#37758b", "#559bb5", "#80bad0", "#b8deea",
    ),
}  # fmt: skip
DIVERGING = {
    "light": (
        "#8a4a0e", "#a2641f", "#dcae68", "#f0dbbb", "#f2f0ea", "#cfe0e8", "#93bcd2", "#37759a", "#1c5a80",
    ),
    "dark": (
        "#f2ba70", "#c98b3e", "#7f5823", "#4e3e27", "#262b2c", "#24414e", "#2f647c", "#4f97b8", "#97d0ea",
    ),
}  # fmt: skip
COLOURS = {
    "light": {
        "paper": "#fbfaf6", "panel": "#ffffff", "ink": "#1f2b2a", "soft": "#55625f", "line": "#d9d6cb",
        "blue": "#1f5f7f", "gold": "#8a5f0c", "red": "#a03a2c", "fill": "#bcd3dd", "wash": "#eef3f4",
        "alarm": "#7c1d12", "onalarm": "#ffffff",
    },
    "dark": {
        "paper": "#14191a", "panel": "#1b2122", "ink": "#e8e6de", "soft": "#a9b3b0", "line": "#384042",
        "blue": "#86bfd9", "gold": "#e0b25c", "red": "#ee9384", "fill": "#2f5364", "wash": "#1d282c",
        "alarm": "#ffb4a6", "onalarm": "#3b0d07",
    },
}  # fmt: skip

_DARK_TEXT_FROM = 6


def step_of(values: NDArray[np.floating[Any]], *, limit: float, middle: bool = False) -> NDArray[np.int64]:
    """The step of every value: from 0 up to `limit`, or from -limit to limit around a middle.

    From 0 up, steps follow square roots, so that small counts can be told apart beside large ones: the
    middle step stands for a quarter of `limit`.

    >>> step_of(np.array([-5.0, 0.0, 25.0, 100.0, 900.0]), limit=100).tolist()
    [0, 0, 4, 8, 8]
    >>> step_of(np.array([-100.0, 0.0, 10.0, 100.0]), limit=100, middle=True).tolist()
    [0, 4, 4, 8]
    """
    scaled = np.nan_to_num(values, nan=0.0) / limit if limit > 0 else np.zeros(values.shape)
    scaled = (scaled + 1) / 2 if middle else np.sqrt(np.maximum(scaled, 0))
    return np.asarray(np.clip(np.round(scaled * (STEPS - 1)), 0, STEPS - 1), dtype=np.int64)


def round_limit(number: float) -> float:
    """The least of 1, 1.5, 2, 3, 4, 5, 6, 8 and 10 times a power of ten that is not below `number`.

    >>> round_limit(734.0), round_limit(0.012), round_limit(0)
    (800.0, 0.015, 1.0)
    """
    if not number > 0 or math.isinf(number):
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    factor = next(each for each in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if each * power >= number * (1 - 1e-9))
    return float(f"{factor * power:.6g}")


def colour_rules(mode: str) -> str:
    """The custom properties of a style sheet for `mode`, light or dark."""
    named = {**COLOURS[mode]}
    named |= {f"s{step}": colour for step, colour in enumerate(SEQUENTIAL[mode])}
    named |= {f"d{step}": colour for step, colour in enumerate(DIVERGING[mode])}
    strong = COLOURS["light"]["panel"] if mode == "light" else "#0e1314"
    plain = COLOURS["light"]["ink" if mode == "light" else "panel"]
    named |= {f"x{step}": strong if step >= _DARK_TEXT_FROM else plain for step in range(STEPS)}
    return "".join(f"--{name}:{colour};" for name, colour in named.items())
