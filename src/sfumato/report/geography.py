"""Areas from a GeoJSON file, which nobody vouches for: read within limits, and matched to released labels.

They are drawn as flat outlines: an equal-area projection, shared borders thinned once, short paths. In the
maps of a page every outline stands once, and the maps refer to it.
"""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError, SourceError
from sfumato.core.files import read_regular
from sfumato.report.pages.svg import STEPS, draw_picture, element
from sfumato.report.pages.words import clip_text, list_names, plural

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


_MOST_BYTES = 2**25  # larger maps are to be thinned before
_MOST_AREAS = 3000
_MOST_CORNERS = 1_500_000
_MOST_RINGS = 50_000
_MOST_PROPERTIES = 60
_LONGEST_NAME = 200
_LIKE = 0.6  # of the letters; less alike is no misspelling
_MOST_NEAREST, _MOST_COMPARED = 20, 500
_CONVERT = (
    "convert it to longitudes and latitudes: ogr2ogr -t_srs EPSG:4326 -f GeoJSON new.geojson old.geojson"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Area:
    """One feature of a file: its properties as text, and its rings."""

    properties: Mapping[str, str]
    rings: tuple[Ring, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Geography:
    """The areas of a file, and what of it was left out, in words."""

    name: str
    areas: tuple[Area, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaMap:
    """Outlines of areas with their names, and the code of the released label that each stands for, or -1.

    `unplaced` are labels without an area, `spare` areas without a label, each with the nearest that there is
    of the others.
    """

    outline: Outline
    names: tuple[str, ...]
    codes: tuple[int, ...]
    key: str
    unplaced: tuple[tuple[str, str | None], ...]
    spare: tuple[tuple[str, str | None], ...]
    notes: tuple[str, ...]

    def describe(self) -> list[str]:
        """Returns what people should know before they read the map."""
        said = list(self.notes)
        for one, many, found in (
            ("has no area on the map", "have no area on the map", self.unplaced),
            ("of the map is no label", "of the map are no labels", self.spare),
        ):
            hints = ("" if near is None else f" (nearest: {clip_text(near, 40)!r})" for _, near in found)
            shown = [f"{clip_text(name, 40)!r}{hint}" for (name, _), hint in zip(found, hints, strict=True)]
            if found:
                said.append(f"{list_names(shown)} {one if len(found) == 1 else many}")
        return said


def read_geography(path: Path | str) -> Geography:
    """Returns the polygons of the GeoJSON file at `path`.

    Refused are files that are too large, no collection of features, or in other coordinates than degrees,
    and polygons that are none; features without a polygon are left out and counted.
    """
    file = Path(path)
    try:
        content = read_regular(file, most=_MOST_BYTES)
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"the map {file.name!r} cannot be read: {error.strerror}") from None
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise SourceError(f"the map {file.name!r} is not valid JSON; --map takes a GeoJSON file") from None
    features = _find_features(document, file.name)
    areas, left_out, corners, count = [], Counter[str](), 0, 0
    for number, feature in enumerate(features, 1):
        where = f"feature {number:,} of the map {file.name!r}"
        if not isinstance(feature, dict):
            raise SourceError(f"{where} is no object")
        geometry = feature.get("geometry")
        kind = geometry.get("type") if isinstance(geometry, dict) else None
        if not isinstance(geometry, dict) or kind not in ("Polygon", "MultiPolygon"):
            left_out["without a geometry" if geometry is None else f"of type {clip_text(kind, 20)}"] += 1
            continue
        rings = _read_rings(geometry, where)
        corners += sum(len(ring) for ring in rings)
        count += len(rings)
        if corners > _MOST_CORNERS or count > _MOST_RINGS:
            raise SourceError(
                f"the map {file.name!r} has more than {_MOST_CORNERS:,} corners or {_MOST_RINGS:,} rings; "
                "simplify it first, for example with mapshaper -simplify 5% keep-shapes"
            )
        if rings:
            areas.append(Area(properties=_read_properties(feature.get("properties")), rings=rings))
        else:
            left_out["with an empty polygon"] += 1
    if not areas:
        raise SourceError(f"the map {file.name!r} has no polygon; areas are of type Polygon or MultiPolygon")
    notes = [f"{plural(count, 'feature')} {why} left out" for why, count in sorted(left_out.items())]
    return Geography(name=file.name, areas=tuple(areas), notes=tuple(notes))


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


def _find_features(document: object, name: str) -> list[Any]:
    given: dict[str, Any] = document if isinstance(document, dict) else {}
    if given.get("type") == "Topology":
        raise SourceError(f"the map {name!r} is TopoJSON; make GeoJSON of it with topo2geo or mapshaper")
    features = given.get("features")
    if given.get("type") != "FeatureCollection" or not isinstance(features, list):
        raise SourceError(
            f"the map {name!r} is no GeoJSON FeatureCollection, a list of areas with their names"
        )
    stated = json.dumps(given["crs"]) if given.get("crs") is not None else "CRS84"
    if "CRS84" not in stated and "4326" not in stated:
        raise SourceError(f"the map {name!r} states another coordinate system than degrees; {_CONVERT}")
    if len(features) > _MOST_AREAS:
        raise SourceError(
            f"the map {name!r} has more than {_MOST_AREAS:,} features; keep those of the release"
        )
    return features


def _read_properties(given: object) -> dict[str, str]:
    """Returns the properties that could be names: short texts and whole numbers."""
    found = {}
    for key, value in list(given.items())[:_MOST_PROPERTIES] if isinstance(given, dict) else ():
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and len(str(value)) <= _LONGEST_NAME:
            found[str(key)] = str(value)
    return found


def _read_rings(geometry: Mapping[str, Any], where: str) -> tuple[Ring, ...]:
    polygons = geometry.get("coordinates")
    if geometry["type"] == "Polygon":
        polygons = [polygons]
    if not isinstance(polygons, list):
        raise SourceError(f"{where} has no list of coordinates")
    rings: list[Ring | None] = []
    for polygon in polygons:
        if not isinstance(polygon, list):
            raise SourceError(f"{where} has a polygon that is no list of rings")
        rings += [_read_ring(ring, where) for ring in polygon]
    return tuple(ring for ring in rings if ring is not None)


def _read_ring(ring: object, where: str) -> Ring | None:
    """Returns a ring in degrees, closed; None if it has no inside."""
    if not isinstance(ring, list):
        raise SourceError(f"{where} has a ring that is no list of positions")
    for position in ring:
        if (
            not isinstance(position, list)
            or not 2 <= len(position) <= 4
            or not all(map(_is_number, position[:2]))
        ):
            raise SourceError(f"{where} has a corner that is no pair of numbers")
    if len(ring) < 3:
        return None
    points = np.array([[float(x), float(y)] for x, y, *_ in ring])
    if (np.abs(points) > (360, 90)).any():
        raise SourceError(f"{where} has corners outside of longitudes and latitudes; {_CONVERT}")
    if (points[0] != points[-1]).any():
        points = np.concatenate([points, points[:1]])
    return points if len(np.unique(points, axis=0)) >= 3 else None


def _is_number(value: object) -> bool:
    # A whole number may be too large for a float to hold, and is then no longitude either.
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < 1e9
        and math.isfinite(value)
    )


def place_areas(
    geography: Geography,
    labels: Sequence[str],
    *,
    column: str,
    key: str | None = None,
    values: Sequence[str] = (),
) -> AreaMap:
    """Gives the areas with the codes of `labels`, or of the released `values`, matched by the property `key`.

    Without a key, the property is taken that matches most labels. Areas of one name are joined. Names match
    if they are the same but for capitals and spaces. That no name matches at all is refused.
    """
    if key is None:
        key = _choose_key(geography, [*labels, *values])
    named = [area for area in geography.areas if key in area.properties]
    if not named:
        known = Counter(name for area in geography.areas for name in area.properties)
        listed = list_names([name for name, _ in known.most_common()]) or "none"
        raise RecipeError(
            f"--key names {key!r}, which no area of {geography.name!r} has (there are: {listed})"
        )
    rings: dict[str, list[Ring]] = {}
    for area in named:
        rings.setdefault(area.properties[key], []).extend(area.rings)
    names = tuple(rings)
    exact = {value: code for code, value in enumerate(values)}
    exact |= {label: code for code, label in enumerate(labels)}
    loose = _index_loosely(labels)
    codes = [exact.get(name, loose.get(_fold(name), -1)) for name in names]
    codes = [code if codes.index(code) == place else -1 for place, code in enumerate(codes)]
    taken = set(codes)
    if taken <= {-1}:
        raise RecipeError(
            f"no area of {geography.name!r} has the name of a released {column!r}: the map has "
            f"{list_names(names[:3])} in {key!r}, the release {list_names(labels[:3])}; "
            "name the property with --key, and the column with --place"
        )
    unplaced = [label for code, label in enumerate(labels) if code not in taken]
    spare = [name for name, code in zip(names, codes, strict=True) if code < 0]
    outline = draw_outline([tuple(each) for each in rings.values()])
    notes = list(geography.notes)
    if len(named) < len(geography.areas):
        missing = len(geography.areas) - len(named)
        notes.append(f"{plural(missing, 'area')} without the property {key!r} left out")
    if outline.lost:
        around = list_names([names[place] for place in outline.lost])
        notes.append(f"{around} left out: a map of the world cannot show areas around a pole")
    return AreaMap(
        outline=outline,
        names=names,
        codes=tuple(codes),
        key=key,
        unplaced=_pair_up(unplaced, spare),
        spare=_pair_up(spare, unplaced),
        notes=tuple(notes),
    )


def count_matches(geography: Geography, labels: Sequence[str]) -> int:
    """Returns how many of `labels` some property of the areas holds, by the one that holds most."""
    return max((len(set(names)) for names in _find_labels(geography, labels).values()), default=0)


def _choose_key(geography: Geography, labels: Sequence[str]) -> str:
    """Returns the property that has most labels for values; the first of the best."""
    found = _find_labels(geography, labels)
    if found:
        return max(found, key=lambda key: len(found[key]))
    listed = list_names(sorted({key for area in geography.areas for key in area.properties})) or "none"
    raise RecipeError(
        f"no property of the areas of {geography.name!r} (there are: {listed}) holds labels of the "
        f"release, such as {list_names(labels[:3])}; is it a map of the same places? "
        "--place chooses another column"
    )


def _find_labels(geography: Geography, labels: Sequence[str]) -> dict[str, list[str]]:
    """Returns the values of each property of the areas that are among `labels`, folded."""
    known = set(map(_fold, labels))
    found: dict[str, list[str]] = {}
    for area in geography.areas:
        for key, value in area.properties.items():
            if _fold(value) in known:
                found.setdefault(key, []).append(_fold(value))
    return found


def _fold(name: str) -> str:
    return " ".join(name.casefold().split())


def _index_loosely(labels: Sequence[str]) -> dict[str, int]:
    """Returns codes by labels without capitals and spaces, where these tell labels apart."""
    folded = [_fold(label) for label in labels]
    seen = Counter(folded)
    return {name: code for code, name in enumerate(folded) if seen[name] == 1}


def _pair_up(names: Sequence[str], others: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Returns every name with the nearest of the others, if one is near; very many are not compared."""
    folded = {_fold(other)[:_LONGEST_NAME]: other for other in others[:_MOST_COMPARED]}
    pairs: list[tuple[str, str | None]] = []
    for place, name in enumerate(names):
        near = None
        if place < _MOST_NEAREST:
            found = difflib.get_close_matches(_fold(name)[:_LONGEST_NAME], folded, n=1, cutoff=_LIKE)
            near = folded[found[0]] if found else None
        pairs.append((name, near))
    return tuple(pairs)
