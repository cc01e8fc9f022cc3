"""Cards in notebooks: escaped, without scripts and sheets, short."""

import re

import pytest

import sfumato as sf
from helpers.pages import Reader
from sfumato.report.page import build_report
from sfumato.report.pages.notebook import MOST_ROWS, render_card, render_table
from sfumato.report.pages.render import Page

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    rows = {"person": list(range(60)), "region": ["a", EVIL] * 30, "fare": [5.0] * 60}
    curator = sf.from_frame(
        rows,
        unit="person",
        max_records=1,
        columns={"region": ["a", EVIL], "fare": (0, 10)},
        epsilon=40,
        ledger=tmp_path_factory.mktemp("ledger") / "ledger.db",
    )
    recipe = sf.recipes.CellCounts(table="t", by=("region",))
    check = curator.check(recipe, epsilon=1)
    folder = tmp_path_factory.mktemp("release") / "out"
    return {
        "check": check,
        "release": curator.release(recipe, epsilon=1, out=folder),
        "answer": curator.sql("DP-SELECT 20 region, COUNT(*) AS n, AVG(fare) AS fare FROM t GROUP BY region"),
        "price": curator.sql("EXPLAIN DP-SELECT 0.5 COUNT(*) FROM t"),
        "budget": curator.budget(),
        "curator": curator,
        "report": build_report(folder),
    }


NAMES = ("check", "release", "answer", "price", "budget", "curator", "report")


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_whole_and_brings_neither_scripts_nor_sheets(shown, name):
    tags = Reader(shown[name]._repr_html_()).tags
    assert tags
    assert not {"script", "style", "link"} & tags


@pytest.mark.parametrize("name", NAMES)
def test_values_are_escaped(shown, name):
    assert EVIL not in shown[name]._repr_html_()


def test_cards_tell_what_people_look_for(shown):
    assert "fits; nothing was spent" in shown["check"]._repr_html_()
    assert "epsilon 1" in shown["release"]._repr_html_()
    assert "19 of 40 left" in re.sub(r"<[^>]+>", "", shown["budget"]._repr_html_())
    assert "cost" in shown["price"]._repr_html_()


def test_intervals_are_drawn_in_place_of_their_columns(shown):
    card = shown["answer"]._repr_html_()
    assert "n_low" not in card
    assert card.count("<svg") == 4
    assert "from " in card


def test_a_page_is_shown_in_a_frame_of_its_own(shown):
    assert isinstance(shown["report"], Page)
    card = shown["report"]._repr_html_()
    assert card.startswith("<iframe")
    assert "allow-same-origin" not in card


def test_long_and_wide_tables_are_cut_with_a_word():
    card = render_table("long", [f"c{n}" for n in range(30)], [range(30)] * 90, count=90)
    assert card.count("<tr") == MOST_ROWS + 1
    assert "and 70 rows and 14 columns more" in card


def test_odd_numbers_are_drawn_or_left_out():
    rows = [("a", None, None, None), ("b", 3, float("-inf"), float("inf")), ("c", -5, -9, -1)]
    card = render_table("odd", ["key", "n", "n_low", "n_high"], rows, count=3)
    assert "nan" not in card
    assert render_card("nothing").count("<div") == 1
