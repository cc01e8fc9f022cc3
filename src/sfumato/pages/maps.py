"""Maps of areas as inline SVG: every outline stands once in a page, and maps refer to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.pages.outline import Outline
from sfumato.pages.svg import STEPS, draw_picture, element
from sfumato.pages.words import clip_text

_ROOM = 230
"""Above a map stands what is told of the area that is pointed at, in the units of the map."""

_LONGEST = 46


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shades:
    """What areas of a map show: a colour step each, or -1 for none, and whether it is within the noise."""

    steps: NDArray[np.int64]
    hatched: NDArray[np.bool_]
    middle: bool = False

    def class_of(self, place: int) -> str:
        """The style of one area."""
        step = int(self.steps[place])
        return "blank" if step < 0 else f"{'d' if self.middle else 's'}{step}"


def define_areas(outline: Outline) -> Markup:
    """The outlines of all areas, to be referred to by the maps of a page."""
    paths = [element("path", id=f"area{place}", d=d) for place, d in enumerate(outline.paths)]
    return element("svg", element("defs", *paths), width=0, height=0, aria_hidden="true", class_="defs")


def draw_map(outline: Outline, shades: Shades, said: Sequence[str], label: str) -> Markup:
    """A map that tells of the area that is pointed at, or reached with the Tab key, what is `said` of it.

    `label` describes the whole.
    """
    areas = []
    for place, text in enumerate(said):
        used = [element("use", href=f"#area{place}")]
        if shades.hatched[place]:
            used.append(element("use", href=f"#area{place}", class_="hatch"))
        areas.append(
            element(
                "g",
                element("title", text),
                *used,
                element("text", clip_text(text, _LONGEST), aria_hidden="true"),
                class_=f"area {shades.class_of(place)}",
                tabindex=0,
                role="img",
            )
        )
    return element(
        "svg",
        element("g", *areas, transform=f"translate(0 {_ROOM})"),
        viewBox=f"0 0 {outline.width} {outline.height + _ROOM}",
        preserveAspectRatio="xMinYMin",
        role="group",
        aria_label=label,
        class_="areas told",
    )


def draw_small_map(outline: Outline, shades: Shades, label: str) -> Markup:
    """A map that tells nothing but its colours: one group of areas for each."""
    groups = []
    for step in range(-1, STEPS):
        places = np.flatnonzero(shades.steps == step).tolist()
        if places:
            uses = [element("use", href=f"#area{place}") for place in places]
            groups.append(element("g", *uses, class_=shades.class_of(places[0])))
    hatched = np.flatnonzero(shades.hatched).tolist()
    if hatched:
        uses = [element("use", href=f"#area{place}") for place in hatched]
        groups.append(element("g", *uses, class_="hatch"))
    return draw_picture(outline.width, outline.height, label, *groups, class_="areas")
