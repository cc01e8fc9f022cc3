"""Areas of the globe as flat outlines: an equal-area projection, shared borders thinned once, short paths.

In the maps of a page every outline stands once, and the maps refer to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.report.pages.svg import STEPS, draw_picture, element
from sfumato.report.pages.words import clip_text

Ring = NDArray[np.float64]
"""Longitudes and latitudes in degrees, one row per corner; the last is the first again."""

WIDTH = 4000
"""The width of a map in its own units; it is no higher than `_HIGHEST`."""

_HIGHEST = 4400
_MOST_POINTS = 20_000
_TOLERANCE = 3.0  # of 4,000 across: about a pixel of a screen
_DOT = "h12v12h-12z"
# Within these a plane that touches the middle of the map shows shapes well; beyond, a map of the world does.
_MOST_ACROSS, _MOST_UP = 150.0, 120.0
# Coefficients of the Equal Earth projection (Savric, Patterson, Jenny 2019).
_EARTH = (1.340264, -0.081106, 0.000893, 0.003796)

Flat = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Paths of areas in a picture of `width` by `height`, and which of them could not be drawn."""

    width: int
    height: int
    paths: tuple[str, ...]
    lost: tuple[int, ...] = ()


def draw_outline(areas: Sequence[Sequence[Ring]], *, most_points: int = _MOST_POINTS) -> Outline:
    """Projects the `areas`, thins them to at most `most_points` corners, and writes paths.

    Rings may cross the antimeridian, cut there or not. Holes are rings like others: paths are to be filled
    by the even-odd rule. A border that areas share is thinned once, so that no gap opens along it.
    """
    centre, across = _find_centre(areas)
    latitudes = np.concatenate([ring[:, 1] for area in areas for ring in area])
    low, high = float(latitudes.min()), float(latitudes.max())
    world = across > _MOST_ACROSS or high - low > _MOST_UP
    flat: list[list[Ring]] = []
    lost = []
    for place, area in enumerate(areas):
        drawn = [_project(ring, centre, (low + high) / 2, world=world) for ring in area]
        flat.append([each for each in drawn if each is not None])
        if len(flat[-1]) < len(drawn):
            lost.append(place)
    every = [ring for area in flat for ring in area]
    corners = np.concatenate(every) if every else np.zeros((1, 2))
    left, right = corners[:, 0].min(), corners[:, 0].max()
    bottom, top = corners[:, 1].min(), corners[:, 1].max()
    scale = min(WIDTH / max(right - left, 1e-12), _HIGHEST / max(top - bottom, 1e-12))
    grid = [
        [_quantise((ring - (left, top)) * (scale, -scale)) for ring in area] for area in flat
    ]  # y goes down on a screen
    return Outline(
        width=max(1, math.ceil((right - left) * scale)),
        height=max(1, math.ceil((top - bottom) * scale)),
        paths=tuple(_write_paths(grid, most_points)),
        lost=tuple(lost),
    )


def _find_centre(areas: Sequence[Sequence[Ring]]) -> tuple[float, float]:
    """Returns the middle longitude and the width in degrees, of what is outside of the widest empty gap.

    >>> _find_centre([[np.array([[170.0, 0], [-170, 0], [-170, 5], [170, 0]])]])
    (-180.0, 20.0)
    """
    starts = np.concatenate([ring[:-1, 0] for area in areas for ring in area])
    steps = np.concatenate([_wrap(np.diff(ring[:, 0])) for area in areas for ring in area])
    # Long edges are filled in every five degrees, so that what they cross is not taken for empty.
    filled = [
        starts[abs(steps) > along] + along * np.sign(steps[abs(steps) > along]) for along in range(0, 180, 5)
    ]
    around = np.unique(np.round(_wrap(np.concatenate([starts, *filled])), 9))
    gaps = np.append(np.diff(around), around[0] + 360 - around[-1])
    widest = int(np.argmax(gaps))
    across = 360 - float(gaps[widest])
    start = float(around[(widest + 1) % around.size])
    return float(_wrap(np.array([start + across / 2]))[0]), across


