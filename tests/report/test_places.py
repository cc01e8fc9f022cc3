"""Maps, series and comparisons of places in the page, and what is said of a release that is all noise."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from helpers.browser import find_browser
from helpers.pages import Reader
from sfumato.core.errors import RecipeError
from sfumato.report.facts import Estimate, estimate_counts, judge_signal, read_facts
from sfumato.report.geography import read_geography
from sfumato.report.page import build_report
from sfumato.report.pages.svg import step_of
from sfumato.report.pages.words import MINUS
from sfumato.report.places import compare_values

LIMIT = 1_000_000


def write_map(folder, names):
    """A row of squares with these names."""
    path = folder / "areas.geojson"
    features = [
        {
            "type": "Feature",
            "properties": {"name": name},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[x, 0], [x + 0.1, 0], [x + 0.1, 1], [x, 1], [x, 0]]],
            },
        }
        for x, name in ((place / 10, name) for place, name in enumerate(names))
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return read_geography(path)


def write_cells(folders, folder, values, *, scale="20", names=None, **more):
    """A release of counts by place and month, with these noisy values."""
    values = np.asarray(values)
    names = list(names or (f"place {number}" for number in range(len(values))))
    months = values.shape[1]
    columns = {"place": folders.column(values=names), "month": folders.column(range=[1, months])}
    table = pa.table(
        {
            "place": np.repeat(names, months),
            "month": np.tile(np.arange(1, months + 1), len(names)),
            "count": np.maximum(values, 0).ravel(),
        }
    )
    record = folders.measure("counts at epsilon 1", ("place", "month"), values.size, scale=scale)
    return folders.write_release(
        folder, table=table, columns=columns, measured=[(record, values.ravel().tolist())], **more
    )


def frames_of(page):
    """The areas of every frame: their class, what is told of them, and whether they are hatched."""
    found = {}
    for key, frame in re.findall(r'<div class="frame at-(\w+)">(.*?)</svg>', page, re.S):
        areas = re.findall(
            r'<g class="area (\w+)" tabindex="0" role="img"><title>(.*?)</title>(.*?)<text', frame
        )
        found[key] = [(class_, said, 'class="hatch"' in uses) for class_, said, uses in areas]
    return found


def test_areas_have_the_shade_of_their_value_and_are_hatched_within_their_noise(folders, tmp_path):
    values = np.array([[500, 20], [40, 900], [-90, 10]])
    folder = write_cells(folders, tmp_path / "out", values, names=["a", "b", "c"])
    page = build_report(folder, geography=write_map(tmp_path, ["a", "b", "c", "d"]), key="name").decode()
    frames = frames_of(page)
    assert list(frames) == ["all", "t0", "t1"]
    half = estimate_counts(read_facts(folder), read_facts(folder).shown).half
    for turn in range(2):
        steps = step_of(values[:, turn], limit=1000.0)
        for place, (class_, said, hatched) in enumerate(frames[f"t{turn}"][:3]):
            assert class_ == f"s{steps[place]}"
            assert hatched == (values[place, turn] <= half)
            shown = str(values[place, turn]).replace("-", MINUS)
            assert said.startswith(f"{'abc'[place]}: {shown}\xa0±\xa0{half:.0f}")
            assert ("within the noise" in said) == hatched
        assert frames[f"t{turn}"][3] == ("blank", "d: not in the release", False)
    assert "&#39;d&#39; of the map is no label" in page


def test_the_legend_says_its_scale(folders, tmp_path):
    folder = write_cells(folders, tmp_path / "out", [[500, 20], [40, 900]])
    page = build_report(folder, geography=write_map(tmp_path, ["place 0", "place 1"])).decode()
    assert "on a square-root scale: the middle shade is a quarter of the top" in page
    assert "within the noise, ±60: noise alone explains it" in page
    keys = re.findall(r'<div class="frame at-t\d">.*?<div class="scale">(<svg.*?</svg>)', page, re.S)
    (found,) = {tuple(re.findall(r"<text[^>]*>([\d,.]+)</text>", key)) for key in keys}
    scale = [float(each.replace(",", "")) for each in found]
    limit = scale[-1]
    assert scale == pytest.approx([limit * share**2 for share in (0, 0.25, 0.5, 0.75, 1)], abs=1)


def test_labels_without_an_area_are_told_with_their_values(folders, tmp_path):
    folder = write_cells(folders, tmp_path / "out", [[500, 20], [40, 900]], names=["Old Mill", "b"])
    page = build_report(folder, geography=write_map(tmp_path, ["Olde Mill", "b"]), key="name").decode()
    assert "&#39;Old Mill&#39; (nearest: &#39;Olde Mill&#39;) has no area on the map" in page
    assert "Not on the map:" in page
    assert "Old Mill (520)" in page


def test_a_map_too_large_to_tell_everything_still_shows_its_colours(folders, tmp_path):
    names = [f"a rather long name of a place, number {number}" for number in range(500)]
    values = np.random.default_rng(1).poisson(90, (500, 30))
    folder = write_cells(folders, tmp_path / "out", values, names=names)
    page = build_report(folder, geography=write_map(tmp_path, names))
    assert len(page) < LIMIT
    assert b'<input type="radio"' not in page
    assert page.decode().count('aria-label="map of place:') == 31


def test_hostile_names_in_a_map_stay_text(folders, tmp_path):
    bad = folders.HOSTILE
    names = [bad, 'x" onload="alert(1)', "url(https://example.org)"]
    folder = write_cells(
        folders, tmp_path / "out", [[500, 20], [40, 900], [4, 9]], names=["a", names[1], "c"]
    )
    path = tmp_path / "areas.geojson"
    page = build_report(folder, geography=write_map(tmp_path, [*names, "a"]), key="name").decode()
    assert path.exists()
    assert bad not in page
    assert "<script" not in page
    assert "<img" not in page
    attributes = Reader(page).attributes
    assert not any(key.startswith("on") for key, _ in attributes)
    assert "https://example.org" in page  # as text alone
    assert all(value.startswith("#") for key, value in attributes if key in ("href", "src"))


def test_the_column_that_the_map_names_is_drawn(folders, tmp_path):
    table = pa.table({"sector": ["x", "y"] * 2, "town": ["a", "a", "b", "b"], "count": [900, 800, 700, 600]})
    columns = {"sector": folders.column(values=["x", "y"]), "town": folders.column(values=["a", "b"])}
    record = folders.measure("counts", ("sector", "town"), 4)
    folder = folders.write_release(
        tmp_path / "out", table=table, columns=columns, measured=[(record, [900, 700, 800, 600])]
    )
    page = build_report(folder, geography=write_map(tmp_path, ["a", "b"])).decode()
    assert "Every area is a value of <code>town</code>" in page
    with pytest.raises(RecipeError, match="no property"):
        build_report(folder, geography=write_map(tmp_path, ["a", "b"]), place="sector")


def test_without_a_map_few_places_have_their_names_on_tiles(folders, tmp_path):
    folder = write_cells(folders, tmp_path / "out", np.full((9, 3), 400))
    page = build_report(folder).decode()
    tiles = page.split('class="tiles"')[1].split("</svg>")[0]
    assert all(f">place {number}</text>" in tiles for number in range(9))
    assert 'class="key"' not in page
    assert page.count("<figcaption>place ") == 9  # a line for each over time


def test_series_have_the_band_of_their_noise(folders, tmp_path):
    folder = write_cells(folders, tmp_path / "out", np.full((9, 12), 400))
    page = build_report(folder).decode()
    series = page.split('<div class="series">')[1].split("</div>")[0]
    assert series.count('class="band"') == 9
    assert "1: 400\xa0±\xa060" in series
    assert "the band is where" in page


def test_kinds_have_series_of_their_own(folders, tmp_path):
    places, months, kinds = ["a", "b", "c"], 6, ["theft", "fire"]
    values = np.arange(36) * 10 + 100
    grid = np.stack(np.meshgrid(range(3), range(months), range(2), indexing="ij"), -1).reshape(-1, 3)
    table = pa.table(
        {
            "place": [places[each] for each in grid[:, 0]],
            "month": grid[:, 1] + 1,
            "kind": [kinds[each] for each in grid[:, 2]],
            "count": values,
        }
    )
    columns = {
        "place": folders.column(values=places),
        "month": folders.column(range=[1, months]),
        "kind": folders.column(values=kinds),
    }
    record = folders.measure("counts", ("place", "month", "kind"), 36)
    folder = folders.write_release(
        tmp_path / "out", table=table, columns=columns, measured=[(record, values.tolist())]
    )
    page = build_report(folder).decode()
    for heading in ("By place", "By kind", "By place and kind"):
        assert f"<h3>{heading}</h3>" in page
    truth = {("place", "month", "kind"): values.reshape(3, months, 2)}
    compared = build_report(folder, maps=truth).decode()
    assert "the gold line is the truth" in compared
    assert "INTERNAL" in compared


def test_places_are_told_apart_where_their_intervals_do_not_overlap():
    alone = Estimate(values=np.array([100.0, 50, 45, 3]), source="measurements", halves=np.full(4, 5.0))
    told = compare_values(["a", "b", "c", "d"], alone)
    assert [(each["name"], each["first"], each["last"]) for each in told["ranked"]] == [
        ("a", 1, 1), ("b", 2, 3), ("c", 2, 3), ("d", 4, 4),
    ]  # fmt: skip
    assert told["ranked"][1]["like"] == ["c"]
    assert (told["pairs"], told["overlapping"], told["zero"]) == (6, 1, 1)
    assert compare_values(["a"], alone) is None
    assert compare_values(["a", "b"], Estimate(values=np.ones(2), source="table")) is None


def test_intervals_that_a_table_states_are_used(folders, tmp_path):
    table = pa.table(
        {"place": ["a", "b", "all"], "count": [500, 9, 509], "low": [450, -3, 0], "high": [540, 25, 0]}
    )
    columns = {"place": folders.column(values=["a", "b"])}
    facts = read_facts(folders.write_release(tmp_path / "out", table=table, columns=columns))
    found = estimate_counts(facts, facts.shown)
    assert found.values.tolist() == [500, 9]
    assert found.halves.tolist() == [50, 16]
    page = build_report(tmp_path / "out").decode()
    assert "cannot be told from having no record" in page


@pytest.mark.parametrize(("values", "noise"), [([[30, -40], [10, 5]], True), ([[90, 80], [70, 95]], False)])
def test_a_release_that_is_nothing_but_noise_says_so(folders, tmp_path, values, noise):
    folder = write_cells(
        folders, tmp_path / "out", values, notes=["the total of this release, 5, lies within its noise"]
    )
    signal = judge_signal(read_facts(folder))
    assert signal.is_noise is noise
    assert signal.total == np.sum(values)
    page = build_report(folder).decode()
    assert ("Nothing but noise." in page) is noise
    assert ("<b>Note: </b>the total of this" in page) is not noise  # it is told once


def test_values_below_zero_do_not_look_like_values_above(folders, tmp_path):
    folder = write_cells(folders, tmp_path / "out", [[-90, -60, 20], [40, 90, 300]], names=["a", "b"])
    page = build_report(folder).decode()
    cards = page.split('<div class="cards">')[1]
    bars = re.findall(r'<span class="bar( below)?" style="margin-left:([\d.]+)%;width:([\d.]+)%">', cards)
    (right, left) = [(bool(below), float(start), float(wide)) for below, start, wide in bars[:2]]
    assert not right[0]
    assert right[1] + right[2] == pytest.approx(100, abs=0.2)
    assert left[0]
    assert left[1] + left[2] == pytest.approx(right[1], abs=0.2)  # it ends where zero is
    assert "Noise put some below zero" in page


def test_bins_are_as_wide_as_they_reach(folders, tmp_path):
    table = pa.table({"income": ["[0, 10)", "[10, 20)", "[20, 100]"], "count": [100, 100, 800]})
    columns = {"income": folders.column(bins=["0", "10", "20", "100"])}
    record = folders.measure("counts", ("income",), 3)
    folder = folders.write_release(
        tmp_path / "out", table=table, columns=columns, measured=[(record, [100, 100, 800])]
    )
    page = build_report(folder).decode()
    rects = re.findall(
        r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="([\d.]+)" class="column">', page
    )
    widths, heights = np.array(rects[:3], float).T
    assert widths[2] / widths[0] == pytest.approx(8, rel=0.08)  # less the gap between them
    assert heights == pytest.approx([70, 70, 70], rel=0.01)  # all have ten records per unit
    assert "areas are counts" in page


def test_the_truth_is_drawn_beside_and_the_worst_come_first(folders, tmp_path):
    values = np.array([[500, 20], [40, 900]])
    folder = write_cells(folders, tmp_path / "out", values)
    true = values.copy()
    true[1, 0] = 400
    page = build_report(
        folder, maps={("place", "month"): true}, geography=write_map(tmp_path, ["place 0", "place 1"])
    ).decode()
    assert page.count("INTERNAL") > 10
    assert "<b>Gold lines are the truth.</b>" in page
    cells = page.split("Cell by cell")[1]
    first = re.search(r'<th data-head="cell" scope="row">(.*?)</th>', cells)
    assert first[1] == "place 1 · 1"
    assert f"{MINUS}360" in cells
    farthest = page.split("farthest off, worst first")[1]
    assert farthest.index("place 1") < farthest.index("place 0")
    assert "Release less truth" in page
    with pytest.raises(RecipeError, match="has the shape"):
        build_report(folder, maps={("place",): [1]})
    with pytest.raises(RecipeError, match="has the shape"):
        build_report(folder, maps={("place", "unknown"): [[1], [2]]})


@pytest.mark.skipif(find_browser() is None, reason="no browser is installed")
def test_the_slider_and_the_areas_answer_to_keys(browser, folders, tmp_path):
    folder = write_cells(folders, tmp_path / "out", np.full((9, 4), 400))
    page = tmp_path / "report.html"
    page.write_bytes(build_report(folder, geography=write_map(tmp_path, [f"place {n}" for n in range(9)])))
    browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
    shown = """[...document.querySelectorAll('.frame')].filter(each => each.offsetHeight)
        .map(each => each.className)"""
    for width in (390, 1280):
        browser.open(page, width=width)
        assert browser.heard()[1] == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(shown) == ["frame at-all"]
        browser.evaluate("void document.getElementById('at-all').focus()")
        for kind in ("rawKeyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key="ArrowRight",
                code="ArrowRight",
                windowsVirtualKeyCode=39,
            )
        assert browser.evaluate(shown) == ["frame at-t0"]
        told = "getComputedStyle(document.querySelector('.at-t0 .area:nth-child(4) text')).display"
        assert browser.evaluate(told) == "none"
        browser.evaluate("void document.querySelector('.at-t0 .area:nth-child(4)').focus()")
        assert browser.evaluate(told) != "none"
