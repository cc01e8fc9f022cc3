"""Areas from a GeoJSON file, which nobody vouches for: read within limits, and matched to released labels."""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from sfumato.core.errors import RecipeError, SourceError
from sfumato.core.files import read_regular
from sfumato.report.pages.outline import Outline, Ring, draw_outline
from sfumato.report.pages.words import clip_text, list_names, plural

_MOST_BYTES = 2**25  # larger maps are to be thinned before
_MOST_AREAS = 3000
_MOST_CORNERS = 1_500_000
_MOST_RINGS = 50_000
_MOST_PROPERTIES = 60
_LONGEST = 200
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
        if isinstance(value, (str, int)) and not isinstance(value, bool) and len(str(value)) <= _LONGEST:
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
    folded = {_fold(other)[:_LONGEST]: other for other in others[:_MOST_COMPARED]}
    pairs: list[tuple[str, str | None]] = []
    for place, name in enumerate(names):
        near = None
        if place < _MOST_NEAREST:
            found = difflib.get_close_matches(_fold(name)[:_LONGEST], folded, n=1, cutoff=_LIKE)
            near = folded[found[0]] if found else None
        pairs.append((name, near))
    return tuple(pairs)