def _wrap(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Degrees between -180 and 180."""
    return (degrees + 180) % 360 - 180


def _project(ring: Ring, centre: float, middle: float, *, world: bool) -> Ring | None:
    """Projects a ring to the plane; None if it goes around a pole on a map of the world."""
    steps = _wrap(np.diff(ring[:, 0]))
    turned = float(_wrap(ring[:1, 0] - centre)[0]) + np.concatenate([[0.0], np.cumsum(steps)])
    turned -= 360 * np.round(turned.mean() / 360)
    across, up = np.radians(turned), np.radians(ring[:, 1])
    if not world:
        sine, cosine = math.sin(math.radians(middle)), math.cos(math.radians(middle))
        depth = 1 + sine * np.sin(up) + cosine * np.cos(up) * np.cos(across)
        factor = np.sqrt(2 / np.maximum(depth, 1e-9))
        x = factor * np.cos(up) * np.sin(across)
        y = factor * (cosine * np.sin(up) - sine * np.cos(up) * np.cos(across))
        return np.stack([x, y], axis=1)
    if abs(float(turned[-1] - turned[0])) > 1:
        return None
    a, b, c, d = _EARTH
    angle = np.arcsin(math.sqrt(3) / 2 * np.sin(up))
    slope = a + 3 * b * angle**2 + 7 * c * angle**6 + 9 * d * angle**8
    x = 2 * math.sqrt(3) * across * np.cos(angle) / (3 * slope)
    return np.stack([x, a * angle + b * angle**3 + c * angle**7 + d * angle**9], axis=1)


def _coarsen(ring: Flat, step: int) -> Flat:
    """Returns the ring on a grid of that step."""
    return _quantise(np.array(ring, np.float64), step) if ring else ring


def _quantise(ring: Ring, step: int = 1) -> Flat:
    """Whole multiples of `step`, without corners that fall together; open, since a ring closes itself."""
    points = np.round(ring / step).astype(np.int64) * step
    kept = np.append(True, (np.diff(points, axis=0) != 0).any(axis=1))
    found = [(int(x), int(y)) for x, y in points[kept]]
    while len(found) > 1 and found[0] == found[-1]:
        found.pop()
    return tuple(found)


def _write_paths(grid: list[list[Flat]], most_points: int) -> list[str]:
    step, areas = 1, grid
    while True:
        junctions = _find_junctions([ring for area in areas for ring in area])
        thinned: dict[Flat, Flat] = {}
        areas = [[_thin_ring(ring, junctions, _TOLERANCE * step, thinned) for ring in area] for area in areas]
        count = sum(len(ring) for area in areas for ring in area if len(ring) > 2)
        if count <= most_points or step > WIDTH:
            break
        # A coarser grid ends even what crosses itself everywhere, where no corner can be thinned away.
        step *= 2
        areas = [[_coarsen(ring, step) for ring in area] for area in areas]
    paths = []
    for rings, whole in zip(areas, grid, strict=True):
        written = "".join(_write_ring(ring) for ring in rings if len(ring) > 2)
        # An area that is too small to be seen is still there, as a dot.
        if not written and whole:
            x, y = whole[0][0]
            written = f"M{x - 6} {y - 6}{_DOT}"
        paths.append(written)
    return paths


def _find_junctions(rings: list[Flat]) -> frozenset[tuple[int, int]]:
    """Corners where borders meet or part: those that have other than two neighbours in all rings together."""
    neighbours: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for ring in rings:
        for place, point in enumerate(ring):
            neighbours.setdefault(point, set()).update((ring[place - 1], ring[(place + 1) % len(ring)]))
    return frozenset(point for point, near in neighbours.items() if len(near - {point}) != 2)


def _thin_ring(
    ring: Flat, junctions: frozenset[tuple[int, int]], tolerance: float, thinned: dict[Flat, Flat]
) -> Flat:
    """Thins a ring from junction to junction, so that neighbours thin their border alike."""
    if len(ring) < 3:
        return ring
    cuts = [place for place, point in enumerate(ring) if point in junctions]
    if not cuts:
        # It has no neighbour with other borders, or one that has just this ring for a hole.
        first = ring.index(min(ring))
        ring = ring[first:] + ring[:first]
        far = max(range(len(ring)), key=lambda place: (math.dist(ring[0], ring[place]), ring[place]))
        cuts = [0, far]
    turned = ring[cuts[0] :] + ring[: cuts[0] + 1]
    stops = [place - cuts[0] for place in cuts] + [len(ring)]
    out: list[tuple[int, int]] = []
    for start, stop in pairwise(stops):
        arc = turned[start : stop + 1]
        back = arc[::-1]
        forward = arc <= back
        one = arc if forward else back
        if one not in thinned:
            thinned[one] = _thin_arc(one, tolerance)
        out += (thinned[one] if forward else thinned[one][::-1])[:-1]
    return tuple(out)


def _thin_arc(arc: Flat, tolerance: float) -> Flat:
    """Gives the corners that a line must keep to stay within `tolerance` of itself (Douglas and Peucker)."""
    points = np.array(arc, np.float64)
    kept = np.zeros(len(arc), np.bool_)
    kept[[0, -1]] = True
    open_ = [(0, len(arc) - 1)]
    while open_:
        start, stop = open_.pop()
        if stop - start < 2:
            continue
        inner, base = points[start + 1 : stop] - points[start], points[stop] - points[start]
        length = math.hypot(*base)
        if length:
            off = np.abs(inner[:, 0] * base[1] - inner[:, 1] * base[0]) / length
        else:
            off = np.hypot(inner[:, 0], inner[:, 1])
        farthest = int(np.argmax(off))
        if off[farthest] > tolerance:
            middle = start + 1 + farthest
            kept[middle] = True
            open_ += [(start, middle), (middle, stop)]
    return tuple(point for point, keep in zip(arc, kept.tolist(), strict=True) if keep)


def _write_ring(ring: Flat) -> str:
    """Returns a closed path in steps from corner to corner.

    >>> _write_ring(((0, 0), (10, 0), (10, 20)))
    'M0 0l10 0 0 20z'
    """
    steps = [(x - a, y - b) for (a, b), (x, y) in pairwise(ring)]
    said = " ".join(f"{x} {y}" for x, y in steps).replace(" -", "-")
    return f"M{ring[0][0]} {ring[0][1]}l{said}z"


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
        """Returns the style of one area."""
        step = int(self.steps[place])
        return "blank" if step < 0 else f"{'d' if self.middle else 's'}{step}"


def define_areas(outline: Outline) -> Markup:
    """Returns the outlines of all areas, to be referred to by the maps of a page."""
    paths = [element("path", id=f"area{place}", d=d) for place, d in enumerate(outline.paths)]
    return element("svg", element("defs", *paths), width=0, height=0, aria_hidden="true", class_="defs")


def draw_map(outline: Outline, shades: Shades, said: Sequence[str], label: str) -> Markup:
    """Draws a map that shows what is `said` of the area that is pointed at or tabbed to.

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
    """Returns a map that tells nothing but its colours: one group of areas for each."""
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
