"""Outlines: areas keep their size, neighbours keep their border, and nothing is lost on the way."""

import re
from itertools import pairwise

import numpy as np
import pytest

from sfumato.report.geography import _find_junctions, _thin_ring, draw_outline


def read_rings(path):
    """The corners of a path, added up from its steps."""
    rings = []
    for piece in re.findall(r"M[^M]*z", path):
        start, steps = re.fullmatch(r"M(-?\d+ -?\d+)l([^z]*)z", piece).groups()
        numbers = np.array(re.findall(r"-?\d+", steps), float).reshape(-1, 2)
        first = np.array(start.split(), float)
        rings.append(np.cumsum(np.vstack([first, numbers]), axis=0))
    return rings


def measure_area(path):
    """The area within a path by the shoelace formula; holes run the other way round or are taken off."""
    sizes = []
    for ring in read_rings(path):
        x, y = ring.T
        sizes.append(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)
    return sizes[0] - sum(sizes[1:])


def box(west, south, east, north, steps=1):
    """A ring around a box, with `steps` corners to a side."""
    corners = np.array([[west, south], [east, south], [east, north], [west, north], [west, south]], float)
    lines = [np.linspace(a, b, steps, endpoint=False) for a, b in pairwise(corners)]
    return np.vstack([*lines, corners[:1]])


def test_areas_stay_in_proportion_from_the_equator_to_the_north():
    # Both are ten degrees wide; a square degree has the size of the cosine of its latitude.
    south, north = box(0, 0, 10, 10, steps=20), box(0, 60, 10, 70, steps=20)
    drawn = draw_outline([[south], [north]])
    ratio = measure_area(drawn.paths[1]) / measure_area(drawn.paths[0])
    expected = (np.sin(np.radians(70)) - np.sin(np.radians(60))) / np.sin(np.radians(10))
    assert ratio == pytest.approx(expected, rel=0.02)


def test_areas_stay_in_proportion_on_a_map_of_the_world():
    drawn = draw_outline([[box(-170, -5, -150, 5, steps=20)], [box(100, 55, 140, 65, steps=20)]])
    ratio = measure_area(drawn.paths[1]) / measure_area(drawn.paths[0])
    expected = 2 * (np.sin(np.radians(65)) - np.sin(np.radians(55))) / (2 * np.sin(np.radians(5)))
    assert ratio == pytest.approx(expected, rel=0.02)


def test_a_hole_stays_a_hole():
    whole = draw_outline([[box(0, 0, 4, 4)]])
    pierced = draw_outline([[box(0, 0, 4, 4), box(1, 1, 3, 3)]])
    share = measure_area(pierced.paths[0]) / measure_area(whole.paths[0])
    assert share == pytest.approx(0.75, rel=0.02)


def test_cut_or_not_at_the_antimeridian_the_map_is_the_same():
    neighbour = box(-170, 0, -160, 10, steps=8)
    cut = draw_outline([[box(175, 0, 180, 10, steps=8), box(-180, 0, -170, 10, steps=8)], [neighbour]])
    ring = box(175, 0, 190, 10, steps=8)
    ring[:, 0] = (ring[:, 0] + 180) % 360 - 180
    uncut = draw_outline([[ring], [neighbour]])
    assert (cut.width, cut.height) == pytest.approx((uncut.width, uncut.height), abs=2)
    assert cut.width > cut.height  # 25 degrees by 10, and not once around the globe
    sizes = [
        sum(measure_area(f"{piece}z") for piece in path.split("z")[:-1])
        for path in (cut.paths[0], uncut.paths[0])
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


def test_an_area_around_a_pole_is_left_out_of_a_map_of_the_world_and_told():
    around = np.stack([np.linspace(-180, 180, 37), np.full(37, -70.0)], axis=1)
    world = draw_outline([[box(-150, 0, -100, 40)], [box(60, 0, 120, 40)], [around]])
    assert world.lost == (2,)
    assert world.paths[2] == ""
    assert world.paths[0]


def wiggle(seed, start, stop, steps):
    generator = np.random.default_rng(seed)
    line = np.linspace(start, stop, steps)
    line[1:-1] += generator.normal(0, 0.02, (steps - 2, 2))
    return line


def test_neighbours_thin_their_common_border_alike():
    border = wiggle(1, (5, 0), (5, 10), 400)
    border[:, 0] += np.sin(border[:, 1] * 3)
    west = np.vstack([[[0, 0]], border, [[0, 10], [0, 0]]])
    east = np.vstack([[[10, 0], [10, 10]], border[::-1], [[10, 0]]])
    drawn = draw_outline([[west], [east]], most_points=60)
    one, other = ({tuple(corner) for corner in read_rings(path)[0]} for path in drawn.paths)
    assert sum(len(read_rings(path)[0]) for path in drawn.paths) <= 60
    shared = one & other
    assert len(shared) > 4
    # All corners but those at the outer side are the neighbour's as well.
    assert len(one - shared) == len(other - shared) == 2


def test_thinning_keeps_within_its_tolerance_and_both_ends():
    generator = np.random.default_rng(2)
    ring = tuple(
        (int(x), int(y)) for x, y in zip(range(0, 2000, 5), generator.integers(0, 40, 400), strict=True)
    )
    ring = (*ring, (1995, 900), (0, 900))
    thin = _thin_ring(ring, _find_junctions([ring]), 50.0, {})
    assert 3 <= len(thin) < 20
    assert set(thin) <= set(ring)


def test_what_is_too_small_to_see_is_a_dot():
    drawn = draw_outline([[box(0, 0, 40, 40)], [box(20, 41, 20.001, 41.001)]])
    assert drawn.paths[1].endswith("z")
    assert len(drawn.paths[1]) < 40


def test_a_map_of_many_corners_that_cross_each_other_is_short():
    areas = [
        [np.vstack([wiggle(n, (n, 0), (n + 1, 0), 1500), [[n + 1, 3], [n, 3], [n, 0]]])] for n in range(20)
    ]
    assert sum(map(len, draw_outline(areas).paths)) < 200_000
