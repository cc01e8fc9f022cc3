"""GeoJSON comes from anywhere: it is read within limits, matched by name, and its faults are told."""

import json

import numpy as np
import pytest

from sfumato.cli.city import City, neighbourhood_names, write_demo
from sfumato.core.errors import RecipeError, SourceError
from sfumato.report.geography import count_matches, place_areas, read_geography

SQUARE = [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]


def feature(name, coordinates=SQUARE, kind="Polygon", **properties):
    geometry = None if kind is None else {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "properties": {"name": name, **properties}, "geometry": geometry}


def write(tmp_path, *features, **more):
    path = tmp_path / "areas.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": list(features), **more}))
    return path


def move(degrees):
    return [[[x + degrees, y] for x, y in SQUARE[0]]]


def test_areas_get_the_codes_of_their_labels(tmp_path):
    path = write(tmp_path, feature("b", move(1)), feature("a"))
    drawn = place_areas(read_geography(path), ["a", "b"], column="place", key="name")
    assert drawn.names == ("b", "a")
    assert drawn.codes == (1, 0)
    assert drawn.describe() == []
    assert all(path.startswith("M") for path in drawn.outline.paths)


def test_the_key_that_holds_the_labels_is_found(tmp_path):
    geography = read_geography(write(tmp_path, feature("x", code=7.0), feature("y", move(1), code=8)))
    drawn = place_areas(geography, ["7", "8"], column="place")
    assert (drawn.key, drawn.codes) == ("code", (0, 1))
    assert count_matches(geography, ["7", "8", "9"]) == 2
    assert count_matches(geography, ["nothing"]) == 0


def test_released_values_match_as_labels_do(tmp_path):
    geography = read_geography(write(tmp_path, feature("x", code="07")))
    drawn = place_areas(geography, ["Seventh ward"], column="ward", values=["07"])
    assert (drawn.key, drawn.codes) == ("code", (0,))


def test_capitals_and_spaces_do_not_matter_unless_they_tell_labels_apart(tmp_path):
    geography = read_geography(write(tmp_path, feature("OLD  harbour")))
    assert place_areas(geography, ["Old Harbour"], column="p", key="name").codes == (0,)
    with pytest.raises(RecipeError, match="no area"):
        place_areas(geography, ["Old Harbour", "old harbour"], column="p", key="name")


def test_names_that_match_nothing_are_told_with_the_nearest(tmp_path):
    path = write(tmp_path, feature("Old Harbor"), feature("Mill", move(1)))
    drawn = place_areas(read_geography(path), ["Old Harbour", "Mill", "Q"], column="p", key="name")
    assert drawn.codes == (-1, 1)
    assert drawn.unplaced == (("Old Harbour", "Old Harbor"), ("Q", None))
    assert drawn.spare == (("Old Harbor", "Old Harbour"),)
    assert drawn.describe() == [
        "'Old Harbour' (nearest: 'Old Harbor'), 'Q' have no area on the map",
        "'Old Harbor' (nearest: 'Old Harbour') of the map is no label",
    ]


def test_areas_of_one_name_are_one(tmp_path):
    path = write(tmp_path, feature("a"), feature("a", move(3)), feature("b", move(1)))
    drawn = place_areas(read_geography(path), ["a", "b"], column="p", key="name")
    assert drawn.names == ("a", "b")
    assert drawn.outline.paths[0].count("M") == 2


def test_holes_and_several_polygons_are_read(tmp_path):
    hole = [[0.4, 0.4], [0.6, 0.4], [0.6, 0.6], [0.4, 0.4]]
    path = write(tmp_path, feature("a", [[SQUARE[0], hole], move(3)], kind="MultiPolygon"))
    (area,) = read_geography(path).areas
    assert [len(ring) for ring in area.rings] == [5, 4, 5]


