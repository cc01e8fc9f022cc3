"""Markup is escaped by construction, and what cannot be seen is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sfumato.report.html import clip_text, data_uri, join, raw, tag


@pytest.mark.parametrize("text", ["<b>", "a & b", "\"'", "</script><img src=x onerror=alert(1)>"])
def test_text_and_attributes_are_escaped(text):
    told = tag("p", text, title=text)
    assert "<" not in told.removeprefix('<p title="').removesuffix("</p>").replace(">", "", 1)
    assert text not in told


def test_markup_is_not_escaped_twice():
    assert tag("p", tag("b", "a<b"), raw("<br>")) == "<p><b>a&lt;b</b><br></p>"


def test_attributes_that_are_nothing_are_left_out_and_names_are_spelled():
    assert tag("path", d="M0 0", class_=None, stroke_width=1.5) == '<path d="M0 0" stroke-width="1.5"/>'
    assert tag("img", alt="", hidden=False) == '<img alt="">'


@pytest.mark.parametrize("sign", ["\x00", "\x1b", "\u202e", "\u200b", "\ud800", "\u2028"])
def test_what_cannot_be_seen_is_replaced(sign):
    assert tag("p", f"a{sign}b") == "<p>a\ufffdb</p>"
    assert clip_text(f"a{sign}b") == "a\ufffdb"


def test_signs_stay_on_the_line_of_their_number():
    assert tag("p", "95 % of 3 ± 1, < 5, ε = 1") == ("<p>95\xa0% of 3\xa0±\xa01, &lt;\xa05, ε\xa0=\xa01</p>")


def test_nothing_is_nothing_and_lists_are_their_members():
    assert join(None, "a", ("b", ["c", None])) == "abc"
    assert join("a", "b", between=", ") == "a, b"


def test_a_file_becomes_a_text():
    assert data_uri(b"\x00\x01") == "data:image/png;base64,AAE="


@given(st.text(max_size=60))
def test_no_text_opens_an_element(text):
    inner = tag("p", text).removeprefix("<p>").removesuffix("</p>")
    assert not set(inner) & set("<>\"'")
    assert "\n" in inner or "\r" not in inner
