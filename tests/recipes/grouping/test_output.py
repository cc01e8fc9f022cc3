"""What is written about groups: a recipe file and a picture, whatever the columns are named."""

import tomllib
import xml.etree.ElementTree as ET
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.recipes.grouping.groups import find_groups
from sfumato.recipes.grouping.output import LEVELS, draft_recipe, draw_groups
from sfumato.report.pages.words import plain_text

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    '<script>alert("1")</script>',
    "a & b",
    "]]>",
    '"quoted" \\ back',
    "line\nbreak # not a comment",
    "\x1b[2Jgone",
    "\x7f",
    "naïve ☃ 統計",
    "\u202eturned",
    "x" * 300,
    " ",
    "'",
)


def group_names(names, **options):
    rows = np.arange(3000)
    codes = {name: rows // (1 + place // 2) % 4 for place, name in enumerate(names)}
    return find_groups(codes, dict.fromkeys(names, 4), **options)


def texts(svg):
    return ["".join(each.itertext()) for each in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_recipe_reads_back_as_its_groups():
    found = group_names(HOSTILE)
    text = draft_recipe(found, source="survey\n.csv", epsilon=Fraction(1, 2), table="t")
    recipe = tomllib.loads(text)
    assert recipe == {
        "recipe": "field-groups",
        "table": "t",
        "epsilon": 0.5,
        "groups": [list(group.columns) for group in found.groups],
    }
    assert any(len(group) > 1 for group in recipe["groups"])
    assert "cells, association" in text
    assert "must be public" in text


def test_a_recipe_without_a_project_says_what_is_to_be_written():
    text = draft_recipe(group_names(["a", "b"]), source="p.csv", epsilon=Fraction(1, 3), columns=["a", "b"])
    recipe = tomllib.loads(text)
    assert recipe["table"] == "TODO"
    assert recipe["epsilon"] == "1/3"
    assert recipe["columns"] == ["a", "b"]
    assert "Domains must be described" in text


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5, unique=True))
def test_any_names_survive(names):
    names = [name for name in names if name.encode("utf-8", "ignore").decode() == name] or ["a"]
    found = group_names(names)
    recipe = tomllib.loads(draft_recipe(found, source="p.csv", epsilon=Fraction(1), table="t"))
    assert sorted(name for group in recipe["groups"] for name in group) == sorted(names)
    assert {plain_text(name) for name in names} <= set(texts(draw_groups(found, source="p.csv")))


def test_a_picture_is_whole_and_names_every_column():
    svg = draw_groups(group_names(HOSTILE), source="<survey>.csv")
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert [each.tag for each in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    shown = texts(svg)
    for name in HOSTILE:
        assert sum(plain_text(name) in text for text in shown) >= 2, name
    assert not list(root.iter(f"{SVG}script"))
    for banned in ("<script", "\x1b", "\u202e", "href", "url(", "@import"):
        assert banned not in svg
    assert "prefers-color-scheme:dark" in svg


def test_a_picture_frames_the_groups_and_shades_the_pairs():
    found = group_names(["a", "b", "c", "d"])
    several = [group for group in found.groups if len(group.columns) > 1]
    root = ET.fromstring(draw_groups(found, source="p.csv"))
    frames = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "frame"]
    assert len(frames) == len(several) + 1  # and the one of the legend
    assert any(each.get("class") == f"s{len(LEVELS) - 1}" for each in root.iter(f"{SVG}path"))
    assert any(f"{several[0].cells} cells" in text for text in texts(draw_groups(found, source="p.csv")))


@pytest.mark.parametrize("columns", [1, 2, 110])
def test_labels_stay_readable_and_apart(columns):
    names = [f"COLUMN{place}" for place in range(columns)]
    found = group_names(names, max_columns=1)
    svg = draw_groups(found, source="p.csv")
    root = ET.fromstring(svg)
    rows = [float(each.get("y")) for each in root.iter(f"{SVG}text") if each.get("text-anchor") == "end"]
    assert len(rows) == columns
    assert all(later - before > 9.9 for before, later in pairwise(rows))
    assert len(svg) < 400_000
    assert svg == draw_groups(found, source="p.csv")