def test_what_is_no_polygon_is_left_out_and_counted(tmp_path):
    path = write(
        tmp_path,
        feature("a"),
        feature("b", [0, 0], kind="Point"),
        feature("c", kind=None),
        feature("d", [[[0, 0], [1, 1], [0, 0]]]),
        {"type": "Feature", "properties": None, "geometry": {"type": "Polygon", "coordinates": move(1)}},
    )
    drawn = place_areas(read_geography(path), ["a"], column="p", key="name")
    assert drawn.describe() == [
        "1 feature of type Point left out",
        "1 feature with an empty polygon left out",
        "1 feature without a geometry left out",
        "1 area without the property 'name' left out",
    ]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "no GeoJSON FeatureCollection"),
        (b'{"type": "FeatureCollection", "features": {}}', "no GeoJSON FeatureCollection"),
        (b'{"type": "Topology"}', "topo2geo"),
        (b'{"type": "FeatureCollection", "features": []}', "no polygon"),
        (b'{"type": "FeatureCollection", "features": [1]}', "feature 1 .* no object"),
    ],
)  # fmt: skip
def test_what_is_no_map_is_refused_with_advice(tmp_path, content, match):
    path = tmp_path / "areas.geojson"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=match):
        read_geography(path)


@pytest.mark.parametrize(
    ("coordinates", "match"),
    [
        (7, "polygon that is no list"),
        ([7], "ring that is no list"),
        ([[[0, 0], [1, "x"], [1, 1], [0, 0]]], "no pair of numbers"),
        ([[[0, 0], [1], [1, 1], [0, 0]]], "no pair of numbers"),
        ([[[0, 0], [True, 0], [1, 1], [0, 0]]], "no pair of numbers"),
        ([[[0, 0], [10**400, 0], [1, 1], [0, 0]]], "no pair of numbers"),
        ([[[0, 0], [500000, 0], [500000, 400000], [0, 0]]], "ogr2ogr"),
        ([[[0, 0], [1, 0], [1, 91], [0, 0]]], "ogr2ogr"),
    ],
)  # fmt: skip
def test_bad_geometry_is_refused_with_its_number(tmp_path, coordinates, match):
    path = write(tmp_path, feature("a"), feature("b", coordinates))
    with pytest.raises(SourceError, match=f"feature 2 of the map 'areas.geojson'.*{match}"):
        read_geography(path)


def test_numbers_that_are_none_are_refused(tmp_path):
    path = tmp_path / "areas.geojson"
    path.write_text(
        json.dumps({"type": "FeatureCollection", "features": [feature("a", [[[0, float("nan")]]])]})
    )
    with pytest.raises(SourceError, match="not valid JSON"):
        read_geography(path)


def test_other_coordinates_are_refused_where_they_are_stated(tmp_path):
    stated = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::25832"}}
    with pytest.raises(SourceError, match="EPSG:4326"):
        read_geography(write(tmp_path, feature("a"), crs=stated))
    stated["properties"]["name"] = "urn:ogc:def:crs:OGC:1.3:CRS84"
    assert read_geography(write(tmp_path, feature("a"), crs=stated)).areas


def test_limits_hold(tmp_path, monkeypatch):
    path = write(tmp_path, feature("a"), feature("b", move(1)))
    for name, match in (
        ("_MOST_BYTES", "larger"),
        ("_MOST_AREAS", "features"),
        ("_MOST_CORNERS", "mapshaper"),
        ("_MOST_RINGS", "mapshaper"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"sfumato.report.geography.{name}", 1)
            with pytest.raises(SourceError, match=match):
                read_geography(path)
    with pytest.raises(SourceError, match="cannot be read"):
        read_geography(tmp_path / "nowhere.geojson")
    with pytest.raises(SourceError, match="regular file"):
        read_geography(tmp_path)


def test_a_key_that_is_missing_is_refused_with_those_there_are(tmp_path):
    geography = read_geography(write(tmp_path, feature("a", id=3)))
    with pytest.raises(RecipeError, match=r"--key names 'nme'.*there are: name, id"):
        place_areas(geography, ["a"], column="p", key="nme")
    with pytest.raises(RecipeError, match="map of the same places"):
        place_areas(geography, ["other"], column="p")
    with pytest.raises(RecipeError, match="the map has a in 'name', the release z"):
        place_areas(geography, ["z"], column="p", key="name")


def test_the_made_up_city_has_all_of_its_neighbourhoods(tmp_path):
    write_demo(tmp_path / "demo")
    geography = read_geography(tmp_path / "demo" / "city.geojson")
    drawn = place_areas(geography, neighbourhood_names(City()), column="neighbourhood")
    assert drawn.key == "name"
    assert drawn.codes == tuple(range(80))
    corners = np.concatenate([ring for area in geography.areas for ring in area.rings])
    assert np.ptp(corners, axis=0).max() < 1
