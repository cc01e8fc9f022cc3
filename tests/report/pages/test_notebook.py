"""Cards in notebooks: escaped, without scripts and sheets, short."""

import re

import pyarrow as pa
import pytest

import sfumato as sf
from helpers.pages import Reader
from sfumato.report.page import build_report
from sfumato.report.pages.notebook import MOST_ROWS, render_card, render_table
from sfumato.report.pages.plot import divide_rows
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


class Axes:
    """What matplotlib's axes are told; it is not installed with the tests."""

    def __init__(self):
        self.told = {}

    def __getattr__(self, name):
        return lambda *values, **more: self.told.update({name: (values, more)})


def test_answers_and_releases_are_drawn_with_their_intervals(shown):
    answer = shown["answer"].plot()
    row = shown["answer"].to_arrow().to_pylist()[0]
    assert answer._repr_svg_().startswith("<svg ")
    assert EVIL not in answer.svg
    assert f"a: {row['n']:,.0f}" in answer.svg  # the title of its dot
    assert shown["answer"].plot("fare").svg != answer.svg
    ax = Axes()
    assert shown["answer"].plot(ax=ax) is ax
    (values, places), more = ax.told["errorbar"]
    assert (values[0], places) == (row["n"], [0, 1])
    assert more["xerr"][0] == max(row["n_high"] - row["n"], row["n"] - row["n_low"])
    assert "region" in shown["release"].plot().svg
    assert shown["release"].plot("region", ax=Axes()).told["set_title"][0] == ("region",)
    with pytest.raises(sf.RecipeError, match=r"with an interval; the answer has n, fare"):
        shown["answer"].plot("other")
    with pytest.raises(sf.RecipeError, match="nothing to plot is called 'other'; there is region"):
        shown["release"].plot("other")


def test_rows_with_two_keys_are_divided_and_drawn_in_their_order():
    def divide(months, towns, **more):
        count = len(months)
        columns = {"month": months, "town": towns, "n": [*range(count)]}
        table = pa.table(columns | {"n_low": [-1.0] * count, "n_high": [None, *[99.0] * (count - 1)]})
        return [
            (each.name, each.ordered, [row.label for row in each.rows])
            for each in divide_rows(table, "n", **more)
        ]

    months, towns = [1, 1, 2, 2, 3, 3, 4, 4], ["a", "b"] * 4
    # What has no interval is not drawn; three values in their order are a line, as many as are asked for.
    assert divide(months, towns, most=9) == [
        ("town a", True, ["2", "3", "4"]),
        ("town b", True, ["1", "2", "3", "4"]),
    ]
    assert divide(months, towns, most=2) == [("town a", False, ["2", "3"]), ("town b", False, ["1", "2"])]
    # Rows that were sorted by their values are no line.
    assert [each[1] for each in divide(months[::-1], towns, most=9)] == [False, False]
    assert divide(months, towns, most=2, apart=False) == [("", False, ["1 · b"])]
    assert [each[0] for each in divide([*range(20)], [str(each) for each in range(20)], most=30)] == [""]


def test_an_error_in_a_notebook_is_the_readers_line_and_the_message(shown):
    with pytest.raises(sf.UnsupportedQuery) as raised:
        shown["curator"].sql("DP-SELECT 1 COUNT(*) FROM nowhere")
    line, message = raised.value._render_traceback_()
    assert re.fullmatch(r'line \d+: shown\["curator"\].sql\("DP-SELECT 1 COUNT\(\*\) FROM nowhere"\)', line)
    assert message.startswith("UnsupportedQuery: not answered: ")


def test_a_missing_argument_names_what_was_typed():
    with pytest.raises(TypeError, match=r"^open_release\(\) missing"):
        sf.open_release()
    with pytest.raises(TypeError, match=r"^from_frame\(\) missing"):
        sf.from_frame({"a": [1]})


@pytest.mark.parametrize(
    ("labels", "ordered"),
    [
        (["[0, 5)", "[5, 10)", "[10, 15]"], True),
        (["[5, 10)", "[0, 5)", "[10, 15]"], False),
        (list("abc"), False),
    ],
)
def test_bins_are_a_line_where_they_rise(labels, ordered):
    n = [4.0, 6.0, 5.0]
    rows = pa.table(
        {"bin": labels, "n": n, "n_low": [each - 1 for each in n], "n_high": [each + 1 for each in n]}
    )
    (drawn,) = divide_rows(rows, "n", most=9)
    assert drawn.ordered == ordered
    days = pa.array([0, 31, 59], pa.date32()).cast(pa.timestamp("s"))
    (drawn,) = divide_rows(rows.set_column(0, "day", days), "n", most=9)
    assert [each.label for each in drawn.rows] == ["1970-01-01", "1970-02-01", "1970-03-01"]
